"""Kernels that call the host's Python: `host_call` always, `check_index` when it has to raise an error.

What is called is `runtime.host`, by the name CALLBACK, with the text of a graph of this one op and the kernel's table.
It evaluates the graph on the operands there, and writes the results there; or it keeps an error, which the
caller of the graph raises at the end. The first thread does it alone: it is the one that belongs to Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.codegen.interface import CALLBACK
from gluonjit.codegen.text.intrinsics import float_mode, flush_bits, set_float_mode
from gluonjit.codegen.text.kernel_code import writes
from gluonjit.codegen.text.llvm import Function, Module
from gluonjit.ir.annotations import without
from gluonjit.ir.graph import Builder, Op
from gluonjit.ir.kernels.op_plans import Host
from gluonjit.ir.text import print_graph


@writes(Host)
def lower_host(name: str, op: Op, module: Module) -> None:
    """Appends the kernel to the module. Its table: the op's operands, then its results."""
    f = module.function(name)
    with f.if_(f.op("icmp eq i64 %thread, 0")):
        if op.name == "check_index":
            with f.if_(_any_outside(f, op)):
                _call(f, op)
        else:
            _call(f, op)


def _call(f: Function, op: Op) -> None:
    text = np.frombuffer(_text(op, f.module.dims).encode(), np.uint8)
    f.module.declare(CALLBACK, "void", ["ptr", "i64", "ptr"])
    mode = float_mode(f)
    # What users wrote in Python is not to find denormals flushed, if they are.
    set_float_mode(f, f.op(f"and i64 {mode}, {~flush_bits(f.target)}"))
    f.call(CALLBACK, "void", ("ptr", f.module.constant(text)), ("i64", text.size), ("ptr", "%table"))
    set_float_mode(f, mode)


def _text(op: Op, dims: Sequence[str]) -> str:
    """The graph of the op. Its attribute `open` names the dimensions whose sizes lie in front of the table."""
    b = Builder("host")
    own = without(op.attrs)
    results = b.emit(op.name, [b.input(f"x{k}", v.type) for k, v in enumerate(op.operands)], own)
    return print_graph(b.build(results, {"open": tuple(dims)} if dims else {}))


def _any_outside(f: Function, op: Op) -> str:
    """Writes the indices counted from 0, and 0 for those out of bounds; whether there are such (i1)."""
    (idx,) = op.operands
    kind, nbytes = f"i{idx.dtype.bits}", idx.dtype.itemsize
    source, target = f.table(0), f.table(1)
    points = idx.size // max(idx.shape[0], 1)
    outside: Any = "false"
    for axis, extent in enumerate(op.attrs["sizes"]):
        n = f.extent(extent)
        with f.for_(axis * points, (axis + 1) * points, carried=[("i1", outside)]) as loop:
            value = f.load(kind, f.gep(kind, source, loop.index), nbytes)
            wide = _widened(f, value, idx.dtype)
            if op.attrs["negative"]:
                below = f.op(f"icmp slt i64 {wide}, 0")
                wide = f.op(f"select i1 {below}, i64 {f.op(f'add i64 {wide}, {n}')}, i64 {wide}")
            inside = f.op(f"icmp ult i64 {wide}, {n}")
            kept = f.op(f"select i1 {inside}, i64 {wide}, i64 0")
            f.store(kind, _narrowed(f, kept, kind), f.gep(kind, target, loop.index), align=nbytes)
            loop.next(f.op(f"select i1 {inside}, i1 {loop.carried[0]}, i1 true"))
        outside = loop.results[0]
    return outside


def _widened(f: Function, value: str, dtype: Any) -> str:
    if dtype.bits == 64:
        return value
    return f.op(f"{'zext' if dtype.kind == 'u' else 'sext'} i{dtype.bits} {value} to i64")


def _narrowed(f: Function, value: str, kind: str) -> str:
    return value if kind == "i64" else f.op(f"trunc i64 {value} to {kind}")
