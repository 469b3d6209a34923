"""What MXNet says about Gluon's names, shapes, printed forms, graphs and signatures: see `oracle/record_gluon.py`."""

import json
import lzma
from pathlib import Path

TRUTHS = json.loads(lzma.decompress((Path(__file__).parents[1] / "data" / "gluon-graphs.json.xz").read_bytes()))
"""By 'cases' (of `oracle_cases.py`), 'zoo' (by model) and 'signatures' (by module)."""
