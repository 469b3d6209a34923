"""Tokens of the text form, and the error that points into a text."""

from __future__ import annotations

import json
import re
from typing import NoReturn

from gluonjit.ir.types import IRError

_NAME = r'(?:[\w.$-]+|"(?:[^"\\\n]|\\.)*")'
_TOKEN = re.compile(
    rf"""[\s]*(?:
    (?P<value>%{_NAME})
  | (?P<type>[A-Za-z]\w*\[[\w\s,*+-]*\])
  | (?P<extent>-?(?:\d+\*)?[a-z]\w*(?:[*+-]\w+)+|-?\d+\*[a-z]\w*|-[a-z]\w*\b(?<!inf)(?<!nan))
  | (?P<word>\.?[A-Za-z_][\w.$]*)
  | (?P<number>-?(?:0x[0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|(?:inf|nan)\b))
  | (?P<punctuation>[(){{}}=,:])
  | (?P<array>\[)
  | (?P<at>@{_NAME})
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<comment>//[^\n]*)
  | (?P<ellipsis>\.\.\.)
  | (?P<end>\Z)
    )""",
    re.ASCII | re.VERBOSE,
)
_BRACKET = re.compile(r"[\[\]]")
WINDOW = 120
"""The most characters of a line that an error shows."""


class ParseError(IRError):
    """The text is not a valid graph. `message` says why, `line` and `column` (from 1) where; `str` shows the place."""

    def __init__(self, message: str, source: str, line: int, column: int, shown: str) -> None:
        self.message = message
        self.source = source
        self.line = line
        self.column = column
        super().__init__(f"{source}:{line}:{column}: {message}\n{shown}")


def fail(message: str, text: str, position: int, source: str) -> NoReturn:
    """Raises ParseError for the place `position` (in characters) of `text`."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start : end if end >= 0 else len(text)]
    column = position - start
    # Show a part of the line alone: it may be an array of megabytes.
    left = max(0, column - WINDOW // 2) if len(line) > WINDOW else 0
    cut = line[left : left + WINDOW].rstrip()
    pad = "".join("\t" if c == "\t" else " " for c in line[left:column])
    raise ParseError(message, source, text.count("\n", 0, position) + 1, column + 1, f"  {cut}\n  {pad}^")


def tokenize(text: str, source: str) -> tuple[list[str], list[str], list[int]]:
    """Kinds, texts and positions of all tokens. Punctuation is its own kind; the last token is `end`.

    An array in square brackets is one token, whose inside `array_literal` reads.
    """
    kinds: list[str] = []
    texts: list[str] = []
    starts: list[int] = []
    match = _TOKEN.match
    position = 0
    while True:
        m = match(text, position)
        if m is None:
            rest = text[position:]
            at = position + len(rest) - len(rest.lstrip())
            what = "a string that does not end on its line" if '"' in text[at : at + 2] else f"{text[at]!r}"
            fail(f"unexpected {what}", text, at, source)
        kind = m.lastgroup
        assert kind is not None  # every alternative is a named group
        position = m.end()
        if kind == "comment":
            continue
        start = m.start(kind)
        if kind == "array":
            position = _end_of_array(text, start, source)
        token = text[start:position]
        if kind == "string" or '"' in token and kind in ("value", "at"):
            _check_string(token.lstrip("%@"), text, start, source)
        kinds.append(token if kind == "punctuation" else kind)
        texts.append(token)
        starts.append(start)
        if kind == "end":
            # The parser looks up to two tokens ahead.
            return [*kinds, "end", "end"], [*texts, "", ""], [*starts, start, start]


def _end_of_array(text: str, start: int, source: str) -> int:
    depth = 0
    for bracket in _BRACKET.finditer(text, start):
        depth += 1 if bracket[0] == "[" else -1
        if depth == 0:
            return bracket.end()
    fail("this bracket is not closed", text, start, source)


def _check_string(token: str, text: str, start: int, source: str) -> None:
    try:
        json.loads(token)
    except ValueError as e:
        fail(f"bad string: {e}", text, start, source)
