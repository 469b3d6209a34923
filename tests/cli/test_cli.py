"""The command line, as a user types it."""

import argparse
import io
import os
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from gluonjit.tools import cli
from gluonjit.tools.cli import main, make_parser
from support.documents import QUICK

SUM = """graph @sum() {
  %a: f32[] = constant() {value = 1} %b: f32[] = constant() {value = 2} %c = add(%a, %b)
  %d: f32[] = constant() {value = 3} %e: f32[] = constant() {value = 4} %f = add(%d, %e)
  %g = add(%c, %f) return %g }
"""

MODEL = """
import gluonjit as mx
from gluonjit.gluon import nn

class Scale(mx.gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.tanh(x * 2)

def net():
    block = nn.HybridSequential(prefix="net_")
    with block.name_scope():
        block.add(nn.Dense(3, activation="relu"), Scale())
    block.initialize(mx.init.Xavier())
    return block

scale = Scale()
number = 3
"""


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Runs a command in an empty folder that holds model.py; gives (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)

    def run(*arguments, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        try:
            status = main(arguments)
        except SystemExit as e:
            status = e.code
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_each_command_is_the_file_of_its_name():
    (commands,) = (a.choices for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction))
    assert [name for name in commands if find_spec(f"gluonjit.tools.cli.{name}") is None] == []
    assert [*commands] == [*cli.COMMANDS]
    (alone,) = (a.choices for a in make_parser("dump")._actions if isinstance(a, argparse._SubParsersAction))
    assert [*alone] == ["dump"]
    (none,) = (a.choices for a in make_parser("")._actions if isinstance(a, argparse._SubParsersAction))
    assert [*none] == []


def test_constants_fold(run):
    status, out, _ = run("opt", "-", "-p", "fold,dce", stdin=SUM)
    assert status == 0
    assert out.count("constant") == 1 and "value = 10.0" in out and "add" not in out


def test_opt_reports(run, tmp_path):
    (tmp_path / "g.ir").write_text(SUM)
    status, out, err = run(
        "opt", "g.ir", "-p", "fold,dce", "--print-after-all", "--diff", "--timing", "--dump-dir", "d"
    )
    assert status == 0
    assert "// After fold" in err and "+ " in err and "total" in err
    assert sorted(p.name for p in (tmp_path / "d").iterdir()) == ["00-input.ir", "01-fold.ir", "02-dce.ir"]
    again, text, _ = run("opt", "d/02-dce.ir", "-p", "dce")
    assert again == 0 and text == out


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (("opt", "-", "-p", "fold"), "graph @g( {", ("<stdin>:1:11", "^")),
        (("opt", "-", "-p", "fold"), "graph @g() { %a = ad(%b) return %a }", ("error:",)),
        (("opt", "-", "-p", "fould"), SUM, ("did you mean 'fold'",)),
        (("opt", "missing.ir", "-p", "fold"), "", ("missing.ir",)),
        (("dump", "missing.py:net", "--input", "1x3"), "", ("there is no file missing.py",)),
        (("dump", "model.py:nett", "--input", "1x3"), "", ("did you mean 'net'",)),
        (("dump", "model.py", "--input", "1x3"), "", ("model.py:NAME",)),
        (("dump", "model.py:number", "--input", "1x3"), "", ("not a gluon Block",)),
        (("dump", "model.py:net"), "", ("--input",)),
        (("ops", "Convolutoin"), "", ("Convolution",)),
    ],
)
def test_mistakes_are_one_error(run, arguments, stdin, words):
    status, out, err = run(*arguments, stdin=stdin)
    assert status == 1 and out == ""
    assert err.startswith("error: ") and "Traceback" not in err
    assert all(word in err for word in words), err


@pytest.mark.parametrize("arguments", [(), ("frobnicate",), ("opt", "-"), ("dump", "model.py:net", "--input", "3by4")])
def test_wrong_usage_is_status_2(run, arguments):
    status, _, err = run(*arguments)
    assert status == 2 and "usage:" in err
    assert bool(arguments) != ("list the compiler's passes" in err)  # without a command, all of them are told


