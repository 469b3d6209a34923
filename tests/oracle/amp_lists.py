"""Writes the operator lists of real MXNet's automatic mixed precision to `frontend/contrib/amp/operators.json`.

oracle/bin/python tests/oracle/amp_lists.py
"""

import json
from pathlib import Path

from mxnet.contrib.amp import lists

NAMES = {
    "lp16": "{}_FUNCS",
    "fp32": "FP32_FUNCS",
    "lp16_fp32": "{}_FP32_FUNCS",
    "conditional_fp32": "CONDITIONAL_FP32_FUNCS",
    "widest": "WIDEST_TYPE_CASTS",
    "loss_output": "LOSS_OUTPUT_FUNCTIONS",
}

found = {}
for dtype, short, module in (("float16", "FP16", lists.symbol_fp16), ("bfloat16", "BF16", lists.symbol_bf16)):
    found[dtype] = {key: getattr(module, name.format(short)) for key, name in NAMES.items()}
    found[dtype]["lp16_use_fp32_params"] = getattr(module, "BF16_USE_FP32_PARAMS", None)
path = Path(__file__).resolve().parents[2] / "frontend" / "contrib" / "amp" / "operators.json"
path.write_text(json.dumps(found, indent=0) + "\n")
