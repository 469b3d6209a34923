"""The names of the package, however they are imported, and what importing costs."""

import subprocess
import sys

import pytest

import gluonjit as mx


def test_versions():
    import gluonjit

    assert mx.__version__ == "1.9.1"
    assert gluonjit.version.count(".") == 2 and gluonjit.gluonjit_version == gluonjit.version


def test_every_spelling_gives_the_same_module():
    import gluonjit.gluon.nn
    import gluonjit.ndarray as nd
    import gluonjit.symbol as sym
    from gluonjit import autograd, gluon, init
    from gluonjit import nd as nd2
    from gluonjit import sym as sym2
    from gluonjit.gluon import nn
    from gluonjit.ndarray import NDArray, contrib, op, random

    assert mx.nd is mx.ndarray is nd is nd2
    assert mx.sym is mx.symbol is sym is sym2
    assert mx.gluon is gluon and gluon.nn is nn is gluonjit.gluon.nn
    assert mx.init is mx.initializer is init
    assert mx.autograd is autograd and mx.rnd is mx.random
    assert nd.NDArray is NDArray and nd.contrib is contrib and nd.random is random and nd.op is op
    assert mx.MXNetError is mx.base.MXNetError


def test_submodules_without_files_import_like_others():
    code = (
        "import gluonjit.ndarray.contrib as c; from gluonjit.ndarray.op import relu; print(c.__name__, relu.__name__)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["gluonjit.ndarray.contrib", "relu"]


def test_every_listed_name_exists():
    for name in mx.__all__:
        assert getattr(mx, name) is not None, name
        assert name in dir(mx)


def test_unknown_names():
    with pytest.raises(AttributeError) as caught:
        mx.nosuch  # noqa: B018
    assert str(caught.value).startswith("module 'gluonjit' has no attribute 'nosuch'")
    with pytest.raises(AttributeError, match="did you mean 'autograd'"):
        mx.autogard  # noqa: B018


def test_importing_is_not_held_up_by_the_garbage_collector():
    code = (
        "import gc, gluonjit as mx; seen = []; gc.callbacks.append(lambda *event: seen.append(event)); "
        "mx.gluon.nn.Dense; gc.callbacks.clear(); print(len(seen) // 2, gc.isenabled())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    collections, is_on = run.stdout.split()
    assert int(collections) < 5 and is_on == "True"  # it would be a hundred


def test_importing_loads_nothing_else():
    code = "import sys, gluonjit; print(*[m for m in sys.modules if m.partition('.')[0] in ('gluonjit', 'numpy')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted(run.stdout.split()) == ["gluonjit", "gluonjit._tracebacks", "gluonjit._version"]


@pytest.mark.parametrize("statement", ["import gluonjit.gluon.nnn", "from gluonjit.gluon import nnn"])
def test_a_misspelt_module_gets_a_suggestion(statement):
    with pytest.raises(ModuleNotFoundError, match="there is no 'nnn' in 'gluonjit.gluon'; did you mean 'nn'"):
        exec(statement)
    with pytest.raises(ImportError, match=r"^(?!.*did you mean)"):
        exec(statement.replace("nnn", "qwxyz"))
