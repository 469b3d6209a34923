"""Samples of the operators behind `mx.np` that are not arithmetic: see `samples_numpy.py` for that."""

import numpy as np

from .samples import floats, integers, sample, special

UNARY = [
    f"_npi_{name}"
    for name in (
        "absolute sign negative square floor ceil rint trunc fix reciprocal sqrt cbrt exp expm1 log log2 log10 log1p "
        "sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh degrees radians"
    ).split()
]
QUESTIONS = [f"_npi_{name}" for name in "isnan isinf isfinite isposinf isneginf logical_not".split()]
COMPARISONS = [f"_npi_{name}" for name in "equal not_equal greater greater_equal less less_equal".split()]
BITWISE = [f"_npi_bitwise_{name}" for name in "and or xor".split()]


@sample(*UNARY)
def of_one(rng):
    return [floats(rng, 3, 4, low=0.1, high=0.9)], {}


@sample(*UNARY, *QUESTIONS)
def values_that_matter(rng):
    return [special()], {}


UNDEFINED = ("_npi_reciprocal", "_npi_arcsin", "_npi_arccos", "_npi_arctanh")
"""What is infinite or NaN of whole numbers, which C++ converts to any."""


@sample(*(name for name in UNARY if name not in UNDEFINED), *QUESTIONS)
def of_integers(rng):
    return [integers(rng, 5, low=1, high=4)], {}


@sample(*UNARY, *QUESTIONS)
def of_rank_0(rng):
    return [floats(rng, low=0.1, high=0.9)], {}


@sample(*UNARY, *QUESTIONS)
def of_nothing(rng):
    return [floats(rng, 0, 3)], {}


@sample("_npi_bitwise_not", *QUESTIONS)
def of_bools(rng):
    return [integers(rng, 4, dtype="bool")], {}


@sample("_npi_sqrt", "_npi_negative", "_npi_sign", "_npi_square", oracle=False)
def functions_of_bools(rng):
    return [integers(rng, 4, dtype="bool")], {}


@sample("_npi_bitwise_not")
def of_whole(rng):
    return [integers(rng, 2, 3, dtype="int8")], {}


@sample("_npi_around")
def to_decimals(rng):
    return [floats(rng, 3, 4)], {"decimals": 1}


@sample("_npi_around")
def to_whole(rng):
    return [special()], {}


@sample("_npi_around")
def integers_to_whole(rng):
    return [integers(rng, 4)], {}


@sample("_npi_nan_to_num")
def to_numbers(rng):
    return [special()], {}


@sample("_npi_nan_to_num")
def to_given_numbers(rng):
    return [special("float64")], {"nan": 7.0, "posinf": 8.0, "neginf": 9.0}


@sample("_npi_nan_to_num")
def integers_to_numbers(rng):
    return [integers(rng, 4)], {}


# Two tensors


@sample(*COMPARISONS)
def compared(rng):
    return [integers(rng, 2, 3, low=0, high=3).astype("float32"), integers(rng, 3, low=0, high=3).astype("float32")], {}


@sample(*COMPARISONS)
def special_compared(rng):
    return [special(), special()[:, ::-1]], {}


@sample(*COMPARISONS, *BITWISE)
def whole_compared(rng):
    return [integers(rng, 2, 3, low=0, high=3), integers(rng, 2, 1, low=0, high=3)], {}


@sample(*COMPARISONS, *BITWISE)
def bools_compared(rng):
    return [integers(rng, 4, dtype="bool"), integers(rng, 4, dtype="bool")], {}


@sample(*COMPARISONS)
def rank_0_compared(rng):
    return [floats(rng, 3), floats(rng)], {}


@sample(*BITWISE)
def small_bits(rng):
    return [integers(rng, 3, dtype="int8"), integers(rng, 2, 3, dtype="int8")], {}


@sample(*(f"{name}_scalar" for name in COMPARISONS))
def beside_a_number(rng):
    return [integers(rng, 2, 3, low=0, high=3).astype("float32")], {"scalar": 1.0}


