"""The table that `block.summary(x)` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gluonjit.gluon.utils import tensor_kinds
from gluonjit.ndarray import NDArray
from gluonjit.symbol import Symbol

if TYPE_CHECKING:
    from gluonjit.gluon.base_block import Block
    from gluonjit.gluon.parameter import Parameter

_ROW = "{:>20}  {:>42} {:>15}"
_WIDTH = 80


@dataclass
class _Layer:
    """A row: how many elements its own parameters have, and how many of these are trainable or counted before."""

    name: str
    shape: str
    total: int = 0
    trainable: int = 0
    shared: int = 0


def _shapes(value: Any) -> Any:
    """Nested `value` with arrays replaced by their shapes."""
    if isinstance(value, (list, tuple)):
        return [_shapes(item) for item in value]
    return value.shape if isinstance(value, NDArray) else value


def _shape_text(value: Any) -> str:
    text = str(_shapes(value))
    return text[1:-1] if isinstance(value, (list, tuple)) else text


@contextmanager
def _recording_layers(block: Block, record: Callable[[Block, Any, Any], None]) -> Iterator[None]:
    """While open, every layer of `block` runs as Python, hybridized or not, and is then passed to `record`.

    Compiled code is kept for later calls, unless the run changes state that it depends on.
    """
    hybridized: list[Any] = []
    handles = []

    def watch(layer: Block) -> None:
        if layer._active:
            hybridized.append(layer)
            # Not by setattr, which would treat this as a change of the program and drop compiled code. The next call
            # finds the compiled code in the block and sets _fast_call again.
            layer.__dict__["_active"] = False
            hybridized[-1]._fast_call = None
        if not layer._is_container:
            handles.append(layer.register_forward_hook(record))

    try:
        block.apply(watch)
        yield
    finally:
        for handle in handles:
            handle.detach()
        for layer in hybridized:
            layer.__dict__["_active"] = True


def print_summary(block: Block, inputs: tuple[Any, ...]) -> None:
    """Calls `block` with `inputs` and prints a row for every layer that runs, except for containers.

    RuntimeError for parameters that are not initialized.
    """
    layers = [_Layer("Input", _shape_text(inputs))]
    counted: set[Parameter] = set()

    def record(layer: Block, _: Any, outputs: Any) -> None:
        if Symbol in tensor_kinds(outputs):
            return  # a symbolic call for shape inference
        row = _Layer(f"{type(layer).__name__}-{len(layers)}", _shape_text(outputs))
        for param in layer.params.values():
            size = param.data().size
            row.total += size
            row.trainable += size if param.grad_req != "null" else 0
            row.shared += size if param in counted else 0
            counted.add(param)
        layers.append(row)

    with _recording_layers(block, record):
        block(*inputs)

    total = sum(row.total for row in layers)
    trainable = sum(row.trainable for row in layers)
    shared = sum(row.shared for row in layers)
    print("-" * _WIDTH)
    print(_ROW.format("Layer (type)", "Output Shape", "Param #"))
    print("=" * _WIDTH)
    for row in layers:
        print(_ROW.format(row.name, row.shape, row.total))
    print("=" * _WIDTH)
    print("Parameters in forward computation graph, duplicate included")
    print(f"   Total params: {total}")
    print(f"   Trainable params: {trainable}")
    print(f"   Non-trainable params: {total - trainable}")
    print(f"Shared params in forward computation graph: {shared}")
    print(f"Unique parameters in model: {total - shared}")
    print("-" * _WIDTH)
