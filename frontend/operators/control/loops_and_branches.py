"""`_foreach`, `_while_loop` and `_cond`: operators that hold subgraphs, compiled as loops and branches.

Their nodes hold the subgraphs in the attribute `subgraphs` (`symbol.subgraph.Subgraph`). The attributes `…_locs` map
operands to subgraph inputs, which are numbered in the order of `Subgraph.inputs`.

Each operator takes one random stream, which seeds a separate generator for its subgraphs: so the random numbers after
it do not depend on how often a loop runs. `random.forked` does the same imperatively.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gluonjit.ir.annotations import STREAM, TRAINING
from gluonjit.ir.graph import Builder, Emitter, Graph, Loc, Value
from gluonjit.ir.opdef import RNG_KEY
from gluonjit.ir.primitives.control_flow import INDEX
from gluonjit.ir.types import BOOL, I64, TensorType
from gluonjit.operators.attributes import counted, integer, shape
from gluonjit.operators.documentation import documented, example
from gluonjit.operators.registry import Operator, OperatorError, operator
from gluonjit.operators.support import Shapes, merge

Attrs = Mapping[str, Any]


@dataclass(eq=False, repr=False)
class ControlFlow(Operator):
    """An operator that holds `graphs` graphs.

    * `result_types(attrs, types)`: types of the results.
    * `build(b, operands, attrs, names, loc)`: appends the loop or branch to a graph of level `traced`; `names` are the
      names of the results.
    * `check(attrs, count)`: raises OperatorError if the attributes, read from a file, do not fit the graphs and
      `count` operands.
    """

    graphs: int = 1
    result_types: Callable[[Attrs, Sequence[TensorType]], Sequence[TensorType]] = lambda attrs, types: types
    build: Callable[..., Sequence[Value]] = lambda b, operands, attrs, names, loc: operands
    check: Callable[[Attrs, int], None] = lambda attrs, count: None

    def input_names(self, attrs: Attrs) -> tuple[str, ...]:
        return tuple(f"arg{k}" for k in range(attrs["num_args"] - self.graphs))

    def infer(self, types: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph] = ()) -> tuple[TensorType, ...]:
        return tuple(self.result_types(attrs, types))

    def expand_into(self, b: Emitter, operands: Sequence[Any], attrs: Attrs) -> tuple[Any, ...]:
        raise OperatorError(f"{self.name} is not expanded: a graph of level 'traced' holds its loop or branch")


def _outputs(attrs: Attrs) -> tuple[str, ...]:
    count = attrs["num_outputs"]
    return ("output",) if count == 1 else tuple(f"output{k}" for k in range(count))


def _declare(name: str, doc: str, shapes: str, shown: str, **kwargs: Any) -> None:
    def expand(b: Emitter, *operands: Any, **attrs: Any) -> Any:
        raise OperatorError(f"{name} holds graphs: call mx.nd.contrib.{name[1:]} or mx.sym.contrib.{name[1:]}")

    expand.__doc__ = documented(doc, shapes, shown)
    attrs = {
        "num_args": counted(low=kwargs.get("graphs", 1), doc="how many graphs and inputs there are"),
        **kwargs.pop("attrs"),
        "num_outputs": counted(low=0, doc="how many results there are"),
    }
    declare = operator(
        name, kind=ControlFlow, variadic=True, attrs=attrs, outputs=_outputs, streams=lambda a, training: 1, **kwargs
    )
    declare(expand)


def _spread(locs: Sequence[int], values: Sequence[Any], count: int) -> list[Any]:
    """Places each value at its position `locs` among a graph's inputs; -1 means that the graph does not read it."""
    out: list[Any] = [None] * count
    for at, value in zip(locs, values):
        if at >= 0:
            out[at] = value
    return out


def _training(b: Builder, attrs: Attrs) -> bool:
    return bool(attrs.get(TRAINING.name, b.training))


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise OperatorError(f"{what} do not fit the graphs that the operator holds")


def _require_operands(name: str, locs: Sequence[int], graph: Any, count: int) -> None:
    """Checks that `locs` gives a valid operand for each of the graph's inputs."""
    known = all(at is not None and 0 <= at < count for at in locs)
    _require(len(locs) == len(graph.inputs) and known, f"{name} = {tuple(locs)}")


def _require_outputs(attrs: Attrs, graph: Any, states: int = 0) -> None:
    """Checks that the number of the graph's outputs, rows and then `states`, agrees with the attributes."""
    rows = attrs.get("num_out_data", attrs["num_outputs"])
    found = f"num_outputs = {attrs['num_outputs']}, num_out_data = {rows} and {states} states"
    _require(len(graph.heads) == attrs["num_outputs"] and 0 <= rows == attrs["num_outputs"] - states, found)


