"""Plans of kernels, and annotations: what is declared, how it prints and parses, what the verifier refuses."""

from dataclasses import replace

import pytest

from gluonjit.codegen.target import named
from gluonjit.ir.annotations import ANNOTATIONS, KERNEL, STRIDES, THREADS, annotation
from gluonjit.ir.cost import transfer_and_computing
from gluonjit.ir.kernels import all_kernels, find_kernel
from gluonjit.ir.kernels.element_plans import Copy, Loops, View
from gluonjit.ir.kernels.kernel_plan import Plan
from gluonjit.ir.kernels.op_plans import Sorting
from gluonjit.ir.kernels.product_plans import Conv, Matmul, Winograd
from gluonjit.ir.lexer import ParseError
from gluonjit.ir.structure import op_key
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.ir.types import IRError
from gluonjit.ir.verify import VerifyError, verify


def graph(annotations, level="fused"):
    return parse_graph(f"graph @g(%x: f32[2,3]) level {level} {{ %y = neg(%x) {{{annotations}}} return %y }}")


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (Loops(), "loops"),
        (Loops(streaming=True, ahead="rows"), 'loops(streaming = True, ahead = "rows")'),
        (View(into=True), "view(into = True)"),
        (Matmul(6, 64, 8, packed=True), "matmul(rows = 6, columns = 64, block = 8, packed = True)"),
        (Winograd(4, 4, 14, 32, -3), "winograd(height = 4, width = 4, rows = 14, columns = 32, block = -3)"),
        (
            Winograd(4, 4, 6, 16, 8, ahead=True),
            "winograd(height = 4, width = 4, rows = 6, columns = 16, block = 8, ahead = True)",
        ),
        (Sorting((1,)), "sorting(read = (1,))"),
        (Sorting((0, 1)), "sorting(read = (0, 1))"),
    ],
    ids=str,
)
def test_plans_print_and_parse(plan, text):
    assert str(plan) == text
    read = graph(f".kernel = {text}")
    assert KERNEL.of(read.ops[0]) == plan
    assert f"{{.kernel = {text}}}" in print_graph(read)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lops", "unknown kernel 'lops'; did you mean 'loops'?"),
        ('"loops"', "expected a kernel such as loops, found '\"loops\"'"),
        ("matmul", "kernel 'matmul' needs the field 'rows'"),
        ("conv(pixels = 1, columns = 16, blocks = 2)", "kernel 'conv' has no field 'blocks'; did you mean 'block'?"),
        ("conv(pixels = 1, columns = 16, block = True)", "block = True is no int"),
        ("conv(pixels = 1, columns = 16.0, block = 1)", "columns = 16.0 is no int"),
        ("conv(pixels = 0, columns = 16, block = 1)", "pixels = 0 is not from 1 to 1024"),
        ("matmul(rows = 6, columns = 64, block = 9223372036854775807)", "is not from 1 to 2147483647"),
        ('loops(ahead = "pages")', "ahead = 'pages' is no"),
        ("sorting(read = (0.5,))", "read = (0.5,) is no"),
        ("view(into = True", "expected ',' or ')'"),
        ("conv(pixels = 1, columns = 16, block = 1, block = 2)", "field 'block' is given twice"),
    ],
)
def test_plans_that_are_refused(text, message):
    with pytest.raises(ParseError) as e:
        graph(f".kernel = {text}")
    assert message in str(e.value)


def test_ops_with_other_plans_are_others():
    ops = [graph(f".kernel = {text}").ops[0] for text in ("loops", "copy", "loops(streaming = True)")]
    assert len({op_key(op) for op in ops}) == 3


@pytest.mark.parametrize(("text", "passes"), [("loops", 3), ("loops(streaming = True)", 2)])
def test_what_is_written_beyond_the_near_caches_is_read_first(text, passes):
    target, size = named("x86-64-v3"), 1 << 20
    words = f"graph @g(%x: f32[{size}]) level fused {{ %y = neg(%x) {{.kernel = {text}}} return %y }}"
    transfer, _ = transfer_and_computing(parse_graph(words).ops[0], target)
    assert transfer == passes * 4 * size / target.loop_far


def test_what_a_plan_says_of_itself():
    plan = Matmul(6, 64, 8, packed=True)
    assert plan.tile == (6, 64, 8) and plan.packed_operand() == 1 and Matmul(6, 64, 8).packed_operand() is None
    assert plan.backwards() == replace(plan, reversed=True) and Conv(1, 16, 1).backwards() == Conv(1, 16, 1)
    assert Copy().by_element and not Copy().may_overwrite and Loops().may_overwrite
    for name, kernel in all_kernels().items():
        assert find_kernel(name) is kernel and kernel.purpose()
        assert not kernel.computes or kernel.shares, name
        assert all(part.meaning for part in kernel.parts().values()), name


def test_no_two_kernels_of_one_name():
    with pytest.raises(IRError, match="kernel 'loops' is declared twice"):
        type("Another", (Plan,), {}, kernel="loops")


@pytest.mark.parametrize(
    ("annotations", "level", "message"),
    [
        (".tile = (4, 8)", "fused", ".tile is not a declared annotation"),
        (".threads = -1", "fused", ".threads = -1 must be an int"),
        (".strides = ((1, 0.5), None)", "fused", ".strides = ((1, 0.5), None) must be a tuple"),
        (".stream = True", "traced", ".stream = True must be an int"),
        (".kernel = view", "fused", "the kernel 'view' does not compute such an op"),
        (".kernel = matmul(rows = 1, columns = 16, block = 1)", "fused", "'matmul' does not compute such an op"),
        (".kernel = sequential", "fused", "such an op. What it is for: Primitives whose elements depend on"),
        (".kernel = loops", "legal", ".kernel belongs to graphs of level 'fused' and later ones"),
        (".workspace_offset = 0", "fused", ".workspace_offset belongs to graphs of level 'planned'"),
    ],
)
def test_annotations_that_are_refused(annotations, level, message):
    with pytest.raises(VerifyError) as e:
        verify(graph(annotations, level))
    assert message in str(e.value)


def test_annotations_are_read_through_their_declarations():
    (op,) = graph(".threads = 1").ops
    assert THREADS.of(op) == 1 and THREADS.is_on(op) and THREADS(1) == {".threads": 1}
    assert STRIDES.of(op) == () and not STRIDES.is_on(op)


def test_others_may_declare_annotations(monkeypatch):
    with pytest.raises(IRError, match="declared twice"):
        annotation(".threads", "an int", lambda value: True, 0, "fused", "")
    with pytest.raises(VerifyError, match="is not a declared annotation"):
        verify(graph(".mine = 1"))
    monkeypatch.setitem(ANNOTATIONS, ".mine", None)
    del ANNOTATIONS[".mine"]
    mine = annotation(".mine", "an int", lambda value: type(value) is int, 7, "fused", "of a test")
    assert mine.of(graph("").ops[0]) == 7
    verify(graph(".mine = 1"))


def test_the_plan_of_an_op_by_its_class():
    (op,) = graph(".kernel = conv(pixels = 1, columns = 16, block = 2)").ops
    assert Conv.of(op).block == 2
    with pytest.raises(IRError, match="neg is not computed by the kernel 'matmul', but by conv"):
        Matmul.of(op)
