"""What the movement, indexing and reduction operators refuse, and what they tell about partial shapes."""

import numpy as np
import pytest

from gluonjit.base import MXNetError
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import tensor
from gluonjit.operators import registry
from gluonjit.passes import run_passes

from .running import run_eager


def array(*shape, dtype="float32"):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


REFUSED = [
    ("sum", [(2, 3)], {"axis": 5}, r"Reduction axis 5 Exceeds input dimensions \[2,3\]"),
    ("sum", [(2, 3)], {"axis": -3}, r"Reduction axis -3 Exceeds input dimensions \[2,3\]"),
    ("mean", [(2, 3)], {"axis": (1, -1)}, r"Reduction axes have duplicates \[1,1\]"),
    ("norm", [(2, 3)], {"ord": 3}, "norm only supports ord=1 and ord=2"),
    ("argmax", [(2, 3)], {"axis": 2}, "axis 2 exceeds the input dimension of 2"),
    ("moments", [(2, 3)], {}, "Empty axes is not supported"),
    ("argsort", [(2, 3)], {"axis": 4}, "Invalid axis! axis should be between 0 and 2, found axis=4"),
    ("argsort", [(2, 3)], {"dtype": "int8"}, "Invalid Input: 'int8', valid values are: {'float16', 'float32'"),
    ("topk", [(2, 3)], {"k": 4}, "k must be smaller than 3, get k = 4"),
    ("dot", [(2, 3), (2, 3)], {}, r"dot shape error: \[2,3\] X \[2,3\]"),
    ("dot", [(3,), (3,)], {"transpose_a": True}, "Cannot transpose vectors"),
    ("batch_dot", [(2, 3, 4), (2, 3, 4)], {}, r"batch_dot shape error \(shape mismatch\): \[2,3,4\] X \[2,3,4\]"),
    ("batch_dot", [(2, 3, 4), (3, 4, 5)], {}, "leading batch dimensions must be equal"),
    ("batch_dot", [(3, 4), (4, 5)], {}, r"batch_dot currently only support N-D\*N-D array \(N >= 3\)"),
    ("linalg_gemm2", [(2, 3), (2, 3)], {}, "Incompatible matrix dimensions for multiplication"),
    ("linalg_gemm2", [(5, 2, 3), (4, 3, 2)], {}, "must be the same, except on row/col axis"),
    ("reshape", [(2, 3)], {"shape": (7,)}, r"Cannot reshape array of size 6 into shape \(7,\)"),
    ("reshape", [(2, 3)], {"target_shape": (2, 4)}, r"Cannot reshape array of size 6 into shape \(2, 4\)"),
    ("reshape", [(2, 3)], {"shape": (-1, -1)}, "One and only one dim can be inferred"),
    ("reshape", [(2, 6)], {"shape": (0, -4, -1, -1)}, "Split dims cannot both be -1"),
    ("reshape", [(2, 6)], {"shape": (0, -4, 4, 2)}, "Split dims 4, 2 do not divide original dim 6"),
    ("reshape", [(2, 3)], {"shape": (0, 0, 0)}, "src_idx < dshape_len"),
    ("reshape", [(2, 3)], {"shape": (-5,)}, "shape dim size must be >= -1, while received -5"),
    ("reshape_like", [(2, 6), (3, 5)], {}, "Cannot reshape lhs"),
    ("transpose", [(2, 3)], {"axes": (0, 1, 2)}, r"== param.axes.ndim\(\) \(2 vs. 3\)"),
    ("transpose", [(2, 3)], {"axes": (0, 0)}, "not a permutation"),
    ("swapaxes", [(2, 3)], {"dim1": 0, "dim2": 2}, "axis 2 is out of bounds for array of ndim 2"),
    ("expand_dims", [(2, 3)], {"axis": 3}, r"axis must be in the range \[-2, 2\] \(3 provided\)"),
    ("squeeze", [(2, 1)], {"axis": 0}, "cannot select an axis to squeeze out which has size=2 not equal to one"),
    ("depth_to_space", [(1, 7, 1, 2)], {"block_size": 2}, r"should be a multiple of 'block\^2'"),
    ("broadcast_to", [(3,)], {"shape": (4, 3)}, r"Operand of shape \[3\] cannot be broadcasted to \[4,3\]"),
    ("broadcast_to", [(2, 3)], {"shape": (4, 3)}, r"Array cannot be broadcasted from \[2,3\] to \[4,3\]"),
    ("broadcast_axis", [(1, 2)], {"axis": 1, "size": 3}, "Broadcasting axis must have size 1"),
    ("repeat", [(2, 3)], {"repeats": 2, "axis": 2}, "axis = 2 out of bounds"),
    ("concat", [(2, 3), (3, 4)], {"num_args": 2}, r"Incompatible input shape: expected \[2,-1\], got \[3,4\]"),
    ("concat", [(2, 3), (2, 3)], {"num_args": 2, "dim": 3}, "axis 3 exceeds the input dimension of 2"),
    ("concat", [], {"num_args": 0}, "value 0 for Parameter num_args exceed bound"),
    ("stack", [(2, 3), (2, 4)], {"num_args": 2}, r"at 1-th input: expected \[2,3\], got \[2,4\]"),
    ("split", [(2, 3)], {"num_outputs": 2}, "You are trying to split the 1-th axis of input tensor with shape"),
    ("split", [(2, 3)], {"num_outputs": 2}, "not possible because 2 does not evenly divide 3"),
    ("split", [(2, 4)], {"num_outputs": 2, "squeeze_axis": True}, "If squeeze axis is True, the size of the sliced"),
    ("_split_v2", [(4, 5)], {"indices": (0, 3, 1)}, "start 3 is not less than end 1"),
    ("_split_v2", [(4, 5)], {"indices": (0, 9)}, "end 9 is not less than the size of the axis 5"),
    ("slice", [(3, 4)], {"begin": (0, 0), "end": (2,)}, "begin and end must have the same length"),
    ("slice", [(3, 4)], {"begin": (0,), "end": (2,), "step": (0,)}, r"slice op step\[0\] cannot be 0"),
    ("slice_axis", [(3, 4)], {"axis": 1, "begin": 1, "end": 9}, "Invalid end for end=9 as axis_size is 4"),
    ("slice_axis", [(3, 4)], {"axis": 1, "begin": 2, "end": 2}, "Invalid begin, end, get begin=2, end=2"),
    ("slice_axis", [(3, 4)], {"axis": 1, "begin": 2}, "Required parameter end"),
    ("slice_like", [(3, 4), (5, 4)], {}, "exceeds limit of input with size 3"),
    ("Crop", [(1, 1, 4, 4)], {"num_args": 1, "h_w": (2, 2), "offset": (3, 1)}, "residual space of height"),
    ("pad", [(2, 3)], {"mode": "edge", "pad_width": (0, 0, 1, 0)}, "only supports 4-D or 5-D input"),
    ("pad", [(1, 1, 3, 3)], {"mode": "reflect", "pad_width": (0,) * 4 + (3, 0, 0, 0)}, "smaller than the input size"),
    ("take", [(4, 3), (2,)], {"axis": 2}, r"range of \[-r, r-1\]"),
    ("take", [(1, 3), (2,)], {"mode": "raise"}, "take operator contains indices out of bound"),
    ("pick", [(2, 3), (3,)], {}, r"Shape inconsistent, Provided = \[3\], inferred shape=\[2\]"),
    ("pick", [(2, 3), (3,)], {"axis": None}, "axis=None is not supported by pick yet"),
    ("gather_nd", [(2, 3), (2,)], {}, "gather_nd requires index tensor to have at least 2 dimensions"),
    ("gather_nd", [(2, 3), (3, 2)], {}, "Number of indices exceeds data dimension"),
    ("scatter_nd", [(2, 3), (1, 2)], {"shape": (2, 4)}, "Invalid data, indices, and output shape combination"),
    ("batch_take", [(2, 3), (2,)], {}, "Type inconsistent, Provided = float32, inferred type = int32"),
    ("SequenceMask", [(3, 2)], {"axis": 2}, "Current implementation expects axis to be 0 or 1"),
    ("SequenceMask", [(3, 2), (3,)], {"use_sequence_length": True}, r"Provided = \[3\], inferred shape=\[2\]"),
    ("_arange", [], {"start": 5, "stop": 1}, r"Invalid range \(start, stop, step\) = \(5,1,1\)"),
    ("_zeros", [], {"dtype": "int16"}, "Invalid Input: 'int16', valid values are: {'bfloat16', 'bool'"),
    ("diag", [(3, 4)], {"axis1": 1, "axis2": -1}, "cannot refer to the same axis"),
    ("_random_uniform", [], {"low": 1, "high": 0, "shape": (2,)}, "low must be less or equal to high"),
    ("_random_normal", [], {"scale": 0, "shape": (2,)}, "scale parameter in gaussian has to be positive"),
    ("_random_normal", [], {}, "Operator _random_normal inferring shapes failed"),
]


