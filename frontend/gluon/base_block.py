"""`Block`: a tree of layers with names, parameters and hooks, whose `forward` is plain Python."""

from __future__ import annotations

import re
import sys
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any

from gluonjit.codes.compile_log import CompileLog, Explanation, explained, explained_steps
from gluonjit.gluon import parameter_files, structure_files, summary
from gluonjit.gluon.naming import BlockScope, name_block
from gluonjit.gluon.parameter import Parameter, ParameterDict
from gluonjit.gluon.utils import HookHandle, _indent
from gluonjit.language.keywords import suggesting
from gluonjit.language.running import running
from gluonjit.language.source import is_ours, stacklevel, user_frame
from gluonjit.ndarray.postponed_calls import end_postponing
from gluonjit.trace import block_attributes
from gluonjit.training import initializers

Hook = Callable[..., Any]


class Block:
    """A layer or model: children (blocks assigned to attributes), parameters, and `forward`.

    `prefix` starts the names of parameters, and of children created inside `name_scope()`; None generates one from the
    class name and a number. `params` is the ParameterDict of another block to share parameters with.

    >>> class Net(gluon.Block):
    ...     def __init__(self, **kwargs):
    ...         super().__init__(**kwargs)
    ...         with self.name_scope():
    ...             self.hidden = nn.Dense(8)
    ...
    ...     def forward(self, x):
    ...         return self.hidden(x).relu()
    >>> net = Net(prefix="net_")
    >>> net.initialize()
    >>> net(mx.nd.ones((2, 3))).shape, list(net.collect_params())
    ((2, 8), ['net_dense0_weight', 'net_dense0_bias'])
    """

    _active = False
    """Whether it is hybridized."""
    _made_at: tuple[str, int] | None = None
    """The user's file and line that made a layer of this package: where profiles and errors say it comes from."""
    _is_container = False
    """Whether the block only calls its children; a summary has no row for it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("gluonjit.") and "__init__" in vars(cls):
            cls.__init__ = suggesting(cls.__init__)  # type: ignore[method-assign]

    @suggesting
    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        if not isinstance(prefix, (str, NoneType)):
            raise TypeError(
                f"prefix must be a string, got {type(prefix).__name__}; net.add(*blocks) adds blocks to one"
            )
        self._empty_prefix = prefix == ""
        self._prefix, self._params = name_block(prefix, params, self._alias())
        self._name = self._prefix[:-1] if self._prefix.endswith("_") else self._prefix
        self._scope = BlockScope(self)
        self._children: dict[str, Block] = OrderedDict()
        self._reg_params: dict[str, Parameter] = {}
        self._forward_hooks: dict[int, Hook] = OrderedDict()
        self._forward_pre_hooks: dict[int, Hook] = OrderedDict()
        self._jit_parents: list[weakref.ref[Block]] = []
        if is_ours(type(self).__module__):
            frame = user_frame(in_models=True)
            self.__dict__["_made_at"] = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else None

    def __repr__(self) -> str:
        children = {k: v for k, v in self.__dict__.items() if isinstance(v, Block)}
        return self._repr_children(children)

    def _repr_html_(self) -> str:
        from gluonjit.gluon.notebook import of_block

        return of_block(self)

    def _repr_children(self, children: dict[str, Block]) -> str:
        lines = "\n".join(f"  ({key}): {_indent(repr(child), 2)}" for key, child in children.items())
        return f"{type(self).__name__}(\n{lines}\n)"

    def __setattr__(self, name: str, value: Any) -> None:
        """Registers blocks and parameters; TypeError if an attribute that holds one is set to another type."""
        existing = self.__dict__.get(name, None)
        if isinstance(existing, (Parameter, Block)) and not isinstance(value, type(existing)):
            raise TypeError(f"Changing attribute type for {name} from {type(existing)} to {type(value)}is not allowed.")
        if isinstance(value, (Block, Parameter)) and "_children" not in self.__dict__:
            raise AttributeError(
                f"'{type(self).__name__}' object has no attribute '_children': call super().__init__(**kwargs) before "
                f"self.{name} = ..."
            )
        if isinstance(value, Block):
            self.register_child(value, name)
        elif isinstance(value, Parameter):
            if name in self._reg_params:
                raise AssertionError(
                    f"Overriding Parameter attribute {name} is not allowed. If you want to share parameters between "
                    "blocks, please set 'params' at Block construction instead."
                )
            self._reg_params[name] = value
            value._attribute = f"self.{name} of {self.name}"
            self._structure_changed(f"parameter {name!r} was added to {self.name}")
        before = block_attributes.held(self, name)
        super().__setattr__(name, value)
        if name == "forward":  # calls mean something else now
            self._drop_compiled(f"`forward` of {self.name} was replaced")
        block_attributes.changed(self, name, before, sys._getframe(1))

    def __delattr__(self, name: str) -> None:
        block_attributes.deleting(self, name)
        before = block_attributes.held(self, name)
        super().__delattr__(name)
        block_attributes.changed(self, name, before, sys._getframe(1))

    # Copies leave out compiled code, weak references and other state that belongs to one object.

    _NOT_COPIED: tuple[str, ...] = ("_jit_parents", block_attributes.READERS)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in block_attributes.state_of(self).items() if k not in self._NOT_COPIED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        slots = block_attributes.slot_names(type(self))
        for name, value in state.items():
            if name in slots:
                object.__setattr__(self, name, value)
            else:
                self.__dict__[name] = value
        self.__dict__.setdefault("_jit_parents", [])
        for child in self._children.values():
            child.__dict__.setdefault("_jit_parents", []).append(weakref.ref(self))

    # Names

    def _alias(self) -> str:
        """The name that automatic prefixes start with: `dense` gives `dense0_`, `dense1_`, …"""
        return type(self).__name__.lower()

    @property
    def prefix(self) -> str:
        """The start of every parameter's name."""
        return self._prefix

    @property
    def name(self) -> str:
        """The prefix without the underscore at its end."""
        return self._name

    def name_scope(self) -> BlockScope:
        """Blocks created inside `with self.name_scope():` get this block's prefix."""
        return self._scope

    # Parameters

    @property
    def params(self) -> ParameterDict:
        """This block's own parameters, without its children's."""
        return self._params

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """The parameters of the block and its descendants.

        `select` is a regular expression that names have to match at their start.
        """
        self._warn_of_unregistered_children()
        found = ParameterDict(self._params.prefix)
        pattern = re.compile(select or "")
        found.update({name: p for name, p in self.params.items() if pattern.match(name)})
        for child in self._children.values():
            found.update(child.collect_params(select=select))
        return found

    def _collect_params_with_prefix(self, prefix: str = "") -> dict[str, Parameter]:
        """Parameters by structured name, which is the path of attributes: `body.0.weight`."""
        if prefix:
            prefix += "."
        found = {prefix + name: p for name, p in self._reg_params.items()}
        for name, child in self._children.items():
            found.update(child._collect_params_with_prefix(prefix + name))
        return found

    def _warn_of_unregistered_children(self) -> None:
        children = set(map(id, self._children.values()))
        for key, value in self.__dict__.items():
            if isinstance(value, (list, tuple, dict)) and key != "_children" and _holds_other_block(value, children):
                warnings.warn(
                    f'"{type(self).__name__}.{key}" is an unregistered container with Blocks. Note that Blocks inside '
                    "the list, tuple or dict will not be registered automatically. Make sure to register them using "
                    "register_child() or switching to nn.Sequential/nn.HybridSequential instead. ",
                    stacklevel=3,
                )

    def initialize(
        self,
        init: Any = initializers.Uniform(),  # noqa: B008 (immutable, and the signature is MXNet's)
        ctx: Any = None,
        verbose: bool = False,
        force_reinit: bool = False,
    ) -> None:
        """Initializes all parameters; `init` is for those that have no initializer of their own."""
        self.collect_params().initialize(init, ctx, verbose, force_reinit)

    def save_parameters(self, filename: Any, deduplicate: bool = False) -> None:
        """Writes all parameters to a `.params` file, by structured name; see `load_parameters`.

        A parameter that several children share is written for each of them, or once if `deduplicate`.
        """
        parameter_files.save_parameters(self._collect_params_with_prefix(), filename, deduplicate)

    def load_parameters(
        self,
        filename: Any,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Loads the parameters that `save_parameters` wrote, and initializes those that were not initialized.

        * `allow_missing`: parameters that the file lacks keep their values, instead of an AssertionError.
        * `ignore_extra`: arrays that the block lacks are skipped, instead of a ValueError.
        * `cast_dtype`: if element types differ, the parameters' (`dtype_source='current'`) or the file's (`'saved'`)
          are used, instead of an AssertionError.
        """
        parameter_files.load_parameters(self, filename, ctx, allow_missing, ignore_extra, cast_dtype, dtype_source)

    def save_params(self, filename: Any) -> None:
        """Deprecated: like `save_parameters`, but by the parameters' full names without the block's prefix."""
        warnings.warn(
            "save_params is deprecated. Please use save_parameters. Note that if you want load from SymbolBlock later, "
            "please use export instead.",
            stacklevel=2,
        )
        self.collect_params().save(filename, strip_prefix=self.prefix)

    def load_params(
        self, filename: Any, ctx: Any = None, allow_missing: bool = False, ignore_extra: bool = False
    ) -> None:
        """Deprecated: use `load_parameters`, which also reads files of `save_params`."""
        warnings.warn("load_params is deprecated. Please use load_parameters.", stacklevel=2)
        self.load_parameters(filename, ctx, allow_missing, ignore_extra)

    def save(self, prefix: Any) -> None:
        """Writes `prefix-model.json`, the tree of blocks with their names and graphs, and `prefix-model.params`."""
        structure_files.save(self, prefix)

    def load(self, prefix: Any) -> None:
        """Loads the names and parameters that `save` wrote. The same program must have created the block.

        Blocks that were hybridized when saved are hybridized again.
        """
        structure_files.load(self, prefix)

    def _graph_entry(self) -> dict[str, Any]:
        """The part of `save`'s JSON about the block's graph; a plain block has none."""
        return {}

    def cast(self, dtype: Any) -> None:
        """Converts the parameters of the block and its descendants to another element type."""
        for child in self._children.values():
            child.cast(dtype)
        for param in self.params.values():
            param.cast(dtype)
        self._structure_changed(f"parameters were cast to {dtype}")

    # Children

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Adds `block` as a child; its name is the next number by default."""
        self._children[str(len(self._children)) if name is None else name] = block
        block._jit_parents[:] = [ref for ref in block._jit_parents if ref() not in (None, self)] + [weakref.ref(self)]
        self._structure_changed(f"block {block.name} was put into {self.name}")

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

    def _structure_changed(self, why: str, alike: bool = False) -> None:
        """Drops the compiled code of this block and of every block that contains it. `alike`: see `_drop_compiled`."""
        for block in self._blocks_around():
            block._drop_compiled(why, alike)

    def _blocks_around(self, now: bool = False) -> Iterator[Block]:
        """This block and all that contain it, each once; unless `now`, those as well that did."""
        seen: set[int] = set()
        waiting: list[Block] = [self]
        while waiting:
            block = waiting.pop()
            if id(block) in seen:
                continue
            seen.add(id(block))
            yield block
            parents = [parent for ref in block._jit_parents if (parent := ref()) is not None]
            waiting += [p for p in parents if not now or any(child is block for child in p._children.values())]

    def _warn_of_traced_hooks(self) -> None:
        """Warns where a hook of this block will not be called in every call, as it is part of a block that is
        compiled."""
        for block in self._blocks_around(now=True):
            if block is not self and block._active and not getattr(block, "_jit_interpreted", None):
                warnings.warn(
                    f"{block.name} is hybridized and contains {self.name}: this hook is not called in every call, "
                    f"but with symbols when {block.name} is traced, as in MXNet. Register it on {block.name}, or "
                    "call hybridize(False) first",
                    stacklevel=stacklevel(),
                )
                return

    def _drop_compiled(self, why: str, alike: bool = False) -> None:
        """Drops compiled code; a plain block has none. `why`: the reason, for the log. `alike`: most of
        the graphs will probably be the same when they are traced again."""

    _jit_log: CompileLog | None = None
    """The reasons of all its compilations; None if there were none."""

    def explain(self) -> Explanation:
        """Why this block and those in it were traced and compiled, each time, how calls ran, how much code is kept, and
        whether steps of training are replayed: an object that prints as a text (`codes.compile_log.Explanation`). With
        GLUONJIT_LOG=compile in the environment, all compiling is printed as it happens.

        >>> net = nn.Dense(3, in_units=4, prefix="dense_")
        >>> net.initialize()
        >>> net.hybridize()
        >>> [net(mx.nd.ones((batch, 4))).shape for batch in (16, 10)]
        [(16, 3), (10, 3)]
        >>> print(net.explain())
        dense: hybridized
        ...
          - compiled for f32[n,4] in ...: shape of argument 0: 10×4, had 16×4...
        """
        return explained(self, explained_steps(self.collect_params().values()))

    def _compiled_state(self) -> tuple[str, int, int]:
        """(how calls run, how many codes are kept, how many may be)"""
        return "no HybridBlock, so it runs as Python", 0, 0

    # Calls

    def __call__(self, *args: Any) -> Any:
        """Calls pre-hooks, `forward` and hooks, in this order."""
        if self._forward_pre_hooks:
            for hook in list(self._forward_pre_hooks.values()):
                hook(self, args)
        try:
            out = self.forward(*args)
        finally:
            if running.postponed is not None and running.postponed.is_made_in(args):
                if not self._forward_hooks:
                    out = None  # the caller drops it
                end_postponing()
        if self._forward_hooks:
            for hook in list(self._forward_hooks.values()):
                hook(self, args, out)
        return out

    def forward(self, *args: Any) -> Any:
        """The computation; subclasses override it."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward(self, x, ...)")

    def register_forward_pre_hook(self, hook: Callable[[Block, tuple[Any, ...]], None]) -> HookHandle:
        """Registers `hook(block, inputs)` to be called before every `forward`; inside a hybridized block, when it is
        traced, with symbols."""
        handle = HookHandle()
        handle.attach(self._forward_pre_hooks, hook)
        self._warn_of_traced_hooks()
        return handle

    def register_forward_hook(self, hook: Callable[[Block, tuple[Any, ...], Any], None]) -> HookHandle:
        """Registers `hook(block, inputs, outputs)` to be called after every `forward`; inside a hybridized block,
        when it is traced, with symbols."""
        handle = HookHandle()
        handle.attach(self._forward_hooks, hook)
        self._warn_of_traced_hooks()
        return handle

    def register_op_hook(self, callback: Callable[..., None], monitor_all: bool = False) -> None:
        """Registers `callback(name, operator, array)` for the outputs of every operator of hybridized blocks.

        Names are bytes, as in MXNet. With `monitor_all`, the callback is also called for inputs.
        """
        for child in self._children.values():
            child.register_op_hook(callback, monitor_all)

    def summary(self, *inputs: Any) -> None:
        """Prints a table of output shapes and parameter counts per layer, found by running `inputs` through.

        The block must be initialized. A hybridized one runs as Python here; its compiled code is kept for later calls.
        """
        summary.print_summary(self, inputs)


_NAMES = ("_empty_prefix", "_prefix", "prefix", "_name", "name", "_scope", "name_scope")
_PARTS = ("_made_at", "_children", "_reg_params", "_forward_hooks", "_forward_pre_hooks", "_fast_call")
block_attributes.observe(Block, frozenset((*_NAMES, *_PARTS)))


def _holds_other_block(value: Any, registered: set[int]) -> bool:
    """Whether nested containers hold a block whose id is not among those registered."""
    if isinstance(value, (list, tuple)):
        return any(_holds_other_block(v, registered) for v in value)
    if isinstance(value, dict):
        return any(_holds_other_block(v, registered) for v in value.values())
    return isinstance(value, Block) and id(value) not in registered
