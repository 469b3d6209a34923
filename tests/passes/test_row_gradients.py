"""`row_gradients`: which gradients are given as rows. And those of elements that are picked from rows."""

import numpy as np
import pytest

from gluonjit.codegen.target import host
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import F32, I32, TensorType
from gluonjit.operators import registry
from gluonjit.passes import run_passes
from gluonjit.passes.row_gradients import row_gradients


def joint(compute):
    b = Builder("lookup", "legal")
    table, first, second = (
        b.input(n, TensorType(t, s)) for n, t, s in (("w", F32, (9, 2)), ("i", I32, (3,)), ("j", I32, (3,)))
    )
    graph = run_passes(b.build([compute(b, table, first, second)]), [("differentiate", {"wrt": (0,)})])
    return run_passes(graph, "legalize-broadcast, simplify, fold, cse, dce")


def gather(b, table, indices):
    return b.gather(table, indices, axis=0, mode="clip")


def test_lookups_become_indices_and_rows():
    graph, additions = row_gradients(joint(lambda b, w, i, j: gather(b, w, i)), (0,))
    assert additions == {0: 1}
    assert [v.type.shape for v in graph.outputs] == [(3, 2), (1, 3), (3, 2)]
    graph, additions = row_gradients(joint(lambda b, w, i, j: b.mul(gather(b, w, i), gather(b, w, j))), (0,))
    assert additions == {0: 2}
    assert "scatter_add" not in str(run_passes(graph, "dce"))


def test_what_is_more_than_lookups_stays():
    for compute in (
        lambda b, w, i, j: gather(b, b.mul(w, w), i),
        lambda b, w, i, j: b.add(gather(b, w, i), b.slice(w, start=(0, 0), size=(3, 2), step=(1, 1))),
    ):
        before = joint(compute)
        graph, additions = row_gradients(before, (0,))
        assert graph is before and not additions
    assert row_gradients(joint(lambda b, w, i, j: gather(b, w, i)), ())[1] == {}


@pytest.mark.parametrize("lead", [(7,), (2, 3)])
def test_the_gradient_of_picked_elements_is_part_of_the_kernel_that_reads_it(lead):
    """With places outside of the rows, and zeros of either sign, both halves of a loss give the same bits as before."""
    b = Builder("loss", "traced")
    x, label = b.input("x", TensorType(F32, (*lead, 30))), b.input("label", TensorType(F32, lead))
    y = b.emit("mx.log_softmax", [x], registry.get("log_softmax").parse({}))[0]
    y = b.emit("mx.pick", [y, label], registry.get("pick").parse({"axis": -1, "keepdims": True}))[0]
    graph = run_passes(b.build([y]), "expand, legalize-broadcast, differentiate {wrt = (0,)}, legalize-broadcast")
    rng = np.random.default_rng(0)
    cotangent = rng.standard_normal((*lead, 1)).astype(np.float32)
    cotangent.flat[:2] = 0.0, -0.0
    places = rng.integers(-2, 33, lead).astype(np.float32)
    inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs[:1]] + [places, cotangent]
    simple = run_passes(graph, "simplify, fold, cse, dce")
    assert "scatter_add" in str(graph) and "scatter_add" not in str(simple)
    for new, old in zip(evaluate(simple, inputs)[0], evaluate(graph, inputs)[0], strict=True):
        assert new.tobytes() == old.tobytes()
    kernels = [op for op in run_passes(simple, "fuse, select", target=host()).ops if op.name == "fused"]
    assert max(sum(r.size == x.size for r in op.results) for op in kernels) == 1
    assert sum(r.size == x.size for op in kernels for r in op.results) <= 2, "the gradient, and x - max x"
