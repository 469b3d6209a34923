"""How much the gradients of normalizations read."""

import pytest

import gluonjit.operators  # noqa: F401  (declares the operators)
from gluonjit.execution.computation import GRADIENT_PIPELINE, JOINT_PIPELINE
from gluonjit.ir.text import parse_graph
from gluonjit.passes import run_passes
from gluonjit.passes.partition import divide


@pytest.mark.parametrize("name", ["BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm"])
def test_the_gradient_of_batch_norm_has_two_sums(name):
    key = ', key = "k"' if name == "_contrib_SyncBatchNorm" else ""
    graph = parse_graph(f"""
    graph @g(%x: f32[4, 3, 2, 2], %gamma: f32[3], %beta: f32[3], %mean: f32[3], %var: f32[3]) level traced {{
      %y, %m, %v = mx.{name}(%x, %gamma, %beta, %mean, %var) {{fix_gamma = False{key}}}
      return %y
    }}""").with_attrs(training=True)
    pipeline = f"{GRADIENT_PIPELINE}, differentiate {{wrt = (0, 1, 2)}}, {JOINT_PIPELINE}"
    halves = divide(run_passes(graph, pipeline))
    sums = [op for op in halves.backward.ops if op.name == "reduce"]
    assert len(sums) == 2, halves.backward
    # The data, or the data less their mean, and the statistics.
    assert sum(v.shape == (4, 3, 2, 2) for v in halves.saved) == 1


def test_the_gradient_of_softmax_does_not_ask_where_the_maximum_was():
    graph = parse_graph("""
    graph @g(%x: f32[4, 3]) level traced {
      %y = mx.softmax(%x) {temperature = 2.0}
      return %y
    }""")
    halves = divide(run_passes(graph, f"{GRADIENT_PIPELINE}, differentiate, {JOINT_PIPELINE}"))
    assert [op.name for op in halves.backward.ops if op.name in ("reduce", "eq")] == ["reduce"]
