"""Samples of the operators on images."""

import numpy as np

from .samples import floats, sample, uniform


def picture(rng, *shape, dtype="float32"):
    """Colors from 0 to 255."""
    return rng.randint(0, 256, shape).astype(dtype)


@sample("_image_to_tensor")
def image(rng):
    return [picture(rng, 6, 5, 3, dtype=["uint8", "float32"][rng.randint(2)])], {}


@sample("_image_to_tensor")
def batch(rng):
    return [picture(rng, 2, 4, 3, 1, dtype="uint8")], {}


@sample("_image_normalize")
def each_channel(rng):
    return [floats(rng, 3, 4, 5)], {"mean": (0.1, 0.2, 0.3), "std": (0.5, 2.0, 4.0)}


@sample("_image_normalize")
def one_for_all(rng):
    return [floats(rng, 2, 3, 4, 5)], {"mean": (0.5,), "std": (0.25,)}


@sample("_image_crop")
def crop(rng):
    return [picture(rng, 6, 7, 3, dtype="uint8")], {"x": 2, "y": 1, "width": 4, "height": 5}


@sample("_image_crop")
def crop_batch(rng):
    return [picture(rng, 2, 6, 7, 3)], {"x": 0, "y": 3, "width": 7, "height": 1}


# MXNet interpolates whole numbers in fixed point, so that some are off by one.
@sample("_image_resize", oracle=False)
def whole_numbers(rng):
    return [picture(rng, 6, 5, 3, dtype="uint8")], {"size": (7, 4), "interp": int(rng.randint(5))}


@sample("_image_resize")
def to_size(rng):
    return [picture(rng, 6, 5, 3)], {"size": (7, 4), "interp": int(rng.randint(5))}


@sample("_image_resize")
def shorter_edge(rng):
    return [picture(rng, 7, 10, 3)], {"size": (4,), "keep_ratio": True, "interp": int(rng.randint(5))}


@sample("_image_resize")
def batch_to_square(rng):
    return [picture(rng, 2, 4, 6, 3)], {"size": (5,)}


for _interp in range(5):

    @sample("_cvimresize")
    def smaller(rng, interp=_interp):
        return [picture(rng, 9, 12, 3)], {"w": 5, "h": 4, "interp": interp}

    @sample("_cvimresize")
    def larger(rng, interp=_interp):
        return [picture(rng, 4, 5, 1)], {"w": 11, "h": 9, "interp": interp}

    @sample("_cvimresize")
    def wider(rng, interp=_interp):
        return [picture(rng, 6, 4, 3)], {"w": 9, "h": 4, "interp": interp}


# Of an odd number of columns MXNet leaves the middle one unset.
@sample("_image_flip_left_right", "_image_flip_top_bottom")
def flip(rng):
    return [picture(rng, 4, 6, 3, dtype="uint8")], {}


@sample("_image_random_flip_left_right", "_image_random_flip_top_bottom", oracle=False)
def flip_at_random(rng):
    return [picture(rng, 4, 5, 3)], {}


def symmetric(x):
    x = np.maximum(x, x[::-1])
    return np.maximum(x, x[:, ::-1])


# Where extents are odd, MXNet leaves the row or column in the middle as it finds it.
@sample("_image_random_flip_left_right", "_image_random_flip_top_bottom")
def flip_what_is_symmetric(rng):
    return [symmetric(picture(rng, 4, 6, 3, dtype=["float32", "uint8"][rng.randint(2)]))], {}


@sample("_image_random_flip_left_right", "_image_random_flip_top_bottom")
def flip_of_nan(rng):
    x = picture(rng, 4, 2, 1)
    x[1, 1], x[0, 0] = np.nan, np.inf
    return [symmetric(x)], {}


COLORS = tuple(f"_image_random_{name}" for name in ("brightness", "contrast", "hue"))
SATURATION = "_image_random_saturation"  # MXNet's is wrong: docs/differences.md


