"""Arrays in the text form: `[[1.0, nan], [-0.0, 0x7fc00001]]` and single numbers, and their form in an archive."""

from __future__ import annotations

import math
import re

import numpy as np

from gluonjit.ir.types import BF16, BOOL, F32, I64, DType, IRError, TensorType, dtype_of

_ITEM = re.compile(r"[\[\],]|[^\s,\[\]]+")
_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|inf|nan)\Z", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,20}\Z", re.ASCII)


class LiteralError(IRError):
    """`position` counts characters from the beginning of the literal."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def parse(text: str, type_: TensorType | None) -> np.ndarray:
    """The array of `type_` that `text` spells; without a type, it is i64, f32 or bool, depending on the elements.

    A single number stands for an array of equal elements, `[]` for any array without elements.
    """
    items, places, shape = _structure(text)
    splat = shape is None
    if type_ is None:
        type_ = TensorType(_dtype_of(items), shape or ())
    elif not splat and shape != type_.shape and not (items == [] and type_.size == 0):
        raise LiteralError(f"the array has shape {shape}, but its type is {type_}", 0)
    flat = _elements(items, places, type_.dtype)
    if splat:
        return np.full(type_.shape, flat[0], type_.dtype.numpy)
    return flat.reshape(type_.shape)


def _structure(text: str) -> tuple[list[str], list[int], tuple[int, ...] | None]:
    """The elements' texts and positions, and the shape that the brackets give; None for a number without brackets."""
    if text[0] != "[":
        return [text], [0], None
    items: list[str] = []
    places: list[int] = []
    counts: list[int] = []  # of the brackets that are open
    shape: dict[int, int] = {}  # by depth, once a bracket has closed there
    leaf = -1  # the depth at which numbers stand
    ready = True  # whether an item may come next: at the start, and after '[' or ','
    for m in _ITEM.finditer(text):
        token, at = m[0], m.start()
        if token == ",":
            if ready:
                raise LiteralError("expected a number", at)
            ready = True
        elif token == "]":
            if ready and counts[-1]:
                raise LiteralError("expected a number", at)
            n = counts.pop()
            if shape.setdefault(len(counts), n) != n:
                raise LiteralError(f"a row of {n} where others have {shape[len(counts)]}", at)
            ready = False
        else:
            if not ready:
                raise LiteralError("expected ',' or ']'", at)
            if counts:
                counts[-1] += 1
            if token == "[":
                if len(counts) >= 32 or leaf >= 0 and len(counts) >= leaf:
                    raise LiteralError("nested deeper than the rest of the array", at)
                counts.append(0)
                continue  # still ready
            if leaf < 0:
                leaf = len(counts)
                if len(shape) > 0 and max(shape) >= leaf:
                    raise LiteralError("nested less deep than the rest of the array", at)
            elif leaf != len(counts):
                raise LiteralError("nested less deep than the rest of the array", at)
            items.append(token)
            places.append(at)
            ready = False
    return items, places, tuple(shape[k] for k in range(len(shape)))


def _dtype_of(items: list[str]) -> DType:
    if items and all(t in ("True", "False") for t in items):
        return BOOL
    return I64 if items and all(map(_INTEGER.match, items)) else F32


def _elements(items: list[str], places: list[int], kind: DType) -> np.ndarray:
    read = _float if kind.is_float else _bool if kind is BOOL else _integer
    out = np.empty(len(items), kind.numpy)
    wide = np.zeros(len(items), np.float64 if kind.is_float else out.dtype)
    exact: list[tuple[int, int]] = []
    for k, text in enumerate(items):
        try:
            if text[:2] == "0x" and kind.is_float:
                exact.append((k, _bits(text, kind)))
            else:
                wide[k] = read(text, kind)
        except (ValueError, OverflowError) as e:
            raise LiteralError(f"{text[:40]!r} is not a number of type {kind}" + _reason(e), places[k]) from None
    with np.errstate(all="ignore"):
        out[:] = wide
    if kind.is_float:
        lost = np.flatnonzero(np.isinf(out) & ~np.isinf(wide)).tolist()
        if lost:
            raise LiteralError(f"{items[lost[0]][:40]!r} is too large for {kind}", places[lost[0]])
        # NumPy's casts keep a NaN's sign on some machines only.
        for k in np.flatnonzero(np.isnan(wide)).tolist():
            exact.append((k, quiet_nan(kind, items[k].startswith("-"))))
    for k, pattern in exact:
        bits(out)[k] = pattern
    return out


