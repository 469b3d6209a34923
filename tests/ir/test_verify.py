"""The verifier accepts what Builder makes and names what is wrong with anything else."""

from dataclasses import replace

import pytest

import gluonjit.operators  # noqa: F401  (declares mx.relu)
from gluonjit.ir import opdef
from gluonjit.ir.graph import Builder, Loc, Op, Value
from gluonjit.ir.text import parse_graph
from gluonjit.ir.types import tensor
from gluonjit.ir.verify import VerifyError, verify
from support.programs import random_program

F = tensor("f32", 2, 3)


def wrong(graph, *messages):
    with pytest.raises(VerifyError) as e:
        verify(graph)
    for message in messages:
        assert message in str(e.value)


def small(level="expanded"):
    """x → exp → add(x, ·), returned."""
    b = Builder("net", level)
    x = b.input("x", F)
    b.loc = Loc("net.py", 3, "net0")
    y = b.emit("exp", [x], result_names=["y"])[0]
    z = b.emit("add", [x, y], result_names=["z"])[0]
    return b.build([z])


def with_op(graph, k, **changes):
    ops = list(graph.ops)
    ops[k] = replace(ops[k], **changes)
    return replace(graph, ops=tuple(ops))


@pytest.mark.parametrize("level", ["expanded", "legal", "fused"])
def test_valid_graphs(level):
    verify(small(level))
    for seed in range(30):
        verify(random_program(seed, level=level).graph)


def test_an_operand_that_is_defined_later():
    graph = small()
    wrong(
        replace(graph, ops=graph.ops[::-1]),
        "invalid graph @net: operand f32[2,3] is used before it is defined",
        "  %z: f32[2,3] = add(%x, %?y)",
        "from net.py:3 (net0)",
    )


def test_an_operand_of_another_graph():
    wrong(replace(small(), ops=small().ops), "operand f32[2,3] is not of this graph", "%y: f32[2,3] = exp(%?x)")


def test_a_value_defined_twice():
    graph = small()
    wrong(replace(graph, ops=(graph.ops[0], *graph.ops)), "a value is defined twice")
    wrong(replace(graph, inputs=graph.inputs * 2), "input %x is listed twice")
    wrong(with_op(graph, 0, results=graph.inputs), "a value is defined twice")


def test_declared_types_are_the_inferred_ones():
    graph = small()
    bad = Value("y", tensor("f32", 3, 2))
    wrong(
        with_op(graph, 0, results=(bad,)), "a result is declared f32[3,2], but exp gives f32[2,3]", "%y: f32[3,2] = exp"
    )
    wrong(with_op(graph, 1, results=(*graph.ops[1].results, Value("w", F))), "2 result(s) declared, but add has 1")


def test_types_of_ops_that_stay_are_inferred_once(monkeypatch):
    graph = small()
    new, copy = replace(graph.ops[0], attrs={}), replace(graph.ops[1])
    seen = []
    infer = opdef.Primitive.infer
    monkeypatch.setattr(opdef.Primitive, "infer", lambda *given: seen.append(given[0].name) or infer(*given))
    verify(replace(graph, ops=(new, copy)), graph)
    assert seen == [new.name]
    bad = with_op(graph, 1, results=(Value("z", tensor("f32", 3, 2)),))
    with pytest.raises(VerifyError, match="a result is declared"):
        verify(bad, graph)


def test_operands_and_attributes_that_do_not_fit():
    graph = small()
    wrong(with_op(graph, 1, operands=graph.inputs), "add does not take 1 operand(s)")
    reduced = Op("reduce", graph.inputs, {"op": "sum", "axes": (2,)}, (Value("r", tensor("f32", 2)),))
    wrong(replace(graph, ops=(*graph.ops, reduced)), "axes = (2,) names axis 2")
    # Inference meets attributes of any kind here, and must not leave the verifier with its own exception.
    for attrs in ({"op": "sum", "axes": None}, {"op": "sum"}, {"op": 3, "axes": "ab"}, {"other": 1}):
        wrong(replace(graph, ops=(*graph.ops, replace(reduced, attrs=attrs))), "%r: f32[2] = reduce(%x)")


