"""Random functions in `mx.nd` and `mx.np`: a hybridized block has the outputs and gradients of the plain one.

`PROGRAMS=5000 pytest tests/gluon/test_random_gradients.py` tries so many.
"""

import os

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd
from gluonjit.gluon import HybridBlock
from support.gluon_programs import gluon_program

PROGRAMS = int(os.environ.get("PROGRAMS", "20"))
BATCH = 10


class Function(HybridBlock):
    def __init__(self, program, **kwargs):
        super().__init__(**kwargs)
        self.program = program

    def hybrid_forward(self, F, *arrays):
        return self.program.run(F, arrays)


def outcome(program, hybrid, order):
    """Outputs, then gradients; or the message of the error."""
    block = Function(program, prefix="function_")
    if hybrid:
        block.hybridize()
    array = mx.np.array if program.numpy else mx.nd.array
    arrays = [array(x, dtype="float64") for x in program.arrays]
    gen = np.random.default_rng(program.seed)
    for x in arrays:
        x.attach_grad()
    with autograd.record():
        outputs = block(*arrays)
        reached = [y for y in outputs if y._grad_state is not None]
        heads = [array(gen.uniform(-1, 1, y.shape), dtype="float64").astype(y.dtype) for y in reached]
        if order == 2:
            # Plain calls know more exactly what an output depends on; here, all depends on the first array.
            tie = arrays[0] * 0
            firsts = autograd.grad([*reached, tie], [arrays[0]], [*heads, tie], create_graph=True)
            reached = [g for g in firsts if g._grad_state is not None]
            heads = [array(gen.uniform(-1, 1, g.shape), dtype="float64") for g in reached]
    if reached:
        autograd.backward(reached, heads)
    return [x.asnumpy() for x in (*outputs, *(x.grad for x in arrays))]


def compare(program, order):
    plain, compiled = outcome(program, False, order), outcome(program, True, order)
    tolerance = 1e-8 if program.exact else 2e-2
    for k, (a, b) in enumerate(zip(compiled, plain, strict=True)):
        scale = 1 + np.abs(b[np.isfinite(b)]).max(initial=0)
        np.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=tolerance, err_msg=f"{program}, value {k}")


@pytest.mark.parametrize("numpy", [False, True], ids=["nd", "np"])
@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_hybridized_gradients_are_the_plain_ones(first, numpy):
    scope = mx.util.np_shape(numpy), mx.util.np_array(numpy)
    with scope[0], scope[1]:
        for seed in range(first, first + BATCH):
            compare(gluon_program(seed, numpy), order=2 if seed % 5 == 0 else 1)
