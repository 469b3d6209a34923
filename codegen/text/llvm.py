"""Writes LLVM IR as text, and compiles it to native code.

Writing text is ten times faster than building llvmlite's objects. `Module` and `Function` do the bookkeeping: fresh
names, labels, loops with their phis, declarations. Vectors are explicit, so no IR pass is run: only parsing,
verification and code generation.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gluonjit.codegen.text import fork_guard
from gluonjit.common.lazy import cached_property
from gluonjit.ir.dims import Dim, Undecided, is_at_most
from gluonjit.ir.machine import Machine
from gluonjit.ir.types import DType, IRError

if TYPE_CHECKING:
    from gluonjit.codegen.threads.stamps import Stamps

KERNEL_PARAMS = (("ptr", "table"), ("i64", "thread"), ("i64", "nthreads"))
"""Every kernel's parameters: buffers (operands, results, scratch), this thread's number, and the number of threads."""

_R = TypeVar("_R")

_MEMORY = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double", "u8": "i8", "bool": "i8"}


def memory_type(dtype: DType) -> str:
    """The LLVM type of an element in memory: bool is a byte there."""
    return _MEMORY.get(dtype.name, dtype.name)


def vector(n: int, type: str) -> str:
    """`<n x type>`, or the scalar type when n is 1."""
    return type if n == 1 else f"<{n} x {type}>"


def float_literal(value: float, type: str = "float") -> str:
    """A floating constant, bit-exact: LLVM writes every type's constants as the hexadecimal of a double.

    `value` is rounded to `type` first, as LLVM rejects what the type cannot hold; NaN payloads are not kept.
    """
    if type == "float":
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    elif type != "double":
        raise IRError(f"no literals of type {type}")
    if value != value:
        return "0x7FF8000000000000"
    return "0x" + struct.pack(">d", value).hex().upper()


@functools.cache
def _mangled(type: str) -> str:
    """How an intrinsic's name spells a type: `<16 x float>` is `v16f32`."""
    match = re.fullmatch(r"<(\d+) x (\w+)>", type)
    if match:
        return f"v{match[1]}{_mangled(match[2])}"
    return {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}.get(type, type)


