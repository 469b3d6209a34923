"""Cases in batches: which ones, and that each is judged."""

import pytest

from support.batches import AT_ONCE, batched

WRONG: set[object] = set()
"""Cases that shall fail."""


@pytest.mark.parametrize("n", range(AT_ONCE + 2))
def test_of_many_cases(n):
    assert n not in WRONG, "it was to fail"


@pytest.mark.parametrize("n", range(2))
def test_of_cases_with_a_fixture(n, tmp_path):
    assert not any(tmp_path.iterdir())


@pytest.fixture(params=[1, 2])
def twice(request):
    return 2 * request.param


@pytest.mark.parametrize("n", range(2))
def test_of_cases_with_a_parametrized_fixture(n, twice):
    assert twice in (2, 4)


@pytest.mark.parametrize("twice", [1, 2], indirect=True)
def test_of_cases_whose_parameter_is_a_fixtures(twice):
    assert twice in (2, 4)


@pytest.mark.parametrize("n", range(2))
def test_of_cases_with_a_shared_fixture(n, request):
    assert request.node.name.endswith(f"[{n}]")


@pytest.mark.parametrize("m", range(2))
@pytest.mark.parametrize("n, k", [(1, 2), (2, 3)])
def test_of_several_parameters(m, n, k):
    if (m, n) in WRONG:
        pytest.skip("it was to be skipped")
    if m in WRONG:
        raise SystemExit(3)
    assert n + 1 == k


def batches(request):
    """Of this file's tests, by name."""
    return {item.name: item for item in batched(list(request.node.parent.collect()), request.fixturenames)}


def test_cases_that_differ_in_parameters_alone(request):
    names = [name for name in batches(request) if name.startswith("test_of")]
    assert [name for name in names if " to " in name] == [
        "test_of_many_cases[0] to test_of_many_cases[15]",
        "test_of_many_cases[16] to test_of_many_cases[17]",
        "test_of_several_parameters[1-2-0] to test_of_several_parameters[2-3-1]",
    ]
    assert len(names) == 3 + 4 * 2 + 2  # all others are alone


def test_each_case_that_fails_is_reported(request):
    batch = batches(request)["test_of_many_cases[0] to test_of_many_cases[15]"]
    WRONG.update((3, 7))
    try:
        with pytest.raises(pytest.fail.Exception) as e:
            batch.obj()
    finally:
        WRONG.clear()
    batch.obj()
    assert [n for n in range(AT_ONCE) if f"::test_of_many_cases[{n}]" in str(e.value)] == [3, 7]
    assert "it was to fail" in str(e.value)


@pytest.fixture
def several(request):
    yield batches(request)["test_of_several_parameters[1-2-0] to test_of_several_parameters[2-3-1]"]
    WRONG.clear()


def test_cases_that_are_skipped_are_named(several):
    WRONG.add((1, 2))
    with pytest.warns(pytest.PytestWarning, match=r"several_parameters\[2-3-1\] was skipped: it was to be skipped"):
        several.obj()
    WRONG.update((m, n) for m in range(2) for n in (1, 2))
    with pytest.raises(pytest.skip.Exception, match="it was to be skipped"):
        several.obj()


def test_a_case_that_exits_has_failed(several):
    WRONG.add(1)
    with pytest.raises(pytest.fail.Exception) as e:
        several.obj()
    found = str(e.value)
    assert [f"several_parameters[{n}-{n + 1}-{m}]" in found for m in (0, 1) for n in (1, 2)] == [False] * 2 + [True] * 2
