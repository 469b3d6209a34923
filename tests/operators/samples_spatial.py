"""Samples of the operators that read images at computed places."""

import numpy as np

from .samples import floats, sample, uniform

# Grids


@sample("GridGenerator")
def affine_grid(rng):
    return [floats(rng, 2, 6)], {"transform_type": "affine", "target_shape": (3, 4)}


@sample("GridGenerator")
def affine_grid_of_one_row(rng):
    return [floats(rng, 1, 6)], {"transform_type": "affine", "target_shape": (1, 2)}


@sample("GridGenerator")
def warp_grid(rng):
    return [floats(rng, 2, 2, 3, 5)], {"transform_type": "warp"}


@sample("GridGenerator", oracle=False)  # float32 only
def warp_grid_float64(rng):
    return [floats(rng, 1, 2, 2, 3, dtype="float64")], {"transform_type": "warp"}


@sample("BilinearSampler")
def sampler(rng):
    return [floats(rng, 2, 3, 4, 5), floats(rng, 2, 2, 3, 6, low=-1.4, high=1.4)], {}


@sample("BilinearSampler")
def sampler_on_pixels(rng):
    grid = np.round(floats(rng, 1, 2, 4, 4, low=-1.2, high=1.2) * 2) / 2
    return [floats(rng, 1, 2, 5, 5), grid], {}


@sample("BilinearSampler")
def sampler_float64(rng):
    return [floats(rng, 1, 2, 3, 3, dtype="float64"), floats(rng, 1, 2, 2, 2, dtype="float64", low=-1, high=1)], {}


@sample("BilinearSampler")
def sampler_of_special(rng):
    data = floats(rng, 1, 1, 3, 3)
    data[0, 0, 0, 1], data[0, 0, 2, 2] = np.nan, np.inf
    return [data, floats(rng, 1, 2, 4, 4, low=-1, high=1)], {}


@sample("BilinearSampler", oracle=False)
def sampler_at_nan(rng):
    grid = floats(rng, 1, 2, 2, 2)
    grid[0, 0, 0, 0], grid[0, 1, 1, 1] = np.nan, np.inf
    return [floats(rng, 1, 2, 3, 3), grid], {}


WARP = {"transform_type": "affine", "sampler_type": "bilinear"}


@sample("SpatialTransformer")
def transformer(rng):
    return [floats(rng, 2, 3, 4, 5), floats(rng, 2, 6, low=-1, high=1)], {**WARP, "target_shape": (3, 4)}


@sample("SpatialTransformer")
def transformer_identity(rng):
    return [floats(rng, 1, 2, 4, 4), np.array([[1, 0, 0, 0, 1, 0]], "float32")], {**WARP, "target_shape": (4, 4)}


@sample("SpatialTransformer")
def transformer_float64(rng):
    inputs = [floats(rng, 1, 1, 3, 6, dtype="float64"), floats(rng, 1, 6, dtype="float64", low=-1, high=1)]
    return inputs, {**WARP, "target_shape": (5, 2)}


# Regions


def regions(rng, count, images, extent, dtype="float32"):
    """Rows (image, left, top, right, bottom), some of them reaching out of the image."""
    ends = np.sort(uniform(rng, -2, extent + 2, (count, 2, 2)), 1).reshape(count, 4)
    return np.concatenate([rng.randint(0, images, (count, 1)), ends], 1).astype(dtype)


@sample("ROIPooling")
def pooled_regions(rng):
    return [floats(rng, 2, 3, 9, 7), regions(rng, 5, 2, 9)], {"pooled_size": (2, 3), "spatial_scale": 1.0}


@sample("ROIPooling")
def pooled_regions_scaled(rng):
    return [floats(rng, 1, 2, 5, 8), regions(rng, 4, 1, 30)], {"pooled_size": (3, 3), "spatial_scale": 0.25}


@sample("ROIPooling")
def pooled_regions_float64(rng):
    inputs = [floats(rng, 2, 1, 4, 4, dtype="float64"), regions(rng, 3, 2, 4, dtype="float64")]
    return inputs, {"pooled_size": (1, 1), "spatial_scale": 0.5}


