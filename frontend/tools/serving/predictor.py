"""`gluonjit.Predictor`: a model in files, called with a dict of arrays, which gives a dict of arrays."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.ir.dims import Dim
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.sizes import sizes_of
from gluonjit.ir.types import IRError, TensorType
from gluonjit.runtime import forks
from gluonjit.tools.cli.inputs import input_type
from gluonjit.tools.serving.described import Described
from gluonjit.tools.serving.library_model import LibraryModel


class Model(Protocol):
    """What a predictor opens: a block, or a library."""

    inputs: tuple[Described, ...]
    outputs: tuple[Described, ...] | None
    """None if they are not known before a call."""
    rows: str | None
    """The dimension of which all results are computed row by row: any rows may share a call. None: not known."""
    why_rows_mix: str
    """Why `rows` is None; or empty."""

    def run(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The results for arrays of the right types and shapes."""


class Predictor:
    """A model in files, as workers and servers use it.

        predictor = gluonjit.Predictor("net-symbol.json", "net-0000.params")
        scores = predictor({"data": images})["softmax_output"]

    * `files`: the model: a graph and its parameters, an ONNX file, a library that `gluonjit build` made, or
      `FILE.py:NAME`.
    * `inputs`: shapes by name, with words for sizes that each call chooses: `{"data": "batchx3x224x224"}`. Calls are
      checked against them, and code for all their sizes is compiled at once. A library has them itself; a graph can do
      without, and is compiled for what it is called with; those of FILE.py:NAME are in the order of its arguments.
    * `threads`: how many a call may use. None: as many as there are cores. Blocks of one process share their threads,
      so the number that was set last holds for all of them.
    * `sizes`: batches are cut and filled up to these sizes, as in `(1, 8, 64)`: for models that cannot be compiled for
      all sizes at once. It says that the rows of a batch do not depend on each other.

    The model is opened by the first call, in each process: a predictor that is pickled is the names of the files. It
    may be called by several threads, and after a fork.
    """

    def __init__(
        self,
        *files: str | os.PathLike[str],
        inputs: Mapping[str, str] | None = None,
        threads: int | None = None,
        sizes: Sequence[int] | None = None,
    ) -> None:
        """MXNetError for files that do not exist, ValueError for other arguments that are wrong."""
        self.files = tuple(os.fspath(f) for f in files)
        self.declared = {name: _declared(name, shape) for name, shape in (inputs or {}).items()}
        self._given = dict(inputs or {})
        if threads is not None and (not isinstance(threads, (int, np.integer)) or threads < 1):
            raise ValueError(f"threads is the number of threads of a call, at least 1, not {threads!r}")
        self.threads = threads
        self.sizes = tuple(sorted(set(sizes))) if sizes is not None else None
        if self.sizes is not None and (not self.sizes or not all(isinstance(n, int) and n > 0 for n in self.sizes)):
            raise ValueError(f"sizes are those of batches that are compiled, such as (1, 8, 64), not {sizes!r}")
        if not 1 <= len(self.files) <= 2:
            raise ValueError("a predictor takes a graph and its parameters, a library or FILE.py:NAME")
        for file in self.files:
            path = _file_of(file)
            if not os.path.isfile(path):
                raise MXNetError(f"there is no file {path}")
        if len(self.files) == 2 and not self.files[0].endswith(".json"):
            raise ValueError(f"{self.files[1]}: a parameters' file is for a graph in a file, model-symbol.json")
        if self.declared and self.files[0].endswith(".json"):
            _check_names(self.files[0], self.declared)
        self._lock = forks.renewed()
        self._model: Model | None = None

    def __repr__(self) -> str:
        return f"Predictor({', '.join(map(repr, self.files))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.files, self._given, self.threads, self.sizes)

    @property
    def model(self) -> Model:
        """The opened model."""
        if self._model is None:
            with self._lock:
                if self._model is None:
                    self._model = self._open()
        return self._model

    @property
    def inputs(self) -> tuple[Described, ...]:
        return self.model.inputs

    @property
    def outputs(self) -> tuple[Described, ...] | None:
        """None if they are not known before the first call."""
        return self.model.outputs

    def __call__(self, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The outputs by name, as new arrays.

        ValueError for arrays that are missing, unknown, or of another type or shape; it names the input and what it is.
        """
        return self.run(self.checked(arrays))

    def run(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs for arrays that `checked` has given."""
        if self.sizes is None:
            return self.model.run(arrays)
        return self._in_parts(arrays, self.sizes)

    def checked(self, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The arrays as the model takes them: contiguous, of its element types, in its order."""
        if not isinstance(arrays, Mapping):
            raise ValueError(f"a predictor is called with a dict of arrays by name, not {type(arrays).__name__}")
        inputs = self.model.inputs
        names = [x.name for x in inputs]
        for name in arrays:
            if name not in names:
                raise ValueError(
                    f"the model takes {_listed(inputs)}; there is no input {name!r}{did_you_mean(str(name), names)}"
                )
        optional = getattr(self.model, "optional", ())
        missing = [name for name in names if name not in arrays and name not in optional]
        if missing:
            raise ValueError(f"no array for {', '.join(missing)}; the model takes {_listed(inputs)}")
        found = {x.name: _converted(arrays[x.name], x) for x in inputs if x.name in arrays}
        if self.sizes is not None:
            self._check_rows(found)
        _check_sizes([x for x in inputs if x.name in found], found, self.sizes is not None)
        return found

    def _open(self) -> Model:
        first = self.files[0]
        if first.endswith(".so"):
            if self.declared:
                raise ValueError(
                    f"{first} has the shapes of its inputs itself: leave out inputs= (on the command line, --input)"
                )
            return LibraryModel(first, self.threads)
        from gluonjit.tools.serving.block_model import open_block

        return open_block(self.files, self.declared, self.threads)

    # ---- batches in parts

    def _check_rows(self, arrays: Mapping[str, np.ndarray]) -> None:
        counts = {name: x.shape[0] if x.ndim else None for name, x in arrays.items()}
        if len(set(counts.values())) != 1 or None in counts.values():
            raise ValueError(f"the arrays of a batch must have equally many rows, not {counts}")

    def _in_parts(self, arrays: dict[str, np.ndarray], sizes: tuple[int, ...]) -> dict[str, np.ndarray]:
        count = len(next(iter(arrays.values())))
        parts: list[dict[str, np.ndarray]] = []
        start = 0
        while start < count or not parts:
            left = count - start
            size = next((n for n in sizes if n >= left), sizes[-1])
            rows = min(size, left)
            results = self.model.run({name: _filled(x[start : start + rows], size) for name, x in arrays.items()})
            for name, y in results.items():
                if y.ndim == 0 or len(y) != size:
                    raise MXNetError(
                        f"output {name} is of shape {y.shape} for a batch of {size}: it has no row for each of the "
                        "batch, so it cannot be computed in parts (sizes=)"
                    )
            parts.append({name: y[:rows] for name, y in results.items()})
            start += rows
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _reopened(files: tuple[str, ...], inputs: Mapping[str, str], threads: int | None, sizes: Any) -> Predictor:
    return Predictor(*files, inputs=inputs, threads=threads, sizes=sizes)


def _file_of(reference: str) -> str:
    """The file of `FILE.py:NAME`."""
    file, colon, _ = reference.rpartition(":")
    return file if colon and file.endswith(".py") else reference


def _check_names(graph: str, names: Iterable[str]) -> None:
    """ValueError for what is no variable of the graph in a file."""
    from gluonjit.symbol.json_reader import summary

    known = summary(graph).variables
    for name in names:
        if name not in known:
            learned = ("_weight", "_bias", "_gamma", "_beta", "_mean", "_var")
            inputs = [x for x in known if not x.endswith(learned)]
            raise ValueError(f"the graph has no input {name!r}{did_you_mean(name, inputs)}")


def _declared(name: str, shape: str) -> TensorType:
    try:
        return input_type(shape)
    except argparse.ArgumentTypeError as e:
        raise ValueError(f"input {name}: {e}") from None


def _filled(rows: np.ndarray, size: int) -> np.ndarray:
    """The rows, and their last one again up to `size` of them."""
    if len(rows) == size:
        return rows
    if not len(rows):
        return np.zeros((size, *rows.shape[1:]), rows.dtype)
    return np.concatenate([rows, np.repeat(rows[-1:], size - len(rows), axis=0)])


def _converted(x: Any, wanted: Described) -> np.ndarray:
    try:
        given = np.asarray(x)
    except ValueError as e:
        raise ValueError(f"input {wanted.name} is not an array: {e}; the model takes {wanted}") from None
    if given.dtype == object or not np.can_cast(given.dtype, wanted.dtype, "same_kind"):
        raise ValueError(f"input {wanted.name} is of {given.dtype}; the model takes {wanted}")
    if wanted.shape is not None and given.ndim != len(wanted.shape):
        raise ValueError(f"input {wanted.name} is {given.dtype}{list(given.shape)}; the model takes {wanted}")
    return np.require(given, wanted.dtype, ["C", "A"])


def _check_sizes(inputs: Sequence[Described], arrays: Mapping[str, np.ndarray], any_rows: bool) -> None:
    """ValueError for sizes that are not the model's. `any_rows`: the first dimension may be any."""
    known = [x for x in inputs if x.shape is not None]
    skip = 1 if any_rows else 0
    for x in known:
        assert x.shape is not None
        theirs, own = arrays[x.name].shape[skip:], x.shape[skip:]
        if any(not isinstance(n, Dim) and n != m for n, m in zip(own, theirs)):
            raise ValueError(f"input {x.name} is {x.dtype}{list(arrays[x.name].shape)}; the model takes {x}")
    try:
        types = [x.type.with_shape(x.type.shape[skip:]) if skip else x.type for x in known]
        sizes_of(types, [arrays[x.name].shape[skip:] for x in known], 0)
    except IRError as e:
        got = ", ".join(f"{x.name}: {x.dtype}{list(arrays[x.name].shape)}" for x in known)
        raise ValueError(f"the inputs are {got}; the model takes {_listed(known)}: {e}") from None


def _listed(inputs: Sequence[Described]) -> str:
    return ", ".join(f"{x.name}: {x}" for x in inputs)
