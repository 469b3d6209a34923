"""The gradient rule of every primitive (`Primitive.vjp`) against differences in float64."""

import random
from dataclasses import replace

import numpy as np
import pytest

from gluonjit.ir import opdef
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.primitives import window
from gluonjit.ir.types import BOOL, F64, TensorType, type_of
from gluonjit.ir.verify import verify
from support.draw import DOMAINS, DRAWERS, draw
from support.gradients import assert_halves_agree, assert_is_gradient, gradients, joint
from support.soak import SOAK, tries

CASES = tries(10)

PRIMITIVES = {name: op for name, op in opdef.REGISTRY.items() if isinstance(op, opdef.Primitive)}
AFAR = (0.3, 2.0)
"""Magnitudes away from 0, where many functions have no derivative or a steep one."""
POSITIVE_FIRST = {"pow"}


def test_every_primitive_has_a_rule_or_says_that_it_has_no_gradient():
    without = {name for name, op in PRIMITIVES.items() if op.vjp is None and not op.region_count}
    # It runs Python, which the tape records by itself.
    assert without == {"host_call"}


def in_float64(case):
    operands = tuple(t.with_dtype(F64) if t.dtype.is_float else t for t in case.operands)
    attrs = {k: F64 if k == "dtype" and v.is_float else v for k, v in case.attrs.items()}
    return replace(case, operands=operands, attrs=attrs)


def float_draws(name, count=CASES):
    """Draws whose operands are float64 where they were of any float type; None if the primitive takes no floats."""
    found = 0
    for k in range(12 * count):
        rng = random.Random(f"gradient of {name} {k}")
        case = in_float64(draw(name, rng))
        if any(t.dtype is F64 for t in case.operands) and sum(t.size for t in case.operands) < 600:
            yield case, rng
            found += 1
            if found == count:
                return


def smooth_values(case, rng):
    """Values at which the primitive has a derivative; all different, so that nothing ties."""
    gen = np.random.default_rng(rng.getrandbits(32))
    out = []
    for k, (t, x) in enumerate(zip(case.operands, case.values(rng), strict=True)):
        if t.dtype is F64:
            low, high = DOMAINS.get(case.name, AFAR)
            x = np.asarray(gen.uniform(low, high, t.shape))
            if case.name not in DOMAINS and not (k == 0 and case.name in POSITIVE_FIRST):
                x = np.asarray(x * gen.choice((-1.0, 1.0), t.shape))
        out.append(x)
    return out


def graph_of(case):
    b = Builder("case")
    operands = [b.input(f"x{k}", t) for k, t in enumerate(case.operands)]
    return b.build(b.emit(case.name, operands, case.attrs))


NAMES = sorted(set(DRAWERS) - {"constant", "iota", "random_bits"})
SMOOTH = [name for name in NAMES if PRIMITIVES[name].vjp is not opdef.NO_GRADIENT]


BENT = ("floor", "maximum", "mod")
"""Of many draws of these, one lies so near a jump or a kink that differences tell nothing."""


def assert_are_gradients(name, count=CASES, **options):
    smooth = name not in BENT or SOAK == 1
    compared = [
        assert_is_gradient(graph_of(case), smooth_values(case, rng), str(case), **options, smooth=smooth)
        for case, rng in float_draws(name, count)
    ]
    assert smooth or sum(compared) >= 0.9 * len(compared)


@pytest.mark.parametrize("name", NAMES)
def test_gradient(name):
    """Of what has NO_GRADIENT, too: differences find none."""
    assert_are_gradients(name)


