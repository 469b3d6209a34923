"""Networks of their real size, from the files that MXNet wrote: the model zoo, and a checkpoint from the field."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.tools.cli import main
from support.compare import assert_close, difference
from support.soak import SOAK
from support.zoo import image, weights


def run(symbol, arrays):
    """Outputs of the compiled graph."""
    args = {name: arrays[name] for name in symbol.list_arguments()}
    aux = {name: arrays[name] for name in symbol.list_auxiliary_states()}
    return [out.asnumpy() for out in symbol.bind(mx.cpu(), args, aux_states=aux).forward()]


NAMES = ["squeezenet1.0", "mobilenetv2_1.0", "resnet18_v1"]
# What they have besides is in the random networks of `passes/test_networks.py`: windows that are not square, means of
# windows, chains of concats, scales before a convolution.
OTHERS = ["alexnet", "densenet121", "inceptionv3", "resnet18_v2", "resnet50_v1", "vgg11"] if SOAK > 1 else []


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_model_zoo(name, shared):
    """The exported graph, compiled, and the Gluon model: as it is, and one of them hybridized, which compiles to much
    the same.

    One test, for drawing the weights takes as long as running the large ones.
    """
    folder = shared / "mxnet" / "ref" / "zoo"
    expected = np.load(folder / f"{name}-out.npy")
    meta = json.loads((folder / f"{name}-meta.json").read_text())
    values = {key: mx.nd.from_numpy(weights(key, shape)) for key, (_, shape) in meta["structured"].items()}
    arrays = {full: values[key] for key, (full, _) in meta["structured"].items()}
    x = arrays["data"] = mx.nd.array(image(meta["input"]))
    (logits,) = run(mx.sym.load(folder / f"{name}-symbol.json"), arrays)
    assert_close(logits, expected, name)

    net = mx.gluon.model_zoo.vision.get_model(name)
    net.initialize("zeros")  # of weights whose shape is known to the first call, these are the first values
    for key, p in net._collect_params_with_prefix().items():
        p.set_data(values[key])
    hybridized = name in (NAMES if SOAK > 1 else NAMES[:1])
    for active in (False, True) if hybridized else (False,):
        net.hybridize(active)
        logits = net(x).asnumpy()
        assert_close(logits, expected, f"{name}, hybridized={active}")
        assert logits.argmax() == expected.argmax()


def as_block(prefix, x):
    return mx.gluon.SymbolBlock.imports(f"{prefix}-symbol.json", ["data"], f"{prefix}-0000.params")(x)


def as_module(prefix, x):
    module = mx.mod.Module.load(str(prefix), 0, label_names=None)
    module.bind([("data", x.shape)], for_training=False)
    return module.predict(x)


def as_executor(prefix, x):
    graph, args, aux = mx.model.load_checkpoint(str(prefix), 0)
    executor = graph.simple_bind(mx.cpu(), data=x.shape)
    executor.copy_params_from(args, aux)
    return executor.forward(data=x)[0]


def by_command(prefix, x):
    folder = Path(tempfile.mkdtemp())
    np.save(folder / "x.npy", x.asnumpy())
    files = [f"{prefix}-symbol.json", f"{prefix}-0000.params"]
    assert main(["run", *files, "--input", f"data={folder / 'x.npy'}", "--output", str(folder / "y.npz")]) == 0
    with np.load(folder / "y.npz") as outputs:
        (name,) = outputs
        return mx.nd.array(outputs[name])


@pytest.mark.parametrize("run", [as_block, as_module, as_executor, by_command], ids=lambda run: run.__name__)
def test_face_recognition(shared, run):
    """MXNet 0.9.5 wrote it: attributes named `attr`, parameters in version 1."""
    prefix = shared / "mxnet" / "checkpoints" / "mobileface_v1"
    recorded = np.load(f"{prefix}-io.npz")
    embedding = run(prefix, mx.nd.array(recorded["data"]))
    assert_close(embedding.asnumpy(), recorded["out0"], tol=1e-5)


def test_face_recognition_in_float64(shared):
    """MXNet's own result is 6.5e-6 off. This one is closer to the truth on the whole; which number is furthest is
    chance.

    Some of its convolutions sum up nearly equal terms, whose mean BatchNorm then subtracts: errors grow.
    """
    prefix = shared / "mxnet" / "checkpoints" / "mobileface_v1"
    recorded = np.load(f"{prefix}-io.npz")
    block = mx.gluon.SymbolBlock.imports(f"{prefix}-symbol.json", ["data"], f"{prefix}-0000.params")
    single = block(mx.nd.array(recorded["data"])).asnumpy()
    block.cast("float64")
    block.hybridize(backend="numpy")
    double = block(mx.nd.array(recorded["data"], dtype="float64")).asnumpy()
    ours, theirs = (np.sqrt(np.mean((embedding - double) ** 2)) for embedding in (single, recorded["out0"]))
    assert ours < 0.8 * theirs
    assert difference(single.astype("float64"), double) < 7e-6
