"""The text form: what prints parses back, what people type is understood, and a bad text gives a good error."""

import random
import re
import struct
import textwrap
import zipfile

import ml_dtypes
import numpy as np
import pytest

from gluonjit import nd
from gluonjit.base import CheckpointError
from gluonjit.ir import archive, opdef
from gluonjit.ir.array_literal import bits
from gluonjit.ir.graph import Builder, Loc
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.text import ParseError, Spill, load, parse_graph, print_graph, save
from gluonjit.ir.types import DTYPES, F32, IRError, TensorType, tensor
from gluonjit.ir.verify import verify
from support.programs import random_program
from support.soak import tries

PLANNED = """\
graph @net(%x: f32[2,3], %s: f32[3], %"a b": i64[]) level planned {arena = 128, training = False} {
  %0: f32[] = constant() {value = 0.5} loc("model.py":12, "net0_dense0")
  %1: f32[2,3] @0 = broadcast(%0) {shape = (2, 3), .kernel = loops} loc("":0, "net0")
  %y: f32[2,3] = fused(%x, %1) {.pair = (4, 8), .unroll = None} (@body(%a: f32[2,3], %b: f32[2,3]) level legal {
    %0: f32[2,3] = mul(%a, %b) loc("model.py":13)
    return %0
  })
  %v: f32[2,3] @64, %i: i64[2,3] @128 = sort(%y) {axis = 1}
  update %s = %s
  return %y, %v, %x
}
"""


def test_everything_prints_as_it_was_read():
    graph = parse_graph(PLANNED)
    assert print_graph(graph, locs=True) == PLANNED
    constant, broadcast, fused, sort = graph.ops
    assert graph.level == "planned" and dict(graph.attrs) == {"arena": 128, "training": False}
    assert [v.name for v in graph.inputs] == ["x", "s", "a b"]
    assert constant.loc == Loc("model.py", 12, "net0_dense0") and broadcast.loc == Loc("", 0, "net0")
    assert [r.offset for r in sort.results] == [64, 128] and broadcast.result.offset == 0
    assert fused.attrs[".pair"] == (4, 8) and fused.attrs[".unroll"] is None
    assert fused.regions[0].level == "legal" and fused.regions[0].name == "body"
    assert graph.updates == ((graph.inputs[1], graph.inputs[1]),)


WRAPPED = """\
graph @net(
    %data: f32[1,3,224,224], %features_0_weight: f32[64,3,7,7], %features_0_bias: f32[64],
    %features_1_weight: f32[64,64,3,3]
) level fused {params = (1, 2, 3)} {
  %y: f32[64] = add(%features_0_bias, %p)
  return %y
} prepare {
  %p: f32[64] = prepare(%features_0_bias) (@prepare(%b: f32[64]) {
    %e: f32[64] = exp(%b)
    return %e
  })
}
"""


def test_a_long_signature_is_wrapped_and_what_is_prepared_comes_last():
    graph = parse_graph(WRAPPED)
    assert [op.name for op in graph.ops] == ["prepare", "add"]
    assert print_graph(graph) == WRAPPED
    assert evaluate(graph, [np.zeros(v.type.shape, np.float32) for v in graph.inputs])[0][0].tolist() == [1.0] * 64


def test_what_is_prepared_later_stays_in_its_place():
    b = Builder("g", "fused")
    x = b.input("x", TensorType(F32, (2,)))
    y = b.neg(x)
    inner = Builder("prepare", "fused")
    region = inner.build([inner.exp(inner.input("x", x.type))])
    (p,) = b.emit("prepare", [x], {}, [region])
    text = print_graph(b.build([b.add(y, p)]))
    assert "} prepare {" not in text
    assert print_graph(parse_graph(text)) == text


