"""`mx.image`, `mx.recordio` and `mx.io`: errors, and what real MXNet was not asked (test_python_api.py)."""

import io
import pickle
import struct
import tracemalloc

import numpy as np
import pytest

from gluonjit import image, nd, recordio
from gluonjit import io as mx_io
from gluonjit.base import MXNetError

GRAY = (0.299, 0.587, 0.114)


# Images


def encoded(array, kind="PNG", **options):
    pil = pytest.importorskip("PIL.Image", reason="encodes images")
    file = io.BytesIO()
    pil.fromarray(array).save(file, kind, **options)
    return file.getvalue()


def test_decoding(tmp_path):
    picture = np.random.RandomState(0).randint(0, 256, (5, 7, 3)).astype(np.uint8)
    data = encoded(picture)
    assert np.array_equal(image.imdecode(data).asnumpy(), picture)
    assert np.array_equal(image.imdecode(np.frombuffer(data, np.uint8), to_rgb=False).asnumpy(), picture[:, :, ::-1])
    assert np.array_equal(image.imdecode(nd.array(np.frombuffer(data, np.uint8), dtype="uint8")).asnumpy(), picture)
    gray = image.imdecode(data, flag=0).asnumpy()
    assert gray.shape == (5, 7, 1) and np.abs(gray[:, :, 0] - picture @ np.array(GRAY)).max() <= 1
    (tmp_path / "x.png").write_bytes(data)
    out = nd.zeros((5, 7, 3), dtype="uint8")
    assert image.imread(tmp_path / "x.png", out=out) is out and np.array_equal(out.asnumpy(), picture)
    assert image.imdecode(encoded(picture[:, :, 0]), flag=-1).shape == (5, 7, 1)


def test_a_camera_held_on_its_side():
    pil = pytest.importorskip("PIL.Image", reason="encodes images")
    exif = pil.Exif()
    exif[0x0112] = 6  # turn by 90°
    data = encoded(np.zeros((4, 6, 3), np.uint8), "JPEG", exif=exif.tobytes())
    assert image.imdecode(data).shape == (6, 4, 3)


def test_what_is_no_image(tmp_path):
    pytest.importorskip("PIL.Image", reason="tells what is an image")
    with pytest.raises(MXNetError, match="Invalid image file"):
        image.imdecode(b"nonsense")
    with pytest.raises(ValueError, match="buf must be of type bytes"):
        image.imdecode("text")
    with pytest.raises(MXNetError, match="it is empty"):
        image.imdecode(b"")
    with pytest.raises(MXNetError, match="cannot read the image .*nothing.png: No such file"):
        image.imread(tmp_path / "nothing.png")


def test_without_pillow(monkeypatch):
    import builtins

    found = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("PIL"):
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MXNetError, match="pip install pillow"):
        image.imdecode(b"x")


def test_wrong_arguments():
    x = nd.zeros((4, 4, 3))
    with pytest.raises(ValueError, match="Unknown interp method 7"):
        image.resize_short(x, 2, 7)
    with pytest.raises(MXNetError, match="interp must be 0 to 4"):
        image.imresize(x, 2, 2, 9)
    with pytest.raises(MXNetError, match="cannot resize an image"):
        image.imresize(x, 0, 2)
    with pytest.raises(MXNetError, match="border type 3"):
        image.copyMakeBorder(x, 1, 1, 1, 1, type=3)
    with pytest.raises(ValueError, match="cannot be both"):
        image.imrotate(x, 3, True, True)
    with pytest.raises(AssertionError, match="rand_resize needs rand_crop"):
        image.CreateAugmenter((3, 2, 2), rand_resize=True)
    with pytest.raises(MXNetError, match="reaches beyond the image"):
        nd.image.crop(x, x=2, y=0, width=3, height=1)


