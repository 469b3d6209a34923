"""Samples of update operators: steps of optimizers. States that are means of squares are positive."""

import numpy as np

from .samples import floats, sample

C = {"rescale_grad": 0.5, "clip_gradient": 0.3}
W = {"wd": 0.1}


def update(operator, states="", mp=False, tail=(), **attrs):
    """Declares samples of an update operator. `states`: a letter each, p for a positive one.

    Each of `attrs` may be a list, of which every sample takes another one; None leaves it out."""

    def declared(dtype, number, name):
        def build(rng):
            shape = (3, 4) if number else (2, 3, 5)
            arrays = [floats(rng, *shape, dtype=dtype) for _ in range(2 + len(states))]
            arrays = [np.abs(x) + x.dtype.type(0.25) if s == "p" else x for x, s in zip(arrays, "--" + states)]
            if mp:
                arrays = [*arrays[:2], *(x.astype("float32") for x in arrays[2:]), arrays[0].astype("float32")]
            arrays += [np.array([x], "float32") for x in tail]
            own = {k: v[number % len(v)] if isinstance(v, list) else v for k, v in attrs.items()}
            return arrays, {k: v for k, v in own.items() if v is not None}

        build.__name__ = name
        sample(operator)(build)

    types = ["float16"] * 3 if mp else ["float32", "float32", "float64"]
    for number, dtype in enumerate(types):
        declared(dtype, number, f"{operator}_{dtype}_{number}")


CLIP = [None, 0.3, 0.3]
HALVES = {"rescale_grad": 0.5, "clip_gradient": CLIP}

for mp in ("", "mp_"):
    update(f"{mp}sgd_update", mp=bool(mp), lr=0.1, wd=[0.0, 0.1, 0.2], **HALVES)
    update(f"{mp}sgd_mom_update", "m", mp=bool(mp), lr=0.1, momentum=[0.9, 0.5, 0.0], wd=[0.0, 0.1, 0.2], **HALVES)
    update(f"{mp}nag_mom_update", "m", mp=bool(mp), lr=0.1, momentum=0.9, wd=[0.0, 0.1, 0.2], **HALVES)
    update(
        f"{mp}lamb_update_phase1", "mp", mp=bool(mp), t=[1, 3, 9], wd=0.1, bias_correction=[True, True, False], **HALVES
    )
    update(f"_{mp}adamw_update", "mp", mp=bool(mp), tail=[0.5], lr=0.1, eta=0.7, wd=0.1, clip_gradient=CLIP)
update("signsgd_update", lr=0.1, wd=[0.0, 0.1, 0.2], **HALVES)
update("signum_update", "m", lr=0.1, momentum=0.9, wd=0.1, wd_lh=[0.0, 0.2, 0.2], **HALVES)
update("adam_update", "mp", lr=0.1, beta1=[0.9, 0.8, 0.7], wd=0.1, **HALVES)
update("ftml_update", "ppm", lr=0.1, t=[1, 2, 7], wd=0.1, rescale_grad=0.5, clip_grad=CLIP)
update("ftrl_update", "mp", lr=0.1, lamda1=[0.01, 0.5, 0.1], wd=0.1, **HALVES)
update("rmsprop_update", "p", lr=0.1, wd=0.1, clip_weights=[None, 0.5, None], **HALVES)


def spread(rng, dtype="float32", **attrs):
    """For the variance to be positive, the mean of squares is larger than the squared mean."""
    w, g, n, mean, delta = (floats(rng, 3, 4, dtype=dtype) for _ in range(5))
    return [w, g, np.abs(n) + n.dtype.type(9), mean, delta], {"lr": 0.1, "wd": 0.1, **attrs}


@sample("rmspropalex_update")
def variance(rng):
    return spread(rng)


@sample("rmspropalex_update")
def variance_clipped(rng):
    return spread(rng, clip_gradient=0.2, clip_weights=0.5, gamma1=0.8, gamma2=0.5)


@sample("rmspropalex_update")
def variance_double(rng):
    return spread(rng, "float64", rescale_grad=0.5)


for lower, upper in ((None, None), (3.0, None), (0.5, 1.5)):

    def build(rng, lower=lower, upper=upper):
        norms = [np.array([2.0], "float32"), np.array([3.0], "float32")]
        bounds = {"lower_bound": lower, "upper_bound": upper}
        attrs = {"lr": 0.1, **{k: v for k, v in bounds.items() if v is not None}}
        return [floats(rng, 3, 4), floats(rng, 3, 4), *norms], attrs

    build.__name__ = f"bounds_{lower}_{upper}"
    sample("lamb_update_phase2")(build)

    def build_half(rng, build=build):
        (weight, *others), attrs = build(rng)
        return [weight.astype("float16"), *others, weight], attrs

    build_half.__name__ = f"bounds_half_{lower}_{upper}"
    sample("mp_lamb_update_phase2")(build_half)


