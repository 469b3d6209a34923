"""`Block` and `HybridBlock`: what every layer and model is.

The way of a call: `net(x)` → `HybridBlock.__call__`. A compiled block that has nothing else to do goes straight into
native code (`_fast_call`). Otherwise hooks, then `forward`, which picks one of three: Symbols in, a Symbol out;
hybridized, the compiled call (`cached.py`); else `hybrid_forward(mx.nd, …)`, operator by operator.
"""

from __future__ import annotations

import re
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from gluonjit import initializer, ndarray, symbol
from gluonjit.backends import get_backend
from gluonjit.gluon.naming import BlockScope, name_block
from gluonjit.gluon.parameter import Parameter, ParameterDict
from gluonjit.gluon.utils import HookHandle, _indent
from gluonjit.ndarray import NDArray
from gluonjit.symbol import Symbol
from gluonjit.trace import nest, parameter_shapes
from gluonjit.trace.state import running

__all__ = ["Block", "HybridBlock"]

Hook = Callable[..., Any]


class Block:
    """A layer or model: children (blocks assigned to attributes), parameters, and `forward`.

    `prefix` goes in front of the names of parameters, and of children made inside `name_scope()`; None numbers the
    block by its class name. `params` is the ParameterDict of another block to share parameters with.
    """

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        self._empty_prefix = prefix == ""
        self._prefix, self._params = name_block(prefix, params, self._alias())
        self._name = self._prefix[:-1] if self._prefix.endswith("_") else self._prefix
        self._scope = BlockScope(self)
        self._children: dict[str, Block] = OrderedDict()
        self._reg_params: dict[str, Parameter] = {}
        self._forward_hooks: dict[int, Hook] = OrderedDict()
        self._forward_pre_hooks: dict[int, Hook] = OrderedDict()
        self._parents: list[weakref.ref[Block]] = []

    def __repr__(self) -> str:
        children = {k: v for k, v in self.__dict__.items() if isinstance(v, Block)}
        return self._repr_children(children)

    def _repr_children(self, children: dict[str, Block]) -> str:
        lines = "\n".join(f"  ({key}): {_indent(repr(child), 2)}" for key, child in children.items())
        return f"{type(self).__name__}(\n{lines}\n)"

    def __setattr__(self, name: str, value: Any) -> None:
        """Blocks and parameters assigned to attributes are registered; neither may be replaced by another type."""
        existing = getattr(self, name, None)
        if isinstance(existing, (Parameter, Block)) and not isinstance(value, type(existing)):
            raise TypeError(f"Changing attribute type for {name} from {type(existing)} to {type(value)}is not allowed.")
        if isinstance(value, Block):
            self.register_child(value, name)
        elif isinstance(value, Parameter):
            if name in self._reg_params:
                raise AssertionError(
                    f"Overriding Parameter attribute {name} is not allowed. If you want to share parameters between "
                    "blocks, please set 'params' at Block construction instead."
                )
            self._reg_params[name] = value
            self._structure_changed()
        super().__setattr__(name, value)

    # Compiled code, weak references and what else belongs to one object alone is left out of copies.

    _UNCOPIED: tuple[str, ...] = ("_parents",)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in self._UNCOPIED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__dict__.setdefault("_parents", [])
        for child in self._children.values():
            child.__dict__.setdefault("_parents", []).append(weakref.ref(self))

    # Names

    def _alias(self) -> str:
        """What the automatic prefix counts: `dense` gives `dense0_`."""
        return type(self).__name__.lower()

    @property
    def prefix(self) -> str:
        """In front of every parameter's name."""
        return self._prefix

    @property
    def name(self) -> str:
        """The prefix without the underscore at its end."""
        return self._name

    def name_scope(self) -> BlockScope:
        """`with self.name_scope():` gives blocks made inside this block's prefix."""
        return self._scope

    # Parameters

    @property
    def params(self) -> ParameterDict:
        """This block's own parameters, without its children's."""
        return self._params

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """Own and children's parameters; only those whose name matches regular expression `select` at its start."""
        self._warn_of_unregistered_children()
        found = ParameterDict(self._params.prefix)
        pattern = re.compile(select or "")
        found.update({name: p for name, p in self.params.items() if pattern.match(name)})
        for child in self._children.values():
            found.update(child.collect_params(select=select))
        return found

    def _collect_params_with_prefix(self, prefix: str = "") -> dict[str, Parameter]:
        """Parameters by structured name, the path of attributes: `body.0.weight`."""
        if prefix:
            prefix += "."
        found = {prefix + name: p for name, p in self._reg_params.items()}
        for name, child in self._children.items():
            found.update(child._collect_params_with_prefix(prefix + name))
        return found

    def _warn_of_unregistered_children(self) -> None:
        children = set(map(id, self._children.values()))

        def holds_stranger(value: Any) -> bool:
            if isinstance(value, (list, tuple)):
                return any(map(holds_stranger, value))
            if isinstance(value, dict):
                return any(map(holds_stranger, value.values()))
            return isinstance(value, Block) and id(value) not in children

        for key, value in self.__dict__.items():
            if isinstance(value, (list, tuple, dict)) and key != "_children" and holds_stranger(value):
                warnings.warn(
                    f'"{type(self).__name__}.{key}" is an unregistered container with Blocks. Note that Blocks inside '
                    "the list, tuple or dict will not be registered automatically. Make sure to register them using "
                    "register_child() or switching to nn.Sequential/nn.HybridSequential instead. ",
                    stacklevel=3,
                )

    def initialize(
        self,
        init: Any = initializer.Uniform(),  # noqa: B008 (immutable, and the signature is MXNet's)
        ctx: Any = None,
        verbose: bool = False,
        force_reinit: bool = False,
    ) -> None:
        """Initializes all parameters; `init` serves those that have no initializer of their own."""
        self.collect_params().initialize(init, ctx, verbose, force_reinit)

    def save_parameters(self, filename: Any, deduplicate: bool = False) -> None:
        """Writes all parameters to a `.params` file, by structured name; see `load_parameters`.

        A parameter that several children share is written for each of them, or once if `deduplicate`.
        """
        from gluonjit.checkpoint import parameters

        parameters.save_parameters(self, filename, deduplicate)

    def load_parameters(
        self,
        filename: Any,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Reads the parameters that `save_parameters` wrote; initializes those that are not yet.

        * `allow_missing`: parameters that the file lacks stay as they are, instead of an AssertionError.
        * `ignore_extra`: arrays that the block lacks are skipped, instead of a ValueError.
        * `cast_dtype`: where element types differ, those of the parameters (`dtype_source='current'`) or of the file
          (`'saved'`) are taken, instead of an AssertionError.
        """
        from gluonjit.checkpoint import parameters

        parameters.load_parameters(self, filename, ctx, allow_missing, ignore_extra, cast_dtype, dtype_source)

    def cast(self, dtype: Any) -> None:
        """Converts parameters, here and in the children, to another element type."""
        for child in self._children.values():
            child.cast(dtype)
        for param in self.params.values():
            param.cast(dtype)
        self._structure_changed()

    # Children

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Makes `block` a child, by default under the next number."""
        self._children[str(len(self._children)) if name is None else name] = block
        block._parents[:] = [ref for ref in block._parents if ref() not in (None, self)] + [weakref.ref(self)]
        self._structure_changed()

    def apply(self, fn: Callable[[Block], Any]) -> Block:
        """Calls `fn` for every descendant, then for this block; returns this block."""
        for child in self._children.values():
            child.apply(fn)
        fn(self)
        return self

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Hybridizes every child that can be; see `HybridBlock.hybridize`."""
        for child in self._children.values():
            child.hybridize(active, **kwargs)

    def _structure_changed(self) -> None:
        """Drops what was compiled for this block and for every block it is part of."""
        seen: set[int] = set()
        waiting: list[Block] = [self]
        while waiting:
            block = waiting.pop()
            if id(block) not in seen:
                seen.add(id(block))
                block._drop_compiled()
                waiting += [parent for ref in block._parents if (parent := ref()) is not None]

    def _drop_compiled(self) -> None:
        """Forgets compiled code; a plain block has none."""

    # Calls

    def __call__(self, *args: Any) -> Any:
        """Pre-hooks, `forward`, hooks."""
        if self._forward_pre_hooks:
            for hook in list(self._forward_pre_hooks.values()):
                hook(self, args)
        out = self.forward(*args)
        if self._forward_hooks:
            for hook in list(self._forward_hooks.values()):
                hook(self, args, out)
        return out

    def forward(self, *args: Any) -> Any:
        """The computation; subclasses override it."""
        raise NotImplementedError

    def register_forward_pre_hook(self, hook: Callable[[Block, tuple[Any, ...]], None]) -> HookHandle:
        """Has `hook(block, inputs)` called before every `forward`."""
        handle = HookHandle()
        handle.attach(self._forward_pre_hooks, hook)
        return handle

    def register_forward_hook(self, hook: Callable[[Block, tuple[Any, ...], Any], None]) -> HookHandle:
        """Has `hook(block, inputs, outputs)` called after every `forward`."""
        handle = HookHandle()
        handle.attach(self._forward_hooks, hook)
        return handle

    def register_op_hook(self, callback: Callable[..., None], monitor_all: bool = False) -> None:
        """Has `callback(name, operator, array)` called for every operator's outputs when a hybridized block runs.

        `monitor_all`: for its inputs, too.
        """
        for child in self._children.values():
            child.register_op_hook(callback, monitor_all)

    def summary(self, *inputs: Any) -> None:
        """Prints a table of output shapes and parameter counts per layer, found by running `inputs` through.

        The block must be initialized and not hybridized.
        """
        from gluonjit.gluon.summary import print_summary

        print_summary(self, inputs)


class HybridBlock(Block):
    """A block that can be compiled: `hybrid_forward(F, x, …, **params)` works with `F` = `mx.nd` or `mx.sym`.

    Before `hybridize()`, `hybrid_forward` runs operator by operator, with NDArrays. After it, the first call traces
    `hybrid_forward` once, with Symbols, and compiles the graph; later calls run native code. Parameters assigned to
    attributes arrive as keyword arguments of the attributes' names. A subclass that overrides `forward` instead runs
    as Python; its hybridized children are compiled.
    """

    _UNCOPIED = (*Block._UNCOPIED, "_cached", "_fast_call")

    # Both are set on the instance by `gluon.cached.CachedCall`, and dropped whenever they no longer fit.
    _cached: Any = None
    """The compiled call: takes the arguments of `forward` that hold NDArrays."""
    _fast_call: Callable[..., Any] | None = None
    """The native entry behind `_cached`, set while a call means nothing but to run compiled code."""

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self._active = False
        self._flags: dict[str, Any] = {}
        self._callback: Callable[..., None] | None = None
        self._monitor_all = False

    def register_child(self, block: Block, name: str | None = None) -> None:
        if not isinstance(block, HybridBlock):
            raise ValueError(
                f"Children of HybridBlock must also be HybridBlock, but {block} has type {type(block)}. "
                "If you are using Sequential, please try HybridSequential instead."
            )
        super().register_child(block, name)

    def _drop_compiled(self) -> None:
        self._cached = self._fast_call = None

    def hybridize(
        self,
        active: bool = True,
        backend: str | None = None,
        clear: bool = True,
        static_alloc: bool = False,
        static_shape: bool = False,
        inline_limit: int = 2,
        forward_bulk_size: int | None = None,
        backward_bulk_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Turns compilation on or off, here and in all children.

        * `backend`: the name of a registered pipeline (`gluonjit.register_backend`); None is the default. Options for
          it are the remaining keywords, or a dict as `backend_opts`.
        * `clear=False` keeps what has been compiled, if it was for the same backend and options.
        * `static_alloc`: buffers of intermediate results are kept between calls; `static_shape`: as many input shapes
          as come along are kept compiled. Both are the case anyway; they may be given as in MXNet.
        * `inline_limit`, `forward_bulk_size`, `backward_bulk_size`: how MXNet's engine groups operators. A compiled
          graph is one function, so they have no effect.
        """
        get_backend(backend)  # an unknown name is an error here, not at the first call
        options = {**(kwargs.pop("backend_opts", None) or {}), **kwargs}
        if active and (self._forward_hooks or self._forward_pre_hooks):
            warnings.warn(
                f'"{self}" is being hybridized while still having forward hook/pre-hook. '
                f'If "{self}" is a child of HybridBlock, the hooks will not take effect.',
                stacklevel=2,
            )
        flags: dict[str, Any] = {
            "static_alloc": static_alloc,
            "static_shape": static_shape,
            "inline_limit": inline_limit,
            "forward_bulk_size": forward_bulk_size,
            "backward_bulk_size": backward_bulk_size,
        }
        chosen = {"backend": backend, "backend_opts": options}
        self._fast_call = None
        if clear or any(self._flags.get(key) != value for key, value in chosen.items()):
            self._drop_compiled()
        self._active = active
        self._flags = {**flags, **chosen}
        super().hybridize(active, backend=backend, clear=clear, backend_opts=options, **flags)

    def optimize_for(
        self,
        x: Any,
        *args: Any,
        backend: str | None = None,
        clear: bool = False,
        static_alloc: bool = False,
        static_shape: bool = False,
        inline_limit: int = 2,
        forward_bulk_size: int | None = None,
        backward_bulk_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Hybridizes for `backend` and compiles for inputs like these, without running."""
        if not backend:
            raise ValueError('Must specify "backend" to optimize_for')
        self.hybridize(
            True,
            backend,
            clear,
            static_alloc,
            static_shape,
            inline_limit,
            forward_bulk_size,
            backward_bulk_size,
            **kwargs,
        )
        _require_tensors(x, *args)
        self._compiled_call().compile(x, *args)

    # Hooks end the direct way into native code; while there are any, `__call__` goes the long way.

    def register_forward_pre_hook(self, hook: Callable[[Block, tuple[Any, ...]], None]) -> HookHandle:
        self._fast_call = None
        return super().register_forward_pre_hook(hook)

    def register_forward_hook(self, hook: Callable[[Block, tuple[Any, ...], Any], None]) -> HookHandle:
        self._fast_call = None
        return super().register_forward_hook(hook)

    def register_op_hook(self, callback: Callable[..., None], monitor_all: bool = False) -> None:
        self._fast_call = None
        self._callback = callback
        self._monitor_all = monitor_all
        super().register_op_hook(callback, monitor_all)

    def _calls_only_compiled_code(self) -> bool:
        """Whether `__call__` means nothing but to run what was compiled, so that `_fast_call` may be set."""
        return (
            self._active
            and not (self._forward_hooks or self._forward_pre_hooks or self._callback)
            and type(self).forward is HybridBlock.forward
            and "forward" not in self.__dict__
        )

    # Calls

    def __call__(self, *args: Any) -> Any:
        fast = self._fast_call
        if fast is not None:
            return fast(*args)
        return Block.__call__(self, *args)

    def forward(self, x: Any, *args: Any) -> Any:
        """Runs `hybrid_forward` on Symbols or NDArrays, or the code compiled from it."""
        recorder = running.trace
        if recorder is not None:
            return recorder.call(self, (x, *args))
        if (type(x) is not NDArray or args) and _require_tensors(x, *args) is Symbol:
            variables = {name: p.var() for name, p in self._reg_params.items()}
            with self._scope:
                return self.hybrid_forward(symbol, x, *args, **variables)
        if self._active:
            return self._compiled_call()(x, *args)
        params: dict[str, Any] = {}
        for name, p in self._reg_params.items():
            params[name] = p._data
            if p._data is None:
                if p._deferred_init:
                    self._finish_deferred_init(x, *args)
                params[name] = p.data()
        return self.hybrid_forward(ndarray, x, *args, **params)

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        """The computation, in terms of `F` (`mx.nd` or `mx.sym`); subclasses override it."""
        raise NotImplementedError

    def _compiled_call(self) -> Any:
        cached = self._cached
        if cached is None:
            from gluonjit.gluon.cached import CachedCall

            cached = self._cached = CachedCall(self, self._flags)
        return cached

    # Deferred initialization

    def _finish_deferred_init(self, *args: Any) -> None:
        """Initializes this block's own parameters that wait for shapes, which inputs like `args` determine.

        A trace finds them where every operator's result follows from its inputs; inference on the untyped graph goes
        backwards, too, but not through a program that asks for shapes.
        """
        waiting = [p for p in self.params.values() if p._data is None and p._deferred_init]
        try:
            for param, shape in parameter_shapes(self, args).items():
                param.shape = shape
        except Exception as e:
            try:
                self.infer_shape(*args)
            except Exception:
                raise ValueError(f"Deferred initialization failed because shape cannot be inferred. {e}") from e
        for param in waiting:
            param._finish_deferred_init()

    def infer_shape(self, *args: Any) -> None:
        """Completes the shapes of all parameters from inputs like `args`, without running anything."""
        self._infer("infer_shape", "shape", args)

    def infer_type(self, *args: Any) -> None:
        """Sets the element types of all parameters to what inputs like `args` imply."""
        self._infer("infer_type", "dtype", args)

    def _infer(self, method: str, attr: str, args: tuple[Any, ...]) -> None:
        arrays, form = nest.flatten(args, lambda x: isinstance(x, NDArray), "input")
        if not arrays:
            raise ValueError(f"All args are None and we do not support such a case. Received args={args}")
        names = ["data"] if len(arrays) == 1 else [f"data{k}" for k in range(len(arrays))]
        inputs = [symbol.var(name, shape=a.shape, dtype=a.dtype) for name, a in zip(names, arrays)]
        params = {name: p.var() for name, p in self._reg_params.items()}
        with self._scope:
            result = self.hybrid_forward(symbol, *nest.rebuild(form, inputs), **params)
        out = symbol.Group(nest.flatten(result, lambda x: isinstance(x, Symbol), "output")[0])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            known, _, aux = getattr(out, method)(**{n: getattr(a, attr) for n, a in zip(names, arrays)})
        if known is None:
            raise ValueError(caught[0].message if caught else f"{method} did not get through")
        found = dict(zip(out.list_arguments(), known)) | dict(zip(out.list_auxiliary_states(), aux))
        for name, param in self.collect_params().items():
            if name in found:
                setattr(param, attr, found[name])


def _require_tensors(*args: Any) -> type:
    """NDArray or Symbol, whichever is in the nested arguments; ValueError when both or none are."""
    kinds = tensor_kinds(args)
    if len(kinds) == 1:
        return kinds.pop()
    if kinds:
        raise ValueError(
            "In HybridBlock, we do not support mixed NDArrays and Symbols types for the input. "
            "Please check the type of the args.\n"
        )
    raise ValueError(
        "In HybridBlock, there must be one NDArray or one Symbol in the input. Please check the type of the args.\n"
    )


def tensor_kinds(value: Any) -> set[type]:
    """Which of NDArray and Symbol are anywhere in nested `value`."""
    if isinstance(value, (list, tuple)):
        return set().union(*map(tensor_kinds, value))
    return {kind for kind in (NDArray, Symbol) if isinstance(value, kind)}
