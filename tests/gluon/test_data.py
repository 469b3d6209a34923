"""Datasets and loaders. What MXNet answers is in `frontend/test_python_api.py`; here are errors, workers and files."""

import gc
import gzip
import io
import multiprocessing
import os
import pickle
import signal
import struct
import subprocess
import sys
import tarfile
import textwrap
import threading
import time

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import nd, recordio
from gluonjit.base import MXNetError
from gluonjit.files import packed
from gluonjit.gluon import data
from gluonjit.gluon.data import vision

fork_only = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")


class Squares(data.Dataset):
    """k -> (k² as array of one element, k), with something odd at chosen places."""

    def __init__(self, length, odd=None):
        self.length = length
        self.odd = odd or {}

    def __len__(self):
        return self.length

    def __getitem__(self, k):
        action = self.odd.get(k)
        if action is not None:
            action()
        return nd.array([k * k]), k


def fail():
    raise KeyError("no such example")


def hang():
    time.sleep(1000)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def flat(loader):
    return [int(k) for squares, numbers in loader for k in numbers.asnumpy() if squares.shape[1:] == (1,)]


@pytest.mark.parametrize("settings", [{}, {"num_workers": 2}, {"num_workers": 2, "thread_pool": True}])
def test_batches_come_in_order(settings):
    loader = data.DataLoader(Squares(23), 4, **settings)
    assert len(loader) == 6
    for _ in range(2):
        assert flat(loader) == list(range(23))
    first = next(iter(loader))
    assert [type(x).__name__ for x in first] == ["NDArray", "NDArray"]
    assert first[0].asnumpy().tolist() == [[0.0], [1.0], [4.0], [9.0]] and first[1].dtype == np.int64


def test_prefetch_may_exceed_the_epoch_and_be_nothing():
    for prefetch in (0, 50):
        assert flat(data.DataLoader(Squares(5), 2, num_workers=1, prefetch=prefetch)) == list(range(5))


@pytest.fixture
def np_semantics():
    mx.npx.set_np()
    yield
    mx.npx.reset_np()


@pytest.mark.parametrize("settings", [{}, {"num_workers": 1}, {"num_workers": 1, "thread_pool": True}])
def test_batches_are_of_numpy_after_set_np(settings, np_semantics):
    dataset = data.ArrayDataset(np.ones((4, 3)), mx.np.arange(4), list(range(4)))
    batch = next(iter(data.DataLoader(dataset, 2, **settings)))
    assert [type(x) for x in batch] == [mx.np.ndarray] * 3
    assert [x.dtype for x in batch] == ["float64", "float32", "int64"]


def test_split_and_load_makes_arrays_of_numpy_after_set_np(np_semantics):
    for contexts in ([mx.cpu()], [mx.cpu(0), mx.cpu(1)]):
        parts = mx.gluon.utils.split_and_load(np.ones((2, 3)), contexts)
        assert [(type(x), x.dtype) for x in parts] == [(mx.np.ndarray, "float64")] * len(contexts)


def test_pickler_of_programs_with_their_own_loaders():
    stream = io.BytesIO()
    mx.gluon.data.dataloader.ForkingPickler(stream).dump(nd.ones(2))
    assert pickle.loads(stream.getvalue()).shape == (2,)


@pytest.mark.parametrize("thread_pool", [False, True])
def test_an_error_in_a_worker_is_raised_here(thread_pool):
    loader = data.DataLoader(Squares(12, {5: fail}), 2, num_workers=2, thread_pool=thread_pool)
    batches = iter(loader)
    next(batches), next(batches)
    with pytest.raises(KeyError, match="no such example"):
        next(batches)
    # The loader is as good as new.
    assert [b[1].asnumpy().tolist() for _, b in zip(range(2), loader)] == [[0, 1], [2, 3]]


@fork_only
def test_a_worker_that_dies_is_noticed():
    loader = data.DataLoader(Squares(8, {3: die}), 2, num_workers=2)
    with pytest.raises(MXNetError, match="worker died"):
        flat(loader)
    loader._dataset = Squares(8)
    assert flat(loader) == list(range(8))  # with new workers


@fork_only
def test_a_worker_that_hangs_is_given_up():
    loader = data.DataLoader(Squares(4, {2: hang}), 2, num_workers=1, timeout=0.5)
    batches = iter(loader)
    next(batches)
    with pytest.raises(MXNetError, match=r"no batch came for 0.5 seconds"):
        next(batches)


@fork_only
def test_workers_end_with_their_loader():
    loader = data.DataLoader(Squares(100, {k: lambda: time.sleep(0.01) for k in range(100)}), 2, num_workers=2)
    batches = iter(loader)
    next(batches)
    processes = list(loader._worker_pool._executor._processes.values())
    assert len(processes) == 2 and all(p.is_alive() for p in processes)
    del loader, batches
    gc.collect()
    # The pool's own thread joins them, too: between its join and its note of that, a process counts as alive.
    deadline = time.monotonic() + 20
    while any(p.is_alive() for p in processes):
        assert time.monotonic() < deadline, "a worker is still there"
        time.sleep(0.01)


