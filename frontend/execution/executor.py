"""`Executor`: a symbol bound to the arrays that it reads, and to those that its gradients go to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gluonjit import ndarray
from gluonjit.autodiff.computation import Computation, Forward, evaluated
from gluonjit.autodiff.recorded_calls import values_before
from gluonjit.autodiff.tape import Saved
from gluonjit.autodiff.walk import write
from gluonjit.base import MXNetError
from gluonjit.context import Context, placed
from gluonjit.execution import on_parts
from gluonjit.execution.session import Inputs, Monitor, overwrite
from gluonjit.execution.symbol_codes import SymbolCode, SymbolCodes
from gluonjit.ir.graph import Graph
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import type_of
from gluonjit.language import late
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.custom_calls import kept_operators
from gluonjit.ndarray.gradient_listeners import announce, listeners
from gluonjit.ndarray.variable import Variable, requests
from gluonjit.runtime.watching import Progress
from gluonjit.symbol.binding import cannot_bind, simple_bind_error, solve_variables
from gluonjit.symbol.graph import Entry, Node, devices_of, variables
from gluonjit.symbol.infer import check_shape, known_variables
from gluonjit.symbol.shapes import is_complete, solve_shapes
from gluonjit.symbol.storage_types import declared_storage, gradient_storage, storage_types


class Executor:
    """A symbol bound to arrays; `Symbol.bind` and `simple_bind` return it.

    `arg_arrays` and `aux_arrays` are in the order of `list_arguments()` and `list_auxiliary_states()`. Every `forward`
    reads them, so new data and parameters are passed by writing to them. `outputs` are the same arrays during the
    executor's life: each `forward` overwrites them.

    `backward` writes the gradient by an argument to its array in `grad_arrays` or adds it there, as `requests` says for
    each argument: 'write', 'add' or 'null'. Arguments without an array get no gradient.
    """

    def __init__(
        self,
        symbol: Any,
        ctx: Context,
        arg_arrays: Sequence[Any],
        aux_arrays: Sequence[Any],
        inputs: Collection[str] | None = None,
        grad_arrays: Sequence[Any] | None = None,
        requests: Sequence[str] | None = None,
        codes: SymbolCodes | None = None,
        groups: Mapping[str, Context] | None = None,
    ) -> None:
        self.codes = codes or SymbolCodes(symbol.__copy__(), inputs)
        """Shared by the executors of one symbol for several shapes. `inputs`: see `SymbolCodes`."""
        self._symbol = self.codes.symbol
        self._ctx = ctx
        self._groups = groups or {}
        """The contexts of `AttrScope(ctx_group=…)`s: where results are said to be, as all are in one memory."""
        self._arguments, self._aux = self.codes.arguments, self.codes.aux
        self.arg_arrays = list(arg_arrays)
        self.aux_arrays = list(aux_arrays)
        self.grad_arrays: list[Any] = list(grad_arrays or [None] * len(self.arg_arrays))
        self._requests = list(requests or ["null"] * len(self.arg_arrays))
        self._bound: dict[bool, SymbolCode] = {}
        """The code of each mode (training or not), found once, as the arrays keep their types."""
        self._last: _Recorded | None = None
        self._last_on_parts: on_parts.Run | None = None
        leaves = dict(zip([*self._arguments, *self._aux], [*self.arg_arrays, *self.aux_arrays]))
        self._stypes = storage_types(self._symbol._heads, {node: x.stype for node, x in leaves.items()})
        ends = (*self._symbol._heads, *((node, 0) for node in leaves))
        self._on_parts = any(self._stypes.get(e, "default") != "default" for e in ends)
        """Whether the graph takes or makes sparse arrays."""
        self._unrecorded: tuple[bool, Inputs, list[Saved]] | None = None
        """The last `forward`, if it kept nothing for the gradient: its mode, and its inputs as they were."""
        self._outputs: list[Any] | None = None
        self._monitor: Monitor | None = None

    def set_monitor_callback(self, callback: Callable[[bytes, Any], None], monitor_all: bool = False) -> None:
        """Registers `callback(name, array)` for every operator's results in each `forward`; `monitor_all`: and for
        inputs. Names are bytes, as in MXNet.
        """
        self._monitor = Monitor(lambda name, operator, x: callback(name, x), monitor_all, as_bound=True)

    @property
    def arg_dict(self) -> dict[str, Any]:
        """The arguments' arrays by name."""
        return _by_name([n.name for n in self._arguments], self.arg_arrays)

    @property
    def aux_dict(self) -> dict[str, Any]:
        """The auxiliary states' arrays by name."""
        return _by_name([n.name for n in self._aux], self.aux_arrays)

    @property
    def grad_dict(self) -> dict[str, Any]:
        """The gradients' arrays by name of the argument; None for those that get none."""
        return _by_name([n.name for n in self._arguments], self.grad_arrays)

    @property
    def outputs(self) -> list[Any]:
        """The outputs of the last `forward`; zeros before the first.

        An output that is a variable is that variable's array; outputs that are the same entry are one array.
        """
        if self._outputs is None:
            arrays = dict(zip([*self._arguments, *self._aux], [*self.arg_arrays, *self.aux_arrays]))
            made: dict[Entry, Any] = {}
            devices = devices_of(self._symbol._heads, self._groups, self._ctx)
            for head, v in zip(self._symbol._heads, self._graph(False).outputs):
                if head[0] in arrays:
                    made[head] = arrays[head[0]]
                elif head not in made:
                    made[head] = ndarray.zeros(v.shape, devices[head[0]], v.dtype.numpy, stype=self._stypes[head])
            self._outputs = [made[head] for head in self._symbol._heads]
        return self._outputs

    @property
    def output_dict(self) -> dict[str, Any]:
        """`outputs` by name."""
        return _by_name(self._symbol.list_outputs(), self.outputs)

    def forward(self, is_train: bool = False, **kwargs: Any) -> list[Any]:
        """Copies keyword arguments into the arrays of these names, then runs the graph."""
        arguments = self.arg_dict if kwargs else {}
        for name, array in kwargs.items():
            if not isinstance(array, (NDArray, np.ndarray)):
                raise ValueError("only accept keyword argument of NDArrays and numpy.ndarray")
            if name not in arguments:
                raise TypeError(f"Unknown argument {name}{did_you_mean(name, arguments)}")
            if arguments[name].shape != array.shape:
                raise ValueError(
                    f"Shape not match! Argument {name}, need: {arguments[name].shape}, received: {array.shape}"
                )
            arguments[name][:] = array
        training = bool(is_train)
        self._last_on_parts = None
        if self._on_parts:
            self._last = self._unrecorded = None
            self._last_on_parts = run = self._run_on_parts(training)
            for (node, _), own, made in zip(self._symbol._heads, self.outputs, run.outputs):
                if node.op is not None:
                    own[:] = made.detach()
            return self.outputs
        session = self._of_mode(training, kwargs).session
        inputs = session.inputs([*self.arg_arrays, *self.aux_arrays])
        self._last = self._unrecorded = None
        if training and self._wrt():
            self._last = self._recorded(training, inputs)
            outputs = self._last.outputs
        else:
            if self._wrt():
                self._unrecorded = training, inputs, values_before(session, inputs)
            outputs = session.run(inputs, self._monitor)
        for (node, _), own, new in zip(self._symbol._heads, self.outputs, outputs):
            if node.op is not None:
                overwrite(own, new)
        return self.outputs

    def _run_on_parts(self, training: bool) -> on_parts.Run:
        arrays = dict(zip([*self._arguments, *self._aux], [*self.arg_arrays, *self.aux_arrays]))
        gradients = {self._arguments[k]: (self._requests[k], self.grad_arrays[k]) for k in self._wrt()}
        return on_parts.Run(self._symbol._heads, arrays, gradients, training, self._monitor)

    def _of_mode(self, training: bool, given: Collection[str] = ()) -> SymbolCode:
        bound = self._bound.get(training)
        if bound is None:
            bound = self._bound[training] = self.codes.code(self._stand_ins(), training, given)
        return bound

    def _wrt(self) -> tuple[int, ...]:
        """The numbers of the arguments that get a gradient."""
        return tuple(
            k for k, (x, r) in enumerate(zip(self.grad_arrays, self._requests)) if x is not None and r != "null"
        )

    def _recorded(self, training: bool, inputs: Inputs, watched: list[Saved] | None = None) -> _Recorded:
        """Runs the graph, keeping what its gradient needs. `watched`: the inputs of a run that kept nothing, which is
        repeated; it has written to the states already."""
        code = self._of_mode(training)
        session, computation = code.session, code.computation
        wrt = self._wrt()
        heads = computation.differentiable(wrt)
        rows = tuple(n for n, k in enumerate(wrt) if self.grad_arrays[k].stype == "row_sparse")
        forward = computation.forward(wrt, heads, rows)
        if watched is not None:
            with kept_operators(session.graph, inputs.arrays) as kept:
                outputs, _ = forward.run([value.array for value in watched])
            return _Recorded(forward, wrt, heads, watched, outputs, kept)
        watched = values_before(session, inputs)
        return _Recorded(forward, wrt, heads, watched, *session.run_forward(forward, inputs, self._monitor))

    def _stand_ins(self) -> list[np.ndarray]:
        return [x._stand_in for x in (*self.arg_arrays, *self.aux_arrays)]

    def _graph(self, training: bool) -> Graph:
        return self.codes.graph([type_of(x) for x in self._stand_ins()], training)

    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        """Computes the gradients of the last `forward`, in its mode, and stores them in `grad_arrays`.

        `out_grads` are the gradients by the outputs: an array, a list, or a dict by the outputs' names. Outputs of loss
        layers need none. Operators' late updates, such as BatchNorm's of its moving statistics, happen here; not with
        `is_train=False`. Without a `forward` before, runs it in the mode `is_train`. After one with `is_train=False`,
        which keeps nothing for the gradient, computes it again.

        MXNetError if an output's gradient is missing, or an array was written to since `forward` that the gradients
        depend on.
        """
        if self._on_parts:
            if self._last_on_parts is None:
                self._last_on_parts = self._run_on_parts(is_train)
            given = self._head_gradients(out_grads)
            if any(x is None for x in given):
                for k in self._demanding(is_train):
                    if given[k] is None:
                        raise self._lacks(k)
            self._last_on_parts.backward(given, is_train)
            self._last_on_parts = None
            return
        if self._last is None and self._unrecorded is not None:
            training, inputs, watched = self._unrecorded
            self._check(watched, range(len(watched)))
            self._last = self._recorded(training, inputs, watched)
        elif self._last is None:
            session = self._of_mode(is_train).session
            self._last = self._recorded(is_train, session.inputs([*self.arg_arrays, *self.aux_arrays]))
        last, backward = self._last, self._last.forward.backward
        given = self._head_gradients(out_grads)
        self._check(last.inputs, [v.place for v in backward.values if v.place >= 0 and not v.changes])
        arguments = backward.arguments(
            lambda place: last.inputs[place].array if place >= 0 else last.outputs[-1 - place],
            lambda cotangent: self._cotangent(last.heads[cotangent.head], given, cotangent.is_read),
            lambda head: np.ones((), np.float32),
        )
        outputs, updates = backward.computation.run(arguments, self._announce if listeners else None)
        gradients = backward.gradients(outputs, [self.grad_arrays[k] for k in last.wrt])
        for k, gradient in zip(last.wrt, gradients, strict=True):
            write(Variable.into(self._requests[k], self.grad_arrays[k]), gradient)
        if is_train:
            for k, new in zip(backward.states, updates, strict=True):
                overwrite([*self.arg_arrays, *self.aux_arrays][k], new)

    def _cotangent(self, k: int, given: Sequence[Any], is_read: bool) -> np.ndarray:
        """The gradient by output k: the given one, or zeros if the output's is not read."""
        own, g = self.outputs[k], given[k]
        dtype = own._array.dtype
        if g is None:
            if is_read:
                raise self._lacks(k)
            return np.zeros(own.shape, dtype)
        if g.shape != own.shape:
            raise MXNetError(
                f"operands shape mismatch: out_grads has {list(g.shape)} for "
                f"{self._symbol.list_outputs()[k]}, which is {list(own.shape)}"
            )
        found: np.ndarray = g._array.astype(dtype, copy=False)
        return found

    def _demanding(self, training: bool) -> list[int]:
        """The numbers of the outputs whose gradient is read: all but those of losses."""
        computation = Computation(self._graph(training), evaluated)
        wrt = self._wrt()
        heads = computation.differentiable(wrt)
        return [heads[c.head] for c in computation.backward(wrt, heads).cotangents if c.is_read]

    def _lacks(self, k: int) -> MXNetError:
        return MXNetError(
            "Because the last operator is not Loss function, head_gradient is required when calling backward. "
            f"out_grads has none for {self._symbol.list_outputs()[k]}"
        )

    def _announce(self, gradients: Sequence[np.ndarray], progress: Progress) -> None:
        assert self._last is not None
        for k, gradient, ready in zip(self._last.wrt, gradients, progress.ready):
            announce(self.grad_arrays[k], self._requests[k], gradient, progress, ready)

    def _check(self, inputs: Sequence[Saved], places: Iterable[int]) -> None:
        """MXNetError if one of the inputs at these places has been written to since `forward`."""
        for place in places:
            if inputs[place].changed:
                name = [*self._arguments, *self._aux][place].name
                raise MXNetError(
                    f"{name} was written to after forward, so the gradients cannot be computed any more. Call backward "
                    "before"
                )

    def _head_gradients(self, given: Any) -> list[Any]:
        """The gradients by all outputs, None for those that are not given."""
        names = self._symbol.list_outputs()
        if given is None:
            given = []
        elif isinstance(given, NDArray):
            given = [given]
        elif isinstance(given, Mapping):
            given = [given[name] for name in names]
        if not all(x is None or isinstance(x, NDArray) for x in given):
            raise TypeError("inputs must be NDArray")
        return [*given, *[None] * (len(names) - len(given))]

    def copy_params_from(
        self,
        arg_params: Mapping[str, Any],
        aux_params: Mapping[str, Any] | None = None,
        allow_extra_params: bool = False,
    ) -> None:
        """Copies arrays, by name, into the executor's. ValueError for an unknown name, unless `allow_extra_params`."""
        for given, own, what in (
            (arg_params, self.arg_dict, "arguments"),
            (aux_params or {}, self.aux_dict, "auxiliary states"),
        ):
            for name, array in given.items():
                if name in own:
                    array.astype(own[name].dtype).copyto(own[name])
                elif not allow_extra_params:
                    raise ValueError(f'Find name "{name}" that is not in the {what}')

    def reshape(self, partial_shaping: bool = False, allow_up_sizing: bool = False, **kwargs: Any) -> Executor:
        """An executor for other input shapes; arrays whose shape does not change are shared with this one.

        Unless `partial_shaping`, shapes that are not given must stay; unless `allow_up_sizing`, none may grow.
        """
        known = known_variables(self._symbol._heads, (), kwargs, check_shape)
        table = solve_shapes(self._symbol._heads, known)
        arrays: list[Any] = []
        grads = list(self.grad_arrays)
        for node, old in zip([*self._arguments, *self._aux], [*self.arg_arrays, *self.aux_arrays]):
            shape = table[node, 0]
            if not is_complete(shape) or shape == old.shape:
                arrays.append(old)
                continue
            if node not in known and not partial_shaping:
                raise MXNetError(
                    f"Shape of unspecified arg: {node.name} changed. This can cause the new executor to not share "
                    "parameters with the old one. Please check for error in network. If this is intended, set "
                    "partial_shaping=True to suppress this warning."
                )
            new = ndarray.zeros(shape, old.context, old.dtype)
            if new.size > old.size and not allow_up_sizing:
                raise MXNetError(
                    f"New shape of arg: {node.name} is larger than original. First making a big executor and then down "
                    "sizing it is more efficient than the reverse. If you really want to up size, set "
                    "allow_up_sizing=True to enable allocation of new arrays."
                )
            if len(arrays) < len(grads) and grads[len(arrays)] is not None:
                grads[len(arrays)] = ndarray.zeros(shape, old.context, old.dtype)
            arrays.append(new)
        count = len(self._arguments)
        args, aux = arrays[:count], arrays[count:]
        found = Executor(self._symbol, self._ctx, args, aux, None, grads, self._requests, self.codes, self._groups)
        found._monitor = self._monitor
        return found

    def get_optimized_symbol(self) -> Any:
        """A copy of the graph. Optimizations cannot be shown as MXNet's operators; `gluonjit dump` prints their IR."""
        return self._symbol.__copy__()

    def debug_str(self) -> str:
        """The graph, node by node."""
        return self._symbol.debug_str()


