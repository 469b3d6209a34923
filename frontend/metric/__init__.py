"""`mx.metric`: the quality of predictions, accumulated over batches."""

from gluonjit import ndarray as ndarray
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.metric.base import (
    CompositeEvalMetric,
    CustomMetric,
    EvalMetric,
    alias,
    check_label_shapes,
    create,
    np,
    register,
)
from gluonjit.metric.classification import F1, MCC, PCC, Accuracy, TopKAccuracy
from gluonjit.metric.likelihood import Caffe, CrossEntropy, Loss, NegativeLogLikelihood, Perplexity, Torch
from gluonjit.metric.regression import MAE, MSE, RMSE, PearsonCorrelation

__all__ = [
    "F1",
    "MAE",
    "MCC",
    "MSE",
    "PCC",
    "RMSE",
    "Accuracy",
    "Caffe",
    "CompositeEvalMetric",
    "CrossEntropy",
    "CustomMetric",
    "EvalMetric",
    "Loss",
    "NegativeLogLikelihood",
    "PearsonCorrelation",
    "Perplexity",
    "TopKAccuracy",
    "Torch",
    "alias",
    "check_label_shapes",
    "create",
    "np",
    "register",
]

_mxnet_names.explain(__name__)