@sample(*(f"{name}_scalar" for name in COMPARISONS))
def special_beside_a_number(rng):
    return [special()], {"scalar": 0.5}


@sample(*(f"{name}_scalar" for name in (*COMPARISONS, *BITWISE)))
def whole_beside_a_number(rng):
    return [integers(rng, 6, low=0, high=4)], {"scalar": 2.0}


@sample(*(f"{name}_scalar" for name in BITWISE))
def bits_beside_a_number(rng):
    return [integers(rng, 2, 3, dtype="int64")], {"scalar": 5.0}


@sample("_npi_hypot", "_npi_arctan2")
def of_two(rng):
    return [floats(rng, 2, 3), floats(rng, 3)], {}


@sample("_npi_hypot", "_npi_arctan2")
def of_two_of_rank_0(rng):
    return [floats(rng), floats(rng)], {}


@sample("_npi_hypot", "_npi_arctan2")
def of_special(rng):
    return [special("float64"), special("float64")[::-1]], {}


@sample("_npi_arctan2_scalar", "_npi_rarctan2_scalar")
def angle_beside_a_number(rng):
    return [floats(rng, 2, 3)], {"scalar": 1.5}


@sample("_npi_arctan2_scalar", "_npi_rarctan2_scalar")
def special_angle(rng):
    return [special()], {"scalar": -1.0}


@sample("_npi_where")
def chosen(rng):
    return [integers(rng, 2, 1, dtype="bool"), floats(rng, 3), floats(rng, 2, 3)], {}


@sample("_npi_where")
def chosen_by_numbers(rng):
    return [special(), integers(rng, 4), integers(rng, 4, 4)], {}


@sample("_npi_where")
def chosen_of_rank_0(rng):
    return [integers(rng, 3, dtype="bool"), floats(rng), floats(rng)], {}


@sample("_npi_where_lscalar", "_npi_where_rscalar")
def chosen_or_a_number(rng):
    return [integers(rng, 2, 3, dtype="bool"), floats(rng, 3)], {"scalar": 2.5}


@sample("_npi_where_lscalar", "_npi_where_rscalar")
def chosen_or_a_whole_number(rng):
    return [integers(rng, 2, 1, low=0, high=2), integers(rng, 2, 3)], {"scalar": 7.0}


@sample("_npi_where_scalar2")
def one_of_two_numbers(rng):
    return [integers(rng, 2, 3, dtype="bool")], {"x": 1.0, "y": -2.5}


@sample("_npi_where_scalar2")
def one_of_two_numbers_by_integers(rng):
    return [integers(rng, 4, low=0, high=2)], {"x": 1.0, "y": -2.5}


@sample("_npi_where_scalar2")
def one_of_two_numbers_by_floats(rng):
    return [special()], {"x": 1.0}


# Reductions

LOGICAL = ("_np_any", "_np_all")
EXTREMES = ("_np_max", "_np_min")
POSITIONS = ("_npi_argmax", "_npi_argmin")
SPREAD = ("_npi_std", "_npi_var")


@sample("_np_prod", *EXTREMES, *LOGICAL, *SPREAD, *POSITIONS)
def over_everything(rng):
    return [floats(rng, 2, 3)], {}


@sample("_np_prod", *EXTREMES, *LOGICAL, *SPREAD)
def over_axes(rng):
    return [floats(rng, 2, 3, 4)], {"axis": (0, -1), "keepdims": True}


@sample("_np_prod", *EXTREMES, *LOGICAL, *SPREAD)
def over_one_axis(rng):
    return [integers(rng, 3, 4).astype("float64")], {"axis": 1}


@sample("_np_prod", *EXTREMES, *LOGICAL)
def over_integers(rng):
    return [integers(rng, 3, 4)], {"axis": 0}


@sample("_np_prod", *EXTREMES, *LOGICAL)
def over_nan(rng):
    return [special()], {"axis": 1}


@sample("_np_prod", *LOGICAL)
def over_bools(rng):
    return [integers(rng, 3, 4, dtype="bool")], {"axis": -1}