@sample("ROIPooling")
def pooled_regions_turned_around(rng):
    rois = regions(rng, 3, 1, 6)
    return [floats(rng, 1, 2, 6, 6), rois[:, [0, 3, 4, 1, 2]]], {"pooled_size": (2, 2), "spatial_scale": 1.0}


@sample("ROIPooling", oracle=False)  # MXNet drops NaN
def pooled_nan(rng):
    data = floats(rng, 1, 2, 6, 6)
    data[0, 0, 3, 3] = np.nan
    return [data, np.array([[0, 0, 0, 5, 5]], "float32")], {"pooled_size": (2, 2), "spatial_scale": 1.0}


@sample("ROIPooling", "_contrib_ROIAlign", oracle=False)
def no_regions(rng):
    return [floats(rng, 1, 2, 6, 6), floats(rng, 0, 5)], {"pooled_size": (2, 2), "spatial_scale": 1.0}


@sample("_contrib_ROIAlign")
def aligned_regions(rng):
    attrs = {"pooled_size": (2, 3), "spatial_scale": 0.5, "sample_ratio": 2}
    return [floats(rng, 2, 3, 7, 6), regions(rng, 5, 2, 14)], attrs


@sample("_contrib_ROIAlign")
def aligned_regions_adaptive(rng):
    return [floats(rng, 2, 2, 9, 8), regions(rng, 4, 2, 9)], {"pooled_size": (2, 2), "spatial_scale": 1.0}


@sample("_contrib_ROIAlign")
def aligned_regions_of_many_samples(rng):
    attrs = {"pooled_size": (1, 2), "spatial_scale": 1.0, "sample_ratio": 4, "aligned": True}
    return [floats(rng, 1, 2, 5, 5, dtype="float64"), regions(rng, 3, 1, 5, dtype="float64")], attrs


@sample("_contrib_ROIAlign")
def aligned_regions_by_position(rng):
    attrs = {"pooled_size": (2, 3), "spatial_scale": 1.0, "sample_ratio": 1, "position_sensitive": True}
    return [floats(rng, 2, 12, 5, 5), regions(rng, 3, 2, 5)], attrs


@sample("_contrib_ROIAlign")
def aligned_regions_with_nan(rng):
    data = floats(rng, 1, 2, 6, 6)
    data[0, 0, 4, 4] = np.nan
    rois = np.array([[0, 0.2, 0.2, 5.5, 5.5], [0, 0, 0, 2.2, 2.2]], "float32")
    return [data, rois], {"pooled_size": (2, 2), "spatial_scale": 1.0, "sample_ratio": 2}


@sample("_contrib_ROIAlign", oracle=False)  # MXNet leaves them unset
def aligned_regions_of_no_image(rng):
    rois = regions(rng, 3, 1, 6)
    rois[1, 0] = -1
    return [floats(rng, 1, 2, 6, 6), rois], {"pooled_size": (2, 2), "spatial_scale": 1.0}


@sample("_contrib_ROIAlign", oracle=False)
def aligned_regions_without_end(rng):
    rois = regions(rng, 3, 1, 4)
    rois[1, 3], rois[2, 2] = np.inf, np.nan
    return [floats(rng, 1, 2, 4, 4), rois], {"pooled_size": (1, 1), "spatial_scale": 1.0}


@sample("_contrib_PSROIPooling")
def regions_by_position(rng):
    attrs = {"spatial_scale": 0.5, "output_dim": 2, "pooled_size": 3}
    return [floats(rng, 2, 18, 7, 6), regions(rng, 5, 2, 14)], attrs


@sample("_contrib_PSROIPooling")
def regions_by_position_of_groups(rng):
    """Fewer groups than cells, more channels than are read, regions turned around and outside of the image."""
    rois = regions(rng, 4, 1, 5)
    rois[0] = rois[0, [0, 3, 4, 1, 2]]
    rois[1, 1:] += 20
    return [floats(rng, 1, 14, 5, 8), rois], {"spatial_scale": 1, "output_dim": 3, "pooled_size": 3, "group_size": 2}


