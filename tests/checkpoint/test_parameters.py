"""`Block.save_parameters` and `load_parameters`, with MXNet's error texts."""

import re

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.gluon import nn

X = mx.nd.array(np.linspace(-1, 1, 8).reshape(2, 4))


def stack(*widths):
    net = nn.HybridSequential()
    net.add(*(nn.Dense(n) for n in widths))
    return net


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Names start at 0, and files are in a folder of their own, so that texts can be compared whole."""
    monkeypatch.chdir(tmp_path)
    with mx.name.NameManager():
        yield


@pytest.fixture
def saved():
    """A net whose parameters are in the file `net`; the file `layer` has those of its first layer."""
    net = stack(3, 2)
    net.initialize()
    net(X)
    net.save_parameters("net")
    net[0].save_parameters("layer")
    return net


def raises(error, text):
    return pytest.raises(error, match=f"^{re.escape(text)}$")


def same(a, b):
    np.testing.assert_array_equal(a(X).asnumpy(), b(X).asnumpy())


def test_names_in_the_file(saved):
    assert list(mx.nd.load("net")) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert list(mx.nd.load("layer")) == ["weight", "bias"]


def test_into_a_new_net(saved):
    net = stack(3, 2)
    net.load_parameters("net")
    same(net, saved)
    assert net[0].weight.shape == (3, 4)


def test_into_one_that_waits_for_shapes(saved):
    net = stack(3, 2)
    net.initialize()
    net.load_parameters("net")
    same(net, saved)


def test_compiled_code_sees_what_is_loaded(saved):
    net = stack(3, 2)
    net.initialize()
    net.hybridize(backend="numpy")
    net(X)
    weight = net[0].weight.data()
    net.load_parameters("net")
    same(net, saved)
    assert net[0].weight.data() is weight  # overwritten in place


def test_a_layer_alone(saved):
    layer = nn.Dense(3)
    layer.load_parameters("layer")
    same(layer, saved[0])


def test_shape(saved):
    with raises(
        AssertionError,
        "Failed loading Parameter 'dense2_weight' from saved params: "
        "shape incompatible expected (5, 0) vs saved (3, 4)",
    ):
        nn.Dense(5).load_parameters("layer")
    with pytest.raises(AssertionError, match="shape incompatible expected .3, 0. vs saved .3,."):
        layer = nn.Dense(3)
        mx.nd.save("flat", {"weight": mx.nd.zeros((3,)), "bias": mx.nd.zeros((3,))})
        layer.load_parameters("flat")


def test_missing(saved):
    net = stack(3, 2, 1)
    with raises(
        AssertionError,
        "Parameter '2.weight' is missing in file 'net', which contains parameters: "
        "'0.weight', '0.bias', '1.weight', '1.bias'. Set allow_missing=True to ignore missing parameters.",
    ):
        net.load_parameters("net")
    net.load_parameters("net", allow_missing=True)
    with pytest.raises(RuntimeError, match="Parameter 'dense4_weight' has not been initialized"):
        net(X)


def test_extra(saved):
    net = nn.HybridSequential()
    with raises(
        ValueError,
        "Parameter '0.weight' loaded from file 'net' is not present in ParameterDict, "
        "which contains parameters . Set ignore_extra=True to ignore. ",
    ):
        net.load_parameters("net")
    net.load_parameters("net", ignore_extra=True)


def test_names_of_a_layer_for_a_net(saved):
    naming = "https://mxnet.io/api/python/docs/tutorials/packages/gluon/blocks/naming.html"
    with raises(
        AssertionError,
        "restore_prefix is 'hybridsequential0_' but Parameters name 'dense0_weight' does not start with "
        f"'hybridsequential0_'. For more info on naming, please see {naming}",
    ):
        saved.load_parameters("layer")
    layer = nn.Dense(3, use_bias=False)
    with pytest.raises(
        AssertionError, match="Parameter 'bias' loaded from file: layer is not present in ParameterDict"
    ):
        layer.load_parameters("layer")
    layer.load_parameters("layer", ignore_extra=True)
    mx.nd.save("exported", {"arg:dense0_weight": mx.nd.zeros((3, 4))})
    with pytest.raises(AssertionError, match="Parameter 'weight' is missing in file: exported, which contains param"):
        layer.load_parameters("exported")


def test_without_names():
    mx.nd.save("list", [mx.nd.zeros((3, 4))])
    with pytest.raises(ValueError, match="list holds arrays without names"):
        nn.Dense(3).load_parameters("list")


def test_element_types(saved):
    net = stack(3, 2)
    net.cast("float16")
    with raises(
        AssertionError,
        "Failed loading Parameter 'dense2_weight' from saved params: dtype incompatible expected float16 vs saved "
        "<class 'numpy.float32'>. Set cast_dtype=True to cast the dtype of saved params.",
    ):
        net.load_parameters("net")
    with pytest.raises(AssertionError, match="dtype_source is 'current' or 'saved', not 'best'"):
        net.load_parameters("net", cast_dtype=True, dtype_source="best")
    net.load_parameters("net", cast_dtype=True)
    assert net[0].weight.data().dtype == np.float16
    net.load_parameters("net", cast_dtype=True, dtype_source="saved")
    assert net[0].weight.data().dtype == np.float32
    same(net, saved)


def test_contexts(saved):
    with raises(
        AssertionError,
        "Failed to load Parameter 'dense0_weight' on [cpu(1)] because it was previous initialized on [cpu(0)].",
    ):
        saved.load_parameters("net", ctx=mx.cpu(1))
    net = stack(3, 2)
    net.load_parameters("net", ctx=[mx.cpu(1), mx.cpu(2)])
    assert net[0].weight.list_ctx() == [mx.cpu(1), mx.cpu(2)]


def test_shared_parameters():
    def tied():
        net = nn.HybridSequential()
        net.add(nn.Dense(4, in_units=4))
        net.add(nn.Dense(4, in_units=4, params=net[0].params))
        return net

    net = tied()
    net.initialize()
    net.save_parameters("all")
    net.save_parameters("once", deduplicate=True)
    assert list(mx.nd.load("all")) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert list(mx.nd.load("once")) == ["1.weight", "1.bias"]
    for file in ("all", "once"):
        other = tied()
        other.load_parameters(file)
        same(other, net)


def test_nothing_to_load():
    net = nn.HybridSequential()
    net.save_parameters("none")
    net.load_parameters("none")


def test_uninitialized():
    with pytest.raises(RuntimeError, match="Parameter 'dense0_weight' has not been initialized"):
        nn.Dense(3).save_parameters("none")


# By parameters' own names


NAMING = "https://mxnet.io/api/python/docs/tutorials/packages/gluon/blocks/naming.html"


def scoped():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(3, in_units=4), nn.Dense(2, in_units=3))
    return net


def test_parameter_dict():
    net = scoped()
    net.initialize()
    params = net.collect_params()
    params.save("whole")
    params.save("stripped", strip_prefix="net_")
    assert list(mx.nd.load("whole")) == list(params)
    assert list(mx.nd.load("stripped")) == ["dense0_weight", "dense0_bias", "dense1_weight", "dense1_bias"]
    for file, prefix in (("whole", ""), ("stripped", "net_")):
        other = scoped()
        other.collect_params().load(file, ctx=mx.cpu(), restore_prefix=prefix)
        same(other, net)
    other = scoped()
    other.collect_params().load_dict({f"arg:{name}": p.data() for name, p in params.items()})
    same(other, net)


def test_parameter_dict_errors():
    net = scoped()
    net.initialize()
    params = net.collect_params()
    with raises(
        ValueError,
        "Prefix 'x_' is to be striped before saving, but Parameter's name 'net_dense0_weight' does not start with "
        "'x_'. this may be due to your Block shares parameters from other Blocks or you forgot to use "
        "'with name_scope()' when creating child blocks. For more info on naming, please see " + NAMING,
    ):
        params.save("none", strip_prefix="x_")
    with raises(
        AssertionError,
        "restore_prefix is 'x_' but Parameters name 'net_dense0_weight' does not start with 'x_'. "
        "For more info on naming, please see " + NAMING,
    ):
        params.load("none", restore_prefix="x_")
    hint = (
        f"Please make sure source and target networks have the same prefix.For more info on naming, please see {NAMING}"
    )
    with raises(
        AssertionError,
        f"Parameter 'net_dense0_weight' is missing in param_dict, which contains parameters: 'w'. {hint}",
    ):
        params.load_dict({"w": X})
    with raises(
        AssertionError,
        "Parameter 'w' loaded from param_dict is not present in ParameterDict, choices are: 'net_dense0_weight', "
        f"'net_dense0_bias', 'net_dense1_weight', 'net_dense1_bias'. Set ignore_extra to True to ignore. {hint}",
    ):
        params.load_dict({"w": X}, allow_missing=True)
    mx.nd.save("empty", {})
    with pytest.raises(AssertionError, match="Parameter 'net_dense0_weight' is missing in file: empty"):
        params.load("empty")
    mx.nd.save("list", [X])
    with pytest.raises(ValueError, match="file: list holds arrays without names"):
        params.load("list")


def test_deprecated_names():
    net = scoped()
    net.initialize()
    with pytest.warns(UserWarning, match="save_params is deprecated. Please use save_parameters."):
        net.save_params("old")
    assert list(mx.nd.load("old")) == ["dense0_weight", "dense0_bias", "dense1_weight", "dense1_bias"]
    other = scoped()
    with pytest.warns(UserWarning, match="load_params is deprecated. Please use load_parameters."):
        other.load_params("old", ctx=mx.cpu())
    same(other, net)


# The tree of blocks


def test_structure():
    def build():
        net = nn.HybridSequential()
        net.add(nn.Dense(3, activation="relu"), stack(2))
        return net

    net = build()
    net.initialize()
    net(X)
    net.save("plain")
    net.hybridize(backend="numpy")
    net(X)
    net.save("compiled")
    for prefix, active in (("plain", False), ("compiled", True)):
        other = build()
        other.load(prefix)
        same(other, net)
        assert other._active is active
        assert other.name == net.name and list(other.collect_params()) == list(net.collect_params())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "bad-model.json: line 1, column 2: not JSON"),
        ("[1]", "bad-model.json: there is no block dense0; expected the blocks of dense0"),
        ('{"dense0": {"orig_name": 3, "children": {}}}', "dense0: no name or no children"),
        ("[" * 100000, "bad-model.json: the file: nested too deep"),
    ],
)
def test_malformed_structure(text, message):
    open("bad-model.json", "w").write(text)
    with pytest.raises(mx.base.CheckpointError, match=message):
        nn.Dense(3).load("bad")


def test_structure_of_other_blocks():
    net = stack(3)
    net.initialize()
    net(X)
    net.save("one")
    with pytest.raises(mx.base.CheckpointError, match="there is no block dense2"):
        stack(3, 2).load("one")
