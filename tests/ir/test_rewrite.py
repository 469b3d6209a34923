"""`rewrite`: a graph that a rule need not look at is not copied."""

from gluonjit.ir.graph import Builder, rewrite
from gluonjit.ir.types import F32, TensorType


def test_a_rule_is_not_asked_where_nothing_it_needs_is_there():
    b = Builder("g", "expanded")
    x = b.input("x", TensorType(F32, (3,)))
    graph = b.build([b.exp(b.neg(x))])
    asked = []

    def rule(b, op, operands):
        asked.append(op.name)
        return [b.abs(*operands)] if op.name == "neg" else None

    assert rewrite(graph, rule, only_with=lambda op: op.name == "conv") is graph
    assert asked == []
    changed = rewrite(graph, rule, only_with=lambda op: op.name == "neg")
    assert [op.name for op in changed.ops] == ["abs", "exp"]
    assert asked == ["neg", "exp"]
