"""Samples of the elementwise operators."""

import numpy as np

from .samples import floats, integers, sample, special, special_pairs

# Functions of one element: where on the real line they are defined.
ANYWHERE = (
    "abs sign negative square relu floor ceil round rint trunc fix logical_not exp expm1 sin cos tan arctan sinh cosh "
    "tanh arcsinh degrees radians sigmoid softsign erf cbrt hard_sigmoid"
).split()
POSITIVE = "sqrt rsqrt log log2 log10 reciprocal rcbrt gammaln gamma".split()
ABOVE_MINUS_ONE = ["log1p"]
WITHIN_ONE = "arcsin arccos arctanh erfinv".split()
ABOVE_ONE = ["arccosh"]
EXACT_COPIES = "_copy BlockGrad make_loss".split()
IDENTITIES = [*EXACT_COPIES, "MakeLoss"]
DEFINED_ON_INTEGERS = "abs sign negative square relu floor ceil round rint trunc fix logical_not".split()
UNARY = ANYWHERE + POSITIVE + ABOVE_MINUS_ONE + WITHIN_ONE + ABOVE_ONE
THROUGH_FLOAT = [name for name in UNARY if name not in (*DEFINED_ON_INTEGERS, "hard_sigmoid")]

for _names, _low, _high in [
    (ANYWHERE + IDENTITIES, -3, 3),
    (POSITIVE, 0.05, 6),
    (ABOVE_MINUS_ONE, -0.95, 5),
    (WITHIN_ONE, -0.99, 0.99),
    (ABOVE_ONE, 1, 8),
]:

    @sample(*_names)
    def on_its_domain(rng, low=_low, high=_high):
        return [floats(rng, 3, 17, low=low, high=high)], {}

    @sample(*_names)
    def float64(rng, low=_low, high=_high):
        return [floats(rng, 2, 3, 4, dtype="float64", low=low, high=high)], {}

    @sample(*_names)
    def float16(rng, low=_low, high=_high):
        return [floats(rng, 13, dtype="float16", low=low, high=high)], {}


@sample(*UNARY, *IDENTITIES)
def special_values(rng):
    return [special()], {}


@sample(*UNARY, *IDENTITIES, oracle=False)
def zero_size(rng):
    return [floats(rng, 2, 0, 3)], {}


@sample(*DEFINED_ON_INTEGERS, *EXACT_COPIES)
def int32(rng):
    return [integers(rng, 4, 5)], {}


@sample(*DEFINED_ON_INTEGERS, *EXACT_COPIES)
def uint8(rng):
    return [integers(rng, 7, dtype="uint8", high=256)], {}


@sample(*DEFINED_ON_INTEGERS, *EXACT_COPIES)
def int64(rng):
    return [integers(rng, 7, dtype="int64", low=-1000, high=1000)], {}


# (erf: MXNet has float64 for it, whose erf(4) is less than 1 and truncates to 0.)
@sample(*[name for name in THROUGH_FLOAT if name not in ("arcsin", "arccos", "arctanh", "erfinv", "erf")])
def int32_through_float(rng):
    return [integers(rng, 8, low=1, high=6)], {}


@sample(*[name for name in THROUGH_FLOAT if name in ("arcsin", "arccos")])
def int8_through_float(rng):
    return [integers(rng, 8, dtype="int8", low=-1, high=2)], {}


@sample("gamma", "gammaln")
def below_zero(rng):
    return [floats(rng, 20, low=-5, high=0)], {}


@sample("erf", "exp", "tanh", "sigmoid", "gammaln", "softsign")
def far_out(rng):
    return [floats(rng, 40, low=-80, high=80)], {}


@sample("round", "rint", "trunc", "fix", "floor", "ceil")
def halves(rng):
    return [(integers(rng, 20) / 2).astype("float32")], {}


@sample("hard_sigmoid")
def hard_sigmoid_slope(rng):
    return [floats(rng, 20, low=-5, high=5)], {"alpha": 0.3, "beta": 0.4}


@sample("smooth_l1")
def smooth_l1(rng):
    return [floats(rng, 20)], {"scalar": float(rng.choice([0.5, 1, 3]))}


@sample("smooth_l1")
def smooth_l1_special(rng):
    return [special()], {}


# Two tensors

ARITHMETIC = "add sub mul div".split()
OTHERS = (
    "mod power maximum minimum hypot equal not_equal greater greater_equal lesser lesser_equal logical_and logical_or "
    "logical_xor"
).split()
EQUAL_SHAPES = [f"elemwise_{name}" for name in ARITHMETIC] + [f"_{name}" for name in OTHERS]
BROADCAST = [f"broadcast_{name}" for name in ARITHMETIC + OTHERS]
POWERS = ["_power", "broadcast_power"]
# The oracle's process dies of an integer division by 0.
DIVISIONS = ["elemwise_div", "broadcast_div"]


def not_power(names):
    return [name for name in names if name not in POWERS]


