"""Whatever works imperatively works in a traced block, and gives the same: results, types and writes to arguments.

Each program runs twice: on NDArrays, and as the graph that tracing made of it, evaluated by the NumPy reference.
"""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon, nd
from gluonjit.ir.types import type_of
from gluonjit.runtime.reference import Reference
from gluonjit.trace import trace


def block_of(program, **attributes):
    class Program(gluon.HybridBlock):
        def hybrid_forward(self, F, *args):
            return program(F, *args)

    block = Program()
    for name, value in attributes.items():
        setattr(block, name, value)
    return block


def run(found, args):
    """Evaluates a trace for `args`, writing back what it writes."""
    leaves, _ = mx.trace.flatten(tuple(args))
    graph = found.graph([type_of(x._array) for x in leaves], False)
    arrays = [*leaves, *(p.data() for p in found.params), *found.captured]
    inputs = [x._array for x in arrays]
    if found.streams(False):
        inputs.append(mx.random.reserve(found.streams(False)))
    outputs, updates = Reference(graph).run(inputs)
    for k, new in zip(found.writes, updates, strict=True):
        arrays[k]._array[...] = new
    return found.rebuild([nd.NDArray(x) for x in outputs])


def same(a, b):
    """Whether two results are nested alike, with equal arrays of equal types."""
    if isinstance(a, (list, tuple)):
        assert type(a) is type(b)
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif a is None:
        assert b is None
    else:
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        # NumPy itself differs in the last bit between layouts of the operands of pow.
        np.testing.assert_allclose(b.asnumpy(), a.asnumpy(), rtol=2e-7)


def check(program, *arrays):
    """The program on copies of `arrays`, imperatively and traced; then the trace on other arrays, where facts allow."""
    found = trace(block_of(program), [nd.array(a, dtype=a.dtype) for a in arrays])
    assert found.holds([type_of(a) for a in arrays], False)
    compare(program, found, arrays)
    for other in OTHERS if len(arrays) == 1 else ():
        if found.holds([type_of(other)], False):
            compare(program, found, [other])
    return found


def compare(program, found, arrays):
    args = [nd.array(a, dtype=a.dtype) for a in arrays]
    copies = [a.copy() for a in args]
    try:
        expected = program(nd, *args)
    except Exception:
        with pytest.raises(mx.MXNetError):
            run(found, copies)
    else:
        same(expected, run(found, copies))
        same(args, copies)


X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
OTHERS = [
    np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3),
    np.arange(10, dtype=np.float32).reshape(2, 5),
    np.arange(3, dtype=np.float32).reshape(1, 3),
    np.arange(12, dtype=np.float32).reshape(2, 3, 2),
    np.arange(6, dtype=np.float32),
    X.astype(np.float64),
    X.astype(np.int32),
]
"""Other signatures: a trace may refuse them (`holds`), but not serve them wrongly."""
CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


