"""Data for training and evaluation: datasets, samplers, and loaders that make batches."""

from gluonjit import mxnet_api as _mxnet_api
from gluonjit.gluon.data import vision
from gluonjit.gluon.data.dataloader import DataLoader
from gluonjit.gluon.data.dataset import ArrayDataset, Dataset, RecordFileDataset, SimpleDataset
from gluonjit.gluon.data.sampler import BatchSampler, FilterSampler, RandomSampler, Sampler, SequentialSampler

__all__ = [
    "ArrayDataset",
    "BatchSampler",
    "DataLoader",
    "Dataset",
    "FilterSampler",
    "RandomSampler",
    "RecordFileDataset",
    "Sampler",
    "SequentialSampler",
    "SimpleDataset",
    "vision",
]

_mxnet_api.explain(__name__)
