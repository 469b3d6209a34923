"""`mx.nd`: arrays, and every operator as a function that computes at once."""

from typing import TYPE_CHECKING, Any

from gluonjit import control_flow
from gluonjit.namespace import Flavour, populate
from gluonjit.ndarray import adamw
from gluonjit.ndarray.arithmetic import *  # noqa: F403
from gluonjit.ndarray.creation import *  # noqa: F403
from gluonjit.ndarray.custom import *  # noqa: F403
from gluonjit.ndarray.files import *  # noqa: F403
from gluonjit.ndarray.imperative import invoke
from gluonjit.ndarray.ndarray import NDArray
from gluonjit.trace.state import running

if TYPE_CHECKING:  # what `populate` makes

    def __getattr__(name: str) -> Any: ...


def _adopt(value: Any) -> Any:
    """In a block that is being traced, symbols are arrays."""
    from gluonjit.symbol.symbol import Symbol

    return value if running.trace is not None and isinstance(value, Symbol) else None


populate(globals(), Flavour(__name__, NDArray, invoke, imperative=True, adopt=_adopt))

globals()["op"].Custom = globals()["Custom"]
globals()["contrib"].__dict__.update(adamw.functions())
globals()["contrib"].__dict__.update(control_flow.functions(arrays=True))
