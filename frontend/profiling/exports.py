"""Profiles as files for other tools: a timeline for Perfetto or chrome://tracing, stacks for flame graphs."""

from __future__ import annotations

from typing import Any

from gluonjit.files.array_names import shown
from gluonjit.profiling.listing import live
from gluonjit.profiling.measured import Kernel, Profile

_CALLS, _COMPILER, _ROUNDS = 1, 2, 3
"""Processes, which is what the viewers call groups of threads."""


def trace_events(profile: Profile) -> dict[str, Any]:
    """The events of the calls whose timelines were kept, the stages of compiling and the rounds, in Chrome's trace
    format: a JSON object, with times in microseconds."""
    events: list[dict[str, Any]] = []
    for pid, name in ((_CALLS, "calls"), (_COMPILER, "compiling"), (_ROUNDS, "rounds")):
        events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})

    def add(pid: int, tid: int, name: str, kind: str, begin: float, end: float, **args: Any) -> None:
        events.append({"ph": "X", "pid": pid, "tid": tid, "name": name, "cat": kind, "ts": begin * 1e6,
                       "dur": (end - begin) * 1e6, "args": args})  # fmt: skip

    for stage in profile.compiling:
        add(_COMPILER, stage.thread, stage.name, "compiling", stage.begin, stage.begin + stage.seconds)
    for number, lap in enumerate(profile.laps):
        add(_ROUNDS, 0, f"round {number}", "round", lap.begin, lap.end)
    for p in profile.programs:
        kept = p.calls[len(p.calls) - len(p.timeline) :]
        for (begin, end), line in zip(kept, p.timeline, strict=True):
            add(_CALLS, 0, f"{p.name} ({p.part})", "call", begin, end)
            for event in line:
                if event.kernel is None:
                    add(_CALLS, event.thread, "wait", "wait", event.begin, event.end)
                    continue
                k = p.kernels[event.kernel]
                add(_CALLS, event.thread, k.layer, k.kind, event.begin, event.end, **_about(k))
        for event in p.timeline[-1] if p.timeline else ():
            if event.thread == 0 and event.kernel is not None:
                used = {"bytes": live(p, event.kernel)}
                events.append({"ph": "C", "pid": _CALLS, "name": f"arena of {p.name} ({p.part})",
                               "ts": event.begin * 1e6, "args": used})  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _about(k: Kernel) -> dict[str, Any]:
    return {"kernel": k.symbol, "what": k.what, "line": k.where, "parts": ", ".join(k.layers)}


def folded(profile: Profile) -> str:
    """A line for each kernel, and for the waiting after it: the program, the steps of the layer's path and the kernel,
    with semicolons between them, then nanoseconds of all calls, if all were like the median one. flamegraph.pl and
    speedscope.app read it."""
    lines = []
    for p in profile.programs:
        for k in p.kernels:
            above = [k]
            while above[-1].inside is not None:
                above.append(p.kernels[above[-1].inside])
            frames = [f"{p.name} ({p.part})", *k.layer.split("/")]
            frames += [f"{outer.kind} {outer.what}" for outer in reversed(above)]
            inner = [o for o in p.kernels if o.inside == k.number]
            spent = (
                ("", k.busy - sum(o.busy for o in inner)),
                ("waiting for other threads", k.wait - sum(o.wait for o in inner)),
            )
            for leaf, seconds in spent:
                count = round(seconds / p.seconds * p.total * 1e9)
                if count > 0:
                    stack = ";".join(shown(f).replace(";", ",") for f in [*frames, *([leaf] if leaf else [])])
                    lines.append(f"{stack} {count}")
    return "\n".join(lines) + "\n" if lines else ""