@sample(*LOGICAL)
def over_nothing(rng):
    return [floats(rng, 0, 3)], {}


@sample("_np_prod", oracle=False)
def product_of_nothing(rng):
    return [floats(rng, 0, 3)], {}


@sample(*SPREAD)
def as_sample(rng):
    return [floats(rng, 3, 5)], {"axis": -1, "ddof": 1}


@sample(*SPREAD, oracle=False)
def spread_of_integers(rng):
    return [integers(rng, 3, 4)], {"axis": 0, "dtype": "float32"}


@sample(*POSITIONS)
def along_an_axis(rng):
    return [integers(rng, 3, 4, low=0, high=4).astype("float32")], {"axis": 1}


@sample(*POSITIONS)
def position_kept(rng):
    return [integers(rng, 3, 4, dtype="int64")], {"axis": -2, "keepdims": True}


@sample("_npi_average")
def plain_average(rng):
    return [floats(rng, 2, 3)], {"weighted": False, "axis": 1}


@sample("_npi_average")
def weighted_average(rng):
    return [floats(rng, 2, 3), floats(rng, 2, 3, low=0.5)], {"returned": True}


@sample("_npi_average")
def average_weighted_by_vector(rng):
    return [floats(rng, 2, 3), floats(rng, 3, low=0.5)], {"axis": (-1,)}


@sample("_npi_average")
def average_of_integers(rng):
    return [integers(rng, 4)], {"weighted": False}


@sample("_npi_norm")
def norm_of_all(rng):
    return [floats(rng, 2, 3)], {"ord": 2, "flag": -2}


@sample("_npi_norm")
def norm_over_an_axis(rng):
    return [floats(rng, 2, 3, dtype="float64")], {"ord": 2, "axis": (1,), "flag": 1, "keepdims": True}


@sample("_npi_norm")
def magnitudes(rng):
    return [floats(rng, 2, 3)], {"ord": 1, "axis": (-1,), "flag": -1}


# Shapes


@sample("_np_transpose")
def reversed_axes(rng):
    return [floats(rng, 2, 3, 4)], {}


@sample("_np_transpose")
def permuted(rng):
    return [integers(rng, 2, 3, 4)], {"axes": (1, -1, 0)}


@sample("_np_transpose")
def transposed_vector(rng):
    return [floats(rng, 3)], {}


@sample("_np_moveaxis")
def moved(rng):
    return [floats(rng, 2, 3, 4)], {"source": 0, "destination": -1}


@sample("_np_moveaxis")
def two_moved(rng):
    return [integers(rng, 2, 3, 4)], {"source": (0, 1), "destination": (-1, -2)}


@sample("_np_squeeze")
def all_squeezed(rng):
    return [floats(rng, 1, 3, 1)], {}


@sample("_np_squeeze")
def one_squeezed(rng):
    return [floats(rng, 1, 3, 1)], {"axis": -1}


@sample("_np_squeeze")
def squeezed_to_rank_0(rng):
    return [integers(rng, 1, 1)], {}


@sample("_npi_broadcast_to")
def stretched(rng):
    return [floats(rng, 3, 1)], {"shape": (2, 3, 4)}


@sample("_npi_broadcast_to")
def rank_0_stretched(rng):
    return [integers(rng)], {"shape": (2, 3)}


@sample("_npx_reshape")
def kept_and_merged(rng):
    return [floats(rng, 2, 3, 4)], {"newshape": (-2, -5)}


@sample("_npx_reshape")
def split_and_kept(rng):
    return [floats(rng, 6, 1, 4)], {"newshape": (-6, 2, -1, -3, -4)}


@sample("_npx_reshape")
def from_the_right(rng):
    return [integers(rng, 8, 3, 3, 3, 4, 4)], {"newshape": (-2, -2, -1), "reverse": False}


@sample("_npx_reshape")
def read_from_the_right(rng):
    return [integers(rng, 2, 3, 4)], {"newshape": (-1, -2), "reverse": True}


@sample("_npi_vstack", "_npi_hstack", "_npi_dstack", "_npi_column_stack")
def vectors(rng):
    return [floats(rng, 3), floats(rng, 3)], {"num_args": 2}


