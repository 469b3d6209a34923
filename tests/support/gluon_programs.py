"""Random functions of arrays, in `mx.nd` and `mx.np`: what a `hybrid_forward` may do with its arguments.

`gluon_program(seed, numpy)` gives steps that were tried on arrays, and these arrays. A step is a function of `F` and
arrays; `run(F, arrays)` goes through them all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import gluonjit as mx

LARGEST = 20.0
MOST_ELEMENTS = 400

Step = Callable[..., Any]


@dataclass
class GluonProgram:
    seed: int
    numpy: bool
    arrays: list[np.ndarray]
    steps: list[tuple[str, Step, tuple[int, ...]]]
    outputs: list[int]
    exact: bool
    """Whether everything is computed in float64."""
    stops: bool
    """Whether a step stops the gradient, or has another one than its function."""

    def extend(self, F: Any, values: list[Any], steps: slice) -> None:
        """Appends the results of these steps to the values before them: inputs, then results of earlier steps."""
        for _, step, operands in self.steps[steps]:
            result = step(F, *(values[k] for k in operands))
            values.extend(result if isinstance(result, (list, tuple)) else [result])

    def has(self, name: str) -> bool:
        """Whether a step was made by this maker."""
        return any(step[0] == name for step in self.steps)

    def __str__(self) -> str:
        lines = [f"{name}{operands}" for name, _, operands in self.steps]
        return f"seed {self.seed}, {'mx.np' if self.numpy else 'mx.nd'}: " + "; ".join(lines)


class _Unfit(Exception):
    pass


def _axis(rng: random.Random, x: Any) -> int:
    if not x.ndim:
        raise _Unfit
    return rng.randrange(-x.ndim, x.ndim)


def _new_shape(rng: random.Random, size: int) -> tuple[int, ...]:
    out: list[int] = []
    while size > 1:
        n = rng.choice([k for k in range(2, size + 1) if size % k == 0])
        out.insert(rng.randint(0, len(out)), n)
        size //= n
    return tuple(out) or (1,)


def _index(rng: random.Random, x: Any) -> Any:
    """A basic index of `x`."""
    key: list[Any] = []
    for n in x.shape[: rng.randint(0, x.ndim)]:
        kind = rng.random()
        if kind < 0.3:
            key.append(rng.randrange(-n, n))
        elif kind < 0.4:
            key.append(None)
        elif kind < 0.5:
            key.append(slice(None, None, -1))
        else:
            start = rng.randrange(n)
            key.append(slice(start, rng.randint(start + 1, n), rng.choice((None, 1, 2))))
    if rng.random() < 0.2:
        key.append(Ellipsis)
    return tuple(key) if len(key) != 1 or rng.random() < 0.5 else key[0]


def _ints(rng: random.Random, count: int, n: int) -> list[int]:
    return [rng.randrange(n) for _ in range(count)]


# Each maker gets the random numbers and an operand (or two of one shape) and gives a step, with its parameters chosen.

UNARY = "relu sigmoid tanh sin cos arctan square softsign erf expm1 abs negative".split()


def _unary(rng: random.Random, x: Any) -> Step:
    name = rng.choice(UNARY)
    return lambda F, x: getattr(F, name)(x)


def _positive(rng: random.Random, x: Any) -> Step:
    name = rng.choice("log sqrt rsqrt cbrt reciprocal log2 log1p gammaln".split())
    return lambda F, x: getattr(F, name)(F.square(x) + 0.5)


def _scalar(rng: random.Random, x: Any) -> Step:
    k = rng.choice((2, -0.5, 3.25))
    return rng.choice(
        [
            lambda F, x: x * k,
            lambda F, x: k - x,
            lambda F, x: x + k,
            lambda F, x: x / k,
            lambda F, x: k / (x * x + 1),
            lambda F, x: (x * x + 0.3) ** k,
            lambda F, x: x**2,
            lambda F, x: -x,
        ]
    )


def _binary(rng: random.Random, x: Any, y: Any) -> Step:
    return rng.choice(
        [
            lambda F, x, y: x + y,
            lambda F, x, y: x - y,
            lambda F, x, y: x * y,
            lambda F, x, y: x / (y * y + 1),
            lambda F, x, y: (x * x + 0.5) ** y,
        ]
    )


def _same_twice(rng: random.Random, x: Any) -> Step:
    return rng.choice([lambda F, x: x * x, lambda F, x: x - x * x, lambda F, x: x / (x * x + 2)])


def _indexed(rng: random.Random, x: Any) -> Step:
    key = _index(rng, x)
    return lambda F, x: x[key]


def _reshaped(rng: random.Random, x: Any) -> Step:
    shape = _new_shape(rng, x.size)
    return lambda F, x: x.reshape(shape)


def _transposed(rng: random.Random, x: Any) -> Step:
    if rng.random() < 0.3:
        return lambda F, x: x.T
    axes = tuple(rng.sample(range(x.ndim), x.ndim))
    if not axes:
        raise _Unfit
    return lambda F, x: x.transpose(axes)


def _cast(rng: random.Random, x: Any) -> Step:
    # Not through integers: their gradients are integers, too, so it matters whether equal casts are one.
    name = rng.choice(("float32", "float16", "bfloat16"))
    return lambda F, x: (x * 3).astype(name).astype("float64")


def _mixed(rng: random.Random, x: Any, y: Any) -> Step:
    """A few operations in a narrow type, beside others in float64."""
    name = rng.choice(("float32", "float16"))
    return lambda F, x, y: (x.astype(name) * y.astype(name) + x.astype(name)).astype("float64") - y


def _broadcast(rng: random.Random, x: Any, y: Any) -> Step:
    if rng.random() < 0.5:
        return rng.choice(
            [
                lambda F, x, y: x + y,
                lambda F, x, y: x * y,
                lambda F, x, y: x / (y * y + 1),
                lambda F, x, y: (x * x + 0.5) ** y,
            ]
        )
    name = rng.choice(("add", "sub", "mul", "maximum", "minimum", "hypot"))
    if not isinstance(x, mx.np.ndarray):
        return lambda F, x, y: getattr(F, f"broadcast_{name}")(x, y)
    name = {"sub": "subtract", "mul": "multiply"}.get(name, name)
    return lambda F, x, y: getattr(F.np, name)(x, y)


def _nd_stopped(rng: random.Random, x: Any) -> Step:
    return rng.choice([lambda F, x: F.BlockGrad(x) * x, lambda F, x: x.detach() * x, lambda F, x: F.sin(x.detach())])


def _np_stopped(rng: random.Random, x: Any) -> Step:
    return rng.choice([lambda F, x: x.detach() * x, lambda F, x: F.np.sin(x.detach())])


def _paused(rng: random.Random, x: Any) -> Step:
    """Steps of which a part is constant for gradients, because recording is paused there."""
    numpy = isinstance(x, mx.np.ndarray)

    def functions(F: Any) -> Any:
        return F.np if numpy else F

    def factor(F: Any, x: Any) -> Any:
        with mx.autograd.pause():
            y = functions(F).sin(x) * x
        return y * x

    def view(F: Any, x: Any) -> Any:
        y = x * 2
        with mx.autograd.pause(train_mode=True):
            z = y.reshape((-1,))
        return [y * y, functions(F).tanh(z)]

    def written(F: Any, x: Any) -> Any:
        y = x * 2
        with mx.autograd.pause():
            y *= functions(F).cos(x)
        return y * x

    def recorded(F: Any, x: Any) -> Any:
        with mx.autograd.pause():
            y = functions(F).sin(x)
            with mx.autograd.record(mx.autograd.is_training()):
                z = y * x
            total = z.sum()
        return z / (total * total + 1)

    return rng.choice([factor, view, written, recorded])


def _nd_output(rng: random.Random, x: Any, label: Any) -> Step:
    """Layers whose gradient is that of a loss, whatever the cotangent of their result."""
    scale = rng.choice((1.0, 0.5))
    kind = rng.choice(("SoftmaxOutput", "SVMOutput"))
    name = rng.choice(("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"))

    def classes(F: Any, x: Any, label: Any) -> Any:
        rows = F.reshape(x, shape=(-1, 1))
        return getattr(F, kind)(F.concat(rows, rows * rows, dim=1), F.reshape(label > 0, shape=(-1,)))

    return rng.choice(
        [
            lambda F, x, label: getattr(F, name)(x, label, grad_scale=scale),
            classes,
            lambda F, x, label: F.MakeLoss(x * label, grad_scale=scale),
            lambda F, x, label: F.make_loss(F.sin(x) * label),
            lambda F, x, label: F.contrib.gradientmultiplier(x, scalar=scale) * label,
        ]
    )


def _reduced(rng: random.Random, x: Any) -> Step:
    name, axis, keep = rng.choice(("sum", "mean", "max", "min", "prod")), _axis(rng, x), rng.random() < 0.5
    if name in ("max", "min") and len(np.unique(x.asnumpy())) < x.size:
        raise _Unfit  # each of several equal extremes gets the whole cotangent, as in MXNet: no derivative
    return lambda F, x: getattr(x, name)(axis=axis, keepdims=keep)


def _expanded(rng: random.Random, x: Any) -> Step:
    axis = rng.randint(0, x.ndim)
    return lambda F, x: x.expand_dims(axis)


def _clipped(rng: random.Random, x: Any) -> Step:
    return lambda F, x: F.clip(x, -0.7, 0.9)


# mx.nd ----------------------------------------------------------------------------------------------------------------


def _nd_constant(F: Any, values: Any) -> Any:
    return mx.nd.array(values, dtype="float64")


def _nd_softmax(rng: random.Random, x: Any) -> Step:
    name, axis = rng.choice(("softmax", "log_softmax", "softmin")), _axis(rng, x)
    return lambda F, x: getattr(F, name)(x, axis=axis)


def _nd_concat(rng: random.Random, x: Any, y: Any) -> Step:
    axis = rng.randrange(x.ndim)
    return rng.choice(
        [
            lambda F, x, y: F.concat(x, y, x, dim=axis),
            lambda F, x, y: F.stack(x, y, axis=axis),
            lambda F, x, y: F.where(x > y, x * 2, y),
            lambda F, x, y: F.maximum(x, y),
            lambda F, x, y: F.minimum(x, y),
            lambda F, x, y: F.broadcast_hypot(x, y),
        ]
    )


def _nd_split(rng: random.Random, x: Any) -> Step:
    axis = rng.randrange(x.ndim)
    n = x.shape[axis]
    parts = rng.choice([k for k in range(1, n + 1) if n % k == 0])
    return lambda F, x: F.split(x, num_outputs=parts, axis=axis)


def _nd_moves(rng: random.Random, x: Any) -> Step:
    axis = rng.randrange(x.ndim)
    n = x.shape[axis]
    end = rng.randint(1, n)
    indices = _ints(rng, 3, n + 1)
    return rng.choice(
        [
            lambda F, x: F.slice_axis(x, axis=axis, begin=0, end=end),
            lambda F, x: F.flip(x, axis=axis),
            lambda F, x: F.tile(x, reps=(2,)),
            lambda F, x: F.repeat(x, repeats=2, axis=axis),
            lambda F, x: F.take(x, _index_array(F, x, indices), axis=axis),
            lambda F, x: F.take(x, _index_array(F, x, indices), axis=axis, mode="wrap"),
            lambda F, x: F.sort(x, axis=axis),
            lambda F, x: F.topk(x, axis=axis, k=1, ret_typ="value"),
            lambda F, x: F.cumsum(x, axis=axis),
            lambda F, x: F.swapaxes(x, 0, axis),
            lambda F, x: F.reshape(x, shape=(-1, 0), reverse=True),
            lambda F, x: F.flatten(x),
            lambda F, x: F.zeros_like(x) + x,
            lambda F, x: F.reverse(x, axis=axis),
            lambda F, x: F.broadcast_like(F.sum(x, axis=axis, keepdims=True), x),
            lambda F, x: F.norm(x + 3, axis=axis),
            lambda F, x: F.L2Normalization(F.reshape(x + 2, shape=(1, -1))),
            lambda F, x: F.smooth_l1(x, scalar=1.0),
            lambda F, x: F.slice_like(x, F.slice_axis(x, axis=axis, begin=0, end=end)),
            lambda F, x: F.diag(F.reshape(x, shape=(-1,))),
        ]
    )


def _index_array(F: Any, x: Any, indices: Sequence[int]) -> Any:
    """Indices computed from an array, so that they are no constants where the function is traced."""
    flat = F.slice_axis(F.reshape(x, shape=(-1,)), axis=0, begin=0, end=1)
    return F.concat(*(flat * 0 + k for k in indices), dim=0)


def _nd_matrix(rng: random.Random, x: Any) -> Step:
    if not x.ndim:
        raise _Unfit
    n = x.size // x.shape[0]
    return rng.choice(
        [
            lambda F, x: F.dot(F.reshape(x, shape=(-1, n)), F.reshape(x, shape=(n, -1))),
            lambda F, x: F.dot(F.reshape(x, shape=(-1, n)), F.reshape(x, shape=(-1, n)), transpose_b=True),
            lambda F, x: F.batch_dot(F.reshape(x, shape=(-1, 1, n)), F.reshape(x, shape=(-1, n, 1))),
            lambda F, x: F.linalg.gemm2(F.reshape(x, shape=(-1, n)), F.reshape(x, shape=(-1, n)), transpose_a=True),
            lambda F, x: F.LayerNorm(
                F.reshape(x, shape=(-1, n)) * 2, F.ones_like(_row(F, x, n)), F.zeros_like(_row(F, x, n))
            ),
        ]
    )


def _row(F: Any, x: Any, n: int) -> Any:
    return F.reshape(F.slice_axis(F.reshape(x, shape=(-1, n)), axis=0, begin=0, end=1), shape=(-1,))


def _nd_pooled(rng: random.Random, x: Any) -> Step:
    kind = rng.choice(("max", "avg", "sum"))
    kernel, stride, pad = rng.randint(1, 3), rng.randint(1, 2), rng.randint(0, 1)
    return lambda F, x: F.Pooling(
        F.reshape(x, shape=(1, 1, -1)), kernel=(kernel,), stride=(stride,), pad=(min(pad, kernel // 2),), pool_type=kind
    )


def _nd_convolved(rng: random.Random, x: Any) -> Step:
    stride = rng.randint(1, 2)
    return lambda F, x: F.Convolution(
        F.reshape(x, shape=(1, 1, -1)),
        F.reshape(F.slice_axis(F.reshape(x, shape=(-1,)), axis=0, begin=0, end=2), shape=(1, 1, 2)),
        kernel=(2,),
        num_filter=1,
        stride=(stride,),
        pad=(1,),
        no_bias=True,
    )


def _nd_control(rng: random.Random, x: Any, y: Any) -> Step:
    """Loops and branches, whose bodies read values from outside of them."""
    if not x.ndim:
        raise _Unfit

    def scan(F: Any, x: Any, y: Any) -> Any:
        first = F.zeros_like(F.sum(x, axis=0))

        def body(row: Any, state: Any) -> Any:
            new = F.tanh(state * 0.5 + row * F.mean(y))
            return new * row, new

        return F.contrib.foreach(body, x, first)

    def two_states(F: Any, x: Any, y: Any) -> Any:
        def body(row: Any, states: Any) -> Any:
            a, b = states
            return [a * 1, row + b], [F.sin(b), a * row]

        zero = F.sum(x * y, axis=0)
        rows, states = F.contrib.foreach(body, x, [zero, zero])
        return [*rows, *states]

    def either(F: Any, x: Any, y: Any) -> Any:
        return F.contrib.cond(F.sum(x) > F.sum(y), lambda: x * y, lambda: F.sin(x) - y)

    def until(F: Any, x: Any, y: Any) -> Any:
        def body(k: Any, v: Any) -> Any:
            return v * k, [k + 1, F.tanh(v + y)]

        start = F.zeros_like(F.reshape(F.slice_axis(F.reshape(x, shape=(-1,)), axis=0, begin=0, end=1), shape=(1,)))
        rows, last = F.contrib.while_loop(lambda k, v: k < 2, body, [start, x], max_iterations=3)
        return [rows if not isinstance(rows, list) else rows[0], last[1]]

    def one_of_two(F: Any, x: Any, y: Any) -> Any:
        return F.contrib.cond(F.sum(x) > F.sum(y), lambda: F.sin(x), lambda: F.sign(y) + 1)

    return rng.choice([scan, two_states, either, until, one_of_two])


def _nd_control_output(rng: random.Random, x: Any, y: Any) -> Step:
    """Output layers in loops and branches, before and behind them."""
    if x.ndim < 2:
        raise _Unfit
    constant = rng.choice([lambda F, v: F.BlockGrad(v), lambda F, v: F.sign(v), lambda F, v: v])
    layer = rng.choice([lambda F, v, w: F.MakeLoss(v * w), lambda F, v, w: F.LinearRegressionOutput(v, w)])

    def scan(F: Any, x: Any, y: Any) -> Any:
        def body(row: Any, states: Any) -> Any:
            a, b = states
            marked = constant(F, layer(F, row, F.sin(a)))
            return [marked, row * b], [b * 1, F.tanh(marked)]

        zero = F.mean(y, axis=0)
        rows, states = F.contrib.foreach(body, x, [zero, zero])
        return [*rows, *states]

    def either(F: Any, x: Any, y: Any) -> Any:
        before = layer(F, x, y)
        inside = lambda: constant(F, layer(F, F.sin(x), y))  # noqa: E731
        return F.contrib.cond(F.sum(x) > F.sum(y), lambda: constant(F, before), inside)

    def until(F: Any, x: Any, y: Any) -> Any:
        def body(k: Any, v: Any) -> Any:
            return v * k, [k + 1, constant(F, layer(F, F.tanh(v), y))]

        start = F.zeros_like(F.reshape(F.slice_axis(F.reshape(x, shape=(-1,)), axis=0, begin=0, end=1), shape=(1,)))
        rows, last = F.contrib.while_loop(lambda k, v: k < 2, body, [start, x], max_iterations=3)
        return [rows if not isinstance(rows, list) else rows[0], last[1]]

    return rng.choice([scan, either, until])


# mx.np ----------------------------------------------------------------------------------------------------------------


def _np_combined(rng: random.Random, x: Any, y: Any) -> Step:
    axis = rng.randrange(x.ndim) if x.ndim else None
    if axis is None:
        raise _Unfit
    return rng.choice(
        [
            lambda F, x, y: F.np.concatenate([x, y, x], axis=axis),
            lambda F, x, y: F.np.stack([x, y], axis=axis),
            lambda F, x, y: F.np.where(x > y, x * 2, y),
            lambda F, x, y: F.np.maximum(x, y),
            lambda F, x, y: F.np.hypot(x, y + 3),
            lambda F, x, y: F.np.arctan2(x, y * y + 1),
        ]
    )


def _np_moves(rng: random.Random, x: Any) -> Step:
    if not x.ndim:
        raise _Unfit
    axis = rng.randrange(x.ndim)
    return rng.choice(
        [
            lambda F, x: F.np.flip(x, axis),
            lambda F, x: F.np.tile(x, (2,)),
            lambda F, x: F.np.repeat(x, 2, axis=axis),
            lambda F, x: F.np.cumsum(x, axis=axis),
            lambda F, x: F.np.swapaxes(x, 0, axis),
            lambda F, x: F.np.moveaxis(x, 0, axis),
            lambda F, x: F.np.squeeze(F.np.expand_dims(x, 0), 0),
            lambda F, x: F.np.roll(x, 1, axis=axis),
            lambda F, x: F.np.broadcast_to(x, (2, *x.shape)),
            lambda F, x: F.np.mean(x, axis=axis) + F.np.std(x + 1, axis=axis),
            lambda F, x: F.np.tensordot(x, x, axes=([axis], [axis])),
            lambda F, x: F.np.dot(x.reshape((-1,)), x.reshape((-1,))),
            lambda F, x: F.np.einsum("i,j->ij", x.reshape((-1,)), x.reshape((-1,))),
            lambda F, x: F.npx.softmax(x, axis=axis),
            lambda F, x: F.npx.relu(x),
            lambda F, x: F.np.sin(x) * F.np.exp(F.np.tanh(x)),
            lambda F, x: F.np.log(x * x + 1) + F.np.sqrt(x * x + 1),
        ]
    )


ND_ONE = [
    _unary,
    _positive,
    _scalar,
    _same_twice,
    _indexed,
    _indexed,
    _reshaped,
    _transposed,
    _cast,
    _reduced,
    _expanded,
]
ND_ONE += [
    _nd_stopped,
    _paused,
    _clipped,
    _nd_softmax,
    _nd_split,
    _nd_moves,
    _nd_moves,
    _nd_moves,
    _nd_matrix,
    _nd_pooled,
    _nd_convolved,
]
ND_TWO = [
    *(_binary, _binary, _nd_concat, _nd_concat, _nd_control, _nd_control, _mixed, _mixed),
    *(_nd_output, _nd_control_output),
]
NP_ONE = [
    _np_stopped,
    _paused,
    _scalar,
    _same_twice,
    _indexed,
    _indexed,
    _reshaped,
    _transposed,
    _cast,
    _reduced,
    _np_moves,
    _np_moves,
    _np_moves,
]
NP_TWO = [_binary, _np_combined, _mixed]


def gluon_program(seed: int, numpy: bool, count: int = 8) -> GluonProgram:
    rng = random.Random(f"gluon {seed} {numpy}")
    gen = np.random.default_rng(seed)
    shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 3)))
    shapes = [shape, shape, tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 3)))]
    if numpy and rng.random() < 0.3:
        shapes.append(())
    array, F = (mx.np.array, mx) if numpy else (mx.nd.array, mx.nd)
    if rng.random() < 0.5:  # some axes of 1, to broadcast
        shapes.append(tuple(rng.choice((n, 1)) for n in shape))
    if numpy and rng.random() < 0.1:
        shapes.append((rng.randint(1, 3), 0))
    arrays = [np.asarray(gen.uniform(0.3, 1.5, s) * gen.choice((-1, 1), s)) for s in shapes]
    values = [array(x, dtype="float64") for x in arrays]
    program = GluonProgram(seed, numpy, arrays, [], [], True, False)
    one, two = (NP_ONE, NP_TWO) if numpy else (ND_ONE, ND_TWO)
    while len(program.steps) < count:
        k = int(len(values) * max(rng.random(), rng.random()))
        operands: tuple[int, ...] = (k,)
        try:
            kind = rng.random()
            if kind < 0.15:
                operands = (k, rng.randrange(len(values)))
                np.broadcast_shapes(*(values[j].shape for j in operands))
                maker = _broadcast
            elif kind < 0.4:
                fitting = [j for j, v in enumerate(values) if v.shape == values[k].shape]
                operands = (k, rng.choice(fitting))
                maker = rng.choice(two)
            else:
                maker = rng.choice(one)
            step = maker(rng, *(values[j] for j in operands))
            result = step(F, *(values[j] for j in operands))
        except (_Unfit, mx.MXNetError, ValueError, TypeError, IndexError):
            continue
        results = result if isinstance(result, (list, tuple)) else [result]
        found = [r.asnumpy() for r in results]
        if not all((x.size or numpy) and x.size < MOST_ELEMENTS and (np.abs(x) < LARGEST).all() for x in found):
            continue
        values.extend(results)
        program.steps.append((maker.__name__.lstrip("_"), step, operands))
        program.exact &= maker not in (_cast, _mixed)
        program.stops |= maker in (_nd_stopped, _np_stopped, _paused, _nd_output, _nd_control_output)
    program.outputs = [len(values) - 1, rng.randrange(len(arrays), len(values))]
    if rng.random() < 0.2:
        program.outputs.append(0)  # an output that is an input
    if rng.random() < 0.1:
        program.outputs.append(program.outputs[0])
    return program
