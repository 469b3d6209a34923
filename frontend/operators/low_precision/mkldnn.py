"""`_sg_mkldnn_…`: nodes into which MXNet's oneDNN backend fuses a layer and its epilogue. Each holds the subgraph.

Without quantization, they compute that subgraph. With it, data are 8-bit integers (see `quantization` for the values
they represent) and weights are int8, or are quantized to int8 here; sums of products are rescaled to the result's
integers, and the operators after the layer, its epilogue, are applied to the rescaled numbers. To match the results of
MXNet, these quirks of it are reproduced:

* If the summand and the result have different 8-bit types, the result is clipped to the range of the summand's type.
* The weights in group k of a grouped convolution are scaled by the scale of filter k.
* Without a calibrated range, `clip` is ignored.
* `gelu` after a convolution is applied to the scaled integer, not to the real value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gluonjit.ir.graph import Builder, Emitter, Loc, Value
from gluonjit.ir.types import F32, F64, I8, I32, U8, DType, TensorType, dtype_of
from gluonjit.operators.attributes import boolean, integer
from gluonjit.operators.control.loops_and_branches import ControlFlow
from gluonjit.operators.documentation import documented
from gluonjit.operators.low_precision.quantization import CALIBRATION, SPANS, calibrated, range_of
from gluonjit.operators.movement.creation import filled
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import Shapes, merge, scalar

Attrs = Mapping[str, Any]

ROLES = {
    "Convolution": ("data", "weight", "bias"),
    "FullyConnected": ("data", "weight", "bias"),
    "_contrib_interleaved_matmul_selfatt_qk": ("data",),
    "_contrib_interleaved_matmul_selfatt_valatt": ("data", "weight"),
    "BatchNorm": ("", "gamma", "beta", "mean", "var"),
}
"""Roles of the inputs of the layers that read variables. A variable read by any other node has the role `sum`."""


def roles(graph: Any) -> list[str]:
    """The role of each input of a fused subgraph."""
    found = {}
    for node in graph.nodes:
        for name, (source, _) in zip(ROLES.get(node.op.name, ()), node.inputs):
            if source.op is None:
                found[source] = name
    return [found.get(variable, "sum") for variable in graph.inputs]


@dataclass(eq=False, repr=False)
class FusedNode(ControlFlow):
    """An operator that holds the subgraph it replaces: one layer and its epilogue.

    Its inputs are the subgraph's inputs and, if it is quantized, the minimum and maximum of each role in
    `ranges(attrs, roles)`. `int8_roles(attrs)`: inputs that are int8 if it is quantized. `unsigned`: if the epilogue
    ends with one of these operators, the result is uint8.
    """

    layer: str = ""
    ranges: Callable[[Attrs, Sequence[str]], Sequence[str]] = lambda attrs, roles: ("data",)
    int8_roles: Callable[[Attrs], Sequence[str]] = lambda attrs: ()
    unsigned: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.result_types, self.build = self._result_types, self._build
        self.complete, self.check = self._complete, self._check

    def input_names(self, attrs: Attrs) -> tuple[str, ...]:
        if "subgraphs" not in attrs:
            raise OperatorError(f"{self.name} holds a graph: it comes from a file only")
        (graph,) = attrs["subgraphs"]
        names = roles(graph)
        ends = self.ranges(attrs, names) if attrs["quantized"] else ()
        return (*names, *(f"{name}_{end}" for name in ends for end in ("min", "max")))

    def operand_types(self, attrs: Attrs, types: Sequence[DType | None]) -> list[DType | None]:
        names = self.input_names(attrs)
        if not attrs["quantized"]:
            one = next((t for t in types if t is not None), None)
            return [t or one for t in types]
        int8_roles = self.int8_roles(attrs)
        known = {name: I8 if name in int8_roles else F32 for name in names if name not in ("data", "sum")}
        return [t or known.get(name) for name, t in zip(names, types)]

    def _result_types(self, attrs: Attrs, types: Sequence[TensorType]) -> list[TensorType]:
        b = Builder("infer", "traced")
        return [v.type for v in self.build(b, [b.input("", t) for t in types], attrs, (), None)]

    def _build(
        self, b: Builder, operands: Sequence[Value], attrs: Attrs, names: Sequence[str], loc: Loc | None
    ) -> Sequence[Value]:
        (graph,) = attrs["subgraphs"]
        if not attrs["quantized"]:
            return graph.emit(b, operands)
        return _Quantized(b, self, graph, operands, attrs).results()

    def _complete(self, attrs: Attrs, shapes: Shapes) -> Shapes:
        (graph,) = attrs["subgraphs"]
        count = len(graph.inputs)
        return [*graph.complete(list(shapes[:count])), *(merge(s, (1,)) for s in shapes[count:])]

    def _check(self, attrs: Attrs, count: int) -> None:
        """Raises OperatorError unless the graph is the layer, optionally BatchNorm, and elementwise operators."""
        (graph,) = attrs["subgraphs"]
        known = [node.op.name for node in graph.nodes if node.op.name in ROLES]
        rest = [node for node in graph.nodes if node.op.name not in ROLES]
        names = roles(graph)
        if known[:1] != [self.layer] or known[1:] not in ([], ["BatchNorm"]) or len(graph.heads) != 1:
            raise OperatorError(f"holds {', '.join(known) or 'no layer'}; expected {self.layer}")
        if len(set(names)) != len(names) or "" in names or any(n.op.name not in AFTER for n in rest):
            held = ", ".join(node.op.name for node in graph.nodes)
            raise OperatorError(f"holds {held} of {', '.join(names)}; expected one layer and what may follow it")


AFTER = ("elemwise_add", "Activation", "LeakyReLU", "clip", "square", "sqrt", "exp", "abs")


class _Quantized:
    """A quantized layer: `parts` are its operands by role, `ends` their minimum and maximum.

    A `unit` is the number of integer steps that represent a real 1: one for the tensor, or one per channel.
    """

    def __init__(self, b: Builder, node: FusedNode, graph: Any, operands: Sequence[Value], attrs: Attrs) -> None:
        self.b, self.node, self.graph, self.attrs = b, node, graph, attrs
        names = roles(graph)
        self.parts = dict(zip(names, operands))
        ends = iter(operands[len(names) :])
        self.ends = dict(zip(node.ranges(attrs, names), zip(ends, ends)))
        self.layer = next(n for n in graph.nodes if n.op.name == node.layer)
        self.after = [n for n in graph.nodes if n.op.name not in ROLES]
        self.known = calibrated(attrs)

    def results(self) -> Sequence[Value]:
        b = self.b
        data_unit = self.unit("data")
        sums, weight_unit, reach = self.sums(data_unit)
        unit = data_unit * weight_unit
        if self.attrs.get("enable_float_output"):
            return [self.epilogue(sums / unit, scalar(b, 1.0, F32))]
        if self.known is None:
            most = self.product_step("data") * (reach / 127.0 * scalar(b, 2.0**31, F32))
            return b.cast(b.rint(self.epilogue(sums, unit)), dtype=I32), -most, most
        last = self.after[-1] if self.after else None
        unsigned = last is not None and _kind(last) in self.node.unsigned
        dtype = U8 if unsigned else I8
        wanted = scalar(b, SPANS[dtype] / max(map(abs, self.known)), F32)
        scaled = self.epilogue(sums * (wanted / data_unit / weight_unit), wanted)
        return self.stored(b.rint(scaled), dtype), *(filled(b, v, (1,), F32) for v in self.known)

    def unit(self, role: str) -> Value:
        """The number of integer steps of an operand that represent a real 1."""
        own = dtype_of(self.parts[role])
        return self.b.div(scalar(self.b, SPANS.get(own, SPANS[I8]), F32), range_of(self.b, *self.ends[role]))

    def product_step(self, role: str) -> Value:
        """The real value of one integer step as MXNet counts it in products: range / 127, or range / 255 for uint8."""
        span = 255.0 if dtype_of(self.parts[role]) is U8 else 127.0
        return self.b.div(range_of(self.b, *self.ends[role]), scalar(self.b, span, F32))

    # The layer

    def sums(self, data_unit: Value) -> tuple[Value, Value, Value]:
        """The sums of products plus bias; the unit of the weights; the largest absolute value of the weights."""
        b = self.b
        x = b.cast(self.parts["data"], dtype=F32)
        if "weight" not in self.parts:  # the products of queries and keys
            return self.emit(self.layer, x), data_unit, range_of(b, *self.ends["data"])
        weight, bias = self.parts["weight"], self.parts.get("bias")
        if "weight" in self.ends:  # already quantized
            unit, reach = self.unit("weight"), range_of(b, *self.ends["weight"])
            given = [] if bias is None else [self.rounded_bias(bias, data_unit * unit / self.unit("bias"))]
            return self.emit(self.layer, x, b.cast(weight, dtype=F32), *given), unit, reach
        if "gamma" in self.parts:
            weight, bias = self.normalized(weight, bias)
        filters, rest = weight.shape[0], tuple(range(1, len(weight.shape)))
        reach = b.reduce(abs(weight), op="max", axes=rest)
        if not self.channelwise:
            reach = b.reshape(b.reduce(reach, op="max", axes=(0,)), shape=(1,))
        unit = used = scalar(b, SPANS[I8], F32) / reach
        groups = self.layer.parsed.get("num_group", 1)
        if self.channelwise and groups > 1:
            first = b.reshape(b.slice(unit, start=(0,), size=(groups,)), shape=(groups, 1))
            used = b.reshape(b.broadcast(first, shape=(groups, filters // groups)), shape=(filters,))
        used = b.reshape(used, shape=(*used.shape, *[1] * len(rest)))
        limits = scalar(b, -128.0, F32), scalar(b, 127.0, F32)
        rounded = b.minimum(b.maximum(b.rint(weight * used), limits[0]), limits[1])
        given = [] if bias is None else [self.rounded_bias(bias, data_unit * unit)]
        return self.emit(self.layer, x, rounded, *given), self.aligned(unit), reach

    @property
    def channelwise(self) -> bool:
        """Whether float weights are quantized with one scale per filter."""
        return self.known is not None if self.node.layer == "Convolution" else self.attrs["channel_wise_quantize"]

    def aligned(self, per_channel: Value) -> Value:
        """Reshapes one number per channel so that it broadcasts with the layer's result."""
        if self.node.layer != "Convolution" or per_channel.size == 1:
            return per_channel
        return self.b.reshape(per_channel, shape=(1, per_channel.size, *[1] * len(self.layer.parsed["kernel"])))

    def rounded_bias(self, bias: Value, unit: Value) -> Value:
        return self.b.rint(self.b.mul(self.b.cast(bias, dtype=F32), unit))

    def normalized(self, weight: Value, bias: Value | None) -> tuple[Value, Value]:
        """Weight and bias with BatchNorm folded into them."""
        b, parts = self.b, self.parts
        attrs = next(n.parsed for n in self.graph.nodes if n.op.name == "BatchNorm")
        # In float64, as in MXNet: an ulp decides whether the weight at the end of the range is -127 or -128.
        deviation = b.sqrt(b.cast(parts["var"], dtype=F64) + scalar(b, attrs["eps"], F64))
        gamma = scalar(b, 1.0, F64) if attrs["fix_gamma"] else b.cast(parts["gamma"], dtype=F64)
        factor = b.cast(gamma / deviation, dtype=F32)
        offset = parts["beta"] - factor * parts["mean"]
        if bias is not None:
            offset = offset + factor * bias
        shaped = b.reshape(factor, shape=(*factor.shape, *[1] * (len(weight.shape) - 1)))
        return weight * shaped, offset

    def emit(self, node: Any, *operands: Value) -> Value:
        attrs = dict(node.parsed)
        if "no_bias" in attrs:
            attrs["no_bias"] = len(operands) < 3
        return self.b.emit(f"mx.{node.op.name}", operands, attrs)[0]

    # The epilogue

    def epilogue(self, x: Value, unit: Value) -> Value:
        """Applies the operators after the layer to x, whose integers are `unit` times the real values."""
        b = self.b
        for node in self.after:
            kind = _kind(node)
            if kind == "elemwise_add":
                x = x + b.cast(self.parts["sum"], dtype=F32) * (unit / self.unit("sum"))
            elif kind == "relu":
                x = b.maximum(x, scalar(b, 0.0, F32))
            elif kind == "leaky":
                zero = scalar(b, 0.0, F32)
                x = b.select(x > zero, x, x * scalar(b, node.parsed["slope"], F32))
            elif kind == "clip" and self.known is None and not self.attrs.get("enable_float_output"):
                continue
            elif kind == "gelu" and self.node.layer == "Convolution":
                x = self.emit(node, x)
            else:
                x = self.emit(node, x / unit) * unit
        return x

    def stored(self, x: Value, dtype: DType) -> Value:
        """Converts rounded numbers to 8-bit integers.

        A summand of the other 8-bit type clips them to its type, because oneDNN computes the sum in its buffer.
        """
        b = self.b
        own = dtype_of(self.parts["sum"]) if "sum" in self.parts else dtype
        if own is dtype or own not in (I8, U8):
            return b.cast(x, dtype=dtype)
        low, high = (0.0, 255.0) if own is U8 else (-128.0, 127.0)
        x = b.minimum(b.maximum(x, scalar(b, low, F32)), scalar(b, high, F32))
        if own is U8:  # the same bits as int8
            x = b.select(x > 127.0, x - 256.0, x)
        else:
            x = b.select(x < 0.0, x + 256.0, x)
        return b.cast(x, dtype=dtype)


