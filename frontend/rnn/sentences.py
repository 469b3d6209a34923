"""Sentences as numbers, and batches of sentences of similar length."""

from __future__ import annotations

import bisect
import random
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from gluonjit import ndarray
from gluonjit.io import DataBatch, DataDesc, DataIter


def encode_sentences(
    sentences: Iterable[Iterable[Hashable]],
    vocab: dict[Any, int] | None = None,
    invalid_label: int = -1,
    invalid_key: Hashable = "\n",
    start_label: int = 0,
    unknown_token: Any = None,
) -> tuple[list[list[int]], dict[Any, int]]:
    """(sentences as numbers, vocabulary). Without a given vocabulary, new words are numbered from `start_label`.

    With one, unknown words are replaced by `unknown_token`, which is added to it; AssertionError if that is None.
    """
    fixed = vocab is not None
    if vocab is None:
        vocab = {invalid_key: invalid_label}
    number = start_label
    encoded = []
    for sentence in sentences:
        row = []
        for word in sentence:
            if word not in vocab:
                if fixed and not unknown_token:
                    raise AssertionError(f"Unknown token {word}")
                number += number == invalid_label
                word = unknown_token or word
                vocab[word] = number
                number += 1
            row.append(vocab[word])
        encoded.append(row)
    return encoded, vocab


class BucketSentenceIter(DataIter):
    """Batches for language models: sentences, and as labels the words that follow.

    Sentences (lists of numbers) are padded with `invalid_label` to the next length in `buckets` (None: every length
    that fills a batch); longer ones are left out. `layout`: `NT` has shape (batch, length), `TN` (length, batch).
    """

    def __init__(
        self,
        sentences: Sequence[Sequence[int]],
        batch_size: int,
        buckets: Sequence[int] | None = None,
        invalid_label: int = -1,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: str = "float32",
        layout: str = "NT",
    ) -> None:
        super().__init__()
        if sorted(layout) != ["N", "T"]:
            raise ValueError(f"Invalid layout {layout}: Must by NT (batch major) or TN (time major)")
        if not buckets:
            counts = np.bincount([len(s) for s in sentences])
            buckets = [length for length, count in enumerate(counts) if count >= batch_size]
        lengths = sorted(buckets)
        rows: list[list[np.ndarray]] = [[] for _ in lengths]
        discarded = 0
        for sentence in sentences:
            k = bisect.bisect_left(lengths, len(sentence))
            if k == len(lengths):
                discarded += 1
                continue
            row = np.full(lengths[k], invalid_label, dtype)
            row[: len(sentence)] = sentence
            rows[k].append(row)
        print(f"WARNING: discarded {discarded} sentences longer than the largest bucket.")
        self.batch_size, self.dtype, self.invalid_label = batch_size, dtype, invalid_label
        self.data_name, self.label_name, self.layout = data_name, label_name, layout
        self.major_axis = layout.find("N")
        self.buckets = [length for length, found in zip(lengths, rows) if found]
        if not self.buckets:
            raise ValueError(f"no sentence fits into the buckets {lengths}")
        self.data = [np.asarray(found, dtype) for found in rows if found]
        self.default_bucket_key = max(self.buckets)
        shape = (batch_size, self.default_bucket_key)[:: 1 if self.major_axis == 0 else -1]
        self.provide_data = [DataDesc(data_name, shape, layout=layout)]
        self.provide_label = [DataDesc(label_name, shape, layout=layout)]
        self.idx = [(k, j) for k, x in enumerate(self.data) for j in range(0, len(x) - batch_size + 1, batch_size)]
        self.reset()

    def reset(self) -> None:
        """Shuffles batches by Python's generator, and the sentences in each bucket by NumPy's."""
        self.curr_idx = 0
        random.shuffle(self.idx)
        self.nddata, self.ndlabel = [], []
        for bucket in self.data:
            np.random.shuffle(bucket)
            label = np.full_like(bucket, self.invalid_label)
            label[:, :-1] = bucket[:, 1:]
            self.nddata.append(ndarray.array(bucket, dtype=self.dtype))
            self.ndlabel.append(ndarray.array(label, dtype=self.dtype))

    def next(self) -> DataBatch:
        if self.curr_idx == len(self.idx):
            raise StopIteration
        k, j = self.idx[self.curr_idx]
        self.curr_idx += 1
        data, label = self.nddata[k][j : j + self.batch_size], self.ndlabel[k][j : j + self.batch_size]
        if self.major_axis == 1:
            data, label = data.T, label.T
        return DataBatch(
            [data],
            [label],
            pad=0,
            bucket_key=self.buckets[k],
            provide_data=[DataDesc(self.data_name, data.shape, layout=self.layout)],
            provide_label=[DataDesc(self.label_name, label.shape, layout=self.layout)],
        )
