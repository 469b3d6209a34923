"""The registry of backends, from which `net.hybridize(backend=…)` and `optimize_for` select."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.common.aside import aside, imported
from gluonjit.ir.graph import Graph
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.sizes import with_usual_names
from gluonjit.ir.types import IRError
from gluonjit.language import late
from gluonjit.operators import attributes
from gluonjit.runtime.backend import Backend, Callee
from gluonjit.runtime.reference import reference

DEFAULT = "llvm"

_backends: dict[str, Backend] = {}
_options: dict[str, tuple[str, ...] | None] = {}
"""The names of the options that each backend accepts; None: any."""

COMMON: tuple[str, ...] = ("active", "backend", "clear", "static_alloc", "static_shape", "inline_limit")
COMMON += ("forward_bulk_size", "backward_bulk_size", "backend_opts", "remat", "dynamic", "wait", "cache_size")
"""The arguments that `hybridize` accepts for every backend."""


def register_backend(name: str, backend: Backend, options: Collection[str] | None = None) -> None:
    """Makes `net.hybridize(backend=name)` compile with `backend(graph, options)`.

    `graph` is the traced `ir.Graph`, `options` the dict given as `backend_opts`; the result has a method
    `run(inputs, versions)` (`runtime.backend.Callee`). A second registration of a name replaces the first.

    `options`: the names of the options that it accepts, so that `hybridize` refuses others; None: any.

    >>> def traced(graph, options):
    ...     print(graph)
    ...     return gluonjit.runtime.reference.Reference(graph)
    >>> gluonjit.register_backend("show", traced)
    """
    if not callable(backend):
        raise TypeError(f"a backend is a function (graph, options) → object with run(); got {type(backend).__name__}")
    _backends[name] = backend
    _options[name] = None if options is None else tuple(options)


def get_backend(name: str | None) -> Backend:
    """The backend called `name` (None: the default); MXNetError that lists them for an unknown one."""
    if not isinstance(name, str | None):
        raise MXNetError(f"backend is a name, one of {', '.join(sorted(_backends))}; got {type(name).__name__}")
    try:
        return _backends[name or DEFAULT]
    except KeyError:
        import difflib

        near = difflib.get_close_matches(name or DEFAULT, _backends, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise MXNetError(
            f"Backend {name!r} is not registered; {hint}registered are {', '.join(sorted(_backends))}. "
            "gluonjit.register_backend adds one."
        ) from None


def check_options(name: str | None, given: Mapping[str, Any]) -> None:
    """Raises MXNetError, in MXNet's words, for an option that the backend does not accept."""
    known = _options[name or DEFAULT]
    if known is None:
        return
    for key in given:
        if key not in known:
            possible = (*COMMON, *known)
            raise MXNetError(
                f"Cannot find argument '{key}', Possible Arguments: {', '.join(possible)}{did_you_mean(key, possible)}"
            )


FLAGS = {
    "static_alloc": attributes.boolean(False),
    "static_shape": attributes.boolean(False),
    "inline_limit": attributes.integer(2, low=0),
    "forward_bulk_size": attributes.integer(None, low=0),
    "backward_bulk_size": attributes.integer(None, low=0),
}
"""MXNet's flags of hybridized blocks and cached operators, with their defaults."""


def parsed_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `FLAGS`, which may also be strings such as `'True'`; a default stays as it is.

    MXNetError, in MXNet's words, for other values.
    """
    parsed = {}
    for name, value in given.items():
        flag = FLAGS[name]
        try:
            parsed[name] = value if value is flag.default else flag.parse(value)
        except (ValueError, TypeError, OverflowError):
            kind = flag.kind if flag.low is None else f"{flag.kind} (non-negative)"
            raise MXNetError(f"Invalid Parameter format for {name} expect {kind} but value={str(value)!r}") from None
    return parsed


# The compiler is imported on first use: a program that hybridizes nothing does not need it.


class _Llvm:
    def __call__(self, graph: Graph, options: dict[str, Any]) -> Callee:
        imported("gluonjit.runtime.compiler")
        from gluonjit.runtime.compiler import compile_graph

        steps, tune, flush = _parsed(options)
        usual = with_usual_names(graph)  # so that the object cache has it under one name
        try:
            return compile_graph(usual, pipeline=steps, tune=tune, flush_denormals=flush)
        except IRError:
            if usual is graph:
                raise
        return compile_graph(graph, pipeline=steps, tune=tune, flush_denormals=flush)  # the error has the user's names

    def gradient_key(self, graph: Graph, options: dict[str, Any]) -> str | None:
        """See `runtime.backend.Keeping`."""
        imported("gluonjit.runtime.compiler")
        from gluonjit.passes.pipelines import gradient_pipeline
        from gluonjit.runtime.compiler import gradient_key

        steps, tune, _ = _parsed(options)
        return None if tune else gradient_key(with_usual_names(graph), gradient_pipeline(steps))

    def kept(self, key: str, graph: Callable[[], Graph], options: dict[str, Any]) -> Callee | None:
        """See `runtime.backend.Keeping`."""
        from gluonjit.runtime.compiler import kept_code

        steps, _, flush = _parsed(options)
        return kept_code(key, lambda: with_usual_names(graph()), pipeline=steps, flush_denormals=flush)


def _parsed(options: Mapping[str, Any]) -> tuple[str, bool, bool]:
    """The pipeline, and whether kernels are measured and denormals count as zero."""
    from gluonjit.passes.pipelines import pipeline

    tune, flush = (bool(options.get(key, False)) for key in ("tune", "flush_denormals"))
    return pipeline(winograd=bool(options.get("winograd", True))), tune, flush


_llvm = _Llvm()


def get_ready(name: str | None) -> None:
    """Does in advance, once, what the first compiled call of a process takes time for, whatever it computes."""
    global _is_ready
    if get_backend(name) is _llvm and not _is_ready:

        def ready() -> None:
            from gluonjit.runtime.compiler import get_ready

            get_ready()

        aside(ready)
        _is_ready = True


_is_ready = False


def opens_dimensions(backend: Backend) -> bool:
    """Whether the backend compiles graphs with open dimensions. Backends of others get static ones alone."""
    return backend is _llvm


OPTIONS = ("winograd", "tune", "flush_denormals")

register_backend("llvm", _llvm, OPTIONS)
late.compile_graph.provide(_llvm)
register_backend("numpy", reference, OPTIONS)  # which accepts the same options and ignores them
# MXNet's name for its own CPU library: programs that ask for it want the fast backend.
register_backend("MKLDNN", _llvm, OPTIONS)
