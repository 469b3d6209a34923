"""Which frame is the user's."""

import sys

import pytest

from gluonjit.language.source import user_frame


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