@sample("_contrib_PSROIPooling")
def regions_by_position_float64(rng):
    """Borders of half a pixel, and a region within one."""
    rois = np.array([[1, 0.5, 1.5, 2.5, 3.5], [0, 2, 2, 2, 2], [0, 0, 0, 3, 3]], "float64")
    attrs = {"spatial_scale": 1.0, "output_dim": 1, "pooled_size": 2, "group_size": 3}
    return [floats(rng, 2, 9, 4, 4, dtype="float64"), rois], attrs


@sample("_contrib_PSROIPooling")
def regions_by_position_with_nan(rng):
    data = floats(rng, 1, 4, 6, 6)
    data[0, 0, 1, 1], data[0, 3, 4, 4] = np.nan, np.inf
    rois = np.array([[0, 0, 0, 5, 5], [0, 3, 3, 5, 5], [0, 0, 3, 2, 5]], "float32")
    return [data, rois], {"spatial_scale": 1.0, "output_dim": 1, "pooled_size": 2}


PARTS = {"spatial_scale": 1.0, "output_dim": 2, "group_size": 2, "pooled_size": 2, "trans_std": 0.2}


@sample("_contrib_DeformablePSROIPooling")
def moved_regions(rng):
    inputs = [floats(rng, 2, 8, 6, 7), regions(rng, 4, 2, 7), floats(rng, 4, 2, 2, 2, low=-1, high=1)]
    return inputs, {**PARTS, "sample_per_part": 2}


@sample("_contrib_DeformablePSROIPooling")
def moved_regions_by_class(rng):
    """Fewer parts than cells, and both outputs in two classes."""
    inputs = [floats(rng, 1, 4, 5, 9), regions(rng, 3, 1, 20), floats(rng, 3, 4, 2, 2, low=-1, high=1)]
    attrs = {"group_size": 1, "output_dim": 4, "pooled_size": 3, "part_size": 2, "sample_per_part": 4}
    return inputs, {**PARTS, **attrs, "spatial_scale": 0.25}


@sample("_contrib_DeformablePSROIPooling")
def regions_that_stay(rng):
    inputs = [floats(rng, 1, 8, 6, 6, dtype="float64"), regions(rng, 3, 1, 6, dtype="float64")]
    return inputs, {**PARTS, "pooled_size": 3, "sample_per_part": 3, "no_trans": True}


@sample("_contrib_DeformablePSROIPooling")
def moved_regions_with_nan(rng):
    """Samples on a pixel see no other one."""
    data = floats(rng, 1, 2, 6, 6)
    data[0, 0, 2, 3] = np.nan
    rois = np.array([[0, 0, 0, 5, 5], [0, 40, 40, 50, 50], [0, 4, 4, 5, 5]], "float32")
    return [data, rois, np.zeros((3, 2, 2, 2), "float32")], {**PARTS, "group_size": 1, "sample_per_part": 1}


def turned(rng, count, images, extent, dtype="float32"):
    """Rows (image, middle, width and height, degrees), some of them reaching out of the image."""
    parts = [
        rng.randint(0, images, (count, 1)),
        uniform(rng, 0, extent, (count, 2)),
        uniform(rng, 0.2, extent, (count, 2)),
    ]
    return np.concatenate([*parts, uniform(rng, -180, 180, (count, 1))], 1).astype(dtype)


@sample("_contrib_RROIAlign")
def turned_regions(rng):
    attrs = {"pooled_size": (2, 3), "spatial_scale": 0.5, "sampling_ratio": 2}
    return [floats(rng, 2, 3, 7, 6), turned(rng, 5, 2, 14)], attrs


@sample("_contrib_RROIAlign")
def turned_regions_adaptive(rng):
    return [floats(rng, 2, 2, 9, 8), turned(rng, 4, 2, 9)], {"pooled_size": (2, 2), "spatial_scale": 1.0}


@sample("_contrib_RROIAlign")
def turned_regions_float64(rng):
    """Not turned, by a right angle, smaller than a pixel, and far outside."""
    rois = [[0, 2, 2, 3, 2, 0], [0, 2, 2, 3, 2, 90], [1, 1.5, 2.5, 0.1, 0.2, 30], [1, 50, -50, 3, 3, 45]]
    attrs = {"pooled_size": (3, 1), "spatial_scale": 1.0, "sampling_ratio": 3}
    return [floats(rng, 2, 2, 5, 5, dtype="float64"), np.array(rois, "float64")], attrs


