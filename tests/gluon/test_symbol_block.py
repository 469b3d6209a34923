"""`SymbolBlock`: graphs as blocks, with MXNet's error texts."""

import copy
import pickle
import re

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.base import CheckpointError
from gluonjit.gluon import SymbolBlock, nn
from support.compare import assert_close

X = np.linspace(-1, 1, 8, dtype="f4").reshape(2, 4)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Names start at 0, and files are in a folder of their own, so that texts can be compared whole."""
    monkeypatch.chdir(tmp_path)
    with mx.name.NameManager():
        yield


@pytest.fixture
def x():
    return mx.nd.array(X)


@pytest.fixture
def dense(x):
    """An initialized layer; its graph and parameters are in the files `net-…`, its structured parameters in `net`."""
    net = nn.Dense(3)
    net.initialize(mx.init.Xavier())
    net.hybridize(backend="numpy")
    net(x)
    net.export("net")
    net.save_parameters("net")
    return net


def raises(error, text):
    return pytest.raises(error, match=f"^{re.escape(text)}$")


NAMING = "https://mxnet.io/api/python/docs/tutorials/packages/gluon/blocks/naming.html"


def test_imports(dense, x):
    block = SymbolBlock.imports("net-symbol.json", ["data"], "net-0000.params")
    assert_close(block(x).asnumpy(), dense(x).asnumpy())
    assert repr(block) == "SymbolBlock(\n<Symbol dense0_fwd> : 1 -> 1\n)"
    assert list(block.collect_params()) == ["dense0_weight", "dense0_bias"]
    assert list(block._collect_params_with_prefix()) == ["weight", "bias"]
    assert block.prefix == ""


def test_one_name(dense, x):
    block = SymbolBlock.imports("net-symbol.json", "data", "net-0000.params", ctx=mx.cpu(1))
    assert block.params["dense0_bias"].list_ctx() == [mx.cpu(1)]
    assert_close(block(x.as_in_context(mx.cpu(1))).asnumpy(), dense(x).asnumpy())


def test_wrong_name(dense):
    with raises(
        AssertionError,
        "input_names: 'dat' is not an input of the graph; did you mean 'data'?\n"
        "Parameter 'data' is missing in file: net-0000.params, which contains parameters: 'dense0_weight', "
        f"'dense0_bias'. Please make sure source and target networks have the same prefix.For more info on naming, "
        f"please see {NAMING}",
    ):
        SymbolBlock.imports("net-symbol.json", ["dat"], "net-0000.params")


def test_exported_file_of_parameters(dense):
    with pytest.raises(AssertionError, match="'weight' is missing .* SymbolBlock.imports reads such a file"):
        dense.load_parameters("net-0000.params")
    dense.collect_params().load("net-0000.params")


def test_structured_file(dense):
    with raises(
        AssertionError,
        "Parameter 'dense0_weight' is missing in file: net, which contains parameters: 'weight', 'bias'. "
        "Please make sure source and target networks have the same prefix.For more info on naming, please see "
        f"{NAMING}",
    ):
        SymbolBlock.imports("net-symbol.json", ["data"], "net")


def test_missing_and_extra(dense, x):
    arrays = mx.nd.load("net-0000.params")
    mx.nd.save("less", {"arg:dense0_weight": arrays["arg:dense0_weight"]})
    mx.nd.save("more", {**arrays, "arg:other": mx.nd.ones((1,))})
    block = SymbolBlock.imports("net-symbol.json", ["data"], "less", allow_missing=True)
    with pytest.raises(RuntimeError, match="Parameter 'dense0_bias' has not been initialized. Note that you should"):
        block(x)
    with pytest.raises(AssertionError, match="Parameter 'other' loaded from file: more is not present in ParameterD"):
        SymbolBlock.imports("net-symbol.json", ["data"], "more")
    block = SymbolBlock.imports("net-symbol.json", ["data"], "more", ignore_extra=True)
    assert_close(block(x).asnumpy(), dense(x).asnumpy())


def test_without_parameters(dense, x):
    block = SymbolBlock.imports("net-symbol.json", ["data"])
    with pytest.raises(RuntimeError, match="Parameter 'dense0_weight' has not been initialized. Note that you should"):
        block(x)
    block.initialize(mx.init.One())
    assert_close(block(x).asnumpy(), np.repeat(X.sum(1, keepdims=True) + 1, 3, 1))


def test_files_that_are_wrong(dense):
    with pytest.raises(mx.MXNetError, match="cannot read none-symbol.json"):
        SymbolBlock.imports("none-symbol.json", ["data"])
    with pytest.raises(CheckpointError, match="^net-0000.params is a file of parameters; expected a graph"):
        SymbolBlock.imports("net-0000.params", ["data"])
    with pytest.raises(CheckpointError, match="^net-symbol.json is JSON; expected parameters"):
        SymbolBlock.imports("net-symbol.json", ["data"], "net-symbol.json")


def test_saved_types_are_kept(x):
    net = nn.Dense(3)
    net.cast("float64")
    net.initialize()
    net.hybridize(backend="numpy")
    wide = x.astype("float64")
    net(wide)
    net.export("net")
    block = SymbolBlock.imports("net-symbol.json", ["data"], "net-0000.params")
    assert block.params["dense0_weight"].dtype == np.float64
    assert_close(block(wide).asnumpy(), net(wide).asnumpy())


def test_parts_of_a_net(x):
    """What MXNet's documentation does: features from inside a net, whose parameters are shared."""
    net = nn.HybridSequential()
    net.add(nn.Dense(5, activation="relu"), nn.Dense(4), nn.Dense(2))
    net.initialize()
    whole = net(x)
    data = mx.sym.var("data")
    inside = net(data).get_internals()
    block = SymbolBlock(
        [inside["dense0_relu_fwd_output"], inside["dense1_fwd_output"]], data, params=net.collect_params()
    )
    first, second = block(x)
    assert_close(first.asnumpy(), net[0](x).asnumpy())
    assert_close(net[2](second).asnumpy(), whole.asnumpy())
    assert block.params["dense1_weight"] is net[1].weight
    net[0].weight.set_data(mx.nd.zeros((5, 4)))  # compiled code sees it
    assert_close(block(x)[0].asnumpy(), np.zeros((2, 5), "f4"))


