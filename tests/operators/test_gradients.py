"""Gradients of operators: against what real MXNet 1.9.1 computed (`tests/oracle/record_gradients.py`), imperatively and
compiled, and against differences of their results in float64."""

import functools
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from gluonjit import MXNetError, autograd, nd
from gluonjit.autodiff.computation import Compiler, Computation
from gluonjit.autodiff.operator_computations import of_operator
from gluonjit.execution.backends import get_backend
from gluonjit.gluon import HybridBlock
from gluonjit.ir.quiet import quiet
from gluonjit.ir.types import IRError
from gluonjit.ndarray.imperative import invoke
from gluonjit.operators import gradients, registry
from support.compare import difference
from support.soak import tries

from . import gradient_cases, samples, variants
from .running import KEY, graph_of, run_eager

TOLERANCE = {"float32": 1e-5, "float64": 1e-10, "float16": 4e-3}
"""Of max|gradient|."""


LOOSER = {
    # In float64, MXNet still has these attributes, factors and functions as float32.
    **dict.fromkeys(
        [
            (name, "float64")
            for name in ("degrees", "radians", "hard_sigmoid", "erf", "erfinv", "gamma", "gammaln", "BatchNorm")
            + (
                "_npi_ldexp",
                "_random_pdf_dirichlet",
                "_random_pdf_gamma",
                "LeakyReLU/5",
                "LeakyReLU/ties5",
            )  # the last are gelu
        ],
        2e-7,
    ),
    # Probabilities of 1e-20 and less.
    ("CTCLoss", "float32"): 1e-4,
}

DIFFERENT = {
    "`astype(bool)`": "Cast/4",
    "at NaN": "abs/3 abs/nan _npi_absolute/1 _npi_absolute/nan norm/nan relu/3 relu/nan _npx_relu/0 _npx_relu/3 "
    "_npx_relu/nan broadcast_maximum/4 broadcast_maximum/nan broadcast_minimum/4 broadcast_minimum/nan _maximum/5 "
    "_maximum/nan _minimum/5 _minimum/nan Pooling/nan SoftmaxOutput/nan SoftmaxOutput/infinite CTCLoss/nan "
    "CTCLoss/infinite LeakyReLU/7",
    "`BatchNorm`, `LayerNorm`, `GroupNorm` with `output_mean_var`": "BatchNorm/6 BatchNorm/ties6 LayerNorm/2 "
    "LayerNorm/ties2 GroupNorm/2 GroupNorm/ties2",
    'LeakyReLU(act_type="selu")': "LeakyReLU/9 LeakyReLU/10 LeakyReLU/11 LeakyReLU/ties9 LeakyReLU/ties10 "
    "LeakyReLU/ties11",
    "`fix_gamma`": "BatchNorm/1 BatchNorm/ties1 BatchNorm_v1/1 BatchNorm_v1/2 _contrib_BatchNormWithReLU/4 "
    "_contrib_BatchNormWithReLU/ties4 _contrib_SyncBatchNorm/1 _contrib_SyncBatchNorm/ties1",
    "where there is no derivative, or an infinite one": "_hypot/5 _hypot/ties _hypot_scalar/3 broadcast_hypot/4 "
    "broadcast_hypot/ties _power/5 _power/ties broadcast_power/5 broadcast_power/ties _power_scalar/2 _rpower_scalar/2 "
    "prod/6 prod/7 prod/nan prod/infinite nanprod/7 nanprod/infinite _np_prod/2 _np_prod/4 _np_prod/nan "
    "_np_prod/infinite _np_prod/ties _mod/5 _mod_scalar/3 _rmod_scalar/2 _rmod_scalar/3 "
    "broadcast_mod/4 broadcast_mod/ties _npi_mod/1 "
    "_npi_mod/ties _npi_rmod_scalar/2 _npi_norm/infinite gamma/3 gamma/infinite gamma/ties gammaln/3 gammaln/infinite "
    "gammaln/ties",
    "`CTCLoss` of data that are too short": "CTCLoss/4",
    "its gradient by times and lengths": "_contrib_hawkesll",
    "`SoftmaxOutput(out_grad=True)`": "SoftmaxOutput/rows12 SoftmaxOutput/positions13 SoftmaxOutput/last_axis14",
    "pixels of weight 0": "BilinearSampler/3 BilinearSampler/infinite SpatialTransformer/infinite "
    "_contrib_DeformableConvolution/infinite",
    "padding multiplied by": "Deconvolution/infinite",
    "`Pooling_v1` with `pad`": "Pooling_v1/ties",
    "`contrib.box_nms` that converts boxes": "_contrib_box_nms/4 _contrib_box_nms/5",
    "`image.random_brightness`": "_image_random_brightness _image_random_contrast _image_random_hue "
    "_image_random_flip_left_right _image_random_flip_top_bottom",
    "of a matrix that is singular": "_linalg_gelqf/ties _linalg_inverse/infinite _linalg_potrf/nan "
    "_linalg_potri/infinite _linalg_slogdet/nan _linalg_slogdet/infinite _linalg_trsm/infinite "
    "_npi_slogdet/nan _npi_slogdet/infinite _npi_solve/nan _npi_solve/infinite "
    "_npi_tensorsolve/nan _npi_tensorsolve/infinite _npi_tensorinv/nan _npi_tensorinv/infinite",
    "`np.var`, `np.std`, `np.matmul`, `np.average`, `np.arctan2`, `np.where`": "_npi_std _npi_var _npi_matmul "
    "_npi_average/1 _npi_rarctan2_scalar _npi_where_lscalar",
    "`np.bincount`": "_npi_bincount",
    "`np.copysign` of NaN": "_npi_copysign/nan",
    "`np.rot90` by an odd number of quarters": "_npi_rot90",
    "`gather_nd` of negative indices": "gather_nd/0 gather_nd/nan gather_nd/infinite gather_nd/ties",
    "`sort`, `argsort`, `topk`": "sort/nan topk/nan",
    "`operator.Custom`": "Custom",
}
"""Cases (or all of an operator) that have another gradient than in MXNet, by what `docs/differences.md` says."""


