"""Update operators: one step of an optimizer for given arrays, by the rules of `update_rules.py`.

The result is the new weight (`out=weight` overwrites it); the states are overwritten. Forms of an operator:

* `mp_…`: a float16 weight with a float32 copy, `weight32`, which is what the step is computed from;
* `multi_…`: several weights, whose arrays follow one another: weight, gradient, states, then the next weight's;
* `preloaded_multi_…`: the rates come in two arrays, `lrs` and `wds`, after all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import dtype_of
from gluonjit.operators.attributes import Attr, boolean, counted, integer, number, numbers, shape
from gluonjit.operators.documentation import documented, example, on
from gluonjit.operators.optimizers import update_rules as rules
from gluonjit.operators.optimizers.update_rules import Rule, bias, rest, scalars
from gluonjit.operators.registry import Operator, OperatorError, operator
from gluonjit.operators.support import (
    Shapes,
    merge,
    narrowed,
    require_float,
    require_same_dtype,
    require_same_shape,
    widened,
)

Attrs = Mapping[str, Any]


class UpdateOperator(Operator):
    """An operator whose overwritten inputs are auxiliary states."""

    def aux_names(self, attrs: Attrs) -> Sequence[str]:
        assert self.updates is not None
        names = self.input_names(attrs)
        return tuple(names[k] for k in self.updates(attrs))


def _scalars(attrs: Attrs) -> dict[str, float]:
    """The numbers that a rule takes, from an operator's attributes. A negative bound is none."""
    found = {key: value for key, value in attrs.items() if not isinstance(value, (bool, tuple))}
    if "clip_grad" in found:
        found["clip_gradient"] = found.pop("clip_grad")
    for key in ("clip_gradient", "clip_weights", "lower_bound", "upper_bound"):
        if found.get(key, 0.0) < 0:
            del found[key]
    for key, name in (("beta1", "rest1"), ("beta2", "rest2"), ("gamma1", "rest1"), ("momentum", "rest")):
        if key in found:
            found[name] = rest(found[key])
    if "lr" in found:
        found["keep"] = 1 - found["lr"] * found["wd_lh" if "wd_lh" in found else "wd"] if "wd" in found else 1.0
    if "t" in found:
        found["bias1"], found["bias2"] = (bias(found[key], found["t"]) for key in ("beta1", "beta2"))
    return found


def _check(weight: Any, grad: Any, states: Sequence[Any]) -> None:
    require_float(weight)
    require_same_shape(weight, grad, *states)


def _same(attrs: Attrs, shapes: Shapes) -> Shapes:
    return [_merged(shapes)] * len(shapes)


def _merged(shapes: Shapes) -> Any:
    found = None
    for s in shapes:
        found = merge(found, s)
    return found


_LR = {"lr": number(doc="the learning rate")}
_WD = {"wd": number(0.0, doc="the weight decay")}
_SCALE = {
    "rescale_grad": number(1.0, doc="what gradients are multiplied by"),
    "clip_gradient": number(-1.0, doc="the bound that gradients are clipped to; none if negative"),
}
_MOMENTUM = {"momentum": number(0.0, doc="the share of the old momentum in the new one")}
_LAZY = {"lazy_update": boolean(True, doc="whether sparse gradients update only the rows that they have")}
_BETA1 = number(0.9, doc="the share of the old mean of gradients in the new one")
_BETA2 = number(0.999, doc="the share of the old mean of squared gradients in the new one")
_EPSILON = number(1e-8, doc="what keeps the divisor from 0")
_BETAS = {"beta1": _BETA1, "beta2": _BETA2, "epsilon": _EPSILON}


# Documentation

GRADIENT = "g is clip(rescale_grad * grad, ±clip_gradient)"


class Described(NamedTuple):
    """The documentation of an update operator. Its example is a step, with `options`, of the weight 1 by the gradient
    0.5, where states are 0: `new` is the new weight."""

    first: str
    formula: str
    options: str
    new: str

    def of_one(self, name: str, states: Sequence[str]) -> str:
        given = "".join(f", {_ZERO}" for _ in states)
        call = f"mx.nd.{name}(weight, grad{given}, {self.options})"
        return documented(
            self.first,
            f"weight, grad{''.join(f', {x}' for x in states)} of one shape -> that shape",
            f"{self.formula}.",
            f">>> weight, grad = mx.nd.array([1]), mx.nd.array([0.5])\n{example(call, self.new)}",
        )

    def of_half(self, name: str, states: Sequence[str]) -> str:
        given = "".join(f", {_ZERO}" for _ in states)
        rounded = ".round(3)" if "round" in example("", self.new) else ""
        return documented(
            f"`{name.replace('mp_', '')}` of a float16 weight with a float32 copy",
            f"weight, grad{''.join(f', {x}' for x in states)}, weight32 of one shape -> that shape",
            "The step is computed from `weight32`, which is overwritten.",
            f'>>> weight, grad = (mx.nd.array([x], dtype="float16") for x in (1, 0.5))\n'
            f">>> mx.nd.{name}(weight, grad{given}, mx.nd.ones(1), {self.options}).asnumpy(){rounded}\n"
            f"array({self.new}, dtype=float16)",
        )


