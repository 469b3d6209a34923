"""The models of a server: where their files are, which versions are loaded, and their exchange while it runs."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.ir.dims import HINT, Dim, at, names_of
from gluonjit.ir.opdef import did_you_mean
from gluonjit.tools.serving.batching import Arrays, Batcher
from gluonjit.tools.serving.copies import copied, remove_abandoned
from gluonjit.tools.serving.inference_protocol import Refused, largest_body
from gluonjit.tools.serving.library_model import LibraryModel
from gluonjit.tools.serving.limits import Limits, Shares
from gluonjit.tools.serving.predictor import Predictor

CONFIG = "model.json"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
MOST_OTHER = 1024
"""The largest size of open dimensions that are no batch, where nothing else is said."""


@dataclass(frozen=True)
class ModelFiles:
    """Files of one version of a model, and how it is served."""

    name: str
    version: int
    files: tuple[str, ...]
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Shapes by name, as for `Predictor`."""
    batching: bool | None = None
    """Whether requests are merged. None: if the model's graph shows that its rows are independent."""
    max_batch: int = 32
    """The most rows of a request, and of a call."""
    delay: float = 0.002
    """Seconds that a request waits for others."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """The largest sizes of open dimensions, by name."""


class Served:
    """A loaded version."""

    def __init__(
        self,
        source: ModelFiles,
        options: Options,
        observe: Callable[..., None],
        hand_over: Callable[[Callable[[], None]], object],
    ) -> None:
        """MXNetError for what cannot be served, and all that opening may raise. Compiles and runs the model once."""
        self.source = source
        with self._files() as files:
            try:
                self._open(files, options)
            except (MXNetError, ValueError) as e:  # its message names the copies
                said = str(e)
                for copy, file in zip(files, source.files):
                    said = said.replace(copy, file)
                raise MXNetError(said) from e
        rows = self.rows
        why = "as configured" if source.batching is False else self.predictor.model.why_rows_mix
        self.why_alone = "" if rows else why
        names = {name for x in self.inputs for name in names_of(x.shape or ())}
        first = _first_dimension(self.inputs)
        self.limits = {n: source.limits.get(n, source.max_batch if n == first else MOST_OTHER) for n in sorted(names)}
        self.largest_body = largest_body(self.inputs, self.limits, options.limits)
        self.places = Shares(options.limits.queue + source.max_batch, options.limits.client_share)
        """Requests that wait or run, by client."""
        self.batcher = Batcher(
            self.predictor.run,
            merges=rows is not None,
            most_rows=source.max_batch,
            delay=source.delay,
            most_waiting=options.limits.queue,
            observe=lambda requests, count, seconds: observe(
                source.name, str(source.version), requests, count, seconds
            ),
            hand_over=hand_over,
            name=f"{source.name} {source.version}",
        )

    def _open(self, files: Sequence[str], options: Options) -> None:
        """Opens and compiles the model. Its files are not needed any more then."""
        source = self.source
        self.predictor = Predictor(*files[: len(source.files)], inputs=source.inputs or None, threads=options.threads)
        model = self.predictor.model
        self.inputs, self.outputs = model.inputs, model.outputs
        if any(x.shape is None for x in self.inputs):
            unknown = next(x.name for x in self.inputs if x.shape is None)
            raise MXNetError(
                f"{source.name}: say which shapes it takes: --input {source.name}:{unknown}=batchx3x224x224"
            )
        self.rows = model.rows
        if source.batching is not None:
            self.rows = _first_dimension(self.inputs) if source.batching else None
            if source.batching and self.rows is None:
                raise MXNetError(f"{source.name}: not all of its inputs begin with one open dimension: no batching")
        if isinstance(model, LibraryModel):
            model.net.open()
        self._ready(self.rows)

    def _ready(self, rows: str | None) -> None:
        """Compiles for what requests may ask: strangers must not make the server compile, size after size."""
        model = self.predictor.model
        names = {name for x in self.inputs for name in names_of(x.shape or ())}
        if names and not getattr(model, "is_open", True):
            if self.source.batching is not True or names != {rows}:
                raise MXNetError(
                    f"{self.source.name} cannot be compiled for all sizes at once ({model.why_rows_mix}): give numbers "
                    "in place of words in its shapes; or --batching on, if only the batch is a word and its rows do "
                    "not depend on each other"
                )
            powers = {2**k for k in range(self.source.max_batch.bit_length())}
            self.predictor.sizes = tuple(sorted({*powers, self.source.max_batch}))
        if rows is not None:  # a batch of one may have code of its own
            for size in self.predictor.sizes or (1,):
                sizes = {name: size if name == rows else HINT for name in names}
                shapes = [tuple(at(n, sizes) for n in x.shape or ()) for x in self.inputs]
                self.predictor.run({x.name: np.zeros(shape, x.dtype) for x, shape in zip(self.inputs, shapes)})

    @property
    def most_memory(self) -> int | None:
        """Bytes that the largest call works in; None if that is not known."""
        memory = getattr(self.predictor.model, "memory", None)
        return memory(self.limits) if memory is not None and self.limits else None

    def _files(self) -> AbstractContextManager[Sequence[str]]:
        """Copies of the files: those of a model that is served may be overwritten at any time, and they are mapped.

        A Python file is read once, and may import others beside it; an ONNX file may name others with its data.
        """
        files = self.source.files
        if any(_is_python(f) or f.endswith(".onnx") for f in files):
            return nullcontext(files)
        return copied((*files, *_beside(self.source)))

    def checked(self, arrays: Arrays) -> Arrays:
        """The arrays of a request. Refused if they do not fit, or are larger than the limits."""
        try:
            found = self.predictor.checked(arrays)
        except ValueError as e:
            raise Refused(400, str(e)) from None
        for x in self.inputs:
            for n, size in zip(x.shape or (), found[x.name].shape if x.name in found else ()):
                most = n.at(self.limits) if isinstance(n, Dim) else n
                if size > most:
                    raise Refused(400, f"input {x.name} has {n} = {size}; the server takes at most {most}")
        return found

    def remove(self) -> None:
        """Ends the thread, after the requests that it has."""
        self.batcher.join()


@dataclass(frozen=True)
class Options:
    """What holds for all models of a server."""

    threads: int | None = None
    limits: Limits = Limits()


def _first_dimension(inputs: Sequence[Any]) -> str | None:
    first = {x.shape[0] if x.shape else None for x in inputs}
    n = first.pop() if len(first) == 1 else None
    return str(n) if isinstance(n, Dim) and str(n) in n.names else None


def _is_python(file: str) -> bool:
    return file.partition(":")[0].endswith(".py")


class ModelStore:
    """The models by name and version. Loading and unloading is done by one thread at a time; anybody may look."""

    def __init__(
        self,
        sources: Callable[[], Sequence[ModelFiles]],
        options: Options = Options(),
        observe: Callable[..., None] = lambda *what: None,
    ) -> None:
        """`sources()` says which models there are now; repositories may get others."""
        self._sources, self.options, self._observe = sources, options, observe
        self._served: dict[tuple[str, int], Served] = {}
        self._stamps: dict[tuple[str, int], Any] = {}
        self._seen: dict[tuple[str, int], Any] = {}
        self._unloaded: set[str] = set()
        self.reasons: dict[tuple[str, int], str] = {}
        """Why versions could not be loaded."""
        self._lock = threading.Lock()
        self.hand_over: Callable[[Callable[[], None]], object] = lambda task: task()
        """Runs the tasks that set requests' results: see `Batcher`."""

    def all(self) -> list[Served]:
        return [self._served[key] for key in sorted(self._served)]

    def get(self, name: str, version: str | None = None) -> Served:
        """The newest version, or the named one. Refused with 404 if there is none."""
        served = dict(self._served)
        versions = sorted(v for n, v in served if n == name)
        if not versions:
            names = sorted({n for n, _ in served})
            raise _no_model(name, names)
        if not version:
            return served[name, versions[-1]]
        longest = self.options.limits.version
        if len(version) > longest or not version.isascii() or not version.isdecimal() or int(version) not in versions:
            raise Refused(404, f"model {name} has no version {version[:100]!r}; it has {', '.join(map(str, versions))}")
        return served[name, int(version)]

    def versions(self, name: str) -> list[str]:
        return [str(v) for n, v in sorted(self._served) if n == name]

    def index(self) -> list[dict[str, str]]:
        """The models of the repository, loaded or not."""
        found = []
        keys = {(s.name, s.version) for s in self._sources()} | set(self._served)
        for name, version in sorted(keys):
            ready = (name, version) in self._served
            state = "READY" if ready else "UNAVAILABLE"
            reason = "" if ready else self.reasons.get((name, version), "unloaded" if name in self._unloaded else "")
            found.append({"name": name, "version": str(version), "state": state, "reason": reason})
        return found

    def load_all(self) -> None:
        """Loads everything. Raises what is wrong with the first model that cannot be served."""
        remove_abandoned()
        with self._lock:
            for source in self._sources():
                self._load(source)

    def load(self, name: str) -> None:
        """Loads all versions of a model anew. Refused if there is none, or it cannot be served."""
        with self._lock:
            sources = [s for s in self._sources() if s.name == name]
            if not sources:
                known = sorted({s.name for s in self._sources()})
                raise _no_model(name, known)
            self._unloaded.discard(name)
            self._drop(
                key for key in list(self._served) if key[0] == name and key[1] not in {s.version for s in sources}
            )
            for source in sources:
                try:
                    self._load(source)
                except Exception as e:
                    self.reasons[name, source.version] = str(e)
                    raise Refused(400, f"model {name}, version {source.version} cannot be loaded: {e}") from e

    def unload(self, name: str) -> None:
        """Takes a model out. Its requests are answered first."""
        with self._lock:
            if name not in {n for n, _ in self._served}:
                raise Refused(404, f"there is no model {name[:100]!r} that is loaded")
            self._unloaded.add(name)
            self._drop(key for key in list(self._served) if key[0] == name)

    def reload_changed(self) -> list[str]:
        """Loads what has changed on disk since it was loaded, and has not changed since the last look: a file that is
        still being written is left alone. Drops versions that are gone. What cannot be loaded stays as it is; returns
        what is wrong with it."""
        problems = []
        with self._lock:
            sources = [s for s in self._sources() if s.name not in self._unloaded]
            for source in sources:
                key = (source.name, source.version)
                now = _stamp(source)
                before, self._seen[key] = self._seen.get(key), now
                if now is None or now == self._stamps.get(key) or now != before:
                    continue
                try:
                    self._load(source)
                except Exception as e:
                    self._stamps[key] = now
                    self.reasons[key] = str(e)
                    problems.append(f"{source.name}, version {source.version} cannot be loaded: {e}")
            there = {(s.name, s.version) for s in sources}
            self._drop(key for key in list(self._served) if key not in there)
        return problems

    def close(self) -> None:
        with self._lock:
            self._drop(list(self._served))

    def _load(self, source: ModelFiles) -> None:
        key = (source.name, source.version)
        stamp = _stamp(source)
        new = Served(source, self.options, self._observe, lambda task: self.hand_over(task))
        old, self._served[key], self._stamps[key] = self._served.get(key), new, stamp
        self.reasons.pop(key, None)
        if old is not None:
            old.remove()

    def _drop(self, keys: Iterable[tuple[str, int]]) -> None:
        gone = [self._served.pop(key) for key in keys]
        for served in gone:
            self._stamps.pop((served.source.name, served.source.version), None)
            served.remove()


