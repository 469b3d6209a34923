"""`mx.nd`: arrays, and every operator as a function that computes at once."""

from typing import TYPE_CHECKING, Any

from gluonjit.namespace import Flavour, populate
from gluonjit.ndarray.arithmetic import *  # noqa: F403
from gluonjit.ndarray.creation import *  # noqa: F403
from gluonjit.ndarray.imperative import invoke
from gluonjit.ndarray.ndarray import NDArray

if TYPE_CHECKING:  # what `populate` makes

    def __getattr__(name: str) -> Any: ...


populate(globals(), Flavour(__name__, NDArray, invoke, imperative=True))
