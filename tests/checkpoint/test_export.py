"""`HybridBlock.export`: what a program does in a trace is written as operators, and reads back as the same function."""

import json
import warnings

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.gluon import nn
from gluonjit.language import mxnet_names
from gluonjit.symbol import differentiable_writes
from support.compare import assert_close

X = np.linspace(-2, 2, 24, dtype="f4").reshape(2, 3, 4)
OUTSIDE = mx.nd.array([[1.0], [2.0], [3.0]])


class Program(mx.gluon.HybridBlock):
    """A block that does what a function says."""

    def __init__(self, function):
        super().__init__(prefix="program_")
        self.function = function

    def hybrid_forward(self, F, *args):
        return self.function(F, *args)


def unequal_shapes(F, x):
    return x + F.ones((1, 1, 4)) * 2


def shape_facts(F, x):
    return x.reshape((x.shape[0], -1)) if x.shape[1] > 1 else x


def first(F, x):
    return x[0]


def corner(F, x):
    return x[1, 2]


def steps(F, x):
    return x[:, ::2, ::-1]


def positions(F, x):
    return x[:, [2, 0]]


def write_item(F, x):
    y = x * 1
    y[0] = 7
    y[1, 1:] = x[0, 1:]
    y[[0, 1], [1, 2]] = 5
    return y


def write_steps(F, x):
    y = x * 1
    y[:, ::2, 3:0:-1] = x[:, 1:, :3]
    y[1, ::2] = 9
    y[:, :, 1::2] = y[:, :, ::2]
    return y


def write_rows(F, x):
    y = x.reshape((6, 4)) * 1
    y[1:3, 1:3] = 0.5
    y[4:][1] = x[0, 0]
    return y


def write_computed(F, x):
    y = x * 1
    y[F.argmax(x, axis=0)[0, 0:2].astype("int32")] = x[0] * 2
    return y


def in_place(F, x):
    y = F.relu(x)
    y += x
    y *= 3
    return y


def constants(F, x):
    return F.broadcast_mul(x, F.array([[1, 2, 3, 4]])) + F.array([0.5])


def outside(F, x):
    return F.broadcast_add(x, OUTSIDE) - OUTSIDE.reshape((1, 3, 1))


def computed_index(F, x):
    return x[F.argmax(x, axis=0)[0, 0:2].astype("int32")]


def nested(F, x):
    return [x + 1, (x * 2, [x, x[1]])]


def comparisons(F, x):
    return (x > 0) * x - (2 - x) / 3 + x**2 % 3 + 2**x


PROGRAMS = [
    unequal_shapes,
    shape_facts,
    first,
    corner,
    steps,
    positions,
    write_item,
    write_steps,
    write_rows,
    write_computed,
    in_place,
    constants,
    outside,
    computed_index,
    nested,
    comparisons,
]


def flat(value):
    return [y for item in value for y in flat(item)] if isinstance(value, (list, tuple)) else [value.asnumpy()]


def export(function, *inputs, path):
    net = Program(function)
    net.hybridize(backend="numpy")
    expected = flat(net(*map(mx.nd.array, inputs)))
    net.export(path)
    return expected


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_what_mxnet_could_not_trace(function, tmp_path):
    expected = export(function, X, path=tmp_path / "p")
    again = mx.gluon.SymbolBlock.imports(tmp_path / "p-symbol.json", "data", tmp_path / "p-0000.params")
    for got, wanted in zip(flat(again(mx.nd.array(X))), expected, strict=True):
        assert_close(got, wanted)
    text = (tmp_path / "p-symbol.json").read_text()
    assert "np." not in text, "attributes are Python's, not NumPy's"
    operators = {row["op"] for row in json.loads(text)["nodes"]}
    assert operators <= {"null", *mxnet_names.operators()}
    assert not operators & {*differentiable_writes.WRITES}, "MXNet's Gluon wants gradients of everything"


def test_names_of_inputs(tmp_path):
    export(lambda F, a, b: F.broadcast_add(a, b), X, X[:1], path=tmp_path / "p")
    assert mx.sym.load(tmp_path / "p-symbol.json").list_arguments() == ["data0", "data1"]


def test_arrays_that_are_no_parameters(tmp_path):
    export(outside, X, path=tmp_path / "p")
    loaded = mx.nd.load(tmp_path / "p-0000.params")
    assert list(loaded) == ["arg:program_captured0"]
    graph = mx.sym.load(tmp_path / "p-symbol.json")
    assert graph.attr_dict()["program_captured0"] == {"__shape__": "(3, 1)", "__dtype__": "0"}
    export(constants, X, path=tmp_path / "p")
    assert sorted(mx.nd.load(tmp_path / "p-0000.params")) == ["arg:program_constant0", "arg:program_constant1"]


