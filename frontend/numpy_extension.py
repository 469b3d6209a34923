"""`mx.npx`: what MXNet has beside NumPy's functions: layers as functions, and the switch of semantics."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gluonjit import ndarray as _ndarray
from gluonjit.context import Context as Context
from gluonjit.context import cpu as cpu
from gluonjit.context import cpu_pinned as cpu_pinned
from gluonjit.context import current_context as current_context
from gluonjit.context import get_cuda_compute_capability as get_cuda_compute_capability
from gluonjit.context import gpu as gpu
from gluonjit.context import gpu_memory_info as gpu_memory_info
from gluonjit.context import num_gpus as num_gpus
from gluonjit.language.kinds import as_np as _as_np
from gluonjit.ndarray import waitall as waitall
from gluonjit.numpy.namespaces import equip as _equip
from gluonjit.numpy.namespaces import flavours as _flavours
from gluonjit.util import is_np_array as is_np_array
from gluonjit.util import is_np_shape as is_np_shape
from gluonjit.util import reset_np as reset_np
from gluonjit.util import set_np as set_np

if TYPE_CHECKING:  # what `equip` makes

    def __getattr__(name: str) -> Any: ...


def save(file: str | os.PathLike[str], arr: Any) -> None:
    """Writes an array, a list of them or a dict of them by name, as `nd.save` does.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mx.npx.save(f"{folder}/x.params", {"w": mx.np.array([1, 2])})
    ...     mx.npx.load(f"{folder}/x.params")["w"].asnumpy()
    array([1., 2.], dtype=float32)
    """
    _ndarray.save(file, arr)


def load(file: str | os.PathLike[str]) -> Any:
    """The arrays of a file: a list, or a dict if they have names.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mx.npx.save(f"{folder}/x.params", {"w": mx.np.array([1, 2])})
    ...     mx.npx.load(f"{folder}/x.params")["w"].asnumpy()
    array([1., 2.], dtype=float32)
    """
    found = _ndarray.load(file)
    return {name: _as_np(x) for name, x in found.items()} if isinstance(found, dict) else _as_np(found)


_equip(globals(), __name__, _flavours(False)[1])
