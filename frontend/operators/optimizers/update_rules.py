"""The formulas of optimizers: what one step makes of a weight and of its states.

    def sgd_mom(b, w, g, state, s):
        (mom,) = state
        mom = s.momentum * mom - s.lr * decayed(b, w, g, s)
        return w + mom, mom

A rule takes the weight, its gradient and its states, and the numbers it needs (`s.lr`, `s.momentum`) as values of rank
0 or, where one is not given, None; they have operators (`ir/formulas.py`). It returns the new weight, then the new
values of its first states; further states are only read. Arithmetic among numbers alone, such as 1 - β, is left to the
caller: in compiled code it would be a kernel of its own. Update operators (`updates.py`) and the compiled step of an
optimizer (`optimizer/step.py`) run the same rules, over an emitter `b` as expansions do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import DType, dtype_of
from gluonjit.operators.support import narrowed, widened


def rest(beta: float) -> float:
    """1 - β as MXNet's operators compute it, in float32."""
    return float(np.float32(1) - np.float32(beta))


def bias(beta: float, t: int) -> float:
    """1 - βᵗ as MXNet's operators compute it, from β in float32."""
    return 1 - float(np.float32(beta)) ** t


def within(b: Emitter, x: Any, bound: Any) -> Any:
    """`x` clipped to ±bound; unchanged without one."""
    return x if bound is None else b.minimum(-b.minimum(-x, bound), bound)


def norm(b: Emitter, x: Any) -> Any:
    """The 2-norm of all elements, of rank 0. Summed up in float32 at least."""
    return b.sqrt(_sum(b, x * x, tuple(range(len(x.shape)))))


def _sum(b: Emitter, x: Any, axes: tuple[int, ...]) -> Any:
    return b.reduce(x, op="sum", axes=axes) if axes else x


def _unless(b: Emitter, condition: Any, x: Any, number: float) -> Any:
    """`x`, or the number where the condition holds."""
    return b.select(condition, b.constant(number, dtype_of(x)), x)


