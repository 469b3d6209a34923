"""Writes down how real MXNet 1.9.1 names operators' inputs and results to hooks and monitors: `node_names.txt`.

An operator that registers no names of its inputs gets `input0`, `input1`, …; of its results, `output` in executors and
`0` in hybridized blocks. It runs in the venv that `record.py` describes:

    oracle/bin/python tests/oracle/node_names.py
"""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import sys
from pathlib import Path

import mxnet as mx

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from operators import samples, samples_custom  # noqa: E402

FILE = TESTS.parent / "frontend" / "language" / "mxnet_names" / "node_names.txt"


def shown(case: samples.Case) -> list[str]:
    """What a hook of a hybridized block with this one operator sees."""
    count = len(case.inputs)
    nodes = [{"op": "null", "name": f"v{k}", "inputs": []} for k in range(count)]
    attrs = {key: str(value) for key, value in case.attrs.items()}
    inputs = [[k, 0, 0] for k in range(count)]
    nodes.append({"op": case.operator, "name": "node", "attrs": attrs, "inputs": inputs})
    version = {"mxnet_version": ["int", 10901]}
    graph = {"nodes": nodes, "arg_nodes": list(range(count)), "heads": [[count, 0, 0]], "attrs": version}
    call = mx.nd.CachedOp(mx.sym.load_json(json.dumps(graph)))
    names: list[str] = []
    call._register_op_hook(lambda name, op, array: names.append(name.decode()), True)
    call(*(mx.nd.array(x, dtype=x.dtype) for x in case.inputs))
    mx.nd.waitall()
    return names


def in_a_process(case: samples.Case) -> list[str] | None:
    """None when MXNet refuses, hangs or dies."""
    end, begin = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(5)
        try:
            with os.fdopen(begin, "wb") as file, mx.util.np_shape(case.operator.startswith("_np")):
                pickle.dump(shown(case), file)
        finally:
            os._exit(0)
    os.close(begin)
    with os.fdopen(end, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    return pickle.loads(data) if data else None


def main() -> None:
    samples_custom.define(mx)
    unnamed_inputs, named_results = set(), set()
    for operator in samples.operators():
        asked = (in_a_process(case) for case in samples.cases(operator) if case.oracle)
        names = next((found for found in asked if found), None)
        if names is None or operator == "Custom":
            continue
        if any(re.fullmatch(r"node_input\d+", name) for name in names):
            unnamed_inputs.add(operator)
        if not re.fullmatch(r"node_\d+", names[-1]):
            named_results.add(operator)
    FILE.write_text(
        "# Operators whose inputs have no names in MXNet, and those whose results have: tests/oracle/node_names.py.\n"
        f"unnamed_inputs {' '.join(sorted(unnamed_inputs))}\nnamed_results {' '.join(sorted(named_results))}\n"
    )


if __name__ == "__main__":
    main()
