"""The programs and commands in docs/profiling.md run."""

import re
import shlex
from pathlib import Path

from gluonjit.tools.cli import main


def blocks(language):
    root = Path(__file__).parents[2]
    return re.findall(rf"```{language}\n(.*?)```", (root / "docs" / "profiling.md").read_text(), re.S)


def test_programs(capsys):
    programs = blocks("python")
    assert len(programs) == 2
    exec(compile("\n".join(programs), "docs/profiling.md", "exec"), {"__name__": "profiling"})
    assert "backward net/" in capsys.readouterr().out


def test_commands(capsys, monkeypatch, tmp_path):
    root = Path(__file__).parents[2]
    commands = [line for line in blocks("")[0].splitlines() if line.startswith("gluonjit ")]
    assert len(commands) == 3
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(root / "examples")
    for line in commands:
        assert main([*shlex.split(line)[1:], "--calls", "1"]) == 0
    assert (tmp_path / "trace.json").stat().st_size and (tmp_path / "stacks.txt").stat().st_size
    assert "conv2" in capsys.readouterr().out