@fork_only
def test_forking_beside_busy_threads():
    """Threads hold the library's locks now and then; a worker must not wait for a lock that no thread of it holds."""
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            nd.random.uniform(shape=(3,))
            nd.ones((4,))[1:2] += 1

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            loader = data.DataLoader(Noise(6), 2, num_workers=2, timeout=60)
            assert sum(len(b) for b in loader) == 6
    finally:
        stop.set()
        for thread in threads:
            thread.join()


class Noise(data.Dataset):
    """Random numbers, of three generators."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, k):
        import random

        view = nd.zeros(3)[0:2]
        view += nd.random.uniform(shape=(2,))
        return nd.concat(view, nd.array([np.random.rand(), random.random()]), dim=0)


@fork_only
def test_workers_draw_different_numbers():
    drawn = np.concatenate([b.asnumpy() for b in data.DataLoader(Noise(32), 4, num_workers=2)])
    for column in drawn.T:
        assert len(np.unique(column)) == len(column)


def test_a_program_ends_while_workers_are_busy(tmp_path):
    program = """
    import os, time
    from gluonjit import nd
    from gluonjit.gluon import data
    class Slow(data.Dataset):
        def __len__(self): return 40
        def __getitem__(self, k):
            time.sleep(0.02)
            return nd.array([k])
    os.loaders = []  # which die when modules have been taken apart
    for threads in (False, True):
        loader = data.DataLoader(Slow(), 2, num_workers=2, thread_pool=threads)
        os.loaders.append(loader)
        print(next(iter(loader)).shape)
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.split("\n")[:2] == ["(2, 1)", "(2, 1)"] and not done.stderr


def test_reload_and_pinning():
    loader = data.DataLoader(Squares(4), 2, num_workers=1, auto_reload=True, pin_memory=True)
    assert flat(loader) == flat(loader) == [0, 1, 2, 3]
    assert next(iter(loader))[0].context == mx.cpu_pinned(0)
    loader.clean()
    assert flat(loader) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({}, ValueError, "batch_size must be specified"),
        ({"batch_size": 2, "shuffle": True, "sampler": data.SequentialSampler(3)}, ValueError, "shuffle must not"),
        ({"batch_size": 2, "batch_sampler": [[0]]}, ValueError, "must not be specified if batch_sampler"),
        ({"batch_size": 0}, ValueError, "batch_size is a number of samples, 1 or more, got 0"),
        ({"batch_size": "2"}, ValueError, "got '2'"),
        ({"batch_size": 2, "timeout": 0}, AssertionError, "timeout must be positive"),
        ({"batch_size": 2, "last_batch": "drop"}, ValueError, "last_batch must be one of"),
    ],
)
def test_contradictory_settings(settings, error, words):
    with pytest.raises(error, match=words):
        data.DataLoader(Squares(3), **settings)


def test_default_batches():
    batch = data.dataloader.default_batchify_fn
    assert batch([np.float64(1), np.float64(2)]).dtype == np.float64
    assert batch([(1, [2, 3]), (4, [5, 6])])[1].asnumpy().tolist() == [[2, 3], [5, 6]]
    assert batch([nd.ones((2,), dtype="int32")] * 3).shape == (3, 2)


# Datasets


def test_a_lazy_transform_runs_each_time():
    seen = []
    lazy = data.SimpleDataset([1, 2]).transform(lambda x: seen.append(x) or -x)
    assert [lazy[0], lazy[0]] == [-1, -1] and seen == [1, 1]
    eager = data.SimpleDataset([1, 2]).transform(lambda x: seen.append(x) or -x, lazy=False)
    assert [eager[1], eager[1]] == [-2, -2] and seen == [1, 1, 1, 2]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: data.ArrayDataset(), AssertionError, "at least 1"),
        (lambda: data.ArrayDataset([1], [1, 2]), AssertionError, r"array\[1\] has 2"),
        (lambda: data.SimpleDataset([1]).shard(2, 2), AssertionError, "2 out of 2"),
        (lambda: data.SimpleDataset([1]).sample([0]), TypeError, "Invalid sampler type"),
        (lambda: data.RecordFileDataset("/nowhere.rec"), MXNetError, "cannot open /nowhere.rec"),
    ],
)
def test_wrong_datasets(make, error, words):
    with pytest.raises(error, match=words):
        make()