# Random numbers


def _seed(b: Builder, attrs: Attrs) -> Value:
    """The key of the generator from which the subgraphs draw."""
    b.stream = attrs[STREAM.name]
    return b.concat(b.random_bits((1,), I64), b.constant([0], I64), axis=0)


def _advance(b: Builder, seed: Value, index: Value, per_iteration: int, before: int) -> None:
    """Makes `b` draw, in iteration `index`, from stream index * per_iteration + before onwards."""
    step = index * per_iteration + before
    moved = b.concat(b.constant([0], I64), b.reshape(step, shape=(1,)), axis=0)
    (b.key,) = b.emit("add", (seed, moved), result_names=[RNG_KEY])


def _decision(b: Builder, x: Value) -> Value:
    """Converts a single number to a condition: whether it is not 0."""
    if x.size != 1:
        raise OperatorError(f"the condition must be a single number, got {x.type}")
    return b.cast(b.reshape(x, shape=()), dtype=BOOL)


# foreach: operands are data, states, captured


def _foreach_locs(attrs: Attrs) -> list[int]:
    return [*attrs["in_data_locs"], *attrs["in_state_locs"], *attrs["remain_locs"]]


def _rows(types: Sequence[TensorType]) -> int:
    """The number of rows of the scanned operands, which must all have the same."""
    counts = {t.shape[0] if t.shape else None for t in types}
    if len(counts) != 1 or None in counts:
        raise OperatorError(f"foreach needs data with the same number of rows; got {list(types)}")
    (count,) = counts
    if not count:
        raise OperatorError("foreach needs data of at least one row")
    return count


