"""Forks while other threads compile: the child runs what is compiled, compiles itself, and waits for nobody."""

import os
import subprocess
import sys
import textwrap

import pytest

from gluonjit.runtime import native

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork") or native.libc() is None, reason="no fork, or no POSIX threads, here"
)

PREAMBLE = """
import gc, os, signal, sys, threading, time, warnings
import numpy as np
import gluonjit as mx
from gluonjit.gluon import nn
from gluonjit.runtime import threads

warnings.filterwarnings("ignore", category=DeprecationWarning)  # Python's, of forks in the company of threads

def dense(*units):
    net = nn.HybridSequential()
    net.add(*(nn.Dense(n, activation="relu") for n in units))
    net.initialize()
    net.hybridize()
    return net

def forked(child):
    "Whether `child()` is true in a forked process. One that hangs is killed."
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            os._exit(0 if child() else 1)
        except BaseException as e:
            print(repr(e), file=sys.stderr)
            os._exit(2)
    return os.waitpid(pid, 0)[1] == 0
"""


def process(code):
    """Runs the code behind PREAMBLE in a new interpreter, which must end well; what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(code)], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_while_other_threads_compile():
    code = """
    threads.set_num_threads(2)
    x = mx.nd.ones((256, 256))
    net = dense(256)
    want = net(x).asnumpy()
    net(x)
    assert threads._workers, "the net should want threads"
    done = False

    def same_net():
        rows = 2
        while not done:
            rows += 1
            with mx.autograd.train_mode():
                net(x[:rows])

    def other_nets():
        units = 2
        while not done:
            units += 1
            dense(units, units, units)(x[:units])

    def state():
        return gc.isenabled() and not mx.runtime.mode.MODE[0]

    children = {
        "compiled": lambda: np.array_equal(net(x).asnumpy(), want) and threads.start(2) == 2,
        "set_num_threads": lambda: threads.set_num_threads(3) is None and np.array_equal(net(x).asnumpy(), want),
        "state": state,
        "same net": lambda: net(x[:2]).shape == (2, 256),
        "new net": lambda: dense(5)(x[:2]).shape == (2, 5),
        "exit": sys.exit,
    }
    for work in (same_net, other_nets):
        threading.Thread(target=work, daemon=True).start()
    for k, (name, child) in enumerate(children.items()):
        time.sleep(0.004 * k)
        if name == "exit":
            pid = os.fork()
            if pid == 0:
                signal.alarm(60)
                sys.exit()
            assert os.waitpid(pid, 0)[1] == 0, name
        elif not forked(child):
            print(name)
    done = True
    print("end")
    """
    assert process(code) == ["end"]


def test_while_another_thread_imports_the_compiler():
    code = """
    x = mx.nd.ones((2, 3))
    first = threading.Thread(target=lambda: dense(4)(x))
    first.start()
    while "gluonjit.codegen.text.llvm" not in sys.modules:
        time.sleep(0.001)
    print(forked(lambda: dense(5)(x).shape == (2, 5)))
    first.join()
    """
    assert process(code) == ["True"]


def test_while_another_thread_computes_an_attribute_and_holds_locks():
    code = """
    from gluonjit.common.lazy import cached_property
    from gluonjit.operators import expansions
    from gluonjit.runtime import random_words, timed

    there, done = threading.Event(), threading.Event()

    class Object:
        waits = False

        @cached_property
        def attribute(self):
            "Its value."
            if self.waits:
                with random_words._lock, expansions._lock, timed._loading:
                    there.set()
                    done.wait()
            return [1]

    first, second = Object(), Object()
    first.waits = True
    thread = threading.Thread(target=lambda: first.attribute)
    thread.start()
    there.wait()
    print(forked(lambda: second.attribute == [1] and second.attribute is second.attribute))
    print(forked(lambda: mx.nd.random.uniform(shape=(3,)).shape == (3,)))
    print(forked(lambda: dense(5)(mx.nd.ones((2, 3))).shape == (2, 5)))

    def timed_call():
        with timed.Timer() as timer:
            dense(5)(mx.nd.ones((2, 3)))
        return bool(timer.records)

    print(forked(timed_call))
    done.set()
    thread.join()
    print(first.attribute == [1] and Object.attribute.__doc__ == "Its value.")
    """
    assert process(code) == ["True"] * 5


def test_while_other_threads_profile():
    code = """
    from gluonjit import profiler
    from gluonjit.runtime import mode

    net, x = dense(5), mx.nd.ones((2, 3))
    net(x), net(x)

    def recorded():
        with profiler.record() as profile:
            net(x), net(x)
        return sum(len(p.calls) for p in profile.programs) == 2

    def profiled():
        profiler.start()
        mx.nd.exp(x), net(x)
        text = profiler.dumps(reset=True)
        profiler.stop()
        return "exp" in text and "(matmul)" in text and not mode.MODE[0]

    def trained():
        profiler.stop()
        weight = net[0].weight
        with mx.autograd.record():
            y = net(x)
        y.backward()
        return not mode.MODE[0] and (weight.grad() == mx.nd.dot((y > 0).T, x)).asnumpy().all()

    def beside(work):
        there, done = threading.Event(), threading.Event()
        thread = threading.Thread(target=work, args=(there, done))
        thread.start()
        there.wait()
        return thread, done

    def record(there, done):
        with profiler.record():
            net(x)
            there.set()
            done.wait()

    def start_slowly(there, done):
        def halfway(of):
            places = every(of)
            yield next(places)
            there.set()
            done.wait()
            yield from places

        every, profiler._places = profiler._places, halfway
        profiler.start()

    thread, done = beside(record)
    print(forked(recorded) and forked(profiled))
    done.set(), thread.join()

    every = profiler._places
    thread, done = beside(start_slowly)
    profiler._places = every
    print(forked(lambda: profiler.stop() or profiled() and recorded()))
    done.set(), thread.join()
    print(forked(trained))
    """
    assert process(code) == ["True"] * 3


def test_while_another_thread_begins_to_import_llvm():
    """It needs the lock that keeps others out of LLVM during a fork."""
    code = """
    import importlib.abc
    import gluonjit.codegen.text.fork_guard

    there = threading.Event()

    class Pause(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name == "llvmlite.binding.initfini":
                there.set()
                time.sleep(0.1)

    sys.meta_path.insert(0, Pause())
    os.environ["GLUONJIT_CACHE"] = "0"
    call = lambda: dense(8)(mx.nd.ones((2, 3))).shape == (2, 8)
    other = threading.Thread(target=call)
    other.start()
    there.wait()
    begun = time.monotonic()
    print(forked(call) and time.monotonic() - begun < 9)
    other.join()
    """
    assert process(code) == ["True"]


def test_threads_that_compile_first_wait_for_whole_modules():
    """What is declared in the midst of a module may need functions further down."""
    code = """
    import gluonjit.codegen.text.kernel_code as kernel_code
    import gluonjit.passes.manager as manager

    def slowly(declaration):
        def declaring(*args, **kwargs):
            declare = declaration(*args, **kwargs)
            return lambda function: (declare(function), time.sleep(0.02))[0]

        return declaring

    kernel_code.writes, manager.register_pass = slowly(kernel_code.writes), slowly(manager.register_pass)
    os.environ["GLUONJIT_CACHE"] = "0"
    found = []
    call = lambda n: found.append(dense(8)(mx.nd.ones((2, n))).shape == (2, 8))
    others = [threading.Thread(target=call, args=(n,)) for n in (2, 3, 4)]
    [other.start() for other in others]
    [other.join() for other in others]
    print(found.count(True))
    """
    assert process(code) == ["3"]


def test_who_cannot_compile_says_so():
    """LLVM stays in another thread's hands for longer than a fork waits."""
    code = """
    from gluonjit.codegen.text import fork_guard
    from gluonjit.ir.types import IRError

    x = mx.nd.ones((2, 3))
    net = dense(4)
    want = net(x).asnumpy()
    fork_guard._PATIENCE = 0.01
    there, done = threading.Event(), threading.Event()

    def compile():
        with fork_guard.inside_llvm():
            there.set()
            done.wait()

    def refused():
        assert np.array_equal(net(x).asnumpy(), want)
        try:
            dense(5)(x)
        except IRError as e:
            return "cannot compile: it was forked while another thread was compiling" in str(e)

    other = threading.Thread(target=compile)
    other.start()
    there.wait()
    print(forked(refused))
    done.set()
    other.join()
    print(forked(lambda: dense(5)(x).shape == (2, 5)), dense(5)(x).shape == (2, 5))
    """
    assert process(code) == ["True", "True", "True"]
