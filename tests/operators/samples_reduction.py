"""Samples of reductions, sorting and matrix products."""

import numpy as np

from .samples import floats, integers, sample

REDUCTIONS = "sum mean prod max min nansum nanprod".split()


@sample(*REDUCTIONS)
def reduce_everything(rng):
    return [floats(rng, 3, 4, 5, low=0.5)], {}


@sample(*REDUCTIONS)
def reduce_axes(rng):
    axis = [1, (0, -1), -2, (2, 0), (0, 1, 2), ()][rng.randint(6)]
    return [floats(rng, 3, 4, 5, low=0.5)], {"axis": axis, "keepdims": bool(rng.randint(2))}


@sample(*REDUCTIONS)
def reduce_excluded(rng):
    return [floats(rng, 3, 4, 5, dtype="float64", low=0.5)], {"axis": [1, (0, 2)][rng.randint(2)], "exclude": True}


@sample(*REDUCTIONS)
def reduce_float16(rng):
    return [floats(rng, 3, 6, dtype="float16", low=0.5)], {"axis": 1, "keepdims": True}


@sample(*REDUCTIONS)
def reduce_int32(rng):
    return [integers(rng, 3, 6)], {"axis": int(rng.randint(2))}


@sample(*(name for name in REDUCTIONS if name != "mean"))
def reduce_uint8_wraps(rng):
    return [integers(rng, 3, 5, dtype="uint8", high=256)], {"axis": 1}


@sample("mean", oracle=False)  # of a sum that wraps, as MXNet's does, there is no mean
def mean_uint8(rng):
    return [integers(rng, 3, 5, dtype="uint8", high=256)], {"axis": 1}


@sample("sum", "prod", "max", "min", "nansum", "nanprod")
def reduce_with_nan(rng):
    data = floats(rng, 4, 5)
    data[0, 2] = data[2, 4] = np.nan
    return [data], {"axis": 1}


@sample("sum", "prod", "max", "min", "nanprod")  # MXNet's compensated nansum makes NaN of an infinity
def reduce_with_infinity(rng):
    data = floats(rng, 4, 5)
    data[1, 1], data[3, 3], data[3, 4] = np.inf, -np.inf, np.nan
    return [data], {"axis": 1}


@sample(*[name for name in REDUCTIONS if name not in ("max", "min")], oracle=False)
def reduce_nothing(rng):
    return [floats(rng, 3, 0)], {"axis": 1}


@sample("sum", "max", "prod", "mean", oracle=False)
def reduce_bool(rng):
    return [integers(rng, 3, 4, dtype="bool")], {"axis": 1}


@sample("norm")
def norm(rng):
    axis = [None, 1, (0, 1), -1, (1, 2)][rng.randint(5)]
    return [floats(rng, 3, 4, 5)], {"ord": int(rng.randint(1, 3)), "axis": axis, "keepdims": bool(rng.randint(2))}


@sample("norm")
def norm_defaults(rng):
    return [floats(rng, 3, 4, dtype="float64")], {}


@sample("norm")
def norm_does_not_overflow(rng):
    return [floats(rng, 7, low=1e30, high=2e30)], {"axis": 0}


@sample("norm")
def norm_float16(rng):
    return [floats(rng, 3, 5, dtype="float16", low=100, high=300)], {"axis": 1}


@sample("norm")
def norm_of_integers(rng):
    return [integers(rng, 3, 5)], {"ord": 1, "axis": 1}


@sample("norm", oracle=False)
def norm_to_wider_type(rng):
    return [floats(rng, 3, 5, dtype="float16")], {"ord": 1, "axis": 1, "out_dtype": "float32"}


@sample("argmax", "argmin")
def position(rng):
    return [floats(rng, 3, 4, 5)], {"axis": int(rng.randint(-3, 3)), "keepdims": bool(rng.randint(2))}


@sample("argmax", "argmin")
def position_in_everything(rng):
    return [floats(rng, 3, 4)], {"keepdims": bool(rng.randint(2))}


@sample("argmax", "argmin", "argmax_channel")
def position_of_equals(rng):
    return [integers(rng, 4, 6, low=0, high=3)], {}


@sample("argmax", "argmin")
def position_of_nan(rng):
    data = floats(rng, 3, 5)
    data[0, 2] = data[2, 1] = data[2, 4] = np.nan
    return [data], {"axis": 1}


@sample("argmax_channel")
def position_along_channels(rng):
    return [floats(rng, 2, 5, 3)], {}


