"""`io.ImageRecordIter`: batches from record files, as MXNet gives them."""

from pathlib import Path

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import io, recordio
from gluonjit.image.affine import RandomAffine, warp_affine

pytest.importorskip("PIL.Image", reason="images are packed and read with Pillow")


def record_file(folder, images, labels):
    """Records of PNG images, red first; returns their file and its index."""
    rec, idx = str(folder / "a.rec"), str(folder / "a.idx")
    writer = recordio.MXIndexedRecordIO(idx, rec, "w")
    for k, (image, label) in enumerate(zip(images, labels)):
        packed = recordio.pack_img(recordio.IRHeader(0, label, k, 0), image[:, :, ::-1], 3, ".png")
        writer.write_idx(k, packed)
    writer.close()
    return rec, idx


@pytest.fixture
def five(tmp_path):
    """Five images of different sizes, and their file and index."""
    random = np.random.RandomState(0)
    sizes = [(6, 6), (7, 8), (9, 6), (6, 11), (8, 8)]
    images = [random.randint(0, 256, (h, w, 3)).astype(np.uint8) for h, w in sizes]
    return images, *record_file(tmp_path, images, map(float, range(5)))


def middle(image, size=4):
    top, left = (image.shape[0] - size) // 2, (image.shape[1] - size) // 2
    return image[top : top + size, left : left + size].transpose(2, 0, 1).astype(np.float32)


def labels_and_pads(batches):
    return [(batch.label[0].asnumpy().tolist(), batch.pad) for batch in batches]


def test_image_records_in_batches(five):
    """As MXNet gives them: the last batch begins the next pass."""
    images, rec, _ = five
    batches = io.ImageRecordIter(path_imgrec=rec, data_shape=(3, 4, 4), batch_size=2, verbose=False)
    assert batches.provide_data[0].shape == (2, 3, 4, 4) and batches.provide_label[0].shape == (2,)
    for pads in ([([0, 1], 0), ([2, 3], 0), ([4, 0], 1)], [([1, 2], 0), ([3, 4], 0)]):
        assert labels_and_pads(batches) == pads
        batches.reset()
    batch = next(batches)
    for x, k in zip(batch.data[0].asnumpy(), batch.label[0].asnumpy()):
        assert (x == middle(images[int(k)])).all()
    assert batch.index.tolist() == [0, 1]


def test_settings_of_image_records(five):
    images, rec, idx = five

    def batches(**settings):
        return io.ImageRecordIter(**{"path_imgrec": rec, "data_shape": (3, 4, 4), "batch_size": 2, **settings})

    mean, std = np.array([10, 20, 30]).reshape(3, 1, 1), np.array([2, 4, 8]).reshape(3, 1, 1)
    made = batches(mean_r=10, mean_g=20, mean_b=30, std_r=2, std_g=4, std_b=8, scale=0.5, mirror=True)
    np.testing.assert_allclose(
        next(made).data[0][0].asnumpy(), (middle(images[0])[:, :, ::-1] - mean) / std / 2, rtol=1e-6
    )
    parts = [labels_and_pads(batches(path_imgidx=idx, num_parts=2, part_index=k)) for k in (0, 1)]
    assert parts == [[([0, 1], 0), ([2, 0], 1)], [([3, 4], 0)]]
    assert labels_and_pads(batches(batch_size=8)) == [([0, 1, 2, 3, 4, 0, 1, 2], 3)]
    framed = next(batches(pad=2, data_shape=(3, 10, 10), fill_value=7)).data[0][0].asnumpy()
    assert (framed[:, 2:8, 2:8] == middle(images[0], 6)).all() and framed.sum() == framed[
        :, 2:8, 2:8
    ].sum() + 3 * 64 * 7
    assert next(batches(data_shape=(3, 16, 12))).data[0].shape == (2, 3, 16, 12), "smaller images are enlarged"
    assert next(batches(resize=12, data_shape=(1, 12, 12))).data[0].shape == (2, 1, 12, 12)
    pixels = next(io.ImageRecordUInt8Iter(path_imgrec=rec, data_shape=(3, 4, 4), batch_size=1)).data[0]
    assert pixels.dtype == np.uint8 and (pixels[0].asnumpy() == middle(images[0])).all()


