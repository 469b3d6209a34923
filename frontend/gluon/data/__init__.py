"""Data for training and evaluation: datasets, samplers, and loaders that make batches."""

from gluonjit.gluon.data import vision
from gluonjit.gluon.data.dataloader import DataLoader
from gluonjit.gluon.data.dataset import ArrayDataset, Dataset, RecordFileDataset, SimpleDataset
from gluonjit.gluon.data.sampler import BatchSampler, FilterSampler, RandomSampler, Sampler, SequentialSampler
from gluonjit.language import mxnet_names as _mxnet_names

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

_mxnet_names.explain(__name__)
