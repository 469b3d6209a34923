"""Operators of open dimensions: the graph of primitives means, for every size, what the static operator computes.

Every operator's samples are opened along the batch axis, and along every axis of one length. An operator may say that
it needs the sizes; it must never give another result, nor for a size of 1 if code is taken to serve that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from gluonjit.ir.dims import Undecided, at, named, relying
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.sizes import with_sizes, with_some_sizes
from gluonjit.ir.structure import graph_key
from gluonjit.ir.types import IRError, TensorType, tensor, type_of
from gluonjit.operators import registry
from gluonjit.operators.movement.slicing import window
from gluonjit.passes import run_passes
from gluonjit.runtime.build import expands_alike
from support.compare import assert_close

from . import samples
from .answers import DRAW_ALIKE
from .running import with_key

N = named("n")
PIPELINE = "expand, legalize-broadcast, simplify, fold, cse, dce"

NEED_SIZES = set(
    # Their first axis is that of time, image rows or matrix rows; ends of a slice, and places that are inserted or
    # deleted, may lie behind the axis.
    "CTCLoss RNN _cvimresize _histogram _image_resize _np_diag _np_diagonal _np_trace _npi_delete _npi_insert_slice "
    "_npi_pad _npi_pinv slice _slice_assign _slice_assign_scalar".split()
)
"""Operators of which a sample cannot be open along its first axis."""

NAMES = [
    name
    for name in samples.operators()
    if not registry.get(name).imperative_only and not registry.get(name).host and name not in DRAW_ALIKE
]


def traced(case, types):
    b = Builder("case", level="traced")
    values = [b.input(f"x{k}", t) for k, t in enumerate(types)]
    results = b.emit(f"mx.{registry.get(case.operator).name}", values, {**case.attrs, ".stream": 0})
    return b.build(results, {"training": case.training})


def resized(x, axes, n):
    """`x` with these axes of length n, of its own elements."""
    shape = tuple(n if axis in axes else m for axis, m in enumerate(x.shape))
    return x if shape == x.shape else np.resize(x, shape)


def accepted(case, inputs):
    try:
        return traced(case, [type_of(x) for x in inputs])
    except IRError:
        return None


def check_open(case, opened):
    """Compares the open graph with the static one; `opened` are pairs (input, axis).

    Returns "open, 1 as well" if code would serve a length of 1, "open", "undecided", or "impossible" if sizes of the
    operands are tied to each other in another way."""
    length = next(case.inputs[k].shape[axis] for k, axis in opened)

    def inputs(n):
        return [resized(x, {axis for j, axis in opened if j == k}, n) for k, x in enumerate(case.inputs)]

    types = [
        TensorType(type_of(x).dtype, tuple(N if (k, axis) in opened else m for axis, m in enumerate(x.shape)))
        for k, x in enumerate(case.inputs)
    ]
    statics = {n: accepted(case, inputs(n)) for n in (length, length + 1)}
    sizes = [length + 1]
    try:
        with relying() as relies:
            whole = traced(case, types)
            graph = run_passes(whole, PIPELINE)
    except IRError as e:
        if None in statics.values() or accepted(case, inputs(length + 3)) is None:
            return "impossible"
        assert isinstance(e, Undecided), e
        return "undecided"
    if not relies.noted and expands_alike(whole):
        statics[1] = accepted(case, inputs(1))
        same = with_some_sizes(whole, {"n": 1})
        if statics[1] is not None and graph_key(statics[1]) == graph_key(same):
            sizes = [1, length + 1]
    for n in sizes:
        arrays = inputs(n)
        assert statics[n] is not None, f"{case} with {types} is refused for {n}"
        static = run_passes(statics[n], "expand")
        try:
            wanted, _ = evaluate(static, with_key(static, arrays))
        except IndexError:  # an index of the sample is not in a length of 1
            continue
        found, _ = evaluate(with_sizes(graph, {"n": n}, 1), with_key(graph, arrays))
        for a, b in zip(found, wanted, strict=True):
            assert_close(a, b, f"{case} with {types} for {n}")
    return "open, 1 as well" if 1 in sizes else "open"


def batch_axes(case):
    """Axis 0 of the first input, and of others that are as long."""
    length = case.inputs[0].shape[0]
    return {(k, 0) for k, x in enumerate(case.inputs) if x.shape[:1] == (length,)}


def equal_axes(case):
    """For each length, all axes of it."""
    lengths = sorted({n for x in case.inputs for n in x.shape if n > 1})
    return [{(k, a) for k, x in enumerate(case.inputs) for a, m in enumerate(x.shape) if m == n} for n in lengths]


def chosen(name, count):
    """The first samples that are not large."""
    found = {case.sample: case for case in reversed(samples.cases(name))}
    small = [c for c in reversed(found.values()) if c.inputs and sum(x.size for x in c.inputs) < 2000]
    return small[:count]


@pytest.mark.parametrize("part", range(8))
def test_operators_of_an_open_batch_and_of_axes_of_an_open_length(part):
    """Often these are the same axes."""
    refused, outcomes = set(), Counter()
    for name in NAMES[part::8]:
        for case in chosen(name, 1):
            found = {frozenset(axes): check_open(case, axes) for axes in equal_axes(case)}
            outcomes.update(found.values())
            if case.inputs[0].shape and case.inputs[0].shape[0] > 1:
                batch = batch_axes(case)
                if (found.get(frozenset(batch)) or check_open(case, batch)) == "undecided":
                    refused.add(name)
    assert refused <= NEED_SIZES
    assert outcomes["open, 1 as well"] > outcomes["open"] + outcomes["undecided"]


BOXES = {  # operator → axes of equal length, counted from the end: images; boxes, labels or anchors
    "_contrib_box_nms": [{(0, -3)}, {(0, -2)}],
    "_contrib_bipartite_matching": [{(0, -3)}, {(0, -2)}, {(0, -1)}],
    "_contrib_MultiBoxTarget": [{(1, -3), (2, -3)}, {(1, -2)}, {(0, -2), (2, -1)}],
    "_contrib_MultiBoxDetection": [{(0, -3), (1, -2)}],
}


@pytest.mark.parametrize("name", BOXES)
def test_detection_of_any_number_of_images_boxes_and_labels(name):
    by_attrs = {str(case.attrs): case for case in reversed(samples.cases(name))}  # other inputs make no other graph
    for case in by_attrs.values():
        for opened in BOXES[name]:
            axes = {(k, axis % case.inputs[k].ndim) for k, axis in opened if case.inputs[k].ndim >= -axis}
            if axes and all(case.inputs[k].shape[axis] > 1 for k, axis in axes):
                assert check_open(case, axes).startswith("open")


@pytest.mark.parametrize("name", ["_contrib_box_nms", "_contrib_bipartite_matching"])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_the_best_of_any_number_of_boxes(name, more):
    """There may be fewer boxes than `topk`, or more."""
    case = samples.cases(name)[0]
    boxes = case.inputs[0].shape[-2]
    found = check_open(replace(case, attrs={**case.attrs, "topk": boxes + more}), {(0, case.inputs[0].ndim - 2)})
    assert found.startswith("open")


def test_detections_among_any_number_of_anchors():
    case = next(c for c in samples.cases("_contrib_MultiBoxDetection") if "nms_topk" in c.attrs)
    most = case.attrs["nms_topk"]
    batch, classes, _ = case.inputs[0].shape
    types = [tensor("f32", batch, classes, N), tensor("f32", batch, 4 * N), tensor("f32", 1, N, 4)]
    graph = run_passes(traced(case, types), PIPELINE)
    for n in (2, most, most + 1, 12):
        arrays = [np.resize(x, [at(k, {"n": n}) for k in t.shape]) for x, t in zip(case.inputs, types, strict=True)]
        (wanted,), _ = evaluate(run_passes(traced(case, [type_of(x) for x in arrays]), "expand"), arrays)
        (found,), _ = evaluate(with_sizes(graph, {"n": n}), arrays)
        assert_close(found, wanted, f"{n} anchors")


def open_type(operator, *shapes, **attrs):
    """The type of the operator's first result."""
    b = Builder("one", "traced")
    values = [b.input(f"x{k}", tensor("f32", *shape)) for k, shape in enumerate(shapes)]
    return b.emit(f"mx.{registry.get(operator).name}", values, attrs)[0].type


