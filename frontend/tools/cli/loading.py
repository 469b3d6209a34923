"""Loading the arguments of commands: a block or function from a Python file, or a graph from a text file.

`FILE.py` is the user's own program and is run; no other file that is read here is executed.
"""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from gluonjit.ir.graph import Graph
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import IRError


def is_python(path: str) -> bool:
    """Whether the argument names something in a Python file: `FILE.py:NAME` or `FILE.py`."""
    return path.partition(":")[0].endswith(".py")


def load_python(reference: str) -> Any:
    """The object `FILE.py:NAME`; what the file imports as `mxnet` is gluonjit, as in `gluonjit exec`. IRError that
    lists the names in the file if there is no such object."""
    from gluonjit.tools.dropin import install_as_mxnet

    file, _, name = reference.partition(":")
    path = Path(file)
    if not path.is_file():
        raise IRError(f"there is no file {file or repr(file)}")
    install_as_mxnet(numpy_aliases=True)
    sys.path.insert(0, str(path.resolve().parent))  # as for `python FILE.py`
    try:
        with _without_arguments(file):
            names = runpy.run_path(file, run_name="gluonjit_model")
    except (Exception, SystemExit) as e:
        raise IRError(f"{file} failed{user_line(e, file)}: {type(e).__name__}: {e}") from e
    finally:
        sys.path.pop(0)
    public = [k for k, value in names.items() if not (k.startswith("_") or isinstance(value, ModuleType))]
    if not name:
        raise IRError(f"say which name of {file}: {file}:NAME, one of {', '.join(public)}")
    if name not in names:
        raise IRError(f"{file} defines no {name!r}{did_you_mean(name, public)}")
    return names[name]


@contextmanager
def _without_arguments(file: str) -> Iterator[None]:
    """While open, `sys.argv` is that of `python FILE.py`: a program that parses its arguments finds none."""
    given = sys.argv
    sys.argv = [file]
    try:
        yield
    finally:
        sys.argv = given


def user_line(error: BaseException, file: str) -> str:
    """` at line N` for the innermost line of `file` in the traceback."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == Path(file).name]
    return f" at line {lines[-1]}" if lines else ""


def load_block(reference: str) -> Any:
    """The initialized block that `FILE.py:NAME` names: a block, or a function without arguments that returns one."""
    from gluonjit.gluon import Block

    found = load_python(reference)
    block = found
    if callable(found) and not isinstance(found, Block):
        file = reference.partition(":")[0]
        try:
            with _without_arguments(file):
                block = found()
        except (Exception, SystemExit) as e:
            raise IRError(f"{reference}() failed{user_line(e, file)}: {type(e).__name__}: {e}") from e
    if not isinstance(block, Block):
        raise IRError(f"{reference} is a {type(block).__name__}, not a gluon Block, nor a function that returns one")
    if any(p._first is None and not p._deferred_init for p in block.collect_params().values()):
        block.initialize()
    return block


def read_text(path: str) -> str:
    """The file's text; `-` is standard input. IRError for bytes that are not text."""
    try:
        # Editors on Windows may begin a file with a byte order mark.
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as e:
        raise IRError(f"{path}: byte {e.start}: not UTF-8 ({e.reason}); expected a graph's text") from e


def load_graph(path: str, places: bool = False) -> Graph:
    """The graph in a text file, verified. Its constants may be in an `.npz` file next to it. `places`: see
    `parse_graph`."""
    import gluonjit.operators  # noqa: F401  (a graph of level `traced` names MXNet's operators)
    from gluonjit.ir.text import load, parse_graph
    from gluonjit.ir.verify import verify

    if not path:
        raise IRError("there is no file ''")
    try:
        is_piped = path == "-"
        graph = parse_graph(read_text(path), source="<stdin>", places=places) if is_piped else load(path, places=places)
    except UnicodeDecodeError as e:
        raise IRError(f"{path}: byte {e.start}: not UTF-8 ({e.reason}); expected a graph's text") from e
    verify(graph)
    return graph
