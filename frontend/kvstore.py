"""`mx.kv`: values by key, summed over devices, and over the processes that `mpirun` has started.

The devices share one memory, so a push adds arrays and a pull copies. There are no servers: each process holds all
values, and each takes the optimizer's step with the same sums.
"""

from __future__ import annotations

import math
import os
import sys as _sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.files import atomic, state_files
from gluonjit.ir.opdef import did_you_mean
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.language.interrupts import Uninterrupted
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.sparse_arrays import RowSparseNDArray, sum_rows
from gluonjit.ndarray.sparse_functions import retain
from gluonjit.optimizer import Optimizer, Updater, get_updater

__all__ = ["KVStore", "KVStoreBase", "create"]

_DISTRIBUTED = ("dist", "dist_sync", "dist_device_sync", "dist_sync_device")
_LOCAL = ("local", "device", "nccl", "local_update_cpu", "local_allreduce_cpu", "local_allreduce_device")


class KVStoreBase:
    """The base of stores that programs define for `Trainer`: they have `broadcast`, `pushpull`, `is_capable`, `type`,
    `rank` and `num_workers`, and `create` makes those that were registered.

    >>> @mx.kvstore.KVStoreBase.register
    ... class MyStore(mx.kvstore.KVStoreBase):
    ...     type = "mystore"
    >>> mx.kv.create("mystore").type
    'mystore'
    """

    OPTIMIZER = "optimizer"
    kv_registry: ClassVar[dict[str, type]] = {}

    @staticmethod
    def register(klass: type) -> type:
        """A decorator: `create` makes the class, by its name in small letters."""
        name = klass.__name__.lower()
        if name in KVStoreBase.kv_registry:
            warnings.warn(f"New kvstore {klass} is overriding {KVStoreBase.kv_registry[name]}", stacklevel=2)
        KVStoreBase.kv_registry[name] = klass
        return klass


