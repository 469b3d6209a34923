"""Samples of the operators behind layers: dense, convolution, pooling, normalization, softmax, dropout."""

import numpy as np

from .samples import floats, integers, sample, special


def positive(rng, *shape, dtype="float32"):
    return floats(rng, *shape, dtype=dtype, low=0.3, high=2)


# Dense


@sample("FullyConnected")
def dense(rng):
    return [floats(rng, 4, 7), floats(rng, 5, 7), floats(rng, 5)], {"num_hidden": 5}


@sample("FullyConnected")
def dense_flattens(rng):
    return [floats(rng, 3, 2, 2, 3), floats(rng, 4, 12)], {"num_hidden": 4, "no_bias": True}


@sample("FullyConnected")
def dense_keeps_axes(rng):
    attrs = {"num_hidden": 4, "flatten": False}
    return [floats(rng, 2, 3, 6), floats(rng, 4, 6), floats(rng, 4)], attrs


@sample("FullyConnected")
def dense_float64(rng):
    x, w, c = (floats(rng, *s, dtype="float64") for s in ((2, 30), (3, 30), (3,)))
    return [x, w, c], {"num_hidden": 3}


@sample("FullyConnected")
def dense_of_a_vector(rng):
    return [floats(rng, 4), floats(rng, 5, 1)], {"num_hidden": 5, "no_bias": True}


@sample("FullyConnected", oracle=False)
def dense_float16(rng):
    return [floats(rng, 2, 3, dtype="float16"), floats(rng, 2, 3, dtype="float16")], {"num_hidden": 2, "no_bias": True}


@sample("Embedding")
def embedding(rng):
    return [integers(rng, 2, 3, low=0, high=6), floats(rng, 6, 4)], {"input_dim": 6, "output_dim": 4}


@sample("Embedding")
def embedding_clips(rng):
    return [integers(rng, 9, dtype="float32"), floats(rng, 6, 4)], {"input_dim": 6, "output_dim": 4}


@sample("Embedding")
def embedding_truncates(rng):
    return [floats(rng, 9, low=-1, high=7), floats(rng, 6, 2)], {"input_dim": 6, "output_dim": 2}


@sample("Embedding")
def embedding_float64(rng):
    attrs = {"input_dim": 5, "output_dim": 2, "dtype": "float64"}
    return [integers(rng, 3, 2, dtype="int64"), floats(rng, 5, 2, dtype="float64")], attrs


# Convolution


