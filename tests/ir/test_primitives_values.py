"""Known answers: published vectors, exact values of special functions, integer edges, and kernels in plain Python."""

import math
import random
import tracemalloc

import numpy as np
import pytest

from gluonjit.ir import opdef
from gluonjit.ir.primitives import convolution_eval
from gluonjit.ir.primitives.random_bits import philox
from gluonjit.ir.types import BF16, DTYPES, dtype, dtype_of
from support.compare import assert_close
from support.draw import draw
from support.scalar_handler import rounded, wrapped


def run(name, *arrays, **attrs):
    primitive = opdef.lookup(name)
    with np.errstate(all="ignore"):
        return primitive.eval(*arrays, **primitive.canonical_attrs(attrs))


# Random bits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # from Random123's kat_vectors: philox 4x32 10
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox(counter, key, words):
    got = philox([np.array([c], np.uint64) for c in counter], key)
    assert tuple(int(w[0]) for w in got) == words


def test_random_bits_place_key_stream_and_index():
    # Seed 0x299F31D0_A4093822 and counter 0x85A308D3_243F6A88 make the third vector above, but for the index.
    seed, call = 0x299F31D0A4093822, 0x85A308D3243F6A88 - (1 << 64)
    key = np.array([seed, call - 3])
    narrow = run("random_bits", key, shape=(2, 3), dtype="i32", stream=3)
    wide = run("random_bits", key, shape=(2, 3), dtype="i64", stream=3)
    for flat, (n, w) in enumerate(zip(narrow.reshape(-1), wide.reshape(-1))):
        words = philox([np.array([c], np.uint64) for c in (0x243F6A88, 0x85A308D3, flat, 0)], (0xA4093822, 0x299F31D0))
        first, second = (int(word[0]) for word in words[:2])
        assert int(n) % 2**32 == first
        assert int(w) % 2**64 == second << 32 | first


def test_random_bits_do_not_depend_on_the_shape():
    key = np.array([5, 7])
    long = run("random_bits", key, shape=(20000,), dtype="i32", stream=1)
    assert np.array_equal(run("random_bits", key, shape=(2, 9), dtype="i32", stream=1), long[:18].reshape(2, 9))
    assert np.array_equal(run("random_bits", np.array([5, 8]), shape=(20000,), dtype="i32", stream=0), long)
    assert len(np.unique(long)) > 19990
    assert abs(float(np.mean(long < 0)) - 0.5) < 0.02


# Special functions ----------------------------------------------------------------------------------------------------

EXACT = {  # computed with 40 digits
    "erf": [
        (1e-08, 1.1283791670955126e-08),
        (0.3, 0.3286267594591274),
        (0.9999, 0.8426592780487595),
        (1.0, 0.8427007929497149),
        (1.5, 0.9661051464753108),
        (3.0, 0.9999779095030014),
        (5.5, 0.9999999999999927),
    ],
    "erfinv": [
        (1e-10, 8.862269254527581e-11),
        (0.1, 0.08885599049425769),
        (0.5, 0.4769362762044699),
        (0.84, 0.9935356283473041),
        (0.9, 1.1630871536766743),
        (0.99999, 3.123413274341571),
        (0.9999999990686774, 4.328028275800946),
    ],
    "lgamma": [
        (1e-05, 11.512919692895826),
        (0.5, 0.5723649429247001),
        (1.25, -0.09827183642181316),
        (3.7, 1.428072326665388),
        (8.9, 10.391128627481786),
        (100.5, 361.4355404677776),
        (1e6, 12815504.569147611),
        (-0.5, 1.2655121234846454),
        (-3.3, -0.8243558050174264),
        (-20.25, -41.60096191534053),
    ],
    "digamma": [
        (1e-05, -100000.57719921567),
        (0.5, -1.9635100260214235),
        (1.25, -0.22745353337626542),
        (3.7, 1.1671535393615113),
        (9.5, 2.1977378764029494),
        (1e6, 13.815510057964191),
        (-0.5, 0.03648997397857652),
        (-3.3, 3.620353460592126),
        (-20.25, 6.174235633614484),
    ],
}