def test_a_failing_model_names_its_line(run, tmp_path):
    (tmp_path / "bad.py").write_text("x = 1\ny = x / 0\n")
    status, _, err = run("dump", "bad.py:net", "--input", "1x3")
    assert status == 1 and "bad.py failed at line 2: ZeroDivisionError" in err


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("trace", ("level traced", "mx.FullyConnected", "mx.tanh")),
        ("expanded", ("dot_general", "tanh")),
        ("optimized", ("level planned", "prepare", "fused")),
        ("llvm", ("define void @main", "target triple")),
        ("asm", ("main:",)),
        ("joint", ("dot_general", "tanh", "primals = 1", "cotangents = 1")),
        ("forward", ("_forward(", "dot_general", "tanh", "saved_bytes = ")),
        ("backward", ("_backward(", "dot_general", "saved = (")),
    ],
)
def test_every_stage(run, stage, words):
    status, out, err = run("dump", "model.py:net", "--input", "2x5", "--stage", stage)
    assert status == 0, err
    assert all(word in out for word in words)


def test_gradients_of_what_has_none(run, tmp_path):
    (tmp_path / "signs.py").write_text(
        "from gluonjit.gluon import nn\nnet = nn.HybridLambda(lambda F, x: F.sign(x))\n"
        "square = nn.HybridLambda(lambda F, x: x * x)\n"
    )
    status, _, err = run("dump", "signs.py:net", "--input", "2x5", "--stage", "backward")
    assert status == 1 and "no output of" in err and "has a gradient" in err
    status, out, _ = run("dump", "signs.py:square", "--input", "2x5", "--stage", "backward")
    assert status == 0 and "saved = (0,)" in out  # by the input, for there is no parameter


def test_gradients_are_those_of_training(run, tmp_path):
    (tmp_path / "norm.py").write_text(
        "from gluonjit.gluon import nn\nnet = nn.BatchNorm(in_channels=5, prefix='norm_')\nnet.initialize()\n"
    )
    status, out, err = run("dump", "norm.py:net", "--input", "2x5", "--stage", "backward")
    assert status == 0, err
    assert "update %norm_running_mean =" in out
    *_, results = out.rstrip("}\n").rpartition("return ")
    assert len(results.split(",")) == 2  # gamma and beta


def test_opt_differentiates(run):
    text = "graph @g(%x: f32[3]) { %y = sin(%x) return %y }"
    status, out, _ = run("opt", "-", "-p", "legalize-broadcast, differentiate", stdin=text)
    assert status == 0 and "cos(%x)" in out
    status, out, err = run("opt", "-", "-p", "differentiate", stdin=text)
    assert status == 1 and "run legalize-broadcast before" in err
    status, out, _ = run(
        "opt", "-", "-p", 'legalize-broadcast, differentiate, partition {half = "backward"}', stdin=text
    )
    assert status == 0 and "@g_backward(" in out


def test_a_printed_stage_is_input_again(run, tmp_path):
    _, out, _ = run("trace", "model.py:scale", "--input", "2x5")
    (tmp_path / "traced.ir").write_text(out)
    status, _, err = run("opt", "traced.ir", "-p", "expand, legalize-broadcast")
    assert status == 0, err


def test_run_compares_with_the_reference(run, tmp_path):
    (tmp_path / "g.ir").write_text(
        "graph @g(%x: f32[3,4]) { %y = exp(%x) %z = reduce(%y) {op = 'sum', axes = (1,)} return %z }".replace("'", '"')
    )
    for arguments in (("run", "g.ir", "--random", "7"), ("run", "model.py:net", "--input", "2x5")):
        status, out, err = run(*arguments)
        assert status == 0, err
        assert float(out.rsplit(" ", 1)[1]) <= 1e-5


def test_run_describes_large_results(run, tmp_path):
    (tmp_path / "iota.ir").write_text(
        "graph @f() { %0 = iota() {shape = (2, 5, 10), axis = 2, dtype = f32} return %0 }"
    )
    _, out, err = run("run", "iota.ir")
    said = ["output 0: f32[2,5,10], from 0 to 9, mean 4.5", "first elements: 0. 1. 2. 3. 4. 5. ..."]
    assert out.splitlines()[:2] == said, err


