"""Models in mixed precision: graphs with casts in front of operators, by MXNet's lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gluonjit.context import cpu
from gluonjit.contrib.amp import operator_lists as lists
from gluonjit.gluon import HybridBlock, SymbolBlock
from gluonjit.module import BucketingModule
from gluonjit.operators.registry import OPERATORS
from gluonjit.symbol import Symbol
from gluonjit.symbol.graph import Entry, Node, post_order

Conditional = Sequence[tuple[str, str, Sequence[str]]]


def convert_symbol(
    sym: Symbol,
    target_dtype: Any = "float16",
    target_dtype_ops: list[str] | None = None,
    fp32_ops: list[str] | None = None,
    conditional_fp32_ops: Conditional | None = None,
    excluded_sym_names: list[str] | None = None,
    data_names: list[str] | None = None,
    cast_optional_params: bool = False,
) -> Symbol:
    """The float32 graph `sym` with `amp_cast` in front of the operators of the lists (default: MXNet's).

    Nodes called as in `excluded_sym_names` get no cast. `data_names` and `cast_optional_params` are accepted without
    effect on the graph: types are inferred.
    """
    if not isinstance(sym, Symbol):
        raise AssertionError("First argument to convert_symbol should be Symbol")
    target = lists.checked(target_dtype)
    low = set(_checked_list(target_dtype_ops, "target_dtype_ops", lists.list_lp16_ops(target)))
    single = set(_checked_list(fp32_ops, "fp32_ops", lists.list_fp32_ops(target)))
    some = _checked_list(conditional_fp32_ops, "conditional_fp32_ops", lists.list_conditional_fp32_ops(target))
    excluded = set(_checked_list(excluded_sym_names, "excluded_sym_names", []))
    conditional = {op for op, _, _ in some}
    known = {*lists.list_lp16_ops(target), *lists.list_fp32_ops(target), *lists.list_lp16_fp32_ops(target)}
    known |= {op for op, _, _ in lists.list_conditional_fp32_ops(target)}
    for a, b in ((low, single), (low, conditional), (conditional, single)):
        if a & b:
            raise AssertionError(f"Ops cannot be in two or more lists. Common ops: {', '.join(sorted(a & b))}")
    if strangers := (low | single | conditional) - known:
        raise AssertionError(
            f"{', '.join(sorted(strangers))}: can only choose ops of amp.list_lp16_ops, list_fp32_ops, "
            "list_lp16_fp32_ops and list_conditional_fp32_ops"
        )
    casts = _Casts(target, low, single, some, set(lists.list_widest_type_cast(target)), excluded)
    return type(sym)(casts.converted(sym._heads))


def _checked_list(given: Any, name: str, default: Any) -> Any:
    if given is None:
        return default
    if not isinstance(given, list):
        raise AssertionError(f"{name} should be a list, got {type(given).__name__}")
    return given


class _Casts:
    """A graph's copy with casts; each value is cast once to each type, and not to the type that it has."""

    def __init__(
        self, target: str, low: set[str], single: set[str], some: Conditional, widest: set[str], excluded: set[str]
    ) -> None:
        self.target, self.low, self.single, self.some = target, low, single, some
        self.widest, self.excluded = widest, excluded
        self._made: dict[tuple[Entry, str], Entry] = {}
        self._types: dict[Node, str] = {}
        """The types of the copies of operators. Variables have none: they may be bound to either."""

    def converted(self, heads: Sequence[Entry]) -> list[Entry]:
        """The outputs are float32, as they were."""
        copies: dict[Node, Node] = {}
        for node in post_order(heads):
            inputs = [(copies[source], k) for source, k in node.inputs]
            if node.op is not None and node.name not in self.excluded:
                inputs = self._cast_inputs(node, inputs)
            copies[node] = Node(node.op, node.name, node.attrs, inputs, node.parsed, node.loc, node.versions)
            if node.op is not None:
                given = [self._types.get(source) for k, (source, _) in enumerate(inputs) if k not in node.aux_inputs]
                self._types[copies[node]] = self.target if self.target in given else "float32"
        found = [(copies[source], k) for source, k in heads]
        return [self._cast(x, "float32") if self._types.get(x[0]) == self.target else x for x in found]

    def _cast_inputs(self, node: Node, inputs: list[Entry]) -> list[Entry]:
        names = {node.op.name, *node.op.aliases} if node.op is not None else set()
        if names & self.low:
            dtype = self.target
        elif names & self.single or any(op in names and node.attrs.get(key) in values for op, key, values in self.some):
            dtype = "float32"
        elif names & self.widest and len({self._types.get(source) for source, _ in inputs}) > 1:
            attrs = {"num_outputs": str(len(inputs))}
            cast = Node(OPERATORS["amp_multicast"], f"{node.name}_amp_multicast", attrs, inputs)
            self._types[cast] = "float32"
            return [(cast, k) for k in range(len(inputs))]
        else:
            return inputs
        aux = node.aux_inputs
        return [x if k in aux else self._cast(x, dtype) for k, x in enumerate(inputs)]

    def _cast(self, x: Entry, dtype: str) -> Entry:
        source, k = x
        if self._types.get(source) == dtype:
            return x
        if (x, dtype) not in self._made:
            name = f"{source.output_names[k]}_amp_cast_{dtype}"
            cast = Node(OPERATORS["amp_cast"], name, {"dtype": dtype}, [x])
            self._types[cast] = dtype
            self._made[x, dtype] = cast, 0
        return self._made[x, dtype]


def _cast_params(sym: Symbol, params: dict[str, Any], dtype: str) -> dict[str, Any]:
    """`params`, with those that the graph only reads through a cast to `dtype` cast already."""
    readers: dict[str, set[str]] = {}
    for node in post_order(sym._heads):
        for source, _ in node.inputs:
            if source.op is None:
                cast = node.op is not None and node.op.name == "amp_cast"
                readers.setdefault(source.name, set()).add(node.attrs["dtype"] if cast else "")
    return {name: x.astype(dtype) if readers.get(name) == {dtype} else x for name, x in params.items()}


def convert_model(
    sym: Symbol,
    arg_params: dict[str, Any],
    aux_params: dict[str, Any],
    target_dtype: Any = "float16",
    target_dtype_ops: list[str] | None = None,
    fp32_ops: list[str] | None = None,
    conditional_fp32_ops: Conditional | None = None,
    excluded_sym_names: list[str] | None = None,
    cast_optional_params: bool = False,
) -> tuple[Symbol, dict[str, Any], dict[str, Any]]:
    """`convert_symbol` with parameters.

    `cast_optional_params`: parameters that are only read in low precision are stored in it.
    """
    for given, kind in ((arg_params, "Second"), (aux_params, "Third")):
        if not isinstance(given, dict):
            raise AssertionError(f"{kind} argument to convert_model should be a dict of name to ndarray")
    new = convert_symbol(sym, target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names)
    if cast_optional_params:
        arg_params = _cast_params(new, arg_params, lists.checked(target_dtype))
    return new, arg_params, aux_params


def convert_hybrid_block(
    block: HybridBlock,
    target_dtype: Any = "float16",
    target_dtype_ops: list[str] | None = None,
    fp32_ops: list[str] | None = None,
    conditional_fp32_ops: Conditional | None = None,
    excluded_sym_names: list[str] | None = None,
    ctx: Any = None,
    cast_optional_params: bool = False,
) -> SymbolBlock:
    """A block in mixed precision, from one that has been hybridized and called. `ctx`: default cpu()."""
    if not isinstance(block, HybridBlock):
        raise AssertionError("block input should be a HybridBlock")
    sym, arrays = block._jit_exported()
    lists_given = (target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names)
    new = convert_symbol(sym, target_dtype, *lists_given)
    if cast_optional_params:
        arrays = _cast_params(new, arrays, lists.checked(target_dtype))
    variables = {node.name: node for node in post_order(new._heads) if node.op is None}
    inputs = [Symbol([(node, 0)]) for name, node in variables.items() if name not in arrays]
    out = SymbolBlock(new, inputs)
    for name, param in out.collect_params().items():
        if param.dtype != arrays[name].dtype:
            param.cast(arrays[name].dtype)
        param.shape = arrays[name].shape
        param.initialize(ctx=ctx or cpu())
        param.set_data(arrays[name])
    return out


def convert_bucketing_module(
    bucketing_mod: BucketingModule,
    target_dtype: Any = "float16",
    target_dtype_ops: list[str] | None = None,
    fp32_ops: list[str] | None = None,
    conditional_fp32_ops: Conditional | None = None,
    excluded_sym_names: list[str] | None = None,
    cast_optional_params: bool = False,
) -> BucketingModule:
    """A module in mixed precision, of the buckets that this one has used so far, with its parameters.

    Later buckets come from its `sym_gen`, without casts. `cast_optional_params` has no effect: modules keep parameters
    in float32.
    """
    if not isinstance(bucketing_mod, BucketingModule):
        raise AssertionError("module should be instance of bucketing module")
    if not bucketing_mod._buckets:
        raise AssertionError("Bucketing Module should not be empty")
    if not bucketing_mod.params_initialized:
        raise AssertionError("bucketing_mod params should be initialized for mixed precision conversion")
    lists_given = (target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names)
    graphs = {
        key: convert_symbol(module.symbol, target_dtype, *lists_given) for key, module in bucketing_mod._buckets.items()
    }
    return BucketingModule.load_dict(
        graphs,
        bucketing_mod._sym_gen,
        bucketing_mod._default_bucket_key,
        *bucketing_mod.get_params(),
        **bucketing_mod._options,
    )
