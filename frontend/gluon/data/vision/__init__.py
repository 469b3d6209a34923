"""Image datasets in local files, and transforms of images."""

from gluonjit.gluon.data.vision import transforms
from gluonjit.gluon.data.vision.datasets import (
    CIFAR10,
    CIFAR100,
    MNIST,
    FashionMNIST,
    ImageFolderDataset,
    ImageRecordDataset,
)
from gluonjit.language import mxnet_names as _mxnet_names

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "FashionMNIST",
    "ImageFolderDataset",
    "ImageRecordDataset",
    "transforms",
]

_mxnet_names.explain(__name__)
