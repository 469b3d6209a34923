"""The lists for bfloat16."""

from gluonjit.contrib.amp import operator_lists as _lists
from gluonjit.language import mxnet_names as _mxnet_names

BF16_FUNCS = _lists.list_lp16_ops("bfloat16")
BF16_FP32_FUNCS = _lists.list_lp16_fp32_ops("bfloat16")
BF16_USE_FP32_PARAMS = _lists.list_lp16_use_fp32_params("bfloat16")
FP32_FUNCS = _lists.list_fp32_ops("bfloat16")
CONDITIONAL_FP32_FUNCS = _lists.list_conditional_fp32_ops("bfloat16")
WIDEST_TYPE_CASTS = _lists.list_widest_type_cast("bfloat16")
LOSS_OUTPUT_FUNCTIONS = _lists.list_loss_output_functions("bfloat16")

_mxnet_names.explain(__name__)
