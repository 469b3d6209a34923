"""`import_model`, `import_to_gluon` and `get_model_metadata`: ONNX files as symbols and blocks."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from gluonjit import symbol as symbols
from gluonjit.gluon import SymbolBlock
from gluonjit.ndarray import NDArray
from gluonjit.onnx import translate_elementwise, translate_layers, translate_shapes  # noqa: F401  (they declare)
from gluonjit.onnx.importer import Importer
from gluonjit.onnx.onnx_files import File
from gluonjit.symbol import Symbol


def import_model(model_file: str | os.PathLike[str]) -> tuple[Symbol, dict[str, NDArray], dict[str, NDArray]]:
    """The symbol of an ONNX file, its arguments and its auxiliary states.

    Parameters have the names of the file's initializers. CheckpointError for a malformed file; MXNetError that lists
    every operator which gluonjit does not have.
    """
    symbol, args, aux = Importer(File(model_file)).model()
    return symbol, _wrapped(args), _wrapped(aux)


def import_to_gluon(model_file: str | os.PathLike[str], ctx: Any = None) -> SymbolBlock:
    """The model of an ONNX file as a block, with its parameters."""
    importer = Importer(File(model_file))
    symbol, args, aux = importer.model()
    inputs = [name for name in importer.inputs if name in {*symbol.list_inputs()}]
    block = SymbolBlock(symbol, [symbols.var(name) for name in inputs])
    block.collect_params().load_dict({**_wrapped(args), **_wrapped(aux)}, ctx, cast_dtype=True, dtype_source="saved")
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
