"""What `partition` lets the backward graph compute again, and when: how much memory exists at once."""

import pytest

from gluonjit.ir.graph import Builder, Graph
from gluonjit.ir.text import print_graph
from gluonjit.ir.types import tensor
from gluonjit.passes import run_passes
from gluonjit.passes.partition import divide, saved_bytes

SIZE = 8 * 8 * 4


def peak(graph: Graph) -> int:
    """The most bytes that ops' results take at once, when the ops run in the order of the graph."""
    last = {v: k for k, op in enumerate(graph.ops) for v in op.operands}
    last.update((v, len(graph.ops)) for v in graph.outputs)
    sizes, living = [0], {}
    for k, op in enumerate(graph.ops):
        living.update((r, r.type.nbytes) for r in op.results)
        sizes.append(sum(living.values()))
        living = {v: size for v, size in living.items() if last.get(v, k) > k}
    return max(sizes)


def halves(length: int, recompute: bool):
    """A chain of matrix products, each divided by 2 and passed through tanh and sin."""
    b = Builder("chain", "legal")
    x = b.input("x", tensor("f32", 8, 8))
    for k in range(length):
        w = b.input(f"w{k}", tensor("f32", 8, 8))
        x = b.sin(b.tanh(b.dot_general(x, w, contract=((1,), (0,)))))
    graph = b.build([x])
    joint = run_passes(graph, [("differentiate", {"wrt": (0,), "heads": (0,)})])
    joint = run_passes(joint, "legalize-broadcast, simplify, fold, cse, dce")
    return divide(joint, recompute=recompute, sections=True)


def test_elementwise_values_are_computed_again_one_layer_at_a_time():
    few, many = halves(8, False), halves(32, False)
    assert saved_bytes(many, 1) > 3 * saved_bytes(few, 1)
    assert peak(many.backward) == peak(few.backward) <= 8 * SIZE


def test_all_grows_with_the_root_of_the_length():
    def most(length):
        found = halves(length, True)
        return saved_bytes(found, 1) + peak(found.backward)

    long, plain = most(144), halves(144, False)
    assert long < 3.2 * most(16)
    assert long < 0.35 * 144 * SIZE
    assert long < 0.35 * (saved_bytes(plain, 1) + peak(plain.backward))


@pytest.mark.parametrize("length", [1, 4])
def test_all_saves_nothing_of_what_is_short(length):
    assert saved_bytes(halves(length, True), 1) == 0


def test_what_is_saved_between_sections_has_one_order():
    """Code in the object cache is for what another process saved, whose values lie elsewhere in memory."""

    def saved():
        b = Builder("wide", "legal")
        x, y = (b.input(name, tensor("f32", 8, 8)) for name in "xy")
        for _ in range(40):
            x, y = b.tanh(b.dot_general(x, y, contract=((1,), (0,)))), b.dot_general(y, x, contract=((1,), (0,)))
        joint = run_passes(b.build([x, y]), [("differentiate", {"wrt": (0, 1), "heads": (0, 1)})])
        found = divide(run_passes(joint, "legalize-broadcast, cse, dce"), recompute=True, sections=True)
        return print_graph(found.forward)

    first = saved()
    assert all(saved() == first for _ in range(4))
