"""Tracing: from `hybrid_forward`, run once on symbols whose types are known, to a graph.

`trace(block, args)` is the way in and `Trace` what it gives. `state`, which all of the front end asks, must be cheap
to import and free of cycles: the rest loads when first used.
"""

from typing import TYPE_CHECKING, Any

from gluonjit.language.running import current_trace

if TYPE_CHECKING:
    from gluonjit.trace.tracing import Trace, alias_pattern, flatten, parameter_shapes, trace

__all__ = ["Trace", "alias_pattern", "current_trace", "flatten", "parameter_shapes", "trace"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gluonjit.trace import tracing

    return getattr(tracing, name)