_ZERO = "mx.nd.zeros(1)"


# One weight


def _declare(
    name: str, doc: Described, rule: Rule, states: Sequence[str], attrs: dict[str, Attr], aliases: Sequence[str] = ()
) -> None:
    """Declares the update operator `name`: (weight, grad, *states) by `rule`."""

    def expand(b: Emitter, weight: Any, grad: Any, *states: Any, **attrs: Any) -> Any:
        _check(weight, grad, states)
        new, _ = rules.run(b, rule, weight, grad, states, _scalars(attrs))
        return tuple(new)

    public = name.replace("_sparse_", "sparse.")
    text = doc.of_one(public, states)
    _named(name, expand, text, ("weight", "grad", *states), range(2, 2 + len(states)), attrs, aliases)


def _declare_mp(name: str, doc: Described, rule: Rule, states: Sequence[str], attrs: dict[str, Attr]) -> None:
    """Declares the form of an update operator with a float32 copy of the weight."""

    def expand(b: Emitter, weight: Any, grad: Any, *rest: Any, **attrs: Any) -> Any:
        *states, master = rest
        _check(weight, grad, rest)
        new, master = rules.run(b, rule, weight, grad, states, _scalars(attrs), master)
        return (*new, master)

    inputs = ("weight", "grad", *states, "weight32")
    _named(name, expand, doc.of_half(name, states), inputs, range(2, len(inputs)), attrs)


def _named(
    name: str,
    expand: Callable[..., Any],
    doc: str,
    inputs: Sequence[str],
    written: Sequence[int],
    attrs: dict[str, Attr],
    aliases: Sequence[str] = (),
    complete: Any = _same,
) -> None:
    """Declares an operator that overwrites the inputs `written` with its second and further results."""
    expand.__doc__ = doc
    places = {k: 1 + n for n, k in enumerate(written)}
    operator(
        name,
        kind=UpdateOperator,
        inputs=tuple(inputs),
        attrs=attrs,
        outputs=lambda _: ("output", *(f"{inputs[k]}_new" for k in places)),
        visible=lambda _: 1,
        updates=lambda _: places,
        complete=complete,
        aliases=aliases,
    )(expand)


