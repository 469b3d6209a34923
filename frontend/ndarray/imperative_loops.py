"""`foreach`, `while_loop` and `cond` on arrays, as Python loops and branches. Only symbols use `name`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.language import forms, rng
from gluonjit.language.kinds import as_np
from gluonjit.language.loop_contract import flat, iterations, listed, number, one_step
from gluonjit.ndarray.constructors import zeros
from gluonjit.ndarray.ndarray import NDArray


def foreach(body: Callable[..., Any], data: Any, init_states: Any, name: str) -> Any:
    kind = NDArray
    leaves, form = flat(data, "foreach input", kind)
    form = listed(form)
    flat(init_states, "foreach states", kind)
    rows = {len(x) for x in leaves}
    if len(rows) != 1 or 0 in rows:
        shapes = ", ".join(str(x.shape) for x in leaves)
        raise MXNetError(f"foreach needs data with the same number of rows, at least one; got {shapes or 'none'}")
    shape: Any = None
    states = init_states
    collected: list[list[Any]] = []
    with rng.forked():
        for k in range(rows.pop()):
            outputs, states = body(forms.rebuild(form, [x[k] for x in leaves]), states)
            parts, shape = flat(outputs, "foreach output", kind)
            collected.append(parts)
    return forms.rebuild(listed(shape), [NDArray._functions.stack(*column) for column in zip(*collected)]), states  # type: ignore[misc]


def while_loop(
    cond: Callable[..., Any], func: Callable[..., Any], loop_vars: Any, max_iterations: Any, name: str
) -> Any:
    kind = NDArray
    most = iterations(loop_vars, max_iterations)
    alone = isinstance(loop_vars, NDArray)
    variables = [loop_vars] if alone else list(loop_vars)
    count = len(variables)
    collected: list[list[NDArray]] = []
    form: Any = None
    with rng.forked():
        while len(collected) < most and number(cond(*variables), bool, "Return value of cond"):
            outputs, variables = one_step(func(*variables), count)
            parts, form = flat(outputs, "while output", kind)
            if collected and len(parts) != len(collected[0]):
                raise ValueError("Number of elements in step_output should be the same in each step")
            collected.append(parts)
        if collected:
            stacked = [_padded(column, most) for column in zip(*collected)]
        else:  # the shapes of the outputs are known only from an iteration
            parts, form = flat(one_step(func(*variables), count)[0], "while output", kind)
            stacked = [_padded([x], most, used=0) for x in parts]
    return forms.rebuild(listed(form), stacked), variables[0] if alone else variables


def _padded(column: Sequence[NDArray], most: int, used: int | None = None) -> NDArray:
    """The first `used` arrays (None: all) as rows, followed by zeros up to `most` rows."""
    first, rows = column[0], column[:used]
    if any(x.shape != first.shape for x in rows):
        shapes = "\n".join(f"  Step {n}, shape is {y.shape}" for n, y in enumerate(column))
        raise ValueError(f"Shapes of step_outputs are inconsistent, which are:\n{shapes}")
    rest = zeros((most - len(rows), *first.shape), dtype=first.dtype, ctx=first.context)
    rest = as_np(rest) if first._numpy else rest
    if not rows:
        return rest
    stacked = NDArray._functions.stack(*rows)
    return NDArray._functions.concat(stacked, rest, dim=0) if len(rest) else stacked


def cond(pred: Any, then_func: Callable[[], Any], else_func: Callable[[], Any], name: str) -> Any:
    with rng.forked():
        return then_func() if number(pred, bool, "pred") else else_func()
