"""Where in the program an operator comes from: the path of its block, and the line that a user recognises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def block_paths(root: Any) -> dict[int, str]:
    """The path of the block and of each one inside it, by id: `net/features/stage1/0/conv2`.

    A step is the attribute that holds the block. Where that is a mere number, as in a Sequential, it is the block's own
    name if it has one: its prefix without the outer block's. A block in several places has the first one's path.
    """
    found: dict[int, str] = {}
    waiting = [(root, root.name or "net")]
    while waiting:
        block, path = waiting.pop()
        if id(block) in found:
            continue
        found[id(block)] = path
        if block._children:
            steps = _steps(block.name, block._children)
            waiting += reversed([(child, f"{path}/{step}") for step, child in steps.items()])
    return found


def _steps(outer: str, children: Mapping[str, Any]) -> dict[str, Any]:
    """The blocks in a block of the name `outer`, each by its step of the path; no two are equal."""
    steps: dict[str, Any] = {}
    for key, child in children.items():
        step = key
        if key.isdecimal():
            name = child.name
            own = name.removeprefix(outer).lstrip("_") if name.startswith(outer) else name
            if own and own not in steps and own not in children:
                step = own
        steps[step] = child
    return steps
