"""Samples of operators that few models use: histograms, checks, densities, columns, and layers of the first years."""

import numpy as np

from .samples import floats, integers, sample, special

# Histograms


@sample("_histogram")
def even_bins(rng):
    return [floats(rng, 7, 9)], {"bin_cnt": 8, "range": (-1.5, 1.5)}


@sample("_histogram")
def even_bins_of_special(rng):
    return [special()], {"bin_cnt": 5, "range": (-1.0, 2.5)}


@sample("_histogram")
def even_bins_of_integers(rng):
    return [integers(rng, 50)], {"bin_cnt": 7, "range": (-3.0, 6.0)}


@sample("_histogram")
def a_range_of_one_value(rng):
    return [integers(rng, 30, dtype="uint8", high=5)], {"bin_cnt": 3, "range": (2.0, 2.0)}


@sample("_histogram")
def bins_by_edges(rng):
    return [floats(rng, 5, 6, dtype="float64"), np.array([-1.5, -1, 0, 0.25, 1.75])], {}


@sample("_histogram")
def bins_by_edges_of_special(rng):
    return [special(), np.array([-1, 0, 1, 2.5], "float32")], {}


@sample("_histogram")
def bins_by_edges_of_integers(rng):
    return [integers(rng, 40, dtype="int64"), np.array([-8, -8, 0, 3, 4, 9])], {}


@sample("_histogram")
def one_bin(rng):
    return [floats(rng, 12, dtype="float16"), np.array([-1, 1], "float16")], {}


# Checks


@sample("all_finite", "multi_all_finite")
def finite(rng):
    return [floats(rng, 3, 4, dtype="float64")], {}


@sample("all_finite", "multi_all_finite")
def not_finite(rng):
    values = floats(rng, 3, 5)
    values[rng.randint(3), rng.randint(5)] = rng.choice([np.nan, np.inf, -np.inf])
    return [values], {}


@sample("all_finite", "multi_all_finite")
def large_but_finite(rng):
    return [np.array([3e38, -3e38, 3e38], "float32")], {}


@sample("all_finite")
def infinite_in_float16(rng):
    return [np.array([1, np.inf], "float16")], {}


@sample("multi_sum_sq")
def sums_of_squares(rng):
    return [floats(rng, 3), floats(rng, 2, 2), floats(rng, 1)], {"num_arrays": 3}


@sample("multi_sum_sq")
def sums_of_squares_of_one(rng):
    return [floats(rng, 4, 5, dtype=["float32", "float16", "float64"][rng.randint(3)])], {"num_arrays": 1}


@sample("multi_sum_sq")
def sums_of_special_squares(rng):
    return [np.array([np.nan, 1], "float32"), np.array([[np.inf], [-np.inf]], "float32")], {"num_arrays": 2}


@sample("multi_all_finite")
def several_finite(rng):
    return [floats(rng, 3), floats(rng, 2, 2), floats(rng, 1)], {"num_arrays": 3}


@sample("multi_all_finite")
def one_of_several(rng):
    return [floats(rng, 3), special(), floats(rng, 1)], {"num_arrays": 3}


@sample("_contrib_allclose")
def close(rng):
    x = floats(rng, 3, 4, low=0.5)
    return [x, x + np.float32(1e-6)], {}


@sample("_contrib_allclose")
def not_close(rng):
    x = floats(rng, 3, 4)
    return [x, x + np.float32(1e-2)], {"rtol": 1e-4, "atol": 1e-4}


@sample("_contrib_allclose")
def close_and_special(rng):
    return [special(), special()], {}


@sample("_contrib_allclose")
def nan_is_not_close(rng):
    return [special(), special()], {"equal_nan": False}


@sample("_contrib_allclose")
def close_integers(rng):
    return [np.array([3, 500]), np.array([3, 501])], {"atol": 1.5}


@sample("_contrib_allclose")
def close_in_float64(rng):
    x = floats(rng, 7, dtype="float64")
    return [x, x * (1 + 1e-7)], {"rtol": 1e-8, "atol": 1e-8}


# What only gradients tell apart


@sample("_contrib_gradientmultiplier", "_contrib_round_ste", "_contrib_sign_ste", "_contrib_quadratic")
def of_special(rng):
    return [special()], {}


@sample("_contrib_gradientmultiplier", "_contrib_round_ste", "_contrib_sign_ste", "_contrib_quadratic")
def of_floats(rng):
    return [floats(rng, 3, 4, dtype="float64")], {}


