"""Running compiled graphs. It also answers as `mx.runtime`, with `Features` and `feature_list`."""

from __future__ import annotations

from typing import Any

_FEATURES = ("Feature", "Features", "feature_list")


def __getattr__(name: str) -> Any:
    if name not in _FEATURES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gluonjit.runtime import features

    return getattr(features, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_FEATURES})
