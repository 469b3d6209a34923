"""The operator that docs/development.md shows, with its samples, passes what every operator must."""

import re
from types import ModuleType

import pytest

from gluonjit.operators.registry import OPERATORS
from gluonjit.runtime.compiler import compile_graph

from . import samples, samples_elementwise, test_documentation, test_registry
from .answers import Program, graph_of
from .running import run_case


@pytest.fixture
def operator(root):
    """Declares the operator, and its samples, as its file and the family's file would; takes both back."""
    blocks = re.findall(r"```python\n(.*?)```", (root / "docs" / "development.md").read_text(), re.S)
    code, tests = (next(text for text in blocks if start in text) for start in ("@operator(", "@sample("))
    module = ModuleType("gluonjit.operators.scaled_relu")
    samples.operators()  # all families are loaded now
    try:
        exec(compile(code, "docs/development.md", "exec"), module.__dict__)
        assert not set(re.findall(r"^def (\w+)", tests, re.M)) & set(vars(samples_elementwise))  # ruff refuses that
        exec(compile(tests, "docs/development.md", "exec"), {**vars(samples), "__name__": "samples_elementwise"})
        yield "scaled_relu"
    finally:
        OPERATORS.pop("scaled_relu", None)
        samples.SAMPLES.pop("scaled_relu", None)


def test_it_passes(operator):
    cases = samples.cases(operator)
    assert len({str(case) for case in cases}) == 5
    test_registry.test_declaration(operator)
    test_registry.agree_on_integers(operator)
    test_documentation.test_every_attribute_is_documented()
    test_documentation.test_every_operator_has_shapes_and_an_example()
    traced, inputs = graph_of(cases)
    outputs, _ = compile_graph(traced).run(inputs)
    for case, got in zip(cases, Program(cases, traced).by_case(outputs), strict=True):
        test_registry.agree(operator, case, got, run_case(case))
