"""`gluonjit.Predictor`: models in files as workers use them."""

import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.c_library.library import compile_library, write
from gluonjit.c_library.library_source import source_of


def rows(count):
    return np.random.default_rng(count).standard_normal((count, 4)).astype(np.float32)


def block_of(files):
    block = mx.gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    block.hybridize(dynamic={"data": {0: "batch"}})
    return block


def only(results):
    (y,) = results.values()
    return y


SHAPES = {"data": "batchx4"}


@pytest.mark.parametrize("inputs", [None, SHAPES])
def test_same_bits_as_the_block_for_any_batch(files, inputs):
    predictor, block = mx.Predictor(*files, inputs=inputs), block_of(files)
    for count in (5, 1, 0, 64, 7):
        y = only(predictor({"data": rows(count)}))
        np.testing.assert_array_equal(y, block(mx.nd.array(rows(count))).asnumpy())
        assert y.shape == (count, 3)
    assert len(predictor.model.block._jit_cached.store.open_entries) == 1


def test_what_is_known_of_outputs_and_rows(files, tmp_path):
    model = mx.Predictor(*files, inputs=SHAPES).model
    assert [str(y) for y in model.outputs] == ["float32[batch,3]"] and model.rows == "batch"
    model = mx.Predictor(*files, inputs={"data": "5x4"}).model
    assert [str(y) for y in model.outputs] == ["float32[5,3]"] and model.rows is None
    mx.sym.broadcast_mul(mx.sym.softmax(mx.sym.var("data"), axis=0), mx.sym.var("w")).save(
        str(tmp_path / "s-symbol.json")
    )
    mx.nd.save(str(tmp_path / "s.params"), {"arg:w": mx.nd.ones((1, 4))})
    model = mx.Predictor(tmp_path / "s-symbol.json", tmp_path / "s.params", inputs=SHAPES).model
    assert model.rows is None and "runs along the batch" in model.why_rows_mix


def test_results_belong_to_the_caller(files):
    predictor = mx.Predictor(*files)
    x = rows(3)
    first = only(predictor({"data": x}))
    kept = first.copy()
    predictor({"data": rows(4)[:3]})
    np.testing.assert_array_equal(first, kept)
    first[:] = 0
    np.testing.assert_array_equal(only(predictor({"data": x})), kept)


def test_what_does_not_fit(files):
    predictor = mx.Predictor(*files, inputs=SHAPES)
    for given, message in (
        ({}, r"no array for data; the model takes data: float32\[batch,4\]"),
        ({"Data": rows(2)}, "no input 'Data'.*did you mean 'data'"),
        ({"data": rows(2), "more": 1}, "no input 'more'"),
        ({"data": rows(2)[:, :3]}, r"input data is float32\[2, ?3\]; the model takes float32\[batch,4\]"),
        ({"data": rows(2)[0]}, r"input data is float32\[4\]"),
        ({"data": np.array(["a"])}, "input data is of <U1; the model takes float32"),
        ({"data": rows(2) * 1j}, "input data is of complex"),
        ({"data": [[1, 2], [3]]}, "input data"),
        (rows(2), "dict of arrays by name, not ndarray"),
    ):
        with pytest.raises(ValueError, match=message):
            predictor(given)
    assert only(predictor({"data": np.ones((2, 4), np.int64)})).shape == (2, 3)  # as NumPy converts it


def test_what_is_no_predictor(files, tmp_path):
    for args, options, error, message in (
        (("missing-symbol.json", files[1]), {}, mx.MXNetError, "no file missing-symbol.json"),
        ((), {}, ValueError, "takes a graph"),
        ((files[0], files[1], files[1]), {}, ValueError, "takes a graph"),
        ((files[1], files[1]), {}, ValueError, "for a graph"),
        (files, {"threads": 0}, ValueError, "threads"),
        (files, {"sizes": ()}, ValueError, "sizes"),
        (files, {"inputs": {"data": "4x?"}}, ValueError, "input data"),
        (files, {"inputs": {"dta": "4x4"}}, ValueError, "no input 'dta'.*did you mean 'data'"),
    ):
        with pytest.raises(error, match=message):
            mx.Predictor(*args, **options)
    for args, options, message in (
        (files[:1], {}, "parameters' file"),
        (files[1:], {}, "a model is a graph"),
    ):
        with pytest.raises(mx.MXNetError, match=message):
            mx.Predictor(*args, **options)({"data": rows(2)})


def _predicted(given):
    predictor, x = given
    return os.getpid(), only(predictor({"data": x})), mx.get_num_threads()


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_in_another_process(files, method):
    predictor = mx.Predictor(*files, threads=1)
    wanted = only(mx.Predictor(*files)({"data": rows(6)}))
    assert len(pickle.dumps(predictor)) < 1000
    with multiprocessing.get_context(method).Pool(1) as pool:
        pid, found, threads = pool.map(_predicted, [(predictor, rows(6))])[0]
    assert pid != os.getpid() and threads == 1
    np.testing.assert_array_equal(found, wanted)


