"""Reading ONNX files, which are not trusted: protobuf, the order of nodes, and the arrays.

A file is checked before memory is allocated for what it claims to hold: every array must have the bytes that its shape
needs, and bytes outside of the file must be in files of its folder.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from gluonjit.base import CheckpointError, MXNetError
from gluonjit.files.array_names import shown
from gluonjit.onnx.package import require_onnx

MAX_DEPTH = 16
"""How deep graphs and functions may be nested."""

# By ONNX's number: element type, and the field of TensorProto that holds elements if they are not in `raw_data`.
ELEMENTS: dict[int, tuple[Any, str]] = {
    1: (np.float32, "float_data"),
    2: (np.uint8, "int32_data"),
    3: (np.int8, "int32_data"),
    6: (np.int32, "int32_data"),
    7: (np.int64, "int64_data"),
    9: (np.bool_, "int32_data"),
    10: (np.float16, "int32_data"),
    11: (np.float64, "double_data"),
    16: (ml_dtypes.bfloat16, "int32_data"),
}
HELD: dict[int, tuple[Any, str, Any]] = {
    4: (np.uint16, "int32_data", np.int32),
    5: (np.int16, "int32_data", np.int32),
    12: (np.uint32, "uint64_data", np.int64),
}
"""Types that gluonjit does not have, and the wider ones in which it has their values."""


def element_type(number: int, what: str) -> np.dtype:
    if number not in ELEMENTS:
        names = require_onnx().TensorProto.DataType
        name = names.Name(number).lower() if number in names.values() else f"type {number}"
        raise MXNetError(f"{what} has elements of {name}, which gluonjit does not have")
    return np.dtype(ELEMENTS[number][0])


class File:
    """A model in a file. CheckpointError for a malformed one."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        onnx = require_onnx()
        self.path = os.fspath(path)
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except OSError as e:
            raise MXNetError(f"cannot read {self.path}: {e.strerror or e}") from e
        self.model = onnx.ModelProto()
        try:
            self.model.ParseFromString(data)
        except Exception as e:  # protobuf's DecodeError, whose module depends on its version
            raise CheckpointError(f"{self.path} is no ONNX file: {e}") from e
        if not self.model.HasField("graph") or not self.model.opset_import:
            raise CheckpointError(f"{self.path} is no ONNX file: it lacks a graph or the version of its operators")
        self.versions = {imported.domain: imported.version for imported in self.model.opset_import}
        self.versions.setdefault("", self.versions.get("ai.onnx", 1))
        newest = onnx.defs.onnx_opset_version()
        if not 1 <= self.versions[""] <= newest:
            raise CheckpointError(
                f"{self.path} has operators of opset {self.versions['']}; the package onnx here knows up to {newest}"
            )
        self.functions = {(f.domain, f.name): f for f in self.model.functions}
        for function in self.model.functions:
            self._check_names((function.name, *function.input, *function.output, *_names_of(function.node)))
        self._check_order(self.model.graph, set(), 0)

    @property
    def graph(self) -> Any:
        return self.model.graph

    def _check_order(self, graph: Any, outer: set[str], depth: int) -> None:
        """Every name is made once, before it is read: so there are no cycles."""
        if depth > MAX_DEPTH:
            raise CheckpointError(f"{self.path}: graphs are nested more than {MAX_DEPTH} deep")
        self._check_names(_names(graph))
        own = [x.name for x in graph.initializer]
        own += [x.values.name for x in graph.sparse_initializer]
        given = [x.name for x in graph.input]
        if len({*own}) != len(own) or len({*given}) != len(given):
            raise CheckpointError(f"{self.path}: two inputs or two initializers have the same name")
        made = {*outer, *own, *given, ""}
        for node in graph.node:
            for name in node.input:
                if name not in made:
                    raise CheckpointError(
                        f"{self.path}: node {shown(node.name or node.op_type)} reads {shown(name)!r}, which no "
                        "input, no initializer and no node before it makes"
                    )
            for attr in node.attribute:
                for inner in (*([attr.g] if attr.HasField("g") else ()), *attr.graphs):
                    self._check_order(inner, made, depth + 1)
            for name in node.output:
                if name and name in made:
                    raise CheckpointError(f"{self.path}: {shown(name)!r} is made twice")
                made.add(name)
        for output in graph.output:
            if output.name not in made:
                raise CheckpointError(f"{self.path}: nothing makes the output {shown(output.name)!r}")

    def _check_names(self, names: Iterable[Any]) -> None:
        for name in names:
            if isinstance(name, bytes):  # what protobuf gives for text that is not UTF-8
                raise CheckpointError(f"{self.path} is no ONNX file: the name {name!r} is not UTF-8")

    def tensor(self, proto: Any, what: str = "") -> np.ndarray:
        """The array in a TensorProto, read-only if it is part of a file."""
        where = f"{self.path}: {what or shown(proto.name)!r}"
        shape = tuple(proto.dims)
        if any(n < 0 for n in shape):
            raise CheckpointError(f"{where} has the shape {shape}")
        found = ELEMENTS.get(proto.data_type) or HELD.get(proto.data_type)
        if found is None:
            element_type(proto.data_type, where)
            raise AssertionError
        dtype, field = np.dtype(found[0]), found[1]
        count = math.prod(shape)
        if proto.data_location == 1:
            return self._outside(proto, dtype, shape, where)
        if proto.HasField("raw_data"):
            held = len(proto.raw_data)
            if held != count * dtype.itemsize:
                raise CheckpointError(
                    f"{where} has {held:,} bytes; its shape {shape} needs {count * dtype.itemsize:,} of {dtype.name}"
                )
            return np.frombuffer(proto.raw_data, dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(shape)
        values = getattr(proto, field)
        if len(values) != count:
            raise CheckpointError(f"{where} has {len(values):,} elements; its shape {shape} needs {count:,}")
        if dtype.name in ("float16", "bfloat16"):  # their bits
            return np.array(values, np.uint16).view(dtype).reshape(shape)
        with np.errstate(all="ignore"):
            try:
                return np.array(values).astype(dtype).reshape(shape)
            except OverflowError as e:
                raise CheckpointError(f"{where}: {e}") from e

    def _outside(self, proto: Any, dtype: np.dtype, shape: tuple[int, ...], where: str) -> np.ndarray:
        """An array in another file of the same folder, mapped."""
        facts = {entry.key: entry.value for entry in proto.external_data}
        name = facts.get("location", "")
        folder = os.path.realpath(os.path.dirname(self.path) or ".")
        target = os.path.realpath(os.path.join(folder, name))
        if not name or os.path.isabs(name) or os.path.commonpath([folder, target]) != folder or target == folder:
            raise CheckpointError(f"{where} is in the file {shown(name)!r}, which is not in the folder of the model")
        needed = math.prod(shape) * dtype.itemsize
        try:
            offset, length = int(facts.get("offset", 0)), int(facts.get("length", needed))
            size = os.stat(target).st_size
        except ValueError as e:
            raise CheckpointError(f"{where}: offset and length of external data must be numbers") from e
        except OSError as e:
            raise CheckpointError(f"{where} is in {shown(name)!r}: {e.strerror or e}") from e
        if length != needed or not 0 <= offset <= size - needed:
            raise CheckpointError(
                f"{where} needs {needed:,} bytes from {offset:,} on; it has {length:,} and {shown(name)!r} has {size:,}"
            )
        if not needed:
            return np.empty(shape, dtype)
        return np.memmap(target, dtype.newbyteorder("<"), "r", offset, shape).view(np.ndarray).astype(dtype, copy=False)

    def sparse(self, proto: Any) -> np.ndarray:
        """The dense array of a SparseTensorProto."""
        shape = tuple(proto.dims)
        values, indices = self.tensor(proto.values), self.tensor(proto.indices, f"indices of {proto.values.name}")
        count = math.prod(shape)
        if any(n < 0 for n in shape) or count > 1 << 28:
            raise CheckpointError(f"{self.path}: the sparse array {shown(proto.values.name)!r} has the shape {shape}")
        try:
            flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)
            dense = np.zeros(count, values.dtype)
            dense[flat] = values
        except (ValueError, IndexError) as e:
            raise CheckpointError(f"{self.path}: the indices of {shown(proto.values.name)!r}: {e}") from e
        return dense.reshape(shape)


