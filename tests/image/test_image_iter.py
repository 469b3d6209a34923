"""`image.ImageIter`, `image.ImageDetIter` and `io.ImageDetRecordIter`: batches and boxes as MXNet gives them."""

import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import image, io, recordio
from gluonjit.image.augment import shifted_hls

pytest.importorskip("PIL.Image", reason="images are packed and read with Pillow")

LABELS = (
    [2, 5, 0, 0.1, 0.2, 0.5, 0.6],
    [2, 5, 1, 0.1, 0.2, 0.5, 0.6, 2, 0.3, 0.3, 0.9, 0.9],
    [2, 5, 1, 0.0, 0.2, 0.5, 0.6],
    [2, 5, 1, 0.1, 0.2, 0.5, 1.0],
    [2, 5, 3, 0.1, 0.2, 0.5, 0.6],
)
SIZES = ((6, 6), (7, 8), (4, 10), (12, 5), (8, 8))


def packed(k, label):
    """A record of an image whose pixels are all (10 k, 10 k + 1, 10 k + 2)."""
    pixels = np.full((*SIZES[k], 3), [10 * k + 2, 10 * k + 1, 10 * k], np.uint8)
    return recordio.pack_img(recordio.IRHeader(0, label, k, 0), pixels, 3, ".png")


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Five images as files, in records with boxes (a.rec, a.idx), and in a list with boxes (a.lst) or without."""
    monkeypatch.chdir(tmp_path)
    writer = recordio.MXIndexedRecordIO("a.idx", "a.rec", "w")
    lines = []
    for k, label in enumerate(LABELS):
        record = packed(k, np.float32(label))
        writer.write_idx(k, record)
        Path(f"{k}.png").write_bytes(recordio.unpack(record)[1])
        lines.append("\t".join(map(str, [k, *label, f"{k}.png"])))
    writer.close()
    Path("a.lst").write_text("\n".join(lines))
    Path("plain.lst").write_text("".join(f"{k}\t{k}.5\t{k}.png\n" for k in range(5)))
    return tmp_path


def labels_and_pads(batches, passes):
    found = []
    for _ in range(passes):
        found.append([(b.label[0].asnumpy().round(3).tolist(), b.pad) for b in batches])
        batches.reset()
    return found


def plain(**settings):
    random.seed(1)
    given = {"batch_size": 2, "data_shape": (3, 4, 4), "path_imglist": "plain.lst", "path_root": "."}
    return image.ImageIter(**{**given, **settings})


PADDED = [([0.5, 1.5], 0), ([2.5, 3.5], 0), ([4.5, 0.5], 1)]


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({}, [PADDED] * 3),
        ({"last_batch_handle": "discard"}, [PADDED[:2]] * 3),
        (
            {"last_batch_handle": "roll_over"},
            [PADDED[:2], [([4.5, 0.5], 1), ([1.5, 2.5], 0), ([3.5, 4.5], 0)], PADDED[:2]],
        ),
        (
            {"shuffle": True},
            [
                [([2.5, 3.5], 0), ([4.5, 0.5], 0), ([1.5, 2.5], 1)],
                [([2.5, 4.5], 0), ([3.5, 1.5], 0), ([0.5, 2.5], 1)],
                [([3.5, 1.5], 0), ([0.5, 2.5], 0), ([4.5, 3.5], 1)],
            ],
        ),
        ({"num_parts": 2, "part_index": 1}, [[([2.5, 3.5], 0)]] * 3),
        (
            {"path_imglist": None, "imglist": [[1.0, "0.png"], [2.0, "1.png"], [[3.0], "2.png"]]},
            [[([1, 2], 0), ([3, 1], 1)]] * 3,
        ),
    ],
)
def test_images_of_a_list_in_batches(files, settings, expected):
    """Recorded answers of MXNet 1.9.1, also of its random orders."""
    batches = plain(**settings)
    assert batches.provide_data == [("data", (2, 3, 4, 4))] and batches.provide_label == [("softmax_label", (2,))]
    assert labels_and_pads(batches, 3) == expected


def test_images_of_records_and_of_a_list_are_the_same(files):
    listed = [b.data[0].asnumpy() for b in plain()]
    for settings in ({"path_imgidx": "a.idx"}, {}):
        records = plain(path_imglist=None, path_imgrec="a.rec", label_width=12, **settings)
        assert records.provide_label == [("softmax_label", (2, 12))]
        with pytest.raises(mx.MXNetError, match=r"a label of shape \(7,\); label_width is 12"):
            next(records)
        relabeled = plain(path_imgrec="a.rec", path_imgidx="a.idx")
        assert labels_and_pads(relabeled, 1) == [PADDED]
        relabeled.hard_reset()
        for one, two in zip(listed, relabeled):
            assert (one == two.data[0].asnumpy()).all()
    assert listed[0][1, :, 0, 0].tolist() == [10, 11, 12], "red first"
    assert plain(batch_size=12).next().label[0].asnumpy().tolist() == [k + 0.5 for k in [0, 1, 2, 3, 4] * 2 + [0, 1]]


def objects(**settings):
    random.seed(1)
    given = {"batch_size": 2, "data_shape": (3, 5, 5), "path_imgrec": "a.rec", "path_imgidx": "a.idx"}
    return image.ImageDetIter(**{**given, **settings})


def first_boxes(batch):
    return batch.label[0].asnumpy().round(3).reshape(2, -1).tolist()


NONE = [-1.0] * 5


def test_boxes_in_batches(files):
    """Recorded answers of MXNet 1.9.1: boxes of a seed are the same here."""
    batches = objects()
    assert batches.provide_label == [("label", (2, 2, 5))] and batches.label_shape == (2, 5)
    rows = [np.float32(label[2:]).round(3).tolist() for label in LABELS]
    rows = [row + NONE if len(row) == 5 else row for row in rows]
    each = [(rows[0:2], 0), (rows[2:4], 0), ([rows[4], rows[0]], 1)]
    for made in (batches, objects(path_imgrec=None, path_imgidx=None, path_imglist="a.lst", path_root=".")):
        found = labels_and_pads(made, 2)
        assert [[(np.reshape(x, (2, 10)).tolist(), pad) for x, pad in one] for one in found] == [each, each]
    found = [first_boxes(b) for b in objects(rand_crop=1, rand_mirror=True, data_shape=(3, 40, 40))]
    expected = [
        [[0, 0, 0, 0.7, 0.8] + NONE, [2, 0, 0.22, 0.8, 1] + NONE],
        [[1, 0, 0.4, 1, 1] + NONE, [1, 0.1, 0, 0.5, 1] + NONE],
        [[3, 0.5, 0.12, 1, 0.76] + NONE, [0, 0.1, 0.24, 0.5, 0.72] + NONE],
    ]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    found = first_boxes(next(objects(rand_pad=1, area_range=(0.5, 4.0))))
    expected = [
        [0, 0.4, 0.42, 0.667, 0.66] + NONE,
        [1, 0.343, 0.529, 0.571, 0.729, 2, 0.457, 0.579, 0.8, 0.879],
    ]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_images_with_their_boxes(files):
    """Edges as MXNet 1.9.1 asks OpenCV for them."""
    drawn = [*objects(data_shape=(3, 20, 20)).draw_next(color=(200, 100, 50), thickness=1)]
    assert [x.shape for x in drawn] == [(20, 20, 3)] * 5 and drawn[0].dtype == np.uint8
    edges = np.zeros((20, 20), bool)
    edges[4:13, 2:11] = True
    edges[5:12, 3:10] = False
    assert (drawn[0][edges] == [50, 100, 200]).all() and (drawn[0][~edges] == [2, 1, 0]).all(), "blue first"
    assert (drawn[1][17, 6:18] == [50, 100, 200]).all() and (drawn[1][18:] == [12, 11, 10]).all(), (
        "0.9 is below 18 / 20"
    )
    thick = next(objects(data_shape=(3, 20, 20)).draw_next(color=(200, 100, 50)))
    assert (thick[3:14, 1:3] == [50, 100, 200]).all() and (thick[5:12, 3:10] == [2, 1, 0]).all()
    full = next(objects(data_shape=(3, 20, 20)).draw_next(color=(200, 100, 50), thickness=-1))
    assert (full[4:13, 2:11] == [50, 100, 200]).all() and (full[13:] == [2, 1, 0]).all()
    np.random.seed(3)
    colors = np.rint(np.random.rand(3) * 255)
    np.random.seed(3)
    assert (next(objects(data_shape=(3, 20, 20)).draw_next())[4, 2] == colors).all()


def test_drawn_images_are_not_normalized(files):
    def first(normalized, **settings):
        return next(objects(data_shape=(3, 20, 20), mean=normalized, std=normalized).draw_next((9, 9, 9), **settings))

    plain = first(None)
    assert (first(True, mean=True, std=True) == plain).all()
    assert (first(None, mean=np.array([300.0]))[-1] == 255).all()
    named = first(None, id2labels={0: "cat"})
    assert (named != plain).any() and (first(None, id2labels={1: "dog"}) == plain).all()
    with pytest.raises(AssertionError, match="std must be an array of 1 or 3 numbers"):
        first(None, std=2)


def test_windows_need_opencv(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(mx.MXNetError, match="pip install opencv-python, or leave it None"):
        next(objects().draw_next(waitKey=1))


def test_shapes_of_labels_are_synchronized(files):
    batches, other = objects(), objects()
    other.reshape(data_shape=(3, 4, 6), label_shape=(4, 5))
    assert batches.sync_label_shape(other) is other and batches.label_shape == (4, 5)
    assert next(batches).label[0].shape == (2, 4, 5) and other.provide_data == [("data", (2, 3, 4, 6))]
    with pytest.raises(ValueError, match="reduce label count from 4 to 3"):
        batches.reshape(label_shape=(3, 5))
    with pytest.raises(ValueError, match="object width inconsistent: 5 vs 6"):
        batches.reshape(label_shape=(4, 6))


def test_settings_of_detection_augmenters():
    made = image.CreateDetAugmenter(
        (3, 5, 5), resize=7, rand_crop=0.5, rand_pad=0.5, rand_mirror=True, mean=True, brightness=0.1, hue=0.1
    )
    names = "Borrow RandomSelect HorizontalFlip RandomSelect Borrow Borrow Borrow Borrow Borrow"
    assert [type(aug).__name__ for aug in made] == [f"Det{name}Aug" for name in names.split()]
    assert made[0].dumps() == ["detborrowaug", '["resizeaug", {"size": 7, "interp": 2}]']
    assert made[2].dumps() == '["dethorizontalflipaug", {"p": 0.5}]'
    several = image.CreateMultiRandCropAugmenter(min_object_covered=[0.1, 0.5], area_range=(0.2, 0.9))
    assert [aug.area_range for aug in several.aug_list] == [(0.2, 0.9)] * 2
    with pytest.raises(AssertionError, match="must have one length"):
        image.CreateMultiRandCropAugmenter([0.1, 0.5], max_attempts=[1, 2, 3])
    with pytest.warns(UserWarning, match=r"DetRandomCropAug does nothing: area_range is \(0.5, 0.1\)"):
        image.DetRandomCropAug(area_range=(0.5, 0.1))
    with pytest.raises(TypeError, match="invalid Augmenter"):
        image.DetBorrowAug(image.DetHorizontalFlipAug(1))


def boxed(**settings):
    given = {"path_imgrec": "a.rec", "data_shape": (3, 6, 6), "batch_size": 2}
    return io.ImageDetRecordIter(**{**given, **settings})


def test_records_with_boxes_in_batches(files):
    """Recorded answers of MXNet 1.9.1: the label has a head of its own, and room for the longest."""
    batches = boxed()
    assert str(batches.provide_label) == "[DataDesc[softmax_label,(2, 16),<class 'numpy.float32'>,NCHW]]"
    rows = [[3, 6, 6, len(label), *np.float32(label).round(3).tolist()] for label in LABELS]
    rows = [row + [-1.0] * (16 - len(row)) for row in rows]
    first = [(rows[:2], 0), (rows[2:4], 0), ([rows[4], rows[0]], 1)]
    assert labels_and_pads(batches, 2) == [first, [(rows[1:3], 0), (rows[3:5], 0)]]
    alone = boxed(round_batch=False)
    assert labels_and_pads(alone, 2) == [[*first[:2], ([rows[4], rows[3]], 1)]] * 2
    wide = next(boxed(label_pad_width=15, label_pad_value=7, mean_r=10, std_g=2, data_shape=(1, 6, 6)))
    assert wide.label[0].shape == (2, 19) and wide.label[0][0, -8:].asnumpy().tolist() == [7] * 8
    assert boxed(num_parts=2, part_index=1).provide_label[0].shape == (2, 11)
    pixels = next(boxed(mean_r=1, std_g=2, scale=0.5)).data[0].asnumpy()[1]
    assert pixels[:, 0, 0].tolist() == [4.5, 2.75, 6]


def test_labels_of_a_list_instead_of_those_of_the_records(files):
    """Answers of MXNet 1.9.1."""
    Path("new.lst").write_text("".join(f"{k}\t{k}.5\t{k}.25\tx.png\n" for k in [*range(5), 99]) + "0\t7\t8\tx.png\n")

    def labels(kind, **settings):
        given = {"path_imgrec": "a.rec", "path_imglist": "new.lst", "data_shape": (3, 4, 4), "batch_size": 5}
        return next(kind(**{**given, **settings})).label[0].asnumpy().round(3).tolist()

    assert labels(io.ImageRecordIter) == [7, 1.5, 2.5, 3.5, 4.5]
    assert labels(io.ImageRecordUInt8Iter, label_width=2)[:2] == [[7, 8], [1.5, 1.25]]
    Path("boxes.lst").write_text("".join(f"{k}\t2\t5\t{k}\t0.25\t0.25\t0.5\t0.5\t8\t0\t0\t1\t1\tx\n" for k in range(5)))
    found = labels(io.ImageDetRecordIter, path_imglist="boxes.lst")
    assert found[3] == [3, 4, 4, 12, 2, 5, 3, 0.25, 0.25, 0.5, 0.5, 8, 0, 0, 1, 1]
    assert labels(io.ImageDetRecordIter, path_imglist="boxes.lst", label_width=7)[3] == [3, 4, 4, 7, *found[3][4:11]]
    Path("short.lst").write_text("0\t1\tx.png\n")
    for settings, message in (
        ({"path_imglist": "short.lst"}, "short.lst has no label for record 1 of a.rec"),
        ({"label_width": 3}, "new.lst: a record's label has 2 numbers, but label_width is 3"),
        ({"path_imglist": "none.lst"}, "cannot read the list none.lst: No such file"),
    ):
        with pytest.raises(mx.MXNetError, match=message):
            labels(io.ImageRecordIter, **settings)


def test_detection_records_keep_or_change_their_shape(files):
    for mode, size, expected in (
        ("shrink", (6, 6), [[6, 6], [5, 6], [2, 6], [6, 2], [6, 6]]),
        ("fit", (8, 9), [[8, 8], [7, 9], [3, 9], [8, 3], [8, 8]]),
        ("force", (6, 6), [[6, 6]] * 5),
    ):
        batch = next(boxed(data_shape=(3, *size), resize_mode=mode, batch_size=5, mean_r=1000))
        assert batch.label[0][:, 1:3].asnumpy().tolist() == expected
        red = batch.data[0].asnumpy()[2, 0]
        h, w = expected[2]
        assert (red[:h, :w] == -980).all() and (red[h:] == -1000).all() and (red[:, w:] == -1000).all()


def test_random_boxes_stay_on_their_objects(files):
    flipped = next(boxed(rand_mirror_prob=1)).label[0].asnumpy()
    np.testing.assert_allclose(flipped[1, 6:16], [1, 0.5, 0.2, 0.9, 0.6, 2, 0.1, 0.3, 0.7, 0.9], atol=1e-6)
    writer = recordio.MXRecordIO("spot.rec", "w")
    pixels = np.full((20, 20, 3), 200, np.uint8)
    pixels[4:12, 8:18] = 50
    header = recordio.IRHeader(0, np.float32([2, 5, 3, 0.4, 0.2, 0.9, 0.6]), 0, 0)
    writer.write(recordio.pack_img(header, pixels, 3, ".png"))
    writer.close()
    crop = {"min_crop_scales": 0.5, "max_crop_scales": 0.9, "min_crop_aspect_ratios": 0.7, "max_crop_aspect_ratios": 2}
    crop |= {"rand_crop_prob": 1, "min_crop_object_coverages": 0.5, "max_crop_trials": 200}
    for settings in ({"rand_pad_prob": 1, "max_pad_scale": 3}, crop, {**crop, "crop_emit_mode": "overlap"}):
        batches = boxed(path_imgrec="spot.rec", data_shape=(3, 80, 80), batch_size=1, inter_method=0, **settings)
        areas = set()
        for _ in range(4):
            batch = next(batches)
            _, left, top, right, bottom = batch.label[0].asnumpy()[0, 6:11]
            y, x = np.nonzero(batch.data[0].asnumpy()[0, 0] == 50)
            # A pixel of the file is up to 8 wide here, and crops are made of whole ones.
            found = [x.min(), y.min(), x.max() + 1, y.max() + 1]
            np.testing.assert_allclose(np.array([left, top, right, bottom]) * 80, found, atol=8)
            areas.add(x.size)
            batches.reset()
        assert len(areas) > 1


@pytest.mark.parametrize(
    "shift, expected",
    [
        ((-17, 0, 0), [[128, 128, 128], [1, 145, 255], [255, 1, 1], [184, 174, 166], [18, 2, 242]]),
        ((9, 0, 0), [[128, 128, 128], [77, 1, 255], [255, 77, 1], [179, 184, 166], [226, 2, 242]]),
        ((0, 31, 0), [[159, 159, 159], [63, 63, 255], [255, 63, 63], [212, 212, 200], [180, 53, 253]]),
        ((0, 0, -30), [[128, 128, 128], [16, 16, 240], [240, 16, 16], [175, 175, 175], [150, 16, 228]]),
    ],
)
def test_shifted_colors(shift, expected):
    """Recorded from the record iterator of MXNet 1.9.1."""
    colors = [[128, 128, 128], [0, 0, 255], [255, 0, 0], [184, 184, 165], [156, 2, 242]]
    assert shifted_hls(np.uint8([colors]), *shift).tolist() == [expected]


def test_the_settings_of_single_shot_detectors(files):
    """MXNet's own example sets all of these; a validation that changes nothing gives the images as they are."""
    unchanged = {"random_hue_prob": 0.0, "max_random_hue": 18, "random_contrast_prob": 0.0, "max_random_contrast": 0.5}
    none = {"min_crop_scales": [0.3], "min_crop_overlaps": [0.1], "num_crop_sampler": 0, "rand_crop_prob": 0.0}
    plain = next(boxed()).data[0].asnumpy()
    assert (next(boxed(**unchanged, **none, inter_method=10)).data[0].asnumpy() == plain).all()
    colors = {f"random_{x}_prob": 1 for x in ("hue", "saturation", "illumination", "contrast")}
    amounts = {"max_random_hue": 18, "max_random_saturation": 32, "max_random_illumination": 32}
    found = next(boxed(**colors, **amounts, max_random_contrast=0.5, inter_method=10)).data[0].asnumpy()
    first = found[0, :, :1, :1]
    assert (found[0] == first).all() and (first != plain[0, :, :1, :1]).any(), "all pixels change alike"