_SGD = {**_LR, **_WD, **_SCALE, **_LAZY}
_SGD_TEXT = Described(
    "One step of stochastic gradient descent", f"weight - lr (g + wd weight), where {GRADIENT}", "lr=0.5", "[0.75]"
)
_declare("sgd_update", _SGD_TEXT, rules.sgd, (), _SGD, ("_sparse_sgd_update",))
_declare_mp("mp_sgd_update", _SGD_TEXT, rules.sgd, (), _SGD)
_SGD_MOM = {**_LR, **_MOMENTUM, **_WD, **_SCALE, **_LAZY}
_SGD_MOM_TEXT = Described(
    "One step of stochastic gradient descent with momentum",
    f"weight + mom, where mom becomes momentum mom - lr (g + wd weight), and {GRADIENT}",
    "lr=0.5, momentum=0.9",
    "[0.75]",
)
_declare(
    "sgd_mom_update",
    _SGD_MOM_TEXT,
    rules.sgd_mom,
    ("mom",),
    _SGD_MOM,
    ("_sparse_sgd_mom_update",),
)
_declare_mp("mp_sgd_mom_update", _SGD_MOM_TEXT, rules.sgd_mom, ("mom",), _SGD_MOM)
_NAG = {**_LR, **_MOMENTUM, **_WD, **_SCALE}
_NAG_TEXT = Described(
    "One step with Nesterov's momentum",
    "weight + momentum (momentum mom - step) - step, where step is lr (g + wd weight) (Sutskever et al., 2013); mom "
    f"becomes momentum mom - step, with the decay of the new weight, and {GRADIENT}",
    "lr=0.5, momentum=0.5",
    "[0.625]",
)
_declare("nag_mom_update", _NAG_TEXT, rules.nag_mom, ("mom",), _NAG)
_declare_mp("mp_nag_mom_update", _NAG_TEXT, rules.nag_mom, ("mom",), _NAG)
_declare(
    "signsgd_update",
    Described(
        "One step by the signs of the gradient",
        "(1 - lr wd) weight - lr sign(grad) (Bernstein et al., 2018)",
        "lr=0.25",
        "[0.75]",
    ),
    rules.signsgd,
    (),
    {**_LR, **_WD, **_SCALE},
)
_declare(
    "signum_update",
    Described(
        "One step by the signs of the momentum",
        "(1 - lr wd_lh) weight + lr sign(mom) (Bernstein et al., 2018), where mom becomes momentum mom - "
        f"(1 - momentum) (g + wd weight), and {GRADIENT}",
        "lr=0.25, momentum=0.9",
        "[0.75]",
    ),
    rules.signum,
    ("mom",),
    {**_NAG, "wd_lh": number(0.0, doc="a weight decay that is no part of the momentum")},
)
_declare(
    "adam_update",
    Described(
        "One step of Adam, without bias correction, which is part of `lr`",
        "weight - lr mean / (sqrt(var) + epsilon) (Kingma and Ba, 2015, arXiv:1412.6980). mean becomes "
        "beta1 mean + (1 - beta1) g, var becomes beta2 var + (1 - beta2) g², and g is "
        "clip(rescale_grad grad + wd weight, ±clip_gradient)",
        "lr=0.5, beta1=0.5, beta2=0.75",
        "[0.5]",
    ),
    rules.adam,
    ("mean", "var"),
    {**_LR, **_BETAS, **_WD, **_SCALE, **_LAZY},
    ("_sparse_adam_update",),
)
_declare(
    "ftml_update",
    Described(
        "One step of FTML, follow the moving leader",
        "-z / d (Zheng and Kwok, 2017), where v becomes beta2 v + (1 - beta2) g², d becomes "
        "(sqrt(v / (1 - beta2^t)) + epsilon) (1 - beta1^t) / lr, z becomes "
        "beta1 z + (1 - beta1) g - (d - beta1 d_old) weight, and g is clip(rescale_grad grad + wd weight, ±clip_grad)",
        "lr=0.5, t=1",
        "[0.5]",
    ),
    rules.ftml,
    ("d", "v", "z"),
    {
        **_LR,
        "beta1": number(0.6, low=0.0, high=1.0, doc="the share of the old mean of gradients in the new one"),
        "beta2": number(0.999, low=0.0, high=1.0, doc="the share of the old mean of squared gradients in the new one"),
        "epsilon": number(1e-8, doc="what keeps the divisor from 0"),
        "t": integer(doc="the number of the step, from 1 on"),
        **_WD,
        "rescale_grad": _SCALE["rescale_grad"],
        "clip_grad": _SCALE["clip_gradient"],
    },
)
_declare(
    "ftrl_update",
    Described(
        "One step of FTRL, follow the regularized leader",
        "(sign(z) lamda1 - z) / ((beta + sqrt(n)) / lr + wd), or 0 where |z| <= lamda1 (McMahan et al., 2013). n "
        f"becomes n + g², z becomes z + g - (sqrt(n) - sqrt(n_old)) weight / lr, and {GRADIENT}",
        "lr=0.25, lamda1=0",
        "[0.25]",
    ),
    rules.ftrl,
    ("z", "n"),
    {
        **_LR,
        "lamda1": number(0.01, doc="the factor of the L1 penalty"),
        "beta": number(1.0, doc="what is added to sqrt(n)"),
        **_WD,
        **_SCALE,
    },
    ("_sparse_ftrl_update",),
)
_CLIP_WEIGHTS = {"clip_weights": number(-1.0, doc="the bound that weights are clipped to; none if negative")}
_declare(
    "rmsprop_update",
    Described(
        "One step of RMSProp",
        "weight - lr g / sqrt(n + epsilon) (Tieleman and Hinton, 2012), clipped to ±clip_weights. n becomes "
        "gamma1 n + (1 - gamma1) g², and g is clip(rescale_grad grad + wd weight, ±clip_gradient)",
        "lr=0.5, gamma1=0",
        "[0.5]",
    ),
    rules.rmsprop,
    ("n",),
    {
        **_LR,
        "gamma1": number(0.95, doc="the share of the old mean in the new one"),
        "epsilon": number(1e-8, doc="what keeps the divisor from 0"),
        **_WD,
        **_SCALE,
        **_CLIP_WEIGHTS,
    },
)
_declare(
    "rmspropalex_update",
    Described(
        "One step of RMSProp by the variance of gradients",
        "weight + delta (Graves, 2013, arXiv:1308.0850), clipped to ±clip_weights, where delta becomes gamma2 "
        "delta - lr g / sqrt(n - mean² + epsilon). n and mean (the input `g`) are running means of g² and g, and "
        "g is clip(rescale_grad grad + wd weight, ±clip_gradient)",
        "lr=0.25, gamma1=0.5",
        "[0.5]",
    ),
    rules.rmspropalex,
    ("n", "g", "delta"),
    {
        **_LR,
        "gamma1": number(0.95, doc="the share of the old mean in the new one"),
        "gamma2": number(0.9, doc="the share of the old delta in the new one"),
        "epsilon": number(1e-8, doc="what keeps the divisor from 0"),
        **_WD,
        **_SCALE,
        **_CLIP_WEIGHTS,
    },
)
_declare(
    "_sparse_adagrad_update",
    Described(
        "One step of AdaGrad",
        "weight - lr (g / sqrt(history + epsilon) + wd weight) (Duchi et al., 2011), where history becomes history "
        f"+ g², and {GRADIENT}",
        "lr=0.5, epsilon=0",
        "[0.5]",
    ),
    rules.adagrad,
    ("history",),
    {**_LR, "epsilon": number(1e-7, doc="what keeps the divisor from 0"), **_WD, **_SCALE},
)