class Module:
    """The text of one LLVM module. `dims`: the open dimensions of its graph, see `Function.extent`."""

    def __init__(self, target: Machine, dims: Sequence[str] = ()) -> None:
        self.target = target
        self.dims = tuple(dims)
        self.functions: list[Function] = []
        self._by_name: dict[str, Function] = {}
        self._declarations: dict[str, str] = {}
        self._constants: dict[tuple[str, bytes], str] = {}
        self._constant_texts: list[str] = []
        self._metadata: list[str] = []
        self._nontemporal: str | None = None
        self.stamps: Stamps | None = None
        """Where its time goes, if it is to be measured."""

    def function(
        self,
        name: str,
        params: Sequence[tuple[str, str]] = KERNEL_PARAMS,
        result: str = "void",
        *,
        linkage: str = "",
        attributes: str = "",
    ) -> Function:
        """A new function; `params` are (type with attributes, name): `('ptr noalias', 'x')`."""
        f = Function(self, name, params, result, linkage, attributes)
        self.functions.append(f)
        self._by_name[name] = f
        return f

    def declare(self, name: str, result: str, params: Sequence[str]) -> None:
        """Declares an external function; does nothing if it is declared already."""
        if name not in self._declarations:
            self._declarations[name] = f"declare {result} @{name}({', '.join(params)})"

    def constant(self, array: np.ndarray, align: int = 64) -> str:
        """Puts `array`'s bytes (C order) into read-only data; the pointer to them. Equal arrays are stored once."""
        data = np.ascontiguousarray(array).tobytes()
        name = self._constants.get((str(array.dtype), data))
        if name is None:
            name = f"@const.{len(self._constants)}"
            self._constants[str(array.dtype), data] = name
            text = "\\" + data.hex("\\") if data else ""
            self._constant_texts.append(
                f'{name} = private unnamed_addr constant [{len(data)} x i8] c"{text}", align {align}'
            )
        return name

    def pointers(self, names: Sequence[str]) -> str:
        """Puts the addresses of functions into read-only data; the pointer to them."""
        name = f"@const.{len(self._constants)}"
        self._constants["ptr", name.encode()] = name
        text = ", ".join(f"ptr @{n}" for n in names)
        self._constant_texts.append(f"{name} = private unnamed_addr constant [{len(names)} x ptr] [{text}]")
        return name

    def external(self, name: str) -> str:
        """Declares data that another object of the same library defines; the pointer to it."""
        self._constant_texts.append(f"@{name} = external hidden constant i8")
        return f"@{name}"

    def thread_word(self, name: str) -> str:
        """Defines an i32 of which each thread has its own, 0 at first; the pointer to it."""
        self._constant_texts.append(f"@{name} = internal thread_local(initialexec) global i32 0")
        return f"@{name}"

    def word(self, name: str) -> str:
        """Defines a pointer of the whole process, null at first; where it is."""
        self._constant_texts.append(f"@{name} = internal global ptr null")
        return f"@{name}"

    def metadata(self, text: str) -> str:
        """Adds a metadata node such as `!{}`; returns its name."""
        self._metadata.append(text)
        return f"!{len(self._metadata) - 1}"

    @cached_property
    def size_range(self) -> str:
        """The metadata of a load of an open dimension's size."""
        return self.metadata(f"!{{i64 1, i64 {1 << 47}}}")

    @cached_property
    def empty(self) -> str:
        """An empty metadata node."""
        return self.metadata("!{}")

    @cached_property
    def aligned_loop(self) -> str:
        """The metadata of the branch back of a loop whose code begins with a line of the instruction cache."""
        align = self.metadata(f'!{{!"llvm.loop.align", i32 {self.target.line}}}')
        return self.metadata(f"distinct !{{!{len(self._metadata)}, {align}}}")

    @property
    def nontemporal(self) -> str:
        """The metadata of a non-temporal store."""
        if self._nontemporal is None:
            self._nontemporal = self.metadata("!{i32 1}")
        return self._nontemporal

    def text(self) -> str:
        return self._text(self._constant_texts, [f.text() for f in self.functions], self._declarations.values())

    def text_of(self, functions: Sequence[Function]) -> str:
        """A module of these functions and what they use: internal functions and data are copied, others declared."""
        bodies: dict[str, str] = {}
        used: set[str] = set()
        there = self._by_name
        pending = [f.name for f in functions]
        while pending:
            name = pending.pop()
            bodies[name] = there[name].text()
            found = set(re.findall(r"@([\w.]+)", bodies[name])) - used
            used |= found
            pending += (n for n in found if n in there and there[n].linkage == "internal" and n not in bodies)
        constants = [text for name, text in zip(self._constants.values(), self._constant_texts) if name[1:] in used]
        used.update(name for text in constants if text[-1] == "]" for name in re.findall(r"ptr @([\w.]+)", text))
        declarations = [text for name, text in self._declarations.items() if name in used]
        declarations += [there[n].declaration for n in there if n in used and n not in bodies]
        return self._text(constants, bodies.values(), declarations)

    def _text(self, data: Iterable[str], functions: Iterable[str], declarations: Iterable[str]) -> str:
        parts = [f'target triple = "{self.target.triple}"', *data, *functions, *declarations]
        parts += [f"!{k} = {text}" for k, text in enumerate(self._metadata)]
        return "\n".join(parts) + "\n"


class Scope:
    """Code that always runs from its top to its bottom: a function's body, or the body of a loop.

    While an inner scope is open, code can still be added to an outer one (`Function.at`): it is placed before the inner
    scope, which hoists loop-invariant code. `label` is the basic block that is being written.
    """

    __slots__ = ("closed", "depth", "label", "lines", "memo", "parent")

    def __init__(self, parent: Scope | None, label: str) -> None:
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.lines: list[str] = []
        self.label = label
        self.memo: dict[Any, Any] = {}
        """What has been computed here and can be used again (`Function.pure`)."""
        self.closed = False
        """Whether its code is complete and has become part of its parent's."""

    def close(self) -> None:
        self.closed = True
        self.memo.clear()  # the values in it refer to the scope, and only the garbage collector would find them