@fork_only
def test_record_files_in_workers(tmp_path):
    file = recordio.MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "w")
    for k in range(20):
        file.write_idx(k, f"record {k}".encode())
    file.close()
    records = data.RecordFileDataset(tmp_path / "x.rec")
    assert len(records) == 20 and records[7] == b"record 7"
    loader = data.DataLoader(records.transform(lambda r: int(r.split()[1])), 3, num_workers=2)
    assert [int(k) for batch in loader for k in batch.asnumpy()] == list(range(20))
    assert records[0] == b"record 0"  # this process's position is its own


# Images


def write_idx(path, array, compress):
    head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    with gzip.open(f"{path}.gz", "wb") if compress else open(path, "wb") as file:
        file.write(head + array.tobytes())


@pytest.mark.parametrize("compress", [False, True])
def test_mnist(tmp_path, compress):
    rng = np.random.RandomState(0)
    pictures, labels = rng.randint(0, 256, (5, 28, 28)).astype(np.uint8), np.arange(5, dtype=np.uint8)
    for part in ("train", "t10k"):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte", pictures, compress)
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte", labels, compress)
    for dataset in (vision.MNIST(tmp_path), vision.FashionMNIST(tmp_path, train=False)):
        assert len(dataset) == 5
        picture, label = dataset[3]
        assert picture.dtype == np.uint8 and label == 3 and label.dtype == np.int32
        assert np.array_equal(picture.asnumpy()[:, :, 0], pictures[3])
    doubled = vision.MNIST(tmp_path, transform=lambda x, y: (x.astype("float32") / 255, int(y)))[4]
    assert doubled[0].dtype == np.float32 and doubled[1] == 4


def test_mnist_that_is_not_there(tmp_path):
    with pytest.raises(MXNetError, match=r"has no file train-images-idx3-ubyte.gz or .*downloads nothing.*mnist/train"):
        vision.MNIST(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"nonsense")
    with pytest.raises(MXNetError, match="is not an MNIST file of 3 axes"):
        vision.MNIST(tmp_path)


def cifar_rows(labels, rng):
    pictures = rng.randint(0, 256, (4, 3, 32, 32)).astype(np.uint8)
    return pictures, np.concatenate([labels, pictures.reshape(4, -1)], axis=1).astype(np.uint8)


def test_cifar(tmp_path):
    rng = np.random.RandomState(1)
    pictures, rows = cifar_rows(np.arange(4)[:, None], rng)
    for k in range(1, 6):
        (tmp_path / f"data_batch_{k}.bin").write_bytes(rows.tobytes())
    train = vision.CIFAR10(tmp_path)
    assert len(train) == 20 and train[6][1] == 2
    assert np.array_equal(train[6][0].asnumpy(), pictures[2].transpose(1, 2, 0))
    with pytest.raises(MXNetError, match=r"no file test_batch.bin or cifar-10-binary.tar.gz"):
        vision.CIFAR10(tmp_path, train=False)


def test_images_are_of_numpy_after_set_np(tmp_path, np_semantics):
    pictures, rows = cifar_rows(np.arange(4)[:, None], np.random.RandomState(1))
    (tmp_path / "test_batch.bin").write_bytes(rows.tobytes())
    image, label = vision.CIFAR10(tmp_path, train=False).transform_first(vision.transforms.ToTensor())[2]
    assert type(image) is type(label) is mx.np.ndarray and label.dtype == "int32" and label == 2
    (tmp_path / "folder" / "cat").mkdir(parents=True)
    pil = pytest.importorskip("PIL.Image", reason="writes and reads image files")
    pil.fromarray(np.zeros((4, 6, 3), np.uint8)).save(tmp_path / "folder" / "cat" / "1.png")
    image, label = vision.ImageFolderDataset(tmp_path / "folder")[0]
    assert type(image) is mx.np.ndarray and label == 0


def test_cifar_100_in_its_archive(tmp_path):
    _, rows = cifar_rows(np.stack([np.arange(4), np.arange(4) * 20], 1), np.random.RandomState(1))
    (tmp_path / "train.bin").write_bytes(rows.tobytes())
    with tarfile.open(tmp_path / "cifar-100-binary.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "train.bin", "cifar-100-binary/train.bin")
    (tmp_path / "train.bin").unlink()
    assert [y for _, y in vision.CIFAR100(tmp_path)] == [0, 1, 2, 3]
    assert [y for _, y in vision.CIFAR100(tmp_path, fine_label=True)] == [0, 20, 40, 60]


def archive_of(folder, *members):
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))