@pytest.mark.parametrize(
    "section, message",
    [
        ("prepare { %p = neg(%x) }", "only `prepare` ops may follow the others"),
        ("prepare { return %x }", "expected a `prepare` op or '}', found 'return'"),
        ("prepare", "expected '{' and the `prepare` ops, found the end"),
        ("prepare {} prepare {}", "expected the end of the text after the graph, found 'prepare'"),
    ],
)
def test_errors_in_the_section_of_what_is_prepared(section, message):
    with pytest.raises(ParseError, match=re.escape(message)):
        parse_graph(f"graph (%x: f32[2]) level fused {{ return %x }} {section}")


def test_the_documented_examples(root):
    from gluonjit.ir import text

    example = re.search(r"(?ms)^    graph .*?^    }$", text.__doc__)[0]
    assert print_graph(parse_graph(example), locs=True) == textwrap.dedent(example) + "\n"
    document = (root / "docs" / "ir.md").read_text()
    example = re.search(r"(?ms)^graph @net.*?^}$", document)[0]
    assert print_graph(parse_graph(example), locs=True) == example + "\n"


def test_locations_print_on_demand_only():
    assert "loc(" not in print_graph(parse_graph(PLANNED))


@pytest.mark.parametrize("level", ["expanded", "legal", "fused"])
def test_random_programs_come_back(level):
    for seed in range(tries(25)):
        program = random_program(seed, level=level)
        text = print_graph(program.graph, locs=True)
        back = parse_graph(text)
        assert print_graph(back, locs=True) == text
        verify(back)
        outputs, updates = evaluate(back, program.inputs)
        for a, b in zip([*outputs, *updates], [*program.outputs, *program.updates], strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_graph_typed_in_a_hurry():
    graph = parse_graph(
        "graph() { %a: f32[] = constant() {value = 1} %b: f32[] = constant() {value = 2} %0 = add(%a, %b) return %0 }"
    )
    assert [str(v) for v in evaluate(graph, [])[0]] == ["3.0"]
    assert graph.name == "graph" and graph.level == "expanded"


def test_comments_and_line_breaks_mean_nothing():
    text = "// one\ngraph @g(\n%x:f32[ 2 , 3 ]){%y=exp(%x)//two\n// three {\nreturn\n%y}// four"
    assert str(parse_graph(text)) == "graph @g(%x: f32[2,3]) {\n  %y: f32[2,3] = exp(%x)\n  return %y\n}\n"


@pytest.mark.parametrize(
    ("literal", "type", "value"),
    [
        ("1", "i64[]", 1),
        ("1.0", "f32[]", 1.0),
        ("nan", "f32[]", np.nan),
        ("True", "bool[]", True),
        ("[[1, 2], [3, 4]]", "i64[2,2]", [[1, 2], [3, 4]]),
        ("[1, 2.5]", "f32[2]", [1, 2.5]),
        ("[True, False]", "bool[2]", [True, False]),
        ("[]", "f32[0]", []),
        ("[[], []]", "f32[2,0]", [[], []]),
        ("f16[2] 3", "f16[2]", [3, 3]),
        ("u8[2] [1, 255]", "u8[2]", [1, 255]),
    ],
)
def test_constants_without_a_declared_type(literal, type, value):
    constant = parse_graph(f"graph() {{ %c = constant() {{value = {literal}}} return %c }}").ops[0]
    assert str(constant.result.type) == type
    np.testing.assert_array_equal(constant.attrs["value"], value)
    assert not constant.attrs["value"].flags.writeable


@pytest.mark.parametrize(
    ("type", "literal", "value"),
    [
        ("f32[2,2]", "7", [[7, 7], [7, 7]]),
        ("f32[0,3]", "[]", np.zeros((0, 3))),
        ("f32[0,3]", "1", np.zeros((0, 3))),
        ("bool[2]", "[0, 1]", [False, True]),
        ("i8[]", "-128", -128),
        ("f64[]", "1e-320", 1e-320),
        ("f32[]", "f32[] 2", 2),
    ],
)
def test_constants_of_a_declared_type(type, literal, value):
    constant = parse_graph(f"graph() {{ %c: {type} = constant() {{value = {literal}}} return %c }}").ops[0]
    assert str(constant.result.type) == type
    np.testing.assert_array_equal(constant.attrs["value"], value)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_bit_of_a_constant_comes_back(dtype):
    rng = np.random.default_rng(0)
    width = dtype.itemsize
    if dtype.name == "bool":
        flat = rng.integers(0, 2, 64).astype(bool)
    else:
        flat = rng.integers(0, 256, 600 * width, np.uint8).view(dtype.numpy)
    if dtype.is_float:
        special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1, 0.1, 1e-3, 32768, 1 / 3], dtype.numpy)
        payloads = (bits(np.array([np.nan], dtype.numpy)) + 1).view(dtype.numpy)
        flat = np.concatenate([special, -special, payloads, -payloads, flat])
    for array in (flat, flat[:6].reshape(1, 2, 3), flat[:1].reshape(()), flat[:0].reshape(2, 0), flat[3:4]):
        b = Builder()
        text = print_graph(b.build([b.constant(array)]))
        back = parse_graph(text).ops[0].attrs["value"]
        assert back.shape == array.shape and back.dtype == array.dtype
        assert back.tobytes() == np.ascontiguousarray(array).tobytes(), text