def _split(attrs: Attrs, operands: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    data, states = len(attrs["in_data_locs"]), len(attrs["in_state_locs"])
    return list(operands[:data]), list(operands[data : data + states]), list(operands[data + states :])


def _same_states(before: Sequence[TensorType], after: Sequence[TensorType]) -> None:
    if list(before) != list(after):
        raise OperatorError(f"the body must keep the types of its states, {list(before)}; it gives {list(after)}")


def _foreach_types(attrs: Attrs, types: Sequence[TensorType]) -> list[TensorType]:
    (graph,) = attrs["subgraphs"]
    data, states, captured = _split(attrs, types)
    trip = _rows(data)
    items = [t.with_shape(t.shape[1:]) for t in data]
    found = graph.result_types(_spread(_foreach_locs(attrs), [*items, *states, *captured], len(graph.inputs)))
    rows, after = found[: attrs["num_out_data"]], found[attrs["num_out_data"] :]
    _same_states(states, after)
    return [*(t.with_shape((trip, *t.shape)) for t in rows), *after]


def _foreach_shapes(attrs: Attrs, shapes: Shapes) -> Shapes:
    (graph,) = attrs["subgraphs"]
    data, states, captured = _split(attrs, shapes)
    items = [None if s is None else s[1:] for s in data]
    found = graph.complete(_spread(_foreach_locs(attrs), [*items, *states, *captured], len(graph.inputs)))
    picked = [found[at] if at >= 0 else None for at in _foreach_locs(attrs)]
    wide = [None if s is None else ((old or (0,))[0], *s) for s, old in zip(picked, data)]
    return [merge(old, new) for old, new in zip(shapes, [*wide, *picked[len(data) :]])]


def _build_foreach(
    b: Builder, operands: Sequence[Value], attrs: Attrs, names: Sequence[str], loc: Loc | None
) -> list[Value]:
    (graph,) = attrs["subgraphs"]
    data, states, captured = _split(attrs, operands)
    training = _training(b, attrs)
    draws = graph.draws(training)
    given = [*states, *data, *captured, *([_seed(b, attrs)] if draws else [])]
    sub = Builder("body", "traced", training)
    index = sub.input("i", INDEX)
    inner = [
        sub.input(v.name, v.type.with_shape(v.shape[1:]) if len(states) <= k < len(states) + len(data) else v.type)
        for k, v in enumerate(given)
    ]
    if draws:
        _advance(sub, inner[-1], index, draws, 0)
    own_states, rest = inner[: len(states)], inner[len(states) :]
    values = [*rest[: len(data)], *own_states, *rest[len(data) : len(data) + len(captured)]]
    results = graph.emit(sub, _spread(_foreach_locs(attrs), values, len(graph.inputs)))
    count = attrs["num_out_data"]
    body = sub.build([*results[count:], *results[:count]], {"training": training})
    loop = {"carried": len(states), "scanned": len(data), "trip": _rows([v.type for v in data])}
    out = b.emit("loop", given, loop, [body], loc, [*names[count:], *names[:count]])
    return [*out[len(states) :], *out[: len(states)]]


def _check_foreach(attrs: Attrs, count: int) -> None:
    (graph,) = attrs["subgraphs"]
    locs = _foreach_locs(attrs)
    known = None not in locs and sorted(locs) == list(range(len(graph.inputs)))
    _require(count == len(locs) and known, f"positions {locs}")
    _require_outputs(attrs, graph, len(attrs["in_state_locs"]))


_declare(
    "_foreach",
    "Applies a graph to each row of the data, passing states from one iteration to the next",
    "data (n, …), states and other arrays that the graph reads (any) -> (n, *output), then the states",
    ">>> step = lambda row, states: (row + states[0], [row + states[0]])\n"
    ">>> sums, last = mx.nd.contrib.foreach(step, mx.nd.array([1, 2, 3]), [mx.nd.zeros(1)])\n"
    + example("sums.reshape(-1)", "[1., 3., 6.]"),
    attrs={
        "num_out_data": integer(doc="how many of the graph's outputs are stacked; the others are states"),
        "in_state_locs": shape((), doc="inputs of the graph that are states"),
        "in_data_locs": shape((), doc="inputs of the graph that are rows of the data"),
        "remain_locs": shape((), doc="inputs of the graph that stay the same"),
    },
    result_types=_foreach_types,
    build=_build_foreach,
    check=_check_foreach,
    complete=_foreach_shapes,
)


# while_loop: cond_input_locs and func_input_locs give the operand of each input of the condition and the body;
# func_var_locs gives the body's inputs that are loop variables


def _variables(attrs: Attrs) -> list[int]:
    """The operands that are loop variables, in the order of the body's results."""
    return [attrs["func_input_locs"][at] for at in attrs["func_var_locs"]]


def _while_types(attrs: Attrs, types: Sequence[TensorType]) -> list[TensorType]:
    condition, body = attrs["subgraphs"]
    (decision,) = condition.result_types([types[at] for at in attrs["cond_input_locs"]])
    if decision.size != 1:
        raise OperatorError(f"the condition must be a single number, got {decision}")
    found = body.result_types([types[at] for at in attrs["func_input_locs"]])
    rows, after = found[: attrs["num_out_data"]], found[attrs["num_out_data"] :]
    _same_states([types[at] for at in _variables(attrs)], after)
    trip = attrs["max_iterations"]
    return [*(t.with_shape((trip, *t.shape)) for t in rows), *after]


def _graph_shapes(*locs: str) -> Callable[[Attrs, Shapes], Shapes]:
    """A `complete` rule that infers the operands' shapes from all subgraphs; `locs` names the `…_locs` of each."""

    def complete(attrs: Attrs, shapes: Shapes) -> Shapes:
        shapes = list(shapes)
        for graph, name in zip(attrs["subgraphs"], locs):
            for at, found in zip(attrs[name], graph.complete([shapes[at] for at in attrs[name]])):
                shapes[at] = merge(shapes[at], found)
        return shapes

    return complete


def _build_while(
    b: Builder, operands: Sequence[Value], attrs: Attrs, names: Sequence[str], loc: Loc | None
) -> list[Value]:
    condition, body = attrs["subgraphs"]
    training = _training(b, attrs)
    variables = _variables(attrs)
    others = [k for k in range(len(operands)) if k not in variables]
    place = {at: k for k, at in enumerate([*variables, *others])}
    before, after = condition.draws(training), body.draws(training)
    given = [operands[at] for at in (*variables, *others)]
    if before + after:
        given.append(_seed(b, attrs))

    def region(name: str, graph: Any, locs: Sequence[int], drawn: int) -> tuple[Builder, list[Value]]:
        sub = Builder(name, "traced", training)
        index = sub.input("i", INDEX)
        inner = [sub.input(v.name, v.type) for v in given]
        if graph.draws(training):
            _advance(sub, inner[-1], index, before + after, drawn)
        return sub, graph.emit(sub, [inner[place[at]] for at in locs])

    sub, results = region("body", body, attrs["func_input_locs"], before)
    count = attrs["num_out_data"]
    regions = [sub.build([*results[count:], *results[:count]], {"training": training})]
    sub, (decision,) = region("condition", condition, attrs["cond_input_locs"], 0)
    regions.append(sub.build([_decision(sub, decision)], {"training": training}))
    loop = {"carried": len(variables), "trip": attrs["max_iterations"]}
    out = b.emit("loop", given, loop, regions, loc, [*names[count:], *names[:count]])
    return [*out[len(variables) :], *out[: len(variables)]]


def _check_while(attrs: Attrs, count: int) -> None:
    condition, body = attrs["subgraphs"]
    _require_operands("cond_input_locs", attrs["cond_input_locs"], condition, count)
    _require_operands("func_input_locs", attrs["func_input_locs"], body, count)
    places = attrs["func_var_locs"]
    known = all(at is not None and 0 <= at < len(body.inputs) for at in places)
    _require(known and len(set(places)) == len(places), f"func_var_locs = {places}")
    _require(len(condition.heads) == 1, "the condition's outputs")
    _require_outputs(attrs, body, len(places))


_declare(
    "_while_loop",
    "Applies a graph repeatedly while the condition, another graph, is true; rows of iterations that do not run are 0",
    "variables and other arrays that the graphs read (any) -> (max_iterations, *output), then the variables",
    ">>> below, double = lambda x: x < 10, lambda x: (x, [2 * x])\n"
    ">>> rows, last = mx.nd.contrib.while_loop(below, double, [mx.nd.array([3])], max_iterations=3)\n"
    ">>> rows.asnumpy().ravel().tolist(), last[0].asnumpy().tolist()\n([3.0, 6.0, 0.0], [12.0])",
    graphs=2,
    attrs={
        "num_out_data": integer(doc="how many of the body's outputs are stacked; the others are the loop's variables"),
        "max_iterations": integer(low=0, doc="the most iterations of the loop; rows of the result"),
        "cond_input_locs": shape((), doc="inputs of the condition, by number"),
        "func_input_locs": shape((), doc="inputs of the body, by number"),
        "func_var_locs": shape((), doc="those inputs of the body that are variables"),
    },
    result_types=_while_types,
    build=_build_while,
    check=_check_while,
    complete=_graph_shapes("cond_input_locs", "func_input_locs"),
)


# cond


def _cond_types(attrs: Attrs, types: Sequence[TensorType]) -> list[TensorType]:
    condition, then, otherwise = attrs["subgraphs"]
    (decision,) = condition.result_types([types[at] for at in attrs["cond_input_locs"]])
    if decision.size != 1:
        raise OperatorError(f"the condition must be a single number, got {decision}")
    results = [
        graph.result_types([types[at] for at in attrs[name]])
        for graph, name in ((then, "then_input_locs"), (otherwise, "else_input_locs"))
    ]
    if results[0] != results[1]:
        raise OperatorError(f"both branches must give the same types; they give {results[0]} and {results[1]}")
    return results[0]


def _build_cond(
    b: Builder, operands: Sequence[Value], attrs: Attrs, names: Sequence[str], loc: Loc | None
) -> list[Value]:
    condition, then, otherwise = attrs["subgraphs"]
    training = _training(b, attrs)
    (decision,) = condition.emit(b, [operands[at] for at in attrs["cond_input_locs"]])
    used = sorted({*attrs["then_input_locs"], *attrs["else_input_locs"]})
    given = [operands[at] for at in used]
    draws = then.draws(training) or otherwise.draws(training)
    if draws:
        given.append(_seed(b, attrs))
    regions = []
    for name, graph, locs in (("then", then, "then_input_locs"), ("otherwise", otherwise, "else_input_locs")):
        sub = Builder(name, "traced", training)
        inner = [sub.input(v.name, v.type) for v in given[: len(used)]]
        if draws:
            sub.key = sub.input(RNG_KEY, given[-1].type)
        results = graph.emit(sub, [inner[used.index(at)] for at in attrs[locs]])
        regions.append(sub.build(results, {"training": training}))
    return list(b.emit("branch", [_decision(b, decision), *given], {}, regions, loc, names))


def _check_cond(attrs: Attrs, count: int) -> None:
    for graph, name in zip(attrs["subgraphs"], ("cond_input_locs", "then_input_locs", "else_input_locs")):
        _require_operands(name, attrs[name], graph, count)
    condition, *branches = attrs["subgraphs"]
    _require(len(condition.heads) == 1, "the condition's outputs")
    for graph in branches:
        _require_outputs(attrs, graph)


_declare(
    "_cond",
    "The results of one of two graphs, selected by a third one, the condition",
    "arrays that the graphs read (any) -> those of the chosen graph, which both have",
    ">>> x = mx.nd.array([3])\n" + example("mx.nd.contrib.cond(x > 2, lambda: x + 1, lambda: x - 1)", "[4.]"),
    graphs=3,
    attrs={
        "cond_input_locs": shape((), doc="inputs of the condition, by number"),
        "then_input_locs": shape((), doc="inputs of the first graph, by number"),
        "else_input_locs": shape((), doc="inputs of the second graph, by number"),
    },
    result_types=_cond_types,
    build=_build_cond,
    check=_check_cond,
    complete=_graph_shapes("cond_input_locs", "then_input_locs", "else_input_locs"),
)