def test_settings_may_be_strings_as_in_mxnet(five):
    """`createIterator` of MXNet passes strings, and command lines have them."""
    images, rec, _ = five
    given = {"data_shape": "(3, 4, 4)", "batch_size": "2", "shuffle": "False", "scale": "0.5", "rotate_list": ""}
    batch = next(io.ImageRecordIter(path_imgrec=rec, **given))
    assert (batch.data[0].asnumpy() == [middle(image) / 2 for image in images[:2]]).all()


def test_random_image_records_depend_on_seeds_alone(five):
    images, rec, _ = five
    crop = {"rand_crop": True, "rand_mirror": True, "shuffle": True, "seed": 3}
    resized = {"random_resized_crop": True, "min_random_area": 0.2, "max_aspect_ratio": 0.25}

    def drawn(**settings):
        batches = io.ImageRecordIter(path_imgrec=rec, data_shape=(3, 4, 4), batch_size=5, **settings)
        passes = []
        for _ in range(3):
            batch = next(batches)
            passes.append((batch.data[0].asnumpy(), batch.label[0].asnumpy().tolist()))
            batches.reset()
        return passes

    for settings in (crop, resized):
        one, two = drawn(preprocess_threads=1, **settings), drawn(preprocess_threads=3, **settings)
        assert all((x == y).all() and k == n for (x, k), (y, n) in zip(one, two))
        assert (one[0][0] != one[1][0]).any()
    assert [sorted(labels) for _, labels in drawn(**crop)] == [[0, 1, 2, 3, 4]] * 3
    for x, k in zip(*drawn(**crop)[0]):  # a window of the image, or its mirror image
        image = images[int(k)]
        windows = np.lib.stride_tricks.sliding_window_view(image, (4, 4), (0, 1)).reshape(-1, 3, 4, 4)
        assert any((x == window).all() or (x[:, :, ::-1] == window).all() for window in windows)


def test_random_colors(tmp_path):
    """Each setting alone changes what it says, by a factor that differs between images."""
    image = np.random.RandomState(0).randint(60, 120, (6, 6, 3)).astype(np.uint8)
    rec, _ = record_file(tmp_path, [image] * 20, range(20))
    plain = middle(image)

    def drawn(**settings):
        given = {"path_imgrec": rec, "data_shape": (3, 4, 4), "batch_size": 20, "seed": 1}
        return next(io.ImageRecordIter(**given, **settings)).data[0].asnumpy()

    def factors(found, around):
        """By what the differences to `around` were multiplied, with an error for roundings."""
        offset = plain - around
        return np.array([(offset * (x - around)).sum() / (offset**2).sum() for x in found])

    gray = np.tensordot([0.114, 0.587, 0.299], plain, 1)
    for setting, around in {"brightness": 0 * plain, "contrast": gray.mean(), "saturation": gray}.items():
        found = drawn(**{setting: 0.4})
        by = factors(found, around)
        assert by.min() < 0.75 and by.max() > 1.25 and (abs(by - 1) < 0.41).all()
        wanted = around + (plain - around) * by[:, None, None, None]
        assert abs(found - wanted).max() < 1.5 and (found == np.rint(found)).all()
    for setting in ("random_h", "random_s", "random_l"):
        found = drawn(**{setting: 20})
        assert len({x.tobytes() for x in found}) > 8 and abs(factors(found, 0 * plain) - 1).max() < 0.3
    found = drawn(pca_noise=0.1) - plain
    assert (found == found[:, :, :1, :1]).all() and found[:, :, 0, 0].std(axis=0).min() > 2
    one, three = (drawn(brightness=0.1, contrast=0.2, pca_noise=0.1, preprocess_threads=n) for n in (1, 3))
    assert (one == three).all() and (one != plain).any()


