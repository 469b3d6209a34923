"""`ParameterDict`: the parameters of a block, or of a whole net, by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gluonjit import context, ndarray
from gluonjit.gluon import parameter_files
from gluonjit.gluon.utils import _indent
from gluonjit.ndarray import array_files
from gluonjit.training import initializers

if TYPE_CHECKING:
    from gluonjit.gluon.parameter import Constant, Parameter


class ParameterDict:
    """Parameters by full name, in the order in which they were created.

    `get` creates them and puts `prefix` in front of the name; `shared` is a dictionary that is searched before.

    >>> params = gluon.ParameterDict("net_")
    >>> params.get("weight", shape=(2, 3))
    Parameter net_weight (shape=(2, 3), dtype=<class 'numpy.float32'>)
    >>> params.initialize()
    >>> params["net_weight"].data().shape
    (2, 3)
    """

    _parameter: ClassVar[type[Parameter]]
    _constant: ClassVar[type[Constant]]
    """The classes that `get` and `get_constant` create; `gluon.parameter`, which defines them, sets both."""

    def __init__(self, prefix: str = "", shared: ParameterDict | None = None) -> None:
        self._prefix = prefix
        self._shared = shared
        self._params: dict[str, Parameter] = {}

    def __repr__(self) -> str:
        name = self._prefix + " " if self._prefix else ""
        content = "\n".join(_indent(f"  {p}", 2) for p in self.values())
        return f"{name}(\n{content}\n)"

    def _repr_html_(self) -> str:
        from gluonjit.gluon.notebook import of_parameters

        return of_parameters(self.values())

    def __getitem__(self, key: str) -> Parameter:
        return self._params[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __contains__(self, key: str) -> bool:
        return key in self._params

    def items(self) -> Any:
        return self._params.items()

    def keys(self) -> Any:
        return self._params.keys()

    def values(self) -> Any:
        return self._params.values()

    @property
    def prefix(self) -> str:
        """What `get` puts in front of a name."""
        return self._prefix

    def _find(self, name: str) -> Parameter | None:
        if name not in self._params and self._shared is not None and name in self._shared:
            self._params[name] = self._shared[name]
        return self._params.get(name)

    def get(self, name: str, **kwargs: Any) -> Parameter:
        """The parameter `prefix + name`, created with `kwargs` (see `Parameter`) if it does not exist.

        AssertionError if an existing one does not agree with `kwargs`. Unknown dimensions of either shape are filled in
        from the other.
        """
        name = self._prefix + name
        param = self._find(name)
        if param is None:
            param = self._params[name] = self._parameter(name, **kwargs)
            param._is_listed = True
            return param
        for key, wanted in kwargs.items():
            stored = getattr(param, key, None)
            if stored is None:
                setattr(param, key, wanted)
                continue
            if key == "shape" and isinstance(wanted, int):
                wanted = (wanted,)
            if key == "shape" and wanted is not None and len(wanted) == len(stored):
                if all(w == s or w <= 0 or s <= 0 for w, s in zip(wanted, stored)):
                    param._shape = tuple(w if w > 0 else s for w, s in zip(wanted, stored))
                    continue
            elif key == "dtype" and np.dtype(wanted) == np.dtype(stored):
                continue
            if wanted is not None and wanted != stored:
                raise AssertionError(
                    f"Cannot retrieve Parameter '{name}' because desired attribute does not match with stored for "
                    f"attribute '{key}': desired '{wanted}' vs stored '{stored}'."
                )
        return param

    def get_constant(self, name: str, value: Any = None) -> Constant:
        """The constant `prefix + name`, created from `value` if it does not exist.

        KeyError if it does not exist and `value` is None; AssertionError if it exists with another value.
        """
        name = self._prefix + name
        param = self._find(name)
        if param is None:
            if value is None:
                raise KeyError(
                    f"No constant named '{name}'. Please specify value if you want to create a new constant."
                )
            param = self._params[name] = self._constant(name, value)
            param._is_listed = True
        elif value is not None:
            if not isinstance(param, self._constant):
                raise AssertionError(f"Parameter '{name}' already exists but it is not a constant.")
            value = value.asnumpy() if isinstance(value, ndarray.NDArray) else np.asarray(value)
            if not np.array_equal(param.value.asnumpy(), value):
                raise AssertionError(f"Constant '{name}' already exists but it's value doesn't match new value")
        return param  # type: ignore[return-value]

    def update(self, other: ParameterDict | dict[str, Parameter]) -> None:
        """Adds the parameters of `other`; AssertionError if a different one of the same name exists."""
        for name, param in other.items():
            if self._params.get(name, param) is not param:
                raise AssertionError(
                    f"Cannot update self with other because they have different Parameters with the same name '{name}'"
                )
            param._is_listed = True
        self._params.update(other.items())

    def initialize(
        self,
        init: Any = initializers.Uniform(),  # noqa: B008 (immutable, and the signature is MXNet's)
        ctx: Any = None,
        verbose: bool = False,
        force_reinit: bool = False,
    ) -> None:
        """Initializes every parameter; `init` is for those that have no initializer of their own."""
        if verbose:
            init = initializers.create(init).set_verbosity(verbose=verbose)
        for param in self.values():
            param.initialize(None, ctx, init, force_reinit=force_reinit)

    def save(self, filename: Any, strip_prefix: str = "") -> None:
        """Writes the values by name, without `strip_prefix`; ValueError for a name that does not begin with it."""
        parameter_files.save_dict(self, filename, strip_prefix)

    def load(
        self,
        filename: Any,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Loads a file that `save` or `export` wrote; `restore_prefix` is put in front of its names.

        Raises and converts as `Block.load_parameters` does, except for an AssertionError for extra names.
        """
        parameter_files.check_prefix(self, restore_prefix)
        loaded = array_files.borrow(filename)
        self.load_dict(loaded, ctx, allow_missing, ignore_extra, restore_prefix, filename, cast_dtype, dtype_source)

    def load_dict(
        self,
        param_dict: Any,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        filename: Any = None,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Loads the values of a dict, whose names may begin with `arg:` or `aux:`; see `load`.

        `filename` is the source of the values that error messages quote.
        """
        source = f"file: {os.fspath(filename)}" if filename else "param_dict"
        parameter_files.load_dict(
            self, param_dict, source, ctx, allow_missing, ignore_extra, restore_prefix, cast_dtype, dtype_source
        )

    def zero_grad(self) -> None:
        """Sets every gradient buffer to zero."""
        for param in self.values():
            param.zero_grad()

    def reset_ctx(self, ctx: Any) -> None:
        """Moves the parameters to other contexts; see `Parameter.reset_ctx`."""
        for param in self.values():
            param.reset_ctx(ctx)

    def list_ctx(self) -> list[context.Context]:
        """Every context that some parameter was initialized on."""
        return _unique(c for param in self.values() for c in param.list_ctx())

    def setattr(self, name: str, value: Any) -> None:
        """Sets an attribute of every parameter: `setattr('grad_req', 'null')` freezes them."""
        for param in self.values():
            setattr(param, name, value)


def _unique(items: Iterable[context.Context]) -> list[context.Context]:
    return list(dict.fromkeys(items))
