"""Samples of the operators that index, that handle sequences, and that make tensors."""

import numpy as np

from .samples import floats, integers, sample


@sample("take")
def take(rng):
    indices = floats(rng, 2, 3, low=-3, high=8)
    return [floats(rng, 5, 4), indices], {"mode": ["clip", "wrap"][rng.randint(2)]}


@sample("take")
def take_along_axis(rng):
    return [floats(rng, 3, 4, 5), integers(rng, 6, low=0, high=3)], {"axis": int(rng.randint(-3, 3))}


@sample("take")
def take_with_bytes(rng):
    return [floats(rng, 5, 2, dtype="float64"), integers(rng, 3, dtype="uint8", high=9)], {}


@sample("_contrib_boolean_mask")
def boolean_mask(rng):
    return [floats(rng, 6, 2), integers(rng, 6, dtype=["float32", "int32"][rng.randint(2)], low=-1, high=2)], {}


@sample("_contrib_boolean_mask")
def boolean_mask_of_rows(rng):
    return [floats(rng, 4, 3), integers(rng, 4, dtype="int32", low=0, high=2)], {"axis": 0}


@sample("_contrib_boolean_mask", oracle=False)
def boolean_mask_of_columns(rng):
    return [integers(rng, 2, 5), integers(rng, 5, dtype="bool")], {"axis": 1}


@sample("batch_take")
def batch_take(rng):
    return [floats(rng, 4, 3), integers(rng, 4, low=-2, high=5)], {}


@sample("take")
def take_or_raise(rng):
    return [floats(rng, 3, 4), integers(rng, 2, 2, low=0, high=4)], {"axis": 1, "mode": "raise"}


@sample("pick")
def pick(rng):
    axis = int(rng.randint(-3, 3))
    shape = [3, 4, 5]
    index = floats(rng, *(shape[:axis] + shape[axis:][1:]), low=-3, high=8)
    return [floats(rng, *shape), index], {"axis": axis, "mode": ["clip", "wrap"][rng.randint(2)]}


@sample("pick")
def pick_keeping_axes(rng):
    return [floats(rng, 4, 6), integers(rng, 4, 1, low=0, high=6)], {"keepdims": True}


@sample("pick")
def pick_from_vector(rng):
    return [floats(rng, 4, dtype="float64"), np.array([2], "float32")], {"axis": 0}


@sample("pick")
def pick_from_integers(rng):
    return [integers(rng, 5, 3), integers(rng, 5, dtype="uint8", high=3)], {}


@sample("gather_nd")
def gather_rows(rng):
    return [floats(rng, 4, 3, 2), integers(rng, 2, 5, dtype="float32", low=-3, high=3)], {}


@sample("gather_nd")
def gather_elements(rng):
    index = np.stack([integers(rng, 2, 3, low=-n, high=n) for n in (4, 3, 2)])
    return [floats(rng, 4, 3, 2), index], {}


@sample("gather_nd")
def gather_with_one_index(rng):
    return [integers(rng, 4, 3, dtype="int8"), integers(rng, 1, 6, dtype="int64", low=0, high=4)], {}


@sample("scatter_nd")
def scatter_rows(rng):
    return [floats(rng, 3, 4), rng.permutation(5)[None, :3].astype("float32")], {"shape": (5, 4)}


@sample("scatter_nd")
def scatter_elements(rng):
    return [floats(rng, 3), np.array([[0, 2, 1], [1, 3, 0]], "int32")], {"shape": (3, 4)}


@sample("scatter_nd")
def scatter_integers(rng):
    return [integers(rng, 2, 2), np.array([[[2, 0], [1, 3]]], "int64")], {"shape": (4,)}


@sample("scatter_nd", oracle=False)  # MXNet leaves the result of equal indices open
def scatter_to_one_place(rng):
    return [floats(rng, 8, 2), integers(rng, 1, 8, low=0, high=3)], {"shape": (3, 2)}


@sample("_scatter_set_nd", oracle=False)  # of negative rows MXNet writes in front of the array
def scatter_set_nd(rng):
    return [floats(rng, 4, 3), floats(rng, 6, 3), integers(rng, 1, 6, low=-4, high=4)], {"shape": (4, 3)}


