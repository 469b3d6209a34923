"""Every operator against what real MXNet 1.9.1 computed for the same inputs (`tests/oracle/record.py`)."""

import pytest

from support.compare import difference

from . import samples
from .answers import recorded
from .running import run_case

TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "float16": 2.0**-10}
"""Of max|y|. float16: one unit of the last place, where MXNet rounds inside of an operator and we at its end."""

LOOSER = {
    # In float64, MXNet still has these attributes and factors as float32: the eighth digit differs.
    ("degrees", "float64"): 1e-7,
    ("radians", "float64"): 1e-7,
    ("hard_sigmoid", "float64"): 1e-7,
    ("LeakyReLU", "float64"): 1e-7,
    **{(name, "float64"): 1e-7 for name in samples.operators() if name.endswith(("_update", "_update_phase1"))},
    ("BatchNorm", "float64"): 1e-10,
    ("_random_pdf_normal", "float64"): 1e-8,
    # Numbers whose spread is a few 1e-7.
    **{(f"_{form}", "float64"): 1e-5 for form in ("random_gamma", "random_gamma_like", "sample_gamma")},
    # Its variance takes one pass over the squares, which cancels when the mean is large.
    ("BatchNorm", "batch_norm_far_from_zero"): 1e-4,
    # It computes in the input's type even when a wider result is asked for.
    ("softmax", "softmax_float16"): 2.0**-10,
    ("log_softmax", "softmax_float16"): 2.0**-10,
    ("softmin", "softmax_float16"): 2.0**-10,
}
"""Where MXNet is the less exact one, by operator and element type or name of the sample."""


@pytest.mark.parametrize("operator", samples.operators())
def test_equals_mxnet(operator):
    asked = 0
    for case in samples.cases(operator):
        if not case.oracle:
            continue
        asked += 1
        where = f"{operator}/{case.number}"
        answer = {name: archive[f"{where}/{name}"] for name, archive in recorded()[where].items()}
        assert answer, f"{case} is not recorded: run tests/oracle/record.py"
        assert answer["inputs"] == case.checksum(), f"the inputs of {case} are not those recorded"
        results = run_case(case)
        for k in range(len(answer) - 1):
            expected, got = answer[str(k)], results[k]
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape), f"{case} {case.attrs}: result {k}"
            dtype = expected.dtype.name
            allowed = LOOSER.get((operator, dtype)) or LOOSER.get((operator, case.sample.build.__name__))
            allowed = allowed or TOLERANCE.get(dtype, 0)
            error = difference(got, expected)
            assert error <= allowed, f"{case} {case.attrs}: result {k} is off by {error:.2g}\n{got}\nMXNet:\n{expected}"
    assert asked >= 3 or not any(case.oracle for case in samples.cases(operator)), f"{asked} cases are too few"