def test_aspect_ratios_of_crops_are_those_of_pixels(files):
    """An image of 40 x 20 pixels has square parts; with a single sampler its bounds may stand in lists."""
    writer = recordio.MXRecordIO("wide.rec", "w")
    pixels = np.zeros((20, 40, 3), np.uint8) + np.arange(40, dtype=np.uint8)[:, None]
    pixels[..., 1] = np.arange(20)[:, None]
    header = recordio.IRHeader(0, np.float32([2, 5, 1, 0, 0, 1, 1, 2, 0.5, 0.5, 0.5, 0.7]), 0, 0)
    writer.write(recordio.pack_img(header, pixels, 3, ".png"))
    writer.close()
    crop = {"rand_crop_prob": 1, "min_crop_scales": [0.3], "max_crop_scales": [0.6], "num_crop_sampler": 1}
    batches = boxed(path_imgrec="wide.rec", data_shape=(3, 24, 24), batch_size=1, inter_method=0, **crop)
    for _ in range(4):
        batch = next(batches)
        y = batch.data[0].asnumpy()[0]
        width, height = y[0, 0, -1] - y[0, 0, 0] + 1, y[1, -1, 0] - y[1, 0, 0] + 1
        assert abs(width - height) <= 1 and 8 <= width <= 18
        assert batch.label[0].asnumpy()[0, 3:].tolist() == [7, 2, 5, 1, 0, 0, 1, 1] + [-1] * 5, "one box is empty"
        batches.reset()