def test_short_spellings():
    def shown(value, dtype):
        b = Builder()
        return re.search(r"value = (.*)}", print_graph(b.build([b.constant(value, dtype)])))[1]

    assert shown(0.1, "f32") == "0.1"
    assert shown([0.1, 2], "bf16") == "[0.1, 2.0]"
    assert shown(32768, "f16") == "32768.0"
    assert shown(np.full((2, 3), -0.0), "f32") == "-0.0"
    assert shown([0.0, -0.0], "f32") == "[0.0, -0.0]"
    assert shown([np.nan, np.nan], "f32") == "nan"
    assert shown(np.array([0x7FC00001, 0x7FC00002], np.uint32).view(np.float32), None) == "[0x7fc00001, 0x7fc00002]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (-(2**63), "-9223372036854775808"),
        (1.5, "1.5"),
        (1e300, "1e+300"),
        (-0.0, "-0.0"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (float("nan"), "nan"),
        (True, "True"),
        (None, "None"),
        ('a\n"b" \\ ü \ud800', None),
        ((), "()"),
        ((1,), "(1,)"),
        (((1, 2.0), ("x", None), ()), '((1, 2.0), ("x", None), ())'),
        (F32, "f32"),
        (tensor("bf16", 2, 0), "bf16[2,0]"),
        (TensorType(F32), "f32[]"),
        (np.array([1, 2], np.int8), "i8[2] [1, 2]"),
        (np.float32([[0.5, 0.5]]), "f32[1,2] 0.5"),
        ((np.array([True]), 3), "(bool[1] [True], 3)"),
    ],
)
def test_attributes_come_back(value, text):
    b = Builder()
    (y,) = b.emit("neg", [b.input("x", tensor("f32", 2))], {".note": value})
    printed = print_graph(b.build([y]))
    if text is not None:
        assert f"{{.note = {text}}}" in printed
    back = parse_graph(printed).ops[0].attrs[".note"]
    assert type(back) is type(value) and opdef.attr_key(back) == opdef.attr_key(value)
    assert print_graph(parse_graph(printed)) == printed


def test_attributes_without_a_text_form_are_refused():
    b = Builder()
    (y,) = b.emit("neg", [b.input("x", tensor("f32", 2))], {".note": {1: 2}})
    with pytest.raises(IRError, match="an attribute of type dict has no text form"):
        print_graph(b.build([y]))


def test_defaults_are_left_out_and_come_back():
    b = Builder()
    x = b.input("x", tensor("f32", 2, 4))
    y = b.slice(x, start=(0, 1), size=(2, 2))
    z = b.slice(x, start=(0, 0), size=(2, 2), step=(1, 2))
    text = print_graph(b.build([y, z]))
    assert "%0: f32[2,2] = slice(%x) {start = (0, 1), size = (2, 2)}\n" in text
    assert "step = (1, 2)}" in text
    assert parse_graph(text).ops[0].attrs["step"] is None


