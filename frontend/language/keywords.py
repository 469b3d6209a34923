"""Suggestions for misspelt keywords of constructors, of blocks and optimizers.

Constructors pass the keywords that they do not take on to their base class. Python's own error for a misspelt one names
the base class and suggests nothing, or names a required argument that seems to be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import CO_VARKEYWORDS, unwrap
from typing import Any

from gluonjit.ir.opdef import did_you_mean


def suggesting(init: Callable[..., None]) -> Callable[..., None]:
    """Decorates `__init__`: its TypeError for a keyword that no constructor of the object takes suggests another."""

    @wraps(init)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except TypeError as e:
            known = _keywords(type(self))
            unknown = [key for key in kwargs if key not in known and (repr(key) in str(e) or "missing" in str(e))]
            if not unknown:
                raise
            raise unexpected(type(self), unknown[0]) from None

    return wrapper


def unexpected(kind: type, keyword: str) -> TypeError:
    """The error for a keyword that no constructor of the class takes; it names a similar one, or else all of them."""
    known = _keywords(kind)
    hint = did_you_mean(keyword, known) or f"; known: {', '.join(known)}"
    return TypeError(f"{kind.__name__}() got an unexpected keyword argument {keyword!r}{hint}")


def _keywords(kind: type) -> list[str]:
    """The names of the arguments that the constructors of a class take, without repetitions."""
    return [*dict.fromkeys(_arguments(kind))]


def _arguments(kind: type) -> Iterator[str]:
    for c in kind.__mro__:
        code = getattr(unwrap(vars(c)["__init__"]), "__code__", None) if "__init__" in vars(c) else None
        if code is not None:
            yield from code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
            if not code.co_flags & CO_VARKEYWORDS:
                return
