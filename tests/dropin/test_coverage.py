"""`gluonjit coverage` and `ops --missing`: what is found in programs and graphs, and what of it is missing."""

import json

import pytest

from gluonjit.language import mxnet_names
from gluonjit.tools.cli import main
from gluonjit.tools.cli.coverage import missing_name
from gluonjit.tools.mxnet_usage import Use, in_python, in_symbol

PROGRAM = """
import mxnet as mx
import mxnet.ndarray as F
from mxnet import gluon, nd as arrays
from mxnet.gluon import nn, rnn as recurrent
import torch.nn.functional as TF
relu = mx.nd.relu
class Net(gluon.HybridBlock):
    def __init__(self):
        self.body = nn.Dense(3)
        self.cell = recurrent.LSTM(4)
    def hybrid_forward(self, F, x, nn):
        y = F.contrib.box_nms(F.relu(x))
        nn.not_a_layer(TF.relu(y))
        return getattr(F, "concat")(y, relu(x))
def plain(x):
    f = lambda F: F.tanh(x)
    return F.exp(x), arrays.ones(2), mx.nd.NDArray.asnumpy
"""

FOUND = [
    ("ndarray", 3),
    ("gluon", 4),
    ("nd", 4),
    ("gluon.nn", 5),
    ("gluon.rnn", 5),
    ("nd.relu", 7),
    ("gluon.HybridBlock", 8),
    ("gluon.nn.Dense", 10),
    ("gluon.rnn.LSTM", 11),
    ("F.contrib.box_nms", 13),
    ("F.relu", 13),
    ("F.concat", 15),
    ("F.tanh", 17),
    ("nd.NDArray.asnumpy", 18),
    ("nd.ones", 18),
    ("ndarray.exp", 18),
]


def test_uses_in_a_program():
    assert in_python(PROGRAM, "net.py") == [Use(*use) for use in FOUND]
    assert in_python(PROGRAM.replace("mxnet", "gluonjit"), "net.py") == [Use(*use) for use in FOUND]


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("from mxnet.gluon.nn import *\nx = Dense(2)\nBlob(3)", [("gluon.nn.Dense", 2)]),
        ("import mxnet\nF = mxnet.nd if a else mxnet.sym\nF.relu", [("F.relu", 3), ("nd", 2), ("sym", 2)]),
        ("import mxnet as mx\nmx = other\nmx.nd.relu", []),
        ("import mxnet as mx\nfor mx in range(3):\n    mx.nd", []),
        ("import mxnet as mx\ndef f(mx):\n    return mx.nd", []),
        ("import mxnet as mx\nclass A:\n    mx = 1\n    def f(self):\n        return mx.nd.relu", [("nd.relu", 5)]),
        ("from .mxnet import nd\nnd.relu", []),
        (
            "import mxnet as mx\n@mx.init.register\nclass A(mx.init.Zero): pass",
            [("init.Zero", 3), ("init.register", 2)],
        ),
        (
            "from mxnet import nd\nclass A:\n def _init_impl(self): pass\n"
            " def f(self, p):\n  p._init_impl(p._init_grad, p._own)",
            [("nd", 1), ("x._init_grad", 5)],
        ),
        (
            "class A:\n def g(self):\n  return self.mx.nd.ones\n def __init__(self):\n  import mxnet as m\n"
            "  self.mx = m\nclass B:\n def g(self):\n  return self.mx.nd",
            [("nd.ones", 3)],
        ),
        (
            "from mxnet import np\nmore = ('lcm',)\nfor name in other + ['exp'] + more:\n register(getattr(np, name))",
            [("np", 1), ("np.exp", 4), ("np.lcm", 4)],
        ),
        ("import mxnet as mx\ndef f(x=mx.cpu()) -> mx.nd.NDArray: pass", [("cpu", 2), ("nd.NDArray", 2)]),
    ],
)
def test_scopes(program, found):
    assert sorted(in_python(program, "x.py")) == sorted(Use(*use) for use in found)


def graph(*names):
    nodes = [{"op": name, "name": f"n{k}", "inputs": []} for k, name in enumerate(names)]
    return {"nodes": nodes, "arg_nodes": [], "heads": [[0, 0, 0]]}


def test_uses_in_a_graph():
    text = json.dumps(graph("null", "relu", "Blob"), indent=1)
    lines = [k for k, line in enumerate(text.splitlines(), 1) if '"op"' in line]
    assert in_symbol(text) == [Use("relu", lines[1]), Use("Blob", lines[2])]
    assert in_symbol('{"a": 1}') is None and in_symbol("[]") is None and in_symbol("no json") is None


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("gluon.nn.Dense", None),
        ("gluon.nn.Dense.hybrid_forward", None),
        ("gluon.nn.Dense.nonsense", "gluon.nn.Dense.nonsense"),
        ("F.relu", None),
        ("F.arange_like", "F.arange_like"),
        ("F.contrib.arange_like", None),
        ("rtc.CudaModule.get_kernel", "rtc.CudaModule"),
        ("np.add", None),
        ("np.lcm", None),
        ("np.random.uniform", None),
        ("np.random.nonsense", "np.random.nonsense"),
        ("F.npx.relu", None),
        ("F.np.mean", None),
        ("F.np.nonsense", "F.np.nonsense"),
        ("op _npi_add", None),
        ("gluon.block.HybridBlock", None),
        ("nonsense.deep.down", "nonsense"),
        ("op Convolution", None),
        ("x._ctx_map", None),
        ("x._init_grad", "x._init_grad"),
        ("op nonsense", "op nonsense"),
    ],
)
def test_missing_names(name, missing):
    assert missing_name(name) == missing


