"""Operators whose gradient is not that of what they compute.

    @operator("MakeLoss", gradient=lambda b, g, y, x, *, grad_scale, **_: (b.constant(grad_scale, dtype_of(x[0])),), …)

`gradient(b, g, y, x, **attrs)` gives the cotangent of each input, None for an input that gets none. `g` are the
cotangents of the results `y`, `x` the inputs. A scalar stands for a cotangent of the input's shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gluonjit.ir.graph import Builder, Graph
from gluonjit.ir.types import IRError, TensorType


class WithGradient(NamedTuple):
    """The attributes and regions of the primitive `with_gradient`."""

    attrs: dict[str, Any]
    regions: tuple[Graph, ...]


def with_gradient(
    op: Any, types: Sequence[TensorType], attrs: Mapping[str, Any], training: bool
) -> WithGradient | None:
    """What `op` becomes in a graph that will be differentiated; None if its expansion says all."""
    own = {k: v for k, v in attrs.items() if not k.startswith(".")}
    if op.gradient is None and op.late is None:
        return None
    b = Builder(op.name, training=training)
    inputs = [b.input("", t) for t in types]
    results = op.expand_into(b, inputs, attrs)
    new = dict(op.late(b, results, inputs, **own)) if op.late is not None and training else {}
    if op.gradient is None and not new:
        return None
    outputs = [*results, *new.values()]
    late = tuple((k, len(results) + n) for n, k in enumerate(new))
    if op.gradient is None:
        return WithGradient({"late": late}, (b.build(outputs),))
    return _with_rule(op, b.build(outputs), own, late, len(results))


def _with_rule(op: Any, forward: Graph, attrs: dict[str, Any], late: Any, count: int) -> WithGradient:
    b = Builder(f"{op.name}_gradient")
    x = [b.input("", v.type) for v in forward.inputs]
    y, g = ([b.input("", v.type) for v in forward.outputs] for _ in range(2))
    found = op.gradient(b, g[:count], y[:count], x, **attrs)
    to, cotangents = [], []
    for k, (v, cotangent) in enumerate(zip(x, found, strict=True)):
        if cotangent is None:
            continue
        if cotangent.dtype is not v.dtype:
            raise IRError(f"the gradient of {op.name} by input {k} is {cotangent.type}, the input {v.type}")
        to.append(k)
        cotangents.append(cotangent if cotangent.shape == v.shape else b.broadcast(cotangent, shape=v.shape))
    return WithGradient({"to": tuple(to), "late": late}, (forward, b.build(cotangents)))
