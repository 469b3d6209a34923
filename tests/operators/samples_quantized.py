"""Samples of the operators on 8-bit integers."""

import numpy as np

from .samples import floats, integers, sample


def int8(rng, *shape):
    return integers(rng, *shape, dtype="int8", low=-128, high=128)


def uint8(rng, *shape):
    return integers(rng, *shape, dtype="uint8", high=256)


def bounds(rng):
    """Minimum and maximum."""
    return [floats(rng, 1, low=-3, high=0), floats(rng, 1, low=0.1, high=3)]


def calibration(rng):
    low, high = bounds(rng)
    return {"min_calib_range": float(low[0]), "max_calib_range": float(high[0])}


# From and to floats


@sample("_contrib_quantize")
def quantize_to_int8(rng):
    return [floats(rng, 4, 9, low=-4, high=4), *bounds(rng)], {"out_type": "int8"}


@sample("_contrib_quantize")
def quantize_to_uint8(rng):
    return [floats(rng, 4, 9, low=-4, high=4), *bounds(rng)], {}


@sample("_contrib_quantize_asym", oracle=False)  # MXNet ends the process
def quantize_from_the_minimum(rng):
    return [floats(rng, 4, 9, low=-4, high=4)], calibration(rng) if rng.randint(2) else {}


@sample("_contrib_calibrate_entropy")
def histogram_of_odd_length(rng):
    counts = (floats(rng, 21, low=0.1, high=1) * 40).astype("int32") + 1
    return [counts.astype("float32"), np.linspace(-4, 4, 22, dtype="float32")], {"num_quantized_bins": 5}


@sample("_contrib_calibrate_entropy")
def histogram_with_empty_bins(rng):
    counts = rng.randint(0, 3, 40) * rng.randint(1, 9, 40)
    return [counts.astype("float32"), np.linspace(-1, 1, 41, dtype="float32")], {"num_quantized_bins": 7}


@sample("_contrib_quantize_v2")
def quantize_calibrated(rng):
    return [floats(rng, 4, 9, low=-4, high=4)], {"out_type": "int8", **calibration(rng)}


@sample("_contrib_quantize_v2")
def quantize_by_the_data(rng):
    return [floats(rng, 2, 3, 4)], {"out_type": ["int8", "uint8", "auto"][rng.randint(3)]}


@sample("_contrib_quantize_v2")
def quantize_positive(rng):
    return [floats(rng, 30)], {"out_type": "auto", "min_calib_range": 0.0, "max_calib_range": 1.7}


@sample("_contrib_quantize_v2")
def quantize_integers(rng):
    return [int8(rng, 5)], {"out_type": "int8", **(calibration(rng) if rng.randint(2) else {})}


@sample("_contrib_quantize_v2")
def quantize_bytes(rng):
    return [uint8(rng, 5)], {"out_type": "uint8"}


@sample("_contrib_quantize_v2")
def quantize_halves(rng):
    data = (np.arange(-9, 10) / 2).astype("float32")
    return [data], {"out_type": "int8", "min_calib_range": -127.5, "max_calib_range": 127.5}


@sample("_contrib_quantize_v2")
def quantize_infinity(rng):
    return [np.array([np.inf, -np.inf, 1e30, -1e30, 0.5], "float32")], {"out_type": "int8", **calibration(rng)}


@sample("_contrib_dequantize")
def dequantize(rng):
    return [int8(rng, 3, 5), *bounds(rng)], {}


@sample("_contrib_dequantize")
def dequantize_bytes(rng):
    return [uint8(rng, 7), *bounds(rng)], {"out_type": "float32"}


@sample("_contrib_dequantize")
def dequantize_nothing_but_zero(rng):
    return [int8(rng, 4), np.zeros(1, "float32"), np.zeros(1, "float32")], {}


def sums(rng, *shape):
    """Integers of all sizes."""
    return integers(rng, *shape, low=-1000, high=1000) << rng.randint(0, 20, shape).astype("int32")


@sample("_contrib_requantize")
def requantize_calibrated(rng):
    data = integers(rng, 30, low=-(2**31), high=2**31 - 1)
    return [data, *bounds(rng)], {"out_type": ["int8", "uint8"][rng.randint(2)], **calibration(rng)}


@sample("_contrib_requantize")
def requantize_by_the_data(rng):
    return [sums(rng, 30), *bounds(rng)], {"out_type": ["int8", "uint8", "auto"][rng.randint(3)]}


@sample("_contrib_requantize")
def requantize_positive(rng):
    return [sums(rng, 5, 6), *bounds(rng)], {"out_type": "auto", "min_calib_range": 0.0, "max_calib_range": 0.02}


# Sums of products


@sample("_contrib_quantized_conv")
def conv(rng):
    inputs = [uint8(rng, 2, 3, 5, 6), int8(rng, 4, 3, 3, 2)]
    attrs = {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 0), "num_filter": 4, "no_bias": True}
    return [*inputs, *bounds(rng), *bounds(rng)], attrs


@sample("_contrib_quantized_conv")
def conv_with_bias(rng):
    inputs = [uint8(rng, 1, 2, 4, 4), int8(rng, 3, 2, 2, 2), int8(rng, 3)]
    return [*inputs, *bounds(rng), *bounds(rng), *bounds(rng)], {"kernel": (2, 2), "num_filter": 3}


