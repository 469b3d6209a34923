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
    """A row: how many numbers its own parameters hold, and how many of them train or were counted before."""

    name: str
    shape: str
    total: int = 0
    trainable: int = 0
    shared: int = 0


def _shapes(value: Any) -> Any:
    """Shapes of the arrays in nested `value`; anything else as it is."""
    if isinstance(value, (list, tuple)):
        return [_shapes(item) for item in value]
    return value.shape if isinstance(value, NDArray) else value


def _shape_text(value: Any) -> str:
    text = str(_shapes(value))
    return text[1:-1] if isinstance(value, (list, tuple)) else text


@contextmanager
def _watched(block: Block, record: Callable[[Block, Any, Any], None]) -> Iterator[None]:
    """Within, every layer of `block` runs as Python, hybridized or not, and then tells `record`.

    Compiled code is kept for afterwards, unless what runs changes what it stands for.
    """
    hybridized: list[Any] = []
    handles = []

    def watch(layer: Block) -> None:
        if layer._active:
            hybridized.append(layer)
            # Past __setattr__, for which this would be a change of the program. The first call afterwards finds
            # compiled code in the block and sets _fast_call again.
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
    """Runs `inputs` through `block` and prints a row for every layer called, containers of layers left out.

    RuntimeError for parameters that are not initialized.
    """
    layers = [_Layer("Input", _shape_text(inputs))]
    counted: set[Parameter] = set()

    def record(layer: Block, _: Any, outputs: Any) -> None:
        if Symbol in tensor_kinds(outputs):
            return  # a symbolic call, made to find out shapes
        row = _Layer(f"{type(layer).__name__}-{len(layers)}", _shape_text(outputs))
        for param in layer.params.values():
            size = param.data().size
            row.total += size
            row.trainable += size if param.grad_req != "null" else 0
            row.shared += size if param in counted else 0
            counted.add(param)
        layers.append(row)

    with _watched(block, record):
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
