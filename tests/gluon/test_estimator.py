"""`gluon.contrib.estimator`: the loop, its handlers, checkpoints. Log lines and file names are real MXNet's."""

import io
import logging
import re

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon, nd
from gluonjit.base import MXNetError
from gluonjit.gluon.contrib import estimator as est

pytestmark = pytest.mark.filterwarnings("error")

_random = np.random.RandomState(0)
DATA = _random.rand(24, 6).astype("f")
LABELS = _random.randint(0, 3, 24).astype("f")


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(re.sub(r"\d+\.\d+s|\d+s ", "_s ", record.getMessage()).rstrip())


def loader(**options):
    return gluon.data.DataLoader(gluon.data.ArrayDataset(DATA, LABELS), batch_size=5, **options)


def made(dropout=0.0):
    """An estimator with given initial parameters, and its log."""
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(gluon.nn.Dense(4, activation="relu", in_units=6), gluon.nn.Dropout(dropout))
        net.add(gluon.nn.Dense(3, in_units=4))
    net.initialize()
    for k, p in enumerate(net.collect_params().values()):
        p.set_data(mx.nd.array(np.random.RandomState(k).rand(*p.shape) - 0.4))
    net.hybridize()
    schedule = mx.lr_scheduler.FactorScheduler(4, 0.9, base_lr=0.05)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.05, "lr_scheduler": schedule})
    e = est.Estimator(net, gluon.loss.SoftmaxCrossEntropyLoss(), trainer=trainer)
    log = Lines()
    e.logger.handlers = [log]
    return e, log.lines


def values(e):
    return [p.data().asnumpy() for p in e.net.collect_params().values()]


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_a_fit_logs():
    e, lines = made()
    e.fit(loader(), loader(), epochs=2)
    assert lines[:3] == [
        "Training begin: using optimizer Adam with current learning rate 0.0500",
        "Train for 2 epochs.",
        "[Epoch 0] Begin, current learning rate: 0.0500",
    ]
    starts = [re.sub(r"\d\.\d{4}", "#", line) for line in lines[3:]]
    assert starts == [
        "Validation Begin",
        "[Epoch 0] Finished in _s , validation accuracy: #, validation softmaxcrossentropyloss: #",
        "[Epoch 0] Finished in _s , training accuracy: #, training softmaxcrossentropyloss: #",
        "[Epoch 1] Begin, current learning rate: #",
        "Validation Begin",
        "[Epoch 0] Finished in _s , validation accuracy: #, validation softmaxcrossentropyloss: #",
        "[Epoch 1] Finished in _s , training accuracy: #, training softmaxcrossentropyloss: #",
        "Train finished using total _s with 2 epochs. training accuracy: #, training softmaxcrossentropyloss: #",
    ]


def test_a_fit_by_batches_is_the_loop_written_out():
    e, lines = made()
    e.fit(loader(), batches=7, event_handlers=[est.LoggingHandler(3, e.train_metrics)])
    assert [line.split("]")[:2] for line in lines if "[Batch" in line] == [
        ["[Epoch 0", "[Batch 0"],
        ["[Epoch 0", "[Batch 3"],
        ["[Epoch 1", "[Batch 0"],
    ]
    other, _ = made()
    taken = 0
    while taken < 7:
        for data, label in loader():
            with mx.autograd.record():
                loss = other.loss(other.net(data), label)
            loss.backward()
            other.trainer.step(len(data))
            taken += 1
            if taken == 7:
                break
    for a, b in zip(values(e), values(other)):
        np.testing.assert_array_equal(a, b)


def test_checkpoints_and_resuming(tmp_path):
    e, _ = made()
    best = est.CheckpointHandler(str(tmp_path), "m", monitor=e.val_metrics[0], save_best=True, max_checkpoints=2)
    e.fit(loader(), loader(), epochs=4, event_handlers=[best])
    kept = ["m-best.params", "m-best.states", "m-epoch2batch15.params", "m-epoch2batch15.states"]
    kept += ["m-epoch3batch20.params", "m-epoch3batch20.states", "m-symbol.json"]
    assert files(tmp_path) == kept
    again, lines = made()
    again.fit(loader(), epochs=6, event_handlers=est.CheckpointHandler(str(tmp_path), "m", resume_from_checkpoint=True))
    assert "CheckpointHandler: Checkpoint resumed from epoch 3 batch 20, continue to train for 2 epochs" in lines
    assert "m-epoch5batch30.params" in files(tmp_path)
    whole, _ = made()
    whole.fit(loader(), epochs=6)
    for a, b in zip(values(again), values(whole)):
        np.testing.assert_array_equal(a, b)
    net = gluon.SymbolBlock.imports(str(tmp_path / "m-symbol.json"), ["data"])
    net.load_parameters(str(tmp_path / "m-epoch5batch30.params"), ignore_extra=True, allow_missing=True)
    with pytest.raises(ValueError, match="maximum number of epoch 6 reached"):
        again.fit(
            loader(), epochs=6, event_handlers=est.CheckpointHandler(str(tmp_path), "m", resume_from_checkpoint=True)
        )


