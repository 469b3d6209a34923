"""`mx.nd`: arrays, and every operator as a function that computes at once."""

from gluonjit.namespace import Flavour, populate
from gluonjit.ndarray.arithmetic import *  # noqa: F403
from gluonjit.ndarray.creation import *  # noqa: F403
from gluonjit.ndarray.imperative import invoke
from gluonjit.ndarray.ndarray import NDArray

populate(globals(), Flavour(__name__, NDArray, invoke, imperative=True))
