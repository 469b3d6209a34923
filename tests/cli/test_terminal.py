"""Colours and the pager of dumps."""

import contextlib
import io
import os
import re
import shlex
import sys
import threading

import pytest

from gluonjit.ir.highlight import GraphLexer, as_html
from gluonjit.runtime import progress
from gluonjit.tools.cli import main
from gluonjit.tools.cli.terminal import escaping

GRAPH = 'graph @g(%x: f32[2,n], %"a b": bf16[]) {\n  %y: f32[2,n] = mul(%x, %x) loc("m.py":3)\n  return %y\n}\n'
ANSI = re.compile(r"\x1b\[[\d;]*m")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Runs a command on a terminal of so many lines; what it shows there."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("PAGER", "no-such-pager")

    def run(*arguments, lines=30):
        monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((80, lines)))
        with contextlib.redirect_stdout(Terminal()) as stdout:
            assert main(["opt", *arguments, "-p", ""]) == 0
        return stdout.getvalue()

    return run


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "g.ir"
    path.write_text(GRAPH)
    return str(path)


def test_colours_on_a_terminal(terminal, file):
    printed = terminal(file, "--locs")
    assert ANSI.sub("", printed) == GRAPH
    assert len(ANSI.findall(printed)) > 10


def test_no_colours_if_not_wanted(terminal, file, monkeypatch):
    assert terminal(file, "--locs", "--color", "never") == GRAPH
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal(file, "--locs") == GRAPH


def test_colours_in_a_pipe_only_on_demand(file, capsys):
    assert main(["opt", file, "-p", "", "--locs"]) == 0
    assert capsys.readouterr().out == GRAPH
    assert main(["opt", file, "-p", "", "--color", "always"]) == 0
    assert ANSI.search(capsys.readouterr().out)


def test_without_pygments(terminal, file, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pygments", None)
    assert terminal(file, "--locs") == GRAPH
    assert main(["opt", file, "-p", "", "--color", "always"]) == 1
    assert 'pip install "gluonjit[color]"' in capsys.readouterr().err


def test_names_cannot_steer_a_coloured_terminal(terminal, tmp_path):
    (tmp_path / "g.ir").write_text('graph @g(%"\\u001b[2Jx": f32[2]) { return %"\\u001b[2Jx" }')
    assert "\x1b[2J" not in terminal(str(tmp_path / "g.ir"))


@pytest.fixture
def pager(monkeypatch, tmp_path):
    """The file in which a pager keeps what it is given. `terminal` comes first, as it sets another one."""
    (tmp_path / "pager.py").write_text(f"import sys\nopen({str(tmp_path / 'paged')!r}, 'w').write(sys.stdin.read())\n")
    monkeypatch.setenv("PAGER", shlex.join([sys.executable, str(tmp_path / "pager.py")]))
    return tmp_path / "paged"


def test_what_is_longer_than_the_terminal_goes_through_the_pager(terminal, pager, file):
    assert terminal(file, "--locs", "--color", "never", lines=3) == ""
    assert pager.read_text() == GRAPH


def test_what_does_not_go_through_the_pager(terminal, pager, file):
    assert terminal(file, "--locs", "--color", "never") == GRAPH
    assert terminal(file, "--locs", "--color", "never", "--no-pager", lines=3) == GRAPH
    assert not pager.exists()


def test_without_a_pager_it_is_printed(terminal, file):
    assert terminal(file, "--locs", "--color", "never", lines=3) == GRAPH


def test_a_pager_that_is_left_early_is_no_error(terminal, tmp_path, monkeypatch):
    ops = "".join(f"  %y{k} = neg(%x)\n" for k in range(5000))  # more than a pipe holds
    (tmp_path / "long.ir").write_text(f"graph (%x: f32[2]) {{\n{ops}  return %x\n}}\n")
    monkeypatch.setenv("PAGER", shlex.join([sys.executable, "-c", "import sys; sys.stdin.close()"]))
    assert terminal(str(tmp_path / "long.ir"), lines=3) == ""


def test_every_character_is_kept():
    tokens = list(GraphLexer(stripnl=False).get_tokens(GRAPH))
    assert "".join(text for _, text in tokens) == GRAPH
    kinds = {text: str(kind) for kind, text in tokens}
    assert kinds["f32[2,n]"] == "Token.Keyword.Type"
    assert kinds['%"a b"'] == "Token.Name.Variable"
    assert kinds["mul"] == "Token.Name.Function"
    assert "<script" not in as_html('graph @"<script>"() { return }', "gluonjit")


def test_a_line_that_shows_progress_is_drawn_over_again(monkeypatch):
    """What the command line prints is escaped; the line goes past that, without what a name could do."""
    monkeypatch.setattr(progress, "_AFTER", 0.0)
    monkeypatch.setattr(progress, "_EVERY", 0.001)
    drawn = threading.Event()
    monkeypatch.setattr(Terminal, "flush", lambda stream: drawn.set())
    with contextlib.redirect_stderr(Terminal()) as stderr, escaping():
        with progress.Progress("a\x1bb", ["fold"]):
            assert drawn.wait(60)
        print("a\rb", file=sys.stderr)
    assert stderr.getvalue().startswith("\rcompiling a?b ") and stderr.getvalue().endswith("\x1b[Ka\\rb\n")


def test_progress_of_reducing(file, capsys):
    with contextlib.redirect_stderr(Terminal()) as stderr:
        assert main(["opt", file, "-p", "", "--reduce", "grep -q mul {}"]) == 0
    assert re.fullmatch(r"(\r\d+ ops, \d+ graphs tried )+\r\x1b\[K1 ops reduced to 1\n", stderr.getvalue())