@sample("_npi_vstack", "_npi_dstack")
def matrices_below(rng):
    return [integers(rng, 2, 3), integers(rng, 2, 3)], {"num_args": 2}


@sample("_npi_hstack", "_npi_column_stack")
def matrices_beside(rng):
    return [integers(rng, 2, 3), integers(rng, 2, 1)], {"num_args": 2}


@sample("_npi_vstack", "_npi_hstack", "_npi_dstack")
def numbers_joined(rng):
    return [floats(rng), floats(rng)], {"num_args": 2}


@sample("_npi_hstack", "_npi_dstack")
def joined_along_its_own_axis(rng):
    return [floats(rng, 2, 3), floats(rng, 2, 3)], {"num_args": 2, "dim": -1}


@sample("_npi_stack")
def stacked(rng):
    return [floats(rng, 2, 3), floats(rng, 2, 3)], {"axis": -1, "num_args": 2}


@sample("_npi_stack")
def numbers_stacked(rng):
    return [integers(rng), integers(rng), integers(rng)], {"num_args": 3}


@sample("_npi_concatenate")
def concatenated(rng):
    return [floats(rng, 2, 3), floats(rng, 2, 2)], {"num_args": 2, "axis": -1}


@sample("_npi_concatenate")
def concatenated_in_a_row(rng):
    return [integers(rng, 2, 3), integers(rng, 2)], {"num_args": 2, "axis": None}


@sample("_npi_concatenate")
def concatenated_rows(rng):
    return [floats(rng, 1, 3), floats(rng, 0, 3), floats(rng, 2, 3)], {"num_args": 3}


@sample("_npi_hsplit")
def split_in_three(rng):
    return [floats(rng, 2, 3, 6)], {"indices": (), "sections": 3, "axis": 1}


@sample("_npi_hsplit")
def split_at(rng):
    return [integers(rng, 2, 5, 4)], {"indices": (0, 1, 3)}


@sample("_npi_dsplit")
def split_deep_in_three(rng):
    return [floats(rng, 2, 3, 6)], {"indices": (), "sections": 3, "axis": 2}


@sample("_npi_dsplit")
def split_deep_at(rng):
    return [integers(rng, 2, 5, 4)], {"indices": (0, 1, 3), "axis": 2}


@sample("_npi_hsplit")
def vector_split(rng):
    return [floats(rng, 4)], {"indices": (), "sections": 2}


@sample("_npi_flip")
def flipped_all(rng):
    return [floats(rng, 2, 3)], {"axis": None}


@sample("_npi_flip")
def flipped(rng):
    return [floats(rng, 2, 3)], {"axis": (0, 1)}


@sample("_npi_flip")
def flipped_integers(rng):
    return [integers(rng, 2, 3)], {"axis": 1}


@sample("_np_roll")
def rolled(rng):
    return [floats(rng, 2, 3)], {"shift": 2}


@sample("_np_roll")
def rolled_along_axes(rng):
    return [integers(rng, 3, 4)], {"shift": (1, -2), "axis": (0, 1)}


@sample("_npi_tril")
def lower(rng):
    return [floats(rng, 2, 3, 4)], {"k": 1}


@sample("_npi_tril")
def lower_of_vector(rng):
    return [integers(rng, 3)], {"k": -1}


@sample("_np_diag")
def diagonal_of(rng):
    return [floats(rng, 3, 4)], {"k": 1}


@sample("_np_diag")
def matrix_of(rng):
    return [integers(rng, 3)], {"k": -1}


@sample("_np_diagonal", "_np_trace")
def diagonals(rng):
    return [floats(rng, 3, 4, 2)], {"offset": 1}


@sample("_np_diagonal", "_np_trace")
def diagonals_of_other_axes(rng):
    return [floats(rng, 2, 3, 4)], {"offset": -1, "axis1": 2, "axis2": 1}


@sample("_npi_pad")
def padded(rng):
    return [floats(rng, 2, 3)], {"pad_width": ((1, 0), (2, 1)), "constant_value": 1.5}


