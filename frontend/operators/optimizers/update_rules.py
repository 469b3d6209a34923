"""The formulas of optimizers: what one step makes of a weight and of its states.

    def nag(w, g, state, s):
        (mom,) = state
        step = s.lr * (preprocessed(w, g, s) + s.wd * w)
        ...
        return new_w, new_mom

A rule takes the weight, its gradient and its states as `Term`s, and the numbers it needs (`s.lr`, `s.momentum`) as
terms of rank 0 or, where one is not given, None. It returns the new weight, then the new values of its first states;
further states are only read. Arithmetic among numbers alone, such as 1 - β, is left to the caller: in compiled code it
would be a kernel of its own. Update operators (`updates.py`) and the compiled step of an optimizer
(`optimizer/step.py`) run the same rules, over an emitter `b` as expansions do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.ir.types import DType, dtype_of
from gluonjit.operators.support import narrowed, widened


class Term:
    """A value with arithmetic: formulas read as they are written in papers. Numbers become constants of its type."""

    __slots__ = ("b", "value")

    def __init__(self, b: Any, value: Any) -> None:
        self.b = b
        self.value = value

    @property
    def dtype(self) -> DType:
        return dtype_of(self.value)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    def _with(self, name: str, other: Any, swapped: bool = False) -> Term:
        x, y = self.value, other.value if isinstance(other, Term) else self.b.constant(other, self.dtype)
        return Term(self.b, getattr(self.b, name)(*((y, x) if swapped else (x, y))))

    def __add__(self, other: Any) -> Term:
        return self._with("add", other)

    def __radd__(self, other: Any) -> Term:
        return self._with("add", other)

    def __sub__(self, other: Any) -> Term:
        return self._with("sub", other)

    def __rsub__(self, other: Any) -> Term:
        return self._with("sub", other, swapped=True)

    def __mul__(self, other: Any) -> Term:
        return self._with("mul", other)

    def __rmul__(self, other: Any) -> Term:
        return self._with("mul", other)

    def __truediv__(self, other: Any) -> Term:
        return self._with("div", other)

    def __rtruediv__(self, other: Any) -> Term:
        return self._with("div", other, swapped=True)

    def __neg__(self) -> Term:
        return Term(self.b, self.b.neg(self.value))

    def __abs__(self) -> Term:
        return Term(self.b, self.b.abs(self.value))

    def __gt__(self, other: Any) -> Term:
        return self._with("gt", other)

    def __le__(self, other: Any) -> Term:
        return self._with("le", other)

    def is_zero(self) -> Term:
        return self._with("eq", 0)

    def sqrt(self) -> Term:
        return Term(self.b, self.b.sqrt(self.value))

    def sign(self) -> Term:
        return Term(self.b, self.b.sign(self.value))

    def at_least(self, other: Any) -> Term:
        return self._with("maximum", other)

    def at_most(self, other: Any) -> Term:
        return self._with("minimum", other)

    def within(self, bound: Term | None) -> Term:
        """Clipped to ±bound; unchanged without one."""
        return self if bound is None else (-((-self).at_most(bound))).at_most(bound)

    def both(self, other: Term) -> Term:
        """Where two conditions hold."""
        return self._with("and", other)

    def choose(self, yes: Any, no: Term) -> Term:
        """`yes` where this condition holds, else `no`."""
        given = yes.value if isinstance(yes, Term) else self.b.constant(yes, no.dtype)
        return Term(self.b, self.b.select(self.value, given, no.value))

    def norm(self) -> Term:
        """The 2-norm of all elements, of rank 0. Summed up in float32 at least."""
        x = self * self
        return x.sum(tuple(range(len(x.shape)))).sqrt()

    def sum(self, axes: tuple[int, ...]) -> Term:
        return Term(self.b, self.b.reduce(self.value, op="sum", axes=axes)) if axes else self

    def reshape(self, shape: tuple[int, ...]) -> Term:
        return Term(self.b, self.b.reshape(self.value, shape=shape))


def rest(beta: float) -> float:
    """1 - β as MXNet's operators compute it, in float32."""
    return float(np.float32(1) - np.float32(beta))


def bias(beta: float, t: int) -> float:
    """1 - βᵗ as MXNet's operators compute it, from β in float32."""
    return 1 - float(np.float32(beta)) ** t


class Scalars:
    """The numbers of a step, by name. One that is not given is None."""

    def __init__(self, terms: Mapping[str, Term]) -> None:
        self._terms = terms

    def __getattr__(self, name: str) -> Any:
        return self._terms.get(name)


Rule = Callable[[Term, Term, Sequence[Term], Any], "tuple[Term, ...]"]


