"""What does not fit is refused with a message that names the types and says what would fit."""

import numpy as np
import pytest

from gluonjit.ir import opdef
from gluonjit.ir.graph import Builder, subgraph
from gluonjit.ir.types import IRError, tensor
from support.draw import DRAWERS

x = tensor("f32", 2, 3)
CONV = {"stride": (1, 1), "low": (0, 0), "high": (0, 0), "dilation": (1, 1), "input_dilation": (1, 1)}
WINDOW = {"op": "max", "window": (1, 2), "stride": (1, 1), "low": (0, 0), "high": (0, 0)}
FILTERS = {"taps": (1, 3), "stride": (1, 1), "low": (0, 1), "dilation": (1, 1)}
image, kernel = tensor("f32", 1, 4, 5, 5), tensor("f32", 8, 4, 3, 3)
scalar = tensor("f32")
i32 = tensor("i32", 4)

REFUSED = [
    ("add", (x, tensor("f64", 2, 3)), {}, "f32[2,3] and f64[2,3]; cast one"),
    ("add", (x, tensor("f32", 4, 3)), {}, "(2, 3) (4, 3)"),
    ("add", (tensor("bool", 2), tensor("bool", 2)), {}, "bool[2] must have a numeric type"),
    ("add", (x,), {}, "does not take 1 operand"),
    ("exp", (tensor("i32", 2),), {}, "i32[2] must have a float type; cast"),
    ("not", (x,), {}, "bool or an integer type"),
    ("and", (x, x), {}, "bool or an integer type"),
    ("atan2", (i32, i32), {}, "float type"),
    ("shift_left", (x, x), {}, "integer type"),
    ("isnan", (i32,), {}, "float type"),
    ("select", (x, x, x), {}, "the condition must be bool, got f32[2,3]"),
    ("select", (tensor("bool", 2, 3), x, tensor("f64", 2, 3)), {}, "one element type"),
    ("cast", (x,), {"dtype": "float31"}, "did you mean 'float32'"),
    ("cast", (x,), {}, "needs the attribute 'dtype'"),
    ("cast", (x,), {"dtype": "f32", "axes": 1}, "no attribute 'axes'"),
    ("constant", (), {"value": 3}, "must be an ndarray, got int"),
    ("constant", (), {"value": np.zeros(2, np.complex64)}, "unsupported element type"),
    ("iota", (), {"shape": (2,), "axis": 1, "dtype": "i32"}, "axis = 1 is not an axis of i32[2]"),
    ("iota", (), {"shape": (2,), "axis": 0, "dtype": "bool"}, "numeric type"),
    ("iota", (), {"shape": (-2,), "axis": 0, "dtype": "i32"}, "at least 0"),
    ("broadcast", (x,), {"shape": (4, 3)}, "axis of 2 of f32[2,3] cannot become axis 0 of (4, 3)"),
    ("broadcast", (x,), {"shape": (3,)}, "more axes"),
    ("broadcast", (x,), {"shape": (3, 2), "dims": (1, 0)}, "increasing"),
    ("broadcast", (x,), {"shape": (3, 2), "dims": (1,)}, "2 entries"),
    ("reshape", (x,), {"shape": (4,)}, "f32[2,3] has 6 elements, shape (4,) has 4"),
    ("reshape", (x,), {"shape": (-1,)}, "at least 0"),
    ("transpose", (x,), {"perm": (0, 0)}, "not a permutation"),
    ("slice", (x,), {"start": (0, 1), "size": (2, 3)}, "leave axis 1 of f32[2,3]"),
    ("slice", (x,), {"start": (0, 4), "size": (2, 0)}, "leave axis 1"),
    ("slice", (x,), {"start": (0, 0), "size": (2, 2), "step": (1, 0)}, "at least 1"),
    ("slice", (x,), {"start": (0,), "size": (2, 2)}, "2 entries"),
    ("reverse", (x,), {"axes": (2,)}, "axis 2, but f32[2,3] has axes 0..1"),
    ("reverse", (x,), {"axes": (1, 1)}, "twice"),
    ("pad", (x, x), {"low": (0, 0), "high": (0, 0)}, "must be 0-d"),
    ("pad", (x, scalar), {"low": (-1, 0), "high": (0, 0)}, "at least 0"),
    ("pad", (x, tensor("f64")), {"low": (0, 0), "high": (0, 0)}, "one element type"),
    ("concat", (), {"axis": 0}, "at least one operand"),
    ("concat", (x, tensor("f32", 3, 4)), {"axis": 0}, "differ in more than the length of axis 0"),
    ("concat", (x, tensor("f32", 2)), {"axis": 0}, "differ"),
    ("update_slice", (x, tensor("f32", 2, 4)), {"start": (0, 0)}, "leave axis 1"),
    ("update_slice", (x, tensor("f32", 2)), {"start": (0, 0)}, "as many axes"),
    ("gather", (x, x), {"axis": 0}, "indices f32[2,3] must have an integer type"),
    ("gather", (tensor("f32", 0, 2), i32), {"axis": 0}, "which is empty"),
    ("gather", (x, i32), {"axis": 0, "mode": "raise"}, "'clip', 'wrap'"),
    ("gather", (x, i32), {"axis": -1}, "must be in 0..1"),
    ("gather_nd", (x, tensor("i32", 3, 4)), {}, "between 1 and 2 axes of f32[2,3]"),
    ("gather_nd", (tensor("f32", 0), tensor("i32", 1, 4)), {}, "has none"),
    ("scatter_add", (x, tensor("i32", 1, 4), x), {}, "must have shape (4, 3)"),
    ("sort", (tensor("bool", 2),), {"axis": 0}, "numeric"),
    ("sort", (x,), {"axis": 0, "descending": 1}, "True or False"),
    ("sort", (x,), {"axis": 0, "order": 1}, "order must be True or False"),
    ("sort", (x,), {"axis": 0, "count": 1000}, "count must be 0 or at most"),
    ("cumsum", (x,), {"axis": 2}, "axis = 2"),
    ("reduce", (x,), {"op": "median", "axes": (0,)}, "must be one of 'sum'"),
    ("reduce", (tensor("i32", 2),), {"op": "mean", "axes": (0,)}, "must have"),
    ("reduce", (x,), {"op": "sum", "axes": 0}, "tuple of ints"),
    ("reduce", (x,), {"op": "any", "axes": (0,)}, "must be bool"),
    ("reduce", (x,), {"op": "sum", "axes": (-1,)}, "names axis -1"),
    ("arg_reduce", (tensor("f32", 0, 2),), {"op": "argmax", "axis": 0}, "no elements to choose from"),
    ("depthwise_gradient", (x, x), FILTERS, "images (n, spatial…, channels)"),
    ("depthwise_gradient", (image, tensor("f32", 2, 5, 4)), FILTERS, "images (n, spatial…, channels)"),
    ("depthwise_gradient", (image, image), {**FILTERS, "low": (0, 1 << 60)}, "ints below"),
    ("depthwise_gradient", (image, image), {**FILTERS, "low": (0,)}, "2 entries"),
    ("depthwise_gradient", (image, image), {**FILTERS, "taps": (9, 9)}, "at most 64 taps"),
    ("depthwise_gradient", (tensor("f16", 2, 5, 5, 4),) * 2, FILTERS, "for float32 and float64"),
    ("dot_general", (x, x), {"contract": ((1,), (0,))}, "axis 1 of f32[2,3] with axis 0 of f32[2,3]: 3 is not 2"),
    ("dot_general", (x, x), {"contract": ((1,), (1,)), "batch": ((1,), (1,))}, "both summed over and a batch axis"),
    ("dot_general", (x, x), {"contract": (1, 0)}, "tuple of ints"),
    ("dot_general", (x, x), {"contract": ((0, 1), (1,))}, "pairs 2 axes with 1"),
    ("conv", (image, tensor("f32", 8, 3, 3, 3)), CONV, "has 4 channels, weight f32[8,3,3,3] takes 1 group(s) of 3"),
    ("conv", (image, tensor("f32", 3, 2, 3, 3)), {**CONV, "groups": 2}, "3 filters"),
    ("conv", (image, tensor("f32", 8, 4, 7, 3)), CONV, "spans 7 does not fit the padded axis 2 of f32[1,4,5,5] of 5"),
    ("conv", (image, kernel), {**CONV, "stride": (0, 1)}, "at least 1"),
    ("conv", (image, kernel), {**CONV, "layout": ("NC01", "OI01", "NCHW")}, "permutation of 'NC01'"),
    ("conv", (x, kernel), CONV, "needs operands of 4 axes"),
    ("reduce_window", (x,), {**WINDOW, "window": (4, 1)}, "spans 4 does not fit"),
    ("reduce_window", (x,), {**WINDOW, "op": "mean"}, "'sum', 'max', 'min'"),
    ("reduce_window", (x,), {**WINDOW, "low": (0, -1)}, "at least 0"),
    ("random_bits", (x,), {"shape": (2,), "dtype": "i32", "stream": 0}, "must be i64[2]"),
    ("random_bits", (tensor("i64", 2),), {"shape": (2,), "dtype": "f32", "stream": 0}, "i32 or i64"),
]


