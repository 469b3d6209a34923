"""Variants of the samples: what MXNet answered, and whether it has been asked enough about every operator."""

import numpy as np
import pytest

from gluonjit.language import mxnet_names
from gluonjit.operators import registry
from gluonjit.operators.control.loops_and_branches import ControlFlow
from gluonjit.operators.registry import OPERATORS
from support.compare import difference

from . import samples, variants
from .answers import recorded_variants
from .running import run_case
from .test_oracle import LOOSER, TOLERANCE

DECLARED = {op.name: op for op in OPERATORS.values() if not isinstance(op, ControlFlow)}
"""Operators that hold graphs have tests of their own: `frontend/test_control_flow.py`, `checkpoint/test_fused.py`."""

NOT_ASKED = {"_contrib_group_adagrad_update", "_sparse_adagrad_update", "_sparse_retain", "reset_arrays"} | {
    *("_scatter_elemwise_div", "_scatter_minus_scalar", "_scatter_plus_scalar", "_square_sum")
}
"""Operators that MXNet has for sparse arrays alone, or without results."""

DIFFERENT = {
    "nan": {
        "`Activation('relu')`": "Activation Pooling ROIPooling",
        "`softmax`, `log_softmax`": "softmax SoftmaxOutput",
        "pixels of weight 0": "_contrib_BilinearResize2D _contrib_ModulatedDeformableConvolution",
        "`sort`, `argsort`, `topk`": "sort argsort topk _contrib_bipartite_matching _npi_percentile",
        "`contrib.box_iou`": "_contrib_box_iou",
        "LAMB in mixed precision": "_multi_mp_lamb_update",
        "NaN or infinity as index": "one_hot _unravel_index",
        "float → `int8`": "_contrib_quantize _contrib_quantize_v2 _contrib_quantized_concat",
        "`linalg_potrf`": "_linalg_gelqf _linalg_inverse _linalg_potrf _linalg_potri _linalg_slogdet "
        "_npi_eigh _npi_eigvalsh _npi_pinv _npi_pinv_scalar_rcond _npi_slogdet _npi_solve _npi_svd "
        "_npi_tensorinv _npi_tensorsolve",
        "`image.random_saturation`": "_image_random_saturation",
        "random operators": "_sample_generalized_negative_binomial _sample_poisson",
    },
    "infinite": {
        "`softmax`, `log_softmax`": "softmax SoftmaxOutput",
        "pixels of weight 0": "_contrib_ModulatedDeformableConvolution",
        "sums with infinities": "norm _npi_average _npi_norm",
        "LAMB in mixed precision": "_multi_mp_lamb_update",
        "NaN or infinity as index": "_contrib_SparseEmbedding _ravel_multi_index _unravel_index",
        "`linalg_potrf`": "_linalg_gelqf _linalg_inverse _linalg_potrf _linalg_potri _linalg_slogdet "
        "_npi_eigh _npi_eigvalsh _npi_pinv _npi_pinv_scalar_rcond _npi_slogdet _npi_solve _npi_svd "
        "_npi_tensorinv _npi_tensorsolve",
        "`image.random_saturation`": "_image_random_saturation",
        "random operators": "_image_random_flip_left_right _image_random_flip_top_bottom "
        "_sample_generalized_negative_binomial _sample_multinomial _sample_poisson",
    },
    "int32": {
        "float → `int32`": "arctanh _npi_arctanh erfinv",
        "variance of whole numbers": "_npi_std _npi_var",
        "`contrib.hawkesll` of whole numbers": "_contrib_hawkesll",
        "`sort`, `argsort`, `topk`": "argsort",
        "colors of whole numbers": "_image_random_hue",
        "random operators": "_sample_exponential _sample_gamma _sample_generalized_negative_binomial _sample_normal "
        "_sample_poisson",
    },
    "int8": {
        "float → `int8`": "arctanh _npi_arctanh erfinv",
        "variance of whole numbers": "_npi_std _npi_var",
        "`contrib.hawkesll` of whole numbers": "_contrib_hawkesll",
        "`Convolution` of int8": "Convolution",
        "`sort`, `argsort`, `topk`": "argsort",
        "colors of whole numbers": "_image_random_hue",
        "random operators": "_sample_exponential _sample_gamma _sample_generalized_negative_binomial _sample_normal "
        "_sample_poisson",
    },
    "negative": {},
}
"""Operators that answer otherwise than MXNet, by kind of variant and what `docs/differences.md` calls it."""