class _Recorded(NamedTuple):
    """A run of a graph whose gradient can be computed."""

    forward: Forward
    wrt: tuple[int, ...]
    heads: tuple[int, ...]
    inputs: list[Saved]
    outputs: list[np.ndarray]
    """The graph's outputs, then what else the gradient needs."""
    kept: list[Any]


def _by_name(names: Sequence[str], arrays: Sequence[Any]) -> dict[str, Any]:
    if len(set(names)) != len(names):
        raise ValueError(f"Duplicate names detected, {names}")
    return dict(zip(names, arrays))


def bind(symbol: Any, ctx: Any, args: Any, args_grad: Any, grad_req: Any, aux_states: Any, group2ctx: Any) -> Executor:
    """See `Symbol.bind`."""
    if not isinstance(ctx, Context):
        raise TypeError("Context type error")
    arguments, aux = variables(symbol._heads)
    names = [n.name for n in arguments]
    arg_arrays = _arrays("args", args, names)
    aux_arrays = _arrays("aux_states", aux_states or [], [n.name for n in aux])
    grad_arrays = _arrays("args_grad", args_grad, names, partial=True) if args_grad else None
    for name, x, g in zip(names, arg_arrays, grad_arrays or ()):
        if g is not None and g.shape != x.shape:
            raise MXNetError(f"args_grad has shape {g.shape} for {name}, whose shape is {x.shape}")
    wanted = requests(grad_req, names)
    executor = Executor(symbol, ctx, arg_arrays, aux_arrays, None, grad_arrays, wanted, groups=group2ctx)
    executor._graph(False)  # raises an error now for arrays of wrong shapes or types
    return executor


