"""Arrays print as in MXNet: NumPy's text, and a line with class, shape and device."""

import numpy as np
import pytest

from gluonjit import nd


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (nd.array([[1, 2, 3], [4, 5, 6]]), "\n[[1. 2. 3.]\n [4. 5. 6.]]\n<NDArray 2x3 @cpu(0)>"),
        (nd.array([1, 2], dtype="int32"), "\n[1 2]\n<NDArray 2 @cpu(0)>"),
        (nd.array([True, False], dtype=bool), "\n[ True False]\n<NDArray 2 @cpu(0)>"),
        (nd.array(5), "\n5.0\n<NDArray  @cpu(0)>"),
        (nd.array([]), "\n[]\n<NDArray 0 @cpu(0)>"),
        (nd.array([0.1, 1e-8, np.nan, -np.inf]), "\n[1.e-01 1.e-08    nan   -inf]\n<NDArray 4 @cpu(0)>"),
        (nd.array(np.zeros((2, 1, 1))), "\n[[[0.]]\n\n [[0.]]]\n<NDArray 2x1x1 @cpu(0)>"),
        (nd.array([1.5], dtype="float16"), "\n[1.5]\n<NDArray 1 @cpu(0)>"),
    ],
)
def test_repr_and_str(array, text):
    assert repr(array) == str(array) == f"{array}" == text


def test_long_arrays_are_abbreviated():
    assert repr(nd.array(np.arange(2000))) == "\n[0.000e+00 1.000e+00 2.000e+00 ... 1.997e+03 1.998e+03 1.999e+03]" + (
        "\n<NDArray 2000 @cpu(0)>"
    )
