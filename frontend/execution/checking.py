"""`gluonjit check`: all that keeps a model from being compiled, or makes it mean something unexpected, at once.

A trace ends at the first thing that cannot be compiled. The one here goes on: where the program needs the value of an
array, it gets the value that the sample arguments give; a block whose program fails runs as Python on such values.
Other problems are seen in the program's text (`program_text.py`), in its parameters, and in what it did to attributes.
"""

from __future__ import annotations

import contextlib
import linecache
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from types import FrameType
from typing import Any

import numpy as np

from gluonjit.base import MXNetError, TraceError
from gluonjit.execution import program_text
from gluonjit.ir.graph import Loc
from gluonjit.ir.interpreter import Interpreter
from gluonjit.ir.opdef import RNG_KEY
from gluonjit.ir.types import IRError
from gluonjit.language import forms, rng
from gluonjit.language.running import no_trace
from gluonjit.language.source import user_frame
from gluonjit.ndarray import NDArray
from gluonjit.symbol.graph import Entry, post_order
from gluonjit.symbol.lower import lower
from gluonjit.trace.block_attributes import random_draws
from gluonjit.trace.memory import read
from gluonjit.trace.recorder import Recorder
from gluonjit.trace.traced_symbol import TracedSymbol
from gluonjit.trace.tracing import flatten, record

ERROR, WARNING, NOTE = "error", "warning", "note"
"""ERROR: it cannot be compiled, or fails. WARNING: it does less, or something else, than it seems to. NOTE: it may be
of interest."""


@dataclass(frozen=True)
class Problem:
    """One finding. `line`, `column` and `end_column` count from 1; 0 is unknown."""

    rule: str
    severity: str
    message: str
    remedy: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    end_column: int = 0
    block: str = ""
    """The path of the block whose program it is in."""

    def __str__(self) -> str:
        at = f"{self.file}:{self.line}:{self.column or 1}: " if self.file else ""
        inside = f" (in {self.block})" if self.block else ""
        text = f"{at}{self.severity}: {self.message} [{self.rule}]{inside}"
        source = linecache.getline(self.file, self.line).rstrip() if self.file else ""
        if source:
            text += f"\n    {source}\n    {self._caret(source)}"
        return text + (f"\n  instead: {self.remedy}" if self.remedy else "")

    def _caret(self, source: str) -> str:
        begin = self.column - 1 if self.column else len(source) - len(source.lstrip())
        end = self.end_column - 1 if self.end_column > self.column else len(source.partition("  #")[0].rstrip())
        return " " * begin + "^" * max(min(end, len(source)) - begin, 1)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def check(block: Any, args: Sequence[Any]) -> list[Problem]:
    """All problems of a call `block(*args)` in the current mode, in the order of files and lines.

    Runs the program twice, with these arguments: as Python, and on symbols."""
    leaves, _ = flatten(tuple(args))
    if not leaves:
        raise ValueError(f"there is no array among the arguments {tuple(args)}")
    found: list[Problem] = []
    with _containers_kept(block), _generators_kept():
        with _plainly(block):
            try:
                results = block(*args)
            except Exception as e:
                found.append(_failure(e, "fails", block.name))
                return found
        found += _values(block, results)
        found += _compiled(block, tuple(args))
    return sorted(set(found), key=lambda p: (not p.file, p.file, p.line, p.column, p.rule, p.message))


def _compiled(block: Any, args: tuple[Any, ...]) -> list[Problem]:
    """Problems of compiling the block."""
    function = getattr(type(block), "hybrid_forward", None)
    if function is None:
        message = "is a Block, which is not compiled; the HybridBlocks in it are, each by itself"
        remedy = "derive it from HybridBlock, with hybrid_forward(F, x, …) in place of forward(x)"
        return [Problem("no-hybrid-block", WARNING, f"{block.name} {message}", remedy)]
    if function.__qualname__ == "HybridBlock.hybrid_forward":
        message = "has forward(x) of its own, which is not compiled; the HybridBlocks in it are, each by itself"
        remedy = "hybrid_forward(F, x, …) in place of forward(x)"
        return [Problem("no-hybrid-block", WARNING, f"{block.name} {message}", remedy)]
    leaves, form = flatten(block._jit_completed(args))
    return _traced(block, leaves, form)


