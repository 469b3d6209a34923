"""Rows: merging, the best peer, comparing two runs, and the forms in which they are shown."""

import copy
import json

import numpy as np
import pytest

from benchmarks import compare, report, results


def comparison(ratio, disturbed=False, spread=0.01):
    return {
        "ratio": ratio,
        "low": ratio - spread,
        "high": ratio + spread,
        "seconds": ratio * 1e-3,
        "base": 1e-3,
        "cpu": 1.0,
        "base_cpu": 1.0,
        "pairs": 9,
        "dropped": 0,
        "disturbed": disturbed,
        "version": "1",
    }


def row(workload="W3", threads=1, error=1e-6, **ratios):
    return {
        "workload": workload,
        "title": "ResNet-18 v1",
        "threads": threads,
        "flop": 2e8,
        "bytes": 1e7,
        "goal": 1.5,
        "ours": {"seconds": 1e-3, "cpu": 1.0, "error": error, "version": "1"},
        "limits": {"flops": 2.5e11, "bandwidth": 4e10},
        "peers": {name: comparison(ratio) for name, ratio in ratios.items()},
        "skipped": {},
    }


def test_the_difference_is_relative_to_the_largest_value():
    reference = np.array([1.0, -4.0])
    assert results.relative_difference(np.array([1.5, -4.0]), reference) == 0.125
    assert results.relative_difference(np.array([np.nan, -4.0]), reference) == float("inf")
    assert results.relative_difference(np.zeros((2, 1)), reference) == float("inf")
    assert results.difference([reference, np.array([1.5, -4.0])], [reference, reference]) == 0.125
    assert results.difference([reference], [reference, reference]) == float("inf")


def test_the_best_peer_is_the_fastest_and_a_disturbed_one_makes_the_row_not_count():
    found = row(litert=1.3, ncnn=1.1, jax=3.0)
    assert results.best_peer(found) == "ncnn" and results.counts(found)
    found["peers"]["ncnn"]["disturbed"] = True
    assert results.best_peer(found) == "ncnn" and not results.counts(found)
    assert results.best_peer(row()) is None and not results.counts(row())


def test_adding_a_run_replaces_what_it_measured_and_keeps_the_rest():
    old = [row(litert=1.3, ncnn=1.1), row("W4", 2, litert=1.0)]
    old[0]["skipped"] = {"jax": "is missing"}
    made = results.merged(old, [row(litert=1.4, jax=2.0), row("W1", jax=5.0)])
    assert [results.key(r) for r in made] == [("W1", 1), ("W3", 1), ("W4", 2)]
    assert {name: p["ratio"] for name, p in made[1]["peers"].items()} == {"litert": 1.4, "ncnn": 1.1, "jax": 2.0}
    assert made[1]["skipped"] == {}


def test_the_geometric_mean_is_over_best_peers():
    disturbed = row("W6", jax=0.1)
    disturbed["peers"]["jax"]["disturbed"] = True
    rows = [row(litert=2.0, ncnn=9.0), row("W4", jax=8.0), row("W5"), disturbed]
    assert results.geometric_mean(rows) == pytest.approx(4.0)
    assert results.geometric_mean([disturbed]) is None


def changed(before, after, **options):
    (found,) = compare.changes([before], [after], options.get("tolerance", 0.05))
    return found


def test_a_regression_is_a_smaller_ratio_beside_the_same_peers():
    assert changed(row(litert=1.3, ncnn=1.2), row(litert=1.1, ncnn=1.0)).regressed
    assert not changed(row(litert=1.3, ncnn=1.2), row(litert=1.28, ncnn=1.19)).regressed
    assert not changed(row(litert=1.1), row(litert=1.3)).regressed
    assert changed(row(litert=2.0), row(litert=1.0)).speedup == 0.5


def test_scatter_and_disturbed_comparisons_are_no_regressions():
    after = row(litert=1.1)
    after["peers"]["litert"]["high"] = 1.4
    assert not changed(row(litert=1.3), after).regressed
    after = row(litert=0.5)
    after["peers"]["litert"]["disturbed"] = True
    assert changed(row(litert=1.3), after).speedup is None
    assert changed(row(litert=1.3), row(jax=0.5)).speedup is None


def test_compare_exits_with_1_for_slower_or_wrong(tmp_path, capsys):
    before, after, wrong = (tmp_path / name for name in ("a.json", "b.json", "c.json"))
    before.write_text(json.dumps({"rows": [row(litert=1.3)]}))
    after.write_text(json.dumps({"rows": [row(litert=1.0)]}))
    wrong.write_text(json.dumps({"rows": [row(litert=1.3, error=1e-3)]}))
    assert compare.main([str(before), str(before)]) == 0
    assert compare.main([str(before), str(after)]) == 1
    assert "REGRESSION" in capsys.readouterr().out
    assert compare.main([str(before), str(wrong)]) == 1
    with pytest.raises(SystemExit, match="is not a result"):
        compare.main([str(before), str(tmp_path / "none.json")])


def test_tables_show_what_was_missed_disturbed_and_left_out():
    rows = [row(litert=1.6, ncnn=1.7), row("W4", 2, litert=1.4, jax=2.0)]
    rows[1]["peers"]["jax"]["disturbed"] = True
    rows[1]["skipped"] = {"mxnet": "ImportError: no"}
    text = report.markdown(rows, {"cpu": "Some CPU"})
    assert "Some CPU" in text and "Geometric mean of the ratios: 1.50" in text
    assert "| 1.60 | 1.50 |" in text and "| 1.40 | 1.50 (missed) |" in text
    assert "| W4 | 2 | 1.40 | – | (2.00) |" in text  # litert, ncnn, jax
    assert "- mxnet: ImportError: no" in text
    assert len(report.summary(rows).splitlines()) == 3
    assert report.markdown([row()], {"cpu": "Some CPU"})  # no peer at all
    assert "| 1.60 | none |" in report.markdown([{**row(litert=1.6), "goal": None}], {"cpu": "Some CPU"})


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.5 s"), (0.0312, "31.2 ms"), (5.6e-6, "5.6 µs"), (3e-8, "30 ns")]
)
def test_times_have_three_digits(seconds, text):
    assert report.time(seconds) == text


def test_rows_survive_json():
    rows = [row(litert=1.6)]
    assert json.loads(json.dumps(rows)) == copy.deepcopy(rows)