def test_resuming_by_batches(tmp_path):
    def handler(**more):
        return est.CheckpointHandler(str(tmp_path), epoch_period=None, batch_period=2, **more)

    e, _ = made()
    e.fit(loader(), batches=4, event_handlers=handler())
    assert [name for name in files(tmp_path) if name.endswith("params")] == [
        "model-epoch0batch1.params",
        "model-epoch0batch3.params",
    ]
    e, lines = made()
    e.fit(loader(), batches=9, event_handlers=handler(resume_from_checkpoint=True))
    assert "CheckpointHandler: Checkpoint resumed from epoch 0 batch 3, continue to train for 5 batches" in lines
    with pytest.raises(AssertionError, match="must only specify the same type of period"):
        e.fit(loader(), epochs=9, event_handlers=handler(resume_from_checkpoint=True))
    (tmp_path / "model-epoch1batchx.params").touch()
    with pytest.raises(ValueError, match="model-epoch1batchx.params is not the name of a checkpoint"):
        e.fit(loader(), batches=99, event_handlers=handler(resume_from_checkpoint=True))


def test_resuming_by_batches_has_the_bits_of_not_having_stopped(tmp_path):
    """After whole epochs, as the loader starts anew; with two checkpoints kept, here and in the folder."""

    def trained(folder, batches, **more):
        e, _ = made()
        handler = est.CheckpointHandler(folder, epoch_period=None, batch_period=5, max_checkpoints=2, **more)
        e.fit(loader(), batches=batches, event_handlers=handler)
        return values(e)

    trained(str(tmp_path / "stopped"), 10)
    again = trained(str(tmp_path / "stopped"), 20, resume_from_checkpoint=True)
    for a, b in zip(again, trained(str(tmp_path / "whole"), 20)):
        np.testing.assert_array_equal(a, b)
    numbers = [re.findall(r"batch(\d+)\.params", name) for name in files(tmp_path / "stopped")]
    assert sum(numbers, []) == ["14", "19"]


def damaged(kind, change):
    """A function that changes the bytes of the newest checkpoint's file."""

    def damage(folder):
        path = folder / f"model-epoch1batch10.{kind}"
        path.write_bytes(change(path.read_bytes()))

    return damage


def replaced(kind, make):
    def replace(folder):
        path = folder / f"model-epoch1batch10.{kind}"
        path.unlink()
        make(path)

    return replace


def a_last_array_of_another_shape(folder):
    path = str(folder / "model-epoch1batch10.params")
    arrays = nd.load(path)
    arrays[list(arrays)[-1]] = nd.ones((99,))
    nd.save(path, arrays)


@pytest.mark.parametrize(
    ("attack", "error", "message"),
    [
        (damaged("params", lambda data: b""), MXNetError, "the file ends within"),
        (damaged("params", lambda data: data[:-10]), MXNetError, "the file ends within"),
        (damaged("params", lambda data: bytes(range(256)) * 2), MXNetError, "the magic number"),
        (damaged("states", lambda data: b""), MXNetError, "not the states of an optimizer"),
        (damaged("states", lambda data: data[:-10]), MXNetError, "not the states of an optimizer"),
        (damaged("states", lambda data: b"cos\nsystem\n(S'exit 1'\ntR."), MXNetError, "os.system, which is not known"),
        (
            replaced("states", lambda path: None),
            FileNotFoundError,
            "Failed to load checkpoint, .*states does not exist",
        ),
        (replaced("states", lambda path: path.symlink_to("/dev/zero")), MXNetError, "states: it is a device"),
        (replaced("params", lambda path: path.symlink_to("/dev/zero")), MXNetError, "params: it is a device"),
        (replaced("params", lambda path: path.mkdir()), MXNetError, "params: Is a directory"),
        (
            replaced("params", lambda path: nd.save(str(path), {"a.b": nd.ones(2)})),
            AssertionError,
            "is missing in file",
        ),
        (a_last_array_of_another_shape, AssertionError, r"shape incompatible expected .* vs saved \(99,\)"),
        (
            lambda folder: (folder / "model-epoch01batch10.params").touch(),
            ValueError,
            "is not the name of a checkpoint",
        ),
        (lambda folder: (folder / "model-epoch٣batch9.params").touch(), ValueError, "is not the name of a checkpoint"),
    ],
)
def test_a_damaged_checkpoint_changes_nothing(tmp_path, attack, error, message):
    """Neither parameters, nor the trainer, nor the files."""
    e, _ = made()
    e.fit(loader(), epochs=2, event_handlers=est.CheckpointHandler(str(tmp_path)))
    attack(tmp_path)
    there = files(tmp_path)
    e.fit(loader(), epochs=1)
    before, steps, states = values(e), e.trainer.optimizer.num_update, e.trainer._updaters[0].states
    handler = est.CheckpointHandler(str(tmp_path), resume_from_checkpoint=True)
    with pytest.raises(error, match=message):
        e.fit(loader(), epochs=4, event_handlers=handler)
    assert all((a == b).all() for a, b in zip(values(e), before)) and files(tmp_path) == there
    assert e.trainer.optimizer.num_update == steps and e.trainer._updaters[0].states is states