@contextlib.contextmanager
def _containers_kept(block: Any) -> Iterator[None]:
    """A context after which lists, dicts and sets that blocks have as attributes are as before: a trace would leave
    symbols in them."""
    kept: list[tuple[Any, Any]] = []
    waiting = [block]
    while waiting:
        b = waiting.pop()
        waiting += b._children.values()
        values = (value for name, value in vars(b).items() if not name.startswith("_"))
        kept += [(value, value.copy()) for value in values if type(value) in (list, dict, set)]
    try:
        yield
    finally:
        for value, before in kept:
            value.clear()
            (value.extend if isinstance(value, list) else value.update)(before)


@contextlib.contextmanager
def _generators_kept() -> Iterator[None]:
    """A context after which random numbers go on as if it had not been: those of operators, of NumPy and of Python."""
    drawn, numpys, pythons = rng.get_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        rng.set_state(drawn)
        np.random.set_state(numpys)
        random.setstate(pythons)


class _plainly:
    """A context in which a block and all that are in it run as Python, operator by operator."""

    def __init__(self, block: Any) -> None:
        self._active: list[tuple[Any, bool]] = []
        waiting = [block]
        while waiting:
            b = waiting.pop()
            waiting += b._children.values()
            if hasattr(b, "_active"):
                self._active.append((b, b._active))

    def __enter__(self) -> None:
        for b, _ in self._active:
            b._active, b._fast_call = False, None

    def __exit__(self, *error: object) -> None:
        for b, active in self._active:
            b._active = active


# ---- what the program does on symbols


class _Checker(Recorder):
    """A trace that notes what cannot be compiled, and goes on with values."""

    leaves: Sequence[NDArray]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.problems: list[Problem] = []
        self.programs: dict[int, Any] = {}
        """The blocks that have run."""
        self.as_python: list[Any] = []
        """The blocks whose programs failed on symbols, so that what they read is not known."""
        self._values: dict[Entry, np.ndarray] = {}

    def call(self, block: Any, args: Sequence[Any]) -> Any:
        self.programs[id(block)] = block
        try:
            return super().call(block, args)
        except _Told:
            raise
        except _InLoop:
            self.as_python.append(block)
        except Exception as e:
            self._note(e, block)
        values = [self._concrete(x) for x in args]
        try:
            with no_trace(), _plainly(block):
                return block(*values)
        except Exception as e:
            raise _Told from e  # it was noted when the block ran on symbols

    def _note(self, error: Exception, block: Any) -> None:
        path = self._paths.get(id(block), block.name)
        self.as_python.append(block)
        if isinstance(error, TraceError):
            what, _, instead = str(error).partition("\n  write instead: ")
            rule = "needs-python"
            self.problems.append(_at(error, rule, self._severity(block), what.partition("\n  at ")[0], instead, path))
        else:
            self.problems.append(_failure(error, "fails on symbols", path))

    def _severity(self, block: Any) -> str:
        """WARNING if only a part of the model cannot be compiled, and so runs as Python; else ERROR."""
        return ERROR if block is self.block else WARNING

    def value(self, handle: TracedSymbol, what: str, instead: str) -> np.ndarray:
        block = self.blocks[-1]
        path = self._paths.get(id(block), block.name)
        place = _place(user_frame(in_models=True))
        self.problems.append(Problem("needs-value", self._severity(block), what, instead, *place, path))
        return self._value_of(handle)

    def _concrete(self, value: Any) -> Any:
        """An argument of a block, with arrays in place of symbols."""
        if isinstance(value, TracedSymbol):
            return NDArray._wrap(self._value_of(value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._concrete, value))
        return value

    def _value_of(self, handle: TracedSymbol) -> np.ndarray:
        """The elements of an array, for the sample arguments."""
        entry = read(handle)
        if entry not in self._values:
            self._evaluate(entry)
        return self._values[entry].copy()

    def _evaluate(self, entry: Entry) -> None:
        """Computes an entry's value. _InLoop if it depends on an iteration's variables."""
        origins = dict(self.inputs.values())
        known: dict[Entry, np.ndarray] = {}
        nodes = []
        for node in post_order([entry]):
            if (node, 0) in self._values:
                known[node, 0] = self._values[node, 0]
            elif (node, 0) in origins:
                known[node, 0] = self._elements(origins[node, 0])
            elif node.op is None and node not in self.constants:
                raise _InLoop
            elif node not in self.constants:
                nodes.append(node)
        inputs = [(e, self.types[e]) for e in known]
        with no_trace():
            graph = lower("check", inputs, nodes, [entry], training=self.training, constants=self.constants)
            arrays = [*known.values(), *([np.zeros(2, np.int64)] if graph.inputs[-1:] and _is_key(graph) else [])]
            (result,), _ = Interpreter(graph).run(arrays)
        self._values[entry] = result

    def _elements(self, origin: Any) -> np.ndarray:
        if isinstance(origin, int):
            return self.leaves[origin]._array
        return (origin if isinstance(origin, NDArray) else origin._first)._array


