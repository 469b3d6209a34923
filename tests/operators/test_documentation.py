"""The documentation of operators: each has a line of shapes, and an example whose result is as it says."""

import doctest
import inspect
from operator import attrgetter

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.operators.registry import OPERATORS, Operator, get

_FUSED = "comes from files that MXNet's MKL-DNN back end wrote; no function calls it"
WITHOUT_EXAMPLE = {f"_sg_mkldnn_{name}": _FUSED for name in ("conv", "fully_connected", "selfatt_qk", "selfatt_valatt")}
"""The operators that have no example, and why."""


def operators() -> list[Operator]:
    """Those of this package, each once; other tests may have declared some of their own."""
    get("identity")  # declares them all
    return [op for op in {op.name: op for op in OPERATORS.values()}.values() if op.expand.__module__[:9] == "gluonjit."]


def test_examples_are_true():
    wrong: list[str] = []
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(verbose=False)
    for op in operators():
        example = parser.get_doctest(op.doc, {"mx": mx, "np": np}, op.name, op.expand.__module__, None)
        runner.run(example, out=wrong.append)
    assert not wrong, "".join(wrong)
    assert runner.summarize(verbose=False).attempted > 500


def test_every_operator_has_shapes_and_an_example():
    lacking = {op.name for op in operators() if "\n>>> " not in op.doc}
    assert sorted(lacking - WITHOUT_EXAMPLE.keys()) == []
    assert sorted(WITHOUT_EXAMPLE.keys() - lacking) == []  # it has one now
    assert [op.name for op in operators() if "\n\nShapes: " not in op.doc] == []


def test_every_attribute_is_documented():
    assert [f"{op.name}.{name}" for op in operators() for name, attr in op.attrs.items() if not attr.doc] == []


def test_help_shows_the_example_after_the_attributes():
    text = mx.nd.expand_dims.__doc__
    places = [text.index(part) for part in ("\n\nShapes: ", "\nParameters\n", "\naxis : int", "\nExamples\n", "\n>>> ")]
    assert places == sorted(places)
    assert mx.sym.expand_dims.__doc__ == text


FOLDERS = (
    "nd nd.random nd.contrib nd.sparse nd.linalg nd.image "
    "sym sym.random sym.contrib np np.linalg np.random npx npx.random"
).split()
INTERNAL = {"invoke", "lazy_packages", "populate"}
"""What the packages import for themselves; MXNet's have names like these as well."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_functions_that_are_not_operators(folder):
    """Each has an example, which gives what it says; NumPy documents those that hand values to it."""
    module = attrgetter(folder)(mx)
    lacking, wrong = [], []
    for name in dir(module):
        function = getattr(module, name)
        if name.startswith("_") or name in INTERNAL or not inspect.isfunction(function):
            continue
        text = inspect.getdoc(function) or ""
        if ">>> " not in text and not text.startswith("`numpy."):
            lacking.append(name)
        example = doctest.DocTestParser().get_doctest(text, {"mx": mx, "np": np}, name, folder, None)
        doctest.DocTestRunner(verbose=False).run(example, out=wrong.append)
    assert lacking == []
    assert not wrong, "".join(wrong)