@sample(*not_power(EQUAL_SHAPES))
def equal_shapes(rng):
    return [floats(rng, 3, 4), floats(rng, 3, 4)], {}


@sample(*EQUAL_SHAPES, *BROADCAST)
def equal_shapes_float64(rng):
    return [floats(rng, 11, dtype="float64", low=0.1), floats(rng, 11, dtype="float64")], {}


@sample(*EQUAL_SHAPES, *BROADCAST)
def equal_shapes_float16(rng):
    return [floats(rng, 11, dtype="float16", low=0.1), floats(rng, 11, dtype="float16")], {}


@sample(*[name for name in EQUAL_SHAPES + BROADCAST if name not in POWERS])
def equal_shapes_int32(rng):
    return [integers(rng, 3, 7), integers(rng, 3, 7, low=1)], {}


@sample(*[name for name in EQUAL_SHAPES + BROADCAST if name not in POWERS])
def equal_shapes_uint8(rng):
    return [integers(rng, 9, dtype="uint8", high=16), integers(rng, 9, dtype="uint8", low=1, high=16)], {}


@sample(*POWERS)
def powers(rng):
    return [floats(rng, 12, low=0.1), floats(rng, 12)], {}


@sample(*POWERS)
def integer_powers(rng):
    return [integers(rng, 3, 8, low=-4, high=5), integers(rng, 3, 8, low=0, high=6)], {}


@sample(*POWERS)
def negative_integer_powers(rng):
    return [integers(rng, 8, low=1, high=4), integers(rng, 8, low=-3, high=3)], {}


@sample(*EQUAL_SHAPES, *BROADCAST)
def special_against_special(rng):
    return special_pairs(), {}


@sample(*BROADCAST)
def column_against_row(rng):
    return [floats(rng, 3, 1, low=0.1), floats(rng, 1, 4)], {}


@sample(*BROADCAST)
def scalar_against_tensor(rng):
    return [floats(rng, 1, low=0.1), floats(rng, 2, 3, 4)], {}


@sample(*BROADCAST)
def vector_against_matrix(rng):
    return [floats(rng, 2, 5, 3, low=0.1), floats(rng, 5, 1)], {}


@sample(*BROADCAST, oracle=False)
def broadcast_with_nothing(rng):
    return [floats(rng, 3, 1), floats(rng, 1, 0)], {}


@sample(*DIVISIONS, oracle=False)
def integer_division_by_zero(rng):
    return [integers(rng, 8), integers(rng, 8, low=0, high=2)], {}


@sample("add_n")
def three(rng):
    return [floats(rng, 2, 3) for _ in range(3)], {"num_args": 3}


@sample("add_n")
def one(rng):
    return [floats(rng, 2, 3)], {"num_args": 1}


@sample("add_n")
def two_of_int32(rng):
    return [integers(rng, 2, 3) for _ in range(2)], {"num_args": 2}


# A tensor and a number

SCALAR = (
    "_plus_scalar _minus_scalar _rminus_scalar _mul_scalar _div_scalar _rdiv_scalar _mod_scalar _rmod_scalar "
    "_power_scalar _rpower_scalar _maximum_scalar _minimum_scalar _hypot_scalar _equal_scalar _not_equal_scalar "
    "_greater_scalar _greater_equal_scalar _lesser_scalar _lesser_equal_scalar _logical_and_scalar _logical_or_scalar "
    "_logical_xor_scalar"
).split()
# Negative numbers to fractional powers are NaN on both sides, which shows little.
SIGNED_SCALAR = [name for name in SCALAR if "power" not in name]


@sample(*SCALAR)
def scalar_float32(rng):
    return [floats(rng, 3, 4, low=0.1)], {"scalar": float(rng.choice([2.0, 0.5, 1.3, 3.0]))}


@sample(*SIGNED_SCALAR)
def scalar_negative(rng):
    return [floats(rng, 3, 4)], {"scalar": float(rng.choice([-2.0, -0.5, -1e-3]))}


@sample(*SCALAR)
def scalar_special(rng):
    return [special()], {"scalar": float(rng.choice([2.0, -1.0, 0.5]))}


@sample(*SCALAR)
def scalar_zero(rng):
    return [special()], {"scalar": 0.0}


@sample(*SCALAR)
def scalar_int32(rng):
    return [integers(rng, 9, low=1)], {"scalar": float(rng.choice([1, 2, 3]))}


@sample(*SIGNED_SCALAR)
def scalar_int32_negative(rng):
    values = integers(rng, 9)
    return [np.where(values == 0, np.int32(4), values)], {"scalar": float(rng.choice([-3, -2, 2]))}


@sample(*SCALAR)
def scalar_fraction_beside_int32(rng):
    return [integers(rng, 9, low=1, high=5)], {"scalar": 2.75}


@sample(*SCALAR)
def scalar_fraction_makes_float64(rng):
    return [integers(rng, 9, low=1, high=5)], {"scalar": 2.75, "is_int": False}


