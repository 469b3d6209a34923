"""What the tests of blocks share."""

import importlib.util
from pathlib import Path

import pytest

from gluonjit import name

HERE = Path(__file__).parent


def _load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def reference_models():
    """The module beside this file."""
    return _load(HERE / "reference_models.py")


@pytest.fixture
def example(root):
    """Loads `examples/<stem>.py`."""
    return lambda stem: _load(root / "examples" / f"{stem}.py")


@pytest.fixture
def fresh_names():
    """Automatic names start at 0, as in a new process."""
    with name.NameManager():
        yield
