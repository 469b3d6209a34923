"""Commands on models in files: `inspect`, `run`, `bench`, `convert`, `dump`, as a user types them."""

import json
from pathlib import Path

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.gluon import nn
from gluonjit.tools.cli import main
from support.compare import assert_close

X = np.linspace(-1, 1, 2 * 3 * 8 * 8, dtype="f4").reshape(2, 3, 8, 8)


@pytest.fixture
def expected(tmp_path, monkeypatch):
    """A model in the files `net-symbol.json` and `net-0000.params`, its input in `x.npy`; gives its output."""
    monkeypatch.chdir(tmp_path)
    with mx.name.NameManager():
        net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(4, 3, activation="relu"), nn.BatchNorm(), nn.Dense(5))
    net.initialize(mx.init.Xavier())
    net.hybridize(backend="numpy")
    out = net(mx.nd.array(X))
    net.export("net")
    np.save("x.npy", X)
    return out.asnumpy()


@pytest.fixture
def run(expected, capsys):
    """Runs a command; gives (status, stdout, stderr)."""

    def run(*arguments):
        try:
            status = main(arguments)
        except SystemExit as e:
            status = e.code
        out, err = capsys.readouterr()
        return status, out, err

    return run


FILES = ("net-symbol.json", "net-0000.params")


def test_run(run, expected):
    status, out, err = run("run", *FILES, "--input", "data=x.npy", "--output", "y.npz", "--check")
    assert (status, err) == (0, "")
    assert (
        out.startswith("y.npz: 1 array, 40 B\nnet_dense0_fwd_output: f32[2,5], from ")
        and "relative difference to the reference" in out
    )
    with np.load("y.npz") as outputs:
        assert_close(outputs["net_dense0_fwd_output"], expected)


def test_run_writes_its_file_though_nobody_reads_what_it_prints(run, expected, monkeypatch):
    def closed(*_):
        raise SystemExit(0)  # what the command line makes of a broken pipe

    monkeypatch.setattr("builtins.print", closed)
    run("run", *FILES, "--input", "data=x.npy", "--output", "y.npz")
    with np.load("y.npz") as outputs:
        assert_close(outputs["net_dense0_fwd_output"], expected)


@pytest.mark.parametrize("given", ["x.npy", "x.npz", "data=x.npz"])
def test_ways_to_give_the_input(run, expected, given):
    np.savez("x.npz", data=X)
    status, _, err = run("run", *FILES, "--input", given, "--output", "y.npy")
    assert (status, err) == (0, "")
    assert_close(np.load("y.npy"), expected)


def test_an_output_that_is_listed_twice(run):
    y = mx.sym.relu(mx.sym.var("data"), name="y")
    mx.sym.Group([y, y]).save("twice-symbol.json")
    assert run("run", "twice-symbol.json", "--input", "2x3", "--output", "y.npz")[0] == 0
    with np.load("y.npz") as outputs:
        assert outputs.files == ["y_output", "y_output_1"]


def test_random_input(run):
    first, second, third = (run("run", *FILES, "--input", "1x3x8x8", "--seed", seed)[1] for seed in "001")
    assert first == second != third


def test_another_element_type(run, expected):
    np.save("wide.npy", X.astype("f8"))
    status, _, err = run("run", *FILES, "--input", "wide.npy", "--output", "y.npy")
    assert (status, err) == (0, "data: f64 converted to f32\n")
    assert_close(np.load("y.npy"), expected)