def test_unknown_operators_and_levels():
    wrong(with_op(small(), 0, name="exq"), "unknown operator 'exq'")
    wrong(replace(small(), level="fuzed"), "unknown level 'fuzed'; did you mean 'fused'?")


def test_outputs_and_updates():
    graph = small()
    (x,) = graph.inputs
    y = graph.ops[0].result
    stranger = Value("w", F)
    wrong(replace(graph, outputs=(stranger,)), "it returns a value that is not defined")
    wrong(replace(graph, updates=((y, x),)), "updated state %y is not an input")
    wrong(replace(graph, updates=((x, y), (x, y))), "state %x is updated twice")
    wrong(replace(graph, updates=((x, stranger),)), "the new value of state %x is not defined")
    narrow = Value("s", tensor("f32", 2))
    wrong(
        replace(graph, inputs=(x, narrow), updates=((narrow, y),)),
        "state %s has type f32[2], its new value f32[2,3]",
    )


# Levels ---------------------------------------------------------------------------------------------------------------


def test_operators_of_the_front_end_are_for_traced_graphs():
    graph = parse_graph("graph @g(%x: f32[2]) level traced { %y = mx.relu(%x) return %y }")
    verify(graph)
    wrong(graph.with_level("expanded"), "a graph of level 'expanded' cannot hold operators of a front end")


def test_broadcasting_ends_with_legal():
    graph = parse_graph("graph @g(%x: f32[2,3], %b: f32[3]) { %y = add(%x, %b) return %y }")
    verify(graph)
    wrong(graph.with_level("legal"), "operands of different shapes at level 'legal'", "%y: f32[2,3] = add(%x, %b)")


FUSED = """graph @g(%x: f32[2]) level fused {
  %y = fused(%x) (@body(%a: f32[2]) level legal { %b = neg(%a) return %b })
  return %y
}"""


def test_regions():
    graph = parse_graph(FUSED)
    verify(graph)
    wrong(graph.with_level("legal"), "a graph of level 'legal' cannot hold ops with regions")
    op = graph.ops[0]
    (region,) = op.regions
    wrong(with_op(graph, 0, regions=()), "needs one region, got 0")
    wrong(with_op(graph, 0, operands=op.operands * 2), "the region takes (f32[2])")
    wrong(with_op(graph, 0, regions=(region.with_level("expanded"),)), "a region of level 'expanded'")
    # A region sees its own inputs only.
    leak = replace(region.ops[0], operands=graph.inputs)
    wrong(
        with_op(graph, 0, regions=(replace(region, ops=(leak,)),)),
        "in its region: invalid graph @body: operand f32[2] is not of this graph",
    )
    wrong(with_op(graph, 0, regions=(replace(region, outputs=region.outputs * 2),)), "1 result(s) declared")


def test_equal_regions_are_verified_once(monkeypatch):
    text = """graph @g(%x: f32[2]) level fused {
  %y: f32[2] = fused(%x) (@body(%a: f32[2]) level fused { %b = exp(%a) %c = neg(%b) return %c })
  %z: f32[2] = fused(%y) (@other(%d: f32[2]) level fused { %e = exp(%d) %f = neg(%e) return %f })
  return %z
}"""
    graph = parse_graph(text)
    (region,) = graph.ops[1].regions
    seen = []
    infer = opdef.Primitive.infer
    monkeypatch.setattr(opdef.Primitive, "infer", lambda *given: seen.append(given[0].name) or infer(*given))
    verify(graph)
    assert seen == ["exp", "neg", "fused", "fused"]

    def wrong_beside_a_valid_one(*messages, **changes):
        wrong(with_op(parse_graph(text), 1, regions=(replace(region, **changes),)), *messages)

    first, last = region.ops
    again = replace(last, results=first.results)  # the result has the number that it should have
    wrong_beside_a_valid_one("a value is defined twice", ops=(first, again), outputs=first.results)
    leak = replace(first, operands=graph.inputs)
    wrong_beside_a_valid_one("operand f32[2] is not of this graph", ops=(leak, last))
    wrong_beside_a_valid_one("cannot have a place in the arena", **_placed(region))
    wrong_beside_a_valid_one("must be a number of bytes", attrs={"scratch": -1})


