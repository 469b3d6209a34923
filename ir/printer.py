"""Graphs as text. What is printed here, `ir/parser.py` reads back; `ir/text.py` describes the syntax.

Printing is deterministic and does not recurse over ops, only into regions.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gluonjit.ir import array_literal, opdef
from gluonjit.ir.dims import Dim
from gluonjit.ir.kernels.kernel_plan import Plan
from gluonjit.ir.types import DType, IRError, TensorType, type_of

if TYPE_CHECKING:
    from gluonjit.ir.graph import Graph, Loc, Op, Value

_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.$-]*\Z", re.ASCII)
_PLAIN_KEY = re.compile(r"\.?[A-Za-z_][\w.$]*\Z", re.ASCII)


class Spill:
    """Where constants of more than `limit` elements go instead of into the text: `arrays`, to be saved as `file`."""

    def __init__(self, file: str, limit: int = 256) -> None:
        self.file = file
        self.limit = limit
        self.arrays: dict[str, np.ndarray] = {}
        self._keys: dict[int, str] = {}

    def key(self, array: np.ndarray) -> str:
        if id(array) not in self._keys:
            self._keys[id(array)] = f"c{len(self.arrays)}"
            self.arrays[self._keys[id(array)]] = array
        return self._keys[id(array)]


def print_graph(graph: Graph, *, locs: bool = False, spill: Spill | None = None, elide: int | None = None) -> str:
    """The text of `graph`, with a newline at the end.

    `locs` adds where each op comes from. Big constants are written in full unless `spill` takes them, or `elide`
    gives a number of elements beyond which they show as `...`, which is for people and does not parse.
    """
    printer = _Printer(locs, spill, elide)
    printer.graph("graph ", graph, "")
    return "\n".join(printer.lines) + "\n"


class Names:
    """Unique names for the values of one graph: hints are kept, repeated ones numbered (`%y`, `%y_1`), missing ones
    counted (`%0`, `%1`). Values are named in the order in which they are first asked for."""

    def __init__(self, graph: Graph) -> None:
        self._texts: dict[Value, str] = {}
        self._taken: set[str] = set()
        self._suffix: dict[str, int] = {}
        self._unnamed = 0
        for v in graph.inputs:
            self.define(v)

    def define(self, value: Value) -> str:
        text = self._texts.get(value)
        if text is None:
            text = self._texts[value] = self._fresh(value.name)
        return text

    def use(self, value: Value) -> str:
        """The value's text; one that nothing has defined shows as `%?name`, which only an invalid graph can hold."""
        return self._texts.get(value) or f"%?{value.name}"

    def _fresh(self, hint: str) -> str:
        if not hint:
            self._unnamed += 1
            return f"%{self._unnamed - 1}"
        name = hint
        while name in self._taken:
            self._suffix[hint] = self._suffix.get(hint, 0) + 1
            name = f"{hint}_{self._suffix[hint]}"
        self._taken.add(name)
        return "%" + (name if _PLAIN_NAME.match(name) else quoted(name))


def _at(graph: Graph) -> str:
    return "@" + (graph.name if _PLAIN_NAME.match(graph.name) else quoted(graph.name))


WIDTH = 120
"""The columns that a signature may take before it is wrapped."""


