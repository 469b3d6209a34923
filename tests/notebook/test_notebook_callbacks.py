"""`mx.notebook.callback`: what logs into tables and charts, with stand-ins for the packages that draw."""

import importlib.util
from types import SimpleNamespace

import pytest

import gluonjit as mx


class Table(dict):
    """As much of a DataFrame as the logger uses."""

    def __init__(self):
        super().__init__()
        self.rows = []
        self.loc = self

    @property
    def columns(self):
        return [key for key in self if isinstance(key, str)]

    def __len__(self):
        return len(self.rows)

    def __setitem__(self, key, value):
        if isinstance(key, int):
            self.rows.append(value)
        super().__setitem__(key, value)


def test_pandas_logger(monkeypatch):
    monkeypatch.setattr(mx.notebook.callback, "_pandas", lambda: SimpleNamespace(DataFrame=Table))
    logger = mx.notebook.callback.PandasLogger(batch_size=4, frequent=2)
    arguments = mx.notebook.callback.args_wrapper(logger)
    metric = mx.metric.Accuracy()
    for batch in range(5):
        metric.update([mx.nd.array([1])], [mx.nd.array([[0, 1]])])
        arguments["batch_end_callback"][0](SimpleNamespace(nbatch=batch, epoch=0, eval_metric=metric))
    arguments["eval_end_callback"][0](SimpleNamespace(nbatch=5, epoch=0, eval_metric=None))
    arguments["epoch_end_callback"][0](0, None, {}, {})
    assert [row["minibatch_count"] for row in logger.train_df.rows] == [0, 2, 4]
    assert logger.train_df.rows[1]["accuracy"] == 1.0
    assert set(logger.eval_df.columns) == {"batches_per_sec", "records_per_sec", "elapsed", "minibatch_count", "epoch"}
    assert len(logger.epoch_df) == 1


@pytest.mark.parametrize(
    ("package", "make"),
    [
        ("pandas", lambda: mx.notebook.callback.PandasLogger(3)),
        ("bokeh", lambda: mx.notebook.callback.LiveLearningCurve("accuracy")),
        ("bokeh", lambda: mx.notebook.callback.LiveTimeSeries()),
    ],
)
def test_without_the_packages(package, make):
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed")
    with pytest.raises(ImportError, match=f"pip install {package}"):
        make()