def known_difference(where):
    operator = where.partition("/")[0]
    return any(operator in names.split() or where in names.split() for names in DIFFERENT.values())


@functools.cache
def recorded():
    found = defaultdict(dict)
    path = Path(__file__).resolve().parents[1] / "data" / "gradients.npz"
    for name, array in variants.unpack(np.load(path)).items():
        where, _, last = name.rpartition("/")
        found[where][last] = array
    return found


def float_inputs(case):
    return [k for k, x in enumerate(case.inputs) if x.dtype.kind == "f"]


def imperative(case):
    """The gradients by the float inputs, and what the inputs are afterwards."""
    inputs = [nd.array(x, dtype=x.dtype) for x in case.inputs]
    for k in float_inputs(case):
        inputs[k].attach_grad()
    with autograd.record(train_mode=case.training):
        out = invoke(registry.get(case.operator), inputs, case.attrs)
    out = out if isinstance(out, list) else [out]
    heads = [nd.array(g, dtype=g.dtype) for g in gradient_cases.heads(case, [y.asnumpy() for y in out])]
    autograd.backward(out, heads, train_mode=case.training)
    found = {f"d{k}": inputs[k].grad.asnumpy() for k in float_inputs(case)}
    return found | {f"after{k}": x.asnumpy() for k, x in enumerate(inputs)}


def check(case, found, how):
    """Compares gradients by name with MXNet's."""
    where = gradient_cases.name(case)
    for name, expected in recorded()[where].items():
        if name in ("inputs", "refused") or name.startswith("after") and name not in found:
            continue
        got = found[name]
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), f"{where} {name}"
        dtype = expected.dtype.name
        allowed = LOOSER.get((where, dtype)) or LOOSER.get((case.operator, dtype)) or TOLERANCE[dtype]
        error = difference(got, expected)
        assert error <= allowed, (
            f"{how} {where} {case.attrs}: {name} is off by {error:.2g}\n{got}\nMXNet:\n{expected}\n{case.inputs}"
        )


def compared(operator):
    """The cases that MXNet has a gradient of, and no other one than ours."""
    for case in gradient_cases.cases(operator):
        where = gradient_cases.name(case)
        answer = recorded()[where]
        assert answer, f"{where} is not recorded: run tests/oracle/record_gradients.py {operator}"
        assert answer["inputs"] == case.checksum(), f"the inputs of {where} are not those recorded"
        if "refused" not in answer and not known_difference(where):
            yield case


def test_differences_are_argued(root):
    text = (root / "docs" / "differences.md").read_text()
    for title, names in DIFFERENT.items():
        assert title in text, f"{title} of {names}"
        for name in names.split():
            operator = name.partition("/")[0]
            cases = {gradient_cases.name(case) for case in gradient_cases.cases(operator)}
            assert name in {operator, *cases}, name


@pytest.mark.parametrize("operator", samples.operators())
def test_equals_mxnet(operator):
    for case in compared(operator):
        check(case, imperative(case), "imperatively,")


# Compiled: many cases in one graph, whose gradient is one graph, too


