"""The base of metrics: sums over batches, names, and creation by name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

import numpy

from gluonjit import registry
from gluonjit.language.source import refusal
from gluonjit.ndarray import NDArray

NAN = float("nan")
_Update = TypeVar("_Update", bound=Callable[..., None])


def check_label_shapes(labels: Any, preds: Any, wrap: bool = False, shape: bool = False) -> tuple[Any, Any]:
    """Raises ValueError unless both have the same length (`shape`: the same shape).

    `wrap` returns each of them as a list, if it is one NDArray.
    """
    ours, theirs = (labels.shape, preds.shape) if shape else (len(labels), len(preds))
    if ours != theirs:
        raise ValueError(f"Shape of labels {ours} does not match shape of predictions {theirs}")
    if wrap:
        labels, preds = ([x] if isinstance(x, NDArray) else x for x in (labels, preds))
    return labels, preds


def located(update: _Update) -> _Update:
    """An `update` of a metric whose errors name the metric, the shapes and the user's line."""

    @functools.wraps(update)
    def call(self: Any, labels: Any, preds: Any) -> None:
        try:
            update(self, labels, preds)
        except (AssertionError, AttributeError, IndexError, TypeError, ValueError) as e:
            if str(e).startswith("Error in "):
                raise
            given = f"{type(self).__name__}.update(labels: {_described(labels)}, preds: {_described(preds)})"
            why = str(e).strip() or "labels and predictions do not fit"
            raise refusal(type(e), given, why) from e

    return cast(_Update, call)


def _described(arrays: Any) -> str:
    """Shapes of arrays, or what is no array, for a message."""
    if isinstance(arrays, (list, tuple)):
        return "[" + ", ".join(map(_described, arrays)) + "]"
    return str(arrays.shape) if hasattr(arrays, "shape") else repr(arrays)[:50]