L = named("l")


@pytest.mark.parametrize(
    ("old", "codes", "new"),
    [
        ((N, 3, 4), (0, -1), (N, 12)),
        ((N, L, 12), (0, 0, 4, -1), (N, L, 4, 3)),
        ((N, L, 12), (-1, 12), (L * N, 12)),
        ((4 * N, L, L), (-4, -1, 4, 0, 0), (N, 4, L, L)),
        ((4 * N, L, L), (-4, 4, -1, -2), (4, N, L, L)),
        ((N, 4, L, 3), (0, 0, -3), (N, 4, 3 * L)),
        ((N, 4, L, 3), (-3, -2), (4 * N, L, 3)),
        ((N, L), (-2, 1, 1), (N, L, 1, 1)),
        ((N, L), (-1,), (L * N,)),
        ((N, L), (0, 0, 1), (N, L, 1)),
        ((N - 1, L), (-3,), (L * N - L,)),
    ],
)
def test_reshape_codes(old, codes, new):
    assert open_type("Reshape", old, shape=codes).shape == new


def test_slices_of_open_axes_are_those_of_their_sizes():
    decided = set()
    for key in product([None, 0, 1, 2, -1, -2], [None, 0, 1, 2, -1, -2], [None, 1, -1, 2, -2]):
        begin, end, step = ((k,) for k in key)
        try:
            found = window((N,), begin, end, step)
        except Undecided:
            continue
        decided.add(key)
        for n in (2, 3, 4, 9):
            taken = range(n)[slice(*key)]
            first, count = at(found.start[0], {"n": n}), at(found.size[0], {"n": n})
            elements = [first + k * found.step[0] for k in range(count)]
            assert elements[:: -1 if found.flipped else 1] == list(taken), (key, n)
    # Others are empty or clipped for small n, or have a length that is no polynomial.
    ends = {
        (None, None),
        (0, None),
        (1, None),
        (-1, None),
        (-2, None),
        (0, -1),
        (None, -1),
        (None, 1),
        (0, 2),
        (-2, -1),
    }
    assert decided >= {(*pair, step) for pair in ends for step in (None, 1)} | {(None, None, -1), (0, 2, 2), (1, 0, -1)}


