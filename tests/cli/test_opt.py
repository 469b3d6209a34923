"""`gluonjit opt`, for authors of passes: plug-ins, named pipelines, explanations, reduction, several graphs a file."""

from pathlib import Path

import pytest

from gluonjit.ir.opdef import REGISTRY, Primitive
from gluonjit.ir.text import parse_graph
from gluonjit.ir.verify import verify
from gluonjit.tools.cli import main
from gluonjit.tools.cli.primitives import primitive_example, results_of

TWO = """\
graph @g(%x: f32[3]) { %y = neg(%x) %z = neg(%y) %w = mul(%z, %z) return %w }
// -----
graph @h(%x: f32[3]) { %y = exp(%x) %z = tanh(%y) return %z }
"""
LOADED = """
from gluonjit.ir.graph import rewrite
from gluonjit.passes import register_pass


@register_pass("drop-exp-NUMBER")
def drop_exp(graph):
    '''Wrong on purpose: exp(x) is x.'''
    return rewrite(graph, lambda b, op, operands: operands if op.name == "exp" else None)


@register_pass("bad-rule-NUMBER")
def bad_rule(graph):
    '''Returns a value, not a tuple of it.'''

    def rule(b, op, operands):
        return b.tanh(operands[0]) if op.name == "exp" else None

    return rewrite(graph, rule)
"""


@pytest.fixture
def opt(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.ir").write_text(TWO)

    def opt(*arguments):
        status = main(["opt", *arguments])
        return status, *capsys.readouterr()

    return opt


@pytest.fixture
def loaded(tmp_path, request):
    """A program that declares passes; each test has its own, as a name cannot be declared twice."""
    number = str(abs(hash(request.node.name)))
    (tmp_path / "mine.py").write_text(LOADED.replace("NUMBER", number))
    return number


def test_each_graph_of_a_file(opt):
    status, out, _ = opt("two.ir", "-p", "llvm", "--stop-after", "cse")
    assert status == 0
    first, second = out.split("\n// -----\n\n")
    assert "mul(%x, %x)" in first and "exp" in second


@pytest.mark.parametrize(
    ("stop", "level"), [("expand", "expanded"), ("3", "legal"), ("fuse", "fused"), ("name-values", "fused")]
)
def test_stop_after(opt, stop, level):
    _, out, _ = opt("two.ir", "-p", "llvm", "--stop-after", stop)
    assert level == "expanded" or out.count(f"level {level}") == 2


def test_a_misspelt_pipeline(opt):
    assert "unknown pass 'lvm'; did you mean 'llvm'?" in opt("two.ir", "-p", "lvm")[2]


def test_stop_after_what_does_not_run(opt):
    assert "did you mean 'simplify'?" in opt("two.ir", "-p", "llvm", "--stop-after", "simplfy")[2]
    assert "there are 1 passes" in opt("two.ir", "-p", "dce", "--stop-after", "2")[2]


def test_explain_what_was_left_alone(opt):
    Path("p.ir").write_text(
        "graph @f(%x: f32[4,4], %w: f32[4,4]) level legal {\n  %a = dot_general(%x, %w) {contract = ((1,), (0,))}\n"
        "  %b = mul(%a, %a)\n  %c = dot_general(%b, %w) {contract = ((1,), (0,))}\n  return %c\n}\n"
    )
    _, _, err = opt("p.ir", "-p", "simplify,fuse", "--explain", "fuse")
    assert "left alone: mul %b: f32[4,4], because the kernel of the product in front can compute it, but" in err
    _, _, err = opt("p.ir", "-p", "simplify,fuse", "--explain", "simplify")
    assert (
        "nothing to do" in err and "no use for rule" in err and "asked about 1 op:" in err and "left alone" not in err
    )


def test_explain_a_border_of_the_layout(opt):
    Path("c.ir").write_text(
        "graph @f(%x: f32[1,4,8,8], %w: f32[8,4,3,3]) level legal {params = (1,)} {\n"
        "  %y = conv(%x, %w) {stride = (1, 1), low = (1, 1), high = (1, 1), dilation = (1, 1), groups = 1, "
        'input_dilation = (1, 1), layout = ("NC01", "OI01", "NC01")}\n'
        "  %z = tanh(%y)\n  %s, %t = sort(%z) {axis = 3, descending = False}\n  return %s\n}\n"
    )
    _, _, err = opt("c.ir", "-p", "layout", "--explain", "layout")
    assert err.count("left alone") == 1
    assert "left alone: sort %s: f32[1,8,8,8], because it does not run channels-last, so what it reads" in err


def test_explain(opt):
    _, _, err = opt("two.ir", "-p", "legalize-broadcast,simplify", "--explain", "simplify")
    assert "rule involution, 1×: -(-x)" in err
    assert "ops: neg 2 → 1" in err
    assert "nothing to do" in err  # for the other graph
    assert "it is not among the passes" in opt("two.ir", "-p", "dce", "--explain", "cse")[2]


def test_print_before_and_after(opt):
    _, _, err = opt(
        "two.ir", "-p", "legalize-broadcast,simplify,dce", "--print-before", "simplify", "--print-after", "dce"
    )
    assert err.count("// Before simplify") == 2 and err.count("// After dce") == 2
    assert "After simplify" not in err


def test_a_loaded_pass_and_its_reduction(opt, loaded):
    status, out, err = opt("two.ir", "--load", "mine.py", "-p", f"drop-exp-{loaded}", "--reduce", "differs")
    assert status == 1 and "does not show the fault" in err  # the first graph has no exp
    status, out, err = opt("two.ir", "-p", "", "--reduce", "grep -Eq 'exp|neg' {}")
    assert status == 0
    assert "3 ops reduced to 1" in err and "2 ops reduced to 1" in err


def test_reduce_needs_a_place_for_the_file(opt):
    assert "a command in which {} is the graph's file" in opt("two.ir", "-p", "", "--reduce", "false")[2]


def test_reduce_where_the_folder_has_a_space_and_a_quote(opt, tmp_path, monkeypatch):
    (tmp_path / "a 'b").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "a 'b"))
    assert "3 ops reduced to 1" in opt("two.ir", "-p", "", "--reduce", "grep -Eq 'exp|neg' {}")[2]