def test_archives_that_are_not_cifars(tmp_path):
    link = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    archive_of(tmp_path, link)
    with pytest.raises(MXNetError, match="test_batch.bin is a link or a folder"):
        vision.CIFAR10(tmp_path, train=False)
    outside = [tarfile.TarInfo(name) for name in ("../test_batch.bin", "/test_batch.bin")]
    archive_of(tmp_path, *outside)
    with pytest.raises(MXNetError, match="no file test_batch.bin"):
        vision.CIFAR10(tmp_path, train=False)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(b"nonsense" * 100))
    with pytest.raises(MXNetError, match="damaged archive"):
        vision.CIFAR10(tmp_path, train=False)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"nonsense")
    with pytest.raises(MXNetError, match="damaged gzip file"):
        vision.CIFAR10(tmp_path, train=False)


def test_data_sets_that_unpack_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "SPARE", 0)
    big = tarfile.TarInfo("test_batch.bin")
    big.size = 1 << 20
    archive_of(tmp_path, big)
    with pytest.raises(MXNetError, match="cifar-10-binary.tar.gz unpacks to .* bytes or more; .* is the most"):
        vision.CIFAR10(tmp_path, train=False)
    images = struct.pack(">HBB3I", 0, 8, 3, 1, 1 << 10, 1 << 10) + bytes(1 << 20)
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
    with pytest.raises(MXNetError, match="t10k-images-idx3-ubyte.gz unpacks to"):
        vision.MNIST(tmp_path, train=False)


def test_image_folders_and_records(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="reads image files")
    colors = {"blue": (0, 0, 255), "red": (255, 0, 0)}
    for name, color in colors.items():
        (tmp_path / "all" / name).mkdir(parents=True)
        image.new("RGB", (6, 4), color).save(tmp_path / "all" / name / "1.png")
    (tmp_path / "all" / "red" / "notes.txt").write_text("")
    with pytest.warns(UserWarning, match="notes.txt"):
        folder = vision.ImageFolderDataset(tmp_path / "all")
    assert folder.synsets == ["blue", "red"] and [y for _, y in folder.items] == [0, 1]
    picture, label = folder[1]
    assert picture.shape == (4, 6, 3) and label == 1 and picture.asnumpy()[0, 0].tolist() == [255, 0, 0]
    with pytest.warns(UserWarning):
        assert vision.ImageFolderDataset(tmp_path / "all", flag=0)[0][0].shape == (4, 6, 1)
    file = recordio.MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "w")
    bgr = np.zeros((4, 6, 3), np.uint8)
    bgr[:, :, 0] = 255
    file.write_idx(0, recordio.pack_img(recordio.IRHeader(0, 5.0, 0, 0), bgr, img_fmt=".png"))
    file.close()
    picture, label = vision.ImageRecordDataset(tmp_path / "x.rec")[0]
    assert label == 5.0 and picture.asnumpy()[0, 0].tolist() == [0, 0, 255]
    header, again = recordio.unpack_img(data.RecordFileDataset(tmp_path / "x.rec")[0])
    assert header.label == 5.0 and np.array_equal(again, bgr)


def test_transforms_in_a_loader():
    t = vision.transforms
    pictures = data.ArrayDataset(nd.random.randint(0, 256, (6, 10, 12, 3)).astype("uint8"), np.arange(6))
    chain = t.Compose(
        [
            t.RandomResizedCrop(8),
            t.RandomFlipLeftRight(),
            t.RandomFlipTopBottom(),
            t.RandomColorJitter(0.1, 0.1, 0.1, 0.1),
            t.RandomBrightness(0.1),
            t.RandomContrast(0.1),
            t.RandomSaturation(0.1),
            t.RandomHue(0.1),
            t.RandomLighting(0.1),
            t.RandomApply(t.CenterCrop(8), 0.5),
            t.ToTensor(),
            t.Normalize(0.5, 0.25),
            t.Rotate(10),
            t.RandomRotation((-5, 5), rotate_with_proba=0.5),
        ]
    )
    for x, y in data.DataLoader(pictures.transform_first(chain), 3, num_workers=1):
        assert x.shape == (3, 3, 8, 8) and x.dtype == np.float32 and y.shape == (3,)
        assert np.isfinite(x.asnumpy()).all()


def test_hybrid_transforms_may_be_compiled():
    t = vision.transforms
    net = mx.gluon.nn.HybridSequential()
    net.add(
        t.Resize((8, 6)), t.CropResize(1, 1, 5, 4), t.Cast("float32"), t.ToTensor(), t.Normalize(0.5, (0.1, 0.2, 0.3))
    )
    x = nd.random.uniform(0, 255, (10, 12, 3)).astype("uint8")
    expected = net(x).asnumpy()
    net.hybridize()
    assert np.abs(net(x).asnumpy() - expected).max() <= 1e-5 * np.abs(expected).max()


def test_wrong_types_are_told():
    with pytest.raises(TypeError, match="Consider calling it after ToTensor"):
        vision.transforms.Rotate(10)(nd.zeros((3, 4, 4), dtype="uint8"))
    with pytest.raises(ValueError, match="ordered"):
        vision.transforms.RandomRotation((5, 5))
