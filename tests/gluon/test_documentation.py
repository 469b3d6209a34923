"""The examples in docstrings give what they say, and every public class has one."""

import doctest
import importlib
import inspect

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, gluon
from gluonjit.gluon import loss, nn, rnn
from gluonjit.gluon.data.vision import transforms

NAMES = {
    "mx": mx,
    "np": np,
    "nd": mx.nd,
    "autograd": autograd,
    "gluon": gluon,
    "nn": nn,
    "rnn": rnn,
    "loss": loss,
    "transforms": transforms,
}
"""What every example may use without an import."""
PACKAGES = (
    "gluon",
    "gluon.nn",
    "gluon.rnn",
    "gluon.loss",
    "gluon.contrib.nn",
    "gluon.contrib.rnn",
    "gluon.contrib.cnn",
    "metric",
    "optimizer",
    "initializer",
    "lr_scheduler",
    "gluon.data",
    "gluon.data.vision.transforms",
    "io",
)


def public_classes(package):
    """The public classes of a package that are ours, by name."""
    module = importlib.import_module(f"gluonjit.{package}")
    found = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return {name: c for name, c in found.items() if inspect.isclass(c) and c.__module__.startswith("gluonjit")}


OF_FILES = {"RecordFileDataset", "CSVIter", "LibSVMIter", "MNISTIter", "ImageDetRecordIter"}
OF_FILES |= {f"ImageRecord{kind}" for kind in ("Iter", "Iter_v1", "UInt8Iter", "UInt8Iter_v1", "Int8Iter")}
"""Their examples would need a file that nobody has."""
CLASSES = {
    c: f"{package}.{name}"
    for package in PACKAGES
    for name, c in public_classes(package).items()
    if name not in OF_FILES
}


CLASSES.update({c: c.__name__ for c in (mx.nd.NDArray, mx.sym.Symbol, mx.mod.Module, mx.Context)})


@pytest.mark.parametrize("cls", CLASSES, ids=CLASSES.values())
def test_examples(cls):
    """One at least, and each gives what it says."""
    text = inspect.getdoc(cls) or ""
    assert cls.__doc__ and ">>> " in cls.__doc__, "an example is missing"
    mx.random.seed(0)
    tests = [doctest.DocTestParser().get_doctest(text, dict(NAMES), cls.__name__, None, None)]
    for name, member in vars(cls).items():
        doc = inspect.getdoc(member) if not name.startswith("_") and callable(member) else None
        if doc and ">>> " in doc:
            tests.append(doctest.DocTestParser().get_doctest(doc, dict(NAMES), name, None, None))
    for test in tests:
        said: list[str] = []
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False).run(test, out=said.append)
        assert not said, "".join(said)


def test_example_of_compile():
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(mx.compile), dict(NAMES), "compile", None, None)
    assert test.examples and not doctest.DocTestRunner(verbose=False).run(test).failed


@pytest.mark.parametrize("cls, function", [(mx.nd.NDArray, "mx.nd.sum"), (mx.sym.Symbol, "mx.sym.sum")])
def test_help_of_a_method_names_the_function(cls, function):
    assert f"`{function}(x, …)`" in inspect.getdoc(cls.sum)
