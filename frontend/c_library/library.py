"""Builds a library that runs a compiled model without Python: objects, archive, shared library, header, and the files
by which other build systems find them. `codegen/standalone.py` has the functions of the library.

    NAME.h  NAME.hpp  libNAME.a  libNAME.so  NAME.weights  main.c  check.bin  NAME.pc  NAMEConfig.cmake
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gluonjit._version import version
from gluonjit.c_library import library_files, predict_api
from gluonjit.codegen.interface import CALLBACK
from gluonjit.codegen.standalone import HEADER, Model, Target, TargetCode, WeightsFile, driver, largest_size, public
from gluonjit.codegen.target import host, named
from gluonjit.codegen.text import elf, llvm
from gluonjit.codegen.text.cpu_check import runs_on
from gluonjit.ir.annotations import TRAINING
from gluonjit.ir.batch_rows import independent_rows
from gluonjit.ir.dims import aligned
from gluonjit.ir.graph import Graph, Op
from gluonjit.ir.machine import ALIGNMENT, Machine
from gluonjit.ir.sizes import dimensions, sizes_of, with_some_sizes
from gluonjit.ir.structure import graph_key
from gluonjit.ir.types import IRError, TensorType
from gluonjit.passes import run_passes
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime.compiler import artifact_of
from gluonjit.runtime.executable import Executable
from gluonjit.runtime.host import functions


@dataclass
class Weights:
    """Arrays one after the other, equal ones once."""

    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    _places: dict[bytes, int] = field(default_factory=dict)

    def place(self, x: np.ndarray) -> int:
        """Where the array is; puts it there if need be."""
        data = np.ascontiguousarray(x).tobytes()
        key = hashlib.sha256(data).digest() + len(data).to_bytes(8, "little")
        if key not in self._places:
            self._places[key] = self.size
            self.size = int(aligned(self.size + len(data), ALIGNMENT))
            self.parts.append(data.ljust(self.size - self._places[key], b"\0"))
        return self._places[key]

    def content(self) -> bytes:
        return b"".join(self.parts)


@dataclass
class LibrarySource:
    """A model, traced: its graphs for the same arguments of several sizes, and the values of their other inputs."""

    name: str
    """The library's name, with which its functions begin: a C identifier."""
    inputs: Sequence[str]
    outputs: Sequence[str]
    programs: Sequence[tuple[Graph, Mapping[str, int]]]
    """A graph whose dimensions may be open, then those for single sizes of these dimensions."""
    values: Sequence[np.ndarray]
    """The values of the graph's inputs after the arguments."""


@dataclass
class Library:
    model: Model
    largest: int
    objects: list[tuple[str, bytes]]
    arch: str
    input_names: Sequence[str]
    output_names: Sequence[str]
    weights: bytes | None = None
    """What is in the file of weights, if they have one."""


def compile_library(
    source: LibrarySource,
    targets: Sequence[str],
    pipeline: str = PIPELINE,
    packed: bool = True,
    weights_file: bool = False,
) -> Library:
    """The objects of the library, with code for each target; the first one that a processor can run is used.

    `packed`: weights are packed now, for each target whose code this machine can run, rather than by `create`.
    `weights_file`: they are not in the library, but in a file that `create` maps.

    IRError for graphs that need Python or draw random numbers, and for targets of different architectures.
    """
    if not source.name.isidentifier() or not source.name.isascii():
        raise IRError(f"{source.name!r} cannot begin names in C: give a name of letters, digits and underscores")
    machines = [named(name) for name in targets]
    if len({m.arch for m in machines}) > 1:
        raise IRError(f"one library holds code of one architecture; {', '.join(targets)} are of several")
    if "linux" not in machines[0].triple:
        raise IRError(f"libraries are built for Linux alone, not for {machines[0].triple}")
    programs = _needed(source, machines, pipeline)
    weights, objects, compiled = Weights(), [], []
    for k, machine in enumerate(machines):
        codes = []
        for p, (graph, _) in enumerate(programs):
            prefix = f"{source.name}__{k}_{p}_"
            code, made = _code(
                source.name, prefix, graph, len(source.inputs), source.values, machine, pipeline, weights, packed
            )
            codes.append(code)
            objects += made
        compiled.append(Target(machine, tuple(codes)))
    source = replace(source, programs=programs)
    model = _model(source, targets, weights, weights_file)
    symbol = f"{source.name}__weights"
    text = driver(model, compiled, symbol).text()
    own = public(source.name)
    data = llvm.compile_module(text, machines[0])
    inside = set(elf.defined(data)) - set(own)
    data = elf.renamed(data, lambda s: _inside(source.name, s) if s in inside else s, own.__contains__)
    members = [(f"{source.name}_driver.o", data), *objects]
    content = weights.content()
    if model.weights is None:
        members.append((f"{source.name}_weights.o", elf.data_object(symbol, content, machines[0].arch)))
    file = model.weights.header + content if model.weights is not None else None
    largest = largest_size(model, compiled)
    return Library(model, largest, members, machines[0].arch, source.inputs, source.outputs, file)


