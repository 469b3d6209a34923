"""`Symbol`: one or several outputs of a graph without values, and usually without types.

What needs values or types raises the same errors as in MXNet: `NotImplementedForSymbol` for methods that arrays have,
`TypeError` for indexing, `AttributeError` for `shape` and similar. Under `hybridize()` the inputs' types are known, so
the symbols of a trace (`trace.traced_symbol.TracedSymbol`) support all of these.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Number
from typing import TYPE_CHECKING, Any, NoReturn

from gluonjit import attribute
from gluonjit.base import MXNetError, NotImplementedForSymbol, dtype_name
from gluonjit.context import current_context
from gluonjit.files.type_flags import TYPE_FLAGS
from gluonjit.ir.opdef import did_you_mean
from gluonjit.language import late
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.language.array import Array, add_methods
from gluonjit.language.kinds import as_np
from gluonjit.language.namespace import input_names
from gluonjit.language.running import running
from gluonjit.operators import registry
from gluonjit.operators.registry import Operator
from gluonjit.symbol import infer, json_reader, json_writer
from gluonjit.symbol.compose import make_node, not_found, without_numpy
from gluonjit.symbol.graph import (
    STORAGE_TYPES,
    Entry,
    Node,
    copy_graph,
    hidden_keys,
    post_order,
    shown_attrs,
    variables,
)
from gluonjit.symbol.signs import ARITHMETIC, SignMethods
from gluonjit.symbol.subgraph import with_graphs

if TYPE_CHECKING:  # with the methods that `add_methods` adds
    from gluonjit.symbol.array_methods import SymbolMethods
else:
    SymbolMethods = Array


class Symbol(SignMethods, SymbolMethods):
    """One output of a graph, such as `x + y`; several for an operator with several outputs, and for `Group`.

    >>> x = mx.sym.var("x")
    >>> y = mx.sym.FullyConnected(x, num_hidden=3, name="fc")
    >>> y.list_arguments(), y.infer_shape(x=(2, 4))[1]
    (['x', 'fc_weight', 'fc_bias'], [(2, 3)])
    """

    __slots__ = ("_heads",)
    _symbolic = True
    # NumPy scalars and arrays leave `np.float32(2) * x` to the symbol.
    __array_priority__ = 1000.0
    __hash__: Callable[..., int] = None  # type: ignore[assignment]  # as in MXNet: == makes a graph, so no dict key

    _heads: Sequence[Entry]

    def __init__(self, heads: Sequence[Entry]) -> None:
        self._heads = heads

    # Names and inputs

    @property
    def name(self) -> str | None:
        """The node's name; None for a group of several nodes."""
        nodes = {node for node, _ in self._heads}
        return nodes.pop().name if len(nodes) == 1 else None

    def __repr__(self) -> str:
        if self.name is None:
            return f"<Symbol group [{', '.join(node.name for node, _ in self._heads)}]>"
        return f"<Symbol {self.name}>"

    def list_outputs(self) -> list[str]:
        """The outputs' names, usually `<node>_output`."""
        return [node.output_names[k] for node, k in self._heads]

    def list_arguments(self) -> list[str]:
        """The names of the variables that the graph reads, without auxiliary states."""
        return [node.name for node in variables(self._heads)[0]]

    def list_auxiliary_states(self) -> list[str]:
        """The names of the variables that operators keep as state, such as running means."""
        return [node.name for node in variables(self._heads)[1]]

    def list_inputs(self) -> list[str]:
        """The names of all variables, arguments and auxiliary states."""
        return [node.name for node in post_order(self._heads) if node.op is None]

    def get_internals(self) -> Symbol:
        """A group of every output of every node."""
        return Symbol([(node, k) for node in post_order(self._heads) for k in range(node.visible)])

    def get_children(self) -> Symbol | None:
        """A group of the direct inputs of the output nodes; None if they have none."""
        heads = dict.fromkeys(node for node, _ in self._heads)
        inputs = [e for node in heads for e in node.inputs]
        return Symbol(inputs) if inputs else None

    def _gen_atomic_symbol(self) -> Callable[..., Symbol]:
        """MXNet's name for the operator of a symbol, with its attributes: called with inputs, it makes a new symbol."""
        node = self._single()
        op = None if node is None else node.op
        if node is None or op is None:
            raise MXNetError("_gen_atomic_symbol needs the result of an operator, not a variable or a group")

        def compose(*inputs: Symbol, name: str | None = None, **named: Symbol) -> Symbol:
            given = {key: x._entry(key) for key, x in named.items()} or [x._entry(op.name) for x in inputs]
            new = make_node(op, given, node.attrs, name=name)
            return Symbol([(new, k) for k in range(new.visible)])

        return compose

    # Attributes

    def _single(self) -> Node | None:
        nodes = {node for node, _ in self._heads}
        return nodes.pop() if len(nodes) == 1 else None

    def attr(self, key: str) -> str | None:
        """The attribute as a string, or None; also None for a group."""
        node = self._single()
        return shown_attrs(node).get(key) if node else None

    def list_attr(self, recursive: bool = False) -> dict[str, str]:
        """The node's attributes; {} for a group."""
        if recursive:
            raise DeprecationWarning(
                "Symbol.list_attr with recursive=True has been deprecated. Please use attr_dict instead."
            )
        node = self._single()
        return shown_attrs(node) if node else {}

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """The attributes of every node that has some, by its name."""
        return {node.name: shown_attrs(node) for node in post_order(self._heads) if node.attrs}

    def _set_attr(self, **attrs: str) -> None:
        """Sets attributes of the node in place; `name` is its name."""
        if not all(isinstance(value, str) for value in attrs.values()):
            raise ValueError("Set Attr only accepts string values")
        node = self._single()
        if node is None:
            raise MXNetError("a group of symbols has no attributes")
        node.name = attrs.pop("name", node.name)
        changed = {**node.attrs, **hidden_keys(attrs)}
        if node.op is not None:
            parsed = node.op.parse(changed, node.name)
            node.parsed, node._key = with_graphs(parsed, node.graphs) if node.graphs else parsed, None
        node.attrs = changed

    def debug_str(self) -> str:
        """The graph as MXNet prints it, node by node."""
        lines = ["Symbol Outputs:"]
        lines += [f"\toutput[{k}]={node.name}({index})" for k, (node, index) in enumerate(self._heads)]
        for node in post_order(self._heads):
            if node.op is None:
                lines.append(f"Variable:{node.name}")
                continue
            lines += ["-" * 20, f"Op:{node.op.name}, Name={node.name}", "Inputs:"]
            for k, (source, index) in enumerate(node.inputs):
                version = " version=0" if source.op is None else ""
                lines.append(f"\targ[{k}]={source.name}({index}){version}")
            if node.attrs:
                lines += ["Attrs:", *(f"\t{key}={node.attrs[key]}" for key in sorted(node.attrs))]
        return "\n".join(lines) + "\n"

    # Outputs

    def __len__(self) -> int:
        return len(self._heads)

    def __iter__(self) -> Iterator[Any]:
        return (Symbol([head]) for head in self._heads)

    def __getitem__(self, index: Any) -> Any:
        """Output number `index`, or the output of that name; a slice gives a group."""
        if isinstance(index, slice):
            start = 0 if index.start is None else index.start
            stop = len(self) if index.stop is None else index.stop
            return Group([self[k] for k in range(start, stop, 1 if index.step is None else index.step)])
        if isinstance(index, str):
            found = [k for k, name in enumerate(self.list_outputs()) if name == index]
            if len(found) > 1:
                raise ValueError(f'There are multiple outputs with name "{index}"')
            if not found:
                near = did_you_mean(index, self.list_outputs())
                raise ValueError(f'Cannot find output that matches name "{index}"{near}')
            index = found[0]
        if not isinstance(index, int):
            raise TypeError("Symbol only support integer index to fetch i-th output")
        if index >= len(self):
            raise IndexError
        if index < 0:
            raise MXNetError(f"Symbol only accept nonnegative index ({index} vs. {len(self)} outputs)")
        return Symbol([self._heads[index]])

    # Composition

    def __call__(self, *args: Symbol, **kwargs: Any) -> Symbol:
        """A copy of the graph in which each variable named by a keyword is replaced by the given symbol."""
        kwargs.pop("name", None)  # accepted and ignored, as in MXNet
        if args and kwargs:
            raise TypeError("compose only accept input Symbols either as positional or keyword arguments, not both")
        if not all(isinstance(s, Symbol) for s in (*args, *kwargs.values())):
            raise TypeError("Compose expect `Symbol` as arguments")
        if args:
            raise MXNetError("General composition only support kwargs for now")
        arguments = [node for node in post_order(self._heads) if node.op is None]
        names = [node.name for node in arguments]
        for key in kwargs:
            if key not in names:
                raise MXNetError(not_found(key, names))
        replace = {node: kwargs[node.name]._entry(node.name) for node in arguments if node.name in kwargs}
        return Symbol(copy_graph(self._heads, replace))

    def _entry(self, what: str) -> Entry:
        """The symbol's only output, as an operand; MXNetError if it has several."""
        if len(self._heads) != 1:
            raise MXNetError(f"Keyword Argument {what} is a tuple, single value is required")
        return self._heads[0]

    def __copy__(self) -> Symbol:
        return Symbol(copy_graph(self._heads))

    def __deepcopy__(self, memo: Any) -> Symbol:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        order = post_order(self._heads)
        if any(node.graphs for node in order):
            return _unpickle_json, (self.tojson(remove_amp_cast=False),)
        number = {node: k for k, node in enumerate(order)}
        rows = [
            (node.op.name if node.op else None, node.name, node.attrs, [(number[n], k) for n, k in node.inputs])
            for node in order
        ]
        return _unpickle, (rows, [(number[node], k) for node, k in self._heads])

    # Files

    def tojson(self, remove_amp_cast: bool = True) -> str:
        """The graph as MXNet's JSON; `remove_amp_cast` drops its `amp_cast` and `amp_multicast` nodes."""
        return json_writer.text(self._heads, remove_amp_cast)

    def save(self, fname: Any, remove_amp_cast: bool = True) -> None:
        """Writes `tojson` to a file; an existing file is replaced atomically."""
        if not isinstance(fname, (str, os.PathLike)):
            raise TypeError("fname need to be string")
        json_writer.write(fname, self._heads, remove_amp_cast)

    # Types

    def infer_shape(self, *args: Any, **kwargs: Any) -> Any:
        """(argument shapes, output shapes, auxiliary shapes), or three Nones if any shape stays unknown.

        Argument shapes are given in order or by name; 0 is an unknown dimension. MXNetError if they contradict each
        other.
        """
        return infer.infer_shape(self._heads, args, kwargs, partial=False)

    def infer_shape_partial(self, *args: Any, **kwargs: Any) -> Any:
        """Like `infer_shape`, but returns what is known: 0 for unknown dimensions, () for unknown ranks; under
        `np_shape`, where an array may have no elements, -1 and None."""
        return infer.infer_shape(self._heads, args, kwargs, partial=True)

    def infer_type(self, *args: Any, **kwargs: Any) -> Any:
        """(argument dtypes, output dtypes, auxiliary dtypes), or three Nones if any dtype stays unknown."""
        return infer.infer_type(self._heads, args, kwargs, partial=False)

    def infer_type_partial(self, *args: Any, **kwargs: Any) -> Any:
        """Like `infer_type`, but returns what is known, with None for unknown dtypes."""
        return infer.infer_type(self._heads, args, kwargs, partial=True)

    # Execution

    def bind(
        self,
        ctx: Any,
        args: Any,
        args_grad: Any = None,
        grad_req: Any = "write",
        aux_states: Any = None,
        group2ctx: Any = None,
        shared_exec: Any = None,
    ) -> Any:
        """An `Executor` over the given arrays: a list in the order of `list_arguments()`, or a dict by name."""
        return late.bind(self, ctx, args, args_grad, grad_req, aux_states, group2ctx)

    def simple_bind(
        self,
        ctx: Any,
        grad_req: Any = "write",
        type_dict: Any = None,
        stype_dict: Any = None,
        group2ctx: Any = None,
        shared_arg_names: Any = None,
        shared_exec: Any = None,
        shared_buffer: Any = None,
        **shapes: Any,
    ) -> Any:
        """An `Executor` over new arrays of zeros, with shapes inferred from the given ones."""
        return late.simple_bind(self, ctx, grad_req, type_dict, stype_dict, shapes, group2ctx)

    def eval(self, ctx: Any = None, **kwargs: Any) -> list[Any]:
        """The outputs for the given arrays, one per argument, by name."""
        return self.bind(current_context() if ctx is None else ctx, kwargs).forward()

    def optimize_for(
        self,
        backend: str,
        args: Any = None,
        aux: Any = None,
        ctx: Any = None,
        shape_dict: Any = None,
        type_dict: Any = None,
        stype_dict: Any = None,
        skip_infer: bool = False,
        **kwargs: Any,
    ) -> Symbol:
        """This symbol: a bound one is compiled as a whole, so there are no parts to choose for a backend of MXNet's."""
        if not isinstance(backend, str):
            raise AssertionError(f"backend must be a name, got {type(backend).__name__}")
        return self.__copy__()

    def get_backend_symbol(self, backend: str) -> Symbol:
        """This symbol, as for `optimize_for`."""
        return self.optimize_for(backend)

    # Methods whose signature differs from the operator's

    def reshape(self, *args: Any, **kwargs: Any) -> Any:
        """`x.reshape((2, 3))` or `x.reshape(shape=(2, 3))`; codes 0, -1, -2, -3, -4 as in `F.reshape`."""
        return Symbol._functions.reshape(self, *args, **kwargs)

    def astype(self, *args: Any, **kwargs: Any) -> Any:
        """`F.cast`."""
        return Symbol._functions.cast(self, *args, **kwargs)

    def flatten(self, inplace: bool = False, **kwargs: Any) -> Any:
        """Keeps the first axis and merges the others."""
        return Symbol._functions.flatten(self, **kwargs)

    def expand_dims(self, axis: int, inplace: bool = False, **kwargs: Any) -> Any:
        """Inserts an axis of size 1."""
        return Symbol._functions.expand_dims(self, axis=axis, **kwargs)

    def squeeze(self, axis: Any = None, inplace: bool = False, **kwargs: Any) -> Any:
        """Drops axes of size 1: the given ones, or all."""
        return Symbol._functions.squeeze(self, axis=axis, **kwargs)

    def broadcast_to(self, *args: Any, **kwargs: Any) -> Any:
        """Repeats axes of size 1 up to the given shape."""
        return Symbol._functions.broadcast_to(self, *args, **kwargs)

    def broadcast_like(self, *args: Any, **kwargs: Any) -> Any:
        """Repeats axes of size 1 up to the shape of another symbol."""
        return Symbol._functions.broadcast_like(self, *args, **kwargs)

    def split_v2(self, *args: Any, **kwargs: Any) -> Any:
        """Splits along an axis, evenly or at given indices."""
        return Symbol._functions.split_v2(self, *args, **kwargs)

    def as_nd_ndarray(self) -> Any:
        """Itself."""
        return self

    def as_np_ndarray(self) -> Any:
        """The same graph, with NumPy's semantics."""
        return as_np(Symbol(self._heads))

    # Arithmetic; `SignMethods` has the operator methods

    def _arithmetic(self, what: str, other: Any, numbers: Any = Number, reverse: bool = False) -> Any:
        """The node for `self <what> other`, or for `other <what> self` with a number; TypeError for other types."""
        sign = ARITHMETIC[what]
        if isinstance(other, Symbol):
            return other._arithmetic(what, self) if reverse else _apply(sign.both, sign.both_hint, (self, other))
        if isinstance(other, numbers):
            op, hint = (sign.reverse, sign.reverse_hint) if reverse else (sign.scalar, sign.scalar_hint)
            return _apply(op, hint, (self,), {"scalar": other})
        raise TypeError(f"type {type(other)} not supported")

    # What only arrays can do

    def __bool__(self) -> bool:
        raise NotImplementedForSymbol(self.__bool__, "bool")

    __nonzero__ = __bool__

    def __iadd__(self, other: Any) -> NoReturn:
        raise NotImplementedForSymbol(self.__iadd__, "+=", other, 1)

    def __isub__(self, other: Any) -> NoReturn:
        raise NotImplementedForSymbol(self.__isub__, "-=", other)

    def __imul__(self, other: Any) -> NoReturn:
        raise NotImplementedForSymbol(self.__imul__, "*=", other)

    def __itruediv__(self, other: Any) -> NoReturn:
        raise NotImplementedForSymbol(self.__itruediv__, "/=", other)

    def wait_to_read(self) -> NoReturn:
        raise NotImplementedForSymbol(self.wait_to_read, None)

    def asnumpy(self) -> NoReturn:
        raise NotImplementedForSymbol(self.asnumpy, None)

    def asscalar(self) -> NoReturn:
        raise NotImplementedForSymbol(self.asscalar, None)

    def copy(self) -> NoReturn:
        raise NotImplementedForSymbol(self.copy, None)

    def as_in_context(self) -> NoReturn:
        raise NotImplementedForSymbol(self.as_in_context, None)

    def detach(self) -> NoReturn:
        raise NotImplementedForSymbol(self.detach, None)

    def backward(self) -> NoReturn:
        raise NotImplementedForSymbol(self.backward, None)


