"""What a message of gRPC costs, from its bytes, before anything is made of them."""

from __future__ import annotations

import functools
import time

from gluonjit.tools.serving.grpc_messages import MESSAGES, SCALARS

_FIELD_COST = 256
"""Bytes that a field takes: the largest message in a message, and Python's view of it."""
_PACKED_COST = 16
"""The most memory that packed numbers take, in bytes per byte: one byte may be a number of eight bytes, and so may its
copy in an array."""
_BYTES_COST = 2


class Malformed(Exception):
    """These bytes are no message, or one with too many fields."""


def cost(body: bytes, name: str, most_fields: int) -> int:
    """Bytes of memory that the message takes when it is parsed. Raises Malformed."""
    total, fields = 0, 0
    waiting = [(name, 0, len(body))]
    while waiting:
        name, at, end = waiting.pop()
        kinds = _kinds(name)
        while at < end:
            fields += 1
            if fields > most_fields:
                raise Malformed(f"the message has more than {most_fields} fields")
            if fields % 256 == 0:
                time.sleep(0)
            tag, at = _varint(body, at, end)
            wire = tag & 7
            if wire == 0:
                _, at = _varint(body, at, end)
            elif wire == 1:
                at += 8
            elif wire == 5:
                at += 4
            elif wire == 2:
                length, at = _varint(body, at, end)
                kind = kinds.get(tag >> 3)
                if kind is None or kind in ("string", "bytes"):
                    total += _BYTES_COST * length
                elif kind in SCALARS:
                    total += _PACKED_COST * length
                else:
                    waiting.append((kind, at, at + length))
                at += length
            else:
                raise Malformed("this is not the method's message")
            if at > end:
                raise Malformed("this is not the method's message")
    return total + fields * _FIELD_COST


def _varint(body: bytes, at: int, end: int) -> tuple[int, int]:
    """(the number, where it ends)"""
    found = shift = 0
    while at < end and shift < 70:
        byte = body[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return found, at
        shift += 7
    raise Malformed("this is not the method's message")


@functools.cache
def _kinds(name: str) -> dict[int, str]:
    """The types of a message's fields, by their numbers. `map X` is an entry of a map to X."""
    if name.startswith("map "):
        return {1: "string", 2: name.removeprefix("map ")}
    return {
        number: type if type.startswith("map ") else type.rpartition(" ")[2] for number, type in MESSAGES[name].values()
    }
