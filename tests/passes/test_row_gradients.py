"""`row_gradients`: which gradients are given as rows."""

from gluonjit.ir.graph import Builder
from gluonjit.ir.types import F32, I32, TensorType
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