add_methods(Symbol)


def _apply(op: str, hint: str, operands: Sequence[Symbol], attrs: Mapping[str, Any] | None = None) -> Any:
    return invoke(registry.get(op), operands, attrs or {}, hint=hint)


def invoke(
    op: Operator,
    operands: Sequence[Symbol | None],
    attrs: Mapping[str, Any],
    out: Any = None,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    hint: str | None = None,
) -> Any:
    """Appends a node for `op`; all functions of `mx.sym` end here. In a running trace the operator is recorded there.

    `operands` are in the order of the signature, None for an omitted one; operands of a variadic operator may also
    be in `attrs`, by name. `out` is used by traces and ignored otherwise, as in MXNet.
    """
    trace = running.trace
    if trace is not None and trace.concerns(operands):
        return trace.invoke(op, operands, attrs, out=out, name=name, attr=attr, hint=hint)
    by_name = {key: value for key, value in attrs.items() if isinstance(value, Symbol)}
    if by_name:
        if operands:
            raise TypeError(
                "Operators with variable length input can only accept input Symbols either as positional or keyword "
                "arguments, not both"
            )
        attrs = {key: value for key, value in attrs.items() if key not in by_name}
    entries: Any
    if op.variadic and not by_name:
        entries = [s._entry(f"arg{k}") for k, s in enumerate(operands) if s is not None]  # type: ignore[union-attr]
    else:
        keys = () if op.variadic else input_names(op)
        entries = {key: s._entry(key) for key, s in [*zip(keys, operands), *by_name.items()] if s is not None}
    node = make_node(op, entries, attrs, name=name, attr=attr, hint=hint)
    kind = next((type(s) for s in (*operands, *by_name.values()) if s is not None and s._numpy), Symbol)
    return kind([(node, k) for k in range(node.visible)])