@sample(*[name for name in SIGNED_SCALAR if name != "_hypot_scalar"])
def scalar_wraps_in_uint8(rng):
    return [integers(rng, 9, dtype="uint8", low=1, high=256)], {"scalar": float(rng.choice([300, -1.5, 7]))}


@sample(*[name for name in SIGNED_SCALAR if name not in ("_rdiv_scalar", "_rmod_scalar")])
def scalar_beside_bool(rng):
    return [integers(rng, 6, dtype="bool")], {"scalar": 2.0}


@sample(*[name for name in SIGNED_SCALAR if name not in ("_rdiv_scalar", "_rmod_scalar")])
def scalar_fraction_beside_bool(rng):
    return [integers(rng, 6, dtype="bool")], {"scalar": 2.5, "is_int": False}


@sample(*SCALAR)
def scalar_float16(rng):
    return [floats(rng, 11, dtype="float16", low=0.1)], {"scalar": 1.5}


@sample(*SCALAR)
def scalar_float64(rng):
    return [floats(rng, 11, dtype="float64", low=0.1)], {"scalar": 0.7}


# Casts, clipping, selection

DTYPES = "float16 float32 float64 uint8 int8 int32 int64 bool".split()


@sample("Cast")
def cast_floats(rng):
    return [floats(rng, 12, low=0, high=100)], {"dtype": str(rng.choice(DTYPES))}


@sample("Cast")
def cast_wraps_in_8_bits(rng):
    return [floats(rng, 12, low=-1000, high=1000)], {"dtype": str(rng.choice(["uint8", "int8"]))}


@sample("Cast")
def cast_integers(rng):
    return [integers(rng, 12, low=-1000, high=1000)], {"dtype": str(rng.choice(DTYPES))}


@sample("Cast")
def cast_from_bool(rng):
    return [integers(rng, 12, dtype="bool")], {"dtype": str(rng.choice(DTYPES))}


@sample("Cast")
def cast_special_to_bool(rng):
    return [special()], {"dtype": "bool"}


@sample("Cast")
def cast_special_to_float(rng):
    return [special("float64")], {"dtype": str(rng.choice(["float16", "float32"]))}


@sample("Cast", oracle=False)
def cast_to_bfloat16(rng):
    return [floats(rng, 12)], {"dtype": "bfloat16"}


@sample("amp_multicast", oracle=False)  # MXNet's for CPUs refuses all but one type
def amp_multicast(rng):
    kinds = [("float32", "float64"), ("float64", "float16", "float32")][rng.randint(2)]
    data = [floats(rng, 2, 3, dtype=kind) for kind in kinds]
    return data, {"num_outputs": len(data), "cast_narrow": bool(rng.randint(2))}


@sample("amp_multicast")
def amp_multicast_of_one_type(rng):
    data = [floats(rng, 2, 3) for _ in range(rng.randint(1, 4))]
    data[0][0, :2] = np.nan, -np.inf
    return data, {"num_outputs": len(data), "cast_narrow": bool(rng.randint(2))}


@sample("amp_multicast")
def amp_multicast_of_different_shapes(rng):
    return [floats(rng, 2, 3), floats(rng, 4)], {"num_outputs": 2}


@sample("amp_multicast")
def amp_multicast_of_one(rng):
    return [floats(rng, 3)], {"num_outputs": 1}


@sample("amp_cast")
def amp_cast(rng):
    own, other = rng.permutation(["float16", "float32"])
    return [floats(rng, 12, dtype=own)], {"dtype": str(other)}


@sample("clip")
def clip_floats(rng):
    return [floats(rng, 3, 9, low=-3, high=9)], {"a_min": 0, "a_max": 6}


@sample("clip")
def clip_special(rng):
    return [special()], {"a_min": -1.25, "a_max": 2}


@sample("clip")
def clip_crossing(rng):
    return [special()], {"a_min": 1, "a_max": -1}


@sample("clip")
def clip_int32(rng):
    return [integers(rng, 20)], {"a_min": float(rng.choice([-1.5, 1.5, -1e20])), "a_max": 4.7}


@sample("clip")
def clip_uint8(rng):
    return [integers(rng, 20, dtype="uint8", high=256)], {"a_min": -1.5, "a_max": 99.5}


@sample("where")
def where_float_condition(rng):
    return [integers(rng, 2, 3, dtype="float32", low=-1, high=2), floats(rng, 2, 3), floats(rng, 2, 3)], {}


@sample("where")
def where_special_condition(rng):
    return [special(), floats(rng, 4, 4), floats(rng, 4, 4)], {}


@sample("where")
def where_rows(rng):
    return [integers(rng, 4, low=0, high=2), floats(rng, 4, 3, 2), floats(rng, 4, 3, 2)], {}


@sample("where")
def where_integers(rng):
    return [integers(rng, 7, dtype="int64", low=0, high=2), integers(rng, 7), integers(rng, 7)], {}


@sample("where", oracle=False)
def where_bool_condition(rng):
    return [integers(rng, 7, dtype="bool"), floats(rng, 7), floats(rng, 7)], {}