class Loop:
    """An open loop: `index` is its counter, `carried` the values that came from the previous iteration.

    `next` sets the values for the next iteration; after the loop, `results` are those that the last iteration set. A
    loop made by `repeat` has no counter, and continues while `again` holds.
    """

    def __init__(self, index: str, carried: tuple[str, ...], scope: Scope) -> None:
        self.index = index
        self.carried = carried
        self.scope = scope
        self.results: tuple[str, ...] = ()
        self.again = "false"
        self._next: tuple[str, ...] = carried

    def next(self, *values: str) -> None:
        if len(values) != len(self.carried):
            raise IRError(f"the loop carries {len(self.carried)} values, got {len(values)}")
        self._next = values


class Exit:
    """A block that returns from the function (`Function.exit`); `params` are the values that each jump passes to it."""

    def __init__(self, label: str, params: tuple[str, ...], types: Sequence[str]) -> None:
        self.label = label
        self.params = params
        self.scope = Scope(None, label)
        self._types = types
        self._jumps: list[tuple[str, tuple[Any, ...]]] = []

    def jump(self, origin: str, values: tuple[Any, ...]) -> None:
        """Records a jump from the basic block `origin`."""
        if len(values) != len(self.params):
            raise IRError(f"the exit {self.label} takes {len(self.params)} values, got {len(values)}")
        self._jumps.append((origin, values))

    def text(self) -> list[str]:
        phis = []
        for k, (name, type) in enumerate(zip(self.params, self._types)):
            incoming = ", ".join(f"[ {values[k]}, %{origin} ]" for origin, values in self._jumps)
            phis.append(f"  {name} = phi {type} {incoming}")
        return [f"{self.label}:", *phis, *self.scope.lines]