def test_an_open_predictor_after_a_fork(files):
    predictor = mx.Predictor(*files)
    wanted = only(predictor({"data": rows(6)}))
    pid = os.fork()
    if pid == 0:
        os._exit(0 if np.array_equal(only(predictor({"data": rows(6)})), wanted) else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_several_threads(files):
    predictor = mx.Predictor(*files)
    wrong = []
    wanted = {n: only(mx.Predictor(*files, inputs=SHAPES)({"data": rows(n)})) for n in range(2, 12)}

    def work(seed):
        for n in np.random.default_rng(seed).integers(2, 12, 100):
            if not np.array_equal(only(predictor({"data": rows(n)})), wanted[n]):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_batches_in_parts(files):
    """Parts are cut and filled; the results are those of the rows."""
    predictor = mx.Predictor(*files, sizes=(2, 8))
    whole = only(mx.Predictor(*files)({"data": rows(21)}))
    for count in (0, 1, 2, 7, 8, 21):
        y = only(predictor({"data": rows(21)[:count]}))
        assert y.shape == (count, 3)
        np.testing.assert_allclose(y, whole[:count], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="rows"):
        predictor({"data": np.float32(1)})


def test_parts_of_a_model_without_rows(tmp_path):
    """A sum over the batch is not the parts' sums."""
    x = mx.sym.var("data")
    (mx.sym.sum(x) * mx.sym.var("w")).save(str(tmp_path / "s-symbol.json"))
    mx.nd.save(str(tmp_path / "s.params"), {"arg:w": mx.nd.ones((1,))})
    args = str(tmp_path / "s-symbol.json"), str(tmp_path / "s.params")
    assert only(mx.Predictor(*args)({"data": np.ones((4, 2), np.float32)})) == 8
    with pytest.raises(mx.MXNetError, match="no row for each"):
        mx.Predictor(*args, sizes=(2,))({"data": np.ones((4, 2), np.float32)})


def test_labels_need_not_be_given(tmp_path):
    """A checkpoint of Module has the labels of its loss among its inputs."""
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc"), name="softmax")
    net.save(str(tmp_path / "m-symbol.json"))
    mx.nd.save(str(tmp_path / "m.params"), {"arg:fc_weight": mx.nd.ones((3, 4)), "arg:fc_bias": mx.nd.zeros((3,))})
    predictor = mx.Predictor(tmp_path / "m-symbol.json", tmp_path / "m.params")
    for count in (2, 5):
        np.testing.assert_allclose(predictor({"data": rows(count)})["softmax_output"], np.full((count, 3), 1 / 3), 1e-6)
    with pytest.raises(ValueError, match="no array for data"):
        predictor({"softmax_label": np.ones(2)})
    predictor = mx.Predictor(tmp_path / "m-symbol.json", tmp_path / "m.params", inputs=SHAPES)
    assert [str(x) for x in predictor.inputs] == ["float32[batch,4]", "float32[batch]"]
    assert predictor.model.rows == "batch" and predictor({"data": rows(5)})["softmax_output"].shape == (5, 3)


def test_parameters_of_another_model(files, tmp_path):
    """What lacks is no input, if its name is that of a parameter."""
    mx.nd.save(str(tmp_path / "other.params"), {"arg:w": mx.nd.ones((3, 4))})
    with pytest.raises(mx.MXNetError, match="other.params lacks net_dense0_weight"):
        mx.Predictor(files[0], tmp_path / "other.params")({"data": rows(1)})


def test_a_block_of_a_python_file(tmp_path):
    (tmp_path / "two.py").write_text(
        "from gluonjit.gluon import nn, HybridBlock\n"
        "class Two(HybridBlock):\n"
        "    def hybrid_forward(self, F, x, y):\n"
        "        return x + y, F.sum(x * y, axis=1)\n"
        "def net():\n    return Two()\n"
    )
    predictor = mx.Predictor(f"{tmp_path}/two.py:net", inputs={"a": "batchx4", "b": "batchx4"})
    found = predictor({"b": rows(3), "a": 2 * rows(3)})
    np.testing.assert_array_equal(found["output0"], 3 * rows(3))
    assert found["output1"].shape == (3,)
    with pytest.raises(ValueError, match="cannot be both"):
        predictor({"b": rows(3), "a": rows(2)})
    with pytest.raises(mx.MXNetError, match="say what it is called with"):
        mx.Predictor(f"{tmp_path}/two.py:net")({"a": rows(2)})


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_library(files, tmp_path):
    block = block_of(files)
    write(compile_library(source_of(block, [mx.nd.ones((2, 4))], "net", {"data": {0: "batch"}}), ["host"]), tmp_path)
    predictor = pickle.loads(pickle.dumps(mx.Predictor(tmp_path / "libnet.so", threads=1)))
    for count in (0, 1, 5):
        np.testing.assert_array_equal(
            only(predictor({"data": rows(count)})), block(mx.nd.array(rows(count))).asnumpy().reshape(count, 3)
        )
    with pytest.raises(ValueError, match="input data is"):
        predictor({"data": rows(5)[:, :2]})
    code = (
        "import sys, gluonjit, numpy; p = gluonjit.Predictor(sys.argv[1]);"
        "print(p({'data': numpy.ones((3, 4))}).keys()); assert 'llvmlite' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "libnet.so")], check=True, capture_output=True)
