"""Random functions in `mx.nd` and `mx.np`: a hybridized block has the outputs and gradients of the plain one, and these
are those of differences.

A function is called in a random *way*: some of its inputs are parameters, or arrays that the block holds, or the same
array twice; its steps are divided among child blocks; gradients are added or not asked for; it is called twice before
`backward`, or differentiated twice.
"""

import random
from dataclasses import dataclass

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd
from gluonjit.gluon import Block, HybridBlock
from gluonjit.ndarray.variable import tracked
from support.gluon_programs import gluon_program
from support.soak import tries

PROGRAMS = tries(5)
BATCH = 5
STEP = 2e-4


@dataclass
class Way:
    """How a program is called.

    * `places`: of each input, whether it is an 'argument', a 'parameter' or 'held' by the block.
    * `requests`: the `grad_req` of each input.
    * `twins`: an input that is the same array as the first one.
    * `cuts`: where the steps of one child block end and those of the next begin; `hybrid`: which of the children are
      hybridized; `whole`: whether the block that calls them is.
    * `calls`: how often it is called before `backward`, in a record scope each. `passes`: how often `backward` runs.
    """

    places: list[str]
    requests: list[str]
    twins: set[int]
    cuts: list[int]
    hybrid: list[bool]
    whole: bool
    calls: int
    passes: int


def way_of(program):
    rng = random.Random(f"way {program.seed} {program.numpy}")
    count, steps = len(program.arrays), len(program.steps)
    alike = [k for k in range(1, count) if program.arrays[k].shape == program.arrays[0].shape]
    cuts = sorted(rng.sample(range(1, steps), rng.choice((0, 0, 1, 2))))
    return Way(
        [
            "argument",
            *(
                rng.choice(("argument", "argument", "parameter" if x.size else "held", "held"))
                for x in program.arrays[1:]
            ),
        ],
        ["write", *(rng.choice(("write", "write", "add", "null")) for _ in range(count - 1))],
        {k for k in alike if rng.random() < 0.2},
        [0, *cuts, steps],
        [rng.random() < 0.7 for _ in range(len(cuts) + 1)],
        rng.random() < 0.6,
        rng.choice((1, 1, 2)),
        rng.choice((1, 1, 2)),
    )


class Steps(HybridBlock):
    """Some steps of a program: from the values before them to those after them."""

    def __init__(self, program, steps, **kwargs):
        super().__init__(**kwargs)
        self.program, self.steps = program, steps

    def hybrid_forward(self, F, *values):
        found = list(values)
        self.program.extend(F, found, self.steps)
        return found[len(values) :]


class _Function:
    """What both classes of blocks have below: children for the steps, parameters, and arrays that are held."""

    def setup(self, program, way, arrays):
        self.program, self.way = program, way
        self.held = {k: x for k, x in enumerate(arrays) if way.places[k] == "held"}
        with self.name_scope():
            self.parts = [Steps(program, slice(*ends)) for ends in zip(way.cuts, way.cuts[1:])]
            for part in self.parts:
                self.register_child(part)
        return self

    def compute(self, arguments, params):
        given = iter(arguments)
        every = {**self.held, **params}
        values = [every[k] if k in every else next(given) for k in range(len(self.program.arrays))]
        for part in self.parts:
            values.extend(part(*values))
        return [values[k] for k in self.program.outputs]


class Compiled(_Function, HybridBlock):
    def hybrid_forward(self, F, *arguments, **params):
        return self.compute(arguments, {int(name[1:]): x for name, x in params.items()})


class Composed(_Function, Block):
    def forward(self, *arguments):
        return self.compute(arguments, {int(n[1:]): getattr(self, n).data() for n in self._own})


def parameters(block, program, way):
    own = []
    for k, place in enumerate(way.places):
        if place == "parameter":
            x, name = program.arrays[k], f"p{k}"
            found = block.params.get(name, shape=x.shape, dtype="float64", grad_req=way.requests[k])
            found.initialize()
            found.set_data(x)
            setattr(block, name, found)
            own.append(name)
    block._own = own
    return {int(name[1:]): getattr(block, name) for name in own}