def test_a_checkpoint_that_was_cut_off_is_not_found(tmp_path, monkeypatch):
    """The process may die between the two files."""
    e, _ = made()
    e.fit(loader(), epochs=1, event_handlers=est.CheckpointHandler(str(tmp_path)))
    monkeypatch.setattr(type(e.net), "save_parameters", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        e.fit(loader(), epochs=3, event_handlers=est.CheckpointHandler(str(tmp_path), resume_from_checkpoint=True))
    monkeypatch.undo()
    again, lines = made()
    again.fit(loader(), epochs=3, event_handlers=est.CheckpointHandler(str(tmp_path), resume_from_checkpoint=True))
    assert "CheckpointHandler: Checkpoint resumed from epoch 0 batch 5, continue to train for 2 epochs" in lines


@pytest.mark.parametrize("count", [-1, None, "two"])
def test_a_number_of_checkpoints(count, tmp_path):
    with pytest.raises(ValueError, match="max_checkpoints is a number of checkpoints"):
        est.CheckpointHandler(str(tmp_path), max_checkpoints=count)


def test_old_checkpoints_are_removed_by_their_whole_name(tmp_path):
    for name in ("m-epoch1batch1", "m-epoch1batch10"):
        for kind in ("params", "states"):
            (tmp_path / f"{name}.{kind}").touch()
    handler = est.CheckpointHandler(str(tmp_path), "m")
    handler._remove("m-epoch1batch1")
    assert files(tmp_path) == ["m-epoch1batch10.params", "m-epoch1batch10.states"]


def test_early_stopping():
    e, lines = made()
    stop = est.EarlyStoppingHandler(e.train_metrics[1], min_delta=0.02, patience=1)
    e.fit(loader(), epochs=9, event_handlers=stop)
    assert stop.stopped_epoch == 3 and stop.best < 1.1  # the epoch in which MXNet stops
    assert (
        "[Epoch 3] EarlyStoppingHandler: early stopping due to training softmaxcrossentropyloss not improving" in lines
    )
    e.fit(loader(), epochs=1, event_handlers=stop)
    assert stop.current_epoch == 1


def test_steps_every_other_batch():
    class Every(est.GradientUpdateHandler):
        count = 0

        def batch_end(self, estimator, *args, **kwargs):
            self.count += 1
            if self.count % 2 == 0:
                estimator.trainer.step(10)

    e, _ = made()
    for p in e.net.collect_params().values():
        p.grad_req = "add"
    before = values(e)
    e.fit(loader(), batches=1, event_handlers=Every())
    np.testing.assert_array_equal(values(e)[0], before[0])
    e.fit(loader(), batches=2, event_handlers=Every())
    assert (values(e)[0] != before[0]).any()


def test_a_progress_bar(capsys):
    pytest.importorskip("tqdm")
    e, _ = made()
    e.fit(loader(), epochs=2, event_handlers=est.ProgressBarHandler(5, e.train_metrics))
    shown = capsys.readouterr().err
    assert "Epoch 1" in shown and "5/5" in shown and "training accuracy=" in shown


def test_a_progress_bar_knows_the_length_of_its_loader(capsys):
    pytest.importorskip("tqdm")
    e, _ = made()
    count = len(loader())
    validation = est.ValidationHandler(
        gluon.data.DataLoader(loader()._dataset, batch_size=len(loader()._dataset)),
        e.evaluate,
        batch_period=1,
        event_handlers=est.ProgressBarHandler(metrics=e.val_metrics),
    )
    e.fit(loader(), epochs=2, event_handlers=[est.ProgressBarHandler(), validation])
    shown = capsys.readouterr().err
    assert f"{count}/{count}" in shown and "1/1" in shown, "also that of the data for validation, inside of an epoch"


def test_a_progress_bar_begins_after_the_line_of_its_epoch():
    pytest.importorskip("tqdm")
    shown = io.StringIO()
    e, _ = made()
    e.logger = logging.getLogger("bar")
    e.logger.setLevel(logging.INFO)
    e.logger.handlers = [logging.StreamHandler(shown)]
    bar = est.ProgressBarHandler(5, e.train_metrics, file=shown)
    e.fit(loader(), epochs=2, event_handlers=[bar, est.LoggingHandler(metrics=e.train_metrics)])
    text = shown.getvalue()
    for epoch in (0, 1):
        assert text.index(f"[Epoch {epoch}] Begin") < text.index(f"Epoch {epoch}:")


def test_what_is_refused():
    e, _ = made()
    with pytest.raises(ValueError, match="one and only one of: epochs or batches"):
        e.fit(loader(), epochs=1, batches=1)
    with pytest.raises(ValueError, match="Gluon DataLoader"):
        e.fit([1], epochs=1)
    with pytest.raises(ValueError, match="handlers must be an EventHandler"):
        e.fit(loader(), epochs=1, event_handlers=[3])
    with pytest.raises(ValueError, match="MetricHandler refers to a metric instance"):
        e.fit(loader(), epochs=1, event_handlers=est.MetricHandler(mx.metric.Accuracy()))
    with pytest.raises(ValueError, match="loss must be a Loss"):
        est.Estimator(e.net, 3)
    with pytest.raises(ValueError, match=r"(?s)pass an instance: L2Loss\(…\)\n  at .*test_estimator"):
        est.Estimator(e.net, gluon.loss.L2Loss)
    for metrics in (3, [mx.metric.Accuracy], "acc"):
        with pytest.raises(ValueError, match="metrics must be a Metric .*; (its type|this is the class)"):
            est.Estimator(e.net, e.loss, metrics, trainer=e.trainer)
    with pytest.raises(ValueError, match="Batch Processor must contain fit_batch"):
        est.Estimator(e.net, e.loss, trainer=e.trainer, batch_processor=3)
    with pytest.raises(ValueError, match="please provide one of the metric objects"):
        est.CheckpointHandler(".", save_best=True)
    with pytest.warns(UserWarning, match="No trainer specified"):
        est.Estimator(e.net, e.loss)


def trained(steps, seed=None, start=None):
    """Trains with dropout and a scheduler; `start`, a checkpoint, goes on from there."""
    e, _ = made(dropout=0.5)
    if start is not None:
        params, states, random = start
        e.net.load_parameters(params)
        e.trainer.load_states(states)
        mx.random.set_state(random)
    else:
        mx.random.seed(seed)
    data, label = mx.nd.array(DATA), mx.nd.array(LABELS)
    for _ in range(steps):
        with mx.autograd.record():
            loss = e.loss(e.net(data), label)
        loss.backward()
        e.trainer.step(24)
    return e


def test_going_on_gives_the_same_bits_as_not_stopping(tmp_path):
    whole = trained(9, seed=3)
    first = trained(5, seed=3)
    first.net.save_parameters(str(tmp_path / "p"))
    first.trainer.save_states(str(tmp_path / "s"))
    random = mx.random.get_state()
    mx.random.seed(99)
    second = trained(4, start=(str(tmp_path / "p"), str(tmp_path / "s"), random))
    assert second.trainer.learning_rate == whole.trainer.learning_rate < 0.05
    for a, b in zip(values(second), values(whole)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("state", [3, (1, 2), (1, -1, 0), (1, 0, -1), ("a", 2, 0), (2**40, 0, 0)])
def test_random_states_are_checked(state):
    with pytest.raises(ValueError, match="get_state"):
        mx.random.set_state(state)


@pytest.mark.parametrize("workers", [0, 2])
def test_shuffled_loaders_have_the_same_order_with_a_seed(workers):
    def order():
        np.random.seed(5)
        return [y.asnumpy().tolist() for _, y in loader(shuffle=True, num_workers=workers, thread_pool=True)]

    assert order() == order()
