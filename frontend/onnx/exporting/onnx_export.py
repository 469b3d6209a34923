"""`export_model`: a symbol and its parameters as an ONNX file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit import symbol as symbols
from gluonjit.base import MXNetError, dtype_name
from gluonjit.files import atomic
from gluonjit.ir.dims import named
from gluonjit.ir.opdef import RNG_KEY
from gluonjit.ir.types import IRError, TensorType
from gluonjit.ir.types import dtype as ir_dtype
from gluonjit.ndarray import array_files
from gluonjit.onnx.exporting import (  # noqa: F401  (they declare lowerings)
    operator_lowerings,
    primitive_lowerings,
)
from gluonjit.onnx.exporting.onnx_writer import LOWERINGS, Writer
from gluonjit.onnx.package import require_onnx
from gluonjit.symbol import Symbol
from gluonjit.symbol.binding import solve_variables
from gluonjit.symbol.graph import post_order, variables
from gluonjit.symbol.lower import lower

OLDEST, USUAL = 13, 20
"""The opsets that can be written start at OLDEST; USUAL, which has Gelu, is written unless another one is asked for."""
_LABELS = ("SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput", "SVMOutput")


def export_model(
    sym: Any,
    params: Any,
    in_shapes: Sequence[Sequence[int]] | None = None,
    in_types: Any = np.float32,
    onnx_file_path: str | os.PathLike[str] = "model.onnx",
    verbose: bool = False,
    dynamic: bool = False,
    dynamic_input_shapes: Sequence[Sequence[Any]] | None = None,
    run_shape_inference: bool = False,
    input_type: Any = None,
    input_shape: Any = None,
    opset_version: int | None = None,
) -> Any:
    """Writes an ONNX file, and returns its name.

    * `sym`, `params`: a Symbol, or the name of its file; a dict of arrays by name (with or without `arg:` and `aux:`),
      a list of such dicts, or the name of their file.
    * `in_shapes`, `in_types`: of the inputs, in the order of `sym.list_inputs()`; one type may be for all of them.
    * `dynamic`: leaves sizes open: those that are None, or a name, in `dynamic_input_shapes`; without this argument, as
      many dimensions as the graph allows, the batch first.
    * `opset_version`: of ONNX's operators, 13 or later.

    Labels of output layers are no inputs. MXNetError that lists every operator which cannot be written.
    """
    onnx = require_onnx()
    opset = _opset(onnx, opset_version)
    graph = symbols.load(sym) if isinstance(sym, (str, os.PathLike)) else sym
    if not isinstance(graph, Symbol):
        raise ValueError(f"sym must be a Symbol or the name of its file, got {type(sym).__name__}")
    arrays = _parameters(params)
    types = _types(graph, arrays, input_shape or in_shapes, in_types if input_type is None else input_type)
    if dynamic:
        model = _open_model(graph, arrays, types, dynamic_input_shapes, opset)
    else:
        model = _model(graph, arrays, types, opset)
    if run_shape_inference:
        model = onnx.shape_inference.infer_shapes(model)
    if model.ByteSize() >= 1 << 31:
        raise MXNetError(
            f"{onnx_file_path}: a file of ONNX holds at most 2 GB; this model has {model.ByteSize():,} bytes"
        )
    onnx.checker.check_model(model)
    if verbose:
        print(onnx.helper.printable_graph(model.graph))
    atomic.write(onnx_file_path, [model.SerializeToString()])
    return onnx_file_path


def get_operator_support(opset_version: int | None = None) -> list[str]:
    """The names of the operators that ONNX has an operator for, or that all of their primitives have one for, as far as
    that does not depend on shapes and attributes."""
    return sorted(name.removeprefix("mx.") for name in LOWERINGS if name.startswith("mx."))


def _opset(onnx: Any, wanted: int | None) -> int:
    newest = onnx.defs.onnx_opset_version()
    if wanted is None:
        return min(USUAL, newest)
    if not isinstance(wanted, (int, np.integer)) or not OLDEST <= wanted <= newest:
        raise MXNetError(f"opset_version={wanted}: it must be from {OLDEST} to {newest}, the newest that onnx knows")
    return int(wanted)


def _parameters(params: Any) -> dict[str, np.ndarray]:
    if isinstance(params, (str, os.PathLike)):
        params = array_files.borrow(params)
    parts = params if isinstance(params, (list, tuple)) else [params]
    if not all(isinstance(part, Mapping) for part in parts):
        raise ValueError("params must be a dict of arrays by name, a list of such dicts, or the name of a file of them")
    named_arrays = {name: x for part in parts for name, x in part.items()}
    return {
        name[4:] if name.startswith(("arg:", "aux:")) else name: x.asnumpy() if hasattr(x, "asnumpy") else np.asarray(x)
        for name, x in named_arrays.items()
    }


def _types(graph: Symbol, arrays: Mapping[str, np.ndarray], shapes: Any, in_types: Any) -> dict[str, TensorType]:
    """The types of all variables, the inputs' first."""
    labels = _labels(graph)
    inputs = [name for name in graph.list_inputs() if name not in arrays]
    needed = [name for name in inputs if name not in labels]
    shapes = [] if shapes is None else list(shapes)
    if not len(needed) <= len(shapes) <= len(inputs):
        raise MXNetError(f"in_shapes needs a shape for each of the inputs {', '.join(needed)}; it has {len(shapes)}")
    names = needed if len(shapes) == len(needed) else inputs
    kinds = list(in_types) if isinstance(in_types, (list, tuple)) else [in_types] * len(shapes)
    if len(kinds) != len(shapes):
        raise MXNetError(f"in_types has {len(kinds)} types for {len(shapes)} shapes")
    known = {name: tuple(int(n) for n in shape) for name, shape in zip(names, shapes)}
    dtypes = {name: ir_dtype(dtype_name(kind)) for name, kind in zip(names, kinds)}
    known |= {name: x.shape for name, x in arrays.items()}
    dtypes |= {name: ir_dtype(x.dtype) for name, x in arrays.items()}
    found = solve_variables(graph, dtypes, known)
    exact = {name: TensorType(dtypes[name], known[name]) for name in found if name in known and name in dtypes}
    return {**{name: found[name] for name in inputs}, **found, **exact}


