"""`mx.contrib.text.embedding`: vectors of tokens, read from local text files. Nothing is downloaded."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gluonjit import ndarray as nd
from gluonjit import registry
from gluonjit.base import MXNetError, data_dir
from gluonjit.data.vocabulary import UNKNOWN, Vocabulary
from gluonjit.ir.opdef import did_you_mean
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.language.kinds import as_current
from gluonjit.ndarray import NDArray

__all__ = [
    "CompositeEmbedding",
    "CustomEmbedding",
    "FastText",
    "GloVe",
    "create",
    "get_pretrained_file_names",
    "register",
]


class _TokenEmbedding(Vocabulary):
    """A vocabulary with a vector for each token: `idx_to_vec`, f32[tokens, vec_len].

    Vector 0 is that of the unknown token in the file, or what `init_unknown_vec(shape=vec_len)` makes.
    """

    pretrained_file_name_sha1: ClassVar[dict[str, str]] = {}
    """The names of published files. Their contents are not compared."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._vectors: Any = None

    @property
    def vec_len(self) -> int:
        return self._vectors.shape[1]

    @property
    def idx_to_vec(self) -> NDArray:
        return self._vectors

    def _load(self, path: str | os.PathLike[str], delimiter: str, initial: Callable[..., Any], encoding: str) -> None:
        """Appends the tokens of a file, whose lines are a token and numbers. MXNetError, with the line, for others."""
        file = Path(path).expanduser()
        if not file.is_file():
            raise ValueError(f"`pretrained_file_path` must be a valid path to a token embedding file; {file} is none.")
        logging.info("Loading pre-trained token embedding vectors from %s", file)
        rows: list[np.ndarray] = []
        unknown: np.ndarray | None = None
        with open(file, encoding=encoding) as lines:
            for number, line in enumerate(lines, 1):
                token, *rest = line.rstrip().split(delimiter)
                where = f"{file}, line {number}"
                try:
                    vector = np.array(rest, np.float32)
                except ValueError:
                    raise MXNetError(f"{where}: what follows the token {token!r} are not all numbers") from None
                if not rest:
                    raise MXNetError(f"{where}: there are no numbers after the token {token!r}")
                if token == self.unknown_token and unknown is None:
                    unknown = vector
                elif token in self._token_to_idx:
                    warnings.warn(f"{where}: another vector for the token {token!r}; it is skipped.", stacklevel=4)
                elif len(vector) == 1:
                    warnings.warn(f"{where}: {token!r} with one number is likely a header; skipped.", stacklevel=4)
                elif rows and len(vector) != len(rows[0]):
                    raise MXNetError(f"{where}: {len(vector)} numbers; the tokens before have {len(rows[0])}")
                else:
                    self._token_to_idx[token] = len(self._idx_to_token)
                    self._idx_to_token.append(token)
                    rows.append(vector)
        if not rows:
            raise MXNetError(f"{file} has no vectors")
        width = len(rows[0])
        first = initial(shape=width).asnumpy() if unknown is None else unknown
        if len(first) != width:
            raise MXNetError(f"{file}: {len(first)} numbers for {self.unknown_token!r}, {width} for other tokens")
        # Reserved tokens, which precede those of the file, have zeros.
        zeros = np.zeros((len(self._idx_to_token) - 1 - len(rows), width), np.float32)
        self._vectors = self._array(np.concatenate([first[None], zeros, np.stack(rows)]))

    @staticmethod
    def _array(elements: np.ndarray) -> Any:
        return as_current(nd.array(elements))

    def _restrict_to(self, vocabulary: Vocabulary | None, sources: Sequence[_TokenEmbedding]) -> None:
        """Takes the tokens of a vocabulary, with the vectors that `sources` have for them, concatenated."""
        if vocabulary is None:
            return
        if not isinstance(vocabulary, Vocabulary):
            raise AssertionError(
                "The argument `vocabulary` must be an instance of mxnet.contrib.text.vocab.Vocabulary."
            )
        tokens = list(vocabulary.idx_to_token)
        parts = [
            np.concatenate([e.idx_to_vec[:1].asnumpy(), e.get_vecs_by_tokens(tokens[1:]).asnumpy()])
            if tokens[1:]
            else e.idx_to_vec[:1].asnumpy()
            for e in sources
        ]
        self._vectors = self._array(np.concatenate(parts, axis=1))
        self._idx_to_token, self._token_to_idx = tokens, dict(vocabulary.token_to_idx)
        self._unknown_token, self._reserved_tokens = vocabulary.unknown_token, vocabulary.reserved_tokens

    def get_vecs_by_tokens(self, tokens: Any, lower_case_backup: bool = False) -> NDArray:
        """The vector of a token, or the matrix of those of a list.

        With `lower_case_backup` a token that is unknown is looked up in lower case.
        """
        listed = tokens if isinstance(tokens, list) else [tokens]
        indices = []
        for token in listed:
            backup = self._token_to_idx.get(token.lower(), UNKNOWN) if lower_case_backup else UNKNOWN
            indices.append(self._token_to_idx.get(token, backup))
        found = self._array(self._vectors.asnumpy()[indices])
        return found if isinstance(tokens, list) else found[0]

    def update_token_vectors(self, tokens: Any, new_vectors: NDArray) -> None:
        """Replaces the vectors of one token or several. ValueError for tokens that are unknown."""
        listed = tokens if isinstance(tokens, list) else [tokens]
        if not isinstance(new_vectors, NDArray):
            raise AssertionError("`new_vectors` must be an NDArray.")
        vectors = new_vectors.asnumpy()
        if vectors.ndim == 1 and len(listed) == 1:
            vectors = vectors[None]
        if vectors.shape != (len(listed), self.vec_len):
            raise AssertionError(
                f"new_vectors has shape {new_vectors.shape}, not {(len(listed), self.vec_len)}: a row for each token."
            )
        for token in listed:
            if token not in self._token_to_idx:
                raise ValueError(
                    f"Token {token} is unknown. To update the vector of all unknown tokens, give their token "
                    f"{self.unknown_token}{did_you_mean(str(token), self._token_to_idx)}"
                )
        elements = self._vectors.asnumpy()
        elements[[self._token_to_idx[token] for token in listed]] = vectors
        self._vectors[:] = elements

    @classmethod
    def _published(cls, root: str, name: str) -> Path:
        """The path of a published file in a folder. MXNetError if it is not there."""
        folder = Path(root).expanduser() / cls.__name__.lower()
        if not (folder / name).is_file():
            raise MXNetError(
                f"{cls.__name__}: {folder} has no file {name}. gluonjit downloads nothing; put the unpacked file there"
            )
        return folder / name


