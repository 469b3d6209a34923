"""JSON with long lists of numbers: these are found in the text and converted piece by piece, so that they are never
there as Python's objects. The rest is small, and is parsed as usual."""

from __future__ import annotations

import json
import math
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gluonjit.tools.serving.limits import Limits

_PIECE = 8 * 1024
"""Bytes of numbers that are converted at a time."""
_SEARCHED = 128 * 1024
"""Bytes that are searched at a time."""

_NEXT_STRING = re.compile(rb'[^"]*"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_LIST_FOLLOWS = re.compile(rb"\s{0,64}:\s{0,64}(?=\[)")
_NUMBERS = re.compile(rb"[-+0-9.eE,\s\[\]truefals]*")
_SPACE = b" \t\r\n"
_OUT_OF_PLACE = re.compile(rb"[^\s,\[\]]\s*\[|\]\s*[^\s,\[\]]")
"""A number before a list, or after one, without a comma."""
_NO_BRACKETS = bytes.maketrans(b"[]", b"  ")


class Invalid(Exception):
    """The text is not JSON, or not what is wanted of it. `status`: of HTTP."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Document(NamedTuple):
    rest: Any
    """What was parsed. In place of the lists are their names in `lists`."""
    lists: dict[str, memoryview]
    """The texts of the lists that are the values of a key "data"."""


def parsed(text: memoryview, limits: Limits) -> Document:
    """Invalid for what is not JSON, and for what is beyond the limits, before it takes memory."""
    mark = secrets.token_hex(8)  # nobody can send a text that is taken for a list's name
    rest: list[bytes] = []
    lists: dict[str, memoryview] = {}
    at, left = 0, limits.json_rest
    while found := _NEXT_STRING.match(text, at, at + left):
        end = found.end()
        piece = bytes(text[at:end])
        colon = _LIST_FOLLOWS.match(text, end) if found[1] == b"data" else None
        if colon:
            name = f"{mark}{len(lists)}"
            lists[name] = _list_at(text, colon.end())
            end = colon.end() + len(lists[name])
            piece += b':"%s"' % name.encode()
        rest.append(piece)
        left -= len(piece)
        at = end
    if len(text) - at > left or left < 0:
        raise Invalid(f"the body has more than {limits.json_rest} bytes of JSON besides its lists of data", 413)
    rest.append(bytes(text[at:]))
    return Document(_loaded(b"".join(rest), limits), lists)


def _list_at(text: memoryview, begin: int) -> memoryview:
    end = begin
    depth = 0
    while (further := _NUMBERS.match(text, end, end + _SEARCHED).end()) > end:  # type: ignore[union-attr]
        piece = bytes(text[end:further])
        depth += piece.count(b"[") - piece.count(b"]")
        end = further
    if depth:
        raise Invalid("the data of an input must be numbers, or true and false, in lists of equal lengths")
    last = max(begin, end - 4096)
    return text[begin : last + len(bytes(text[last:end]).rstrip(b"," + _SPACE))]


def _loaded(text: bytes, limits: Limits) -> Any:
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        what = "it is too deep" if isinstance(e, RecursionError) else str(e)[:200]
        raise Invalid(f"the body is not JSON: {what}") from None
    level = [found]
    for _ in range(limits.json_depth):
        level = [y for x in level for y in _parts(x)]
        if not level:
            return found
    raise Invalid(f"the body is too deep: more than {limits.json_depth} lists and objects in each other")


def _parts(x: Any) -> Iterable[Any]:
    return x.values() if isinstance(x, dict) else x if isinstance(x, list) else ()


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON; send such numbers as bytes (binary tensor data)")


def numbers(text: memoryview, shape: Sequence[int], kind: str, limits: Limits) -> Iterator[list[Any]]:
    """The elements in a text that is a list of lists, of that shape, or one list of all, in lists of some of them.
    `kind`: of NumPy's. That the text is so long as the shape wants is checked at once."""
    _check_shape(text, shape, b"truefals" if kind == "b" else b"0123456789+-.eE")
    if not math.prod(shape):
        if any(piece.translate(None, b"[]," + _SPACE) for piece in _searched(text)):
            raise Invalid(f"data is not empty, but the shape {list(shape)} is")
        return iter(())
    return _pieces(text, limits)


def _pieces(text: memoryview, limits: Limits) -> Iterator[list[Any]]:
    at, end = 0, len(text)
    while at < end:
        piece = bytes(text[at : at + _PIECE + limits.number])
        comma = piece.find(b",", _PIECE)
        if comma < 0:
            if end - at > len(piece):
                raise Invalid(f"data has a number of more than {limits.number} characters")
            comma = len(piece)
        try:
            yield json.loads(b"[%s]" % piece[:comma].translate(_NO_BRACKETS))
        except ValueError as e:
            raise Invalid(f"data is not JSON: {str(e)[:200]}") from None
        at += comma + 1


def _searched(text: memoryview, more: int = 0) -> Iterator[bytes]:
    """The pieces of a text, each with `more` bytes of the next."""
    for k in range(0, len(text), _SEARCHED):
        yield bytes(text[k : k + _SEARCHED + more])


def _check_shape(text: memoryview, shape: Sequence[int], signs: bytes) -> None:
    """Looks at what is between the numbers."""
    found = b"".join(piece.translate(None, signs + _SPACE) for piece in _searched(text))
    size = math.prod(shape)
    if len(found) == 2 + max(size - 1, 0) and found == _between([size]):
        return
    if _length_between(shape) != len(found) or found != _between(shape):
        if found.translate(None, b"[],"):
            raise Invalid("data must be true and false for BOOL, and numbers for others")
        raise Invalid(f"data is not of {size} elements: a list of them, or lists in the shape {list(shape)}")
    if any(_OUT_OF_PLACE.search(piece) for piece in _searched(text, 1024)):
        raise Invalid("data is not JSON: a comma is missing beside a list")


def _between(shape: Sequence[int]) -> bytes:
    """The brackets and commas of such a list."""
    text = b"," * max(shape[-1] - 1, 0) if shape else b""
    for n in reversed(shape[:-1]):
        text = b",".join([b"[" + text + b"]"] * n)
    return b"[" + text + b"]"


def _length_between(shape: Sequence[int]) -> int:
    length = max(shape[-1] - 1, 0) if shape else 0
    for n in reversed(shape[:-1]):
        length = n * (length + 2) + max(n - 1, 0)
    return length + 2


def written(y: np.ndarray) -> Iterator[bytes]:
    """The pieces of a list of all elements."""
    flat = y.ravel()
    step = _PIECE // 16
    yield b"["
    for k in range(0, flat.size, step):
        text = json.dumps(flat[k : k + step].tolist(), separators=(",", ":"))[1:-1].encode()
        yield b"," + text if k else text
        if flat.size > _PIECE:
            time.sleep(0)
    yield b"]"