@sample("_contrib_quantized_conv")
def conv_of_points(rng):
    inputs = [uint8(rng, 1, 8, 3, 3), int8(rng, 5, 8, 1, 1)]
    return [*inputs, *bounds(rng), *bounds(rng)], {"kernel": (1, 1), "num_filter": 5, "no_bias": True}


@sample("_contrib_quantized_conv", oracle=False)  # MXNet has uint8 data and one group only
def conv_of_int8_in_groups(rng):
    inputs = [int8(rng, 1, 4, 5), int8(rng, 2, 2, 3)]
    attrs = {"kernel": (3,), "num_filter": 2, "num_group": 2, "no_bias": True}
    return [*inputs, *bounds(rng), *bounds(rng)], attrs


@sample("_contrib_quantized_fully_connected")
def dense(rng):
    return [int8(rng, 3, 7), int8(rng, 4, 7), *bounds(rng), *bounds(rng)], {"num_hidden": 4, "no_bias": True}


@sample("_contrib_quantized_fully_connected")
def dense_with_bias(rng):
    inputs = [uint8(rng, 2, 3, 4), int8(rng, 5, 12), int8(rng, 5)]
    return [*inputs, *bounds(rng), *bounds(rng), *bounds(rng)], {"num_hidden": 5}


@sample("_contrib_quantized_fully_connected")
def dense_of_rows(rng):
    inputs = [int8(rng, 2, 3, 4), int8(rng, 5, 4), int8(rng, 5)]
    return [*inputs, *bounds(rng), *bounds(rng), *bounds(rng)], {"num_hidden": 5, "flatten": False}


@sample("_contrib_quantized_embedding")
def embedded(rng):
    return [integers(rng, 2, 3, low=0, high=6), int8(rng, 6, 4), *bounds(rng)], {"input_dim": 6, "output_dim": 4}


@sample("_contrib_quantized_embedding")
def embedded_float_indices(rng):
    return [floats(rng, 5, low=0, high=6), int8(rng, 6, 2), *bounds(rng)], {"input_dim": 6, "output_dim": 2}


# What keeps its type


@sample("_contrib_quantized_pooling")
def pooled_maxima(rng):
    data = [int8, uint8][rng.randint(2)](rng, 1, 2, 5, 6)
    return [data, *bounds(rng)], {"kernel": (3, 2), "stride": (2, 2), "pad": (1, 0), "pooling_convention": "full"}


@sample("_contrib_quantized_pooling")
def pooled_averages(rng):
    data = [int8, uint8][rng.randint(2)](rng, 1, 2, 5, 6)
    attrs = {"kernel": (3, 2), "stride": (2, 2), "pad": (1, 1), "pool_type": "avg", "pooling_convention": "full"}
    return [data, *bounds(rng)], attrs


@sample("_contrib_quantized_pooling")
def pooled_averages_without_padding(rng):
    attrs = {"kernel": (2, 2), "pad": (1, 1), "pool_type": "avg", "count_include_pad": False}
    return [int8(rng, 1, 2, 4, 4), *bounds(rng)], attrs


@sample("_contrib_quantized_pooling")
def pooled_globally(rng):
    attrs = {"kernel": (1, 1), "global_pool": True, "pool_type": ["avg", "max"][rng.randint(2)]}
    return [int8(rng, 2, 3, 4, 5), *bounds(rng)], attrs


@sample("_contrib_quantized_act")
def activated(rng):
    return [int8(rng, 4, 5), *bounds(rng)], {"act_type": "relu"}


@sample("_contrib_quantized_act")
def activated_bytes(rng):
    return [uint8(rng, 9), *bounds(rng)], {"act_type": "relu"}


@sample("_contrib_quantized_flatten")
def flattened(rng):
    return [int8(rng, 2, 3, 2), *bounds(rng)], {}


@sample("_contrib_quantized_flatten")
def flattened_bytes(rng):
    return [uint8(rng, 2, 4), *bounds(rng)], {}


# What brings several ranges together


@sample("_contrib_quantized_concat")
def joined(rng):
    return [int8(rng, 2, 3), int8(rng, 2, 4), *bounds(rng), *bounds(rng)], {"num_args": 2}


@sample("_contrib_quantized_concat")
def joined_bytes(rng):
    parts = [uint8(rng, 1, 3) for _ in range(3)]
    return [*parts, *bounds(rng), *bounds(rng), *bounds(rng)], {"num_args": 3, "dim": 0}


@sample("_contrib_quantized_concat")
def joined_of_both(rng):
    return [uint8(rng, 2, 3), int8(rng, 2, 3), *bounds(rng), *bounds(rng)], {"num_args": 2, "dim": 1}


@sample("_contrib_quantized_elemwise_add")
def added(rng):
    kind = [int8, uint8][rng.randint(2)]
    return [kind(rng, 3, 6), kind(rng, 3, 6), *bounds(rng), *bounds(rng)], calibration(rng)


@sample("_contrib_quantized_elemwise_add")
def added_of_both(rng):
    parts = [int8(rng, 3, 6), uint8(rng, 3, 6)]
    parts = parts if rng.randint(2) else parts[::-1]
    return [*parts, *bounds(rng), *bounds(rng)], calibration(rng)


@sample("_contrib_quantized_elemwise_add", oracle=False)  # the last digits of 10 are oneDNN's
def added_to_int32(rng):
    return [int8(rng, 3, 6), int8(rng, 3, 6), *bounds(rng), *bounds(rng)], {}
