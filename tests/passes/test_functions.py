"""Random graphs of calls: functions in functions, loops and branches mean what their ops mean in place of each call."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gluonjit.ir.graph import Builder, Graph, Op, Value, copy_ops, reemit
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.structure import graph_key
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.ir.types import BOOL, F64, I64, TensorType
from gluonjit.passes import run_passes
from gluonjit.passes.differentiate_control import without_rules
from gluonjit.runtime.compiler import compile_graph
from support.compare import assert_close
from support.gradients import random_like
from support.smooth_programs import smooth_program


class Calling:
    """`graph` calls a random function, whose last operands are mostly those of its first call; `inputs` has values."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        program = smooth_program(rng.randrange(10**6))
        while not program.graph.outputs or len(program.graph.ops) > 40 or program.graph.updates:
            program = smooth_program(rng.randrange(10**6))
        self.function = replace(program.graph, name=rng.choice("fg"))
        self.captured = rng.randint(0, len(program.graph.inputs))
        self.inputs = [*program.inputs, *program.inputs]
        b = Builder("main")
        values = [b.input(v.name, v.type) for v in (*self.function.inputs, *self.function.inputs)]
        first = values[: len(self.function.inputs)]
        results = self.calls(b, values, self.function, rng.randint(1, 3))
        if rng.random() < 0.7:  # a function of that function, which may have its name
            outer = self.calling("f", self.function.inputs)
            results += self.calls(b, values, outer, 2)
            results += self.calls(b, values, self.function, 1)
        if rng.random() < 0.5:
            number = Value("i", TensorType(I64))
            results += b.emit("loop", first, {"trip": 3}, [self.calling("body", [number, *self.function.inputs])])
        if rng.random() < 0.5:
            sides = [self.calling("side", self.function.inputs) for _ in range(2)]
            results += b.emit("branch", [b.constant(rng.random() < 0.5, BOOL), *first], {}, sides)
        self.graph = b.build(rng.sample(results, rng.randint(1, len(results))))

    def calling(self, name: str, inputs: Sequence[Value]) -> Graph:
        b = Builder(name)
        values = [b.input(v.name, v.type) for v in inputs]
        return b.build(self.calls(b, values[len(inputs) - len(self.function.inputs) :], self.function, 1))

    def calls(self, b: Builder, values: Sequence[Value], function: Graph, count: int) -> list[Value]:
        results: list[Value] = []
        for _ in range(count):
            operands = []
            for k, v in enumerate(function.inputs):
                fixed = k >= len(function.inputs) - self.captured and self.rng.random() < 0.9
                alike = [x for x in values if x.type == v.type]
                operands.append(values[k] if fixed else self.rng.choice(alike))
            results += b.emit("call", operands, {"captured": self.captured}, [function])
        return results


def inlined(graph: Graph) -> Graph:
    """The graph without calls."""
    b = Builder(graph.name, graph.level)
    env = {v: b.input(v.name, v.type) for v in graph.inputs}

    def put(ops: Sequence[Op], env: dict[Value, Value]) -> None:
        for op in ops:
            if op.name == "call":
                inner = dict(zip(op.regions[0].inputs, [env[v] for v in op.operands], strict=True))
                put(op.regions[0].ops, inner)
                env.update(zip(op.results, [inner[v] for v in op.regions[0].outputs], strict=True))
            elif op.regions:
                flat = replace(op, regions=tuple(map(inlined, op.regions)))
                env.update(zip(op.results, reemit(b, flat, [env[v] for v in op.operands]), strict=True))
            else:
                copy_ops(b, [op], env)

    put(graph.ops, env)
    return b.build([env[v] for v in graph.outputs], graph.attrs)


def differentiated(graph: Graph) -> Graph:
    return run_passes(graph, "legalize-broadcast, simplify, cse, dce, differentiate", verify_each=True)


def test_random_calls():
    """Texts, answers and gradients; every fifth compiled, with some of its inputs as parameters."""
    for seed in range(10):
        calling = Calling(seed)
        graph, inputs = calling.graph, calling.inputs
        assert graph_key(parse_graph(print_graph(graph))) == graph_key(graph), f"seed {seed}"
        expected, _ = evaluate(graph, inputs)
        for a, b in zip(evaluate(inlined(graph), inputs)[0], expected, strict=True):
            np.testing.assert_array_equal(a, b, f"seed {seed}")
        if seed % 5 == 0:
            params = tuple(k for k in range(len(inputs)) if calling.rng.random() < 0.5)
            results, _ = compile_graph(without_rules(graph).with_attrs(params=params)).run(inputs)
            for a, b in zip(results, expected, strict=True):
                assert_close(a, b, f"seed {seed}")
        given = [x for x, v in zip(expected, graph.outputs) if v.dtype is F64]
        cotangents = random_like(np.random.default_rng(seed), given)
        joints = [evaluate(differentiated(g), [*inputs, *cotangents])[0] for g in (graph, inlined(graph))]
        for a, b in zip(*joints, strict=True):
            assert_close(a, b, f"gradients, seed {seed}")
