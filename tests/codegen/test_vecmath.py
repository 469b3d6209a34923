"""Transcendental functions against NumPy in higher precision, in units of the last place."""

import itertools
import math

import numpy as np
import pytest

from gluonjit.codegen.math import vecmath
from gluonjit.codegen.target import host
from gluonjit.ir import opdef
from gluonjit.ir.types import F32, F64, TensorType
from support.compare import assert_close
from support.kernels import body, run, runnable_targets, together

FLOATS = {F32: np.float32, F64: np.float64}
EXTENDED = np.finfo(np.longdouble).eps < 1e-18


def apply(name, *arrays, target=None):
    return apply_all([(name, arrays)], target)[0]


def apply_all(calls, target=None):
    """The result of each (name, operands), compiled as one module."""
    graphs = []
    for name, arrays in calls:
        type = TensorType(F32 if arrays[0].dtype == np.float32 else F64, arrays[0].shape)
        graphs.append(body(lambda b, *x: getattr(b, name)(*x), *[type] * len(arrays)))  # noqa: B023
    return [compiled(arrays)[0] for compiled, (_, arrays) in zip(together(graphs, target or host()), calls)]


def each(function):
    """An exact-enough reference from a function of Python floats."""
    return lambda x: np.array([function(float(v)) for v in x])