def _labels(graph: Symbol) -> set[str]:
    nodes = post_order(graph._heads)
    return {
        node.inputs[1][0].name
        for node in nodes
        if node.op is not None and node.op.name in _LABELS and node.inputs[1][0].op is None
    }


# Open dimensions


def _open_model(
    graph: Symbol, arrays: Mapping[str, np.ndarray], types: Mapping[str, TensorType], wanted: Any, opset: int
) -> Any:
    inputs = [name for name in types if name not in arrays]
    if wanted is not None:
        if len(wanted) > len(inputs):
            raise MXNetError(f"dynamic_input_shapes has {len(wanted)} shapes for the inputs {', '.join(inputs)}")
        return _model(graph, arrays, {**types, **dict(_asked(inputs, types, wanted))}, opset)
    places = [(name, axis) for name in inputs for axis in range(types[name].rank)]
    groups: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for name, axis in sorted(places, key=lambda place: place[1]):
        # Inputs that agree in a size are taken to agree in all.
        groups.setdefault((axis, types[name].shape[axis]), []).append((name, axis))
    model, kept = None, dict(types)
    for (axis, _), members in groups.items():
        dim = named(
            "batch" if axis == 0 else f"size{axis}" if len(inputs) == 1 else f"{_dim_name(members[0][0])}_{axis}"
        )
        tried = dict(kept)
        for name, k in members:
            shape = tried[name].shape
            tried[name] = tried[name].with_shape((*shape[:k], dim, *shape[k + 1 :]))
        try:
            model, kept = _model(graph, arrays, tried, opset), tried
        except (IRError, MXNetError):
            continue
    return _model(graph, arrays, types, opset) if model is None else model


