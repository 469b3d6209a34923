"""What the tests of blocks share."""

import importlib.util

import pytest

from gluonjit import name


def _load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example(root):
    """Loads `examples/<stem>.py`."""
    return lambda stem: _load(root / "examples" / f"{stem}.py")


@pytest.fixture
def fresh_names():
    """Automatic names start at 0, as in a new process."""
    with name.NameManager():
        yield
