"""What compiling leaves behind, besides the code."""

import gc

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.gluon import nn
from gluonjit.ir.graph import Builder
from gluonjit.ir.text import parse_graph
from gluonjit.ir.types import F32, IRError, TensorType
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime import executable
from gluonjit.runtime.arenas import ArenaPool
from gluonjit.runtime.compiler import compile_graph


def graph_with_weights(sizes=(40, 40)):
    """A chain of products of x with two weights, parameters, which are computed in several steps (`product`)."""
    b = Builder("net", "traced")
    x = b.input("x", TensorType(F32, (40, 40)))
    weights = [b.input(name, TensorType(F32, (40, size))) for name, size in zip("vw", sizes)]
    for w in weights:
        e = b.exp(w)
        scaled = b.dot_general(e, e, contract=((1,), (1,)))
        x = b.dot_general(x, b.dot_general(scaled, scaled, contract=((1,), (0,))), contract=((1,), (0,)))
    return b.build([x], {"params": (1, 2)})


@pytest.mark.parametrize("on", [True, False])
def test_the_garbage_collector_is_as_it_was(on):
    seen = []
    was_on = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        compile_graph(graph_with_weights(), after=lambda *_: seen.append(gc.isenabled()))
        assert gc.isenabled() is on
        with pytest.raises(ZeroDivisionError):
            compile_graph(graph_with_weights(), after=lambda *_: 1 // 0)
        assert gc.isenabled() is on
    finally:
        (gc.enable if was_on else gc.disable)()
    assert seen == [False] * len(PIPELINE.split(","))


def test_compiling_makes_hardly_any_cycles():
    """The garbage collector is off meanwhile, and 30,000 objects are made for these few layers and their gradient."""

    def train():
        net = nn.HybridSequential()
        normalized = nn.HybridLambda(lambda F, x: F.softmax(F.sort(x) + F.sum(x, axis=1, keepdims=True)))
        net.add(nn.Conv2D(8, 3), nn.BatchNorm(), normalized, nn.Dense(3))
        net.initialize()
        net.hybridize()
        x = mx.nd.ones((2, 3, 9, 9))
        with mx.autograd.record():
            y = net(x)
        y.backward()
        net(x)
        return net

    train()  # what is made once in a process
    gc.collect()
    gc.disable()
    try:
        net = train()
        assert gc.collect() < 1000
        del net
    finally:
        gc.enable()


def product(x, *weights):
    for w in weights:
        w = np.exp(np.float64(w))
        w = w @ w.T
        x = x @ (w @ w)
    return x


def test_what_prepares_parameters_holds_no_memory_between_times():
    executable = compile_graph(graph_with_weights())
    arenas = [p.function.arenas for p in executable.prepared]
    assert len(arenas) == 2 and arenas[0] is arenas[1]
    assert all(p.function.layout.arena >= 40 * 40 * 4 for p in executable.prepared)
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-0.1, 0.1, (40, 40)).astype(np.float32) for _ in range(3)]

    for versions in ([None, 1, 1], [None, 1, 2], None):  # both, one, both again
        inputs[2] = inputs[2] + np.float32(0.1)
        ((y,), _) = executable.run(inputs, versions)
        want = product(*inputs)
        assert np.abs(y - want).max() <= 1e-5 * np.abs(want).max()
        assert not arenas[0]._free


def test_what_depends_on_constants_alone_is_computed_once():
    """Also where nothing is known of what the inputs held before, as in recorded calls."""
    code = compile_graph(
        parse_graph("""graph @g(%x: f32[1,8], %a: f32[1,8]) level legal {params = (1,)} {
          %i = iota() {shape = (1, 8), axis = 1, dtype = f32}
          %e = cumsum(%a) {axis = 1}
          %d = concat(%i, %e, %x) {axis = 0}
          %y = cumsum(%d) {axis = 0}
          return %y
        }""")
    )
    assert code.prepared_from(None) is None
    (constant,) = [p for p in code.prepared if not p.inputs]
    kept = []
    for k in (1, 2):
        (y,), _ = code.run([np.ones((1, 8), np.float32), np.full((1, 8), k, np.float32)])
        assert y[2].tolist() == [i + k * (i + 1) + 1 for i in range(8)]
        kept.append(constant.results)
    assert kept[0] is kept[1] and code.prepared_from(None) is None


