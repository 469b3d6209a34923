"""Samples of the random operators: MXNet draws other numbers, so only their modes are compared here."""

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