def run(
    b: Any,
    rule: Rule,
    weight: Any,
    grad: Any,
    states: Sequence[Any],
    scalars: Mapping[str, Any],
    master: Any = None,
) -> tuple[list[Any], Any]:
    """([the new weight, then new states], the new master or None) by one rule.

    float16 and bfloat16 are computed in float32 and rounded once. `master` is a float32 copy of the weight: if there is
    one, it is what the rule updates, and the weight is it, rounded. `scalars` are Python numbers, or values of rank 0.
    """
    own = weight if master is None else master
    w = Term(b, widened(b, own))
    g = Term(b, grad if dtype_of(grad) is w.dtype else b.cast(grad, dtype=w.dtype))
    inner = [Term(b, widened(b, x)) for x in states]
    terms = {}
    for name, value in scalars.items():
        plain = isinstance(value, (int, float))
        kind = w.dtype
        terms[name] = Term(
            b, b.constant(value, kind) if plain else value if dtype_of(value) is kind else b.cast(value, dtype=kind)
        )
    new_weight, *new_states = rule(w, g, inner, Scalars(terms))
    new = [narrowed(b, new_weight.value, dtype_of(weight))]
    new += [narrowed(b, x.value, dtype_of(old)) for x, old in zip(new_states, states)]
    return new, None if master is None else new_weight.value


def clipped(g: Term, s: Any) -> Term:
    """The gradient, rescaled and clipped."""
    return (g * s.rescale_grad).within(s.clip_gradient)


def decayed(w: Term, g: Term, s: Any) -> Term:
    """The gradient, rescaled and clipped, plus weight decay."""
    return clipped(g, s) + s.wd * w


def decayed_first(w: Term, g: Term, s: Any) -> Term:
    """The gradient, rescaled, plus weight decay, then clipped."""
    return (g * s.rescale_grad + s.wd * w).within(s.clip_gradient)


# Rules of MXNet's update operators


