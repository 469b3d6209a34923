"""`HybridBlock`, which can be compiled. `Block`, its base, can be imported from here, too, as in MXNet.

A call goes `net(x)` → `HybridBlock.__call__`. A compiled block without hooks goes straight into native code
(`_fast_call`). Otherwise hooks, then `forward`, which picks one of three: Symbols in, a Symbol out;
hybridized, the compiled call (`execution/cached_call.py`); else `hybrid_forward(mx.nd, …)`, operator by operator. The
last also serves a hybridized block that contains one which cannot be compiled (`_interpret`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from gluonjit import ndarray, symbol
from gluonjit.base import StateChange, ValueNeeded
from gluonjit.context import Context
from gluonjit.execution.backends import check_options, get_backend
from gluonjit.gluon import export
from gluonjit.gluon.base_block import Block
from gluonjit.gluon.parameter import ParameterDict
from gluonjit.gluon.utils import HookHandle, tensor_kinds
from gluonjit.language import forms
from gluonjit.language.modes import is_training
from gluonjit.language.running import running
from gluonjit.language.source import stacklevel
from gluonjit.ndarray import NDArray
from gluonjit.symbol import Symbol
from gluonjit.trace import parameter_shapes

__all__ = ["Block", "HybridBlock"]


class HybridBlock(Block):
    """A block that can be compiled: `hybrid_forward(F, x, …, **params)` works with `F` = `mx.nd` or `mx.sym`.

    Before `hybridize()`, `hybrid_forward` runs operator by operator, with NDArrays. After it, the first call traces
    `hybrid_forward` once, with Symbols, and compiles the graph; later calls run native code. Parameters assigned to
    attributes arrive as keyword arguments of the attributes' names. A subclass that overrides `forward` instead runs
    as Python; its hybridized children are compiled.
    """

    # A slot: reading it costs a quarter less of a call than reading the instance's dictionary does.
    __slots__ = ("_fast_call",)
    _UNCOPIED = (*Block._UNCOPIED, "_cached")

    # Both are set on the instance by `execution.cached_call.CachedCall`, and dropped whenever they no longer fit.
    _cached: Any = None
    """The compiled call: takes the arguments of `forward` that hold NDArrays."""
    _fast_call: Callable[..., Any] | None
    """The native entry behind `_cached`, set while a call means nothing but to run compiled code."""
    _monitored_as_bound = False
    """Whether `_callback` gets the names that an executor has for operators' results, as `Module`'s monitors do."""
    _interpreted: frozenset[bool] = frozenset()
    """In which modes (training or not) it runs as Python though it is hybridized: see `_interpret`."""

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        self._fast_call = None
        super().__init__(prefix=prefix, params=params)
        self._flags: dict[str, Any] = {}
        self._callback: Callable[..., None] | None = None
        self._monitor_all = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._fast_call = None
        super().__setstate__(state)

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
          it are the remaining keywords, or a dict as `backend_opts`; MXNetError for those that it does not take.
        * `winograd=False`, an option of the default backend: convolutions sum their products by the definition. Else
          those with small windows may need fewer multiplications, and round a little more.
        * `tune=True`, another one: the first call measures several kernels for each product and convolution, and one
          thread against several, instead of estimating. It takes seconds; the object cache remembers what it found.
        * `flush_denormals=True`, a third: floats too small to have all their digits (below 1.2e-38 in float32) count as
          zero in compiled code. Some machines compute with them a hundred times more slowly; see docs/architecture.md.
        * `clear=False` keeps what has been compiled, if it was for the same backend and options.
        * `static_alloc`: parameters that were loaded from a file leave memory if compiled code reads nothing but packed
          copies of them; `data()` reads them again, for which the file must not have been overwritten in place.
          Buffers of intermediate results are kept between calls anyway.
        * `static_shape`: may be given as in MXNet. As many input shapes as come along are kept compiled anyway.
        * `inline_limit`, `forward_bulk_size`, `backward_bulk_size`: how MXNet's engine groups operators. A compiled
          graph is one function, so they have no effect.
        """
        get_backend(backend)  # an unknown name is an error here, not at the first call
        options = {**(kwargs.pop("backend_opts", None) or {}), **kwargs}
        check_options(backend, options)
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
        self._active, self._interpreted = active, frozenset()
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
        try:
            self._compiled_call().compile(x, *args)
        except StateChange as e:
            if not e.again:
                raise
            self._run_then_compile(x, *args)

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

    def _slow_call(self, *args: Any) -> Any:
        """What `_fast_call` does with arguments that it does not take: symbols, other signatures, calls in a trace."""
        return Block.__call__(self, *args)

    def _given_arrays(self, form: Any) -> int | None:
        """How many arrays `_fast_call` is given for a call whose arguments have this form (`language.forms`).

        The rest are always the same. None: such calls cannot go straight to native code.
        """
        return len(form) - 1 if form == (tuple, *[forms.ARRAY] * (len(form) - 1)) else None

    def forward(self, x: Any, *args: Any) -> Any:
        """Runs `hybrid_forward` on Symbols or NDArrays, or the code compiled from it."""
        recorder = running.trace
        if recorder is not None:
            return recorder.call(self, (x, *args))
        if (type(x) is not NDArray or args) and _require_tensors(x, *args) is Symbol:
            variables = {name: p.var() for name, p in self._reg_params.items()}
            with self._scope:
                return self.hybrid_forward(symbol, x, *args, **variables)
        if self._active and is_training() not in self._interpreted and not self._given_by_python((x, *args)):
            try:
                return self._compiled_call()(x, *args)
            except StateChange as e:
                if e.again and self._compiled_call().tries_again():
                    return self._run_then_compile(x, *args)
                _interpret(e)
            except ValueNeeded as e:
                if len(e.blocks) < 2:  # this block's own program: compiling nothing would be no help
                    raise
                _interpret(e)
        return self._run_as_python(x, *args)

    def _given_by_python(self, args: tuple[Any, ...]) -> bool:
        """Whether a hybridized block around this one, which now runs as Python, may have called it with `args`.

        Then they may hold what no compiled call takes, a flag or a dict, and this block runs as Python, too.
        """
        if _are_nested_arrays(args):
            return False
        parents = (ref() for ref in self._parents)
        return any(getattr(parent, "_active", False) for parent in parents)

    def _run_then_compile(self, *args: Any) -> Any:
        """A call that changes what the next one reads, run as Python; then what stands for the next one is compiled."""
        result = self._run_as_python(*args)
        try:
            self._compiled_call().compile(*args)
        except StateChange as e:
            _interpret(e)
        except Exception:
            return result  # the next call fails, or not: this one is done
        return result

    def _run_as_python(self, x: Any, *args: Any) -> Any:
        params: dict[str, Any] = {}
        device = device_of(x, args)
        for name, p in self._reg_params.items():
            if device is None and p._plain:
                params[name] = p._data
            else:
                if p._deferred_init:
                    self._finish_deferred_init(x, *args)
                params[name] = p._serving(device)
        return self.hybrid_forward(ndarray, x, *args, **params)

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        """The computation, in terms of `F` (`mx.nd` or `mx.sym`); subclasses override it."""
        raise NotImplementedError

    def _compiled_call(self) -> Any:
        cached = self._cached
        if cached is None:
            # Late: a program that hybridizes nothing needs no compiler.
            from gluonjit.execution.cached_call import CachedCall

            cached = self._cached = CachedCall(self, self._flags)
        return cached

    # Files

    def _graph_entry(self) -> dict[str, Any]:
        traces = self._cached.traces if self._cached is not None else []
        entry: dict[str, Any] = {"hybridized": bool(traces)}
        if traces:
            entry["in_format"] = forms.numbered(traces[-1].form)
            entry["out_format"] = forms.numbered(traces[-1].out_form)
            entry["inputs"] = [symbol.var(name).tojson() for name in traces[-1].input_names]
            entry["symbol"] = self._exported()[0].tojson()
        return entry

    def export(self, path: str | os.PathLike[str], epoch: int = 0, remove_amp_cast: bool = True) -> None:
        """Writes `path-symbol.json` and `path-0000.params` (the epoch's four digits), which MXNet reads, too.

        The inputs are called `data`, or `data0`, `data1`, … Read them with `SymbolBlock.imports` or `mx.mod.Module`.
        The block must have been hybridized and called: RuntimeError otherwise. Casts that automatic mixed precision
        put in are left out unless `remove_amp_cast` is False.
        """
        export.write(path, epoch, *self._exported(), remove_amp_cast)

    def _exported(self) -> tuple[Symbol, dict[str, NDArray]]:
        """The graph to export, and the values of its variables, inputs aside, by name."""
        cached = self._cached
        if cached is None or not cached.traces:
            if self._interpreted:
                raise RuntimeError(f"{self.name} has no graph to export: it runs as Python, as a warning has said")
            raise RuntimeError(
                "Please first call block.hybridize() and then run forward with this block at least once before calling "
                "export."
            )
        return export.of_traces(self.name, self.prefix, cached.traces)

    @property
    def _in_format(self) -> Any:
        """The nesting of the arguments last traced, in MXNet's numbers (`forms.numbered`); None before."""
        traces = self._cached.traces if self._cached is not None else ()
        return forms.numbered(traces[-1].form) if traces else None

    @property
    def _out_format(self) -> Any:
        traces = self._cached.traces if self._cached is not None else ()
        return forms.numbered(traces[-1].out_form) if traces else None

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
        arrays, form = forms.flatten(args, lambda x: isinstance(x, NDArray), "input")
        if not arrays:
            raise ValueError(f"All args are None and we do not support such a case. Received args={args}")
        names = ["data"] if len(arrays) == 1 else [f"data{k}" for k in range(len(arrays))]
        inputs = [symbol.var(name, shape=a.shape, dtype=a.dtype) for name, a in zip(names, arrays)]
        params = {name: p.var() for name, p in self._reg_params.items()}
        with self._scope:
            result = self.hybrid_forward(symbol, *forms.rebuild(form, inputs), **params)
        out = symbol.Group(forms.flatten(result, lambda x: isinstance(x, Symbol), "output")[0])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            known, _, aux = getattr(out, method)(**{n: getattr(a, attr) for n, a in zip(names, arrays)})
        if known is None:
            raise ValueError(caught[0].message if caught else f"{method} did not get through")
        found = dict(zip(out.list_arguments(), known)) | dict(zip(out.list_auxiliary_states(), aux))
        for name, param in self.collect_params().items():
            if name in found:
                setattr(param, attr, found[name])