class EvalMetric:
    """The mean of a quantity over all instances passed to `update`.

    A metric keeps two sums: a local one, which `reset_local` clears (after a log line), and a global one, which only
    `reset` clears. `output_names` and `label_names` select the entries that `update_dict` uses; None means all.

    `update(labels, preds)` takes arrays or lists of them, `get()` gives (name, value), NaN before the first update.

    >>> class Largest(mx.metric.EvalMetric):
    ...     def update(self, labels, preds):
    ...         for pred in preds:
    ...             self.sum_metric += float(pred.max().asscalar())
    ...             self.num_inst += 1
    >>> metric = Largest("largest")
    >>> metric.update([], [mx.nd.array([1, 5]), mx.nd.array([3])])
    >>> metric.get()
    ('largest', 4.0)
    """

    num_inst: Any
    sum_metric: Any
    global_num_inst: Any
    global_sum_metric: Any

    def __init__(
        self,
        name: str,
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.name = str(name)
        self.output_names = output_names
        self.label_names = label_names
        self._has_global_stats = kwargs.pop("has_global_stats", False)
        self._kwargs = kwargs
        self.reset()

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"

    def get_config(self) -> dict[str, Any]:
        """The configuration from which `create(**config)` makes an equal metric."""
        own = {"metric": type(self).__name__, "name": self.name}
        return {**self._kwargs, **own, "output_names": self.output_names, "label_names": self.label_names}

    def update_dict(self, label: Mapping[str, NDArray], pred: Mapping[str, NDArray]) -> None:
        """`update` with arrays by name."""
        preds = list(pred.values()) if self.output_names is None else [pred[name] for name in self.output_names]
        labels = list(label.values()) if self.label_names is None else [label[name] for name in self.label_names]
        self.update(labels, preds)

    def update(self, labels: Any, preds: Any) -> None:
        """Adds a batch: lists of labels and predictions, or one array each."""
        raise NotImplementedError

    def _add(self, total: Any, count: Any) -> None:
        """Adds `count` instances, whose quantities sum to `total`."""
        if isinstance(total, numpy.floating):
            total = float(total)  # in NumPy 2, 0.0 + a float32 is a float32, which loses digits batch by batch
        self.sum_metric += total
        self.global_sum_metric += total
        self.num_inst += count
        self.global_num_inst += count

    def reset(self) -> None:
        self.global_num_inst = 0
        self.global_sum_metric = 0.0
        self.reset_local()

    def reset_local(self) -> None:
        self.num_inst = 0
        self.sum_metric = 0.0

    def _value(self, total: Any, count: Any) -> Any:
        """The metric's value for a sum over `count` instances."""
        return total / count if count else NAN

    def get(self) -> tuple[Any, Any]:
        """(name, value) since the last reset of either kind; NaN before any update."""
        return self.name, self._value(self.sum_metric, self.num_inst)

    def get_global(self) -> tuple[Any, Any]:
        """(name, value) since the last `reset`."""
        if not self._has_global_stats:
            return self.get()
        return self.name, self._value(self.global_sum_metric, self.global_num_inst)

    def get_name_value(self) -> list[tuple[str, Any]]:
        """`get` as list of pairs."""
        return _pairs(*self.get())

    def get_global_name_value(self) -> list[tuple[str, Any]]:
        return _pairs(*self.get_global())


def _pairs(name: Any, value: Any) -> list[tuple[str, Any]]:
    return list(zip(*(x if isinstance(x, list) else [x] for x in (name, value))))


def batches(labels: Any, preds: Any) -> Iterator[tuple[numpy.ndarray, numpy.ndarray]]:
    """Yields each label with its prediction, as NumPy arrays. ValueError if their numbers differ."""
    for label, pred in zip(*check_label_shapes(labels, preds, wrap=True)):
        yield label.asnumpy(), pred.asnumpy()


register = registry.get_register_func(EvalMetric, "metric")
alias = registry.get_alias_func(EvalMetric, "metric")
_create = registry.get_create_func(EvalMetric, "metric")


def create(metric: Any, *args: Any, **kwargs: Any) -> EvalMetric:
    """A metric from a name, a function of (label, prediction), or a list of these."""
    if callable(metric):
        return CustomMetric(metric, *args, **kwargs)
    if isinstance(metric, list):
        return CompositeEvalMetric([create(child, *args, **kwargs) for child in metric])
    return _create(metric, *args, **kwargs)


@register
@alias("composite")
class CompositeEvalMetric(EvalMetric):
    """Several metrics as one: names and values are lists.

    >>> metric = mx.metric.CompositeEvalMetric(["acc", "mse"])
    >>> metric.get()[0]
    ['accuracy', 'mse']
    """

    def __init__(
        self,
        metrics: list[Any] | None = None,
        name: str = "composite",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
    ) -> None:
        self.metrics = [create(metric) for metric in metrics or []]
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def add(self, metric: Any) -> None:
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        if not -len(self.metrics) <= index < len(self.metrics):
            raise ValueError(f"Metric index {index} is out of range 0 and {len(self.metrics)}")
        return self.metrics[index]

    def update_dict(self, label: Mapping[str, NDArray], pred: Mapping[str, NDArray]) -> None:
        if self.label_names is not None:
            label = {name: x for name, x in label.items() if name in self.label_names}
        if self.output_names is not None:
            pred = {name: x for name, x in pred.items() if name in self.output_names}
        for metric in self.metrics:
            metric.update_dict(label, pred)

    def update(self, labels: Any, preds: Any) -> None:
        for metric in self.metrics:
            metric.update(labels, preds)

    def reset(self) -> None:
        for metric in self.metrics:
            metric.reset()

    def reset_local(self) -> None:
        for metric in self.metrics:
            metric.reset_local()

    def get(self) -> tuple[list[str], list[Any]]:
        return self._collect(metric.get() for metric in self.metrics)

    def get_global(self) -> tuple[list[str], list[Any]]:
        return self._collect(metric.get_global() for metric in self.metrics)

    @staticmethod
    def _collect(results: Iterator[tuple[Any, Any]]) -> tuple[list[str], list[Any]]:
        pairs = [pair for result in results for pair in _pairs(*result)]
        return [name for name, _ in pairs], [value for _, value in pairs]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "metrics": [metric.get_config() for metric in self.metrics]}


@register
class CustomMetric(EvalMetric):
    """The mean of `feval(label, prediction)`, on NumPy arrays; it returns a number or (sum, count).

    >>> metric = mx.metric.CustomMetric(lambda label, pred: float(abs(label - pred).max()), name="worst")
    >>> metric.update(mx.nd.array([1, 2]), mx.nd.array([1, 5]))
    >>> metric.get()
    ('worst', 3.0)
    """

    def __init__(
        self,
        feval: Callable[[numpy.ndarray, numpy.ndarray], Any],
        name: str | None = None,
        allow_extra_outputs: bool = False,
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
    ) -> None:
        if name is None:
            name = feval.__name__
            if "<" in name:  # a lambda
                name = f"custom({name})"
        self._feval = feval
        self._allow_extra_outputs = allow_extra_outputs
        super().__init__(
            name,
            output_names,
            label_names,
            feval=feval,
            allow_extra_outputs=allow_extra_outputs,
            has_global_stats=True,
        )

    def update(self, labels: Any, preds: Any) -> None:
        if not self._allow_extra_outputs:
            labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds):
            result = self._feval(label.asnumpy(), pred.asnumpy())
            self._add(*result if isinstance(result, tuple) else (result, 1))

    def get_config(self) -> dict[str, Any]:
        raise NotImplementedError("CustomMetric cannot be serialized")


def np(numpy_feval: Callable[..., Any], name: str | None = None, allow_extra_outputs: bool = False) -> CustomMetric:
    """A metric that averages a function (label, prediction) of NumPy arrays."""

    def feval(label: numpy.ndarray, pred: numpy.ndarray) -> Any:
        return numpy_feval(label, pred)

    feval.__name__ = numpy_feval.__name__
    return CustomMetric(feval, name, allow_extra_outputs)
