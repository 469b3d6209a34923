"""`horovod.mxnet`, for programs that were written for it: the same names, over MPI as in `mx.kv.create('dist_sync')`.

    mpirun -n 2 gluonjit exec train.py        # in which `import horovod.mxnet as hvd` gives this module

Operations run at once, so `priority` has no effect; `name` appears in errors.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit import gluon, kvstore
from gluonjit import optimizer as opt
from gluonjit.base import MXNetError
from gluonjit.distributed.processes import Processes, processes
from gluonjit.gluon.parameter import Parameter, ParameterDict
from gluonjit.ndarray import NDArray

__all__ = [
    "Average",
    "DistributedOptimizer",
    "DistributedTrainer",
    "Sum",
    "allgather",
    "allreduce",
    "allreduce_",
    "broadcast",
    "broadcast_",
    "broadcast_parameters",
    "cross_rank",
    "cross_size",
    "gloo_built",
    "gloo_enabled",
    "grouped_allreduce",
    "grouped_allreduce_",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "shutdown",
    "size",
]

Average, Sum = "average", "sum"
"""What `op=` may be."""

_initialized = False


def init(*args: Any, **kwargs: Any) -> None:
    """Starts MPI, and connects all processes. Arguments, which choose some of them, are refused."""
    global _initialized
    if args or kwargs:
        raise MXNetError("hvd.init() takes no arguments here: all processes of mpirun take part")
    processes("horovod.mxnet")
    _initialized = True


def shutdown() -> None:
    """Processes stay connected until they end."""
    global _initialized
    _initialized = False


def is_initialized() -> bool:
    return _initialized


def _all() -> Processes:
    if not _initialized:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return processes("horovod.mxnet")


def size() -> int:
    """How many processes there are."""
    return _all().size


def rank() -> int:
    """The number of this process."""
    return _all().rank


def local_size() -> int:
    """How many processes there are on this machine."""
    return _all().local_size


def local_rank() -> int:
    """The number of this process among those on its machine."""
    return _all().local_rank


def cross_size() -> int:
    """The number of machines with a process of this `local_rank`."""
    return len(_all().peers)


def cross_rank() -> int:
    """The number of this process among those with the same `local_rank`."""
    return _all().peers.index(rank())


def is_homogeneous() -> bool:
    """Whether all machines have equally many processes."""
    return _all().homogeneous


def mpi_threads_supported() -> bool:
    return True


def mpi_enabled() -> bool:
    return True


def mpi_built() -> bool:
    return True


def gloo_enabled() -> bool:
    return False


def gloo_built() -> bool:
    return False


def nccl_built() -> int:
    return 0


def _factor(average: bool | None, op: Any, prescale_factor: float, postscale_factor: float) -> float:
    """What sums are multiplied by."""
    if op not in (None, Average, Sum):
        raise MXNetError(f"allreduce: op is hvd.Average or hvd.Sum, got {op!r}")
    if op is None:
        op = Sum if average is False else Average
    return prescale_factor * postscale_factor / (size() if op == Average else 1)


def grouped_allreduce_(
    tensors: Sequence[NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Any = None,
) -> Sequence[NDArray]:
    """Replaces arrays by their means over all processes, or sums with `average=False`."""
    for x in tensors:
        if x.stype != "default":
            raise MXNetError(f"allreduce: {name or 'an array'} is {x.stype!r}; kvstore 'dist_sync' sums such gradients")
    factor = _factor(average, op, prescale_factor, postscale_factor)
    everyone = _all()
    items = [(f"{name or 'tensor'}.{k}", x.shape, np.dtype(x.dtype).name) for k, x in enumerate(tensors)]
    everyone.agree("allreduce", items)
    arrays = [x._array for x in tensors]
    everyone.sum(arrays, arrays)
    for x, array in zip(tensors, arrays):
        if factor != 1:
            array[...] = array * factor
        x._wrote()
    return tensors


def allreduce_(tensor: NDArray, average: bool | None = None, *args: Any, **kwargs: Any) -> NDArray:
    """Replaces an array by its mean over all processes, or the sum with `average=False`; see `grouped_allreduce_`."""
    return grouped_allreduce_([tensor], average, *args, **kwargs)[0]


def grouped_allreduce(
    tensors: Sequence[NDArray], average: bool | None = None, *args: Any, **kwargs: Any
) -> Sequence[NDArray]:
    """`grouped_allreduce_` of copies."""
    return grouped_allreduce_([x.copy() for x in tensors], average, *args, **kwargs)


def allreduce(tensor: NDArray, average: bool | None = None, *args: Any, **kwargs: Any) -> NDArray:
    """`allreduce_` of a copy."""
    return allreduce_(tensor.copy(), average, *args, **kwargs)


def allgather(tensor: NDArray, name: str | None = None, priority: int = 0) -> NDArray:
    """The arrays of all processes, joined along the first dimension, in which they may differ."""
    everyone = _all()
    everyone.agree("allgather", [(name or "tensor", tensor.shape[1:], np.dtype(tensor.dtype).name)])
    parts = everyone.gather(tensor._array.tobytes(), "allgather")
    return NDArray(np.frombuffer(b"".join(parts), tensor._array.dtype).reshape(-1, *tensor.shape[1:]).copy())


def broadcast_(tensor: NDArray, root_rank: int, name: str | None = None, priority: int = 0) -> NDArray:
    """Replaces an array by that of rank `root_rank`."""
    _broadcast([(name or "tensor", tensor)], root_rank)
    return tensor


def broadcast(tensor: NDArray, root_rank: int, name: str | None = None, priority: int = 0) -> NDArray:
    """`broadcast_` of a copy."""
    return broadcast_(tensor.copy(), root_rank, name, priority)


def _broadcast(named: Sequence[tuple[str, NDArray]], root: int) -> None:
    everyone = _all()
    if not 0 <= root < everyone.size:
        raise MXNetError(f"broadcast: there are the ranks 0 to {everyone.size - 1}, got root_rank={root}")
    everyone.agree(f"broadcast from {root}", [(name, x.shape, np.dtype(x.dtype).name) for name, x in named])
    everyone.broadcast([x._array for _, x in named], root)
    for _, x in named:
        x._wrote()


def broadcast_parameters(
    params: Mapping[str, NDArray | Parameter] | ParameterDict, root_rank: int = 0, prefix: str | None = None
) -> None:
    """Replaces parameters by those of rank `root_rank`. Those whose shape is not known yet follow as soon as they have
    a value."""
    named: list[tuple[str, NDArray]] = []
    for name, x in sorted(params.items()):
        if isinstance(x, Parameter):
            if x._deferred_init:
                _follow(f"{prefix or ''}{name}", x, root_rank)
                continue
            if x._first is None:
                continue  # as in Horovod: a parameter that is not initialized has nothing to send
            named += [(f"{prefix or ''}{name}", array) for array in x._arrays()]
        else:
            named.append((f"{prefix or ''}{name}", x))
    _broadcast(named, root_rank)


def _follow(name: str, param: Parameter, root: int) -> None:
    """Has `param` broadcast when its postponed initialization has run."""
    finish = param._finish_deferred_init

    def finish_and_broadcast(postponed: bool = True) -> None:
        waits = bool(param._deferred_init)
        finish(postponed)
        if waits and not param._deferred_init:
            del param._finish_deferred_init  # type: ignore[attr-defined]  # the class has its own
            _broadcast([(name, array) for array in param._arrays()], root)

    param._finish_deferred_init = finish_and_broadcast  # type: ignore[method-assign]


class DistributedTrainer(gluon.Trainer):
    """A Trainer that divides by the number of processes, and sums gradients over them."""

    def __init__(
        self,
        params: Any,
        optimizer: str | opt.Optimizer,
        optimizer_params: Mapping[str, Any] | None = None,
        compression: Any = None,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer does not take DistributedOptimizer as its optimizer. We have unwrapped it for you.",
                stacklevel=2,
            )
            inner = object.__new__(optimizer._unwrapped)
            inner.__dict__ = optimizer.__dict__
            inner.rescale_grad *= size()
            optimizer = inner
        if compression is not None:
            raise MXNetError("DistributedTrainer: gradients are sent as they are; leave compression out")
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        self._sums = kvstore.create("horovod")
        self._scale /= size()

    def _allreduce_grads(self) -> None:
        trained = [(k, param) for k, param in enumerate(self._params) if param.grad_req != "null"]
        self._sums.pushpull([k for k, _ in trained], [param.list_grad() for _, param in trained])


class DistributedOptimizer(opt.Optimizer):
    """Another optimizer, which gets the means of gradients over all processes.

    The object is of a class made of this one and the other's.
    """

    def __new__(cls, optimizer: opt.Optimizer, *args: Any, **kwargs: Any) -> Any:
        if isinstance(optimizer, DistributedOptimizer):
            raise MXNetError("the optimizer is a DistributedOptimizer already")
        own = (cls, type(optimizer)) if optimizer._has_rules else (_OwnSteps, cls, type(optimizer))
        made: Any = object.__new__(type(f"Distributed{type(optimizer).__name__}", own, {"_unwrapped": type(optimizer)}))
        made.__dict__ = optimizer.__dict__
        return made

    _unwrapped: type[opt.Optimizer]

    def __init__(self, optimizer: opt.Optimizer, gradient_predivide_factor: float = 1.0, num_groups: int = 0) -> None:
        self.rescale_grad /= size()

    def _updates(self, indices: Any, weights: Any, grads: Any, states: Any) -> Any:
        _sum(indices, grads)
        return super()._updates(indices, weights, grads, states)


class _OwnSteps:
    """Steps of optimizers that users wrote."""

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        several = isinstance(index, (list, tuple))
        _sum(index if several else [index], grad if several else [grad])
        super().update_multi_precision(index, weight, grad, state)  # type: ignore[misc]


def _sum(indices: Sequence[Any], grads: Sequence[NDArray]) -> None:
    grouped_allreduce_(grads, average=False, name=f"gradient {indices[0]}")
