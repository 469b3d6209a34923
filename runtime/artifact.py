"""Compiled code as bytes: what the object cache keeps in a file.

    magic (16 bytes) · SHA-256 of the rest (32) · length of the header (8, little endian) · header · objects · constants

The header is JSON: the graph's interface (`codegen.interface.Interface`), and where in the rest things lie. Reading
executes nothing, and every byte is covered by the sum, so a file that was cut off, or damaged, is recognized.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gluonjit.codegen.interface import Interface, Layout, Prepare
from gluonjit.ir.dims import Dim, Extent, parse
from gluonjit.ir.types import DTYPES, IRError, TensorType, type_of

_MAGIC = b"gluonjit object4"
_START = len(_MAGIC) + 32


class Corrupt(Exception):
    """The bytes are not what `pack` made for the key."""


@dataclass
class Artifact:
    name: str
    """What it was made of, for people."""
    objects: list[bytes]
    interface: Interface | None = None
    """None for code that is not a graph's."""
    relies: bool = False
    """For a kernel: whether it relies on open dimensions not being 1 (`ir.dims.relying`)."""
    facts: Any = None
    """What is known about code, as JSON."""


def pack(key: str, artifact: Artifact) -> bytes:
    arrays: list[np.ndarray] = []
    header: dict[str, Any] = {"key": key, "name": artifact.name, "objects": [len(o) for o in artifact.objects]}
    if artifact.interface is not None:
        header["interface"] = _interface_to_json(artifact.interface, arrays)
    if artifact.relies:
        header["relies"] = True
    if artifact.facts is not None:
        header["facts"] = artifact.facts
    header["arrays"] = [_type_to_json(type_of(a)) for a in arrays]
    text = json.dumps(header).encode()
    parts = [len(text).to_bytes(8, "little"), text, *artifact.objects, *(a.tobytes() for a in arrays)]
    rest = b"".join(parts)
    return _MAGIC + hashlib.sha256(rest).digest() + rest


def unpack(key: str, data: bytes) -> Artifact:
    """Raises Corrupt unless `pack` made these very bytes, for this key."""
    digest = hashlib.sha256(memoryview(data)[_START:]).digest()
    if data[:_START] != _MAGIC + digest:
        raise Corrupt
    try:
        header, at = _header(data)
        if header["key"] != key:
            raise Corrupt
        objects = []
        for size in header["objects"]:
            if size < 0:
                raise Corrupt
            objects.append(data[at : at + size])
            at += size
        arrays = []
        for t in map(_type_from_json, header["arrays"]):
            arrays.append(np.frombuffer(data, t.dtype.numpy, t.size, at).reshape(t.shape))
            at += t.nbytes
        interface = _interface_from_json(header["interface"], arrays) if "interface" in header else None
        return Artifact(header["name"], objects, interface, bool(header.get("relies")), header.get("facts"))
    except (
        ValueError,
        LookupError,
        TypeError,
        OverflowError,
        RecursionError,
        IRError,
    ) as e:  # a sum that fits what is not a header
        raise Corrupt from e


def name_of(beginning: bytes) -> str:
    """The name in an artifact of which the first bytes are given; '' if they do not say."""
    try:
        return str(_header(beginning)[0]["name"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    """(the header, where it ends)"""
    begin = _START + 8
    end = begin + int.from_bytes(data[_START:begin], "little")
    return json.loads(data[begin:end]), end


def _type_to_json(t: TensorType) -> list[Any]:
    return [t.dtype.name, *map(_extent_to_json, t.shape)]


def _type_from_json(words: list[Any]) -> TensorType:
    return _type(*words)


@functools.lru_cache(maxsize=1024, typed=True)
def _type(name: str, *shape: int | str) -> TensorType:
    """Kept, because layers repeat each other's types, and parameters are read in several places."""
    return TensorType(DTYPES[name], tuple(map(_extent_from_json, shape)))


def _extent_to_json(n: Extent) -> int | str:
    return str(n) if isinstance(n, Dim) else n


def _extent_from_json(word: int | str) -> Extent:
    return parse(word) if isinstance(word, str) else word


def _layout_to_json(layout: Layout, arrays: list[np.ndarray]) -> dict[str, Any]:
    arrays += layout.constants
    return {
        "inputs": [_type_to_json(t) for t in layout.input_types],
        "results": [_type_to_json(t) for t in layout.result_types],
        "arena": _extent_to_json(layout.arena),
        "constants": len(layout.constants),
        "prepared": layout.prepared,
        "scratch": _extent_to_json(layout.scratch),
        "threads": layout.threads,
        "cost": _extent_to_json(layout.cost),
        "dims": layout.dims,
        "ready": layout.ready,
    }


def _layout_from_json(words: dict[str, Any], arrays: list[np.ndarray]) -> Layout:
    """Takes the constants off the front of `arrays`."""
    count = words["constants"]
    constants = tuple(arrays[:count])
    del arrays[:count]
    return Layout(
        tuple(map(_type_from_json, words["inputs"])),
        tuple(map(_type_from_json, words["results"])),
        _extent_from_json(words["arena"]),
        constants,
        words["prepared"],
        _extent_from_json(words["scratch"]),
        words["threads"],
        _extent_from_json(words["cost"]),
        tuple(words["dims"]),
        tuple(words["ready"]),
    )


def _interface_to_json(interface: Interface, arrays: list[np.ndarray]) -> dict[str, Any]:
    return {
        "main": _layout_to_json(interface.main, arrays),
        "outputs": interface.n_outputs,
        "calls_host": interface.calls_host,
        "unread": interface.unread,
        "lowest": interface.lowest,
        "prepares": [
            {
                "name": p.name,
                "layout": _layout_to_json(p.layout, arrays),
                "inputs": p.inputs,
                "slots": p.slots,
                "same": p.key,
            }
            for p in interface.prepares
        ],
    }


def _interface_from_json(words: dict[str, Any], arrays: Sequence[np.ndarray]) -> Interface:
    left = list(arrays)
    main = _layout_from_json(words["main"], left)
    prepares = tuple(
        Prepare(p["name"], _layout_from_json(p["layout"], left), tuple(p["inputs"]), tuple(p["slots"]), p["same"])
        for p in words["prepares"]
    )
    return Interface(main, words["outputs"], prepares, words["calls_host"], tuple(words["unread"]), words["lowest"])
