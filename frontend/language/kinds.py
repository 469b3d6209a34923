"""NumPy's arrays and MXNet's old ones: two classes for arrays, and two for each kind of symbol, on the same memory.

What `mx.np` and `mx.npx` return is always of the new kind. An operator of `mx.nd` gives that if some operand is
one, so layers made of such operators work with both (MXNet refuses a mixture).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from gluonjit.language.namespace import _clean
from gluonjit.language.running import running
from gluonjit.operators.registry import get


@cache
def _classes() -> tuple[dict[type, type], dict[type, type]]:
    """The new class by the old one, and the other way round."""
    from gluonjit.ndarray import NDArray
    from gluonjit.numpy.multiarray import ndarray
    from gluonjit.numpy.symbols import TracedArray, _Symbol
    from gluonjit.symbol import Symbol
    from gluonjit.trace.symbol import TracedSymbol

    pairs = [(NDArray, ndarray), (Symbol, _Symbol), (TracedSymbol, TracedArray)]
    return dict(pairs), {new: old for old, new in pairs}


def as_np(value: Any) -> Any:
    """Makes arrays and symbols that nobody else has seen into those of `mx.np`; lists of them, too."""
    if isinstance(value, (list, tuple)):
        return [as_np(x) for x in value]
    kind = _classes()[0].get(value.__class__)
    if kind is not None:
        value.__class__ = kind
    return value


def as_nd(value: Any) -> Any:
    """The other way round."""
    kind = _classes()[1].get(value.__class__)
    if kind is not None:
        value.__class__ = kind
    return value


def apply(
    op: str,
    operands: Sequence[Any],
    attrs: dict[str, Any] | None = None,
    out: Any = None,
    name: str | None = None,
    symbolic: bool = False,
) -> Any:
    """Runs an operator on arrays or symbols of either kind, or appends a node, and gives results of the new kind.

    `symbolic` decides where there are no operands. TypeError for an operand that is no array.
    """
    NDArray, Symbol, compute, append = _flavours()
    untyped = symbolic
    for x in operands:
        if not isinstance(x, NDArray):
            if not isinstance(x, Symbol):
                raise TypeError(f"type {type(x)} not supported")
            untyped = True
    operator = _operator(op)
    # A dtype of None is none; for operators called by name it is NumPy's default.
    raw = _clean({key: value for key, value in attrs.items() if key != "dtype" or value is not None}) if attrs else {}
    trace = running.trace
    if trace is not None and trace.concerns(operands):
        result = trace.invoke(operator, operands, raw, out, name, None, _hint(op))
    elif untyped:
        result = append(operator, operands, raw, None, name, None, _hint(op))
    else:
        result = compute(operator, operands, raw, out)
    return result if out is not None else as_np(result)


@cache
def _flavours() -> tuple[Any, Any, Any, Any]:
    """The classes of arrays and of symbols, and what runs an operator on each."""
    from gluonjit.ndarray import NDArray, imperative
    from gluonjit.symbol import Symbol, symbol

    return NDArray, Symbol, imperative.invoke, symbol.invoke


_operator = cache(get)


def _hint(op: str) -> str:
    """What nodes are named after: `_npi_mean` is `mean`."""
    return op.lstrip("_").partition("_")[2]


def lazy_packages(package: str, symbolic: bool) -> Callable[[str], Any]:
    """A function that gives `np`, `numpy`, `npx` or `numpy_extension` of `mx.nd` or `mx.sym`, made at first, else None.

    Few programs use any.
    """
    made: dict[str, Any] = {}

    def find(name: str) -> Any:
        if name not in ("np", "numpy", "npx", "numpy_extension"):
            return None
        if not made:
            from gluonjit.numpy.namespaces import flavours, module

            for full, short, content in zip(("numpy", "numpy_extension"), ("np", "npx"), flavours(symbolic)):
                doc = f"`mx.{'sym' if symbolic else 'nd'}.{short}`"
                made[full] = made[short] = module(f"{package}.{full}", doc, content)
        return made[name]

    return find
