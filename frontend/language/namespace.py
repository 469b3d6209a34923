"""The operator functions of `mx.nd` and `mx.sym`, made from the registry on first use.

Both packages have the same functions in the same places, with MXNet's calling convention:

    nd.FullyConnected(data=None, weight=None, bias=None, num_hidden=_Null, …, out=None, name=None)

inputs by position or keyword, then attributes by position (in declared order) or keyword. A call ends in the flavour's
`invoke`, which computes (`mx.nd`) or appends a node (`mx.sym`). `populate` adds the functions to a package:

    populate(globals(), Flavour("gluonjit.ndarray", NDArray, invoke, OPERATORS, imperative=True))

Operators are placed as in MXNet: `_contrib_X` is `contrib.X`, likewise linalg, image and sparse; `_random_X_like` is
`random.X_like`; other names with a leading underscore are in `_internal`, and all others both in `op` and in the
package itself.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from gluonjit.base import _Null, dtype_name
from gluonjit.ir.opdef import REQUIRED
from gluonjit.language import contrib_functions
from gluonjit.language.array import Array
from gluonjit.language.mxnet_names import as_package, no_attribute, place_of
from gluonjit.language.running import running
from gluonjit.language.sampling import samplers

if TYPE_CHECKING:
    from gluonjit.operators.registry import Operator

SUBMODULES = ("op", "_internal", "contrib", "linalg", "image", "sparse", "random")


class Flavour(NamedTuple):
    """What distinguishes `mx.nd` from `mx.sym`.

    * `package`: its full name, as error messages show it; `array`: the class of its operands; `imperative`: whether
      calls compute at once; `operators`: all operators, by each of their names.
    * `invoke(op, operands, attrs, out, name, attr, hint)` executes a call. `operands` has an entry for every input of
      the signature up to the last one given, None for an omitted one; `attrs` are not parsed yet; `hint` is the name
      under which the operator was called (automatic node names derive from it).
    """

    package: str
    array: type[Array]
    invoke: Callable[..., Any]
    operators: Mapping[str, Operator]
    imperative: bool

    @property
    def tail(self) -> tuple[str, ...]:
        """The parameters that follow the attributes, in order."""
        return ("out", "name") if self.imperative else ("name", "attr", "out")

    def add(self, module: str, functions: Mapping[str, Any]) -> None:
        """Adds functions to a sub-module."""
        for name, function in functions.items():
            setattr(sys.modules[f"{self.package}.{module}"], name, function)

    def operand(self, value: Any, what: str) -> Any:
        """`value` as an operand; MXNet's AssertionError, which names the argument as `what`, if it cannot be one.

        While a trace runs, its symbols are accepted as arrays, and NDArrays are captured as inputs of the graph.
        """
        if isinstance(value, self.array):
            return value
        if running.trace is not None and isinstance(value, Array):
            return value if value._symbolic else running.trace.capture(value)
        kind = self.array.__name__
        must = f"have {kind} type" if self.imperative else f"be {kind} instances"
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], Array):
            said = f"a {type(value).__name__} of {len(value)} such; write *arrays for the arrays that are in it"
        elif isinstance(value, np.ndarray):
            said = f"an ndarray of NumPy's of shape {value.shape}; mx.nd.array(x) makes an NDArray"
        else:
            said = value
        raise AssertionError(f"{what} must {must}, but got {said}")


def populate(package: dict[str, Any], flavour: Flavour) -> None:
    """Adds operator functions and the sub-modules `op`, `contrib`, `linalg`, … to a package (its globals).

    The sub-modules are made here, not read from files; they are put into `sys.modules`, so that
    `import gluonjit.ndarray.op` works. Names that the package or a sub-module defines itself take precedence. Also sets
    `_functions` and `_invoke` of the array class.
    """
    flavour.array._functions = sys.modules[flavour.package]
    flavour.array._invoke = staticmethod(flavour.invoke)  # type: ignore[assignment]
    made: dict[str, Callable[..., Any]] = {}
    for name in SUBMODULES:
        kind = types.ModuleType if name in ("op", "_internal") else _Small
        module = kind(f"{flavour.package}.{name}", f"`{flavour.package}.{name}`: operators.")
        _resolve_lazily(_dict_of(module), name, flavour, made)
        sys.modules[module.__name__] = module
        as_package(module.__name__)
        package[name] = module
    flavour.add("random", samplers(flavour, package["_internal"]))
    flavour.add("contrib", contrib_functions.of_both())
    _resolve_lazily(package, "op", flavour, made)
    for name in SUBMODULES:
        if isinstance(package[name], _Small):
            _unlisted[package[name]] = flavour.operators


class _Small(types.ModuleType):
    """A module in whose `__dict__`, where programs look up names, all functions are."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        for name in operators_in(self.__name__.rpartition(".")[2], _unlisted.pop(self, ())):
            getattr(self, name)
        return _dict_of(self)


_dict_of: Callable[[types.ModuleType], dict[str, Any]] = vars(types.ModuleType)["__dict__"].__get__
_unlisted: dict[types.ModuleType, Iterable[str]] = {}
"""The operators of modules in whose `__dict__` nobody has looked yet."""


def _resolve_lazily(namespace: dict[str, Any], place: str, flavour: Flavour, made: dict[str, Any]) -> None:
    """Adds a `__getattr__` (PEP 562) that makes the function of an operator that belongs in `place`, and keeps it.

    `made` holds the functions made so far, by full operator name, so that `nd.relu` and `nd.op.relu` are one object.
    """
    module = namespace["__name__"]

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return [public for public in __dir__() if not public.startswith("_")]
        if not name.startswith("__"):
            full = _full_name(place, name)
            op = flavour.operators.get(full)
            if op is not None and place_of(full) == (place, name):
                if full not in made:
                    made[full] = make_function(op, name, module, flavour)
                namespace[name] = made[full]
                return made[full]
        raise no_attribute(module, name, __dir__())

    def __dir__() -> list[str]:
        return sorted({*namespace, *operators_in(place, flavour.operators)})

    namespace["__getattr__"] = __getattr__
    namespace["__dir__"] = __dir__


