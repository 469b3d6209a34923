"""Graphs as MXNet wrote them from 0.8 on. What 1.9.1 makes of them is in tests/data/checkpoint/early-graphs.json.

Run by a Python that has MXNet (see tests/oracle/record.py), this file records that.
"""

import json
from pathlib import Path

RECORDED = Path(__file__).resolve().parents[1] / "data" / "checkpoint" / "early-graphs.json"


def variable(name, **more):
    return {"op": "null", "name": name, "inputs": [], **more}


def graph(nodes, heads, version=None):
    variables = [k for k, node in enumerate(nodes) if node["op"] == "null"]
    made = {"nodes": nodes, "arg_nodes": variables, "heads": heads}
    if version is not None:
        made["attrs"] = {"mxnet_version": ["int", version]}
    return made


def with_multipliers():
    """As 0.8 did: operators' attributes apart, no auxiliary states, `lr_mult` and its like bare."""
    nodes = [
        variable("data", param={}, backward_source_id=-1, attr={"ctx_group": "stage1", "lr_mult": "0.2"}),
        variable("fc_weight", param={}, attr={"wd_mult": "0.3", "weight_lr_mult": "1.2"}, backward_source_id=-1),
        variable("fc_bias", param={}),
        {
            "op": "FullyConnected",
            "param": {"no_bias": "False", "num_hidden": "8"},
            "name": "fc",
            "inputs": [[0, 0], [1, 0], [2, 0]],
            "backward_source_id": -1,
            "attr": {"wd_mult": "0.3", "weight_lr_mult": "1.2", "data_lr_mult": "7"},
        },
        variable("gamma", attr={"__init__": '["one", {}]'}),
        variable("beta"),
        {
            "op": "BatchNorm",
            "param": {"eps": "0.001", "fix_gamma": "True"},
            "name": "bn",
            "inputs": [[3, 0], [4, 0], [5, 0]],
            "attr": {"ctx_group": "stage2", "gamma_wd_mult": "5"},
        },
        {"op": "_Plus", "param": {}, "name": "p", "inputs": [[6, 0], [6, 0]], "attr": {"force_mirroring": "True"}},
    ]
    return graph(nodes, [[7, 0]])


def whole(version):
    """Nothing is missing, but early versions meant something else by argmax, and told variables less."""
    nodes = [
        variable("data", attr={"lr_mult": "2", "plain": "x"}),
        variable("alpha"),
        {"op": "LeakyReLU", "name": "leaky", "attr": {"act_type": "prelu"}, "inputs": [[0, 0, 0], [1, 0, 0]]},
        *map(variable, ("gamma", "beta", "mean", "var")),
        {"op": "BatchNorm", "name": "bn", "attr": {}, "inputs": [[k, 0, k > 4] for k in (2, 3, 4, 5, 6)]},
        {"op": "argmax", "name": "largest", "attr": {"axis": "-1"}, "inputs": [[7, 0, 0]]},
        {"op": "argmin", "name": "smallest", "attr": {"axis": "1"}, "inputs": [[7, 0, 0]]},
    ]
    for edge in nodes[7]["inputs"]:
        edge[2] = int(edge[2])
    return graph(nodes, [[8, 0, 0], [9, 0, 0]], version)


def with_hidden_outputs():
    """Operators with more outputs than one, and attributes under all three names."""
    nodes = [
        variable("x"),
        {"op": "Dropout", "name": "d", "attr": {"p": "0.5"}, "inputs": [[0, 0]]},
        {"op": "Pooling", "name": "q", "param": {"kernel": "(2,2)", "pool_type": "max"}, "inputs": [[1, 0]]},
        {"op": "SliceChannel", "name": "s", "attrs": {"num_outputs": "3"}, "inputs": [[2, 0]]},
        {"op": "Concat", "name": "c", "param": {"num_args": "3", "dim": "1"}, "inputs": [[3, 0], [3, 1], [3, 2]]},
        {"op": "FullyConnected", "name": "", "attr": {"num_hidden": "3", "__own__": "1"}, "inputs": [[4, 0]]},
    ]
    return graph(nodes, [[5, 0], [3, 1]])


def contradicting():
    return graph([variable("x", param={"b": "4", "c": "5"}, attrs={"a": "1"}, attr={"a": "2", "b": "3"})], [[0, 0, 0]])


GRAPHS = {
    "0.8": with_multipliers(),
    "hidden outputs": with_hidden_outputs(),
    "contradicting": contradicting(),
    **{f"whole {version}": whole(version) for version in (None, 900, 903, 904, 905, 10000, 10900)},
}


if __name__ == "__main__":
    import mxnet

    recorded = {name: mxnet.sym.load_json(json.dumps(g)).tojson() for name, g in GRAPHS.items()}
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")