def test_nested_inputs_and_outputs(x):
    a, b, c = map(mx.sym.var, "abc")
    block = SymbolBlock([a + b, [mx.sym.split(c, 2), c]], [a, [b, c]])
    total, (halves, same) = block(x, [x, x])
    assert_close(total.asnumpy(), 2 * X)
    assert [h.shape for h in halves] == [(2, 2), (2, 2)] and same.shape == (2, 4)
    with raises(
        ValueError,
        "The argument structure of HybridBlock does not match the cached version. "
        "Stored format = [0, [0, 0]], input format = [0, 0, 0]",
    ):
        block(x, x, x)
    with pytest.raises(ValueError, match="must be one NDArray or one Symbol in the input"):
        block(X)


def test_nesting_kept_beside_an_exported_graph(x):
    """MXNet's graphs are flat. Programs such as GluonTS write down how a block nests, and tell the block they read."""
    net = mx.gluon.nn.HybridLambda(lambda F, a, more: (a + more[1], [a, [more[0]]]))
    assert (net._in_format, net._out_format) == (None, None)
    net.hybridize(backend="numpy")
    net(x, [x, x])
    assert (net._in_format, net._out_format) == ([0, [0, 0]], [0, [0, [0]]])
    net.export("net")
    block = SymbolBlock.imports("net-symbol.json", ["data0", "data1", "data2"])
    flat = block(x, x, 2 * x)
    assert (block._in_format, block._out_format) == ([0, 0, 0], [0, 0, 0])
    block._in_format, block._out_format = net._in_format, net._out_format
    total, (first, (second,)) = block(x, [x, 2 * x])
    assert_close(total.asnumpy(), 3 * X)
    assert [y.shape for y in (*flat, first, second)] == [(2, 4)] * 5
    with raises(ValueError, "the format [0, 0] has 2 inputs, this block has 3"):
        block._in_format = [0, 0]
    with raises(ValueError, "the format -1 has 0 outputs, this block has 3"):
        block._out_format = -1


def test_one_symbol_of_several_outputs(x):
    block = SymbolBlock(mx.sym.split(mx.sym.var("data"), 4), mx.sym.var("data"))
    assert [y.shape for y in block(x)] == [(2, 1)] * 4
    assert repr(block) == "SymbolBlock(\n<Symbol split0> : 1 -> 4\n)"


def test_inputs_are_variables():
    y = mx.sym.relu(mx.sym.var("x"), name="act")
    with raises(AssertionError, "Input symbols must be variable, but <Symbol act> is an output of operators"):
        SymbolBlock(y, y)


def test_sparse_parameters():
    weight = mx.sym.var("weight", stype="row_sparse")
    with raises(
        AssertionError, "SymbolBlock doesn't support Parameter 'weight' because its storage type is 'row_sparse'."
    ):
        SymbolBlock(mx.sym.dot(mx.sym.var("data"), weight), mx.sym.var("data"))


def test_symbols_in(dense):
    block = SymbolBlock.imports("net-symbol.json", ["data"], "net-0000.params")
    graph = block(mx.sym.relu(mx.sym.var("image"), name="first"))
    assert graph.list_arguments() == ["image", "dense0_weight", "dense0_bias"]
    assert graph.list_outputs() == ["dense0_fwd_output"]