def _group_adagrad(b: Emitter, weight: Any, grad: Any, history: Any, **attrs: Any) -> Any:
    require_float(weight)
    require_same_shape(weight, grad)
    if history.shape[:1] != weight.shape[:1] or history.size != weight.shape[0]:
        raise OperatorError(f"the history has one entry per row of {tuple(weight.shape)}, not {tuple(history.shape)}")
    return tuple(rules.run(b, rules.group_adagrad, weight, grad, [history], _scalars(attrs))[0])


_named(
    "_contrib_group_adagrad_update",
    _group_adagrad,
    documented(
        "One step of AdaGrad with one rate per row",
        "weight and grad (rows, …), history (rows, 1, …) -> the shape of weight",
        "weight - lr g / sqrt(history + epsilon), where history becomes history + the mean of g² over the row, and "
        f"{GRADIENT}.",
        ">>> weight, grad, history = mx.nd.array([[1, 10]]), mx.nd.array([[1, 7]]), mx.nd.zeros((1, 1))\n"
        + example("mx.nd.contrib.group_adagrad_update(weight, grad, history, lr=5, epsilon=0)", "[[0., 3.]]"),
    ),
    ("weight", "grad", "history"),
    (2,),
    {**_LR, **_SCALE, "epsilon": number(1e-5, doc="what keeps the divisor from 0")},
    complete=lambda attrs, shapes: [*[merge(*shapes[:2])] * 2, shapes[2]],
)

# Adam with decoupled weight decay: the scale is an array, so that it may be the result of a computation

_ADAMW_SHOWN = "lr=0.5, eta=1, beta1=0.5, beta2=0.75"

_ADAMW = {
    **_LR,
    **_BETAS,
    **_WD,
    "eta": number(doc="what the whole step is multiplied by"),
    "clip_gradient": number(-1.0, doc="the bound that gradients are clipped to; none if negative"),
}


def _adamw(b: Emitter, weight: Any, grad: Any, mean: Any, var: Any, rescale_grad: Any, **attrs: Any) -> Any:
    _check(weight, grad, (mean, var))
    scalars = {**_scalars(attrs), "rescale_grad": b.reshape(rescale_grad, shape=())}
    return tuple(rules.run(b, rules.adamw, weight, grad, [mean, var], scalars)[0])


def _mp_adamw(
    b: Emitter, weight: Any, grad: Any, mean: Any, var: Any, weight32: Any, rescale_grad: Any, **attrs: Any
) -> Any:
    _check(weight, grad, (mean, var, weight32))
    scalars = {**_scalars(attrs), "rescale_grad": b.reshape(rescale_grad, shape=())}
    new, master = rules.run(b, rules.adamw, weight, grad, [mean, var], scalars, weight32)
    return (*new, master)


def _all_but_last(attrs: Attrs, shapes: Shapes) -> Shapes:
    return [*[_merged(shapes[:-1])] * (len(shapes) - 1), merge(shapes[-1], (1,))]


