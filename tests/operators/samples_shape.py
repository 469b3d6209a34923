"""Samples of the operators that reshape, reorder, repeat, join, cut, pad and resize."""

import numpy as np

from .samples import floats, integers, sample

# Shapes


@sample("Reshape")
def reshape_codes(rng):
    shapes = [(0, -1), (-3, 4), (-2, 1, 1), (0, -3), (-4, 1, 2, -2), (0, -4, -1, 3, -2), (-1,), (-3, -2), (4, 0, -1)]
    return [floats(rng, 2, 3, 4)], {"shape": shapes[rng.randint(len(shapes))]}


@sample("Reshape")
def reshape_reverse(rng):
    shapes = [(-1, 0, 0), (-3, 0), (-1, -3), (0, -1, 20), (-2, 5)]
    return [floats(rng, 2, 3, 4, 5)], {"shape": shapes[rng.randint(len(shapes))], "reverse": True}


@sample("Reshape")
def reshape_split_and_merge(rng):
    return [integers(rng, 6, 8, 2, 5)], {"shape": (-4, 2, -1, -4, -1, 4, -3)}


@sample("Reshape")
def reshape_deprecated(rng):
    return [floats(rng, 2, 3, 4)], {"target_shape": (0, 12), "keep_highest": bool(rng.randint(2))}


@sample("Reshape", oracle=False)
def reshape_of_nothing(rng):
    return [floats(rng, 2, 0, 3)], {"shape": (3, -1)}


@sample("Flatten", "shape_array", "size_array")
def three_axes(rng):
    return [floats(rng, 2, 3, 4)], {}


@sample("Flatten", "shape_array", "size_array")
def one_axis(rng):
    return [integers(rng, 5)], {}


@sample("Flatten", "shape_array", "size_array")
def a_matrix(rng):
    return [floats(rng, 3, 2, dtype="float64")], {}


@sample("reshape_like")
def reshape_like(rng):
    return [floats(rng, 2, 6), integers(rng, 3, 4)], {}


@sample("reshape_like")
def reshape_like_axes(rng):
    return [floats(rng, 30, 7), floats(rng, 15, 2, 4)], {"lhs_begin": 0, "lhs_end": 1, "rhs_begin": 0, "rhs_end": 2}


@sample("reshape_like")
def reshape_like_from_the_end(rng):
    return [floats(rng, 30, 12), floats(rng, 4, 2, 2, 3)], {"lhs_begin": -1, "rhs_begin": 1}


@sample("transpose")
def transpose(rng):
    return [floats(rng, 2, 3, 4, 5)], {"axes": tuple(int(a) for a in rng.permutation(4))}


@sample("transpose")
def transpose_all(rng):
    return [integers(rng, 2, 3, 4)], {}


@sample("transpose", oracle=False)
def transpose_nothing(rng):
    return [floats(rng, 2, 0, 3)], {"axes": (2, 0, -2)}


@sample("SwapAxis")
def swap(rng):
    first, second = rng.randint(-4, 4, 2)
    return [floats(rng, 2, 3, 4, 5)], {"dim1": int(first), "dim2": int(second)}


@sample("expand_dims")
def expand_dims(rng):
    return [floats(rng, 2, 3)], {"axis": int(rng.randint(-3, 3))}


@sample("squeeze")
def squeeze_all(rng):
    return [floats(rng, 1, 2, 1, 3)], {}


@sample("squeeze")
def squeeze_some(rng):
    return [integers(rng, 1, 2, 1, 3)], {"axis": [(0, 2), 2, (-2,), ()][rng.randint(4)]}


@sample("squeeze")
def squeeze_two(rng):
    return [floats(rng, 1, 2, 1, 3)], {"axis": (0, 2)}


@sample("squeeze")
def squeeze_to_one_axis(rng):
    return [floats(rng, 1, 1)], {}


@sample("depth_to_space", "space_to_depth")
def blocks_of_two(rng):
    return [floats(rng, 2, 8, 4, 6)], {"block_size": 2}


@sample("depth_to_space", "space_to_depth")
def blocks_of_three(rng):
    return [floats(rng, 1, 9, 3, 6, dtype="float64")], {"block_size": 3}


@sample("depth_to_space", "space_to_depth")
def blocks_of_one(rng):
    return [floats(rng, 1, 3, 2, 2)], {"block_size": 1}


# Repetition