@pytest.mark.parametrize("name", EXACT)
def test_special_functions(name):
    x, exact = (np.array(column) for column in zip(*EXACT[name]))
    np.testing.assert_allclose(run(name, x), exact, rtol=1e-13)
    if name in ("erf", "erfinv"):  # odd functions
        np.testing.assert_array_equal(run(name, -x), -run(name, x))


def test_erf_in_float32():
    x = np.linspace(-5, 5, 40001, dtype=np.float32)
    exact = np.array([math.erf(v) for v in x.tolist()])
    got = run("erf", x)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, exact, rtol=4e-7)
    assert np.abs(got).max() == 1
    assert np.array_equal(run("erf", np.array([np.inf, -np.inf], np.float32)), [1, -1])


# Integer edges --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["i8", "u8", "i32", "i64"])
def test_integer_edges(name):
    of = dtype(name).numpy
    info = np.iinfo(of)
    low, high = np.array(info.min, of), np.array(info.max, of)
    zero, one = np.array(0, of), np.array(1, of)
    assert run("div", high, zero) == 0
    assert run("mod", high, zero) == 0
    assert run("add", high, one) == low
    assert run("shift_left", one, np.array(dtype(name).bits, of)) == 0
    if info.min:
        minus = np.array(-1, of)
        assert run("div", low, minus) == low
        assert run("mod", low, minus) == 0
        assert run("abs", low) == low
        assert run("neg", low) == low
        assert run("shift_right", minus, one) == high
        assert run("shift_left", one, minus) == 0
        assert run("div", np.array(-7, of), np.array(2, of)) == -3
        assert run("mod", np.array(-7, of), np.array(2, of)) == 1
        assert run("mod", np.array(7, of), np.array(-2, of)) == -1
        assert [int(run("pow", np.array(b, of), minus)) for b in (-2, -1, 0, 1, 2)] == [0, -1, 0, 1, 0]


@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("target", ["i8", "u8", "i32", "i64"])
def test_float_to_integer_saturates(source, target):
    info = np.iinfo(dtype(target).numpy)
    x = np.array([np.nan, np.inf, -np.inf, 1.75, -1.75, -0.5, 1e4, -1e4]).astype(dtype(source).numpy)
    got = run("cast", x, dtype=target)
    ten = [int(v) for v in x[-2:].astype(np.float64)]
    want = [0, info.max, info.min, 1, max(-1, info.min), 0, *(min(max(v, info.min), info.max) for v in ten)]
    assert got.tolist() == want
    assert got.dtype == dtype(target).numpy


def test_cast_at_the_edge_of_i32():
    x = np.array([2147483648.0, 2147483520.0, -2147483648.0, -2147483904.0], np.float32)
    assert run("cast", x, dtype="i32").tolist() == [2147483647, 2147483520, -2147483648, -2147483648]


def test_bool_casts():
    x = np.array([0.0, -0.0, np.nan, 0.25], np.float32)
    assert run("cast", x, dtype="bool").tolist() == [False, False, True, True]
    assert run("cast", np.array([True, False]), dtype=BF16).astype(float).tolist() == [1.0, 0.0]
    assert run("cast", np.array([300, -1], np.int32), dtype="u8").tolist() == [44, 255]


# Narrow floats are summed in float32 ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_narrow_sums_round_once(name):
    of = dtype(name).numpy
    ones = np.ones((4096, 1), of)
    # Summed in the type, 1 + 1 + … stops growing at 2048 (256).
    assert run("reduce", ones, op="sum", axes=(0,)) == 4096
    assert run("dot_general", ones, ones, contract=((0,), (0,))) == 4096
    assert run("cumsum", ones, axis=0)[-1] == 4096
    window = run("reduce_window", ones, op="sum", window=(4096, 1), stride=(1, 1), low=(0, 0), high=(0, 0))
    assert window == 4096