@sample("argmax_channel")
def position_along_channels_float16(rng):
    return [floats(rng, 2, 5, dtype="float16")], {}


@sample("moments")
def moments(rng):
    axes = [(0,), (0, 1), (0, 2), (0, 1, 2), -1][rng.randint(5)]
    return [floats(rng, 3, 4, 5)], {"axes": axes, "keepdims": bool(rng.randint(2))}


@sample("moments")
def moments_float64(rng):
    return [floats(rng, 3, 4, dtype="float64")], {"axes": (1,)}


@sample("moments")
def moments_of_integers(rng):
    return [integers(rng, 4, 3, low=0)], {"axes": (0,)}


@sample("_np_cumsum")
def cumsum(rng):
    return [floats(rng, 3, 4, 5)], {"axis": int(rng.randint(0, 3))}


@sample("_np_cumsum")
def cumsum_flat(rng):
    return [integers(rng, 3, 4)], {}


@sample("_np_cumsum")
def cumsum_in_another_type(rng):
    return [integers(rng, 3, 4)], {"axis": 1, "dtype": "float32"}


# Order


@sample("sort", "argsort")
def sort(rng):
    axis = [-1, 0, 1, None][rng.randint(4)]
    return [floats(rng, 4, 6)], {"axis": axis, "is_ascend": bool(rng.randint(2))}


@sample("sort", "argsort")
def sort_equals(rng):
    return [integers(rng, 3, 12, low=0, high=4)], {"is_ascend": bool(rng.randint(2))}


@sample("sort", "argsort")
def sort_float64(rng):
    return [floats(rng, 7, dtype="float64")], {}


@sample("argsort")
def argsort_dtype(rng):
    return [floats(rng, 3, 5)], {"dtype": ["int32", "float64", "uint8"][rng.randint(3)]}


@sample("sort", "argsort", oracle=False)
def sort_nan(rng):
    data = floats(rng, 3, 5)
    data[0, 1] = data[2, 0] = np.nan
    return [data], {"is_ascend": bool(rng.randint(2))}


@sample("topk")
def topk(rng):
    ret_typ = ["value", "indices", "mask", "both"][rng.randint(4)]
    axis = [-1, 0, 1, None][rng.randint(4)]
    return [floats(rng, 5, 6)], {"k": int(rng.randint(1, 5)), "ret_typ": ret_typ, "axis": axis}


@sample("topk")
def topk_smallest(rng):
    return [integers(rng, 2, 7, 3, low=0, high=5)], {"k": 3, "axis": 1, "ret_typ": "both", "is_ascend": True}


@sample("topk")
def topk_mask(rng):
    return [floats(rng, 3, 7)], {"k": 2, "ret_typ": "mask"}


@sample("topk")
def topk_all(rng):
    return [floats(rng, 3, 4)], {"k": 0, "dtype": "int32"}


@sample("topk")
def topk_defaults(rng):
    return [floats(rng, 3, 4)], {}


# Products

TRANSPOSES = [{}, {"transpose_a": True}, {"transpose_b": True}, {"transpose_a": True, "transpose_b": True}]


def factors(rng, flags, batch=(), dtype="float32"):
    """Two (batches of) matrices whose product with these transposes is 3 x 5, over 4 terms."""
    a = (4, 3) if flags.get("transpose_a") else (3, 4)
    b = (5, 4) if flags.get("transpose_b") else (4, 5)
    return [floats(rng, *batch, *a, dtype=dtype), floats(rng, *batch, *b, dtype=dtype)]


@sample("dot", "_linalg_gemm2")
def matrices(rng):
    flags = TRANSPOSES[rng.randint(4)]
    return factors(rng, flags), flags


@sample("dot", "_linalg_gemm2")
def matrices_float64(rng):
    flags = TRANSPOSES[rng.randint(4)]
    return factors(rng, flags, dtype="float64"), flags


@sample("batch_dot", "_linalg_gemm2")
def batches(rng):
    flags = TRANSPOSES[rng.randint(4)]
    return factors(rng, flags, (2,)), flags


@sample("batch_dot", "_linalg_gemm2")
def batches_of_batches(rng):
    flags = TRANSPOSES[rng.randint(4)]
    return factors(rng, flags, (2, 3), "float64"), flags


@sample("batch_dot")
def batch_of_one(rng):
    return factors(rng, {}, (1,)), {}


@sample("batch_dot", "dot", oracle=False)
def integer_products(rng):
    return [integers(rng, 2, 3, 2), integers(rng, 2, 2, 3)], {}