@sample("_contrib_PSROIPooling", oracle=False)
def no_regions_by_position(rng):
    return [floats(rng, 1, 4, 3, 3), floats(rng, 0, 5)], {"spatial_scale": 1.0, "output_dim": 1, "pooled_size": 2}


@sample("_contrib_DeformablePSROIPooling", oracle=False)
def no_moved_regions(rng):
    return [floats(rng, 1, 8, 3, 3), floats(rng, 0, 5), floats(rng, 0, 2, 2, 2)], PARTS


@sample("_contrib_RROIAlign", oracle=False)
def no_turned_regions(rng):
    return [floats(rng, 1, 2, 6, 6), floats(rng, 0, 6)], {"pooled_size": (2, 2), "spatial_scale": 1.0}


# Deformable convolutions


def deformed(rng, masked, kernel=(3, 3), groups=1, parts=1, no_bias=False, dtype="float32", spread=2.0, **more):
    """Inputs and attributes; the images are 6 x 7 and have 4 channels."""
    stride, pad, dilate = (more.get(key, (default,) * 2) for key, default in (("stride", 1), ("pad", 0), ("dilate", 1)))
    extents = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip((6, 7), kernel, stride, pad, dilate)]
    taps = kernel[0] * kernel[1] * parts
    inputs = [
        floats(rng, 2, 4, 6, 7, dtype=dtype),
        floats(rng, 2, 2 * taps, *extents, dtype=dtype, low=-spread, high=spread),
        *([floats(rng, 2, taps, *extents, dtype=dtype)] if masked else []),
        floats(rng, 6, 4 // groups, *kernel, dtype=dtype),
        *([] if no_bias else [floats(rng, 6, dtype=dtype)]),
    ]
    attrs = {"kernel": kernel, "num_filter": 6, "num_group": groups, "num_deformable_group": parts, **more}
    return inputs, {**attrs, "no_bias": no_bias}


DEFORMABLE = {"_contrib_DeformableConvolution": False, "_contrib_ModulatedDeformableConvolution": True}

for _name, _masked in DEFORMABLE.items():

    @sample(_name)
    def deformable(rng, masked=_masked):
        return deformed(rng, masked, pad=(1, 1))

    @sample(_name)
    def deformable_in_groups(rng, masked=_masked):
        return deformed(rng, masked, groups=2, parts=2, no_bias=True, stride=(2, 1), dilate=(1, 2))

    @sample(_name)
    def deformable_far_away(rng, masked=_masked):
        return deformed(rng, masked, kernel=(2, 1), parts=2, spread=9, dtype="float64", pad=(0, 1))

    @sample(_name)
    def deformable_by_halves(rng, masked=_masked):
        inputs, attrs = deformed(rng, masked, kernel=(1, 2), pad=(1, 0))
        inputs[1] = np.round(inputs[1] * 2) / 2
        return inputs, attrs

    @sample(_name)
    def deformable_of_nothing(rng, masked=_masked):
        inputs, attrs = deformed(rng, masked)
        inputs[1][:] = 0
        return inputs, attrs


# Correlation


@sample("Correlation")
def correlation(rng):
    attrs = {"kernel_size": 1, "max_displacement": 2, "stride1": 1, "stride2": 1, "pad_size": 2}
    return [floats(rng, 2, 3, 5, 6), floats(rng, 2, 3, 5, 6)], attrs


@sample("Correlation")
def correlation_with_strides(rng):
    attrs = {"kernel_size": 3, "max_displacement": 3, "stride1": 2, "stride2": 2, "pad_size": 4}
    return [floats(rng, 1, 2, 6, 7), floats(rng, 1, 2, 6, 7)], attrs


@sample("Correlation")
def correlation_of_differences(rng):
    attrs = {"kernel_size": 3, "max_displacement": 1, "is_multiply": False}
    return [floats(rng, 1, 2, 7, 6, dtype="float64"), floats(rng, 1, 2, 7, 6, dtype="float64")], attrs


@sample("Correlation")
def correlation_with_nan(rng):
    first = floats(rng, 1, 1, 4, 4)
    first[0, 0, 1, 2] = np.nan
    return [first, floats(rng, 1, 1, 4, 4)], {"pad_size": 1}
