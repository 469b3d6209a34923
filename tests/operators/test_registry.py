"""Every operator, however it is run, gives one answer; and what is declared about it is true."""

import numpy as np
import pytest

from gluonjit.base import MXNetError
from gluonjit.ir import opdef
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import IRError, dtype_of, type_of
from gluonjit.operators import registry
from gluonjit.operators.attributes import boolean, bounds, dtype, integer, number, optional, shape
from gluonjit.operators.control.loops_and_branches import ControlFlow
from gluonjit.operators.registry import OPERATORS, OperatorError
from gluonjit.passes import run_passes
from support.compare import difference, tolerance

from . import samples, variants
from .answers import RAISING, TRACEABLE, compiled, compiled_cases, graphs
from .running import graph_of, run_case, run_eager, with_key

# Operators that hold graphs are tested with these, in frontend/test_control_flow.py.
DECLARED = sorted({op.name for op in OPERATORS.values() if not isinstance(op, ControlFlow)})


def agree(operator, case, got, expected):
    assert len(got) == len(expected)
    for k, (a, b) in enumerate(zip(got, expected)):
        a = np.asarray(a)
        assert a.dtype == b.dtype and a.shape == b.shape, f"{case}: result {k}"
        assert difference(a, b) <= tolerance(dtype_of(b)), f"{case} {case.attrs}: result {k}\n{a}\n{b}"


def names_in(graph):
    return {op.name for op in graph.ops} | {n for op in graph.ops for region in op.regions for n in names_in(region)}


@pytest.mark.parametrize("operator", TRACEABLE)
def test_graph_equals_eager_and_does_not_call_python(operator):
    """What it is made of has kernels, none of which leaves native code; `compiled` looks at the code itself."""
    used = set()
    for case in samples.cases(operator):
        traced, expanded = graphs(case)
        outputs, _ = evaluate(expanded, with_key(expanded, case.inputs))
        agree(operator, case, outputs, run_case(case))
        assert [type_of(y) for y in outputs] == [v.type for v in traced.outputs]
        used |= names_in(expanded)
    found = {name for name in used if opdef.lookup(name).level == "host"}
    assert ("host_call" in found) == bool(registry.get(operator).host)
    assert "check_index" not in found or operator in RAISING
    agree_on_integers(operator)


def agree_on_integers(operator):
    """The first case of floats, with int32 instead: the imperative call and the graph give the same, or refuse both."""
    case = next((c for case in samples.cases(operator) if (c := variants.vary(case, "int32"))), None)
    if case is None:
        return
    refusals, answers = [], []
    for run in (run_case, evaluated):
        try:
            answers.append(run(case))
        except IRError as e:
            refusals.append(f"{run.__name__} refuses: {e}")
    if answers:
        assert not refusals, f"{case} with int32 gives {answers}, but {refusals}"
        agree(operator, case, answers[1], answers[0])


def evaluated(case):
    expanded = run_passes(graph_of([case])[0], "expand")
    return evaluate(expanded, with_key(expanded, case.inputs))[0]


@pytest.mark.parametrize("operator", TRACEABLE)
def test_compiled_equals_eager(operator):
    """As they are, and once more with NaN and with infinities in them; `make soak` compiles every case."""
    found = compiled(operator)
    assert len(found) == 3 * len(compiled_cases()[operator])
    for case, got in found:
        agree(operator, case, got, run_case(case))


@pytest.mark.parametrize("operator", samples.operators())
def test_declaration(operator):
    op = registry.get(operator)
    assert op.doc
    for case in samples.cases(operator):
        attrs = op.parse(case.attrs)
        # JSON files hold strings: they mean what the Python values mean.
        assert op.parse({k: str(v) for k, v in case.attrs.items()}) == attrs
        assert len(op.input_names(attrs)) == len(case.inputs)
        results = run_case(case)
        names, visible = op.outputs(attrs), op.visible(attrs) if op.visible else len(op.outputs(attrs))
        assert visible <= len(results) <= len(names)
        shapes = [tuple(x.shape) for x in case.inputs]
        if op.same_shape:
            assert {y.shape for y in results[:visible]} <= set(shapes)
        if op.complete and all(shapes) and not any(0 in s for s in shapes):
            # Knowing the data alone is enough, and knowing all changes nothing.
            assert op.complete(attrs, shapes) == shapes
        if op.infer_inputs:
            assert op.infer_inputs(attrs, shapes, [y.shape for y in results]) == shapes


