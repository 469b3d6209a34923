"""Parameters of blocks: a name, a shape that may not be known yet, and, once initialized, an array."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np

from gluonjit import context, ndarray, symbol
from gluonjit.base import MXNetError
from gluonjit.gluon import parameter_files
from gluonjit.gluon.parameter_dict import ParameterDict
from gluonjit.gluon.released import Releasable
from gluonjit.gluon.utils import shape_is_known
from gluonjit.language import rng
from gluonjit.language.kinds import as_current, as_np
from gluonjit.language.running import no_trace
from gluonjit.language.source import stacklevel
from gluonjit.ndarray import deferred, sparse_arrays
from gluonjit.ndarray.deferred import changes
from gluonjit.ndarray.variable import Variable
from gluonjit.runtime import forks
from gluonjit.training import initializers
from gluonjit.util import is_np_array

__all__ = ["Constant", "DeferredInitializationError", "Parameter", "ParameterDict"]


_CPU = context.cpu(0)
_INITIALIZING = forks.renewed()
"""Held while a postponed initialization runs: threads may make the first call of a block at once."""


class DeferredInitializationError(MXNetError):
    """The value of a parameter was requested before a first forward pass has determined its shape.

    >>> layer = nn.Dense(3)
    >>> layer.initialize()
    >>> layer.weight.data()
    Traceback (most recent call last):
    gluonjit.gluon.parameter.DeferredInitializationError: ...
    """


def _context_list(ctx: Any) -> list[context.Context]:
    """`ctx` (None: the current context) as a list; MXNetError for a device that does not exist."""
    contexts = list(ctx) if isinstance(ctx, (list, tuple)) else [ctx or context.current_context()]
    for c in contexts:
        context.placed(c)
    return contexts


class _Arrays(list):
    """The list of a parameter's arrays. Assigning to an element replaces the array in the parameter, too."""

    def __init__(self, parameter: Parameter) -> None:
        super().__init__(parameter._arrays())
        self.parameter = parameter

    def __setitem__(self, k: Any, x: Any) -> None:
        super().__setitem__(k, x)
        for place in range(len(self))[k] if isinstance(k, slice) else [range(len(self))[k]]:
            self.parameter._replace(place, self[place])


