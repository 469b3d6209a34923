"""Tracing: from `hybrid_forward`, run once on symbols whose types are known, to a graph.

`trace(program, args)` is the way in and `Trace` what it gives.
"""

from gluonjit.language.running import current_trace
from gluonjit.trace.tracing import Trace, alias_pattern, flatten, parameter_shapes, trace

__all__ = ["Trace", "alias_pattern", "current_trace", "flatten", "parameter_shapes", "trace"]