def test_names_that_are_taken(tmp_path):
    class Taken(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="program_")
            self.weight = self.params.get("constant0", shape=(4,))

        def hybrid_forward(self, F, x, weight):
            return F.broadcast_add(x, F.array([1])) * weight.sum()

    net = Taken()
    net.initialize(mx.init.One())
    net.hybridize(backend="numpy")
    expected = net(mx.nd.array(X)).asnumpy()
    net.export(tmp_path / "p")
    assert set(mx.nd.load(tmp_path / "p-0000.params")) == {"arg:program_constant0", "arg:program_constant1"}
    again = mx.gluon.SymbolBlock.imports(tmp_path / "p-symbol.json", "data", tmp_path / "p-0000.params")
    assert_close(again(mx.nd.array(X)).asnumpy(), expected)


def test_before_the_first_call(tmp_path):
    net = nn.Dense(3)
    net.initialize()
    message = "Please first call block.hybridize.. and then run forward with this block at least once before calling"
    with pytest.raises(RuntimeError, match=message):
        net.export(tmp_path / "p")
    net(mx.nd.ones((1, 2)))
    net.hybridize()
    with pytest.raises(RuntimeError, match=message):
        net.export(tmp_path / "p")
    assert not list(tmp_path.iterdir())


def test_several_traces(tmp_path):
    net = Program(shape_facts)
    net.hybridize(backend="numpy")
    net(mx.nd.ones((2, 1, 4)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.export(tmp_path / "one")
    net(mx.nd.array(X))
    with pytest.warns(UserWarning, match="program has been traced 2 times.*the last graph is exported") as w:
        net.export(tmp_path / "two")
    assert w[0].filename == __file__
    assert mx.sym.load(tmp_path / "one-symbol.json").list_outputs() == ["data"]
    assert mx.sym.load(tmp_path / "two-symbol.json").list_outputs() == ["program_reshape0_output"]


def test_writes_that_outlive_the_call(tmp_path):
    def program(F, x):
        x += 1
        return x * 2

    with pytest.warns(UserWarning, match="writes to arrays that exist before the call"):
        expected = export(program, X, path=tmp_path / "p")
    again = mx.gluon.SymbolBlock.imports(tmp_path / "p-symbol.json", "data")
    x = mx.nd.array(X)
    assert_close(again(x).asnumpy(), expected[0])
    assert_close(x.asnumpy(), X)


def test_modes_of_its_own(tmp_path):
    def program(F, x):
        with mx.autograd.train_mode():
            return F.Dropout(x, p=0.5)

    with pytest.warns(UserWarning, match="sets the training mode for a part of it"):
        export(program, X, path=tmp_path / "p")


def test_element_types_and_states(tmp_path):
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(3, 1), nn.BatchNorm(), nn.Dense(2))
    net.cast("float16")
    net.initialize()
    net.hybridize(backend="numpy")
    x = mx.nd.ones((1, 2, 4, 4), dtype="float16")
    expected = net(x).asnumpy()
    net.export(tmp_path / "net", epoch=12)
    arrays = mx.nd.load(tmp_path / "net-0012.params")
    assert [name for name in arrays if name.startswith("aux:")] == [
        "aux:net_batchnorm0_running_mean",
        "aux:net_batchnorm0_running_var",
    ]
    again = mx.gluon.SymbolBlock.imports(tmp_path / "net-symbol.json", ["data"], tmp_path / "net-0012.params")
    types = {name: param.dtype for name, param in again.collect_params().items()}
    assert types["net_conv0_weight"] == np.float16 and types["net_batchnorm0_gamma"] == np.float32
    assert again.collect_params()["net_batchnorm0_running_var"].grad_req == "null"
    assert_close(again(x).asnumpy(), expected)


def test_casts_of_mixed_precision(tmp_path):
    export(lambda F, x: F.amp_cast(F.exp(x), dtype="float16"), X, path=tmp_path / "p")
    net = Program(lambda F, x: F.exp(F.amp_cast(x, dtype="float16")))
    net.hybridize(backend="numpy")
    net(mx.nd.array(X))
    for keep in (True, False):
        net.export(tmp_path / "p", remove_amp_cast=not keep)
        assert ("amp_cast" in (tmp_path / "p-symbol.json").read_text()) is keep
