"""The hybridized call: trace once, compile per signature, then go straight to native code.

Two caches. A *trace* (the Symbol) serves every signature, unless tracing read a fact of its inputs that another
signature changes. A *compiled signature* (shapes, dtypes, training mode) belongs to one trace. The signature used
last is installed on the block as `_fast_call`, whose native entry checks the arguments itself.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gluonjit import autograd, random
from gluonjit.backends import get_backend
from gluonjit.ir.types import TensorType, type_of
from gluonjit.ndarray import NDArray
from gluonjit.runtime.compiler import Callee
from gluonjit.runtime.storage import EPOCH
from gluonjit.trace import Trace, flatten, trace

if TYPE_CHECKING:
    from gluonjit.gluon.block import HybridBlock


@dataclass
class Compiled:
    """One signature of one trace."""

    trace: Trace
    callee: Callee
    streams: int
    """Random streams that a call consumes."""


class CachedCall:
    """What a hybridized block calls instead of `hybrid_forward`. Serves several threads at once."""

    def __init__(self, block: HybridBlock, flags: dict[str, Any]) -> None:
        self.block = block
        self.backend = get_backend(flags.get("backend"))
        self.options = dict(flags.get("backend_opts") or {})
        self.traces: list[Trace] = []
        self.compiled: dict[Hashable, Compiled] = {}
        self._lock = threading.RLock()

    def __call__(self, *args: Any) -> Any:
        leaves, form = flatten(args)
        types = tuple(type_of(x._array) for x in leaves)
        training = autograd.is_training()
        key = (form, types, training)
        compiled = self.compiled.get(key)
        if compiled is None:
            with self._lock:
                compiled = self.compiled.get(key)
                if compiled is None:
                    compiled = self.compiled[key] = self._compile(args, types, training)
        return self._run(compiled, leaves)

    def _compile(self, args: Sequence[Any], types: tuple[TensorType, ...], training: bool) -> Compiled:
        _, form = flatten(args)
        found = next((t for t in self.traces if t.form == form and t.holds(types, training)), None)
        if found is None:
            found = trace(self.block, args)
            self.traces.append(found)
        self.block._finish_deferred(found.params, args)
        graph = found.graph(types, training)
        return Compiled(found, self.backend(graph, self.options), found.streams(training))

    def _run(self, compiled: Compiled, leaves: Sequence[NDArray]) -> Any:
        found = compiled.trace
        epoch = int(EPOCH[0])  # read before the versions: a write in between is seen by the next call
        held = [*(p.data() for p in found.params), *found.captured]
        versions: list[Hashable] = [None] * len(leaves)
        for x in held:
            storage = x.storage()
            storage.watched = True
            versions.append((storage, storage.version))
        inputs = [x._array for x in (*leaves, *held)]
        if compiled.streams:
            inputs.append(random.reserve(compiled.streams))
            versions.append(None)
        if self._fast_applies(compiled, leaves):
            fast = self._fast(compiled, inputs, versions, epoch, len(leaves))
            self.block._fast_call = fast
        outputs, updates = compiled.callee.run(inputs, versions)
        for k, new in zip(found.writes, updates, strict=True):
            target = (*leaves, *held)[k]
            np.copyto(target._array, new)
            target._wrote()
        return found.rebuild([NDArray._wrap(x) for x in outputs])
