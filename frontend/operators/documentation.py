"""Docstrings of operators that tables declare, in the form of all operators' docstrings:

    First line: what the result is

    Shapes: inputs (their shapes) -> the result's shape

    Formula and its source; what is refused.

    >>> mx.nd.example(…).asnumpy()
    array([…], dtype=float32)

Examples are run by `tests/operators/test_documentation.py`, with `mx` and `np` imported.
"""

from __future__ import annotations

import re
from textwrap import fill

ELEMENTWISE = "data (any) -> the same"


def documented(first: str, shapes: str, *rest: str) -> str:
    """A docstring of a first line, a line of shapes, and further paragraphs, the last of which is an example."""
    return "\n\n".join([first, f"Shapes: {shapes}", *rest])


def filled(text: str) -> str:
    """A docstring whose paragraphs of one long line are broken into lines of 116 characters."""
    parts = text.split("\n\n")
    kept = (len(part) < 117 or "\n" in part or part.startswith(">>>") for part in parts)
    return "\n\n".join(part if keep else fill(part, 116) for keep, part in zip(kept, parts))


def example(call: str, numbers: str) -> str:
    """The doctest of a call whose result is float32. `numbers` are the result as NumPy prints it, to three decimals."""
    rounded = ".round(3)" if re.search(r"\.\d{3}", numbers) else ""
    return f">>> {call}.asnumpy(){rounded}\narray({numbers}, dtype=float32)"


def on(numbers: str) -> str:
    """An operand of an example."""
    return f"mx.nd.array({numbers})"


def of_numpy(legacy: str, note: str) -> str:
    """The docstring of a function of `mx.np`, from that of the operator of `mx.nd` that it extends."""
    first, *_, call = legacy.split("\n\n")
    return documented(first, "x (any) -> the same", note, call.replace("mx.nd.", "mx.np."))