EXPRESSIONS = [
    # types
    "x * x.shape[0]",
    "F.ones(x.shape) + x.ndim + x.size + len(x)",
    "F.zeros((1,), dtype=x.dtype)",
    "F.zeros((2,), ctx=x.context) + F.ones((2,), x.ctx)",
    "x + (x.stype == 'default')",
    "x if x.shape[0] > 1 else -x",
    "x.T",
    # broadcasting
    "x + F.ones((1, 1))",
    "x + F.ones((2, 3))",
    "x + F.ones((3,))",
    "x * F.ones((2, 1)) - x",
    "F.ones((2, 1)) / x",
    "x ** F.full((3,), 2)",
    "(x % F.full((1,), 2)) + (x > F.full((3,), 2)) + (x == x)",
    "F.maximum(x, F.full((1, 1), 3)) + F.minimum(2, x)",
    "x.broadcast_to((4, 2, 3))",
    "x.broadcast_to(shape=(2, 3))",
    "x[0].broadcast_like(x)",
    "x.broadcast_like(F.ones((4, 2, 3))) + F.ones((1, 3)).broadcast_like(x)",
    # numbers
    "1 - x / 2 + 3 % x + 2 ** x - (x >= 2) + (3 > x)",
    "np.float32(2) * x + np.float64(1.5)",
    "-x + abs(x - 3)",
    "x + True + np.bool_(True) + np.int64(3)",
    # indexing
    "x[0]",
    "x[-1]",
    "x[0, 0]",
    "x[1, -1]",
    "x[0:1]",
    "x[1:]",
    "x[:, 0]",
    "x[:, 1:3]",
    "x[1:3, ::2]",
    "x[::-1]",
    "x[::2, ::-2]",
    "x[None]",
    "x[:, None, 1]",
    # empty: several axes of 0, and of 1 that go
    "x[1:1, 1:1]",
    "x.reshape((2, 3, 1))[2:1, 0, 1:1] if x.size == 6 else x",
    "x[...]",
    "x[..., 0]",
    "x[:]",
    "x[()]",
    "x[5:]",
    "x[[1, 0]]",
    "x[:, [2, 0, 0]]",
    "x[[0, 1], [2, 0]]",
    "x[np.array([[1, 0], [1, 1]])]",
    "x[1:, [2, -1]]",
    "x[F.array([1, 0, -1])]",
    "x[x > 1]",
    "x[:, F.array([2, 0])]",
    "x[F.array([1, 0]), F.array([2, 1])]",
    "x[F.array([[1], [0]]), F.array([2, 1])]",
    # loops over axes
    "[row * k for k, row in enumerate(x)]",
    "sum(x[k] for k in range(len(x)))",
    # views and copies
    "x.reshape(-1, 2)",
    "x.reshape((3, 2)).reshape((0, -1, 1))",
    "x.reshape(shape=(-3,))",
    "x.reshape((-1, 3), reverse=True)",
    "x.flatten() + x.flatten(inplace=True)",
    "x.expand_dims(1) + x.expand_dims(-2, inplace=True)",
    "x[0:1].squeeze() + x[0:1].squeeze(axis=0, inplace=True)",
    "x.copy() + x.detach() + x.as_in_context(mx.cpu()) + x.copyto(mx.cpu())",
    "x.astype('float64')",
    "x.astype(np.int32, copy=False)",
    "x.wait_to_read() or x",
    "x.tostype('default') + x.as_nd_ndarray()",
    # what only mx.nd has
    "x + F.array([[1], [2]])",
    "F.array([1, 2, 3], dtype='int32')",
    "F.array(x) + F.array(x, dtype='float32')",
    "F.moveaxis(x, 0, 1)",
    "F.concatenate([x, x], axis=1)",
    "F.add(x, 1) + F.subtract(3, x) + F.logical_and(x, x)",
    "F.full((2, 2), 7, dtype='int32')",
    "F.eye(2) + F.arange(2) + F.linspace(0, 1, 2)",
    # mixing namespaces and arrays from outside
    "nd.relu(x) + F.exp(nd.ones((3,)))",
    "nd.array([1, 2, 3]) + x",
    "2 * x * nd.ones((2, 3))",
    "nd.concat(x, nd.ones((1, 3)), dim=0)",
    "x > nd.full((2, 1), 3)",
    # structure
    "(x, [x + 1, (x[0], x[1])])",
    "[x]",
    "x, None",
    "(y, y) if (y := x + 1) is not None else None",
    "F.split(x, num_outputs=3, axis=1)",
    "F.split(x, num_outputs=1, axis=1)",
    "F.stack(*F.split(x, num_outputs=3, axis=1), axis=0)",
    # methods
    "np.sum(x)",
    "x.sum(axis=1, keepdims=True) + x.mean() + x.max(axis=0)",
    "x.slice_axis(axis=1, begin=0, end=2).transpose((1, 0)).clip(0, 3)",
    "x.broadcast_to((2, 3)).zeros_like() + x.one_hot(3).sum()",
    "x.tile((2, 1)).repeat(2, axis=1)",
    "{x: x + 1}[x] if x in [x] else None",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions(text):
    code = compile(text, "<expression>", "eval")

    def program(F, x):
        return eval(code, {"F": F, "x": x, "nd": nd, "mx": mx, "np": np})

    check(program, X)


# Writes: the statements change x (2, 3) or arrays made from it; x and z are returned, x is also the caller's.
STATEMENTS = [
    "x[0] = 2",
    "x[:] = 3",
    "x[:] = x + 1",
    "x[1, 2] = 7; x[-1, -1] += 1",
    "x[:, 1] = 5",
    "x[:, ::2] = F.array([[1, 2], [3, 4]])",
    "x[::-1] = x.copy()",
    "x[0] = x[1]",
    "x[0] = F.array([7, 8, 9])",
    "x[:] = F.array([1, 2, 3])",
    "x[:, 0:1] = F.array([[1], [2]])",
    "x[None, 0] = F.ones((1, 3))",
    "x[0] = F.ones((1, 1, 3))",
    "x[...] = 4",
    "x[[0, 1], [1, 2]] = F.array([10, 20])",
    "x[[1, 1]] = F.array([[1, 2, 3], [4, 5, 6]])",
    "x[:, [0, 2]] = 0",
    "x[F.array([1])] = 8",
    "x[F.array([-1]), :] = F.array([4, 5, 6])",
    "x[F.array([1, 0]), F.array([0, 2])] = F.array([5, 6])",
    "x[0] = [1, 2, 3]",
    "x[0] = np.array([1.5, 2.5, 3.5])",
    "x[0] = F.array([1.7, 2.2, 3.9]).astype('float64')",
    "x += 1; x *= 2; x -= 3; x /= 4; x %= 2",
    "x += x; x *= F.array([1, 2, 3])",
    "y = x[0]; y += 10",
    "y = x[0]; x[0] = 5; z = y * 1",
    "y = x[1:]; y[0, 1] = 100; z = y + 0",
    "y = x.reshape((3, 2)); y[1] = 9",
    "y = x.reshape(-1); y[1:5] = 0; z = x[1]",
    "y = x[0, 1:3]; y[:] = -1",
    "y = x.detach(); y[:] = 0",
    "y = x.as_in_context(x.context); y += 1",
    "y = x.astype('float32', copy=False); y[0] = 3",
    "y = x[0][1:]; y[:] = 5; w = x.reshape((6,)); w[0] = 7; z = y + w[0]",
    "a = x[0:1]; b = x[1:2]; a[:] = b; b[:] = 0; z = F.concat(a, b, dim=0)",
    # copies do not write through
    "y = x.copy(); y[:] = 0",
    "y = x[:, 1:]; y[:] = 0",
    "y = x[::2]; y[:] = 0",
    "y = x.expand_dims(0); y[:] = 0",
    "y = x.flatten(); y += 1",
    "y = F.reshape(x, (6,)); y[:] = 0",
    "y = x.T; y[:] = 0",
    "y = x.astype('float32'); y[:] = 0",
    "y = x + 1; y[:] = 0",
    # out=
    "F.exp(F.ones((2, 3)), out=x)",
    "F.broadcast_add(x, F.ones((1, 3)), out=x); z = x * 2",
    "y = F.zeros((2, 3)); F.relu(-x, out=y); z = y",
    "y = x[0]; F.square(y, out=y)",
    "F.ones((2, 3)).copyto(x)",
    "y = F.zeros((2, 3)); x.copyto(y); y[0] = 0; z = y",
    # arrays made in the call
    "y = F.zeros(x.shape); y[0] = x[1]; y[1] += 1; z = y",
    "y = nd.zeros((2, 3)); y += x; z = y",
    "y = F.array([1, 2]); y[0] = 5; z = y",
    "y = F.full((2,), 3); y *= 2; z = y",
    "y = [F.zeros((3,)) for _ in range(2)]; y[0][:] = x[0]; z = F.stack(*y)",
    "x.slice_assign(F.ones((1, 2)), (0, 1), (1, 3), (None, None))",
    "x.slice_assign_scalar(9, (1, 0), (2, 1), (None, None))",
    "for k in range(x.shape[0]): x[k] = x[k] * k",
    "for row in x: row[0] = 4",
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_writes(text):
    code = compile(text, "<statements>", "exec")

    def program(F, x):
        names = {"F": F, "x": x, "nd": nd, "mx": mx, "np": np, "z": x}
        exec(code, names)
        return names["x"] + 0, names["z"] + 0

    check(program, X)


PAIRS = [
    ((2, 3), (2, 3)),
    ((2, 3), (1, 3)),
    ((2, 3), (3,)),
    ((1, 3), (2, 3)),
    ((4, 3), (3,)),
    ((3,), (3,)),
    ((2, 3, 3), (3,)),
]


@pytest.mark.parametrize("text", ["x = x + y", "x += y", "x[0] = y[0]", "x[:] = y", "F.broadcast_mul(x, y, out=x)"])
@pytest.mark.parametrize("traced_with", PAIRS[:4], ids=str)
def test_a_trace_of_two_arrays_on_others(text, traced_with):
    code = compile(text, "<statement>", "exec")

    def program(F, x, y):
        names = {"F": F, "x": x, "y": y}
        exec(code, names)
        return names["x"] * 1

    def arrays(shapes):
        return [np.arange(1, 1 + np.prod(s), dtype=np.float32).reshape(s) for s in shapes]

    try:
        found = trace(block_of(program), [nd.array(a) for a in arrays(traced_with)])
    except (mx.MXNetError, ValueError):
        with pytest.raises((mx.MXNetError, ValueError)):
            program(nd, *(nd.array(a) for a in arrays(traced_with)))
        return
    served = [shapes for shapes in PAIRS if found.holds([type_of(a) for a in arrays(shapes)], False)]
    assert traced_with in served
    for shapes in served:
        compare(program, found, arrays(shapes))


def test_a_write_reaches_a_view_that_the_caller_passed():
    base = nd.array(CUBE)
    block = block_of(lambda F, x: x.__setitem__(0, 0) or x + 1)
    found = trace(block, [base[1]])
    assert found.writes == [0]
    result = run(found, [base[1]])
    assert base.asnumpy()[1, 0].tolist() == [0, 0, 0, 0]
    assert base.asnumpy()[0].tolist() == CUBE[0].tolist()
    assert result.shape == (3, 4)


def test_shapes_of_zero_size():
    check(lambda F, x: (x[0:0], x[1:1] + 1, x.shape[0] + F.ones((1,))), X)

    def fill(F, x):
        y = x[0:0]
        y[:] = 3
        return y, x + 1

    check(fill, X)
    check(lambda F, x: x + F.ones((1, 3)), np.zeros((0, 3), np.float32))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "uint8", "int64"])
