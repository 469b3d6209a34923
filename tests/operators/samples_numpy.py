"""Samples of operators of `mx.np`."""

from .samples import floats, integers, sample, special, special_pairs

BINARY = [f"_npi_{name}" for name in ("add", "subtract", "multiply", "true_divide", "mod")]
UNDIVIDED = [name for name in BINARY if name != "_npi_true_divide"]
"""MXNet divides only tensors of one type."""

SCALAR = [f"_npi_{name}_scalar" for name in ("add", "subtract", "rsubtract", "multiply", "mod", "rmod")]
DIVISIONS = ["_npi_true_divide_scalar", "_npi_rtrue_divide_scalar"]
POWERS = ["_npi_power_scalar", "_npi_rpower_scalar"]


@sample(*BINARY, "_npi_power")
def broadcast(rng):
    return [floats(rng, 2, 3, low=0.5), floats(rng, 4, 1, 3)], {}


@sample(*BINARY)
def values_that_matter(rng):
    return special_pairs(), {}


@sample(*BINARY, "_npi_power")
def rank_0(rng):
    return [floats(rng, low=0.5), floats(rng, dtype="float32")], {}


@sample(*BINARY, "_npi_power")
def an_integer_and_a_float(rng):
    return [integers(rng, 2, 3, low=1), floats(rng, 3)], {}


@sample(*UNDIVIDED)
def integers_of_two_sizes(rng):
    return [integers(rng, 2, 3, dtype="int64", low=1), integers(rng, 3, low=1)], {}


@sample(*UNDIVIDED)
def bool_and_int(rng):
    return [integers(rng, 2, 3, dtype="bool"), integers(rng, 3, dtype="int8", low=1)], {}


@sample("_npi_add", "_npi_multiply", "_npi_true_divide", "_npi_power")
def bools(rng):
    return [integers(rng, 3, 4, dtype="bool"), integers(rng, 4, dtype="bool")], {}


@sample("_npi_true_divide", oracle=False)
def quotient_of_two_types(rng):
    return [integers(rng, 2, 3, dtype="int64", low=1), integers(rng, 3, low=1)], {}


@sample(*BINARY, "_npi_power", oracle=False)
def halves_and_doubles(rng):
    return [floats(rng, 3, low=0.5, dtype="float16"), floats(rng, 3, low=0.5, dtype="float64")], {}


@sample("_npi_power")
def integers_to_a_power(rng):
    return [integers(rng, 3, 4), integers(rng, 4, low=0, high=5)], {}


@sample(*SCALAR, *DIVISIONS, *POWERS)
def whole(rng):
    return [floats(rng, 2, 3, low=0.5)], {"scalar": 3.0, "is_int": True}


@sample(*SCALAR, *DIVISIONS, *POWERS)
def fraction(rng):
    return [integers(rng, 2, 3, low=0)], {"scalar": 2.5, "is_int": False}


@sample(*SCALAR, *DIVISIONS)
def beside_special(rng):
    return [special()], {"scalar": -1.5, "is_int": False}


@sample(*SCALAR, *DIVISIONS, *POWERS)
def beside_bool(rng):
    return [integers(rng, 3, 4, dtype="bool")], {"scalar": 2.0}


@sample(*SCALAR, *DIVISIONS, *POWERS)
def bool_and_fraction(rng):
    return [integers(rng, 5, dtype="bool")], {"scalar": 0.5, "is_int": False}


@sample(*SCALAR, *DIVISIONS)
def rank_0_and_number(rng):
    return [floats(rng)], {"scalar": 2.0}


@sample("_npx_relu", "_npx_sigmoid", "_np_copy")
def of_one(rng):
    return [special()], {}


@sample("_npx_relu", "_npx_sigmoid", "_np_copy")
def of_one_float(rng):
    return [floats(rng)], {}


@sample("_npx_relu", "_npx_sigmoid", "_np_copy")
def of_integers(rng):
    return [integers(rng, 3, 4, dtype="int64")], {}


@sample("_np_reshape")
def reshape(rng):
    return [floats(rng, 2, 6)], {"newshape": (3, -1)}


@sample("_np_reshape")
def reshape_to_rank_0(rng):
    return [floats(rng, 1, 1)], {"newshape": ()}


@sample("_np_reshape")
def reshape_from_rank_0(rng):
    return [floats(rng)], {"newshape": (1, -1), "order": "C"}


@sample("_np_reshape")
def reshape_nothing(rng):
    return [floats(rng, 0, 6)], {"newshape": (-1, 2, 3)}


@sample("_np_sum", "_npi_mean")
def over_everything(rng):
    return [floats(rng, 2, 3)], {}


@sample("_np_sum", "_npi_mean")
def over_axes(rng):
    return [floats(rng, 2, 3, 4)], {"axis": (0, -1), "keepdims": True}


@sample("_np_sum", "_npi_mean")
def over_no_axis(rng):
    return [floats(rng, 2, 3)], {"axis": ()}


@sample("_np_sum", "_npi_mean")
def over_integers(rng):
    return [integers(rng, 3, 4, dtype="int8", low=80, high=120)], {"axis": 0}


@sample("_np_sum", "_npi_mean")
def over_bools(rng):
    return [integers(rng, 3, 4, dtype="bool")], {"axis": -1}


@sample("_np_sum", "_npi_mean")
def in_another_type(rng):
    return [floats(rng, 3, 4)], {"axis": (1,), "dtype": "int32"}


@sample("_np_sum", "_npi_mean")
def over_nan(rng):
    return [special()], {"axis": 1}


@sample("_np_sum", "_npi_mean")
def in_float64(rng):
    return [integers(rng, 3, 4)], {"dtype": "float64", "keepdims": True}


@sample("_np_sum", "_npi_mean")
def of_nothing(rng):
    return [floats(rng, 0, 3)], {}