_register = registry.get_register_func(_TokenEmbedding, "token embedding")
_create = registry.get_create_func(_TokenEmbedding, "token embedding")


def register(embedding_cls: type) -> type:
    """Makes a subclass of `_TokenEmbedding` known by its name; a decorator."""
    return _register(embedding_cls)


def create(embedding_name: str, **kwargs: Any) -> Any:
    """An embedding of a registered class: 'glove', 'fasttext', or another, in any case."""
    return _create(embedding_name, **kwargs)


def get_pretrained_file_names(embedding_name: str | None = None) -> Any:
    """The names of published files of an embedding, or for each registered embedding.

    Of fastText, which has hundreds of them, only three are named.
    """
    classes: dict[str, Any] = registry.get_registry(_TokenEmbedding)
    names = {name: list(each.pretrained_file_name_sha1) for name, each in classes.items()}
    if embedding_name is None:
        return names
    if embedding_name not in names:
        raise KeyError(f"Cannot find `embedding_name` {embedding_name}{did_you_mean(embedding_name, names)}")
    return names[embedding_name]


@register
class GloVe(_TokenEmbedding):
    """GloVe's vectors, from the file `pretrained_file_name` in `embedding_root/glove`."""

    pretrained_file_name_sha1: ClassVar[dict[str, str]] = {
        f"glove.{name}d.txt": ""
        for name in (
            *("42B.300", "6B.50", "6B.100", "6B.200", "6B.300"),
            *("840B.300", "twitter.27B.25", "twitter.27B.50", "twitter.27B.100", "twitter.27B.200"),
        )
    }

    def __init__(
        self,
        pretrained_file_name: str = "glove.840B.300d.txt",
        embedding_root: str | None = None,
        init_unknown_vec: Callable[..., Any] = nd.zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ) -> None:
        if pretrained_file_name not in self.pretrained_file_name_sha1:
            raise KeyError(
                f"Cannot find pretrained file {pretrained_file_name} for token embedding glove. Valid pretrained "
                f"files for embedding glove: {', '.join(self.pretrained_file_name_sha1)}"
            )
        super().__init__(**kwargs)
        file = self._published(embedding_root or os.path.join(data_dir(), "embeddings"), pretrained_file_name)
        self._load(file, " ", init_unknown_vec, "utf8")
        self._restrict_to(vocabulary, [self])


@register
class FastText(_TokenEmbedding):
    """fastText's vectors, from the file `pretrained_file_name` in `embedding_root/fasttext`."""

    pretrained_file_name_sha1: ClassVar[dict[str, str]] = dict.fromkeys(
        ("crawl-300d-2M.vec", "wiki.en.vec", "wiki.simple.vec"), ""
    )

    def __init__(
        self,
        pretrained_file_name: str = "wiki.simple.vec",
        embedding_root: str | None = None,
        init_unknown_vec: Callable[..., Any] = nd.zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        file = self._published(embedding_root or os.path.join(data_dir(), "embeddings"), pretrained_file_name)
        self._load(file, " ", init_unknown_vec, "utf8")
        self._restrict_to(vocabulary, [self])


class CustomEmbedding(_TokenEmbedding):
    """Vectors from a file of one's own: a token and its numbers on each line, divided by `elem_delim`."""

    def __init__(
        self,
        pretrained_file_path: str | os.PathLike[str],
        elem_delim: str = " ",
        encoding: str = "utf8",
        init_unknown_vec: Callable[..., Any] = nd.zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._load(pretrained_file_path, elem_delim, init_unknown_vec, encoding)
        self._restrict_to(vocabulary, [self])


class CompositeEmbedding(_TokenEmbedding):
    """The tokens of a vocabulary with the vectors of one embedding, or of several, concatenated."""

    def __init__(self, vocabulary: Vocabulary, token_embeddings: Any) -> None:
        sources = token_embeddings if isinstance(token_embeddings, list) else [token_embeddings]
        for source in sources:
            if not isinstance(source, _TokenEmbedding):
                raise AssertionError("The argument `token_embeddings` must be an embedding or a list of embeddings.")
        super().__init__()
        self._restrict_to(vocabulary, sources)


_mxnet_names.explain(__name__)
