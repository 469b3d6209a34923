"""Operators behind layers: what they refuse, laws that they obey, and shapes that they complete."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.base import MXNetError
from gluonjit.gluon import nn
from gluonjit.operators.registry import get
from support.compare import difference
from support.selected import TARGETS, runnable

from .running import KEY, run_eager
from .samples import floats


def one(operator, *inputs, training=False, **attrs):
    return run_eager(operator, inputs, attrs, training)[0]


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


REFUSED = [
    (
        "FullyConnected",
        [(2, 4), (5, 3)],
        {"num_hidden": 5, "no_bias": True},
        r"Provided = \[5,3\], inferred shape=\[5,4\]",
    ),
    ("FullyConnected", [(2, 4), (5, 4), (4,)], {"num_hidden": 5}, r"inferred shape=\[5\] for bias"),
    ("Embedding", [(2,), (5, 2)], {"input_dim": 4, "output_dim": 2}, r"Provided = \[5,2\], inferred shape=\[4,2\]"),
    ("Convolution", [(1, 4), (3, 4, 3, 3)], {}, "Input data should be 4D in batch-num_filter-h-w"),
    ("Convolution", [(1, 4, 5, 5), (3, 2, 3, 3)], {}, r"inferred shape=\[3,4,3,3\]"),
    ("Convolution", [(1, 4, 2, 5), (3, 4, 3, 3)], {}, "kernel size exceed input"),
    ("Convolution", [(1, 3, 5, 5), (3, 1, 3, 3)], {"num_group": 2}, "num_filter = 3 must be divisible by num_group"),
    ("Convolution", [(1, 4, 5, 5), (3, 1, 3, 3)], {"num_group": 3}, "input channels = 4 must be divisible"),
    ("Convolution", [(1, 4, 5, 5), (3, 4, 3, 3)], {"stride": (2,)}, r"set to \[3,3\] while stride is \[2\]"),
    ("Convolution", [(1, 4, 5, 5), (3, 4, 3, 3)], {"stride": (0, 1)}, r"incorrect stride size: \[0,1\]"),
    ("Convolution", [(1, 4, 5, 5), (3, 4, 3, 3)], {"layout": "NCW"}, "layout NCW does not fit"),
    ("Deconvolution", [(1, 2, 3, 3), (2, 3, 3, 3)], {"stride": (2, 2), "adj": (2, 1)}, "must be smaller than stride"),
    ("Deconvolution", [(1, 2, 3, 3), (2, 3, 3, 3)], {"target_shape": (9, 9)}, "too big target shape"),
    ("Pooling", [(1, 2, 3)], {"kernel": (2, 2)}, "1 spatial dimensions, so kernel needs 1 entries"),
    ("Pooling", [(2, 3)], {"kernel": (2,)}, "Input data should be 3D, 4D or 5D"),
    ("Pooling", [(1, 2, 3, 3)], {"kernel": (4, 4)}, r"kernel size \(4\) exceeds input \(3 padded to 3\)"),
    ("Pooling", [(1, 2, 3, 3)], {"kernel": (2, 2), "pad": (2, 2)}, "must be smaller than kernel"),
    ("Pooling", [(1, 2, 3, 3)], {"kernel": (2, 2), "pool_type": "lp"}, "p value of None is not supported"),
    (
        "Pooling",
        [(1, 2, 4, 4)],
        {"kernel": (2, 2), "pooling_convention": "same"},
        r"'same' is for data of 3 axes \(batch, channel, x\), got \[1,2,4,4\]",
    ),
    (
        "Pooling",
        [(1, 2, 4)],
        {"kernel": (2,), "pad": (1,), "pooling_convention": "same"},
        "disables the use of the pad",
    ),
    ("BatchNorm", [(2, 3), (2,), (2,), (2,), (2,)], {}, r"inferred shape=\[3\] for gamma"),
    ("BatchNorm", [(2, 3), (3,), (3,), (3,), (3,)], {"axis": 2}, "Channel axis out of range"),
    ("LayerNorm", [(2, 3, 4), (3,), (3,)], {}, r"Provided = \[3\], inferred shape=\[4\]"),
    ("GroupNorm", [(2, 4), (2,), (2,)], {"num_groups": 2}, "at least 3 dimensions"),
    ("GroupNorm", [(2, 4, 3), (3,), (3,)], {"num_groups": 3}, "# of channels must be divisible by # of groups"),
    ("InstanceNorm", [(2, 4), (4,), (4,)], {}, "only supports input tensors of rank >= 3"),
    ("L2Normalization", [(2, 4)], {"mode": "channel"}, "3 dimensions required in channel mode"),
    ("LRN", [(2, 4, 3)], {"nsize": 3}, "LRN needs data of 4 dimensions"),
    ("LeakyReLU", [(2, 3, 4), (4,)], {"act_type": "prelu"}, "Cannot broadcast gamma to data"),
    ("softmax", [(2, 3)], {"axis": 5}, "axis 5 exceeds the input dimension of 2"),
    ("softmax", [(2, 3), (2,)], {"use_length": True}, "only support integer types, not float32"),
    ("log_softmax", [(2, 3)], {"use_length": True}, "log_softmax takes no length"),
]


@pytest.mark.parametrize(("operator", "shapes", "attrs", "message"), REFUSED)
def test_refused(operator, shapes, attrs, message):
    if operator in ("Convolution", "Deconvolution"):
        attrs = {"kernel": (3, 3), "num_filter": 3, "no_bias": True, **attrs}
    with pytest.raises(MXNetError, match=message):
        one(operator, *(ones(*s) for s in shapes), **attrs)


@pytest.mark.parametrize("operator", ["Activation", "softmax", "Dropout", "Pooling", "BatchNorm", "L2Normalization"])
def test_integers_are_refused(operator):
    attrs = {"Activation": {"act_type": "relu"}, "Pooling": {"kernel": (2,)}}.get(operator, {})
    x = np.ones((2, 3, 4), np.int32)
    parameters = [ones(3)] * 4 if operator == "BatchNorm" else []
    with pytest.raises(MXNetError, match="only support floating point types, not int32"):
        one(operator, x, *parameters, **attrs)


def test_batch_norm_wants_float32_parameters_beside_float16():
    x = ones(2, 3, dtype=np.float16)
    assert one("BatchNorm", x, *[ones(3)] * 4).dtype == np.float16
    with pytest.raises(MXNetError, match="requires uniform type. Expected 'float32' v.s. given 'float16' at 'gamma'"):
        one("BatchNorm", x, *[ones(3, dtype=np.float16)] * 4)


# Laws


def channels_last(x):
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


CONVOLUTIONS = [
    {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 1), "dilate": (1, 2), "num_group": 1},
    {"kernel": (2, 3), "stride": (1, 3), "pad": (0, 2), "dilate": (2, 1), "num_group": 2},
]


@pytest.mark.parametrize("attrs", CONVOLUTIONS)
def test_channels_last_is_a_transposition(attrs):
    rng = np.random.RandomState(0)
    x, w, c = floats(rng, 2, 4, 7, 8), floats(rng, 6, 4 // attrs["num_group"], *attrs["kernel"]), floats(rng, 6)
    expected = one("Convolution", x, w, c, num_filter=6, **attrs)
    got = one("Convolution", channels_last(x), channels_last(w), c, num_filter=6, layout="NHWC", **attrs)
    assert difference(got, channels_last(expected)) < 1e-6


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("attrs", CONVOLUTIONS)
def test_deconvolution_is_the_adjoint_of_convolution(attrs, layout):
    """<conv(x, w), y> = <x, deconv(y, w)> for all x and y: the same w has its channel axes in the other roles."""
    rng = np.random.RandomState(1)
    x, w = floats(rng, 2, 4, 7, 8, dtype="float64"), floats(rng, 6, 4 // attrs["num_group"], *attrs["kernel"])
    w = w.astype("float64")
    if layout == "NHWC":
        x, w = channels_last(x), channels_last(w)
    y = one("Convolution", x, w, num_filter=6, no_bias=True, layout=layout, **attrs)
    space = [1, 2] if layout == "NHWC" else [2, 3]
    back = one(
        "Deconvolution",
        other := floats(rng, *y.shape, dtype="float64"),
        w,
        num_filter=4,
        layout=layout,
        adj=[  # what the floor of the convolution's extent leaves over
            (x.shape[axis] + 2 * p - d * (k - 1) - 1) % s
            for axis, p, d, k, s in zip(space, attrs["pad"], attrs["dilate"], attrs["kernel"], attrs["stride"])
        ],
        **attrs,
    )
    assert back.shape == x.shape
    assert np.sum(y * other) == pytest.approx(np.sum(x * back), rel=1e-12)


PADDED = {
    "line": ("Convolution", (1, 3, 9), (4, 3, 3), {"pad": (2,), "dilate": (2,)}),
    "image": ("Convolution", (2, 16, 5, 7), (16, 16, 3, 3), {"pad": (1, 2)}),
    "strided": ("Convolution", (1, 3, 12, 12), (8, 3, 5, 5), {"pad": (2, 2), "stride": (2, 2)}),
    "groups": ("Convolution", (1, 4, 6, 6), (4, 2, 3, 3), {"pad": (1, 1), "num_group": 2}),
    "depthwise": ("Convolution", (1, 16, 6, 6), (16, 1, 3, 3), {"pad": (1, 1), "num_group": 16}),
    "volume": ("Convolution", (1, 2, 3, 4, 3), (2, 2, 3, 3, 3), {"pad": (1, 1, 1)}),
    "holes": ("Deconvolution", (1, 3, 4, 4), (3, 4, 3, 3), {"stride": (2, 2)}),
    "whole": ("Deconvolution", (1, 3, 4, 4), (3, 4, 3, 3), {"pad": (1, 1)}),
    "adjusted": ("Deconvolution", (1, 3, 4), (3, 2, 4), {"stride": (3,), "pad": (1,), "adj": (2,)}),
}


@pytest.mark.parametrize("name", PADDED)
def test_padding_is_no_term_of_a_convolution(name):
    """Not even 0 times a weight that is infinite: only the pixels that it meets show it, in either mode."""
    operator, data, kernel, attrs = PADDED[name]
    attrs = {**attrs, "kernel": kernel[2:], "no_bias": True}
    attrs["num_filter"] = kernel[0] if operator == "Convolution" else kernel[1]
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=data), rng.normal(size=kernel)
    net = nn.HybridLambda(lambda F, x, w: getattr(F, operator)(x, w, **attrs))
    corner = (1, 0, *(0,) * (len(kernel) - 2))
    one_weight = np.zeros(kernel)
    one_weight[corner] = 1
    reached = net(mx.nd.ones(data), mx.nd.array(one_weight)).asnumpy() != 0
    assert reached.any() and not reached.all()
    expected = net(mx.nd.array(x), mx.nd.array(w)).asnumpy()
    for hybridized in (False, True):
        net.hybridize(hybridized)
        for odd in (np.inf, np.nan):
            w[corner] = odd
            found = net(mx.nd.array(x), mx.nd.array(w)).asnumpy()
            assert not np.isfinite(found[reached]).any()
            np.testing.assert_allclose(found[~reached], expected[~reached], rtol=1e-4, atol=1e-5)


RANDOM = {  # kind: (operator, kernel per axis, input channels, filters, groups)
    "one channel": ("Convolution", (5, 3), 1, 2, 1),
    "few channels": ("Convolution", (3, 4), 3, 20, 1),
    "ragged": ("Convolution", (2, 25), 2, 9, 1),
    "grouped": ("Convolution", (3, 3), 4, 6, 2),
    "depthwise": ("Convolution", (3, 5), 20, 20, 20),
    "large depthwise": ("Convolution", (9, 11), 20, 20, 20),
    "line": ("Convolution", (3,), 3, 8, 1),
    "long line": ("Convolution", (40,), 6, 6, 6),
    "volume": ("Convolution", (3, 2, 3), 4, 5, 1),
    "adjoint": ("Deconvolution", (3, 4), 3, 5, 1),
}


def random_convolution(kind, rng):
    """A block of (x, w, b), and arrays for it: small, with strides, dilation, padding and perhaps zeros in front."""
    operator, kernel, channels, filters, groups = RANDOM[kind]
    rank, is_adjoint = len(kernel), operator == "Deconvolution"
    pad = [int(rng.integers(1, n)) for n in kernel]
    extra = [] if is_adjoint or rank == 1 else [int(n) for n in rng.integers(0, 3, 2 * rank)]
    dilate = [int(rng.choice([1, 1, 2])) if n < 9 else 1 for n in kernel]
    size = [
        int(rng.integers(6, 20 if rank < 3 else 7)) + max(0, (n - 2) * d - p) for n, d, p in zip(kernel, dilate, pad)
    ]
    attrs = {"kernel": kernel, "num_filter": filters, "num_group": groups, "pad": pad, "dilate": dilate}
    attrs |= {"stride": [int(rng.choice([1, 1, 2])) for _ in kernel], "no_bias": False}
    written = rng.random() < 0.5

    def compute(F, x, w, b):
        if extra and written:
            x = F.pad(x, mode="constant", constant_value=0, pad_width=(0, 0, 0, 0, *extra))
        return F.relu(getattr(F, operator)(x, w, b, **attrs))

    weights = (channels, filters // groups, *kernel) if is_adjoint else (filters, channels // groups, *kernel)
    return compute, [rng.normal(size=shape).astype("f") for shape in ((1, channels, *size), weights, (filters,))]


class WithWeights(nn.HybridBlock):
    """What `compute` makes of an input and two parameters."""

    def __init__(self, compute, w, b):
        super().__init__()
        self.compute = compute
        with self.name_scope():
            self.w, self.b = (self.params.get(name, shape=v.shape) for name, v in (("w", w), ("b", b)))
        self.initialize()
        self.w.set_data(mx.nd.array(w))
        self.b.set_data(mx.nd.array(b))

    def hybrid_forward(self, F, x, w, b):
        return self.compute(F, x, w, b)


@pytest.mark.parametrize("kind", RANDOM)
def test_random_convolutions_of_weights_that_are_not_finite(kind, monkeypatch):
    """The same pixels are NaN and infinite in both modes, be the padding the layer's own or a `pad` in front, whose
    zeros are terms of the sum; and they are numbers again when the weights are."""
    number = list(RANDOM).index(kind)
    rng = np.random.default_rng(number)
    targets = [TARGETS[(number + k) % len(TARGETS)] for k in range(2)]
    for target in targets:
        runnable(target)
    for fixed, target in zip((False, True), targets, strict=True):
        monkeypatch.setenv("GLUONJIT_TARGET", target)
        compute, (x, w, b) = random_convolution(kind, rng)
        finite = w.copy()
        w.flat[rng.integers(w.size, size=2)] = np.inf, np.nan
        net = WithWeights(compute, w, b) if fixed else nn.HybridLambda(compute)
        args = [mx.nd.array(v) for v in ((x,) if fixed else (x, w, b))]
        expected = [net(*args).asnumpy()]
        assert not np.isfinite(expected[0]).all()
        net.hybridize(winograd=False)
        found = [net(*args).asnumpy()]
        if fixed:
            net.w.set_data(mx.nd.array(finite))
        else:
            args[1] = mx.nd.array(finite)
        found.append(net(*args).asnumpy())
        net.hybridize(False)
        expected.append(net(*args).asnumpy())
        for y, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)


def test_zeros_before_a_depthwise_convolution_are_terms_where_it_is_one_kernel_with_a_product():
    rng = np.random.default_rng(0)
    x, w, depthwise = (rng.normal(size=shape) for shape in ((1, 8, 24, 24), (48, 8, 1, 1), (48, 1, 3, 3)))
    depthwise[3, 0, 2, 0] = np.inf

    def compute(F, x, w, v):
        y = F.relu(F.Convolution(x, w, kernel=(1, 1), num_filter=48, no_bias=True))
        y = F.pad(y, mode="constant", constant_value=0, pad_width=(0, 0, 0, 0, 0, 1, 0, 1))
        y = F.Convolution(y, v, kernel=(3, 3), stride=(2, 2), num_filter=48, num_group=48, no_bias=True)
        return F.concat(y, y * 2, dim=1)

    net = nn.HybridLambda(compute)
    args = [mx.nd.array(v) for v in (x, w, depthwise)]
    expected = net(*args).asnumpy()
    assert np.isnan(expected).any() and np.isinf(expected).any()
    net.hybridize()
    np.testing.assert_allclose(net(*args).asnumpy(), expected, rtol=1e-4, atol=1e-5)


def test_softmax_length_ignores_what_is_beyond():
    rng = np.random.RandomState(2)
    x, length = floats(rng, 4, 6), np.array([0, 1, 3, 6], np.int32)
    y = one("softmax", x, length, use_length=True)
    x[1, 1:], x[2, 3:] = np.nan, np.inf
    assert np.array_equal(one("softmax", x, length, use_length=True), y)
    assert np.allclose(y.sum(axis=1), [0, 1, 1, 1])


def test_variance_survives_a_large_mean():
    """Of the kind that one pass over the squares loses: all digits are in the deviation."""
    rng = np.random.RandomState(3)
    x = floats(rng, 8, 3, 16) + np.float32(1000)
    wide = x.astype(np.float64)
    mean, var = wide.mean(axis=(0, 2), keepdims=True), wide.var(axis=(0, 2), keepdims=True)
    y = one("BatchNorm", x, *[ones(3)] * 4, training=True, eps=1e-5)
    # Centred around the mean as float32 has it, which is off by up to 3e-5 here.
    assert difference(y, ((wide - mean) / np.sqrt(var + 1e-5) + 1).astype(np.float32)) < 5e-5


def test_softmax_of_huge_numbers():
    x = np.array([[1e30, 0, -1e30], [88, 89, 90]], np.float32)
    assert np.isfinite(one("softmax", x)).all()
    assert one("log_softmax", x)[0].tolist() == pytest.approx([0, -1e30, -2e30])


# Random operators


def test_dropout_keeps_the_expectation():
    x = ones(200, 200)
    y = one("Dropout", x, training=True, p=0.3)
    assert set(np.unique(y)) == {0, np.float32(1 / 0.7)}
    assert y.mean() == pytest.approx(1, abs=0.02)
    assert np.array_equal(one("Dropout", x, training=True, p=0.3), y), "one key, one mask"
    assert np.array_equal(one("Dropout", x, p=0.3), x), "nothing is dropped outside of training"


def test_dropout_shares_along_axes():
    y = one("Dropout", ones(6, 5, 7), mode="always", axes=(0, -1))
    assert (y == y[:1, :, :1]).all() and len(np.unique(y)) == 2


def test_dropout_of_everything():
    assert not one("Dropout", ones(9), training=True, p=1).any()


def test_rrelu_draws_its_slopes():
    x = -ones(100, 100)
    out, mask = run_eager("LeakyReLU", [x], {"act_type": "rrelu", "lower_bound": 0.1, "upper_bound": 0.5}, True)
    assert np.array_equal(out, -mask) and 0.1 <= mask.min() and mask.max() < 0.5
    assert mask.mean() == pytest.approx(0.3, abs=0.01) and len(np.unique(mask)) > 9000
    out, mask = run_eager("LeakyReLU", [x], {"act_type": "rrelu", "lower_bound": 0.1, "upper_bound": 0.5})
    assert np.allclose(mask, 0.3) and np.allclose(out, -0.3)


@pytest.mark.parametrize(
    ("operator", "attrs", "inference", "training"),
    [
        ("Dropout", {}, 0, 1),
        ("Dropout", {"p": 0}, 0, 0),
        ("Dropout", {"mode": "always"}, 1, 1),
        ("LeakyReLU", {"act_type": "rrelu"}, 0, 1),
        ("LeakyReLU", {}, 0, 0),
    ],
)
def test_streams_are_those_drawn(operator, attrs, inference, training):
    from gluonjit.runtime.eager import Eager

    op = get(operator)
    for mode, expected in ((False, inference), (True, training)):
        keys = []

        def next_key(keys=keys):
            keys.append(1)
            return np.array(KEY)

        op.expand_into(Eager(mode, next_key), [ones(2, 3)], op.parse(attrs))
        assert len(keys) == expected == op.streams(op.parse(attrs), mode)


# Shapes on the Symbol level, as MXNet completes them


COMPLETED = [
    ("FullyConnected", {"num_hidden": 5}, [(2, 3, 4), None, None], [(2, 3, 4), (5, 12), (5,)]),
    ("FullyConnected", {"num_hidden": 5}, [(0, 3, 4), (5, 0), None], [(0, 3, 4), (5, 12), (5,)]),
    ("FullyConnected", {"num_hidden": 5, "flatten": False}, [(2, 0, 4), None, None], [(2, 0, 4), (5, 4), (5,)]),
    ("FullyConnected", {"num_hidden": 5}, [None, (5, 7), None], [None, (5, 7), None]),
    (
        "Convolution",
        {"kernel": (3, 3), "num_filter": 5},
        [(2, 3, 0, 9), None, None],
        [(2, 3, 0, 9), (5, 3, 3, 3), (5,)],
    ),
    (
        "Convolution",
        {"kernel": (3, 3), "num_filter": 6, "num_group": 3, "layout": "NHWC"},
        [(2, 9, 9, 3), None, None],
        [(2, 9, 9, 3), (6, 3, 3, 1), (6,)],
    ),
    (
        "Deconvolution",
        {"kernel": (3, 3), "num_filter": 6, "num_group": 3, "no_bias": False},
        [(2, 3, 9, 9), None, None],
        [(2, 3, 9, 9), (3, 2, 3, 3), (6,)],
    ),
    ("BatchNorm", {}, [(0, 3, 9, 9), *[None] * 4], [(0, 3, 9, 9), *[(3,)] * 4]),
    ("BatchNorm", {"axis": -1}, [(0, 3, 0, 9), *[None] * 4], [(0, 3, 0, 9), *[(9,)] * 4]),
    ("LayerNorm", {}, [(2, 3, 4), None, None], [(2, 3, 4), (4,), (4,)]),
    ("GroupNorm", {"num_groups": 2}, [(2, 4, 4), None, None], [(2, 4, 4), (2,), (2,)]),
    ("InstanceNorm", {}, [(2, 4, 5), None, None], [(2, 4, 5), (4,), (4,)]),
    ("LeakyReLU", {"act_type": "prelu"}, [(2, 3, 4), None], [(2, 3, 4), (3,)]),
    ("LeakyReLU", {"act_type": "prelu"}, [(2, 3, 4), (1,)], [(2, 3, 4), (1,)]),
    ("Embedding", {"input_dim": 4, "output_dim": 3}, [None, None], [None, (4, 3)]),
    ("SoftmaxOutput", {}, [(2, 4), None], [(2, 4), (2,)]),
    ("SoftmaxOutput", {"multi_output": True}, [(2, 4, 5, 6), None], [(2, 4, 5, 6), (2, 30)]),
    ("SoftmaxOutput", {"preserve_shape": True}, [(2, 4, 5), None], [(2, 4, 5), (2, 4)]),
    ("LinearRegressionOutput", {}, [(2, 1), None], [(2, 1), (2,)]),
    ("LinearRegressionOutput", {}, [(2, 4), None], [(2, 4), (2, 4)]),
    ("softmax", {"use_length": True}, [(2, 4), None], [(2, 4), (2,)]),
    ("where", {}, [None, (2, 0), (0, 4)], [None, (2, 4), (2, 4)]),
]


@pytest.mark.parametrize(("operator", "attrs", "before", "after"), COMPLETED)
def test_complete(operator, attrs, before, after):
    op = get(operator)
    assert op.complete(op.parse(attrs), before) == after


@pytest.mark.parametrize(
    ("operator", "attrs", "inputs", "output", "refined"),
    [
        ("FullyConnected", {"num_hidden": 5}, [(0, 3)], (4, 5), (4, 3)),
        ("FullyConnected", {"num_hidden": 5, "flatten": False}, [(0, 0, 3)], (4, 2, 5), (4, 2, 3)),
        ("Convolution", {"kernel": (3, 3), "num_filter": 5}, [(0, 3, 5, 0)], (2, 5, 3, 3), (2, 3, 5, 5)),
        ("Convolution", {"kernel": (3,), "num_filter": 5, "stride": (2,)}, [(0, 3, 0)], (2, 5, 3), (2, 3, 0)),
        ("Deconvolution", {"kernel": (3,), "num_filter": 5}, [(0, 3, 0)], (2, 5, 3), (2, 3, 0)),
        ("BatchNorm", {}, [None], (2, 3, 4), (2, 3, 4)),
        ("Embedding", {"input_dim": 4, "output_dim": 3}, [None], (2, 5, 3), (2, 5)),
    ],
)
def test_backward(operator, attrs, inputs, output, refined):
    op = get(operator)
    parsed = op.parse(attrs)
    rest = [None] * (len(op.input_names(parsed)) - 1)
    assert op.infer_inputs(parsed, [*inputs, *rest], [output]) == [refined, *rest]


def test_contradicting_shapes():
    op = get("FullyConnected")
    with pytest.raises(MXNetError, match=r"Shape inconsistent, Provided = \[5,7\], inferred shape=\[5,12\]"):
        op.complete(op.parse({"num_hidden": 5}), [(2, 3, 4), (5, 7), None])


def test_results_that_mxnet_counts():
    """`node_row_ptr` of symbol files counts hidden results."""
    counts = {
        name: len(get(name).outputs(get(name).parse(attrs)))
        for name, attrs in [
            ("BatchNorm", {}),
            ("LayerNorm", {}),
            ("GroupNorm", {}),
            ("InstanceNorm", {}),
            ("Dropout", {}),
            ("L2Normalization", {}),
            ("LRN", {"nsize": 3}),
            ("Pooling", {"kernel": (2, 2)}),
            ("LeakyReLU", {}),
            ("softmax", {}),
        ]
    }
    assert list(counts.values()) == [3, 3, 3, 3, 2, 2, 2, 2, 1, 1]
    pooling, leaky = get("Pooling"), get("LeakyReLU")
    assert len(pooling.outputs(pooling.parse({"pool_type": "avg"}))) == 1
    assert len(leaky.outputs(leaky.parse({"act_type": "rrelu"}))) == 2


def test_embedding_beyond_the_table():
    table = floats(np.random.RandomState(4), 4, 2)
    index = np.array([-3, 0, 3, 9])
    assert np.array_equal(one("Embedding", index, table, input_dim=4, output_dim=2), table[[0, 0, 3, 3]])


@pytest.mark.parametrize(
    "data, gamma, axis",
    [
        ((2, 3, 4), (3,), 1),
        ((2, 3, 4), (1, 3), 1),
        ((2, 3, 4), (2,), 0),
        ((3, 4), (1, 4), 1),
        ((3, 4), (3, 1), 0),
        ((2, 3, 4), (1, 1), None),
        ((2,), (2,), 0),
    ],
)
def test_slopes_of_prelu_belong_to_the_axis_that_mxnet_takes(data, gamma, axis):
    slopes = np.arange(1, 1 + np.prod(gamma), dtype=np.float32)
    shape = [1] * len(data)
    if axis is not None:
        shape[axis] = -1
    expected = np.broadcast_to(-slopes.reshape(shape), data)
    np.testing.assert_array_equal(one("LeakyReLU", -ones(*data), slopes.reshape(gamma), act_type="prelu"), expected)


@pytest.mark.parametrize("gamma", [(4,), (1, 4), (3, 1), (3, 4), (2, 3, 4), (1, 3, 1), (2, 1, 1)])
def test_slopes_that_mxnet_refuses(gamma):
    with pytest.raises(MXNetError, match="Cannot broadcast gamma to data"):
        one("LeakyReLU", ones(2, 3, 4), ones(*gamma), act_type="prelu")


SAME = [  # kernel, stride, and what MXNet gives for 3 1 4 1 5 (where its oneDNN build can)
    ("max", 2, 3, [3, 5]),
    ("avg", 2, 2, [2, 2.5, 5]),
    ("avg", 2, 3, [2, 3]),
    ("avg", 4, 3, [2.25, 3]),
    ("sum", 3, 2, [8, 10, 5]),
    ("sum", 2, 2, [4, 5, 5]),
    ("sum", 3, 1, [8, 6, 10, 6, 5]),
    ("sum", 4, 3, [9, 6]),
    ("lp", 2, 2, [10**0.5, 17**0.5, 5]),
]


@pytest.mark.parametrize("pool_type, kernel, stride, expected", SAME)
def test_pooling_that_begins_at_every_stride(pool_type, kernel, stride, expected):
    x = np.array([3, 1, 4, 1, 5], np.float32)
    attrs = {
        "pool_type": pool_type,
        "kernel": (kernel,),
        "stride": (stride,),
        "pooling_convention": "same",
        "p_value": 2,
    }
    np.testing.assert_allclose(one("Pooling", x.reshape(1, 1, 5), **attrs)[0, 0], expected, rtol=1e-6)
    channels_last = one("Pooling", x.reshape(1, 5, 1), layout="NWC", **attrs)
    np.testing.assert_allclose(channels_last[0, :, 0], expected, rtol=1e-6)


def test_bilinear_upsampling_has_a_window_for_each_channel():
    side = np.array([0.25, 0.75, 0.75, 0.25], np.float32)
    x = np.array([[1, 2], [3, 4]], np.float32).reshape(1, 1, 2, 2)
    y = one("UpSampling", x, np.outer(side, side).reshape(1, 1, 4, 4), scale=2, sample_type="bilinear", num_args=1)
    assert y[0, 0].tolist() == [
        [0.5625, 0.9375, 1.3125, 1.125],
        [1.125, 1.75, 2.25, 1.875],
        [1.875, 2.75, 3.25, 2.625],
        [1.6875, 2.4375, 2.8125, 2.25],
    ]


@pytest.mark.parametrize(
    "operator", ["max", "min", "argmax", "argmin", "_np_max", "_np_min", "_npi_argmax", "_npi_argmin"]
)
@pytest.mark.parametrize("shape, axis", [((0,), None), ((0, 2), 0), ((2, 0), 1), ((0, 2), None), ((0, 0), 1)])
def test_extremes_of_nothing_are_refused(operator, shape, axis):
    name = operator.rpartition("_")[2]
    with pytest.raises(MXNetError, match=rf"{name} of no elements: the data has shape \[{','.join(map(str, shape))}\]"):
        one(operator, np.zeros(shape, np.float32), axis=axis)


@pytest.mark.parametrize(
    "operator", ["max", "min", "argmax", "argmin", "_np_max", "_np_min", "_npi_argmax", "_npi_argmin"]
)
def test_no_extremes_of_something_are_none(operator):
    assert one(operator, np.zeros((0, 2), np.float32), axis=1).shape == (0,)
    assert one(operator, np.zeros((2, 0), np.float32), axis=0).shape == (0,)


@pytest.mark.parametrize(
    "shape, axes, expected", [((), None, (0,)), ((), (), (0,)), ((2,), (), (2, 0)), ((0, 2), None, (0, 2, 2))]
)
def test_positions_of_few_axes(shape, axes, expected):
    found = one("_contrib_index_array", np.zeros(shape, np.float32), axes=axes)
    assert found.shape == expected and found.dtype == np.int64


@pytest.mark.parametrize("op", ["LinearRegressionOutput", "MAERegressionOutput", "LogisticRegressionOutput"])
def test_labels_of_regressions_have_a_value_for_each_of_the_data(op):
    for data, label in (((4, 1), (4,)), ((2, 3, 4), (2, 12)), ((0, 3), (0, 3))):
        assert getattr(mx.nd, op)(mx.nd.ones(data), mx.nd.ones(label)).shape == data
    for data, label in (((2, 2), (4, 2)), ((4, 2), (8,)), ((3, 4), (4, 3))):
        with pytest.raises(mx.MXNetError, match="Shape inconsistent"):
            getattr(mx.nd, op)(mx.nd.ones(data), mx.nd.ones(label))


def test_the_gradient_of_correlation_where_both_images_are_equal():
    """|x - y| has the derivative 1 by x there, -1 by y; padding counts as 0. The numbers are MXNet's."""
    a, b = (mx.nd.array((np.arange(16) // k).reshape(1, 1, 4, 4) % 3) for k in (1, 2))
    a.attach_grad()
    b.attach_grad()
    with mx.autograd.record():
        y = mx.nd.Correlation(a, b, kernel_size=1, max_displacement=1, pad_size=1, is_multiply=False)
    y.backward()
    assert a.grad.asnumpy().tolist() == [[[[5, 5, 9, 5], [5, 9, -3, 5], [9, -3, 3, 9], [5, 7, 9, 1]]]]
    assert b.grad.asnumpy().tolist() == [[[[-4, -6, -2, 0], [2, 3, -9, -6], [-2, -3, 3, 2], [-4, -6, -2, -2]]]]


REGRESSIONS = ["LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"]
LABELS = [
    *((name, {}, data, label) for name in REGRESSIONS for data, label in [
        ((4, 1), (4, 1)),
        ((4, 1), (4,)),
        ((4,), (4, 1)),
        ((4, 1), (4, 1, 1)),
        ((2, 3, 2), (2, 6)),
        ((2, 6), (2, 3, 2)),
    ]),
    ("SoftmaxOutput", {}, (4, 3), (4, 3)),
    ("SoftmaxOutput", {"preserve_shape": True}, (4, 3, 2), (4, 3, 2)),
    *(("SoftmaxOutput", {"multi_output": True}, (4, 3, 2), label) for label in [(4, 2), (4, 1, 2), (4, 3, 2)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "attrs", "data", "label"), LABELS)
def test_labels_that_an_output_layer_takes(name, attrs, data, label):
    """What MXNet infers, binds and trains with; the executor's gradient is that of the plain call."""
    inputs = [mx.nd.array(np.arange(np.prod(shape)).reshape(shape) % k) for shape, k in ((data, 5), (label, 2))]
    out = getattr(mx.sym, name)(mx.sym.var("data"), mx.sym.var("label"), **attrs)
    assert out.infer_shape(data=data, label=label) == ([data, label], [data], [])
    executor = out.simple_bind(mx.cpu(), data=data, label=label)
    for array, given in zip(executor.arg_arrays, inputs):
        array[:] = given
    executor.forward(is_train=True)
    executor.backward()
    inputs[0].attach_grad()
    with mx.autograd.record():
        y = getattr(mx.nd, name)(*inputs, **attrs)
    y.backward()
    np.testing.assert_array_equal(executor.grad_dict["data"].asnumpy(), inputs[0].grad.asnumpy())


@pytest.mark.parametrize(("name", "attrs", "data", "label"), [
    *((name, {}, (2, 3, 2), label) for name in REGRESSIONS for label in [(6, 2), (12,), (2, 5)]),
    ("SoftmaxOutput", {}, (4, 3), (4, 1)),
    ("SoftmaxOutput", {}, (4, 3, 2), (4, 2)),
    ("SoftmaxOutput", {"multi_output": True}, (4, 3, 2), (4, 3)),
    ("SVMOutput", {}, (4, 3), (4, 3)),
])  # fmt: skip
def test_labels_that_an_output_layer_refuses(name, attrs, data, label):
    out = getattr(mx.sym, name)(mx.sym.var("data"), mx.sym.var("label"), **attrs)
    with pytest.raises(MXNetError, match="Shape inconsistent"):
        out.infer_shape(data=data, label=label)
    with pytest.raises(MXNetError, match="label"):
        getattr(mx.nd, name)(mx.nd.zeros(data), mx.nd.zeros(label), **attrs)


@pytest.mark.parametrize(
    ("attrs", "left"),
    [
        ({"id_index": 0}, [1, -2, 0]),
        ({"id_index": 0, "background_id": -2}, [-1, 1, 0]),
        ({"id_index": 0, "background_id": 1}, [-1, -2, 0]),
        ({}, [-1, 1, 0]),
    ],
)
def test_the_class_of_the_background_may_be_negative(attrs, left):
    """MXNet's results: rows of class -1, as detectors mark what they have dropped, are no candidates by default."""
    corners = [[0, 0, 1, 1], [2, 2, 3, 3], [0, 0, 1, 1], [4, 4, 5, 5]]
    scores = {-1: 0.9, 1: 0.8, -2: 0.7, 0: 0.6}
    rows = mx.nd.array([[k, score, *corner] for (k, score), corner in zip(scores.items(), corners)])
    found = mx.nd.contrib.box_nms(rows, **attrs).asnumpy()
    assert [(row[0], round(float(row[1]), 3)) for row in found if row[1] > 0] == [(k, scores[k]) for k in left]


HAWKES = [
    [-8.13632, -9.082193],
    [[0.393483, 0.052266], [0.0, 0.068774]],
    [[0.422017, -2.35475], [-8.0, -3.689722]],
    [-0.95055, -8.211354],
    [-0.151308, -0.374526],
    [[0, 0], [0, 0]],
]
"""Likelihood, memory, and gradients by lda, alpha, beta and state, as MXNet 1.9.1 gives them."""


@pytest.mark.parametrize("hybridized", [False, True])
def test_the_gradient_of_hawkesll_is_that_of_mxnet(hybridized):
    """By the parameters alone, of the likelihood alone."""
    lda = mx.nd.array([[0.5, 1.5], [1, 0.75]])
    alpha, beta = mx.nd.array([0.25, 0.5]), mx.nd.array([1, 2])
    state = mx.nd.array([[0.5, 1], [0, 2]])
    lags, marks = mx.nd.array([[0.5, 1, 0.25], [2, 0.5, 1]]), mx.nd.array([[0, 1, 0], [1, 1, 0]], dtype="int32")
    rest = [lags, marks, mx.nd.array([3, 2]), mx.nd.array([3, 4])]

    class Likelihood(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, *inputs):
            return F.contrib.hawkesll(*inputs)

    net = Likelihood()
    net.hybridize(hybridized)
    inputs = [lda, alpha, beta, state]
    for x in inputs:
        x.attach_grad()
    with mx.autograd.record():
        likelihood, memory = net(*inputs, *rest)
        total = (likelihood * mx.nd.array([1, 2])).sum() + memory.sum()
    total.backward()
    for x, expected in zip([likelihood, memory, *(x.grad for x in inputs)], HAWKES, strict=True):
        np.testing.assert_allclose(x.asnumpy(), expected, rtol=1e-5, atol=1e-6)