def _kind(node: Any) -> str:
    """The kind of an epilogue operator: the type of an activation, or else the operator's name."""
    return node.parsed.get("act_type") or node.op.name


def _declare(name: str, doc: str, shapes: str, attrs: Mapping[str, Any], ends: Sequence[str], **kwargs: Any) -> None:
    def expand(b: Emitter, *operands: Any, **attrs: Any) -> Any:
        raise OperatorError(f"{name} is not expanded: a graph of level 'traced' holds what it stands for")

    def outputs(attrs: Attrs) -> tuple[str, ...]:
        floats = not attrs["quantized"] or attrs.get("enable_float_output")
        return ("output",) if floats else ("output", *ends)

    expand.__doc__ = documented(
        doc, shapes, "It comes from files that MXNet's MKL-DNN back end wrote; no function calls it."
    )
    declare = operator(
        name,
        kind=FusedNode,
        attrs={"quantized": boolean(False, doc="whether it computes with 8-bit integers"), **CALIBRATION, **attrs},
        outputs=outputs,
        aux=("mean", "var"),
        **kwargs,
    )
    declare(expand)


_declare(
    "_sg_mkldnn_conv",
    "A convolution, fused with BatchNorm, an activation, a sum and another activation, each optional",
    "those of `Convolution`, those of the other layers; quantized, the range of each (1,) -> those of `Convolution`",
    {
        "with_bn": boolean(False, doc="whether a BatchNorm follows"),
        "with_act": boolean(False, doc="whether an activation follows"),
        "with_sum": boolean(False, doc="whether another tensor is added"),
        "with_postsum_act": boolean(False, doc="whether an activation follows the sum"),
        "dedup_sum": boolean(False, doc="whether the tensor that is added is an earlier input"),
    },
    ("output_min", "output_max"),
    layer="Convolution",
    ranges=lambda attrs, roles: ("data", "sum") if "sum" in roles else ("data",),
    unsigned=("relu", "clip", "sigmoid", "softrelu"),
)
_declare(
    "_sg_mkldnn_fully_connected",
    "A dense layer, fused with the activation after it",
    "those of `FullyConnected`; quantized, the range of each (1,) -> those of `FullyConnected`",
    {
        "enable_float_output": boolean(False, doc="whether the result is float32, not 8-bit"),
        "with_eltwise": boolean(False, doc="whether an activation follows"),
        "channel_wise_quantize": boolean(False, doc="whether each row of the weight has its own range"),
    },
    ("min_output", "max_output"),
    layer="FullyConnected",
    ranges=lambda attrs, roles: (
        ("data",)
        if attrs["channel_wise_quantize"]
        else tuple(role for role in ("data", "weight", "bias") if role in roles)
    ),
    int8_roles=lambda attrs: () if attrs["channel_wise_quantize"] else ("weight", "bias"),
    unsigned=("relu", "leaky", "sigmoid", "softrelu", "abs", "square", "sqrt", "exp"),
)
for _part, _ends in (("qk", ("data",)), ("valatt", ("data", "weight"))):
    _declare(
        f"_sg_mkldnn_selfatt_{_part}",
        f"`interleaved_matmul_selfatt_{_part}`, of floats or quantized",
        "those of the layer; quantized, the range of each (1,) -> those of the layer",
        {
            "heads": integer(doc="number of heads"),
            "enable_float_output": boolean(False, doc="whether the result is float32, not 8-bit"),
        },
        ("min_output", "max_output"),
        layer=f"_contrib_interleaved_matmul_selfatt_{_part}",
        ranges=lambda attrs, roles, _ends=_ends: _ends,
    )
