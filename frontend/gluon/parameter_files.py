"""Saving and loading the parameters of blocks as `.params` files: `save_parameters`, `load_parameters`."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gluonjit import context, ndarray
from gluonjit.base import dtype_name
from gluonjit.files.origin import origin_of
from gluonjit.ndarray import NDArray, sparse_arrays
from gluonjit.ndarray.array_files import borrow

if TYPE_CHECKING:
    from gluonjit.gluon.parameter import Parameter, ParameterDict

NAMING = "https://mxnet.io/api/python/docs/tutorials/packages/gluon/blocks/naming.html"


class Owner(Protocol):
    """The owner of parameters, a block."""

    @property
    def prefix(self) -> str: ...

    @property
    def params(self) -> Any:
        """Its own parameters, by name."""

    def collect_params(self) -> Any:
        """All of them, by name."""

    def _collect_params_with_prefix(self) -> dict[str, Any]:
        """All of them, by structured name."""


def save_parameters(params: Mapping[str, Parameter], filename: str | os.PathLike[str], deduplicate: bool) -> None:
    """Writes parameters by structured name; shared ones under every name, unless `deduplicate`."""
    if deduplicate:  # as in MXNet: each under the last of its names, in the order of their first names
        last_name = {param: name for name, param in params.items()}
        params = {name: param for param, name in last_name.items()}
    ndarray.save(filename, {name: param._reduce() for name, param in params.items()})


def load_parameters(
    block: Owner,
    filename: str | os.PathLike[str],
    ctx: Any = None,
    allow_missing: bool = False,
    ignore_extra: bool = False,
    cast_dtype: bool = False,
    dtype_source: str = "current",
) -> None:
    """Sets the block's parameters to the values in a file that `save_parameters` wrote.

    As in MXNet, raises AssertionError for a parameter that the file lacks (unless `allow_missing`) or whose shape or
    type differs, and ValueError for an array that the block lacks (unless `ignore_extra`). With `cast_dtype`, different
    types are converted: to the parameter's (`dtype_source` 'current') or to the file's ('saved').
    """
    loaded = borrow(filename) or {}
    params = block._collect_params_with_prefix()
    if not loaded and not params:
        return
    if not isinstance(loaded, dict):
        raise ValueError(f"{os.fspath(filename)} holds arrays without names, so it does not say for which parameters")
    if not any("." in name for name in loaded) and set(loaded) != set(params):
        # A file of 0.x: names are those of parameters, without the block's prefix.
        exported = any(name.startswith(("arg:", "aux:")) for name in loaded)
        load_dict(
            block.collect_params(),
            loaded,
            f"file: {os.fspath(filename)}",
            ctx,
            allow_missing,
            ignore_extra,
            block.prefix,
            cast_dtype,
            dtype_source,
            _EXPORTED if exported else "",
        )
        return
    if not allow_missing:
        names = defaultdict(list)
        for name, param in params.items():
            names[param].append(name)
        for name, param in params.items():
            if not any(other in loaded for other in names[param]):
                raise AssertionError(
                    f"Parameter '{name}' is missing in file '{os.fspath(filename)}', which contains parameters: "
                    f"{_brief(loaded)}. Set allow_missing=True to ignore missing parameters."
                )
    pairs = []
    for name, data in loaded.items():
        if name in params:
            pairs.append((params[name], data))
        elif not ignore_extra:
            raise ValueError(
                f"Parameter '{name}' loaded from file '{os.fspath(filename)}' is not present in ParameterDict, "
                f"which contains parameters {_brief(params)}. Set ignore_extra=True to ignore. "
            )
    assign_all(pairs, ctx, cast_dtype, dtype_source)


_EXPORTED = (
    ". `export` or a Module wrote it: SymbolBlock.imports reads such a file together with its -symbol.json, and "
    "net.collect_params().load(file) into a net of the same prefix"
)


def save_dict(params: ParameterDict, filename: str | os.PathLike[str], strip_prefix: str) -> None:
    """Writes the values by name without `strip_prefix`; ValueError for a name that does not begin with it."""
    for name in params:
        if not name.startswith(strip_prefix):
            raise ValueError(
                f"Prefix '{strip_prefix}' is to be striped before saving, but Parameter's name '{name}' does not start "
                f"with '{strip_prefix}'. this may be due to your Block shares parameters from other Blocks or you "
                "forgot to use 'with name_scope()' when creating child blocks. For more info on naming, please see "
                f"{NAMING}"
            )
    ndarray.save(filename, {name[len(strip_prefix) :]: param._reduce() for name, param in params.items()})


def check_prefix(params: ParameterDict, restore_prefix: str) -> None:
    """AssertionError unless every name begins with the prefix."""
    for name in params:
        if not name.startswith(restore_prefix):
            raise AssertionError(
                f"restore_prefix is '{restore_prefix}' but Parameters name '{name}' does not start with "
                f"'{restore_prefix}'. For more info on naming, please see {NAMING}"
            )


def load_dict(
    params: ParameterDict,
    loaded: Any,
    source: str,
    ctx: Any = None,
    allow_missing: bool = False,
    ignore_extra: bool = False,
    restore_prefix: str = "",
    cast_dtype: bool = False,
    dtype_source: str = "current",
    advice: str = "",
) -> None:
    """Sets `params` to the values in `loaded`, whose names lack `restore_prefix` and may begin with arg: or aux:.

    Messages quote `source` as the origin of the values, and end with `advice`. AssertionErrors as in `load_parameters`.
    """
    check_prefix(params, restore_prefix)
    loaded = loaded or {}  # an empty file gives a list
    if not isinstance(loaded, Mapping):
        raise ValueError(f"{source} holds arrays without names, so it does not say for which parameters")
    arrays = {restore_prefix + (k[4:] if k.startswith(("arg:", "aux:")) else k): v for k, v in loaded.items()}
    hint = (
        f"Please make sure source and target networks have the same prefix.For more info on naming, please see {NAMING}"
    )
    hint += advice
    for name in params if not allow_missing else ():
        if name not in arrays:
            raise AssertionError(
                f"Parameter '{name[len(restore_prefix) :]}' is missing in {source}, which contains parameters: "
                f"{_brief(arrays)}. {hint}"
            )
    pairs = []
    for name, data in arrays.items():
        if name in params:
            pairs.append((params[name], data))
        elif not ignore_extra:
            raise AssertionError(
                f"Parameter '{name[len(restore_prefix) :]}' loaded from {source} is not present in ParameterDict, "
                f"choices are: {_brief(params)}. Set ignore_extra to True to ignore. {hint}"
            )
    assign_all(pairs, ctx, cast_dtype, dtype_source)


def check(param: Parameter, data: NDArray, ctx: Any, cast_dtype: bool, dtype_source: str) -> None:
    """AssertionError if `data` cannot be assigned to `param`, because of its shape or type, or because of `ctx`."""
    failed = f"Failed loading Parameter '{param.name}' from saved params: "
    if param.shape:
        if len(param.shape) != len(data.shape) or any(n not in (0, -1, m) for n, m in zip(param.shape, data.shape)):
            raise AssertionError(f"{failed}shape incompatible expected {param.shape} vs saved {data.shape}")
    if cast_dtype and dtype_source not in ("current", "saved"):
        raise AssertionError(f"dtype_source is 'current' or 'saved', not {dtype_source!r}")
    if param.dtype is not None and dtype_name(param.dtype) != data._array.dtype.name and not cast_dtype:
        raise AssertionError(
            f"{failed}dtype incompatible expected {param.dtype} vs saved {data.dtype}. "
            "Set cast_dtype=True to cast the dtype of saved params."
        )
    contexts = [ctx] if isinstance(ctx, context.Context) else ctx
    if param._first is not None or param._deferred_init:
        if contexts is not None and set(contexts) != set(param.list_ctx()):
            raise AssertionError(
                f"Failed to load Parameter '{param.name}' on {contexts} because it was previous initialized on "
                f"{param.list_ctx()}."
            )


def assign_all(pairs: Sequence[tuple[Parameter, NDArray]], ctx: Any, cast_dtype: bool, dtype_source: str) -> None:
    """Sets each parameter, initialized or not, to a copy of its array. AssertionError, with none of them changed, if
    the shape or type of one does not fit.

    Initialized parameters are overwritten in place.
    """
    for param, data in pairs:
        check(param, data, ctx, cast_dtype, dtype_source)
    for param, data in pairs:
        _assign(param, data, ctx, dtype_source)


def _assign(param: Parameter, data: NDArray, ctx: Any, dtype_source: str) -> None:
    own = False
    origin = origin_of(data._array)
    param.shape = tuple(data.shape)
    if param.dtype is not None and dtype_name(param.dtype) != data._array.dtype.name:
        if dtype_source == "current":
            data, own, origin = data.astype(param.dtype), True, None
        else:
            param.dtype = data.dtype
    if param._first is not None:
        param.set_data(data)
    else:
        contexts = [ctx] if isinstance(ctx, context.Context) else ctx
        contexts = param.list_ctx() if param._deferred_init else contexts
        param._deferred_init = ()
        data = data if own else data.copy()
        if param._stype == "row_sparse":
            data, origin = sparse_arrays.with_all_rows(data._array, data._device), None
        param._place(data, contexts or [context.cpu()])
    if origin is not None:
        param._set_origin(origin)


def _brief(names: Iterable[str], limit: int = 7) -> str:
    """The names in quotes; if there are more than `limit`, the first and the last ones."""
    quoted = [f"'{name}'" for name in names]
    if len(quoted) > limit:
        quoted = [*quoted[: limit // 2], "...", *quoted[-limit // 2 :]]
    return ", ".join(quoted)
