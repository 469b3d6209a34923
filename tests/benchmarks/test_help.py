"""Each benchmark says how it is called, rather than that it begins to measure."""

import runpy
import sys

import pytest

INSIDE = {"minimax", "model", "requirements", "startup_process", "worker"}
"""Programs that other ones run, or that measure nothing."""


def test_help(root, monkeypatch, capsys):
    names = [p.stem for p in (root / "benchmarks").glob("*.py") if 'if __name__ == "__main__"' in p.read_text()]
    assert set(names) > INSIDE
    for name in sorted(set(names) - INSIDE):
        monkeypatch.setattr(sys, "argv", [name, "--help"])
        monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(f"benchmarks.{name}", run_name="__main__")
        said = " ".join(capsys.readouterr().out.split())
        assert ended.value.code == 0, name
        assert said.startswith(f"usage: python -m benchmarks.{name} "), name
        assert "example: " in said and f"python -m benchmarks.{name}" in said.partition("example: ")[2], name
