"""Remarks: what a pass left undone, and why, for people who ask. Passes make them while somebody listens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from gluonjit.ir.graph import Op


class Remark(NamedTuple):
    op: Op
    why: str

    @property
    def what(self) -> str:
        """`conv %name: f32[2,3]`"""
        result = self.op.results[0]
        return f"{self.op.name} %{result.name}: {result.type}" if result.name else f"{self.op.name}: {result.type}"


_heard: ContextVar[list[Remark] | None] = ContextVar("remarks", default=None)


@contextmanager
def listening() -> Iterator[list[Remark]]:
    """A context that collects this thread's remarks, in the order in which they are made."""
    found: list[Remark] = []
    token = _heard.set(found)
    try:
        yield found
    finally:
        _heard.reset(token)


def missed(op: Op, why: str) -> None:
    """Notes that a pass left `op` as it is; `why` follows "because"."""
    heard = _heard.get()
    if heard is not None:
        heard.append(Remark(op, why))
