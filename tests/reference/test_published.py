"""Networks of their real size, from the files that MXNet wrote: the model zoo, and a checkpoint from the field."""

import json

import numpy as np
import pytest

import gluonjit as mx
from support.compare import assert_close
from support.zoo import image, weights


def run(symbol, arrays):
    """Outputs of the compiled graph."""
    args = {name: arrays[name] for name in symbol.list_arguments()}
    aux = {name: arrays[name] for name in symbol.list_auxiliary_states()}
    return [out.asnumpy() for out in symbol.bind(mx.cpu(), args, aux_states=aux).forward()]


LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in ("vgg11", "vgg16")]
SMALL = ["alexnet", "densenet121", "inceptionv3", "mobilenetv2_1.0", "resnet18_v1", "resnet18_v2", "resnet50_v1"]


@pytest.mark.parametrize("name", [*SMALL, "squeezenet1.0", *LARGE])
def test_model_zoo(name, shared):
    folder = shared / "mxnet" / "ref" / "zoo"
    meta = json.loads((folder / f"{name}-meta.json").read_text())
    arrays = {full: mx.nd.array(weights(key, shape)) for key, (full, shape) in meta["structured"].items()}
    arrays["data"] = mx.nd.array(image(meta["input"]))
    (logits,) = run(mx.sym.load(folder / f"{name}-symbol.json"), arrays)
    assert_close(logits, np.load(folder / f"{name}-out.npy"), name)


def test_face_recognition(shared):
    """MXNet 0.9.5 wrote it: attributes named `attr`, parameters in version 1."""
    folder = shared / "mxnet" / "checkpoints"
    recorded = np.load(folder / "mobileface_v1-io.npz")
    params = mx.nd.load(folder / "mobileface_v1-0000.params")
    arrays = {name.partition(":")[2]: array for name, array in params.items()}
    arrays["data"] = mx.nd.array(recorded["data"])
    (embedding,) = run(mx.sym.load(folder / "mobileface_v1-symbol.json"), arrays)
    # Evaluation in float64 shows that MXNet's result is 6.5e-6 off, and ours 7e-6: the tolerance is about their sum.
    assert_close(embedding, recorded["out0"], tol=1.5e-5)