def test_bench_times_both_modes(run):
    status, out, err = run("bench", "model.py:net", "--input", "2x5", "--rounds", "3", "--seconds", "0.001")
    assert status == 0, err
    assert "imperative" in out and "hybridized" in out


def test_bench_times_steps_of_training(run):
    words = ("--input", "2x5", "--rounds", "1", "--seconds", "0.001", "--train")
    status, out, err = run("bench", "model.py:net", *words)
    first, _, imperative, hybridized = out.splitlines()
    assert (status, err) == (0, "") and first.startswith("first hybridized step")
    assert imperative.startswith("imperative") and hybridized.startswith("hybridized")
    assert "without --train" in run("bench", "model.py:net", "--against", "model.py:net", *words)[2]


def test_reports(run):
    assert "Convolution" in run("ops")[1]
    assert "num_filter : int, required" in run("ops", "Convolution")[1]
    assert "plan-memory" in run("passes")[1]
    assert "LLVM" in run("doctor")[1]


def examples(command):
    """The lines under "example:" in a command's help."""
    actions = [a for a in make_parser()._actions if a.choices and command in a.choices]
    return [line.strip() for line in actions[0].choices[command].epilog.splitlines()[1:]]


COMMANDS = [
    "trace",
    "dump",
    "opt",
    "run",
    "bench",
    "profile",
    "report",
    "check",
    "compile",
    "build",
    "inspect",
    "convert",
    "exec",
    "coverage",
    "cache",
]
COMMANDS += ["ops", "passes", "primitives", "doctor"]


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_in_the_help_can_be_pasted(run, command, root, tmp_path, monkeypatch):
    if command == "compile":  # which needs a cache
        monkeypatch.setenv("GLUONJIT_CACHE", "1")
        monkeypatch.setenv("GLUONJIT_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "examples").symlink_to(root / "examples")
    status, text, _ = run(command, "--help")
    assert status == 0
    for example in examples(command):
        assert f"  {example}\n" in text
        if "onnx" in example and not find_spec("onnx"):
            continue
        if any(sign in example for sign in (";", "|", "&&")):
            line = example.replace("gluonjit ", f"{sys.executable} -m gluonjit ")
            subprocess.run(line, shell=True, check=True, capture_output=True)
            continue
        _, *words = shlex.split(example)
        status, out, err = run(*words, *QUICK.get(command, []))
        assert status == 0 and out, err


def test_every_command_is_tried():
    subcommands = [a.choices for a in make_parser()._actions if isinstance(a.choices, dict)]
    elsewhere = ("serve", "score", "warm")  # in tests/serving and tests/runtime/test_kernel_files.py
    assert sorted(subcommands[0]) == sorted([*COMMANDS, *elsewhere])


def test_the_module_runs():
    done = subprocess.run([sys.executable, "-m", "gluonjit", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("gluonjit ")


@pytest.mark.parametrize("arguments", [("ops",), ("--help",), ("exec", "prints.py")], ids=lambda words: words[0])
def test_a_closed_pipe_is_no_error(tmp_path, arguments):
    (tmp_path / "prints.py").write_text("for k in range(10000): print(k)")
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "gluonjit", *arguments]
    with open(writer, "wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_closed_stdout_is_no_error(tmp_path):
    command = f"{shlex.quote(sys.executable)} -m gluonjit passes >&-"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("count", ["0", "100000", "-1", "x", "1.5"])
def test_numbers_of_threads(run, count):
    status, _, err = run("profile", "model.py:net", "--input", "2x5", "--threads", count)
    assert status == 2 and "the number of threads is 1 to" in err


def test_steps_are_compiled_ahead(run, tmp_path, monkeypatch):
    monkeypatch.setenv("GLUONJIT_CACHE_DIR", str(tmp_path / "cache"))
    words = ("compile", "model.py:net", "--input", "2x5", "--train")
    assert "both halves of a step, 2 codes in" in run(*words)[1]
    assert "2 of them there already, kept in" in run(*words)[1]
    status, _, err = run(*words, "--target", "aarch64")
    assert status == 1 and "set GLUONJIT_TARGET instead of --target" in err


@pytest.mark.parametrize("option", ["--train", "--train-mode"])
def test_training_mode_has_a_name_of_its_own(run, option):
    assert run("check", "model.py:net", "--input", "2x5", option)[0] == 0
    assert "--train-mode" in run("dump", "--help")[1]
    assert "--train-mode" not in run("compile", "--help")[1].partition("examples:")[0]


def test_a_byte_order_mark(run):
    Path("sum.ir").write_text("\ufeff" + SUM, encoding="utf-8")
    assert run("run", "sum.ir")[0] == 0 and run("opt", "sum.ir", "-p", "fold")[0] == 0


def test_interrupted(run, monkeypatch):
    with open("model.py", "a") as file:
        file.write("\ndef interrupted():\n    raise KeyboardInterrupt\n")
    for command in ("trace", "dump", "run", "bench"):
        assert run(command, "model.py:interrupted", "--input", "2x3") == (130, "", "")

    def parser(command):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "make_parser", parser)
    assert run("ops") == (130, "", "")


def test_opt_looks_at_its_target_whether_or_not_a_pass_does(run):
    status, out, err = run("opt", "-", "-p", "fold", "--target", "nonsense", stdin=SUM)
    said = "error: unknown target 'nonsense'; there are host, x86-64-v2, x86-64-v3, x86-64-v4, aarch64"
    assert (status, out) == (1, "") and err.startswith(said)


def test_opt_without_passes_prints_the_graph(run):
    status, out, _ = run("opt", "-", "-p", "", stdin=SUM)
    assert status == 0 and out.count("add") == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("opt", "none.ir", "-p", "fold"), "none.ir: No such file or directory"),
        (("opt", ".", "-p", "fold"), ".: Is a directory"),
        (("opt", "sum.ir", "-p", "fold", "--dump-dir", "sum.ir"), "sum.ir: File exists"),
        (("run", ""), "there is no file '', nor a model of that name in the zoo"),
        (("dump", ":net", "--input", "2x3"), "there is no file ':net', nor a model of that name in the zoo"),
        (("run", "latin.ir"), "latin.ir: byte 0: not UTF-8 (invalid continuation byte); expected a graph's text"),
        (("run", "x.ir", "--input", "x=2", "--input", "x=2"), "input x is given twice"),
    ],
)
def test_mistakes_with_files_name_them(run, arguments, said):
    Path("sum.ir").write_text(SUM)
    Path("x.ir").write_text("graph(%x: f32[2]) { %y = neg(%x) return %y }")
    Path("latin.ir").write_bytes(b"\xe4\xf6\xfc")
    assert run(*arguments) == (1, "", f"error: {said}\n")


