"""Gradients and moving statistics that MXNet recorded of one step in train mode come out here: in every way of running.

`train.npz` has, of each model, the outputs (`out<k>`) and the gradients given of them (`headgrad<k>`); the gradients by
inputs (`grad_in<k>`) and parameters (`grad:<name>`); and the states afterwards (`aux_after:<name>`).
"""

import functools

import numpy as np
import pytest
from gluon.reference_models import CASES

import gluonjit as mx
from support.compare import assert_close
from support.soak import SOAK

from .cases import NAMES, Case, invoked

CANCELLED = {
    "batchnorm": ("grad:bnblock0_batchnorm0_gamma", "grad:bnblock0_batchnorm0_beta"),
    "layernorm": ("grad:hybridsequential0_layernorm0_gamma", "grad:hybridsequential0_layernorm0_beta"),
}
"""Scales and shifts that the next normalization takes away again. In float64 these gradients are below 3e-15 for beta,
and for gamma, of which epsilon leaves something, 0.04 and 0.02; what is summed is about 10. In float32, MXNet is 3.7e-6
off that at most, and each way of running here 2.3e-6. So the model's largest gradient stands for max|y|."""

TRAINED = [name for name in NAMES if Case(name).meta["train"]]

SELU_SCALE = 1.0507009873554805


class Recorded:
    """What MXNet recorded of a case, by name."""

    def __init__(self, case):
        with np.load(case.path("train.npz")) as arrays:
            self.arrays = dict(arrays)
        self.case = case
        names = {f"grad_in{k}": name for k, name in enumerate(case.meta["input_names"])}
        self.wrt = {
            names.get(key) or key.partition(":")[2]: key for key in self.arrays if key.startswith(("grad_in", "grad:"))
        }
        """The variables that there are gradients by, and what each is recorded as."""
        self.states = {key.partition(":")[2]: key for key in self.arrays if key.startswith("aux_after:")}

    @property
    def heads(self):
        return [mx.nd.array(self.arrays[f"headgrad{k}"]) for k in range(len(self.case.meta["out_shapes"]))]

    def expected(self, key):
        value = self.arrays[key]
        if self.case.name == "activations" and key == "grad_in0":
            # Below 0, selu is y = scale alpha (exp(x) - 1) and its derivative y + scale alpha. MXNet takes
            # scale (y + alpha), see docs/differences.md.
            selu = self.arrays["out3"].astype(np.float64)
            wrong = self.arrays["headgrad3"] * (SELU_SCALE - 1) * np.minimum(selu, 0)
            value = (value - wrong).astype(np.float32)
        return value

    def check(self, outputs, values):
        """Compares outputs, and gradients and states by the names of variables, with MXNet's."""
        largest = max(float(np.abs(self.arrays[key]).max()) for key in self.wrt.values())
        tol = self.case.meta["tol"]
        for k, got in enumerate(outputs):
            assert_close(got.asnumpy(), self.expected(f"out{k}"), f"out{k}", tol)
        assert values.keys() == self.wrt.keys() | self.states.keys()
        for name, key in {**self.wrt, **self.states}.items():
            got, expected = values[name].asnumpy(), self.expected(key)
            if key in CANCELLED.get(self.case.name, ()):
                assert got.shape == expected.shape
                np.testing.assert_allclose(got, expected, rtol=0, atol=tol * largest, err_msg=key)
            else:
                assert_close(got, expected, key, tol)


def of_gluon(case, recorded, hybridize):
    """The model as Gluon code."""
    with mx.name.NameManager():
        net = CASES[case.name]()
    if case.meta["params"]:
        net.load_parameters(case.path("structured.params"))
    if hybridize:
        net.hybridize()
    inputs = dict(zip(case.meta["input_names"], [mx.nd.array(x, dtype=x.dtype) for x in case.inputs]))
    for name in recorded.wrt.keys() & inputs.keys():
        inputs[name].attach_grad()
    with mx.autograd.record():
        outputs = net(*inputs.values())
    outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    mx.autograd.backward(outputs, recorded.heads)
    params = net.collect_params()
    values = {name: x.grad for name, x in inputs.items() if x.grad is not None}
    values |= {name: p.grad() for name, p in params.items() if p.grad_req != "null"}
    return outputs, values | {name: params[name].data() for name in recorded.states}


imperative = functools.partial(of_gluon, hybridize=False)
hybridized = functools.partial(of_gluon, hybridize=True)


def exported(case, recorded):
    """The exported graph, every node as a call of `mx.nd`."""
    arrays = case.arrays
    for name in recorded.wrt:
        arrays[name].attach_grad()
    with mx.autograd.record():
        outputs = invoked(case.symbol, arrays)
    mx.autograd.backward(outputs, recorded.heads)
    return outputs, {name: arrays[name].grad for name in recorded.wrt} | {
        name: arrays[name] for name in recorded.states
    }


def bound(case, recorded):
    """The exported graph, compiled as a whole."""
    symbol, arrays = case.symbol, case.arrays
    gradients = {name: mx.nd.zeros(arrays[name].shape) for name in recorded.wrt}
    aux = {name: arrays[name] for name in symbol.list_auxiliary_states()}
    args = {name: arrays[name] for name in symbol.list_arguments()}
    executor = symbol.bind(mx.cpu(), args, gradients, aux_states=aux)
    outputs = executor.forward(is_train=True)
    executor.backward(recorded.heads)
    return outputs, gradients | {name: aux[name] for name in recorded.states}


WAYS = {"imperative": imperative, "hybridized": hybridized, "exported": exported, "bound": bound}


def ways_of(name):
    """Layers and their exported graph compile to much the same: the latter is bound by `make soak` where there are the
    former."""
    if name not in CASES:
        return ("exported", "bound")
    return tuple(WAYS) if SOAK > 1 else ("imperative", "hybridized", "exported")


@pytest.mark.parametrize(("name", "way"), [(name, way) for name in TRAINED for way in ways_of(name)])
def test_step(name, way):
    case = Case(name)
    recorded = Recorded(case)
    recorded.check(*WAYS[way](case, recorded))


def test_every_gradient_is_compared():
    found = [Recorded(Case(name)) for name in TRAINED]
    assert len(found) == 28
    assert sum(len(each.wrt) for each in found) == 163
    assert sum(len(each.states) for each in found) == 16