@sample("broadcast_to")
def broadcast_to(rng):
    return [floats(rng, 1, 3, 1)], {"shape": (2, 0, 4)}


@sample("broadcast_to")
def broadcast_to_same(rng):
    return [integers(rng, 2, 3)], {"shape": (2, 3)}


@sample("broadcast_axis")
def broadcast_axes(rng):
    return [floats(rng, 1, 2, 1)], {"axis": (0, 2), "size": (3, 4)}


@sample("broadcast_axis")
def broadcast_one_axis(rng):
    return [floats(rng, 2, 1)], {"axis": 1, "size": 5}


@sample("broadcast_like")
def broadcast_like(rng):
    return [floats(rng, 1, 3, 1), integers(rng, 2, 3, 4)], {}


@sample("broadcast_like")
def broadcast_like_axes(rng):
    return [floats(rng, 1, 9), floats(rng, 2, 4, 5)], {"lhs_axes": (-2,), "rhs_axes": (-1,)}


@sample("tile")
def tile(rng):
    return [floats(rng, 2, 3)], {"reps": [(2, 2), (3,), (2, 1, 2), (1, 1), (), (1, 4)][rng.randint(6)]}


@sample("tile")
def tile_with_new_axes(rng):
    return [integers(rng, 3)], {"reps": (2, 1, 2)}


@sample("repeat")
def repeat(rng):
    return [floats(rng, 2, 3, 2)], {"repeats": int(rng.randint(1, 4)), "axis": int(rng.randint(-3, 3))}


@sample("repeat")
def repeat_flat(rng):
    return [integers(rng, 2, 3)], {"repeats": 2}


@sample("repeat", oracle=False)
def repeat_not_at_all(rng):
    return [floats(rng, 2, 3)], {"repeats": 0, "axis": 1}


@sample("UpSampling")
def upsampling_nearest(rng):
    return [floats(rng, 2, 3, 2, 4)], {"scale": int(rng.randint(1, 4)), "sample_type": "nearest", "num_args": 1}


@sample("UpSampling")
def upsampling_joined(rng):
    attrs = {"scale": 4, "sample_type": "nearest", "num_args": 3}
    return [floats(rng, 1, 2, 2, 2), floats(rng, 1, 1, 4, 4), floats(rng, 1, 3, 8, 8)], attrs


@sample("UpSampling")
def upsampling_added(rng):
    attrs = {"scale": 2, "sample_type": "nearest", "multi_input_mode": "sum", "num_args": 2}
    return [floats(rng, 1, 2, 2, 3), floats(rng, 1, 2, 4, 6)], attrs


@sample("UpSampling")
def upsampling_bilinear(rng):
    scale = int(rng.randint(2, 4))
    side = 2 * scale - scale % 2
    attrs = {"scale": scale, "sample_type": "bilinear", "num_filter": 3, "num_args": 2}
    return [floats(rng, 2, 3, 3, 2), floats(rng, 3, 1, side, side)], attrs


# Joining and taking apart


@sample("Concat")
def concat(rng):
    return [floats(rng, 2, n, 3) for n in (1, 4, 2)], {"num_args": 3}


@sample("Concat")
def concat_first(rng):
    return [integers(rng, n, 3) for n in (2, 1)], {"num_args": 2, "dim": 0}


@sample("Concat")
def concat_last(rng):
    return [floats(rng, 2, n, dtype="float64") for n in (2, 3, 1, 1)], {"num_args": 4, "dim": -1}


@sample("Concat")
def concat_one(rng):
    return [floats(rng, 2, 3)], {"num_args": 1, "dim": 1}


@sample("Concat", oracle=False)
def concat_with_nothing(rng):
    return [floats(rng, 2, 0), floats(rng, 2, 3)], {"num_args": 2}


@sample("_rnn_param_concat")
def rnn_param_concat(rng):
    return [floats(rng, n) for n in (4, 6, 2)], {"num_args": 3, "dim": 0}


@sample("stack")
def stack(rng):
    return [floats(rng, 2, 3) for _ in range(3)], {"num_args": 3, "axis": int(rng.randint(-3, 3))}


@sample("stack")
def stack_one(rng):
    return [integers(rng, 4)], {"num_args": 1}


@sample("SliceChannel")
def split(rng):
    return [floats(rng, 2, 6, 3)], {"num_outputs": [2, 3, 6][rng.randint(3)]}


