"""`gluonjit.load`: libraries that `gluonjit build` made."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon
from gluonjit.c_library.library import compile_library, write
from gluonjit.c_library.library_source import source_of
from gluonjit.gluon import nn

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


class Two(gluon.HybridBlock):
    """Two inputs, two outputs."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, in_units=4)

    def hybrid_forward(self, F, x, scale):
        y = self.dense(x)
        return F.softmax(y), F.sum(y * scale, axis=1)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    block = Two()
    block.initialize(mx.init.Xavier())
    args = [mx.nd.ones((2, 4)), mx.nd.ones((1,))]
    write(compile_library(source_of(block, args, "two", {"data0": {0: "batch"}}), ["host"]), folder)
    block.hybridize(dynamic={"data0": {0: "batch"}})
    return block, folder / "libtwo.so"


def inputs(batch):
    rng = np.random.default_rng(batch)
    return rng.uniform(-1, 1, (batch, 4)).astype(np.float32), np.float32([2])


def test_calls(two):
    block, path = two
    with mx.load(path, threads=2) as net:
        for batch in (2, 1, 9):  # with 1 first, Python would compile that size alone
            given = inputs(batch)
            wanted = block(*map(mx.nd.array, given))
            for found in (net(*given), net(given[0], data1=given[1]), net(data1=given[1], data0=given[0].tolist())):
                for y, x in zip(found, wanted, strict=True):
                    np.testing.assert_array_equal(y, x.asnumpy())
        assert net.inputs[0] == ("data0", np.float32, ("batch", 4)) and len(net.outputs) == 2
        assert "data0: float32[batch, 4]" in repr(net)


def test_rows(two):
    """What the build found out about them; a server computes those that are independent together."""
    with mx.load(two[1]) as net:
        assert net.rows is None and net.why_rows_mix == "not all inputs begin with the same open dimension"

    def described(axis):
        block = nn.HybridSequential()
        block.add(nn.Dense(3, in_units=4), nn.HybridLambda(lambda F, x: F.softmax(x, axis=axis)))
        block.initialize()
        source = source_of(block, [mx.nd.ones((2, 4))], "net", {"data": {0: "batch"}})
        return json.loads(compile_library(source, ["host"]).model.description)

    assert described(axis=1)["rows"] == "batch"
    mixed = described(axis=0)
    assert mixed["rows"] is None and "runs along the batch" in mixed["why_rows_mix"]


def test_what_does_not_fit(two, tmp_path):
    net = mx.load(two[1])
    x, scale = inputs(2)
    for args, named, message in (
        ((x,), {}, "needs data1"),
        ((x, scale, x), {}, "takes 2 arrays"),
        ((x,), {"data2": scale}, "did you mean 'data0'|no input 'data2'"),
        ((x, scale), {"data0": x}, "several arrays"),
        ((x[:, :3], scale), {}, "takes data0"),
        ((x[0], scale), {}, "takes data0"),
        ((x[:0], scale), {}, "takes data0"),
        ((x.astype(complex), scale), {}, "complex128"),
        ((np.array([["a"] * 4]), scale), {}, "convert it"),
    ):
        with pytest.raises(ValueError, match=message):
            net(*args, **named)
    with pytest.raises(mx.MXNetError, match="cannot be loaded"):
        mx.load(tmp_path / "libmissing.so")
    shutil.copy(two[1], tmp_path / "librenamed.so")
    with pytest.raises(mx.MXNetError, match="renamed"):
        mx.load(tmp_path / "librenamed.so")


def test_pickles_and_forks(two):
    net = mx.load(two[1], threads=2)
    given = inputs(3)
    wanted = net(*given)
    again = pickle.loads(pickle.dumps(net))
    np.testing.assert_array_equal(again(*given)[0], wanted[0])
    if hasattr(os, "fork"):
        opens, go_on = threading.Event(), threading.Event()

        def opening():
            with net._lock:
                opens.set()
                go_on.wait()

        other = threading.Thread(target=opening)
        other.start()
        opens.wait()
        child = os.fork()
        if not child:
            signal.alarm(60)  # for one that waits for the other thread
            os._exit(0 if np.array_equal(net(*given)[0], wanted[0]) else 1)
        go_on.set()
        other.join()
        assert os.waitpid(child, 0)[1] == 0


def test_neither_compiler_nor_llvm_is_imported(two):
    script = (
        f"import sys; import gluonjit; net = gluonjit.load({str(two[1])!r}); "
        "net([[1, 2, 3, 4.]], [2.]); "
        "heavy = ('llvmlite', 'networkx', 'gluonjit.codegen', 'gluonjit.passes'); "
        "print([m for m in sys.modules if m.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
