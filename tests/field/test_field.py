"""Public model libraries on gluonjit: a sample of each, where it is installed; and how models are judged.

`run.py` runs all of their models; what came out is in docs/dropin.md.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from field import gluonts_round_trip, gluonts_training, gradients, published, reference, run, scripts, subjects

import gluonjit as mx
from gluonjit import gluon

SAMPLES = {
    "gluoncv2": "nin_cifar10 resnet20_cifar10 mobilenet_wd4 shufflenetv2_wd2 visemenet20",
    "gluoncv": "cifar_resnet20_v1 mobilenetv3_small mobilenet1.0_int8 ssd_300_mobilenet0.25_voc",
    "gluonnlp": "standard_lstm_lm_200 transformer_en_de_512",
    "gluonts": "deepar.* deepar_rnnzoneout.training mqcnn.training distribution.student_t samples.mixture block.mean_*",
}

BIG = {
    # Those that MXNet itself cannot hybridize, and what is deep or long.
    "gluoncv2": "bisenet_resnet18_celebamaskhq simplepose_resnet18_coco wrn20_10_1bit_cifar10 efficientnet_b0",
    "gluoncv": "resnest14 yolo3_mobilenet0.25_voc center_net_resnet18_v1b_voc simple_pose_resnet18_v1b siamrpn_*",
    "gluonnlp": "awd_lstm_lm_600 bert_12_768_12 roberta_12_768_12",
    "gluonts": "deepstate.training deepvar.* deepvar_hierarchical.training gp_forecaster.* tft.* wavenet.* renewal.*",
}


@pytest.mark.parametrize(
    ("package", "names"),
    [*SAMPLES.items(), *(pytest.param(*item, marks=pytest.mark.slow) for item in BIG.items())],
)
def test_models_of_a_library(package, names, tmp_path):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    results = tmp_path / "results.jsonl"
    command = [sys.executable, run.__file__, "--package", package, "--names", names, "--out", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert len(rows) >= len(names.split())
    assert {row["name"]: row.get("reason") for row in rows if row["stage"] != "passed"} == {}


GRADIENTS = {"gluoncv2": "nin_cifar10 resnet20_cifar10", "gluoncv": "cifar_resnet20_v1 mobilenet0.25"}


@pytest.mark.slow
@pytest.mark.parametrize(("package", "names"), GRADIENTS.items())
def test_gradients_of_a_library(package, names, tmp_path):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    results = tmp_path / "results.jsonl"
    command = [sys.executable, run.__file__, "--package", package, "--names", names, "--out", str(results)]
    done = subprocess.run([*command, "--backward", "--plain"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert {row["name"]: row["stage"] for row in rows} == dict.fromkeys(names.split(), "passed")


# Scripts

QUICK = ("mnist", "matrix_fact")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in scripts.SCRIPTS]
)
def test_scripts_of_mxnet_run_to_their_end(name):
    script = scripts.SCRIPTS[name]
    examples = Path(os.environ.get("MXNET_EXAMPLES", ""))
    if not (examples / script.path).is_file():
        pytest.skip("the environment variable MXNET_EXAMPLES does not name the folder example of apache/mxnet 1.9.1")
    for package in script.needs:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    outcome = scripts.run(script, examples)
    assert outcome.passed(script), outcome.output


TRAINED = ["simple_feedforward", *"deepvar lstnet canonical_mlp mqrnn tft n_beats_ensemble deeptpp seq2seq".split()]


@pytest.mark.parametrize("name", [TRAINED[0], *(pytest.param(name, marks=pytest.mark.slow) for name in TRAINED[1:])])
def test_estimators_of_gluonts_train_and_predict(name):
    if importlib.util.find_spec("gluonts") is None:
        pytest.skip("gluonts is not installed")
    done = subprocess.run([sys.executable, gluonts_training.__file__, name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout.splitlines()[-1])
    assert "failed" not in row and row["finite"], row


@pytest.mark.slow
@pytest.mark.parametrize("name", published.PROGRAMS)
def test_published_programs_run_to_their_end(name):
    program = published.PROGRAMS[name]
    if lacks := program.lacks():
        pytest.skip(lacks)
    outcome = program.run()
    assert outcome.passed(program.script), outcome.output


# How models are judged


class Net(gluon.HybridBlock):
    """A dense layer, whose program adds `more(F, x)`; `centered`: less its mean over the batch."""

    def __init__(self, more, centered=False):
        super().__init__()
        self.more = more
        self.centered = centered
        self.dense = gluon.nn.Dense(3)

    def hybrid_forward(self, F, x):
        y = self.dense(x)
        if self.centered:
            return F.broadcast_sub(y, F.mean(y, axis=0, keepdims=True))
        return y + self.more(F, x)


def no_constructor():
    raise TypeError("it takes more arguments")


def no_package():
    raise ModuleNotFoundError("No module named 'librosa'", name="librosa")


class Library(subjects.Package):
    name = "test_field"
    broken = {"refused*": "MXNet refuses it, too"}
    models = {
        "right": lambda: Net(lambda F, x: 0),
        "wrong": lambda: Net(lambda F, x: 1 if F is mx.nd else 2),
        # As a model that puts scores in order may do: its answer jumps, but not because of the type.
        "undecided": lambda: Net(lambda F, x: 1 if F is mx.nd and x.dtype == np.float32 else 2),
        "refused_model": no_constructor,
        "unbuilt": no_constructor,
        "alone": no_package,
        "unhybrid": lambda: Net(lambda F, x: float(x.sum().asscalar())),
    }

    def names(self):
        return sorted(self.models)

    def family(self, name):
        return name[:2]

    def build(self, name):
        return self.models[name]()

    def inputs(self, name, net):
        return [subjects.numbers(2, 4)]


@pytest.fixture
def mxnet(monkeypatch):
    monkeypatch.setitem(sys.modules, "mxnet", mx)


def distance():
    """`run.difference` between results that are 1 and 2 more than the dense layer's."""
    weight, bias = subjects.value_of("dense.weight", (3, 4)), subjects.value_of("dense.bias", (3,))
    return 1 / np.abs(subjects.numbers(2, 4) @ weight.T + bias + 1).max()


