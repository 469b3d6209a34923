"""The text form of graphs: its syntax, and dumps in files. `ir/printer.py` writes it, `ir/parser.py` reads it.

    graph @net(%x: f32[2,3], %s: f32[3]) level planned {arena = 192, training = False} {
      %0: f32[] = constant() {value = 0.5} loc("model.py":12, "net0_dense0")
      %1: f32[2,3] @0 = broadcast(%0) {shape = (2, 3)}
      %y: f32[2,3] = fused(%x, %1) (@body(%a: f32[2,3], %b: f32[2,3]) level legal {
        %0: f32[2,3] = mul(%a, %b)
        return %0
      })
      %v: f32[2,3] @64, %i: i64[2,3] @128 = sort(%y) {axis = 1}
      %new: f32[3] = reduce(%v) {op = "sum", axes = (0,)}
      update %s = %new
      return %y, %i
    }

* `graph`, name, inputs; then, unless they are `expanded` and empty, the level and facts about the whole graph.
* An op: results with types and, when they live in the arena, `@` and their byte offset; operands; attributes;
  regions, which see only their own inputs; `loc("file":line, "block path")`. `f32[]` is 0-d.
* A dimension may be open: a name, or a sum of products, as in `f32[n,3]` and `f32[12*l*n]` (`ir/dims.py`). Attributes
  use names that a type has introduced: `{shape = (n, 3*n)}`. An open offset has quotes: `@"64*n"`.
* Attributes that equal the operator's defaults are left out.
* `update %state = %new`: the input `%state` holds `%new` after the call.
* `prepare` ops that come before all others are written after them: `return %y } prepare { %p: … = prepare(%w) (…) }`.
* Names are any `%word`, quoted where they hold other characters (`%"a b"`); numbers name what has no name.
* Literals: `1`, `1.5`, `nan`, `-inf`, `True`, `None`, `"text"`, `(1, 2)`, `(1,)`, `f32` (an element type), `f32[2,3]`
  (a type), `f32[2] [1.0, -0.0]` (an array), `f32[2,3] 0.0` (of equal elements), `f32[64,64] file("net.npz", "c0")`
  (in an archive beside the text). The value of `constant` takes its type from the result. Among floats, `0x7fc00001`
  gives bits.
* What people may leave out: the graph's name, types of results (they are inferred; a wrong one is an error), line
  breaks. `//` starts a comment. A `constant` whose type is not given anywhere is i64 (`1`), f32 (`1.0`) or bool.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gluonjit.ir import array_literal
from gluonjit.ir.graph import Graph
from gluonjit.ir.lexer import ParseError
from gluonjit.ir.parser import parse_graph
from gluonjit.ir.printer import Names, Spill, print_graph, print_op

__all__ = ["Names", "ParseError", "Spill", "load", "parse_graph", "print_graph", "print_op", "save"]


def save(graph: Graph, path: str | Path, *, locs: bool = True, comment: str = "") -> None:
    """Writes the graph to `path`, and its big constants, if any, to an `.npz` of the same name beside it. `comment`: a
    line above the graph."""
    path = Path(path)
    spill = Spill(path.with_suffix(".npz").name)
    text = print_graph(graph, locs=locs, spill=spill)
    if spill.arrays:
        stored = {key: array_literal.to_archive(array) for key, array in spill.arrays.items()}
        np.savez(path.with_suffix(".npz"), **stored)  # type: ignore[arg-type]
    path.write_text(f"// {comment}\n{text}" if comment else text, encoding="utf-8")


def load(path: str | Path, *, places: bool = False) -> Graph:
    """The graph that `save` or a person wrote to `path`. Raises ParseError, OSError or, for no UTF-8, UnicodeError.
    `places`: see `parse_graph`."""
    path = Path(path)
    return parse_graph(path.read_text(encoding="utf-8-sig"), source=str(path), folder=path.parent, places=places)