def _beside(source: ModelFiles) -> list[str]:
    """The file of weights that a library maps, if it has one."""
    libraries = [Path(f) for f in source.files if f.endswith(".so")]
    weights = [f.with_name(f"{f.stem.removeprefix('lib')}.weights") for f in libraries]
    return [str(f) for f in weights if f.is_file()]


def _stamp(source: ModelFiles) -> Any:
    """What changes with the files; None if one is missing."""
    found: list[Any] = [source]
    for file in (*source.files, *_beside(source)):
        path = file.rpartition(":")[0] if _is_python(file) and ":" in file else file
        try:
            status = os.stat(path)
        except OSError:
            return None
        found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return repr(found)


# ---- repositories


def in_folder(root: Path, defaults: ModelFiles) -> list[ModelFiles]:
    """The models of a repository: `root/NAME/VERSION/files`, or `root/NAME/files` for version 1.

    The files of a version are a graph and its parameters, an ONNX file, a library, or `model.py` with `net`;
    `model.json`, there or in NAME's folder, says how it is served. MXNetError for a folder that holds no model, and for
    a wrong `model.json`.
    """
    found = []
    for folder in sorted(p for p in root.iterdir() if p.is_dir() and NAME.fullmatch(p.name)):
        versions = sorted((int(p.name), p) for p in folder.iterdir() if p.is_dir() and _is_version(p.name))
        common = _configured(replace(defaults, name=folder.name), folder / CONFIG)
        if not versions:
            found.append(replace(common, files=files_in(folder)))
        for version, place in versions:
            own = _configured(common, place / CONFIG)
            found.append(replace(own, version=version, files=files_in(place)))
    return found


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) <= 18 and str(int(name)) == name


