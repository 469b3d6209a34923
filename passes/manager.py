"""The pass manager: finds passes by name, runs them in order, verifies what they make.

A pass is a function `Graph → Graph` in the file of its name (`legalize-broadcast` in `legalize_broadcast.py`):

    @register_pass("fold")
    def fold(graph: Graph, *, limit: int = 2**20) -> Graph:
        '''Computes ops whose operands are constants.'''

Keyword-only parameters are its options, which a pipeline sets with the syntax of attributes: `fold {limit = 4096}`. One
that is called `target` gets the target that `run_passes` was given. A pass that changes nothing returns the graph that
it got, the same object.
"""

from __future__ import annotations

import functools
import inspect
import os
import pkgutil
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

from gluonjit.common.aside import check, imported
from gluonjit.common.signals import is_from_signal
from gluonjit.common.stages import note
from gluonjit.ir import plugins
from gluonjit.ir.dims import Undecided
from gluonjit.ir.graph import LEVELS, Graph, Op, with_regions
from gluonjit.ir.machine import Machine
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.parser import parse_attrs
from gluonjit.ir.printer import print_attrs, print_graph
from gluonjit.ir.text import save
from gluonjit.ir.types import IRError
from gluonjit.ir.verify import verify

After = Callable[[str, Graph, Graph, float], None]
"""`after(name, before, graph, seconds)`, called when a pass has run."""


@dataclass(frozen=True)
class Pass:
    name: str
    doc: str
    """What it does, for `gluonjit passes`: the function's documentation, or else its file's."""
    run: Callable[..., Graph]
    options: Mapping[str, Any]
    """Names and defaults of its options."""
    takes_target: bool
    whole: bool = False
    needs: str = LEVELS[0]
    """The level that a graph must have at least."""
    gives: str | None = None
    """The level that the graph has afterwards; None: the one that it had."""


