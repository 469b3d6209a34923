"""Tables in `docs/*.md` that are made of declarations: `python docs/site/tables.py` writes them anew.

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`. A test fails while one is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING
from pathlib import Path

from gluonjit.ir.annotations import ANNOTATIONS
from gluonjit.ir.kernels import Plan, all_kernels

DOCS = Path(__file__).resolve().parent.parent
_TABLE = re.compile(r"(<!-- table: ([\w ]+) -->\n).*?(<!-- end of table -->\n)", re.DOTALL)


def main() -> None:
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (new := written(text)) != text:
            path.write_text(new, encoding="utf-8")
            print(path)


def written(text: str) -> str:
    """The text of a document with its tables as they should be."""
    return _TABLE.sub(lambda m: f"{m[1]}{TABLES[m[2]]()}{m[3]}", text)


def _table(heads: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines) + "\n"


def kernels() -> str:
    """What there is, the products first."""

    def rows() -> Iterator[Sequence[str]]:
        for kernel in _computing():
            place = "yes" if kernel.may_overwrite else ""
            yield f"`{kernel.kernel}`", _line(kernel.purpose()), kernel.shares, kernel.strides, place

    return _table(("kernel", "for", "threads share", "takes strides of", "in place"), rows())


def plans() -> str:
    """What is decided for each."""

    def rows() -> Iterator[Sequence[str]]:
        for kernel in _computing():
            for name, part in kernel.parts().items():
                default = "" if part.default is MISSING else f"`{part.default}`"
                yield f"`{kernel.kernel}`", f"`{name}`", part.meaning, default

    return _table(("kernel", "field", "what it is", "default"), rows())


def annotations() -> str:
    rows = ((f"`{a.name}`", a.type, f"`{a.level}`", a.meaning) for a in ANNOTATIONS.values())
    return _table(("annotation", "type", "from level", "meaning"), rows)


def _computing() -> list[type[Plan]]:
    found = [kernel for kernel in all_kernels().values() if kernel.computes]
    return sorted(found, key=lambda kernel: (not kernel.is_product, kernel.kernel))


def _line(text: str) -> str:
    return " ".join(text.split())


TABLES: dict[str, Callable[[], str]] = {"kernels": kernels, "plans": plans, "annotations": annotations}

if __name__ == "__main__":
    main()
