"""Random functions in `mx.nd` and `mx.np`, called with arrays of one size after another.

A hybridized block computes what the plain one does, whether its dimensions are open by themselves, were declared so, or
are not. It raises only where that raises; it need not, for steps that no output needs are not compiled.
"""

import random
import warnings

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd
from gluonjit.gluon import HybridBlock
from support.gluon_programs import gluon_program
from support.soak import tries

PROGRAMS = tries(5)
BATCH = 5
SIZES = (1, 2, 3, 5, 8, 17)
CALLS = 6


class Function(HybridBlock):
    """`most`: None, or what the program compares a size of its first argument with."""

    def __init__(self, program, most):
        super().__init__()
        self.program, self.most = program, most

    def hybrid_forward(self, F, *arguments):
        values = list(arguments)
        if self.most is not None and values[0].shape[0] > self.most:
            values[0] = values[0] * 2
        self.program.extend(F, values, slice(None))
        return [values[k] for k in self.program.outputs]


def shapes(program, old, new):
    """Those of the program's arrays, with another size in place of `old`."""
    return [tuple(new if n == old else n for n in x.shape) for x in program.arrays]


def declared(program, old):
    names = [f"data{k}" for k in range(len(program.arrays))] if len(program.arrays) > 1 else ["data"]
    found = {name: {k: "n" for k, n in enumerate(x.shape) if n == old} for name, x in zip(names, program.arrays)}
    return {name: axes for name, axes in found.items() if axes}


def outcome(block, program, arrays, recorded):
    """(outputs and gradients as NumPy arrays, None) or (None, the error)."""
    array = mx.np.array if program.numpy else mx.nd.array
    given = [array(x, dtype="float64") for x in arrays]
    try:
        if not recorded:
            return [y.asnumpy() for y in block(*given)], None
        for x in given:
            x.attach_grad()
        with autograd.record():
            outputs = block(*given)
        reached = [y for y in outputs if y._grad_state is not None]
        if reached:
            autograd.backward(reached)
        return [x.asnumpy() for x in (*outputs, *(x.grad for x in given))], None
    except (mx.MXNetError, ValueError, TypeError, IndexError, AssertionError) as e:
        return None, e


@pytest.mark.parametrize("numpy", [False, True])
@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_calls_of_many_sizes(first, numpy):
    for seed in range(first, first + BATCH):
        with mx.util.np_shape(numpy), mx.util.np_array(numpy), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of programs that cannot be compiled, and run as Python
            program = gluon_program(seed + 10_000, numpy, count=5)
            rng = random.Random(f"sizes {seed} {numpy}")
            gen = np.random.default_rng(seed)
            old = rng.choice(program.arrays[0].shape)
            most = rng.choice((None, None, None, 2, 4))
            plain, hybrid = Function(program, most), Function(program, most)
            way = rng.choice((None, None, declared(program, old), False))
            hybrid.hybridize(dynamic=way)
            recorded = rng.random() < 0.3
            sizes = (0, *SIZES) if numpy else SIZES  # in mx.nd, 0 is a size that is not known
            for new in (old, *(rng.choice(sizes) for _ in range(CALLS))):
                arrays = [gen.uniform(0.3, 1.5, s) * gen.choice((-1, 1), s) for s in shapes(program, old, new)]
                wanted, error = outcome(plain, program, arrays, recorded)
                found, refused = outcome(hybrid, program, arrays, recorded)
                about = f"{program}, {old} replaced by {new}, dynamic={way}, recorded={recorded}, {most}"
                if error is not None:
                    continue
                assert refused is None, f"{about}: {refused!r}"
                for y, x in zip(wanted, found, strict=True):
                    assert y.shape == x.shape and y.dtype == x.dtype, about
                    # float64; casts to float16 on the way may round to the next number.
                    near = 1e-9 if program.exact else 2e-2
                    np.testing.assert_allclose(
                        x, y, rtol=near, atol=near * max(1, np.abs(y).max(initial=0)), err_msg=about
                    )