@pytest.mark.parametrize(
    ("name", "stage", "expected"),
    [
        ("right", "passed", {"outputs": [[2, 3]], "finite": True}),
        ("wrong", "equal", {"difference in float64": pytest.approx(distance())}),
        ("undecided", "passed", {"difference in float64": pytest.approx(0, abs=1e-12)}),
        (
            "refused_model",
            "build",
            {"outside": "MXNet refuses it, too", "reason": "TypeError: it takes more arguments"},
        ),
        ("unbuilt", "build", {"reason": "TypeError: it takes more arguments"}),
        ("alone", "build", {"outside": "needs the package librosa"}),
    ],
)
def test_stages(name, stage, expected, mxnet):
    row = run.run(Library(), name, None)
    assert row["stage"] == stage
    assert {key: row[key] for key in expected} == expected
    assert ("outside" in row) == ("outside" in expected)


def test_a_block_that_asks_for_a_value_ran_imperatively_only(mxnet):
    row = run.run(Library(), "unhybrid", None)
    assert row["stage"] == "hybridized" and "asscalar() cannot be compiled" in row["reason"]
    assert row["where"].startswith("test_field.py:")


def test_references(mxnet, tmp_path):
    net = Library().build("right")
    subjects.initialize(net)
    answer = net(mx.nd.array(subjects.numbers(2, 4))).asnumpy()
    np.savez(tmp_path / "right.npz", answer * 1.001)
    assert run.run(Library(), "right", tmp_path)["mxnet"] == pytest.approx(1e-3, rel=1e-2)


