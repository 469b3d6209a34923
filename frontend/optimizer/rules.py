"""MXNet's optimizers: their settings, what they keep for each weight, and which rule they apply.

The formulas are in `operators/optimizers/update_rules.py`. What depends on the number of the step is computed here, and
passed to the rule as a number.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from gluonjit import ndarray
from gluonjit.ndarray import NDArray
from gluonjit.operators.optimizers import update_rules
from gluonjit.operators.optimizers.update_rules import Rule, bias, rest
from gluonjit.optimizer.optimizer import Optimizer, register
from gluonjit.optimizer.step import Update


def _zeros(weight: NDArray, dtype: Any = None) -> NDArray:
    """A state of the weight's shape, on its device."""
    return ndarray.zeros(weight.shape, weight.context, weight.dtype if dtype is None else dtype)


def _arrays(state: Any) -> tuple[NDArray, ...]:
    """The arrays of a state: of None, of one array or of several."""
    if state is None:
        return ()
    return tuple(state) if isinstance(state, (tuple, list)) else (state,)


def _aggregation(default: int) -> int:
    return int(os.environ.get("MXNET_OPTIMIZER_AGGREGATION_SIZE", default))


def _betas(beta1: float, beta2: float) -> dict[str, float]:
    return {"beta1": beta1, "beta2": beta2, "rest1": rest(beta1), "rest2": rest(beta2)}


class _WithRules(Optimizer):
    """Common parts of MXNet's optimizers."""

    def _made(
        self,
        rule: Rule,
        weight: NDArray,
        grad: NDArray,
        state: Any,
        scalars: dict[str, float],
        clips_at_zero: bool = False,
    ) -> Update:
        """An update with `rescale_grad` and `clip_gradient`; a bound of 0 is none, unless `clips_at_zero`."""
        scalars = {**scalars, "rescale_grad": self.rescale_grad}
        bound = self.clip_gradient
        if bound is not None and (bound > 0 or clips_at_zero and bound == 0):
            scalars["clip_gradient"] = bound
        rows_only = grad.stype == "row_sparse" and self._is_lazy(weight)
        return Update(rule, weight, grad, _arrays(state), scalars, rows_only=rows_only)

    def _is_lazy(self, weight: NDArray) -> bool:
        """Whether a row_sparse gradient updates its own rows only, as in MXNet; else the other rows' gradient is 0."""
        return False

    def _rates(self, index: Any) -> dict[str, float]:
        """Counts the step; the learning rate and weight decay of the weight."""
        self._update_count(index)
        return {"lr": self._get_lr(index), "wd": self._get_wd(index)}


def _kept(rates: dict[str, float]) -> dict[str, float]:
    """The rates, and the part of the weight that is kept."""
    return {"lr": rates["lr"], "keep": 1 - rates["lr"] * rates["wd"]}


def _sgd(
    own: _WithRules, momentum: float, weight: NDArray, grad: NDArray, state: Any, rates: dict[str, float]
) -> Update:
    if state is None:
        return own._made(update_rules.sgd, weight, grad, None, rates)
    return own._made(update_rules.sgd_mom, weight, grad, state, {**rates, "momentum": momentum})


@register
class SGD(_WithRules):
    """Stochastic gradient descent with momentum.

    m = momentum·m − lr·(g + wd·weight), weight += m. With `lazy_update`, a row_sparse gradient changes its own rows
    alone.

    >>> weight = mx.nd.array([1])
    >>> mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.5))(0, mx.nd.array([1]), weight)
    >>> weight.asnumpy()
    array([0.5], dtype=float32)
    """

    _master_last: ClassVar[bool] = True
    _counts_matter: ClassVar[bool] = False

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum
        self.lazy_update = lazy_update
        self.aggregate_num = _aggregation(4)

    def _is_lazy(self, weight: NDArray) -> bool:
        return self.lazy_update

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return None if self.momentum == 0 else _zeros(weight)

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        return _sgd(self, self.momentum, weight, grad, state, self._rates(index))


@register
class ccSGD(SGD):
    """An old name of SGD.

    >>> isinstance(mx.optimizer.create("ccsgd"), mx.optimizer.SGD)
    True
    """