def test_names():
    b = Builder("my graph")
    x = b.input("x", tensor("f32"))
    other, digits, odd = (b.input(name, tensor("f32")) for name in ("x", "7", 'a/"b"'))
    y = b.emit("add", [x, other], result_names=["x_1"])[0]
    z = b.emit("add", [digits, odd], result_names=["y"])[0]
    w = b.emit("add", [y, z], result_names=["y"])[0]
    unnamed = b.neg(w)
    text = print_graph(b.build([unnamed]))
    assert text == (
        'graph @"my graph"(%x: f32[], %x_1: f32[], %"7": f32[], %"a/\\"b\\"": f32[]) {\n'
        "  %x_1_1: f32[] = add(%x, %x_1)\n"
        '  %y: f32[] = add(%"7", %"a/\\"b\\"")\n'
        "  %y_1: f32[] = add(%x_1_1, %y)\n"
        "  %0: f32[] = neg(%y_1)\n"
        "  return %0\n}\n"
    )
    back = parse_graph(text)
    assert print_graph(back) == text
    assert [v.name for v in back.inputs] == ["x", "x_1", "7", 'a/"b"']


def test_many_equal_names_stay_cheap():
    b = Builder()
    x = b.input("x", tensor("f32"))
    for _ in range(20_000):
        x = b.emit("neg", [x], result_names=["y"])[0]
    assert "%y_19999" in print_graph(b.build([x]))


def test_deep_chains_do_not_recurse():
    b = Builder()
    x = b.input("x", tensor("f32", 2))
    for k in range(10_000):
        x = b.neg(x) if k % 2 else b.add(x, x)
    text = print_graph(b.build([x]))
    graph = parse_graph(text)
    verify(graph)
    assert print_graph(graph) == text


def test_nested_regions():
    text = (
        "graph @g(%x: f32[2]) level fused {\n"
        "  %0: f32[2], %1: f32[2] = fused(%x) (@outer(%x: f32[2]) {\n"
        "    %0: f32[2] = fused(%x) ((%y: f32[2]) level legal {\n"
        "      %0: f32[2] = neg(%y)\n"
        "      return %0\n"
        '    }) loc("a.py":1)\n'
        "    return %0, %x\n"
        "  })\n"
        "  return %0\n"
        "}\n"
    )
    graph = parse_graph(text)
    assert print_graph(graph, locs=True) == text
    assert graph.ops[0].regions[0].level == "fused"