@sample("_scatter_set_nd")
def scatter_set_rows(rng):
    dtype = ["float32", "float64", "int32"][rng.randint(3)]
    rows = [floats(rng, 5, 3), floats(rng, 3, 3)]
    index = rng.permutation(5)[:3].reshape(1, 3).astype("int64")
    return [*(x.astype(dtype) for x in rows), index], {"shape": (5, 3)}


@sample("_scatter_set_nd")
def scatter_set_elements(rng):
    index = np.stack([rng.permutation(4), integers(rng, 4, low=0, high=3)]).astype("float32")
    return [floats(rng, 4, 3), np.array([np.nan, 1, -np.inf, 2], "float32"), index], {"shape": (4, 3)}


@sample("_scatter_set_nd", oracle=False)
def scatter_set_bools(rng):
    index = np.stack([integers(rng, 5, low=0, high=4), integers(rng, 5, low=0, high=3)])
    return [integers(rng, 4, 3, dtype="bool"), integers(rng, 5, dtype="bool"), index], {"shape": (4, 3)}


@sample("_contrib_index_copy")
def index_copy(rng):
    return [floats(rng, 5, 2), rng.permutation(5)[:3].astype("int32"), floats(rng, 3, 2)], {}


@sample("one_hot")
def one_hot(rng):
    return [floats(rng, 2, 3, low=-2, high=6)], {"depth": 4}


@sample("one_hot")
def one_hot_values(rng):
    dtype = ["int32", "float16", "float64", "uint8"][rng.randint(4)]
    return [integers(rng, 5, low=0, high=4)], {"depth": 3, "on_value": 5.0, "off_value": 1.0, "dtype": dtype}


@sample("one_hot")
def one_hot_of_bytes(rng):
    return [integers(rng, 6, dtype="uint8", high=256)], {"depth": 300}


@sample("_contrib_index_array")
def index_array(rng):
    return [floats(rng, 2, 3, 2)], {}


@sample("_contrib_index_array")
def index_array_axes(rng):
    return [floats(rng, 2, 3, 2)], {"axes": (2, 0)}


@sample("_ravel_multi_index")
def ravel(rng):
    return [np.stack([integers(rng, 5, dtype="float32", low=0, high=n) for n in (3, 4, 2)])], {"shape": (3, 4, 2)}


@sample("_ravel_multi_index")
def ravel_integers(rng):
    return [integers(rng, 2, 5, low=0, high=4)], {"shape": (-1, 4)}


@sample("_unravel_index")
def unravel(rng):
    return [integers(rng, 5, dtype="float32", low=0, high=24)], {"shape": (3, 4, 2)}


@sample("_unravel_index")
def unravel_integers(rng):
    return [integers(rng, 5, dtype="int64", low=0, high=99)], {"shape": (-1, 4)}


# Sequences


@sample("SequenceMask")
def mask(rng):
    lengths = integers(rng, 3, dtype="float32", low=0, high=6)
    return [floats(rng, 4, 3, 2), lengths], {"use_sequence_length": True, "value": -9.0}


@sample("SequenceMask")
def mask_batch_first(rng):
    attrs = {"use_sequence_length": True, "axis": 1}
    return [floats(rng, 3, 4, dtype="float64"), integers(rng, 3, low=0, high=5)], attrs


@sample("SequenceMask")
def mask_nothing(rng):
    return [floats(rng, 4, 3, 2)], {}


@sample("SequenceLast")
def last(rng):
    lengths = integers(rng, 3, dtype="float32", low=1, high=5)
    return [floats(rng, 4, 3, 2), lengths], {"use_sequence_length": True}


@sample("SequenceLast")
def last_batch_first(rng):
    attrs = {"use_sequence_length": True, "axis": 1}
    return [floats(rng, 3, 4, 2), integers(rng, 3, dtype="float32", low=1, high=5)], attrs


@sample("SequenceLast", "SequenceReverse")
def of_whole_sequences(rng):
    return [floats(rng, 4, 3, 2)], {}


