"""`SymbolBlock`: a graph, from Symbols or from files, as a block that is compiled like any other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gluonjit import symbol
from gluonjit.base import MXNetError
from gluonjit.gluon.block import HybridBlock, _require_tensors
from gluonjit.gluon.parameter import ParameterDict
from gluonjit.ir.opdef import did_you_mean
from gluonjit.language import forms
from gluonjit.language.kinds import as_np
from gluonjit.language.running import running
from gluonjit.ndarray import NDArray
from gluonjit.symbol import Symbol
from gluonjit.symbol.dtypes import declared_type
from gluonjit.symbol.graph import STORAGE_TYPES, copy_graph, post_order
from gluonjit.symbol.shapes import declared_shape


class SymbolBlock(HybridBlock):
    """The block that computes `outputs` from `inputs`; every other variable of the graph is a parameter.

    * `outputs`: a Symbol, or a (nested) list of them; a Symbol of several outputs gives a list.
    * `inputs`: a variable of the graph, or a (nested) list of them: the arguments that the block is called with.
    * `params`: a ParameterDict to share parameters with, by name.

    It is always compiled, hybridized or not. AssertionError for an input that is not a variable and for parameters with
    row_sparse storage.

    >>> x = mx.sym.var("x")
    >>> net = gluon.SymbolBlock(mx.sym.FullyConnected(x, num_hidden=3, name="fc"), x)
    >>> net.initialize()
    >>> net(mx.nd.ones((2, 4))).shape, list(net.collect_params())
    ((2, 3), ['fc_weight', 'fc_bias'])
    """

    @staticmethod
    def imports(
        symbol_file: str | os.PathLike[str],
        input_names: str | Sequence[str],
        param_file: str | os.PathLike[str] | None = None,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
    ) -> SymbolBlock:
        """Loads a block from files of `HybridBlock.export`, `Module.save_checkpoint` or MXNet.

        Parameters have the element types of the file; without `param_file` they are float32 and uninitialized.
        AssertionError for a parameter that the file lacks (unless `allow_missing`), or that the graph lacks (unless
        `ignore_extra`); CheckpointError for a malformed file, MXNetError for one that cannot be read.

        After `net.export("net")`, whose input is called `data`:

            net = gluon.SymbolBlock.imports("net-symbol.json", ["data"], "net-0000.params")
            net.hybridize()
        """
        graph = symbol.load(symbol_file)
        names = [input_names] if isinstance(input_names, str) else input_names
        dtype = np.float32 if param_file is None else None
        block = SymbolBlock(graph, [symbol.var(name, dtype=dtype) for name in names])
        if param_file is not None:
            try:
                block.collect_params().load(
                    param_file, ctx, allow_missing, ignore_extra, cast_dtype=True, dtype_source="saved"
                )
            except AssertionError as e:
                variables = graph.list_inputs()
                strangers = [name for name in names if name not in variables]
                if not strangers:
                    raise
                hints = "; ".join(
                    f"{name!r} is not an input of the graph{did_you_mean(name, variables)}" for name in strangers
                )
                raise AssertionError(f"input_names: {hints}\n{e}") from None
        return block

    def __init__(self, outputs: Any, inputs: Any, params: ParameterDict | None = None) -> None:
        super().__init__(prefix=None, params=None)
        self._prefix = ""
        self._params = ParameterDict("", params)
        if isinstance(inputs, Symbol) and len(inputs) == 1:
            inputs = [inputs]
        if isinstance(outputs, (list, tuple)) and len(outputs) == 1:
            outputs = outputs[0]
        self._inputs, self._in_form = forms.flatten(_single(inputs), _is_symbol, "input")
        heads, self._out_form = forms.flatten(_single(outputs), _is_symbol, "output")
        self._graph = heads[0] if len(heads) == 1 else symbol.Group(heads)
        for x in self._inputs:
            if x._heads[0][0].op is not None:
                raise AssertionError(f"Input symbols must be variable, but {x} is an output of operators")
        self._make_parameters({x.name for x in self._inputs})

    def _argument_names(self, count: int) -> list[str]:
        return [str(x.name) for x in self._inputs]

    def _make_parameters(self, inputs: set[str | None]) -> None:
        for node in post_order(self._graph._heads):
            if node.op is None and node.attrs.get("__storage_type__") == str(STORAGE_TYPES["row_sparse"]):
                raise AssertionError(
                    f"SymbolBlock doesn't support Parameter '{node.name}' because its storage type is 'row_sparse'."
                )
        for name in {*self._graph.list_arguments()} & {*self._graph.list_auxiliary_states()}:
            raise MXNetError(
                f"two variables of the graph are called {name!r}: an argument and an auxiliary state (such as a moving "
                "mean); a block has one parameter for each name"
            )
        types = _variable_types(self._graph, self._inputs)
        for name in self._graph.list_arguments():
            if name not in inputs:
                self.params.get(name, allow_deferred_init=True, dtype=types.get(name, np.float32))
        for name in self._graph.list_auxiliary_states():
            if name not in inputs:
                self.params.get(name, grad_req="null", allow_deferred_init=True, dtype=types.get(name, np.float32))
        for node in post_order(self._graph._heads):
            if node.op is None and node.name in self._params:
                self._params[node.name]._declared_shape = declared_shape(node)
        common = len(os.path.commonprefix(list(self._params)))
        self._reg_params = {name[common:]: param for name, param in self._params.items()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n{self._graph} : {len(self._inputs)} -> {len(self._graph)}\n)"

    # The nesting of arguments and results, in MXNet's encoding. Programs that saved it with a graph set it again.

    @property
    def _in_format(self) -> Any:
        return forms.numbered(self._in_form)

    @_in_format.setter
    def _in_format(self, numbers: Any) -> None:
        self._in_form = self._form_of(numbers, len(self._inputs), "inputs")
        self._drop_compiled("the nesting of the arguments was set")

    @property
    def _out_format(self) -> Any:
        return forms.numbered(self._out_form)

    @_out_format.setter
    def _out_format(self, numbers: Any) -> None:
        self._out_form = self._form_of(numbers, len(self._graph), "outputs")
        self._drop_compiled("the nesting of the results was set")

    def _form_of(self, numbers: Any, count: int, what: str) -> Any:
        form = forms.from_numbers(numbers)
        if forms.count(form) != count:
            raise ValueError(f"the format {numbers} has {forms.count(form)} {what}, this block has {count}")
        return form

    # Calls

    def _calls_only_compiled_code(self) -> bool:
        return (
            type(self).forward is SymbolBlock.forward
            and not (self._forward_hooks or self._forward_pre_hooks or self._callback)
            and self._jit_debug_results is None
        )

    def forward(self, x: Any, *args: Any) -> Any:
        """The graph's outputs for NDArrays; for Symbols, a copy of the graph with these as its inputs."""
        recorder = running.trace
        if recorder is not None:
            return recorder.call(self, (x, *args))
        if _require_tensors(x, *args) is Symbol:
            return self.hybrid_forward(symbol, x, *args)
        self._check_form((x, *args))
        return self._compiled_call()(x, *args)

    def hybrid_forward(self, F: Any, /, *args: Any, **params: Any) -> Any:  # type: ignore[override]
        given = forms.flatten(args, _is_symbol, "input")[0]
        self._check_form(args)
        inputs = {x.name: value for x, value in zip(self._inputs, given)}
        recorder = running.trace
        if recorder is None:
            heads = self._graph._heads
            variables = [node for node in post_order(heads) if node.op is None and node.name in inputs]
            replaced = copy_graph(heads, {node: inputs[node.name]._entry(node.name) for node in variables})
            results: Sequence[Symbol] = [Symbol([head]) for head in replaced]
        else:
            inputs |= {name: recorder.parameter(param) for name, param in self._params.items()}
            results = recorder.graft(self._graph, inputs)
        if any(x._numpy for x in given):
            results = as_np(results)
        return forms.rebuild(self._out_form, results)

    def _check_form(self, args: Sequence[Any]) -> None:
        form = forms.flatten(args, lambda x: isinstance(x, (NDArray, Symbol)), "input")[1]
        stored, found = forms.numbered(self._in_form), forms.numbered(form)
        if stored != found:
            raise ValueError(
                "The argument structure of HybridBlock does not match the cached version. "
                f"Stored format = {stored}, input format = {found}"
            )

    # Parameters

    def cast(self, dtype: Any) -> None:
        """Converts parameters to another element type; those of BatchNorm stay float32 beside float16."""
        super().cast(dtype)
        if np.dtype(dtype).name == "float16":
            names = set(self._graph.list_inputs())
            for name in names:
                for mean, var in (("running_mean", "running_var"), ("moving_mean", "moving_var")):
                    prefix = name.removesuffix(var)
                    siblings = [prefix + part for part in (var, mean, "gamma", "beta")]
                    if prefix != name and names.issuperset(siblings):
                        for sibling in siblings:
                            self.params.get(sibling).cast("float32")

    def reset_ctx(self, ctx: Any) -> None:
        """Moves the parameters to other contexts; see `Parameter.reset_ctx`."""
        self.collect_params().reset_ctx(ctx)

    def _jit_exported(self) -> tuple[Symbol, dict[str, Any]]:
        return self._graph, {name: param._reduce() for name, param in self._params.items()}


def _is_symbol(value: Any) -> bool:
    return isinstance(value, Symbol)


def _single(value: Any) -> Any:
    """`value` with each Symbol of several outputs replaced by a list of Symbols of one output."""
    if isinstance(value, (list, tuple)):
        return [_single(item) for item in value]
    return list(value) if isinstance(value, Symbol) and len(value) > 1 else value


def _variable_types(graph: Symbol, inputs: Iterable[Symbol]) -> dict[str, Any]:
    """The element types of the graph's variables that follow from the declared types of `inputs` and variables."""
    present = set(graph.list_inputs())
    declared = {x.name: declared_type(x._heads[0][0]) for x in inputs if x.name in present}
    try:
        arguments, _, aux = graph.infer_type_partial(**{k: t.numpy for k, t in declared.items() if t is not None})
    except MXNetError:
        return {}
    named = [*zip(graph.list_arguments(), arguments), *zip(graph.list_auxiliary_states(), aux)]
    return {name: dtype for name, dtype in named if dtype is not None}