class Function:
    """Writes one function. Values are strings: `%x.7`, or literals. Integers stand for `i64` constants, and so do open
    extents, wherever a method takes an i64 (`for_`, `gep`, `add` …); only text that callers put together themselves
    needs `extent`."""

    def __init__(
        self,
        module: Module,
        name: str,
        params: Sequence[tuple[str, str]],
        result: str,
        linkage: str,
        attributes: str,
    ) -> None:
        self.module = module
        self.target = module.target
        self.name = name
        self.result = result
        self.linkage = linkage
        self.declaration = f"declare {result} @{name}({', '.join(type for type, _ in params)})"
        declared = ", ".join(f"{type} %{p}" for type, p in params)
        # Keeps LLVM from preferring narrow vectors on machines with wide registers.
        width = f'"prefer-vector-width"="{self.target.vector_bits}"'
        self._head = " ".join(
            filter(None, ["define", linkage, result, f"@{name}({declared})", "nounwind", width, attributes, "{"])
        )
        self._count = 0
        self._allocas: list[str] = []
        self._shared: dict[tuple[str, int, int], str] = {}
        self._exits: list[Exit] = []
        self.is_cold = False
        """Runs so rarely that it should be compiled fast rather than well."""
        self.sizes: dict[str, str] = {}
        """The sizes of open dimensions, as far as they are known by other means than the table."""
        self.root = self.scope = Scope(None, "entry")
        self._text: str | None = None

    # ---- instructions

    def fresh(self, hint: str = "v") -> str:
        self._count += 1
        return f"%{hint}.{self._count}"

    def emit(self, line: str) -> None:
        """Adds an instruction that has no result."""
        self.scope.lines.append("  " + line)

    def op(self, instruction: str, hint: str = "v") -> str:
        """Adds an instruction; the name of its result."""
        self._count += 1
        name = f"%{hint}.{self._count}"
        self.scope.lines.append(f"  {name} = {instruction}")
        return name

    def pure(self, instruction: str, scope: Scope) -> str:
        """The result of an instruction without side effects, computed in `scope`, and only once for the same text."""
        name = scope.memo.get(instruction)
        if name is None:
            self._count += 1
            name = scope.memo[instruction] = f"%v.{self._count}"
            scope.lines.append(f"  {name} = {instruction}")
        return name

    def comment(self, text: str) -> None:
        self.scope.lines.append(f"  ; {text}")

    def alternate(self, pieces: Iterable[Callable[[], object]], independent: Callable[[], bool] = lambda: True) -> None:
        """Lets each of `pieces` write its code, then interleaves their instructions.

        A processor's out-of-order window is limited: of long dependency chains in sequence it runs only two or three at
        the same time. Pieces are not interleaved if they have branches, or unless they are `independent`: one must not
        read or write memory that another writes.
        """
        scope, lines = self.scope, self.scope.lines
        starts = []
        label = scope.label
        for write in pieces:
            starts.append(len(lines))
            write()
        if len(starts) > 1 and scope.label == label and independent():
            lines[starts[0] :] = _alternated([lines[a:b] for a, b in zip(starts, [*starts[1:], len(lines)])])

    def call(self, name: str, result: str, *args: tuple[str, Any], flags: str = "") -> str:
        """Calls a function, by name or by pointer (`%p.3`), with arguments (type, value). The result's name, or ''."""
        callee = name if name.startswith("%") else f"@{name}"
        given = ", ".join(f"{t} {self.extent(v)}" for t, v in args)
        text = f"call {flags + ' ' if flags else ''}{result} {callee}({given})"
        if result == "void":
            self.emit(text)
            return ""
        return self.op(text)

    def intrinsic(
        self, name: str, result: str, *args: tuple[str, Any], overload: Sequence[str] | None = None, flags: str = ""
    ) -> str:
        """Calls an LLVM intrinsic and declares it. `overload`: the types in its name; the result's if not given."""
        full = ".".join([name, *map(_mangled, (result,) if overload is None else overload)])
        self.module.declare(full, result, [t for t, _ in args])
        return self.call(full, result, *args, flags=flags)

    def alloca(self, type: str, count: int = 1, align: int = 8) -> str:
        """Stack memory for `count` elements of `type`, allocated at the function's entry, for the whole call."""
        name = self.fresh("stack")
        self._allocas.append(f"  {name} = alloca {type}, i64 {count}, align {align}")
        return name

    def shared_alloca(self, type: str, count: int, align: int) -> str:
        """An `alloca` shared by all requests of the same type and size, which overwrite each other's values."""
        key = type, count, align
        if key not in self._shared:
            self._shared[key] = self.alloca(*key)
        return self._shared[key]

    def load(self, type: str, pointer: str, align: int | None = None) -> str:
        return self.op(f"load {type}, ptr {pointer}" + (f", align {align}" if align else ""))

    def store(self, type: str, value: Any, pointer: str, align: int | None = None) -> None:
        self.emit(f"store {type} {self.extent(value)}, ptr {pointer}" + (f", align {align}" if align else ""))

    def gep(self, type: str, pointer: str, index: Any) -> str:
        """The address of element `index` (i64) of an array of `type`."""
        return (
            pointer
            if index == 0
            else self.op(f"getelementptr inbounds {type}, ptr {pointer}, i64 {self.extent(index)}", "p")
        )

    def hidden(self, value: str, type: str = "ptr") -> str:
        """The same pointer or integer, but LLVM does not know what it is."""
        return self.op(f'call {type} asm "", "=r,0"({type} {value})', "p")

    def table(self, k: int) -> str:
        """The k-th pointer of a kernel's table."""
        return self.load("ptr", self.gep("ptr", "%table", k), align=8)

    # ---- i64 arithmetic, for addresses and trip counts; Python integers and open extents are folded

    def extent(self, n: Any) -> Any:
        """What stands for an extent in an instruction: itself, or an open one's value, computed once per function.

        In front of every kernel's table are the sizes of the open dimensions: word -1 - k is that of `module.dims[k]`.
        """
        if not isinstance(n, Dim):
            return n
        value: Any = 0
        for names, c in n.terms.items():
            product: Any = c
            for name in names:
                size = self._size(name)
                product = size if product == 1 else self.pure(f"mul nsw i64 {product}, {size}", self.root)
            value = product if value == 0 else self.pure(f"add nsw i64 {value}, {product}", self.root)
        return value

    def _size(self, name: str) -> str:
        if name not in self.sizes:
            if name not in self.module.dims:
                raise IRError(f"the module has no open dimension {name!r}")
            word = f"getelementptr i64, ptr %table, i64 {-1 - self.module.dims.index(name)}"
            notes = f"!range {self.module.size_range}, !invariant.load {self.module.empty}"
            self.sizes[name] = self.pure(f"load i64, ptr {self.pure(word, self.root)}, align 8, {notes}", self.root)
        return self.sizes[name]

    def _integer(self, instruction: str, fold: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        if isinstance(a, (int, Dim)) and isinstance(b, (int, Dim)):
            try:
                return fold(a, b)
            except Undecided:
                a, b = self.extent(a), self.extent(b)
        return self.op(f"{instruction} i64 {self.extent(a)}, {self.extent(b)}", "i")

    def add(self, a: Any, b: Any) -> Any:
        return a if b == 0 else b if a == 0 else self._integer("add nsw", operator.add, a, b)

    def sub(self, a: Any, b: Any) -> Any:
        return a if b == 0 else self._integer("sub nsw", operator.sub, a, b)

    def mul(self, a: Any, b: Any) -> Any:
        if a == 0 or b == 0:
            return 0
        return a if b == 1 else b if a == 1 else self._integer("mul nsw", operator.mul, a, b)

    def div(self, a: Any, b: Any) -> Any:
        """a // b, of non-negative integers."""
        return a if b == 1 else self._integer("udiv", operator.floordiv, a, b)

    def mod(self, a: Any, b: Any) -> Any:
        """a % b, of non-negative integers."""
        return 0 if b == 1 else self._integer("urem", operator.mod, a, b)

    def min(self, a: Any, b: Any) -> Any:
        if isinstance(a, (int, Dim)) and isinstance(b, (int, Dim)):
            if is_at_most(a, b):
                return a
            if is_at_most(b, a):
                return b
        return self.intrinsic("llvm.smin", "i64", ("i64", a), ("i64", b))

    def max(self, a: Any, b: Any) -> Any:
        if isinstance(a, (int, Dim)) and isinstance(b, (int, Dim)):
            if is_at_most(a, b):
                return b
            if is_at_most(b, a):
                return a
        return self.intrinsic("llvm.smax", "i64", ("i64", a), ("i64", b))

    # ---- control flow

    def label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}.{self._count}"

    def begin(self, label: str) -> None:
        """Starts a basic block. The previous one must have ended in a branch."""
        self.scope.lines.append(f"{label}:")
        self.scope.label = label

    @contextmanager
    def at(self, scope: Scope) -> Iterator[None]:
        """Writes into an enclosing scope, in front of the scopes that are open inside it."""
        saved, self.scope = self.scope, scope
        try:
            yield
        finally:
            self.scope = saved

    @contextmanager
    def for_(
        self,
        start: Any,
        stop: Any,
        step: Any = 1,
        carried: Sequence[tuple[str, str]] = (),
        hint: str = "i",
        aligned: bool = False,
    ) -> Iterator[Loop]:
        """`for index in range(start, stop, step)`, step > 0; `carried` are (type, initial value) pairs. `aligned`: its
        code begins with a cache line.

        Bounds are Python integers, open extents or i64 values. Unless they are integers with start < stop, the loop may
        not run at all; its results are then the initial values.
        """
        start, stop, step = self.extent(start), self.extent(stop), self.extent(step)
        parent = self.scope
        body, exit = self.label("loop"), self.label("exit")
        loop = Loop(self.fresh(hint), tuple(self.fresh("carried") for _ in carried), Scope(parent, body))
        self.scope = loop.scope
        try:
            yield loop
        finally:
            self.scope = parent
        if isinstance(start, int) and isinstance(stop, int):
            if start >= stop:
                loop.results = tuple(init for _, init in carried)
                return
            self.emit(f"br label %{body}")
            guarded = False
        else:
            self.emit(f"br i1 {self.op(f'icmp slt i64 {start}, {stop}', 'c')}, label %{body}, label %{exit}")
            guarded = True
        before, latch = parent.label, loop.scope.label
        following = self.fresh(hint)
        lines = parent.lines
        lines.append(f"{body}:")
        lines.append(f"  {loop.index} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]")
        for (type, init), name, value in zip(carried, loop.carried, loop._next, strict=True):
            lines.append(f"  {name} = phi {type} [ {init}, %{before} ], [ {value}, %{latch} ]")
        lines += loop.scope.lines
        loop.scope.close()
        # Hidden, or LLVM's loop strength reduction would look for a better form of every address in the loop: that is
        # up to a third of LLVM's time, and may keep more pointers than there are registers.
        added = self.op(f"add nsw i64 {loop.index}, {step}", hint)
        lines.append(f'  {following} = call i64 asm "", "=r,0"(i64 {added})')
        again = self.op(f"icmp slt i64 {following}, {stop}", "c")
        align = f", !llvm.loop {self.module.aligned_loop}" if aligned else ""
        self.emit(f"br i1 {again}, label %{body}, label %{exit}{align}")
        self.begin(exit)
        loop.results = loop._next
        if guarded:
            loop.results = tuple(
                self.op(f"phi {type} [ {init}, %{before} ], [ {value}, %{latch} ]")
                for (type, init), value in zip(carried, loop._next, strict=True)
            )

    @contextmanager
    def repeat(self, carried: Sequence[tuple[str, str]]) -> Iterator[Loop]:
        """Runs its body once, and again as long as `loop.again` (i1, set by the body) is true."""
        parent = self.scope
        body, exit = self.label("repeat"), self.label("exit")
        loop = Loop("", tuple(self.fresh("carried") for _ in carried), Scope(parent, body))
        self.scope = loop.scope
        try:
            yield loop
        finally:
            self.scope = parent
        before, latch = parent.label, loop.scope.label
        self.emit(f"br label %{body}")
        parent.lines.append(f"{body}:")
        for (type, init), name, value in zip(carried, loop.carried, loop._next, strict=True):
            parent.lines.append(f"  {name} = phi {type} [ {init}, %{before} ], [ {value}, %{latch} ]")
        parent.lines += loop.scope.lines
        loop.scope.close()
        self.emit(f"br i1 {loop.again}, label %{body}, label %{exit}")
        self.begin(exit)
        loop.results = loop._next

    @contextmanager
    def if_(self, condition: str) -> Iterator[Scope]:
        """A context for code that runs when `condition` (i1) holds."""
        parent = self.scope
        then, after = self.label("then"), self.label("after")
        self.scope = inner = Scope(parent, then)
        try:
            yield inner
        finally:
            self.scope = parent
        self.emit(f"br i1 {condition}, label %{then}, label %{after}")
        parent.lines.append(f"{then}:")
        parent.lines += inner.lines
        inner.close()
        self.emit(f"br label %{after}")
        self.begin(after)

    def either(self, condition: str, type: str, then: Callable[[], str], otherwise: Callable[[], str]) -> str:
        """The value of `then` if `condition` (i1) holds, else that of `otherwise`; only one of them is computed."""
        branches = self.fork(condition, then, otherwise)
        return self.op(f"phi {type} " + ", ".join(f"[ {value}, %{label} ]" for label, value in branches))

    def fork(self, condition: str, then: Callable[[], _R], otherwise: Callable[[], _R]) -> list[tuple[str, _R]]:
        """Writes code that does `then` if `condition` (i1) holds, else `otherwise`. For both, the basic block that ends
        it, and what the function returned."""
        parent = self.scope
        branches = []
        for label, write in ((self.label("then"), then), (self.label("otherwise"), otherwise)):
            self.scope = inner = Scope(parent, label)
            try:
                branches.append((label, inner, write()))
            finally:
                self.scope = parent
            inner.close()
        after = self.label("after")
        self.emit(f"br i1 {condition}, label %{branches[0][0]}, label %{branches[1][0]}")
        for label, inner, _ in branches:
            parent.lines += [f"{label}:", *inner.lines, f"  br label %{after}"]
        self.begin(after)
        return [(inner.label, result) for _, inner, result in branches]

    @contextmanager
    def exit(self, *types: str, hint: str = "exit") -> Iterator[Exit]:
        """A context for code that leaves the function; jumps to it (`leave_if`), written later, pass values of `types`.

        The code must end with `ret`, and may use values that are computed before the first jump.
        """
        found = Exit(self.label(hint), tuple(self.fresh("passed") for _ in types), types)
        saved, self.scope = self.scope, found.scope
        try:
            yield found
        finally:
            self.scope = saved
        found.scope.close()
        self._exits.append(found)

    def leave_if(self, condition: str, exit: Exit, *values: Any) -> None:
        """Jumps to `exit` when `condition` (i1) holds."""
        exit.jump(self.scope.label, values)
        stay = self.label("stay")
        self.emit(f"br i1 {condition}, label %{exit.label}, label %{stay}")
        self.begin(stay)

    def ret(self, value: str = "") -> None:
        self.emit(f"ret {self.result} {value}" if value else "ret void")

    def end(self) -> None:
        """Ends the function: keeps its text alone, which takes a third of the memory."""
        self._text = self.text()
        del self.module  # which refers to the function, so that only the garbage collector would find the two
        self.root.close()
        self.root = self.scope = Scope(None, "ended")
        self._allocas, self._shared, self._exits = [], {}, []

    def text(self) -> str:
        if self._text is not None:
            return self._text
        last = self.root.lines[-1].strip() if self.root.lines else ""
        end = [] if self.result != "void" or last.startswith("ret ") else ["  ret void"]
        exits = [line for exit in self._exits for line in exit.text()]
        return "\n".join([self._head, "entry:", *self._allocas, *self.root.lines, *end, *exits, "}"])


