"""Data sets and models that MXNet's helpers download: read from local files; errors say where to put them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gluonjit import io
from gluonjit.base import MXNetError
from gluonjit.files import packed
from gluonjit.gluon.utils import download as _download

_MNIST = "http://data.mxnet.io/data/mnist/"
_UBYTE = [(f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte") for part in ("train", "t10k")]
_MODELS = "http://data.mxnet.io/models/"
_KNOWN = {
    "imagenet1k-inception-bn": ("imagenet/inception-bn/Inception-BN", 126),
    **{f"imagenet1k-resnet-{n}": (f"imagenet/resnet/{n}-layers/resnet-{n}", 0) for n in (18, 34, 50, 101, 152)},
    **{f"imagenet1k-resnext-{n}": (f"imagenet/resnext/{n}-layers/resnext-{n}", 0) for n in (50, 101)},
    "imagenet1k-resnext-101-64x4d": ("imagenet/resnext/101-layers/resnext-101-64x4d", 0),
    "imagenet11k-resnet-152": ("imagenet-11k/resnet-152/resnet-152", 0),
    "imagenet11k-place365ch-resnet-152": ("imagenet-11k-place365-ch/resnet-152", 0),
    "imagenet11k-place365ch-resnet-50": ("imagenet-11k-place365-ch/resnet-50", 0),
}


def download(
    url: str, fname: str | None = None, dirname: str | None = None, overwrite: bool = False, retries: int = 5
) -> str:
    """The file that this URL was downloaded to: `fname`, or its own last part, in `dirname`.

    Nothing is downloaded: when the file is not there, the error says where to get it and where to put it.
    """
    name = fname or url.rpartition("/")[2]
    path = os.path.join(dirname, name) if dirname else name
    return _download(url, path, retries=retries)


def download_model(
    model_name: str, dst_dir: str = "./", meta_info: Mapping[str, Mapping[str, str]] | None = None
) -> tuple[str | None, int]:
    """Where the files of a model are, as a checkpoint's prefix, and its epoch; (None, 0) for one that nobody knows."""
    if meta_info is None:
        urls = {
            name: (f"{_MODELS}{stem}-symbol.json", f"{_MODELS}{stem}-{n:04d}.params")
            for name, (stem, n) in _KNOWN.items()
        }
        meta_info = {name: {"symbol": graph, "params": values} for name, (graph, values) in urls.items()}
    if model_name not in meta_info:
        return None, 0
    meta = meta_info[model_name]
    prefix = os.path.join(dst_dir, model_name)
    for part, suffix in (("symbol", "symbol.json"), ("params", "0000.params")):
        if part not in meta:
            raise AssertionError(f"missing {part} url")
        download(meta[part], f"{prefix}-{suffix}")
    return prefix, 0


def get_mnist() -> dict[str, np.ndarray]:
    """MNIST, from the four `…-ubyte.gz` files in the current directory: images (n, 1, 28, 28) from 0 to 1, labels."""
    found: dict[str, np.ndarray] = {}
    for part, stem in (("train", "train"), ("test", "t10k")):
        with packed.opened(Path(download(f"{_MNIST}{stem}-labels-idx1-ubyte.gz"))) as file:
            labels = np.frombuffer(file.read()[8:], np.int8)
        with packed.opened(Path(download(f"{_MNIST}{stem}-images-idx3-ubyte.gz"))) as file:
            images = np.frombuffer(file.read()[16:], np.uint8)
        if images.size != labels.size * 28 * 28:
            raise MXNetError(f"{stem}-images-idx3-ubyte.gz has not one image of 28x28 for each of {labels.size} labels")
        found[f"{part}_data"] = images.reshape(-1, 1, 28, 28).astype(np.float32) / 255
        found[f"{part}_label"] = labels
    return found


def get_mnist_pkl() -> None:
    """Checks that `data/mnist.pkl.gz` exists."""
    _unpack_if_missing(["mnist.pkl.gz"], "http://deeplearning.net/data/mnist/mnist.pkl.gz")


def get_mnist_ubyte() -> None:
    """Checks for MNIST's four files in the folder `data`; unpacks `data/mnist.zip` if they do not exist."""
    _unpack_if_missing([name for files in _UBYTE for name in files], "http://data.mxnet.io/mxnet/data/mnist.zip")


def get_cifar10() -> None:
    """Checks for CIFAR-10's record files in `data/cifar`; unpacks `data/cifar10.zip` if they do not exist."""
    names = [f"cifar/{part}.{kind}" for part in ("train", "test") for kind in ("rec", "lst")]
    _unpack_if_missing(names, "http://data.mxnet.io/mxnet/data/cifar10.zip")


def _unpack_if_missing(names: Sequence[str], url: str) -> None:
    """Unpacks the archive that `url` was downloaded to into `data`, unless these files are there."""
    Path("data").mkdir(exist_ok=True)
    if not all(os.path.exists(os.path.join("data", name)) for name in names):
        path = download(url, dirname="data")
        if path.endswith(".zip"):
            packed.unzip(Path(path), Path("data"))


def get_mnist_iterator(
    batch_size: int, input_shape: Sequence[int], num_parts: int = 1, part_index: int = 0
) -> tuple[Any, Any]:
    """Iterators over MNIST's images to train and to test with; flat unless `input_shape` has three axes."""
    get_mnist_ubyte()
    train, test = (
        io.MNISTIter(
            os.path.join("data", images),
            os.path.join("data", labels),
            batch_size,
            flat=len(input_shape) != 3,
            num_parts=num_parts,
            part_index=part_index,
        )
        for images, labels in _UBYTE
    )
    return train, test


def get_zip_data(data_dir: str, url: str, data_origin_name: str) -> None:
    """Checks for `data_origin_name` in `data_dir`, which MXNet unpacks after downloading."""
    path = os.path.join(data_dir, data_origin_name)
    if not os.path.exists(path):
        packed.unzip(Path(download(url, dirname=data_dir)), Path(data_dir))


def get_bz2_data(data_dir: str, data_name: str, url: str, data_origin_name: str) -> None:
    """Unpacks `data_origin_name` in `data_dir` to `data_name`, unless that is there, and removes it."""
    target, source = os.path.join(data_dir, data_name), os.path.join(data_dir, data_origin_name)
    if not os.path.exists(target):
        download(url, fname=data_origin_name, dirname=data_dir)
        packed.unpack_bz2(Path(source), Path(target))
        os.remove(source)


def get_im2rec_path(home_env: str = "MXNET_HOME") -> str:
    """Where MXNet's tool im2rec.py is, in the folder that an environment variable names; OSError if it is not."""
    home = os.environ.get(home_env)
    for place in ("tools", os.path.join("..", "..", "tools")) if home is not None else ():
        path = os.path.join(home or "", place, "im2rec.py")
        if os.path.isfile(path):
            return path
    raise OSError(f"Could not find path to tools/im2rec.py: set {home_env} to a folder of MXNet")