def test_what_depends_on_a_size_says_so():
    with pytest.raises(Undecided, match="whether n-1 is 1 depends on n"):
        open_type("squeeze", (N - 1, 3))
    assert open_type("squeeze", (N, 1, 3)).shape == (N, 3)
    # Gamma goes with axis 1 if that is as long.
    with pytest.raises(Undecided, match="whether 4 is n depends on n"):
        open_type("LeakyReLU", (4, N), (4,), act_type="prelu")
    assert open_type("LeakyReLU", (N, 4), (4,), act_type="prelu").shape == (N, 4)
    # Labels of the data's shape are probabilities.
    with pytest.raises(Undecided, match="whether .* is .* depends on l"):
        open_type_of_gradient((N, 5), (N, L))
    with pytest.raises(Undecided, match="depends on n"):
        open_type("slice_axis", (N, 3), axis=0, begin=0, end=5)
    # Whether the data is long enough shows when the code runs, but for data of open length.
    assert open_type("slice_like", (8, 3), (L, 3)).shape == (L, 3)
    with pytest.raises(Undecided, match="depends on l"):
        open_type("slice_like", (N, 3), (L, 3))


def open_type_of_gradient(data, label):
    b = Builder("gradient", training=True)
    x, y = (b.input(name, tensor("f32", *shape)) for name, shape in (("x", data), ("y", label)))
    op = registry.get("SoftmaxOutput")
    attrs = op.parse({})
    result = op.expand_into(b, [x, y], attrs)
    return op.gradient(b, result, result, (x, y), **attrs)