def _interpret(error: ValueNeeded) -> None:
    """Leaves a block that asks for values, and those that contain it, to Python, with a warning.

    What else they contain is compiled, each block on its own, when they call it. This lasts until `hybridize()`.
    """
    *around, block = error.blocks
    for b in error.blocks:
        b._fast_call = None
        if b._cached is not None and not b._cached.traces:  # the other mode, or other arguments, may be compiled
            b._drop_compiled()
        b._interpreted |= {is_training()}
    names = f" and the blocks around it ({', '.join(b.name for b in around)}) run" if around else " runs"
    warnings.warn(
        f"{block.name} cannot be compiled: it{names} as Python, the blocks beside it and in it are compiled one by one"
        f"\n  {error}",
        stacklevel=stacklevel(),
    )


def _are_nested_arrays(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_are_nested_arrays, value))
    return value is None or isinstance(value, NDArray)


# Private in MXNet; programs such as GluonTS import them all the same.


def _flatten(args: Any, inout_str: str) -> tuple[list[Any], Any]:
    """The arrays, Symbols and Nones in nested lists, in order; and the nesting, in numbers.

    A number stands for each: 0 for an array or Symbol, -1 for None, n for a Symbol of n > 1 outputs. ValueError for
    anything else; `inout_str` says in it whether that was "input" or "output".
    """
    if args is None:
        return [None], -1
    if isinstance(args, (NDArray, Symbol)):
        outputs = len(args) if isinstance(args, Symbol) else 1
        return [args], outputs if outputs > 1 else 0
    if not isinstance(args, (list, tuple)):
        forms.flatten(args, lambda x: False, inout_str)  # raises
    parts = [_flatten(x, inout_str) for x in args]
    return [leaf for leaves, _ in parts for leaf in leaves], [number for _, number in parts]