G = "graph @g(%x: f32[2], %i: i64[]) {\n"


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "expected 'graph', found the end"),
        ("grph @g() { return }", 1, 1, "expected 'graph', found 'grph'"),
        ("graph @g() { return } }", 1, 23, "expected the end of the text after the graph, found '}'"),
        ("graph @g(x: f32[]) {", 1, 10, "expected an input such as %x: f32[2,3], found 'x'"),
        ("graph @g(%x: f33[2]) {", 1, 14, "unknown element type 'f33'; did you mean 'f32'?"),
        ("graph @g(%x: f32) {", 1, 14, "expected a type such as f32[2,3], found 'f32'"),
        ("graph @g(%x: f32[-1]) {", 1, 14, "a dimension must be an integer below 10**18"),
        ("graph @g(%x: f32[?]) {", 1, 17, "the dimensions of a type are integers >= 0"),
        ("graph @g(%x: f32[2,,3]) {", 1, 14, "a dimension must be an integer below 10**18"),
        ("graph @g(%x: f32[], %x: f32[]) {", 1, 21, "%x is defined twice"),
        ("graph @g() level planed {", 1, 18, "unknown level 'planed'; did you mean 'planned'?"),
        ("graph @g() {arena = } {", 1, 21, "expected a literal, found '}'"),
        (G + "  %y = exp(%z)\n  return %y }", 2, 12, "%z is not defined here"),
        (G + "  %y = exp(%xx)\n  return %y }", 2, 12, "%xx is not defined here; did you mean '%x'?"),
        (G + "  %y = tanhh(%x)\n  return %y }", 2, 8, "unknown operator 'tanhh'; did you mean 'tanh'?"),
        (G + "  %y = add(%x, %i)\n", 2, 8, "add(f32[2], i64[]): operands must have one element type"),
        (G + "  %y = exp(%x, %x)\n", 2, 8, "exp does not take 2 operand(s)"),
        (G + "  %y: f32[3] = exp(%x)\n", 2, 3, "%y is declared f32[3], but exp gives f32[2]"),
        (G + "  %y, %z = exp(%x)\n", 2, 12, "exp has 1 result(s), not 2"),
        (G + "  %y = sort(%x) {axis = 0}\n", 2, 8, "sort has 2 result(s), not 1"),
        (G + "  %y = sort(%x) {axs = 0}\n", 2, 8, "sort has no attribute 'axs'; did you mean 'axis'?"),
        (G + "  %y = sort(%x) {axis = 0, axis = 0}\n", 2, 28, "attribute 'axis' is given twice"),
        (G + "  %y = sort(%x)\n", 2, 8, "sort needs the attribute 'axis'"),
        (G + "  %y = sort(%x) {axis = 'a'}\n", 2, 25, 'unexpected "\'"'),
        (G + '  %y = reduce(%x) {op = "sun", axes = (0,)}\n', 2, 8, "op = 'sun' must be one of"),
        (G + "  %y = transpose(%x) {perm = [0]}\n", 2, 30, "an array needs its type in front"),
        (G + "  %y = transpose(%x) {perm = true}\n", 2, 30, "expected a literal, found 'true'; did you mean 'True'?"),
        (G + "  %y = transpose(%x) {perm = 0x10}\n", 2, 30, "a number in hexadecimal gives an element's bits"),
        (G + f"  %y = transpose(%x) {{perm = {2**64}}}\n", 2, 30, "expected an integer of at most 64 bits"),
        (G + '  %y = exp(%x) loc("a.py")\n', 2, 26, "expected ':', found ')'"),
        (G + '  %y = exp(%x) {.a = "b\n  return', 2, 22, "unexpected a string that does not end on its line"),
        (G + '  %y = exp(%x) {.a = "\\q"}\n  return', 2, 22, "bad string"),
        (G + "  %y @x = exp(%x)\n", 2, 6, "expected an offset in bytes, such as @128"),
        (G + "  update %x = %i\n  return }", 2, 10, "state x has type f32[2] and cannot become i64[]"),
        (G + "  update %x = %x\n  update %x = %x\n  return }", 3, 10, "%x is updated twice"),
        (G + "  return %x\n  %y = exp(%x)\n}", 3, 3, "expected '}' after 'return', found '%y'"),
        (G + "  exp(%x)\n", 2, 3, "expected an op, 'update' or 'return', found 'exp'"),
        (
            G + "  %c: f32[2] = constant() {value = [1, 2, 3]}",
            2,
            36,
            "the array has shape (3,), but its type is f32[2]",
        ),
        (G + "  %c: f32[2,2] = constant() {value = [[1, 2], [3]]}", 2, 49, "a row of 1 where others have 2"),
        (G + "  %c: f32[2] = constant() {value = [1, x]}", 2, 40, "'x' is not a number of type f32"),
        (G + "  %c: f32[2] = constant() {value = [1 2]}", 2, 39, "expected ',' or ']'"),
        (G + "  %c: f32[2] = constant() {value = [1,, 2]}", 2, 39, "expected a number"),
        (G + "  %c: f32[2] = constant() {value = [1, 2}", 2, 36, "this bracket is not closed"),
        (
            G + "  %c: i8[] = constant() {value = 128}",
            2,
            34,
            "'128' is not a number of type i8: it goes from -128 to 127",
        ),
        (G + "  %c: i8[] = constant() {value = 1.5}", 2, 34, "'1.5' is not a number of type i8"),
        (G + "  %c: u8[] = constant() {value = -1}", 2, 34, "'-1' is not a number of type u8: it goes from 0 to 255"),
        (G + "  %c: f16[] = constant() {value = 70000}", 2, 35, "'70000' is too large for f16"),
        (G + "  %c: f32[] = constant() {value = 1e999}", 2, 35, "'1e999' is not a number of type f32: too large"),
        (G + "  %c: f32[] = constant() {value = 0x123456789}", 2, 35, "more than 32 bits"),
        (G + "  %c: bool[] = constant() {value = 2}", 2, 36, "'2' is not a number of type bool"),
        (G + '  %c: f32[] = constant() {value = "a"}', 2, 35, "expected a number or an array"),
        (G + "  %c: f32[9] = constant() {value = ...}", 2, 36, "this constant was left out when the graph was printed"),
        (G + '  %c: f32[] = constant() {value = file("a.npz", "b")}', 2, 35, "this text has no folder"),
    ],
)
def test_errors_have_a_place_and_a_caret(text, line, column, message):
    with pytest.raises(ParseError) as e:
        parse_graph(text, source="net.ir")
    assert message in e.value.message
    assert (e.value.line, e.value.column) == (line, column)
    first, shown, caret = str(e.value).split("\n")[0], *str(e.value).split("\n")[-2:]
    assert first.startswith(f"net.ir:{line}:{column}: {e.value.message.splitlines()[0]}")
    assert shown == "  " + text.split("\n")[line - 1].rstrip()
    assert caret == " " * (column + 1) + "^"


