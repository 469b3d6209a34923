"""Vision models: names, shapes, printed forms and graphs are MXNet's; weights come from a local folder.

Their logits are compared in `reference/test_published.py`.
"""

import hashlib
import json
import pickle

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.gluon import nn
from gluonjit.gluon.model_zoo import model_store, vision

from .truths import TRUTHS

pytestmark = pytest.mark.usefixtures("fresh_names")

ZOO = TRUTHS["zoo"]


def size(name):
    return 299 if name == "inceptionv3" else 224


@pytest.mark.parametrize("name", ZOO)
def test_names_shapes_repr_and_graph(name):
    truth = ZOO[name]
    net = vision.get_model(name)
    graph = net(mx.sym.var("data")).tojson()
    net.infer_shape(mx.nd.zeros((1, 3, size(name), size(name))))
    assert [[n, list(p.shape), p.grad_req] for n, p in net.collect_params().items()] == truth["params"]
    assert list(net._collect_params_with_prefix()) == truth["structured"]
    assert repr(net) == truth["repr"]
    for node, (op, label, attrs, inputs) in zip(json.loads(graph)["nodes"], truth["graph"], strict=True):
        assert (node["op"], node["name"], node.get("attrs", {})) == (op, label, attrs)
        assert [i[:2] for i in node["inputs"]] == inputs


def test_unknown_names_list_all():
    with pytest.raises(ValueError) as e:
        vision.get_model("resnet51")
    said = "Model resnet51 is not supported; did you mean 'resnet50_v1'? Available options are\n\t"
    assert str(e.value) == said + "\n\t".join(sorted(ZOO))
    assert isinstance(vision.get_model("ResNet18_V1", classes=3), vision.ResNetV1)


def test_settings():
    assert vision.resnet18_v1(classes=7).output.weight.shape[0] == 7
    thumbnail = vision.get_resnet(2, 18, classes=10, thumbnail=True)
    thumbnail.initialize()
    assert thumbnail(mx.nd.zeros((2, 3, 32, 32))).shape == (2, 10)
    assert vision.densenet121(dropout=0.1).features[4][0][1][-1]._rate == 0.1
    assert isinstance(vision.vgg11_bn().features[1], nn.BatchNorm)
    assert vision.vgg11_bn.__name__ == "vgg11_bn"
    assert vision.mobilenet_v2_0_5(prefix="m_").prefix == "m_"
    wide = vision.get_mobilenet_v2(1.4)
    assert wide.features[-4]._channels == 1792
    for bad in (lambda: vision.get_resnet(3, 18), lambda: vision.get_resnet(1, 19), lambda: vision.SqueezeNet("2")):
        with pytest.raises(AssertionError):
            bad()
    with pytest.raises(AssertionError):
        vision.VGG([1], [2, 3])
    with pytest.raises(AssertionError):
        vision.ResNetV1(vision.BasicBlockV1, [1], [2])


def test_nets_can_be_pickled():
    net = vision.resnet18_v2(classes=4)
    net.initialize()
    x = mx.nd.ones((1, 3, 32, 32))
    expected = net(x).asnumpy()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(net))(x).asnumpy(), expected)


# The folder of weights


def test_published_weights_are_all_of_the_models():
    assert set(model_store._model_sha1) == set(ZOO)
    assert model_store.short_hash("resnet50_v1") == "0aee57f9"
    with pytest.raises(ValueError, match="Pretrained model for lenet is not available"):
        model_store.get_model_file("lenet")


def test_missing_weights_are_not_downloaded(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"squeezenet1\.1-33ba0f93\.params.*nothing is downloaded"):
        vision.squeezenet1_1(pretrained=True, root=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_pretrained_loads_from_the_folder(tmp_path, monkeypatch):
    net = vision.squeezenet1_1(classes=5)
    net.initialize()
    x = mx.nd.ones((1, 3, 224, 224))
    expected = net(x).asnumpy()
    net.save_parameters(str(tmp_path / "weights"))
    digest = hashlib.sha1((tmp_path / "weights").read_bytes()).hexdigest()
    path = tmp_path / f"squeezenet1.1-{digest[:8]}.params"
    (tmp_path / "weights").rename(path)
    monkeypatch.setitem(model_store._model_sha1, "squeezenet1.1", digest)
    assert model_store.get_model_file("squeezenet1.1", root=tmp_path) == str(path)
    loaded = vision.get_model("squeezenet1.1", pretrained=True, root=tmp_path, classes=5)
    np.testing.assert_array_equal(loaded(x).asnumpy(), expected)

    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(ValueError, match="is not the published file: its SHA-1 is"):
        vision.squeezenet1_1(pretrained=True, root=tmp_path, classes=5)

    (tmp_path / "kept.txt").write_text("")
    model_store.purge(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["kept.txt"]