def _asked(inputs: Sequence[str], types: Mapping[str, TensorType], wanted: Any) -> Iterator[tuple[str, TensorType]]:
    for name, sizes in zip(inputs, wanted):
        if sizes is None:
            continue
        own = types[name].shape
        if len(sizes) != len(own):
            raise MXNetError(f"dynamic_input_shapes: {name} has {len(own)} dimensions, got {tuple(sizes)}")
        shape: list[Any] = []
        for k, (n, size) in enumerate(zip(own, sizes)):
            if size is None:
                shape.append(named("batch" if k == 0 else f"{_dim_name(name)}_{k}"))
            elif isinstance(size, str):
                shape.append(named(_dim_name(size)))
            elif size == n:
                shape.append(n)
            else:
                raise MXNetError(f"dynamic_input_shapes: dimension {k} of {name} is {n} in in_shapes, and {size} here")
        yield name, types[name].with_shape(tuple(shape))


def _dim_name(text: str) -> str:
    name = re.sub(r"[^a-z0-9_]", "_", text.lower())
    return name if name[:1].isalpha() else f"n{name}"


# The model


def _model(graph: Symbol, arrays: Mapping[str, np.ndarray], types: Mapping[str, TensorType], opset: int) -> Any:
    heads = graph._heads
    nodes = [node for node in post_order(heads) if node.op is not None]
    of_variables = [*variables(heads)[0], *variables(heads)[1]]
    order = sorted(of_variables, key=lambda node: node.name in arrays)
    lowered = lower("net", [((node, 0), types[node.name]) for node in order], nodes, heads, training=False)
    sizes: dict[str, tuple[str, int]] = {}
    for name, type_ in types.items():
        for axis, n in enumerate(type_.shape):
            for dim in getattr(n, "names", ()):
                sizes.setdefault(dim, (name, axis))
    w = Writer(opset, sizes)
    w._taken.update(v.name for v in lowered.inputs)
    inputs = []
    for v in lowered.inputs:
        if v.name in arrays:
            w.bind_parameter(v, v.name, arrays[v.name])
        else:
            w.bind(v, v.name)
            inputs.append((v.name, v.dtype.numpy, v.shape))
    w.write(lowered)
    if w.problems:
        listed = "\n".join(f"  {node}: {why}" if node else f"  {why}" for node, why in w.problems)
        raise MXNetError(f"ONNX (opset {opset}) has no operators for\n{listed}")
    return finish(w, inputs, graph.list_outputs(), w.results(lowered.outputs), _labels(graph))


def finish(w: Writer, inputs: Any, names: Sequence[str], results: Any, optional: Any = ()) -> Any:
    """The ModelProto: without nodes and arrays that no output needs, outputs called `names`, if these are not taken."""
    onnx = require_onnx()
    taken = {*(given[0] for given in inputs), *w.arrays}
    for record_name, name in zip((made for made, _ in results), names):
        while name in taken:  # the output is an input, a parameter, or an output for the second time
            name += "_output"
        taken.add(name)
        w.renamed[record_name] = name
    needed = {made for made, _ in results}
    kept = []
    for record in reversed(w.nodes):
        if needed.isdisjoint(record.outputs):
            continue
        kept.append(record)
        needed.update(record.inputs)
        for attr in record.attrs.values():
            if isinstance(attr, onnx.GraphProto):
                needed.update(_reads(onnx, attr))
    w.nodes[:] = kept[::-1]
    inputs = [given for given in inputs if given[0] in needed or given[0] not in {RNG_KEY, *optional}]
    graph = w.graph("gluonjit", inputs, results)
    graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in w.arrays.items() if name in needed
    )
    _rename(onnx, graph, w.renamed)
    imports = [onnx.helper.make_opsetid("", w.opset)]
    version = onnx.helper.find_min_ir_version_for(imports)
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=max(version, 7), producer_name="gluonjit")


def _rename(onnx: Any, graph: Any, names: Mapping[str, str]) -> None:
    for node in graph.node:
        node.name = names.get(node.name, node.name)
        for places in (node.input, node.output):
            places[:] = [names.get(x, x) for x in places]
        for attr in node.attribute:
            if attr.type == onnx.AttributeProto.GRAPH:
                _rename(onnx, attr.g, names)
    for described in (*graph.input, *graph.output):
        described.name = names.get(described.name, described.name)


def _reads(onnx: Any, graph: Any) -> Iterator[str]:
    for node in graph.node:
        yield from node.input
        for attr in node.attribute:
            if attr.type == onnx.AttributeProto.GRAPH:
                yield from _reads(onnx, attr.g)
    yield from (output.name for output in graph.output)