def written(label, path="bad.rec"):
    writer = recordio.MXIndexedRecordIO(path + ".idx", path, "w")
    writer.write_idx(0, packed(0, np.float32(label)))
    writer.close()
    return path


@pytest.mark.parametrize(
    "label",
    [
        [2, 5, 0, 0.1, 0.2, 0.5],
        [2, 4, 0, 0.1, 0.2, 0.5],
        [1, 5, 0, 0, 0.1, 0.2, 0.5],
        [np.nan, 5, 0, 0.1, 0.2, 0.5, 0.5],
        [2, np.inf, 0, 0.1, 0.2, 0.5, 0.5],
        [2, 1e30, 0, 0.1, 0.2, 0.5, 0.5],
        [1e9, 5, 0, 0.1, 0.2, 0.5, 0.5],
        1.0,
    ],
)
def test_labels_that_are_no_boxes(files, label):
    path = written(label) if isinstance(label, list) else "one.rec"
    if path == "one.rec":
        writer = recordio.MXRecordIO(path, "w")
        writer.write(packed(0, label))
        writer.close()
    with pytest.raises(mx.MXNetError, match="the label of record 0 has . numbers"):
        boxed(path_imgrec=path)
    with pytest.raises(mx.MXNetError, match="Label shape"):
        objects(path_imgrec=path, path_imgidx=None)