@pytest.mark.parametrize(("operator", "shapes", "attrs", "message"), REFUSED)
def test_refuses(operator, shapes, attrs, message):
    with pytest.raises(MXNetError, match=message):
        run_eager(operator, [array(*s) for s in shapes], attrs)


@pytest.mark.parametrize("operator", ["concat", "stack", "dot", "broadcast_like"])
def test_element_types(operator):
    x, y = array(2, 2), array(2, 2, dtype="float64")
    attrs = {"num_args": 2} if registry.get(operator).variadic else {}
    if operator == "broadcast_like":
        (z,) = run_eager(operator, [x, y], attrs)
        assert z.dtype == "float32", "the second input lends its shape alone"
    else:
        with pytest.raises(MXNetError, match="expected .*float32, got .*float64"):
            run_eager(operator, [x, y], attrs)


def test_take_raise():  # `frontend/test_out_of_bounds.py` sees it raise
    (y,) = run_eager("take", [array(4, 3), array(2)], {"mode": "raise"})
    assert y.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_boolean_mask_is_imperative_only():
    assert run_eager("_contrib_boolean_mask", [array(3, 2), np.zeros(3)], {})[0].shape == (0, 2)
    op = registry.get("_contrib_boolean_mask")
    with pytest.raises(MXNetError, match="cannot be compiled"):
        op.infer([tensor("f32", 3, 2), tensor("f32", 3)], op.parse({}))