def var(
    name: str,
    attr: Mapping[str, str] | None = None,
    shape: Any = None,
    lr_mult: float | None = None,
    wd_mult: float | None = None,
    dtype: Any = None,
    init: Any = None,
    stype: str | None = None,
    **kwargs: Any,
) -> Symbol:
    """A variable. `shape` (0: unknown dimension), `dtype`, `init` … are kept as attributes `__shape__`, …

    >>> x = mx.sym.var("x", shape=(2, 3))
    >>> (x + 1).infer_shape()[1]
    [(2, 3)]
    """
    if not isinstance(name, str):
        raise TypeError("Expect a string for variable `name`")
    attrs: dict[str, str] = attribute.current().get(attr)
    if attrs:
        if not all(isinstance(value, str) for value in attrs.values()):
            raise ValueError("Set Attr only accepts string values")
        attrs = hidden_keys(attrs)
    if shape is not None:
        attrs["__shape__"] = str(without_numpy(shape))
    if lr_mult is not None:
        attrs["__lr_mult__"] = str(lr_mult)
    if wd_mult is not None:
        attrs["__wd_mult__"] = str(wd_mult)
    if dtype is not None:
        attrs["__dtype__"] = str(TYPE_FLAGS[dtype_name(dtype)])
    if init is not None:
        attrs["__init__"] = init if isinstance(init, str) else init.dumps()
    if stype is not None:
        attrs["__storage_type__"] = str(STORAGE_TYPES[stype])
    for key, value in kwargs.items():
        if not (key.startswith("__") and key.endswith("__")):
            raise ValueError(
                f"Attribute name={key} is not supported. Additional attributes must start and end with double "
                "underscores, e.g, __yourattr__"
            )
        attrs[key] = str(value)
    return Symbol([(Node(None, name, attrs), 0)])


Variable = var


def Group(symbols: Sequence[Symbol]) -> Symbol:
    """One symbol with the outputs of all of `symbols`.

    >>> x = mx.sym.var("x")
    >>> [y.asnumpy().tolist() for y in mx.sym.Group([x + 1, x * 2]).eval(x=mx.nd.array([3]))]
    [[4.0], [6.0]]
    """
    if not symbols or not all(isinstance(s, Symbol) for s in symbols):
        raise TypeError("Expected a list of symbols as input")
    return Symbol([head for s in symbols for head in s._heads])


def _unpickle_json(text: str) -> Symbol:
    return Symbol(json_reader.parse(text, "<pickled symbol>"))


def _unpickle(rows: Sequence[tuple[Any, ...]], heads: Sequence[tuple[int, int]]) -> Symbol:
    nodes: list[Node] = []
    for op, name, attrs, inputs in rows:
        nodes.append(Node(op and registry.get(op), name, attrs, [(nodes[n], k) for n, k in inputs]))
    return Symbol([(nodes[n], k) for n, k in heads])


_mxnet_names.explain(__name__)