_named(
    "_adamw_update",
    _adamw,
    documented(
        "One step of Adam with decoupled weight decay; none if `rescale_grad` is 0 or not finite",
        "weight, grad, mean, var of one shape, rescale_grad (1,) -> the shape of weight",
        "weight - eta (lr mean / (sqrt(var) + epsilon) + wd weight) (Loshchilov and Hutter, 2019, arXiv:1711.05101). "
        f"mean and var are those of `adam_update`, and {GRADIENT}.",
        ">>> weight, grad, mean, var = mx.nd.array([1]), mx.nd.array([0.5]), mx.nd.zeros(1), mx.nd.zeros(1)\n"
        + example(f"mx.nd.contrib.adamw_update(weight, grad, mean, var, 1, {_ADAMW_SHOWN})", "[0.5]"),
    ),
    ("weight", "grad", "mean", "var", "rescale_grad"),
    (2, 3),
    _ADAMW,
    complete=_all_but_last,
)
_named(
    "_mp_adamw_update",
    _mp_adamw,
    documented(
        "`adamw_update` of a float16 weight with a float32 copy",
        "weight, grad, mean, var, weight32 of one shape, rescale_grad (1,) -> the shape of weight",
        "The step is computed from `weight32`, which is overwritten.",
        '>>> weight, grad = (mx.nd.array([x], dtype="float16") for x in (1, 0.5))\n'
        ">>> mean, var, weight32 = mx.nd.zeros(1), mx.nd.zeros(1), mx.nd.ones(1)\n"
        f">>> mx.nd.contrib.mp_adamw_update(weight, grad, mean, var, weight32, 1, {_ADAMW_SHOWN}).asnumpy()\n"
        "array([0.5], dtype=float16)",
    ),
    ("weight", "grad", "mean", "var", "weight32", "rescale_grad"),
    (2, 3, 4),
    _ADAMW,
    complete=_all_but_last,
)


# LAMB in two phases: a direction, then a step along it


def _lamb_scalars(attrs: Attrs) -> dict[str, float]:
    found = _scalars(attrs)
    if not attrs["bias_correction"]:
        del found["bias1"], found["bias2"]
    return found


def _lamb_phase1(b: Emitter, weight: Any, grad: Any, mean: Any, var: Any, **attrs: Any) -> Any:
    _check(weight, grad, (mean, var))
    return tuple(rules.run(b, rules.lamb_direction, weight, grad, [mean, var], _lamb_scalars(attrs))[0])


def _mp_lamb_phase1(b: Emitter, weight: Any, grad: Any, mean: Any, var: Any, weight32: Any, **attrs: Any) -> Any:
    _check(weight, grad, (mean, var, weight32))
    return tuple(rules.run(b, rules.lamb_direction, weight32, grad, [mean, var], _lamb_scalars(attrs))[0])


_LAMB_SHOWN = '>>> options = {"beta1": 0.5, "beta2": 0.75, "epsilon": 0, "t": 1, "bias_correction": False, "wd": 0.5}'
_LAMB1 = {
    "beta1": _BETA1,
    "beta2": _BETA2,
    "epsilon": number(1e-6, doc="what keeps the divisor from 0"),
    "t": integer(doc="the number of the step, from 1 on"),
    "bias_correction": boolean(True, doc="whether means are divided by 1 - beta^t"),
    "wd": number(doc="the weight decay"),
    **_SCALE,
}
_named(
    "lamb_update_phase1",
    _lamb_phase1,
    documented(
        "The direction of a step of LAMB",
        "weight, grad, mean, var of one shape -> that shape",
        "mean / (sqrt(var) + epsilon) + wd weight (You et al., 2020, arXiv:1904.00962). mean and var are those of "
        f"`adam_update`, divided by 1 - beta^t if `bias_correction`, and {GRADIENT}.",
        ">>> weight, grad, mean, var = mx.nd.array([1]), mx.nd.array([0.5]), mx.nd.zeros(1), mx.nd.zeros(1)\n"
        f"{_LAMB_SHOWN}\n" + example("mx.nd.lamb_update_phase1(weight, grad, mean, var, **options)", "[1.5]"),
    ),
    ("weight", "grad", "mean", "var"),
    (2, 3),
    _LAMB1,
)
_named(
    "mp_lamb_update_phase1",
    _mp_lamb_phase1,
    documented(
        "`lamb_update_phase1` of a float16 weight with a float32 copy: the direction is float32",
        "weight, grad, mean, var, weight32 of one shape -> that shape",
        '>>> weight, grad = (mx.nd.array([x], dtype="float16") for x in (1, 0.5))\n'
        ">>> mean, var, weight32 = mx.nd.zeros(1), mx.nd.zeros(1), mx.nd.ones(1)\n"
        f"{_LAMB_SHOWN}\n"
        + example("mx.nd.mp_lamb_update_phase1(weight, grad, mean, var, weight32, **options)", "[1.5]"),
    ),
    ("weight", "grad", "mean", "var", "weight32"),
    (2, 3),
    _LAMB1,
)


def _step_along(b: Emitter, weight: Any, g: Any, r1: Any, r2: Any, attrs: Attrs) -> Any:
    require_float(weight)
    w = widened(b, weight)
    dtype = dtype_of(w)
    direction, r1, r2 = (narrowed(b, x, dtype) for x in (g, b.reshape(r1, shape=()), b.reshape(r2, shape=())))
    return rules.lamb_step(b, w, direction, r1, r2, scalars(b, _scalars(attrs), dtype))


