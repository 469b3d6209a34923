"""Prefixes of blocks: blocks created inside `with block.name_scope():` get that block's prefix before their own.

Outside any scope, the current `NameManager` numbers blocks (`dense0_`, `dense1_`, for the whole program); inside one,
the scope does.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from gluonjit import name as names
from gluonjit.gluon.parameter import ParameterDict

if TYPE_CHECKING:
    from gluonjit.gluon.base_block import Block


class _Open(threading.local):
    """This thread's open scopes, innermost last, each with the name manager it installed."""

    def __init__(self) -> None:
        self.stack: list[tuple[BlockScope, names.Prefix]] = []


_open = _Open()


class BlockScope:
    """The result of `block.name_scope()`: counts the children created inside it, per hint.

    The counts of child blocks continue from one `with` to the next; those of operator names start anew.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._counter: dict[str, int] = {}

    def __enter__(self) -> BlockScope:
        if not self._block._empty_prefix:  # a block without a prefix opens no scope: names continue in the outer one
            prefix = names.Prefix(self._block.prefix)
            prefix.__enter__()
            _open.stack.append((self, prefix))
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._block._empty_prefix:
            _, prefix = _open.stack.pop()
            prefix.__exit__(*exc)


def name_block(prefix: str | None, params: ParameterDict | None, hint: str) -> tuple[str, ParameterDict]:
    """(full prefix of a new block, its own empty parameter dictionary).

    `params`, if given, is the dictionary of the block to share parameters with: its prefix is used for their names.
    """
    scope = _open.stack[-1][0] if _open.stack else None
    if prefix is None:
        if scope is None:
            prefix = names.current().get(None, hint) + "_"
        else:
            count = scope._counter.get(hint, 0)
            scope._counter[hint] = count + 1
            prefix = f"{hint}{count}_"
    if scope is None:
        own = ParameterDict(prefix) if params is None else ParameterDict(params.prefix, params)
        return prefix, own
    parent = scope._block
    if params is None:
        own = ParameterDict(parent.params.prefix + prefix, parent.params._shared)
    else:
        own = ParameterDict(params.prefix, params)
    return parent.prefix + prefix, own
