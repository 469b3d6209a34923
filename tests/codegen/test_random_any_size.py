"""Random bodies of the forms that `any_size` knows: one kernel for all sizes computes what each body means.

`PROGRAMS=3000 pytest tests/codegen/test_random_any_size.py` tries so many of each form.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from math import prod

from gluonjit.codegen.loops.any_size import any_size
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.structure import op_key
from gluonjit.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, TensorType
from support.compare import assert_close
from support.draw import values
from support.kernels import body, kernel, opened, runnable_targets

PROGRAMS = int(os.environ.get("PROGRAMS", "12"))
DTYPES = (F32, F32, F64, F16, BF16, I32, I64, I8, U8)
CHANNELS = (1, 2, 3, 5, 8, 16, 17, 24, 32, 64)
OTHERS = (1, 1, 2, 3, 4, 5, 8, 9, 16, 24)


def judge(bodies, rng, where):
    """Compares each body that has such a kernel with what it means, on up to three threads. Returns how many do."""
    count = 0
    for target in runnable_targets():
        alike = {}
        for graph in bodies:
            if (found := any_size(kernel(graph), target)) is not None:
                alike.setdefault(op_key(found.op), []).append((graph, found))
        for group in alike.values():
            (general,) = group[0][1].op.regions
            run = opened(general, target)
            for graph, found in group:
                inputs = [values(v.type, rng) for v in graph.inputs]
                shapes = [
                    tuple(n if isinstance(n, int) else n.at(found.sizes) for n in v.shape) for v in general.inputs
                ]
                given = [x.reshape(shape) for x, shape in zip(inputs, shapes, strict=True)]
                got = run(found.sizes, given, rng.randint(1, 3), rng.random() < 0.5)
                for a, b in zip(got, evaluate(graph, inputs)[0], strict=True):
                    assert_close(a.reshape(b.shape), b, f"{where}, {dict(found.sizes)} on {target.cpu}\n{general}")
            count += len(group)
    return count


def live(graph):
    """The graph without ops that nothing reads."""
    used, ops = set(graph.outputs), []
    for op in reversed(graph.ops):
        if not used.isdisjoint(op.results):
            used.update(op.operands)
            ops.append(op)
    return replace(graph, ops=tuple(reversed(ops)))


def computation(seed):
    """`make(shape)`: elementwise ops on values of that shape, vectors along one axis of it, and numbers; or sums."""
    rng = random.Random(seed)
    rank, dtype, sums = rng.randint(2, 4), rng.choice(DTYPES), rng.random() < 0.4
    axis = rng.randrange(rank)
    kinds = [rng.choice(("whole", "whole", "channels", "number")) for _ in range(rng.randint(1, 3))]

    def make(shape):
        shapes = {"whole": shape, "channels": shape[axis : axis + 1], "number": ()}
        ops = random.Random(seed)

        def spread(b, v, to):
            dims = () if v.ndim == 0 else (axis,)
            return v if v.shape == to else b.broadcast(v, shape=to, dims=dims)

        def summed(b, v):
            return b.reduce(v, op=ops.choice(("sum", "max", "min")), axes=tuple(k for k in range(rank) if k != axis))

        def compute(b, *inputs):
            found = list(inputs)
            for _ in range(ops.randint(1, 6)):
                x, y = ops.choice(found), ops.choice(found)
                if ops.random() < 0.2 and x.ndim == rank and sums:
                    found.append(summed(b, x))
                    continue
                to = max(x.shape, y.shape, key=len)
                name = ops.choice(("add", "sub", "maximum", "minimum", "lt"))
                x, y = spread(b, x, to), spread(b, y, to)
                (v,) = b.emit(name, [x, y], {})
                found.append(b.select(v, y, x) if v.dtype is BOOL else v)
            return summed(b, spread(b, found[-1], shape)) if sums else spread(b, found[-1], shape)

        return live(body(compute, *(TensorType(dtype, shapes[kind]) for kind in kinds)))

    def shape():
        found = [rng.choice(OTHERS) for _ in range(rank)]
        found[axis] = rng.choice(CHANNELS)
        return tuple(found)

    return [make(shape()) for _ in range(4)]


def test_computations():
    found = sum(judge(computation(seed), random.Random(seed), f"seed {seed}") for seed in range(PROGRAMS))
    assert found >= PROGRAMS


def regrouped(rng, shape):
    """The shape with an axis cut, two axes merged, or one of size 1 put in."""
    k = rng.randrange(len(shape))
    parts = rng.choice([n for n in range(1, shape[k] + 1) if shape[k] % n == 0])
    merged = (*shape[:k], prod(shape[k : k + 2]), *shape[k + 2 :])
    return rng.choice((merged, (*shape[:k], parts, shape[k] // parts, *shape[k + 1 :]), (*shape[:k], 1, *shape[k:])))


def movement(seed):
    """Transposes, reshapes and reversals of an array of several shapes."""
    rng = random.Random(seed)
    shape = [rng.choice((*CHANNELS, 6, 12)) for _ in range(rng.randint(2, 4))]
    while prod(shape) > 10_000:
        shape[shape.index(max(shape))] //= 2

    def move(b, x):
        steps, v = random.Random(seed), x
        for _ in range(steps.randint(2, 4)):
            kind = steps.random()
            if kind < 0.5:
                v = b.transpose(v, perm=tuple(steps.sample(range(v.ndim), v.ndim)))
            elif kind < 0.65:
                v = b.reverse(v, axes=tuple(k for k in range(v.ndim) if steps.random() < 0.5))
            else:
                v = b.reshape(v, shape=regrouped(steps, v.shape))
        return v

    dtype, graphs = rng.choice((*DTYPES, BOOL)), []
    for _ in range(3):
        graphs.append(body(move, TensorType(dtype, tuple(shape))))
        shape[rng.randrange(len(shape))] *= rng.choice((1, 2, 3))
    return graphs


def test_movements():
    found = sum(judge(movement(seed), random.Random(seed), f"seed {seed}") for seed in range(2 * PROGRAMS))
    assert found >= PROGRAMS