def test_labels_are_filled_in(run):
    graph = mx.sym.SoftmaxOutput(mx.sym.var("data"), mx.sym.var("label"))
    graph.save("loss-symbol.json")
    status, _, err = run("run", "loss-symbol.json", "--input", "data=2x3")
    assert (status, err) == (0, "not given, and therefore 0: label: f32[2]\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", *FILES), "say what data is: --input data=1x3x224x224, or data=x.npy"),
        (("run", *FILES, "--input", "dat=x.npy"), "the graph has no input 'dat'; did you mean 'data'?"),
        (("run", *FILES, "--input", "x.npy", "--input", "x.npy"), "2 inputs are given; the graph has 1: data"),
        (("run", *FILES, "--input", "none.npy"), "cannot read none.npy: No such file or directory"),
        (("run", *FILES, "--input", "text.npy"), "text.npy: "),
        (
            ("run", *FILES, "--input", "2x4x8x8"),
            "net-symbol.json: Error in operator net_conv0_fwd: Convolution: Shape inconsistent, Provided = [4,3,3,3]",
        ),
        (("run", "net-symbol.json", "list.params", "--input", "x.npy"), "list.params holds arrays without names"),
        (
            ("run", "net-symbol.json", "less.params", "--input", "x.npy"),
            "less.params lacks net_batchnorm0_running_mean",
        ),
        (("run", "none-symbol.json", "--input", "x.npy"), "cannot read none-symbol.json"),
        (("run", "x.npy"), "x.npy: its ending is not that of a model"),
        (("dump", "model.py:net", "net-0000.params", "--input", "1x3"), "net-0000.params: a parameters' file is for"),
        (("inspect", "text.npy"), "text.npy: byte 0: this is no file of parameters"),
        (("inspect", "net-0000.params", "net-0000.params"), "net-0000.params holds parameters"),
        (("inspect", "libnet.so"), "libnet.so is a shared library: `gluonjit serve`"),
        (("run", "libnet.so", "--input", "1x3"), "libnet.so is a shared library: `gluonjit serve`"),
        (("convert", "libnet.so", "y.npz"), "libnet.so is a shared library; expected parameters"),
        (("convert", "none.params", "y.npz"), "cannot read none.params"),
        (("convert", "net-0000.params", "nowhere/y.npz"), "cannot write nowhere/y.npz"),
    ],
)
def test_mistakes_are_one_error(run, arguments, message):
    open("text.npy", "w").write("hello world, hello world, hello")
    open("libnet.so", "wb").write(b"\x7fELF" + bytes(60))
    mx.nd.save("list.params", [mx.nd.ones((1,))])
    arrays = mx.nd.load("net-0000.params")
    mx.nd.save("less.params", {name: x for name, x in arrays.items() if name.startswith("arg:")})
    status, out, err = run(*arguments)
    assert status == 1 and out == ""
    assert err.startswith(f"error: {message}") and "Traceback" not in err


def test_inspect(run):
    status, out, err = run("inspect", *FILES, "--input", "data=2x3x8x8")
    assert (status, err) == (0, "")
    for line in (
        "net-symbol.json: written by MXNet 1.9.1, 13 nodes",
        "  data: f32[2,3,8,8]",
        "  net_dense0_fwd_output: f32[2,5]",
        "operators: 4",
        "  Convolution                          1    15.84 k FLOPs",  # 2 * 2*4*6*6 * 27, and the bias
        "  FullyConnected                       1     2.89 k FLOPs",  # 2 * 2*5*144, and the bias
        "parameters: 8 arrays (8 f32), 853 elements, 3.3 KiB",
        "  net_dense0_weight                        f32[5,144]",
        "FLOPs: ",
        "unsupported: nothing",
    ):
        assert line in out, out


def test_a_transposed_convolution_counts_no_inserted_zeros(run):
    Path("up.py").write_text(
        "from gluonjit.gluon import nn\n"
        "net = nn.Conv2DTranspose(8, 4, strides=2, padding=1, in_channels=32, use_bias=False)\n"
    )
    counted = f"{2 * 2 * 8 * 32 * (8 * 4 - 2) ** 2 / 1e3:.2f} k"  # two taps of an axis would write padding
    for command in ("inspect", "dump"):
        status, out, err = run(command, "up.py:net", "--input", "2x32x8x8")
        assert (status, err) == (0, "") and counted in out