def test_an_error_in_a_very_long_line_shows_its_surroundings():
    text = (
        "graph() { %c: f32[5000] = constant() {value = [" + "1, " * 2500 + "oops, " + "1, " * 2498 + "1]} return %c }"
    )
    with pytest.raises(ParseError) as e:
        parse_graph(text)
    _, shown, caret = str(e.value).split("\n")
    assert len(shown) < 130
    assert shown[caret.index("^") :].startswith("oops")


def test_an_operator_error_names_the_users_line():
    with pytest.raises(ParseError, match=r"at net.py:3 \(net0\)"):
        parse_graph(G + '  %y = exp(%i) loc("net.py":3, "net0")\n  return %y }')


def test_operators_of_a_vocabulary_that_is_not_loaded(monkeypatch):
    primitives = {k: v for k, v in opdef.REGISTRY.items() if not k.startswith("mx.")}
    monkeypatch.setattr(opdef, "REGISTRY", primitives)
    with pytest.raises(ParseError, match="MXNet's vocabulary is not loaded; import gluonjit.operators"):
        parse_graph("graph(%x: f32[]) level traced { %y = mx.relu(%x) return %y }")


@pytest.mark.parametrize(
    "text",
    [
        "graph(%x: f32[" + ",".join(["99999999999"] * 20) + "]) { return %x }",
        "graph(%x: f32[999999999999999999999999]) { return %x }",
        "graph(%x: f32[" + "1," * 40 + "1]) { return %x }",
        "graph() { %c: f32[99999999999] = constant() {value = 1} return %c }",
        "graph() { %c = constant() {value = f64[1000000,1000000] 0} return %c }",
        "graph() {a = " + "(" * 100_000 + ")" * 100_000 + "} { return }",
        "graph() { %c = constant() {value = " + "[" * 100_000 + "]" * 100_000 + "} return %c }",
        "graph() { %c = constant() {value = " + "[" * 100_000,
        "graph() { %a = fused() (" * 10_000,
        "graph() { %c = constant() {value = " + "9" * 100_000 + "} return %c }",
        "graph() {a = " + "9" * 100_000 + "} { return }",
        "graph() {a = 1e" + "9" * 100_000 + "} { return }}",
        "graph(%x: f32[]) { %y @" + "9" * 5000 + " = neg(%x) return %y }",
        'graph(%x: f32[]) { %y = neg(%x) loc("":' + "9" * 5000 + ") return %y }",
        " " * 200_000 + "?",
        "//" + " a" * 100_000 + "\n?",
        '"' + "\\" * 100_001,
        "\0",
        "graph(%x: f32[2]) { %y = broadcast(%x) {shape = 2} return %y }",
        'graph(%x: f32[2]) { %y = reduce(%x) {op = f32, axes = "a"} return %y }',
        "graph(%x: f32[2]) { %y = cast(%x) {dtype = (1, 2)} return %y }",
        "graph(%x: f32[2]) { %y = constant() {value = (1, 2)} return %y }",
        "graph() { %y = iota() {shape = (9223372036854775807, -1), axis = 0.5, dtype = None} return %y }",
        "graph(%x: f32[2]) { %y = fused(%x) ((%a: f32[3]) { return %a }) return %y }",
        "graph(%x: f32[2]) { %y = neg(%x) ((%a: f32[3]) { return %a }) return }}",
    ],
    ids=range(25),
)
def test_hostile_texts_only_fail(text):
    with pytest.raises(ParseError) as e:
        parse_graph(text)
    assert len(str(e.value)) < 2000


