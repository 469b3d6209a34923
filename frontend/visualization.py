"""`mx.viz`: a symbol as a table (`print_summary`) or as a drawing (`plot_network`, by the package graphviz)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gluonjit.symbol import Symbol
from gluonjit.symbol.graph import Entry, Node, post_order

__all__ = ["plot_network", "print_summary"]

Shapes = dict[Entry, tuple[int, ...]]
"""The shape of each result, which is identified by its node and number."""


def _check(symbol: Any) -> None:
    if not isinstance(symbol, Symbol):
        raise TypeError("symbol must be Symbol")


def _of_results(symbol: Symbol, infer: Callable[..., Any], known: Mapping[str, Any], what: str) -> dict[Entry, Any]:
    """A property of every result in the graph, from that of the inputs."""
    internals = symbol.get_internals()
    _, outputs, _ = infer(internals, **known)
    if outputs is None:
        raise ValueError(f"Input {what} is incomplete")
    return dict(zip(internals._heads, outputs))


def print_summary(
    symbol: Symbol,
    shape: Mapping[str, tuple[int, ...]] | None = None,
    line_length: int = 120,
    positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0),
) -> None:
    """Prints each operator with the shape of its first result (without the batch), its parameters and what it reads.

    `shape`: shapes of inputs by name; without it, shapes and counts are not known. `positions`: where the columns end,
    as parts of `line_length` or in characters. Parameters that several operators share count once; labels are none.
    """
    _check(symbol)
    shapes: Shapes = _of_results(symbol, Symbol.infer_shape, shape, "shape") if shape is not None else {}
    given = set(shape or ())
    ends = [int(line_length * p) for p in positions] if positions[-1] <= 1 else [int(p) for p in positions]
    counted: set[Node] = set()
    total = 0

    def row(*fields: Any) -> None:
        line = ""
        for field, end in zip(fields, ends):
            line = (line + str(field))[:end].ljust(end)
        print(line)

    print("_" * line_length)
    row("Layer (type)", "Output Shape", "Param #", "Previous Layer")
    print("=" * line_length)
    nodes = post_order(symbol._heads)
    heads = {node for node, _ in symbol._heads}
    shown = [n for k, n in enumerate(nodes) if n.op is not None or k == 0 or n in heads]
    for k, node in enumerate(shown):
        before, parameters = [], 0
        names = node.op.input_names(node.parsed) if node.op is not None else ()
        for place, (name, (source, number)) in enumerate(zip(names, node.inputs)):
            if source.op is not None or source in heads or source.name in given:
                before.append(source.name)
            elif source not in counted and place not in node.aux_inputs and name != "label":
                counted.add(source)
                parameters += math.prod(shapes.get((source, number), (0,)))
        total += parameters
        size = "x".join(map(str, shapes.get((node, 0), ())[1:]))
        kind = node.op.name if node.op is not None else "null"
        row(f"{node.name}({kind})", size, parameters, before[0] if before else "")
        for name in before[1:]:
            row("", "", "", name)
        print(("=" if k == len(shown) - 1 else "_") * line_length)
    print(f"Total params: {total}")
    print("_" * line_length)


_COLORS = {
    "null": "#8dd3c7",
    "Convolution": "#fb8072",
    "FullyConnected": "#fb8072",
    "Activation": "#ffffb3",
    "LeakyReLU": "#ffffb3",
    "BatchNorm": "#bebada",
    "Pooling": "#80b1d3",
    "Concat": "#fdb462",
    "Flatten": "#fdb462",
    "Reshape": "#fdb462",
    "SoftmaxOutput": "#b3de69",
}
_OTHER_COLOR = "#fccde5"
_PARAMETERS = ("_weight", "_bias", "_beta", "_gamma", "_moving_var", "_moving_mean", "_running_var", "_running_mean")


def _label(node: Node) -> str:
    """The label of a node's box: the operator with its important attributes, or the name."""
    if node.op is None:
        return node.name
    a = node.parsed

    def times(value: Any) -> str:
        return "x".join(map(str, value or (1,)))

    kind = node.op.name
    if kind == "Convolution":
        return f"Convolution\n{times(a['kernel'])}/{times(a['stride'])}, {a['num_filter']}"
    if kind == "FullyConnected":
        return f"FullyConnected\n{a['num_hidden']}"
    if kind in ("Activation", "LeakyReLU"):
        return f"{kind}\n{a['act_type']}"
    if kind == "Pooling":
        return f"Pooling\n{a['pool_type']}, {times(a['kernel'])}/{times(a['stride'])}"
    return node.name


def plot_network(
    symbol: Symbol,
    title: str = "plot",
    save_format: str = "pdf",
    shape: Mapping[str, tuple[int, ...]] | None = None,
    dtype: Mapping[str, Any] | None = None,
    node_attrs: Mapping[str, str] | None = None,
    hide_weights: bool = True,
) -> Any:
    """The graph as `graphviz.Digraph`: `.render()` writes it in `save_format`, `.view()` shows it.

    `shape`, `dtype`: of inputs by name, to write shapes and element types on edges. `hide_weights` leaves parameters
    out. Raises ImportError when the package graphviz is not there.
    """
    try:
        from graphviz import Digraph
    except ImportError as e:
        raise ImportError("plot_network needs the package graphviz: pip install graphviz") from e
    _check(symbol)
    shapes: Shapes = _of_results(symbol, Symbol.infer_shape, shape, "shape") if shape is not None else {}
    dtypes = _of_results(symbol, Symbol.infer_type, dtype, "type") if dtype is not None else {}
    nodes = post_order(symbol._heads)
    names = [node.name for node in nodes]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        warnings.warn(
            "There are multiple variables with the same name in your graph, this may result in cyclic graph. "
            f"Repeated names: {','.join(repeated)}",
            RuntimeWarning,
            stacklevel=2,
        )
    style = {"shape": "box", "fixedsize": "true", "width": "1.3", "height": "0.8034", "style": "filled"}
    style |= node_attrs or {}
    dot = Digraph(name=title, format=save_format)
    hidden = {n for n in nodes if hide_weights and n.op is None and n.name.endswith(_PARAMETERS)}
    for node in nodes:
        if node in hidden:
            continue
        look = {**style, "fillcolor": _COLORS.get(node.op.name if node.op else "null", _OTHER_COLOR)}
        if node.op is None:
            look["shape"] = "oval"
        dot.node(name=node.name, label=_label(node), **look)
    for node in nodes:
        for source, number in node.inputs:
            if source in hidden:
                continue
            text = "x".join(map(str, shapes.get((source, number), ())[1:]))
            if (source, number) in dtypes:
                text += f"({dtypes[source, number].__name__})"
            dot.edge(tail_name=node.name, head_name=source.name, dir="back", arrowtail="open", label=text)
    return dot
