"""`mx.notebook.callback`: a training run as tables of pandas, and as curves of Bokeh that follow it.

Both packages are optional; what needs one raises an ImportError with the command that installs it.
"""

from __future__ import annotations

import datetime
import time
from collections import defaultdict
from typing import Any

from gluonjit.language import mxnet_names as _mxnet_names


def _missing(package: str) -> ImportError:
    return ImportError(f"mx.notebook.callback needs {package}: pip install {package}")


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as e:
        raise _missing("pandas") from e
    return pandas


def _bokeh() -> tuple[Any, Any]:
    """`bokeh.plotting` and `bokeh.io`."""
    try:
        from bokeh import io, plotting
    except ImportError as e:
        raise _missing("bokeh") from e
    return plotting, io


class PandasLogger:
    """Three tables of a run, `train_df`, `eval_df` and `epoch_df`: metrics of every `frequent`-th batch, of each
    validation, and the time of each epoch.

    >>> module.fit(data, **PandasLogger(batch_size=32).callback_args())
    """

    def __init__(self, batch_size: int, frequent: int = 50) -> None:
        pandas = _pandas()
        self.batch_size = batch_size
        self.frequent = frequent
        self._dataframes = {name: pandas.DataFrame() for name in ("train", "eval", "epoch")}
        self.last_time = time.time()
        self.start_time = self.last_epoch_time = datetime.datetime.now()

    @property
    def train_df(self) -> Any:
        return self._dataframes["train"]

    @property
    def eval_df(self) -> Any:
        return self._dataframes["eval"]

    @property
    def epoch_df(self) -> Any:
        return self._dataframes["epoch"]

    @property
    def all_dataframes(self) -> dict[str, Any]:
        return self._dataframes

    def elapsed(self) -> datetime.timedelta:
        """The time since the logger was made."""
        return datetime.datetime.now() - self.start_time

    def append_metrics(self, metrics: dict[str, Any], df_name: str) -> None:
        """Appends a row to a table, and columns for new names."""
        table = self._dataframes[df_name]
        for column in metrics.keys() - set(table.columns):
            table[column] = None
        table.loc[len(table)] = metrics

    def train_cb(self, param: Any) -> None:
        """After a batch."""
        if param.nbatch % self.frequent == 0:
            self._process_batch(param, "train")

    def eval_cb(self, param: Any) -> None:
        """After a validation."""
        self._process_batch(param, "eval")

    def _process_batch(self, param: Any, dataframe: str) -> None:
        now = time.time()
        metrics: dict[str, Any] = {}
        if param.eval_metric is not None:
            metrics = dict(param.eval_metric.get_name_value())
            param.eval_metric.reset()
        passed = now - self.last_time
        speed = self.frequent / passed if passed else float("inf")
        # Under these names, as MXNet has them.
        metrics |= {"batches_per_sec": speed * self.batch_size, "records_per_sec": speed, "elapsed": self.elapsed()}
        metrics |= {"minibatch_count": param.nbatch, "epoch": param.epoch}
        self.append_metrics(metrics, dataframe)
        self.last_time = now

    def epoch_cb(self, *args: Any) -> None:
        """After an epoch. `fit` passes arguments, which MXNet's function does not take."""
        now = datetime.datetime.now()
        self.append_metrics({"elapsed": self.elapsed(), "epoch_time": now - self.last_epoch_time}, "epoch")
        self.last_epoch_time = now

    def callback_args(self) -> dict[str, Any]:
        """The keyword arguments of `fit` that call all this."""
        return {
            "batch_end_callback": self.train_cb,
            "eval_end_callback": self.eval_cb,
            "epoch_end_callback": self.epoch_cb,
        }