def _reason(e: Exception) -> str:
    return f": {e}" if isinstance(e, OverflowError) else ""


def _float(text: str, kind: DType) -> float:
    if not _NUMBER.match(text):
        raise ValueError
    value = float(text)
    if math.isinf(value) and text.lstrip("-") != "inf":
        raise OverflowError("too large")
    return value


def _integer(text: str, kind: DType) -> int:
    if not _INTEGER.match(text):
        raise ValueError
    value = int(text)
    info = np.iinfo(kind.numpy)
    if not info.min <= value <= info.max:
        raise OverflowError(f"it goes from {info.min} to {info.max}")
    return value


def _bool(text: str, kind: DType) -> bool:
    if text not in ("True", "False", "0", "1"):
        raise ValueError
    return text in ("True", "1")


def _bits(text: str, kind: DType) -> int:
    value = int(text[:24], 16)
    if len(text) > 24 or value >= 1 << kind.bits:
        raise OverflowError(f"more than {kind.bits} bits")
    return value


def quiet_nan(kind: DType, negative: bool) -> int:
    """The bits of `nan` and `-nan`; every other NaN is written as its bits in hexadecimal."""
    mantissa = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}[kind.name]
    exponent_and_quiet = (1 << (kind.bits - mantissa)) - 1  # exponent and the mantissa's top bit, all ones
    return exponent_and_quiet << (mantissa - 1) | negative << (kind.bits - 1)


def bits(flat: np.ndarray) -> np.ndarray:
    """The elements' bit patterns as unsigned integers, a view."""
    return flat.view(np.dtype(f"u{flat.dtype.itemsize}"))


def is_uniform(flat: np.ndarray) -> bool:
    """Whether all elements have the same bits (so -0.0 differs from 0.0, and a NaN equals itself)."""
    pattern = bits(flat)
    return bool((pattern == pattern[0]).all())


def element_texts(flat: np.ndarray) -> list[str]:
    """A short literal for each element that reads back to the same bits."""
    kind = dtype_of(flat)
    if not kind.is_float:
        return [repr(x) for x in flat.tolist()]
    with np.errstate(all="ignore"):  # NaN with odd bits
        wide = flat.astype(np.float64)
    texts = [repr(x) for x in wide.tolist()]
    if kind.name != "f64":
        with np.errstate(all="ignore"):
            # NumPy knows the shortest text of an f32; 16 bits have at most 5 digits.
            short = [str(x) if kind.bits == 32 else _few_digits(float(x), flat.dtype) for x in flat]
            back = np.array(short, np.float64).astype(flat.dtype)
        same = (bits(back) == bits(flat)).tolist()
        texts = [s if ok and len(s) < len(e) else e for s, e, ok in zip(short, texts, same)]
    for k in np.flatnonzero(np.isnan(wide)).tolist():
        pattern = int(bits(flat)[k])
        names = {quiet_nan(kind, False): "nan", quiet_nan(kind, True): "-nan"}
        texts[k] = names.get(pattern) or hex(pattern)
    return texts


def _few_digits(x: float, kind: np.dtype) -> str:
    digits = next((n for n in range(1, 5) if kind.type(float(f"{x:.{n}g}")) == x), 5)
    text = f"{x:.{digits}g}"
    return text + ".0" if text.lstrip("-").isdigit() else text


def to_archive(array: np.ndarray) -> np.ndarray:
    """The array as an `.npz` can hold it: bf16, which NumPy's format does not know, as its bits."""
    return array.view(np.uint16) if array.dtype == BF16.numpy else array


def from_archive(stored: np.ndarray, type_: TensorType) -> np.ndarray:
    """The array of `type_` that `to_archive` has stored; IRError if it has another type."""
    kind = np.dtype(np.uint16) if type_.dtype is BF16 else type_.dtype.numpy
    if stored.dtype != kind or stored.shape != type_.shape:
        raise IRError(f"it is {stored.dtype}{list(stored.shape)}, not {type_}")
    array = np.ascontiguousarray(stored).reshape(type_.shape).view(type_.dtype.numpy)
    array.setflags(write=False)
    return array