@pytest.mark.parametrize("name", ["right", "wrong"])
def test_gradients(name, mxnet):
    """Plain ones are those of the hybridized net, unless its program asks which it is."""

    class Wrong(Library):
        models = {**Library.models, "wrong": lambda: Net(lambda F, x: x.sum() if F is mx.nd else -x.sum())}

    row = run.run_backward(Wrong(), name, None, plain=True)
    if name == "right":
        assert row["stage"] == "passed" and row["difference"] < 1e-6 and row["kernels"]
    else:
        assert row["stage"] == "equal" and row["between"] == "input 0"
        assert row["difference in float64"] == pytest.approx(row["difference"], rel=1e-3)


def test_models_that_mxnet_cannot_train_are_not_counted(mxnet):
    class Untrained(Library):
        untrained = {"unhybrid": "it writes to its input"}

    assert run.run_backward(Untrained(), "unhybrid", None)["outside"] == "it writes to its input"
    assert "outside" not in run.run(Untrained(), "unhybrid", None)


def test_blocks_of_a_model_that_its_package_does_not_hybridize(mxnet):
    class Unhybrid(Library):
        unhybrid = ("unhybrid",)

    row = run.run_backward(Unhybrid(), "unhybrid", None)
    assert row["stage"] == "passed" and row["kernels"]  # those of its dense layer


@pytest.mark.parametrize(
    ("single", "double", "reason"),
    [
        (1, 1, None),
        (1 + 1e-3, 1, None),  # MXNet's own rounding is no better
        (1, 1 + 1e-3, None),
        (1 + 1e-3, 1 + 1e-3, "differs from MXNet by 1.0e-03"),
    ],
)
def test_recorded_gradients(single, double, reason, mxnet, tmp_path):
    net, inputs = Library().small("right")
    subjects.initialize(net)
    net.cast("float64")
    wanted = gradients.gradients(net, subjects.as_ndarrays(inputs, "float64"))
    sample = {key: gradients.sampled(key, x) for key, x in wanted.items()}
    both = {f"{kind} {k}": g * by for kind, by in (("32", single), ("64", double)) for k, g in sample.items()}
    np.savez(tmp_path / "right.gradients.npz", **both)
    row = run.run_backward(Library(), "right", tmp_path)
    assert row.get("reason") == reason


def test_recorded_gradients_in_float32_only(mxnet, tmp_path):
    """A gradient that is 0 is rounding in what MXNet recorded, which says nothing."""

    class Centered(Library):
        models = {"centered": lambda: Net(None, centered=True)}

    net, inputs = Centered().small("centered")
    subjects.initialize(net)
    net.cast("float64")
    wanted = gradients.gradients(net, subjects.as_ndarrays(inputs, "float64"))
    assert np.abs(wanted["dense.bias"]).max() < 1e-12
    sample = {f"32 {key}": gradients.sampled(key, x) * (1 + 2e-4) for key, x in wanted.items()}
    sample["32 dense.bias"] += 1e-6
    np.savez(tmp_path / "centered.gradients.npz", **sample)
    row = run.run_backward(Centered(), "centered", tmp_path)
    assert "reason" not in row
    assert row["mxnet"] == pytest.approx(2e-4, rel=1e-2) == row["mxnet in float64"]


def test_instance_norm_in_float64(mxnet):
    x, gamma, beta = (mx.nd.array(subjects.numbers(*shape), dtype="float64") for shape in ((2, 3, 4, 5), (3,), (3,)))
    got, want = (f(x, gamma, beta, eps=1e-2).asnumpy() for f in (reference.instance_norm, mx.nd.InstanceNorm))
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize(
    ("got", "want", "nothing", "expected"),
    [
        ([1.0, 2.0], [1.0, 4.0], 0, 0.5),
        ([1.0, 1e-6], [1.0, 0.0], 0, 1e-6),
        ([1.0, 2e-6], [1.0, 1e-6], 1e-4, 1e-6),  # nothing but rounding, of the largest
        ([1.0, np.nan], [1.0, 1.0], 0, np.inf),
        ([1.0, np.nan], [1.0, np.nan], 0, 0),
        ([1.0], [1.0, 1.0], 0, np.inf),
    ],
)
def test_differences_of_gradients(got, want, nothing, expected):
    a, b = ({str(k): np.array([x]) for k, x in enumerate(values)} for values in (got, want))
    assert max(gradients.differences(a, b, nothing).values()) == pytest.approx(expected)