def test_what_is_prepared_needs_no_memory_of_an_open_size(monkeypatch):
    code = compile_graph(
        parse_graph("""graph @g(%x: f32[n,8], %a: f32[8]) level legal {params = (1,)} {
          %b = exp(%a)
          %c, %i = sort(%b) {axis = 0}
          %s, %j = sort(%x) {axis = 0}
          %d = broadcast(%c) {shape = (n, 8), dims = (1,)}
          %y = add(%d, %s)
          return %y
        }""")
    )
    x, a = np.arange(40, 0, -1, dtype=np.float32).reshape(5, 8), np.log(np.arange(8, 0, -1, dtype=np.float32))
    (y,), _ = code.run([x, a])
    np.testing.assert_allclose(y, np.sort(x, axis=0) + np.arange(1, 9), rtol=1e-5)
    # The sizes that shapes tell are found out once, for copies with other parameters, too.
    with monkeypatch.context() as m:
        m.setattr(executable, "sizes_of", None)
        assert code.for_other_parameters().run([x, a])[0][0].tobytes() == y.tobytes()
    with pytest.raises(IRError, match=r"not \(5, 7\)"):
        code.run([x[:, :7], a])


def test_who_wants_most_memory_prepares_first(monkeypatch):
    """Then the others' results, which stay, take up no memory yet; and the others do not keep that much."""
    code = compile_graph(graph_with_weights((40, 4000)))
    sizes = [p.function.layout.arena for p in code.prepared]
    assert sizes[0] > 10 * sizes[1] > 0
    lent = []
    take = ArenaPool.take
    monkeypatch.setattr(ArenaPool, "take", lambda pool, nbytes: lent.append(take(pool, nbytes)) or lent[-1])
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-0.1, 0.1, shape).astype(np.float32) for shape in ((40, 40), (40, 40), (40, 4000))]
    ((y,), _) = code.run(inputs)
    assert sizes[0] <= lent[0].nbytes and sizes[1] <= lent[1].nbytes <= 2 * sizes[1]
    want = product(*inputs)
    assert np.abs(y - want).max() <= 1e-5 * np.abs(want).max()


def test_bound_calls_write_over_their_states():
    b = Builder("step", "traced")
    w, g, lr = (b.input(name, TensorType(F32, shape)) for name, shape in (("w", (5,)), ("g", (5,)), ("lr", ())))
    new = b.sub(w, b.mul(lr, g))
    b.update(w, new)
    executable = compile_graph(b.build([b.neg(new)], {"in_place": True}))
    weight, grad, out = (np.ones(5, np.float32) for _ in range(3))
    rate = np.array(0.5, np.float32)
    call = executable.bind([weight, grad, rate], [out, weight])
    call()
    call()
    assert (weight == 0).all() and (out == 0).all()
    with pytest.raises(IRError, match=r"expected f32\[5\], got f32\[4\]"):
        executable.bind([weight, grad[:4], rate], [out, weight])


def test_a_call_that_prepares_results_cannot_be_bound():
    with pytest.raises(IRError, match="prepares values"):
        compile_graph(graph_with_weights()).bind([], [])


def test_scalars_of_numpy_as_inputs():
    text = "{ %z = broadcast(%x) {shape = (2,)} %w = add(%z, %y) return %w }"
    graph = parse_graph(f"graph @f(%x: f32[], %y: f32[2]) level legal {text}")
    (found,), _ = compile_graph(graph).run([np.float32(3), np.ones(2, np.float32)])
    assert found.tolist() == [4, 4]
