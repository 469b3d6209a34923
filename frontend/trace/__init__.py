"""Tracing: runs `hybrid_forward` once on symbols of known type, and records a graph.

The entry point is `trace(program, args)`; it returns a `Trace`.
"""

from gluonjit.language.running import current_trace
from gluonjit.trace.guards import alias_pattern
from gluonjit.trace.tracing import Trace, flatten, parameter_shapes, trace

__all__ = ["Trace", "alias_pattern", "current_trace", "flatten", "parameter_shapes", "trace"]
