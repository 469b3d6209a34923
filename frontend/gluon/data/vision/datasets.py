"""Image datasets: MNIST, CIFAR, record files, folders. All are read from local files; nothing is downloaded.

Examples are (image, label): the image is u8[height, width, channels], the label a number. If given,
`transform(image, label)` is applied to each example.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from gluonjit import image
from gluonjit import ndarray as nd
from gluonjit.base import MXNetError, data_dir
from gluonjit.data import records
from gluonjit.files import idx, packed
from gluonjit.gluon.data import dataset
from gluonjit.gluon.utils import _get_repo_file_url
from gluonjit.language.kinds import as_current
from gluonjit.util import is_np_array

__all__ = ["CIFAR10", "CIFAR100", "MNIST", "FashionMNIST", "ImageFolderDataset", "ImageRecordDataset"]

Transform = Callable[[Any, Any], Any] | None


class _LocalDataset(dataset.Dataset):
    """Images and labels that the constructor reads from files in the folder `root`."""

    namespace: ClassVar[str]

    def __init__(self, root: str | os.PathLike[str] | None, train: bool, transform: Transform) -> None:
        self._root = Path(data_dir(), "datasets", self.namespace) if root is None else Path(root).expanduser()
        self._train = train
        self._transform = transform
        images, labels = self._read()
        self._data = as_current(nd.array(images, dtype=np.uint8))
        self._label: Any = as_current(nd.array(labels, dtype=labels.dtype)) if is_np_array() else labels

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        """Images u8[n, height, width, channels] and labels i32[n]."""
        raise NotImplementedError

    def _missing(self, wanted: Iterable[str], archive: str) -> MXNetError:
        url = _get_repo_file_url(f"gluon/dataset/{self.namespace}", archive)
        return MXNetError(
            f"{type(self).__name__}: {self._root} has no file {' or '.join(wanted)}. gluonjit downloads nothing; "
            f"fetch {url}, or the like, and put it there"
        )

    def __getitem__(self, idx: int) -> Any:
        example = self._data[idx], self._label[idx]
        return example if self._transform is None else self._transform(*example)

    def __len__(self) -> int:
        return len(self._label)


class MNIST(_LocalDataset):
    """Handwritten digits, 28 x 28 x 1: 60,000 to train, 10,000 to test, in four files of MNIST's format (`.gz` or not).

    `root` is `~/.mxnet/datasets/mnist` unless given.
    """

    namespace = "mnist"

    def __init__(
        self, root: str | os.PathLike[str] | None = None, train: bool = True, transform: Transform = None
    ) -> None:
        super().__init__(root, train, transform)

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        part = "train" if self._train else "t10k"
        images = self._read_idx(f"{part}-images-idx3-ubyte", 3)
        labels = self._read_idx(f"{part}-labels-idx1-ubyte", 1)
        if len(images) != len(labels):
            raise MXNetError(f"{self._root}: {len(images)} images of {part}, but {len(labels)} labels")
        return images[..., None], labels.astype(np.int32)

    def _read_idx(self, name: str, ndim: int) -> np.ndarray:
        """The u8 array of `ndim` axes in the file of that name, packed or not."""
        files = [self._root / f"{name}.gz", self._root / name]
        file = next((f for f in files if f.is_file()), None)
        if file is None:
            raise self._missing((f.name for f in files), f"{name}.gz")
        return idx.read(file, ndim)


class FashionMNIST(MNIST):
    """Pictures of clothes, in MNIST's format. `root` is `~/.mxnet/datasets/fashion-mnist` unless given."""

    namespace = "fashion-mnist"