def _arrays(key: str, given: Any, names: Sequence[str], partial: bool = False) -> list[Any]:
    """The arrays of all names, from a list or a dict; None for those without one, which only `partial` allows."""
    if isinstance(given, (list, tuple)):
        if len(given) != len(names):
            raise ValueError(f"Length of {key} does not match the number of arguments")
        found = list(given)
    elif isinstance(given, Mapping):
        missing = [name for name in names if name not in given and not partial]
        if missing:
            raise ValueError(f"key `{missing[0]}` is missing in `{key}`")
        found = [given.get(name) for name in names]
    else:
        found, partial = [None], False
    if not all(isinstance(x, NDArray) or (partial and x is None) for x in found):
        raise TypeError("Only accept list of NDArrays or dict of str to NDArray")
    return found


def simple_bind(
    symbol: Any,
    ctx: Any,
    grad_req: Any,
    type_dict: Any,
    stype_dict: Any,
    shapes: Mapping[str, Any],
    group2ctx: Any,
) -> Executor:
    """See `Symbol.simple_bind`."""
    arguments, aux = variables(symbol._heads)
    try:
        for device in (ctx, *(group2ctx or {}).values()):
            placed(device)
    except MXNetError as e:
        raise simple_bind_error(shapes, str(e)) from e
    types = solve_variables(symbol, type_dict or {}, shapes)
    devices = devices_of(symbol._heads, group2ctx or {}, ctx)

    stypes = {n: declared_storage(n, stype_dict or {}) for n in (*arguments, *aux)}
    table = storage_types(symbol._heads, stypes)

    def zeros(node: Node, stype: str) -> Any:
        try:
            return ndarray.zeros(types[node.name].shape, devices[node], types[node.name].dtype.numpy, stype=stype)
        except MXNetError as e:
            raise cannot_bind(symbol, node, shapes, f"there is not enough memory for {types[node.name]}") from e

    wanted = requests(grad_req, [n.name for n in arguments])
    trained = [n for n, request in zip(arguments, wanted) if request != "null"]
    of_grads = gradient_storage(symbol._heads, table, trained)
    grads = [zeros(n, of_grads.get(n, "default")) if n in trained else None for n in arguments]
    args, states = ([zeros(n, stypes[n]) for n in nodes] for nodes in (arguments, aux))
    return Executor(symbol, ctx, args, states, set(shapes), grads, wanted, groups=group2ctx)


late.executor_class.provide(lambda: Executor)
late.bind.provide(bind)
late.simple_bind.provide(simple_bind)
