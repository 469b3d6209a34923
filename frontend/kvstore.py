"""`mx.kv`: values by key, summed over devices. One process and one memory, so a push adds arrays and a pull copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.ir.opdef import did_you_mean
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.ndarray import NDArray
from gluonjit.optimizer import Optimizer, get_updater

__all__ = ["KVStore", "create"]

_LOCAL = ("local", "device", "nccl", "local_update_cpu", "local_allreduce_cpu", "local_allreduce_device")


class KVStore:
    """A dictionary of arrays.

    A key is an int or a string. Methods that take a key and a value also take a list of keys and a list of values. A
    value may itself be a list, one array per device, which is summed.
    """

    def __init__(self, type_: str = "local") -> None:
        self._type = type_
        self._stored: dict[Any, NDArray] = {}
        self._updater: Callable[[Any, NDArray, NDArray], None] | None = None

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
        """Stores copies of the first values. A key is initialized once."""
        for k, v in _pairs(key, value):
            if k in self._stored:
                raise MXNetError(f"duplicate init of key {k}")
            self._stored[k] = _sum(v)

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Sums the values of each key; it replaces the stored value, or goes to the updater if there is one."""
        for k, v in _pairs(key, value):
            stored, new = self._get(k), _sum(v)
            if self._updater is None:
                stored[:] = new
            else:
                self._updater(k, new, stored)

    def pull(self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Copies stored values into `out`."""
        if out is None:
            raise AssertionError("pull needs out=")
        for k, targets in _pairs(key, out):
            for target in targets if isinstance(targets, (list, tuple)) else [targets]:
                target[:] = self._get(k)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, then `pull` into `out`, or into the values themselves."""
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> None:
        raise MXNetError("row_sparse_pull: arrays are dense; use pull")

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
        with open(fname, "wb") as file:
            file.write(self._optimizer_states().get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str) -> None:
        """Only for files that are trusted: they are unpickled."""
        with open(fname, "rb") as file:
            self._optimizer_states().set_states(file.read())

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


def _pairs(key: Any, value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(key, (list, tuple)):
        return [(key, value)]
    if len(key) != len(value):
        raise AssertionError(f"{len(key)} keys, but {len(value)} values")
    return list(zip(key, value))


def _sum(value: Any) -> NDArray:
    """The sum of a list of arrays, or a copy of one."""
    if isinstance(value, NDArray):
        return value.copy()
    total = value[0].copy()
    for other in value[1:]:
        total += other
    return total


def create(name: str = "local") -> KVStore:
    """The store called `name`: `'local'`, `'device'` or `'nccl'`. MXNetError for those of several machines."""
    if not isinstance(name, str):
        raise TypeError("name must be a string")
    if name.lower().startswith("dist") or name.lower() in ("horovod", "byteps"):
        raise MXNetError(f"kvstore {name!r} spans several machines; gluonjit runs on one: use 'local'")
    if name.lower() not in _LOCAL:
        raise MXNetError(f"Unknown KVStore type {name!r}{did_you_mean(name.lower(), _LOCAL)}")
    return KVStore(name.lower())


_mxnet_names.explain(__name__)
