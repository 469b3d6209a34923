"""Real MXNet's half of `tests/reference/test_round_trip.py`, which runs it with a Python that has MXNet:

    oracle/bin/python tests/oracle/round_trip.py FOLDER NAME …

Imports `FOLDER/ours/<name>` of each case and exports its own model as `FOLDER/theirs/<name>`. Prints, line by line,
JSON: the case, how far the outputs of the imported model were from those that came with it, and what went wrong.
"""

from __future__ import annotations

import json
import sys
import warnings

import mxnet as mx
import round_trip_cases as cases


def main(folder: str, names: list[str]) -> None:
    warnings.simplefilter("ignore")
    for name in names:
        report = {"name": name, "apart": None, "import": None, "export": None}
        try:
            report["apart"] = cases.imported(mx, f"{folder}/ours/{cases.slug(name)}")
        except Exception as e:
            report["import"] = f"{type(e).__name__}: {e}"
        try:
            cases.export(mx, name, f"{folder}/theirs/{cases.slug(name)}")
        except Exception as e:
            report["export"] = f"{type(e).__name__}: {e}"
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