class _Told(Exception):
    """A block has failed, and its problem is noted already."""


class _InLoop(Exception):
    """A value was needed in the body of a loop or branch, where it is another one in each iteration: the block whose
    program has the loop runs as Python."""


def _is_key(graph: Any) -> bool:
    return bool(graph.inputs[-1].name == RNG_KEY)


def _traced(block: Any, leaves: Sequence[NDArray], form: Any) -> list[Problem]:
    """What a trace finds."""
    checkers: list[_Checker] = []

    def make(*args: Any) -> _Checker:
        checkers.append(_Checker(*args))
        checkers[-1].leaves = leaves
        return checkers[-1]

    failed = False
    result = None
    try:
        _, _, result = record(block, leaves, form, tuple(range(len(leaves))), probes=True, kind=make)
    except _Told:
        failed = True
    checker = checkers[-1]
    log = checker.attributes
    found = list(checker.problems)
    if not failed:
        found += _state(checker)
        log.undo()
        log.rewind()
    programs = {type(b): checker._paths.get(id(b), b.name) for b in checker.programs.values()}
    blocks = {type(b): b for b in checker.programs.values()}
    for cls, path in programs.items():
        for finding in program_text.findings(cls, blocks[cls]):
            found.append(Problem(finding.rule, finding.severity, finding.message, finding.remedy, *finding.place, path))
    if not failed:
        found += _unused(block, checker, result)
    if checker.mode_fact:
        message = "the program asks whether it is training; MXNet keeps the answer of the first call once hybridized"
        found.append(Problem("differs-from-mxnet", NOTE, message, block=block.name))
    if checker.recording_fact:
        message = "the program asks for, or sets, the recording mode, which MXNet ignores once hybridized"
        found.append(Problem("differs-from-mxnet", NOTE, message, block=block.name))
    return found


def _state(checker: _Checker) -> Iterator[Problem]:
    """What the program did to attributes, and to generators of random numbers."""
    log, paths = checker.attributes, checker._paths
    for s in log.changes():
        where = paths.get(id(s.block), s.block.name)
        if s.carried:
            message = f"self.{s.name} is read and then set, so that calls differ: the block runs as Python"
            remedy = f"an array that is written to, self.{s.name}[:] = …, or state that the caller passes and gets back"
            yield Problem("state", WARNING, message, remedy, *_line(s.loc), where)
        elif not isinstance(s.old, (int, float, str, bool, type(None), tuple)) or isinstance(
            s.block.__dict__.get(s.name), TracedSymbol
        ):
            message = f"self.{s.name} is set when the block is traced, not in every call, and arrays are symbols then"
            yield Problem("state", WARNING, message, "return the value", *_line(s.loc), where)
    for loc, blocks in log.drawn.values():
        what, _, instead = str(random_draws((loc, blocks))).partition("\n  instead: ")
        where = paths.get(id(blocks[-1]), "") if blocks else ""
        yield Problem("random-numbers", WARNING, what.partition("\n")[0], instead, *_line(loc), where)


