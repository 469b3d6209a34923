"""The pass manager: finding passes, options, verification, reproducers, reports."""

import functools
import io
import re
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from gluonjit.ir import opdef
from gluonjit.ir.graph import Builder
from gluonjit.ir.text import load, parse_graph, print_graph
from gluonjit.ir.types import IRError, tensor
from gluonjit.ir.verify import verify
from gluonjit.passes import PassError, all_passes, find_pass, manager, parse_pipeline, register_pass, run_passes
from gluonjit.passes.manager import levels
from gluonjit.passes.pipelines import PIPELINES
from gluonjit.passes.report import DumpFolder, PrintAfterAll, Timing, both

TEXT = """graph @g(%x: f32[2]) {
  %0: f32[2] = neg(%x) loc("net.py":1)
  %1: f32[2] = neg(%0)
  %y: f32[2] = exp(%1)
  return %y
}
"""


@pytest.fixture
def passes(monkeypatch):
    """The table of passes, which the test may add to."""
    all_passes()
    monkeypatch.setattr(manager, "_PASSES", dict(manager._PASSES))
    return manager._PASSES


def test_pipelines():
    assert parse_pipeline("fold,dce") == [("fold", {}), ("dce", {})]
    assert parse_pipeline(" fold {limit = 4, deep = (1, 2)} ,\n legalize-broadcast ") == [
        ("fold", {"limit": 4, "deep": (1, 2)}),
        ("legalize-broadcast", {}),
    ]
    assert parse_pipeline("") == []
    assert parse_pipeline(["fold", "cse, dce", ("fold", {"limit": 1})]) == [
        ("fold", {}),
        ("cse", {}),
        ("dce", {}),
        ("fold", {"limit": 1}),
    ]


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ("fold;dce", "expected passes such as 'fold, cse {…}', found 'fold;dce'"),
        ("fold dce", "found 'fold dce'"),
        ("fold,,dce", "found ',dce'"),
        ("fold {limit}", "expected '=' after 'limit'"),
        ("fodl", "unknown pass 'fodl'; did you mean 'fold'?"),
        ("Fold", "unknown pass 'Fold'; did you mean 'fold'?"),
        ("os", "unknown pass 'os'; `gluonjit passes` lists those that there are"),
        ("manager", "unknown pass 'manager'"),
        ("gradient", "unknown pass 'gradient'; it is a pipeline, of which"),
        ("legalize_broadcast", "did you mean 'legalize-broadcast'?"),
        ("fold {limits = 3}", "pass 'fold' has no option 'limits'; did you mean 'limit'?"),
        ("dce {limit = 3}", "pass 'dce' has no option 'limit'; it has none"),
        ("select", "pass 'select' needs a target"),
    ],
)
def test_bad_pipelines(pipeline, message):
    ran = []
    with pytest.raises(IRError) as e:
        run_passes(parse_graph(TEXT), "dce, " + pipeline, after=lambda *a: ran.append(a))
    assert message in str(e.value)
    assert not ran