class Scalars:
    """The numbers of a step, by name, as values of rank 0. One that is not given is None."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        return self._values.get(name)


def scalars(b: Emitter, values: Mapping[str, Any], dtype: DType) -> Scalars:
    """Numbers, or values of rank 0, as values of this element type."""
    return Scalars(
        {
            name: b.constant(x, dtype) if isinstance(x, (int, float)) else narrowed(b, x, dtype)
            for name, x in values.items()
        }
    )


Rule = Callable[[Emitter, Any, Any, Sequence[Any], Any], "tuple[Any, ...]"]
"""`rule(b, w, g, state, s)`"""


def run(
    b: Emitter,
    rule: Rule,
    weight: Any,
    grad: Any,
    states: Sequence[Any],
    numbers: Mapping[str, Any],
    master: Any = None,
) -> tuple[list[Any], Any]:
    """([the new weight, then new states], the new master or None) by one rule.

    float16 and bfloat16 are computed in float32 and rounded once. `master` is a float32 copy of the weight: if there is
    one, it is what the rule updates, and the weight is it, rounded. `numbers`: see `scalars`.
    """
    w = widened(b, weight if master is None else master)
    dtype = dtype_of(w)
    new_weight, *new_states = rule(
        b, w, narrowed(b, grad, dtype), [widened(b, x) for x in states], scalars(b, numbers, dtype)
    )
    new = [narrowed(b, new_weight, dtype_of(weight))]
    new += [narrowed(b, x, dtype_of(old)) for x, old in zip(new_states, states)]
    return new, None if master is None else new_weight


def clipped(b: Emitter, g: Any, s: Any) -> Any:
    """The gradient, rescaled and clipped."""
    return within(b, g * s.rescale_grad, s.clip_gradient)


def decayed(b: Emitter, w: Any, g: Any, s: Any) -> Any:
    """The gradient, rescaled and clipped, plus weight decay."""
    return clipped(b, g, s) + s.wd * w


def decayed_first(b: Emitter, w: Any, g: Any, s: Any) -> Any:
    """The gradient, rescaled, plus weight decay, then clipped."""
    return within(b, g * s.rescale_grad + s.wd * w, s.clip_gradient)


# Rules of MXNet's update operators


def sgd(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    """`keep`: 1 - lr·wd, if MXNet multiplies the weight by it, rather than adding the decay to the gradient."""
    if s.keep is None:
        return (w - s.lr * decayed(b, w, g, s),)
    return (s.keep * w - s.lr * clipped(b, g, s),)


def sgd_mom(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    (mom,) = state
    mom = s.momentum * mom - s.lr * decayed(b, w, g, s)
    return w + mom, mom


def nag_mom(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    """The momentum that is kept decays the new weight, not the old one: MXNet writes the weight first."""
    (mom,) = state
    g = clipped(b, g, s)
    step = s.lr * (g + s.wd * w)
    mom = s.momentum * mom
    new = w + s.momentum * (mom - step) - step
    return new, mom - s.lr * (g + s.wd * new)


def signsgd(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    """`keep`: 1 - lr·wd."""
    return (s.keep * w - s.lr * b.sign(g),)


def signum(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    """`rest`: 1 - momentum, `keep`: 1 - lr·wd_lh."""
    (mom,) = state
    mom = s.momentum * mom - s.rest * decayed(b, w, g, s)
    return s.keep * w + s.lr * b.sign(mom), mom


def adam(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    mean, var = _moments(decayed_first(b, w, g, s), state, s)
    return w - s.lr * mean / (b.sqrt(var) + s.epsilon), mean, var


def _moments(g: Any, state: Sequence[Any], s: Any) -> tuple[Any, Any]:
    """The running means of the gradient and of its square. `rest1`, `rest2`: 1 - β1 and 1 - β2."""
    mean, var = state
    return s.beta1 * mean + s.rest1 * g, s.beta2 * var + s.rest2 * g * g


def adamw(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    """A step whose scale is 0, infinite or NaN (the loss overflowed) is left out."""
    mean, var = _moments(clipped(b, g, s), state, s)
    step = s.eta * (s.lr * mean / (b.sqrt(var) + s.epsilon) + s.wd * w)
    scale = abs(s.rescale_grad)
    taken = (scale > 0) & (scale < math.inf)
    return b.select(taken, w - step, w), b.select(taken, mean, state[0]), b.select(taken, var, state[1])


def ftml(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    """`bias1`, `bias2`: 1 - β1ᵗ and 1 - β2ᵗ."""
    d, v, z = state
    g = decayed_first(b, w, g, s)
    v = s.beta2 * v + s.rest2 * g * g
    new_d = (b.sqrt(v / s.bias2) + s.epsilon) * s.bias1 / s.lr
    z = s.beta1 * z + s.rest1 * g - (new_d - s.beta1 * d) * w
    return -z / new_d, new_d, v, z


def rmsprop(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    (n,) = state
    g = decayed_first(b, w, g, s)
    n = s.rest1 * g * g + s.gamma1 * n
    return within(b, w - s.lr * g / b.sqrt(n + s.epsilon), s.clip_weights), n


def rmspropalex(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    n, mean, delta = state
    g = decayed_first(b, w, g, s)
    n = s.rest1 * g * g + s.gamma1 * n
    mean = s.rest1 * g + s.gamma1 * mean
    delta = s.gamma2 * delta - s.lr * g / b.sqrt(n - mean * mean + s.epsilon)
    return within(b, w + delta, s.clip_weights), n, mean, delta


def ftrl(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    z, n = state
    g = clipped(b, g, s)
    new_n = n + g * g
    z = z + g - (b.sqrt(new_n) - b.sqrt(n)) * w / s.lr
    new_w = (b.sign(z) * s.lamda1 - z) / ((s.beta + b.sqrt(new_n)) / s.lr + s.wd)
    return _unless(b, abs(z) <= s.lamda1, new_w, 0), z, new_n


def lamb_direction(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    """(direction, mean, var). `bias1`, `bias2`: 1 - β1ᵗ and 1 - β2ᵗ, or None without correction."""
    mean, var = _moments(clipped(b, g, s), state, s)
    if s.bias1 is None:
        return mean / (b.sqrt(var) + s.epsilon) + s.wd * w, mean, var
    return mean / s.bias1 / (b.sqrt(var / s.bias2) + s.epsilon) + s.wd * w, mean, var


def lamb_step(b: Emitter, w: Any, direction: Any, r1: Any, r2: Any, s: Any) -> Any:
    """Along the direction, scaled by the ratio of the norms of weight and direction."""
    if s.lower_bound is not None:
        r1 = b.maximum(r1, s.lower_bound)
    if s.upper_bound is not None:
        r1 = b.minimum(r1, s.upper_bound)
    zero = b.constant(0, dtype_of(w))
    ratio = _unless(b, b.eq(r1, zero), _unless(b, b.eq(r2, zero), r1 / r2, 1), 1)
    return w - s.lr * ratio * direction


def lamb(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    direction, mean, var = lamb_direction(b, w, g, state, s)
    return lamb_step(b, w, direction, norm(b, w), norm(b, direction), s), mean, var


def adagrad(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    (history,) = state
    g = clipped(b, g, s)
    history = history + g * g
    return w - s.lr * (g / b.sqrt(history + s.epsilon) + s.wd * w), history


def group_adagrad(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    """The history has one entry per row of the weight, with the shape (rows, 1, …)."""
    (history,) = state
    g = clipped(b, g, s)
    axes = tuple(range(1, len(g.shape)))
    mean = _sum(b, g * g, axes) / max(1, math.prod(g.shape[1:]))
    history = history + b.reshape(mean, shape=history.shape)
    return w - s.lr * g / b.sqrt(history + s.epsilon), history


# Rules that MXNet composes of array operators


def lars(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    """SGD with a rate that is scaled by the norms of weight and gradient, for the parameters that have `eta`."""
    rate = s.lr
    if s.eta is not None:
        w_norm, g_norm = norm(b, w), norm(b, g) * s.rescale_grad
        rate = trust(b, rate, w_norm, g_norm, s)
    step = rate * decayed(b, w, g, s)
    if not state:
        return (w - step,)
    mom = s.momentum * state[0] - step
    return w + mom, mom


def trust(b: Emitter, rate: Any, w_norm: Any, g_norm: Any, s: Any) -> Any:
    """The rate of LARS; `rate` where a norm is 0."""
    scaled = rate * s.eta * w_norm / (g_norm + s.wd * w_norm + s.epsilon)
    return b.select((w_norm > 0) & (g_norm > 0), scaled, rate)


def dcasgd(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    """States: the weight before the last step, then the momentum if there is one."""
    before, *mom = state
    g = clipped(b, g, s)
    step = s.minus_lr * (g + s.wd * w + s.lamda * g * g * (w - before))
    if not mom:
        return w + step, w
    new = s.momentum * mom[0] + step
    return w + new, w, new


def sgld(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    """The state is noise of the variance `lr`, drawn for this step."""
    (noise,) = state
    return (w - s.half_lr * decayed(b, w, g, s) + noise,)


def adadelta(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    squares, steps = state
    g = clipped(b, g, s)
    squares = s.rho * squares + s.rest * g * g
    step = b.sqrt(steps + s.epsilon) / b.sqrt(squares + s.epsilon) * g
    steps = s.rho * steps + s.rest * step * step
    return w - (step + s.wd * w), squares, steps


def adamax(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    mean, most = state
    g = decayed_first(b, w, g, s)
    mean = s.beta1 * mean + s.rest1 * g
    most = b.maximum(s.beta2 * most, abs(g))
    # A weight that never had a gradient stays where it is: 0 / 0 is no step.
    return w - _unless(b, b.eq(most, b.constant(0, dtype_of(most))), s.lr * mean / most, 0), mean, most


def nadam(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    """`now` and `next`: the factors of the gradient and of the mean; `bias2`: 1 - β2ᵗ."""
    g = decayed_first(b, w, g, s)
    mean, var = _moments(g, state, s)
    return w - s.lr * (s.now * g + s.next * mean) / (b.sqrt(var / s.bias2) + s.epsilon), mean, var


def scaled(b: Emitter, w: Any, g: Any, state: Sequence[Any], s: Any) -> tuple[Any, ...]:
    """The rule of the optimizer `Test`."""
    new = w + g * s.rescale_grad
    return new, new
