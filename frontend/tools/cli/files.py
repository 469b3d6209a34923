"""Models in files, as blocks with inputs: a graph (`model-symbol.json`) and its parameters, or `model.onnx`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.files.array_names import shown
from gluonjit.ir.types import TensorType, dtype_of
from gluonjit.tools.cli import inputs as cli_inputs
from gluonjit.tools.cli.inputs import Input


def is_symbol(path: str) -> bool:
    """Whether a command's argument is the name of a file with a graph: MXNet's or ONNX's."""
    return path.endswith(".json") or is_onnx(path)


def is_onnx(path: str) -> bool:
    return path.endswith(".onnx")


def read_parameters(path: str) -> dict[str, Any]:
    """Read-only NDArrays by name, without `arg:` and `aux:`. MXNetError for a file without names."""
    from gluonjit.ndarray.array_files import borrow

    loaded = borrow(path) or {}
    if not isinstance(loaded, dict):
        raise MXNetError(f"{path} holds arrays without names, so they are not a model's")
    return {name[4:] if name.startswith(("arg:", "aux:")) else name: x for name, x in loaded.items()}


class FileModel:
    """A graph, its parameters, and its inputs.

    Inputs are the arguments of the graph that the parameter file lacks. Without a parameter file, they are the given
    ones, and all other arguments are 0. An ONNX file has parameters, and says which shapes its inputs have.
    """

    def __init__(self, graph: str, params: str | None) -> None:
        from gluonjit import symbol
        from gluonjit.execution.symbol_codes import LEARNED

        self.path = graph
        self.declared: list[Input] = []
        self.types: Mapping[str, TensorType] = {}
        """The types of inputs, as far as the file tells them; sizes may be open."""
        if is_onnx(graph):
            self.symbol, self.arrays = self._read_onnx(params)
        else:
            self.symbol = symbol.load(graph)
            self.arrays = read_parameters(params) if params else {}
        self.complete = params is not None or is_onnx(graph)
        arguments = self.symbol.list_arguments()
        self.inputs = [n for n in arguments if n not in self.arrays and (self.complete or not n.endswith(LEARNED))]
        missing = [name for name in self.symbol.list_auxiliary_states() if name not in self.arrays]
        if self.complete and missing:
            raise MXNetError(f"{params} lacks {shown(', '.join(missing[:5]))}{', ...' if len(missing) > 5 else ''}")

    def _read_onnx(self, params: str | None) -> tuple[Any, dict[str, Any]]:
        if params:
            raise MXNetError(f"{params}: {self.path} has its parameters in it")
        try:
            from gluonjit.onnx.importing.onnx_import import read_model

            found, args, aux, types = read_model(self.path)
        except ImportError as e:
            raise MXNetError(str(e)) from e
        self.types = types
        if all(type.is_static for type in types.values()):
            self.declared = [Input(name, type, None) for name, type in types.items()]
        return found, {**args, **aux}

    @property
    def outputs(self) -> list[str]:
        return self.symbol.list_outputs()

    def prepare(
        self, inputs: Sequence[Input], seed: int, quiet: bool = False, zeros: bool = True
    ) -> tuple[Any, list[Any]]:
        """(SymbolBlock, NDArrays to call it with). Prints assumptions and conversions on standard error.

        Unnamed inputs are assigned in order to the graph's inputs that are not named. An input that is not given, but
        whose shape follows from the others (a label), is 0; parameters are only 0 with `zeros`. MXNetError for unknown
        names, and for inputs whose shapes are not known.
        """
        from gluonjit import ndarray, symbol
        from gluonjit.execution.symbol_codes import LEARNED
        from gluonjit.gluon import SymbolBlock

        values = self._named(cli_inputs.arrays(inputs or self.declared, seed))
        types = self._types(values)
        given = self.inputs if self.complete else [name for name in self.inputs if name in values]
        if not given:
            raise MXNetError(
                f"say what the graph is called with: --input {shown(self.inputs[0]) if self.inputs else 'x'}=1x3"
            )
        missing = [name for name in types if name not in values and name not in self.arrays]
        states = self.symbol.list_auxiliary_states()
        forgotten = [name for name in missing if name.endswith(LEARNED) or name in states]
        if forgotten and not zeros:
            listed = f"{shown(', '.join(forgotten[:5]))}{', ...' if len(forgotten) > 5 else ''}"
            raise MXNetError(
                f"no values for {listed}: give the parameters' file after {self.path}, or --zeros to compute with zeros"
            )
        if missing and not quiet:
            listed = ", ".join(f"{shown(name)}: {types[name]}" for name in missing[:3])
            print(f"not given, and therefore 0: {listed}{', ...' if len(missing) > 3 else ''}", file=sys.stderr)
        arrays = {name: ndarray.zeros(types[name].shape, dtype=types[name].dtype.numpy) for name in missing}
        for name, x in values.items():
            if dtype_of(x) is not types[name].dtype and not quiet:
                print(f"{shown(name)}: {dtype_of(x)} converted to {types[name].dtype}", file=sys.stderr)
            arrays[name] = ndarray.NDArray._wrap(np.array(x, types[name].dtype.numpy, order="C"))
        block = SymbolBlock(self.symbol, [symbol.var(name) for name in given])
        params = {name: self.arrays.get(name, arrays.get(name)) for name in block.params}
        block.params.load_dict(params, cast_dtype=True, dtype_source="saved")
        return block, [arrays[name] for name in given]

    def _named(self, found: Sequence[tuple[str | None, np.ndarray]]) -> dict[str, np.ndarray]:
        listed = shown(", ".join(self.inputs)) or "none"
        arguments = [name for name in self.symbol.list_arguments() if name not in self.arrays]
        values = cli_inputs.by_name(found, self.inputs, listed, arguments)
        self.inputs += [name for name in values if name not in self.inputs]
        return values

    def _types(self, values: Mapping[str, np.ndarray]) -> Mapping[str, TensorType]:
        """The types of all variables. The element types of inputs follow from the parameters, if possible."""
        from gluonjit.symbol.binding import solve_variables

        arguments = self.symbol.list_arguments()
        known = {name: x.dtype for name, x in self.arrays.items() if name in arguments}
        try:
            implied = dict(zip(arguments, self.symbol.infer_type_partial(**known)[0]))
        except MXNetError:
            implied = {}
        types = {name: x.dtype for name, x in self.arrays.items()}
        types |= {name: implied.get(name) or x.dtype for name, x in values.items()}
        shapes = {name: x.shape for name, x in (*self.arrays.items(), *values.items())}
        try:
            return solve_variables(self.symbol, types, shapes)
        except RuntimeError as e:
            left = [name for name in self.inputs if name not in values]
            if left:
                first = shown(left[0])
                example = f"--input {first}=1x3x224x224, or {first}=x.npy"
                raise MXNetError(f"say what {shown(', '.join(left))} is: {example}") from e
            # It lists the shapes of all parameters, in front of the operator at fault.
            told = [line for line in str(e).splitlines() if line.partition(": ")[0] not in self.arrays]
            raise MXNetError(f"{self.path}: " + "\n".join(told)) from e