def test_samples_of_gradients_have_a_size():
    gradient = np.arange(3 * gradients.SAMPLE, dtype=np.float32).reshape(3, -1)
    sample = gradients.sampled("weight", gradient)
    assert sample.shape == (gradients.SAMPLE,) and sample.dtype == np.float64
    np.testing.assert_array_equal(sample, gradients.sampled("weight", gradient))
    np.testing.assert_array_equal(gradients.sampled("weight", gradient[0, :5]), gradient[0, :5])


def test_dropout_is_turned_off(mxnet):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(4), gluon.nn.Dropout(0.5))
    gradients.without_dropout(net)
    net.initialize()
    with mx.autograd.record():
        assert (net(mx.nd.ones((2, 3))).asnumpy() != 0).all()


def test_the_table(mxnet, capsys):
    run.report([run.run(Library(), name, None) for name in Library().names() if name != "unhybrid"])
    out = capsys.readouterr().out
    assert "2 of 4 models pass (50.0 %)" in out
    assert "2 more are not counted" in out and "alone: needs the package librosa" in out
    assert "right yes both modes yes" in " ".join(out.split())


@pytest.mark.parametrize(
    ("got", "want", "expected"),
    [
        ([[1.0, 2.0]], [[1.0, 2.0]], 0),
        ([[1.0, 3.0]], [[1.0, 2.0]], 0.5),
        ([[1.0, 2.0], [0.0]], [[1.0, 2.0], [0.0]], 0),
        ([[0.5]], [[0.0]], 1),
        ([[np.nan, 2.0]], [[np.nan, 2.0]], 0),
        ([[np.nan, 2.0]], [[1.0, 2.0]], np.inf),
        ([[np.inf, 2.0]], [[-np.inf, 2.0]], np.inf),
        ([[1.0]], [[1.0, 1.0]], np.inf),
        ([[1.0]], [[1.0], [1.0]], np.inf),
    ],
)
def test_difference(got, want, expected):
    assert run.difference([np.array(x) for x in got], [np.array(x) for x in want]) == expected


def test_weights_follow_from_names_and_shapes(mxnet):
    first, second = (Library().build("right") for _ in range(2))
    for net in (first, second):
        subjects.initialize(net)
        net(mx.nd.array(subjects.numbers(2, 4)))
    values = [{k: v.data().asnumpy() for k, v in net._collect_params_with_prefix().items()} for net in (first, second)]
    assert values[0].keys() == values[1].keys() == {"dense.weight", "dense.bias"}
    for key, value in values[0].items():
        np.testing.assert_array_equal(value, values[1][key])
    assert not np.array_equal(subjects.value_of("a.weight", (3, 4)), subjects.value_of("b.weight", (3, 4)))


def test_samples_are_one_of_each_family():
    assert run.chosen(Library(), [], sample=True) == ["alone", "refused_model", "right", "unbuilt", "wrong"]
    assert run.chosen(Library(), ["r*", "wrong"], sample=False) == ["refused_model", "right", "wrong"]


ROUND_TRIPS = ["simple_feedforward", pytest.param("deepar", marks=pytest.mark.slow)]


@pytest.mark.parametrize("name", [*ROUND_TRIPS, pytest.param("tft", marks=pytest.mark.slow)])
def test_predictors_of_gluonts_are_written_and_read(name, tmp_path):
    """As a program, and as the graph of its network: the forecasts stay the same."""
    if importlib.util.find_spec("gluonts") is None:
        pytest.skip("gluonts is not installed")
    command = [sys.executable, gluonts_round_trip.__file__, name, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    differences = json.loads(done.stdout.splitlines()[-1])
    assert sorted(differences) == ["hybridized", "read", "symbol block", "symbol block read"]
    assert max(differences.values()) < run.TOLERANCE