def test_element_types(dtype):
    def program(F, x):
        y = x.copy()
        y[0] = 3.7
        y += 1
        y[1] = F.array([1.5, 2.5, 300.0])
        return y, x[0] * 2, x.astype("float32") / 2

    check(program, X.astype(dtype))


def test_nested_arguments():
    def program(F, x, states, extra):
        assert extra is None
        assert isinstance(states, list) and isinstance(states[1], tuple)
        return x + states[0], [states[1][0] * 2]

    def imperative(F, a, b, c):
        return program(F, a, [b, (c,)], None)

    x, b, c = nd.array(X), nd.array(X[0]), nd.array(X[:, :1])
    found = trace(block_of(program), [x, [b, (c,)], None])
    same(imperative(nd, x, b, c), run(found, [x, [b, (c,)], None]))
    assert found.symbol.list_inputs() == ["data0", "data1", "data2"]


def test_an_input_returned_and_one_not_used():
    found = check(lambda F, x, y: x, X, X[0])
    graph = found.graph([type_of(X), type_of(X[0])], False)
    assert len(graph.inputs) == 2 and not graph.ops


def test_two_arguments_that_are_one_array():
    def program(F, x, y):
        x += 1
        return y * 2

    imperative, traced = nd.array(X), nd.array(X)
    expected = program(nd, imperative, imperative)
    found = trace(block_of(program), [traced, traced])
    assert found.aliases == (0, 0)
    same(expected, run(found, [traced, traced]))
    same(imperative, traced)
    # Reading them needs no such care.
    assert trace(block_of(lambda F, x, y: x + y), [traced, traced]).aliases == ()


