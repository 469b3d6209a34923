"""Calls of many sizes: which, and that a run makes and compares them."""

import pytest

from benchmarks import sizes


def test_shapes_are_drawn_until_they_fit():
    found = sizes.shapes("W11", 300, 64, tokens=1000)
    assert len(found) == 300 and {shape[2:] for shape in found} == {(768,)}
    assert max(n * length for n, length, _ in found) <= 1000
    low, high = sizes.LENGTHS["W11"]
    assert all(1 <= n <= 64 and low <= length <= high for n, length, _ in found)
    assert {n for n, *_ in found} > set(range(1, 20)) and max(length for _, length, _ in found) > 350
    assert {shape[1:] for shape in sizes.shapes("W5", 9, 8, tokens=8)} == {(3, 224, 224)}


def test_a_run_counts_what_is_compiled(capsys):
    words = ["W1", "--calls", "12", "--largest", "9", "--engines", "largest", "ours cold", "ours warm"]
    drawn = [n for n, _ in sizes.shapes("W1", 12, 9)]
    assert len(set(drawn[:2])) == 2 and len(set(drawn)) > 4
    assert sizes.main(words) == 0
    _, largest, cold, warm = (line.split() for line in capsys.readouterr().out.splitlines())
    assert cold[:3] == ["W1", "ours", "cold"] and cold[7] == warm[7] == "2"  # for the first size, and for any
    assert largest[:2] == ["W1", "largest"] and largest[6] == "1"
    assert float(cold[-1]) < 1e-6 and float(largest[-1]) < 1e-6


@pytest.mark.parametrize("words", [["--tokens", "7"], ["--engines", "ours warm"]])
def test_what_cannot_be_measured_is_refused(words, capsys):
    with pytest.raises(SystemExit):
        sizes.main(words)
    assert "no length fits" in capsys.readouterr().err or words[0] == "--engines"
