"""Texts for language models. They are read from local files; nothing is downloaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gluonjit import ndarray as nd
from gluonjit.base import MXNetError, data_dir
from gluonjit.data.vocabulary import Vocabulary, count_tokens_from_str
from gluonjit.files import packed
from gluonjit.gluon.data.dataset import Dataset
from gluonjit.gluon.utils import _get_repo_file_url
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.ndarray import NDArray

__all__ = ["WikiText2", "WikiText103"]

END = "<eos>"
SEGMENTS = {"train": "wiki.train.tokens", "validation": "wiki.valid.tokens", "test": "wiki.test.tokens"}


class WikiText2(Dataset):
    """The words of WikiText-2 as numbers: example k is the words at k · seq_len and after, i32[seq_len], and those one
    position later. Every line ends with the token '<eos>'.

    * `root`: the folder with the files `wiki.train.tokens`, …, or with the archive of them;
      `~/.mxnet/datasets/wikitext-2` unless given.
    * `segment`: 'train', 'validation' or 'test'.
    * `vocab`: numbers the words; without it, a vocabulary of the segment's own words is made.
    """

    namespace: ClassVar[str] = "wikitext-2"

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        segment: str = "train",
        vocab: Vocabulary | None = None,
        seq_len: int = 35,
    ) -> None:
        if segment not in SEGMENTS:
            raise MXNetError(f"{type(self).__name__}: segment is one of {', '.join(SEGMENTS)}, not {segment!r}")
        if seq_len < 1:
            raise MXNetError(f"{type(self).__name__}: seq_len is {seq_len}; sequences have one word or more")
        self._root = Path(data_dir(), "datasets", self.namespace) if root is None else Path(root).expanduser()
        content = self._file(SEGMENTS[segment]).read_text(encoding="utf8")
        self._counter = count_tokens_from_str(content)
        self._vocab = vocab or Vocabulary(self._counter, reserved_tokens=[END])
        lines = (line.split() for line in content.splitlines())
        indices = np.array(self._vocab.to_indices([w for line in lines if line for w in (*line, END)]), np.int32)
        count = max(0, len(indices) - 1) // seq_len
        if not count:
            raise MXNetError(f"{self._root}: {SEGMENTS[segment]} has {len(indices)} words; {seq_len + 1} are needed")
        self._data = nd.array(indices[: count * seq_len].reshape(count, seq_len), dtype=np.int32)
        self._label = nd.array(indices[1 : count * seq_len + 1].reshape(count, seq_len), dtype=np.int32)

    def _file(self, name: str) -> Path:
        archive = f"{self.namespace}-v1.zip"
        # The archive has a folder; MXNet puts the files beside the archive.
        places = [self._root / name, self._root / self.namespace / name]
        if not any(place.is_file() for place in places) and (self._root / archive).is_file():
            packed.unzip(self._root / archive, self._root)
        for place in places:
            if place.is_file():
                return place
        url = _get_repo_file_url(f"gluon/dataset/{self.namespace}", archive)
        raise MXNetError(
            f"{type(self).__name__}: {self._root} has no file {name} or {archive}. gluonjit downloads nothing; "
            f"fetch {url}, or the like, and put it there"
        )

    @property
    def vocabulary(self) -> Vocabulary:
        return self._vocab

    @property
    def frequencies(self) -> Any:
        """How often each word occurs in the segment, a Counter."""
        return self._counter

    def __getitem__(self, idx: int) -> tuple[NDArray, NDArray]:
        return self._data[idx], self._label[idx]

    def __len__(self) -> int:
        return len(self._label)


class WikiText103(WikiText2):
    """WikiText-103, otherwise as `WikiText2`; its folder is `~/.mxnet/datasets/wikitext-103` unless given."""

    namespace = "wikitext-103"


_mxnet_names.explain(__name__)