@pytest.mark.parametrize(
    ("operator", "attrs", "inputs", "output", "expected"),
    [
        ("Reshape", {"shape": (-1, 4)}, [(0, 6)], (3, 4), [(2, 6)]),
        ("Reshape", {"shape": (-1, 4)}, [(0, 0)], (3, 4), [(0, 0)]),
        ("Flatten", {}, [(0, 3, 2)], (4, 6), [(4, 3, 2)]),
        ("transpose", {"axes": (1, 2, 0)}, [None], (2, 3, 0), [(0, 2, 3)]),
        ("transpose", {}, [(0, 3)], (3, 5), [(5, 3)]),
        ("SwapAxis", {"dim1": 0, "dim2": -1}, [(0, 0, 0)], (2, 0, 4), [(4, 0, 2)]),
        ("expand_dims", {"axis": -2}, [None], (2, 1, 3), [(2, 3)]),
        ("squeeze", {"axis": (1,)}, [(0, 1, 0)], (2, 3), [(2, 1, 3)]),
        ("squeeze", {}, [(0, 1, 0)], (2, 3), [(0, 1, 0)]),
        ("Concat", {"num_args": 2}, [(0, 3), None], (2, 7), [(2, 3), (2, 4)]),
        ("Concat", {"num_args": 2}, [(0, 0), None], (2, 7), [(2, 0), (2, 0)]),
        ("stack", {"num_args": 2, "axis": 1}, [(0, 3), None], (5, 2, 3), [(5, 3), (5, 3)]),
        ("SliceChannel", {"num_outputs": 3}, [None], (2, 4), [(2, 12)]),
        ("SliceChannel", {"num_outputs": 3, "axis": 0, "squeeze_axis": True}, [(0, 0, 0)], (2, 4), [(3, 2, 4)]),
        ("slice_axis", {"axis": -1, "begin": 0, "end": 2}, [None], (3, 2), [(3, 0)]),
        ("_slice_assign", {"begin": (0,), "end": (1,)}, [(0, 2), (1, 2)], (4, 2), [(4, 2), (1, 2)]),
        ("SequenceReverse", {}, [None], (4, 2), [(4, 2)]),
    ],
)
def test_shapes_from_the_output(operator, attrs, inputs, output, expected):
    op = registry.get(operator)
    attrs = op.parse(attrs)
    assert op.infer_inputs(attrs, inputs, [output] * len(op.outputs(attrs))) == expected


@pytest.mark.parametrize(
    ("operator", "attrs", "inputs", "expected"),
    [
        ("Concat", {"num_args": 3, "dim": 0}, [(2, 0), None, (1, 5)], [(2, 5), (0, 5), (1, 5)]),
        ("stack", {"num_args": 2}, [(2, 0), (0, 3)], [(2, 3), (2, 3)]),
        ("pick", {}, [(2, 3), None], [(2, 3), (2,)]),
        ("pick", {"keepdims": True}, [(2, 3), None], [(2, 3), (2, 1)]),
        ("SequenceLast", {"use_sequence_length": True, "axis": 1}, [(4, 7, 2), None], [(4, 7, 2), (4,)]),
    ],
)
def test_shapes_from_each_other(operator, attrs, inputs, expected):
    op = registry.get(operator)
    assert op.complete(op.parse(attrs), inputs) == expected


