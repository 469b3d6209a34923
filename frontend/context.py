"""Devices: `mx.cpu()`, `mx.gpu()`, `with mx.cpu(1):`.

All memory is the host's. Several CPU "devices" are names that MXNet programs give to replicas of their data, so an
array remembers which one it was put on; a GPU can be named, and asking for memory on it raises MXNetError.
"""

from __future__ import annotations

import re
import threading
from typing import Any, ClassVar

from gluonjit.base import MXNetError
from gluonjit.common.aside import imported

_meant: dict[str, str] = {}
"""Types of devices in whose place others are used."""


def use_cpus_for_gpus() -> None:
    """From now on `gpu(k)` is `cpu(k)`: for programs that name GPUs."""
    _meant["gpu"] = "cpu"


class _Devices(type):
    """Gives `Context.default_ctx`, which programs read and set."""

    @property
    def default_ctx(cls) -> Context:
        """This thread's context, as `current_context()` says."""
        return _current.context

    @default_ctx.setter
    def default_ctx(cls, context: Context) -> None:
        _current.context = context


class Context(metaclass=_Devices):
    """A device: type (`'cpu'`, `'gpu'`, `'cpu_pinned'`, `'cpu_shared'`) and number. In a `with`, it is the default.

    >>> with mx.Context("cpu", 0):
    ...     mx.nd.ones((1,)).context
    cpu(0)
    """

    devtype2str: ClassVar = {1: "cpu", 2: "gpu", 3: "cpu_pinned", 5: "cpu_shared"}
    devstr2type: ClassVar = {name: number for number, name in devtype2str.items()}

    def __init__(self, device_type: str | Context, device_id: int = 0) -> None:
        if isinstance(device_type, Context):
            self.device_typeid: int = device_type.device_typeid
            self.device_id: int = device_type.device_id
        else:
            self.device_typeid = Context.devstr2type[_meant.get(device_type, device_type)]
            self.device_id = device_id

    @property
    def device_type(self) -> str:
        return Context.devtype2str[self.device_typeid]

    def __hash__(self) -> int:
        return hash((self.device_typeid, self.device_id))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Context)
            and self.device_typeid == other.device_typeid
            and self.device_id == other.device_id
        )

    def __repr__(self) -> str:
        return f"{self.device_type}({self.device_id})"

    def __enter__(self) -> Context:
        _current.outer.append(_current.context)
        _current.context = self
        return self

    def __exit__(self, *exception: Any) -> None:
        _current.context = _current.outer.pop()

    def empty_cache(self) -> None:
        """Gives memory back that is kept for the next large arrays."""
        imported("gluonjit.runtime.kept_blocks").release()


class _Current(threading.local):
    """This thread's context, and those around it, outermost first."""

    def __init__(self) -> None:
        self.context = Context("cpu", 0)
        self.outer: list[Context] = []


_current = _Current()


def cpu(device_id: int = 0) -> Context:
    """The CPU. Its number makes no difference but to what arrays report.

    >>> mx.nd.zeros(2, ctx=mx.cpu()).context
    cpu(0)
    """
    return Context("cpu", device_id)


def cpu_pinned(device_id: int = 0) -> Context:
    """Memory that a GPU could copy from; here the same as the CPU's.

    >>> mx.nd.zeros(2, ctx=mx.cpu_pinned()).context
    cpu_pinned(0)
    """
    return Context("cpu_pinned", device_id)


def cpu_shared(device_id: int = 0) -> Context:
    """Memory that processes share; here the same as the CPU's."""
    return Context("cpu_shared", device_id)


def gpu(device_id: int = 0) -> Context:
    """A GPU: programs may name one, but arrays cannot be placed there (MXNetError).

    >>> mx.gpu(1)
    gpu(1)
    """
    return Context("gpu", device_id)


def current_context() -> Context:
    """The innermost `with` context of this thread; cpu(0) outside any.

    >>> with mx.cpu(1):
    ...     mx.current_context()
    cpu(1)
    """
    return _current.context


def num_gpus() -> int:
    """Always 0.

    >>> mx.context.num_gpus()
    0
    """
    return 0


def gpu_memory_info(device_id: int = 0) -> tuple[int, int]:
    """Always raises MXNetError: there is no GPU.

    >>> try:
    ...     mx.context.gpu_memory_info()
    ... except mx.MXNetError as error:
    ...     print(error)
    gpu(0) has no memory to tell about: gluonjit compiles for the CPU only
    """
    raise MXNetError(f"gpu({device_id}) has no memory to tell about: gluonjit compiles for the CPU only")


def get_cuda_compute_capability(ctx: Context) -> int:
    """Always raises: ValueError for a device that is not a GPU, MXNetError for a GPU, as there are none.

    >>> try:
    ...     mx.context.get_cuda_compute_capability(mx.gpu())
    ... except mx.MXNetError as error:
    ...     print(error)
    gpu(0) has no compute capability: gluonjit compiles for the CPU only
    """
    if ctx.device_type != "gpu":
        raise ValueError(f"Expecting a gpu context to get cuda compute capability, while received ctx {ctx}")
    raise MXNetError(f"{ctx} has no compute capability: gluonjit compiles for the CPU only")


def placed(ctx: Context | str | None) -> Context | None:
    """Where memory asked for on `ctx` (None: the current context) lives: None for cpu(0), which need not be noted.

    Accepts the string form that MXNet's operators take (`'cpu(1)'`). Raises MXNetError for a GPU.
    """
    if ctx is None:
        ctx = _current.context
    elif isinstance(ctx, str):
        match = re.fullmatch(r"\s*(\w+)\((\d+)\)\s*", ctx)
        if match is None or match[1] not in Context.devstr2type:
            raise MXNetError(f"Invalid context string {ctx}")
        ctx = Context(match[1], int(match[2]))
    elif not isinstance(ctx, Context):
        raise TypeError(f"a context is made by mx.cpu() or mx.gpu(), not {ctx!r} of type {type(ctx)}")
    if ctx.device_typeid == 1 and ctx.device_id == 0:
        return None
    if ctx.device_typeid == 2:
        raise MXNetError(
            f"{ctx} is not available: GPU is not enabled; gluonjit compiles for the CPU, use mx.cpu(), or run the "
            "program with gluonjit exec --gpus-are-cpus"
        )
    return ctx