class PassError(IRError):
    """A pass failed, or made an invalid graph; `__cause__` says how. `before` is the graph that it got."""

    def __init__(self, name: str, options: Mapping[str, Any], before: Graph, cause: Exception) -> None:
        kind = "" if isinstance(cause, IRError) else f"{type(cause).__name__}: "
        super().__init__(f"pass {name!r}: {kind}{cause}")
        self.name = name
        self.options = dict(options)
        self.before = before
        self.path: Path | None = None
        """The file that holds the reproducer, if one was written."""

    @property
    def reproducer(self) -> str:
        """A text that `gluonjit opt` and the golden tests run: the pass's name and its input."""
        return f"// RUN: {_spelled(self.name, self.options)}\n\n" + print_graph(self.before, locs=True)

    def write(self, folder: Path) -> None:
        """Writes the reproducer to `folder` and says so in the message."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"failed-{self.name}.ir"
        save(self.before, self.path)
        body = self.path.read_text(encoding="utf-8")
        self.path.write_text(f"// RUN: {_spelled(self.name, self.options)}\n\n{body}", encoding="utf-8")
        self.args = (f"{self.args[0]}\nits input: {self.path}",)


_PACKAGE = __name__.rpartition(".")[0]
"""The packages whose modules are searched for passes."""
_PASSES: dict[str, Pass] = {}
_F = TypeVar("_F", bound=Callable[..., Graph])


def register_pass(
    name: str, *, doc: str = "", whole: bool = False, needs: str = LEVELS[0], gives: str | None = None
) -> Callable[[_F], _F]:
    """Makes the decorated function known as pass `name`. The function stays as it is and can be called.

    `whole`: it sees to the bodies of loops and branches itself; other passes are run on these one by one. `needs`,
    `gives`: see `Pass`.
    """

    def declare(function: _F) -> _F:
        if name in _PASSES:
            raise IRError(f"pass {name!r} is declared twice")
        parameters = inspect.signature(function).parameters
        options = {k: p.default for k, p in parameters.items() if p.kind is p.KEYWORD_ONLY and k != "target"}
        text = doc or inspect.getdoc(function) or (sys.modules[function.__module__].__doc__ or "").strip()
        _PASSES[name] = Pass(name, text, function, options, "target" in parameters, whole, needs, gives)
        return function

    return declare


def find_pass(name: str, others: Iterable[str] = ()) -> Pass:
    """The pass called `name`, imported now if need be; IRError when there is none, with a suggestion among all passes
    and `others`."""
    module = name.replace("-", "_")
    if module in _modules():  # although it may be there: another thread may not have imported the whole file yet
        imported(f"{_PACKAGE}.{module}")
    if name not in _PASSES:
        all_passes()  # it may stand in a file of another name, or in another package
    if name not in _PASSES:
        near = did_you_mean(name, [*_PASSES, *others]) or "; `gluonjit passes` lists those that there are"
        if name in imported(f"{_PACKAGE}.pipelines").PIPELINES:
            near = f"; it is a pipeline, of which `gluonjit.passes.pipelines.PIPELINES[{name!r}].steps` are the passes"
        raise IRError(f"unknown pass {name!r}{near}")
    return _PASSES[name]


def registered_passes() -> Mapping[str, Pass]:
    """Those passes, by name, that have been imported or declared so far."""
    return _PASSES


def all_passes() -> dict[str, Pass]:
    """Every pass by name, in alphabetical order, those of plug-ins included. Imports them all."""
    for module in sorted(_modules()):
        imported(f"{_PACKAGE}.{module}")
    plugins.load()
    return dict(sorted(_PASSES.items()))


@functools.cache
def _modules() -> frozenset[str]:
    return frozenset(m.name for m in pkgutil.iter_modules(sys.modules[_PACKAGE].__path__))


Pipeline = str | Iterable[str | tuple[str, Mapping[str, Any]]]
"""`"expand, fold {limit = 64}"`, or a list of such items or of (name, options)."""

_ITEM = re.compile(r"\s*([\w-]+)\s*(\{[^{}]*\})?\s*(?:,|\Z)", re.ASCII)


def parse_pipeline(pipeline: Pipeline) -> list[tuple[str, dict[str, Any]]]:
    """Names of passes with their options. Raises IRError when the text is malformed."""
    if not isinstance(pipeline, str):
        items: list[tuple[str, dict[str, Any]]] = []
        for entry in pipeline:
            items += parse_pipeline(entry) if isinstance(entry, str) else [(entry[0], dict(entry[1]))]
        return items
    items = []
    position = 0
    while pipeline[position:].strip():
        m = _ITEM.match(pipeline, position)
        if m is None:
            raise IRError(f"expected passes such as 'fold, cse {{…}}', found {pipeline[position:].strip()[:40]!r}")
        items.append((m[1], parse_attrs(m[2], source=f"options of {m[1]}") if m[2] else {}))
        position = m.end()
    return items


_verified: WeakSet[Graph] = WeakSet()
"""Graphs that pipelines ended with: those that go on with them need not look at the ops that stay."""


def run_passes(
    graph: Graph,
    pipeline: Pipeline,
    *,
    after: After | None = None,
    target: Machine | None = None,
    reproducers: str | Path | None = None,
    verify_each: bool | None = None,
) -> Graph:
    """Runs the passes of `pipeline` in order and verifies the last graph, or, with `verify_each`, that of every pass
    (None: if the environment variable GLUONJIT_VERIFY_EACH is 1).

    `target` is for passes that need one. `after` is called once for each pass. Raises IRError for an unknown pass or
    option before anything has run, and PassError when a pass fails; the graph that it failed on is then written to
    the folder `reproducers`, if given. To find out which pass that is, all run again, and are verified.
    """
    if verify_each is None:
        verify_each = os.environ.get("GLUONJIT_VERIFY_EACH", "") == "1"
    steps = [(_check_options(find_pass(name), options, target), options) for name, options in parse_pipeline(pipeline)]
    first, verified = graph, graph if graph in _verified else None
    idle: dict[str, tuple[Graph, Mapping[str, Any]]] = {}
    """The last graph in which each pass found nothing to do, and its options then."""
    for number, (step, options) in enumerate(steps, 1):
        check()
        before = graph
        arguments = {**options, "target": target} if step.takes_target else options
        start = time.perf_counter()
        try:
            _check_level(step, graph)
            if idle.get(step.name) != (graph, options):
                graph = _run(step, before, arguments)
            if graph is before:
                idle[step.name] = graph, options
            seconds = time.perf_counter() - start
            if verify_each and graph is not before or number == len(steps) and graph is not first:
                verify(graph, verified)
                verified = graph
                _verified.add(graph)
        except Exception as e:
            if is_from_signal(e):
                raise
            if not verify_each and number > 1 and not isinstance(e, Undecided):
                again = [(earlier.name, given) for earlier, given in steps[:number]]
                run_passes(first, again, target=target, reproducers=reproducers, verify_each=True)
            error = PassError(step.name, options, before, e)
            if reproducers is not None:
                error.write(Path(reproducers))
            raise error from e
        note(f"pass {step.name}", start, seconds)
        if after is not None:
            after(step.name, before, graph, seconds)
    return graph


def _run(step: Pass, graph: Graph, arguments: Mapping[str, Any]) -> Graph:
    """The pass on the graph, after it has run on the bodies of the graph's loops and branches.

    The regions of `fused` and `prepare` are not among these: passes make them, and know what they hold.
    """
    done: dict[Graph, Graph] = {}
    """Calls of one function share their region, and go on sharing it."""
    if not step.whole:
        for op in graph.ops:
            for body in op.regions if op.regions and op.definition.level == "control" else ():
                if body not in done:
                    done[body] = _run(step, body, arguments)
    if any(new is not old for old, new in done.items()):

        def changed(op: Op) -> Op:
            return with_regions(op, [done.get(body, body) for body in op.regions]) if op.regions else op

        graph = replace(graph, ops=tuple(map(changed, graph.ops)))
    result = step.run(graph, **arguments)
    if not isinstance(result, Graph):
        raise IRError(f"it returned {'None' if result is None else f'a {type(result).__name__}'}, not a Graph")
    return result


def levels(pipeline: Pipeline, level: str) -> str:
    """The level of a graph of this level after a pipeline. IRError if one of the passes needs another one."""
    for name, _ in parse_pipeline(pipeline):
        step = find_pass(name)
        if why := _too_early(step, level):
            raise IRError(f"pass {name!r} {why}")
        if step.gives is not None and (step.needs == level or LEVELS.index(step.gives) > LEVELS.index(level)):
            level = step.gives
    return level


def _check_level(step: Pass, graph: Graph) -> None:
    if graph.level in LEVELS and (why := _too_early(step, graph.level)):
        raise IRError(f"@{graph.name}: it {why}")


def _too_early(step: Pass, level: str) -> str:
    """What is wrong with a graph of this level, if it is too early for the pass."""
    missing = LEVELS[LEVELS.index(level) + 1 : LEVELS.index(step.needs) + 1]
    if not missing:
        return ""
    before = ", ".join(_MAKES[made] for made in missing)
    return f"needs a graph of level {step.needs!r}, this one has {level!r}; run {before} before"


_MAKES = {"expanded": "expand", "legal": "legalize-broadcast", "fused": "fuse", "planned": "plan-memory"}
"""The pass that makes a graph of each level."""


def _check_options(step: Pass, options: Mapping[str, Any], target: Machine | None) -> Pass:
    for key in options:
        if key not in step.options:
            hint = did_you_mean(key, step.options) if step.options else "; it has none"
            raise IRError(f"pass {step.name!r} has no option {key!r}{hint}")
    if step.takes_target and target is None:
        raise IRError(f"pass {step.name!r} needs a target")
    return step


def _spelled(name: str, options: Mapping[str, Any]) -> str:
    return f"{name} {print_attrs(options)}" if options else name
