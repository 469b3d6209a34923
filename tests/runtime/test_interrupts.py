"""Ctrl-C while something is compiled ends the call at once, and the next call has the right answer."""

import _thread
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

import gluonjit as mx
from gluonjit.base import MXNetError
from gluonjit.codegen.text import compile_parts, llvm
from gluonjit.common.aside import aside, check
from gluonjit.gluon import nn
from gluonjit.ir.types import IRError
from gluonjit.passes import manager
from gluonjit.runtime import cache

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals for threads here")

PREAMBLE = """
import gc, os, signal, sys, threading, time
import numpy as np
import gluonjit as mx
from gluonjit.gluon import nn

signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["GLUONJIT_CACHE"] = "0"
x = mx.nd.ones((2, 5))
net = nn.Dense(4, in_units=5)
net.initialize()
want = net(x).asnumpy()

def ctrl_c():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

def interrupted(*args):
    try:
        net(*args)
    except KeyboardInterrupt:
        return True

def is_right():
    return bool(abs(net(x).asnumpy() - want).max() < 1e-6)
"""


def process(code):
    """Runs the code behind PREAMBLE in a new interpreter, which must end well; what it prints."""
    quiet = ["-W", "ignore:This process:DeprecationWarning"]  # Python 3.12 warns of forks beside threads
    command = [sys.executable, *quiet, "-c", PREAMBLE + textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.fixture
def ctrl_c():
    """A function that presses it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def test_answers_and_errors():
    assert aside(lambda: threading.current_thread() is not threading.main_thread())
    with pytest.raises(ValueError, match="what went wrong"):
        aside(lambda: int("what went wrong"))
    inside = []
    other = threading.Thread(target=lambda: inside.append(aside(threading.current_thread)))
    other.start()
    other.join()
    assert inside == [other]  # only the main thread is ever interrupted
    check()


@pytest.mark.parametrize("wait", ["net(x)", "net.compile(x)", "recorded"])
def test_compiling_ends(monkeypatch, object_cache, ctrl_c, wait):
    net, x = nn.Dense(4, in_units=5), mx.nd.ones((2, 5))
    net.initialize()
    wanted = net(x).asnumpy()
    net.hybridize(dynamic={"data": {0: "batch"}})
    steps, go_on = [], threading.Event()
    run = manager._run

    def pressing(step, graph, arguments):
        steps.append(step.name)
        if step.name == "fuse":
            ctrl_c()
            assert go_on.wait(30)
        return run(step, graph, arguments)

    monkeypatch.setattr(manager, "_run", pressing)
    with pytest.raises(KeyboardInterrupt):
        if wait == "recorded":
            with mx.autograd.record():
                net(x)
        else:
            net(x) if wait == "net(x)" else net.compile(x)
    compiler = [t for t in threading.enumerate() if t.name == "gluonjit compiler"]
    assert compiler, "the call waited for the other thread"
    go_on.set()
    for thread in compiler:
        thread.join()
    assert steps[-1] == "fuse", "the other passes should not have run"
    written = {e.path.name: cache.Entry.name.fget(e) for e in cache.files(object_cache)}
    known = f"gradient of {net.name}"  # what was found out before, not code
    assert not [path for path, name in written.items() if net.name in name.replace(known, "") or "new-" in path]
    monkeypatch.undo()
    assert abs(net(x).asnumpy() - wanted).max() < 1e-6
    assert net(mx.nd.ones((7, 5))).shape == (7, 4)


def test_a_signal_that_does_not_wake_the_main_thread(ctrl_c):
    """So it is with one that comes just before the thread sleeps."""
    pressed, go_on = threading.Event(), threading.Event()
    main = threading.main_thread().ident

    def computing():
        while sys._current_frames()[main].f_code.co_filename != aside.__code__.co_filename:
            os.sched_yield()  # the thread starts this one, and does not wait yet
        _thread.interrupt_main()
        pressed.set()
        assert go_on.wait(30)

    with pytest.raises(KeyboardInterrupt):
        aside(computing)
    others = [t for t in threading.enumerate() if t.name == "gluonjit compiler"]
    assert pressed.is_set() and others, "the call waited for the other thread"
    go_on.set()
    for thread in others:
        thread.join()


def test_an_import_is_not_torn():
    """The signal comes when half of a module of passes has run."""
    code = """
    from gluonjit.passes import manager

    register, pressed, answered = manager.register_pass, [], threading.Semaphore(0)

    def pressing(name, **options):
        def declare(function):
            register(name, **options)(function)
            if name in ("views", "fuse"):
                pressed.append(name)
                ctrl_c()
                answered.acquire()
            return function
        return declare

    def answer():
        try:
            return interrupted(x)
        finally:
            answered.release()

    manager.register_pass = pressing
    net.hybridize()
    print(answer(), answer(), is_right(), *pressed)
    with mx.autograd.record():
        y = net(x)
    y.backward()
    print(net.weight.grad().sum().asscalar())
    """
    assert process(code) == ["True", "True", "True", "fuse", "views", "40.0"]


@pytest.mark.parametrize("fault", ["no room", "not valid"])
def test_what_llvm_has_made_is_freed_at_once(monkeypatch, fault):
    """The garbage collector, which would find it in the traceback, may free a context before a module in it."""
    from llvmlite.binding.context import ContextRef
    from llvmlite.binding.module import ModuleRef

    made, text_of = [], llvm.Module.text_of

    def noting(self, *args):
        super(type(self), self).__init__(*args[:1])
        made.append(self)
        if isinstance(self, ModuleRef):
            self._context = args[1]

    def fails(*args):
        raise MemoryError("no room")

    def invalid(*args):
        return text_of(*args).replace("entry:", "entry:\n  %before = add i64 %after, 1\n  %after = add i64 1, 1")

    net, x = nn.Dense(4, in_units=5), mx.nd.ones((2, 5))
    net.initialize()
    wanted = net(x).asnumpy()
    net.hybridize()
    with monkeypatch.context() as patch:
        patch.setattr(ContextRef, "__init__", noting)
        patch.setattr(ModuleRef, "__init__", noting)
        if fault == "no room":
            patch.setattr(compile_parts, "_emit", fails)
        else:
            patch.setattr(llvm.Module, "text_of", invalid)
        with pytest.raises((MemoryError, MXNetError, IRError), match=fault) as error:
            net(x)
        assert {type(o) for o in made if o.closed} == {ContextRef, ModuleRef}
        assert all(o.closed for o in made if isinstance(o, ModuleRef) and type(o._context) is ContextRef)
        assert error.tb is not None
    assert abs(net(x).asnumpy() - wanted).max() < 1e-6


def test_the_end_of_a_process_waits_for_one_pass_at_most():
    code = """
    from gluonjit.passes import manager

    run = manager._run

    def slow(step, graph, arguments):
        while step.name == "fuse" and threading.main_thread().is_alive():
            time.sleep(0.001)
        if step.name == "select":
            print("select")
        return run(step, graph, arguments)

    manager._run = slow
    net.hybridize(wait=False)
    print(is_right())
    """
    assert process(code) == ["True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_signal_handler_that_forks():
    code = """
    pids = []
    signal.signal(signal.SIGINT, lambda *args: pids.append(os.fork()))
    from gluonjit.passes import manager

    run = manager._run

    def pressing(step, graph, arguments):
        if step.name == "fuse" and not pids:
            ctrl_c()
            while not pids:
                time.sleep(0.001)
        return run(step, graph, arguments)

    manager._run = pressing
    net.hybridize()
    right = is_right()
    if pids[0] == 0:
        os._exit(0 if right else 1)
    print(right, os.waitpid(pids[0], 0)[1])
    """
    assert process(code) == ["True", "0"]


def test_what_a_handler_raises_while_the_thread_starts(monkeypatch):
    class Late(Exception):
        pass

    def start(self):  # as in CPython, where the thread has told that it runs, and the handler raises then
        try:
            raise Late
        except Exception:
            del {}[self]

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(Late):
        aside(lambda: 1)
