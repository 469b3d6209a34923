"""`hoist`: what depends on parameters and constants alone moves into `prepare` ops, run when a parameter changes.

Packed and transposed weights, folded scales: each independent component becomes one `prepare(params)(region)`, so
that writing one parameter recomputes only what hangs on it. Components of mere views stay where they are.
"""

from __future__ import annotations

from dataclasses import replace

from gluonjit.ir.buffers import is_view
from gluonjit.ir.graph import Builder, Graph, Op, Value, reemit, rewrite
from gluonjit.passes.dce import is_pure
from gluonjit.passes.lift import lift
from gluonjit.passes.manager import register_pass


@register_pass("hoist")
def hoist(graph: Graph) -> Graph:
    """Moves what depends on parameters and constants alone into `prepare` ops.

    Needs the graph attribute `params`: the indices of the inputs that change rarely.
    """
    graph = _lift_all(graph)
    params = {graph.inputs[k] for k in graph.attrs.get("params", ())}
    hoisted = [op for op in fixed_ops(graph) if op.name != "prepare"]
    components = _components(hoisted)
    moved = {op for component in components for op in component if op.name != "constant"}
    if not moved:
        return graph

    needed = {v for op in graph.ops if op not in moved for v in op.operands} | set(graph.results)
    # A constant that only moved ops read would be left without a use.
    moved.update(op for op in hoisted if op.name == "constant" and op.result not in needed)
    b = Builder(graph.name, graph.level)
    env = {v: b.input(v.name, v.type) for v in graph.inputs}
    for component in components:
        _emit_component(b, component, params, needed, env)
    for op in graph.ops:
        if op not in moved:
            b.loc = op.loc
            env.update(zip(op.results, reemit(b, op, [env[v] for v in op.operands]), strict=True))
    for state, value in graph.updates:
        b.update(env[state], env[value])
    return replace(b.build([env[v] for v in graph.outputs]), attrs=graph.attrs)


def fixed_ops(graph: Graph) -> dict[Op, None]:
    """The ops that depend on parameters and constants alone, in order."""
    fixed = {graph.inputs[k] for k in graph.attrs.get("params", ())}
    found: dict[Op, None] = {}
    for op in graph.ops:
        if is_pure(op) and all(v in fixed for v in op.operands):
            fixed.update(op.results)
            found[op] = None
    return found


def _lift_all(graph: Graph) -> Graph:
    """Takes out of loops and branches what this pass, having run on their bodies, found there."""
    if not any(op.definition.level == "control" for op in graph.ops):
        return graph
    return rewrite(graph, lambda b, op, operands: lift(b, op, operands) if op.definition.level == "control" else None)


def _components(ops: list[Op]) -> list[list[Op]]:
    """Ops connected through each other's results, without those that hold no work."""
    parent: dict[Op, Op] = {op: op for op in ops}

    def find(op: Op) -> Op:
        while parent[op] is not op:
            parent[op] = parent[parent[op]]
            op = parent[op]
        return op

    producer = {r: op for op in ops for r in op.results}
    for op in ops:
        for v in op.operands:
            if v in producer and producer[v].name != "constant":
                parent[find(op)] = find(producer[v])
    groups: dict[Op, list[Op]] = {}
    for op in ops:
        if op.name != "constant":
            groups.setdefault(find(op), []).append(op)
    work = [g for g in groups.values() if any(not is_view(op) for op in g)]
    # A constant is copied into each component that reads it.
    constants = {op.result: op for op in ops if op.name == "constant"}
    return [
        [*dict.fromkeys(constants[v] for op in group for v in op.operands if v in constants), *group] for group in work
    ]


def _emit_component(
    b: Builder, component: list[Op], params: set[Value], needed: set[Value], env: dict[Value, Value]
) -> None:
    operands = list(dict.fromkeys(v for op in component for v in op.operands if v in params))
    body = Builder("prepare", b.level)
    inner = {v: body.input(v.name, v.type) for v in operands}
    for op in component:
        body.loc = op.loc
        inner.update(zip(op.results, reemit(body, op, [inner[v] for v in op.operands]), strict=True))
    results = [r for op in component if op.name != "constant" for r in op.results if r in needed]
    region = body.build([inner[r] for r in results])
    b.loc = component[-1].loc
    values = b.emit("prepare", [env[v] for v in operands], {}, [region], result_names=[r.name for r in results])
    env.update(zip(results, values, strict=True))
