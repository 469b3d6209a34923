"""`outline`: what it finds, what it leaves, and that the answers, random numbers and gradients stay what they were."""

import functools
import random

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.autodiff.computation import Computation
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.opdef import RNG_KEY
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.ir.types import F32, I64, TensorType
from gluonjit.passes import outline, run_passes
from gluonjit.runtime.compiler import compile_graph
from support.compare import assert_close
from support.soak import tries

STEPS = 8
HIDDEN = 4


def calls(graph):
    return [op for op in graph.ops if op.name == "call"]


def outlined(graph, saves=20):
    """The graph with calls; it computes the same, to the bit, and its text can be read back."""
    new = run_passes(graph, [("outline", {"saves": saves})], verify_each=True)
    if new is not graph:
        assert len(new.ops) < len(graph.ops)
        assert print_graph(parse_graph(print_graph(new))) == print_graph(new)
        given = inputs_of(graph)
        for a, b in zip(evaluate(graph, given)[0], evaluate(new, given)[0], strict=True):
            np.testing.assert_array_equal(a, b)
    return new


def inputs_of(graph):
    rng = np.random.default_rng(3)
    return [
        np.array([5, 7]) if v.name == RNG_KEY else rng.normal(size=v.shape).astype(v.dtype.numpy) * 0.5
        for v in graph.inputs
    ]


class Unrolled:
    """A graph of level `traced` whose steps are written one after the other."""

    def __init__(self, training=True):
        self.b = Builder("unrolled", "traced", training)
        self.training = training
        self.streams = 0

    def input(self, name, *shape):
        return self.b.input(name, TensorType(F32, shape))

    def op(self, name, *operands, **attrs):
        results = self.b.emit(f"mx.{name}", operands, attrs)
        return results[0] if len(results) == 1 else results

    def dropout(self, x):
        if self.b.key is None:
            self.b.key = self.b.input(RNG_KEY, TensorType(I64, (2,)))
        y = self.op("Dropout", x, p=0.5, **{".stream": self.streams})
        self.streams += self.training
        return y

    def build(self, *outputs, **attrs):
        return self.b.build(outputs, {"training": self.training, **attrs})


def cell(u, x, h, w):
    """A step of five ops."""
    y = u.op("elemwise_add", u.op("dot", h, w), x)
    y = u.op("elemwise_mul", u.op("tanh", y), h)
    return u.op("sigmoid", y)


def unrolled(step=cell, slices=True, **attrs):
    u = Unrolled()
    xs, h, w = u.input("xs", 3, STEPS, HIDDEN), u.input("h", 3, HIDDEN), u.input("w", HIDDEN, HIDDEN)
    rows = u.op("SliceChannel", xs, num_outputs=STEPS, axis=1, squeeze_axis=True)
    for k in range(STEPS):
        x = (
            u.op("Reshape", u.op("slice_axis", xs, axis=1, begin=k, end=k + 1), shape=(3, HIDDEN))
            if slices
            else rows[k]
        )
        h = step(u, x, h, w)
    return u.build(h, **attrs)


@pytest.mark.parametrize("slices", [False, True])
def test_steps_become_calls_of_one_function(slices):
    graph = unrolled(slices=slices)
    new = outlined(graph)
    found = calls(new)
    assert len(found) >= STEPS - 1 and len({op.regions[0] for op in found}) == 1
    weight = next(v for v in new.inputs if v.name == "w")
    assert all(op.attrs["captured"] == 1 and op.operands[-1] is weight for op in found)


def test_what_is_not_repeated_often_enough_stays():
    graph = unrolled()
    assert outlined(graph, saves=STEPS * 6) is graph
    assert run_passes(graph, "outline") is graph  # by default, for long graphs alone


def test_layers_with_parameters_of_their_own_stay():
    """Their weights are packed in advance."""
    u = Unrolled()
    h = u.input("h", 3, HIDDEN)
    weights = [u.input(f"w{k}", HIDDEN, HIDDEN) for k in range(STEPS)]
    for w in weights:
        h = cell(u, h, h, w)
    graph = u.build(h, params=tuple(range(1, STEPS + 1)))
    assert outlined(graph) is graph
    assert len(calls(outlined(graph.with_attrs(params=())))) == STEPS


def test_a_first_step_from_a_parameter_stays():
    """As the state that a recurrent layer learns to begin with: the steps after it are calls."""
    graph = unrolled(slices=False)
    state = next(k for k, v in enumerate(graph.inputs) if v.name == "h")
    new = outlined(graph.with_attrs(params=(state,)))
    assert len(calls(new)) == len(calls(outlined(graph))) - 1 > 0


def test_steps_that_read_each_other_differently_are_different_functions():
    def step(u, x, h, w):
        step.count += 1
        return cell(u, x if step.count % 2 else h, h, w)

    step.count = 0
    graph = unrolled(step, slices=False)
    assert not calls(outlined(graph, saves=10))  # four of each kind: too few


def test_what_lies_between_and_reads_a_step_keeps_it():
    """A slice of the step's own result, another one in each step, cannot be computed before the call."""
    u = Unrolled()
    h, w = u.input("h", 3, 2 * STEPS), u.input("w", 2 * STEPS, 2 * STEPS)
    for k in range(STEPS):
        y = u.op("tanh", u.op("dot", h, w))
        part = u.op("slice_axis", y, axis=1, begin=k, end=k + 1)
        h = u.op("broadcast_add", u.op("sigmoid", u.op("elemwise_mul", y, h)), part)
    outlined(u.build(h), saves=10)


