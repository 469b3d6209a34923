"""MXNet's C interface for prediction, on top of a library: called through ctypes, and by a C++ program."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon
from gluonjit.gluon import nn
from gluonjit.tools.cli import main
from support import reference

pytestmark = pytest.mark.skipif(shutil.which("cc") is None or shutil.which("c++") is None, reason="no C++ compiler")

UINT = ctypes.c_uint32


class Api:
    """The functions of a libmxnet.so that was built from two files, for calls with `shapes`."""

    def __init__(self, folder, symbol, params):
        self.library = ctypes.CDLL(str(folder / "libmxnet.so"))
        self.library.MXGetLastError.restype = ctypes.c_char_p
        self.symbol, self.params = Path(symbol).read_bytes(), Path(params).read_bytes()

    @property
    def error(self):
        return self.library.MXGetLastError().decode()

    def shapes(self, shapes):
        """num_input_nodes, input_keys, input_shape_indptr, input_shape_data"""
        keys = (ctypes.c_char_p * len(shapes))(*(k.encode() for k in shapes))
        ends = np.cumsum([0, *(len(s) for s in shapes.values())])
        flat = [n for s in shapes.values() for n in s]
        return UINT(len(shapes)), keys, (UINT * len(ends))(*ends), (UINT * len(flat))(*flat)

    def create(self, shapes, function="MXPredCreate", more=(), symbol=None, params=None, handles=1):
        params = self.params if params is None else params
        files = ctypes.c_char_p(self.symbol if symbol is None else symbol), ctypes.c_char_p(params), len(params)
        out = (ctypes.c_void_p * handles)()
        status = getattr(self.library, function)(*files, 1, 0, *self.shapes(shapes), *more, out)
        if status:
            return None
        return ctypes.c_void_p(out[0]) if handles == 1 else [ctypes.c_void_p(h) for h in out]

    def set(self, handle, key, x):
        x = np.ascontiguousarray(x, np.float32)
        return self.library.MXPredSetInput(handle, key.encode(), x.ctypes.data_as(ctypes.c_void_p), UINT(x.size))

    def output(self, handle, index=0):
        shape, ndim = ctypes.POINTER(UINT)(), UINT()
        if self.library.MXPredGetOutputShape(handle, UINT(index), ctypes.byref(shape), ctypes.byref(ndim)):
            return None
        y = np.empty(shape[: ndim.value], np.float32)
        pointer = y.ctypes.data_as(ctypes.c_void_p)
        assert self.library.MXPredGetOutput(handle, UINT(index), pointer, UINT(y.size)) == 0
        return y

    def run(self, handle, x, key="data"):
        assert self.set(handle, key, x) == 0, self.error
        assert self.library.MXPredForward(handle) == 0, self.error
        return self.output(handle)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """(the interface, the block, the folder)"""
    folder = tmp_path_factory.mktemp("predict")
    block = nn.HybridSequential()
    block.add(nn.Conv2D(4, 3, activation="relu"), nn.Flatten(), nn.Dense(3))
    block.initialize(mx.init.Xavier())
    block.hybridize()
    block(mx.nd.ones((2, 3, 6, 6)))
    block.export(str(folder / "model"))
    files = [str(folder / "model-symbol.json"), str(folder / "model-0000.params")]
    out = folder / "out"
    assert main(["build", *files, "--input", "data=nx3x6x6", "--predict-api", "--name", "small", "-o", str(out)]) == 0
    loaded = gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    loaded.hybridize(dynamic={"data": {0: "n"}})
    loaded(mx.nd.ones((2, 3, 6, 6)))
    return Api(out, *files), loaded, folder


def image(batch):
    return np.random.default_rng(batch).uniform(-1, 1, (batch, 3, 6, 6)).astype(np.float32)


def test_prediction(model):
    api, block, _ = model
    handle = api.create({"data": (2, 3, 6, 6)})
    assert handle, api.error
    for _ in range(2):
        np.testing.assert_array_equal(api.run(handle, image(2)), block(mx.nd.array(image(2))).asnumpy())
    kind, left = ctypes.c_int(-1), ctypes.c_int(-1)
    assert api.library.MXPredGetOutputType(handle, UINT(0), ctypes.byref(kind)) == 0 and kind.value == 0
    assert api.library.MXPredPartialForward(handle, 0, ctypes.byref(left)) == 0 and left.value == 0
    assert api.library.MXPredFree(handle) == 0


def test_reshape_keeps_the_old_predictor(model):
    api, block, _ = model
    first = api.create({"data": (2, 3, 6, 6)})
    second = ctypes.c_void_p()
    assert api.library.MXPredReshape(*api.shapes({"data": (5, 3, 6, 6)}), first, ctypes.byref(second)) == 0, api.error
    np.testing.assert_array_equal(api.run(second, image(5)), block(mx.nd.array(image(5))).asnumpy())
    api.library.MXPredFree(first)
    np.testing.assert_array_equal(api.run(second, image(5)), block(mx.nd.array(image(5))).asnumpy())
    api.library.MXPredFree(second)


def test_other_ways_to_create(model):
    api, block, _ = model
    shapes, wanted = {"data": (2, 3, 6, 6), "softmax_label": (2,)}, block(mx.nd.array(image(2))).asnumpy()
    types = (ctypes.c_int * 1)(0)
    handle = api.create(shapes, "MXPredCreateEx", (UINT(1), (ctypes.c_char_p * 1)(b"data"), types))
    np.testing.assert_array_equal(api.run(handle, image(2)), wanted)
    api.library.MXPredFree(handle)
    handles = api.create(shapes, "MXPredCreateMultiThread", (3,), handles=3)
    for handle in handles:
        np.testing.assert_array_equal(api.run(handle, image(2)), wanted)
        api.library.MXPredFree(handle)
    types[0] = 2
    assert api.create(shapes, "MXPredCreateEx", (UINT(1), (ctypes.c_char_p * 1)(b"data"), types)) is None
    assert "compiled for float32" in api.error
    none = (ctypes.c_char_p * 1)(b"nothing")
    assert api.create(shapes, "MXPredCreatePartialOut", (UINT(1), none)) is None and "no output nothing" in api.error


def test_refusals(model):
    api, _, _ = model
    good = {"data": (2, 3, 6, 6)}
    for shapes, message in (
        ({"data": (2, 3, 6)}, "another number of dimensions"),
        ({"data": (2, 3, 6, 7)}, "not one that the model was compiled for"),
        ({"data": (0, 3, 6, 6)}, "not one that the model was compiled for"),
        ({"image": (2, 3, 6, 6)}, "the shape of data is missing"),
        ({"data": (2**32 - 1, 3, 6, 6)}, "too large"),
    ):
        assert api.create(shapes) is None
        assert message in api.error
    assert api.create(good, symbol=api.symbol + b" ") is None and "graph is another one" in api.error
    assert api.create(good, params=api.params[:-1] + b"\x01") is None and "parameters are others" in api.error
    handle = api.create(good)
    assert api.set(handle, "data", image(3)) == -1 and "number of elements" in api.error
    assert api.set(handle, "label", image(2)) == -1 and "cannot find input key label" in api.error
    assert api.output(handle, 1) is None and "no output of that number" in api.error
    assert api.library.MXPredSetMonitorCallback(handle, None, None, 1) == -1
    api.library.MXPredFree(handle)
    assert api.library.MXPredFree(None) == 0 and api.library.MXPredForward(None) == -1


def test_lists_of_arrays(model, tmp_path):
    api, _, _ = model
    arrays = {"mean": np.float32([[1, 2], [3, 4]]), "count": np.int32([7])}
    mx.nd.save(str(tmp_path / "mean.nd"), {k: mx.nd.array(x, dtype=x.dtype) for k, x in arrays.items()})
    data = (tmp_path / "mean.nd").read_bytes()
    handle, length = ctypes.c_void_p(), UINT()

    def create(content):
        return api.library.MXNDListCreate(content, len(content), ctypes.byref(handle), ctypes.byref(length))

    assert create(data) == 0 and length.value == 2
    for k, (name, x) in enumerate(arrays.items()):
        key, ndim = ctypes.c_char_p(), UINT()
        values, shape = ctypes.POINTER(ctypes.c_float)(), ctypes.POINTER(UINT)()
        found = (ctypes.byref(v) for v in (key, values, shape, ndim))
        assert api.library.MXNDListGet(handle, UINT(k), *found) == 0
        assert key.value.decode() == name and tuple(shape[: ndim.value]) == x.shape
        np.testing.assert_array_equal(values[: x.size], x.ravel())
    assert api.library.MXNDListGet(handle, UINT(2), None, None, None, None) == -1
    api.library.MXNDListFree(handle)
    rng = np.random.default_rng(0)
    for cut in range(0, len(data), 3):  # a file that ends early, and one with other bytes
        assert create(data[:cut]) == -1 and "Invalid NDArray file format" in api.error
        spoiled = bytearray(data)
        spoiled[cut] = rng.integers(256)
        if create(bytes(spoiled)) == 0:
            api.library.MXNDListFree(handle)


PROGRAM = r"""
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>
#include "c_predict_api.h"