def files_in(folder: Path) -> tuple[str, ...]:
    graphs, parameters = sorted(folder.glob("*-symbol.json")), sorted(folder.glob("*.params"))
    libraries = [*sorted(folder.glob("lib*.so")), *sorted(folder.glob("*.onnx"))]
    if len(graphs) == 1 and parameters:
        return str(graphs[0]), str(parameters[-1])  # of several epochs, the last
    if len(libraries) == 1 and not graphs:
        return (str(libraries[0]),)
    if (folder / "model.py").is_file() and not graphs:
        return (f"{folder / 'model.py'}:net",)
    raise MXNetError(f"{folder} holds no model: *-symbol.json and *.params, *.onnx, lib*.so, or model.py")


_KEYS: Mapping[str, Any] = {
    "inputs": dict,
    "batching": bool,
    "max_batch": int,
    "delay_ms": (int, float),
    "limits": dict,
}


def _configured(source: ModelFiles, path: Path) -> ModelFiles:
    if not path.is_file():
        return source
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as e:
        raise MXNetError(f"{path}: not JSON: {e}") from None
    if not isinstance(found, dict):
        raise MXNetError(f"{path}: must be an object")
    for key, value in found.items():
        if key not in _KEYS:
            raise MXNetError(f"{path}: unknown {key!r}{did_you_mean(key, _KEYS)}")
        if not isinstance(value, _KEYS[key]) or (isinstance(value, bool) and key != "batching"):
            raise MXNetError(f"{path}: {key} is {value!r}")
    if "delay_ms" in found:
        found["delay"] = found.pop("delay_ms") / 1000
    if not all(isinstance(v, str) for v in found.get("inputs", {}).values()):
        raise MXNetError(f"{path}: inputs are shapes by name, such as {{'data': 'batchx3x224x224'}}")
    if not all(type(v) is int and v > 0 for v in found.get("limits", {}).values()):
        raise MXNetError(f"{path}: limits are sizes by name")
    if found.get("max_batch", 1) < 1 or found.get("delay", 0) < 0:
        raise MXNetError(f"{path}: max_batch is at least 1, delay_ms at least 0")
    return replace(source, **found)


def _no_model(name: str, known: Sequence[str]) -> Refused:
    """The refusal of a name that no model has."""
    near = did_you_mean(name, known) if len(name) <= 100 else ""
    listed = near if "did you mean" in near else f"; there are {', '.join(known) or 'none'}"
    return Refused(404, f"there is no model {name[:100]!r}{listed}")