def test_wrong_number_of_inputs():
    x = np.ones((2, 3), np.float32)
    with pytest.raises(MXNetError, match="Operator FullyConnected expects 3 inputs, but got 2 instead"):
        run_eager("FullyConnected", [x, x], {"num_hidden": 2})


@pytest.mark.parametrize(
    ("operator", "attrs", "message"),
    [
        ("Activation", {"act_type": "foo"}, "Invalid Input: 'foo', valid values are: {'relu', 'sigmoid', 'softrelu'"),
        (
            "FullyConnected",
            {"no_bias": True},
            "Required parameter num_hidden of int is not presented, in operator",
        ),
        ("FullyConnected", {"num_hidden": "abc"}, "Invalid Parameter format for num_hidden expect int but value='abc'"),
        ("FullyConnected", {"num_hidden": 0}, "value 0 for Parameter num_hidden should be greater equal to 1"),
        ("Dropout", {"p": 1.5}, r"value 1.5 for Parameter p exceed bound \[0,1\]"),
        ("Dropout", {"rate": 0.5}, "Cannot find argument 'rate', Possible Arguments: p, mode, axes"),
        ("Convolution", {"kernel": 3, "num_filter": 1, "num_filters": 1}, "did you mean 'num_filter'"),
    ],
)
def test_attribute_errors(operator, attrs, message):
    with pytest.raises(MXNetError, match=message) as e:
        registry.get(operator).parse(attrs)
    assert isinstance(e.value, IRError), "graph builders catch it, too"


def test_unknown_operator():
    with pytest.raises(MXNetError, match="Operator Convolutoin is not registered; did you mean 'Convolution'"):
        registry.get("Convolutoin")


@pytest.mark.parametrize("name", ["b", "data", "scales"])
def test_attributes_that_the_function_does_not_take(name):
    with pytest.raises(MXNetError, match=f"'not_taken' has attributes .* cannot take by name: {name}$"):
        registry.operator("not_taken", attrs={name: number(1.0)})(lambda b, data, *, scale: data)
    assert "not_taken" not in OPERATORS


def test_declared_twice():
    with pytest.raises((MXNetError, IRError), match="declared twice"):
        registry.operator("relu")(lambda b, data: data)


@pytest.mark.parametrize(
    ("attr", "value", "expected"),
    [
        (integer(), "3", 3),
        (integer(), "7L", 7),
        (integer(), True, 1),
        (integer(), np.int64(4), 4),
        (number(), "1e-05", 1e-5),
        (number(), "-inf", -np.inf),
        (boolean(), "True", True),
        (boolean(), "0", False),
        (boolean(), 1, True),
        (shape(), "(3, 3)", (3, 3)),
        (shape(), "[3,3]", (3, 3)),
        (shape(), "( 3, 3L)", (3, 3)),
        (shape(), "(2,)", (2,)),
        (shape(), 5, (5,)),
        (shape(), "()", ()),
        (bounds(), "(1, None)", (1, None)),
        (optional(integer()), "None", None),
        (optional(number()), None, None),
        (dtype(), "float16", dtype_of(np.zeros(1, np.float16))),
        (dtype(), np.int32, dtype_of(np.zeros(1, np.int32))),
    ],
)
def test_attribute_spellings(attr, value, expected):
    parsed = attr.parse(value)
    assert parsed == expected and type(parsed) is type(expected)


@pytest.mark.parametrize(
    ("attr", "value"),
    [(integer(), 1.5), (integer(), "x"), (boolean(), "yes"), (shape(), "(a,)"), (dtype(), "int16"), (number(), None)],
)
def test_attribute_nonsense(attr, value):
    with pytest.raises((ValueError, TypeError)):
        attr.parse(value)


def test_parsing_remembers_without_confusing_values():
    op = OPERATORS["_plus_scalar"]
    zeros = [np.copysign(1, op.parse({"scalar": s})["scalar"]) for s in (0.0, -0.0, 0.0)]
    assert zeros == [1, -1, 1]
    first = op.parse({"scalar": 1})
    first["scalar"] = 99
    assert op.parse({"scalar": 1})["scalar"] == 1.0, "a caller's changes stay with the caller"
    assert op.parse({"scalar": np.array(3.0)})["scalar"] == 3.0, "values that cannot be remembered are parsed as well"


def test_operator_error_is_both():
    assert issubclass(OperatorError, MXNetError) and issubclass(OperatorError, IRError)
