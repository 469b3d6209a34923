"""The pytest plug-in: collects golden cases of passes from files `*.ir` (`gluonjit.tools.golden`).

It is found by its entry point wherever gluonjit is installed, and imports nothing of it before there is such a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gluonjit")
    group.addoption("--update-ir", action="store_true", help="rewrite what the golden cases in *.ir files expect")


def pytest_configure(config: pytest.Config) -> None:
    # A file holds many cases; two workers that rewrite it would lose each other's changes.
    if config.getoption("--update-ir") and config.getoption("numprocesses", default=None):
        raise pytest.UsageError("--update-ir rewrites files: run it in one process (-n 0)")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix != ".ir":
        return None
    try:
        text = file_path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None  # other programs, too, have files of this name
    return IrFile.from_parent(parent, path=file_path) if "// RUN:" in text else None


class IrFile(pytest.File):
    """A file of golden cases."""

    def collect(self) -> Iterator[IrCase]:
        import gluonjit.operators  # noqa: F401  (declares the operators that `expand` replaces)
        from gluonjit.tools.golden import read_cases

        seen: dict[str, int] = {}
        for case in read_cases(self.path.read_text(encoding="utf-8")):
            again = seen[case.title] = seen.get(case.title, -1) + 1
            yield IrCase.from_parent(self, name=f"{case.title}{f' ({again})' if again else ''}", case=case)


class IrCase(pytest.Item):
    """One golden case."""

    def __init__(self, *, case: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case = case

    def runtest(self) -> None:
        if not self.config.getoption("--update-ir"):
            self.case.check()
            return
        from gluonjit.tools.golden import read_cases, updated

        # All cases of the file, as another one may have rewritten it since it was read.
        text = updated(read_cases(self.path.read_text(encoding="utf-8")))
        self.path.write_text(text, encoding="utf-8")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from gluonjit.ir.types import IRError
        from gluonjit.tools.golden import Mismatch

        if isinstance(excinfo.value, (Mismatch, IRError)):
            return f"{self.path}:{self.case.line}: {self.case.pipeline}\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.case.line - 1, f"{self.path.stem}: {self.name}"
