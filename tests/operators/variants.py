"""Variants of each operator's samples: inputs that are common in users' data but rare in the samples.

| kind | what is changed |
|---|---|
| `nan`, `infinite` | some elements of the first float tensor are NaN; are infinities of both signs |
| `int32`, `int8` | float tensors become small integers other than 0 |
| `negative` | axes are counted from the end |

`oracle/record.py` records one variant of each kind, of the first sample for which MXNet accepts it.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import samples
from .samples import Case

KINDS = ("nan", "infinite", "int32", "int8", "negative")

AXES = {**dict.fromkeys(("axis", "axes", "axis1", "axis2", "dim", "dim1", "dim2", "lhs_axes"), 0), "rhs_axes": 1}
"""Attributes that count axes, and of which input."""


COUNTS = ("_npi_tensordot_int_axes",)
"""Operators whose `axes` is how many."""


def of_kind(operator: str, kind: str) -> Iterator[Case]:
    """Variants of one kind, of one sample after the other; of none where it would change nothing."""
    for case in samples.cases(operator):
        if case.oracle:
            changed = vary(case, kind)
            if changed is not None:
                yield changed


def vary(case: Case, kind: str) -> Case | None:
    if kind == "negative":
        if case.operator in COUNTS:
            return None
        attrs = {k: _from_the_end(case, k, v) if k in AXES else v for k, v in case.attrs.items()}
        return None if attrs == case.attrs else dataclasses.replace(case, attrs=attrs)
    inputs = _poisoned(case, kind) if kind in ("nan", "infinite") else _whole(case, kind)
    return None if inputs is None else dataclasses.replace(case, inputs=inputs)


def _from_the_end(case: Case, name: str, value: Any) -> Any:
    if not case.inputs:
        return value
    rank = case.inputs[AXES[name]].ndim + (
        case.operator in ("stack", "expand_dims", "_npi_stack")
    )  # which make an axis

    def turned(axis: Any) -> Any:
        return axis - rank if isinstance(axis, int) and not isinstance(axis, bool) and 0 <= axis < rank else axis

    return tuple(map(turned, value)) if isinstance(value, (tuple, list)) else turned(value)


def _poisoned(case: Case, kind: str) -> list[np.ndarray] | None:
    at = next((k for k, x in enumerate(case.inputs) if x.dtype.kind == "f" and x.size), None)
    if at is None:
        return None
    rng = np.random.RandomState(zlib.crc32(f"{case.operator} {case.number} {kind}".encode()))
    x = case.inputs[at].copy()
    places = rng.permutation(x.size)
    x.reshape(-1)[places[:1]] = np.nan if kind == "nan" else np.inf
    if kind == "infinite":
        x.reshape(-1)[places[1:2]] = -np.inf
    return [x if k == at else other for k, other in enumerate(case.inputs)]


def _whole(case: Case, kind: str) -> list[np.ndarray] | None:
    if not any(x.dtype.kind == "f" for x in case.inputs):
        return None
    return [_integers(x).astype(kind) if x.dtype.kind == "f" else x for x in case.inputs]


def _integers(x: np.ndarray) -> np.ndarray:
    x = np.clip(np.rint(np.nan_to_num(x.astype(np.float64), posinf=3, neginf=-3)), -3, 3)
    return np.where(x == 0, 1, x)


# Thousands of small arrays in a file


def pack(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Two arrays of bytes that hold all of these: `index`, as JSON, and `data`."""
    index = {name: [x.dtype.str, list(x.shape)] for name, x in arrays.items()}
    data = b"".join(np.ascontiguousarray(x).tobytes() for x in arrays.values())
    return {"index": np.frombuffer(json.dumps(index).encode(), np.uint8), "data": np.frombuffer(data, np.uint8)}


def unpack(packed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    data, at, arrays = packed["data"].tobytes(), 0, {}
    for name, (dtype, shape) in json.loads(packed["index"].tobytes()).items():
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(data, dtype, count, at).reshape(shape)
        at += arrays[name].nbytes
    return arrays
