"""`foreach`, `while_loop` and `cond` of `nd.contrib` and `sym.contrib`.

Imperatively they are Python loops and branches, here; `symbol.control_flow` has them for symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gluonjit import random
from gluonjit.base import MXNetError
from gluonjit.language import forms
from gluonjit.language.kinds import as_np
from gluonjit.language.running import running

if TYPE_CHECKING:
    from gluonjit.ndarray import NDArray


def flat(value: Any, what: str, kinds: tuple[type, ...]) -> tuple[list[Any], Any]:
    """The arrays in nested lists, and their form. AssertionError, as MXNet raises it, for anything else."""
    try:
        return forms.flatten(value, lambda v: isinstance(v, kinds), what)
    except ValueError:
        message = f"{what} must be (nested) list of arrays, but got {value} of type {type(value)}"
        raise AssertionError(message) from None


def listed(form: Any) -> Any:
    """A form with lists for tuples, which is how outputs are given."""
    return (list, *map(listed, form[1:])) if isinstance(form, tuple) else form


def _number(value: Any, kind: Callable[[Any], Any], what: str) -> Any:
    """A Python number, of an array of one element or of anything that `kind` takes."""
    from gluonjit.ndarray import NDArray

    if isinstance(value, NDArray):
        value = value.asscalar()
    try:
        return kind(value)
    except (TypeError, ValueError) as e:
        raise ValueError(f"Cannot convert {what} to python {kind.__name__}") from e


def iterations(loop_vars: Any, max_iterations: Any) -> int:
    if max_iterations is None:
        raise ValueError("max_iterations should be specified")
    count = _number(max_iterations, int, "max_iteration")
    if len(loop_vars) == 0:
        raise ValueError("loop_vars should contain at least one element")
    return count


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def one_step(result: Any, count: int) -> tuple[Any, list[Any]]:
    """Outputs and new variables of one iteration of `while_loop`."""
    outputs, variables = result
    if len(_as_list(variables)) != count:
        raise ValueError("The length of loop_vars should be consistent during the loop")
    return [] if outputs is None else outputs, _as_list(variables)


# Arrays


def _foreach_arrays(body: Callable[..., Any], data: Any, init_states: Any) -> Any:
    from gluonjit import ndarray as nd

    kind = (nd.NDArray,)
    leaves, form = flat(data, "foreach input", kind)
    form = listed(form)
    flat(init_states, "foreach states", kind)
    rows = {len(x) for x in leaves}
    if len(rows) != 1 or 0 in rows:
        shapes = ", ".join(str(x.shape) for x in leaves)
        raise MXNetError(f"foreach needs data with equally many rows, and one row at least; got {shapes or 'none'}")
    shape: Any = None
    states = init_states
    collected: list[list[Any]] = []
    with random.forked():
        for k in range(rows.pop()):
            outputs, states = body(forms.rebuild(form, [x[k] for x in leaves]), states)
            parts, shape = flat(outputs, "foreach output", kind)
            collected.append(parts)
    return forms.rebuild(listed(shape), [nd.stack(*column) for column in zip(*collected)]), states  # type: ignore[misc]


def _while_arrays(cond: Callable[..., Any], func: Callable[..., Any], loop_vars: Any, max_iterations: Any) -> Any:
    from gluonjit import ndarray as nd

    kind = (nd.NDArray,)
    most = iterations(loop_vars, max_iterations)
    alone = isinstance(loop_vars, nd.NDArray)
    variables = [loop_vars] if alone else list(loop_vars)
    count = len(variables)
    collected: list[list[NDArray]] = []
    form: Any = None
    with random.forked():
        while len(collected) < most and _number(cond(*variables), bool, "Return value of cond"):
            outputs, variables = one_step(func(*variables), count)
            parts, form = flat(outputs, "while output", kind)
            if collected and len(parts) != len(collected[0]):
                raise ValueError("Number of elements in step_output should be the same in each step")
            collected.append(parts)
        if collected:
            stacked = [_padded(column, most) for column in zip(*collected)]
        else:  # only an iteration tells what there would have been
            parts, form = flat(one_step(func(*variables), count)[0], "while output", kind)
            stacked = [_padded([x], most, used=0) for x in parts]
    return forms.rebuild(listed(form), stacked), variables[0] if alone else variables


def _padded(column: Sequence[NDArray], most: int, used: int | None = None) -> NDArray:
    """The first `used` arrays (None: all) as rows, followed by zeros up to `most` rows."""
    from gluonjit import ndarray as nd

    first = column[0]
    out = nd.zeros((most, *first.shape), dtype=first.dtype, ctx=first.context)
    for k, x in enumerate(column[:used]):
        if x.shape != first.shape:
            shapes = "\n".join(f"  Step {n}, shape is {y.shape}" for n, y in enumerate(column))
            raise ValueError(f"Shapes of step_outputs are inconsistent, which are:\n{shapes}")
        out[k] = x
    return as_np(out) if first._numpy else out


def _cond_arrays(pred: Any, then_func: Callable[[], Any], else_func: Callable[[], Any]) -> Any:
    with random.forked():
        return then_func() if _number(pred, bool, "pred") else else_func()


# What `contrib` has


def functions(arrays: bool) -> dict[str, Callable[..., Any]]:
    """The functions of `nd.contrib` (`arrays`) or of `sym.contrib`, by name."""

    def imperative() -> bool:
        return arrays and running.trace is None

    def foreach(body: Callable[..., Any], data: Any, init_states: Any, name: str = "foreach") -> Any:
        """`body(row, states) -> (outputs, states)` for row after row of the data: (stacked outputs, last states).

        `data` is an array or a list of arrays with equally many rows; the body gets one row of each.
        """
        if imperative():
            return _foreach_arrays(body, data, init_states)
        from gluonjit.symbol.control_flow import foreach_symbols

        return foreach_symbols(body, data, init_states, name)

    def while_loop(
        cond: Callable[..., Any],
        func: Callable[..., Any],
        loop_vars: Any,
        max_iterations: int | None = None,
        name: str = "while_loop",
    ) -> Any:
        """`func(*variables) -> (outputs, variables)` while `cond(*variables)`: (stacked outputs, last variables).

        Outputs have `max_iterations` rows; those past the end of the loop are 0.
        """
        if imperative():
            return _while_arrays(cond, func, loop_vars, max_iterations)
        from gluonjit.symbol.control_flow import while_symbols

        return while_symbols(cond, func, loop_vars, max_iterations, name)

    def cond(pred: Any, then_func: Callable[[], Any], else_func: Callable[[], Any], name: str = "cond") -> Any:
        """`then_func()` if `pred`, an array of one number, is not 0, else `else_func()`.

        Both give the same number of arrays, of the same shapes and types.
        """
        if imperative():
            return _cond_arrays(pred, then_func, else_func)
        from gluonjit.symbol.control_flow import cond_symbols

        return cond_symbols(pred, then_func, else_func, name)

    return {f.__name__: f for f in (foreach, while_loop, cond)}
