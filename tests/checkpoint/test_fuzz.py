"""Damaged files load to something sound, or raise CheckpointError: nothing else happens, quickly, in little memory."""

import json
import random
import time
import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.base import CheckpointError
from gluonjit.files import params
from gluonjit.ir.types import dtype_of
from gluonjit.symbol.graph import post_order
from support import reference
from support.soak import tries

from . import building, mutation, test_fused
from .control_flow_graph import RECORDED
from .early_graphs import GRAPHS

ROUNDS = tries(600)
PARTS = 3
"""Tests per kind, so that several processes share the work."""

SPARE = 16 << 20
"""Bytes that reading may take beside twice the file's size."""

SECONDS = 1
"""Of the processor's time, that reading may take. It takes a millisecond."""


@contextmanager
def watched(size, memory=True):
    """Fails when what is done within hangs, or, unless `memory` is false, takes too much of it for a file of `size`
    bytes."""
    if memory:
        tracemalloc.start()
    start = time.process_time()
    try:
        yield
    finally:
        seconds = time.process_time() - start
        if memory:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak <= 2 * size + SPARE
        assert seconds <= SECONDS


def parameter_files(root):
    """Small files of every version, type and storage."""
    arrays = [np.arange(6).astype(code).reshape(2, 3) for code in building.FLAGS]
    makers = (building.v0, building.v1, building.v2, building.v3)
    records = [makers[k % 4](x) for k, x in enumerate(arrays)]
    records += [building.v3(np.array(1, "f4")), building.v2(arrays[0][:0]), building.v2(np.ones(3, "u2"), flag=12)]
    names = [f"arg:layer{k}_weight".encode() for k in range(len(records))]
    yield building.file(records, names)
    yield building.file(records)
    yield building.file([building.v2(np.ones((3, 1, 2), "u1"), flag=7)], [b"b"])
    yield (root / "tests" / "data" / "checkpoint" / "sparse.params").read_bytes()


def seeds(part):
    return range(part, ROUNDS, PARTS)


@pytest.mark.filterwarnings("ignore:.*sparse arrays are read as dense ones")
@pytest.mark.parametrize("part", range(PARTS))
def test_parameters(part, root):
    files = list(parameter_files(root))
    loaded = 0
    for seed in seeds(part):
        rng = random.Random(seed)
        data = mutation.damaged(rng.choice(files), rng)
        try:
            with watched(len(data)):
                arrays = params.parse(data, "fuzz")
        except CheckpointError as e:
            assert str(e).startswith("fuzz: byte ")
            continue
        loaded += 1
        values = list(arrays.values()) if isinstance(arrays, dict) else arrays
        assert all(dtype_of(x) and x.flags.c_contiguous and x.flags.owndata for x in values)
        again = params.parse(b"".join(map(bytes, params.chunks(arrays))), "again")
        assert type(again) is type(arrays) or not values
    assert loaded, "every file was refused: the damage is too great to test anything"


def graph_files():
    """Small graphs, of all versions."""
    yield from (json.dumps(graph) for graph in GRAPHS.values())
    for name in ("hybridnet_tutorial", "batchnorm", "fire"):
        yield (reference.folder() / name / "model-symbol.json").read_text()
    yield "".join(json.loads(RECORDED.read_text())["symbol"])
    yield test_fused.graph("calibrated")


@pytest.mark.parametrize("part", range(PARTS))
def test_graphs(part):
    files = list(graph_files())
    loaded = 0
    for seed in seeds(part):
        rng = random.Random(seed)
        text = rng.choice(files)
        if rng.random() < 0.7:
            text = mutation.distorted(text, rng)
        else:
            text = mutation.damaged(text.encode(), rng).decode(errors="replace")
        try:
            # Looking at memory takes two thirds of the time.
            with watched(len(text), memory=seed % 9 < PARTS):
                symbol = mx.sym.load_json(text)
        except CheckpointError as e:
            assert str(e).startswith("<string>: ")
            continue
        loaded += 1
        for node in post_order(symbol._heads):
            assert node.op is None or len(node.inputs) == len(node.op.input_names(node.parsed))
            assert all(0 <= k < source.visible for source, k in node.inputs)
        again = mx.sym.load_json(symbol.tojson())
        assert again.list_outputs() == symbol.list_outputs()
        assert again.list_inputs() == symbol.list_inputs()
    assert loaded, "every file was refused: the damage is too great to test anything"
