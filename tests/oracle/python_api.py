"""Keeps what real MXNet answers to `tests/support/python_api.py` in `tests/data/python_api.json`.

It runs in the venv that `record.py` describes:

    oracle/bin/python tests/oracle/python_api.py
"""

import json
import sys
from pathlib import Path

import mxnet as mx
import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from support import python_api  # noqa: E402

np.bool = bool  # MXNet 1.9.1 asks NumPy for it
text = json.dumps(python_api.answers(mx), indent=None, separators=(",", ":"))
(TESTS / "data" / "python_api.json").write_text(text.replace('],"', '],\n"') + "\n")
