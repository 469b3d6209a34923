"""Which frame is the user's."""

import sys
from types import SimpleNamespace

import pytest

import gluonjit as mx
from gluonjit.gluon import nn
from gluonjit.ir.graph import Loc
from gluonjit.language.source import quote, shown, user_frame


@pytest.mark.parametrize(
    ("module", "in_models", "found"),
    [
        ("train", False, "train"),
        ("gluonjitter", False, "gluonjitter"),
        ("gluonjit.gluon.nn", True, __name__),
        ("gluonjit.gluon.model_zoo.vision", False, __name__),
        ("gluonjit.gluon.model_zoo.vision", True, "gluonjit.gluon.model_zoo.vision"),
    ],
)
def test_whose_a_module_is(module, in_models, found):
    space = {"__name__": module, "user_frame": user_frame, "in_models": in_models}
    exec("def f():\n    return user_frame(in_models=in_models)", space)
    for _ in range(2):
        assert space["f"]().f_globals["__name__"] == found


def test_the_caller_of_the_command_line_is_no_user():
    space = {"__name__": "gluonjit.tools.cli", "user_frame": user_frame}
    exec("def f():\n    return user_frame()", space)
    assert space["f"]() is None


def test_frames_that_are_known_spare_the_walk():
    space = {"__name__": "gluonjit.gluon", "user_frame": user_frame, "known": {id(sys._getframe()): None}}
    exec("def f():\n    return user_frame(known)", space)
    assert space["f"]() is None


def test_places_in_cells_of_ipython(monkeypatch):
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map={"/tmp/ipykernel_1/23.py": 4}))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert quote(Loc("/tmp/ipykernel_1/23.py", 2, "net")) == "\n  at In [4], line 2 (net)"
    assert shown(Loc("other.py", 2)) == "other.py:2"


@pytest.mark.parametrize("hybridized", [False, True])
def test_errors_of_layers_tell_who_called_and_who_made_them(hybridized):
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=5))
    net.add(nn.Dense(4, in_units=7))  # the wrong one
    net.initialize()
    net.hybridize(hybridized)
    with pytest.raises(mx.MXNetError) as caught:
        net(mx.nd.ones((2, 5)))  # the call
    assert "# the call" in str(caught.value) and "# the wrong one" in str(caught.value)
    with pytest.raises(mx.MXNetError) as caught:
        net[1](mx.nd.ones((2, 5)))  # alone
    assert "# alone" in str(caught.value)
