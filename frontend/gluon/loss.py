"""Losses: the distance of predictions from labels, one number per sample of the batch.

Unless its documentation says otherwise, a loss multiplies the elementwise loss by `sample_weight` (broadcast) and by
`weight`, then averages over all axes except `batch_axis`. `L` below is the elementwise loss, `y` the label.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from gluonjit import ndarray
from gluonjit.base import numeric_types
from gluonjit.gluon.block import HybridBlock

__all__ = [
    "CTCLoss",
    "CosineEmbeddingLoss",
    "HingeLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "L2Loss",
    "LogisticLoss",
    "Loss",
    "PoissonNLLLoss",
    "SDMLLoss",
    "SigmoidBCELoss",
    "SigmoidBinaryCrossEntropyLoss",
    "SoftmaxCELoss",
    "SoftmaxCrossEntropyLoss",
    "SquaredHingeLoss",
    "TripletLoss",
]


def _apply_weighting(F: Any, loss: Any, weight: float | None = None, sample_weight: Any = None) -> Any:
    """`loss` times both weights; either may be None."""
    if sample_weight is not None:
        loss = F.broadcast_mul(loss, sample_weight)
    if weight is not None:
        if not isinstance(weight, numeric_types):
            raise AssertionError("weight must be a number")
        loss = loss * weight
    return loss


_ALIKE = "A loss compares element by element: prediction and label must have equally many, best the same shape."
_OF_CLASSES = (
    "Labels are numbers of classes, one for each row of scores. For labels as long as the scores (one-hot, "
    "probabilities) write SoftmaxCrossEntropyLoss(sparse_label=False)."
)
_OF_SHARES = (
    "With sparse_label=False labels are as long as the scores (one-hot, probabilities). For numbers of classes leave it"
    " out."
)


@contextlib.contextmanager
def _advising(advice: str) -> Iterator[None]:
    """Adds advice to the error of an operator that refuses the labels."""
    try:
        yield
    except (RuntimeError, ValueError) as e:  # MXNet's errors are RuntimeErrors
        e.args = (f"{e}\n{advice}",)
        raise


def _reshape_like(F: Any, x: Any, y: Any, advice: str = _ALIKE) -> Any:
    """`x` in the shape of `y`."""
    with _advising(advice):
        return x.reshape(y.shape) if F is ndarray else F.reshape_like(x, y)


class Loss(HybridBlock):
    """The base of losses: `weight`, a number or None for 1, and `batch_axis`.

    A loss is a block: `loss(pred, label)` gives one number for each sample, (batch,): the mean over all axes but
    `batch_axis`, unless the class says otherwise. A third argument `sample_weight`, which broadcasts to pred,
    multiplies the elements before the mean.

    >>> class Cubic(loss.Loss):
    ...     def hybrid_forward(self, F, pred, label):
    ...         return F.mean(F.abs(pred - label) ** 3, axis=self._batch_axis, exclude=True)
    >>> Cubic(None, 0)(mx.nd.array([[1, 2]]), mx.nd.array([[0, 0]])).asnumpy()
    array([4.5], dtype=float32)
    """

    def __init__(self, weight: float | None, batch_axis: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._weight = weight
        self._batch_axis = batch_axis

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_axis={self._batch_axis}, w={self._weight})"

    def _mean(self, F: Any, loss: Any, sample_weight: Any) -> Any:
        """The weighted elementwise loss, averaged over each sample: shape (batch,)."""
        loss = _apply_weighting(F, loss, self._weight, sample_weight)
        return F.mean(loss, axis=self._batch_axis, exclude=True)


class L2Loss(Loss):
    """L = weight/2 · (y − pred)².

    pred and label of equal sizes → (batch,): the mean over each sample.

    >>> loss.L2Loss()(mx.nd.array([[1, 2]]), mx.nd.array([[0, 0]])).asnumpy()
    array([1.25], dtype=float32)
    """

    def __init__(self, weight: float = 1.0, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        loss = _apply_weighting(F, F.square(label - pred), self._weight / 2, sample_weight)  # type: ignore[operator]
        return F.mean(loss, axis=self._batch_axis, exclude=True)


class L1Loss(Loss):
    """L = |y − pred|.

    pred and label of equal sizes → (batch,): the mean over each sample.

    >>> loss.L1Loss()(mx.nd.array([[1, 2]]), mx.nd.array([[0, 0]])).asnumpy()
    array([1.5], dtype=float32)
    """

    def __init__(self, weight: float | None = None, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        return self._mean(F, F.abs(label - pred), sample_weight)


class SigmoidBinaryCrossEntropyLoss(Loss):
    """L = −(y·log p + (1 − y)·log(1 − p)) with p = sigmoid(pred), or p = pred when `from_sigmoid`.

    `pos_weight`, which broadcasts to the label, multiplies the first term. From logits, log(1 + e^−|pred|) keeps the
    formula from overflowing; with `from_sigmoid`, 1e-12 is added to what goes into the logarithms.

    pred and label of equal sizes → (batch,): the mean over each sample.

    >>> loss.SigmoidBCELoss()(mx.nd.array([[0, 100]]), mx.nd.array([[1, 1]])).asnumpy().round(4)
    array([0.3466], dtype=float32)
    """

    def __init__(
        self, from_sigmoid: bool = False, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_sigmoid = from_sigmoid

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None, pos_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        form = self._from_probability if self._from_sigmoid else self._from_logit
        return self._mean(F, form(F, pred, label, pos_weight), sample_weight)

    @staticmethod
    def _from_logit(F: Any, pred: Any, label: Any, pos_weight: Any) -> Any:
        if pos_weight is None:
            return F.relu(pred) - pred * label + F.Activation(-F.abs(pred), act_type="softrelu")
        log_weight = 1 + F.broadcast_mul(pos_weight - 1, label)
        return pred - pred * label + log_weight * (F.Activation(-F.abs(pred), act_type="softrelu") + F.relu(-pred))

    @staticmethod
    def _from_probability(F: Any, pred: Any, label: Any, pos_weight: Any) -> Any:
        tiny = 1e-12
        positive = F.log(pred + tiny) * label
        if pos_weight is not None:
            positive = F.broadcast_mul(positive, pos_weight)
        return -(positive + F.log(1.0 - pred + tiny) * (1.0 - label))


SigmoidBCELoss = SigmoidBinaryCrossEntropyLoss


class SoftmaxCrossEntropyLoss(Loss):
    """L = −log p[y] with p = softmax(pred) along `axis`; −Σ y·log p if `sparse_label` is False.

    `sparse_label`: labels are class indices, of pred's shape without `axis`; otherwise they are distributions of
    pred's shape. `from_logits`: pred is log p.

    pred (batch, classes, …) and label (batch, …) → (batch,), for the axis of the classes that `axis` names.

    >>> loss.SoftmaxCELoss()(mx.nd.array([[0, 0], [0, 100]]), mx.nd.array([0, 1])).asnumpy().round(4) + 0
    array([0.6931, 0.    ], dtype=float32)
    """

    def __init__(
        self,
        axis: int = -1,
        sparse_label: bool = True,
        from_logits: bool = False,
        weight: float | None = None,
        batch_axis: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._axis = axis
        self._sparse_label = sparse_label
        self._from_logits = from_logits

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if not self._from_logits:
            pred = F.log_softmax(pred, self._axis)
        if self._sparse_label:
            with _advising(_OF_CLASSES):
                loss = -F.pick(pred, label, axis=self._axis, keepdims=True)
        else:
            label = _reshape_like(F, label, pred, _OF_SHARES)
            loss = -F.sum(pred * label, axis=self._axis, keepdims=True)
        return self._mean(F, loss, sample_weight)


SoftmaxCELoss = SoftmaxCrossEntropyLoss


class KLDivLoss(Loss):
    """Σ y·(log(y + 1e-12) − log p) over each sample; log p is pred, or log_softmax(pred) unless `from_logits`.

    pred and label of equal shapes → (batch,).

    >>> loss.KLDivLoss(from_logits=False)(mx.nd.zeros((1, 4)), mx.nd.array([[1, 0, 0, 0]])).asnumpy().round(4)
    array([1.3863], dtype=float32)
    """

    def __init__(
        self,
        from_logits: bool = True,
        axis: int = -1,
        weight: float | None = None,
        batch_axis: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits = from_logits
        self._axis = axis

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if not self._from_logits:
            pred = F.log_softmax(pred, self._axis)
        loss = label * (F.log(label + 1e-12) - pred)
        loss = _apply_weighting(F, loss, self._weight, sample_weight)
        return F.sum(loss, axis=self._batch_axis, exclude=True)


class CTCLoss(Loss):
    """Connectionist temporal classification: −log p(label | pred), summed over all alignments.

    pred is (batch, time, classes) for `layout` 'NTC', label (batch, steps) for `label_layout` 'NT', padded with −1
    unless `label_lengths` are given. The last class is the blank.

    Result (batch,) (Graves et al., 2006). `pred_lengths` and `label_lengths` are (batch,).

    >>> pred = mx.nd.zeros((1, 2, 2))  # two steps of two classes, of which the last is the blank
    >>> loss.CTCLoss()(pred, mx.nd.array([[0, -1]])).asnumpy().round(4)  # three of four paths give the label
    array([0.2877], dtype=float32)
    """

    def __init__(
        self, layout: str = "NTC", label_layout: str = "NT", weight: float | None = None, **kwargs: Any
    ) -> None:
        if layout not in ("NTC", "TNC"):
            raise AssertionError(f"Only 'NTC' and 'TNC' layouts for pred are supported. Got: {layout}")
        if label_layout not in ("NT", "TN"):
            raise AssertionError(f"Only 'NT' and 'TN' layouts for label are supported. Got: {label_layout}")
        super().__init__(weight, label_layout.find("N"), **kwargs)
        self._layout = layout
        self._label_layout = label_layout

    def hybrid_forward(
        self,
        F: Any,
        pred: Any,
        label: Any,
        pred_lengths: Any = None,
        label_lengths: Any = None,
        sample_weight: Any = None,
    ) -> Any:
        if self._layout == "NTC":
            pred = F.swapaxes(pred, 0, 1)
        if self._batch_axis == 1:
            label = F.swapaxes(label, 0, 1)
        loss = F.CTCLoss(
            pred,
            label,
            pred_lengths,
            label_lengths,
            use_data_lengths=pred_lengths is not None,
            use_label_lengths=label_lengths is not None,
            blank_label="last",
        )
        return _apply_weighting(F, loss, self._weight, sample_weight)


class HuberLoss(Loss):
    """L = d²/(2·rho) where d = |y − pred| is at most rho, d − rho/2 elsewhere.

    pred and label of equal sizes → (batch,): the mean over each sample (Huber, 1964).

    >>> loss.HuberLoss()(mx.nd.array([[0.5, 3]]), mx.nd.array([[0, 0]])).asnumpy()
    array([1.3125], dtype=float32)
    """

    def __init__(self, rho: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._rho = rho

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        distance = F.abs(label - pred)
        far = distance > self._rho
        loss = F.where(far, distance - 0.5 * self._rho, (0.5 / self._rho) * F.square(distance))
        return self._mean(F, loss, sample_weight)


class HingeLoss(Loss):
    """L = max(0, margin − pred·y), for labels of −1 and 1.

    pred and label of equal sizes → (batch,): the mean over each sample.

    >>> loss.HingeLoss()(mx.nd.array([[0.5, -1]]), mx.nd.array([[1, 1]])).asnumpy()
    array([1.25], dtype=float32)
    """

    def __init__(self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        return self._mean(F, F.relu(self._margin - pred * label), sample_weight)


class SquaredHingeLoss(Loss):
    """L = max(0, margin − pred·y)², for labels of −1 and 1.

    pred and label of equal sizes → (batch,): the mean over each sample.

    >>> loss.SquaredHingeLoss()(mx.nd.array([[0.5, -1]]), mx.nd.array([[1, 1]])).asnumpy()
    array([2.125], dtype=float32)
    """

    def __init__(self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        return self._mean(F, F.square(F.relu(self._margin - pred * label)), sample_weight)


class LogisticLoss(Loss):
    """L = log(1 + e^(−pred·y)) for labels of −1 and 1, or, with `label_format='binary'`, of 0 and 1.

    pred and label of equal sizes → (batch,): the mean over each sample. ValueError for another `label_format`.

    >>> loss.LogisticLoss()(mx.nd.array([[0, 100]]), mx.nd.array([[1, 1]])).asnumpy().round(4)
    array([0.3466], dtype=float32)
    """

    def __init__(
        self, weight: float | None = None, batch_axis: int = 0, label_format: str = "signed", **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._label_format = label_format
        if label_format not in ("signed", "binary"):
            raise ValueError(f"label_format can only be signed or binary, recieved {label_format}.")

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        if self._label_format == "signed":
            label = (label + 1.0) / 2.0
        loss = F.relu(pred) - pred * label + F.Activation(-F.abs(pred), act_type="softrelu")
        return self._mean(F, loss, sample_weight)


class TripletLoss(Loss):
    """max(0, Σ(positive − pred)² − Σ(negative − pred)² + margin), the sums over each sample.

    pred, positive and negative of equal shapes → (batch,) (Schroff et al., 2015).

    >>> loss.TripletLoss()(mx.nd.array([[0]]), mx.nd.array([[1]]), mx.nd.array([[3]])).asnumpy()
    array([0.], dtype=float32)
    """

    def __init__(self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, positive: Any, negative: Any) -> Any:
        positive = _reshape_like(F, positive, pred)
        negative = _reshape_like(F, negative, pred)
        difference = F.square(positive - pred) - F.square(negative - pred)
        loss = F.relu(F.sum(difference, axis=self._batch_axis, exclude=True) + self._margin)
        return _apply_weighting(F, loss, self._weight, None)


class PoissonNLLLoss(Loss):
    """L = rate − target·log(rate), and its mean over *all* elements, samples included.

    The rate is e^pred, or pred itself unless `from_logits` (then `epsilon` is added in the logarithm).
    `compute_full` adds Stirling's approximation of log(target!) where target > 1.

    pred and target of equal sizes → one number.

    >>> loss.PoissonNLLLoss()(mx.nd.array([[0, 0]]), mx.nd.array([[1, 3]])).asnumpy()
    array([1.], dtype=float32)
    """

    def __init__(
        self,
        weight: float | None = None,
        from_logits: bool = True,
        batch_axis: int = 0,
        compute_full: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits = from_logits
        self._compute_full = compute_full

    def hybrid_forward(self, F: Any, pred: Any, target: Any, sample_weight: Any = None, epsilon: float = 1e-08) -> Any:
        target = _reshape_like(F, target, pred)
        if self._from_logits:
            loss = F.exp(pred) - target * pred
        else:
            loss = pred - target * F.log(pred + epsilon)
        if self._compute_full:
            stirling = target * F.log(target) - target + 0.5 * F.log(2 * target * np.pi)
            loss = loss + stirling * (target > 1)
        return F.mean(_apply_weighting(F, loss, self._weight, sample_weight))


class CosineEmbeddingLoss(Loss):
    """1 − cos(input1, input2) where the label is 1, max(0, cos − margin) where it is −1; shape (batch, 1).

    The inputs are vectors along their last axis.

    input1, input2 (batch, …, size), label (batch,) of 1 and −1.

    >>> loss.CosineEmbeddingLoss()(mx.nd.array([[1, 0]]), mx.nd.array([[0, 1]]), mx.nd.array([1])).asnumpy()
    array([[1.]], dtype=float32)
    """

    def __init__(self, weight: float | None = None, batch_axis: int = 0, margin: float = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, input1: Any, input2: Any, label: Any, sample_weight: Any = None) -> Any:
        input1 = _reshape_like(F, input1, input2)
        label = label.reshape((-1, 1))
        cosine = self._cosine_similarity(F, input1, input2)
        same, different = label == 1, label == -1
        pulled = (1 - cosine) * same
        pushed = F.broadcast_maximum(F.zeros((1, 1)), different * (cosine - self._margin), axis=1)
        return _apply_weighting(F, pulled + pushed, self._weight, sample_weight)

    @staticmethod
    def _cosine_similarity(F: Any, x: Any, y: Any, axis: int = -1) -> Any:
        """x·y / max(|x|·|y|, 1e-12), as a column."""
        x_norm = F.norm(x, axis=axis).reshape((-1, 1))
        y_norm = F.norm(y, axis=axis).reshape((-1, 1))
        product = F.sum(x * y, axis=axis).reshape((-1, 1))
        return product / F.broadcast_maximum(x_norm * y_norm, F.full((1, 1), 1e-12))


class SDMLLoss(Loss):
    """Smoothed deep metric learning: row k of x1 belongs to row k of x2, and to no other row.

    KL divergence between softmax(−|x1[i] − x2[j]|²) over j and the identity, smoothed by `smoothing_parameter`.
    x1 and x2 are (batch, dimensions).

    Result (batch,) (Bonadiman et al., 2019).

    >>> rows = mx.nd.array([[0, 0], [9, 9]])
    >>> loss.SDMLLoss()(rows, rows).shape
    (2,)
    """

    def __init__(
        self, smoothing_parameter: float = 0.3, weight: float = 1.0, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self.kl_loss = KLDivLoss(from_logits=True)
        self.smoothing_parameter = smoothing_parameter

    def hybrid_forward(self, F: Any, x1: Any, x2: Any) -> Any:
        if x1.shape != x2.shape:
            raise AssertionError(f"x1 and x2 must have one shape, but are {x1.shape} and {x2.shape}")
        batch, size = x1.shape
        left = x1.expand_dims(1).broadcast_to((batch, batch, size))
        right = x2.expand_dims(0).broadcast_to((batch, batch, size))
        distances = ((left - right) ** 2).sum(axis=2)
        gold = F.eye(batch)
        labels = gold * (1 - self.smoothing_parameter) + (1 - gold) * self.smoothing_parameter / (batch - 1)
        return self.kl_loss(F.log_softmax(-distances, axis=1), labels.as_in_context(distances.context))