def _lamb_phase2(b: Emitter, weight: Any, g: Any, r1: Any, r2: Any, **attrs: Any) -> Any:
    _check(weight, g, ())
    return narrowed(b, _step_along(b, weight, g, r1, r2, attrs), dtype_of(weight))


def _mp_lamb_phase2(b: Emitter, weight: Any, g: Any, r1: Any, r2: Any, weight32: Any, **attrs: Any) -> Any:
    _check(weight, g, (weight32,))
    new = _step_along(b, weight32, g, r1, r2, attrs)
    return narrowed(b, new, dtype_of(weight)), new


_BOUNDS = {
    "lower_bound": number(-1.0, doc="the least norm of the weight; none if negative"),
    "upper_bound": number(-1.0, doc="the largest norm of the weight; none if negative"),
}


def _norms_of_one(attrs: Attrs, shapes: Shapes) -> Shapes:
    weight = _merged([*shapes[:2], *shapes[4:]])
    return [weight, weight, shapes[2], shapes[3], *[weight] * (len(shapes) - 4)]


_named(
    "lamb_update_phase2",
    _lamb_phase2,
    documented(
        "A step of LAMB along the direction `g`, given the norms `r1` of the weight and `r2` of the direction",
        "weight and g of one shape, r1 and r2 (1,) -> the shape of weight",
        "weight - lr r1 / r2 g (You et al., 2020, arXiv:1904.00962); the ratio is 1 where a norm is 0.",
        example(f"mx.nd.lamb_update_phase2({', '.join(map(on, ('[1]', '[3]', '[2]', '[4]')))}, lr=0.5)", "[0.25]"),
    ),
    ("weight", "g", "r1", "r2"),
    (),
    {**_LR, **_BOUNDS},
    complete=_norms_of_one,
)
_named(
    "mp_lamb_update_phase2",
    _mp_lamb_phase2,
    documented(
        "`lamb_update_phase2` of a float16 weight with a float32 copy, which is overwritten",
        "weight, g and weight32 of one shape, r1 and r2 (1,) -> the shape of weight",
        f'>>> weight, weight32 = mx.nd.array([1], dtype="float16"), mx.nd.ones(1)\n'
        f">>> g, r1, r2 = {', '.join(map(on, ('[3]', '[2]', '[4]')))}\n"
        ">>> mx.nd.mp_lamb_update_phase2(weight, g, r1, r2, weight32, lr=0.5).asnumpy()\narray([0.25], dtype=float16)",
    ),
    ("weight", "g", "r1", "r2", "weight32"),
    (4,),
    {**_LR, **_BOUNDS},
    complete=_norms_of_one,
)


# Several weights


def _described_multi(name: str, states: Sequence[str], mp: bool, preloaded: bool) -> str:
    """The documentation of a form of SGD for several weights."""
    each = ["weight", "grad", *states, *(["weight32"] if mp else [])]
    kind = ', dtype="float16"' if mp else ""
    arrays = [f"mx.nd.array([w]{kind})", "grad", *(_ZERO for _ in states), *(["mx.nd.array([w])"] if mp else [])]
    rates = "lrs, wds, " if preloaded else "lrs=(0.5, 0.5), wds=(0, 0), "
    return documented(
        f"`{name.replace('preloaded_', '').replace('multi_', '')}` of several weights",
        f"{', '.join(each)} of each weight{'; lrs and wds (num_weights,)' if preloaded else ''} -> the weights' shapes",
        f">>> grad = mx.nd.array([0.5]{kind})\n>>> one, two = ([{', '.join(arrays)}] for w in (1, 2))\n"
        + (">>> lrs, wds = mx.nd.array([0.5, 0.5]), mx.nd.zeros(2)\n" if preloaded else "")
        + f">>> _ = mx.nd.{name}(*one, *two, {rates}num_weights=2, out=(one[0], two[0]))\n"
        ">>> [arrays[0].asnumpy().tolist() for arrays in (one, two)]\n[[0.75], [1.75]]",
    )


def _described_lists(first: str, call: str, mp: bool, new: str) -> str:
    """The documentation of a function for several weights that takes lists."""
    kind = ', dtype="float16"' if mp else ""
    return documented(
        first,
        f"weight, grad, mean, var{', weight32' if mp else ''} of each weight -> the shapes of the weights",
        f">>> weights, grads = ([mx.nd.array([x]{kind}) for x in values] for values in ((1, 2), (0.5, 0.5)))\n"
        ">>> mean, var = ([mx.nd.zeros(1), mx.nd.zeros(1)] for _ in range(2))\n"
        + (">>> weights32 = [mx.nd.array([1]), mx.nd.array([2])]\n" if mp else "")
        + f">>> _ = mx.nd.contrib.{call}\n>>> [w.asnumpy().round(3).tolist() for w in weights]\n{new}",
    )


