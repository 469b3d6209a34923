"""Primitives without operands (`constant`, `iota`, `extent`), and those that hold a region (`fused`, `prepare`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.ir.graph import Graph
from gluonjit.ir.interpreter import Interpreter
from gluonjit.ir.opdef import NO_GRADIENT, REQUIRED, primitive
from gluonjit.ir.primitives.checks import NUMERIC, check_axis, check_kind, ints
from gluonjit.ir.types import I64, IRError, TensorType, type_of
from gluonjit.ir.types import dtype as as_dtype


def _infer_constant(value: Any) -> TensorType:
    if not isinstance(value, np.ndarray):
        raise IRError(f"value must be an ndarray, got {type(value).__name__}")
    return type_of(value)


def _infer_iota(shape: Any, axis: Any, dtype: Any) -> TensorType:
    result = TensorType(as_dtype(dtype), ints("shape", shape, low=0))
    check_kind(result, NUMERIC, "result")
    check_axis(axis, result)
    return result


def _eval_iota(shape: tuple[int, ...], axis: int, dtype: Any) -> np.ndarray:
    along = [1] * len(shape)
    along[axis] = -1
    line = np.arange(shape[axis]).astype(as_dtype(dtype).numpy)  # small integer types wrap
    return np.broadcast_to(line.reshape(along), shape)


def _infer_extent(of: Any) -> TensorType:
    ints("of", (of,), low=0)
    return TensorType(I64)


def _infer_fused(*operands: TensorType, regions: tuple[Graph, ...]) -> tuple[TensorType, ...]:
    if len(regions) != 1:
        raise IRError(f"needs one region, got {len(regions)}")
    (body,) = regions
    wanted = tuple(v.type for v in body.inputs)
    if wanted != operands:
        raise IRError(f"the region takes ({', '.join(map(str, wanted))})")
    if body.updates:
        raise IRError("a region cannot update states; return their new values instead")
    return tuple(v.type for v in body.outputs)


def _eval_fused(*operands: np.ndarray, regions: Sequence[Interpreter]) -> tuple[np.ndarray, ...]:
    return tuple(regions[0].run(operands)[0])


primitive(
    "constant",
    infer=_infer_constant,
    eval=lambda value: value,
    element=lambda s, i, value: s.array(value)(i),
    attrs={"value": REQUIRED},
    moves="affine",
    vjp=NO_GRADIENT,
    doc="a fixed tensor",
)
primitive(
    "iota",
    infer=_infer_iota,
    eval=_eval_iota,
    element=lambda s, i, shape, axis, dtype: s.index_value(i[axis], as_dtype(dtype)),
    attrs={"shape": REQUIRED, "axis": REQUIRED, "dtype": REQUIRED},
    moves="affine",
    vjp=NO_GRADIENT,
    doc="the index along one axis",
)
primitive(
    "extent",
    infer=_infer_extent,
    eval=lambda of: np.asarray(of, np.int64),
    element=lambda s, i, of: s.index_value(of, I64),
    attrs={"of": REQUIRED},
    moves="affine",
    vjp=NO_GRADIENT,
    doc="the value of an extent, which may be open, as a number",
)
primitive(
    "fused",
    infer=_infer_fused,
    eval=_eval_fused,
    region_count=1,
    level="structural",
    doc="its region's results; the region's inputs stand for the operands",
)
primitive(
    "prepare",
    infer=_infer_fused,
    eval=_eval_fused,
    region_count=1,
    level="structural",
    doc="like fused, for what depends on parameters alone: run when one of them was written, not at every call",
)
