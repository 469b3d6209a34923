"""Tests end, and leave the process as they found it."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import support
from support.limits import leaving_no_trace, limited


def test_what_hangs_fails():
    with pytest.raises(pytest.fail.Exception, match=r"hangs: 0.05 s have passed"), limited(0.05):
        threading.Event().wait(60)


def test_limits_nest():
    with limited(60):
        with limited(30):
            pass
        with pytest.raises(pytest.fail.Exception, match="hangs"), limited(0.05):
            threading.Event().wait(60)


def test_native_code_that_does_not_return_ends_the_process():
    code = """if True:
        import ctypes
        from support import limits
        limits._REARMED = 0.05
        limits.end_when_stuck(0.05)
        ctypes.PyDLL(None).sleep(60)  # which keeps the GIL
    """
    folder = Path(support.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=50)
    assert done.returncode == 1 and "Timeout" in done.stderr


def test_traces_are_found(monkeypatch):
    monkeypatch.delenv("GLUONJIT_TRACE", raising=False)
    with pytest.raises(AssertionError, match="left otherwise than found: environment"), leaving_no_trace():
        monkeypatch.setenv("GLUONJIT_TRACE", "1")
    with leaving_no_trace():
        os.environ["GLUONJIT_TRACE"] = "2"
        os.environ["GLUONJIT_TRACE"] = "1"