def _full_name(place: str, name: str) -> str:
    return name if place in ("op", "_internal") else f"_{place}_{name}"


def operators_in(place: str, operators: Iterable[str]) -> Iterator[str]:
    """The names of all functions that belong in sub-module `place`."""
    for full in operators:
        where, name = place_of(full)
        if where == place:
            yield name


def make_function(op: Operator, public: str, module: str, flavour: Flavour) -> Callable[..., Any]:
    """The function named `public` that runs `op` in the given flavour, with signature and documentation."""
    function = (_variadic if op.variadic else _fixed)(op, public, flavour)
    function.__name__ = function.__qualname__ = public
    function.__module__ = module
    function.__doc__ = document(op)
    function.__signature__ = signature(op, flavour)  # type: ignore[attr-defined]
    return function


def _fixed(op: Operator, public: str, flavour: Flavour) -> Callable[..., Any]:
    inputs = input_names(op)
    after = (*op.attrs, *flavour.tail)
    array, invoke = flavour.array, flavour.invoke
    count = len(inputs)

    def function(*args: Any, **kwargs: Any) -> Any:
        operands: list[Any] = list(args[:count])
        if len(args) > count:
            if len(args) > count + len(after):
                _too_many(public, count + len(after), len(args))
            for key, value in zip(after, args[count:]):
                if key in kwargs:
                    _twice(public, key)
                kwargs[key] = value
        if not kwargs:
            out = name = attr = None
        else:
            for k, key in enumerate(inputs):
                if key in kwargs:
                    if k < len(args):
                        _twice(public, key)
                    operands.extend([None] * (k + 1 - len(operands)))
                    operands[k] = kwargs.pop(key)
            out = kwargs.pop("out", None)
            name = kwargs.pop("name", None)
            attr = kwargs.pop("attr", None)
            kwargs = clean(kwargs)
        for k, value in enumerate(operands):
            if value.__class__ is not array and value is not None:
                operands[k] = flavour.operand(value, f"Argument {inputs[k]}")
        return invoke(op, operands, kwargs, out, name, attr, public)

    return function


def _variadic(op: Operator, public: str, flavour: Flavour) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        operands = [flavour.operand(value, "Positional arguments") for value in args]
        out = kwargs.pop("out", None)
        name = kwargs.pop("name", None)
        attr = kwargs.pop("attr", None)
        kwargs = clean(kwargs)
        if "num_args" in op.attrs and "num_args" not in kwargs:
            # Inputs may also be keywords (`Concat(arg0=x, arg1=y)`).
            kwargs["num_args"] = len(args) + sum(isinstance(v, flavour.array) for v in kwargs.values())
        return invoke(op, operands, kwargs, out, name, attr, public)

    invoke = flavour.invoke
    return function


def clean(attrs: dict[str, Any]) -> dict[str, Any]:
    """The attributes without omitted ones (`_Null`), and with `dtype` as a name, in whatever form it was given."""
    attrs = {key: value for key, value in attrs.items() if value is not _Null}
    if "dtype" in attrs:
        attrs["dtype"] = dtype_name(attrs["dtype"])
    return attrs


def _too_many(public: str, most: int, given: int) -> NoReturn:
    raise TypeError(f"{public}() takes from 0 to {most} positional arguments but {given} were given")


def _twice(public: str, key: str) -> NoReturn:
    raise TypeError(f"{public}() got multiple values for argument {key!r}")


@cache
def input_names(op: Operator) -> tuple[str, ...]:
    """All inputs of a non-variadic operator, in order, including those that an attribute can remove.

    They are the positional parameters of its expansion, after the emitter.
    """
    if isinstance(op.inputs, tuple):
        return op.inputs
    code = inspect.unwrap(op.expand).__code__  # the profiler wraps it
    return code.co_varnames[1 : code.co_argcount]


def signature(op: Operator, flavour: Flavour) -> inspect.Signature:
    """The signature of MXNet's generated function; for a variadic operator `(*data, **kwargs)`."""
    if op.variadic:
        return inspect.Signature([_DATA, _REST])
    inputs = [_parameter(name, None) for name in input_names(op)]
    attrs = [_parameter(name, _Null) for name in op.attrs]
    tail = [_parameter(name, None) for name in flavour.tail]
    return inspect.Signature([*inputs, *attrs, *tail, _REST])


_DATA = inspect.Parameter("data", inspect.Parameter.VAR_POSITIONAL)
_REST = inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)


@cache
def _parameter(name: str, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)


@cache
def document(op: Operator) -> str:
    """The docstring of an operator's function: that of its expansion, with inputs and attributes before the example."""
    text, mark, example = op.doc.partition("\n>>> ")
    inputs = "*data" if op.variadic else ", ".join(input_names(op))
    lines = [text.rstrip() or op.name, "", "Parameters", "----------", *([f"{inputs} : inputs"] if inputs else [])]
    for name, attr in op.attrs.items():
        need = "required" if attr.default is REQUIRED else f"optional, default={attr.default!r}"
        lines.append(f"{name} : {attr.kind}, {need}")
        if attr.doc:
            lines.append(f"    {attr.doc}")
    if example:
        lines += ["", "Examples", "--------", mark.lstrip() + example]
    return "\n".join(lines)
