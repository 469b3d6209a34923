"""`import_model`, `import_to_gluon` and `get_model_metadata`: ONNX files as symbols and blocks."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from gluonjit import symbol as symbols
from gluonjit.gluon import SymbolBlock
from gluonjit.ir.types import TensorType
from gluonjit.ndarray import NDArray
from gluonjit.onnx.importing import (  # noqa: F401  (they declare translations)
    translate_elementwise,
    translate_layers,
    translate_loops,
    translate_shapes,
)
from gluonjit.onnx.importing.importer import Importer
from gluonjit.onnx.importing.onnx_files import File
from gluonjit.symbol import Symbol


def import_model(model_file: str | os.PathLike[str]) -> tuple[Symbol, dict[str, NDArray], dict[str, NDArray]]:
    """The symbol of an ONNX file, its arguments and its auxiliary states.

    Parameters have the names of the file's initializers. CheckpointError for a malformed file; MXNetError that lists
    every operator which gluonjit does not have.
    """
    return read_model(model_file)[:3]


def read_model(
    model_file: str | os.PathLike[str],
) -> tuple[Symbol, dict[str, NDArray], dict[str, NDArray], dict[str, TensorType]]:
    """`import_model`, and the types of those inputs that the symbol has."""
    importer = Importer(File(model_file))
    symbol, args, aux = importer.model()
    used = {*symbol.list_inputs()}
    return symbol, _wrapped(args), _wrapped(aux), {name: t for name, t in importer.inputs.items() if name in used}


def import_to_gluon(model_file: str | os.PathLike[str], ctx: Any = None) -> SymbolBlock:
    """The model of an ONNX file as a block, with its parameters."""
    symbol, args, aux, inputs = read_model(model_file)
    block = SymbolBlock(symbol, [symbols.var(name, dtype=type.dtype.numpy) for name, type in inputs.items()])
    block.collect_params().load_dict({**args, **aux}, ctx, cast_dtype=True, dtype_source="saved")
    return block


def get_model_metadata(model_file: str | os.PathLike[str]) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """The names and shapes of a file's inputs and outputs; an open dimension is 0."""
    graph = File(model_file).graph
    parameters = {x.name for x in graph.initializer}

    def described(values: Any) -> list[tuple[str, tuple[int, ...]]]:
        return [(x.name, tuple(n.dim_value for n in x.type.tensor_type.shape.dim)) for x in values]

    inputs = [x for x in graph.input if x.name not in parameters]
    return {"input_tensor_data": described(inputs), "output_tensor_data": described(graph.output)}


def _wrapped(arrays: dict[str, np.ndarray]) -> dict[str, NDArray]:
    return {name: NDArray._wrap(np.array(x)) for name, x in arrays.items()}
