"""`sym.load` and `sym.load_json`: graphs from MXNet's `-symbol.json` files."""

from __future__ import annotations

import os

from gluonjit.symbol import json_reader
from gluonjit.symbol.symbol import Symbol

__all__ = ["fromjson", "load", "load_json"]


def load(fname: str | os.PathLike[str]) -> Symbol:
    """The graph in a file that `Symbol.save` or MXNet (0.8 or later) wrote.

    Raises CheckpointError for a malformed file, MXNetError for one that cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (mx.sym.var("x") + 1).save(f"{folder}/net-symbol.json")
    ...     mx.sym.load(f"{folder}/net-symbol.json").list_arguments()
    ['x']
    """
    if not isinstance(fname, (str, os.PathLike)):
        raise TypeError("fname need to be string")
    return Symbol(json_reader.read(fname))


def load_json(json_str: str) -> Symbol:
    """`load` for the contents of a file.

    >>> mx.sym.load_json((mx.sym.var("x") + 1).tojson()).list_arguments()
    ['x']
    """
    if not isinstance(json_str, str):
        raise TypeError("fname required to be string")
    return Symbol(json_reader.parse(json_str, "<string>"))


fromjson = load_json