def _unused(block: Any, checker: _Checker, result: Any) -> Iterator[Problem]:
    """Parameters that no operator reads, and that are no result."""
    maybe = {id(p) for b in checker.as_python for p in b.collect_params().values()}
    read_by = {id(e[0]) for node in checker.nodes for e in [*node.inputs]}
    results, _ = forms.flatten(result, _is_leaf, "output")
    read_by |= {id(read(y)[0]) for y in results if isinstance(y, TracedSymbol)}
    used = {id(param) for _, (entry, param) in checker.inputs.items() if id(entry[0]) in read_by}
    for name, param in block.collect_params().items():
        if id(param) not in used | maybe:
            message = f"parameter {name} is not used by the call"
            yield Problem("unused-parameter", WARNING, message, "remove it, or the block that has it", block=block.name)


def _is_leaf(value: Any) -> bool:
    return not isinstance(value, (list, tuple))


# ---- values


def _values(block: Any, results: Any) -> Iterator[Problem]:
    """Numbers that spoil results, or slow down arithmetic."""
    for name, param in block.collect_params().items():
        if param._first is None:
            continue
        x = param._first._array
        if x.dtype.kind != "f" or not x.size:
            continue
        if count := int(np.count_nonzero(~np.isfinite(x))):
            message = f"parameter {name} has {count} elements of {x.size} that are nan or infinite"
            yield Problem("nan", ERROR, message, "load or initialize it again", block=block.name)
        if count := int(np.count_nonzero((np.abs(x) < np.finfo(x.dtype).tiny) & (x != 0))):
            message = f"parameter {name} has {count} denormal elements of {x.size}; arithmetic may be 100 times slower"
            yield Problem(
                "denormals", NOTE, message, "hybridize(flush_denormals=True), or set them to 0", block=block.name
            )
    flat, _ = forms.flatten(results, _is_leaf, "output")
    for k, y in enumerate(flat):
        if isinstance(y, NDArray) and y._array.dtype.kind == "f" and not np.isfinite(y._array).all():
            bad = int(np.count_nonzero(~np.isfinite(y._array)))
            message = f"result {k} has {bad} elements of {y.size} that are nan or infinite, for these arguments"
            yield Problem("nan", WARNING, message, "try arguments of the usual range", block=block.name)


# ---- places


def _place(frame: FrameType | None) -> tuple[str, int, int, int]:
    """(file, line, column, end column) of what the frame is executing; columns from Python 3.11 on, else 0."""
    if frame is None:
        return "", 0, 0, 0
    code = frame.f_code
    if hasattr(code, "co_positions"):
        line, end, column, end_column = next(islice(code.co_positions(), frame.f_lasti // 2, None))
        if line and column is not None and end_column is not None:
            return code.co_filename, line, column + 1, end_column + 1 if end == line else 0
    return code.co_filename, frame.f_lineno, 0, 0


def _line(loc: Loc) -> tuple[str, int, int, int]:
    return loc.file, loc.line, 0, 0


def _user_place(error: BaseException) -> tuple[str, int, int, int]:
    """(file, line, column, end column) of the innermost line of the user's program that an exception went through."""
    place = ("", 0, 0, 0)
    tb = error.__traceback__
    while tb is not None:
        module = tb.tb_frame.f_globals.get("__name__", "")
        if module.partition(".")[0] != "gluonjit" or module.startswith("gluonjit.gluon.model_zoo."):
            place = tb.tb_frame.f_code.co_filename, tb.tb_lineno, 0, 0
        tb = tb.tb_next
    return place


def _at(error: Exception, rule: str, severity: str, message: str, remedy: str, block: str) -> Problem:
    return Problem(rule, severity, message, remedy, *_user_place(error), block)


def _failure(error: Exception, how: str, block: str) -> Problem:
    what = str(error).partition("\n  at ")[0] or type(error).__name__
    kind = "" if isinstance(error, (MXNetError, IRError)) else f"{type(error).__name__}: "
    return _at(error, "fails", ERROR, f"the program {how}: {kind}{what}", "", block)
