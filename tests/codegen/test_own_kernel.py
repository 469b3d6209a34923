"""A kernel that a program adds: its plan, and its code. Nothing else has to know it."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest

from gluonjit.codegen.text import kernel_code
from gluonjit.codegen.text.kernel_code import writes
from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.kernels import kernel_plan
from gluonjit.ir.kernels.kernel_plan import Plan
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.runtime.compiler import compile_graph


@pytest.fixture
def twice():
    """Writes every `step`-th element doubled, the others as they are."""

    @dataclass(frozen=True)
    class Twice(Plan, kernel="twice"):
        """Doubles some elements."""

        step: Annotated[int, "from one that is doubled to the next"]

    @writes(Twice)
    def lower(name, op, module):
        f, plan = module.function(name), KERNEL.of(op)
        with f.if_(f.op("icmp eq i64 %thread, 0")), f.for_(0, op.result.size, hint="element") as loop:
            x = f.load("float", f.gep("float", f.table(0), loop.index), 4)
            chosen = f.op(f"icmp eq i64 {f.mod(loop.index, plan.step)}, 0")
            y = f.op(f"select i1 {chosen}, float {f.op(f'fadd float {x}, {x}')}, float {x}")
            f.store("float", y, f.gep("float", f.table(1), loop.index), 4)

    yield Twice
    del kernel_plan._KERNELS["twice"], kernel_code._CODE[Twice]


def test_a_kernel_is_a_plan_and_its_code(twice):
    text = """graph @g(%x: f32[6]) level fused {
  %a: f32[6] = fused(%x) {.kernel = twice(step = 2)} (@body(%p: f32[6]) level legal { %q = add(%p, %p) return %q })
  %b: f32[6] = fused(%a) {.kernel = twice(step = 3)} (@body(%p: f32[6]) level legal { %q = add(%p, %p) return %q })
  return %b
}"""
    graph = parse_graph(text)
    assert [KERNEL.of(op) for op in graph.ops] == [twice(2), twice(3)]
    assert "twice(step = 2)" in print_graph(graph)
    compiled = compile_graph(graph, pipeline="hoist, views, threads, plan-memory", after=lambda *_: None)
    (y,), _ = compiled.run([np.ones(6, np.float32)])
    np.testing.assert_array_equal(y, [4, 1, 2, 2, 2, 1])
