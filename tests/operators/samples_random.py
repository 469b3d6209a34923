"""Samples of the random operators: MXNet draws other numbers, so its results are recorded only where they are certain.

`test_random.py` tests the distributions.
"""

import numpy as np

from .samples import floats, sample

PARAMETERS = {
    "uniform": ({"low": -1.0, "high": 2.0}, 2),
    "normal": ({"loc": 1.0, "scale": 2.0}, 2),
    "exponential": ({"lam": 2.0}, 1),
    "gamma": ({"alpha": 0.7, "beta": 2.0}, 2),
    "poisson": ({"lam": 9.0}, 1),
    "negative_binomial": ({"k": 3, "p": 0.4}, 2),
    "generalized_negative_binomial": ({"mu": 2.0, "alpha": 0.3}, 2),
}

for _name, (_numbers, _tensors) in PARAMETERS.items():

    @sample(f"_random_{_name}", oracle=False)
    def of_shape(rng, numbers=_numbers):
        return [], {**numbers, "shape": (3, 5)}

    @sample(f"_random_{_name}", oracle=False)
    def of_type(rng, numbers=_numbers):
        return [], {**numbers, "shape": (7,), "dtype": ["float16", "float64"][rng.randint(2)]}

    @sample(f"_random_{_name}_like", oracle=False)
    def like(rng, numbers=_numbers):
        return [floats(rng, 2, 3, dtype=["float16", "float32", "float64"][rng.randint(3)])], numbers

    @sample(f"_sample_{_name}", oracle=False)
    def of_parameters(rng, count=_tensors):
        return [floats(rng, 2, 3, low=0.1, high=0.9) for _ in range(count)], {
            "shape": [(), (4,), (2, 2)][rng.randint(3)]
        }


CERTAIN = {
    "uniform": ({"low": 2.5, "high": 2.5}, (2.5, 2.5)),
    "normal": ({"loc": -1.5, "scale": 1e-30}, (-1.5, 1e-30)),
    "exponential": ({"lam": float("inf")}, (np.inf,)),
    "gamma": ({"alpha": 1e13, "beta": 1e-13}, (1e13, 1e-13)),
    "poisson": ({"lam": 0.0}, (0,)),
    "negative_binomial": ({"k": 3, "p": 1.0}, (3, 1)),
    "generalized_negative_binomial": ({"mu": 0.0, "alpha": 0.3}, (0, 0.3)),
}
"""Parameters, as numbers and as elements of tensors, with which all numbers drawn are equal."""

for _name, (_numbers, _elements) in CERTAIN.items():
    for _dtype in ("float16", "float32", "float64"):

        @sample(f"_random_{_name}")
        def certain(rng, numbers=_numbers, dtype=_dtype):
            return [], {**numbers, "shape": [(2, 3), (5,)][rng.randint(2)], "dtype": dtype}

        @sample(f"_random_{_name}_like")
        def certain_like(rng, numbers=_numbers, dtype=_dtype):
            return [floats(rng, 2, 3, dtype=dtype)], numbers

        @sample(f"_sample_{_name}")
        def certain_of_parameters(rng, elements=_elements, dtype=_dtype):
            shape = {"float16": (), "float32": (4,), "float64": (2, 1)}[dtype]
            return [np.full((2, 2), x, "float32") for x in elements], {"shape": shape, "dtype": dtype}


@sample("_random_randint")
def randint_of_one(rng):
    low = int(rng.randint(-9, 10))
    return [], {"low": low, "high": low + 1, "shape": (2, 3), "dtype": ["int32", "int64"][rng.randint(2)]}


@sample("_sample_multinomial")
def multinomial_of_one(rng):
    return [np.eye(4, dtype="float32")[rng.randint(0, 4, 3)]], {"shape": [(), (5,), (2, 3)][rng.randint(3)]}


@sample("_sample_multinomial")
def multinomial_of_one_with_likelihood(rng):
    row = np.eye(4, dtype="float32")[rng.randint(4)]
    return [row], {"shape": (3,), "get_prob": True, "dtype": ["int32", "float64"][rng.randint(2)]}


@sample("_sample_multinomial")
def multinomial_as_bytes(rng):
    return [np.eye(3, dtype="float64")], {"dtype": "uint8"}


@sample("_shuffle")
def shuffle_of_equals(rng):
    row = np.array([[1.5, np.nan, np.inf]], "float32")
    return [np.repeat(row, [1, 4][rng.randint(2)], axis=0)], {}


@sample("_shuffle")
def shuffle_of_equal_integers(rng):
    return [np.full((5,), 7, ["int32", "int8", "int64"][rng.randint(3)])], {}


@sample("_shuffle")
def shuffle_of_one_row(rng):
    return [floats(rng, 1, 4)], {}


@sample("_random_randint", oracle=False)
def randint(rng):
    return [], {"low": -5, "high": 6, "shape": (4, 5)}


@sample("_random_randint", oracle=False)
def randint_wide(rng):
    return [], {"low": -(2**40), "high": 2**40, "shape": (9,), "dtype": "int64"}


@sample("_sample_multinomial", oracle=False)
def multinomial(rng):
    data = floats(rng, 3, 4, low=0, high=1)
    return [data / data.sum(1, keepdims=True)], {"shape": [(), (5,), (2, 3)][rng.randint(3)]}


@sample("_sample_multinomial", oracle=False)
def multinomial_with_likelihood(rng):
    data = floats(rng, 6, low=0, high=1)
    return [data / data.sum()], {"shape": (8,), "get_prob": True, "dtype": "float32"}


@sample("_shuffle", oracle=False)
def shuffle(rng):
    return [floats(rng, 9, 2)], {}


# Distributions of `mx.np.random`

NUMPY = {
    "gamma": {"shape": 0.7, "scale": 2.0},
    "gumbel": {"loc": 1.0, "scale": 2.0},
    "logistic": {"loc": 1.0, "scale": 2.0},
    "exponential": {"scale": 2.0},
    "rayleigh": {"scale": 2.0},
    "weibull": {"a": 2.0},
    "pareto": {"a": 2.0},
    "powerd": {"a": 2.0},
}

for _name, _values in NUMPY.items():

    @sample(f"_npi_{_name}", oracle=False)
    def of_numbers(rng, values=_values):
        return [], {**values, "size": [(3, 5), (4,)][rng.randint(2)]}

    @sample(f"_npi_{_name}", oracle=False)
    def of_arrays(rng, values=_values):
        given = [floats(rng, 2, 3, low=0.5, high=2) for _ in values]
        return given, {**dict.fromkeys(values), "size": [None, (4, 2, 3)][rng.randint(2)]}


@sample("_npi_choice", oracle=False)
def chosen(rng):
    return [], {"a": 7, "size": [(2, 3), (5,), None][rng.randint(3)], "replace": bool(rng.randint(2))}


@sample("_npi_choice", oracle=False)
def chosen_by_weight(rng):
    p = floats(rng, 5, low=0.1, high=1)
    return [floats(rng, 5), p], {"a": None, "size": (4,), "replace": bool(rng.randint(2)), "weighted": True}


@sample("_npi_choice", oracle=False)
def the_only_choice(rng):
    return [np.array([0, 0, 1, 0], "float32")], {"a": 4, "size": (6,), "weighted": True}