def test_passes_are_imported_when_they_are_asked_for():
    code = """
import sys
import gluonjit.passes as p
from gluonjit.ir.text import parse_graph
loaded = lambda: sorted(m for m in sys.modules if m.startswith("gluonjit.passes."))
print(*loaded())
p.run_passes(parse_graph("graph() { return }"), "dce")
print(*loaded())
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    first, second = out.splitlines()
    assert first == "", "a process that finds its code in the cache needs only `passes.pipelines`"
    assert set(second.split()) == {"gluonjit.passes.manager", "gluonjit.passes.dce"}


def test_levels_of_the_pipelines_that_have_names():
    """Each pass finds the level that it needs, and what a pipeline promises is what its last passes give."""
    for name, pipeline in PIPELINES.items():
        assert levels(pipeline.steps, pipeline.takes) == pipeline.gives, name
    assert levels("differentiate", "legal") == "expanded"
    with pytest.raises(IRError, match="'fuse' needs a graph of level 'legal'.*run expand, legalize-broadcast before"):
        levels("simplify, fuse", "traced")


def test_every_pass_has_a_name_and_a_document():
    passes = all_passes()
    assert {"expand", "legalize-broadcast", "simplify", "fold", "cse", "dce"} <= set(passes)
    for name, found in passes.items():
        assert find_pass(name) is found
        assert found.doc, name
    assert passes["fold"].options == {"limit": 2**20}


def test_options_reach_the_pass(passes):
    seen = []

    @register_pass("probe", doc="Looks.")
    def probe(graph, *, depth: int = 1, target):
        seen.append((depth, target))
        return graph

    run_passes(parse_graph(TEXT), "probe {depth = 5}, probe", target="machine")
    assert seen == [(5, "machine"), (1, "machine")]
    with pytest.raises(IRError, match="pass 'probe' is declared twice"):
        register_pass("probe")(probe)


def test_a_pass_that_found_nothing_is_not_asked_again(passes):
    seen = []

    @register_pass("probe", doc="Looks.")
    def probe(graph, *, depth: int = 1):
        seen.append((depth, len(graph.ops)))
        return graph

    called = []
    run_passes(
        parse_graph(TEXT), "probe, fold, probe, simplify, dce, probe", after=lambda *args: called.append(args[0])
    )
    assert seen == [(1, 3), (1, 1)] and called.count("probe") == 3
    seen.clear()
    run_passes(parse_graph(TEXT), "probe, probe, probe {depth = 2}")
    assert seen == [(1, 3), (2, 3)]


def test_the_callback_sees_every_pass():
    graph = parse_graph(TEXT)
    seen = []
    result = run_passes(graph, "fold, simplify, dce", after=lambda *args: seen.append(args))
    names, befores, afters, seconds = zip(*seen)
    assert names == ("fold", "simplify", "dce")
    assert befores[0] is afters[0] is befores[1] is graph  # fold finds nothing, and gives back what it got
    assert afters[1] is befores[2] and afters[2] is result
    assert len(result.ops) == 1
    assert all(s >= 0 for s in seconds)


def test_a_pass_that_fails_attaches_its_input(passes, tmp_path):
    @register_pass("divide")
    def divide(graph, *, by: int = 1):
        return graph.ops[0] // by

    graph = parse_graph(TEXT)
    with pytest.raises(PassError, match="pass 'divide': TypeError: unsupported operand") as e:
        run_passes(graph, "dce, divide {by = 0}")
    assert isinstance(e.value.__cause__, TypeError)
    assert e.value.before is graph and e.value.path is None
    header, _, text = e.value.reproducer.partition("\n\n")
    assert header == "// RUN: divide {by = 0}"
    assert print_graph(parse_graph(e.value.reproducer), locs=True) == text == TEXT

    with pytest.raises(PassError) as e:
        run_passes(graph, "divide", reproducers=tmp_path / "new")
    assert str(e.value).endswith(f"its input: {tmp_path}/new/failed-divide.ir")
    assert print_graph(load(e.value.path), locs=True) == TEXT


class TimeIsUp(Exception):
    pass


class Limit:
    def __call__(self, *_):
        raise TimeIsUp


def test_the_error_of_a_time_limit_is_no_failure_of_the_pass_that_it_comes_into(passes, monkeypatch):
    @register_pass("long")
    def long(graph):
        signal.raise_signal(signal.SIGUSR1)
        raise AssertionError("the handler raises")

    graph, limit = parse_graph(TEXT), Limit()
    for handler in (limit, limit.__call__, functools.partial(Limit.__call__, limit), lambda *_: limit()):
        before = signal.signal(signal.SIGUSR1, handler)
        try:
            with pytest.raises(TimeIsUp):
                run_passes(graph, "dce, long")
            # It may come while types are inferred, too, when what a pass has made is verified.
            with monkeypatch.context() as m, pytest.raises(TimeIsUp):
                m.setattr(opdef.Primitive, "infer", lambda *_: signal.raise_signal(signal.SIGUSR1))
                verify(graph)
        finally:
            signal.signal(signal.SIGUSR1, before)


def test_big_constants_of_a_reproducer_lie_beside_it(passes, tmp_path):
    @register_pass("fail")
    def fail(graph):
        raise IRError("it cannot be done")

    b = Builder()
    graph = b.build([b.constant(np.arange(5000.0))])
    with pytest.raises(PassError, match="pass 'fail': it cannot be done\nits input") as e:
        run_passes(graph, "fail", reproducers=tmp_path)
    assert e.value.path.stat().st_size < 1000
    assert load(e.value.path).ops[0].attrs["value"].tobytes() == graph.ops[0].attrs["value"].tobytes()


def test_a_pass_that_returns_no_graph(passes):
    @register_pass("lose")
    def lose(graph):
        pass

    with pytest.raises(PassError, match="^pass 'lose': it returned None, not a Graph"):
        run_passes(parse_graph(TEXT), "lose")


@pytest.mark.parametrize("verify_each", [False, True])
@pytest.mark.parametrize("pipeline", ["forget", "fold, forget", "forget, dce", "forget, fold, remember"])
def test_what_passes_make_is_verified(passes, pipeline, verify_each):
    given = parse_graph(TEXT)

    @register_pass("forget")
    def forget(graph):
        return replace(graph, ops=graph.ops[1:])

    @register_pass("remember")
    def remember(graph):
        raise IRError("an op is missing")

    with pytest.raises(PassError, match="pass 'forget': invalid graph @g: operand") as e:
        run_passes(given, pipeline, verify_each=verify_each)
    assert "neg(%?)" in str(e.value)


# Reports --------------------------------------------------------------------------------------------------------------


def test_printing_after_every_pass():
    stream = io.StringIO()
    run_passes(parse_graph(TEXT), "simplify, dce, cse", after=PrintAfterAll(stream))
    after_simplify, after_dce, after_cse = re.split(r"(?m)^// After ", stream.getvalue())[1:]
    assert after_simplify.startswith("simplify\ngraph @g(%x: f32[2]) {\n  %0: f32[2] = neg(%x)\n")
    assert after_dce == "dce\ngraph @g(%x: f32[2]) {\n  %y: f32[2] = exp(%x)\n  return %y\n}\n\n"
    assert after_cse == "cse: nothing changed\n\n"


def test_diffs_ignore_the_numbers_of_unnamed_values():
    b = Builder("g")
    x = b.input("x", tensor("f32", 2))
    dead = b.exp(x)
    y = x
    for _ in range(6):
        y = b.tanh(y)
    assert dead is not y
    stream = io.StringIO()
    run_passes(b.build([y]), "dce", after=PrintAfterAll(stream, diff=True))
    assert stream.getvalue() == (
        "// After dce\n"
        "@@\n"
        "  graph @g(%x: f32[2]) {\n"
        "- %0: f32[2] = exp(%x)\n"
        "    %0: f32[2] = tanh(%x)\n"
        "    %1: f32[2] = tanh(%0)\n\n"
    ).replace("- %0", "-   %0")


def test_timing():
    timing = Timing()
    run_passes(parse_graph(TEXT), "simplify, dce", after=timing)
    lines = str(timing).splitlines()
    assert [line.split()[0] for line in lines] == ["pass", "simplify", "dce", "total"]
    assert re.fullmatch(r"dce +2 -> +1 +\d+\.\d\d", lines[2])
    assert len({len(line) for line in lines}) == 1


def test_dumping_to_a_folder(tmp_path):
    b = Builder("g")
    x = b.input("x", tensor("f64", 1000))
    graph = b.build([b.add(x, b.constant(np.arange(1000.0)))])
    seen = []
    folder = tmp_path / "a" / "b"
    run_passes(graph, "legalize-broadcast, dce", after=both(DumpFolder(folder), lambda name, *_: seen.append(name)))
    assert sorted(p.name for p in folder.iterdir()) == [
        "00-input.ir",
        "00-input.npz",
        "01-legalize-broadcast.ir",
        "01-legalize-broadcast.npz",
        "02-dce.ir",
        "02-dce.npz",
    ]
    assert load(folder / "02-dce.ir").level == "legal"
    assert seen == ["legalize-broadcast", "dce"]
