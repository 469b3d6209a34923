"""Which operators run in which precision: MXNet's lists, in `operators.json` (`tests/oracle/amp_lists.py`)."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from gluonjit.base import dtype_name
from gluonjit.ir.opdef import did_you_mean

LOW_PRECISION = ("float16", "bfloat16")


@cache
def _lists() -> dict[str, dict[str, Any]]:
    found = json.loads((resources.files("gluonjit.contrib.amp") / "operators.json").read_text())
    for lists in found.values():
        lists["conditional_fp32"] = [tuple(entry) for entry in lists["conditional_fp32"]]
    return found


def checked(target_dtype: Any) -> str:
    """The name of a low precision type; AssertionError for any other."""
    name = dtype_name(target_dtype) if not isinstance(target_dtype, str) else target_dtype
    if isinstance(target_dtype, np.dtype) and target_dtype.names == ("bfloat16",):  # as MXNet's Python writes it
        name = "bfloat16"
    if name not in LOW_PRECISION:
        raise AssertionError(
            f"AMP currently supports only float16 or bfloat16 as a target_dtype, got {target_dtype!r}"
            f"{did_you_mean(str(name), LOW_PRECISION)}"
        )
    return name


def list_lp16_ops(target_dtype: Any) -> list[str]:
    """The operators that run in `target_dtype`."""
    return _lists()[checked(target_dtype)]["lp16"]


def list_fp32_ops(target_dtype: Any) -> list[str]:
    """The operators that run in float32."""
    return _lists()[checked(target_dtype)]["fp32"]


def list_lp16_fp32_ops(target_dtype: Any) -> list[str]:
    """The operators that run in the type of their inputs."""
    return _lists()[checked(target_dtype)]["lp16_fp32"]


def list_conditional_fp32_ops(target_dtype: Any) -> list[tuple[str, str, list[str]]]:
    """(operator, attribute, values): those that run in float32 if the attribute has one of the values."""
    return _lists()[checked(target_dtype)]["conditional_fp32"]


def list_widest_type_cast(target_dtype: Any) -> list[str]:
    """The operators that run in the widest of their inputs' types."""
    return _lists()[checked(target_dtype)]["widest"]


def list_loss_output_functions(target_dtype: Any) -> list[str]:
    """The operators whose gradient is not scaled by that of a loss."""
    return _lists()[checked(target_dtype)]["loss_output"]


def list_lp16_use_fp32_params(target_dtype: Any) -> dict[str, list[str]] | None:
    """The inputs that stay float32, by operator; None if there are none."""
    return _lists()[checked(target_dtype)]["lp16_use_fp32_params"]
