"""Samples of the operators of `mx.np` on sequences, of windows and grids, of signs, powers and multiples of pairs."""

import numpy as np

from .samples import floats, integers, sample, special_pairs


@sample("_npi_diff")
def differences(rng):
    return [floats(rng, 3, 5)], {"n": int(rng.randint(4)), "axis": int(rng.randint(-2, 2))}


@sample("_npi_diff")
def differences_of_integers(rng):
    return [integers(rng, 6)], {}


@sample("_npi_diff")
def no_differences(rng):
    return [floats(rng, 2, 3, dtype="float64")], {"n": 4}


@sample("_npi_ediff1d")
def flat_differences(rng):
    return [floats(rng, 2, 3)], {}


@sample("_npi_ediff1d")
def between_numbers(rng):
    return [integers(rng, 4)], {"to_begin_scalar": -3, "to_end_scalar": 7}


@sample("_npi_ediff1d")
def between_arrays(rng):
    return [floats(rng, 4), floats(rng, 2), floats(rng, 1)], {"to_begin_arr_given": True, "to_end_arr_given": True}


@sample("_npi_ediff1d")
def before_an_array(rng):
    return [floats(rng, 4), floats(rng, 2)], {"to_begin_scalar": 1.5, "to_end_arr_given": True}


@sample("_npi_insert_scalar")
def number_in_front(rng):
    return [floats(rng, 5)], {"val": 9.0, "int_ind": int(rng.randint(-5, 6))}


@sample("_npi_insert_scalar")
def row_in_front(rng):
    return [floats(rng, 3, 4), floats(rng, 4)], {"int_ind": 1, "axis": 0}


@sample("_npi_insert_scalar")
def column_in_front(rng):
    return [floats(rng, 3, 4), floats(rng, 3)], {"int_ind": -1, "axis": 1}


@sample("_npi_insert_slice")
def in_front_of_a_slice(rng):
    return [floats(rng, 6), floats(rng, 3)], {"start": 0, "stop": 6, "step": 2}


@sample("_npi_insert_slice")
def in_front_of_columns(rng):
    return [floats(rng, 2, 4), floats(rng, 2, 4)], {"step": -1, "axis": 1}


@sample("_npi_insert_slice")
def one_row_in_front_of_all(rng):
    return [floats(rng, 3, 2), floats(rng, 1, 2)], {"start": 1, "step": 1, "axis": 0}


@sample("_npi_insert_tensor")
def in_front_of_places(rng):
    return [floats(rng, 5), floats(rng, 3), np.array([3, -4, 1], "int64")], {}


@sample("_npi_insert_tensor")
def twice_at_one_place(rng):
    return [floats(rng, 2, 3), floats(rng, 2, 2), np.array([1, 1], "int64")], {"axis": 1}


@sample("_npi_insert_tensor")
def all_at_one_place(rng):
    return [floats(rng, 4), floats(rng, 3), np.array([2], "int64")], {}


@sample("_npi_delete")
def without_one(rng):
    return [floats(rng, 2, 4)], {"int_ind": int(rng.randint(-4, 4)), "axis": 1}


@sample("_npi_delete")
def without_a_slice(rng):
    return [integers(rng, 7)], {"start": 1, "stop": 6, "step": 2}


@sample("_npi_delete")
def without_rows(rng):
    return [floats(rng, 4, 2, dtype="float64")], {"stop": 2, "axis": 0, "step": 1}


@sample("_npi_percentile")
def one_percentile(rng):
    how = ["higher", "linear", "lower", "midpoint", "nearest"][rng.randint(5)]
    return [floats(rng, 3, 4)], {"q_scalar": 30.0, "interpolation": how}


@sample("_npi_percentile")
def percentiles_over_an_axis(rng):
    return [floats(rng, 2, 5, 3), np.array([0, 10, 62, 100], "int64")], {"axis": (1,)}


@sample("_npi_percentile")
def percentiles_over_two_axes(rng):
    attrs = {"axis": (0, 2), "keepdims": True, "interpolation": "midpoint"}
    return [floats(rng, 2, 5, 3, dtype="float64"), np.array([40, 75], "int32")], attrs


