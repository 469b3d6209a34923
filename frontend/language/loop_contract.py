"""`foreach`, `while_loop` and `cond` of `contrib`: their signatures, and checks of their arguments and results.

`ndarray.imperative_loops` executes them, `symbol.symbolic_loops` makes nodes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gluonjit.language import forms
from gluonjit.language.array import Array


def flat(value: Any, what: str, kind: type) -> tuple[list[Any], Any]:
    """The arrays of class `kind` in nested lists, and their form. AssertionError, as in MXNet, for anything else."""
    try:
        return forms.flatten(value, lambda v: isinstance(v, kind), what)
    except ValueError:
        message = f"{what} must be (nested) list of arrays, but got {value} of type {type(value)}"
        raise AssertionError(message) from None


def listed(form: Any) -> Any:
    """A form with lists in place of tuples, as outputs are returned."""
    return (list, *map(listed, form[1:])) if isinstance(form, tuple) else form


def number(value: Any, kind: Callable[[Any], Any], what: str) -> Any:
    """An array of one element, or anything that `kind` accepts, as a Python number. ValueError that names `what`."""
    if isinstance(value, Array) and not value._symbolic:
        value = value.asscalar()  # type: ignore[attr-defined]
    try:
        return kind(value)
    except (TypeError, ValueError) as e:
        raise ValueError(f"Cannot convert {what} to python {kind.__name__}") from e


def iterations(loop_vars: Any, max_iterations: Any) -> int:
    """The most iterations that `while_loop` may make. ValueError if that is missing, or if there are no variables."""
    if max_iterations is None:
        raise ValueError("max_iterations should be specified")
    count = number(max_iterations, int, "max_iteration")
    if len(loop_vars) == 0:
        raise ValueError("loop_vars should contain at least one element")
    return count


def one_step(result: Any, count: int) -> tuple[Any, list[Any]]:
    """Outputs and new variables of one iteration of `while_loop`."""
    outputs, variables = result
    if len(_as_list(variables)) != count:
        raise ValueError("The length of loop_vars should be consistent during the loop")
    return [] if outputs is None else outputs, _as_list(variables)


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def functions(loops: Callable[[], Any]) -> dict[str, Callable[..., Any]]:
    """The functions of `contrib`, by name. `loops()` has functions of the same names that implement them."""

    def foreach(body: Callable[..., Any], data: Any, init_states: Any, name: str = "foreach") -> Any:
        """Calls `body(row, states) -> (outputs, states)` for each row of the data. Returns (stacked outputs, last
        states).

        `data` is an array or a list of arrays with the same number of rows; the body gets one row of each.

        >>> step = lambda row, states: (row + states[0], [row + states[0]])
        >>> sums, last = mx.nd.contrib.foreach(step, mx.nd.array([1, 2, 3]), [mx.nd.zeros(1)])
        >>> sums.asnumpy().ravel(), last[0].asnumpy()
        (array([1., 3., 6.], dtype=float32), array([6.], dtype=float32))
        """
        return loops().foreach(body, data, init_states, name)

    def while_loop(
        cond: Callable[..., Any],
        func: Callable[..., Any],
        loop_vars: Any,
        max_iterations: int | None = None,
        name: str = "while_loop",
    ) -> Any:
        """Calls `func(*variables) -> (outputs, variables)` while `cond(*variables)` is true. Returns (stacked outputs,
        last variables).

        Outputs have `max_iterations` rows; those after the last iteration are 0.

        >>> below, double = lambda x: x < 10, lambda x: (x, [2 * x])
        >>> rows, last = mx.nd.contrib.while_loop(below, double, [mx.nd.array([3])], max_iterations=3)
        >>> rows.asnumpy().ravel().tolist(), last[0].asnumpy().tolist()
        ([3.0, 6.0, 0.0], [12.0])
        """
        return loops().while_loop(cond, func, loop_vars, max_iterations, name)

    def cond(pred: Any, then_func: Callable[[], Any], else_func: Callable[[], Any], name: str = "cond") -> Any:
        """`then_func()` if `pred`, an array of one number, is not 0, else `else_func()`.

        Both must return the same number of arrays, of the same shapes and types.

        >>> x = mx.nd.array([3])
        >>> mx.nd.contrib.cond(x > 2, lambda: x + 1, lambda: x - 1).asnumpy()
        array([4.], dtype=float32)
        """
        return loops().cond(pred, then_func, else_func, name)

    return {f.__name__: f for f in (foreach, while_loop, cond)}