def _regroup(args: Sequence[Any], fmt: Any) -> Any:
    """The nested lists that `_flatten` took apart: their leaves, and their nesting in numbers."""
    return _regroup_some(args, fmt)[0]


def _regroup_some(args: Sequence[Any], fmt: Any) -> tuple[Any, Sequence[Any]]:
    """What the first leaves make, and the leaves that are left."""
    if isinstance(fmt, int):
        if fmt < -1:
            raise ValueError(f"Unsupported encoded format {fmt}.")
        if fmt > 0:
            return args[:fmt], args[fmt:]
        if fmt == -1 and args[0] is not None:
            raise ValueError(
                "We do not support passing types that are not None when the initial HybridBlock has received NoneType "
                f"and has been hybridized. Received arg = {args[0]}, fmt = {fmt}."
            )
        return args[0], args[1:]
    if not isinstance(args, (list, tuple)):
        raise ValueError(
            "When hybridized, the output of HybridBlock must be (nested) list of Symbol or NDArray, "
            f"but got {args} of type {type(args)}"
        )
    result = []
    for part in fmt:
        item, args = _regroup_some(args, part)
        result.append(item)
    return result, args


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


def device_of(x: Any, args: Sequence[Any]) -> Context | None:
    """Where the first array among a call's arguments is; None for cpu(0)."""
    if isinstance(x, NDArray):
        return x._device
    for value in (*(x if isinstance(x, (list, tuple)) else ()), *args):
        if tensor_kinds(value):
            return device_of(value, ())
    return None
