"""Parses graphs from text, as `ir/printer.py` or people write it, by recursive descent (syntax: `ir/text.py`).

Every fault of the input is a ParseError with line, column and a caret. Ops go through `Builder.emit`, so types of a
parsed graph are inferred like those of any other; recursion is limited by `MAX_DEPTH`.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from gluonjit.ir import archive, array_literal, dims
from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.graph import LEVELS, Builder, Graph, Loc, Value
from gluonjit.ir.kernels import Plan, find_kernel
from gluonjit.ir.lexer import ParseError, fail, tokenize
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import DTYPES, IRError, TensorType

MAX_DEPTH = 64
"""How deep tuples and regions may nest."""
MAX_RANK = 32
MAX_BYTES = 2**47
"""The largest tensor type: what a 64-bit machine can address."""
MAX_CONSTANT_BYTES = 2**30
"""The largest constant. One number can stand for all its elements, so a short text could ask for any amount of
memory."""
MAX_OPS = 1 << 20
"""How many ops a graph may have if each call is counted as the ops of its function. Calls in functions of calls double
it in a line, and passes go through functions at each call."""

_CONSTANTS = {"True": True, "False": False, "None": None, "nan": math.nan, "inf": math.inf}


def parse_graph(text: str, *, source: str = "<text>", folder: str | Path | None = None, places: bool = False) -> Graph:
    """The graph that `text` describes. Raises ParseError.

    `source` names the text in errors; constants in `file("x.npz", …)` are read from `folder`. With `places` an op that
    has no `loc` gets one: its line in the text, and the path of the graph's name and its first result's.
    """
    parser = _Parser(text, source, None if folder is None else Path(folder))
    if places:
        parser.line_ends = [k for k, c in enumerate(text) if c == "\n"]
    graph = parser.graph()
    parser.expect("end", "the end of the text after the graph")
    return graph


def parse_attrs(text: str, *, source: str = "<text>") -> dict[str, Any]:
    """Attributes in braces, `{limit = 64, name = "a"}`. Raises ParseError."""
    parser = _Parser(text, source, None)
    attrs = parser.attrs()
    parser.expect("end", "the end of the text after the attributes")
    return attrs


class _Parser:
    def __init__(self, text: str, source: str, folder: Path | None) -> None:
        self.text = text
        self.source = source
        self.folder = folder
        self.kinds, self.texts, self.starts = tokenize(text, source)
        self.i = 0
        self.depth = 0
        self.types: dict[str, TensorType] = {}
        self.line_ends: list[int] | None = None
        """Where lines end, if ops without a `loc` get one."""
        self.functions: dict[str, Graph] = {}
        """The function of a call that was last written in full, by name."""
        self.sizes: dict[Graph, int] = {}
        """The `_Scope.size` of each region."""
        self.heights: dict[Graph, int] = {}
        """The `_Scope.height` of each region."""
        self.dims: set[str] = set()
        """The names of open dimensions in types and attributes `open` so far; others in literals are mistakes."""

    # Tokens ----------------------------------------------------------------------------------------------------------

    def fail(self, message: str, token: int | None = None) -> NoReturn:
        fail(message, self.text, self.starts[self.i if token is None else token], self.source)

    def accept(self, kind: str) -> bool:
        if self.kinds[self.i] == kind:
            self.i += 1
            return True
        return False

    def accept_word(self, word: str) -> bool:
        if self.kinds[self.i] == "word" and self.texts[self.i] == word:
            self.i += 1
            return True
        return False

    def expect(self, kind: str, what: str = "") -> str:
        if self.kinds[self.i] != kind:
            self.fail_expected(what or repr(kind))
        self.i += 1
        return self.texts[self.i - 1]

    def expect_word(self, word: str, what: str) -> None:
        if not self.accept_word(word):
            self.fail_expected(what)

    def fail_expected(self, what: str) -> NoReturn:
        found = "the end" if self.kinds[self.i] == "end" else repr(self.texts[self.i][:40])
        self.fail(f"expected {what}, found {found}")

    def enter(self) -> None:
        self.check_depth(1)
        self.depth += 1

    def check_depth(self, height: int) -> None:
        """Fails if so many levels do not fit in here."""
        if self.depth + height > MAX_DEPTH:
            self.fail(f"nested deeper than {MAX_DEPTH} levels")

    # Graphs ----------------------------------------------------------------------------------------------------------

    def graph(self) -> Graph:
        self.expect_word("graph", "'graph'")
        return self.graph_after_keyword("expanded", "graph")

    def graph_after_keyword(self, outer_level: str, default_name: str) -> Graph:
        self.enter()
        name = default_name
        if self.kinds[self.i] == "at":
            name = self.unquote(self.texts[self.i][1:])
            self.i += 1
        scope = _Scope(Builder(name, outer_level))
        self.expect("(", "'(' and the graph's inputs")
        while not self.accept(")"):
            at = self.i
            value_name = self.expect("value", "an input such as %x: f32[2,3]")
            self.expect(":")
            self.define(scope, value_name, scope.b.input(self.hint(value_name), self.type()), at)
            if self.kinds[self.i] != ")":
                self.expect(",", "',' or ')'")
        if self.accept_word("level"):
            at = self.i
            scope.b.level = self.expect("word", "a level")
            if scope.b.level not in LEVELS:
                self.fail(f"unknown level {scope.b.level!r}{did_you_mean(scope.b.level, LEVELS)}", at)
        attrs: dict[str, Any] = {}
        if self.kinds[self.i] == "{" and self.attrs_follow():
            attrs = self.attrs()
        if isinstance(attrs.get("open"), tuple):
            self.dims |= {name for name in attrs["open"] if isinstance(name, str)}
        self.expect("{", "'{' and the graph's ops")
        end = self.prepares(scope) if self.depth == 1 else None
        graph = self.body(scope, attrs)
        self.sizes[graph] = scope.size
        self.heights[graph] = scope.height
        if end is not None:
            self.i = end
        self.depth -= 1
        return graph

    def region(self, op: str, outer_level: str) -> Graph:
        """A region of `op`; for a call, `@name` alone is the function that was last written in full by that name."""
        if op != "call":
            return self.graph_after_keyword(outer_level, "")
        if self.kinds[self.i] == "at" and self.kinds[self.i + 1] in (")", ","):
            name = self.unquote(self.texts[self.i][1:])
            if name not in self.functions:
                self.fail(f"no call before has a function @{name}{did_you_mean(name, self.functions)}")
            self.check_depth(self.heights[self.functions[name]])
            self.i += 1
            return self.functions[name]
        function = self.graph_after_keyword(outer_level, "")
        self.functions[function.name] = function
        return function

    def prepares(self, scope: _Scope) -> int | None:
        """Reads the ops of the section `} prepare { … }` that follows the body starting here, if there is one, as the
        body uses their results. The number of the token after the section."""
        start = self.i
        self.i = self.closing(start) + 1
        end = None
        if self.i < len(self.kinds) and self.accept_word("prepare"):
            self.expect("{", "'{' and the `prepare` ops")
            while self.kinds[self.i] == "value":
                at = self.i
                self.op(scope)
                if scope.b._ops[-1].name != "prepare":
                    self.fail("only `prepare` ops may follow the others", at)
            self.expect("}", "a `prepare` op or '}'")
            end = self.i
        self.i = start
        return end

    def closing(self, at: int) -> int:
        """The number of the token that closes the brace before token `at`; that of the last one if none does."""
        depth = 1
        for k in range(at, len(self.kinds)):
            depth += {"{": 1, "}": -1}.get(self.kinds[k], 0)
            if not depth:
                return k
        return len(self.kinds) - 1

    def attrs_follow(self) -> bool:
        """Whether the next brace opens attributes (`{key = …} {`) rather than the ops."""
        after = self.kinds[self.i + 1]
        return (
            after == "}"
            and self.kinds[self.i + 2] == "{"
            or (after in ("word", "string") and self.kinds[self.i + 2] == "=")
        )

    def body(self, scope: _Scope, attrs: dict[str, Any]) -> Graph:
        while self.kinds[self.i] == "value":
            self.op(scope)
        while self.accept_word("update"):
            at = self.i
            state = self.use(scope)
            if state in scope.updated:
                self.fail(f"{self.texts[at]} is updated twice", at)
            scope.updated.add(state)
            self.expect("=")
            new = self.use(scope)
            try:
                scope.b.update(state, new)
            except IRError as e:
                self.fail(str(e), at)
        self.expect_word("return", "an op, 'update' or 'return'")
        outputs = []
        while self.kinds[self.i] == "value":
            outputs.append(self.use(scope))
            if not self.accept(","):
                break
        self.expect("}", "'}' after 'return'")
        return scope.b.build(outputs, attrs)

    def op(self, scope: _Scope) -> None:
        """`%a: type @offset, %b = name(operands) {attributes} (regions) loc(...)`"""
        results: list[tuple[str, TensorType | None, dims.Extent | None, int]] = []
        while True:
            at = self.i
            name = self.expect("value", "a result such as %y")
            type_ = self.type() if self.accept(":") else None
            offset: dims.Extent | None = None
            if self.kinds[self.i] == "at":
                offset = self.offset()
            results.append((name, type_, offset, at))
            if not self.accept(","):
                break
        self.expect("=", "'=' after the results")
        at = self.i
        name = self.expect("word", "the name of an operator")
        self.expect("(", "'(' and the operands")
        operands = []
        while not self.accept(")"):
            operands.append(self.use(scope))
            if self.kinds[self.i] != ")":
                self.expect(",", "',' or ')'")
        attrs: dict[str, Any] = {}
        if self.kinds[self.i] == "{":
            attrs = self.attrs(results[0][1] if name == "constant" else None, name == "constant")
        regions = []
        if self.accept("("):
            while not self.accept(")"):
                regions.append(self.region(name, scope.b.level))
                if self.kinds[self.i] != ")":
                    self.expect(",", "',' or ')' after a region")
        scope.size += 1 + sum(self.sizes[region] for region in regions)
        scope.height = max([scope.height, *(1 + self.heights[region] for region in regions)])
        if scope.size > MAX_OPS:
            self.fail(f"with functions counted at each call, there are more than {MAX_OPS} ops", at)
        loc = self.loc() if self.accept_word("loc") else self.place(scope, results[0][3])
        try:
            values = scope.b.emit(
                name, operands, attrs, regions, loc, [self.hint(r[0]) for r in results], [r[2] for r in results]
            )
        except IRError as e:
            self.fail(str(e), at)
        except Exception as e:
            # A text may give attributes of any type, which inference may not expect.
            self.fail(f"{name}: these attributes do not fit ({e})", at)
        if len(values) != len(results):
            self.fail(f"{name} has {len(values)} result(s), not {len(results)}", at)
        for (text, type_, _, place), value in zip(results, values):
            if type_ is not None and type_ != value.type:
                self.fail(f"{text} is declared {type_}, but {name} gives {value.type}", place)
            self.define(scope, text, value, place)

    def define(self, scope: _Scope, text: str, value: Value, at: int) -> None:
        if text in scope.values:
            self.fail(f"{text} is defined twice", at)
        scope.values[text] = value

    def use(self, scope: _Scope) -> Value:
        text = self.expect("value", "a value such as %x")
        value = scope.values.get(text)
        if value is None:
            self.fail(f"{text} is not defined here{did_you_mean(text, scope.values)}", self.i - 1)
        return value

    def hint(self, text: str) -> str:
        """`%12` is how the printer shows a value without a name."""
        return "" if text[1:].isdigit() else self.unquote(text[1:])

    def unquote(self, text: str) -> str:
        return json.loads(text) if text[0] == '"' else text

    def offset(self) -> dims.Extent:
        digits = self.texts[self.i][1:]
        if digits[0] == '"':
            self.i += 1
            return self.extent(self.unquote(digits))
        if not digits.isdigit() or len(digits) > 18:
            self.fail("expected an offset in bytes, such as @128")
        self.i += 1
        return int(digits)

    def place(self, scope: _Scope, token: int) -> Loc | None:
        if self.line_ends is None:
            return None
        name = self.unquote(self.texts[token][1:])
        return Loc(self.source, bisect(self.line_ends, self.starts[token]) + 1, f"{scope.b.name}/{name}")

    def loc(self) -> Loc:
        self.expect("(", '("file":line')
        file = self.string()
        self.expect(":")
        line = self.integer(self.expect("number", "a line number"))
        block = self.string() if self.accept(",") else ""
        self.expect(")")
        return Loc(file, line, block)

    # Types and literals ----------------------------------------------------------------------------------------------

    def type(self) -> TensorType:
        if self.kinds[self.i] == "word" and self.kinds[self.i + 1] == "array":
            self.fail("the dimensions of a type are integers >= 0 or names, such as f32[n,3]", self.i + 1)
        text = self.expect("type", "a type such as f32[2,3]")
        known = self.types.get(text)
        if known is None:
            name, _, inner = text[:-1].partition("[")
            if name not in DTYPES:
                self.fail(f"unknown element type {name!r}{did_you_mean(name, DTYPES)}", self.i - 1)
            parts = [d.strip() for d in inner.split(",")] if inner.strip() else []
            if len(parts) > MAX_RANK:
                self.fail(f"more than {MAX_RANK} dimensions", self.i - 1)
            if not all(d.isdigit() and len(d) <= 18 or re.search("[a-z]", d) for d in parts):
                self.fail("a dimension must be an integer below 10**18, or a name", self.i - 1)
            try:
                shape = tuple(map(dims.parse, parts))
            except IRError as e:
                self.fail(str(e), self.i - 1)
            self.dims |= dims.names_of(shape)
            if not all(dims.is_at_most(0, n) for n in shape):
                self.fail(f"a dimension of {text} may be negative", self.i - 1)
            # Whether an open type fits is known when its dimensions are.
            if math.prod(n for n in shape if isinstance(n, int)) * DTYPES[name].itemsize > MAX_BYTES:
                self.fail(f"a tensor of type {text} does not fit into memory", self.i - 1)
            known = self.types[text] = TensorType(DTYPES[name], shape)
        return known

    def attrs(self, constant_type: TensorType | None = None, constant: bool = False) -> dict[str, Any]:
        """`{key = literal, …}`. The `value` of a constant may leave out its type, which is then `constant_type`."""
        self.expect("{")
        out: dict[str, Any] = {}
        while not self.accept("}"):
            at = self.i
            if self.kinds[at] not in ("word", "string"):
                self.expect("word", "the name of an attribute or '}'")
            self.i += 1
            key = self.unquote(self.texts[at])
            if key in out:
                self.fail(f"attribute {key!r} is given twice", at)
            self.expect("=", f"'=' after {key!r}")
            if key == KERNEL.name:
                out[key] = self.plan()
            else:
                out[key] = self.constant_value(constant_type) if constant and key == "value" else self.literal()
            if self.kinds[self.i] != "}":
                self.expect(",", "',' or '}'")
        return out

    def plan(self) -> Plan:
        """`matmul(rows = 6, columns = 64, block = 1)`, or a kernel's name alone."""
        at = self.i
        try:
            kernel = find_kernel(self.expect("word", "a kernel such as loops"))
        except IRError as e:
            self.fail(str(e), at)
        values: dict[str, Any] = {}
        if self.accept("("):
            while not self.accept(")"):
                name = self.expect("word", "the name of a field or ')'")
                if name in values:
                    self.fail(f"field {name!r} is given twice", self.i - 1)
                self.expect("=", f"'=' after {name!r}")
                values[name] = self.literal()
                if self.kinds[self.i] != ")":
                    self.expect(",", "',' or ')'")
        try:
            return kernel.with_values(values)
        except IRError as e:
            self.fail(str(e), at)

    def literal(self) -> Any:
        at = self.i
        kind, text = self.kinds[at], self.texts[at]
        if kind == "type":
            type_ = self.type()
            return self.array(type_) if self.kinds[self.i] in ("number", "array", "word", "ellipsis") else type_
        self.i += 1
        if kind == "number":
            return self.number(text)
        if kind == "string":
            return self.unquote(text)
        if kind == "word" and text in _CONSTANTS:
            return _CONSTANTS[text]
        if kind == "word" and text in DTYPES:
            return DTYPES[text]
        if kind == "extent" or (kind == "word" and text in self.dims):
            return self.extent(text)
        if kind == "(":
            self.enter()
            items = []
            while not self.accept(")"):
                items.append(self.literal())
                if self.kinds[self.i] != ")":
                    self.expect(",", "',' or ')'")
            self.depth -= 1
            return tuple(items)
        if kind == "array":
            self.fail("an array needs its type in front, such as f32[2] [1.0, 2.0]; a tuple has round brackets", at)
        hint = did_you_mean(text, _CONSTANTS) if kind == "word" else ""
        self.fail(f"expected a literal, found {text[:40]!r}{hint}", at)

    def number(self, text: str) -> int | float:
        if text.lstrip("-").isdigit():
            return self.integer(text)
        if text[:2] == "0x":
            self.fail("a number in hexadecimal gives an element's bits: put its type in front", self.i - 1)
        return float(text)

    def extent(self, text: str) -> dims.Extent:
        try:
            extent = dims.parse(text)
        except IRError as e:
            self.fail(str(e), self.i - 1)
        unknown = sorted(dims.names_of((extent,)) - self.dims)
        if unknown:
            self.fail(f"no type so far has a dimension {unknown[0]!r}{did_you_mean(unknown[0], self.dims)}", self.i - 1)
        return extent

    def integer(self, text: str) -> int:
        if len(text) > 20 or not text.lstrip("-").isdigit() or not -(2**63) <= int(text) < 2**64:
            self.fail("expected an integer of at most 64 bits", self.i - 1)
        return int(text)

    def string(self) -> str:
        return self.unquote(self.expect("string", "a string"))

    # Arrays ----------------------------------------------------------------------------------------------------------

    def constant_value(self, declared: TensorType | None) -> Any:
        """The value of a constant, of the type in front of it, else the declared one, else one that the literal implies
        (integers: i64, numbers with a point: f32, True and False: bool)."""
        if self.kinds[self.i] == "type":
            return self.array(self.type())
        return self.array(declared)

    def array(self, type_: TensorType | None) -> np.ndarray:
        at = self.i
        kind, text = self.kinds[at], self.texts[at]
        self.i += 1
        if type_ is not None and not type_.is_static:
            self.fail(f"a constant cannot have the open type {type_}", at)
        if type_ is not None and type_.nbytes > MAX_CONSTANT_BYTES:
            self.fail(f"a constant of type {type_} is too large; the limit is {MAX_CONSTANT_BYTES} bytes", at)
        if kind == "word" and text == "file":
            if type_ is None:
                self.fail("a constant in a file needs its type declared", at)
            return self.stored(type_, at)
        if kind == "ellipsis":
            why = "this constant was left out when the graph was printed"
            self.fail(f"{why}; `gluonjit.ir.text.save(graph, path)` leaves none out", at)
        if kind in ("array", "number", "word"):
            try:
                result = array_literal.parse(text, type_)
            except array_literal.LiteralError as e:
                fail(str(e), self.text, self.starts[at] + e.position, self.source)
            except MemoryError:
                self.fail("not enough memory for this constant", at)
            result.setflags(write=False)
            return result
        self.fail("expected a number or an array", at)

    def stored(self, type_: TensorType, at: int) -> np.ndarray:
        """`file("net.npz", "c0")`: an array of an archive in the text's folder."""
        self.expect("(")
        file = self.string()
        self.expect(",")
        key = self.string()
        self.expect(")")
        if self.folder is None:
            self.fail("this text has no folder in which to look for the file", at)
        # A plain name only: an untrusted graph must not open files in other folders.
        if Path(file).name != file or "\\" in file or "\0" in file:
            self.fail(f"{file!r} is not the plain name of a file", at)
        try:
            return archive.read_array(self.folder / file, key, type_)
        except Exception as e:  # a damaged archive raises nearly anything
            self.fail(f"cannot read {key!r} from {self.folder / file}: {e}", at)


class _Scope:
    """The values that the text of one graph has defined so far, by their spelling."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.values: dict[str, Value] = {}
        self.updated: set[Value] = set()
        self.size = 0
        """Ops so far, those of regions included, of a function at each of its calls."""
        self.height = 1
        """How many levels it takes so far, those of regions included."""


__all__ = ["ParseError", "parse_attrs", "parse_graph"]
