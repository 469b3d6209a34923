"""The programs and commands in docs/onnx.md run."""

import re
import shlex

import pytest

from gluonjit.tools.cli import main

pytest.importorskip("onnx", reason="the extra onnx is not installed")


def blocks(root, language):
    return re.findall(rf"```{language}\n(.*?)```", (root / "docs" / "onnx.md").read_text(), re.S)


def test_the_programs_run(root, tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    monkeypatch.chdir(tmp_path)
    programs = blocks(root, "python")
    assert len(programs) == 3
    exec(compile("\n".join(programs), "docs/onnx.md", "exec"), {"__name__": "onnx_document"})
    assert capsys.readouterr().out.strip() == programs[-1].splitlines()[-1].partition("# ")[2]


def test_the_commands_run(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(root / "examples")
    commands = [line for line in blocks(root, "")[0].splitlines() if line]
    assert len(commands) == 4
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0