@sample(*COLORS, oracle=False)
@sample(SATURATION, oracle=False)
def color_at_random(rng):
    return [picture(rng, 4, 5, 3)], {"min_factor": 0.5, "max_factor": 1.5}


# With equal bounds nothing is random.
@sample(*COLORS)
@sample(SATURATION, oracle=False)
def color_by_a_factor(rng):
    return [picture(rng, 4, 5, 3)], dict.fromkeys(("min_factor", "max_factor"), float(uniform(rng, 0, 1.5)))


@sample("_image_random_hue")
def hue_turned(rng):
    return [picture(rng, 3, 4, 3)], {"min_factor": 0.75, "max_factor": 0.75}


@sample("_image_random_hue")
def hue_turned_far(rng):
    return [picture(rng, 5, 2, 3)], {"min_factor": 1.375, "max_factor": 1.375}


# Of gray images MXNet leaves hue and saturation unset.
@sample("_image_random_brightness", "_image_random_contrast")
@sample("_image_random_hue", SATURATION, oracle=False)
def color_of_gray(rng):
    return [picture(rng, 4, 5, 1)], {"min_factor": 0.25, "max_factor": 0.25}


@sample("_image_random_brightness")
def color_of_whole_numbers(rng):
    return [picture(rng, 4, 5, 3, dtype="uint8")], {"min_factor": 1.25, "max_factor": 1.25}


@sample("_image_random_color_jitter", oracle=False)
def jitter(rng):
    return [picture(rng, 4, 5, 3)], {"brightness": 0.4, "contrast": 0.3, "saturation": 0.2, "hue": 0.1}


@sample("_image_random_color_jitter", oracle=False)
def jitter_of_some(rng):
    return [picture(rng, 3, 4, 3)], {"brightness": 0.4, "contrast": 0.0, "saturation": 0.0, "hue": 0.1}


@sample("_image_random_color_jitter", oracle=False)
def jitter_of_nothing(rng):
    return [picture(rng, 3, 4, 3)], {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0}


@sample("_image_random_color_jitter")
def jitter_by_nothing_visible(rng):
    tiny = 1e-12
    x = picture(rng, 4, 5, 3, dtype=["float32", "uint8"][rng.randint(2)])
    return [x], [{"brightness": tiny, "contrast": 0.0}, {"brightness": 0.0, "contrast": tiny}][rng.randint(2)] | {
        "saturation": 0.0,
        "hue": 0.0,
    }


@sample("_image_random_color_jitter")
def jitter_of_infinity(rng):
    x = picture(rng, 4, 5, 3)
    x[0, 0, 0], x[1, 1, 1] = np.nan, np.inf
    return [x], {"brightness": 1e-12, "contrast": 0.0, "saturation": 0.0, "hue": 0.0}


@sample(SATURATION)
def saturation_that_stays(rng):
    return [picture(rng, 4, 5, 3, dtype=["float32", "uint8"][rng.randint(2)])], {"min_factor": 1.0, "max_factor": 1.0}


@sample("_image_random_lighting")
def lighting_that_stays(rng):  # of one channel, MXNet gives what it finds in memory
    return [picture(rng, 4, 5, 3)], {"alpha_std": 0.0}


@sample("_image_random_lighting")
def lighting_of_whole_numbers(rng):
    return [picture(rng, 3, 4, 3, dtype="uint8")], {"alpha_std": 0.0}


@sample("_image_random_lighting")
def lighting_of_nan(rng):
    x = picture(rng, 4, 5, 3)
    x[0, 0, 0], x[1, 1, 1] = np.nan, np.inf
    return [x], {"alpha_std": 0.0}


@sample("_image_adjust_lighting")
def lighting(rng):
    return [picture(rng, 4, 5, 3)], {"alpha": tuple(float(a) for a in np.round(uniform(rng, -1, 1, (3,)), 3))}


@sample("_image_random_lighting", oracle=False)
def lighting_at_random(rng):
    return [picture(rng, 4, 5, [3, 1][rng.randint(2)])], {"alpha_std": 0.1}
