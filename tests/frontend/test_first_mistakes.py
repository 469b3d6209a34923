"""Mistakes that people make in their first week: the message begins with what is wrong, and says what to write."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon, nd
from gluonjit.gluon import nn

X = np.ones((2, 3), np.float32)


class WithoutF(gluon.HybridBlock):
    def hybrid_forward(self, x):
        return x


def initialized(*initializer):
    net = nn.Dense(2)
    net.initialize(*initializer)
    return net


def saved():
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=3), nn.Dense(2, in_units=2))
    net.initialize()
    return net


def extra(tmp_path):
    saved().save_parameters(str(tmp_path / "net.params"))
    less = nn.HybridSequential()
    less.add(nn.Dense(2))
    less.load_parameters(str(tmp_path / "net.params"))


def one_array(tmp_path):
    np.save(tmp_path / "x.npy", X)
    with open(tmp_path / "x.npy", "rb") as file:
        (tmp_path / "x.params").write_bytes(file.read())
    nd.load(str(tmp_path / "x.params"))


def no_file(tmp_path):
    for file in ("net-0007.params", "other.params", "net-symbol.json"):
        (tmp_path / file).write_text(fully_connected().tojson())
    mx.model.load_checkpoint(str(tmp_path / "net"), 3)


def fully_connected():
    return mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")


def module():
    return mx.mod.Module(mx.sym.SoftmaxOutput(fully_connected(), name="softmax"))


@pytest.mark.parametrize("hybridized", [False, True])
@pytest.mark.parametrize(
    ("loss", "label", "said"),
    [
        (gluon.loss.SoftmaxCELoss(), nd.ones((2, 3)), r"write SoftmaxCrossEntropyLoss\(sparse_label=False\)"),
        (gluon.loss.SoftmaxCELoss(sparse_label=False), nd.ones(2), "For numbers of classes leave it out"),
        (gluon.loss.L2Loss(), nd.ones(2), "prediction and label must have equally many"),
        (gluon.loss.SigmoidBCELoss(), nd.ones((2, 4)), "prediction and label must have equally many"),
    ],
)
def test_labels_that_do_not_fit_a_loss(loss, label, said, hybridized):
    loss.hybridize(hybridized)
    with pytest.raises((mx.MXNetError, ValueError), match=rf"(?s)\[?2.*at .*{said}"):
        loss(nd.array(X), label)


@pytest.mark.parametrize(
    ("mistake", "error", "said"),
    [
        (lambda _: nd.Convolution(nd.ones((1, 3, 8, 8)), num_filter=3, kernel=(3, 3)), mx.MXNetError,
         "expects 3 inputs, but got 1 instead. It takes data, weight, bias."),
        (lambda _: nd.Convolution(nd.ones((1, 3, 8, 8)), nd.ones((3, 3, 3, 3)), num_filter=3, kernel=3), mx.MXNetError,
         "but got 2 instead. It takes data, weight, bias. With no_bias=True it takes no bias."),
        (lambda _: nd.concat([nd.ones(2), nd.ones(2)], dim=0), AssertionError,
         r"Positional arguments must have NDArray type, but got a list of 2 such; write \*arrays"),
        (lambda _: nd.relu(X), AssertionError, r"an ndarray of NumPy's of shape \(2, 3\); mx.nd.array\(x\) makes"),
        (lambda _: nd.array([[1, 2], [3]]), TypeError, "must be array like object: .*inhomogeneous"),
        (lambda _: WithoutF()(nd.ones(2)), TypeError, r"3 were given; it is called as hybrid_forward\(F, inputs"),
        (lambda _: initialized()(nd.ones((2, 3)), nd.ones(2), nd.ones(2), nd.ones(2)), ValueError, r"\(F, inputs"),
        (lambda _: nn.HybridSequential([nn.Dense(2)]), TypeError, r"prefix must be a string, got list; net.add\(\*bl"),
        (lambda _: initialized(mx.init.Xavier)(nd.ones((2, 3))), AssertionError, r"string type: write Xavier\(\)"),
        (lambda _: gluon.model_zoo.vision.get_model("resnet18"), ValueError, "did you mean 'resnet18_v1'"),
        (extra, ValueError, "Parameter '1.weight' .* contains parameters '0.weight', '0.bias'"),
        (one_array, mx.MXNetError, r"x.params is one array of NumPy's \(.npy\); expected parameters"),
        (lambda _: fully_connected().simple_bind(mx.cpu(), dta=(2, 3)), RuntimeError,
         "^the graph has no argument 'dta'; did you mean 'data'"),
        (lambda _: fully_connected().simple_bind(mx.cpu(), data=(2, 3), fc_bias=(3,)), RuntimeError,
         "^Error in operator fc: "),
        (lambda _: fully_connected().simple_bind(mx.cpu(), data=(2, 3)).forward(dta=nd.array(X)), TypeError,
         "Unknown argument dta; did you mean 'data'"),
        (lambda _: gluon.SymbolBlock(fully_connected(), mx.sym.var("data"))(nd.array(X)), RuntimeError,
         r"third argument of SymbolBlock.imports, reads values from a file"),
        (no_file, mx.MXNetError, r"net-0003.params: No such file or directory; .* has net-0007.params$"),
        (lambda _: fully_connected()["fc_out"], ValueError, "did you mean 'fc_output'"),
        (lambda _: module().fit(X, num_epoch=1), TypeError, "fit takes a DataIter, got ndarray; mx.io.NDArrayIter"),
    ],
)  # fmt: skip
def test_the_message_says_what_to_write(mistake, error, said, tmp_path):
    with pytest.raises(error, match=said):
        mistake(tmp_path)