def test_detection_records_that_are_refused(files):
    for settings, message in (
        ({"label_pad_width": 8}, "label_pad_width is 8, but a.rec has labels of 12"),
        ({"label_width": 7}, "has 12 numbers: label_width is 7"),
        ({"rand_crop": 1}, "no setting 'rand_crop'"),
        ({"random_hue_prob": 0.5, "data_shape": (1, 6, 6)}, "cannot change in images of 1 channel"),
        ({"inter_method": 5}, "inter_method is 5, not one of 0, 1, 2, 3, 4, 9, 10"),
        ({"resize_mode": "squeeze"}, "resize_mode is 'squeeze', not one of 'force', 'fit', 'shrink'"),
        ({"min_crop_scales": (0.1, 0.2), "num_crop_sampler": 3}, "min_crop_scales has 2 numbers"),
        ({"data_shape": (4, 6)}, r"data_shape is \(4, 6\)"),
    ):
        with pytest.raises(mx.MXNetError, match=message):
            boxed(**settings)


@pytest.mark.parametrize(
    "line, message",
    [
        ("x\t1\t0.png", "line 1: .* is not key<TAB>label<TAB>…<TAB>path"),
        ("1\t0.png", "is not key"),
        ("1\tone\t0.png", "line 1: .*could not convert"),
        ("1\t1\tnone.png", "cannot read the image './none.png': No such file"),
        ("1\t1\tpipe", "the image ./pipe is not a file"),
        ("1\t1\ta.idx", "Broken image: image a.idx: Decoding failed"),
        ("\xff", None),
        ("", "has no images"),
    ],
)
def test_lists_of_images_that_are_refused(files, line, message):
    os.mkfifo("pipe")
    Path("bad.lst").write_bytes(line.encode("latin-1"))
    with pytest.raises(mx.MXNetError, match=message or "bad.lst is not text"):
        next(plain(path_imglist="bad.lst"))


