"""Attributes of operators in graphs from files: whatever they say, one error names node, operator and attribute."""

import json
import random
import warnings

import pytest
from operators import samples
from operators.samples_custom import define

import gluonjit as mx
from gluonjit.base import CheckpointError, MXNetError
from gluonjit.ir.types import F32, TensorType, type_of
from gluonjit.operators import registry
from gluonjit.operators.control.loops_and_branches import ControlFlow
from gluonjit.passes import run_passes
from gluonjit.symbol.graph import post_order
from gluonjit.symbol.lower import lower
from support.soak import tries

define(mx)

ROUNDS = tries(500)

VALUES = (
    "None",
    "",
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "7",
    "-7",
    "True",
    "x",
    "0.5",
    "1e30",
    "1e400",
    "1_0",
    "٣",
    "\x1b",
)
VALUES += ("9" * 5000, *(str(n) for n in (1 << 31, -1 << 31, 1 << 63, 1 << 70)))
VALUES += (
    "()",
    "(0,)",
    "(-1,)",
    "(-5, -5)",
    "(None,)",
    "(None, None)",
    "(٣,)",
    "(nan,)",
    "(inf, inf)",
    "((1, 2), (3,))",
)
VALUES += ("(1000000000, 1000000000)", "(100000, 100000)", "(1, 2, 3, 4, 5, 6, 7, 8, 9)", "[", "{'a': 1}", "('a',)")
VALUES += ("float16", "int8", "bool")


def graph(operator, attrs, inputs=1):
    nodes = [{"op": "null", "name": f"x{k}", "inputs": []} for k in range(inputs)]
    edges = [[k, 0, 0] for k in range(inputs)]
    nodes.append({"op": operator, "name": "odd", "attrs": attrs, "inputs": edges})
    version = {"mxnet_version": ["int", 10901]}
    return json.dumps({"nodes": nodes, "arg_nodes": list(range(inputs)), "heads": [[inputs, 0, 0]], "attrs": version})


def compile_some(text, arrays):
    """Goes with a graph as far as computing has not begun."""
    symbol = mx.sym.load_json(text)
    symbol.infer_shape(**{name: x.shape for name, x in arrays.items()})
    symbol.infer_type(**{name: x.dtype for name, x in arrays.items()})
    order = post_order(symbol._heads)
    inputs = [((node, 0), type_of(arrays[node.name])) for node in order if node.op is None]
    run_passes(lower("odd", inputs, order, symbol._heads, training=False), "expand, legalize-broadcast")


@pytest.mark.parametrize(
    ("operator", "attrs", "message"),
    [
        ("Reshape", {"shape": "None"}, "Invalid Parameter format for shape expect Shape.tuple. but value='None'"),
        ("Reshape", {"shape": "(1_0,)"}, "Invalid Parameter format for shape"),
        ("sum", {"axes": "1"}, "Cannot find argument 'axes'"),
        ("sum", {"axis": "(٣,)"}, "Invalid Parameter format for axis"),
        ("sum", {"axis": str(1 << 63)}, "Invalid Parameter format for axis expect Shape or None"),
        ("clip", {"a_min": "٣", "a_max": "4"}, "Invalid Parameter format for a_min expect float"),
        ("_npi_pad", {"pad_width": ""}, "Invalid Parameter format for pad_width"),
        ("_npi_pad", {"pad_width": "((1, 2, 3), (1, 2))"}, "Invalid Parameter format for pad_width"),
        ("multi_sum_sq", {"num_arrays": "7"}, "1 inputs of multi_sum_sq; expected 7, which num_arrays says"),
        ("sum", {"axis": "9" * 5000}, "value='9{97}[.]{3}'"),
    ],
)
def test_refused_when_it_is_read(operator, attrs, message):
    with pytest.raises(CheckpointError, match=f"(?s)^<string>: node 1 .'odd'.: .*{message}") as e:
        mx.sym.load_json(graph(operator, attrs))
    assert operator in str(e.value) and len(str(e.value)) < 600


