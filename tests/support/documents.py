"""Documents that are followed literally: their files are written, their programs and commands run, outputs compared.

In a document, a block of code is

* a file, if a line with nothing but its name, **`name`**, stands above it;
* a program, if its language is `python`: all of a document share their variables;
* commands, if its language is `sh`, one on a line, or on several that end with a backslash;
* what the block before it prints, if its language is `text`. `…` stands for any text in a line, a line `…` for any
  lines, and what was measured (52.1 ms, 4 %) may be another number. With `text measured`, every number may be another
  one, and the lines are some of those printed, in any order.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gluonjit.tools.cli import main

FENCED = re.compile(r"(?:^\*\*`(?P<file>[^`\n]+)`\*\*\n\n)?^```(?P<kind>[^\n`]*)\n(?P<text>.*?)^```$", re.M | re.S)
MEASURED = re.compile(r"\d[\d,.]*(?= ?(?:ns|µs|us|ms|s|%)(?!\w))(?: ?(?:ns|µs|us|ms|s))?")
QUICK = {
    "bench": ["--rounds", "1", "--seconds", "0.001"],
    "profile": ["--calls", "5"],
    "report": ["--calls", "5"],
}
"""What is added to commands that would measure for seconds, and prints the same but for numbers."""
NUMBER = re.compile(r"\d[\d,.]*(?: ?(?:ns|µs|us|ms|s|KiB|MiB|KB|MB|GB)(?!\w))?")


@dataclass
class Block:
    language: str
    text: str
    file: str = ""
    """The name of the file that it is, or ""."""
    measured: bool = False
    line: int = 1
    """Where its text begins in the document."""


def blocks(document: Path) -> list[Block]:
    """All blocks of code of a document, in order."""
    text = document.read_text(encoding="utf-8")
    out = []
    for found in FENCED.finditer(text):
        language, _, more = found["kind"].partition(" ")
        line = text.count("\n", 0, found.start("text")) + 1
        out.append(Block(language, found["text"], found["file"] or "", more == "measured", line))
    return out


def files(document: Path) -> dict[str, str]:
    return {block.file: block.text for block in blocks(document) if block.file}


def commands(block: Block) -> list[str]:
    return block.text.replace("\\\n", "").splitlines()


def follow(document: Path) -> dict[str, Any]:
    """Does in the current folder what a document says; AssertionError where it prints something else.

    Commands are those of `gluonjit`; others are an error. Returns the variables of the programs.
    """
    variables: dict[str, Any] = {"__name__": "document"}
    printed = ""
    for block in blocks(document):
        where = f"{document.name}:{block.line}"
        if block.file:
            path = Path(block.file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            # Lines of tracebacks and explanations are those of the document.
            source = "\n" * (block.line - 1) + block.text
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(source, document.name, "exec"), variables)
            printed = out.getvalue()
        elif block.language == "sh":
            printed = "".join(_said(command, where) for command in commands(block))
        elif block.language == "text":
            problem = difference(block.text, printed, measured=block.measured)
            assert not problem, f"{where}: {problem}"
    return variables


def _said(command: str, where: str) -> str:
    """What a command prints; a comment behind it begins with #, `|| true` says that it fails."""
    program, *words = shlex.split(command, comments=True)
    assert program == "gluonjit", f"{where}: {command}"
    fails = words[-2:] == ["||", "true"]
    words = words[:-2] if fails else words
    if words[0] == "exec":  # which changes what `import mxnet` means, in this process
        done = subprocess.run(
            [sys.executable, "-m", "gluonjit", *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        status, said = done.returncode, done.stdout
    else:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            status = main([*words, *QUICK.get(words[0], [])])
        said = out.getvalue()
    assert (status != 0) == fails, f"{where}: {command}\n{said}"
    return said


def difference(expected: str, printed: str, *, measured: bool = False) -> str:
    """ "" if `printed` is what a document says, else both."""
    if sys.version_info < (3, 11):  # which tells no columns of what it runs
        expected, printed = (re.sub(r"(\.py:\d+):\d+:", r"\1:", text) for text in (expected, printed))
    wanted, got = (_lines(text, NUMBER if measured else MEASURED) for text in (expected, printed))
    if measured:
        missing = [line for line in wanted if line != "…" and not any(re.fullmatch(_pattern(line), g) for g in got)]
        return f"not printed: {missing}\nprinted:\n{printed}" if missing else ""
    pattern = "".join(r"(?:.*\n)*" if line == "…" else f"{_pattern(line)}\n" for line in wanted)
    if re.fullmatch(pattern, "".join(f"{line}\n" for line in got)):
        return ""
    return f"the document says\n{expected}\nbut this was printed:\n{printed}"


def _lines(text: str, numbers: re.Pattern[str]) -> list[str]:
    """Without numbers, and with single spaces, as columns depend on how wide numbers are."""
    return [" ".join(numbers.sub("#", line).split()) for line in text.strip("\n").splitlines()]


def _pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("…"))
