"""Common parts of the vision models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gluonjit.context import cpu
from gluonjit.gluon import nn
from gluonjit.gluon.block import HybridBlock

CPU = cpu()
"""The default context of pretrained weights."""
Model = TypeVar("Model", bound=HybridBlock)
"""What a function of the zoo returns."""


class Classifier(HybridBlock):
    """A model of two parts, `features` and `output`."""

    features: nn.HybridSequential
    output: HybridBlock

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


def sequence(*layers: HybridBlock, prefix: str = "") -> nn.HybridSequential:
    """The layers in sequence. By default (no prefix), they are named as if they were not inside another block."""
    out = nn.HybridSequential(prefix=prefix)
    out.add(*layers)
    return out


def variant(name: str, build: Callable[..., Model], *args: Any, **fixed: Any) -> Callable[..., Model]:
    """The function `name(**kwargs)`: `build(*args, **kwargs)`, with some keywords fixed."""

    def model(**kwargs: Any) -> Model:
        return build(*args, **{**kwargs, **fixed})

    model.__name__ = model.__qualname__ = name
    model.__module__ = build.__module__
    shown = ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in fixed.items())])
    model.__doc__ = f"`{build.__name__}({shown}, **kwargs)`."
    return model
