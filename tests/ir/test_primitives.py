"""Every primitive on random operands: `eval` has the type that `infer` says, and the values that `element` gives."""

import random

import numpy as np
import pytest

from gluonjit.ir import opdef
from gluonjit.ir.types import F16, dtype_of, type_of
from support.compare import EPSILON, assert_close
from support.draw import DRAWERS, draw
from support.scalar_handler import interpret

CASES = 12


def definition(name: str) -> opdef.Primitive:
    found = opdef.lookup(name)
    assert isinstance(found, opdef.Primitive)
    return found


def run(name, arrays, attrs):
    """The results of `eval`, after checking that their types are those that `infer` gives, and that `quick` gives the
    same bits."""
    primitive = definition(name)
    attrs = primitive.canonical_attrs(attrs)
    types = primitive.infer([type_of(a) for a in arrays], attrs, ())
    kept = [a.copy() for a in arrays]
    with np.errstate(all="ignore"):
        out = primitive.eval(*arrays, **attrs)
    out = out if isinstance(out, tuple) else (out,)
    assert [type_of(x) for x in out] == list(types)
    assert all(isinstance(x, np.ndarray) for x in out)
    quick = primitive.quick and primitive.quick(*map(type_of, arrays), **attrs)
    if quick is not None:
        with np.errstate(all="ignore"):
            again = np.asarray(quick(*arrays))
        assert type_of(again) == types[0] and again.tobytes() == out[0].tobytes(), "quick differs from eval"
    for before, after in zip(kept, arrays):
        assert before.tobytes() == after.tobytes(), "eval or quick wrote into an operand"
    return out


def draws(name, count=CASES):
    """(case, rng) pairs; cases without elements are not all there is."""
    for k in range(count):
        rng = random.Random(f"{name} {k}")
        case = draw(name, rng)
        if sum(t.size for t in case.operands) < 600:
            yield case, rng


def assert_elements_close(got, want, ulps, what, absolute=1e-30):
    """Each element by itself: within `ulps` units in the last place, or `absolute`."""
    dtype = dtype_of(want)
    assert dtype_of(got) is dtype and got.shape == want.shape, what
    if not dtype.is_float:
        np.testing.assert_array_equal(got, want, what)
        return
    if dtype is F16:
        absolute = 2.0**-24  # its smallest number
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=ulps * EPSILON[dtype], atol=absolute, err_msg=what)


def test_everything_is_drawn():
    opdef.lookup("add")
    # `extent` belongs to graphs with open dimensions, which `support/open_programs.py` draws.
    assert {name for name, op in opdef.REGISTRY.items() if op.level == "primitive"} == {*DRAWERS, "extent"}


@pytest.mark.parametrize("name", [n for n in DRAWERS if n not in ("constant", "iota") and definition(n).elementwise])
def test_elementwise(name):
    # NumPy's own functions are good to 4 ulp; powers, which it takes through logarithms, to fewer when they are large.
    # Poles of digamma magnify the rounding of pi x.
    ulps = {"pow": 16, "digamma": 32}.get(name, 8)
    # Where lgamma and digamma cross 0 they are sums of large terms that cancel.
    absolute = 1e-14 if name in ("lgamma", "digamma") else 1e-30
    for case, rng in draws(name, 3 * CASES):
        arrays = case.values(rng, special=True)
        (got,) = run(name, arrays, case.attrs)
        assert_elements_close(got, interpret(name, arrays, case.attrs), ulps, f"{case}\n{arrays}", absolute)


@pytest.mark.parametrize(
    "name", [n for n in DRAWERS if not definition(n).elementwise and definition(n).element is not None]
)
def test_element(name):
    sizes = set()
    for case, rng in draws(name):
        arrays = case.values(rng)
        (got,) = run(name, arrays, case.attrs)
        assert_close(got, interpret(name, arrays, case.attrs), str(case))
        sizes.add(got.size)
    assert len(sizes) > 1


@pytest.mark.parametrize("name", ["reduce", "arg_reduce", "reduce_window", "select", "reverse", "pad"])
def test_special_values(name):
    """NaN and infinities: which ones a result has is part of the meaning."""
    for case, rng in draws(name):
        if case.attrs.get("op") in ("sum", "prod"):
            continue
        arrays = case.values(rng, special=True)
        (got,) = run(name, arrays, case.attrs)
        assert_elements_close(got, interpret(name, arrays, case.attrs), 0, str(case))


@pytest.mark.parametrize("name", [n for n in DRAWERS if definition(n).commutative])
def test_commutative_primitives_give_the_same_bits_swapped(name):
    for case, rng in draws(name):
        a, b = case.values(rng, special=True)
        (one,), (other,) = run(name, [a, b], case.attrs), run(name, [b, a], case.attrs)
        assert_elements_close(one, other, 0, str(case), absolute=0)
        numbers = one == one  # the bits of NaN are nobody's
        assert one[numbers].tobytes() == other[numbers].tobytes(), str(case)


@pytest.mark.parametrize("name", [n for n in DRAWERS if definition(n).moves and n not in ("constant", "iota")])
def test_moves_compute_nothing(name):
    for case, rng in draws(name):
        arrays = case.values(rng, special=True)
        (result,) = run(name, arrays, case.attrs)
        assert elements(result) <= set().union(*map(elements, arrays)), str(case)


def test_predicates_are_the_elementwise_primitives_of_any_type_that_give_bools():
    bools = {name for name in DRAWERS if name != "cast" and definition(name).elementwise and gives_bools(name)}
    assert bools == {name for name in DRAWERS if definition(name).predicate}


def elements(array):
    """The bytes of each element."""
    size = array.dtype.itemsize
    data = array.tobytes()
    return {data[k : k + size] for k in range(0, len(data), size)}


def gives_bools(name):
    results = [run(name, case.values(rng), case.attrs)[0] for case, rng in draws(name)]
    return all(r.dtype == np.bool_ for r in results)


def test_each_primitive_says_what_it_is():
    assert all(definition(name).doc for name in [*DRAWERS, "fused"])
