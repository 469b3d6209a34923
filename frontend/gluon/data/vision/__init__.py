"""Image datasets in local files, and transforms of images."""

from gluonjit import mxnet_api as _mxnet_api
from gluonjit.gluon.data.vision import transforms
from gluonjit.gluon.data.vision.datasets import (
    CIFAR10,
    CIFAR100,
    MNIST,
    FashionMNIST,
    ImageFolderDataset,
    ImageRecordDataset,
)

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "FashionMNIST",
    "ImageFolderDataset",
    "ImageRecordDataset",
    "transforms",
]

_mxnet_api.explain(__name__)
