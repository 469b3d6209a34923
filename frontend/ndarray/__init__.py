"""`mx.nd`: arrays, and every operator as a function that computes at once."""

from typing import Any

from gluonjit import control_flow
from gluonjit.language.kinds import lazy_packages
from gluonjit.language.namespace import Flavour, populate
from gluonjit.language.running import running
from gluonjit.ndarray import adamw
from gluonjit.ndarray.arithmetic import *  # noqa: F403
from gluonjit.ndarray.creation import *  # noqa: F403
from gluonjit.ndarray.custom import *  # noqa: F403
from gluonjit.ndarray.files import *  # noqa: F403
from gluonjit.ndarray.imperative import invoke
from gluonjit.ndarray.ndarray import NDArray
from gluonjit.ndarray.sharing import *  # noqa: F403


def _adopt(value: Any) -> Any:
    """In a block that is being traced, symbols are arrays."""
    from gluonjit.symbol.symbol import Symbol

    return value if running.trace is not None and isinstance(value, Symbol) else None


FLAVOUR = Flavour(__name__, NDArray, invoke, imperative=True, adopt=_adopt)
populate(globals(), FLAVOUR)

globals()["op"].Custom = globals()["Custom"]
globals()["contrib"].__dict__.update(adamw.functions())
globals()["contrib"].__dict__.update(control_flow.functions(arrays=True))

_of_operators = globals()["__getattr__"]
_numpy_packages = lazy_packages(__name__, symbolic=False)


def __getattr__(name: str) -> Any:
    """`np` and `npx` are made when they are first asked for."""
    return _numpy_packages(name) or _of_operators(name)