@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivative(name):
    assert_are_gradients(name, CASES // 3, order=2, tolerance=1e-6)


@pytest.mark.parametrize("name", SMOOTH)
def test_rules_are_typed(name):
    """Rules give a graph that verifies, and that computes, for every element type; for integers, too."""
    for k in range(CASES):
        rng = random.Random(f"{name} {k}")
        case = draw(name, rng)
        wrt = [n for n, t in enumerate(case.operands) if t.dtype is not BOOL]
        graph = graph_of(case)
        heads = [n for n, v in enumerate(graph.outputs) if v.dtype is not BOOL]
        if not wrt or not heads or sum(t.size for t in case.operands) > 600:
            continue
        both = joint(graph, wrt, heads)
        verify(both)
        inputs = case.values(rng)
        found = gradients(both, inputs, [np.ones(graph.outputs[n].shape, graph.outputs[n].dtype.numpy) for n in heads])
        assert [type_of(x) for x in found] == [case.operands[n] for n in wrt]


@pytest.mark.parametrize("name", SMOOTH)
def test_the_halves_agree(name):
    for case, rng in float_draws(name, 3):
        graph = graph_of(case)
        if any(v.dtype is F64 for v in graph.outputs):
            assert_halves_agree(graph, smooth_values(case, rng), str(case))


# Windows --------------------------------------------------------------------------------------------------------------


def test_large_windows_axis_by_axis(monkeypatch):
    monkeypatch.setattr(window, "_UNROLLED", 0)
    for case, rng in float_draws("reduce_window", tries(20)):
        assert_is_gradient(graph_of(case), smooth_values(case, rng), str(case), order=2)


@pytest.mark.parametrize("op", ["max", "min", "sum"])
@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((1, 1, 9, 9), {"window": (1, 1, 9, 9), "stride": (1, 1, 1, 1)}),
        ((2, 20, 12), {"window": (1, 10, 7), "stride": (1, 3, 2), "low": (0, 2, 1), "high": (0, 1, 3)}),
        ((1, 70), {"window": (1, 66), "stride": (1, 2)}),
        ((1, 150), {"window": (1, 66), "stride": (1, 5), "dilation": (1, 2)}),
    ],
)
def test_windows_of_more_than_64(op, shape, attrs):
    none = (0,) * len(shape)
    b = Builder()
    x = b.input("x", TensorType(F64, shape))
    y = b.reduce_window(x, **{"op": op, "low": none, "high": none, **attrs})
    values = np.random.default_rng(0).permutation(np.prod(shape)).reshape(shape) / 8.0
    assert_is_gradient(b.build([y]), [values], order=2)


@pytest.mark.parametrize("unrolled", [64, 0])
def test_the_first_maximum_of_a_window_gets_all(monkeypatch, unrolled):
    monkeypatch.setattr(window, "_UNROLLED", unrolled)
    ties = np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 2.0]])
    found = gradient_at("reduce_window", ties, op="max", window=(2, 2), stride=(1, 1), low=(0, 0), high=(0, 0))
    np.testing.assert_array_equal(found[0], [[1, 1, 0, 0], [0, 0, 0, 1]])


@pytest.mark.parametrize("seed", range(3))
def test_cotangents_of_random_windows_go_to_their_first_maxima(seed):
    rng = np.random.default_rng(seed)
    for _ in range(30):
        size, taps, stride, apart = (rng.integers(*ends, 2) for ends in ((1, 9), (1, 4), (1, 5), (1, 3)))
        low, high = (rng.integers(0, taps + k) for k in (0, 2))
        if (size + low + high < (taps - 1) * apart + 1).any():
            continue
        x = rng.integers(-3, 4, size).astype(np.float64)
        attrs = {"window": taps, "stride": stride, "low": low, "high": high, "dilation": apart}
        attrs = {"op": "max", **{key: tuple(map(int, value)) for key, value in attrs.items()}}
        expected = np.zeros_like(x)
        for result in np.ndindex(*((size + low + high - (taps - 1) * apart - 1) // stride + 1)):
            places = [tuple(result * stride + np.array(tap) * apart - low) for tap in np.ndindex(*taps)]
            inside = [p for p in places if all(0 <= at < n for at, n in zip(p, size))]
            if inside:
                expected[max(inside, key=lambda p: x[p])] += 1
        np.testing.assert_array_equal(gradient_at("reduce_window", x, **attrs)[0], expected, err_msg=str(attrs))


# Known answers --------------------------------------------------------------------------------------------------------


def gradient_at(name, *arrays, **attrs):
    """The gradients by all operands of float64 where every cotangent is 1."""
    b = Builder()
    graph = b.build(b.emit(name, [b.input(f"x{k}", type_of(x)) for k, x in enumerate(arrays)], attrs))
    return gradients(joint(graph), arrays, [np.ones(v.shape) for v in graph.outputs if v.dtype is F64])


def test_products_with_zeros():
    x = np.array([[2.0, 3.0, 5.0], [0.0, 3.0, 5.0], [0.0, 0.0, 5.0], [0.0, 0.0, 0.0]])
    (found,) = gradient_at("reduce", x, op="prod", axes=(1,))
    np.testing.assert_array_equal(found, [[15, 10, 6], [15, 0, 0], [0, 0, 0], [0, 0, 0]])
    b = Builder()
    y = b.reduce(b.input("x", TensorType(F64, (4, 3))), op="prod", axes=(0, 1))
    assert_is_gradient(b.build([y]), [x], order=2)


@pytest.mark.parametrize(
    ("x", "exponent", "dx", "dp"),
    [
        (0.0, 2.0, 0.0, 0.0),
        (0.0, 1.0, 1.0, 0.0),
        (0.0, 0.0, 0.0, 0.0),
        (0.0, 0.5, np.inf, 0.0),
        (-2.0, 3.0, 12.0, np.nan),
        (-2.0, 0.0, 0.0, np.nan),
        (2.0, 0.0, 0.0, np.log(2)),
        (2.0, -1.0, -0.25, np.log(2) / 2),
    ],
)
def test_powers(x, exponent, dx, dp):
    got = gradient_at("pow", np.array(x), np.array(exponent))
    np.testing.assert_allclose(got, [dx, dp], rtol=1e-15)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0])