def _needed(source: LibrarySource, machines: Sequence[Machine], pipeline: str) -> list[tuple[Graph, Mapping[str, int]]]:
    """The programs, but for those of single sizes for which the first program is right on every machine."""
    (whole, _), *others = source.programs
    _check(whole)
    interfaces = [artifact_of(whole, machine, pipeline=pipeline).artifact.interface for machine in machines]
    serves_1 = all(i is not None and i.lowest == 1 for i in interfaces)

    def is_served(graph: Graph, sizes: Mapping[str, int]) -> bool:
        return serves_1 and graph_key(graph) == graph_key(with_some_sizes(whole, sizes))

    return [source.programs[0], *((g, sizes) for g, sizes in others if not is_served(g, sizes))]


def _check(graph: Graph) -> None:
    for op in graph.ops:
        for region in op.regions:
            _check(region)
        if reason := getattr(op.definition, "host", ""):
            raise IRError(f"{op.name.removeprefix('mx.')} cannot be in a library without Python: {reason}")
        if _draws(op, bool(graph.attrs.get("training", False))):
            raise IRError(f"{op.name.removeprefix('mx.')} draws random numbers, which a library does not: leave it out")
    if graph.updates:
        raise IRError(f"{graph.name} writes to its inputs, which a library does not: return the new values instead")


def _draws(op: Op, training: bool) -> bool:
    """Whether the op draws random numbers; some operators do so with other attributes, or while training."""
    if op.definition.pure or op.definition.level != "operator":
        return not op.definition.pure
    mode = bool(op.attrs.get(TRAINING.name, training))
    made = op.definition.expansion([v.type for v in op.operands], op.attrs, mode)
    return any(_draws(o, mode) for o in made.ops)


def _inside(name: str, symbol: str) -> str:
    """A symbol of the driver that programs do not call."""
    return f"{name}__{symbol}"


def _code(
    name: str,
    prefix: str,
    graph: Graph,
    arguments: int,
    values: Sequence[np.ndarray],
    machine: Machine,
    pipeline: str,
    weights: Weights,
    pack: bool,
) -> tuple[TargetCode, list[tuple[str, bytes]]]:
    """A program, and its objects by name. `pack`: weights are packed now, if this machine can run the code that
    packs."""
    artifact = artifact_of(graph, machine, pipeline=pipeline).artifact
    interface = artifact.interface
    assert interface is not None
    constants = list(interface.main.constants)
    packed: tuple[int, ...] | None = None
    unread = set(interface.unread)
    if pack and runs_on(machine, host()):
        held = Executable(interface, llvm.load(artifact.objects, functions())).refresh([*([None] * arguments), *values])
        packed = tuple(weights.place(held[slot]) for slot in interface.main.prepared_slots)
    else:
        constants += [c for p in interface.prepares for c in p.layout.constants]
        unread -= {k for p in interface.prepares for k in p.inputs}
    sources = [None if k in unread else weights.place(x) for k, x in enumerate(values, arguments)]
    code = TargetCode(prefix, interface, arguments, tuple(sources), tuple(map(weights.place, constants)), packed)
    inside = {name for data in artifact.objects for name in elf.defined(data)}

    def own(symbol: str) -> str:
        if symbol == CALLBACK:  # the driver defines it
            return _inside(name, symbol)
        return prefix + symbol if symbol in inside else symbol

    objects = [(f"{prefix}{k}.o", elf.renamed(data, own, lambda _: False)) for k, data in enumerate(artifact.objects)]
    return code, objects


def _model(source: LibrarySource, targets: Sequence[str], weights: Weights, in_file: bool) -> Model:
    graph, _ = source.programs[0]
    inputs = tuple(v.type for v in graph.inputs[: len(source.inputs)])
    outputs = tuple(v.type for v in graph.outputs)
    digest = hashlib.sha256()
    for part in weights.parts:
        digest.update(part)
    file = None
    if in_file:
        header = b"gluonjit weights" + digest.digest() + weights.size.to_bytes(8, "little")
        file = WeightsFile(f"{source.name}.weights", header.ljust(HEADER, b"\0"), weights.size)
    rows, why = independent_rows(run_passes(graph, "expand"), len(inputs))
    facts = {
        "name": source.name,
        "compiler": f"gluonjit {version}",
        "weights": digest.hexdigest(),
        "weights_file": file.name if file is not None else None,
        "targets": list(targets),
        "sizes": list(dimensions(graph)),
        "inputs": [_described(n, t) for n, t in zip(source.inputs, inputs, strict=True)],
        "outputs": [_described(n, t) for n, t in zip(source.outputs, outputs, strict=True)],
        "rows": rows,
        "why_rows_mix": why,
    }
    text = json.dumps(facts)
    stamp = hashlib.sha256(text.encode()).hexdigest()[:16]
    fixed = tuple(dict(sizes) for _, sizes in source.programs)
    return Model(
        source.name, dimensions(graph), inputs, outputs, fixed, text, f"{source.name} {stamp} gluonjit {version}", file
    )