_NAME = re.compile(r"%[\w.]+")


def _alternated(pieces: Sequence[list[str]]) -> list[str]:
    """The lines of all pieces, interleaved; a line that uses a result of another piece comes after it."""
    read = [[(line, *_names(line)) for line in piece] for piece in pieces]
    missing = {name for piece in read for _, name, _ in piece if name}
    out: list[str] = []
    at = [0] * len(read)
    left = sum(map(len, read))
    while left:
        for j, piece in enumerate(read):
            if at[j] == len(piece):
                continue
            line, name, operands = piece[at[j]]
            if missing.isdisjoint(operands):
                out.append(line)
                at[j] += 1
                left -= 1
                missing.discard(name)
    return out


def _names(line: str) -> tuple[str, list[str]]:
    """The name that an instruction gives its result, or '', and those that it uses."""
    names = _NAME.findall(line)
    return (names[0], names[1:]) if " = " in line else ("", names)


# ---- from text to native code

_LIBC_CALLS = frozenset({"memcpy", "memset", "memmove"})
"""What LLVM may call by itself; libc provides it in every process."""


def _initialized() -> Any:
    """llvmlite's `binding`; IRError when it cannot be used here."""
    fork_guard.check()
    return _binding()


@functools.cache
def _binding() -> Any:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.initialize_native_asmparser()
    return binding


