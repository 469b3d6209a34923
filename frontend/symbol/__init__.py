"""`mx.sym`: graphs, and every operator as a function that appends to one."""

from typing import Any as _Any

from gluonjit.language import late as _late
from gluonjit.language import loop_contract as _loop_contract
from gluonjit.language.kinds import lazy_packages as _lazy_packages
from gluonjit.language.namespace import Flavour, populate
from gluonjit.language.running import running as _running
from gluonjit.operators.registry import OPERATORS as _OPERATORS
from gluonjit.symbol import symbolic_loops as _symbolic_loops
from gluonjit.symbol.chosen_operators import *  # noqa: F403
from gluonjit.symbol.json_files import *  # noqa: F403
from gluonjit.symbol.symbol import Group as Group
from gluonjit.symbol.symbol import Symbol as Symbol
from gluonjit.symbol.symbol import Variable as Variable
from gluonjit.symbol.symbol import invoke as invoke
from gluonjit.symbol.symbol import var as var

FLAVOUR = Flavour(__name__, Symbol, invoke, _OPERATORS, imperative=False)
populate(globals(), FLAVOUR)

globals()["op"].Custom = globals()["Custom"]
FLAVOUR.add("contrib", _loop_contract.functions(lambda: _symbolic_loops))

_of_symbols = globals()["__getattr__"]
_numpy_packages = _lazy_packages(__name__, symbolic=True)


def __getattr__(name: str) -> _Any:
    """Creates `np`, `npx` and `Executor` on first use; while tracing, names of `mx.nd` alone (`F.array`) work, too."""
    if name == "Executor":
        return _late.executor_class()
    found = _numpy_packages(name)
    if found is not None:
        return found
    try:
        return _of_symbols(name)
    except AttributeError:
        if _running.trace is None:
            raise
        function = _running.trace.array_function(name)
        if function is None:
            raise
        return function