@sample("dot")
def vectors(rng):
    return [floats(rng, 6), floats(rng, 6)], {}


@sample("dot")
def vector_and_matrix(rng):
    return ([floats(rng, 4), floats(rng, 4, 3)], {}) if rng.randint(2) else ([floats(rng, 3, 4), floats(rng, 4)], {})


@sample("dot")
def tensors(rng):
    return [floats(rng, 2, 3, 4), floats(rng, 4, 5, 2)], {}


@sample("dot")
def transposed_tensors(rng):
    return [floats(rng, 4, 3, 2), floats(rng, 3, 5, 4)], {"transpose_a": True, "transpose_b": True}


@sample("khatri_rao")
def khatri_rao(rng):
    return [floats(rng, n, 3) for n in (2, 4, 3)], {"num_args": 3}


@sample("khatri_rao")
def khatri_rao_of_one(rng):
    return [floats(rng, 2, 3)], {"num_args": 1}


@sample("_linalg_gemm2")
def gemm2_along_another_axis(rng):
    return [floats(rng, 3, 2, 4), floats(rng, 4, 2, 5)], {"axis": 0, "alpha": 0.5}


@sample("_linalg_gemm")
def gemm(rng):
    flags = TRANSPOSES[rng.randint(4)]
    return [*factors(rng, flags), floats(rng, 3, 5)], {**flags, "alpha": 2.0, "beta": -0.5}


@sample("_linalg_gemm")
def gemm_batches(rng):
    return [*factors(rng, {}, (2, 3), "float64"), floats(rng, 2, 3, 3, 5, dtype="float64")], {}


@sample("_linalg_gemm")
def gemm_along_another_axis(rng):
    return [floats(rng, 2, 3, 6, 4), floats(rng, 2, 4, 6, 5), floats(rng, 2, 3, 6, 5)], {"axis": -3}


@sample("_linalg_syrk")
def syrk(rng):
    return [floats(rng, 2, 3, 4)], {"transpose": bool(rng.randint(2)), "alpha": 2.0}


@sample("_linalg_syrk")
def syrk_of_matrix(rng):
    return [floats(rng, 3, 4, dtype="float64")], {}


@sample("_linalg_trmm")
def trmm(rng):
    return [floats(rng, 3, 3), floats(rng, 3, 4)], {"transpose": bool(rng.randint(2)), "lower": bool(rng.randint(2))}


@sample("_linalg_trmm")
def trmm_from_the_right(rng):
    attrs = {"rightside": True, "transpose": bool(rng.randint(2)), "lower": bool(rng.randint(2)), "alpha": 3.0}
    return [floats(rng, 2, 3, 3), floats(rng, 2, 4, 3)], attrs


@sample("_linalg_sumlogdiag")
def sumlogdiag(rng):
    return [floats(rng, 2, 3, 3, low=0.1)], {}


@sample("_linalg_sumlogdiag")
def sumlogdiag_of_matrix(rng):
    return [floats(rng, 3, 3, dtype="float64", low=0.1)], {}


@sample("_linalg_extractdiag")
def extractdiag(rng):
    return [floats(rng, 2, 4, 4)], {"offset": int(rng.randint(-3, 4))}


@sample("_linalg_makediag")
def makediag(rng):
    return [floats(rng, 2, 3)], {"offset": int(rng.randint(-2, 3))}


# Attention


@sample("_contrib_div_sqrt_dim")
def div_sqrt_dim(rng):
    return [floats(rng, 2, 3, 5)], {}


@sample("_contrib_interleaved_matmul_selfatt_qk")
def selfatt_qk(rng):
    return [floats(rng, 5, 2, 3 * 2 * 4)], {"heads": 2}


@sample("_contrib_interleaved_matmul_selfatt_valatt")
def selfatt_valatt(rng):
    return [floats(rng, 5, 2, 3 * 2 * 4), floats(rng, 4, 5, 5)], {"heads": 2}


@sample("_contrib_interleaved_matmul_encdec_qk")
def encdec_qk(rng):
    return [floats(rng, 3, 2, 2 * 4), floats(rng, 5, 2, 2 * 2 * 4)], {"heads": 2}


@sample("_contrib_interleaved_matmul_encdec_valatt")
def encdec_valatt(rng):
    return [floats(rng, 5, 2, 2 * 2 * 4), floats(rng, 4, 3, 5)], {"heads": 2}
