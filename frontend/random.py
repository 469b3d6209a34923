"""`mx.random`: the seed, the state, and the functions of `mx.nd.random`."""

from __future__ import annotations

from typing import Any

from gluonjit import ndarray
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.language.rng import forked, get_state, next_key, reserve, seed, set_state

__all__ = ["forked", "get_state", "next_key", "reserve", "seed", "set_state"]


def __getattr__(name: str) -> Any:
    """`mx.random.uniform` and its like are `mx.nd.random`'s."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(ndarray.random, name)
    except AttributeError:
        raise _mxnet_names.no_attribute(__name__, name, dir(ndarray.random)) from None


_mxnet_names.explain(__name__)