def test_powers_of_0_can_be_differentiated_again(exponent):
    b = Builder()
    x = b.input("x", TensorType(F64, (3,)))
    y = b.pow(x, b.constant(exponent, F64))
    assert_is_gradient(b.build([y]), [np.array([0.0, 1.5, -1.5])], order=2)


def test_ties():
    a, b = np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])
    np.testing.assert_array_equal(gradient_at("maximum", a, b), [[1, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(gradient_at("minimum", a, b), [[1, 1, 0], [0, 0, 1]])
    np.testing.assert_array_equal(gradient_at("abs", np.array([-0.0, 0.0])), [[0, 0]])
    np.testing.assert_array_equal(gradient_at("hypot", np.zeros(1), np.zeros(1)), [[0], [0]])
    np.testing.assert_array_equal(gradient_at("reduce", np.array([2.0, 3.0, 3.0]), op="max", axes=(0,)), [[0, 1, 1]])


def test_repeated_indices_are_summed():
    x = np.arange(6.0).reshape(3, 2)
    (found,) = gradient_at("gather", x, np.array([0, 0, 5, -5]), axis=0, mode="clip")
    np.testing.assert_array_equal(found, [[3, 3], [0, 0], [1, 1]])
    (found,) = gradient_at("gather", x, np.array([0, 3, 5, -5]), axis=0, mode="wrap")
    np.testing.assert_array_equal(found, [[2, 2], [1, 1], [1, 1]])


def test_what_scatter_drops_has_no_gradient():
    x, u = np.zeros(3), np.ones(4)
    dx, du = gradient_at("scatter_add", x, np.array([[0, -1, 3, 2]]), u)
    np.testing.assert_array_equal(dx, [1, 1, 1])
    np.testing.assert_array_equal(du, [1, 0, 0, 1])


@pytest.mark.parametrize("name", ["lgamma", "digamma"])
@pytest.mark.parametrize("x", [0.1, 0.9, 1.0, -0.3, -2.6, 12.0, 30.0])
def test_gamma_functions_everywhere(name, x):
    b = Builder()
    y = b.emit(name, [b.input("x", TensorType(F64, ()))])
    assert_is_gradient(b.build(y), [np.array(x)], tolerance=1e-5)


def test_a_written_out_padding_of_a_convolution():
    """Positions that `blank_low` and `blank_high` declare to be zeros get what the padding drops."""
    b = Builder()
    x, w = b.input("x", TensorType(F64, (1, 2, 4))), b.input("w", TensorType(F64, (3, 2, 3)))
    padded = b.pad(x, b.constant(0, F64), low=(0, 0, 2), high=(0, 0, 1))
    attrs = {"stride": (2,), "low": (0,), "high": (0,), "dilation": (1,), "input_dilation": (1,)}
    y = b.conv(padded, w, **attrs, layout=("NC0", "OI0", "NC0"), blank_low=(2,), blank_high=(1,))
    z = b.conv(x, w, **{**attrs, "low": (2,)}, layout=("NC0", "OI0", "NC0"), blank_low=(-1,))
    rng = np.random.default_rng(0)
    assert_is_gradient(b.build([y, z]), [rng.normal(size=(1, 2, 4)), rng.normal(size=(3, 2, 3))], order=2)


def test_sums_are_wide_in_narrow_types():
    """A broadcast of float16 to 5000 places: summed in float16 it would stop growing at 2048."""
    b = Builder()
    x = b.input("x", type_of(np.zeros((), np.float16)))
    both = joint(b.build([b.broadcast(x, shape=(5000,))]))
    assert evaluate(both, [np.float16(1), np.ones(5000, np.float16)])[0][1] == 5000