def domain(name, dtype, rng, count):
    """Points over the function's domain: near 0, over the range of results, and over all magnitudes, denormal ones
    and those of denormal results included."""
    info = np.finfo(dtype)
    big = math.log(float(info.max))
    magnitudes = np.exp2(rng.uniform(math.log2(info.tiny), math.log2(info.max) - 1, count))
    least = math.log2(float(info.smallest_subnormal))
    denormals = np.exp2(rng.uniform(least, math.log2(info.tiny), count // 4))
    points = [rng.normal(size=count), rng.uniform(-1.2 * big, 1.05 * big, count), magnitudes, -magnitudes]
    if name in ("asin", "acos", "atanh", "erfinv"):
        points = [
            rng.uniform(-1, 1, count),
            1 - np.exp2(rng.uniform(-20, 0, count)),
            np.exp2(rng.uniform(-30, 0, count)),
        ]
    elif name == "acosh":
        points = [1 + np.exp2(rng.uniform(-20, 4, count)), np.exp2(rng.uniform(0, 100, count))]
    elif name.startswith("log"):
        points = [
            magnitudes,
            rng.uniform(0.5, 2, count),
            rng.uniform(-0.9, 1, count) if name == "log1p" else magnitudes,
        ]
    elif name in ("sin", "cos", "tan"):
        points = [rng.uniform(-10, 10, count), rng.uniform(-1e5, 1e5, count), np.exp2(rng.uniform(17, 40, count))]
    elif name == "sigmoid":
        points = [*points[:2], np.exp2(rng.uniform(-20, 7, count))]
        points = [np.maximum(p, -0.9999 * big) for p in points]  # below, 1 + exp(-x) overflows: to 0
    elif name == "tanh":
        points = [
            rng.uniform(-9.5, 9.5, count),
            np.exp2(rng.uniform(-20, 3, count)),
            -np.exp2(rng.uniform(-20, 3, count)),
        ]
    if name != "acosh":
        points += [denormals, denormals if name.startswith("log") else -denormals]
    return np.concatenate(points).astype(dtype)


def ulps(got, exact, dtype):
    """The largest error in units of the last place."""
    with np.errstate(over="ignore"):
        rounded = exact.astype(dtype)
    assert np.array_equal(np.isnan(got), np.isnan(rounded))
    fine, infinite = np.isfinite(rounded), np.isinf(rounded)
    assert np.array_equal(got[infinite], rounded[infinite])
    unit = np.spacing(np.abs(rounded[fine])).astype(exact.dtype)
    return float(np.max(np.abs(got[fine].astype(exact.dtype) - exact[fine]) / unit))


NUMPY = {
    **{n: getattr(np, n) for n in "exp expm1 log log1p log2 log10 tanh sin cos tan sinh cosh cbrt".split()},
    **{f"a{n}": getattr(np, f"arc{n}") for n in "sin cos tan sinh cosh tanh".split()},
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": each(math.erf),
}
BOUNDS = {"exp": 2.0, "log": 2.0, "tanh": 2.0, "erf": 6.0}
"""Units of the last place; 4 for the others."""


@pytest.mark.parametrize("target", runnable_targets(), ids=lambda t: t.cpu)
def test_f32(target):
    calls = [(name, [domain(name, np.float32, np.random.default_rng(0), 6000)]) for name in NUMPY]
    for (name, (x,)), got in zip(calls, apply_all(calls, target)):
        with np.errstate(all="ignore"):
            exact = NUMPY[name](x.astype(np.float64))
        bound = BOUNDS.get(name, 4.0)
        # Without fused multiply-add there is one more rounding on the way.
        assert ulps(got, exact, np.float32) <= bound + (0 if target.has_fma else 0.3), name


@pytest.mark.skipif(not EXTENDED, reason="NumPy has nothing more precise than f64 here")
def test_f64():
    names = [name for name in NUMPY if name != "erf"]
    calls = [(name, [domain(name, np.float64, np.random.default_rng(1), 3000)]) for name in names]
    for (name, (x,)), got in zip(calls, apply_all(calls)):
        with np.errstate(all="ignore"):
            exact = NUMPY[name](x.astype(np.longdouble))
        assert ulps(got, exact, np.float64) <= 5, name


@pytest.mark.parametrize("target", runnable_targets()[1:], ids=lambda t: t.cpu)
def test_f64_on_lesser_machines(target):
    calls = []
    for name in ("exp", "log", "tanh", "sin", "erf", "lgamma"):
        x = domain(name, np.float64, np.random.default_rng(2), 500)
        calls.append((name, [np.abs(x[np.abs(x) < 1e3]) + 0.1 if name == "lgamma" else x]))
    for (name, _), got, wanted in zip(calls, apply_all(calls, target), apply_all(calls)):
        np.testing.assert_allclose(got, wanted, rtol=1e-14, atol=1e-14, err_msg=name)


def test_erf_f64():
    x = np.linspace(-7, 7, 4001)
    np.testing.assert_allclose(apply("erf", x), each(math.erf)(x), rtol=1e-15, atol=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erfinv_inverts(dtype):
    y = np.concatenate([np.linspace(-3.5, 3.5, 1001), np.geomspace(1e-12, 1, 100)])
    x = each(math.erf)(y).astype(dtype)
    # The slope of the inverse, times the rounding of x.
    slack = np.exp(y * y) * np.finfo(dtype).eps
    assert np.all(np.abs(apply("erfinv", x) - y) <= slack + 4 * np.finfo(dtype).eps * np.abs(y))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lgamma(dtype):
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.uniform(0.01, 30, 2000), -rng.uniform(0, 20, 2000), rng.uniform(30, 1e5, 500)]).astype(
        dtype
    )
    exact = each(math.lgamma)(x)
    eps = np.finfo(dtype).eps
    # Absolute near the zeros; near the poles π x is rounded.
    slack = (
        4 * eps * np.abs(exact) + 2e-14 + 4 * np.finfo(np.float64).eps * np.abs(x) / (np.abs(x - np.rint(x)) + 1e-30)
    )
    assert np.all(np.abs(apply("lgamma", x) - exact) <= slack)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_digamma(dtype):
    """By its functional equations, from the value at 1: minus Euler's constant."""
    x = np.linspace(0.07, 39.95, 1000).astype(dtype).astype(np.float64)
    got = apply("digamma", x.astype(dtype)).astype(np.float64)
    eps = np.finfo(dtype).eps
    following = apply("digamma", (x + 1).astype(dtype)).astype(np.float64)
    slack = 8 * eps * (1 / x + np.abs(following) + 1) + np.abs((x + 1) - (x + 1).astype(dtype)) * 2
    assert np.all(np.abs(following - got - 1 / x) <= slack)
    reflected = apply("digamma", (-x).astype(dtype)).astype(np.float64)
    wanted = got + 1 / x + math.pi / np.tan(math.pi * x)
    slack = 8 * eps * (np.abs(wanted) + np.abs(got)) + 1e-13 / np.sin(math.pi * x) ** 2 + 1e-13
    assert np.all(np.abs(reflected - wanted) <= slack)
    assert abs(float(apply("digamma", np.ones(1, dtype))[0]) + 0.5772156649015329) < 4 * eps


def exact_pow(a, b):
    with np.errstate(all="ignore"):
        return np.power(a.astype(np.longdouble), b.astype(np.longdouble))


def test_two_operands():
    rng = np.random.default_rng(4)
    a = np.exp(rng.normal(size=6000))
    b = rng.normal(size=6000) * 8
    for dtype, pow_bound in ((np.float32, 1), (np.float64, 40)):
        x, y = a.astype(dtype), b.astype(dtype)
        wide = np.longdouble if EXTENDED else np.float64
        if EXTENDED or dtype is np.float32:
            assert ulps(apply("pow", x, y), exact_pow(x, y), dtype) <= pow_bound
            assert ulps(apply("atan2", y, x - 1), np.arctan2(y.astype(wide), (x - 1).astype(wide)), dtype) <= 4
            assert ulps(apply("hypot", x, y), np.hypot(x.astype(wide), y.astype(wide)), dtype) <= 4


@pytest.mark.parametrize("target", runnable_targets(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mod_is_exact(dtype, target):
    rng = np.random.default_rng(5)
    most = 120 if dtype is np.float32 else 1000
    x, y = (np.exp2(rng.uniform(-most, most, 4000)) * rng.choice([-1, 1], 4000) for _ in range(2))
    x, y = x.astype(dtype), y.astype(dtype)
    y[:2000] = x[:2000] / rng.uniform(0.5, 50, 2000).astype(dtype)
    np.testing.assert_array_equal(apply("mod", x, y, target=target), np.mod(x, y))


EDGES = [
    0.0,
    1.0,
    2.0,
    0.5,
    3.0,
    2.5,
    7.5,
    88.722839,
    88.72284,
    87.3365,
    709.78271289,
    1e10,
    1e30,
    1e-30,
    95.0,
    103.97,
    104.5,
    740.0,
    1e-40,
    1.4e-45,
    1e-310,
    5e-324,
    math.inf,
    math.nan,
]
EDGES = [*EDGES, *(-v for v in EDGES)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_edges(dtype):
    """Zeros, infinities, NaN, denormals, ends of ranges: what NumPy gives, signs of zeros included."""
    one = [np.array(EDGES, dtype)]
    two = [np.array(column, dtype) for column in zip(*itertools.product(EDGES, EDGES))]
    calls = [(n, two if n in ("pow", "atan2", "hypot", "mod") else one) for n in sorted(vecmath.FUNCTIONS)]
    for (name, arrays), got in zip(calls, apply_all(calls)):
        with np.errstate(all="ignore"):
            wanted = opdef.lookup(name).eval(*arrays)
        rtol = 2e-6 if dtype is np.float32 else 1e-12
        atol = 1e-14 if name in ("lgamma", "digamma") else 2 * float(np.finfo(dtype).smallest_subnormal)
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol, err_msg=name)
        zero = (wanted == 0) & (got == 0)
        assert np.array_equal(np.signbit(got[zero]), np.signbit(wanted[zero])), name


@pytest.mark.parametrize("dtype", [np.float16, "bf16"])
def test_narrow_floats_are_computed_in_f32(dtype):
    from gluonjit.ir.types import dtype as as_dtype

    narrow = as_dtype(dtype)
    x = np.linspace(-3, 3, 200).astype(narrow.numpy)
    for name in ("exp", "tanh", "sigmoid", "erf", "sin"):
        graph = body(lambda b, v: getattr(b, name)(v), TensorType(narrow, x.shape))  # noqa: B023
        assert_close(run(graph, [x])[0], opdef.lookup(name).eval(x), name)


def test_large_arguments_of_sine():
    """The reduction modulo π/2 of arguments for which it needs hundreds of bits of 2/π."""
    # 2**n modulo 2π, with π to 1100 bits, by integers.
    from gluonjit.codegen.math.f64_circular import two_over_pi

    bits = 1300
    quarter_turns = two_over_pi(bits)
    arguments, wanted = [], []
    for n in (21, 25, 30, 31, 40, 53, 64, 100, 300, 700, 1000, 1023):
        for mantissa in (1, 3, 2**52 + 1, 2**53 - 1):
            shift = n - mantissa.bit_length() + 1
            turns = mantissa * quarter_turns
            turns = turns << shift if shift >= 0 else turns >> -shift
            turns %= 4 << bits
            angle = turns / (1 << bits) * (math.pi / 2)
            arguments.append(math.ldexp(mantissa, shift))
            wanted.append(math.sin(angle))
    x = np.array(arguments)
    for target in (host(), *runnable_targets()[-1:]):
        got, negated = apply_all([("sin", [x]), ("sin", [-x])], target)
        for value, found, expected in zip(arguments, got, wanted):
            assert abs(found - expected) < 4e-15, value
        assert np.array_equal(negated, -got)