@sample("_contrib_gradientmultiplier", "_contrib_round_ste", "_contrib_sign_ste", "_contrib_quadratic")
def of_integers(rng):
    return [integers(rng, 3, 4)], {}


@sample("_contrib_gradientmultiplier")
def with_a_factor(rng):
    return [floats(rng, 5)], {"scalar": -2.5}


@sample("_contrib_quadratic")
def parabola(rng):
    return [floats(rng, 3, 4)], {"a": 1.5, "b": -2.0, "c": 0.25}


@sample("_contrib_quadratic")
def parabola_of_integers(rng):
    return [integers(rng, 9)], {"a": 0.5, "b": 1.0, "c": 3.0}


@sample("cast_storage")
def stored_densely(rng):
    return [floats(rng, 3, 2)], {"stype": "default"}


@sample("cast_storage")
def integers_stored_densely(rng):
    return [integers(rng, 3, 2, dtype="int64")], {"stype": "default"}


@sample("cast_storage")
def special_stored_densely(rng):
    return [special()], {"stype": "default"}


# Of sparse arrays, for which tests/ndarray/test_sparse.py has results of MXNet.


@sample("_scatter_plus_scalar", "_scatter_minus_scalar", oracle=False)
def stored_and_number(rng):
    return [floats(rng, 3, 4)], {"scalar": 2.5}


@sample("_scatter_plus_scalar", "_scatter_minus_scalar", oracle=False)
def stored_integers_and_number(rng):
    return [integers(rng, 5, dtype="int32")], {"scalar": 3.0}


@sample("_scatter_plus_scalar", "_scatter_minus_scalar", oracle=False)
def stored_special_and_number(rng):
    return [special()], {"scalar": -1.0}


@sample("_scatter_plus_scalar", "_scatter_minus_scalar", oracle=False)
def stored_wide_and_number(rng):
    return [floats(rng, 2, 3, dtype="float64")], {"scalar": 0.1}


@sample("_scatter_plus_scalar", "_scatter_minus_scalar", oracle=False)
def nothing_stored_and_number(rng):
    return [floats(rng, 0, 3)], {"scalar": 1.0}


@sample("_scatter_elemwise_div", oracle=False)
def quotients_of_stored(rng):
    return [floats(rng, 3, 4), floats(rng, 3, 4)], {}


@sample("_scatter_elemwise_div", oracle=False)
def quotients_of_stored_integers(rng):
    return [integers(rng, 3, 4, dtype="int32"), integers(rng, 3, 4, dtype="int32")], {}


@sample("_scatter_elemwise_div", oracle=False)
def quotients_of_stored_special(rng):
    return [special(), special()[::-1].copy()], {}


@sample("_scatter_elemwise_div", oracle=False)
def quotients_of_stored_wide(rng):
    return [floats(rng, 2, 3, dtype="float64"), floats(rng, 2, 3, dtype="float64")], {}


@sample("_scatter_elemwise_div", oracle=False)
def quotients_of_nothing_stored(rng):
    return [floats(rng, 0, 3), floats(rng, 0, 3)], {}


@sample("_square_sum", oracle=False)
def squares_of_rows(rng):
    return [floats(rng, 4, 3)], {"axis": 1}


@sample("_square_sum", oracle=False)
def squares_of_rows_kept(rng):
    return [floats(rng, 4, 3)], {"axis": 1, "keepdims": True}


@sample("_square_sum", oracle=False)
def squares_of_columns(rng):
    return [floats(rng, 4, 3, dtype="float64")], {"axis": 0}


@sample("_square_sum", oracle=False)
def squares_of_all(rng):
    return [floats(rng, 4, 3)], {}


@sample("_square_sum", oracle=False)
def squares_of_integers(rng):
    return [integers(rng, 4, 3, dtype="int32")], {"axis": 0, "keepdims": True}


@sample("_sparse_retain", oracle=False)  # of sparse arrays alone in MXNet
def rows_retained(rng):
    return [floats(rng, 5, 2), integers(rng, 3, dtype="int64", low=0, high=5)], {}


@sample("_sparse_retain", oracle=False)
def rows_retained_that_are_not_there(rng):
    return [floats(rng, 4, 2, 3), np.array([3.0, 9.0, -1.0, 3.0], np.float32)], {}


@sample("_identity_with_attr_like_rhs")
def like_floats(rng):
    return [floats(rng, 3, 4), floats(rng, 3, 4)], {}


@sample("_identity_with_attr_like_rhs")
def like_special(rng):
    return [special(), special()], {}