@sample("SequenceReverse")
def reverse_sequences(rng):
    return [floats(rng, 4, 3, 2), integers(rng, 3, dtype="float32", low=0, high=5)], {"use_sequence_length": True}


@sample("SequenceReverse")
def reverse_sequences_along_time(rng):
    return [floats(rng, 4, 3), integers(rng, 3, dtype="float32", low=1, high=5)], {
        "use_sequence_length": True,
        "axis": 0,
    }


@sample("SequenceReverse")
def reverse_sequences_float64(rng):
    lengths = integers(rng, 3, dtype="float64", low=1, high=6)
    return [floats(rng, 5, 3, dtype="float64"), lengths], {"use_sequence_length": True}


# Creation


@sample("_zeros", "_ones")
def of_shape(rng):
    return [], {"shape": (2, 3)}


@sample("_zeros", "_ones")
def of_shape_and_type(rng):
    return [], {"shape": (2, 3, 1), "dtype": ["int32", "float16", "float64", "uint8", "bool"][rng.randint(5)]}


@sample("_full")
def full(rng):
    return [], {"shape": (2, 3), "value": 2.5}


@sample("_full")
def full_of_integers(rng):
    return [], {"shape": (4,), "value": float(rng.choice([-3.7, 2.9, 7.0])), "dtype": "int32"}


@sample("zeros_like", "ones_like")
def like(rng):
    return [floats(rng, 2, 3)], {}


@sample("zeros_like", "ones_like")
def like_integers(rng):
    return [integers(rng, 4, dtype=["int32", "uint8", "int64"][rng.randint(3)])], {}


@sample("zeros_like", "ones_like", oracle=False)
def like_nothing(rng):
    return [floats(rng, 3, 0)], {}


@sample("_arange")
def arange(rng):
    return [], {"start": 1.0, "stop": 5.5, "step": 1.5, "repeat": int(rng.randint(1, 3))}


@sample("_arange")
def arange_to(rng):
    return [], {"start": 7.0, "stop": None, "dtype": ["int32", "float64", "float32"][rng.randint(3)]}


@sample("_arange")
def arange_down(rng):
    return [], {"start": 5.0, "stop": 1.0, "step": -0.5}


@sample("_arange")
def arange_rounds_as_mxnet(rng):
    return [], {"start": 0.0, "stop": 50.0, "step": 0.1}


@sample("_linspace")
def linspace(rng):
    return [], {"start": 0.0, "stop": 10.0, "num": 7, "endpoint": bool(rng.randint(2))}


@sample("_linspace")
def linspace_of_integers(rng):
    return [], {"start": -3.0, "stop": 10.0, "num": 6, "dtype": "int32"}


@sample("_linspace")
def linspace_of_one(rng):
    return [], {"start": 2.0, "stop": 10.0, "num": 1, "dtype": "float64"}


@sample("_contrib_arange_like")
def arange_like(rng):
    return [floats(rng, 2, 3)], {"start": 2.0, "step": 3.0}


@sample("_contrib_arange_like")
def arange_like_axis(rng):
    return [floats(rng, 2, 5)], {"axis": int(rng.randint(-2, 2))}


@sample("_contrib_arange_like")
def arange_like_repeated(rng):
    return [floats(rng, 2, 5, dtype="float64")], {"axis": 1, "repeat": 2}


@sample("_eye")
def eye(rng):
    return [], {"N": 3, "M": int(rng.randint(0, 6)), "k": int(rng.randint(-3, 4))}


@sample("_eye")
def eye_of_integers(rng):
    return [], {"N": 4, "dtype": "int32"}


@sample("diag")
def diagonal(rng):
    return [floats(rng, 3, 5)], {"k": int(rng.randint(-2, 5))}


@sample("diag")
def diagonal_of_tensor(rng):
    axis1, axis2 = rng.permutation(3)[:2]
    return [floats(rng, 3, 4, 5)], {"k": int(rng.randint(-1, 2)), "axis1": int(axis1), "axis2": int(axis2) - 3}


@sample("diag")
def matrix_of_diagonal(rng):
    return [integers(rng, 4)], {"k": int(rng.randint(-2, 3))}
