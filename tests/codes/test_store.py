"""The store of compiled code: what is found, what goes, and why."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

import gluonjit as mx
from gluonjit import ir, runtime
from gluonjit.codes.compile_log import DROPPED, FIRST, CompileLog, Signature
from gluonjit.codes.store import KEYS, Store
from gluonjit.gluon import nn
from gluonjit.ir.types import tensor
from gluonjit.runtime import native


def test_what_was_used_least_recently_goes():
    store: Store[str] = Store(2)
    store.keep("a", "A")
    store.keep("b", "B")
    assert store.find("a") == "A" and store.is_full
    store.keep("c", "C")
    assert store.find("b") is None and sorted(store.entries) == ["A", "C"] and len(store) == 2
    store.discard("C".__eq__)
    assert store.entries == ["A"] and not store.is_full


def test_entries_that_share_code_go_together():
    log, gone = CompileLog("net"), []
    store: Store[tuple[str, int]] = Store(2, lambda entry: entry[0], log, gone.append)
    for number in range(3):
        store.keep(("open", number), ("n", number))
    store.keep_open("family", ("n", 0))
    store.keep("x", ("x", 0))
    assert store.find(("open", 1)) == ("n", 1) and len(store) == 2
    store.keep("y", ("y", 0))
    assert gone == ["x"] and len(store.items) == 4 and list(store.open_of("family")) == [("n", 0)]
    store.keep("z", ("z", 0))
    assert gone == ["x", "n"] and not list(store.open_of("family")) and store.find(("open", 1)) is None
    assert [(event.what, event.signature) for event in log.events] == [(DROPPED, "x"), (DROPPED, "n")]


def test_there_are_not_more_keys_than_may_be():
    store: Store[str] = Store(4, lambda entry: entry)
    for number in range(2 * KEYS):
        store.keep(number, "code")
    assert KEYS // 2 < len(store.items) <= KEYS and len(store) == 1 and store.find(2 * KEYS - 1) == "code"


def test_reasons():
    log = CompileLog("net")
    store: Store[str] = Store(1, lambda entry: entry, log)
    first, second = (Signature(("data",), (tensor("f32", n, 5),)) for n in (4, 7))
    assert store.why(first, 4) == FIRST
    store.note_made(first)
    store.keep(4, "A")
    assert store.why(second, 7) == "shape of argument 0: 7×5, had 4×5"
    store.keep(7, "B")
    assert store.why(first, 4).startswith("its code was evicted, as 1 others")
    log.drop("parameters were cast", had_code=True)
    assert store.why(first, 4) == "parameters were cast" and store.why(first, 5) != "parameters were cast"


def test_families_are_closed():
    store: Store[str] = Store()
    store.keep_open("images", "A")
    store.keep_open("text", "B")
    store.close("A".__eq__, "it depends")
    assert store.closed == ["it depends"] and store.openings("images").closed and not store.openings("text").closed


def test_threads_find_what_others_keep():
    store: Store[int] = Store(8)
    wrong = []

    def use(first: int) -> None:
        for k in range(400):
            store.keep(k % 16, k % 16)
            found = store.find((k + first) % 16)
            if found not in (None, (k + first) % 16):
                wrong.append(found)

    threads = [threading.Thread(target=use, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(store) <= 8


# ---- the road of a call


class _Arrived(Exception):
    pass


def _files_entered(call, until):
    """The files of this package that a call enters, in order, before it calls the function `until`. A file is entered
    where code of another one calls code in it."""
    folders = [str(Path(m.__path__[0]).resolve()) + "/" for m in (mx, ir, runtime)]
    entered: list[str] = []

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event != "call":
            return
        if frame.f_code is until.__code__:
            raise _Arrived
        name, caller = frame.f_code.co_filename, frame.f_back.f_code.co_filename if frame.f_back else ""
        if name != caller and name.startswith(tuple(folders)):
            entered.append(Path(name).stem)

    sys.setprofile(note)
    try:
        call()
    except _Arrived:
        pass
    finally:
        sys.setprofile(None)
    return entered


@pytest.mark.parametrize("units", [4, 512])  # on one thread, and on two
def test_the_road_of_a_call_goes_through_no_file_twice(units):
    """From the arguments to native code, in a mode that the native entry leaves to Python."""
    mx.set_num_threads(2)
    net = nn.HybridSequential()
    net.add(nn.Dense(units, in_units=units, activation="relu"), nn.BatchNorm(in_channels=units))
    net.add(nn.Dense(units, in_units=units))
    net.initialize()
    net.hybridize()
    x = mx.nd.ones((units, units))
    with mx.autograd.train_mode():
        wanted = net(x).asnumpy()
        entered = _files_entered(lambda: net._jit_cached(x), until=native.entry)
        assert (net(x).asnumpy() == wanted).all()
    mx.set_num_threads(None)
    assert entered == ["cached_call", "store", "guards", "session", "storage", "executable", "arenas", "threads"]
