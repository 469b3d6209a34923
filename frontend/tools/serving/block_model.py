"""A block, from a graph in a file or from a Python file, as a predictor's model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.execution.symbol_codes import LEARNED
from gluonjit.files.array_names import shown
from gluonjit.gluon import SymbolBlock
from gluonjit.ir.batch_rows import independent_rows
from gluonjit.ir.dims import Dim, at, hinted
from gluonjit.ir.sizes import sizes_of
from gluonjit.ir.types import F32, IRError, TensorType
from gluonjit.language.modes import predict_mode
from gluonjit.ndarray import NDArray
from gluonjit.passes import run_passes
from gluonjit.runtime import forks
from gluonjit.runtime.executable import Executable
from gluonjit.runtime.threads import set_num_threads
from gluonjit.symbol import Symbol
from gluonjit.symbol import var as symbol_var
from gluonjit.tools.cli.files import FileModel, is_onnx, is_symbol
from gluonjit.tools.cli.inputs import no_input
from gluonjit.tools.cli.loading import is_python, load_block
from gluonjit.tools.serving.described import Described
from gluonjit.trace import flatten, trace

_LABEL = "label"
"""How the names of inputs end that only a loss reads."""
_ROWS = "batch"
"""The name of the first dimension of inputs whose shapes were not declared."""


def open_block(files: Sequence[str], declared: Mapping[str, TensorType], threads: int | None) -> BlockModel:
    """The model in the files. MXNetError for declared inputs that are not the graph's, and all that reading may raise.

    With declared inputs, code is compiled at once.
    """
    if threads is not None:
        set_num_threads(threads)
    if is_symbol(files[0]):
        return _from_graph(files, declared)
    if not is_python(files[0]):
        raise MXNetError(
            f"{files[0]}: a model is a graph (model-symbol.json, model.onnx), a library (.so) or FILE.py:NAME"
        )
    if not declared:
        raise MXNetError(
            f"{files[0]}: say what it is called with, in order: --input data=batchx3x224x224 on the command line, "
            "inputs={'data': 'batchx3x224x224'} in Python"
        )
    inputs = tuple(_described(name, t) for name, t in declared.items())
    return BlockModel(load_block(files[0]), inputs, None, None)


def _from_graph(files: Sequence[str], declared: Mapping[str, TensorType]) -> BlockModel:
    if len(files) == 1 and not is_onnx(files[0]):
        raise MXNetError(f"{files[0]}: name the parameters' file after it, too")
    model = FileModel(files[0], files[1] if len(files) == 2 else None)
    if not declared and all(name in model.types for name in model.inputs):  # an ONNX file says it
        declared = {name: model.types[name] for name in model.inputs}
    graph = model.symbol
    for name in declared:
        if name not in model.inputs:
            raise MXNetError(no_input(name, model.inputs))
    lacking = [name for name in model.inputs if name not in declared and name.endswith(LEARNED)]
    if lacking and not is_onnx(files[0]):
        raise MXNetError(f"{files[1]} lacks {shown(', '.join(lacking[:5]))}{', ...' if len(lacking) > 5 else ''}")
    if not model.inputs:
        raise MXNetError(f"{model.path} has no inputs")
    arguments = graph.list_arguments()
    known = {name: x.dtype for name, x in model.arrays.items() if name in arguments}
    implied = dict(zip(arguments, graph.infer_type_partial(**known)[0]))
    types = _with_labels(graph, model.inputs, declared)
    inputs = tuple(
        _described(name, types[name])
        if name in types
        else Described(name, np.dtype(implied.get(name) or np.float32), None)
        for name in model.inputs
    )
    block = SymbolBlock(graph, [symbol_var(name) for name in model.inputs])
    block.params.load_dict({name: model.arrays[name] for name in block.params}, cast_dtype=True, dtype_source="saved")
    names = graph.list_outputs()
    again = [names[:k].count(name) for k, name in enumerate(names)]
    return BlockModel(block, inputs, [f"{name}_{k}" if k else name for name, k in zip(names, again)], graph)


def _with_labels(graph: Symbol, inputs: Sequence[str], declared: Mapping[str, TensorType]) -> Mapping[str, TensorType]:
    """`declared`, with the labels of losses, whose shapes follow from it: as many rows, and the rest as it is."""
    labels = [name for name in inputs if name not in declared and name.endswith(_LABEL)]
    if not labels or not declared:
        return declared
    rows = next((t.shape[0] for t in declared.values() if t.shape), None)
    try:
        shapes = graph.infer_shape(**{name: hinted(t.shape) for name, t in declared.items()})[0]
    except MXNetError:
        return declared
    by_name = dict(zip(graph.list_arguments(), shapes))
    found = dict(declared)
    for name in labels:
        first, *rest = by_name[name] or (0,)
        if isinstance(rows, Dim) and (first,) == hinted((rows,)):
            first = rows
        found[name] = TensorType(F32, (first, *rest))
    return found


class BlockModel:
    """A block, its inputs and outputs. `graph`: what the shapes of inputs that are not given (labels) follow from."""

    def __init__(
        self, block: Any, inputs: tuple[Described, ...], names: Sequence[str] | None, graph: Symbol | None
    ) -> None:
        self.block, self.names, self.graph = block, names, graph
        self.inputs = inputs
        self.outputs: tuple[Described, ...] | None = None
        self.rows: str | None = None
        self.why_rows_mix = "the shapes of inputs were not declared"
        self._lock = forks.renewed()
        self._is_declared = False
        if any(x.shape is not None for x in inputs):
            self._compile()

    @property
    def optional(self) -> frozenset[str]:
        """Inputs that need not be given, because their shapes follow from others: labels."""
        if self.graph is None or len(self.inputs) == 1:
            return frozenset()
        return frozenset(x.name for x in self.inputs if x.name.endswith(_LABEL))

    @property
    def is_open(self) -> bool:
        """Whether one code serves all sizes of the open dimensions."""
        return self.block._jit_cached is not None and self.block._jit_cached.open_code is not None

    def memory(self, sizes: Mapping[str, int]) -> int | None:
        """Bytes that a call of these sizes works in, beside its inputs and results; None if that is not known."""
        code = self.block._jit_cached.open_code if self.block._jit_cached is not None else None
        if not isinstance(code, Executable):
            return None
        # Code from the object cache may have other names for the same dimensions.
        shapes = [tuple(at(n, sizes) for n in x.shape or ()) for x in self.inputs]
        return at(code.main.layout.arena, sizes_of(code.input_types[: len(shapes)], shapes, 1))

    def _compile(self) -> None:
        """Compiles for the declared sizes, and finds out about outputs and rows."""
        given = {x.name: np.zeros(hinted(x.shape), x.dtype) for x in self.inputs if x.shape is not None}
        results = self.run(given)
        self.outputs = tuple(
            Described(name, y.dtype, y.shape if all(x.type.is_static for x in self.inputs if x.shape) else None)
            for name, y in results.items()
        )
        if all(x.shape is not None for x in self.inputs):
            self._analyse(given)

    def _analyse(self, given: Mapping[str, np.ndarray]) -> None:
        args = [NDArray._wrap(x) for x in given.values()]
        types = [x.type for x in self.inputs]
        try:
            with predict_mode():
                known = trace(self.block, args)
                if broken := known.broken(types, False):
                    self.why_rows_mix = broken
                    return
                graph = known.graph(types, False)
            self.outputs = tuple(
                y._replace(shape=v.shape) for y, v in zip(self.outputs or (), graph.outputs, strict=True)
            )
            self.rows, self.why_rows_mix = independent_rows(run_passes(graph, "expand"), len(self.inputs))
        except (IRError, MXNetError) as e:
            self.why_rows_mix = str(e)

    def _declare(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Opens the declared dimensions, or the first of each input that has as many rows as the first one."""
        with self._lock:
            if self._is_declared:
                return
            names = self.block._argument_names(len(arrays))
            rows = next((x.shape[0] for x in arrays.values() if x.ndim), None)
            dynamic: dict[str, dict[int, str]] = {}
            by_name = {x.name: x for x in self.inputs}
            for (name, x), argument in zip(arrays.items(), names):
                own = by_name[name].shape if name in by_name else None
                if own is not None:
                    axes = {axis: str(n) for axis, n in enumerate(own) if isinstance(n, Dim)}
                else:
                    axes = {0: _ROWS} if x.ndim and x.shape[0] == rows else {}
                if axes:
                    dynamic[argument] = axes
            self.block.hybridize(dynamic=dynamic or None)
            self._is_declared = True

    def run(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        arrays = self._completed(arrays)
        if not self._is_declared:
            self._declare(arrays)
        with predict_mode():
            found = flatten([self.block(*(NDArray._wrap(x) for x in arrays.values()))])[0]
        names = self.names or (["output"] if len(found) == 1 else [f"output{k}" for k in range(len(found))])
        return {name: y.asnumpy() for name, y in zip(names, found, strict=True)}

    def _completed(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """With zeros for those inputs that are not given. ValueError if their shapes do not follow from the others."""
        if self.graph is None or len(arrays) == len(self.inputs):
            return arrays
        shapes = {name: x.shape for name, x in arrays.items()}
        found = dict(zip(self.graph.list_arguments(), self.graph.infer_shape(**shapes)[0]))
        return {x.name: arrays[x.name] if x.name in arrays else np.zeros(found[x.name], x.dtype) for x in self.inputs}


def _described(name: str, t: TensorType) -> Described:
    return Described(name, t.dtype.numpy, t.shape)