class LiveBokehChart:
    """A chart in the notebook that is drawn again every `display_freq` seconds, of a logger's metric."""

    def __init__(
        self, pandas_logger: Any, metric_name: str, display_freq: float = 10, batch_size: Any = None, frequent: int = 50
    ) -> None:
        self.plotting, self.io = _bokeh()
        if pandas_logger is None and batch_size is not None:
            pandas_logger = PandasLogger(batch_size, frequent)
        self.pandas_logger = pandas_logger
        self.display_freq = display_freq
        self.last_update = time.time()
        self.metric_name = metric_name
        self.io.output_notebook()
        self.handle = self.setup_chart()

    def setup_chart(self) -> Any:
        """Shows the chart; returns its handle."""
        raise NotImplementedError("Incomplete base class: LiveBokehChart must be sub-classed")

    def update_chart_data(self) -> None:
        """Gives the chart what has been logged since."""
        raise NotImplementedError("Incomplete base class: LiveBokehChart must be sub-classed")

    def interval_elapsed(self) -> bool:
        return time.time() - self.last_update > self.display_freq

    def _push_render(self) -> None:
        self.io.push_notebook(handle=self.handle)
        self.last_update = time.time()

    def _do_update(self) -> None:
        self.update_chart_data()
        self._push_render()

    def batch_cb(self, param: Any) -> None:
        """After a batch."""
        if self.interval_elapsed():
            self._do_update()

    def eval_cb(self, param: Any) -> None:
        """After a validation: draws even if the interval is not over."""
        self._do_update()

    def callback_args(self) -> dict[str, Any]:
        """The keyword arguments of `fit` that call all this."""
        return {"batch_end_callback": self.batch_cb, "eval_end_callback": self.eval_cb}


class LiveTimeSeries(LiveBokehChart):
    """A curve of any value over the seconds since its start; `update_chart_data(value)` adds one."""

    def __init__(self, **fig_params: Any) -> None:
        self.fig = _bokeh()[0].figure(x_axis_label="Elapsed time", **fig_params)
        self.x_axis_val: list[float] = []
        self.y_axis_val: list[Any] = []
        self.start_time = time.time()
        super().__init__(None, "")

    def setup_chart(self) -> Any:
        self.line = self.fig.line(self.x_axis_val, self.y_axis_val)
        return self.plotting.show(self.fig, notebook_handle=True)

    def elapsed(self) -> float:
        return time.time() - self.start_time

    def update_chart_data(self, value: Any = None) -> None:
        self.x_axis_val.append(self.elapsed())
        self.y_axis_val.append(value)
        self.line.data_source.data = {"x": self.x_axis_val, "y": self.y_axis_val}
        self._push_render()


class LiveLearningCurve(LiveBokehChart):
    """The metric of training and of validation over time, while `fit` runs with `callback_args()`."""

    def __init__(self, metric_name: str, display_freq: float = 10, frequent: int = 50) -> None:
        self.frequent = frequent
        self.start_time = datetime.datetime.now()
        self._data: dict[str, dict[str, list[Any]]] = {name: {"x": [], "y": []} for name in ("train", "eval")}
        super().__init__(None, metric_name, display_freq)

    def setup_chart(self) -> Any:
        self.fig = self.plotting.figure(x_axis_type="datetime", x_axis_label="Training time")
        self.fig.yaxis.axis_label = self.metric_name
        colors = {"train": "blue", "eval": "green"}
        self.lines = {name: self.fig.line([], [], line_color=c, legend_label=name) for name, c in colors.items()}
        return self.plotting.show(self.fig, notebook_handle=True)

    def update_chart_data(self) -> None:
        for name, line in self.lines.items():
            line.data_source.data = {axis: [*values] for axis, values in self._data[name].items()}

    def _process_batch(self, param: Any, df_name: str) -> None:
        if param.eval_metric is None:
            return
        found = dict(param.eval_metric.get_name_value())
        self._data[df_name]["x"].append(datetime.datetime.now() - self.start_time)
        self._data[df_name]["y"].append(found[self.metric_name])

    def batch_cb(self, param: Any) -> None:
        if param.nbatch % self.frequent == 0:
            self._process_batch(param, "train")
        super().batch_cb(param)

    def eval_cb(self, param: Any) -> None:
        self._process_batch(param, "eval")
        super().eval_cb(param)


def args_wrapper(*args: Any) -> dict[str, Any]:
    """The keyword arguments of `fit` that call all these loggers and charts."""
    found: dict[str, list[Any]] = defaultdict(list)
    for callbacks in args:
        for key, value in callbacks.callback_args().items():
            found[key].append(value)
    return dict(found)


_mxnet_names.explain(__name__)