@sample("_npi_pad")
def padded_with_edge(rng):
    return [floats(rng, 3, 2)], {"pad_width": ((2, 1), (0, 2)), "mode": "edge"}


@sample("_npi_pad")
def padded_with_mirror(rng):
    return [floats(rng, 3, 4)], {"pad_width": ((1, 2), (0, 3)), "mode": "reflect"}


@sample("_npi_pad")
def padded_with_symmetric(rng):
    return [floats(rng, 3, 4)], {"pad_width": ((1, 2), (4, 3)), "mode": "symmetric"}


# Products


@sample("_np_dot")
def matrix_by_matrix(rng):
    return [floats(rng, 2, 3), floats(rng, 3, 4)], {}


@sample("_np_dot")
def vector_by_vector(rng):
    return [floats(rng, 5), floats(rng, 5)], {}


@sample("_np_dot")
def tensor_by_tensor(rng):
    return [floats(rng, 2, 3), floats(rng, 4, 3, 2)], {}


@sample("_np_dot", oracle=False)
def number_by_matrix(rng):
    return [floats(rng), floats(rng, 2, 3)], {}


@sample("_npi_matmul")
def batches(rng):
    return [floats(rng, 2, 1, 3, 4), floats(rng, 5, 4, 2)], {}


@sample("_npi_matmul")
def matrix_by_vector(rng):
    return [floats(rng, 2, 3, 4), floats(rng, 4)], {}


@sample("_npi_matmul")
def vector_by_batch(rng):
    return [floats(rng, 3, dtype="float64"), floats(rng, 2, 3, 4, dtype="float64")], {}


@sample("_npi_tensordot")
def over_two_axes(rng):
    return [floats(rng, 2, 3, 4), floats(rng, 4, 2, 5)], {"a_axes_summed": (0, 2), "b_axes_summed": (1, 0)}


@sample("_npi_tensordot")
def over_the_last_axis(rng):
    return [floats(rng, 2, 3), floats(rng, 4, 3)], {"a_axes_summed": (-1,), "b_axes_summed": (-1,)}


@sample("_npi_tensordot_int_axes")
def over_one(rng):
    return [floats(rng, 2, 3), floats(rng, 3, 4)], {"axes": 1}


@sample("_npi_tensordot_int_axes")
def over_all(rng):
    return [floats(rng, 2, 3), floats(rng, 2, 3)], {"axes": 2}


@sample("_npi_tensordot_int_axes")
def over_none(rng):
    return [floats(rng, 2), floats(rng, 3)], {"axes": 0}


@sample("_npi_einsum")
def product_of_matrices(rng):
    return [floats(rng, 2, 3), floats(rng, 3, 4)], {"subscripts": "ij,jk", "num_args": 2}


@sample("_npi_einsum")
def attention_scores(rng):
    return [floats(rng, 2, 3, 4, 5), floats(rng, 2, 6, 4, 5)], {"subscripts": "bqhd,bkhd->bhqk", "num_args": 2}


@sample("_npi_einsum")
def with_ellipsis(rng):
    return [floats(rng, 2, 3, 4), floats(rng, 4, 5)], {"subscripts": "...i,ij->...j", "num_args": 2}


@sample("_npi_einsum")
def trace_and_sum(rng):
    return [floats(rng, 3, 3, 2)], {"subscripts": "iij->j", "num_args": 1}


@sample("_npi_einsum")
def three_factors(rng):
    return [floats(rng, 2, 3), floats(rng, 3, 4), floats(rng, 4)], {"subscripts": "ij,jk,k->i", "num_args": 3}


@sample("_npi_einsum")
def outer_product(rng):
    return [floats(rng, 2), floats(rng, 3)], {"subscripts": "i,j->ji", "num_args": 2}


# Made of attributes


@sample("_npi_zeros", "_npi_ones")
def filled(rng):
    return [], {"shape": (2, 3), "dtype": "int32"}


