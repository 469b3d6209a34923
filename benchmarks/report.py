"""The rows of a run as text, as Markdown and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import Row, best_peer, counts, geometric_mean, peers_of


def time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def ours(row: Row) -> str:
    """`27.1 ms, 286 GFLOP/s (98 % of multiply-adds), cpu/wall 1.00, error 3e-07`"""
    facts = row["ours"]
    rate = row["flop"] / facts["seconds"]
    return (
        f"{time(facts['seconds'])}, {rate / 1e9:.1f} GFLOP/s ({rate / row['limits']['flops']:.0%} of multiply-adds), "
        f"cpu/wall {facts['cpu']:.2f}, error {facts['error']:.0e}"
    )


def peer(row: Row, name: str) -> str:
    """`30.6 ms, 1.15 times ours (1.14 to 1.17; 15 pairs), cpu/wall 1.00`"""
    p = row["peers"][name]
    text = f"{time(p['seconds'])}, {p['ratio']:.3f} times ours ({p['low']:.2f} to {p['high']:.2f}; {p['pairs']} pairs"
    text += f", {p['dropped']} disturbed)" if p["dropped"] else ")"
    return f"{text}, cpu/wall {p['cpu']:.2f}" + (", NOT COUNTED: too often disturbed" if p["disturbed"] else "")


def summary(rows: Sequence[Row]) -> str:
    return _columns(_HEAD, [_cells(row) for row in rows])


def _columns(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *lines)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(cells, widths)).rstrip() for cells in [head, *lines])


def markdown(rows: Sequence[Row], machine: dict[str, Any]) -> str:
    names = peers_of(rows)
    mean = geometric_mean(rows)
    parts = [
        f"Measured on {machine['cpu']}. A ratio is the best peer's time by ours, the median over neighbouring turns. "
        "cpu/wall is CPU time by wall time, ours and the peer's. Errors are against float64, by the largest value."
        + (f" Geometric mean of the ratios: {mean:.2f}." if mean else ""),
        _table(_HEAD, map(_cells, rows)),
        "Every peer's time by ours (in brackets: disturbed, so they do not count):",
        _table(["", "threads", *names], (_ratios(row, names) for row in rows)),
    ]
    versions = {name: row["peers"][name]["version"] for row in rows for name in names if name in row["peers"]}
    if versions:
        parts.append("Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".")
    skipped = sorted({f"{name}: {why}" for row in rows for name, why in row["skipped"].items()})
    if skipped:
        parts.append("Left out:\n\n" + "\n".join(f"- {text}" for text in skipped))
    return "\n\n".join(parts) + "\n"


_HEAD = "workload,threads,ours,GFLOP/s,of peak,best peer,its time,ratio,goal,cpu/wall,error".split(",")


def _cells(row: Row) -> list[str]:
    facts, best = row["ours"], best_peer(row)
    rate = row["flop"] / facts["seconds"]
    cells = [f"{row['workload']} {row['title']}", str(row["threads"]), time(facts["seconds"])]
    cells += [f"{rate / 1e9:.1f}", f"{rate / row['limits']['flops']:.0%}"]
    if best is None:
        return [*cells, "", "", "", _goal(row), f"{facts['cpu']:.2f}", f"{facts['error']:.0e}"]
    p = row["peers"][best]
    missed = row["goal"] is not None and p["ratio"] < row["goal"]
    met = " (disturbed)" if not counts(row) else " (missed)" if missed else ""
    cells += [best, time(p["seconds"]), f"{p['ratio']:.2f}", f"{_goal(row)}{met}"]
    return [*cells, f"{p['base_cpu']:.2f} {p['cpu']:.2f}", f"{facts['error']:.0e}"]


def _goal(row: Row) -> str:
    return "none" if row["goal"] is None else f"{row['goal']:.2f}"


def _ratios(row: Row, names: Sequence[str]) -> list[str]:
    return [row["workload"], str(row["threads"]), *(_ratio(row, name) for name in names)]


def _ratio(row: Row, name: str) -> str:
    p = row["peers"].get(name)
    if p is None:
        return "–"
    return f"({p['ratio']:.2f})" if p["disturbed"] else f"{p['ratio']:.2f}"


def training_ours(row: Row) -> str:
    """`27.1 ms (best 26.8), 286 GFLOP/s, first step 4.1 s, 310 MB`"""
    facts = row["ours"]
    return (
        f"{time(facts['seconds'])} (best {time(facts['best'])}), {row['flop'] / facts['seconds'] / 1e9:.1f} GFLOP/s, "
        f"first step {facts['first']:.2f} s, {facts['memory'] / 1e6:.0f} MB"
    )


def training_peer(row: Row, name: str) -> str:
    """`30.6 ms, 1.15 times ours (…), cpu/wall 1.00; best 30.1 ms, first step 7.1 s, 410 MB, losses differ by 3e-06, the
    first two by 1e-07`"""
    p = row["peers"][name]
    return (
        f"{peer(row, name)}; best {time(p['best'])}, first step {p['first']:.2f} s, {p['memory'] / 1e6:.0f} MB, "
        f"losses differ by {p['difference']:.0e}, the first two by {p['early']:.0e}"
    )


_TRAINING_HEAD = "step,threads,ours,its best,GFLOP/s,of peak,best peer,its time,ratio,MXNet / ours".split(",")


def _training_cells(row: Row) -> list[str]:
    facts, name, rate = row["ours"], best_peer(row), row["flop"] / row["ours"]["seconds"]
    cells = [f"{row['workload']} {row['title']}", str(row["threads"]), time(facts["seconds"]), time(facts["best"])]
    cells += [f"{rate / 1e9:.1f}", f"{rate / row['limits']['flops']:.0%}"]
    cells += [name, time(row["peers"][name]["seconds"]), _ratio(row, name)] if name else ["", "", ""]
    missed = "mxnet" in row["peers"] and row["peers"]["mxnet"]["ratio"] < row["goal"]
    return [*cells, _ratio(row, "mxnet") + " (missed)" * missed]


def training(rows: Sequence[Row]) -> str:
    return _columns(_TRAINING_HEAD, [_training_cells(row) for row in rows])


def training_markdown(rows: Sequence[Row], machine: dict[str, Any]) -> str:
    """Times, memory, first steps and losses."""
    names = peers_of(rows)
    versions = {name: row["peers"][name]["version"] for row in rows for name in names if name in row["peers"]}
    skipped = sorted({f"{name}: {why}" for row in rows for name, why in row["skipped"].items()})
    parts = [
        f"Measured on {machine['cpu']}. Times are medians over turns (the best turn beside them), ratios a peer's time "
        "by ours: the median over neighbouring turns.",
        _table(_TRAINING_HEAD, map(_training_cells, rows)),
        "Every peer's time by ours (in brackets: disturbed, so they do not count):",
        _table(["", "threads", *names], (_ratios(row, names) for row in rows)),
        "Seconds until the first step has ended (import, data and compilation included):",
        _table(["", "threads", "gluonjit", *names], (_facts(row, names, "first", "{:.2f}", 1.0) for row in rows)),
        "The most memory a process had until then, in MB:",
        _table(["", "threads", "gluonjit", *names], (_facts(row, names, "memory", "{:.0f}", 1e-6) for row in rows)),
        "The largest relative difference between a peer's first losses and ours:",
        _table(["", "threads", *names], (_facts(row, names, "difference", "{:.0e}", 1.0, False) for row in rows)),
        "The same of the first two steps, before rounding has grown:",
        _table(["", "threads", *names], (_facts(row, names, "early", "{:.0e}", 1.0, False) for row in rows)),
    ]
    if versions:
        parts.append("Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".")
    if skipped:
        parts.append("Left out:\n\n" + "\n".join(f"- {text}" for text in skipped))
    return "\n\n".join(parts) + "\n"


def _facts(row: Row, names: Sequence[str], key: str, form: str, scale: float, with_ours: bool = True) -> list[str]:
    of = [row["peers"].get(name) for name in names]
    cells = [
        form.format(facts[key] * scale) if facts and key in facts else "–"
        for facts in ([row["ours"]] if with_ours else []) + of
    ]
    return [row["workload"], str(row["threads"]), *cells]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def picture(rows: Sequence[Row], path: Path) -> None:
    """Flop per second of each workload, ours and the best peer's, beside the machine's limits; by number of threads.

    Nothing without matplotlib, which is only needed for this.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    counts = sorted({row["threads"] for row in rows})
    figure = Figure(figsize=(10, 4.2 * len(counts)), layout="constrained")
    for axes, threads in zip(figure.subplots(len(counts), 1, squeeze=False)[:, 0], counts):
        _rates(axes, [row for row in rows if row["threads"] == threads])
        axes.set_title(f"{threads} thread{'s' * (threads > 1)}")
    figure.savefig(path, dpi=100)