def _placed(region):
    """What changes in a region whose input has a place in the arena."""
    (x,) = region.inputs
    at = replace(x, offset=0)
    first, last = region.ops
    return {"inputs": (at,), "ops": (replace(first, operands=(at,)), last)}


# Memory ---------------------------------------------------------------------------------------------------------------

BODY = "(@body(%a: f32[16]) level legal { %b = neg(%a) return %b })"
KERNEL = f"{{.kernel = loops}} {BODY}"


def planned(*lines, arena=256, returned="%z"):
    body = "\n".join(lines)
    return parse_graph(f"graph @g(%x: f32[16]) level planned {{arena = {arena}}} {{\n{body}\nreturn {returned}\n}}")


def test_a_valid_plan():
    verify(
        planned(
            "%c: f32[16] = constant() {value = 1}",
            f"%a @0 = fused(%x) {KERNEL}",
            f"%b @64 = fused(%a) {KERNEL}",
            f"%d @0 = fused(%b) {KERNEL}",  # %a is dead
            f"%e @0 = fused(%d) {KERNEL}",  # in place
            "%v = reshape(%e) {shape = (4, 4), .kernel = view}",
            "%w = reshape(%v) {shape = (16,), .kernel = view}",
            f"%z = fused(%w) {KERNEL}",
        )
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([f"%a = fused(%x) {KERNEL}", f"%z = fused(%a) {KERNEL}"], "a result has no place in the arena"),
        ([f"%z @0 = fused(%x) {KERNEL}"], "a result that does not live in the arena has an offset"),
        (
            [f"%a @256 = fused(%x) {KERNEL}", f"%z = fused(%a) {KERNEL}"],
            "bytes 256 to 320 are outside the arena of 256",
        ),
        ([f"%a @32 = fused(%x) {KERNEL}", f"%z = fused(%a) {KERNEL}"], "offset 32 is not a multiple of 64"),
        (
            [
                f"%a @0 = fused(%x) {KERNEL}",
                f"%b @0 = fused(%x) {KERNEL}",
                "%z = fused(%a, %b) (@body(%p: f32[16], %q: f32[16]) level legal { %r = add(%p, %q) return %r })",
            ],
            "bytes 0 to 64 overlap %a at 0 to 64, which still lives",
        ),
        (
            # A view keeps its buffer alive.
            [
                f"%a @0 = fused(%x) {KERNEL}",
                "%v = reshape(%a) {shape = (16,), .kernel = view}",
                f"%b @64 = fused(%x) {KERNEL}",
                f"%c @0 = fused(%b) {KERNEL}",
                "%z = fused(%v, %c) (@body(%p: f32[16], %q: f32[16]) level legal { %r = add(%p, %q) return %r })",
            ],
            "overlap %a at 0 to 64",
        ),
        (
            # The reverse reads elements that it has written over.
            [
                f"%a @0 = fused(%x) {KERNEL}",
                "%b @0 = fused(%a) {.kernel = loops} (@body(%p: f32[16]) level legal "
                "{ %q = reverse(%p) {axes = (0,)} return %q })",
                f"%z = fused(%b) {KERNEL}",
            ],
            "overlap %a at 0 to 64",
        ),
        (
            [f"%a @0 = fused(%x) {KERNEL}", f"%z = fused(%a) {{.kernel = loops, .workspace = 8}} {BODY}"],
            "its workspace has no place in the arena",
        ),
        (
            [
                f"%a @0 = fused(%x) {KERNEL}",
                f"%z = fused(%a) {{.kernel = loops, .workspace = 8, .workspace_offset = 0}} {BODY}",
            ],
            "overlap %a at 0 to 64",
        ),
        (["%z: f32[16] = constant() {value = 1}"], "no kernel writes result 0 of the graph into a buffer of its own"),
        (
            [f"%y = fused(%x) {KERNEL}", "%z = reshape(%y) {shape = (16,), .kernel = view}"],
            None,
        ),
    ],
    ids=range(11),
)
def test_plans(lines, message):
    graph = planned(*lines)
    if message is None:
        verify(graph)
    else:
        wrong(graph, message)


