"""Where native code finds what belongs to CPython."""

from __future__ import annotations

import ctypes
import functools


@functools.cache
def member_offset(cls: type, slot: str) -> int:
    """Byte offset of a `__slots__` member, read from its descriptor (PyMemberDescrObject.d_member->offset)."""
    descriptor = next(base.__dict__[slot] for base in cls.__mro__ if slot in base.__dict__)
    member = ctypes.c_void_p.from_address(id(descriptor) + 40).value
    return ctypes.c_ssize_t.from_address(member + 16).value  # type: ignore[operator]


def python_function(name: str) -> int:
    """The address of a function of CPython's API."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
