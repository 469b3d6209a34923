"""Automatic mixed precision."""

from gluonjit.contrib.amp import amp, lists
from gluonjit.contrib.amp.amp import init, init_trainer, scale_loss, unscale
from gluonjit.contrib.amp.conversion import (
    convert_bucketing_module,
    convert_hybrid_block,
    convert_model,
    convert_symbol,
)
from gluonjit.contrib.amp.loss_scaler import LossScaler
from gluonjit.contrib.amp.operator_lists import (
    list_conditional_fp32_ops,
    list_fp32_ops,
    list_loss_output_functions,
    list_lp16_fp32_ops,
    list_lp16_ops,
    list_lp16_use_fp32_params,
    list_widest_type_cast,
)
from gluonjit.language import mxnet_names as _mxnet_names

__all__ = [
    "LossScaler",
    "amp",
    "convert_bucketing_module",
    "convert_hybrid_block",
    "convert_model",
    "convert_symbol",
    "init",
    "init_trainer",
    "list_conditional_fp32_ops",
    "list_fp32_ops",
    "list_loss_output_functions",
    "list_lp16_fp32_ops",
    "list_lp16_ops",
    "list_lp16_use_fp32_params",
    "list_widest_type_cast",
    "lists",
    "scale_loss",
    "unscale",
]

_mxnet_names.explain(__name__)
