"""What every test may use."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def pytest_addoption(parser):
    parser.addoption("--update", action="store_true", help="rewrite the expected halves of golden tests")


def pytest_configure(config):
    # A golden file holds many cases; two workers that rewrite it would lose each other's changes.
    if config.getoption("--update") and config.getoption("numprocesses", default=None):
        raise pytest.UsageError("--update rewrites files: run it in one process (-n 0)")


@pytest.fixture
def update(request) -> bool:
    """Whether golden tests should rewrite what they expect instead of comparing."""
    return request.config.getoption("--update")


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The `shared` folder beside the project: files too big or too foreign for the repository, so often missing."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder `shared` beside the project, which is not here")
    return folder
