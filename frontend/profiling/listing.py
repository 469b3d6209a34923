"""A profile as text: tables for people."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence

import numpy as np

from gluonjit.common.quantities import bytes_text, count_text, noun_text, number_text, seconds_text
from gluonjit.files.array_names import shown
from gluonjit.profiling.advice import advice
from gluonjit.profiling.measured import Kernel, Layer, Profile, Program, percentile

_ADVISED = 3
"""The slowest layers of which a sentence tells what limits them."""


def text(profile: Profile, top: int = 20, kernels: bool = False) -> str:
    """What `gluonjit profile` prints. `top`: rows of each table; `kernels`: a row for each kernel, rather than for each
    layer."""
    if not profile.programs and not profile.compiling:
        return (
            "nothing was measured: no compiled code ran, or that of hybridize(tune=True), whose kernels cannot be; "
            "mx.profiler records operators that are called plainly\n"
        )
    parts = [_program(p, profile, top, kernels) for p in sorted(profile.programs, key=lambda p: -p.total)]
    parts.insert(0, _overview(profile))
    if profile.compiling:
        parts.append(_compiling(profile))
    return "\n".join(parts)


def columns(rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """The rows with aligned columns; the last `left` columns to the left, the others to the right."""
    rows = [[shown(cell) for cell in row] for row in rows]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    first = len(widths) - left
    lines = []
    for row in rows:
        cells = [c.ljust(w) if k >= first else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines


def where_text(file: str, line: int) -> str:
    """`file:line`, the file without what leads to it if it is below this folder or a long way off."""
    if not file:
        return ""
    here = os.path.relpath(file) if os.path.isabs(file) and os.path.splitdrive(file)[0] == "" else file
    if here.startswith(".."):
        here = os.path.join(*file.split(os.sep)[-2:])
    return f"{here}:{line}"


def _overview(profile: Profile) -> str:
    """The rounds, what else the machine did, and the programs if there are several."""
    lines = []
    rounds = profile.rounds
    if rounds is not None:
        inside = percentile(_parts_inside(profile), 0.5)
        lines.append(
            f"{rounds.number} rounds of {seconds_text(rounds.seconds)}, CPU time {seconds_text(rounds.cpu)} (medians; "
            f"90 % {seconds_text(rounds.ninety)}, 99 % {seconds_text(rounds.ninety_nine)}), "
            f"{number_text(1 / rounds.seconds)} per second; {100 * inside:.1f} % of it in compiled code"
        )
    if profile.use is not None and profile.busy:
        lines.append(
            f"The machine was busy: other programs used {profile.use.others:.1f} of its {profile.use.cores} cores, so "
            "times are longer than on an idle one."
        )
    if len(profile.programs) > 1:
        count = rounds.number if rounds is not None else 1
        rows = [("calls", "a call", "a round" if rounds is not None else "all", "%", "program")]
        sums = {id(p): len(p.calls) / count * p.seconds for p in profile.programs if p.part != "packing"}
        sums |= {id(p): p.total / count for p in profile.programs if p.part == "packing"}
        total = sum(sums.values())
        for p in sorted(profile.programs, key=lambda p: -sums[id(p)]):
            each, share = seconds_text(sums[id(p)]), f"{100 * sums[id(p)] / total:.1f}"
            rows.append((str(len(p.calls)), seconds_text(p.seconds), each, share, f"{shown(p.name)} ({p.part})"))
        rows.append(("", "", seconds_text(total), "100.0", "all of them"))
        lines += ["", *columns(rows, 1)]
    if (m := profile.step_memory) is not None:
        parts = ["parameters and data", "saved by forward, and results", "the largest arena", "gradients"]
        sizes = [f"{bytes_text(n)} {what}" for n, what in zip(m[:4], parts, strict=True)]
        states = "the optimizer's states, which are not known here"
        if m.states is not None:
            states = f"{bytes_text(m.states)} the optimizer's states"
        lines += ["", f"a step's memory at its peak: {bytes_text(m.peak)} = {' + '.join(sizes)} + {states}"]
    return "\n".join([*lines, ""]) if lines else ""


def _parts_inside(profile: Profile) -> list[float]:
    """The part of each lap that was spent in compiled code."""
    calls = np.array(sorted(call for p in profile.programs for call in p.calls)).reshape(-1, 2)
    spent = np.cumsum([0.0, *(calls[:, 1] - calls[:, 0])])
    laps = np.array([(lap.begin, lap.end) for lap in profile.laps])
    first, last = np.searchsorted(calls[:, 0], laps.T)
    return [float(part) for part in (spent[last] - spent[first]) / (laps[:, 1] - laps[:, 0])]


def _program(p: Program, profile: Profile, top: int, kernels: bool) -> str:
    inputs = ", ".join(p.inputs[:3]) + (f", … {len(p.inputs)} in all" if len(p.inputs) > 3 else "")
    calls = noun_text(len(p.calls), "call")
    on = noun_text(p.threads, "thread")
    if p.threads > 1 and min(p.thread_calls) < len(p.calls):
        on = f"up to {on}, {len(p.calls) - p.thread_calls[1]} of them on one"
    way = max(p.seconds - p.kernel_seconds - p.wait_seconds, 0.0)
    flops, nbytes = sum(k.flops for k in p.outer), sum(k.nbytes for k in p.outer)
    peak = profile.peaks.get(p.usual_threads, (0.0, 0.0))
    caches = ", so many come from caches" if 0 < peak[1] < nbytes / p.seconds else ""
    lines = [
        f"{shown(p.name)}({inputs}), {p.part}: {calls} on {on}",
        f"  a call: {seconds_text(p.seconds)} (median; 90 % {seconds_text(p.percentile(0.9))}, 99 % "
        f"{seconds_text(p.percentile(0.99))}); {number_text(1 / p.seconds)} per second",
        f"  of that in kernels {seconds_text(p.kernel_seconds)}, waiting for other threads "
        f"{seconds_text(p.wait_seconds)}, on the way in and out {seconds_text(way)}",
        f"  {count_text(flops, 'FLOP')} at {count_text(flops / p.seconds, 'FLOP/s')} (this machine reaches "
        f"{count_text(peak[0], 'FLOP/s')}), operands and results at {count_text(nbytes / p.seconds, 'B/s')} (memory: "
        f"{count_text(peak[1], 'B/s')}{caches})",
        "",
    ]
    things: list[Kernel] | list[Layer] = sorted(p.outer, key=lambda k: -k.share) if kernels else p.layers
    rows = [("time", "%", "wait", "GFLOP/s", "of peak", "GB/s", "expected", "layer", "line", *(("kernel",) * kernels))]
    for thing in things[:top]:
        names = (thing.path,) if isinstance(thing, Layer) else _what(thing)
        rows.append((*_numbers(thing, p, peak[0]), names[0], where_text(thing.file, thing.line), *names[1:]))
    head, *table = ("  " + line for line in columns(rows, 2 + kernels))
    lines.append(head)
    advised = [] if kernels else p.layers[: min(_ADVISED, top)]
    for line, layer in itertools.zip_longest(table, advised):
        lines += [line, f"      {advice(layer, p, peak, profile.busy)}"] if layer else [line]
    if len(things) > top:
        rest = sum(t.share for t in things[top:])
        lines.append(f"  … {len(things) - top} more, {seconds_text(rest)}, {100 * rest / p.seconds:.1f} %")
    loops = [k for k in p.kernels if k.inside is not None] if kernels else []
    if loops:
        lines.append("  in loops, branches and calls:")
        inner = [(*_numbers(k, p, peak[0]), *_what(k)) for k in sorted(loops, key=lambda k: -k.share)[:top]]
        lines += ["  " + line for line in columns(inner, 2)]
    return "\n".join([*lines, "", *_memory(p), ""])


def _what(k: Kernel) -> tuple[str, str]:
    """(layer, kernel)"""
    others = f" +{len(k.layers) - 1}" if len(k.layers) > 1 else ""
    times = f" × {k.times:.0f}" if k.times > 1 else ""
    return k.layer + others, f"{k.kind} {k.what}{times}"


def _numbers(thing: Kernel | Layer, p: Program, peak: float) -> tuple[str, ...]:
    rate = thing.flops / thing.share if thing.share else 0.0
    return (
        seconds_text(thing.share),
        f"{100 * thing.share / p.seconds:.1f}",
        seconds_text(thing.wait) if thing.wait else "",
        f"{rate / 1e9:.1f}" if thing.flops else "",
        f"{100 * rate / peak:.0f} %" if thing.flops and peak else "",
        f"{thing.nbytes / thing.share / 1e9:.1f}" if thing.share else "",
        seconds_text(thing.estimate / max(p.usual_threads, 1)),
    )


def _memory(p: Program) -> Iterator[str]:
    m = p.memory
    parts = [
        ("parameters", m.parameters, f" ({bytes_text(m.unread)} of them only to be packed)" if m.unread else ""),
        ("packed copies", m.packed, ""),
        ("constants", m.constants, ""),
        ("given", m.inputs, ""),
        ("results", m.results, ""),
        ("arena", m.arena, ""),
        ("scratch", m.scratch, ""),
    ]
    yield "  memory: " + ", ".join(f"{name} {bytes_text(n)}{more}" for name, n, more in parts if n)
    if m.tensors and m.arena:
        number, most = max(((k.number, live(p, k.number)) for k in p.outer), key=lambda pair: pair[1])
        there = sorted((t for t in m.tensors if t.first <= number <= t.last), key=lambda t: -t.nbytes)[:3]
        largest = ", ".join(f"{t.name} {bytes_text(t.nbytes)}" for t in there)
        yield shown(f"  the arena is fullest, {bytes_text(most)}, at {p.kernels[number].layer}: {largest}")


def live(program: Program, number: int) -> int:
    """Bytes of the arena that are in use while kernel `number` runs. What is computed in place shares memory."""
    spans = sorted((t.offset, t.offset + t.nbytes) for t in program.memory.tensors if t.first <= number <= t.last)
    total = end = 0
    for begin, stop in spans:
        total += max(0, stop - max(begin, end))
        end = max(end, stop)
    return total


def _compiling(profile: Profile) -> str:
    sums = profile.compile_seconds()
    passes = {name: s for name, s in sums.items() if name.startswith("pass ")}
    rows = [(seconds_text(s), name) for name, s in sums.items() if name not in passes]
    if passes:
        slowest = ", ".join(
            f"{name.removeprefix('pass ')} {seconds_text(s)}"
            for name, s in sorted(passes.items(), key=lambda pair: -pair[1])[:5]
        )
        rows.insert(0, (seconds_text(sum(passes.values())), f"passes: {slowest}"))
    head = "compiling (stages may overlap; LLVM is the sum over its threads):"
    return "\n".join([head, *("  " + line for line in columns(rows, 1)), ""])