def wrapped(parts: Sequence[str], indent: str, width: int) -> list[str]:
    """Lines of the parts, with commas between them, that are no wider than `width` unless a part is."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) + 3 <= width:
            lines[-1] += f", {part}"
        else:
            if lines:
                lines[-1] += ","
            lines.append(indent + part)
    return lines


def _leading_prepares(graph: Graph) -> int:
    """How many `prepare` ops come before all others. They are written after these, where they are out of the way; if
    one comes later, all stay where they are, so that parsing gives the same order."""
    names = [op.name == "prepare" for op in graph.ops]
    count = sum(names)
    return count if all(names[:count]) else 0


class _Printer:
    def __init__(self, locs: bool, spill: Spill | None, elide: int | None) -> None:
        self.lines: list[str] = []
        self.locs = locs
        self.spill = spill
        self.elide = elide
        self.functions: dict[str, Graph] = {}
        """The function of a call that was last written in full, by name."""

    def graph(self, prefix: str, graph: Graph, indent: str, outer_level: str = "expanded") -> None:
        """Appends the graph's lines; the first starts with `prefix`, the last is the closing brace."""
        names = Names(graph)
        start = prefix
        if graph.name:
            start += _at(graph)
        end = "" if graph.level == outer_level else f" level {graph.level}"
        if graph.attrs:
            end += " " + self.attrs(graph.attrs)
        inner = indent + "  "
        inputs = [f"{names.use(v)}: {v.type}" for v in graph.inputs]
        head = f"{start}({', '.join(inputs)}){end} {{"
        if indent or len(head) <= WIDTH:
            self.lines.append(head)
        else:
            self.lines += [f"{start}(", *wrapped(inputs, inner + "  ", WIDTH), f"){end} {{"]
        prepares = _leading_prepares(graph) if not indent else 0
        for op in graph.ops[:prepares]:
            for v in op.results:
                names.define(v)
        for op in graph.ops[prepares:]:
            self.op(op, names, inner, graph.level)
        for state, new in graph.updates:
            self.lines.append(f"{inner}update {names.use(state)} = {names.use(new)}")
        self.lines.append(f"{inner}return {', '.join(map(names.use, graph.outputs))}".rstrip())
        if prepares:
            self.functions.clear()  # the parser reads this section before the body
            self.lines.append(indent + "} prepare {")
            for op in graph.ops[:prepares]:
                self.op(op, names, inner, graph.level)
        self.lines.append(indent + "}")

    def op(self, op: Op, names: Names, indent: str, level: str) -> None:
        operands = ", ".join([names.use(v) for v in op.operands])
        results = []
        for v in op.results:
            offset = "" if v.offset is None else f' @"{v.offset}"' if isinstance(v.offset, Dim) else f" @{v.offset}"
            results.append(f"{names.define(v)}: {v.type}{offset}")
        text = f"{indent}{', '.join(results)} = {op.name}({operands})"
        shown = _without_defaults(op)
        if shown:
            text += " " + self.attrs(shown, typed_value=op.name != "constant")
        loc = f" {loc_text(op.loc)}" if self.locs and op.loc is not None else ""
        if not op.regions:
            self.lines.append(text + loc)
            return
        function = op.regions[0] if op.name == "call" and op.regions[0].name else None
        if function is not None and self.functions.get(function.name) is function:
            self.lines.append(f"{text} ({_at(function)}){loc}")
            return
        prefix = text + " ("
        for region in op.regions:
            self.graph(prefix, region, indent, level)
            prefix = self.lines.pop() + ", "
        self.lines.append(f"{indent}}}){loc}")
        if function is not None:  # after functions in it, which may have its name
            self.functions[function.name] = function

    def attrs(self, attrs: Mapping[str, Any], typed_value: bool = True) -> str:
        parts = []
        for key, value in attrs.items():
            typed = typed_value or key != "value"
            text = self.array(value, typed) if isinstance(value, np.ndarray) else self.literal(value)
            parts.append(f"{key if _PLAIN_KEY.match(key) else quoted(key)} = {text}")
        return "{" + ", ".join(parts) + "}"

    def literal(self, value: Any) -> str:
        if value is None or isinstance(value, (bool, int)):
            return repr(value)
        if isinstance(value, float):
            return "-nan" if math.isnan(value) and math.copysign(1, value) < 0 else repr(value)
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, (DType, TensorType, Dim, Plan)):
            return str(value)
        if isinstance(value, tuple):
            parts = [self.literal(v) for v in value]
            return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
        if isinstance(value, np.ndarray):
            return self.array(value, True)
        raise IRError(f"an attribute of type {type(value).__name__} has no text form")

    def array(self, array: np.ndarray, typed: bool) -> str:
        """`f32[2] [1.0, 2.0]`; one number stands for an array of equal elements. Without the type where it is known."""
        prefix = f"{type_of(array)} " if typed else ""
        if array.size == 0:
            return prefix + "[]"
        flat = np.ascontiguousarray(array).reshape(-1)
        if flat.size > 1 and array_literal.is_uniform(flat):
            return prefix + array_literal.element_texts(flat[:1])[0]
        if self.spill is not None and flat.size > self.spill.limit:
            return f"{prefix}file({quoted(self.spill.file)}, {quoted(self.spill.key(array))})"
        if self.elide is not None and flat.size > self.elide:
            return prefix + "..."
        texts = array_literal.element_texts(flat)
        # Innermost axis first: each round joins runs of `n` texts into one bracketed text.
        for n in reversed(array.shape):
            texts = ["[" + ", ".join(texts[k : k + n]) + "]" for k in range(0, len(texts), n)]
        return prefix + texts[0]


def print_attrs(attrs: Mapping[str, Any]) -> str:
    """`{limit = 64, name = "a"}`"""
    return _Printer(False, None, None).attrs(attrs)


def print_op(op: Op, names: Names) -> str:
    """The op's line, without regions and with big constants elided: for messages, so it never fails."""
    printer = _Printer(False, None, 16)
    try:
        printer.op(op, names, "", "")
    except IRError:
        printer.lines = [f"{op.name}({', '.join(map(names.use, op.operands))})"]
    return printer.lines[0]


def quoted(text: str) -> str:
    """A string literal: JSON's. Lone surrogates stay escaped, so that the text can always be encoded."""
    readable = json.dumps(text, ensure_ascii=False)
    try:
        readable.encode()
    except UnicodeEncodeError:
        return json.dumps(text)
    return readable


def loc_text(loc: Loc) -> str:
    block = f", {quoted(loc.block)}" if loc.block else ""
    return f"loc({quoted(loc.file)}:{loc.line}{block})"


def _without_defaults(op: Op) -> Mapping[str, Any]:
    """The attributes that the parser would not fill in by itself."""
    if not op.attrs:
        return op.attrs
    try:
        defaults = opdef.lookup(op.name).attr_defaults
    except IRError:  # printing works without the operator's definition
        return op.attrs
    missing = opdef.REQUIRED
    return {k: v for k, v in op.attrs.items() if not _same(v, defaults.get(k, missing))}


def _same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    if default is opdef.REQUIRED or type(value) is not type(default):
        return False
    return opdef.attr_key(value) == opdef.attr_key(default)