AS_MXNET = [
    ({"rotate": 30}, [143, 182, 210, 37, 146, 183, 226, 108, 151, 185, 214, 32, 156, 189, 228, 142]),
    (
        {"rotate": 75, "fill_value": 7, "pad": 1, "inter_method": 2},
        [247, 3, 24, 85, 206, 231, 140, 13, 169, 209, 192, 89, 144, 175, 218, 255],
    ),
    (
        {"min_random_scale": 1.5, "max_random_scale": 1.5},
        [160, 181, 206, 231, 174, 196, 220, 246, 188, 210, 177, 93, 202, 225, 162, 21],
    ),
    (
        {"min_aspect_ratio": 0.5, "max_aspect_ratio": 0.5, "inter_method": 4},
        [122, 145, 164, 188, 158, 161, 217, 255, 171, 232, 209, 32, 250, 228, 117, 61],
    ),
    (
        {"max_img_size": 9, "rotate_list": "20"},
        [127, 164, 206, 85, 139, 174, 214, 141, 149, 183, 205, 80, 159, 192, 232, 68],
    ),
    (
        {"min_crop_size": 8, "max_crop_size": 8},
        [72, 109, 170, 127, 109, 150, 215, 48, 146, 191, 132, 97, 183, 168, 49, 146],
    ),
    (
        {"resize": 9, "rotate": 45, "min_img_size": 12, "data_shape": (1, 4, 4)},
        [179, 126, 74, 137, 188, 131, 78, 113, 186, 165, 98, 93, 182, 156, 95, 77],
    ),
    (
        {"data_shape": (3, 16, 1), "inter_method": 9},  # enlarged although narrower: not by the cubic method
        [62, 80, 99, 118, 137, 155, 174, 193, 212, 231, 154, 64, 31, 50, 69, 86],
    ),
]
"""Settings, and the first channel of one image as MXNet 1.9.1 gives it."""


def test_affine_changes_are_those_of_mxnet(tmp_path):
    y, x, c = np.indices((14, 11, 3))
    image = ((x * x * 3 + y * 17 + x * y + c * 40) % 256).astype(np.uint8)
    rec, _ = record_file(tmp_path, [image], [0.0])
    for settings, wanted in AS_MXNET:
        batches = io.ImageRecordIter(**{"path_imgrec": rec, "data_shape": (3, 4, 4), "batch_size": 1, **settings})
        found = next(batches).data[0][0, 0].asnumpy().ravel()
        rounded = "resize" in settings or settings.get("inter_method") == 9  # resized images are within 1
        assert abs(found - wanted).max() <= rounded, settings


def test_random_affine_changes():
    """Bounds are reached, and means are in the middle of them."""
    drawn = RandomAffine(max_rotate_angle=20, max_shear_ratio=0.5, scales=(0.5, 1.5), ratios=(0.8, 1.2))
    random = np.random.RandomState(0)
    matrices, heights, widths = zip(*(drawn.draw(100, 60, random) for _ in range(400)))
    assert min(heights) in (50, 51) and max(heights) in (148, 149) and abs(np.mean(heights) - 100) < 6
    assert min(widths) == 30 and max(widths) == 89
    (a, b), (c, d) = np.moveaxis(np.array(matrices)[:, :, :2], 0, -1)
    angles = np.rad2deg(np.arctan2(-c, d))
    wide = np.hypot(c, d)
    shears = (a * c + b * d) / wide**2
    high = (a * d - b * c) / wide
    for found, least, most in ((angles, -20, 20), (shears, -0.5, 0.5), (wide / high, 0.8, 1.2)):
        assert abs(found.min() - least) < (most - least) / 40 and abs(found.max() - most) < (most - least) / 40
        assert abs(found.mean() - (least + most) / 2) < (most - least) / 20
    assert abs(angles - np.rint(angles)).max() < 1e-3

    y = warp_affine(np.ones((2, 2, 1), np.uint8), np.array([[1, 0, 1e9], [0, 1, 0]], np.float32), 2, 2, 2, 9)
    assert (y == 9).all(), "far outside is the filling"


def test_normalization_of_image_records(five, tmp_path):
    images, rec, _ = five
    mean = str(tmp_path / "mean.bin")

    def drawn(kind=io.ImageRecordIter, **settings):
        return next(kind(rec, (3, 4, 4), 5, **settings)).data[0].asnumpy()

    plain = drawn()
    wanted = plain.mean(0)
    np.testing.assert_allclose(drawn(mean_img=mean, mean_r=9, scale=0.5), (plain - wanted) / 2, atol=1e-4)
    np.testing.assert_allclose(mx.nd.load(mean)["mean_img"].asnumpy(), wanted, rtol=1e-6)
    with pytest.raises(mx.MXNetError, match=r"a mean image of \(1, 4, 4\) is needed, there is one of \(3, 4, 4\)"):
        io.ImageRecordIter(rec, (1, 4, 4), 5, mean_img=mean)

    signed = drawn(io.ImageRecordInt8Iter, mean_r=100.3, std_r=9, scale=3)
    assert signed.dtype == np.int8 and (signed == drawn(dtype="int8", mean_r=100.3)).all()
    shift = np.array([100.3, 0, 0]).reshape(3, 1, 1)
    assert (signed == np.clip(np.rint(plain - shift), -128, 127)).all()
    assert drawn(dtype="uint8").dtype == np.uint8 and io.ImageRecordIter_v1 is io.ImageRecordIter

    found = drawn(max_random_contrast=0.5, max_random_illumination=20, mean_r=10, std_r=2, seed=2)
    for x, y in zip(plain, found):
        factor, light = np.polyfit(x[1].ravel(), y[1].ravel(), 1)
        assert 0.5 < factor < 1.5 and abs(light) < 20 and max(abs(factor - 1), abs(light)) > 0.01
        np.testing.assert_allclose(y[0], ((x[0] - 10) * factor + light) / 2, atol=1e-3)


