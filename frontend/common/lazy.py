"""Attributes that are computed when they are first read."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property  # noqa: TID251
else:

    class cached_property(functools.cached_property):  # noqa: TID251
        """Python's, as it is from 3.12 on: before, it held a lock, one for all objects of the class, while it computed.
        In a process that was forked meanwhile, nobody would ever release that."""

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value