@sample("_npi_zeros", "_npi_ones")
def filled_of_rank_0(rng):
    return [], {"shape": ()}


@sample("_npi_zeros", "_npi_ones")
def filled_with_bools(rng):
    return [], {"shape": (0, 2), "dtype": "bool"}


@sample("_npi_identity")
def identity(rng):
    return [], {"shape": (3, 3), "dtype": "int64"}


@sample("_npi_full_like")
def filled_alike(rng):
    return [integers(rng, 2, 3)], {"fill_value": 2.5}


@sample("_npi_full_like")
def filled_alike_in_another_type(rng):
    return [floats(rng)], {"fill_value": 2.5, "dtype": "float64"}


@sample("_npi_arange")
def numbers(rng):
    return [], {"start": 1.0, "stop": 2.0, "step": 0.25}


@sample("_npi_arange")
def numbers_to(rng):
    return [], {"start": 5.0, "dtype": "int32"}


@sample("_npi_arange")
def no_numbers(rng):
    return [], {"start": 0.0}


@sample("_npi_eye")
def diagonal_ones(rng):
    return [], {"N": 2, "M": 3, "k": 1}


@sample("_npi_eye")
def square_ones(rng):
    return [], {"N": 3, "dtype": "int32"}


# Random: what chance cannot change is asked of MXNet


@sample("_npi_uniform", "_npi_uniform_n")
def uniform_at_one_place(rng):
    return [], {"low": 2.0, "high": 2.0, "size": (3, 4)}


@sample("_npi_uniform", "_npi_uniform_n")
def uniform_at_places(rng):
    return [np.float32([1, 2]), np.float32([1, 2])], {"low": None, "high": None, "dtype": "float64"}


@sample("_npi_normal", "_npi_normal_n")
def normal_without_deviation(rng):
    return [], {"loc": 1.5, "scale": 0.0, "size": (2,)}


@sample("_npi_normal", "_npi_normal_n")
def normals_without_deviation(rng):
    return [integers(rng, 3).astype("float32")], {"loc": None, "scale": 0.0, "size": (3,)}


@sample("_npi_bernoulli")
def certain(rng):
    return [], {"prob": 1.0, "logit": None, "size": (3,), "is_logit": False}


@sample("_npi_bernoulli")
def impossible_and_certain(rng):
    return [np.float32([0, 1, 1])], {"prob": None, "logit": None, "is_logit": False, "dtype": "int32"}


@sample("_npi_bernoulli")
def certain_by_integers(rng):
    return [integers(rng, 4, low=0, high=2)], {"prob": None, "logit": None, "is_logit": False}


@sample("_npi_uniform", oracle=False)
def uniform_between_numbers(rng):
    return [], {"low": -1.0, "high": 2.0, "size": (3, 4)}


@sample("_npi_uniform", oracle=False)
def uniform_between_tensors(rng):
    return [floats(rng, 3, 1), floats(rng, 4, low=3, high=4)], {"low": None, "high": None, "dtype": "float64"}


@sample("_npi_normal", oracle=False)
def normal_of_numbers(rng):
    return [], {"loc": -1.0, "scale": 2.0, "size": ()}


@sample("_npi_normal", oracle=False)
def normal_of_a_tensor(rng):
    return [floats(rng, 3)], {"loc": None, "scale": 2.0, "size": (2, 3)}


@sample("_npi_uniform_n", oracle=False)
def uniforms_of_a_tensor(rng):
    return [floats(rng, 3, low=3, high=4)], {"low": 0.0, "high": None, "size": (2,)}


@sample("_npi_normal_n", oracle=False)
def normals_of_a_tensor(rng):
    return [floats(rng, 3)], {"loc": None, "scale": 1.0, "size": (2,)}


@sample("_npi_bernoulli", oracle=False)
def coins(rng):
    return [], {"prob": 0.3, "logit": None, "size": (5,), "is_logit": False}


@sample("_npi_bernoulli", oracle=False)
def coins_of_a_tensor(rng):
    return [floats(rng, 5)], {"prob": None, "logit": None, "is_logit": True, "dtype": "int32"}