def test_long_float32_sums_keep_their_digits():
    x = np.random.default_rng(0).random((60000, 3), dtype=np.float32)
    exact = x.astype(np.float64).sum(0)
    np.testing.assert_allclose(run("reduce", x, op="sum", axes=(0,)), exact, rtol=2e-6)
    np.testing.assert_allclose(
        run("reduce", x.reshape(300, 3, 200), op="sum", axes=(0, 2)).sum(), exact.sum(), rtol=2e-6
    )


def test_float32_sums_of_rows_are_correctly_rounded():
    """Large terms that cancel, as in score-function gradients, leave only what the sums have not lost."""
    x = np.random.default_rng(0).random((100, 200), dtype=np.float32)
    for axes, terms in (((0,), x), ((0,), x.reshape(100, 2, 100)), ((1,), x.reshape(2, 50, 200))):
        exact = terms.astype(np.float64).sum(axes).astype(np.float32)
        np.testing.assert_array_equal(run("reduce", terms, op="sum", axes=axes), exact)


def test_reductions_of_nothing():
    x = np.zeros((0, 2), np.float32)
    got = {op: run("reduce", x, op=op, axes=(0,)).tolist() for op in ("sum", "prod", "max", "min")}
    assert got == {"sum": [0, 0], "prod": [1, 1], "max": [-np.inf] * 2, "min": [np.inf] * 2}
    u = np.zeros((0,), np.uint8)
    assert [int(run("reduce", u, op=op, axes=(0,))) for op in ("max", "min")] == [0, 255]
    b = np.zeros((0,), np.bool_)
    assert [bool(run("reduce", b, op=op, axes=(0,))) for op in ("any", "all")] == [False, True]


# Primitives whose kernels have no scalar form -------------------------------------------------------------------------


def lines(x, axis):
    """Index of each line of `x` along `axis`."""
    for rest in np.ndindex(x.shape[:axis] + x.shape[axis + 1 :]):
        yield (*rest[:axis], slice(None), *rest[axis:])


def plain(x):
    """Python numbers of an array of any type."""
    return x.astype(np.float64).tolist() if dtype_of(x).is_float else x.tolist()


@pytest.mark.parametrize("special", [False, True])
def test_sort(special):
    for seed in range(40):
        rng = random.Random(seed)
        case = draw("sort", rng)
        (x,) = case.values(rng, special)
        axis, descending = case.attrs["axis"], case.attrs["descending"]
        count = case.attrs["count"] or x.shape[axis]
        got, order = run("sort", x, **case.attrs)
        assert got.dtype == x.dtype and order.dtype == np.int64
        assert run("sort", x, **case.attrs, order=False).tobytes() == got.tobytes()
        for at in lines(x, axis):
            line = plain(x[at])

            # NaN is the largest; Python's sort is stable, reversed too.
            keys = [(v != v, 0 if v != v else v) for v in line]
            want = sorted(range(len(line)), key=lambda k, keys=keys: keys[k], reverse=descending)[:count]
            assert order[at].tolist() == want
            np.testing.assert_array_equal(plain(got[at]), [line[k] for k in want])


@pytest.mark.parametrize("count", [0, 5, 1500])
def test_sort_of_long_lines(count):
    """Numbers that differ in their last bits alone, or in their first; and ties around the last one that is wanted."""
    rng = np.random.default_rng(count)
    near = 1 + np.finfo(np.float64).eps * rng.integers(0, 9, (3, 1600))
    few = rng.integers(-3, 3, (2, 1600))
    for x in (near, np.where(near > 1, near, -1e300), few, few << 60, few.astype(np.float32)):
        got, order = run("sort", x, axis=1, count=count)
        want = np.argsort(x, axis=1, kind="stable")[:, : count or 1600]
        np.testing.assert_array_equal(order, want)
        np.testing.assert_array_equal(got, np.take_along_axis(x, want, 1))


def test_sort_of_many_equal_halves():
    """NumPy 2.4 on processors with AVX512_ICL sorts them wrongly."""
    rng = np.random.default_rng(0)
    x = (1.5 + np.finfo(np.float16).eps * rng.integers(0, 9, 33003)).astype(np.float16)
    x[rng.random(x.size) < 0.3] *= np.float16(-3)
    got = run("sort", x, axis=0, order=False)
    assert (got[1:] >= got[:-1]).all()