def test_contradicting_shapes():
    op = registry.get("Concat")
    with pytest.raises(MXNetError, match="Shape inconsistent"):
        op.complete(op.parse({"num_args": 2}), [(2, 3), (4, 3)])


def test_small_integers_index_large_tensors():
    """Positions, depths and sizes beyond the index type's own range."""
    indices = np.array([0, 255], np.uint8)
    (y,) = run_eager("one_hot", [indices], {"depth": 300})
    assert np.flatnonzero(y).tolist() == [0, 300 + 255]
    data = array(2, 300)
    assert run_eager("pick", [data, indices], {})[0].tolist() == [0, 555]
    assert run_eager("gather_nd", [array(300), np.array([[-1, 127]], np.int8)], {})[0].tolist() == [299, 127]
    assert run_eager("take", [data, indices], {"axis": 1})[0].tolist() == [[0, 255], [300, 555]]


def test_what_is_no_index():
    """NaN counts as 0; infinities and far numbers go to the ends."""
    indices = np.array([np.nan, np.inf, -np.inf, 1e30, 2.9, -0.9], np.float32)
    assert run_eager("take", [array(5), indices], {})[0].tolist() == [0, 4, 0, 4, 2, 0]


def test_scatter_keeps_the_last():
    data = np.array([1, 2, 3, 4, 5], np.float32)
    index = np.array([[3, 0, 3, -1, 9]], np.int32)
    assert run_eager("scatter_nd", [data, index], {"shape": (4,)})[0].tolist() == [2, 0, 0, 3]
    old, index = np.full(4, 9, np.float32), np.array([[3, 0, 3, -4, 1]], np.int32)
    assert run_eager("_scatter_set_nd", [old, data, index], {"shape": (4,)})[0].tolist() == [4, 5, 9, 3]


def test_reshape_codes_past_the_end():
    assert run_eager("reshape", [array(6)], {"shape": (2, 3, -2)})[0].shape == (2, 3)


def test_sequences_of_odd_lengths():
    data = array(3, 4) + 1
    lengths = np.array([0, -2, 9, 2.7], np.float32)
    attrs = {"use_sequence_length": True}
    (masked,) = run_eager("SequenceMask", [data, lengths], attrs)
    assert (masked != 0).sum(0).tolist() == [0, 0, 3, 2]
    (turned,) = run_eager("SequenceReverse", [data, lengths], attrs)
    assert turned[:, 2].tolist() == data[::-1, 2].tolist()
    assert turned[:, 0].tolist() == data[:, 0].tolist()


def test_full_converts_as_c_does():
    assert run_eager("_full", [], {"shape": (1,), "value": -3.7, "dtype": "uint8"})[0].tolist() == [253]


def test_dimensions_that_the_users_of_a_source_know():
    import gluonjit as mx
    from gluonjit.symbol.graph import post_order
    from gluonjit.symbol.lower import lower

    x = mx.sym.var("x")
    state = mx.sym.split(mx.sym.transpose(mx.sym.zeros((0, 6)) + 1), num_outputs=2, axis=0)[1]
    y = (state.reshape((3, -1)) + x) * mx.sym.ones((0, 0))
    assert y.infer_shape(x=(3, 4))[1] == [(3, 4)]
    graph = lower("g", [(x._heads[0], tensor("f32", 3, 4))], post_order(y._heads), y._heads, training=False)
    outputs, _ = evaluate(run_passes(graph, "expand"), [np.ones((3, 4), np.float32)])
    assert outputs[0].tolist() == [[2] * 4] * 3


@pytest.mark.parametrize(
    ("attrs", "shape"),
    [
        ({"shape": (2, 3)}, (2, 3)),
        ({"shape": (0, 2)}, (3, 2)),
        ({"shape": (-1, 5)}, (2, 5)),
        ({"shape": (2, 3), "reverse": True}, (2, 3)),
        ({"target_shape": (5, 0)}, (5, 2)),
    ],
)
def test_a_smaller_shape_takes_the_first_elements(attrs, shape):
    x = array(3, 4)
    (y,) = run_eager("reshape", [x], attrs)
    assert y.tolist() == x.ravel()[: np.prod(shape)].reshape(shape).tolist()
