"""`mx.executor_manager`: what programs use of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gluonjit.language import mxnet_names as _mxnet_names


def _split_input_slice(batch_size: int, work_load_list: Sequence[float]) -> list[slice]:
    """The part of a batch for each device, in proportion to these loads. ValueError if one would be empty."""
    total = sum(work_load_list)
    sizes = [round(load * batch_size / total) for load in work_load_list]
    sizes[-1] += max(batch_size - sum(sizes), 0)
    found, end = [], 0
    for size in sizes:
        begin, end = min(end, batch_size), min(end + size, batch_size)
        if begin >= end:
            raise ValueError("Too many slices. Some splits are empty.")
        found.append(slice(begin, end))
    return found


def _check_arguments(symbol: Any) -> None:
    """ValueError if two arguments or two auxiliary states of a symbol have the same name."""
    for names, what in ((symbol.list_arguments(), "argument"), (symbol.list_auxiliary_states(), "auxiliary param")):
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ValueError(f'Find duplicated {what} name "{twice[0]}", please make the names unique')


_mxnet_names.explain(__name__)