def test_work_of_open_sizes_is_counted_for_a_size_that_is_named(run):
    Path("small.py").write_text("from gluonjit.gluon import nn\nnet = nn.Dense(5, in_units=3, use_bias=False)\n")
    for command in ("inspect", "dump"):
        status, out, err = run(command, "small.py:net", "--input", "batchx3")
        assert (status, err) == (0, "") and f"{2 * 16 * 3 * 5}" in out and "(for batch = 16)" in out


def test_inspect_a_graph_alone(run):
    status, out, _ = run("inspect", "net-symbol.json")
    assert status == 0
    assert "parameters: 8 (give their file for shapes and sizes)" in out
    assert "FLOPs: give the inputs' shapes, such as --input data=1x3x224x224" in out


def test_inspect_parameters_alone(run):
    status, out, _ = run("inspect", "net-0000.params", "--all")
    assert status == 0
    assert out.splitlines()[1] == "parameters: 8 arrays (8 f32), 853 elements, 3.3 KiB"
    assert out.splitlines()[2].split() == ["arg:net_conv0_weight", "f32[4,3,3,3]"]


def test_inspect_says_what_is_not_supported(run):
    graph = json.loads(open("net-symbol.json").read())
    graph["nodes"][-1]["op"] = "NoSuchOperator"
    open("odd-symbol.json", "w").write(json.dumps(graph))
    status, out, _ = run("inspect", "odd-symbol.json")
    assert status == 0
    assert "inputs:\n  data\noutputs:\n  net_dense0_fwd\n" in out
    assert run("inspect", "odd-symbol.json", "net-0000.params")[1].count("net_dense0_weight ") == 1
    assert "  NoSuchOperator                       1\n" in out
    assert out.endswith("unsupported:\n  operator NoSuchOperator (net_dense0_fwd)\n")


def test_inspect_of_operators_written_in_python(run):
    node = {"op": "Custom", "name": "own", "attrs": {"op_type": "own"}, "inputs": [[0, 0, 0]]}
    data = {"op": "null", "name": "data", "inputs": []}
    open("own-symbol.json", "w").write(json.dumps({"nodes": [data, node], "arg_nodes": [0], "heads": [[1, 0, 0]]}))
    status, out, _ = run("inspect", "own-symbol.json")
    assert status == 0 and out.endswith("unsupported:\n  operator Custom (own)\n")


def test_inspect_finds_arrays_that_are_not_read(run):
    mx.nd.save("more.params", {**mx.nd.load("net-0000.params"), "arg:other": mx.nd.ones((1,))})
    assert "not read by the graph: other" in run("inspect", "net-symbol.json", "more.params")[1]


def test_dump(run):
    status, out, _ = run("dump", *FILES, "--input", "data=1x3x8x8", "--stage", "trace")
    assert status == 0 and "mx.Convolution" in out
    status, out, err = run("dump", "net-symbol.json", "--input", "data=1x3x8x8", "--stage", "expanded", "--zeros")
    assert (
        status == 0 and "conv(" in out and err.startswith("not given, and therefore 0: net_conv0_weight: f32[4,3,3,3]")
    )


@pytest.mark.parametrize("stage", ["joint", "forward", "backward"])
def test_dump_of_a_gradient(run, stage):
    status, out, err = run("dump", *FILES, "--input", "data=1x3x8x8", "--stage", stage)
    assert status == 0, err
    assert "conv(" in out
    if stage != "forward":  # by the parameters, not by the data
        *_, results = out.rstrip("}\n").rpartition("return ")
        parameters = [name for name in mx.nd.load("net-0000.params") if "running" not in name]
        assert len(results.split(",")) == len(parameters) + (stage == "joint")