def test_image_records_that_are_refused(five, tmp_path):
    _, rec, _ = five
    given = {"path_imgrec": rec, "data_shape": (3, 4, 4), "batch_size": 2}
    for settings, message in (
        ({"rand_crp": True}, "no setting 'rand_crp'"),
        ({"aug_seq": "aug_own"}, "aug_seq='aug_own': MXNet 1.9.1 has it, gluonjit lacks it"),
        ({"data_shape": (4, 4)}, r"data_shape is \(4, 4\)"),
        ({"batch_size": 0}, "batch_size is 0, not from 1 to"),
        ({"dtype": "float16"}, "gives float32 or uint8 or int8, not 'float16'"),
        ({"inter_method": 5}, "inter_method is 5"),
        ({"random_resized_crop": True, "max_random_scale": 2}, "cannot be combined with rand_crop, min_random_scale"),
        ({"random_h": 9, "data_shape": (1, 4, 4)}, "cannot change in images of 1 channel"),
        ({"num_parts": 7, "part_index": 6}, "has no records"),
        ({"part_index": 1}, "part_index is 1, not from 0 to 0"),
        ({"batch_size": 1e30}, r"batch_size is 1e\+30, not of the type int"),
        ({"batch_size": 1 << 30}, "a batch of 1073741824 x .* has more elements than an array may have"),
        ({"batch_size": float("nan")}, "batch_size is nan, not of the type int"),
        ({"max_random_scale": float("nan")}, "max_random_scale is nan, which is not finite"),
        ({"max_random_scale": 1e30}, r"max_random_scale is 1e\+30, not from -1e\+10 to 1e\+10"),
        ({"shuffle": "perhaps"}, "shuffle is 'perhaps', not of the type boolean"),
        ({"rotate_list": "1,a"}, "rotate_list is '1,a', not of the type"),
        ({"min_aspect_ratio": float("nan")}, "min_aspect_ratio is nan, which is not finite"),
        ({"pca_noise": -1}, "pca_noise is -1, not from 0"),
        ({"max_aspect_ratio": 1.5}, "max_aspect_ratio=1.5 allow aspect ratios below 0"),
        ({"path_imgrec": str(tmp_path / "none.rec")}, "cannot open"),
    ):
        with pytest.raises(mx.MXNetError, match=message):
            io.ImageRecordIter(**{**given, **settings})
    for settings, message in (
        ({"min_crop_scales": float("inf")}, "min_crop_scales is inf, which is not finite"),
        ({"max_crop_trials": None}, "max_crop_trials is None, not of the type"),
        ({"max_crop_aspect_ratios": -1}, "max_crop_aspect_ratios is -1, but must be more than 0"),
    ):
        with pytest.raises(mx.MXNetError, match=message):
            io.ImageDetRecordIter(**given, **settings)
    with pytest.raises(mx.MXNetError, match="has 1 numbers, but label_width is 2"):
        next(io.ImageRecordIter(**given, label_width=2))
    with pytest.raises(mx.MXNetError, match="squares of min_crop_size=5 to max_crop_size=7 cannot be cut"):
        next(io.ImageRecordIter(**given, min_crop_size=5, max_crop_size=7))
    cut = tmp_path / "cut.rec"
    cut.write_bytes(Path(rec).read_bytes()[:100])
    with pytest.raises(mx.MXNetError, match="cut off"):
        io.ImageRecordIter(**{**given, "path_imgrec": str(cut)})
    long, _ = record_file(tmp_path, [np.zeros((1, 60_000, 3), np.uint8)], [0.0])
    with pytest.raises(mx.MXNetError, match="an image of 1 x 60000 pixels would become one of 224 x 13440000"):
        next(io.ImageRecordIter(long, (3, 224, 224), 1))