def test_a_border_of_one_color():
    framed = image.copyMakeBorder(nd.ones((2, 2, 3)), 1, 0, 0, 1, values=(7, 8, 9)).asnumpy()
    assert framed.shape == (3, 3, 3) and framed[0, 0].tolist() == [7, 8, 9] and framed[1, 0].tolist() == [1, 1, 1]


def test_colors_of_gray_pictures_keep_their_meaning():
    """Saturation and hue change nothing where red, green and blue are equal; brightness scales everything."""
    gray = nd.array(np.repeat(np.arange(12.0).reshape(3, 4, 1) * 20, 3, axis=2))
    half = {"min_factor": 0.5, "max_factor": 0.5}
    for change in (nd.image.random_saturation, nd.image.random_hue):
        assert np.abs((change(gray, **half) - gray).asnumpy()).max() < 1e-3
    assert np.allclose(nd.image.random_brightness(gray, **half).asnumpy(), gray.asnumpy() / 2)
    mean = gray.asnumpy().mean()
    assert np.allclose(nd.image.random_contrast(gray, **half).asnumpy(), (gray.asnumpy() + mean) / 2)


def test_hue_turns_red_into_green():
    red = nd.array(np.full((1, 1, 3), (200.0, 0, 0)))
    for turn, expected in ((1 / 3, (0, 200, 0)), (2 / 3, (0, 0, 200)), (1, (200, 0, 0)), (0.5, (0, 200, 200))):
        got = nd.image.random_hue(red, min_factor=turn, max_factor=turn).asnumpy()[0, 0]
        assert np.abs(got - expected).max() < 1e-2
    color = nd.array([[[10.0, 120, 90]]])
    pale = nd.image.random_saturation(color, min_factor=0, max_factor=0).asnumpy()[0, 0]
    assert np.allclose(pale, np.dot((10, 120, 90), GRAY))


# Records


@pytest.mark.parametrize(
    ("contents", "words"),
    [(b"not a record at all", "no record starts at byte 0"), (b"\x0a\x23\xd7\xce\x10", "at byte 0 is cut off")],
)
def test_what_is_no_record(tmp_path, contents, words):
    (tmp_path / "x.rec").write_bytes(contents)
    with pytest.raises(MXNetError, match=words):
        recordio.MXRecordIO(tmp_path / "x.rec", "r").read()


def test_records_of_random_bytes(tmp_path):
    rng = np.random.RandomState(0)
    magic = (0xCED7230A).to_bytes(4, "little")
    pieces = [magic, b"a", b"bc", b"def", magic + b"x"]
    contents = [b"".join(pieces[k] for k in rng.randint(0, len(pieces), rng.randint(0, 9))) for _ in range(200)]
    file = recordio.MXRecordIO(tmp_path / "x.rec", "w")
    for content in contents:
        file.write(content)
    file.close()
    file = recordio.MXRecordIO(tmp_path / "x.rec", "r")
    assert [file.read() for _ in contents] == contents and file.read() is None
    file.reset()
    assert file.read() == contents[0]
    again = pickle.loads(pickle.dumps(file))
    assert again.read() == contents[0]
    with pytest.raises(AssertionError, match="opened for reading"):
        file.write(b"x")
    file.close()
    with pytest.raises(MXNetError, match="is closed"):
        file.read()


def test_wrong_record_files(tmp_path):
    with pytest.raises(ValueError, match="Invalid flag a"):
        recordio.MXRecordIO(tmp_path / "x", "a")
    (tmp_path / "x.rec").write_bytes(b"1234")
    (tmp_path / "x.idx").write_text("1\t0\nnonsense\n")
    with pytest.raises(MXNetError, match=r"x.idx:2: 'nonsense' is not key<TAB>offset"):
        recordio.MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "r")
    with pytest.raises(MXNetError, match="has no image header"):
        recordio.unpack(b"short")
    with pytest.raises(MXNetError, match="packed as .jpg or .png"):
        pytest.importorskip("PIL.Image")
        recordio.pack_img(recordio.IRHeader(0, 1, 2, 3), np.zeros((2, 2, 3)), img_fmt=".gif")


