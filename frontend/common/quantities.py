"""Quantities as people write them: `1.23 ms`, `4.5 MiB`, `21,400`, never `2.14e+04`."""

from __future__ import annotations


def seconds_text(seconds: float) -> str:
    """A time with about three digits and a unit."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return f"{seconds / unit:.{max(0, 2 - len(str(int(seconds / unit))) + 1)}f} {name}"
    return f"{seconds * 1e9:.0f} ns"


def noun_text(number: int, one: str, more: str = "") -> str:
    """`1 place`, `2 places`. `more`: what `one` is called where there is another number of them."""
    return f"{number} {one if number == 1 else more or f'{one}s'}"


def bytes_text(nbytes: float) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.1f} {name}"
    return f"{nbytes:.0f} B"


def number_text(number: float) -> str:
    """A number with three digits, or with all of those before the point, in groups of three."""
    if abs(number) >= 100:
        return f"{number:,.0f}"
    return f"{number:.3f}".rstrip("0").rstrip(".") if abs(number) < 1 else f"{number:.3g}"


def count_text(number: float, unit: str = "") -> str:
    """A number of operations, or of bytes per second, with decimal prefixes: `1.82 GFLOP/s`, `1.82 G`."""
    for prefix, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{number / size:.2f} {prefix}{unit}"
    return f"{number:.0f} {unit}".rstrip()