def _names(graph: Any) -> Iterator[Any]:
    for x in (*graph.initializer, *graph.input, *graph.output):
        yield x.name
    for x in graph.input:
        yield from (n.dim_param for n in x.type.tensor_type.shape.dim)
    yield from _names_of(graph.node)


def _names_of(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attr in node.attribute:
            yield from (attr.name, attr.ref_attr_name)


class Call(NamedTuple):
    """A node, with attributes as Python values. `inputs` and `outputs` are names; '' is one left out."""

    op: str
    domain: str
    name: str
    version: int
    inputs: Sequence[str]
    outputs: Sequence[str]
    attrs: Mapping[str, Any]
    proto: Any

    def get(self, key: str, default: Any = None) -> Any:
        return self.attrs.get(key, default)


def attributes(file: File, node: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The node's attributes by name. `given` are those of the function that the node is part of."""
    return dict(_attributes(file, node, given))


def _attributes(file: File, node: Any, given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for attr in node.attribute:
        if attr.ref_attr_name:
            if attr.ref_attr_name in given:
                yield attr.name, given[attr.ref_attr_name]
            continue
        match attr.type:
            case 1:
                yield attr.name, attr.f
            case 2:
                yield attr.name, attr.i
            case 3:
                yield attr.name, attr.s.decode(errors="replace")
            case 4:
                yield attr.name, file.tensor(attr.t, f"{node.name or node.op_type}.{attr.name}")
            case 5:
                yield attr.name, attr.g
            case 6:
                yield attr.name, list(attr.floats)
            case 7:
                yield attr.name, list(attr.ints)
            case 8:
                yield attr.name, [s.decode(errors="replace") for s in attr.strings]
            case 11:
                yield attr.name, file.sparse(attr.sparse_tensor)
            case _:
                yield attr.name, None