def test_cache(run, object_cache):
    from gluonjit.runtime import cache
    from gluonjit.runtime.artifact import Artifact

    assert run("cache", "clear") == (0, f"removed 0 entries from {object_cache}\n", "")
    cache.store("key", Artifact("a net", [bytes(2048)]))
    status, out, _ = run("cache", "show")
    assert status == 0 and str(object_cache) in out and "1 entry" in out and "2.1 KiB  a net" in out
    assert "1 entry" in run("doctor")[1]
    assert run("cache", "clear") == (0, f"removed 1 entry from {object_cache}\n", "")
    assert cache.entries() == []


def test_no_cache(run, monkeypatch):
    monkeypatch.setenv("GLUONJIT_CACHE", "0")
    for action in ("show", "clear"):
        status, out, _ = run("cache", action)
        assert status == 0 and "turned off by GLUONJIT_CACHE=0" in out


def test_explain(run):
    status, out, _ = run("dump", "model.py:net", "--input", "2x5", "--explain")
    assert status == 0
    heads, *rows = out.splitlines()
    assert heads.split() == ["kernel", "what", "tile", "µs", "why"]
    assert any(row.startswith("matmul") and "2×3, sums of 5" in row and "model.py" in row for row in rows)
    assert rows[-1].endswith("prepared when a parameter changes")


