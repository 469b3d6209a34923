"""`mx.nd`: arrays, and every operator as a function that computes at once."""

from typing import Any

from gluonjit.language import late, loop_contract
from gluonjit.language.kinds import lazy_packages
from gluonjit.language.namespace import Flavour, populate
from gluonjit.language.running import running
from gluonjit.ndarray import (  # noqa: F401
    contrib_updates,
    csr_graphs,
    imperative_loops,
    numpy_protocols,
    sparse_functions,
)
from gluonjit.ndarray.array_arithmetic import *  # noqa: F403
from gluonjit.ndarray.array_files import *  # noqa: F403
from gluonjit.ndarray.constructors import *  # noqa: F403
from gluonjit.ndarray.custom_calls import *  # noqa: F403
from gluonjit.ndarray.imperative import invoke
from gluonjit.ndarray.ndarray import NDArray
from gluonjit.ndarray.sharing import *  # noqa: F403
from gluonjit.operators.registry import OPERATORS

FLAVOUR = Flavour(__name__, NDArray, invoke, OPERATORS, imperative=True)
populate(globals(), FLAVOUR)

globals()["op"].Custom = globals()["Custom"]
FLAVOUR.add("contrib", contrib_updates.functions())
FLAVOUR.add("contrib", {"getnnz": sparse_functions.getnnz, **csr_graphs.functions()})
FLAVOUR.add("contrib", loop_contract.functions(lambda: running.trace or imperative_loops))
FLAVOUR.add("sparse", sparse_functions.FUNCTIONS)

_of_operators = globals()["__getattr__"]
_numpy_packages = lazy_packages(__name__, symbolic=False)


def __getattr__(name: str) -> Any:
    """Creates `np`, `npx` and `CachedOp` on first use."""
    if name == "CachedOp":
        return late.cached_op_class()
    return _numpy_packages(name) or _of_operators(name)
