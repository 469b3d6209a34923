"""`HybridBlock`, a block that can be compiled. As in MXNet, this module also has `Block`, its base class.

`net(x)` calls `HybridBlock.__call__`. A compiled block without hooks goes straight into native code (`_fast_call`).
Otherwise the hooks run around `forward`, which does one of three things: for Symbols, it builds a Symbol; if the block
is hybridized, it runs the compiled call (`execution/cached_call.py`); else it runs `hybrid_forward(mx.nd, …)`, operator
by operator. A hybridized block that contains one which cannot be compiled also takes the third way (`_interpret`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from gluonjit import ndarray, symbol
from gluonjit.base import StateChange, ValueNeeded
from gluonjit.codes.compile_log import CompileLog
from gluonjit.codes.open_shapes import checked
from gluonjit.common.aside import imported
from gluonjit.common.signals import is_from_signal
from gluonjit.context import Context
from gluonjit.execution.backends import check_options, get_backend, get_ready, parsed_flags
from gluonjit.gluon import export
from gluonjit.gluon.base_block import Block
from gluonjit.gluon.parameter import ParameterDict
from gluonjit.gluon.utils import HookHandle, tensor_kinds
from gluonjit.language import forms
from gluonjit.language.modes import is_training
from gluonjit.language.running import running
from gluonjit.language.source import stacklevel
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.postponed_calls import begin_postponing
from gluonjit.symbol import Symbol
from gluonjit.trace import parameter_shapes
from gluonjit.trace.recorder import explain_call

__all__ = ["Block", "HybridBlock"]


class HybridBlock(Block):
    """A block that can be compiled: `hybrid_forward(F, x, …, **params)` works with `F` = `mx.nd` or `mx.sym`.

    Before `hybridize()`, `hybrid_forward` runs operator by operator, with NDArrays. After it, the first call traces
    `hybrid_forward` once, with Symbols, and compiles the graph; later calls run native code. Parameters assigned to
    attributes arrive as keyword arguments of the attributes' names. A subclass that overrides `forward` instead runs
    as Python; its hybridized children are compiled.

    >>> class Scaled(gluon.HybridBlock):
    ...     def __init__(self, **kwargs):
    ...         super().__init__(**kwargs)
    ...         with self.name_scope():
    ...             self.scale = self.params.get("scale", shape=(1,), init="ones")
    ...
    ...     def hybrid_forward(self, F, x, scale):
    ...         return F.broadcast_mul(x, scale)
    >>> net = Scaled()
    >>> net.initialize()
    >>> net.hybridize()
    >>> net(mx.nd.array([1, 2])).asnumpy()
    array([1., 2.], dtype=float32)
    """

    # A slot: reading it costs a quarter less of a call than reading the instance's dictionary does.
    __slots__ = ("_fast_call",)
    _NOT_COPIED = (*Block._NOT_COPIED, "_jit_cached", "_fast_call", "_jit_gradients", "_jit_log")

    # Names that a user's block may well give to something of its own have the prefix _jit_ here.
    # Both are set on the instance by `execution.cached_call.CachedCall`, and dropped whenever they no longer fit.
    _jit_cached: Any = None
    """The compiled call; it takes those arguments of `forward` that hold NDArrays."""
    _fast_call: Callable[..., Any] | None
    """The native entry to what `_jit_cached` has compiled, set while a call has nothing to do but run that code."""
    _monitored_as_bound = False
    """Whether `_callback` gets an executor's names for the results of operators, as monitors of `Module` do."""
    _jit_debug_results: dict[str, Any] | None = None
    """With `hybridize(debug=True)`: the results of the last call's operators."""
    _jit_gradients: Any = None
    """The graphs of recorded calls of code that was dropped, if the next one may need them again."""
    _jit_has_run = False
    """Whether it has run operator by operator."""
    _jit_interpreted: frozenset[bool] = frozenset()
    """The modes (True: training) in which the block runs as Python although it is hybridized: see `_interpret`."""

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

    def _drop_compiled(self, why: str, alike: bool = False) -> None:
        if self._jit_log is not None:
            self._jit_log.drop(why, self._jit_cached is not None and bool(self._jit_cached.traces))
        if not alike:
            self._jit_gradients = None
        elif self._jit_cached is not None:
            self._jit_gradients = dict(self._jit_cached.compiler.gradients)
        self._jit_cached = self._fast_call = None

    def _clear_cached_op(self) -> None:
        """Drops compiled code, here and in the blocks around it. Users call it before their settings change,
        as they must in MXNet; changes of attributes are noticed here in any case."""
        self._structure_changed(f"_clear_cached_op() of {self.name} was called", alike=True)

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

        * `backend`: the name of a registered pipeline (`gluonjit.register_backend`); None is the default. Its options
          are the remaining keywords, or the dict `backend_opts`; MXNetError for an option that it does not have.
        * `winograd=False` (default backend): convolutions are computed by their definition. By default, those with
          small windows may use fewer multiplications, which rounds a little more.
        * `tune=True` (default backend): the first call measures several kernels for each product and convolution, and
          one thread against several, instead of estimating. It takes seconds; the object cache keeps the choices.
        * `flush_denormals=True` (default backend): compiled code treats denormal floats (below 1.2e-38 in float32) as
          zero. Some machines compute with them a hundred times more slowly; see docs/architecture.md.
        * `clear=False` keeps compiled code that was made for the same backend and options.
        * `static_alloc`: frees the memory of parameters that were loaded from a file, if compiled code reads only
          packed copies of them. `data()` reads them from the file again, which must not have been overwritten in place.
          Buffers of intermediate results are kept between calls in any case.
        * `static_shape`: accepted as in MXNet, without effect: code for every input shape is kept in any case.
        * `remat`: what a recorded call's gradient computes again instead of having it saved. "elementwise": what costs
          next to nothing. "all": everything, so that between the call and `backward()` only arguments and results are
          kept, and of a long block what lives between its sections. None: "elementwise", but "all" if the environment
          variable MXNET_BACKWARD_DO_MIRROR is 1.
        * `dynamic`: the dimensions of the arguments that code is to be compiled for with any size, named:
          `{"data": {0: "batch", 1: "length"}}`, where several arguments are data0, data1 …. Equal names stand for equal
          sizes. None: those that have been seen to change; False: none, each shape is compiled for itself.
        * `cache_size`: how many codes are kept (64 by default); the one used least recently goes for a new one, and is
          compiled again when it is needed.
        * `wait=False`: while code is being compiled, calls run operator by operator, rather than wait for it. A program
          whose first calls come before its code may then see other roundings in them, from run to run.
        * `debug=True`: each call also computes its operators one by one and keeps their results: `intermediates()`.
        * `inline_limit`, `forward_bulk_size`, `backward_bulk_size`: how MXNet's engine groups operators. They have no
          effect, because a compiled graph is one function.
        """
        get_backend(backend)  # an unknown name is an error here, not at the first call
        remat = kwargs.pop("remat", None)
        dynamic = checked(kwargs.pop("dynamic", None))
        wait = bool(kwargs.pop("wait", True))
        cache_size = kwargs.pop("cache_size", None)
        if cache_size is not None and (
            isinstance(cache_size, bool) or not isinstance(cache_size, int) or cache_size < 1
        ):
            raise ValueError(f"cache_size is a number of codes, at least 1, or None; got {cache_size!r}")
        debug = bool(kwargs.pop("debug", False))
        options = {**(kwargs.pop("backend_opts", None) or {}), **kwargs}
        check_options(backend, options)
        flags = parsed_flags(
            {
                "static_alloc": static_alloc,
                "static_shape": static_shape,
                "inline_limit": inline_limit,
                "forward_bulk_size": forward_bulk_size,
                "backward_bulk_size": backward_bulk_size,
            }
        )
        if remat not in (None, "elementwise", "all"):  # passes.partition.REMAT, which takes long to import
            raise ValueError(f"remat must be None or one of elementwise, all, got {remat!r}")
        if active and (self._forward_hooks or self._forward_pre_hooks):
            warnings.warn(
                f'"{self}" is being hybridized while still having forward hook/pre-hook. '
                f'If "{self}" is a child of HybridBlock, the hooks will not take effect.',
                stacklevel=2,
            )
        chosen = {"backend": backend, "backend_opts": options, "remat": remat, "dynamic": dynamic, "wait": wait}
        chosen["cache_size"] = cache_size
        self._fast_call = None
        if clear or any(self._flags.get(key) != value for key, value in chosen.items()):
            self._drop_compiled("hybridize() was called")
        self._active, self._jit_interpreted = active, frozenset()
        self._flags = {**flags, **chosen}
        self._jit_debug_results = {} if debug and active else None
        passed = {"backend": backend, "backend_opts": options, "remat": remat, "cache_size": cache_size, **flags}
        passed["debug"] = debug or None
        super().hybridize(active, clear=clear, **{k: v for k, v in passed.items() if v is not None or k == "backend"})
        if active:
            get_ready(backend)

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
        if backend is None or isinstance(backend, str) and not backend:
            raise ValueError('Must specify "backend" to optimize_for')
        if "active" in kwargs:
            raise TypeError("optimize_for takes no argument 'active': it always hybridizes")
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

    # Native code does not call hooks, so registering one disables `_fast_call`.

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
        """Whether `__call__` has nothing to do but run compiled code, so that `_fast_call` may be set."""
        return (
            self._active
            and not (self._forward_hooks or self._forward_pre_hooks or self._callback)
            and self._jit_debug_results is None
            and type(self).forward is HybridBlock.forward
            and "forward" not in self.__dict__
        )

    # Calls

    def __call__(self, *args: Any) -> Any:
        fast = self._fast_call
        if fast is not None:
            return fast(*args)
        recorder = running.trace
        if recorder is not None and type(self).forward is not HybridBlock.forward:
            return recorder.within(self, lambda: Block.__call__(self, *args))
        return Block.__call__(self, *args)

    def _slow_call(self, *args: Any) -> Any:
        """The fallback of `_fast_call` for symbols, other signatures, and calls within a trace."""
        return Block.__call__(self, *args)

    def _jit_completed(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of `forward` in a call with `args`."""
        return args

    def _argument_names(self, count: int) -> list[str]:
        """The names of the arrays in the arguments of a call, of which there are `count`."""
        return ["data"] if count == 1 else [f"data{k}" for k in range(count)]

    def _passed_arrays(self, form: Any) -> int | None:
        """How many arrays a caller passes to `_fast_call` in arguments of this form (`language.forms`).

        The block supplies the others itself. None: calls of this form cannot go straight to native code.
        """
        return len(form) - 1 if form == (tuple, *[forms.ARRAY] * (len(form) - 1)) else None

    def compile(self, *args: Any, keep: bool = False) -> int:
        """Compiles code for calls with arguments like `args`, in the current training mode, and packs parameters for
        it, without running it: what the first such call would do otherwise. Raises RuntimeError unless the block is
        hybridized.

        `keep`: packed parameters are written to disk, where they take as much room as the parameters' file: later
        processes use them from there (`runtime/prepared_files.py`). Returns the number of bytes written.
        """
        if not self._active:
            raise RuntimeError(f"{self.name} is not hybridized, so there is nothing to compile: call hybridize() first")
        return self._compiled_call().prepare(*self._jit_completed(args), keep=keep)

    def forward(self, x: Any, *args: Any) -> Any:
        """Runs `hybrid_forward` on Symbols or NDArrays, or the code compiled from it."""
        recorder = running.trace
        if recorder is not None:
            return recorder.call(self, (x, *args))
        cached = self._jit_cached if self._active else None
        if cached is not None and (later := cached.deferred((x, *args))) is not None:
            return later
        large = False
        if type(x) is not NDArray or args:
            if _require_tensors(x, *args) is Symbol:
                variables = {name: p.var() for name, p in self._reg_params.items()}
                with self._scope:
                    return self.hybrid_forward(symbol, x, *args, **variables)
            large = any(map(_is_large_sparse, (x, *args)))
        compiled = self._active and not large and is_training() not in self._jit_interpreted
        if compiled and not self._may_be_called_by_python((x, *args)):
            call = self._compiled_call()
            try:
                return call(x, *args)
            except call.not_yet:
                self._log_compilations().count("fallbacks")
                return self._run_as_python(x, *args)
            except StateChange as e:
                self._log_compilations().count("fallbacks")
                if e.again and self._compiled_call().compiler.tries_again():
                    return self._run_then_compile(x, *args)
                _interpret(e)
            except ValueNeeded as e:
                if len(e.blocks) < 2:  # the fault is in this block's own program, so nothing could be compiled
                    raise
                self._log_compilations().count("fallbacks")
                _interpret(e)
        elif self._active:
            self._log_compilations().count("interpreted")
        return self._run_as_python(x, *args)

    def intermediates(self) -> dict[str, NDArray]:
        """The results of all operators of the last compiled call of this block, by the names that MXNet gives them in
        `get_internals().list_outputs()`, in the order of the call: layers inside the block included, operators in the
        bodies of loops and branches not. RuntimeError unless `hybridize(debug=True)` was called.

        >>> net = nn.Dense(3, activation="relu", prefix="dense_")
        >>> net.initialize()
        >>> net.hybridize(debug=True)
        >>> y = net(mx.nd.ones((2, 4)))
        >>> list(net.intermediates())
        ['dense_fwd_output', 'dense_relu_fwd_output']
        """
        if self._jit_debug_results is None:
            raise RuntimeError(f"{self.name} keeps no intermediate results: call hybridize(debug=True) first")
        return dict(self._jit_debug_results)

    def graph(self, *args: Any, stage: str = "trace") -> Any:
        """The graph of a call with arguments like `args`, as the compiler has it (`gluonjit.ir.graph.Graph`), which
        prints as text. `stage`: `trace`, `expanded` (primitives) or `optimized` (kernels, as they are compiled).
        `gluonjit.compile` makes code of one; see `execution/inspecting.py`."""
        return imported("gluonjit.execution.inspecting").graph(self, *args, stage=stage)

    def _may_be_called_by_python(self, args: tuple[Any, ...]) -> bool:
        """Whether the caller may be an enclosing hybridized block that runs as Python.

        Its arguments may hold values that no compiled call takes, such as a flag or a dict. Then this block runs as
        Python, too.
        """
        if _are_nested_arrays(args):
            return False
        parents = (ref() for ref in self._jit_parents)
        return any(getattr(parent, "_active", False) for parent in parents)

    def _run_then_compile(self, *args: Any) -> Any:
        """Runs a call that changes state which the next call reads as Python, then compiles code for the next call."""
        result = self._run_as_python(*args)
        try:
            self._compiled_call().compile(*args)
        except StateChange as e:
            _interpret(e)
        except Exception as e:
            if is_from_signal(e):
                raise
            return result  # the next call fails, or not: this one is done
        return result

    def _run_as_python(self, x: Any, *args: Any) -> Any:
        if self._jit_debug_results is not None:
            self._jit_debug_results = {}  # of another call
        if not self._jit_has_run:
            self._jit_has_run = True
            begin_postponing(Block.__call__.__code__, [HybridBlock.__call__.__code__])
        params: dict[str, Any] = {}
        device = device_of(x, args)
        for name, p in self._reg_params.items():
            if device is None and p._plain is not None:
                params[name] = p._plain
            else:
                if p._deferred_init:
                    self._finish_deferred_init(x, *args)
                params[name] = p._value_on(device)
        try:
            return self.hybrid_forward(ndarray, x, *args, **params)
        except TypeError as e:
            explain_call(e)
            raise

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        """The computation, in terms of `F` (`mx.nd` or `mx.sym`); subclasses override it."""
        raise NotImplementedError(f"{type(self).__name__} defines neither hybrid_forward(self, F, x, ...) nor forward")

    def _compiled_call(self) -> Any:
        cached = self._jit_cached
        if cached is None:
            # Imported late: a program that hybridizes nothing needs no compiler.
            imported("gluonjit.execution.cached_call")
            from gluonjit.execution.cached_call import CachedCall

            self._log_compilations()
            cached = self._jit_cached = CachedCall(self, self._flags)
        return cached

    def _log_compilations(self) -> CompileLog:
        """The `_jit_log`, made if need be."""
        if self._jit_log is None:
            self._jit_log = CompileLog(self.name)
        return self._jit_log

    def _compiled_state(self) -> tuple[str, int, int]:
        cached = self._jit_cached
        if not self._active:
            state = "not hybridized, so calls run operator by operator"
        elif is_training() in self._jit_interpreted:
            state = "hybridized, but runs as Python"
        else:
            state = "hybridized" if cached is not None else "hybridized, and not called since"
        return state, *(cached.codes if cached is not None else (0, 0))

    # Files

    def _graph_entry(self) -> dict[str, Any]:
        traces = self._jit_cached.traces if self._jit_cached is not None else []
        entry: dict[str, Any] = {"hybridized": bool(traces)}
        if traces:
            entry["in_format"] = forms.numbered(traces[-1].form)
            entry["out_format"] = forms.numbered(traces[-1].out_form)
            entry["inputs"] = [symbol.var(name).tojson() for name in traces[-1].input_names]
            entry["symbol"] = self._jit_exported()[0].tojson()
        return entry

    def export(self, path: str | os.PathLike[str], epoch: int = 0, remove_amp_cast: bool = True) -> None:
        """Writes `path-symbol.json` and `path-0000.params` (the epoch in four digits), which MXNet reads, too.

        The inputs are called `data`, or `data0`, `data1`, … To load the files, use `SymbolBlock.imports` or
        `mx.mod.Module`. Raises RuntimeError unless the block has been hybridized and called. Casts inserted by
        automatic mixed precision are left out unless `remove_amp_cast` is False.
        """
        export.write(path, epoch, *self._jit_exported(), remove_amp_cast)

    def _jit_exported(self) -> tuple[Symbol, dict[str, NDArray]]:
        """The graph to export, and the values of its variables (except inputs) by name."""
        cached = self._jit_cached
        if cached is None or not cached.traces:
            if self._jit_interpreted:
                raise RuntimeError(f"{self.name} has no graph to export: it runs as Python, as a warning has said")
            raise RuntimeError(
                "Please first call block.hybridize() and then run forward with this block at least once before calling "
                "export."
            )
        return export.of_traces(self.name, self.prefix, cached.traces)

    @property
    def _in_format(self) -> Any:
        """The nesting of the last traced arguments, in MXNet's encoding (`forms.numbered`); None before a trace."""
        traces = self._jit_cached.traces if self._jit_cached is not None else ()
        return forms.numbered(traces[-1].form) if traces else None

    @property
    def _out_format(self) -> Any:
        traces = self._jit_cached.traces if self._jit_cached is not None else ()
        return forms.numbered(traces[-1].out_form) if traces else None

    # Deferred initialization

    def _finish_deferred_init(self, *args: Any) -> None:
        """Infers missing shapes of this block's own parameters from inputs like `args`, and initializes them.

        A trace finds shapes that follow forward from the inputs. If it fails, inference on the untyped graph also works
        backward, but only for programs that do not ask for shapes.
        """
        waiting = [p for p in self.params.values() if p._first is None and p._deferred_init]
        try:
            for param, shape in parameter_shapes(self, args).items():
                param.shape = shape
        except Exception as e:
            if is_from_signal(e):
                raise
            try:
                self.infer_shape(*args)
            except Exception as other:
                if is_from_signal(other):
                    raise
                # MXNet's words come after the cause.
                raise ValueError(f"{e}\nDeferred initialization failed because shape cannot be inferred.") from e
        for param in waiting:
            param._finish_deferred_init()

    def infer_shape(self, *args: Any) -> None:
        """Completes the shapes of all parameters from inputs like `args`, without running anything."""
        self._jit_infer("infer_shape", "shape", args)

    def infer_type(self, *args: Any) -> None:
        """Sets the element types of all parameters to what inputs like `args` imply."""
        self._jit_infer("infer_type", "dtype", args)

    def _jit_infer(self, method: str, attr: str, args: tuple[Any, ...]) -> None:
        arrays, form = forms.flatten(args, lambda x: isinstance(x, NDArray), "input")
        if not arrays:
            raise ValueError(f"All args are None and we do not support such a case. Received args={args}")
        names = self._argument_names(len(arrays))
        inputs = [symbol.var(name, shape=a.shape, dtype=a.dtype) for name, a in zip(names, arrays)]
        params = {name: p.var() for name, p in self._reg_params.items()}
        with self._scope:
            try:
                result = self.hybrid_forward(symbol, *forms.rebuild(form, inputs), **params)
            except TypeError as e:
                explain_call(e)
                raise
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
    """Has a block that needs values, and the blocks that contain it, run as Python from now on, with a warning.

    The other blocks that they contain are compiled one by one, when they are called. This lasts until `hybridize()`.
    """
    *around, block = error.blocks
    for b in error.blocks:
        b._fast_call = None
        b._log_compilations().runs_as_python(str(error).partition("\n")[0], error.loc)
        if b._jit_cached is not None and not b._jit_cached.traces:  # other modes or arguments may be compiled
            b._drop_compiled("it runs as Python")
        b._jit_interpreted |= {is_training()}
    names = f" and the blocks around it ({', '.join(b.name for b in around)}) run" if around else " runs"
    warnings.warn(
        f"{block.name} cannot be compiled: it{names} as Python, the blocks beside it and in it are compiled one by one"
        f"\n  {error}",
        stacklevel=stacklevel(),
    )