def _declare_multi(
    name: str,
    doc: str,
    rule: Rule,
    states: Sequence[str],
    attrs: dict[str, Attr],
    master: bool = False,
    tail: Sequence[str] = (),
    count: str = "num_weights",
) -> None:
    """Declares the form for several weights. `tail`: inputs after those of all weights."""
    each = ("weight", "grad", *states, *(["weight32"] if master else []))

    def inputs(attrs: Attrs) -> tuple[str, ...]:
        return (*(f"{x}_{k}" for k in range(attrs[count]) for x in each), *tail)

    def updates(attrs: Attrs) -> dict[int, int]:
        n, own = attrs[count], len(each)
        written = [k * own + j for k in range(n) for j in range(2, own)]
        return {at: n + place for place, at in enumerate(written)}

    def complete(attrs: Attrs, shapes: Shapes) -> Shapes:
        own = len(each)
        found: Shapes = []
        for k in range(0, attrs[count] * own, own):
            found += [_merged(shapes[k : k + own])] * own
        return [*found, *shapes[len(found) :]]

    def expand(b: Emitter, *data: Any, **attrs: Any) -> Any:
        n, own = attrs[count], len(each)
        weights, new_states = [], []
        for k in range(n):
            weight, grad, *old = data[k * own : (k + 1) * own]
            _check(weight, grad, old)
            wide = old.pop() if master else None
            scalars = _of_one(b, attrs, k, n, dict(zip(tail, data[n * own :])))
            (new, *others), wide = rules.run(b, rule, weight, grad, old, scalars, wide)
            weights.append(new)
            new_states += [*others, *([wide] if master else [])]
        return (*weights, *new_states)

    expand.__doc__ = doc
    operator(
        name,
        kind=UpdateOperator,
        variadic=True,
        inputs=inputs,
        attrs=attrs,
        outputs=lambda attrs: tuple(f"output{k}" for k in range(attrs[count] + len(updates(attrs)))),
        visible=lambda attrs: attrs[count],
        updates=updates,
        complete=complete,
    )(expand)


_PLURALS = {"lrs": "lr", "learning_rates": "lr", "wds": "wd", "etas": "eta", "step_count": "t"}