def compiled_gradients(cases):
    """`imperative` of each case."""
    graph, inputs = graph_of(cases)
    computation = Computation(graph, Compiler(get_backend(None), {}))
    wrt = tuple(k for k, x in enumerate(inputs) if x.dtype.kind == "f")
    heads = computation.differentiable(wrt)
    forward = computation.forward(wrt, heads)
    outputs, _ = forward.run(inputs)
    results, at = {}, 0
    given = []
    for case in cases:
        visible = len(run_eager(case.operator, case.inputs, case.attrs, case.training))
        own = outputs[at : at + visible]
        shown = registry.get(case.operator).visible
        count = shown(registry.get(case.operator).parse(case.attrs)) if shown else visible
        given += gradient_cases.heads(case, own[:count]) + [np.zeros_like(y) for y in own[count:]]
        at += visible
    backward = forward.backward
    arguments = backward.arguments(
        lambda place: inputs[place] if place >= 0 else outputs[-1 - place],
        lambda cotangent: given[heads[cotangent.head]],
        lambda head: np.ones((), np.float32),
    )
    gradients, updates = backward.computation.run(arguments)
    written = dict(zip(backward.states, updates))
    by_input = dict(zip(wrt, gradients))
    first = 0
    for case in cases:
        numbers = range(len(case.inputs))
        found = {f"d{k}": by_input[first + k] for k in numbers if first + k in by_input}
        found |= {f"after{k}": written[first + k] for k in numbers if first + k in written}
        results[gradient_cases.name(case)] = found
        first += len(case.inputs)
    return results


DECLARED = sorted(
    name
    for name in samples.operators()
    if registry.get(name).gradient is not None or registry.get(name).late is not None
)
"""Operators whose gradient is not that of their expansion."""


@pytest.mark.parametrize("training", [False, True])
def test_compiled_equals_mxnet(training):
    cases = []
    for name in DECLARED:
        if registry.get(name).streams is None and registry.get(name).gradient not in (
            gradients.zero,
            gradients.refused,
        ):
            cases += [case for case in compared(name) if case.training == training][: tries(1)]
    found = compiled_gradients(cases)
    for case in cases:
        check(case, found[gradient_cases.name(case)], "compiled,")


# Differences, in float64

OTHERWISE = {
    "BlockGrad IdentityAttachKLSparseReg LinearRegressionOutput LogisticRegressionOutput MAERegressionOutput MakeLoss "
    "SVMOutput SoftmaxOutput make_loss softmax_cross_entropy WarpCTC "
    "_contrib_gradientmultiplier _contrib_round_ste _contrib_sign_ste": "by definition",
    "Cast amp_cast": "through whole numbers",
    "_contrib_box_nms": "of classes that are compared",
    "_contrib_hawkesll": "of the likelihood alone, by the parameters alone",
}
"""Operators whose gradient is not the derivative of their result."""


SYMMETRIC = ("_linalg_potrf", "_linalg_syevd")
AT_CORNERS = ("sampler_on_pixels",)


def directional(case):
    """The derivative of the results, weighted by random cotangents, in a random direction of those float inputs that do
    not hold whole numbers: from the gradient, and by differences at two distances. With what it is measured by."""
    op = registry.get(case.operator)
    rng = np.random.RandomState(0)
    inputs = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in case.inputs]
    names = op.input_names(op.parse(case.attrs))
    fixed = {*op.aux_names(op.parse(case.attrs)), *op.constants, "rois"}
    wrt = tuple(
        k
        for k, x in enumerate(inputs)
        if x.dtype.kind == "f" and names[k] not in fixed and np.isfinite(x).all() and (x != np.rint(x)).any()
    )
    if not wrt or any(x.dtype.kind == "f" and not np.isfinite(x).all() for x in inputs):
        return None
    computation = of_operator(op, op.parse(case.attrs), inputs, case.training)
    if any(v.dtype.is_float and v.dtype.bits < 64 for v in computation.graph.outputs):
        return None
    heads = tuple(k for k in computation.differentiable(wrt) if computation.graph.outputs[k].dtype.is_float)
    if not heads:
        return None
    key = [np.array(KEY)]
    outputs, _ = computation.run([*inputs, *key][: len(computation.graph.inputs)])
    weights = [rng.uniform(0.5, 1.5, outputs[k].shape) * rng.choice([-1, 1], outputs[k].shape) for k in heads]
    direction = {k: rng.uniform(-1, 1, inputs[k].shape) for k in wrt}
    if case.operator in SYMMETRIC:
        direction = {k: v + np.swapaxes(v, -1, -2) for k, v in direction.items()}
    backward = computation.backward(wrt, heads)
    values = [[*inputs, *key][v.place] if v.place >= 0 else outputs[-1 - v.place] for v in backward.values]
    found, _ = backward.computation.run([*values, *weights])
    terms = [g * direction[k] for k, g in zip(wrt, found)]

    def total(step):
        moved = [x + step * direction[k] if k in direction else x for k, x in enumerate(inputs)]
        results, _ = computation.run([*moved, *key][: len(computation.graph.inputs)])
        return sum(np.sum(w * results[k]) for k, w in zip(heads, weights))

    size = sum(np.abs(t).sum() for t in terms)
    noise = sum(np.abs(w * outputs[k]).sum() for k, w in zip(heads, weights))
    differences = [(total(step) - total(-step)) / (2 * step) for step in (1e-5, 1e-6)]
    return sum(t.sum() for t in terms), differences, size, noise