# Iterators


def test_shuffled_passes_are_those_of_the_seed():
    """Recorded from MXNet 1.9.1: each pass permutes the order of the pass before."""
    np.random.seed(4)
    it = mx_io.NDArrayIter(np.arange(10), np.arange(10) * 3, 4, shuffle=True)
    for expected in ([3, 8, 4, 9, 2, 6, 0, 1, 5, 7], [3, 7, 0, 2, 4, 9, 5, 6, 1, 8], [6, 9, 7, 5, 8, 1, 2, 3, 4, 0]):
        batches = list(it)
        assert all(np.array_equal(b.label[0].asnumpy(), b.data[0].asnumpy() * 3) for b in batches)
        assert [int(x) for b in batches for x in b.data[0].asnumpy()][:10] == expected
        it.reset()


def test_a_batch_axis_other_than_the_first():
    it = mx_io.NDArrayIter(np.arange(12).reshape(2, 6), batch_size=4, layout="TN", last_batch_handle="pad")
    assert it.provide_data[0].shape == (2, 4)
    assert [b.data[0].asnumpy()[0].tolist() for b in it] == [[0, 1, 2, 3], [4, 5, 0, 1]]


def test_prefetching_raises_what_the_iterator_raises():
    class Broken(mx_io.DataIter):
        provide_data = provide_label = [mx_io.DataDesc("data", (2, 3))]

        def next(self):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        next(mx_io.PrefetchingIter(Broken()))


def test_several_iterators_side_by_side():
    def source(n):
        return mx_io.NDArrayIter(np.arange(n), np.arange(n), 2)

    both = mx_io.PrefetchingIter([source(4), source(4)], [{"data": "a"}, {"data": "b"}], [{"softmax_label": "c"}] * 2)
    assert [d.name for d in both.provide_data] == ["a", "b"] and len(list(both)) == 2
    with pytest.raises(AssertionError, match="mismatches between iterators"):
        list(mx_io.PrefetchingIter([source(4), source(6)]))


def test_wrong_iterators():
    with pytest.raises(TypeError, match="Input must be NDArray"):
        mx_io.NDArrayIter("text")
    with pytest.raises(AssertionError, match="needs data"):
        mx_io.NDArrayIter([])
    with pytest.raises(ValueError, match="last_batch_handle is"):
        mx_io.NDArrayIter(np.ones(3), last_batch_handle="drop")
    for size in (0, -1, "2"):
        with pytest.raises(ValueError, match="batch_size is a number of examples"):
            mx_io.NDArrayIter(np.ones(3), batch_size=size)
    with pytest.raises(AssertionError, match="Data must be list"):
        mx_io.DataBatch(nd.ones(2))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"0\t8", "x.idx:1: '8' is not an offset in .*x.rec, which has 8 bytes"),
        (b"0\t-1", "'-1' is not an offset"),
        (b"0\t1.5", "'1.5' is not an offset"),
        (b"0\t" + b"9" * 30, "is not an offset"),
        (b"cat\t0", "x.idx:1: 'cat' is not a key of type int"),
        (b"\xff\t0", "x.idx is not text"),
    ],
)
def test_wrong_indices(tmp_path, line, said):
    (tmp_path / "x.rec").write_bytes(b"12345678")
    (tmp_path / "x.idx").write_bytes(line)
    with pytest.raises(MXNetError, match=said):
        recordio.MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "r")


def test_a_record_longer_than_its_file_takes_no_memory(tmp_path):
    (tmp_path / "x.rec").write_bytes(struct.pack("<II", 0xCED7230A, (1 << 29) - 1))
    file = recordio.MXRecordIO(tmp_path / "x.rec", "r")
    tracemalloc.start()
    try:
        with pytest.raises(MXNetError, match="the record at byte 0 is cut off"):
            file.read()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
