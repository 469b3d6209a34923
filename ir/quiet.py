"""`quiet`: a context without NumPy's warnings about floats.

NumPy warns where IEEE has an answer (1/0, log(-1)); that answer is what is wanted.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

OLD_NUMPY = int(np.__version__.partition(".")[0]) < 2


class _Quiet:
    """`np.errstate(all="ignore")` of NumPy 1, whose own takes as long as a small operator."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = before = np.geterrobj()  # type: ignore[attr-defined]
        np.seterrobj([before[0], 0, before[2]])  # type: ignore[attr-defined]

    def __exit__(self, *error: object) -> None:
        np.seterrobj(self._before)  # type: ignore[attr-defined]


quiet: Any = _Quiet if OLD_NUMPY else functools.partial(np.errstate, all="ignore")