def test_dump_of_a_part_of_a_gradient(run):
    words = ("dump", *FILES, "--input", "data=1x3x8x8", "--stage", "backward")
    of_net, of_conv = (run(*words, *more)[1] for more in ((), ("--layer", "*conv0")))
    assert "conv(" in of_conv and "conv(" in of_net and len(of_conv.splitlines()) < len(of_net.splitlines())
    kernels, of_inference = (run(*line, "--explain")[1] for line in (words, words[:-2]))
    assert "weight_gradient" in kernels and "weight_gradient" not in of_inference
    of_one = run(*words, "--explain", "--layer", "*conv0")[1]
    assert "weight_gradient" in of_one and "conv0]" in of_one and "dense0]" in kernels and "dense0]" not in of_one
    assert "--layer is for the other stages" in run(*words[:-1], "llvm", "--layer", "*conv0")[2]
    assert run(*words, "--layer", "n*\n")[2].startswith("error: --layer n*\\n: no layer fits")


def test_bench(run):
    status, out, _ = run("bench", *FILES, "--input", "data=1x3x8x8", "--rounds", "1", "--seconds", "0.001")
    assert status == 0 and "imperative" in out and "hybridized" in out
    graph, params = FILES  # words may stand behind options
    words = ("bench", graph, "--input", "data=1x3x8x8", "--train", params, "--rounds", "1", "--seconds", "0.001")
    status, out, err = run(*words)
    assert (status, err) == (0, "") and "hybridized" in out and "imperative" not in out


def test_inspect_into_a_file(run):
    out = run("inspect", *FILES)[1]
    assert run("inspect", *FILES, "-o", "net.txt")[:2] == (0, "") and Path("net.txt").read_text() == out
    assert run("inspect", "none.params", "-o", "none.txt")[0] == 1 and not Path("none.txt").exists()


def test_convert(run, expected):
    assert run("convert", "net-0000.params", "net.safetensors")[0] == 0
    status, out, _ = run("convert", "net.safetensors", "again.params")
    assert (status, out) == (0, "again.params: 8 arrays, 3.3 KiB\n")
    assert open("again.params", "rb").read() == open("net-0000.params", "rb").read()
    assert run("convert", "again.params", "net.npz", "--strip")[0] == 0
    with np.load("net.npz") as arrays:
        assert "net_conv0_weight" in arrays and "net_batchnorm0_running_var" in arrays
    status, *_ = run("run", "net-symbol.json", "net.npz", "--input", "x.npy", "--output", "y.npy")
    assert status == 0
    assert_close(np.load("y.npy"), expected)


def test_names_that_stripping_makes_equal(run):
    mx.nd.save("both.params", {"arg:x": mx.nd.ones((1,)), "aux:x": mx.nd.ones((1,))})
    status, _, err = run("convert", "both.params", "y.npz", "--strip")
    assert status == 1 and err.startswith("error: both.params: without arg: and aux:, some names are the same")


def test_parameters_that_are_forgotten(run):
    status, out, err = run("run", "net-symbol.json", "--input", "data=2x3x8x8")
    assert status == 1 and out == ""
    assert err.startswith("error: no values for net_conv0_weight, ") and "or --zeros to compute with zeros" in err
    assert run("run", "net-symbol.json", "--input", "data=2x3x8x8", "--zeros")[0] == 0


def test_names_do_not_steer_the_terminal(run):
    evil = "\x1b[2J\nfine: nothing"
    mx.sym.relu(mx.sym.var(evil), name=evil).save("evil-symbol.json")
    mx.nd.save("evil.params", {evil: mx.nd.ones((1,))})
    for arguments in (
        ("inspect", "evil-symbol.json"),
        ("inspect", "evil.params"),
        ("run", "evil-symbol.json", "--input", "2x3"),
        ("run", "evil-symbol.json", "--input", "x=2x3"),
        ("dump", "evil-symbol.json", "--input", "2x3"),
        ("dump", "evil-symbol.json", "--input", "2x3", "--stage", "llvm"),
    ):
        _, out, err = run(*arguments)
        assert "\x1b" not in out + err and not any(line.startswith("fine") for line in (out + err).splitlines())