def test_what_called_the_command_line_is_not_the_users_line(run):
    """Here this test; on the command line, the script `gluonjit`."""
    with open("layers.py", "w") as file:
        file.write(
            "from gluonjit.gluon import nn\nnet = nn.HybridSequential()\nnet.add(nn.Dense(3))\nnet.initialize()\n"
        )
    status, out, err = run("dump", "layers.py:net", "--input", "2x5", "--explain")
    assert (status, err) == (0, "") and "dense" in out and "test_cli.py" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "g.ir", "--input", "2x2"), "--input x is f32[2,2]; the graph takes f32[3,4]"),
        (("run", "g.ir", "--input", "y=3x4"), "the graph has no input 'y'"),
        (("run", "g.ir", "--input", "3x4", "--input", "3x4"), "2 inputs are given; the graph has 1: x: f32[3,4]"),
        (
            ("run", "model.py:net", "--input", "2x5", "--input", "2x5"),
            "model.py:net, called with (f32[2,5], f32[2,5]), f",
        ),
        (
            ("bench", "model.py:net", "--input", "2x5", "--input", "2x5"),
            "model.py:net, called with (f32[2,5], f32[2,5])",
        ),
        (
            ("dump", "model.py:net", "--input", "2x5", "--input", "2x5"),
            "model.py:net, called with (f32[2,5], f32[2,5])",
        ),
        (("run", "model.py:narrow", "--input", "2x5"), "model.py:narrow, called with (f32[2,5]), failed at line "),
        (("run", "model.py:broken", "--input", "2x5"), "model.py:broken() failed at line "),
        (
            ("run", "model.py:net", "--input", "2x5", "--output", "y.txt"),
            "--output y.txt: the name must end in .npy or",
        ),
        (
            ("bench", "model.py:net", "--input", "2x5", "--against", "model.py:net"),
            "model.py:net, called with (f32[2,5])",
        ),
    ],
)
def test_a_wrong_call_is_one_error(run, arguments, message, tmp_path):
    (tmp_path / "g.ir").write_text("graph @g(%x: f32[3,4]) { %y = exp(%x) return %y }")
    with open("model.py", "a") as file:
        file.write(
            "class Narrow(mx.gluon.HybridBlock):\n    def hybrid_forward(self, F, x):\n        return x[1, 2, 3]\n"
        )
        file.write("narrow = Narrow()\ndef broken():\n    return [][0]\n")
    status, out, err = run(*arguments)
    assert status == 1 and out == ""
    assert err.startswith(f"error: {message}") and "Traceback" not in err


def test_the_inputs_of_a_graph(run, tmp_path):
    (tmp_path / "g.ir").write_text("graph @g(%x: f32[2], %y: f32[2]) { %z = sub(%x, %y) return %z }")
    np.savez("xy.npz", y=np.ones(2, "f4"), x=np.full(2, 3, "f4"))
    assert "[2. 2.]" in run("run", "g.ir", "--input", "xy.npz")[1]
    assert run("run", "g.ir", "--input", "x=2")[2] == "error: no --input for y; the graph has x: f32[2], y: f32[2]\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dump", "model.py:net", "--input", "2x5", "--stage", "optimised"), "did you mean 'optimized'?"),
        (("dumb", "model.py:net"), "did you mean 'dump'?"),
        (
            ("dump", "model.py:net", "--staeg=llvm"),
            "dump: error: unrecognized arguments: --staeg=llvm; did you mean '--stage'",
        ),
        (("ops", "--mising"), "did you mean '--missing'?"),
        (("--verion",), "gluonjit: error: unrecognized arguments: --verion; did you mean '--version'?"),
        (("run", "model.py:net", "net.params", "more"), "unrecognized arguments: more\n"),
        (("bench", "model.py:net", "--input", "2x5", "--rounds", "0"), "'0': give a number that is at least 1"),
        (("bench", "model.py:net", "--input", "2x5", "--seconds", "nan"), "'nan': give a number that is at least 0"),
        (("run", "model.py:net", "--input", "2x5", "--seed", "-1"), "'-1': give a number that is at least 0"),
    ],
)
def test_a_wrong_option_says_what_is_right(run, arguments, message):
    status, _, err = run(*arguments)
    assert status == 2 and message in err


def test_programs_and_graphs_that_are_nested_too_deep(run, tmp_path):
    (tmp_path / "deep.py").write_text("x = " + "-" * 50_000 + "1")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    status, out, err = run("coverage", "deep.py", "deep.json")
    assert (status, err) == (0, "") and "deep.py: not read: " in out