@functools.cache
def _all_initialized() -> Any:
    """`_initialized` for every architecture that llvmlite was built for, to generate code for another machine."""
    binding = _initialized()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding


def optimization_level() -> int:
    """LLVM's level for the code of graphs: 2, or what the environment variable GLUONJIT_LLVM_LEVEL says, 0 to 3.

    All levels give the same bits: which operations are fused is written in the IR. Level 1 takes some hundredths less
    time, or a sixth where LLVM narrows divisions (`codegen/target.py`), which it leaves out.
    """
    text = os.environ.get("GLUONJIT_LLVM_LEVEL", "").strip() or "2"
    if text not in ("0", "1", "2", "3"):
        raise IRError(f"GLUONJIT_LLVM_LEVEL is 0, 1, 2 or 3, got {text!r}")
    return int(text)


@contextmanager
def _machine(target: Machine, level: int = 2) -> Iterator[Any]:
    """A target machine for one module; `level` is the optimization level of its code generator, 0 to 3.

    Afterwards it serves another one: LLVM takes a millisecond to make a machine, and more for the first function."""
    binding = _initialized()
    idle = _idle.setdefault((target.triple, target.cpu, target.features, level), [])
    try:
        machine = idle.pop()
    except IndexError:
        machine = _new_machine(binding, target, level)
    yield machine
    idle.append(machine)