LARGE = 1 << 20
"""A sparse argument of at least this many elements is not made dense for compiled code: the block runs as Python."""


def _is_large_sparse(x: Any) -> bool:
    return isinstance(x, NDArray) and x.stype != "default" and x.size > LARGE


def _are_nested_arrays(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_are_nested_arrays, value))
    return value is None or isinstance(value, NDArray)


# Private in MXNet, but imported by programs such as GluonTS.


def _flatten(args: Any, inout_str: str) -> tuple[list[Any], Any]:
    """(leaves of nested lists, their nesting as numbers). Leaves are arrays, Symbols and None.

    Each leaf is encoded as a number: 0 for an array or Symbol, -1 for None, n for a Symbol of n > 1 outputs. ValueError
    for other leaves; `inout_str`, "input" or "output", is quoted in its message.
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
    """The inverse of `_flatten`: nested lists from their leaves and the numbers that encode their nesting."""
    return _regroup_first(args, fmt)[0]


def _regroup_first(args: Sequence[Any], fmt: Any) -> tuple[Any, Sequence[Any]]:
    """(the structure `fmt` built from the first leaves, the remaining leaves)."""
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
        item, args = _regroup_first(args, part)
        result.append(item)
    return result, args


def _require_tensors(*args: Any) -> type:
    """NDArray or Symbol, whichever type the nested arguments contain; ValueError for both or neither."""
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
        f"Got {', '.join(type(x).__name__ for x in args)}; mx.nd.array(x) makes an NDArray of numbers."
    )


def device_of(x: Any, args: Sequence[Any]) -> Context | None:
    """The context of the first array among a call's arguments; None for cpu(0)."""
    if isinstance(x, NDArray):
        return x._device
    for value in (*(x if isinstance(x, (list, tuple)) else ()), *args):
        if tensor_kinds(value):
            return device_of(value, ())
    return None
