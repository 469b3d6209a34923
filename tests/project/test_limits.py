"""Tests end, and leave the process as they found it."""

import os
import threading

import pytest

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


def test_traces_are_found(monkeypatch):
    monkeypatch.delenv("GLUONJIT_TRACE", raising=False)
    with pytest.raises(AssertionError, match="left otherwise than found: environment"), leaving_no_trace():
        monkeypatch.setenv("GLUONJIT_TRACE", "1")
    with leaving_no_trace():
        os.environ["GLUONJIT_TRACE"] = "2"
        os.environ["GLUONJIT_TRACE"] = "1"