@register
class Signum(_WithRules):
    """Steps by the gradients' signs, with momentum (arXiv:1802.04434); `wd_lh` is a decoupled weight decay.

    m = momentum·m − (1 − momentum)·(g + wd·weight), weight = (1 − lr·wd_lh)·weight + lr·sign(m).

    >>> weight = mx.nd.array([1])
    >>> mx.optimizer.get_updater(mx.optimizer.Signum(learning_rate=0.25))(0, mx.nd.array([7]), weight)
    >>> weight.asnumpy()
    array([0.75], dtype=float32)
    """

    def __init__(self, learning_rate: float = 0.01, momentum: float = 0.9, wd_lh: float = 0.0, **kwargs: Any) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.momentum = momentum
        self.wd_lh = wd_lh

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return None if self.momentum == 0 else _zeros(weight)

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        rates = self._rates(index)
        if state is None:
            return self._made(update_rules.signsgd, weight, grad, None, _kept(rates))
        kept = 1 - rates["lr"] * self.wd_lh
        numbers = {"momentum": self.momentum, "rest": rest(self.momentum), "keep": kept}
        return self._made(update_rules.signum, weight, grad, state, {**rates, **numbers})


@register
class FTML(_WithRules):
    """Follow the moving leader.

    Zheng and Kwok (2017).

    >>> weight = mx.nd.array([1])
    >>> mx.optimizer.get_updater(mx.optimizer.FTML(learning_rate=0.25))(0, mx.nd.array([7]), weight)
    >>> weight.asnumpy().round(4)
    array([0.75], dtype=float32)
    """

    def __init__(self, beta1: float = 0.6, beta2: float = 0.999, epsilon: float = 1e-8, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return tuple(_zeros(weight) for _ in range(3))

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        rates = self._rates(index)
        t = self._index_update_count[index]
        numbers = {
            **_betas(self.beta1, self.beta2),
            "bias1": bias(self.beta1, t),
            "bias2": bias(self.beta2, t),
            "epsilon": self.epsilon,
        }
        return self._made(update_rules.ftml, weight, grad, state, {**rates, **numbers})


@register
class LARS(_WithRules):
    """SGD whose rate is scaled per layer by the norms of weight and gradient (arXiv:1708.03888).

    The rate is lr·eta·‖weight‖ / (‖g‖ + wd·‖weight‖ + eps), but lr for parameters called gamma, beta or bias.

    >>> weight = mx.nd.array([3, 4])
    >>> mx.optimizer.get_updater(mx.optimizer.LARS(learning_rate=1, eta=0.1))(0, mx.nd.array([0, 2]), weight)
    >>> weight.asnumpy()
    array([3. , 3.5], dtype=float32)
    """

    _master_last: ClassVar[bool] = True

    def __init__(
        self,
        momentum: float = 0.0,
        lazy_update: bool = True,
        eta: float = 0.001,
        eps: float = 0,
        momentum_correction: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum
        self.lazy_update = lazy_update
        self.eta = eta
        self.eps = eps
        self.momentum_correction = momentum_correction
        self.aggregate_num = _aggregation(4)
        self.skip = 0
        self.last_lr: Any = None
        self.cur_lr: Any = None

    def set_wd_mult(self, args_wd_mult: dict[Any, float]) -> None:
        spared = {n: 0.0 for n in self.idx2name.values() if not n.endswith("_weight")}
        self.wd_mult = {**spared, **self._from_symbol("__wd_mult__"), **args_wd_mult}

    def _get_lrs(self, indices: Sequence[Any]) -> list[float]:
        rate = self.learning_rate
        self.last_lr = rate if self.cur_lr is None else self.cur_lr
        self.cur_lr = rate
        return super()._get_lrs(indices)

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return None if self.momentum == 0 else _zeros(weight)

    def _updates(
        self, indices: Sequence[Any], weights: Sequence[NDArray], grads: Sequence[NDArray], states: Sequence[Any]
    ) -> list[Update]:
        self._update_count(list(indices))
        rates = zip(self._get_lrs(indices), self._get_wds(indices))
        found = []
        for index, weight, grad, state, (lr, wd) in zip(indices, weights, grads, states, rates, strict=True):
            master, inner = self._without_master(weight, state)
            found.append(self._scaled(index, weight, grad, inner, lr, wd)._replace(master=master))
        return found

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        self._update_count(index)
        return self._scaled(index, weight, grad, state, self._get_lr(index), self._get_wd(index))

    def _scaled(self, index: Any, weight: NDArray, grad: NDArray, state: Any, lr: float, wd: float) -> Update:
        """The update with a rate that depends on norms, except for biases and the parameters of normalizations."""
        numbers: dict[str, float] = {"lr": lr, "wd": wd}
        if not self.idx2name.get(index, str(index)).endswith(("gamma", "beta", "bias")):
            numbers |= {"eta": self.eta, "epsilon": self.eps}
        if state is not None:
            corrected = self.momentum_correction and self.last_lr
            numbers["momentum"] = self.momentum * (self.cur_lr / self.last_lr if corrected else 1)
        return self._made(update_rules.lars, weight, grad, state, numbers)


@register
class LBSGD(_WithRules):
    """SGD for large batches: gradients of `batch_scale` batches are summed, and the rate warms up.

    >>> weight = mx.nd.array([1])
    >>> mx.optimizer.get_updater(mx.optimizer.LBSGD(learning_rate=0.5))(0, mx.nd.array([1]), weight)
    >>> weight.shape
    (1,)
    """

    _master_last: ClassVar[bool] = True

    def __init__(
        self,
        momentum: float = 0.0,
        multi_precision: bool = False,
        warmup_strategy: str = "linear",
        warmup_epochs: int = 5,
        batch_scale: float = 1,
        updates_per_epoch: int = 32,
        begin_epoch: int = 0,
        num_epochs: int = 60,
        **kwargs: Any,
    ) -> None:
        super().__init__(multi_precision=multi_precision, **kwargs)
        import logging  # rarely needed

        logging.info("Running Large-Batch SGD Algorithm")
        logging.info(
            "(Batch_scale=%f, warmup_epochs=%d, warmup_strategy=%s, updates_per_epoch=%d)",
            batch_scale,
            warmup_epochs,
            warmup_strategy,
            updates_per_epoch,
        )
        self.momentum = momentum
        self.warmup_strategy = warmup_strategy
        self.warmup_epochs = warmup_epochs
        self.batch_scale = batch_scale
        self.updates_per_epoch = updates_per_epoch
        self.init_updates = begin_epoch * updates_per_epoch
        self.num_epochs = num_epochs
        self.lbmult = 1
        self.adaptive = False
        self.admult = 1
        self.cumgrads: dict[Any, dict[str, Any]] = {}
        """By index: `cum_grad`, the sum of gradients since the last update (0: none), and `num_cums`, their number."""

    def _is_lazy(self, weight: NDArray) -> bool:
        return self.momentum == 0

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return None if self.momentum == 0 else _zeros(weight)

    def _warmed_up(self, done: int) -> float:
        """The factor of the learning rate after `done` updates."""
        whole = self.warmup_epochs * self.updates_per_epoch
        if done >= whole:
            return float(self.batch_scale)
        if whole <= 1:
            return 1.0
        part = {"linear": done / whole, "power2": (done / whole) ** 2, "sqrt": math.sqrt(done / whole)}
        return 1.0 + (self.batch_scale - 1) * part.get(self.warmup_strategy, 0.0)

    def _ratio(self, weight: NDArray, grad: NDArray, wd: float) -> float:
        """The root of the ratio of squared norms of weight and gradient, between 0.01 and 100."""
        w, g = (float(np.sum(np.square(x._array, dtype=np.float64))) for x in (weight, grad))
        return min(max(math.sqrt(w / (g + wd * w + 1e-18)), 0.01), 100.0)

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update | None:
        lr, wd = self._get_lr(index), self._get_wd(index)
        self._update_count(index)
        kept = self.cumgrads.get(index, {"cum_grad": 0, "num_cums": self.init_updates})
        first = not isinstance(kept["cum_grad"], NDArray)
        total: Any = grad if first else kept["cum_grad"] + grad
        count = kept["num_cums"] + 1
        if count % self.batch_scale:
            # A copy, because the gradient's array will be overwritten.
            self.cumgrads[index] = {"cum_grad": total.copy() if first else total, "num_cums": count}
            return None
        self.cumgrads[index] = {"cum_grad": 0, "num_cums": count}
        mean = total if self.batch_scale == 1 else total / self.batch_scale
        lr *= self._ratio(weight, mean, wd) if self.warmup_strategy == "lars" else self._warmed_up(count)
        return _sgd(self, self.momentum, weight, mean, state, {"lr": lr, "wd": wd})


@register
class LAMB(_WithRules):
    """Adam whose step is scaled per layer by the norms of weight and step (arXiv:1904.00962).

    >>> weight = mx.nd.array([3, 4])
    >>> mx.optimizer.get_updater(mx.optimizer.LAMB(learning_rate=0.5))(0, mx.nd.array([0, 2]), weight)
    >>> weight.asnumpy().round(4)
    array([3. , 1.5], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        bias_correction: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound
        self.bias_correction = bias_correction
        self.aggregate_num = max(1, min(45, _aggregation(45)))

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return _zeros(weight), _zeros(weight)

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        rates = self._rates(index)
        t = self._index_update_count[index]
        numbers = {**_betas(self.beta1, self.beta2), "epsilon": self.epsilon}
        if self.bias_correction:
            numbers |= {"bias1": bias(self.beta1, t), "bias2": bias(self.beta2, t)}
        if self.lower_bound:
            numbers["lower_bound"] = self.lower_bound
        if self.upper_bound:
            numbers["upper_bound"] = self.upper_bound
        return self._made(update_rules.lamb, weight, grad, state, {**rates, **numbers})


@register
class DCASGD(_WithRules):
    """SGD with compensation for delayed gradients (arXiv:1609.08326).

    >>> weight = mx.nd.array([1])
    >>> mx.optimizer.get_updater(mx.optimizer.DCASGD(learning_rate=0.5))(0, mx.nd.array([1]), weight)
    >>> weight.asnumpy()
    array([0.5], dtype=float32)
    """

    def __init__(self, momentum: float = 0.0, lamda: float = 0.04, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum
        self.lamda = lamda
        self.weight_previous: dict[Any, NDArray] = {}

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return None if self.momentum == 0 else _zeros(weight), weight.copy()

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        rates = self._rates(index)
        mom, before = state
        numbers = {"minus_lr": -rates["lr"], "wd": rates["wd"], "lamda": self.lamda}
        if mom is not None:
            numbers["momentum"] = self.momentum
        kept = [before] if mom is None else [before, mom]
        return self._made(update_rules.dcasgd, weight, grad, kept, numbers, clips_at_zero=True)


@register
class NAG(_WithRules):
    """SGD with Nesterov's momentum.

    m = momentum·m + g + wd·weight, weight −= lr·(g + wd·weight + momentum·m).

    >>> weight = mx.nd.array([1])
    >>> mx.optimizer.get_updater(mx.optimizer.NAG(learning_rate=0.1, momentum=0.5))(0, mx.nd.array([1]), weight)
    >>> weight.asnumpy().round(4)
    array([0.85], dtype=float32)
    """

    _master_last: ClassVar[bool] = True

    def __init__(self, momentum: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum

    def _is_lazy(self, weight: NDArray) -> bool:
        return self.momentum == 0

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return None if self.momentum == 0 else _zeros(weight)

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        rates = self._rates(index)
        if state is None:
            return self._made(update_rules.sgd, weight, grad, None, _kept(rates))
        return self._made(update_rules.nag_mom, weight, grad, state, {**rates, "momentum": self.momentum})


@register
class SGLD(_WithRules):
    """Stochastic gradient Riemannian Langevin dynamics: SGD with noise.

    The noise is normal, with variance lr (Patterson and Teh, 2013).

    >>> weight = mx.nd.zeros((1000,))
    >>> mx.optimizer.get_updater(mx.optimizer.SGLD(learning_rate=0.01))(0, mx.nd.zeros((1000,)), weight)
    >>> 0.05 < float(weight.asnumpy().std()) < 0.2
    True
    """

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        rates = self._rates(index)
        # The dtype of a weight in mixed precision is that of its float32 copy.
        noise = ndarray.random.normal(
            0, math.sqrt(rates["lr"]), shape=weight.shape, dtype=weight.dtype, ctx=weight.context
        )
        numbers = {"half_lr": rates["lr"] / 2, "wd": rates["wd"]}
        return self._made(update_rules.sgld, weight, grad, noise, numbers, clips_at_zero=True)


@register
class Adam(_WithRules):
    """Adam (arXiv:1412.6980).

    With means m = β₁m + (1 − β₁)g and v = β₂v + (1 − β₂)g² of g, which wd·weight is added to:
    weight −= lr·√(1 − β₂ᵗ)/(1 − β₁ᵗ) · m / (√v + epsilon), at the t-th step.

    >>> weight = mx.nd.array([1])
    >>> mx.optimizer.get_updater(mx.optimizer.Adam(learning_rate=0.25))(0, mx.nd.array([7]), weight)
    >>> weight.asnumpy().round(4)
    array([0.75], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        lazy_update: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.lazy_update = lazy_update

    def _is_lazy(self, weight: NDArray) -> bool:
        return self.lazy_update

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return _zeros(weight), _zeros(weight)

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        rates = self._rates(index)
        t = self._index_update_count[index]
        rates["lr"] *= math.sqrt(1 - self.beta2**t) / (1 - self.beta1**t)
        numbers = {**_betas(self.beta1, self.beta2), "epsilon": self.epsilon}
        return self._made(update_rules.adam, weight, grad, state, {**rates, **numbers})


@register
class AdaGrad(_WithRules):
    """Rates that shrink with the sum of squared gradients.

    h += g², weight −= lr·(g/√(h + eps) + wd·weight) (Duchi et al., 2011).

    >>> weight = mx.nd.array([1])
    >>> mx.optimizer.get_updater(mx.optimizer.AdaGrad(learning_rate=0.25))(0, mx.nd.array([7]), weight)
    >>> weight.asnumpy().round(4)
    array([0.75], dtype=float32)
    """

    def __init__(self, eps: float = 1e-7, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def _is_lazy(self, weight: NDArray) -> bool:
        return True

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return _zeros(weight, np.float32)

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        numbers = {**self._rates(index), "epsilon": self.float_stable_eps}
        return self._made(update_rules.adagrad, weight, grad, state, numbers, clips_at_zero=True)


@register
class GroupAdaGrad(_WithRules):
    """AdaGrad with one rate for each row of a weight.

    h of a row += the mean of g² over that row. Weights have two axes; weight decay is not possible (AssertionError).

    >>> weight = mx.nd.ones((2, 2))
    >>> optimizer = mx.optimizer.create("groupadagrad", learning_rate=0.25)
    >>> mx.optimizer.get_updater(optimizer)(0, mx.nd.array([[1, 1], [0, 0]]), weight)
    >>> weight.asnumpy().round(4)
    array([[0.75, 0.75],
           [1.  , 1.  ]], dtype=float32)
    """

    def __init__(self, eps: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def _is_lazy(self, weight: NDArray) -> bool:
        return True

    def create_state(self, index: Any, weight: NDArray) -> Any:
        if len(weight.shape) != 2:
            raise AssertionError(f"GroupAdaGrad takes matrices, but weight {index} has shape {weight.shape}")
        return ndarray.zeros((weight.shape[0], 1), weight.context)

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        rates = self._rates(index)
        if rates["wd"]:
            raise AssertionError("Weight decay is not supported for GroupAdaGrad")
        numbers = {"lr": rates["lr"], "epsilon": self.float_stable_eps}
        return self._made(update_rules.group_adagrad, weight, grad, state, numbers, clips_at_zero=True)


@register
class RMSProp(_WithRules):
    """Rates by a running mean of squared gradients; `centered` takes the variance (arXiv:1308.0850).

    n = gamma1·n + (1 − gamma1)·g², weight −= lr·g/√(n + epsilon) (Tieleman and Hinton, 2012), with wd·weight in g.

    >>> weight = mx.nd.array([1])
    >>> mx.optimizer.get_updater(mx.optimizer.RMSProp(learning_rate=0.1, gamma1=0.75))(0, mx.nd.array([7]), weight)
    >>> weight.asnumpy().round(4)
    array([0.8], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        gamma1: float = 0.9,
        gamma2: float = 0.9,
        epsilon: float = 1e-8,
        centered: bool = False,
        clip_weights: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.gamma1 = gamma1
        self.gamma2 = gamma2
        self.epsilon = epsilon
        self.centered = centered
        self.clip_weights = clip_weights

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return tuple(_zeros(weight, np.float32) for _ in range(3 if self.centered else 1))

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        numbers = {**self._rates(index), "gamma1": self.gamma1, "rest1": rest(self.gamma1), "epsilon": self.epsilon}
        if self.clip_weights:
            numbers["clip_weights"] = self.clip_weights
        if not self.centered:
            return self._made(update_rules.rmsprop, weight, grad, state, numbers)
        return self._made(update_rules.rmspropalex, weight, grad, state, {**numbers, "gamma2": self.gamma2})


@register
class AdaDelta(_WithRules):
    """Steps by the ratio of running means of squared steps and squared gradients (arXiv:1212.5701).

    >>> weight = mx.nd.array([1])
    >>> mx.optimizer.get_updater(mx.optimizer.AdaDelta())(0, mx.nd.array([7]), weight)
    >>> weight.asnumpy().round(4)
    array([0.99], dtype=float32)
    """

    def __init__(self, rho: float = 0.90, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rho = rho
        self.epsilon = epsilon

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return _zeros(weight, np.float32), _zeros(weight, np.float32)

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        wd = self._get_wd(index)
        self._update_count(index)
        numbers = {"wd": wd, "rho": self.rho, "rest": 1 - self.rho, "epsilon": self.epsilon}
        return self._made(update_rules.adadelta, weight, grad, state, numbers, clips_at_zero=True)


@register
class Ftrl(_WithRules):
    """Follow the regularized leader.

    McMahan et al. (2013); `lamda1` is the weight of the L1 term, which makes weights exactly 0.

    >>> weight = mx.nd.array([1])
    >>> mx.optimizer.get_updater(mx.optimizer.Ftrl(lamda1=1000))(0, mx.nd.array([7]), weight)
    >>> weight.asnumpy() + 0
    array([0.], dtype=float32)
    """

    def __init__(self, lamda1: float = 0.01, learning_rate: float = 0.1, beta: float = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lamda1 = lamda1
        self.beta = beta
        self.lr = learning_rate

    def _is_lazy(self, weight: NDArray) -> bool:
        return weight.stype == "row_sparse"

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return _zeros(weight, np.float32), _zeros(weight, np.float32)

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        numbers = {**self._rates(index), "lamda1": self.lamda1, "beta": self.beta}
        return self._made(update_rules.ftrl, weight, grad, state, numbers)


@register
class Adamax(_WithRules):
    """Adam with the infinity norm (arXiv:1412.6980, section 7).

    >>> weight = mx.nd.array([1])
    >>> mx.optimizer.get_updater(mx.optimizer.Adamax(learning_rate=0.25))(0, mx.nd.array([7]), weight)
    >>> weight.asnumpy().round(4)
    array([0.75], dtype=float32)
    """

    def __init__(self, learning_rate: float = 0.002, beta1: float = 0.9, beta2: float = 0.999, **kwargs: Any) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return _zeros(weight), _zeros(weight)

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        rates = self._rates(index)
        rates["lr"] /= 1 - self.beta1 ** self._index_update_count[index]
        numbers = {**rates, "beta1": self.beta1, "rest1": 1 - self.beta1, "beta2": self.beta2}
        return self._made(update_rules.adamax, weight, grad, state, numbers, clips_at_zero=True)


@register
class Nadam(_WithRules):
    """Adam with Nesterov's momentum.

    Dozat (2016).

    >>> weight = mx.nd.array([1])
    >>> mx.optimizer.get_updater(mx.optimizer.Nadam(learning_rate=0.25))(0, mx.nd.array([7]), weight)
    >>> 0 < float(weight.asscalar()) < 1
    True
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        schedule_decay: float = 0.004,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.schedule_decay = schedule_decay
        self.m_schedule = 1.0

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return _zeros(weight), _zeros(weight)

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        rates = self._rates(index)
        t = self._index_update_count[index]
        now, following = (self.beta1 * (1 - 0.5 * 0.96 ** (k * self.schedule_decay)) for k in (t, t + 1))
        self.m_schedule *= now  # once per weight, as in MXNet
        numbers = {
            **rates,
            "beta1": self.beta1,
            "rest1": 1 - self.beta1,
            "beta2": self.beta2,
            "rest2": 1 - self.beta2,
            "bias2": 1 - self.beta2**t,
            "epsilon": self.epsilon,
            "now": (1 - now) / (1 - self.m_schedule),
            "next": following / (1 - self.m_schedule * following),
        }
        return self._made(update_rules.nadam, weight, grad, state, numbers, clips_at_zero=True)


@register
class Test(_WithRules):
    """Adds the gradient to the weight, for tests of MXNet itself.

    >>> weight = mx.nd.array([1])
    >>> mx.optimizer.get_updater(mx.optimizer.Test())(0, mx.nd.array([7]), weight)
    >>> weight.asnumpy()
    array([8.], dtype=float32)
    """

    __test__ = False  # no test class for pytest

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return _zeros(weight, np.float32)

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update:
        return Update(update_rules.scaled, weight, grad, (state,), {"rescale_grad": self.rescale_grad})
