"""`foreach`, `while_loop` and `cond` on symbols, traced and untyped.

The user's functions run once, on variables; what they compute becomes a graph inside a node
(`operators.control.loops_and_branches`), compiled as a loop or branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gluonjit.language import forms
from gluonjit.language.array import Array
from gluonjit.language.kinds import as_np
from gluonjit.language.loop_contract import flat, iterations, listed, one_step
from gluonjit.language.running import running
from gluonjit.operators import registry
from gluonjit.symbol.graph import Entry, Node
from gluonjit.symbol.subgraph import MARK, Origin, Subgraph, control_node, cut, marked
from gluonjit.symbol.symbol import Symbol


def _flat(value: Any, what: str) -> tuple[list[Any], Any]:
    return flat(value, what, Array)


@dataclass
class Body:
    """The result of running a function on variables: its graph, the origins of the graph's inputs, its results' forms.

    `kinds` says which results are of `mx.np`; `sensitive`: the function read a type.
    """

    graph: Subgraph
    origins: list[Origin]
    forms: Any
    kinds: list[bool]
    sensitive: bool = False

    def places(self, count: int) -> list[int]:
        """Which of the graph's inputs each of the `count` variables is."""
        return [self.origins.index(k) for k in range(count)]

    def without_unread(self) -> Body:
        graph = self.graph.without_unread()
        return replace(self, graph=graph, origins=self.origins[: len(graph.inputs)])


def _trace_of(symbols: Sequence[Any]) -> Any:
    """The running trace, if these belong into it."""
    trace = running.trace
    return trace if trace is not None and trace.concerns(symbols) else None


def record_body(name: str, given: Sequence[Any], scanned: int, function: Callable[..., Any]) -> Body:
    """Runs `function(*variables) -> (results, forms)` on variables for `given`: for rows of the first `scanned`."""
    trace = _trace_of(given)
    with marked(name) as mark:
        names: list[str] = []
        for symbol in given:
            node, k = symbol._heads[0]
            base = f"{node.name}-{k}"
            while base in names:
                base += "_"
            names.append(base)
        variables = [Node(None, n, {MARK: mark}) for n in names]
        if trace is not None:
            outputs, kinds, forms, program, sensitive = trace.record_body(variables, given, scanned, function)
            graph, origins = cut(outputs, variables, set(program).__contains__, program, trace.modes)
            return Body(graph, origins, forms, kinds, sensitive)
        results, forms = function(*(type(x)([(v, 0)]) for v, x in zip(variables, given)))
        for x in results:
            if not isinstance(x, Symbol):
                raise AssertionError(f"{name} must give symbols, but got {x} of type {type(x)}")

        def inside(node: Node) -> bool:
            made = node.attrs.get(MARK, "")
            return made == mark or made.startswith(f"{mark}$")

        kinds = [x._numpy for x in results]
        return Body(*cut([x._entry("output") for x in results], variables, inside), forms, kinds)


def _append(op: str, bodies: Sequence[Body], given: Sequence[Any], captured: Sequence[Entry], attrs: Any) -> list[Any]:
    """The outputs of a new node that holds the bodies' graphs, on `given` symbols and captured entries."""
    operator, graphs = registry.get(op), [body.graph for body in bodies]
    trace = _trace_of(given)
    if trace is not None:
        sensitive = any(body.sensitive for body in bodies)
        results = trace.append_control(operator, graphs, given, captured, attrs, sensitive)
    else:
        node = control_node(operator, graphs, [*(x._entry("input") for x in given), *captured], attrs)
        results = [Symbol([(node, k)]) for k in range(node.visible)]
    return [as_np(x) if kind else x for x, kind in zip(results, bodies[-1].kinds, strict=True)]


def _lifted(values: Sequence[Any]) -> list[Any]:
    """Arrays as symbols of the running trace."""
    trace = _trace_of(values)
    return list(values) if trace is None else [trace.lift(x) for x in values]


