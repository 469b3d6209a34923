"""`Block.save` and `Block.load`: a tree of blocks as `prefix-model.json`, and its parameters.

    {"<class><number>": {"orig_name": name, "hybridized": bool, "children": {name of the child: its key, …},
                         "in_format", "out_format", "inputs", "symbol" (of a block that was traced),
                         "<class><number>": {…} (each child)}}

Blocks are numbered in depth-first order. The file does not describe how to construct the blocks: it must be loaded into
blocks that the same program has constructed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gluonjit.base import CheckpointError
from gluonjit.files import atomic, json_file

if TYPE_CHECKING:
    from gluonjit.gluon.base_block import Block

Entry = dict[str, Any]


def save(block: Block, prefix: str | os.PathLike[str]) -> None:
    """Writes `<prefix>-model.json` and `<prefix>-model.params`."""
    import json

    name = os.fspath(prefix)
    model: Entry = {}
    _describe(block, model, 0)
    block.save_parameters(f"{name}-model.params")
    atomic.write(f"{name}-model.json", [json.dumps(model).encode()])


def _describe(block: Block, parent: Entry, number: int) -> int:
    """Adds the block and its descendants to its parent's entry; returns the last number used."""
    entry: Entry = {"orig_name": block.name}
    parent[_key(block, number)] = entry
    entry.update(block._graph_entry())
    entry["children"] = {child.name: key for key, child in block._children.items()}
    for child in block._children.values():
        number = _describe(child, entry, number + 1)
    return number


def load(block: Block, prefix: str | os.PathLike[str]) -> None:
    """Loads names, parameters and hybridization from `<prefix>-model.json` and `<prefix>-model.params`.

    CheckpointError if the file is malformed or describes other blocks.
    """
    path = f"{os.fspath(prefix)}-model.json"
    model = json_file.decode(json_file.read(path), path, "a tree of blocks")
    _restore(block, model, 0, path)
    block.load_parameters(f"{os.fspath(prefix)}-model.params")


def _restore(block: Block, parent: Any, number: int, path: str) -> int:
    key = _key(block, number)
    entry = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(entry, dict):
        raise CheckpointError(f"{path}: there is no block {key}; expected the blocks of {block.name}")
    name, keys = entry.get("orig_name"), entry.get("children")
    if not isinstance(name, str) or not isinstance(keys, dict):
        raise CheckpointError(f"{path}: {key}: no name or no children; expected orig_name and children")
    _rename(block, name)
    if entry.get("hybridized") is True:
        block._active = True
    children = {}
    for child in block._children.values():
        number = _restore(child, entry, number + 1, path)
        place = keys.get(child.name)
        if not isinstance(place, str):
            raise CheckpointError(f"{path}: {key}: no child {child.name}; expected {', '.join(map(str, keys))}")
        children[place] = child
    block._children.clear()
    block._children.update(children)
    block._structure_changed(f"{path} was loaded")
    return number


def _rename(block: Block, name: str) -> None:
    """Renames a block, and its parameters whose names have its prefix."""
    if name == block.name:
        return
    old, new = block.prefix, f"{name}_"
    params = block.params._params
    renamed = {new + key[len(old) :] if key.startswith(old) else key: param for key, param in params.items()}
    for key, param in renamed.items():
        param.name = key
        param._var = None
    params.clear()
    params.update(renamed)
    block._name, block._prefix, block.params._prefix = name, new, new


def _key(block: Block, number: int) -> str:
    return f"{type(block).__name__.lower()}{number}"
