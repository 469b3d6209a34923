"""From nodes to the compiler's typed graph: each node becomes one op `mx.<operator>`, not expanded yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.ir.annotations import DETACHED as DETACHED_OP
from gluonjit.ir.annotations import STREAM, TRAINING
from gluonjit.ir.dims import Undecided
from gluonjit.ir.graph import Builder, Graph, Value
from gluonjit.ir.opdef import RNG_KEY
from gluonjit.ir.types import I64, IRError, TensorType
from gluonjit.language.source import quote
from gluonjit.operators.control.loops_and_branches import ControlFlow
from gluonjit.operators.registry import OperatorError, UndecidedOperator
from gluonjit.symbol.graph import DETACHED, Entry, Node
from gluonjit.symbol.shapes import closed, is_complete, is_open, solve_shapes


def stream_numbers(nodes: Iterable[Node], training: bool, modes: Mapping[Node, bool]) -> tuple[dict[Node, int], int]:
    """The first random stream of every random operator in program order, and how many streams there are in all."""
    first: dict[Node, int] = {}
    count = 0
    for node in nodes:
        if node.op is not None and node.op.streams is not None:
            first[node] = count
            count += node.op.streams(node.parsed, modes.get(node, training))
    return first, count


def lower(
    name: str,
    inputs: Sequence[tuple[Entry, TensorType]],
    nodes: Sequence[Node],
    outputs: Sequence[Entry],
    *,
    training: bool,
    updates: Sequence[tuple[Entry, Entry]] = (),
    constants: Mapping[Node, np.ndarray] | None = None,
    modes: Mapping[Node, bool] | None = None,
    random_nodes: Sequence[Node] | None = None,
    known: Mapping[Entry, TensorType] = MappingProxyType({}),
) -> Graph:
    """The graph of level `traced` for these input types. Raises MXNetError when operands do not fit.

    `nodes` are those to emit, inputs before users. `modes` says which operators run in another mode than `training`.
    `random_nodes` are all nodes that number the random streams, if these are more than are emitted. `known`: types of
    operators' outputs that were inferred for these input types before.
    """
    constants, modes = constants or {}, modes or {}
    streams, count = stream_numbers(nodes if random_nodes is None else random_nodes, training, modes)
    b = Builder(name, "traced", training)
    env: dict[Entry, Value] = {entry: b.input(entry[0].name, type) for entry, type in inputs}
    if count:
        b.key = b.input(RNG_KEY, TensorType(I64, (2,)))
    env.update({(node, 0): b.constant(constants[node]) for node in nodes if node in constants})
    emit_nodes(b, env, nodes, [*outputs, *(e for pair in updates for e in pair)], streams, modes, known)
    for state, new in updates:
        b.update(env[state], env[new])
    return b.build([env[e] for e in outputs], {"training": training})


def emit_nodes(
    b: Builder,
    env: dict[Entry, Value],
    nodes: Sequence[Node],
    heads: Sequence[Entry],
    streams: Mapping[Node, int],
    modes: Mapping[Node, bool],
    known: Mapping[Entry, TensorType] = MappingProxyType({}),
) -> None:
    """Appends the operators among `nodes`; `env` has the values of their variables, and gets those of their results.
    `known`: see `lower`. MXNetError when operands do not fit."""
    sources = completed_sources(nodes, [(e, v.type) for e, v in env.items()], heads)
    for node in nodes:
        if node.op is None:
            if (node, 0) not in env:
                raise MXNetError(f"Unknown input to HybridBlock: {node.name}")
            continue
        attrs: dict[str, Any] = {**node.parsed, **sources.get(node, {})}
        if node in streams:
            attrs |= STREAM(streams[node])
        if node in modes and modes[node] != b.training:
            attrs |= TRAINING(modes[node])
        if DETACHED in node.attrs:
            attrs |= DETACHED_OP(True)
        operands = [env[e] for e in node.inputs]
        if (node, 0) in known and node not in sources and not isinstance(node.op, ControlFlow):
            values = [Value(node.name, known[node, 0])]
            while (rest := known.get((node, len(values)))) is not None:
                values.append(Value("", rest))
            results = b.emit_typed(f"mx.{node.op.name}", operands, attrs, tuple(values), loc=node.loc)
        else:
            results = emit(b, node, operands, attrs)
        env.update({(node, k): value for k, value in enumerate(results)})


def completed_sources(
    nodes: Sequence[Node], inputs: Sequence[tuple[Entry, TensorType]], heads: Sequence[Entry]
) -> dict[Node, dict[str, Any]]:
    """Completed attributes of operators without inputs whose shape their users determine: `zeros((0, 4)) + x`."""
    unknown = [n for n in nodes if is_open(n)]
    if not unknown:
        return {}
    table = solve_shapes(heads, {entry[0]: type.shape for entry, type in inputs})
    shapes = {n: table.get((n, 0)) for n in unknown}
    return {n: closed(n, s) for n, s in shapes.items() if s is not None and (is_complete(s) or _may_be_empty(n))}


def _may_be_empty(node: Node) -> bool:
    """Whether an open node has a meaning if no user determines its shape: 0 is no elements then, and -1 an error."""
    return min(node.parsed.get("shape", (-1,)), default=0) >= 0


def emit(b: Builder, node: Node, operands: Sequence[Value], attrs: Mapping[str, Any]) -> tuple[Value, ...]:
    """Appends the op of `node`; MXNetError that names the operator, its operands' types and the user's line."""
    assert node.op is not None
    try:
        if isinstance(node.op, ControlFlow):
            return tuple(node.op.build(b, operands, attrs, node.output_names, node.loc))
        return b.emit(f"mx.{node.op.name}", operands, attrs, loc=node.loc, result_names=[node.name])
    except IRError as e:
        cause = e.__cause__ if isinstance(e.__cause__, IRError) else e
        raise operator_error(node, [v.type for v in operands], cause) from None


def operator_error(node: Node, types: Sequence[TensorType], cause: IRError) -> MXNetError:
    """`cause`, with the node's name, operator and operand types, and the line in the user's program."""
    assert node.op is not None
    signature = ", ".join(map(str, types))
    kind = UndecidedOperator if isinstance(cause, Undecided) else OperatorError
    return kind(f"Error in operator {node.name}: {node.op.name}({signature}): {cause}{quote(node.loc)}")