def sgd(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    """`keep`: 1 - lr·wd, if MXNet multiplies the weight by it, rather than adding the decay to the gradient."""
    if s.keep is None:
        return (w - s.lr * decayed(w, g, s),)
    return (s.keep * w - s.lr * clipped(g, s),)


def sgd_mom(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    (mom,) = state
    mom = s.momentum * mom - s.lr * decayed(w, g, s)
    return w + mom, mom


def nag_mom(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    """The momentum that is kept decays the new weight, not the old one: MXNet writes the weight first."""
    (mom,) = state
    g = clipped(g, s)
    step = s.lr * (g + s.wd * w)
    mom = s.momentum * mom
    new = w + s.momentum * (mom - step) - step
    return new, mom - s.lr * (g + s.wd * new)


def signsgd(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    """`keep`: 1 - lr·wd."""
    return (s.keep * w - s.lr * g.sign(),)


def signum(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    """`rest`: 1 - momentum, `keep`: 1 - lr·wd_lh."""
    (mom,) = state
    mom = s.momentum * mom - s.rest * decayed(w, g, s)
    return s.keep * w + s.lr * mom.sign(), mom


def adam(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    mean, var = _moments(decayed_first(w, g, s), state, s)
    return w - s.lr * mean / (var.sqrt() + s.epsilon), mean, var


def _moments(g: Term, state: Sequence[Term], s: Any) -> tuple[Term, Term]:
    """The running means of the gradient and of its square. `rest1`, `rest2`: 1 - β1 and 1 - β2."""
    mean, var = state
    return s.beta1 * mean + s.rest1 * g, s.beta2 * var + s.rest2 * g * g


def adamw(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    """A step whose scale is 0, infinite or NaN (the loss overflowed) is left out."""
    mean, var = _moments(clipped(g, s), state, s)
    step = s.eta * (s.lr * mean / (var.sqrt() + s.epsilon) + s.wd * w)
    scale = abs(s.rescale_grad)
    taken = (scale > 0).both(Term(w.b, w.b.lt(scale.value, w.b.constant(float("inf"), scale.dtype))))
    return taken.choose(w - step, w), taken.choose(mean, state[0]), taken.choose(var, state[1])


def ftml(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    """`bias1`, `bias2`: 1 - β1ᵗ and 1 - β2ᵗ."""
    d, v, z = state
    g = decayed_first(w, g, s)
    v = s.beta2 * v + s.rest2 * g * g
    new_d = ((v / s.bias2).sqrt() + s.epsilon) * s.bias1 / s.lr
    z = s.beta1 * z + s.rest1 * g - (new_d - s.beta1 * d) * w
    return -z / new_d, new_d, v, z


def rmsprop(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    (n,) = state
    g = decayed_first(w, g, s)
    n = s.rest1 * g * g + s.gamma1 * n
    return (w - s.lr * g / (n + s.epsilon).sqrt()).within(s.clip_weights), n


def rmspropalex(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    n, mean, delta = state
    g = decayed_first(w, g, s)
    n = s.rest1 * g * g + s.gamma1 * n
    mean = s.rest1 * g + s.gamma1 * mean
    delta = s.gamma2 * delta - s.lr * g / (n - mean * mean + s.epsilon).sqrt()
    return (w + delta).within(s.clip_weights), n, mean, delta


def ftrl(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    z, n = state
    g = clipped(g, s)
    new_n = n + g * g
    z = z + g - (new_n.sqrt() - n.sqrt()) * w / s.lr
    new_w = (z.sign() * s.lamda1 - z) / ((s.beta + new_n.sqrt()) / s.lr + s.wd)
    return (abs(z) <= s.lamda1).choose(0.0, new_w), z, new_n


def lamb_direction(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    """(direction, mean, var). `bias1`, `bias2`: 1 - β1ᵗ and 1 - β2ᵗ, or None without correction."""
    mean, var = _moments(clipped(g, s), state, s)
    if s.bias1 is None:
        return mean / (var.sqrt() + s.epsilon) + s.wd * w, mean, var
    return mean / s.bias1 / ((var / s.bias2).sqrt() + s.epsilon) + s.wd * w, mean, var


def lamb_step(w: Term, direction: Term, r1: Term, r2: Term, s: Any) -> Term:
    """Along the direction, scaled by the ratio of the norms of weight and direction."""
    if s.lower_bound is not None:
        r1 = r1.at_least(s.lower_bound)
    if s.upper_bound is not None:
        r1 = r1.at_most(s.upper_bound)
    ratio = r1.is_zero().choose(1.0, r2.is_zero().choose(1.0, r1 / r2))
    return w - s.lr * ratio * direction


def lamb(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    direction, mean, var = lamb_direction(w, g, state, s)
    return lamb_step(w, direction, w.norm(), direction.norm(), s), mean, var


def adagrad(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    (history,) = state
    g = clipped(g, s)
    history = history + g * g
    return w - s.lr * (g / (history + s.epsilon).sqrt() + s.wd * w), history


def group_adagrad(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    """The history has one entry per row of the weight, with the shape (rows, 1, …)."""
    (history,) = state
    g = clipped(g, s)
    axes = tuple(range(1, len(g.shape)))
    mean = (g * g).sum(axes) / float(max(1, math.prod(g.shape[1:])))
    history = history + mean.reshape(history.shape)
    return w - s.lr * g / (history + s.epsilon).sqrt(), history


# Rules that MXNet composes of array operators


def lars(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    """SGD with a rate that is scaled by the norms of weight and gradient, for the parameters that have `eta`."""
    rate = s.lr
    if s.eta is not None:
        w_norm, g_norm = w.norm(), g.norm() * s.rescale_grad
        rate = trust(rate, w_norm, g_norm, s)
    step = rate * decayed(w, g, s)
    if not state:
        return (w - step,)
    mom = s.momentum * state[0] - step
    return w + mom, mom


def trust(rate: Term, w_norm: Term, g_norm: Term, s: Any) -> Term:
    """The rate of LARS; `rate` where a norm is 0."""
    scaled = rate * s.eta * w_norm / (g_norm + s.wd * w_norm + s.epsilon)
    return (w_norm > 0).both(g_norm > 0).choose(scaled, rate)


def dcasgd(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    """States: the weight before the last step, then the momentum if there is one."""
    before, *mom = state
    g = clipped(g, s)
    step = s.minus_lr * (g + s.wd * w + s.lamda * g * g * (w - before))
    if not mom:
        return w + step, w
    new = s.momentum * mom[0] + step
    return w + new, w, new


def sgld(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    """The state is noise of the variance `lr`, drawn for this step."""
    (noise,) = state
    return (w - s.half_lr * decayed(w, g, s) + noise,)


def adadelta(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    squares, steps = state
    g = clipped(g, s)
    squares = s.rho * squares + s.rest * g * g
    step = (steps + s.epsilon).sqrt() / (squares + s.epsilon).sqrt() * g
    steps = s.rho * steps + s.rest * step * step
    return w - (step + s.wd * w), squares, steps


def adamax(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    mean, most = state
    g = decayed_first(w, g, s)
    mean = s.beta1 * mean + s.rest1 * g
    most = (s.beta2 * most).at_least(abs(g))
    # A weight that never had a gradient stays where it is: 0 / 0 is no step.
    return w - most.is_zero().choose(0.0, s.lr * mean / most), mean, most


def nadam(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    """`now` and `next`: the factors of the gradient and of the mean; `bias2`: 1 - β2ᵗ."""
    g = decayed_first(w, g, s)
    mean, var = _moments(g, state, s)
    return w - s.lr * (s.now * g + s.next * mean) / ((var / s.bias2).sqrt() + s.epsilon), mean, var


def scaled(w: Term, g: Term, state: Sequence[Term], s: Any) -> tuple[Term, ...]:
    """The rule of the optimizer `Test`."""
    new = w + g * s.rescale_grad
    return new, new
