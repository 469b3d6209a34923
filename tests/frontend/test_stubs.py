"""Type stubs: they are up to date and complete. What a type checker learns from them: typed_program.py."""

import functools
import importlib
import re

import pytest

from gluonjit.language.namespace import SUBMODULES
from gluonjit.tools import stubs

texts = functools.cache(stubs.stubs)


def test_up_to_date():
    assert not list(stubs.outdated()), "run python -m gluonjit.tools.stubs"


@pytest.mark.parametrize("package", ["ndarray", "symbol"])
@pytest.mark.parametrize("place", ["", *SUBMODULES])
def test_every_public_name_is_there(package, place):
    """Names that `dir` lists, but for helpers of the sources."""
    module = importlib.import_module(f"gluonjit.{package}{place and '.'}{place}")
    text = texts()[f"{package}/{place or '__init__'}.pyi"]
    declared = set(re.findall(r"^def (\w+)|^(\w+)(?::| =)|^from \S+ import (\w+) as \3$", text, re.M))
    declared = {name for names in declared for name in names if name}
    functions = {name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")}
    helpers = {"Any", "Flavour", "populate", "lazy_packages"}
    assert functions - helpers <= declared
    assert all(hasattr(module, name) for name in declared - {"_DType", "_numpy"})


@pytest.mark.parametrize("name", ["numpy", "numpy.linalg", "numpy.random", "numpy_extension"])
def test_every_public_name_of_numpy_is_there(name):
    module = importlib.import_module(f"gluonjit.{name}")
    text = texts()[name.replace(".", "/") + ("/__init__.pyi" if name == "numpy" else ".pyi")]
    declared = set(re.findall(r"^def (\w+)|^(\w+)(?::| =)|^from \S+ import (\w+) as \3$", text, re.M))
    declared = {found for pair in declared for found in pair if found}
    assert {n for n in dir(module) if callable(getattr(module, n)) and n[0] != "_"} - {"Any"} <= declared
    assert all(hasattr(module, n) for n in declared)
