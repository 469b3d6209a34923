"""Samplers: the order of examples, and their division into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["BatchSampler", "FilterSampler", "IntervalSampler", "RandomSampler", "Sampler", "SequentialSampler"]


class Sampler:
    """An iterable of known length that can be iterated repeatedly.

    >>> list(gluon.data.SequentialSampler(3)), len(gluon.data.SequentialSampler(3))
    ([0, 1, 2], 3)
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


class SequentialSampler(Sampler):
    """start, start + 1, …: `length` numbers.

    >>> list(gluon.data.SequentialSampler(3, start=5))
    [5, 6, 7]
    """

    def __init__(self, length: int, start: int = 0) -> None:
        self._length = length
        self._start = start

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._start, self._start + self._length))

    def __len__(self) -> int:
        return self._length


class RandomSampler(Sampler):
    """The numbers below `length`, shuffled by NumPy's global generator.

    >>> [int(k) for k in sorted(gluon.data.RandomSampler(4))]
    [0, 1, 2, 3]
    """

    def __init__(self, length: int) -> None:
        self._length = length

    def __iter__(self) -> Iterator[int]:
        indices = np.arange(self._length)
        np.random.shuffle(indices)
        return iter(indices)

    def __len__(self) -> int:
        return self._length


class IntervalSampler(Sampler):
    """0, `interval`, 2 · `interval`, … below `length`; with `rollover` then 1, 1 + `interval`, …, until all are there.

    `gluon.contrib.data` exports it.

    >>> list(gluon.contrib.data.IntervalSampler(5, interval=2))
    [0, 2, 4, 1, 3]
    """

    def __init__(self, length: int, interval: int, rollover: bool = True) -> None:
        if interval > length:
            raise AssertionError(f"Interval {interval} must be smaller than or equal to length {length}")
        self._length = length
        self._interval = interval
        self._rollover = rollover

    def __iter__(self) -> Iterator[int]:
        for start in range(self._interval if self._rollover else 1):
            yield from range(start, self._length, self._interval)

    def __len__(self) -> int:
        # MXNet says `length` without `rollover`, too, so that loaders promise batches which never come.
        return self._length if self._rollover else -(-self._length // self._interval)


class FilterSampler(Sampler):
    """The indices of the examples of a dataset for which `fn(example)` is true.

    >>> list(gluon.data.FilterSampler(lambda x: x > 3, gluon.data.SimpleDataset([3, 5, 7])))
    [1, 2]
    """

    def __init__(self, fn: Callable[[Any], Any], dataset: Any) -> None:
        self._fn = fn
        self._dataset = dataset
        self._indices = [k for k, sample in enumerate(dataset) if fn(sample)]

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)


class BatchSampler(Sampler):
    """Lists of `batch_size` indices from another sampler.

    `last_batch`: an incomplete batch at the end is kept ('keep'), dropped ('discard'), or starts the next iteration
    ('rollover').

    >>> list(gluon.data.BatchSampler(gluon.data.SequentialSampler(5), 2, last_batch="discard"))
    [[0, 1], [2, 3]]
    """

    def __init__(self, sampler: Sampler, batch_size: int, last_batch: str = "keep") -> None:
        if last_batch not in ("keep", "discard", "rollover"):
            raise ValueError(f"last_batch must be one of 'keep', 'discard', or 'rollover', but got {last_batch}")
        if not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
            raise ValueError(f"batch_size is a number of samples, 1 or more, got {batch_size!r}")
        self._sampler = sampler
        self._batch_size = batch_size
        self._last_batch = last_batch
        self._prev: list[Any] = []

    def __iter__(self) -> Iterator[list[Any]]:
        batch, self._prev = self._prev, []
        for k in self._sampler:
            batch.append(k)
            if len(batch) == self._batch_size:
                yield batch
                batch = []
        if batch and self._last_batch == "keep":
            yield batch
        elif self._last_batch == "rollover":
            self._prev = batch

    def __len__(self) -> int:
        if self._last_batch == "keep":
            return -(-len(self._sampler) // self._batch_size)
        return (len(self._prev) + len(self._sampler)) // self._batch_size