_idle: dict[tuple[str, str, str, int], list[Any]] = {}
"""Machines that no thread uses at the moment; each is for one thread at a time."""


def _new_machine(binding: Any, target: Machine, level: int) -> Any:
    if target.triple.split("-")[0] != binding.get_process_triple().split("-")[0]:
        binding = _all_initialized()
    # Position-independent and the small code model: constants are addressed relative to the instruction, so that an
    # object can be stored and loaded anywhere.
    return binding.Target.from_triple(target.triple).create_target_machine(
        target.cpu, target.features, opt=level, reloc="pic", codemodel="small"
    )


def parse(text: str, context: Any = None) -> Any:
    """LLVM's module; an IRError with the line if the text is not valid IR."""
    binding = _initialized()
    module = None
    try:
        module = binding.parse_assembly(text, context)
        module.verify()
    except RuntimeError as e:
        if module is not None:
            module.close()  # the error refers to it, and may outlive the context
        where = re.search(r"<string>:(\d+)", str(e))
        line = text.splitlines()[int(where[1]) - 1].strip() if where else ""
        raise IRError(f"the generated LLVM IR is not valid: {e}" + (f"\n  {line}" if line else "")) from e
    return module


@contextmanager
def parsed_apart(text: str, target: Machine, level: int) -> Iterator[tuple[Any, Any]]:
    """(module, machine), in a context of their own: such modules can be worked on at the same time. `level` as in
    `_machine`."""
    # Freed in this order: Python's garbage collector, which finds them in the traceback of an error, has none.
    with _machine(target, level) as machine, _initialized().create_context() as context:
        with parse(text, context) as module:
            yield module, machine