def _of_one(b: Emitter, attrs: Attrs, k: int, count: int, tail: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers for weight `k` of `count`."""
    own = {key: value for key, value in attrs.items() if key not in _PLURALS}
    for key, name in _PLURALS.items():
        if key in attrs:
            if len(attrs[key]) != count:
                raise OperatorError(f"Number of {key} must be {count}, one for each weight, got {len(attrs[key])}")
            own[name] = attrs[key][k]
    found: dict[str, Any] = _scalars(own)
    if attrs.get("bias_correction") is False:
        del found["bias1"], found["bias2"]
    for key, x in tail.items():
        if key in _PLURALS:
            if x.shape != (count,):
                raise OperatorError(f"{key} must have {count} elements, one for each weight, got {tuple(x.shape)}")
            x = b.slice(x, start=(k,), size=(1,))
        found[_PLURALS.get(key, key)] = b.reshape(x, shape=())
    found.pop("keep", None)
    return found


_RATES = {"lrs": numbers(doc="the learning rates"), "wds": numbers(doc="the weight decays")}
_COUNT = {"num_weights": counted(1, doc="how many weights there are")}
for _prefix, _rates, _tail in (("", _RATES, ()), ("preloaded_", {}, ("lrs", "wds"))):
    for _mp in (False, True):
        _wide = "mp_" if _mp else ""
        _declare_multi(
            f"{_prefix}multi_{_wide}sgd_update",
            _described_multi(f"{_prefix}multi_{_wide}sgd_update", (), _mp, bool(_tail)),
            rules.sgd,
            (),
            {**_rates, **_SCALE, **_COUNT},
            _mp,
            _tail,
        )
        _declare_multi(
            f"{_prefix}multi_{_wide}sgd_mom_update",
            _described_multi(f"{_prefix}multi_{_wide}sgd_mom_update", ("mom",), _mp, bool(_tail)),
            rules.sgd_mom,
            ("mom",),
            {**_rates, **_MOMENTUM, **_SCALE, **_COUNT},
            _mp,
            _tail,
        )
_MULTI_ADAMW = {
    "lrs": _RATES["lrs"],
    **_BETAS,
    "wds": _RATES["wds"],
    "etas": numbers(doc="what the steps are multiplied by"),
    "clip_gradient": _SCALE["clip_gradient"],
    **_COUNT,
}
_MULTI_LAMB = {
    "learning_rates": _RATES["lrs"],
    "beta1": _BETA1,
    "beta2": _BETA2,
    "epsilon": number(1e-6, doc="what keeps the divisor from 0"),
    "wds": _RATES["wds"],
    "rescale_grad": _SCALE["rescale_grad"],
    **_BOUNDS,
    "clip_gradient": _SCALE["clip_gradient"],
    "bias_correction": boolean(True, doc="whether means are divided by 1 - beta^t"),
    "step_count": shape(doc="the number of the step of each weight, from 1 on"),
    "num_tensors": counted(1, doc="how many weights there are"),
}
for _mp in (False, True):
    _wide = "mp_" if _mp else ""
    _lists = f"weights, grads, mean, var{', weights32' if _mp else ''}"
    _declare_multi(
        f"_multi_{_wide}adamw_update",
        _described_lists(
            f"`{_wide}adamw_update` of several weights",
            f"multi_{_wide}adamw_update({_lists}, 1, (0.5, 0.5), (0, 0), (1, 1), out=weights, beta1=0.5, beta2=0.75)",
            _mp,
            "[[0.5], [1.5]]",
        ),
        rules.adamw,
        ("mean", "var"),
        _MULTI_ADAMW,
        _mp,
        ("rescale_grad",),
    )
    _declare_multi(
        f"_multi_{_wide}lamb_update",
        _described_lists(
            f"Steps of LAMB (You et al., 2020, arXiv:1904.00962) of several weights{', of float16' if _mp else ''}",
            f"multi_{_wide}lamb_update({_lists}, (1, 1), (0.5, 0.5), (0, 0), out=weights)",
            _mp,
            "[[0.5], [1.0]]",
        ),
        rules.lamb,
        ("mean", "var"),
        _MULTI_LAMB,
        _mp,
        count="num_tensors",
    )


# Helpers of optimizers


@operator(
    "multi_lars",
    inputs=("lrs", "weights_sum_sq", "grads_sum_sq", "wds"),
    attrs={
        "eta": number(doc="what the ratio of the norms is multiplied by"),
        "eps": number(doc="what keeps the divisor from 0"),
        "rescale_grad": _SCALE["rescale_grad"],
    },
    complete=_same,
)
def multi_lars(
    b: Emitter,
    lrs: Any,
    weights_sum_sq: Any,
    grads_sum_sq: Any,
    wds: Any,
    *,
    eta: float,
    eps: float,
    rescale_grad: float,
) -> Any:
    """Learning rates scaled as LARS does, from the sums of squares of weights and gradients

    Shapes: lrs, weights_sum_sq, grads_sum_sq and wds (n,) -> (n,)

    lr eta w / (g + wd w + eps), where w and g are the norms (You et al., 2017, arXiv:1708.03888); lr where one of them
    is 0.

    >>> lrs, weights, grads, wds = mx.nd.array([1]), mx.nd.array([16]), mx.nd.array([4]), mx.nd.array([0.5])
    >>> mx.nd.multi_lars(lrs, weights, grads, wds, eta=0.5, eps=0).asnumpy()
    array([0.5], dtype=float32)
    """
    require_float(lrs)
    require_same_shape(lrs, weights_sum_sq, grads_sum_sq, wds)
    require_same_dtype(lrs, weights_sum_sq, grads_sum_sq, wds)
    numbers = {"eta": eta, "epsilon": eps, "wd": wds}
    return rules.trust(
        b,
        lrs,
        b.sqrt(weights_sum_sq),
        b.sqrt(grads_sum_sq) * rescale_grad,
        scalars(b, numbers, dtype_of(lrs)),
    )


def _arrays(attrs: Attrs) -> tuple[str, ...]:
    return tuple(f"data_{k}" for k in range(attrs["num_arrays"]))


@operator(
    "reset_arrays",
    kind=UpdateOperator,
    variadic=True,
    inputs=_arrays,
    attrs={"num_arrays": counted(doc="how many arrays there are")},
    outputs=lambda attrs: tuple(f"output{k}" for k in range(attrs["num_arrays"])),
    visible=lambda attrs: 0,
    updates=lambda attrs: {k: k for k in range(attrs["num_arrays"])},
)
def reset_arrays(b: Emitter, *data: Any, num_arrays: int) -> Any:
    """Overwrites arrays with zeros

    Shapes: num_arrays arrays (any) -> nothing

    >>> x = mx.nd.ones(2)
    >>> _ = mx.nd.reset_arrays(x, num_arrays=1)
    >>> x.asnumpy()
    array([0., 0.], dtype=float32)
    """
    return tuple(b.broadcast(b.constant(0, dtype_of(x)), shape=tuple(x.shape)) for x in data)
