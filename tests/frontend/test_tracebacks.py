"""What is printed when an exception ends a program: the user's lines, not the hundred of this package between them."""

import sys
import traceback
from types import SimpleNamespace

import pytest

import gluonjit as mx
from gluonjit import _tracebacks as tracebacks
from gluonjit.gluon import nn
from gluonjit.ir.text import parse_graph


@pytest.fixture
def printed(monkeypatch, capsys):
    """What the interpreter would print for an exception."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.delenv("GLUONJIT_TRACEBACK", raising=False)
    tracebacks.install()

    def printed(fail):
        with pytest.raises(BaseException) as caught:
            fail()
        error = caught.value
        whole = error.__traceback__
        sys.excepthook(type(error), error, whole)
        assert error.__traceback__ is whole  # a debugger sees all of it
        return capsys.readouterr().err

    return printed


class Wrong(mx.gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.reshape(x, shape=(7, 7))


def hybridized():
    block = nn.HybridSequential()
    block.add(Wrong())
    block.hybridize()
    block(mx.nd.ones((2, 3)))


def test_the_users_lines_are_left(printed, monkeypatch):
    text = printed(hybridized)
    assert "frames of gluonjit left out; GLUONJIT_TRACEBACK=full shows all" in text.splitlines()[0]
    assert "block(mx.nd.ones((2, 3)))" in text and "return F.reshape(x, shape=(7, 7))" in text
    assert "cached_call.py" not in text and "Cannot reshape array of size 6" in text.splitlines()[-3]
    monkeypatch.setenv("GLUONJIT_TRACEBACK", "full")
    assert "cached_call.py" in printed(hybridized)


def test_an_exception_of_the_users_own_function(printed):
    """It goes through the package's frames, and is raised in the user's."""
    text = printed(lambda: mx.nd.contrib.foreach(lambda x, state: {}["key"], mx.nd.ones((2, 3)), []))
    assert text.startswith("(") and text.endswith("KeyError: 'key'\n") and "imperative" not in text


def test_what_raised_it_is_shortened_too(printed):
    def fail():
        try:
            hybridized()
        except mx.MXNetError as e:
            raise ValueError("no model") from e

    text = printed(fail)
    assert "direct cause" in text and "cached_call.py" not in text


def test_what_raised_it_inside_of_the_package_has_no_frames(printed):
    """The user's frames are those of the exception that came of it."""
    text = printed(lambda: parse_graph("graph @g(%x: f32[2]) {\n  %y = epx(%x)\n  return %y\n}"))
    assert "During handling" in text and "did you mean" in text and "parser.py" not in text


def test_ipython_shows_the_users_lines(monkeypatch, capsys):
    """It does not use `sys.excepthook`; of a shell, only what is used here is imitated."""

    class Shell:
        custom_exceptions = ()
        InteractiveTB = SimpleNamespace()

        def set_custom_exc(self, kinds, handler):
            self.handler = handler

        def showtraceback(self, error, tb_offset):
            print("".join(traceback.format_exception(*error)), tb_offset)

    shell = Shell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.setattr(sys, "last_traceback", None, raising=False)
    tracebacks.install()
    with pytest.raises(mx.MXNetError) as caught:
        hybridized()
    shell.handler(shell, caught.type, caught.value, caught.tb, tb_offset=1)
    text = capsys.readouterr().out
    assert "return F.reshape(x, shape=(7, 7))" in text and "cached_call.py" not in text
    assert shell.InteractiveTB.tb is caught.value.__traceback__ is caught.tb  # for %debug


def test_a_fault_of_the_package_keeps_its_frames(printed, monkeypatch):
    monkeypatch.delattr("gluonjit.trace.recorder.Recorder.within")
    text = printed(hybridized)
    assert "AttributeError" in text and "recorder.py" in text and "left out" not in text


def stale():
    net = nn.Dense(2)
    net.initialize()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd")
    net(mx.nd.ones((2, 3)))
    trainer.step(1)


@pytest.mark.parametrize(
    ("fail", "error"),
    [
        (lambda: nn.LeakyReLU(-1), "AssertionError: Slope coefficient"),
        (lambda: mx.nd.sigmod, "AttributeError: module 'gluonjit.ndarray' has no attribute 'sigmod'"),
        (stale, "UserWarning: Gradient of Parameter"),
    ],
    ids=["AssertionError", "AttributeError", "UserWarning"],
)
def test_other_errors_that_tell_something(printed, fail, error):
    """MXNet's programs catch these types."""
    text = printed(fail)
    assert error in text and "of gluonjit left out" in text and "/frontend/" not in text.replace(__file__, "")


def test_an_assertion_of_the_package_keeps_its_frames(printed, monkeypatch):
    package = {"__name__": "gluonjit.trace.recorder"}
    exec("def within(self, *given):\n    assert given == 0", package)
    monkeypatch.setattr("gluonjit.trace.recorder.Recorder.within", package["within"])
    text = printed(hybridized)
    assert "AssertionError" in text and "cached_call.py" in text and "left out" not in text