class KVStore(KVStoreBase):
    """A dictionary of arrays.

    A key is an int or a string. Methods that take a key and a value also take a list of keys and a list of values. A
    value may itself be a list, one array per device, which is summed.
    """

    def __init__(self, type_: str = "local") -> None:
        self._type = type_
        self._stored: dict[Any, NDArray] = {}
        self._sums: dict[Any, NDArray] = {}
        """Where values of several devices are added up, by key: the same arrays at each step."""
        self._updater: Callable[[Any, Any, Any], None] | None = None

    @property
    def type(self) -> str:
        return self._type

    @property
    def rank(self) -> int:
        return 0

    @property
    def num_workers(self) -> int:
        return 1

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether updates can run in the store: `'optimizer'`."""
        if capability.lower() != "optimizer":
            raise MXNetError(f"Unknown capability: {capability}")
        return True

    def init(self, key: Any, value: Any) -> None:
        """Stores copies of the first values. A key is initialized once, and all are numbers or all words."""
        for k, v in self._checked(key, value):
            if k in self._stored:
                raise MXNetError(f"duplicate init of key {k}")
            self._stored[k] = (v[0] if isinstance(v, (list, tuple)) else v).copy()

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Sums the values of each key; it replaces the stored value, or goes to the updater if there is one."""
        with Uninterrupted():
            pairs = self._over_processes([(k, self._get(k), self._sum(k, v)) for k, v in self._grouped(key, value)])
            if self._updater is None:
                for k, stored, new in pairs:
                    if stored.stype == new.stype:
                        stored[:] = new
                    else:
                        self._stored[k] = new.copy()
            elif isinstance(self._updater, Updater):
                if pairs:
                    keys, weights, grads = (list(part) for part in zip(*pairs))
                    self._updater(keys, grads, weights)
            else:
                for k, stored, new in pairs:
                    self._updater(k, new, stored)

    def _over_processes(self, pairs: list[tuple[Any, NDArray, NDArray]]) -> list[tuple[Any, NDArray, NDArray]]:
        """(key, stored, what is pushed), the last of which is summed over processes."""
        return pairs

    def any(self, flag: bool) -> bool:
        """Whether `flag` is set in any process. Not in MXNet."""
        return flag

    def _checked(self, key: Any, value: Any) -> list[tuple[Any, Any]]:
        """(key, value) for each. AssertionError or MXNetError, as in MXNet, if numbers and words are mixed."""
        pairs = _pairs(key, value)
        kinds = {isinstance(k, str) for k, _ in pairs}
        if len(kinds) == 2:
            raise AssertionError("inconsistent types of keys detected.")
        if pairs and self._stored and kinds != {isinstance(next(iter(self._stored)), str)}:
            raise MXNetError("Mixed key types are not allowed")
        return pairs

    def _grouped(self, key: Any, value: Any) -> list[tuple[Any, list[Any]]]:
        """(key, its values) for each key once: a key given twice has the values of both places."""
        found: dict[Any, list[Any]] = {}
        for k, v in self._checked(key, value):
            found.setdefault(k, []).extend(v if isinstance(v, (list, tuple)) else [v])
        return list(found.items())

    def _sum(self, key: Any, values: Sequence[NDArray]) -> NDArray:
        first, *others = values
        if not others:
            return first
        total = self._sums.get(key)
        if total is None or total.shape != first.shape or total.dtype != first.dtype:
            total = self._sums[key] = first.copy()
        else:
            total[:] = first
        for other in others:
            total += other
        return total

    def pull(self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Copies stored values into `out`, except into row_sparse arrays if `ignore_sparse`: see `row_sparse_pull`."""
        if out is None:
            raise AssertionError("pull needs out=")
        for k, targets in self._grouped(key, out):
            stored = self._get(k)
            for target in targets:
                if ignore_sparse and target.stype != "default":
                    continue
                if target.shape != stored.shape:
                    raise MXNetError(
                        f"pull of key {k}: operands shape mismatch from.shape = {list(stored.shape)} "
                        f"to.shape={list(target.shape)}"
                    )
                target[:] = stored

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, then `pull` into `out`, or into the values themselves."""
        with Uninterrupted():
            self.push(key, value, priority)
            self.pull(key, value if out is None else out, priority, ignore_sparse=out is not None)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> None:
        """Copies the stored rows that `row_ids` lists into row_sparse arrays, which then hold no others.

        `row_ids` has one array for all arrays of `out`, or is a list like `out`, with one for each of them.
        """
        if out is None or row_ids is None:
            raise AssertionError("row_sparse_pull needs out= and row_ids=")
        row_ids = [row_ids] if isinstance(row_ids, NDArray) else row_ids
        alike = len(row_ids) == 1 and isinstance(out, (list, tuple))
        targets, wanted = _each(key, out[:1] if alike else out), _each(key, row_ids)
        if len(targets) != len(wanted):
            raise AssertionError(
                f"the number of row_ids doesn't match the number of values: {len(wanted)} and {len(targets)}"
            )
        for (k, target), (_, ids) in zip(targets, wanted):
            stored = self._get(k)
            if not isinstance(stored, RowSparseNDArray):
                raise MXNetError(f"row_sparse_pull: the value of key {k} is stored as {stored.stype!r}; use pull")
            if not isinstance(target, RowSparseNDArray):
                raise MXNetError(f"row_sparse_pull: out= is {target.stype!r}; it must be row_sparse")
            retain(stored, ids.reshape(-1)).copyto(target)
        for target in out[1:] if alike else ():
            out[0].copyto(target)

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """From now on pushed values are gradients for `optimizer`."""
        self._updater = get_updater(optimizer)

    def _set_updater(self, updater: Callable[[Any, NDArray, NDArray], None]) -> None:
        """`updater(key, pushed, stored)` changes `stored` in place."""
        self._updater = updater

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        """Compresses what is sent to other machines, of which there are none."""
        if compression_params.get("type") not in ("2bit", "1bit", "none"):
            raise MXNetError(f"Unknown type for gradient compression {compression_params.get('type')}")

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        atomic.write(fname, [self._optimizer_states().get_states(dump_optimizer)])

    def load_optimizer_states(self, fname: str) -> None:
        """Loads what `save_optimizer_states` wrote, here or in MXNet. Nothing in the file is executed."""
        updater = self._optimizer_states()
        states = state_files.contents(fname)
        if isinstance(updater, Updater):
            updater.set_states(states, os.fspath(fname))
        else:
            updater.set_states(states)

    def _optimizer_states(self) -> Any:
        if not hasattr(self._updater, "get_states"):
            raise AssertionError("Cannot save or load states: no optimizer has been set")
        return self._updater

    def _barrier(self) -> None:
        """Waits for the other workers, of which there are none."""

    def _get(self, key: Any) -> NDArray:
        if key not in self._stored:
            raise MXNetError(f"key {key} has not been inited")
        return self._stored[key]


class DistributedStore(KVStore):
    """A store of all processes, which must make the same calls in the same order; see `distributed.processes`."""

    def __init__(self, type_: str) -> None:
        from gluonjit.distributed.early_sums import EarlySums
        from gluonjit.distributed.processes import processes

        super().__init__(type_)
        self._processes = processes(f"kvstore {type_!r}")
        self._over: dict[Any, NDArray] = {}
        """Sums over processes, by key."""
        self._early = EarlySums(self._processes)

    @property
    def rank(self) -> int:
        """The number of this process."""
        return self._processes.rank

    @property
    def num_workers(self) -> int:
        """How many processes there are."""
        return self._processes.size

    @property
    def local_rank(self) -> int:
        """The number of this process among those on its machine."""
        return self._processes.local_rank

    def init(self, key: Any, value: Any) -> None:
        """Stores the first values, those of rank 0 in all processes. A key is initialized once."""
        pairs = [(k, v[0] if isinstance(v, (list, tuple)) else v) for k, v in _pairs(key, value)]
        self._processes.agree("init", [_described(k, v) for k, v in pairs])
        super().init(key, value)
        stored = [self._stored[k] for k, _ in pairs]
        self._processes.broadcast([x._array for x in stored if x.stype == "default"])
        for x in stored:
            x._wrote()
            if isinstance(x, RowSparseNDArray):
                indices, values = self._gathered_rows(x)[0]
                x._become(x._with(values, [indices]))

    def _over_processes(self, pairs: list[tuple[Any, NDArray, NDArray]]) -> list[tuple[Any, NDArray, NDArray]]:
        dense = [(k, x) for k, _, x in pairs if not isinstance(x, RowSparseNDArray)]
        gradients = [x for _, x in dense]
        items = [_described(k, x) for k, _, x in pairs]
        begun, flags = self._early.prepare(gradients)
        flags = self._processes.agree("push", items + self._settings() + begun, flags)
        sums: dict[Any, NDArray] = {}
        for k, x in dense:
            total = self._over.get(k)
            if total is None or total.shape != x.shape or total.dtype != x.dtype:
                total = self._over[k] = x.copy()
            sums[k] = total
        if dense:
            self._early.sum(items, gradients, [sums[k]._array for k, _ in dense], flags)
        for total in sums.values():
            total._wrote()
        for k, _, x in pairs:
            if isinstance(x, RowSparseNDArray):
                indices, values = (np.concatenate(parts) for parts in zip(*self._gathered_rows(x)))
                indices, values = sum_rows(indices, values)
                sums[k] = x._with(values, [indices])
        return [(k, stored, sums[k]) for k, stored, _ in pairs]

    def _gathered_rows(self, x: RowSparseNDArray) -> list[tuple[np.ndarray, np.ndarray]]:
        """The indices and rows that each rank has of an array."""
        indices, values = np.ascontiguousarray(x._aux[0], np.int64), np.ascontiguousarray(x._values)
        every = zip(self._processes.gather(indices.tobytes()), self._processes.gather(values.tobytes()))
        row = x.shape[1:]
        return [(np.frombuffer(i, np.int64), np.frombuffer(v, values.dtype).reshape(-1, *row)) for i, v in every]

    def _settings(self) -> list[tuple[Any, ...]]:
        """What steps depend on and ranks could set differently."""
        optimizer = getattr(self._updater, "optimizer", None)
        if not isinstance(optimizer, Optimizer):
            return []
        return [("learning rate", optimizer.learning_rate), ("factor of gradients", optimizer.rescale_grad)]

    def any(self, flag: bool) -> bool:
        self._processes.agree("a search for overflows", [])
        return any(x != b"\0" for x in self._processes.gather(bytes([flag])))

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """From now on pushed values are gradients for `optimizer`, which must be the same in all processes."""
        self._processes.agree("set_optimizer", [("optimizer", type(optimizer).__name__)])
        super().set_optimizer(optimizer)

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        """Refused, except for the type 'none'."""
        super().set_gradient_compression(compression_params)
        if compression_params["type"] != "none":
            raise MXNetError(
                f"gradient compression {compression_params['type']!r}: kvstore {self._type!r} sends gradients as they "
                "are; leave compression_params out"
            )

    def _barrier(self) -> None:
        """Waits until all processes are here."""
        self._processes.agree("barrier", [])


def _described(key: Any, x: NDArray) -> tuple[Any, ...]:
    return key, x.shape, np.dtype(x.dtype).name, *(() if x.stype == "default" else (x.stype,))


class HorovodStore(DistributedStore):
    """`create('horovod')`: sums and broadcasts alone, of keys that need not be initialized."""

    @staticmethod
    def is_capable(capability: str) -> bool:
        return False

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Has no effect: nothing is updated here."""

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Copies the values of rank 0 into `out`."""
        for k, _ in _pairs(key, value):
            self._stored.pop(k, None)
        super().broadcast(key, value, out, priority)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sums values over processes into `out`, or into the values themselves."""
        for k, v in _pairs(key, value):
            self._stored.setdefault(k, (v[0] if isinstance(v, (list, tuple)) else v).copy())
        super().pushpull(key, value, out, priority)


def _each(key: Any, values: Any) -> list[tuple[Any, Any]]:
    """(key, array) for each array of the values, which may be lists."""
    found = []
    for k, value in _pairs(key, values):
        found += [(k, x) for x in (value if isinstance(value, (list, tuple)) else [value])]
    return found


def _pairs(key: Any, value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(key, (list, tuple)):
        return [(key, value)]
    if len(key) != len(value):
        raise AssertionError(f"{len(key)} keys, but {len(value)} values")
    return list(zip(key, value))


def create(name: str = "local") -> Any:
    """The store called `name`: `'local'`, `'device'` or `'nccl'` for one process, `'dist_sync'`, `'dist_device_sync'`
    or `'horovod'` for all those that `mpirun` has started. MPI is started by the first of the latter."""
    if not isinstance(name, str):
        raise TypeError("name must be a string")
    type_ = name.lower()
    if type_ in KVStoreBase.kv_registry:
        return KVStoreBase.kv_registry[type_]()
    if type_ in _DISTRIBUTED:
        return DistributedStore(type_)
    if type_ == "horovod":
        return HorovodStore(type_)
    if type_.startswith("dist") and "async" in type_:
        raise MXNetError(f"kvstore {name!r}: workers always wait for each other here; use 'dist_sync'")
    if type_ == "byteps":
        raise MXNetError("kvstore 'byteps' is missing; use 'dist_sync', which sends messages with MPI")
    if type_ not in _LOCAL:
        raise MXNetError(f"Unknown KVStore type {name!r}{did_you_mean(type_, (*_LOCAL, *_DISTRIBUTED))}")
    return KVStore(type_)


_LARGE = 16 << 20
"""Elements of an array with which a store of the type 'local' should not update."""


def for_training(kvstore: Any, devices: int, arrays: Sequence[Any]) -> tuple[Any, bool]:
    """(the store or None if none is needed, whether it updates by default) for a KVStore, its type or None.

    `arrays` have shapes.
    """
    if kvstore is None:
        return None, False
    on_store = bool(int(os.environ.get("MXNET_UPDATE_ON_KVSTORE", "1")))
    if not isinstance(kvstore, str):
        if not hasattr(kvstore, "pushpull"):
            raise TypeError("kvstore must be KVStore, str or None")
        return kvstore, on_store
    if devices == 1 and "dist" not in kvstore:
        return None, False
    if kvstore == "local" and any(math.prod(x.shape or ()) > _LARGE for x in arrays):
        on_store = False
    return create(kvstore), on_store


base = kvstore = _sys.modules[__name__]
"""MXNet's files, which programs import."""

_mxnet_names.explain(__name__)