@sample("_identity_with_attr_like_rhs")
def like_integers(rng):
    return [integers(rng, 5), integers(rng, 5)], {}


@sample("IdentityAttachKLSparseReg")
def activity(rng):
    return [floats(rng, 5, 3, low=0, high=1), floats(rng, 3, low=0, high=1)], {"penalty": 0.1}


@sample("SVMOutput")
def scores(rng):
    return [floats(rng, 4, 5), integers(rng, 4, low=0, high=5).astype("float32")], {"margin": 0.5}


@sample("SVMOutput")
def special_scores(rng):
    return [special(), np.zeros(4, "float32")], {"use_linear": True, "regularization_coefficient": 2.0}


@sample("SVMOutput")
def scores_along_a_sequence(rng):
    return [floats(rng, 2, 3, 4), np.ones((2, 3), "float32")], {}


# Layers of the first years


@sample("_contrib_SparseEmbedding")
def rows(rng):
    return [integers(rng, 2, 3, low=0, high=6).astype("float32"), floats(rng, 6, 4)], {"input_dim": 6, "output_dim": 4}


@sample("_contrib_SparseEmbedding")
def rows_by_integers(rng):
    return [integers(rng, 5, low=0, high=3), floats(rng, 3, 2)], {"input_dim": 3, "output_dim": 2}


@sample("_contrib_SparseEmbedding", oracle=False)
def rows_out_of_range(rng):
    return [np.array([-1, 0, 9], "float32"), floats(rng, 3, 2)], {"input_dim": 3, "output_dim": 2}


@sample("Convolution_v1")
def convolution(rng):
    inputs = [floats(rng, 2, 4, 7, 6), floats(rng, 6, 4, 3, 2), floats(rng, 6)]
    return inputs, {"kernel": (3, 2), "num_filter": 6, "stride": (2, 1), "pad": (1, 1)}


@sample("Convolution_v1")
def convolution_in_groups(rng):
    inputs = [floats(rng, 1, 4, 6, 6), floats(rng, 4, 2, 2, 2)]
    return inputs, {"kernel": (2, 2), "num_filter": 4, "num_group": 2, "dilate": (2, 1), "no_bias": True}


@sample("Convolution_v1")
def convolution_of_points(rng):
    return [floats(rng, 2, 3, 4, 4), floats(rng, 2, 3, 1, 1), floats(rng, 2)], {"kernel": (1, 1), "num_filter": 2}


def normalized(rng, *shape):
    n = shape[1]
    return [floats(rng, *shape), floats(rng, n, low=0.5), floats(rng, n), floats(rng, n), floats(rng, n, low=0.25)]


@sample("BatchNorm_v1")
def inference(rng):
    return normalized(rng, 2, 3, 4, 5), {"fix_gamma": False}


@sample("BatchNorm_v1", training=True)
def training(rng):
    return normalized(rng, 4, 2, 3, 3), {"eps": 1e-2}


@sample("BatchNorm_v1", training=True)
def global_statistics(rng):
    return normalized(rng, 3, 4), {"use_global_stats": True}


@sample("Pooling_v1")
def largest_and_padding(rng):
    return [floats(rng, 2, 3, 5, 6, high=-0.5)], {"kernel": (3, 2), "pad": (1, 1)}


@sample("Pooling_v1")
def mean_over_the_end(rng):
    convention = {"pooling_convention": "full"}
    return [floats(rng, 2, 3, 6, 5)], {
        "kernel": (3, 2),
        "stride": (2, 2),
        "pool_type": "avg",
        "pad": (1, 0),
        **convention,
    }


@sample("Pooling_v1")
def sum_of_windows(rng):
    return [floats(rng, 1, 2, 5, 5)], {"kernel": (2, 2), "stride": (2, 1), "pool_type": "sum"}


@sample("Pooling_v1")
def mean_of_all(rng):
    return [floats(rng, 2, 3, 4, 5)], {"kernel": (1, 1), "global_pool": True, "pool_type": "avg"}


@sample("Pooling_v1")
def largest_of_special(rng):
    return [special().reshape(1, 1, 4, 4)[:, :, 1:]], {"kernel": (2, 2)}


# Columns

WINDOWS = {"kernel": (3, 2), "stride": (2, 1), "dilate": (1, 2), "pad": (1, 2)}


@sample("im2col")
def columns(rng):
    return [floats(rng, 2, 3, 7, 5)], WINDOWS


@sample("im2col")
def columns_of_special(rng):
    return [special().reshape(1, 1, 4, 4)], {"kernel": (2, 3)}