def test_damaged_texts_only_fail():
    rng = random.Random(0)
    texts = [PLANNED, *(print_graph(random_program(seed, level="fused").graph, locs=True) for seed in range(20))]
    pieces = [*'%@()[]{}=,:."-09 \nx', "nan", "True", "None", "f32[2]", "return", "graph", "0x", "fused", "%x", "1e9"]
    parsed, rounds = 0, tries(400)
    for _ in range(rounds):
        text = rng.choice(texts)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            end = at + rng.choice([0, 0, 1, 1, 5])
            text = text[:at] + rng.choice(["", rng.choice(pieces)]) + text[end:]
        try:
            print_graph(parse_graph(text), locs=True)
            parsed += 1
        except ParseError:
            pass
    assert 0 < parsed < rounds


# Files ----------------------------------------------------------------------------------------------------------------


def graph_with_constants():
    b = Builder("net")
    rng = np.random.default_rng(0)
    big = b.constant(rng.standard_normal((20, 30)), "f32")
    again = b.constant(big_value := rng.standard_normal(500).astype(ml_dtypes.bfloat16))
    small = b.constant([1, 2], "i8")
    same = b.constant(np.zeros(5000, np.float32))
    return b.build([big, again, small, same]), big_value


def test_big_constants_go_to_an_archive(tmp_path):
    graph, _ = graph_with_constants()
    save(graph, tmp_path / "net.ir")
    text = (tmp_path / "net.ir").read_text()
    assert 'constant() {value = file("net.npz", "c0")}' in text
    assert 'constant() {value = file("net.npz", "c1")}' in text
    assert "{value = [1, 2]}" in text and "{value = 0.0}" in text
    back = load(tmp_path / "net.ir")
    for a, b in zip(graph.ops, back.ops, strict=True):
        assert a.result.type == b.result.type
        assert a.attrs["value"].tobytes() == b.attrs["value"].tobytes()


def test_no_archive_without_need(tmp_path):
    save(parse_graph(PLANNED), tmp_path / "net.ir")
    assert [p.name for p in tmp_path.iterdir()] == ["net.ir"]
    assert print_graph(load(tmp_path / "net.ir"), locs=True) == PLANNED