def compile_module(text: str, target: Machine, level: int = 2) -> bytes:
    """LLVM IR → a relocatable object for `target`. IRError when the IR is not valid. `level` as in `_machine`."""
    with _machine(target, level) as machine:
        return machine.emit_object(parse(text))


def assembly(text: str, target: Machine) -> str:
    """LLVM IR → assembly, to be read."""
    with _machine(target, optimization_level()) as machine:
        return machine.emit_assembly(parse(text))


def undefined_symbols(data: bytes) -> set[str]:
    """The symbols that an ELF object expects from elsewhere (empty for other formats)."""
    return {name for name, defined in _symbols(data) if not defined}


def _symbols(data: bytes) -> Iterator[tuple[str, bool]]:
    """(name, whether it is defined here) of an ELF object's symbols; none for other formats."""
    if data[:5] != b"\x7fELF\x02":
        return
    order = "<" if data[5] == 1 else ">"
    section_table = struct.unpack_from(order + "Q", data, 0x28)[0]
    entry_size, count = struct.unpack_from(order + "HH", data, 0x3A)
    sections = [
        struct.unpack_from(order + "IIQQQQII", data, section_table + k * entry_size) for k in range(count)
    ]  # name, type, flags, address, offset, size, link, info
    for section in sections:
        if section[1] == 2:  # SHT_SYMTAB; `link` is its string table
            strings = sections[section[6]][4]
            for at in range(section[4] + 24, section[4] + section[5], 24):  # the first symbol is the null one
                name, _, _, index = struct.unpack_from(order + "IBBH", data, at)
                start = strings + name
                yield data[start : data.index(b"\0", start)].decode(), index != 0


class Loaded:
    """Native code in memory. It must outlive every address taken from it."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def address(self, name: str) -> int:
        """The address of a function; IRError if there is none of that name.

        To be called right after loading, and never later: it takes LLVM's lock, which another thread may hold."""
        address = self._engine.get_function_address(name)
        if not address:
            raise IRError(f"the object has no function {name!r}")
        return address

    def call(self, name: str, buffers: Sequence[np.ndarray], nthreads: int = 1, sizes: Sequence[int] = ()) -> None:
        """Runs a kernel over `buffers` (its table), one thread's share after the other's: for tests and benchmarks.
        `sizes`: of the module's open dimensions."""
        words = (*reversed(sizes), *(b.ctypes.data for b in buffers))
        table = (ctypes.c_void_p * max(1, len(words)))(*words)
        kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(self.address(name))
        for thread in range(nthreads):
            kernel(ctypes.addressof(table) + 8 * len(sizes), thread, nthreads)


def load(data: bytes | Sequence[bytes], symbols: Mapping[str, int] | None = None) -> Loaded:
    """Links an object, or several that use each other, into the process. `symbols` maps further names to addresses.

    IRError if an object needs any other symbol: that means that LLVM turned an instruction into a call of a library
    function, which is slow and may not exist.
    """
    binding = _initialized()
    objects = [data] if isinstance(data, bytes) else data
    symbols = symbols or {}
    found = [pair for o in objects for pair in _symbols(o)]
    known = {name for name, defined in found if defined}
    unknown = {name for name, defined in found if not defined} - known - _LIBC_CALLS - symbols.keys()
    if unknown:
        raise IRError(f"the object calls {', '.join(sorted(unknown))}, which nothing provides")
    for name, address in symbols.items():
        binding.add_symbol(name, address)
    # The engine owns the machine that it is given, so a shared one would be freed twice.
    machine = binding.Target.from_default_triple().create_target_machine(jit=True)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    for o in objects:
        engine.add_object_file(binding.ObjectFileRef.from_data(o))
    engine.finalize_object()
    return Loaded(engine)
