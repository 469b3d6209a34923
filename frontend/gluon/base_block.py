"""`Block`: a tree of layers with names, parameters and hooks, whose `forward` is plain Python."""

from __future__ import annotations

import re
import sys
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from gluonjit.gluon import parameter_files, structure_files, summary
from gluonjit.gluon.naming import BlockScope, name_block
from gluonjit.gluon.parameter import Parameter, ParameterDict
from gluonjit.gluon.utils import HookHandle, _indent
from gluonjit.trace import block_attributes
from gluonjit.training import initializers

Hook = Callable[..., Any]


class Block:
    """A layer or model: children (blocks assigned to attributes), parameters, and `forward`.

    `prefix` goes in front of the names of parameters, and of children made inside `name_scope()`; None numbers the
    block by its class name. `params` is the ParameterDict of another block to share parameters with.
    """

    _active = False
    """Whether it is hybridized."""
    _is_container = False
    """Whether it only calls its children, so that a summary has no row for it."""

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
        existing = self.__dict__.get(name, None)
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
        before = block_attributes.held(self, name)
        super().__setattr__(name, value)
        if name == "forward":  # calls mean something else now
            self._drop_compiled()
        block_attributes.changed(self, name, before, sys._getframe(1))

    def __delattr__(self, name: str) -> None:
        block_attributes.deleting(self, name)
        before = block_attributes.held(self, name)
        super().__delattr__(name)
        block_attributes.changed(self, name, before, sys._getframe(1))

    # Compiled code, weak references and what else belongs to one object alone is left out of copies.

    _UNCOPIED: tuple[str, ...] = ("_parents", block_attributes.READERS)

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
        init: Any = initializers.Uniform(),  # noqa: B008 (immutable, and the signature is MXNet's)
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
        """Reads the parameters that `save_parameters` wrote; initializes those that are not yet.

        * `allow_missing`: parameters that the file lacks stay as they are, instead of an AssertionError.
        * `ignore_extra`: arrays that the block lacks are skipped, instead of a ValueError.
        * `cast_dtype`: where element types differ, those of the parameters (`dtype_source='current'`) or of the file
          (`'saved'`) are taken, instead of an AssertionError.
        """
        parameter_files.load_parameters(self, filename, ctx, allow_missing, ignore_extra, cast_dtype, dtype_source)

    def save_params(self, filename: Any) -> None:
        """Deprecated: like `save_parameters`, by the parameters' own names, without the block's prefix."""
        warnings.warn(
            "save_params is deprecated. Please use save_parameters. Note that if you want load from SymbolBlock later, "
            "please use export instead.",
            stacklevel=2,
        )
        self.collect_params().save(filename, strip_prefix=self.prefix)

    def load_params(
        self, filename: Any, ctx: Any = None, allow_missing: bool = False, ignore_extra: bool = False
    ) -> None:
        """Deprecated: `load_parameters`, which reads what `save_params` wrote, too."""
        warnings.warn("load_params is deprecated. Please use load_parameters.", stacklevel=2)
        self.load_parameters(filename, ctx, allow_missing, ignore_extra)

    def save(self, prefix: Any) -> None:
        """Writes `prefix-model.json`, the tree of blocks with their names and graphs, and `prefix-model.params`."""
        structure_files.save(self, prefix)

    def load(self, prefix: Any) -> None:
        """Takes over names and parameters that `save` wrote for a block made by the same program.

        Blocks that were hybridized then are so again.
        """
        structure_files.load(self, prefix)

    def _graph_entry(self) -> dict[str, Any]:
        """What `save` writes of the block's graph; a plain block has none."""
        return {}

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

        Names come as bytes, as in MXNet. `monitor_all`: for its inputs, too.
        """
        for child in self._children.values():
            child.register_op_hook(callback, monitor_all)

    def summary(self, *inputs: Any) -> None:
        """Prints a table of output shapes and parameter counts per layer, found by running `inputs` through.

        The block must be initialized. A hybridized one runs as Python for it, and as compiled code again afterwards.
        """
        summary.print_summary(self, inputs)


block_attributes.observe(Block)
