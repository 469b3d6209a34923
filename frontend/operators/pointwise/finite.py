"""Operators that test whether numbers are finite or close, or whether a condition holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.primitives.host_call import ERRORS
from gluonjit.ir.types import BOOL, F32, I64, U8, dtype_of
from gluonjit.operators import gradients
from gluonjit.operators.attributes import boolean, counted, number, string
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import Shapes, merge, require_float, require_numeric, require_same_dtype, type_name

_INIT = {"init_output": boolean(True, doc="must be True: the result does not depend on earlier contents of the output")}


def _every(b: Emitter, holds: Any) -> Any:
    return b.reduce(holds, op="all", axes=tuple(range(len(holds.shape))))


def _finite(b: Emitter, arrays: tuple[Any, ...], init_output: bool) -> Any:
    if not init_output:
        raise OperatorError("init_output=False is not supported: results are new arrays")
    found = None
    for x in arrays:
        require_float(x)
        own = _every(b, abs(x) < math.inf)
        found = own if found is None else found & own
    return b.reshape(b.cast(found, dtype=F32), shape=(1,))


@operator("all_finite", attrs=_INIT)
def all_finite(b: Emitter, data: Any, *, init_output: bool) -> Any:
    """1 if no element is infinite or NaN, else 0

    Shapes: data (any) -> (1,)

    >>> mx.nd.all_finite(mx.nd.array([1, np.inf])).asnumpy()
    array([0.], dtype=float32)
    """
    return _finite(b, (data,), init_output)


def _arrays(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"data_{k}" for k in range(attrs["num_arrays"]))


@operator(
    "multi_all_finite",
    variadic=True,
    inputs=_arrays,
    attrs={"num_arrays": counted(1, doc="how many inputs there are"), **_INIT},
)
def multi_all_finite(b: Emitter, *data: Any, num_arrays: int, init_output: bool) -> Any:
    """1 if no element of any array is infinite or NaN, else 0

    Shapes: num_arrays arrays (any) -> (1,)

    >>> mx.nd.multi_all_finite(mx.nd.ones(2), mx.nd.ones(3), num_arrays=2).asnumpy()
    array([1.], dtype=float32)
    """
    require_same_dtype(*data)
    return _finite(b, data, init_output)


@operator("multi_sum_sq", variadic=True, inputs=_arrays, attrs={"num_arrays": counted(doc="how many inputs there are")})
def multi_sum_sq(b: Emitter, *data: Any, num_arrays: int) -> Any:
    """The sum of squares of each array, as a float32 vector with an element per array

    Shapes: num_arrays arrays (any) -> (num_arrays,)

    >>> mx.nd.multi_sum_sq(mx.nd.array([1, 2]), mx.nd.array([3]), num_arrays=2).asnumpy()
    array([5., 9.], dtype=float32)
    """
    sums = []
    for x in data:
        require_numeric("multi_sum_sq", x)
        wide = x if dtype_of(x) is F32 else b.cast(x, dtype=F32)
        total = wide * wide
        if x.shape:
            total = b.reduce(total, op="sum", axes=tuple(range(len(x.shape))))
        sums.append(b.reshape(total, shape=(1,)))
    return b.concat(*sums, axis=0) if len(sums) > 1 else sums[0]


def _same(attrs: Mapping[str, Any], shapes: Shapes) -> Shapes:
    return [merge(*shapes)] * 2


@operator(
    "_contrib_allclose",
    inputs=("a", "b"),
    attrs={
        "rtol": number(1e-5, doc="the tolerance relative to b"),
        "atol": number(1e-8, doc="the absolute tolerance"),
        "equal_nan": boolean(True, doc="whether NaN equals NaN"),
    },
    complete=_same,
)
def allclose(b: Emitter, x: Any, y: Any, *, rtol: float, atol: float, equal_nan: bool) -> Any:
    """1 if |a - b| <= atol + rtol * |b| for all elements, else 0

    Shapes: a and b of one shape -> (), of uint8

    >>> mx.nd.contrib.allclose(mx.nd.array([1, 2]), mx.nd.array([1, 2.1]), atol=0.2).asnumpy()
    array(1, dtype=uint8)
    """
    own = require_numeric("_contrib_allclose", x)
    require_same_dtype(x, y)
    if tuple(x.shape) != tuple(y.shape):
        raise OperatorError(f"allclose compares arrays of the same shape, got {tuple(x.shape)} and {tuple(y.shape)}")
    either = getattr(b, "or")
    if not own.is_float:
        x, y = b.cast(x, dtype=F32), b.cast(y, dtype=F32)
    allowed = atol + rtol * abs(y)
    close = either(b.eq(x, y), abs(x - y) <= allowed)
    if equal_nan:
        close = either(close, b.isnan(x) & b.isnan(y))
    return b.cast(_every(b, close), dtype=U8)


class ConstraintError(OperatorError, ValueError):
    """What the user demands does not hold."""


ERRORS["constraint"] = lambda *text: ConstraintError(text[0] if len(text) == 1 else "")


@operator(
    "_npx_constraint_check",
    inputs=("x",),
    attrs={"msg": string("Constraint violated.", doc="what the error says")},
    gradient=gradients.zero,
)
def constraint_check(b: Emitter, x: Any, *, msg: str) -> Any:
    """True if all elements of a bool array are; a ValueError with this message otherwise, in compiled code, too

    Shapes: x (any) -> ()

    >>> mx.npx.constraint_check(mx.np.array([1, 2]) > 0, msg="not positive").item()
    True
    """
    if dtype_of(x) is not BOOL:
        raise OperatorError(f"constraint_check takes bools, got {type_name(dtype_of(x))}: compare first, as in x > 0")
    holds = _every(b, x)
    wrong = b.reshape(b.cast(~holds, dtype=I64), shape=(1, 1))
    b.check_index(wrong, sizes=(1,), negative=False, error=f"constraint: {msg}" if msg else "constraint")
    return holds
