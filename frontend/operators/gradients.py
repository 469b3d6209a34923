"""Operators whose gradient is not that of what they compute.

    @operator("MakeLoss", gradient=lambda b, g, y, x, *, grad_scale, **_: (b.constant(grad_scale, dtype_of(x[0])),), …)

`gradient(b, g, y, x, **attrs)` gives the cotangent of each input, None for an input that gets none. `g` are the
cotangents of the results `y`, `x` the inputs. A scalar stands for a cotangent of the input's shape. Some need no
function of their own: `gradient=zero`, `gradient=refused`. With some attributes or types, a function may return
`refused` instead of cotangents, or None, which says that the gradient is that of the expansion, as it is always for
operators that draw random numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gluonjit.ir.graph import Builder, Emitter, Graph
from gluonjit.ir.types import IRError, TensorType, dtype_of


def zero(b: Emitter, g: Any, y: Any, x: Sequence[Any], **_attrs: Any) -> tuple[None, ...]:
    """The gradient of operators whose results count as constants, in MXNet too: positions of boxes, random numbers."""
    return (None,) * len(x)


def one(b: Emitter, g: Any, y: Any, x: Any, **_attrs: Any) -> Any:
    """1, whatever the cotangent."""
    return [b.constant(1, dtype_of(v)) for v in x]


def unchanged(b: Emitter, g: Any, y: Any, x: Any, **_attrs: Any) -> Any:
    """The cotangent of the result, for functions that count as the identity."""
    return g


def relu(b: Emitter, g: Any, y: Any, x: Any, **_attrs: Any) -> tuple[Any]:
    """The gradient of max(x, 0): 0 at 0, as in MXNet."""
    none = b.constant(0, dtype_of(y[0]))
    return (b.select(y[0] > none, g[0], none),)


def softsign(b: Emitter, g: Any, y: Any, x: Any, **_attrs: Any) -> tuple[Any] | None:
    """The gradient of x / (1 + |x|): 0 at infinity, unlike that of the quotient."""
    dtype = dtype_of(x[0])
    if not dtype.is_float:
        return None
    below = 1 + abs(x[0])
    return (g[0] / (below * below),)


def refused(b: Emitter, g: Any, y: Any, x: Any, **_attrs: Any) -> Any:
    """Stands for the gradient of operators that have none: `backward` raises an error."""
    raise NotImplementedError("asked for by identity alone")


class WithGradient(NamedTuple):
    """The attributes and regions of the primitive `with_gradient`, which stands for the operator or for its operands.

    `operands` says the latter: the operator is then expanded as usual.
    """

    attrs: dict[str, Any]
    regions: tuple[Graph, ...]
    operands: bool = False


def with_gradient(
    op: Any, types: Sequence[TensorType], attrs: Mapping[str, Any], training: bool
) -> WithGradient | None:
    """What `op` becomes in a graph that will be differentiated; None if its expansion says all."""
    own = {k: v for k, v in attrs.items() if not k.startswith(".")}
    constants = {*op.aux_names(own), *op.constants}
    if op.gradient is None and op.late is None and not constants:
        return None
    if op.gradient is zero:
        return _constants(types) if types else None
    b = Builder(op.name, training=training)
    inputs = [b.input("", t) for t in types]
    results = op.expand_into(b, inputs, attrs)
    gradient = None if op.streams is not None and op.streams(own, training) else op.gradient
    new = dict(op.late(b, results, inputs, **own)) if op.late is not None and training else {}
    fixed = tuple(k for k, name in enumerate(op.input_names(own)) if name in constants)
    if gradient is refused:
        return WithGradient({"refuses": op.name}, (b.build(results),))
    outputs = [*results, *new.values()]
    late = tuple((k, len(results) + n) for n, k in enumerate(new))
    forward = b.build(outputs)
    rule = Builder(f"{op.name}_gradient", training=training)
    found = _with_rule(rule, op, gradient, forward, own, late, len(results)) if gradient is not None else None
    if found is None and (new or fixed):
        return WithGradient({"late": late, "fixed": fixed}, (forward,))
    return found


def _constants(types: Sequence[TensorType]) -> WithGradient:
    b = Builder("constants")
    operands = [b.input("", t) for t in types]
    return WithGradient({"fixed": tuple(range(len(types)))}, (b.build(operands),), operands=True)


def _with_rule(
    b: Builder, op: Any, gradient: Any, forward: Graph, attrs: dict[str, Any], late: Any, count: int
) -> WithGradient | None:
    x = [b.input("", v.type) for v in forward.inputs]
    y, g = ([b.input("", v.type) for v in forward.outputs] for _ in range(2))
    found = gradient(b, g[:count], y[:count], x, **attrs)
    if found is None:
        return None
    if found is refused:
        return WithGradient({"refuses": f"{op.name} of {', '.join(v.type.dtype.name for v in x)}"}, (forward,))
    to, cotangents = [], []
    for k, (v, cotangent) in enumerate(zip(x, found, strict=True)):
        if cotangent is None:
            continue
        if cotangent.dtype is not v.dtype:
            raise IRError(f"the gradient of {op.name} by input {k} is {cotangent.type}, the input {v.type}")
        to.append(k)
        cotangents.append(cotangent if cotangent.shape == v.shape else b.broadcast(cotangent, shape=v.shape))
    return WithGradient({"to": tuple(to), "late": late}, (forward, b.build(cotangents)))