def test_cumsum():
    for seed in range(40):
        rng = random.Random(seed)
        case = draw("cumsum", rng)
        (x,) = case.values(rng)
        got = run("cumsum", x, **case.attrs)
        of = dtype_of(x)
        want = np.empty_like(x)
        for at in lines(x, case.attrs["axis"]):
            total, sums = 0, []
            for v in plain(x[at]):
                total += v
                sums.append(rounded(total, of) if of.is_float else wrapped(total, of))
            want[at] = sums
        assert_close(got, want, str(case))


def test_scatter_add():
    for seed in range(60):
        rng = random.Random(seed)
        case = draw("scatter_add", rng)
        x, idx, u = case.values(rng)
        got = run("scatter_add", x, idx, u)
        of = dtype_of(x)
        want = {at: plain(x)[()] if x.ndim == 0 else plain(x[at]) for at in np.ndindex(x.shape)}
        for point in np.ndindex(idx.shape[1:]):
            where = tuple(int(k) for k in idx[(slice(None), *point)])
            for rest in np.ndindex(x.shape[len(where) :]):
                at = (*where, *rest)
                if at in want:
                    total = want[at] + plain(u[(*point, *rest)])
                    want[at] = rounded(total, of) if of.is_float else wrapped(total, of)
        expected = np.empty_like(x)
        for at, v in want.items():
            expected[at] = v
        assert_close(got, expected, str(case), tol=0)


@pytest.mark.parametrize("columns", [1 << 20, 50])
@pytest.mark.parametrize("groups", [1, 3])
def test_images_of_few_positions_are_computed_together(groups, columns, monkeypatch):
    monkeypatch.setattr(convolution_eval, "_COLUMNS", columns)
    rng = np.random.RandomState(groups)
    for shape, taps, stride in (
        ((5, 6, 4, 5), (4, 5), 1),
        ((5, 6, 4, 5), (2, 3), 1),
        ((4, 3, 9), (2,), 2),
        ((3, 6), (), 1),
    ):
        x, w = rng.uniform(-1, 1, shape), rng.uniform(-1, 1, (6, shape[1] // groups, *taps))
        spatial = len(taps)
        layout = "012"[:spatial]
        attrs = {name: (value,) * spatial for name, value in (("low", 0), ("high", 0), ("stride", stride))}
        attrs |= {"dilation": (1,) * spatial, "input_dilation": (1,) * spatial, "groups": groups}
        attrs["layout"] = ("NC" + layout, "OI" + layout, "NC" + layout)
        alone = np.concatenate([run("conv", image[None], w, **attrs) for image in x])
        np.testing.assert_allclose(run("conv", x, w, **attrs), alone, rtol=1e-12, atol=1e-12)


def test_images_of_few_positions_take_no_more_memory_than_others(monkeypatch):
    """A gradient of weights has as many terms as the batch has pixels: seven positions of these have 1.6 MB."""
    monkeypatch.setattr(convolution_eval, "_COLUMNS", 1000)
    x, w = np.ones((2, 64, 9, 300), np.float32), np.ones((2, 64, 3, 300), np.float32)
    attrs = {name: (value,) * 2 for name, value in (("low", 0), ("high", 0), ("stride", 1), ("dilation", 1))}
    attrs |= {"input_dilation": (1, 1), "groups": 1, "layout": ("NC01", "OI01", "NC01")}
    tracemalloc.start()
    try:
        run("conv", x, w, **attrs)
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()


def test_every_dtype_has_constants_and_iotas():
    for name, of in DTYPES.items():
        value = np.ones((2, 3), of.numpy)
        assert run("constant", value=value) is value
        if name != "bool":
            line = run("iota", shape=(2, 3), axis=1, dtype=of)
            assert line.dtype == of.numpy
            assert line.astype(int).tolist() == [[0, 1, 2]] * 2
    assert run("iota", shape=(300,), axis=0, dtype="u8")[299] == 43