def known_difference(operator, kind):
    return next((title for title, names in DIFFERENT[kind].items() if operator in names.split()), None)


def asked(operator, kind):
    """The variant that MXNet has an answer for; None where there is none."""
    where = f"{operator}/{kind}"
    answer = recorded_variants()[where]
    if "number" not in answer:
        assert "refused" in answer or not any(variants.of_kind(operator, kind)), (
            f"{where} is not recorded: run tests/oracle/record.py variants"
        )
        return None
    case = next(c for c in samples.cases(operator) if c.number == answer["number"])
    case = variants.vary(case, kind)
    assert case.checksum() == answer["inputs"], f"the inputs of {case} are not those recorded"
    return case


@pytest.mark.parametrize("operator", samples.operators())
def test_equals_mxnet_which_has_been_asked_enough(operator):
    answered = {kind: case for kind in variants.KINDS if (case := asked(operator, kind))}
    for kind, case in answered.items():
        if known_difference(operator, kind):
            continue
        results = run_case(case)
        answer = recorded_variants()[f"{operator}/{kind}"]
        for k in range(sum(name.isdigit() for name in answer)):
            expected, got = answer[str(k)], results[k]
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape), f"{kind} {case}: result {k}"
            allowed = LOOSER.get((operator, expected.dtype.name)) or TOLERANCE.get(expected.dtype.name, 0)
            error = difference(got, expected)
            assert error <= allowed, f"{kind} {case} {case.attrs}: {k} is off by {error:.2g}\n{got}\nMXNet:\n{expected}"
    check_that_enough_has_been_asked(operator, [*answered.values()])


def check_that_enough_has_been_asked(operator, answered):
    """Of every operator. `answered`: the variants that MXNet has answers for."""
    cases = samples.cases(operator)
    assert len(cases) >= 5
    if operator in NOT_ASKED or not mxnet_names.is_operator(operator):
        return
    given = [case for case in cases if case.oracle]
    assert len(given) >= 3
    inputs = [x for case in (*given, *answered) for x in case.inputs]
    values = [x.astype(np.float64) for x in inputs if x.dtype.kind == "f"]

    def refused(*kinds):
        return all("refused" in recorded_variants()[f"{operator}/{kind}"] for kind in kinds)

    if values and not refused("nan"):
        assert any(np.isnan(x).any() for x in values), "no case with NaN"
    if values and not refused("infinite"):
        assert any(np.isinf(x).any() for x in values), "no case with an infinity"
    if inputs and not refused("int32", "int8"):
        assert any(x.dtype.kind in "iu" for x in inputs), "no case with integers"
    about_axes = operator not in variants.COUNTS and set(registry.get(operator).attrs) & set(variants.AXES)
    if about_axes and not refused("negative"):
        assert any(map(counts_from_the_end, (*given, *answered))), "no case with a negative axis"


def counts_from_the_end(case):
    values = [case.attrs.get(name, default) for name, default in defaults(case.operator).items()]
    return any(np.any(np.asarray(value) < 0) for value in values if value is not None)


def defaults(operator):
    from gluonjit.ir.opdef import REQUIRED

    attrs = registry.get(operator).attrs
    return {
        name: None if attrs[name].default is REQUIRED else attrs[name].default
        for name in variants.AXES
        if name in attrs
    }


def test_differences_are_argued(root):
    text = (root / "docs" / "differences.md").read_text()
    for kind, titles in DIFFERENT.items():
        for title, names in titles.items():
            assert title in text, f"{kind} of {names}"
            assert not set(names.split()) - set(samples.operators())


def test_every_operator_has_samples():
    assert sorted({registry.get(name).name for name in samples.operators()}) == sorted(DECLARED)