def test_an_archive_may_serve_as_attribute_of_any_op(tmp_path):
    np.savez(tmp_path / "a.npz", k=np.arange(3, dtype=np.int32))
    text = 'graph(%x: f32[]) { %y = neg(%x) {.table = i32[3] file("a.npz", "k")} return %y }'
    table = parse_graph(text, folder=tmp_path).ops[0].attrs[".table"]
    np.testing.assert_array_equal(table, [0, 1, 2])
    spill = Spill("b.npz", limit=2)
    assert 'i32[3] file("b.npz", "c0")' in print_graph(parse_graph(text, folder=tmp_path), spill=spill)
    assert list(spill.arrays) == ["c0"]


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ('file("missing.npz", "k")', "cannot read 'k'"),
        ('file("a.npz", "nothing")', "cannot read 'nothing'"),
        ('file("broken.npz", "k")', "cannot read 'k'"),
        ('file("../a.npz", "k")', "'../a.npz' is not the plain name of a file"),
        ('file("/etc/passwd", "k")', "'/etc/passwd' is not the plain name of a file"),
        ('file("a.npz", "pickled")', "cannot read 'pickled'"),
        ('file("a.npz", "long")', "it is int64[4], not i32[3]"),
        ('file("a.npz")', "expected ',', found ')'"),
    ],
)
def test_bad_references_to_archives(tmp_path, reference, message):
    np.savez(
        tmp_path / "a.npz",
        k=np.arange(3, dtype=np.int32),
        long=np.arange(4),
        pickled=np.array([{}], object),
    )
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(ParseError) as e:
        parse_graph(f"graph() {{ %c: i32[3] = constant() {{value = {reference}}} return %c }}", folder=tmp_path)
    assert message in e.value.message


def test_elided_constants_are_for_people_only():
    b = Builder()
    text = print_graph(b.build([b.constant(np.arange(100.0), "f32")]), elide=10)
    assert "%0: f32[100] = constant() {value = ...}" in text
    with pytest.raises(ParseError, match="left out when the graph was printed"):
        parse_graph(text)


def crafted(path, shape, data, method=zipfile.ZIP_STORED):
    """An archive with the array `k`, whose header says `shape`."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n".encode("latin-1")
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("k.npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data)


def test_archives_are_bounded_before_memory_is_taken(tmp_path):
    def read():
        parse_graph('graph() { %c = constant() {value = f32[2] file("a.npz", "k")} return %c }', folder=tmp_path)

    path = tmp_path / "a.npz"
    crafted(path, (2,), bytes(8))
    read()
    cases = [
        ((1 << 40,), bytes(8), zipfile.ZIP_STORED, "not f32.2."),
        ((2,), bytes(1 << 20), zipfile.ZIP_DEFLATED, "it has 10486.. bytes, f32.2. has 8"),
        ((2,), bytes(8), zipfile.ZIP_BZIP2, "compressed otherwise"),
    ]
    for shape, data, method, said in cases:
        crafted(path, shape, data, method)
        with pytest.raises(ParseError, match=said):
            read()
    np.save(tmp_path / "a.npy", np.zeros(2, np.float32))
    (tmp_path / "a.npy").rename(path)
    with pytest.raises(ParseError, match="not a zip file"):
        read()


def test_directories_of_archives_are_bounded(monkeypatch, tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, **{f"c{k}": np.zeros(1, np.float32) for k in range(10)})
    text = 'graph() { %c = constant() {value = f32[1] file("a.npz", "c1")} return %c }'
    parse_graph(text, folder=tmp_path)
    monkeypatch.setattr(archive, "MAX_DIRECTORY", 100)
    with pytest.raises(ParseError, match="a directory of 5.. bytes; 100 is the most"):
        parse_graph(text, folder=tmp_path)
    with pytest.raises(CheckpointError, match="a directory of"):
        nd.load(str(path))


def test_places_in_the_text():
    text = 'graph @f(%x: f32[2]) {\n  %y = tanh(%x)\n  %z = exp(%y) loc("m.py":7, "a")\n  return %z\n}\n'
    places = [str(op.loc) for op in parse_graph(text, source="f.ir", places=True).ops]
    assert places == ["f.ir:2 (f/y)", "m.py:7 (a)"]
    assert parse_graph(text, source="f.ir").ops[0].loc is None
