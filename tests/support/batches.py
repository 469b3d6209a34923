"""Cases of one test function as one item of pytest.

pytest and its workers spend some 3 ms on each item, more than most of our cases take."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence

import pytest

from .limits import leaving_no_trace

AT_ONCE = 16
"""Cases of an item. More would make workers wait for the one that has the last item."""


def batched(items: list[pytest.Item], shared: Iterable[str]) -> list[pytest.Item]:
    """The items, those of a function in batches if its cases differ in parameters alone: without marks, and without
    fixtures but `shared` ones, which then serve all cases of a batch."""
    found: list[pytest.Item] = []
    for _, group in itertools.groupby(items, key=lambda item: _function(item, frozenset(shared))):
        cases = list(group)
        found += [_batch(cases[k : k + AT_ONCE]) for k in range(0, len(cases), AT_ONCE)]
    return found


def _function(item: pytest.Item, shared: frozenset[str]) -> object:
    """What cases of one batch have in common; the item itself if it has to stay alone."""
    if not isinstance(item, pytest.Function) or item.cls is not None or not hasattr(item, "callspec"):
        return item
    marks = list(item.iter_markers())
    if {mark.name for mark in marks} != {"parametrize"}:
        return item
    own = {name for mark in marks for name in _arguments(*mark.args, **mark.kwargs)}
    plain = own == set(inspect.signature(item.obj).parameters) and set(item.fixturenames) <= shared | own
    return item.obj if plain else item


def _arguments(
    argnames: str | Sequence[str], argvalues: object, indirect: object = False, **_: object
) -> Sequence[str]:
    """The arguments that `parametrize` gives the function. Others with parameters are fixtures."""
    names = argnames.replace(",", " ").split() if isinstance(argnames, str) else argnames
    return () if indirect else names


def _batch(cases: list[pytest.Item]) -> pytest.Item:
    first, last = cases[0], cases[-1]
    if len(cases) == 1:
        return first
    name = f"{first.name} to {last.name}"
    return pytest.Function.from_parent(first.parent, name=name, callobj=lambda: _run(cases))


def _run(cases: list[pytest.Item]) -> None:
    """Runs all, and fails with the report of each that does."""
    reports = list(_failures(cases))
    if reports:
        pytest.fail("\n".join(reports), pytrace=False)


def _failures(cases: list[pytest.Item]) -> Iterator[str]:
    skipped: list[str] = []
    for case in cases:
        try:
            with leaving_no_trace():
                case.obj(**case.callspec.params)
        except pytest.skip.Exception as e:
            skipped.append(f"{case.nodeid} was skipped: {e.msg}")
            if len(skipped) == len(cases):
                raise
        except (Exception, SystemExit, pytest.fail.Exception) as e:
            yield f"{case.nodeid}\n{case.repr_failure(pytest.ExceptionInfo.from_exception(e))}"
    if skipped:  # pytest counts the batch as passed
        warnings.warn("\n".join(skipped), pytest.PytestWarning, stacklevel=1)