def test_within_other_blocks(dense, x):
    """Imperatively, hybridized and exported: the nodes keep their names, whatever scope they are in."""
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(SymbolBlock.imports("net-symbol.json", ["data"], "net-0000.params"), nn.Activation("relu"))
    expected = np.maximum(dense(x).asnumpy(), 0)
    assert_close(net(x).asnumpy(), expected)
    net.hybridize(backend="numpy")
    assert_close(net(x).asnumpy(), expected)
    net.export("whole")
    assert mx.sym.load("whole-symbol.json").get_internals().list_outputs() == [
        "data",
        "dense0_weight",
        "dense0_bias",
        "dense0_fwd_output",
        "net_relu0_fwd_output",
    ]
    assert_close(SymbolBlock.imports("whole-symbol.json", "data", "whole-0000.params")(x).asnumpy(), expected)


def test_shapes_are_completed_within_other_blocks(x):
    data = mx.sym.var("data")
    net = nn.HybridSequential()
    net.add(SymbolBlock(mx.sym.FullyConnected(data, num_hidden=3, name="fc"), data), nn.Dense(2))
    net.initialize()
    net.hybridize(backend="numpy")
    assert net(x).shape == (2, 2)
    assert net[0].params["fc_weight"].shape == (3, 4)


def test_declared_shapes(x):
    """No operator tells the shape of a factor that is broadcast; the graph's variable does."""
    graph = mx.sym.broadcast_mul(mx.sym.var("data"), mx.sym.var("scale", shape=(1, x.shape[1])))
    block = mx.gluon.SymbolBlock(graph, mx.sym.var("data"))
    block.initialize(mx.init.One())
    assert np.array_equal(block(x).asnumpy(), x.asnumpy())
    assert block.params["scale"].shape == (1, x.shape[1])
    bare = mx.gluon.SymbolBlock(mx.sym.broadcast_mul(mx.sym.var("data"), mx.sym.var("scale")), mx.sym.var("data"))
    bare.initialize()
    with pytest.raises(mx.MXNetError, match="shape of parameter scale"):
        bare(x)


def test_a_block_used_twice(x):
    """As with shared layers, one set of parameters serves both uses."""

    class Twice(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            data = mx.sym.var("data")
            self.part = SymbolBlock(mx.sym.FullyConnected(data, num_hidden=4, name="fc"), data)

        def hybrid_forward(self, F, x):
            return self.part(self.part(x))

    net = Twice()
    net.initialize()
    expected = net(x).asnumpy()
    net.hybridize(backend="numpy")
    assert_close(net(x).asnumpy(), expected)
    net.export("twice")
    assert_close(SymbolBlock.imports("twice-symbol.json", "data", "twice-0000.params")(x).asnumpy(), expected)


def test_it_is_compiled_from_the_start(dense, x):
    block = SymbolBlock.imports("net-symbol.json", ["data"], "net-0000.params")
    block(x)
    assert block._fast_call is not None
    assert_close(block(x).asnumpy(), dense(x).asnumpy())
    seen = []
    block.register_op_hook(lambda name, op, array: seen.append(name))
    block(x)
    assert seen == [b"dense0_fwd_output"]
    handle = block.register_forward_hook(lambda *_: seen.append("hook"))
    block(x)
    assert seen[1:] == [b"dense0_fwd_output", "hook"]
    handle.detach()
    assert block(mx.nd.ones((5, 4))).shape == (5, 3)


def test_batch_norm_stays_wide():
    data = mx.sym.var("data")
    graph = mx.sym.FullyConnected(mx.sym.BatchNorm(data, name="bn"), num_hidden=2, name="fc")
    block = SymbolBlock(graph, data)
    block.initialize()
    block.cast("float16")
    types = {name: np.dtype(p.dtype).name for name, p in block.collect_params().items()}
    assert types == {
        **dict.fromkeys(("bn_gamma", "bn_beta", "bn_moving_mean", "bn_moving_var"), "float32"),
        **dict.fromkeys(("fc_weight", "fc_bias"), "float16"),
    }
    assert block(mx.nd.ones((1, 3), dtype="float16")).dtype == np.float16


def test_training_mode():
    data = mx.sym.var("data")
    block = SymbolBlock(mx.sym.Dropout(data, p=0.5), data)
    ones = mx.nd.ones((100,))
    assert block(ones).asnumpy().min() == 1
    with mx.autograd.train_mode():
        assert block(ones).asnumpy().min() == 0


def test_copies(dense, x):
    block = SymbolBlock.imports("net-symbol.json", ["data"], "net-0000.params")
    expected = block(x).asnumpy()
    for other in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        other.params["dense0_bias"].data()[:] = 1
        assert_close(other(x).asnumpy(), expected + 1)
        assert_close(block(x).asnumpy(), expected)


def test_save_and_load_its_parameters(dense, x):
    block = SymbolBlock.imports("net-symbol.json", ["data"], "net-0000.params")
    block.save_parameters("own")
    assert list(mx.nd.load("own")) == ["weight", "bias"]
    other = SymbolBlock.imports("net-symbol.json", ["data"])
    other.load_parameters("own")
    assert_close(other(x).asnumpy(), block(x).asnumpy())


def test_infer_shape(dense, x):
    block = SymbolBlock.imports("net-symbol.json", ["data"])
    block.infer_shape(x)
    assert block.params["dense0_weight"].shape == (3, 4)