def _described(name: str, t: TensorType) -> dict[str, Any]:
    """An argument or result as JSON has it; open extents are texts."""
    return {"name": name, "dtype": t.dtype.numpy.name, "shape": [n if isinstance(n, int) else str(n) for n in t.shape]}


def check_folder(folder: Path, name: str) -> None:
    """IRError if a file that a library of this name may have is there already, of another library or not of this
    command."""
    main = folder / "main.c"
    if main.is_file() and f'"{name}.h"' not in main.read_text(encoding="utf-8", errors="replace"):
        raise IRError(f"{folder} has the main.c of another library, which would be replaced: -o names another folder")
    for path in _files(folder, name):
        if path.exists() and not _is_ours(path, name):
            raise IRError(f"{path} is not a file of `gluonjit build`, and would be replaced: -o names another folder")


def _files(folder: Path, name: str) -> list[Path]:
    """All files that a library of this name may have."""
    own = [f"lib{name}.a", f"lib{name}.so", f"{name}.h", f"{name}.hpp", f"{name}.weights", f"{name}.pc"]
    own += [f"{name}Config.cmake", "main.c", "check.bin", "libmxnet.so", *predict_api.NAMES]
    return [folder / file for file in own]


def _is_ours(path: Path, name: str) -> bool:
    """Whether `write` has made it: libraries, weights and the header say so, and other texts are beside that header."""
    if not path.is_file():
        return False
    says = path.suffix in (".a", ".so", ".weights")
    sign = path if says else path.with_name(f"{name}.h")
    return sign.is_file() and b"gluonjit" in sign.read_bytes()


def write(
    library: Library,
    folder: Path,
    arguments: Sequence[np.ndarray] = (),
    results: Sequence[np.ndarray] = (),
    shared: bool = True,
    files: tuple[bytes, bytes] | None = None,
    exact: bool = True,
) -> list[Path]:
    """Writes the library and the files around it; returns them. `arguments` and `results` are of a call that `main.c`
    repeats; `exact`: the library's own code has computed them, so that all bits must be the same. `shared`: makes the
    shared library, too, which takes a C compiler. `files`: the contents of graph and parameters that it was made of:
    makes MXNet's interface for prediction, too.

    All of them replace older ones when all are there: they fit together. What an older library of the name had besides
    is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".gluonjit-", dir=folder) as beside:
        made = _made(library, Path(beside), arguments, results, shared, files, exact)
        older = [path for path in _files(folder, library.model.name) if _is_ours(path, library.model.name)]
        written = [path.replace(folder / path.name) for path in made]
        for path in set(older) - set(written):
            path.unlink()
        return written


def _made(
    library: Library,
    folder: Path,
    arguments: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    shared: bool,
    files: tuple[bytes, bytes] | None,
    exact: bool,
) -> list[Path]:
    model, name = library.model, library.model.name
    static = folder / f"lib{name}.a"
    static.write_bytes(elf.archive(library.objects))
    written = [static]
    if shared:
        written.append(_link(static, folder / f"lib{name}.so", library))
    sizes = sizes_of(model.inputs, [x.shape for x in arguments]) if arguments else {}
    if model.weights is not None and library.weights is not None:
        (folder / model.weights.name).write_bytes(library.weights)
        written.append(folder / model.weights.name)
    texts = library_files.texts(model, library.largest, library.input_names, library.output_names, sizes, exact)
    for file, text in texts.items():
        (folder / file).write_text(text)
        written.append(folder / file)
    if files is not None:
        written += _predict_api(library, folder, files)
    if arguments:
        stored = b"".join(np.ascontiguousarray(x).tobytes() for x in (*arguments, *results))
        (folder / "check.bin").write_bytes(stored)
        written.append(folder / "check.bin")
    return written


def _predict_api(library: Library, folder: Path, files: tuple[bytes, bytes]) -> list[Path]:
    texts = predict_api.texts(library.model, library.input_names, library.output_names, *files)
    for file, text in texts.items():
        (folder / file).write_text(text)
    header, source = (folder / file for file in predict_api.NAMES)
    return [header, source, _link(folder / f"lib{library.model.name}.a", folder / "libmxnet.so", library, source)]


def _link(static: Path, path: Path, library: Library, *sources: Path) -> Path:
    """Makes a shared library of a static one and C sources."""
    compilers = ("cc", "gcc", "clang") if library.arch == _own_arch() else (f"{library.arch}-linux-gnu-gcc",)
    found = next(filter(None, map(shutil.which, compilers)), None)
    if found is None:
        raise IRError(
            f"{path.name} takes a linker, and there is none of {', '.join(compilers)}: install one, or build the "
            "static library alone (--static)"
        )
    whole = ["-Wl,--whole-archive", str(static), "-Wl,--no-whole-archive"]
    compile_ = ["-O2", "-fPIC", *map(str, sources)]
    command = [
        found,
        "-shared",
        *compile_,
        "-o",
        str(path),
        f"-Wl,-soname,{path.name}",
        "-Wl,-z,noexecstack",
        *whole,
        "-pthread",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise IRError(f"{found} cannot link {path.name}: {done.stderr.strip()}")
    return path


def _own_arch() -> str:
    return named("host").arch