def test_arguments_that_overlap():
    x = nd.array(X)
    with pytest.raises(mx.base.TraceError, match="overlap in memory; pass copies"):
        trace(block_of(lambda F, x, y: x.__setitem__(0, 0) or x + y[0]), [x, x[1:]])


# Arrays from outside


def test_captured_arrays_are_inputs_by_reference():
    table = nd.array(X)
    block = block_of(lambda F, x: x + table[1] + nd.relu(table)[:, 0:1].sum())
    found = trace(block, [nd.zeros((2, 3))])
    assert found.captured[0] is table and len(found.captured) == 1
    before = run(found, [nd.zeros((2, 3))]).asnumpy()
    table[:] = 2 * X
    np.testing.assert_array_equal(run(found, [nd.zeros((2, 3))]).asnumpy(), 2 * before)


def test_writes_to_captured_arrays():
    def make():
        state = nd.zeros((3,))

        def program(F, x):
            nonlocal state
            state += x[0]
            state[0] = 0
            first = state[1:2]
            first *= 2
            return x + state

        return state, program

    state, program = make()
    for _ in range(2):
        expected = program(nd, nd.array(X))
    other, twin = make()
    found = trace(block_of(twin), [nd.array(X)])
    assert other.asnumpy().tolist() == [0, 0, 0]  # tracing itself changes nothing
    for _ in range(2):
        got = run(found, [nd.array(X)])
    same(expected, got)
    same(state, other)


