"""Cases in batches: which ones, and that each is judged."""

import pytest

from support.batches import AT_ONCE, batched

WRONG: set[int] = set()
"""Cases that shall fail."""


@pytest.mark.parametrize("n", range(AT_ONCE + 2))
def test_of_many_cases(n):
    assert n not in WRONG, "it was to fail"


@pytest.mark.parametrize("n", range(2))
def test_of_cases_with_a_fixture(n, tmp_path):
    assert not any(tmp_path.iterdir())


def batches(request):
    """Of this file's tests, by name."""
    return {item.name: item for item in batched(list(request.node.parent.collect()), request.fixturenames)}


def test_cases_that_differ_in_parameters_alone(request):
    names = [name for name in batches(request) if name.startswith("test_of")]
    assert names == [
        "test_of_many_cases[0] to test_of_many_cases[15]",
        "test_of_many_cases[16] to test_of_many_cases[17]",
        "test_of_cases_with_a_fixture[0]",
        "test_of_cases_with_a_fixture[1]",
    ]


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