@sample("im2col")
def columns_of_points(rng):
    return [floats(rng, 2, 2, 3, 4, dtype="float64")], {"kernel": (1, 1), "stride": (2, 2)}


@sample("im2col", oracle=False)
def columns_in_one_dimension(rng):
    return [floats(rng, 2, 2, 9)], {"kernel": (3,), "stride": (2,), "pad": (1,)}


@sample("im2col", oracle=False)
def columns_in_three_dimensions(rng):
    return [floats(rng, 1, 2, 4, 3, 4)], {"kernel": (2, 2, 3), "stride": (2, 1, 1)}


@sample("col2im")
def sums_of_columns(rng):
    return [floats(rng, 2, 18, 28)], {"output_size": (7, 5), **WINDOWS}


@sample("col2im")
def overlapping(rng):
    return [floats(rng, 1, 4, 9)], {"output_size": (4, 4), "kernel": (2, 2)}


@sample("col2im")
def gaps(rng):
    return [floats(rng, 2, 4, 4, dtype="float64")], {"output_size": (5, 6), "kernel": (2, 1), "stride": (3, 4)}


@sample("col2im", oracle=False)
def sums_in_one_dimension(rng):
    return [floats(rng, 2, 6, 5)], {"output_size": (9,), "kernel": (3,), "stride": (2,), "pad": (1,)}


# Densities


def parameters(rng, name, *shape, dtype="float32"):
    bounds = {
        "uniform": [(-2, 0), (0.5, 2)],
        "normal": [(-1, 1), (0.5, 2)],
        "gamma": [(0.5, 3), (0.5, 3)],
        "exponential": [(0.25, 2)],
        "poisson": [(0.5, 4)],
        "negative_binomial": [(1, 5), (0.125, 0.875)],
        "generalized_negative_binomial": [(0.5, 3), (0.125, 2)],
    }
    return [floats(rng, *shape, dtype=dtype, low=low, high=high) for low, high in bounds[name]]


def declare(name):
    def values(rng, *shape, dtype="float32"):
        if "binomial" in name or name == "poisson":
            return integers(rng, *shape, low=0, high=7).astype(dtype)
        return floats(rng, *shape, dtype=dtype, low=0.125, high=3)

    @sample(f"_random_pdf_{name}")
    def density(rng):
        return [values(rng, 3, 5), *parameters(rng, name, 3)], {}

    @sample(f"_random_pdf_{name}")
    def logarithm(rng):
        return [values(rng, 2, 3, 4, dtype="float64"), *parameters(rng, name, 2, 3, dtype="float64")], {"is_log": True}

    @sample(f"_random_pdf_{name}")
    def one_sample_each(rng):
        return [values(rng, 2, 3), *parameters(rng, name, 2, 3)], {}

    @sample(f"_random_pdf_{name}")
    def at_special(rng):
        return [special(), *parameters(rng, name, 4)], {}


for _name in ("uniform", "normal", "gamma", "exponential", "poisson"):
    declare(_name)
declare("negative_binomial")
declare("generalized_negative_binomial")


def proportions(rng, *shape, dtype="float32"):
    values = rng.randint(1, 9, shape).astype("float64")
    return (values / values.sum(-1, keepdims=True)).astype(dtype)


@sample("_random_pdf_dirichlet")
def dirichlet(rng):
    return [proportions(rng, 2, 4, 3), floats(rng, 2, 3, low=0.5, high=4)], {}


@sample("_random_pdf_dirichlet")
def dirichlet_logarithm(rng):
    return [proportions(rng, 5, 3, dtype="float64"), floats(rng, 3, low=0.5, high=4, dtype="float64")], {"is_log": True}


@sample("_random_pdf_dirichlet")
def dirichlet_of_one(rng):
    return [proportions(rng, 4), floats(rng, 4, low=0.5, high=4)], {}


@sample("_contrib_hawkesll")
def points_of_processes(rng):
    shares = [floats(rng, 3, 2, low=0.5, high=1.5), floats(rng, 2, low=0.1, high=0.6), floats(rng, 2, low=1, high=2)]
    state, lags = (floats(rng, 3, n, low=0.2, high=1) for n in (2, 4))
    marks, valid = rng.randint(0, 2, (3, 4)).astype("int32"), rng.randint(0, 5, 3).astype("float32")
    return [*shares, state, lags, marks, valid, floats(rng, 3, low=4, high=6)], {}


@sample("_npx_constraint_check")
def holds(rng):
    return [np.ones((2, rng.randint(1, 5)), bool)], {"msg": "it does not hold"}