class Parameter(Releasable):
    """A weight of a block.

    * `shape`: an int, a tuple in which 0 is an unknown dimension, or None (nothing is known).
    * `init`: initializer (object or registered name) for this parameter; None uses the one given to `initialize`.
    * `allow_deferred_init`: `initialize` may be called before the shape is known; the first forward pass then
      initializes the parameter.
    * `grad_req`: 'write', 'add' or 'null'; `differentiable=False` fixes it to 'null'.
    * `stype`: a `'row_sparse'` weight lives in the Trainer's store. Here there are the rows that `row_sparse_data` last
      fetched from there. `grad_stype`: the storage type of the gradient; `'row_sparse'` holds the rows looked up.

    A parameter on several contexts has an array for each: a layer called with arguments on `cpu(1)` computes with the
    array on `cpu(1)`. Only methods such as `set_data` keep the copies equal.

    A subclass may override `data` so that layers compute with another value, such as weights with dropout. Such
    classes, written for MXNet, use `_ctx_map` and `_trainer`, and read the array by `_check_and_get`.

    >>> weight = gluon.Parameter("weight", shape=(2, 3), init="ones")
    >>> weight.initialize()
    >>> weight.data().shape, weight.grad().shape
    ((2, 3), (2, 3))
    """

    _trainer: Any = None
    _computes_data = False
    """Whether a subclass overrides `data`, so that layers must not compute with `_first`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._computes_data = cls.data is not Parameter.data

    def __init__(
        self,
        name: str,
        grad_req: str = "write",
        shape: int | tuple[int, ...] | None = None,
        dtype: Any = np.float32,
        lr_mult: float = 1.0,
        wd_mult: float = 1.0,
        init: Any = None,
        allow_deferred_init: bool = False,
        differentiable: bool = True,
        stype: str = "default",
        grad_stype: str = "default",
    ) -> None:
        for key, value in (("grad_stype", grad_stype), ("stype", stype)):
            if value not in ("default", "row_sparse", "csr"):
                raise AssertionError(
                    f"{key} for Parameter '{name}' must be one of 'default', 'row_sparse', or 'csr', but got '{value}'"
                )
        self.name = name
        self.lr_mult = lr_mult
        self.wd_mult = wd_mult
        self.init = init
        self._shape = (shape,) if isinstance(shape, int) else shape
        self._dtype = dtype
        self._stype = stype
        self._grad_stype = grad_stype
        self._allow_deferred_init = allow_deferred_init
        self._differentiable = differentiable
        self._grad_req: str | None = None
        self._first = None
        """The array on the first context."""
        self._replicas: list[ndarray.NDArray] = []
        """The arrays on the other contexts."""
        self._former_grads: dict[int, ndarray.NDArray] = {}
        """The gradient buffers of arrays that `_data[k] = x` has replaced by arrays without one."""
        self._ctx_list: list[context.Context] | None = None
        self._deferred_init: tuple[Any, ...] = ()
        """() or the postponed (init, contexts, default_init, value given to `set_data` or None)."""
        self._declared_shape: tuple[int, ...] | None = None
        """The shape that a loaded graph declares; used if nothing else determines it before the first call."""
        self._var: symbol.Symbol | None = None
        self.grad_req = grad_req

    _attribute = ""
    """The latest attribute of a block that it was set to, in words."""
    _is_listed = False
    """Whether it is in a ParameterDict: only then `initialize` of a block finds it."""

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.name} (shape={self.shape}, dtype={self.dtype})"

    def _repr_html_(self) -> str:
        from gluonjit.gluon.notebook import of_parameters

        return of_parameters([self])

    def __getstate__(self) -> dict[str, Any]:
        data = self._first
        return {
            **self.__dict__,
            "_first": data,
            "_var": None,
            "_trainer": None,
        }  # the variable is created on demand; a Trainer belongs to the process that made it

    def __setattr__(self, name: str, value: Any) -> None:
        changes.parameters += 1  # before, too: the handler of a signal may raise an error as soon as it is set
        super().__setattr__(name, value)
        changes.parameters += 1

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._attach()

    # The array

    @property
    def grad_req(self) -> str:
        return self._grad_req  # type: ignore[return-value]

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if req not in ("write", "add", "null"):
            raise AssertionError(f"grad_req must be one of 'write', 'add', or 'null', but got '{req}'")
        self._grad_req = req if self._differentiable else "null"
        if self.__dict__.get("_first") is not None:
            self._attach()

    @property
    def dtype(self) -> Any:
        """The element type, spelled as it was given. Setting it casts."""
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: Any) -> None:
        self.cast(dtype)

    @property
    def shape(self) -> Any:
        """The shape, or None; 0 is an unknown dimension. Setting the shape may only fill in unknown dimensions."""
        return self._shape

    @shape.setter
    def shape(self, new: tuple[int, ...]) -> None:
        old = self._shape
        if old is not None and (len(old) != len(new) or any(o not in (-1, 0, n) for o, n in zip(old, new))):
            raise AssertionError(f"Expected shape {new} is incompatible with given shape {old}.")
        self._shape = new

    # Initialization

    def initialize(
        self,
        init: Any = None,
        ctx: Any = None,
        default_init: Any = initializers.Uniform(),  # noqa: B008 (immutable, and the signature is MXNet's)
        force_reinit: bool = False,
    ) -> None:
        """Sets the parameter's first value, or postpones that if the shape is not known yet.

        `init` overrides `self.init`, which overrides `default_init`. Raises ValueError if the shape is unknown and
        `allow_deferred_init` is False.
        """
        if self._first is not None and not force_reinit:
            warnings.warn(
                f"Parameter '{self.name}' is already initialized, ignoring. Set force_reinit=True to re-initialize.",
                stacklevel=stacklevel(),
            )
            return
        if init is None:
            init = default_init if self.init is None else self.init
        known = shape_is_known(self.shape)
        if not known and not self._allow_deferred_init:
            raise ValueError(f"Cannot initialize Parameter '{self.name}' because it has invalid shape: {self.shape}.")
        self._deferred_init = (init, _context_list(ctx), default_init, None)
        if known:
            self._finish_deferred_init(postponed=False)
        else:
            self._rebind(None)

    def _complete_shape(self, shape: tuple[int, ...]) -> None:
        """Sets the complete shape, and runs an initialization that was postponed until it was known."""
        self.shape = shape
        self._finish_deferred_init()

    def _finish_deferred_init(self, postponed: bool = True) -> None:
        """Runs the initialization that `initialize` has set up, if there is one. `postponed`: not by `initialize`."""
        with _INITIALIZING:
            if self._deferred_init:
                self._run_deferred_init(postponed)

    def _run_deferred_init(self, postponed: bool) -> None:
        init, ctx_list, default_init, value = self._deferred_init
        if not shape_is_known(self.shape):
            raise AssertionError(
                f"Cannot initialize Parameter '{self.name}' because it has invalid shape: {self.shape}. "
                "Please specify in_units, in_channels, etc for `Block`s."
            )
        if self._stype == "csr":
            raise MXNetError(f"Parameter '{self.name}' cannot have storage type csr: use 'row_sparse' or 'default'")
        # A program may initialize blocks that it makes at its first call.
        with no_trace(), rng.postponed() if postponed else nullcontext():
            data = as_current(ndarray.zeros(self.shape, ctx_list[0], self.dtype))
            if value is None:
                initializers.create(default_init)(initializers.InitDesc(self.name, {"__init__": init}), data)
            else:
                data[...] = value
            if self._stype == "row_sparse":
                data = sparse_arrays.with_all_rows(data._array, data._device)
            self._of_numpy = is_np_array()
            self._place(data, ctx_list)
            self._deferred_init = ()  # now: another thread that finds it empty reads the value

    def _place(self, data: ndarray.NDArray, contexts: list[context.Context]) -> None:
        """Sets the arrays of all contexts to copies of `data`; the first is `data` itself if it is on that context."""
        self._ctx_list = contexts
        arrays = [data.as_in_context(contexts[0]), *(data.copyto(c) for c in contexts[1:])]
        self._rebind(*(as_np(x) for x in arrays) if self._of_numpy else arrays)

    def _rebind(self, data: ndarray.NDArray | None, *replicas: ndarray.NDArray) -> None:
        """Replaces the parameter's arrays."""
        self._restore(overwritten=True)
        before = [self._first, *self._replicas]
        self._first, self._replicas = data, list(replicas)
        self._attach()
        self._note_plain()
        for old in before:
            if old is not None:
                old._wrote()  # compiled code watches the storage that it was given, and now reads the parameter again

    def _note_plain(self) -> None:
        self._plain = self._first if self._ctx_list == [_CPU] and not self._computes_data else None

    def _attach(self) -> None:
        """Asks for gradients by the arrays, as `grad_req` says."""
        for x in self._arrays() if self._first is not None else ():
            x._grad_state = None
            if self._grad_req not in (None, "null"):
                x._grad_state = Variable(self._grad_req, x._maker_of_zeros(self._grad_stype), self._grad_stype)

    def set_data(self, data: Any) -> None:
        """Overwrites the value, in place; `data` (an NDArray, ndarray or nested list) is cast to the dtype.

        If initialization is deferred, the value is used then. Gradients of what was recorded before are those of the
        value that it was computed with.
        """
        if not hasattr(data, "shape"):
            data = np.asarray(data)
        self.shape = tuple(data.shape)
        self._restore(overwritten=True)
        if self._first is not None:
            for own in self._arrays():
                if own._grad_state.__class__ is Variable:
                    own._grad_state.keep_value(own.storage())
                own[... if own.stype == "default" else slice(None)] = data
            if self._trainer is not None:
                self._trainer._forget_value(self)
            return
        if not self._deferred_init:
            raise AssertionError(
                f"Parameter '{self.name}' has not been initialized; call net.initialize() before set_data"
            )
        self._deferred_init = (*self._deferred_init[:3], data)

    def cast(self, dtype: Any) -> None:
        """Converts the value, and later values, to `dtype`."""
        self._dtype = dtype
        self._var = None
        if self._first is not None:
            self._rebind(*(x.astype(dtype) for x in self._arrays()))

    def reset_ctx(self, ctx: Any) -> None:
        """Moves the parameter to other contexts; several copies are averaged first."""
        contexts = _context_list(ctx)
        if self._first is not None:
            if contexts != self._ctx_list:
                self._place(self._reduce(), contexts)
        elif self._deferred_init:
            init, _, default_init, data = self._deferred_init
            self._deferred_init = (init, contexts, default_init, data)
        else:
            raise ValueError(
                f"Cannot reset context for Parameter '{self.name}' because it has not been initialized: call "
                "net.initialize() first."
            )

    # Reading

    def _missing(self) -> Exception:
        """The error to raise because there is no value."""
        if self._deferred_init:
            return DeferredInitializationError(
                f"Parameter '{self.name}' has not been initialized yet because initialization was deferred. Actual "
                "initialization happens during the first forward pass. Please pass one batch of data through the "
                "network before accessing Parameters. You can also avoid deferred initialization by specifying "
                "in_units, num_features, etc., for network layers. After net.initialize(), net(x) does it."
            )
        if self._attribute and not self._is_listed:
            return RuntimeError(
                f"Parameter '{self.name}' has not been initialized: it is {self._attribute}, but not one of that "
                "block's parameters, so net.initialize() and net.collect_params() do not find it. In the block's "
                f"__init__, make it by self.params.get('{self.name}', shape=…)"
            )
        return RuntimeError(
            f"Parameter '{self.name}' has not been initialized. Note that you should initialize parameters and create "
            "Trainer with Block.collect_params() instead of Block.params because the later does not include Parameters "
            "of nested child Blocks. net.initialize() does so for all of a net; net.load_parameters(file), or the "
            "third argument of SymbolBlock.imports, reads values from a file"
        )

    def _on(self, ctx: context.Context | None) -> ndarray.NDArray:
        """The array on `ctx`; None means the only array, or the one on the current context if there are several."""
        deferred.release()
        data = self._first
        if data is None:
            raise self._missing()
        return data if ctx is None and not self._replicas else self._arrays()[self._context_index(ctx)]

    def _context_index(self, ctx: context.Context | None) -> int:
        """The index of the array on `ctx` (None: the current context). RuntimeError if there is none."""
        ctx = ctx or context.current_context()
        contexts = self.list_ctx()
        for k, own in enumerate(contexts):
            if own.device_id == ctx.device_id and (own.device_type == "gpu") == (ctx.device_type == "gpu"):
                return k  # cpu_pinned(0) and cpu_shared(0) are cpu(0)'s memory
        raise RuntimeError(
            f"Parameter '{self.name}' was not initialized on context {ctx}. It was only initialized on {contexts}."
        )

    def _arrays(self) -> list[ndarray.NDArray]:
        """The array of each context, in the order of `list_ctx`."""
        deferred.release()
        data = self._first
        if data is None:
            raise self._missing()
        return [data, *self._replicas]

    def _value_on(self, device: context.Context | None) -> ndarray.NDArray:
        """The value that layers compute with if their arguments are on `device` (None: cpu(0))."""
        return self.data(device or _CPU)

    def _reduce(self) -> ndarray.NDArray:
        """The mean over contexts, which is what is saved to files."""
        first: Any
        first, *others = self._arrays()
        if self._stype != "default":
            if self._trainer is None:
                return first
            whole = first._with(first._values)
            self._trainer._row_sparse_pull(self, whole, ndarray.arange(self.shape[0], dtype="int64"))
            return whole
        if not others:
            return first
        total: Any = first
        for x in others:
            total = total + x.as_in_context(first.context)
        return total / (1 + len(others))

    def _check_and_get(self, data: Any, ctx: Any) -> Any:
        """The array on `ctx`; for `ctx=list`, the list of the arrays of all contexts."""
        return self._arrays() if ctx is list else self._on(ctx)

    def data(self, ctx: context.Context | None = None) -> ndarray.NDArray:
        """The parameter's array itself: writing to it changes the parameter.

        Raises DeferredInitializationError or RuntimeError while there is none, and RuntimeError for a context that the
        parameter is not on.
        """
        if self._stype != "default":
            raise RuntimeError(
                f"Cannot return a copy of Parameter '{self.name}' on ctx {ctx} via data() because its storage type is "
                f"{self._stype}. Please use row_sparse_data() instead."
            )
        return self._on(ctx)

    def list_data(self) -> list[ndarray.NDArray]:
        """The array of each context."""
        if self._stype != "default":
            raise RuntimeError(
                f"Cannot return copies of Parameter '{self.name}' on all contexts via list_data() because its storage "
                f"type is {self._stype}. Please use row_sparse_data() instead."
            )
        return self._arrays()

    def grad(self, ctx: context.Context | None = None) -> ndarray.NDArray:
        """The gradient on `ctx`, as for `data`; zeros until a backward pass has written to it."""
        if self._first is not None and self._grad_req == "null":
            raise RuntimeError(f"Cannot get gradient array for Parameter '{self.name}' because grad_req='null'")
        arrays = self._arrays()
        k = 0 if ctx is None and len(arrays) == 1 else self._context_index(ctx)
        grad = arrays[k].grad
        return self._former_grads[k] if grad is None else grad

    def _load_init(
        self, data: ndarray.NDArray, ctx: Any, cast_dtype: bool = False, dtype_source: str = "current"
    ) -> None:
        """MXNet's name for setting a parameter, initialized or not, to a copy of an array that was loaded."""
        parameter_files.assign_all([(self, data)], ctx, cast_dtype, dtype_source)

    @property
    def _data(self) -> list[ndarray.NDArray] | None:
        """MXNet's name for the arrays, by `_ctx_map`; None if there are none. Assigning to an element replaces the
        array: layers then compute with the new one, and gradients flow through it to what it was computed from."""
        return None if self._first is None else _Arrays(self)

    @_data.setter
    def _data(self, arrays: Any) -> None:
        if arrays is None:
            self._rebind(None)
            return
        for k in range(len(self._arrays())):
            self._replace(k, arrays[k])

    def _replace(self, k: int, x: ndarray.NDArray) -> None:
        """Makes `x`, whatever it was computed from, the array on the context of number `k`."""
        old = self._arrays()
        if self._grad_req != "null" and old[k].grad is not None:
            self._former_grads[k] = old[k].grad
        new = [*old[:k], x, *old[k + 1 :]]
        self._first, self._replicas = new[0], new[1:]
        self._note_plain()
        old[k].storage().replaced()

    @property
    def _grad(self) -> list[ndarray.NDArray] | None:
        """MXNet's name for the gradient buffers, which programs read; None if there are none."""
        return None if self._first is None or self._grad_req == "null" else self.list_grad()

    @property
    def _ctx_map(self) -> list[list[int | None]] | None:
        """MXNet's table of the arrays' places: by parity of the device's type, then by its number."""
        if self._ctx_list is None:
            return None
        found: list[list[int | None]] = [[], []]
        for k, c in enumerate(self._ctx_list):
            row = found[c.device_typeid & 1]
            row.extend([None] * (c.device_id + 1 - len(row)))
            row[c.device_id] = k
        return found

    def list_grad(self) -> list[ndarray.NDArray]:
        """The gradient buffer of each context."""
        return [self.grad(c) for c in self.list_ctx()]

    def zero_grad(self) -> None:
        """Sets the gradient buffers to zero, if they are allocated."""
        for x in self._arrays() if self._first is not None else ():
            if getattr(x._grad_state, "has_grad", False):
                grad = x._grad_state.grad
                grad[... if grad.stype == "default" else slice(None)] = 0

    def list_ctx(self) -> list[context.Context]:
        """The contexts given to `initialize`."""
        if self._first is not None:
            return self._ctx_list  # type: ignore[return-value]
        if self._deferred_init:
            return self._deferred_init[1]
        raise RuntimeError(f"Parameter '{self.name}' has not been initialized: call net.initialize() first")

    def row_sparse_data(self, row_id: ndarray.NDArray) -> ndarray.NDArray:
        """The array of a 'row_sparse' parameter on the context of `row_id`, with these rows of the Trainer's weight."""
        if self._stype != "row_sparse":
            raise RuntimeError(
                f"Cannot return a copy of Parameter {self.name} via row_sparse_data() because its storage type is "
                f"{self._stype}. Please use data() instead."
            )
        return self._fetch([self._on(getattr(row_id, "ctx", None))], row_id)[0]

    def _fetch(self, arrays: list[ndarray.NDArray], row_id: Any) -> list[ndarray.NDArray]:
        """`arrays`, with these rows of the Trainer's weight."""
        if not isinstance(row_id, ndarray.NDArray):
            raise TypeError(f"row_id must have NDArray type, but {type(row_id)} is given")
        if self._trainer is None:
            raise RuntimeError(
                f"Cannot get row_sparse data for Parameter '{self.name}' when no Trainer is created with it."
            )
        self._trainer._row_sparse_pull(self, arrays, row_id)
        return arrays

    def _set_trainer(self, trainer: Any) -> None:
        """Says whose store has the weight. A 'row_sparse' parameter belongs to one Trainer."""
        if self._stype == "default":
            return
        if self._trainer is not None and trainer is not None and self._trainer is not trainer:
            raise RuntimeError(
                f"Failed to set the trainer for Parameter '{self.name}' because it was already set. More than one "
                f"trainers for a {self._stype} Parameter is not supported."
            )
        self._trainer = trainer

    def list_row_sparse_data(self, row_id: ndarray.NDArray) -> list[ndarray.NDArray]:
        """`row_sparse_data` for all contexts."""
        if self._stype != "row_sparse":
            raise RuntimeError(
                f"Cannot return copies of Parameter '{self.name}' on all contexts via list_row_sparse_data() because "
                f"its storage type is {self._stype}. Please use data() instead."
            )
        return self._fetch(self._arrays(), row_id)

    def var(self) -> symbol.Symbol:
        """The variable that stands for this parameter in symbolic graphs."""
        if self._var is None:
            self._var = symbol.var(
                self.name,
                shape=self.shape,
                dtype=self.dtype,
                lr_mult=self.lr_mult,
                wd_mult=self.wd_mult,
                init=self.init,
                stype=self._stype,
            )
        return self._var


class Constant(Parameter):
    """A parameter that training leaves alone: it starts as `value` (array-like) and has no gradient.

    >>> constant = gluon.Constant("constant", [1, 2])
    >>> constant.initialize()
    >>> constant.data().asnumpy(), constant.grad_req
    (array([1., 2.], dtype=float32), 'null')
    """

    def __init__(self, name: str, value: Any) -> None:
        if not isinstance(value, ndarray.NDArray):
            with no_trace():
                value = ndarray.array(value)
        self.value = value
        # Graphs name the initializer, as in MXNet's files, so it is registered for as long as the constant lives.
        self._filler = initializers.Constant(value)
        init = f"Constant_{name}_{id(self)}"
        initializers.register_instance(init, self._filler)
        super().__init__(name, grad_req="null", shape=value.shape, dtype=value.dtype, init=init)

    @property
    def grad_req(self) -> str:
        return "null"

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if req != "null":
            warnings.warn(
                f'Constant parameter "{self.name}" does not support grad_req other than "null", '
                f'and new value "{req}" is ignored.',
                stacklevel=stacklevel(),
            )


ParameterDict._parameter, ParameterDict._constant = Parameter, Constant