def test_report(tmp_path, capsys):
    (tmp_path / "a.py").write_text(
        "import mxnet as mx\nmx.rtc.CudaModule\nmx.nd.contrib.fft(1)\nmx.rtc.CudaModule\nmx.blob\n"
    )
    (tmp_path / "b.py").write_text("print 'Python 2'\n")
    (tmp_path / "unrelated.py").write_text("import os\n")
    (tmp_path / "net-symbol.json").write_text(json.dumps(graph("Blob", "relu")))
    (tmp_path / "other.json").write_text("{}")
    assert main(["coverage", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    places = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.startswith("  ")}
    assert places["rtc.CudaModule"] == ["2", f"{tmp_path}/a.py:2,", f"{tmp_path}/a.py:4"]
    assert places["nd.contrib.fft"] == ["1", f"{tmp_path}/a.py:3"]
    assert places["Blob"] == ["1", f"{tmp_path}/net-symbol.json:1"]
    assert "blob" in places and f"{tmp_path}/b.py:1: not read" in out
    order = [out.index(title) for title in ("Operators that are missing", "Names that are missing", "public interface")]
    assert order == sorted(order)
    assert out.splitlines()[-1] == "2 files use names of MXNet in 6 places: 2 operators and 1 other name are missing"
    program = tmp_path / "ported.py"
    program.write_text("import gluonjit as mx\nmx.blob\n")
    assert main(["coverage", str(program)]) == 0
    out = capsys.readouterr().out
    assert "blob" in out and out.endswith(
        "1 file uses names of MXNet in 1 place: 0 operators and 0 other names are missing\n"
    )


def test_names_that_another_file_lists(tmp_path, capsys):
    (tmp_path / "ops.py").write_text('NAMES = ["relu", "blob"]\nMORE = {"exp": 1, "lump": 2}\n')
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text('ACTS = ("tanh", "clot")\n')
    program = """import mxnet as mx
import ops as o
from ops import NAMES
from . import ACTS
fs = [getattr(mx.nd, n) for n in NAMES] + [getattr(mx.nd, n) for n in ACTS]
gs = {n: getattr(mx.sym, n) for n in o.MORE}
def f(x, kind):
    return getattr(mx.nd, kind)(x)
"""
    (tmp_path / "package" / "net.py").write_text(program)
    main(["coverage", str(tmp_path)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    place = str(tmp_path / "package" / "net.py")
    for name, line in (("nd.blob", 5), ("nd.clot", 5), ("sym.lump", 6)):
        assert [name, "1", f"{place}:{line}"] in lines
    assert ["getattr(nd,", "…)", "1", f"{place}:8"] in lines and not any("relu" in line for line in lines)


def test_only_some_places_unless_all(tmp_path, capsys):
    (tmp_path / "a.py").write_text("import mxnet as mx\n" + "mx.rtc\n" * 9)
    main(["coverage", str(tmp_path)])
    assert "a.py:4, and 6 more" in capsys.readouterr().out
    main(["coverage", "--all", str(tmp_path)])
    assert "a.py:10" in capsys.readouterr().out


def test_a_graph_that_cannot_be_read_for_another_reason(tmp_path, capsys):
    broken = graph("Convolution")
    (tmp_path / "net.json").write_text(json.dumps(broken))
    assert main(["coverage", str(tmp_path / "net.json")]) == 0
    assert "Required parameter kernel" in capsys.readouterr().out


def test_no_such_path(capsys):
    assert main(["coverage", "/nowhere"]) == 1
    assert capsys.readouterr().err == "error: there is no file or folder /nowhere\n"


def test_missing_operators(capsys):
    from gluonjit.operators import registry

    assert main(["ops", "--missing"]) == 0
    *listed, summary = capsys.readouterr().out.splitlines()
    missing = {line.split()[0] for line in listed if ": without" not in line}
    every = mxnet_names.operators()
    assert missing and missing <= set(every)
    for name, aliases in every.items():
        assert (name in missing) == (not any(n in registry.OPERATORS for n in (name, *aliases)))
    assert summary == f"{len(missing)} of {len(every)} operators of MXNet 1.9.1 are missing"


# The lists


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("gluon.nn.Dense", True),
        ("nd.relu", True),
        ("sym.contrib.box_nms", True),
        ("nd.box_nms", False),
        ("ndarray.random.uniform", True),
        ("init.Xavier", True),
        ("viz.plot_network", True),
        ("np.add", True),
        ("nd.npx.relu", True),
        ("np.nonsense", False),
        ("gluon.data.vision.transforms.ToTensor", True),
        ("gluon.nn.Blob", False),
        ("metric.F1", True),
        ("MXNetError", True),
        ("gluon", True),
        ("kv.create", True),
    ],
)
def test_what_mxnet_has(name, there):
    assert mxnet_names.has(name) is there


def test_the_lists_are_whole():
    assert len(mxnet_names.operators()) > 400 and len(mxnet_names.modules()) > 120
    assert mxnet_names.operators()["Cast"] == ("cast",)