@sample("_npi_percentile")
def percentiles_of_integers(rng):
    return [integers(rng, 6), np.array(55, "int32")], {"interpolation": ["lower", "linear"][rng.randint(2)]}


@sample("_npi_bincount")
def counted(rng):
    return [integers(rng, 9, low=0, high=6)], {}


@sample("_npi_bincount")
def weighed(rng):
    return [integers(rng, 9, low=0, high=6, dtype="int64"), floats(rng, 9)], {"has_weights": True, "minlength": 8}


@sample("_npi_polyval")
def polynomial(rng):
    return [floats(rng, 4), floats(rng, 2, 3)], {}


@sample("_npi_polyval")
def polynomial_of_integers(rng):
    return [integers(rng, 3), integers(rng, 4)], {}


@sample("_npi_polyval")
def polynomial_of_one(rng):
    return [floats(rng, 1, dtype="float64"), floats(rng, 2, dtype="float64")], {}


@sample("_npi_rot90")
def quarters(rng):
    return [floats(rng, 2, 3)], {"k": int(rng.randint(-4, 5)), "axes": (0, 1)}


@sample("_npi_rot90")
def quarters_of_a_plane(rng):
    return [integers(rng, 2, 3, 4)], {"k": int(rng.randint(4)), "axes": [(1, 2), (2, 0), (-1, 1)][rng.randint(3)]}


@sample("_npi_diag_indices_from")
def main_diagonal(rng):
    return [floats(rng, *[3] * (2 + rng.randint(2)))], {}


@sample("_npi_hanning", "_npi_hamming", "_npi_blackman")
def window(rng):
    return [], {"M": [12, 5, 1][rng.randint(3)]}


@sample("_npi_indices")
def grid(rng):
    return [], {"dimensions": [(2, 3), (4,), (2, 1, 3)][rng.randint(3)], "dtype": ["int32", "float32"][rng.randint(2)]}


@sample("_npi_logspace")
def powers(rng):
    return [], {"start": -1.0, "stop": 2.0, "num": int(rng.randint(2, 8)), "endpoint": bool(rng.randint(2))}


@sample("_npi_logspace")
def powers_of_two(rng):
    return [], {"start": 0.25, "stop": 2.25, "num": 5, "base": 2.0, "dtype": "float64"}


PAIRS = ["_npi_copysign", "_npi_ldexp"]
NUMBERS = ["_npi_copysign_scalar", "_npi_rcopysign_scalar", "_npi_ldexp_scalar", "_npi_rldexp_scalar"]


@sample(*PAIRS)
def pairs(rng):
    return [floats(rng, 3, 4), floats(rng, 2, 1, 4)], {}


@sample(*PAIRS)
def pairs_of_doubles(rng):
    return [floats(rng, 5, dtype="float64"), floats(rng, 5, dtype="float64")], {}


@sample("_npi_copysign")
def pairs_that_matter(rng):
    x, y = special_pairs()
    kept = ~np.isnan(x) & ~np.isnan(y)
    return [x[kept], y[kept]], {}


@sample(*NUMBERS)
def beside_a_number(rng):
    return [floats(rng, 3, 4)], {"scalar": [-2.0, 1.5, 3.0][rng.randint(3)], "is_int": False}


@sample(*NUMBERS)
def integers_beside_a_number(rng):
    return [integers(rng, 6, low=1, high=6)], {"scalar": 3.0}


@sample("_npi_lcm")
def multiples(rng):
    return [integers(rng, 3, 4), integers(rng, 4)], {}


@sample("_npi_lcm")
def multiples_of_long(rng):
    return [integers(rng, 5, dtype="int64", low=-900, high=900), integers(rng, 1, dtype="int64", low=1, high=900)], {}


@sample("_npi_lcm_scalar")
def multiples_of_a_number(rng):
    return [integers(rng, 6)], {"scalar": [12.0, 0.0, 7.0][rng.randint(3)]}