static std::string read(const char *name) {
    std::ifstream file(name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

int main(int argc, char **argv) {
    std::string symbol = read(argv[1]), params = read(argv[2]), image = read(argv[3]);
    const char *keys[] = {"data"};
    const mx_uint indptr[] = {0, 4};
    std::vector<mx_uint> shape;
    for (int k = 4; k < argc; k++) shape.push_back(std::stoul(argv[k]));
    PredictorHandle handle = nullptr;
    if (MXPredCreate(symbol.c_str(), params.data(), static_cast<int>(params.size()), 1, 0, 1, keys, indptr,
                     shape.data(), &handle) != 0) {
        std::cerr << MXGetLastError() << std::endl;
        return 1;
    }
    if (MXPredSetInput(handle, "data", reinterpret_cast<const mx_float *>(image.data()), image.size() / 4)) return 2;
    if (MXPredForward(handle)) return 3;
    mx_uint *found = nullptr, ndim = 0, size = 1;
    if (MXPredGetOutputShape(handle, 0, &found, &ndim)) return 4;
    for (mx_uint k = 0; k < ndim; k++) size *= found[k];
    std::vector<float> y(size);
    if (MXPredGetOutput(handle, 0, y.data(), size)) return 5;
    std::cout.write(reinterpret_cast<const char *>(y.data()), size * 4);
    return MXPredFree(handle);
}
"""


@pytest.fixture(scope="module")
def program(model):
    """PROGRAM, compiled: it finds its libmxnet.so when it starts."""
    folder = model[2]
    (folder / "program.cc").write_text(PROGRAM)
    out = str(folder / "out")
    command = ["c++", "-Wall", "-Werror", str(folder / "program.cc"), "-I", out, "-L", out, "-lmxnet"]
    subprocess.run([*command, "-o", str(folder / "program")], check=True)
    return folder / "program"


def run_program(program, folder, out, files, x):
    (folder / "image.bin").write_bytes(x.tobytes())
    words = [str(program), *files, str(folder / "image.bin"), *map(str, x.shape)]
    done = subprocess.run(words, env={"LD_LIBRARY_PATH": str(out)}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, np.float32)


def test_a_program_for_mxnet(model, program, tmp_path):
    api, block, folder = model
    files = [str(folder / "model-symbol.json"), str(folder / "model-0000.params")]
    found = run_program(program, tmp_path, folder / "out", files, image(4))
    np.testing.assert_array_equal(found, block(mx.nd.array(image(4))).asnumpy().ravel())


def test_a_model_that_mxnet_exported(program, tmp_path):
    folder = reference.folder() / "lenet_seed"
    x, wanted = (np.load(folder / name) for name in ("in0.npy", "out0.npy"))
    files = [str(folder / "model-symbol.json"), str(folder / "model-0000.params")]
    shape = "x".join(map(str, x.shape))
    assert main(["build", *files, "--input", f"data={shape}", "--predict-api", "-o", str(tmp_path / "out")]) == 0
    found = run_program(program, tmp_path, tmp_path / "out", files, x)
    np.testing.assert_allclose(found, wanted.ravel(), rtol=0, atol=1e-5 * np.abs(wanted).max())
