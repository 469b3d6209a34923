"""Attribute types of MXNet's operators, which parse Python values and the strings of `symbol.json`.

MXNet keeps every attribute as the string of the Python value that was passed (`"(1, 1)"`, `"True"`, `"1e-05"`), and
accepts several spellings when it reads them back; `parse` accepts the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gluonjit.ir import types
from gluonjit.ir.dims import Dim
from gluonjit.ir.opdef import REQUIRED


class OutOfRange(ValueError):
    """A value of the right type that is out of range; the text is the end of MXNet's message."""


class Attr(NamedTuple):
    """One attribute: its parser, its default (REQUIRED if there is none), and its documentation.

    `kind` is MXNet's name for the type, as its error messages print it.
    """

    kind: str
    convert: Callable[[Any], Any]
    default: Any = REQUIRED
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    doc: str = ""

    def parse(self, value: Any) -> Any:
        """`value` in canonical Python form. ValueError if it is not of this attribute's type; OutOfRange."""
        if isinstance(value, np.generic):
            value = value.item()
        result = self.convert(value)
        if result is not None and not isinstance(result, tuple):
            below = self.low is not None and result < self.low
            if below or self.high is not None and result > self.high:
                if self.high is None:
                    raise OutOfRange(f"should be greater equal to {self.low}")
                raise OutOfRange(f"exceed bound [{self.low},{self.high}]")
        return result


def _none(value: Any) -> bool:
    return value is None or isinstance(value, str) and value.strip() == "None"


_INTEGER = re.compile(r"[+-]?\d{1,20}", re.ASCII)


def _int(value: Any) -> int:
    """A 64-bit integer, from a number or from a string as C++ reads it or Python 2 wrote it (`4L`). Shapes that follow
    from an operator's users may have open extents, which stay."""
    if isinstance(value, Dim):
        return value  # type: ignore[return-value]
    if isinstance(value, str):
        text = value.strip()
        if text in ("True", "False"):
            return int(text == "True")
        text = text.rstrip("L")
        number = int(text) if _INTEGER.fullmatch(text) else None
    elif isinstance(value, (int, float)) and (isinstance(value, int) or value.is_integer()):
        number = int(value)
    else:
        number = None
    if number is None or not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"expect int, got {value!r}")
    return number


def _float(value: Any) -> float:
    if isinstance(value, str):
        if value.strip() in ("True", "False"):
            return float(value.strip() == "True")
        if not value.isascii() or "_" in value:  # spellings that only Python accepts
            raise ValueError(f"expect float, got {value!r}")
    return float(value)


def _bool(value: Any) -> bool:
    if isinstance(value, str):
        text = value.strip().lower()
        if text in ("true", "1"):
            return True
        if text in ("false", "0"):
            return False
        raise ValueError(f"expect boolean, got {value!r}")
    if isinstance(value, (bool, int)) and value in (0, 1):
        return bool(value)
    raise ValueError(f"expect boolean, got {value!r}")


def _sequence(value: Any, item: Callable[[Any], Any]) -> tuple[Any, ...]:
    if isinstance(value, str):
        text = value.strip()
        if text[:1] in "([":
            text = text[1:-1] if text[-1:] in ")]" else text[1:]
        return tuple(item(part) for part in (p.strip() for p in text.split(",")) if part)
    if isinstance(value, (list, tuple, np.ndarray)):
        return tuple(item(v.item() if isinstance(v, np.generic) else v) for v in value)
    return (item(value),)


def _int_or_none(value: Any) -> int | None:
    return None if _none(value) else _int(value)


def integer(default: Any = REQUIRED, *, low: float | None = None, high: float | None = None, doc: str = "") -> Attr:
    return Attr("int", _int, default, low=low, high=high, doc=doc)


MOST_COUNTED = 1 << 16


def counted(default: Any = REQUIRED, *, low: int = 1, doc: str = "") -> Attr:
    """How many inputs or results an operator has, or graphs' arrays. Each gets a name, so a file must not ask for any
    number of them: at most `MOST_COUNTED`."""
    return integer(default, low=low, high=MOST_COUNTED, doc=doc)


def number(default: Any = REQUIRED, *, low: float | None = None, high: float | None = None, doc: str = "") -> Attr:
    return Attr("float", _float, default, low=low, high=high, doc=doc)


def boolean(default: Any = REQUIRED, *, doc: str = "") -> Attr:
    return Attr("boolean", _bool, default, doc=doc)


def string(default: Any = REQUIRED, *, doc: str = "") -> Attr:
    return Attr("string", str, default, doc=doc)


def enum(choices: tuple[str, ...], default: Any = REQUIRED, *, doc: str = "") -> Attr:
    """One of `choices`; the operator's error lists them (as MXNet's does)."""

    def convert(value: Any) -> str:
        if str(value) not in choices:
            raise ValueError(f"valid values are: {{{', '.join(map(repr, sorted(choices)))}}}")
        return str(value)

    return Attr(f"{{{', '.join(map(repr, choices))}}}", convert, default, choices=choices, doc=doc)


def shape(default: Any = REQUIRED, *, doc: str = "") -> Attr:
    """A tuple of ints (an int means a 1-tuple)."""
    return Attr("Shape(tuple)", lambda v: _sequence(v, _int), default, doc=doc)


def bounds(default: Any = REQUIRED, *, doc: str = "") -> Attr:
    """A tuple of ints in which an entry may be None."""
    return Attr("tuple of <int or None>", lambda v: _sequence(v, _int_or_none), default, doc=doc)


def numbers(default: Any = REQUIRED, *, doc: str = "") -> Attr:
    return Attr("tuple of <float>", lambda v: _sequence(v, _float), default, doc=doc)


def dtype(default: Any = REQUIRED, *, among: tuple[str, ...] = (), doc: str = "") -> Attr:
    """A `DType`; MXNet spells it as NumPy name. `among` limits it to the types of those names."""

    valid = f"valid values are: {{{', '.join(map(repr, sorted(among)))}}}" if among else ""

    def convert(value: Any) -> types.DType:
        try:
            result = types.dtype(value.strip() if isinstance(value, str) else value)
        except types.IRError as e:
            raise ValueError(valid or str(e)) from e
        if among and result.numpy.name not in among:
            raise ValueError(valid)
        return result

    return Attr("dtype", convert, convert(default) if isinstance(default, str) else default, choices=among, doc=doc)


def optional(attr: Attr, default: Any = None) -> Attr:
    """The same attribute, which also accepts None."""

    def convert(value: Any) -> Any:
        return None if _none(value) else attr.convert(value)

    return Attr(f"{attr.kind} or None", convert, default, attr.choices, attr.low, attr.high, attr.doc)


def axes(default: Any = (), *, doc: str = "") -> Attr:
    """Axes of a reduction: None, an int or a tuple. Canonical: None (all axes) or a tuple; MXNet's `()` means all."""

    def convert(value: Any) -> Any:
        if _none(value):
            return None
        return _sequence(value, _int) or None

    return Attr("Shape or None", convert, default, doc=doc)


def literal(text: str) -> Any:
    """The value of a Python literal from a file, without evaluating code; ValueError if it is not a literal."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as e:
        raise ValueError(f"not a literal: {text[:80]!r}") from e