def test_what_cannot_be_run_or_read(opt, tmp_path):
    assert "cannot be run: " in opt("two.ir", "-p", "", "--reduce", "./no-such-command {}")[2]
    assert "a command in which {} is the graph's file" in opt("two.ir", "-p", "", "--reduce", "")[2]
    assert "--load : Empty module name" in opt("two.ir", "-p", "", "--load", "")[2]
    (tmp_path / "bytes.ir").write_bytes(b"\xff")
    assert "bytes.ir: byte 0: not UTF-8" in opt(str(tmp_path / "bytes.ir"), "-p", "")[2]


def test_what_a_rule_returns_is_checked(opt, loaded):
    _, _, err = opt("two.ir", "--load", "mine.py", "-p", f"bad-rule-{loaded}")
    assert "the rewrite bad_rule.rule of exp(f32[3]) returned" in err
    assert "a sequence of values, as (value,), or None" in err


def test_load_of_what_is_not_there(opt):
    assert opt("two.ir", "--load", "nowhere.py", "-p", "dce")[2].startswith("error: there is no file nowhere.py")
    assert "--load no_such_module" in opt("two.ir", "--load", "no_such_module", "-p", "dce")[2]


def test_expected_errors(opt, tmp_path):
    text = "graph @a() {\n  %x = tang() // error: unknown operator 'tang'\n  return\n}\n// -----\n" + TWO
    (tmp_path / "errors.ir").write_text(text)
    status, out, _ = opt("errors.ir", "-p", "dce", "--expect-errors")
    assert status == 0 and out.count("graph @") == 2
    assert opt("errors.ir", "-p", "dce")[0] == 1
    (tmp_path / "errors.ir").write_text(text.replace("error: unknown", "error: misspelt"))
    assert "the error does not say" in opt("errors.ir", "-p", "dce", "--expect-errors")[2]


@pytest.mark.parametrize("stage", ["trace", "expanded", "optimized"])
def test_dumps_of_every_level_come_back(opt, stage, root, capsys):
    main(["dump", f"{root}/examples/lenet.py:net", "--input", "2x1x28x28", "--stage", stage])
    text = capsys.readouterr().out
    with open("dump.ir", "w") as f:
        f.write(text)
    assert opt("dump.ir", "-p", "")[1] == text


@pytest.mark.parametrize(
    "command", [["passes"], ["passes", "simplify"], ["primitives"], ["ops"], ["ops", "Convolution"]]
)
def test_lists_are_wrapped_and_nothing_is_lost(command, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    main(command)
    whole = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    main(command)
    out = capsys.readouterr().out
    text = out.partition("Example: ")[0]  # code is not wrapped
    assert [line for line in text.splitlines() if len(line) > 80 and not line.startswith(">>>")] == []
    assert out.split() == whole.split()


def test_lists_have_whole_sentences(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    main(["passes"])
    assert " if their factors, as far as they are no rows yet, are smaller than a product." in capsys.readouterr().out


def test_descriptions(capsys):
    main(["passes", "simplify"])
    out = capsys.readouterr().out
    assert "rule involution (neg, not" in out and "Example: " in out
    main(["primitives", "dot_general"])
    out = capsys.readouterr().out
    assert out.startswith("dot_general(") and "attribute contract, required" in out and "a contraction" in out
    main(["primitives"])
    assert len(capsys.readouterr().out.splitlines()) > 80
    assert main(["primitives", "dot_genral"]) == 1
    assert "did you mean 'dot_general'?" in capsys.readouterr().err


def test_every_primitive_has_an_example():
    """But for the one that calls a Python function."""
    names = {name for name, op in REGISTRY.items() if isinstance(op, Primitive)}
    names -= {name for name in names if not REGISTRY[name].infer_types.__module__.startswith("gluonjit.")}  # of tests
    examples = {name: primitive_example(name) for name in names}
    assert {name for name, text in examples.items() if text is None} == {"host_call"}
    for name, text in examples.items():
        if text is not None:
            graph = parse_graph(text)
            verify(graph)
            assert graph.name == name and name in {op.name for op in graph.ops}
            assert len(results_of(text)) == len(graph.outputs) >= 1


def test_a_primitive_shows_its_operands_and_its_example(capsys):
    main(["primitives", "concat"])
    out = capsys.readouterr().out
    assert out.startswith("concat(*xs)\n") and "%y = concat(%a, %b) {axis = 0}" in out
    assert out.endswith("returns\n\n  f32[3,2] [[1., 2.],\n            [3., 4.],\n            [5., 6.]]\n")
