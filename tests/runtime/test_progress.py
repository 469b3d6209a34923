"""The line that a long compilation shows on a terminal."""

import io
import threading

from gluonjit.runtime import progress
from gluonjit.runtime.progress import Progress


class Terminal(io.StringIO):
    def __init__(self):
        super().__init__()
        self.written = threading.Event()

    def isatty(self):
        return True

    def flush(self):
        self.written.set()


def test_line(monkeypatch):
    monkeypatch.setattr(progress, "_AFTER", 0.0)
    monkeypatch.setattr(progress, "_EVERY", 0.001)
    terminal = Terminal()
    with Progress("net", ["fold", "cse", "fold", "code"], terminal) as p:
        p.done("fold")
        p.done("cse")
        assert terminal.written.wait(60)
        assert "compiling net" in p.line() and p.line().endswith("fold") and "█" * 12 + "·" * 12 in p.line()
        p.done("fold")
        assert p.line().endswith("code")
        p.done("unknown")
        p.done("code")
        assert "·" not in p.line()
    text = terminal.getvalue()
    assert "compiling net" in text and text.endswith("\r\x1b[K")  # and is gone in the end


def test_other_work_than_compiling():
    assert Progress("net", ["calls"], io.StringIO(), doing="measuring").line().startswith("measuring net ")


def test_a_step_of_many_parts():
    with Progress("net", ["fold", *["code"] * 4, "end"], io.StringIO()) as p:
        shares = []
        for share in (0.0, 0.2, 0.6, 0.3, 1.5):
            p.part("code", share)
            shares.append(p.line().count("█"))
        assert shares == [0, 0, 12, 12, 20]  # of 24: one never goes back
        p.part("end", 1)
        assert "·" not in p.line()


def test_nothing_for_a_short_one():
    terminal = Terminal()
    with Progress("net", ["fold"], terminal) as p:
        p.done("fold")
    assert terminal.getvalue() == ""


def test_nothing_elsewhere(monkeypatch):
    monkeypatch.setattr(progress, "_AFTER", 0.0)
    closed = io.StringIO()
    closed.close()
    for stream in (io.StringIO(), closed):
        with Progress("net", ["fold"], stream) as p:
            assert p._painter is None
    monkeypatch.setattr("sys.stderr", None)
    with Progress("net", ["fold"]) as p:
        assert p._painter is None


def test_an_error_ends_it(monkeypatch):
    monkeypatch.setattr(progress, "_AFTER", 0.0)
    terminal = Terminal()
    try:
        with Progress("net", ["fold"], terminal) as p:
            raise KeyError
    except KeyError:
        assert not p._painter.is_alive()