@pytest.mark.parametrize(("name", "types", "attrs", "message"), REFUSED, ids=[f"{r[0]}-{r[3][:24]}" for r in REFUSED])
def test_refused(name, types, attrs, message):
    b = Builder()
    operands = [b.input(f"x{k}", t) for k, t in enumerate(types)]
    with pytest.raises(IRError) as caught:
        b.emit(name, operands, attrs)
    assert message in str(caught.value)
    assert not b.build([]).ops


def test_primitives_that_refuse_nothing_special_are_elementwise():
    tested = {name for name, *_ in REFUSED}
    assert {name for name in set(DRAWERS) - tested if not opdef.lookup(name).elementwise} == set()


def test_eval_refuses_mixed_types():
    """Imperative execution runs `eval` alone: it must not promote where inference would refuse."""
    a, b = np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float64)
    zeros = {"start": (0, 0), "step": None}
    for name, operands, attrs in [
        ("add", (a, b), {}),
        ("eq", (a, b), {}),
        ("select", (a > 0, a, b), {}),
        ("concat", (a, b), {"axis": 0}),
        ("update_slice", (a, b), zeros),
        ("dot_general", (a, b), {"contract": ((1,), (0,)), "batch": ((), ())}),
        ("scatter_add", (a, np.zeros((1, 2), np.int32), b), {}),
    ]:
        with pytest.raises(TypeError):
            opdef.lookup(name).eval(*operands, **attrs)


def test_fused_checks_its_region():
    b = Builder()
    v = b.input("x", x)
    b.exp(v)
    graph = b.build([])
    body = subgraph("body", graph.ops, [v], [graph.ops[0].result], "legal")
    b = Builder(level="fused")
    other = b.input("y", tensor("f32", 3))
    with pytest.raises(IRError, match=r"the region takes \(f32\[2,3\]\)"):
        b.emit("fused", [other], {}, (body,))
    with pytest.raises(IRError, match="needs one region"):
        b.emit("fused", [other], {}, ())