def test_random_numbers_stay():
    graph = unrolled(lambda u, x, h, w: u.dropout(cell(u, u.dropout(x), h, w)), slices=False)
    new = outlined(graph)
    assert len(calls(new)) >= STEPS - 1 and new.attrs["streams"] == 2 * STEPS
    masks = [run_passes(g, "expand").attrs["streams"] for g in (graph, new)]
    assert masks[0] == masks[1]


OPERANDS = {"elemwise_add": 2, "elemwise_mul": 2, "tanh": 1, "sigmoid": 1, "softmax": 1}


def random_unrolled(seed):
    """A random cell, in random places of a graph; now and then, a step has an op more."""
    rng = random.Random(seed)
    u = Unrolled(training=rng.random() < 0.7)
    state = [u.input(f"s{k}", 3, HIDDEN) for k in range(rng.randint(1, 2))]
    w = u.input("w", HIDDEN, HIDDEN)
    plan = [
        (rng.choice([*OPERANDS, "dot", "dropout", "_mul_scalar"]), rng.random(), rng.random())
        for _ in range(rng.randint(4, 9))
    ]
    rows = [u.input(f"x{k}", 3, HIDDEN) for k in range(10)]
    kept = []
    for k in range(10):
        values = [*state, rows[k]]
        if rng.random() < 0.15:
            values[-1] = u.op("relu", values[-1])
        for name, first, second in plan:
            x, y = values[-1 - int(first * min(3, len(values)))], values[int(second * len(values))]
            if name == "dropout":
                values.append(u.dropout(x))
            elif name == "dot":
                values.append(u.op("dot", x, w))
            elif name == "_mul_scalar":
                values.append(u.op(name, x, scalar=0.5))
            else:
                values.append(u.op(name, *([x, y][: OPERANDS[name]])))
        state = values[-len(state) :]
        if rng.random() < 0.3:
            kept.append(values[rng.randrange(len(values))])
    return u.build(*state, *kept)


def test_random_programs_keep_their_answers_and_gradients():
    """The answers to the bit where NumPy computes both; compiled, and the gradients, to rounding."""
    fired, programs = 0, tries(12)
    for seed in range(programs):
        graph = random_unrolled(seed)
        new = outlined(graph)
        fired += new is not graph
        if seed % 4 or new is graph:
            continue
        given = inputs_of(graph)
        for a, b in zip(compile_graph(new).run(given)[0], evaluate(graph, given)[0], strict=True):
            assert_close(a, b, f"seed {seed}")
        wrt = tuple(k for k, v in enumerate(graph.inputs) if v.dtype is F32)
        heads = (0,)
        cotangent = np.ones(graph.outputs[0].shape, np.float32)
        results = [gradients(g, wrt, heads, given, cotangent) for g in (graph, new)]
        for a, b in zip(*results, strict=True):
            assert_close(a, b, f"gradient, seed {seed}")
    assert fired > programs // 2


def gradients(graph, wrt, heads, given, cotangent):
    computation = Computation(graph, lambda half: functools.partial(evaluate, half))
    forward = computation.forward(wrt, heads)
    results, _ = forward.run(given)
    backward = forward.backward
    values = [given[v.place] if v.place >= 0 else results[-1 - v.place] for v in backward.values]
    return backward.computation.run([*values, *(cotangent for _ in backward.cotangents)])[0]


class Net(mx.gluon.HybridBlock):
    """A cell with Dropout over some steps, after BatchNorm."""

    STEPS = 8

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.norm = mx.gluon.nn.BatchNorm(axis=2)
            self.cell = mx.gluon.rnn.RNNCell(4)

    def hybrid_forward(self, F, x):
        state = [F.zeros_like(F.slice_axis(F.slice_axis(x, axis=1, begin=0, end=1).flatten(), axis=1, begin=0, end=4))]
        for row in F.SliceChannel(self.norm(x), num_outputs=self.STEPS, axis=1, squeeze_axis=True):
            y, state = self.cell(row, state)
            state = [F.Dropout(y, p=0.2) * 0.9]
        return state[0]


def trained(hybridize, batches, twice, **flags):
    """The losses, gradients (`twice`: of gradients, too) and statistics after steps with batches of these sizes."""
    mx.random.seed(4)
    np.random.seed(4)
    net = Net()
    net.initialize(mx.init.Xavier())
    if hybridize:
        net.hybridize(**flags)
    found = []
    for batch in batches:
        x = mx.nd.array(np.random.rand(batch, net.STEPS, 5))
        x.attach_grad()
        with mx.autograd.record():
            y = (net(x) ** 2).sum()
            if twice:
                (first,) = mx.autograd.grad(y, [x], create_graph=True)
                y = y + (first**2).sum()
        y.backward()
        found += [y, x.grad, *(p.grad() for p in net.collect_params().values() if p.grad_req != "null")]
        found += [p.data() for p in net.collect_params().values()]
    found.append(net(x))
    return [a.asnumpy() for a in found]


@pytest.mark.parametrize(
    ("batches", "twice", "flags"),
    [((3,), True, {}), ((3, 4), False, {"dynamic": {"data": {0: "batch"}}, "remat": "all"})],
)
def test_a_hybridized_block_trains_as_before(batches, twice, flags, monkeypatch):
    monkeypatch.setitem(outline.outline.__kwdefaults__, "saves", 30)  # so few steps suffice
    seen = []
    run = outline._Outlined.run
    monkeypatch.setattr(outline._Outlined, "run", lambda self: seen.append(self) or run(self))
    for a, b in zip(trained(True, batches, twice, **flags), trained(False, batches, twice), strict=True):
        assert_close(a, b)
    assert seen
