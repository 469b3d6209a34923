"""Guards: whether a trace, and code that was made of it, are right for the arguments of a call.

The call's key (`KEY` of `Arguments`) tells codes apart. The guards are about the rest: what the program asked for while
it ran, the arrays that it holds, and memory that arguments share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gluonjit.base import TraceError
from gluonjit.context import Context, cpu
from gluonjit.ir.types import TensorType, type_of
from gluonjit.ndarray import NDArray

if TYPE_CHECKING:
    from gluonjit.trace.tracing import Trace


class Arguments(NamedTuple):
    """The arrays among the arguments of a call, and what else its meaning depends on."""

    leaves: Sequence[NDArray]
    form: Any
    """How they are nested (`language.forms`)."""
    shapes: tuple[Any, ...]
    """Their shapes and element types."""
    kinds: tuple[bool, ...]
    """Which of them are arrays of `mx.np`."""
    training: bool
    recorded: bool
    """Whether the call is recorded, if a trace has depended on that."""
    device: Context | None
    """Where they are; None is cpu(0)."""
    recording: bool
    """Whether the call is recorded."""

    @property
    def types(self) -> list[TensorType]:
        return [type_of(x._array) for x in self.leaves]


KEY = slice(1, 7)
"""The part of `Arguments` that makes a key: all that the code of a call depends on, but for guards. The device comes
last."""


def held(known: Trace, types: Sequence[TensorType], call: Arguments) -> list[NDArray] | None:
    """The arrays that the program holds, for a call with the key of code for these types; None if a guard forbids that
    it runs this code."""
    if known.context_fact or known.recording_fact:
        if not on_device(known, call.device) or not while_recording(known, call.recording):
            return None
    device = call.device
    arrays = [p._value_on(device) if device is not None or p._plain is None else p._plain for p in known.params]
    arrays += known.captured
    for x, t in zip(arrays, types[len(call.leaves) :]):
        if x._array.shape != t.shape or x._array.dtype != t.dtype.numpy:
            return None
    return arrays if not known.writes or shares_memory_alike(known, call) else None


def admits(known: Trace, types: Sequence[TensorType], call: Arguments) -> bool:
    """Whether the trace is right for a call with arguments of these types, which it may never have seen."""
    return not why_not(known, types, call)


def why_not(known: Trace, types: Sequence[TensorType], call: Arguments) -> str:
    """What the trace depends on that is different in a call; '' if nothing is."""
    if known.form != call.form or known.in_kinds != call.kinds:
        return "the arguments are nested in another way"
    if not while_recording(known, call.recording):
        return "the program asks whether the call is recorded"
    if not on_device(known, call.device):
        return "the program asks for the device"
    if broken := known.broken(types, call.training):
        return broken
    if not shares_memory_alike(known, call):
        return "other arguments share memory, and the program writes to some"
    return ""


def on_device(known: Trace, device: Context | None) -> bool:
    """Whether the trace is right for arguments on this device (None: cpu(0))."""
    return not known.context_fact or known.context == (device or cpu(0))


def while_recording(known: Trace, recording: bool) -> bool:
    """Whether the trace is right for calls that are recorded, or not."""
    return not known.recording_fact or recording == known.recording


def shares_memory_alike(known: Trace, call: Arguments) -> bool:
    """Whether, if the program writes to some of the arrays, the same ones share memory as when it ran."""
    return not known.writes or alias_pattern([x._array for x in (*call.leaves, *known.captured)]) == known.aliases


def alias_pattern(arrays: Sequence[Any]) -> tuple[int, ...]:
    """For each ndarray, the position of the first one on the same memory.

    TraceError for two that overlap without being the same: a write to one would change a part of the other.
    """
    pattern: list[int] = []
    for k, x in enumerate(arrays):
        for j in dict.fromkeys(pattern):
            y = arrays[j]
            if not np.may_share_memory(x, y):
                continue
            if (
                x.shape == y.shape
                and x.dtype == y.dtype
                and x.__array_interface__["data"] == y.__array_interface__["data"]
            ):
                pattern.append(j)
                break
            raise TraceError(
                f"inputs {j} and {k} of a hybridized block that writes to its inputs overlap in memory; pass copies"
            )
        else:
            pattern.append(k)
    return tuple(pattern)