ROWS = "(@body(%p: f32[2,8]) level legal { %q = neg(%p) return %q })"
HALF = f"{{.kernel = loops, .strides = (None, (16, 1))}} {ROWS}"
HALF_OF_HALF = f"{{.kernel = loops, .strides = ((16, 1), (16, 1))}} {ROWS}"
JOINED = "{axis = 1, .kernel = view}"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([f"%a = fused(%x) {HALF}", f"%b = fused(%a) {HALF_OF_HALF}", f"%z = concat(%a, %b) {JOINED}"], None),
        (
            [
                f"%a = fused(%x) {HALF}",
                f"%b = fused(%x) {HALF}",
                f"%c @0 = concat(%a, %b) {JOINED}",
                "%z = cumsum(%c) {axis = 0, .kernel = sequential}",
            ],
            None,
        ),
        (
            [f"%a = fused(%x) {HALF}", f"%b = fused(%a) {HALF}", f"%z = concat(%a, %b) {JOINED}"],
            "its operands and results have the strides ((16, 1), (16, 1))",
        ),
        (
            [f"%a = fused(%x) {HALF}", f"%b = fused(%x) {HALF}", f"%z @0 = concat(%a, %b) {JOINED}"],
            "a result that does not live in the arena has an offset",
        ),
        (
            # The buffer lives from the first window that is written.
            [
                f"%a = fused(%x) {HALF}",
                f"%d @64 = fused(%x) {{.kernel = loops}} {ROWS}",
                f"%b = fused(%d) {{.kernel = loops, .strides = (None, (16, 1))}} {ROWS}",
                f"%c @0 = concat(%a, %b) {JOINED}",
                "%z = cumsum(%c) {axis = 0, .kernel = sequential}",
            ],
            "bytes 64 to 128 overlap %c at 0 to 128",
        ),
        (
            [
                "%a = cumsum(%x) {axis = 0, .kernel = sequential, .strides = (None, (16, 1))}",
                f"%b = fused(%x) {HALF}",
                f"%z = concat(%a, %b) {JOINED}",
            ],
            "its kernel knows no strides but those of a whole buffer",
        ),
        (
            [f"%a = fused(%x) {HALF}", f"%z = concat(%a, %x) {JOINED}"],
            "%x is an operand of a concat that is a view, but no kernel writes it",
        ),
    ],
    ids=range(7),
)
def test_windows(lines, message):
    body = "\n".join(lines)
    graph = parse_graph(f"graph @g(%x: f32[2,8]) level planned {{arena = 256}} {{\n{body}\nreturn %z\n}}")
    if message is None:
        verify(graph)
    else:
        wrong(graph, message)


def test_a_result_returned_twice_needs_two_buffers():
    graph = planned(f"%y = fused(%x) {KERNEL}", returned="%y, %y")
    wrong(graph, "no kernel writes result 1 of the graph into a buffer of its own")


def test_inputs_have_no_offset():
    graph = small()
    wrong(replace(graph, inputs=(replace(graph.inputs[0], offset=0),), ops=()), "cannot have a place in the arena")


@pytest.mark.parametrize(
    "notes",
    [{"params": x} for x in ((0.5,), 0, "x", (-1,), (1,), (10**30,), (True,), (0, 0), ("x",))]
    + [{key: x} for key in ("arena", "arena_sum", "scratch") for x in (-1, 0.5, "x", (1,), 2**63, True)],
)
def test_notes_of_passes(notes):
    """Texts may have any: passes take `params` for places of inputs, and add up bytes."""
    ((key, _),) = notes.items()
    wrong(small("legal").with_attrs(**notes), key)


def test_workspaces_have_sizes():
    graph = small("fused")
    for size in (-1, "x", (1, 2), 0.5):
        wrong(with_op(graph, 0, attrs={**graph.ops[0].attrs, ".scratch": size}), ".scratch")
    verify(with_op(graph, 0, attrs={**graph.ops[0].attrs, ".scratch": 64}))