def test_examples_of_operators_in_a_process_that_has_imported_none():
    command = [sys.executable, "-m", "gluonjit", "passes", "expand"]
    assert "mx.Dropout" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_output_in_ascii():
    done = subprocess.run(
        [sys.executable, "-m", "gluonjit", "opt", "-", "-p", "nö"],
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 1 and b"Traceback" not in done.stderr


def test_compile_fills_the_object_cache(tmp_path, monkeypatch, capsys):
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.setenv("GLUONJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("GLUONJIT_CACHE", raising=False)
    command = ["compile", f"{tmp_path}/model.py:net", "--input", "4x5"]
    assert main(command) == 0
    assert "KiB in" in capsys.readouterr().out
    assert main(command) == 0
    assert "was there already" in capsys.readouterr().out
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import gluonjit as mx, model; net = model.net(); "
        "net.hybridize(); net(mx.nd.ones((4, 5))); print('gluonjit.codegen.program' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"  # nothing was compiled
    assert main([*command, "--target", "aarch64"]) == 0  # code that cannot run here
    assert "KiB in" in capsys.readouterr().out
    monkeypatch.setenv("GLUONJIT_CACHE", "0")
    assert main(command) == 1
    assert "nothing can be kept in the object cache: turned off" in capsys.readouterr().err


def test_a_library_for_another_processor_has_its_check(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    command = ["build", f"{tmp_path}/model.py:net", "--input", "2x5", "-o", str(tmp_path / "out"), "--static"]
    assert main([*command, "--target", "aarch64"]) == 0
    assert (tmp_path / "out" / "check.bin").stat().st_size and "differ_float" in (tmp_path / "out/main.c").read_text()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_build_makes_a_library_and_a_program_that_checks_it(tmp_path, capsys):
    (tmp_path / "model.py").write_text(MODEL)
    out = tmp_path / "out"
    assert main(["build", f"{tmp_path}/model.py:net", "--input", "batchx5", "-o", str(out), "--name", "little"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("liblittle.a", "liblittle.so", "little.h", "main.c", "check.bin"))
    command = [
        "cc",
        str(out / "main.c"),
        "-I",
        str(out),
        str(out / "liblittle.a"),
        "-pthread",
        "-o",
        str(out / "check"),
    ]
    subprocess.run(command, check=True)
    done = subprocess.run([str(out / "check"), str(out / "check.bin"), "2"], capture_output=True, text=True)
    assert done.returncode == 0 and "the stored results" in done.stdout


def test_layers_of_a_model(run):
    status, out, _ = run("dump", "model.py:net", "--input", "2x5")
    lines = [line.split() for line in out.splitlines()]
    assert status == 0 and lines[0] == ["ops", "kernels", "FLOPs", "bytes", "layer"]
    assert [(line[-1], line[0]) for line in lines[1:-1]] == [
        ("net/dense0", "1"),
        ("net/dense0/act", "1"),
        ("net/scale0", "2"),
    ]
    assert lines[-1][-2:] == ["in", "all"]
    status, out, _ = run("dump", "model.py:net", "--input", "2x5", "--stage", "trace", "--layer", "*dense0*")
    assert "mx.FullyConnected" in out and "tanh" not in out
    status, _, err = run("dump", "model.py:net", "--input", "2x5", "--layer", "*/conv1")
    assert status == 1 and "no layer fits; there are net" in err


def test_a_recurrent_layer_that_adds_its_states(run):
    """A bare layer of gluon.rnn is called without states; what is traced and timed has them as inputs."""
    Path("model.py").write_text("import gluonjit as mx\nlstm = mx.gluon.rnn.LSTM(5)\nlstm.initialize()\n")
    status, out, err = run("dump", "model.py:lstm", "--input", "4x2x3", "--stage", "trace")
    assert (status, err) == (0, "") and "f32[1,2,5]" in out
    status, out, err = run("bench", "model.py:lstm", "--input", "4x2x3", "--rounds", "1", "--seconds", "0.001")
    assert (status, err) == (0, "") and "hybridized" in out


def test_a_dump_in_a_file(run):
    assert run("dump", "model.py:net", "--input", "2x5", "--stage", "trace", "-o", "net.ir")[:2] == (0, "")
    assert run("opt", "net.ir", "-p", "")[0] == 0