def outcome(program, way, hybrid, order):
    """(outputs and gradients; head gradients)"""
    array = mx.np.array if program.numpy else mx.nd.array
    arrays = [array(x, dtype="float64") for x in program.arrays]
    for k in way.twins:
        arrays[k] = arrays[0]
    for k, x in enumerate(arrays):
        if k not in way.twins:
            x.attach_grad(way.requests[k])
    kind = Compiled if way.whole else Composed
    block = kind(prefix="function_").setup(program, way, arrays)
    own = parameters(block, program, way)
    arrays = [own[k].data() if k in own else x for k, x in enumerate(arrays)]
    if hybrid:
        if way.whole:
            block.hybridize()
        else:
            for part, chosen in zip(block.parts, way.hybrid):
                part.hybridize(chosen)
    for k, x in enumerate(arrays):
        # It stays where no output depends on the array. A plain call knows which branch was taken and what an iteration
        # changes, so of gradients of gradients it knows that more exactly.
        if way.requests[k] == "add" or way.requests[k] == "write" and (order == 1 or not program.has("nd_control")):
            x.grad[...] = 0.5
    arguments = [x for k, x in enumerate(arrays) if way.places[k] == "argument"]
    gen = np.random.default_rng(program.seed)

    def head(y):
        return array(gen.uniform(-1, 1, y.shape), dtype="float64").astype(y.dtype)

    reached, heads, outputs = [], [], []
    for _ in range(way.calls):
        with autograd.record():
            found = block(*arguments)
        weights = [head(y) for y in found]
        outputs += found
        reached += [y for y in found if tracked(y)]
        heads += [w for y, w in zip(found, weights) if tracked(y)]
    if order == 2 and reached:
        with autograd.record():
            # Plain calls know more exactly what an output depends on; here, all depends on the first array.
            tie = arrays[0] * 0
            firsts = autograd.grad([*reached, tie], [arrays[0]], [*heads, tie], create_graph=True)
        reached = [g for g in firsts if g._grad_state is not None]
        heads = [head(g) for g in reached]
    for k in range(way.passes if reached else 0):
        autograd.backward(reached, heads, retain_graph=k < way.passes - 1)
    gradients = [x.grad for x in arrays if x.grad is not None]
    return [x.asnumpy() for x in (*outputs, *gradients)]


def compare(program, order):
    way = way_of(program)
    plain, compiled = outcome(program, way, False, order), outcome(program, way, True, order)
    tolerance = 1e-8 if program.exact else 2e-2
    for k, (a, b) in enumerate(zip(compiled, plain, strict=True)):
        scale = 1 + np.abs(b[np.isfinite(b)]).max(initial=0)
        np.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=tolerance, err_msg=f"{program}, {way}, value {k}")


def assert_differences(program):
    """The gradient of a plain call is that of differences along a random direction, unless there is a kink."""
    array = mx.np.array if program.numpy else mx.nd.array
    F = mx if program.numpy else mx.nd
    gen = np.random.default_rng(program.seed)
    directions = [np.asarray(gen.uniform(-1, 1, x.shape)) for x in program.arrays]
    weights = {}

    def weighted(t, record=False):
        values = [array(x + t * v, dtype="float64") for x, v in zip(program.arrays, directions)]
        inputs = list(values)
        for x in inputs:
            x.attach_grad()
        with autograd.record():
            program.extend(F, values, slice(None))
            total = 0
            for k in program.outputs:
                if k not in weights:
                    weights[k] = array(gen.uniform(-1, 1, values[k].shape), dtype="float64")
                total = total + (values[k] * weights[k]).sum()
        if record:
            total.backward()
        return float(total.asnumpy().sum()), [x.grad.asnumpy() for x in inputs]

    here, gradients = weighted(0, True)
    got = sum(float(np.vdot(g, v)) for g, v in zip(gradients, directions))
    scale = 1 + sum(float(np.abs(g * v).sum()) for g, v in zip(gradients, directions))
    for step in (STEP, STEP / 30):
        wanted = (
            sum(c * weighted(k * step)[0] for k, c in ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))) / step
        )
        if abs(got - wanted) <= 1e-5 * scale * STEP / step:
            return
    far, near = (abs(weighted(t)[0] - 2 * here + weighted(-t)[0]) / t for t in (STEP / 30, STEP / 300))
    assert near > far / 4, f"{program}: the gradient gives {got}, differences {wanted}"


@pytest.mark.parametrize("numpy", [False, True], ids=["nd", "np"])
@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_hybridized_gradients_are_the_plain_ones(first, numpy):
    scope = mx.util.np_shape(numpy), mx.util.np_array(numpy)
    with scope[0], scope[1]:
        for seed in range(first, first + BATCH):
            program = gluon_program(seed, numpy)
            ignores = program.has("nd_output") or program.has("nd_control_output")
            compare(program, order=2 if seed % 5 == 0 and not ignores else 1)
            if program.exact and not program.stops:
                assert_differences(program)