def smooth_cases(operator):
    """A sample of an operator and one of each other mode, if its gradient is the derivative: the gradients of all are
    compared with MXNet's. More in `make soak`."""
    op = registry.get(operator)
    if op.gradient in (gradients.zero, gradients.refused) or op.host or op.imperative_only:
        return []
    if any(operator in names.split() for names in OTHERWISE):
        return []
    count = tries(1)
    first, others = samples.cases(operator)[:count], samples.cases(operator)[count:]
    seen = {gradient_cases.modes(case) for case in first}
    by_mode = {gradient_cases.modes(case): case for case in reversed(others)}
    chosen = first + [case for modes, case in by_mode.items() if modes not in seen]
    return [case for case in chosen if case.sample.build.__name__ not in AT_CORNERS]


@pytest.mark.parametrize("operator", samples.operators())
def test_equals_differences(operator):
    for case in smooth_cases(operator):
        try:
            with quiet():
                found = directional(case)
        except (MXNetError, IRError):  # the operator has no float64
            continue
        if found is None:
            continue
        derivative, differences, size, noise = found
        if not np.isfinite(differences).all():  # outside of the function's domain
            continue
        error = min(abs(d - derivative) for d in differences)
        assert error <= 1e-6 * size + 1e-9 * noise, f"{case} {case.attrs}: {derivative}, by differences {differences}"


# What has no gradient


def quantized_range(F, x, low, high):
    return F.contrib.quantized_act(x, low, high, act_type="relu")[2]


@pytest.mark.parametrize("hybridize", [False, True])
def test_an_operator_without_gradient_says_so_when_gradients_reach_it(hybridize):
    class Net(HybridBlock):
        def hybrid_forward(self, F, x, low, high):
            return quantized_range(F, x, low, high)

    net = Net()
    net.hybridize(hybridize)
    high = nd.array([1.0])
    high.attach_grad()
    with autograd.record():
        y = net(nd.array([[1, 2]], dtype="int8"), nd.array([0.0]), high)
    with pytest.raises(MXNetError, match=r"_contrib_quantized_act has no gradient\n  at .*test_gradients.py:\d+"):
        y.backward()


def test_a_result_that_is_constant_almost_everywhere_has_a_gradient_of_zeros():
    x = nd.array([1.0, -2.0])
    x.attach_grad()
    for function in (nd.sign, nd.BlockGrad, nd.ones_like, lambda x: nd.argmax(x, axis=0)):
        x.grad[:] = 7
        with autograd.record():
            y = function(x)
        y.backward()
        assert x.grad.asnumpy().tolist() == [0, 0]


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("settings", [{}, {"axis": 1}, {"axis": 0, "ddof": 1, "keepdims": True}])
def test_the_spread_of_equal_elements_has_a_gradient_of_zeros(hybridize, settings):
    class Spread(HybridBlock):
        def hybrid_forward(self, F, x):
            return F.np.std(x, **settings)

    net = Spread()
    net.hybridize(hybridize)
    x = nd.full((2, 3), 0.75, dtype="float64").as_np_ndarray()
    x.attach_grad()
    with autograd.record():
        y = net(x)
        (slope,) = autograd.grad([y], [x], create_graph=True)
        total = (slope * slope).sum()
    total.backward()
    assert not slope.asnumpy().any() and not x.grad.asnumpy().any()


def test_a_loop_that_might_run_for_long_keeps_nothing_for_each_iteration():
    case = next(c for c in samples.cases("_contrib_ROIAlign") if c.attrs.get("sample_ratio", -1) <= 0)
    computation = of_operator(
        registry.get(case.operator), registry.get(case.operator).parse(case.attrs), case.inputs, False
    )
    gradient = computation.backward((0,), (0,)).computation.graph
    most = max(v.type.size for op in gradient.ops for v in (*op.operands, *op.results))
    assert most < 10_000