class CIFAR10(_LocalDataset):
    """Images of ten classes, 32 x 32 x 3: 50,000 to train, 10,000 to test, in CIFAR's binary files.

    The files are in `root` (`~/.mxnet/datasets/cifar10` unless given), in a folder below it, or in the archive
    `cifar-10-binary.tar.gz` there.
    """

    namespace = "cifar10"
    archive: ClassVar[str] = "cifar-10-binary.tar.gz"
    folder: ClassVar[str] = "cifar-10-batches-bin"
    train_files: ClassVar[tuple[str, ...]] = tuple(f"data_batch_{k}.bin" for k in range(1, 6))
    test_files: ClassVar[tuple[str, ...]] = ("test_batch.bin",)
    n_labels: ClassVar[int] = 1

    def __init__(
        self, root: str | os.PathLike[str] | None = None, train: bool = True, transform: Transform = None
    ) -> None:
        super().__init__(root, train, transform)

    def _label_column(self) -> int:
        return 0

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        row = self.n_labels + 3 * 32 * 32
        batches = []
        for name in self.train_files if self._train else self.test_files:
            data = self._contents(name)
            if not data or len(data) % row:
                raise MXNetError(f"{name} has {len(data)} bytes, which is not a multiple of {row}: not a CIFAR file")
            batches.append(np.frombuffer(data, np.uint8).reshape(-1, row))
        rows = np.concatenate(batches)
        images = rows[:, self.n_labels :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return images, rows[:, self._label_column()].astype(np.int32)

    def _contents(self, name: str) -> bytes:
        import tarfile

        for file in (self._root / name, self._root / self.folder / name):
            if file.is_file():
                return file.read_bytes()
        archive = self._root / self.archive
        if archive.is_file():
            try:
                with packed.opened(archive) as unpacked, tarfile.open(fileobj=unpacked, mode="r:") as tar:  # type: ignore[call-overload]
                    for member in tar:
                        if PurePosixPath(member.name).parts in ((name,), (self.folder, name)):
                            opened = tar.extractfile(member) if member.isreg() else None
                            if opened is None:
                                raise MXNetError(f"{archive}: {member.name} is a link or a folder, no file")
                            return opened.read()
            except tarfile.TarError as e:
                raise MXNetError(f"{archive}: damaged archive ({e})") from e
        raise self._missing((name, self.archive), self.archive)


class CIFAR100(CIFAR10):
    """Like CIFAR10, with 20 classes, or 100 with `fine_label`. `root` is `~/.mxnet/datasets/cifar100` unless given."""

    namespace = "cifar100"
    archive = "cifar-100-binary.tar.gz"
    folder = "cifar-100-binary"
    train_files = ("train.bin",)
    test_files = ("test.bin",)
    n_labels = 2

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        fine_label: bool = False,
        train: bool = True,
        transform: Transform = None,
    ) -> None:
        self._fine_label = fine_label
        super().__init__(root, train, transform)

    def _label_column(self) -> int:
        return int(self._fine_label)


class ImageRecordDataset(dataset.RecordFileDataset):
    """Images in a `.rec` file that `im2rec` packed. `flag`: 1 color, 0 gray."""

    def __init__(self, filename: str | os.PathLike[str], flag: int = 1, transform: Transform = None) -> None:
        super().__init__(filename)
        self._flag = flag
        self._transform = transform

    def __getitem__(self, idx: int) -> Any:
        record = super().__getitem__(idx)
        if record is None:
            raise MXNetError(f"{self.filename} ends before record {idx}")
        header, data = records.unpack(record)
        example = image.imdecode(data, self._flag), header.label
        return example if self._transform is None else self._transform(*example)


class ImageFolderDataset(dataset.Dataset):
    """Image files in one folder per class: `root/cat/1.jpg`. Classes are numbered in the order of their names.

    `synsets` has the names, `items` the pairs (file, class number). `flag`: 1 color, 0 gray.
    """

    def __init__(self, root: str | os.PathLike[str], flag: int = 1, transform: Transform = None) -> None:
        self._root = os.path.expanduser(os.fspath(root))
        self._flag = flag
        self._transform = transform
        self._exts = [".jpg", ".jpeg", ".png"]
        self.synsets: list[str] = []
        self.items: list[tuple[str, int]] = []
        self._list_images(self._root)

    def _list_images(self, root: str) -> None:
        for folder in sorted(os.listdir(root)):
            path = os.path.join(root, folder)
            if not os.path.isdir(path):
                warnings.warn(f"Ignoring {path}, which is not a directory.", stacklevel=3)
                continue
            label = len(self.synsets)
            self.synsets.append(folder)
            for name in sorted(os.listdir(path)):
                file = os.path.join(path, name)
                ext = os.path.splitext(name)[1]
                if ext.lower() not in self._exts:
                    known = ", ".join(self._exts)
                    warnings.warn(f"Ignoring {file} of type {ext}. Only support {known}", stacklevel=3)
                    continue
                self.items.append((file, label))

    def __getitem__(self, idx: int) -> Any:
        file, label = self.items[idx]
        img = image.imread(file, self._flag)
        return (img, label) if self._transform is None else self._transform(img, label)

    def __len__(self) -> int:
        return len(self.items)