def test_image_iterators_that_are_refused(files):
    for settings, error, message in (
        ({"path_imglist": None}, AssertionError, "needs path_imgrec, path_imglist or imglist"),
        ({"data_shape": (1, 4, 4)}, ValueError, r"\(3, height, width\), not \(1, 4, 4\)"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"last_batch_handle": "keep"}, ValueError, "not 'keep'"),
        ({"dtype": "float16"}, AssertionError, "float16 label not supported"),
        ({"path_imglist": None, "path_imgrec": "a.rec", "shuffle": True}, AssertionError, "needs path_imgidx"),
        ({"num_parts": 9, "part_index": 8}, mx.MXNetError, "has no images"),
        ({"path_imglist": None, "imglist": [["0.png"]]}, mx.MXNetError, r"imglist\[0\]"),
        ({"path_imglist": "none.lst"}, mx.MXNetError, "cannot read the list none.lst"),
        ({"rand_cop": True}, TypeError, "rand_cop"),
    ):
        with pytest.raises(error, match=message):
            plain(**settings)
    long = np.zeros((1, 60_000, 3), np.uint8)
    Path("long.png").write_bytes(
        recordio.unpack(recordio.pack_img(recordio.IRHeader(0, 0.0, 0, 0), long, 3, ".png"))[1]
    )
    with pytest.raises(mx.MXNetError, match="an image of 1 x 60000 pixels would become one of 224 x 13440000"):
        next(plain(path_imglist=None, imglist=[[0.0, "long.png"]], resize=224))