def _rates(axes: Any, rows: Sequence[Row]) -> None:
    places = range(len(rows))
    flops, bandwidth = (max(row["limits"][limit] for row in rows) / 1e9 for limit in ("flops", "bandwidth"))
    axes.axhline(flops, color="black", linewidth=1, label=f"multiply-adds, {flops:.0f} GFLOP/s")
    # All a call reads and writes, from memory. What stays in a cache from call to call can be faster.
    limits = [bandwidth * row["flop"] / row["bytes"] for row in rows]
    ends = [k - 0.4 for k in places], [k + 0.4 for k in places]
    axes.hlines(limits, *ends, color="black", linestyle="--", linewidth=1, label=f"memory, {bandwidth:.0f} GB/s")
    bests = [(k, row, best) for k, row in enumerate(rows) if (best := best_peer(row))]
    theirs = [row["flop"] / row["peers"][best]["seconds"] / 1e9 for _, row, best in bests]
    axes.plot([k for k, *_ in bests], theirs, "x", color="tab:red", label="best peer")
    ours = [row["flop"] / row["ours"]["seconds"] / 1e9 for row in rows]
    axes.plot(places, ours, "o", color="tab:blue", label="gluonjit")
    names = [row["title"].replace(",", " ").split()[0] for row in rows]
    axes.set_xticks(places, [f"{row['workload']}\n{name}" for row, name in zip(rows, names)], fontsize=7)
    axes.set(yscale="log", ylabel="GFLOP/s", ylim=(min(ours) / 2, 4 * flops))
    axes.legend(loc="lower center", ncols=4, fontsize=8)
    axes.grid(True, axis="y", alpha=0.3)
