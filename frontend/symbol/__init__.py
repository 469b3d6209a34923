"""`mx.sym`: graphs, and every operator as a function that appends to one."""

from typing import Any as _Any

from gluonjit import control_flow as _control_flow
from gluonjit.execution.bound import Executor as Executor
from gluonjit.language.kinds import lazy_packages as _lazy_packages
from gluonjit.language.namespace import Flavour, populate
from gluonjit.language.running import running as _running
from gluonjit.symbol.files import *  # noqa: F403
from gluonjit.symbol.functions import *  # noqa: F403
from gluonjit.symbol.symbol import Group as Group
from gluonjit.symbol.symbol import Symbol as Symbol
from gluonjit.symbol.symbol import Variable as Variable
from gluonjit.symbol.symbol import invoke as invoke
from gluonjit.symbol.symbol import var as var


def _adopt(value: _Any) -> _Any:
    """While tracing, an array from outside may be an operand."""
    from gluonjit.ndarray import NDArray

    trace = _running.trace
    return trace.capture(value) if trace is not None and isinstance(value, NDArray) else None


FLAVOUR = Flavour(__name__, Symbol, invoke, imperative=False, adopt=_adopt)
populate(globals(), FLAVOUR)

globals()["op"].Custom = globals()["Custom"]
globals()["contrib"].__dict__.update(_control_flow.functions(arrays=False))

_of_symbols = globals()["__getattr__"]
_numpy_packages = _lazy_packages(__name__, symbolic=True)


def __getattr__(name: str) -> _Any:
    """`np` and `npx` are made when first asked for; while tracing, what only `mx.nd` has (`F.array`) works, too."""
    found = _numpy_packages(name)
    if found is not None:
        return found
    try:
        return _of_symbols(name)
    except AttributeError:
        from gluonjit import ndarray

        if _running.trace is None or not hasattr(ndarray, name):
            raise
        return getattr(ndarray, name)