@sample("SliceChannel")
def split_and_squeeze(rng):
    return [floats(rng, 3, 2, 4)], {"num_outputs": 4, "axis": -1, "squeeze_axis": True}


@sample("SliceChannel")
def split_into_one(rng):
    return [floats(rng, 3, 1, dtype="float64")], {"num_outputs": 1, "axis": 0}


@sample("SliceChannel", oracle=False)
def split_completely(rng):
    return [floats(rng, 3)], {"num_outputs": 3, "axis": 0, "squeeze_axis": True}


@sample("_split_v2")
def split_at(rng):
    return [floats(rng, 4, 5)], {"indices": (0, 2, 3)}


@sample("_split_v2")
def split_in_sections(rng):
    return [floats(rng, 4, 6)], {"indices": (), "axis": int(rng.randint(0, 2)), "sections": 2}


@sample("_split_v2")
def split_in_rows(rng):
    return [floats(rng, 3, 4)], {"indices": (0, 1, 2), "axis": 0, "squeeze_axis": True}


@sample("_split_v2", oracle=False)
def split_with_empty_part(rng):
    return [floats(rng, 3, 4)], {"indices": (0, 0, 3), "axis": 1}


# Cutting and padding

SLICES = [
    {"begin": (1,), "end": (3,)},
    {"begin": (None, 1), "end": (None, -1)},
    {"begin": (2, 3), "end": (None, 0), "step": (-1, -2)},
    {"begin": (None, None), "end": (None, None), "step": (2, -3)},
    {"begin": (0, 1, 1), "end": (9, 5, None), "step": (2, 2, 1)},
    {"begin": (), "end": ()},
]


@sample("slice")
def slices(rng):
    return [floats(rng, 3, 5, 2)], SLICES[rng.randint(len(SLICES))]


@sample("slice")
def slice_backwards(rng):
    return [integers(rng, 4, 6)], {"begin": (None, 4), "end": (None, None), "step": (-1, -2)}


@sample("slice", oracle=False)
def slice_of_nothing(rng):
    return [floats(rng, 3, 5)], {"begin": (0, 3), "end": (2, 1)}


@sample("_slice_assign")
def slice_assign(rng):
    return [floats(rng, 4, 5), floats(rng, 2, 2)], {"begin": (0, 1), "end": (2, 3)}


@sample("_slice_assign")
def slice_assign_backwards(rng):
    return [integers(rng, 3, 4), integers(rng, 2, 2)], {"begin": (2, None), "end": (0, None), "step": (-1, 2)}


@sample("_slice_assign")
def slice_assign_everything(rng):
    return [floats(rng, 3, 4), floats(rng, 3, 4)], {"begin": (), "end": ()}


@sample("_slice_assign", oracle=False)
def slice_assign_nothing(rng):
    return [floats(rng, 3, 4), floats(rng, 0, 4)], {"begin": (1,), "end": (1,)}


@sample("_slice_assign_scalar")
def slice_assign_scalar(rng):
    return [floats(rng, 4, 5)], {"begin": (0, 1), "end": (2, 4), "step": (1, 2), "scalar": 7.5}


@sample("_slice_assign_scalar")
def slice_assign_scalar_int(rng):
    return [integers(rng, 4, 5)], {"begin": (1,), "end": (3,), "scalar": 9.7}


@sample("slice_axis")
def slice_axis(rng):
    begin, end = [(1, None), (-3, -1), (0, 2), (2, 4)][rng.randint(4)]
    return [floats(rng, 4, 5, 6)], {"axis": int(rng.randint(-3, 3)), "begin": begin, "end": end}


@sample("slice_like")
def slice_like(rng):
    return [floats(rng, 4, 5), integers(rng, 2, 5)], {}


@sample("slice_like")
def slice_like_axes(rng):
    return [floats(rng, 4, 5, 2), floats(rng, 2, 3)], {"axes": (0, 1)}


@sample("slice_like")
def slice_like_last(rng):
    return [floats(rng, 4, 5), floats(rng, 9, 3)], {"axes": (-1,)}


@sample("Crop")
def crop_like(rng):
    return [floats(rng, 1, 2, 5, 6), floats(rng, 1, 1, 3, 2)], {"num_args": 2, "offset": (1, 3)}


@sample("Crop")
def crop_to_size(rng):
    return [floats(rng, 2, 1, 5, 6)], {"num_args": 1, "h_w": (2, 4), "offset": (3, 0)}