def test_a_parameter_that_is_written_and_read_by_its_array():
    class Counter(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.count = self.params.get("count", shape=(1,), init="zeros")

        def hybrid_forward(self, F, x, count):
            count += 1
            return x * count + self.count.data()

    block = Counter()
    block.initialize()
    found = trace(block, [nd.ones((2,))])
    assert found.params == [block.count] and not found.captured and found.writes == [1]
    assert run(found, [nd.ones((2,))]).asnumpy().tolist() == [2, 2]
    assert run(found, [nd.ones((2,))]).asnumpy().tolist() == [4, 4]
    assert block.count.data().asscalar() == 2


def test_constants_are_made_anew_in_every_call():
    def program(F, x):
        y = F.array([1, 2, 3])
        y += x[0]
        return y

    found = trace(block_of(program), [nd.array(X)])
    assert not found.captured and not found.writes
    same(run(found, [nd.array(X)]), run(found, [nd.array(X)]))


def test_an_array_that_the_block_only_keeps_may_be_replaced():
    class Keeping(gluon.HybridBlock):
        last = None

        def hybrid_forward(self, F, x):
            self.last = x * 2
            return self.last + 1

    block = Keeping()
    expected = [block(nd.array(x)).asnumpy() for x in (X, X + 1)]
    assert isinstance(block.last, nd.NDArray)
    block.hybridize()
    with pytest.warns(UserWarning, match=r"sets self\.last"):
        np.testing.assert_array_equal(block(nd.array(X)).asnumpy(), expected[0])
    np.testing.assert_array_equal(block(nd.array(X + 1)).asnumpy(), expected[1])
    assert isinstance(block.last, mx.sym.Symbol)  # as in MXNet


def test_a_symbol_kept_from_an_earlier_trace_is_refused():
    kept = []
    trace(block_of(lambda F, x: kept.append(x) or x + 1), [nd.array(X)])
    with pytest.raises(mx.MXNetError, match="kept from an earlier call of hybrid_forward"):
        trace(block_of(lambda F, x: x + kept[0]), [nd.array(X)])
    with pytest.raises(mx.MXNetError, match="kept from an earlier call of hybrid_forward"):
        kept[0] + 1
    assert repr(kept[0]) == "<Symbol data 2x3 float32>" and kept[0].shape == (2, 3)


# Random numbers


def test_random_operators_draw_the_same_numbers():
    def program(F, x):
        a = F.random.uniform(shape=(3,))
        F.random.normal(shape=(2,))  # unused, and still counts
        b = F.random.uniform(shape=(3,)) + nd.random.normal(shape=(3,))
        return x + a, b

    mx.random.seed(7)
    expected = [program(nd, nd.array(X)) for _ in range(2)]
    mx.random.seed(7)
    found = trace(block_of(program), [nd.array(X)])
    assert found.streams(False) == 4
    graph = found.graph([type_of(X)], False)
    assert [op.attrs[".stream"] for op in graph.ops if ".stream" in op.attrs] == [0, 2, 3]
    same(expected, [run(found, [nd.array(X)]) for _ in range(2)])


def test_multinomial_gives_no_likelihood_unless_asked_to():
    """As of `mx.nd`; of symbols outside of a trace, as of MXNet's, it does."""
    check(lambda F, x: F.random.multinomial(F.one_hot(F.argmax(x, axis=1), 3)), X)
    check(lambda F, x: F.random.multinomial(F.one_hot(F.argmax(x, axis=1), 3), get_prob=True), X)
    assert len(mx.sym.random.multinomial(mx.sym.var("p"))) == 2


def test_dropout_draws_in_training_only():
    found = trace(block_of(lambda F, x: F.Dropout(x, p=0.5) + F.random.uniform(shape=(3,))), [nd.array(X)])
    training, inference = found.streams(True), found.streams(False)
    assert training > inference > 0
    streams = [op.attrs[".stream"] for op in found.graph([type_of(X)], True).ops if ".stream" in op.attrs]
    assert streams == [0, training - inference]


def test_modes_inside_the_program():
    def program(F, x):
        with mx.autograd.train_mode():
            y = F.Dropout(x, p=0.5)
        return y + F.Dropout(x, p=0.5)

    found = trace(block_of(program), [nd.array(X)])
    ops = [op for op in found.graph([type_of(X)], False).ops if op.name == "mx.Dropout"]
    assert [op.attrs.get(".training") for op in ops] == [True, None]
    assert not found.holds([type_of(X)], True)


@pytest.mark.parametrize("bins", [(3, (0, 1)), (nd.array([0, 0.2, 2]),)], ids=["even", "edges"])
def test_histogram(bins):
    x = nd.array([0, 0.1, 0.3, 0.5, 0.9, 1.2])
    expected = np.histogram(x.asnumpy(), bins[0] if len(bins) == 2 else bins[0].asnumpy(), *bins[1:])

    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.histogram(x, *bins)

    for active in (False, True):
        net = Net()
        net.hybridize(active)
        counts, edges = net(x)
        assert counts.asnumpy().tolist() == expected[0].tolist() and counts.dtype == np.int64
        np.testing.assert_allclose(edges.asnumpy(), expected[1], rtol=1e-6)


def test_empty_views():
    class Views(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            y = x * 2
            return y[2:3, 2:3] + 1, y[1:1] * 3

    plain, hybrid = Views(), Views()
    hybrid.hybridize()
    x = nd.ones((4, 2, 1))
    assert [y.shape for y in hybrid(x)] == [y.shape for y in plain(x)] == [(1, 0, 1), (0, 2, 1)]


def test_an_operator_without_a_use_refuses_another_shape():
    """A plain call runs it, so its error may not vanish for a shape for which nothing is traced again."""

    def program(F, x):
        F.dot(x, F.ones((3, 2)))
        return x * 2

    net = gluon.nn.HybridLambda(program)
    net.hybridize()
    assert net(nd.ones((2, 3))).shape == net(nd.ones((5, 3)))[:2].shape == (2, 3)
    with pytest.raises(mx.MXNetError, match=r"dot\(f32\[2,4\], f32\[3,2\]\)"):
        net(nd.ones((2, 4)))