@pytest.mark.parametrize(
    ("operator", "attrs", "shape", "message"),
    [
        (
            "Crop",
            {"num_args": "1", "offset": "(0,)", "h_w": "(2, 2)"},
            (1, 1, 4, 4),
            "offset .0. must have two entries",
        ),
        ("SequenceReverse", {"axis": "7"}, (2, 3), "expects axis to be 0 or 1"),
        ("_contrib_BilinearResize2D", {"height": str(1 << 31)}, (1, 1, 4, 4), "a table of 2147483648 positions"),
        ("_contrib_BilinearResize2D", {"scale_height": "nan", "scale_width": "2"}, (1, 1, 4, 4), "4 pixels times nan"),
        ("_contrib_AdaptiveAvgPooling2D", {"output_size": str(1 << 62)}, (1, 1, 4, 4), "a table of"),
        ("im2col", {"kernel": "(1, 1)", "pad": "(100000, 100000)"}, (1, 1, 4, 4), "a table of 1 x 40001"),
        ("_linalg_maketrian", {"offset": str(1 << 31)}, (3,), "a table of"),
        ("_histogram", {"bin_cnt": str(1 << 40), "range": "(0, 1)"}, (3,), "a table of"),
    ],
)
def test_refused_when_it_is_compiled(operator, attrs, shape, message):
    symbol = mx.sym.load_json(graph(operator, attrs))
    with pytest.raises(MXNetError, match=f"Error in operator odd: {operator}.*{message}"):
        symbol.infer_shape(x0=shape)


def test_what_an_expansion_did_not_foresee():
    op = registry.get("_npi_around")
    with pytest.raises(MXNetError, match="cannot be computed with decimals=400: OverflowError"):
        op.infer([TensorType(F32, (3,))], op.parse({"decimals": 400}))


def test_any_value_of_any_attribute():
    """One error that names node and operator; in little memory, and for what is refused at once, the attribute."""
    rng = random.Random(0)
    refused = 0
    names = [n for n in samples.operators() if n != "Custom" and not isinstance(registry.get(n), ControlFlow)]
    operators = [n for n in names if registry.get(n).attrs]
    for _ in range(ROUNDS):
        name = rng.choice(operators)
        case = rng.choice(list(samples.cases(name)))
        key, value = rng.choice(list(registry.get(name).attrs)), rng.choice(VALUES)
        attrs = {k: str(v) for k, v in case.attrs.items()} | {key: value}
        what = f"{name} {attrs}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that shapes stay open
                text = graph(name, attrs, len(case.inputs))
                compile_some(text, {f"x{k}": x for k, x in enumerate(case.inputs)})
        except MXNetError as e:
            refused += 1
            message = str(e)
            assert "odd" in message, what
            assert name in message or registry.get(name).name in message, what
            assert len(message) < 2000, what
        except Exception as e:
            raise AssertionError(f"{what}: {type(e).__name__}") from e
    assert refused > ROUNDS // 10


def test_one_name_for_an_argument_and_a_state():
    variables = [mx.sym.var(name) for name in ("x", "gamma", "beta", "gamma", "var")]
    symbol = mx.sym.load_json(mx.sym.BatchNorm(*variables, name="norm").tojson())
    with pytest.raises(MXNetError, match="two variables of the graph are called 'gamma': an argument and an auxiliary"):
        mx.gluon.SymbolBlock(symbol, [variables[0]])


@pytest.mark.parametrize(("name", "fault"), [("a\0b", "a NUL character"), ("\ud800", "a surrogate without its pair")])
def test_names_that_no_file_of_parameters_has(name, fault):
    text = json.loads(graph("relu", {}))
    text["nodes"][0]["name"] = name
    with pytest.raises(CheckpointError, match=f"node 0: name: .*, which has {fault}; expected none"):
        mx.sym.load_json(json.dumps(text))
