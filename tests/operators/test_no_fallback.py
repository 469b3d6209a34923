"""Compiled graphs compute by native code alone, but for the operators that say otherwise.

`test_registry.py` looks at the graphs of all operators.
"""

import pytest

from gluonjit.codegen.target import host
from gluonjit.codegen.text import llvm
from gluonjit.ir import opdef
from gluonjit.operators.registry import OPERATORS
from gluonjit.tools.cli import main


def test_host_operators():
    """Whoever adds one has to say why."""
    assert {op.name: op.host for op in OPERATORS.values() if op.host} == {"Custom": "it is written in Python"}
    assert {name for name, op in opdef.REGISTRY.items() if op.level == "host"} == {"host_call", "check_index"}


def test_code_that_calls_anything_else_is_refused():
    text = """declare void @numpy_saves_the_day()
    define void @main() { call void @numpy_saves_the_day() ret void }"""
    data = llvm.compile_module(text, host())
    if not llvm.undefined_symbols(data):
        pytest.skip("symbols are read from ELF objects only")
    with pytest.raises(Exception, match="the object calls numpy_saves_the_day, which nothing provides"):
        llvm.load(data)


def test_listed(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    main(["ops"])
    marked = [line for line in capsys.readouterr().out.splitlines() if "(compiled code calls Python)" in line]
    assert [line.split()[0] for line in marked] == ["Custom"]
    main(["ops", "Custom"])
    assert "Compiled code calls Python for it: it is written in Python" in capsys.readouterr().out