@sample("lamb_update_phase2")
def a_norm_of_zero(rng):
    return [floats(rng, 3), floats(rng, 3), np.array([0], "float32"), np.array([3], "float32")], {"lr": 0.1}


def several(operator, states="", mp=False, count="num_weights", plurals=(), tail=(), **attrs):
    """Declares samples of an operator for 1, 2 and 3 weights of several shapes."""
    for n in (1, 2, 3):

        def build(rng, n=n):
            arrays = []
            for k in range(n):
                own = [floats(rng, k + 2, 3) for _ in range(2 + len(states))]
                own = [np.abs(x) + x.dtype.type(0.25) if s == "p" else x for x, s in zip(own, "--" + states)]
                if mp:
                    own = [
                        *(x.astype("float16") for x in own[:2]),
                        *own[2:],
                        own[0].astype("float16").astype("float32"),
                    ]
                arrays += own
            arrays += [np.array(x[:n], "float32") for x in tail]
            rates = {name: tuple(values[:n]) for name, values in plurals}
            return arrays, {
                count: n,
                **rates,
                **{k: v for k, v in attrs.items() if v is not None},
                **({} if n > 2 else {}),
            }

        build.__name__ = f"{operator}_{n}"
        sample(operator)(build)


RATES = (("lrs", (0.1, 0.2, 0.3)), ("wds", (0.0, 0.1, 0.2)))
ARRAYS = ((0.1, 0.2, 0.3), (0.0, 0.1, 0.2))
LAMB = (("learning_rates", (0.1, 0.2, 0.3)), ("wds", (0.0, 0.1, 0.2)), ("step_count", (1, 2, 5)))
for mp in ("", "mp_"):
    half = bool(mp)
    several(f"multi_{mp}sgd_update", mp=half, plurals=RATES, **C)
    several(f"multi_{mp}sgd_mom_update", "m", mp=half, plurals=RATES, momentum=0.9, **C)
    several(f"preloaded_multi_{mp}sgd_update", mp=half, tail=ARRAYS, **C)
    several(f"preloaded_multi_{mp}sgd_mom_update", "m", mp=half, tail=ARRAYS, momentum=0.9, **C)
    several(f"_multi_{mp}adamw_update", "mp", mp=half, plurals=(*RATES, ("etas", (1.0, 0.5, 0.7))), tail=[[0.5]])
    several(f"_multi_{mp}lamb_update", "mp", mp=half, count="num_tensors", plurals=LAMB, lower_bound=0.5, **C)


@sample("multi_lars")
def rates_of_layers(rng):
    positive = [np.abs(floats(rng, 4)) for _ in range(3)]
    return [positive[0], *positive[1:], floats(rng, 4) * np.float32(0)], {"eta": 0.01, "eps": 0.1, "rescale_grad": 0.5}


@sample("multi_lars")
def rates_of_empty_layers(rng):
    return [np.float32([0.1, 0.2]), np.float32([0, 2]), np.float32([3, 0]), np.float32([0.1, 0.1])], {
        "eta": 1,
        "eps": 0,
    }


@sample("multi_lars")
def rates_with_decay(rng):
    return [np.float32([0.1, 0.2]), np.float32([1, 2]), np.float32([3, 4]), np.float32([0.1, 0.3])], {
        "eta": 2,
        "eps": 1e-8,
    }


@sample("_sparse_adagrad_update", "_contrib_group_adagrad_update", oracle=False)  # of sparse gradients alone in MXNet
def history(rng):
    return [floats(rng, 4, 1), floats(rng, 4, 1), np.abs(floats(rng, 4, 1))], {"lr": 0.1, "clip_gradient": 0.2}


@sample("_contrib_group_adagrad_update", oracle=False)
def history_of_rows(rng):
    return [floats(rng, 4, 3), floats(rng, 4, 3), np.abs(floats(rng, 4, 1))], {"lr": 0.1, "rescale_grad": 0.5}


@sample("reset_arrays", oracle=False)  # MXNet's has no results to record
def arrays_to_reset(rng):
    return [floats(rng, 3), floats(rng, 2, 2)], {"num_arrays": 2}


@sample("reset_arrays", oracle=False)
def an_array_to_reset(rng):
    return [floats(rng, 2, 3, dtype=["float32", "float16", "float64"][rng.randint(3)])], {"num_arrays": 1}