def convolution(rng, batch, channels, space, filters, kernel, *, groups=1, bias=True, dtype="float32", **attrs):
    data = floats(rng, batch, channels, *space, dtype=dtype)
    weight = floats(rng, filters, channels // groups, *kernel, dtype=dtype)
    inputs = [data, weight, floats(rng, filters, dtype=dtype)] if bias else [data, weight]
    return inputs, {"kernel": kernel, "num_filter": filters, "num_group": groups, "no_bias": not bias, **attrs}


@sample("Convolution")
def conv2d(rng):
    return convolution(rng, 2, 3, (6, 7), 4, (3, 3), pad=(1, 1), stride=(2, 1))


@sample("Convolution")
def conv1d(rng):
    return convolution(rng, 2, 3, (9,), 4, (4,), pad=(2,), stride=(2,), dilate=(2,))


@sample("Convolution")
def conv3d(rng):
    return convolution(rng, 1, 2, (4, 5, 4), 3, (3, 2, 3), pad=(1, 0, 1), stride=(1, 2, 1), bias=False)


@sample("Convolution")
def conv_grouped(rng):
    return convolution(rng, 1, 6, (5, 5), 4, (3, 3), groups=2, dilate=(1, 2), pad=(0, 2))


@sample("Convolution")
def conv_depthwise(rng):
    return convolution(rng, 2, 4, (5, 6), 8, (3, 3), groups=4, pad=(1, 1), bias=False, layout="NCHW")


@sample("Convolution")
def conv_pointwise_float64(rng):
    return convolution(rng, 2, 5, (3, 3), 4, (1, 1), dtype="float64", stride=(2, 2))


@sample("Convolution", oracle=False)
def conv_channels_last(rng):
    attrs = {"kernel": (3, 2), "num_filter": 4, "num_group": 2, "layout": "NHWC", "pad": (1, 0), "stride": (1, 2)}
    return [floats(rng, 2, 5, 6, 6), floats(rng, 4, 3, 2, 3), floats(rng, 4)], attrs


@sample("Convolution", oracle=False)
def conv_float16(rng):
    return convolution(rng, 1, 3, (5, 5), 2, (3, 3), dtype="float16")


def deconvolution(rng, batch, channels, space, filters, kernel, *, groups=1, bias=False, dtype="float32", **attrs):
    data = floats(rng, batch, channels, *space, dtype=dtype)
    weight = floats(rng, channels, filters // groups, *kernel, dtype=dtype)
    inputs = [data, weight, floats(rng, filters, dtype=dtype)] if bias else [data, weight]
    return inputs, {"kernel": kernel, "num_filter": filters, "num_group": groups, "no_bias": not bias, **attrs}


@sample("Deconvolution")
def deconv2d(rng):
    return deconvolution(rng, 2, 3, (4, 3), 2, (3, 4), stride=(2, 3), pad=(1, 0), adj=(1, 2), bias=True)


@sample("Deconvolution")
def deconv1d(rng):
    return deconvolution(rng, 1, 4, (5,), 3, (4,), stride=(2,), pad=(1,))


@sample("Deconvolution")
def deconv3d(rng):
    return deconvolution(rng, 1, 2, (3, 2, 3), 3, (3, 3, 2), stride=(2, 2, 1))


@sample("Deconvolution")
def deconv_grouped(rng):
    return deconvolution(rng, 2, 4, (3, 3), 6, (3, 3), groups=2, stride=(1, 2), bias=True)


@sample("Deconvolution")
def deconv_to_target_shape(rng):
    return deconvolution(rng, 1, 2, (3, 3), 3, (3, 3), stride=(2, 2), target_shape=(6, 5), dtype="float64")


@sample("Deconvolution")
def deconv_dilated(rng):
    return deconvolution(rng, 1, 2, (3, 3), 3, (3, 3), dilate=(2, 2), stride=(2, 2), pad=(1, 2))


@sample("Deconvolution", oracle=False)
def deconv_channels_last(rng):
    attrs = {"kernel": (3, 3), "num_filter": 4, "num_group": 2, "layout": "NHWC", "stride": (2, 1)}
    return [floats(rng, 1, 3, 4, 6), floats(rng, 6, 3, 3, 2)], attrs


# Pooling

POOLS = ("max", "avg", "sum", "lp")


def pool(rng, data, **attrs):
    return [data], {"pool_type": str(rng.choice(POOLS)), "p_value": int(rng.choice([1, 2, 3])), **attrs}


for _kind in POOLS:

    @sample("Pooling")
    def pool_valid(rng, kind=_kind):
        attrs = {"kernel": (3, 2), "stride": (2, 2), "pad": (1, 1), "pool_type": kind}
        return pool(rng, floats(rng, 2, 3, 7, 6), **attrs)

    @sample("Pooling")
    def pool_full(rng, kind=_kind):
        attrs = {"kernel": (3, 3), "stride": (2, 2), "pooling_convention": "full", "pool_type": kind}
        return pool(rng, floats(rng, 1, 2, 6, 8), **attrs)

    @sample("Pooling")
    def pool_global(rng, kind=_kind):
        return pool(rng, floats(rng, 2, 3, 4, 5), global_pool=True, kernel=(2, 2), pad=(1, 1), pool_type=kind)

    @sample("Pooling")
    def pool_1d(rng, kind=_kind):
        return pool(rng, floats(rng, 2, 3, 8), kernel=(3,), stride=(2,), pad=(1,), pool_type=kind)

    @sample("Pooling")
    def pool_3d(rng, kind=_kind):
        return pool(rng, floats(rng, 1, 2, 4, 5, 4, dtype="float64"), kernel=(2, 3, 2), pool_type=kind)

    @sample("Pooling")
    def pool_channels_last(rng, kind=_kind):
        return pool(rng, floats(rng, 2, 5, 4, 3), kernel=(2, 2), layout="NHWC", pool_type=kind)


@sample("Pooling")
def pool_without_padding_in_the_average(rng):
    attrs = {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "pool_type": "avg", "count_include_pad": False}
    return [floats(rng, 1, 2, 6, 5)], attrs


@sample("Pooling")
def pool_full_average_of_padding(rng):
    attrs = {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "pool_type": "avg", "pooling_convention": "full"}
    return [floats(rng, 1, 2, 6, 8)], {**attrs, "count_include_pad": bool(rng.randint(2))}


@sample("Pooling")
def pool_full_window_beside_the_input(rng):
    attrs = {"kernel": (1, 1), "stride": (3, 3), "pool_type": "avg", "pooling_convention": "full"}
    return [floats(rng, 1, 1, 3, 3)], attrs


for _kind in ("max", "sum"):

    @sample("Pooling")
    def pool_full_windows_in_the_padding(rng, kind=_kind):
        attrs = {"kernel": (2, 2), "stride": (2, 2), "pad": (1, 1), "pooling_convention": "full", "pool_type": kind}
        return [floats(rng, 1, 2, 5, 6)], attrs

    @sample("Pooling")
    def pool_full_volumes_in_the_padding(rng, kind=_kind):
        attrs = {"kernel": (2,) * 3, "stride": (2,) * 3, "pad": (1,) * 3, "pooling_convention": "full"}
        return [floats(rng, 1, 2, 3, 4, 5, dtype="float64")], {**attrs, "pool_type": kind}


@sample("Pooling", oracle=False)
def pool_float16(rng):
    return pool(rng, floats(rng, 1, 2, 5, 5, dtype="float16"), kernel=(2, 2))


# Normalization

BATCH_NORMS = ("BatchNorm", "_contrib_BatchNormWithReLU", "_contrib_SyncBatchNorm")
WITHOUT_RELU = ("BatchNorm", "_contrib_SyncBatchNorm")  # MXNet fuses relu only for images and batch statistics


def batch_norm(rng, shape, axis=1, dtype="float32", parameters=None):
    n, parameters = shape[axis], parameters or dtype
    vectors = [floats(rng, n, dtype=parameters) for _ in range(3)]
    gamma, beta, mean = vectors
    return [floats(rng, *shape, dtype=dtype), gamma, beta, mean, positive(rng, n, dtype=parameters)]


def key(name):
    return {"key": "k"} if name == "_contrib_SyncBatchNorm" else {}


for _name in BATCH_NORMS:

    @sample(_name)
    def batch_norm_inference(rng, name=_name):
        return batch_norm(rng, (2, 3, 4, 2)), {"fix_gamma": False, "eps": 1e-5, **key(name)}

    @sample(_name, oracle=_name in WITHOUT_RELU)
    def batch_norm_fixed_gamma(rng, name=_name):
        return batch_norm(rng, (4, 3)), key(name)

    @sample(_name, training=True)
    def batch_norm_training(rng, name=_name):
        return batch_norm(rng, (4, 3, 2, 5)), {"fix_gamma": False, "eps": 1e-3, **key(name)}

    @sample(_name, training=True, oracle=_name in WITHOUT_RELU)
    def batch_norm_global_stats(rng, name=_name):
        return batch_norm(rng, (2, 3, 4)), {"fix_gamma": False, "use_global_stats": True, **key(name)}


@sample("BatchNorm")
def batch_norm_last_axis(rng):
    return batch_norm(rng, (2, 3, 4), axis=-1), {"fix_gamma": False, "axis": -1}


@sample("BatchNorm")
def batch_norm_statistics(rng):
    return batch_norm(rng, (2, 3, 4)), {"fix_gamma": False, "output_mean_var": True, "eps": 0.1}


@sample("BatchNorm", training=True)
def batch_norm_batch_statistics(rng):
    return batch_norm(rng, (5, 3, 4)), {"fix_gamma": False, "output_mean_var": True, "eps": 0.1}


@sample("BatchNorm", training=True)
def batch_norm_float64(rng):
    return batch_norm(rng, (5, 3, 2), dtype="float64"), {"fix_gamma": False}


@sample("BatchNorm", oracle=False)
def batch_norm_float16(rng):
    return batch_norm(rng, (5, 3, 2), dtype="float16", parameters="float32"), {"fix_gamma": False}


@sample("BatchNorm", training=True)
def batch_norm_far_from_zero(rng):
    data, *rest = batch_norm(rng, (5, 3, 8))
    return [data + np.float32(300), *rest], {"fix_gamma": False}


def norm(rng, shape, n, dtype="float32"):
    return [floats(rng, *shape, dtype=dtype), floats(rng, n, dtype=dtype), floats(rng, n, dtype=dtype)]


@sample("LayerNorm")
def layer_norm(rng):
    return norm(rng, (2, 3, 8), 8), {}


@sample("LayerNorm")
def layer_norm_axis(rng):
    return norm(rng, (2, 5, 3), 5), {"axis": 1, "eps": 1e-3}


@sample("LayerNorm")
def layer_norm_statistics(rng):
    return norm(rng, (4, 6), 6), {"axis": -1, "eps": 0.1, "output_mean_var": True}


@sample("LayerNorm")
def layer_norm_float64(rng):
    return norm(rng, (4, 6), 6, "float64"), {}


@sample("LayerNorm", oracle=False)
def layer_norm_float16(rng):
    return norm(rng, (4, 6), 6, "float16"), {}


@sample("GroupNorm")
def group_norm(rng):
    return norm(rng, (2, 6, 5), 3), {"num_groups": 3}


@sample("GroupNorm")
def group_norm_images(rng):
    return norm(rng, (2, 4, 3, 3), 2), {"num_groups": 2, "eps": 1e-3}


@sample("GroupNorm")
def group_norm_statistics(rng):
    return norm(rng, (3, 4, 6), 2), {"num_groups": 2, "eps": 0.1, "output_mean_var": True}


@sample("InstanceNorm")
def instance_norm(rng):
    return norm(rng, (2, 3, 7), 3), {}


@sample("InstanceNorm")
def instance_norm_images(rng):
    return norm(rng, (2, 3, 4, 5), 3), {"eps": 1e-5}


@sample("InstanceNorm")
def instance_norm_volumes(rng):
    return norm(rng, (1, 2, 3, 2, 3), 2), {"eps": 0.1}


for _mode in ("instance", "channel", "spatial"):

    @sample("L2Normalization")
    def l2_normalization(rng, mode=_mode):
        return [floats(rng, 2, 3, 4, 2)], {"mode": mode, "eps": float(rng.choice([1e-10, 0.1]))}

    @sample("L2Normalization")
    def l2_normalization_of_3_axes(rng, mode=_mode):
        return [floats(rng, 2, 3, 4, dtype="float64")], {"mode": mode}


@sample("L2Normalization")
def l2_normalization_of_rows(rng):
    return [floats(rng, 3, 5)], {}


@sample("LRN")
def lrn(rng):
    return [floats(rng, 2, 6, 2, 3)], {"nsize": int(rng.choice([1, 3, 5]))}


@sample("LRN")
def lrn_parameters(rng):
    return [floats(rng, 1, 7, 2, 2)], {"nsize": 3, "alpha": 0.1, "beta": 0.6, "knorm": 1.5}


# Activations

ACTIVATIONS = ("relu", "sigmoid", "softrelu", "softsign", "tanh")
LEAKY = ("elu", "gelu", "leaky", "selu")

for _kind in ACTIVATIONS:

    @sample("Activation")
    def activation(rng, kind=_kind):
        return [floats(rng, 3, 11, low=-6, high=6)], {"act_type": kind}


@sample("Activation")
def activation_float64(rng):
    return [floats(rng, 20, dtype="float64", low=-30, high=30)], {"act_type": str(rng.choice(ACTIVATIONS))}


@sample("Activation")
def activation_far_out(rng):
    return [floats(rng, 20, low=-200, high=200)], {"act_type": str(rng.choice(ACTIVATIONS))}


@sample("Activation")
def activation_special(rng):
    return [special()], {"act_type": str(rng.choice(["sigmoid", "softsign", "tanh", "softrelu"]))}


for _kind in LEAKY:

    @sample("LeakyReLU")
    def leaky(rng, kind=_kind):
        return [floats(rng, 3, 11, low=-6, high=6)], {"act_type": kind, "slope": float(rng.choice([0.1, 0.25, 1.5]))}

    @sample("LeakyReLU")
    def leaky_special(rng, kind=_kind):
        return [special()], {"act_type": kind}

    @sample("LeakyReLU")
    def leaky_float64(rng, kind=_kind):
        return [floats(rng, 20, dtype="float64")], {"act_type": kind, "slope": 0.5}


@sample("LeakyReLU")
def leaky_without_slope(rng):
    return [np.nan_to_num(special())], {"act_type": "leaky", "slope": 0.0}


@sample("LeakyReLU")
def prelu(rng):
    return [floats(rng, 2, 3, 4), floats(rng, 3)], {"act_type": "prelu"}


@sample("LeakyReLU")
def prelu_one_slope(rng):
    return [floats(rng, 2, 3, 4, 2), floats(rng, 1)], {"act_type": "prelu"}


@sample("_contrib_BatchNormWithReLU")
def batch_norm_with_relu_of_images(rng):
    return batch_norm(rng, (2, 3, 5, 4)), {"eps": 1e-2}


@sample("_contrib_BatchNormWithReLU")
def batch_norm_with_relu_along_an_axis(rng):
    return batch_norm(rng, (2, 3, 5, 4)), {"axis": 1, "fix_gamma": False}


@sample("LeakyReLU", oracle=False)  # MXNet leaves the mask unset outside of training, and crashes inside
def rrelu(rng):
    return [floats(rng, 2, 9)], {"act_type": "rrelu", "lower_bound": 0.1, "upper_bound": 0.3}


@sample("LeakyReLU", training=True, oracle=False)
def rrelu_training(rng):
    return [floats(rng, 2, 9)], {"act_type": "rrelu"}


# Softmax

SOFTMAXES = ("softmax", "log_softmax", "softmin")


@sample(*SOFTMAXES)
def softmax(rng):
    return [floats(rng, 3, 7, low=-9, high=9)], {"axis": int(rng.choice([-1, 0, 1]))}


@sample(*SOFTMAXES)
def softmax_of_large_numbers(rng):
    return [floats(rng, 2, 3, 4, low=-1e4, high=1e4)], {"axis": -2}


@sample(*SOFTMAXES)
def softmax_temperature(rng):
    return [floats(rng, 3, 7)], {"temperature": float(rng.choice([0.5, 2, -1]))}


@sample(*SOFTMAXES)
def softmax_float64(rng):
    return [floats(rng, 3, 7, dtype="float64")], {}


@sample(*SOFTMAXES)
def softmax_float16(rng):
    return [floats(rng, 3, 7, dtype="float16")], {"dtype": str(rng.choice(["float16", "float32"]))}


@sample("softmax")
def softmax_length(rng):
    attrs = {"use_length": True, "axis": 1}
    return [floats(rng, 2, 5, 3), integers(rng, 2, 3, low=0, high=6)], attrs


@sample("softmax")
def softmax_length_last_axis(rng):
    attrs = {"use_length": True, "axis": -1}
    return [floats(rng, 4, 5), integers(rng, 4, low=0, high=6)], attrs


@sample("softmax", "log_softmax")
def softmax_of_minus_infinity(rng):
    data = floats(rng, 3, 6)
    data[0, 2] = data[2, 0] = data[2, 5] = -np.inf
    return [data], {}


@sample("SoftmaxActivation")
def softmax_activation(rng):
    return [floats(rng, 2, 5)], {}


@sample("SoftmaxActivation")
def softmax_activation_channels(rng):
    return [floats(rng, 2, 3, 4)], {"mode": "channel"}


@sample("SoftmaxActivation", oracle=False)  # MXNet knows it in float32 alone
def softmax_activation_float64(rng):
    return [floats(rng, 2, 3, dtype="float64")], {}


# Dropout


@sample("Dropout")
def dropout_inference(rng):
    return [floats(rng, 3, 4)], {"p": 0.7}


@sample("Dropout", training=True)
def dropout_nothing(rng):
    return [floats(rng, 3, 4)], {"p": 0.0}


@sample("Dropout")
def dropout_float64(rng):
    return [floats(rng, 2, 4, dtype="float64")], {}


@sample("Dropout")
def dropout_inference_along_axes(rng):
    return [floats(rng, 3, 4, 2)], {"p": 0.5, "axes": (0, 2)}


@sample("Dropout", training=True, oracle=False)
def dropout_training(rng):
    return [floats(rng, 20, 20)], {"p": 0.3}


@sample("Dropout", oracle=False)
def dropout_always_along_axes(rng):
    return [floats(rng, 5, 6, 3, dtype="float16")], {"mode": "always", "axes": (0, 2)}


# Heads of symbolic models


@sample("SoftmaxOutput")
def softmax_output(rng):
    return [floats(rng, 4, 5), integers(rng, 4, dtype="float32", low=0, high=5)], {}


@sample("SoftmaxOutput")
def softmax_output_multi(rng):
    return [floats(rng, 2, 3, 4), integers(rng, 2, 4, dtype="float32", low=0, high=3)], {"multi_output": True}


@sample("SoftmaxOutput")
def softmax_output_preserve_shape(rng):
    return [floats(rng, 2, 3, 4), integers(rng, 2, 3, dtype="float32", low=0, high=4)], {"preserve_shape": True}


@sample("SoftmaxOutput")
def softmax_output_flattens(rng):
    return [floats(rng, 2, 3, 4), integers(rng, 2, 3, dtype="float32", low=0, high=9)], {}


@sample("LinearRegressionOutput", "MAERegressionOutput", "LogisticRegressionOutput")
def regression(rng):
    return [floats(rng, 4, 3), floats(rng, 4, 3)], {}


@sample("LinearRegressionOutput", "MAERegressionOutput", "LogisticRegressionOutput")
def regression_of_a_column(rng):
    return [floats(rng, 4, 1), floats(rng, 4)], {"grad_scale": 0.5}


@sample("softmax_cross_entropy")
def softmax_cross_entropy(rng):
    return [floats(rng, 6, 4), integers(rng, 6, dtype="float32", low=0, high=4)], {}


@sample("softmax_cross_entropy")
def softmax_cross_entropy_of_the_impossible(rng):
    return [floats(rng, 6, 3, low=-99, high=99), integers(rng, 6, dtype="float32", low=0, high=3)], {}
