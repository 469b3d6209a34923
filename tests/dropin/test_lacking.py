"""Every public name of MXNet is here, or says that it is lacking: as an attribute, and in imports of any form.

This holds without `install_as_mxnet`.
"""

import importlib
import warnings

import pytest

import gluonjit as mx
from gluonjit.language import mxnet_names

LACKING = "MXNet 1.9.1 has it, gluonjit lacks it"
MODULES = sorted(name for name in mxnet_names.modules() if name != ".")


def full(module):
    return f"gluonjit.{module}".rstrip(".")


def check(module, names):
    """Asks for each name in both ways; gives those that are lacking."""
    found = importlib.import_module(full(module))
    lacking = set()
    for name in names:
        try:
            value = getattr(found, name)
        except AttributeError as e:
            # What to do instead may follow.
            assert str(e).startswith(f"module {found.__name__!r} has no attribute {name!r}: {LACKING}")
            lacking.add(name)
            with pytest.raises(ImportError, match=LACKING):
                exec(f"from {found.__name__} import {name}")
        else:
            scope = {}
            exec(f"from {found.__name__} import {name}", scope)
            assert scope[name] is value
    return lacking


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def test_names_in_modules():
    lacking = {}
    for module, names in mxnet_names.modules().items():
        try:
            importlib.import_module(full(module))
        except ImportError:
            continue  # the next test
        lacking[module] = check(module, sorted(names))
    assert {"library", "rtc"} <= lacking["."] and "quantize_net" in lacking[
        "contrib.quantization"
    ]  # the check sees what is lacking


@pytest.mark.parametrize("module", MODULES)
def test_modules(module):
    parent, _, name = module.rpartition(".")
    try:
        importlib.import_module(full(module))
    except ImportError as e:
        if LACKING not in str(e):  # one that is made of another here, and no file
            assert isinstance(getattr(importlib.import_module(full(parent)), name), type(mx)), e


def test_operators():
    for package in ("ndarray", "symbol"):
        places = {}
        for op, aliases in mxnet_names.operators().items():
            for place, function in map(mxnet_names.place_of, (op, *aliases)):
                places.setdefault(place, []).append(function)
        lacking = {place: check(f"{package}.{place}", names) for place, names in places.items()}
        assert "fft" in lacking["contrib"] and "relu" not in lacking["op"]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "from gluonjit.contrib.quantization import *; from gluonjit.contrib.quantization import quantize_model",
            f"cannot import name 'quantize_model' from 'gluonjit.contrib.quantization': {LACKING}; float models run",
        ),
        ("import gluonjit.rtc", f"cannot import name 'rtc' from 'gluonjit': {LACKING}"),
        ("import gluonjit.nd", "No module named 'gluonjit.nd'"),  # a name, and no module, in MXNet as well
        ("import gluonjit.nonsense", "No module named 'gluonjit.nonsense'"),
        ("from gluonjit.gluon.nn import Dens", "there is no 'Dens' in 'gluonjit.gluon.nn'; did you mean 'Dense'?"),
    ],
)
def test_imports(statement, said):
    with pytest.raises(ImportError) as caught:
        exec(statement)
    assert str(caught.value).startswith(said)
