"""Datasets: sequences of examples, and transformations of datasets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from gluonjit.data import records
from gluonjit.gluon.data.sampler import FilterSampler, Sampler, SequentialSampler
from gluonjit.ndarray import NDArray

__all__ = ["ArrayDataset", "Dataset", "RecordFileDataset", "SimpleDataset"]


class Dataset:
    """The base of datasets: `dataset[k]` is the k-th example, `len(dataset)` their number.

    An example may be any object; a tuple means (data, label, …). Methods that return a new dataset do not change this
    one.

    >>> class Squares(gluon.data.Dataset):
    ...     def __getitem__(self, k):
    ...         return k * k
    ...
    ...     def __len__(self):
    ...         return 4
    >>> negated = Squares().transform(lambda x: -x)
    >>> len(negated), negated[3]
    (4, -9)
    """

    def __getitem__(self, idx: int) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    if TYPE_CHECKING:  # Python iterates by `__getitem__`, which type checkers do not accept

        def __iter__(self) -> Iterator[Any]: ...

    def filter(self, fn: Callable[[Any], Any]) -> Dataset:
        """The examples for which `fn(example)` is true; `fn` is called for all of them immediately."""
        return _SampledDataset(self, FilterSampler(fn, self))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """The `index`-th of `num_shards` parts, whose sizes differ by at most one example."""
        if num_shards < 1:
            raise AssertionError("Number of shards must be greater than 0")
        if not 0 <= index < num_shards:
            raise AssertionError(f"Shard index of out bound: {index} out of {num_shards}")
        size, longer = divmod(len(self), num_shards)
        start = size * index + min(index, longer)
        return _SampledDataset(self, SequentialSampler(size + (index < longer), start))

    def take(self, count: int | None) -> Dataset:
        """The first `count` examples, or all if there are fewer."""
        return _SampledDataset(self, SequentialSampler(len(self) if count is None else min(count, len(self))))

    def sample(self, sampler: Sampler) -> Dataset:
        """The examples whose indices a sampler yields, in its order; it is iterated once, immediately."""
        if not isinstance(sampler, Sampler):
            raise TypeError(f"Invalid sampler type: {type(sampler)}. Expected gluon.data.Sampler instead.")
        return _SampledDataset(self, sampler)

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:
        """The results of `fn(example)`, or `fn(*example)` for tuples: computed at each access if `lazy`, else now."""
        transformed = _LazyTransformDataset(self, fn)
        return transformed if lazy else SimpleDataset([transformed[k] for k in range(len(transformed))])

    def transform_first(self, fn: Callable[[Any], Any], lazy: bool = True) -> Dataset:
        """Applies `fn` only to the first part of each example, such as the image of (image, label)."""
        return self.transform(_TransformFirstClosure(fn), lazy)


class SimpleDataset(Dataset):
    """A list, or another object with a length and indexing, as a dataset.

    >>> dataset = gluon.data.SimpleDataset([3, 5, 7])
    >>> len(dataset), dataset[1]
    (3, 5)
    """

    def __init__(self, data: Any) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, idx: int) -> Any:
        return self._data[idx]


class _LazyTransformDataset(Dataset):
    def __init__(self, data: Any, fn: Callable[..., Any]) -> None:
        self._data = data
        self._fn = fn

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, idx: int) -> Any:
        item = self._data[idx]
        return self._fn(*item) if isinstance(item, tuple) else self._fn(item)


class _TransformFirstClosure:
    """Applies `fn` to the first argument. It is a class so that datasets can be pickled."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self._fn = fn

    def __call__(self, x: Any, *args: Any) -> Any:
        return (self._fn(x), *args) if args else self._fn(x)


class _SampledDataset(Dataset):
    def __init__(self, dataset: Any, sampler: Sampler) -> None:
        self._dataset = dataset
        self._sampler = sampler
        self._indices = list(sampler)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, idx: int) -> Any:
        return self._dataset[self._indices[idx]]


class ArrayDataset(Dataset):
    """Arrays, lists or datasets of equal length: the k-th example is `(x1[k], x2[k], …)`, or `x1[k]` for only one.

    >>> gluon.data.ArrayDataset([1, 2], ["a", "b"])[1]
    (2, 'b')
    """

    def __init__(self, *args: Any) -> None:
        if not args:
            raise AssertionError("Needs at least 1 arrays")
        self._length = len(args[0])
        self._data = []
        for k, data in enumerate(args):
            if len(data) != self._length:
                raise AssertionError(
                    "All arrays must have the same length; "
                    f"array[0] has length {self._length} while array[{k}] has {len(data)}."
                )
            # Elements of a NumPy array are scalars, which are cheaper than NDArrays of one element.
            self._data.append(data.asnumpy() if isinstance(data, NDArray) and data.ndim == 1 else data)

    def __getitem__(self, idx: int) -> Any:
        return self._data[0][idx] if len(self._data) == 1 else tuple(data[idx] for data in self._data)

    def __len__(self) -> int:
        return self._length


class RecordFileDataset(Dataset):
    """The records of a `.rec` file, as bytes, in the order of the `.idx` file beside it."""

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.filename = os.fspath(filename)
        self.idx_file = os.path.splitext(self.filename)[0] + ".idx"
        self._record = records.MXIndexedRecordIO(self.idx_file, self.filename, "r")

    def __getitem__(self, idx: int) -> bytes | None:
        return self._record.read_idx(self._record.keys[idx])

    def __len__(self) -> int:
        return len(self._record.keys)