@sample("Crop")
def crop_the_middle(rng):
    return [floats(rng, 1, 2, 6, 5)], {"num_args": 1, "h_w": (3, 2), "center_crop": True}


@sample("Pad")
def pad_constant(rng):
    return [floats(rng, 2, 3, 4, 2)], {"mode": "constant", "pad_width": (0, 0, 0, 0, 1, 0, 2, 3), "constant_value": 1.5}


@sample("Pad")
def pad_edge(rng):
    return [floats(rng, 2, 3, 4, 2)], {"mode": "edge", "pad_width": (0, 0, 0, 0, 1, 0, 2, 5)}


@sample("Pad")
def pad_reflect(rng):
    return [floats(rng, 2, 1, 4, 3, dtype="float64")], {"mode": "reflect", "pad_width": (0, 0, 0, 0, 3, 1, 0, 2)}


@sample("Pad")
def pad_volume(rng):
    mode = ["constant", "edge", "reflect"][rng.randint(3)]
    return [floats(rng, 1, 2, 3, 4, 3)], {"mode": mode, "pad_width": (0, 0, 0, 0, 1, 2, 3, 0, 0, 1)}


@sample("Pad")
def pad_with_minus_infinity(rng):
    attrs = {"mode": "constant", "pad_width": (0, 0, 0, 0, 0, 1, 0, 1), "constant_value": -np.inf}
    return [floats(rng, 1, 2, 3, 3)], attrs


@sample("reverse")
def reverse(rng):
    return [floats(rng, 2, 3, 4)], {"axis": [(0,), 2, (0, 2), (1, 1), ()][rng.randint(5)]}


@sample("reverse")
def reverse_integers(rng):
    return [integers(rng, 5, 2, dtype="uint8")], {"axis": 0}


# Resizing


@sample("_contrib_BilinearResize2D")
def bilinear_resize(rng):
    height, width = (int(n) for n in rng.randint(1, 9, 2))
    return [floats(rng, 2, 3, 4, 5)], {"height": height, "width": width, "align_corners": bool(rng.randint(2))}


@sample("_contrib_BilinearResize2D")
def bilinear_resize_by_factors(rng):
    mode = ["size", "odd_scale"][rng.randint(2)]
    return [floats(rng, 1, 2, 3, 4)], {"scale_height": 2.5, "scale_width": 0.5, "mode": mode}


@sample("_contrib_BilinearResize2D")
def bilinear_resize_like(rng):
    return [floats(rng, 1, 2, 3, 4), floats(rng, 1, 1, 5, 7)], {"mode": "like"}


@sample("_contrib_BilinearResize2D")
def bilinear_resize_rounded(rng):
    mode = ["to_even_down", "to_even_up", "to_odd_down", "to_odd_up"][rng.randint(4)]
    return [floats(rng, 1, 2, 5, 4)], {"mode": mode}


@sample("_contrib_BilinearResize2D")
def bilinear_resize_float16(rng):
    return [floats(rng, 1, 2, 3, 4, dtype="float16")], {"height": 5, "width": 3}


@sample("_contrib_BilinearResize2D")
def resize_to_one_point(rng):
    return [floats(rng, 1, 2, 4, 3)], {"height": 1, "width": 2, "align_corners": False}


@sample("_contrib_BilinearResize2D")
def resize_by_scales_of_float32(rng):
    return [floats(rng, 1, 1, 100, 2)], {"mode": "size", "scale_height": 0.29, "scale_width": 1.5}


@sample("_contrib_AdaptiveAvgPooling2D")
def adaptive_pooling(rng):
    return [floats(rng, 2, 3, 5, 7)], {"output_size": tuple(int(n) for n in rng.randint(1, 9, 2))}


@sample("_contrib_AdaptiveAvgPooling2D")
def adaptive_pooling_even(rng):
    return [floats(rng, 2, 3, 4, 6)], {"output_size": (2, 3)}


@sample("_contrib_AdaptiveAvgPooling2D")
def adaptive_pooling_to_one(rng):
    return [floats(rng, 2, 3, 7, 7, dtype="float64")], {}


@sample("_contrib_AdaptiveAvgPooling2D")
def adaptive_pooling_with_infinity(rng):
    data = floats(rng, 1, 2, 5, 5)
    data[0, 0, 0, 0] = np.inf
    return [data], {"output_size": 3}
