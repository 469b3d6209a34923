"""ONNX's own tests of single operators (`onnx.backend.test`): which pass, and why the others do not.

`python -m pytest tests/onnx_files/test_node_cases.py -s` prints the reasons with numbers.
"""

import collections
import re
import warnings

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.onnx.importing.importer import Importer
from gluonjit.onnx.importing.onnx_files import File

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")

from .symbols import computed  # noqa: E402

# What an error says → why. In this order: the first that fits.
REASONS = {
    r"has elements of |\w of (u?int16|uint32)$": "element types that gluonjit does not have",
    r"is not a tensor|Sequence|Optional": "sequences and optional values",
    r"in training": "training",
    r"Random|Bernoulli|Multinomial": "random numbers, which are others here",
    r"StringNormalizer|TfIdf|ImageDecoder|RegexFullMatch|String": "text and files of images",
    r"whose (operand|condition) is computed|NonMaxSuppression|Unique": "results whose shape depends on values",
    r"STFT|DFT|MelWeightMatrix": "Fourier transforms",
    r"(max|min) of no elements": "the maximum of no elements is an error here",
    r"no operators for": "no operator here",
}
# Cases whose results differ.
DIFFERENT = {
    r"training": "training",
    r"test_quantizelinear": "as written, of 16-bit floats",
    r"test_attention|test_linear_attention|bf16|float16|fp16": "16-bit floats are rounded less often here",
    r"antialias|downsample_scales_(linear|cubic)_align_corners": "sizes that are no multiple of the scale",
    r"test_bitshift_right": "negative numbers",
    r"test_mod_float": "infinities",
    r"crd_mode": "another order of blocks",
}


def version(model):
    return max((x.version for x in model.opset_import if x.domain in ("", "ai.onnx")), default=0)


def array(value):
    if value is None or isinstance(value, list):
        raise TypeError("Sequence")
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def outcome(case, path):
    """'' if the case passes, else why it does not."""
    path.write_bytes(case.model.SerializeToString())
    names = [x.name for x in case.model.graph.input]
    try:
        for inputs, results in case.data_sets:
            given = {name: array(x) for name, x in zip(names, inputs)}
            fixed = {}
            while True:  # inputs such as a shape become part of the model, whose code is for one shape
                importer = Importer(File(path), fixed)
                try:
                    symbol, args, aux = importer.model()
                    break
                except mx.MXNetError:
                    if importer.deciding.keys() <= fixed.keys():
                        raise
                    fixed |= {name: given[name] for name in importer.deciding}
            for name, held in importer.inputs.items():
                given[name] = given[name].astype(held.dtype.numpy)
            found = computed(symbol, {**given, **args, **aux})
            for y, right in zip(found, results, strict=True):
                right = array(right)
                assert (y.shape, y.dtype) == (right.shape, right.dtype)
                if y.dtype.kind in "fV":
                    y, right = y.astype(np.float64), right.astype(np.float64)
                np.testing.assert_allclose(y, right, rtol=max(case.rtol, 1e-3), atol=max(case.atol, 1e-5))
    except AssertionError:
        return next((why for pattern, why in DIFFERENT.items() if re.search(pattern, case.name)), "other numbers")
    except Exception as e:
        return next((why for pattern, why in REASONS.items() if re.search(pattern, str(e))), f"{type(e).__name__}: {e}")
    return ""


FORMULAS = {
    "AVG": lambda windows, p: windows.mean(axis=-1),
    "MAX": lambda windows, p: windows.max(axis=-1),
    "LPPOOL": lambda windows, p: (np.abs(windows) ** p).sum(axis=-1) ** (1.0 / p),
}


def pooled(padded, kernel, kind, p=1):
    """Pooling with stride 1 and without padding, of (N, C, *space)."""
    axes = tuple(range(2, padded.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(padded, tuple(kernel), axes)
    return FORMULAS[kind](windows.reshape(*windows.shape[: padded.ndim], -1), p).astype(padded.dtype)


def pooled_by_numpy(pool):
    """ONNX's reference of pooling looks at one window after the other, 3 s for each of the three cases that have 90,000
    of them. Large ones of stride 1 and without padding are NumPy's here."""

    def chosen(padded, x_shape, kernel, strides, out_shape, kind, *others, **options):
        plain = max(strides) == 1 and not others and options.keys() <= {"p"}
        if plain and np.prod(out_shape) * np.prod(x_shape[:2]) > 1_000:
            return pooled(padded, kernel, kind, **options)
        return pool(padded, x_shape, kernel, strides, out_shape, kind, *others, **options)

    return chosen


@pytest.mark.parametrize("kind", FORMULAS)
def test_pooling_by_numpy_is_that_of_onnx(kind):
    from onnx.reference.ops.op_pool_common import pool

    x = np.random.RandomState(0).randn(1, 2, 4, 5, 3).astype(np.float32)
    right = pool(x, x.shape, [2, 2, 2], [1, 1, 1], [3, 4, 2], kind, p=3)
    found = pooled(x, [2, 2, 2], kind, p=3)
    assert (found.shape, found.dtype) == (right.shape, right.dtype)
    np.testing.assert_allclose(found, right, rtol=1e-6, atol=1e-7)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """(case, version, what came of it) of all cases of ONNX's own operators."""
    path = tmp_path_factory.mktemp("cases") / "case.onnx"
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as changes:
        warnings.simplefilter("ignore")
        import onnx.backend.test.case.base as base
        import onnx.reference.ops.op_pool_common as common
        from onnx.backend.test.case.node import collect_testcases

        # Before the cases are imported; their texts, which documentation shows, take a second to find.
        changes.setattr(base, "process_snippet", lambda *names: names[:2])
        changes.setattr(common, "pool", pooled_by_numpy(common.pool))
        cases = [case for case in collect_testcases(None) if version(case.model)]
        return [(case.name, version(case.model), outcome(case, path)) for case in cases]


def share(found, newest):
    """The share that passes of the cases up to this opset."""
    chosen = [why for _, opset, why in found if opset <= newest and why != "training"]
    for why, count in collections.Counter(chosen).most_common():
        print(f"opset <= {newest}: {count:4} {why or 'pass'}")
    return chosen.count("") / len(chosen)


def test_most_pass_and_every_failure_has_a_reason(outcomes):
    """One test, for several processes would each try all cases."""
    known = {*REASONS.values(), *DIFFERENT.values(), ""}
    assert not [(name, why) for name, _, why in outcomes if why not in known]
    assert share(outcomes, 17) >= 0.85  # operators of inference
    assert share(outcomes, 99) >= 0.7