def foreach(body: Callable[..., Any], data: Any, init_states: Any, name: str) -> Any:
    rows, data_form = _flat(data, "foreach input")
    data_form = listed(data_form)
    states, states_form = _flat(init_states, "foreach states")
    rows, states = _lifted(rows), _lifted(states)

    def run(*variables: Any) -> Any:
        outputs, after = body(
            forms.rebuild(data_form, variables[: len(rows)]), forms.rebuild(states_form, variables[len(rows) :])
        )
        parts, form = _flat(outputs, "foreach output")
        kept, kept_form = _flat(after, "foreach loop_vars")
        if len(kept) != len(states):
            raise AssertionError("The input and output loop_vars have different format")
        return [*parts, *kept], (form, kept_form, len(parts))

    recorded = record_body(name, [*rows, *states], len(rows), run)
    form, kept_form, count = recorded.forms
    places = recorded.places(len(rows) + len(states))
    captured = [o for o in recorded.origins if not isinstance(o, int)]
    attrs = {
        "num_outputs": count + len(states),
        "num_out_data": count,
        "in_state_locs": places[len(rows) :],
        "in_data_locs": places[: len(rows)],
        "remain_locs": [k for k, o in enumerate(recorded.origins) if not isinstance(o, int)],
    }
    results = _append("_foreach", [recorded], [*rows, *states], captured, attrs)
    return forms.rebuild(listed(form), results[:count]), forms.rebuild(kept_form, results[count:])


def _operands(bodies: Sequence[Body], count: int) -> tuple[list[Entry], list[list[int]]]:
    """What the bodies capture, once each; and which operands each body's inputs are, after `count` variables."""
    captured = list(dict.fromkeys(o for body in bodies for o in body.origins if not isinstance(o, int)))
    number = {o: count + k for k, o in enumerate(captured)}
    return captured, [[o if isinstance(o, int) else number[o] for o in body.origins] for body in bodies]


def while_loop(
    cond: Callable[..., Any], func: Callable[..., Any], loop_vars: Any, max_iterations: Any, name: str
) -> Any:
    most = iterations(loop_vars, max_iterations)
    variables, form = _flat(loop_vars, "while loop_vars")
    variables = _lifted(variables)
    count = len(variables)

    def arguments(given: Sequence[Any]) -> list[Any]:
        nested = forms.rebuild(form, given)
        return list(nested) if isinstance(nested, (list, tuple)) else [nested]

    def condition(*given: Any) -> Any:
        return _flat([cond(*arguments(given))], "Return value of cond")[0], None

    def step(*given: Any) -> Any:
        outputs, after = one_step(func(*arguments(given)), len(arguments(given)))
        parts, outputs_form = _flat(outputs, "while output")
        kept, _ = _flat(after, "while loop_vars")
        if len(kept) != count:
            raise ValueError("The number of loop_vars should be consistent during the loop")
        return [*parts, *kept], (outputs_form, len(parts))

    bodies = [
        record_body(f"{name}_cond", variables, 0, condition).without_unread(),
        record_body(f"{name}_func", variables, 0, step),
    ]
    outputs_form, outputs = bodies[1].forms
    captured, locs = _operands(bodies, count)
    attrs = {
        "num_outputs": outputs + count,
        "num_out_data": outputs,
        "max_iterations": most,
        "cond_input_locs": locs[0],
        "func_input_locs": locs[1],
        "func_var_locs": bodies[1].places(count),
    }
    results = _append("_while_loop", bodies, variables, captured, attrs)
    return forms.rebuild(listed(outputs_form), results[:outputs]), forms.rebuild(listed(form), results[outputs:])


def cond(pred: Any, then_func: Callable[[], Any], else_func: Callable[[], Any], name: str) -> Any:
    def recorded(part: str, function: Callable[[], Any]) -> Body:
        return record_body(f"{name}_{part}", [], 0, lambda: _flat(function(), "cond outputs"))

    bodies = [recorded("pred", lambda: [pred]), recorded("then", then_func), recorded("else", else_func)]
    if len(bodies[1].graph.heads) != len(bodies[2].graph.heads):
        raise ValueError("Number of outputs differs between then-branch and else-branch")
    captured, locs = _operands(bodies, 0)
    attrs = {
        "num_outputs": len(bodies[1].graph.heads),
        "cond_input_locs": locs[0],
        "then_input_locs": locs[1],
        "else_input_locs": locs[2],
    }
    results = _append("_cond", bodies, [], captured, attrs)
    return forms.rebuild(bodies[1].forms, results)
