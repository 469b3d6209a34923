"""Training in several processes, started by `mpirun`: the numbers of one process, and errors that name a rank."""

import re
import time

import numpy as np
import pytest

from support import ranks
from support.ranks import numbers, shown

START = """
import json, os, sys, time
import numpy as np
import gluonjit as mx
from gluonjit import MXNetError, autograd, gluon, nd
from support import ranks

def show(**values):
    if store.rank == 0:
        print(json.dumps(values), flush=True)

store = mx.kv.create("dist_sync")
rank, size = store.rank, store.num_workers
"""


def test_losses_are_those_of_one_process(mpirun, tmp_path):
    wanted = numbers(ranks.gluon_losses())
    two = shown(
        mpirun(
            2,
            START
            + """
show(
    on_store=ranks.gluon_losses(store, True),
    off_store=ranks.gluon_losses(store, False),
    resumed=ranks.gluon_losses(store, resumed_from="stopped"),
    embedded=ranks.gluon_losses(store, optimizer="sgd", embedded=True),
    module=ranks.module_losses(store),
    sparse_module=ranks.sparse_module_weights(store),
)
""",
        )
    )
    np.testing.assert_allclose(numbers(two["on_store"]), wanted, rtol=1e-5)
    assert two["off_store"] == two["resumed"] == two["on_store"]
    embedded = numbers(ranks.gluon_losses(optimizer="sgd", embedded=True))
    np.testing.assert_allclose(numbers(two["embedded"]), embedded, rtol=1e-5)
    np.testing.assert_allclose(numbers(two["module"]), numbers(ranks.module_losses()), rtol=1e-5)
    np.testing.assert_allclose(two["sparse_module"], ranks.sparse_module_weights(), rtol=1e-5)


def test_stores_sum_and_ranks_that_differ_get_errors(mpirun):
    two = shown(
        mpirun(
            2,
            START
            + """
out = nd.zeros((2, 3))
store.init("a", nd.full((2, 3), rank + 1))
store.pull("a", out)
show(init=out.asnumpy().tolist())
value = nd.full((2, 3), rank + 1)
store.push("a", [value, value])
store.pull("a", out)
show(push=out.asnumpy().tolist(), pushed=value.asnumpy().tolist())
half = [nd.full((3,), 1 + rank / 1024, dtype=t) for t in ("float16", "int32", "float64")]
store.init(["1", "2", "3"], half)
store.pushpull(["1", "2", "3"], half)
show(types=[x.asnumpy().tolist() for x in half])
many = [nd.full((700, 900), k + rank) for k in range(5)]
store.init(list("vwxyz"), many)
store.pushpull(list("vwxyz"), many)
show(buckets=[[float(x.min().asscalar()), float(x.max().asscalar())] for x in many])
rows = nd.sparse.row_sparse_array((np.ones((2, 3)), [rank, 2]), shape=(4, 3))
store.init("rows", rows)
store.push("rows", rows)
got = nd.sparse.zeros("row_sparse", (4, 3))
store.row_sparse_pull("rows", got, row_ids=nd.array([0, 1, 2, 3]))
show(rows=got.asnumpy()[:, 0].tolist())

def refused(act):
    try:
        act()
    except MXNetError as e:
        return str(e)

other = nd.zeros((3, 2)) if rank else nd.zeros((2, 3))
show(errors=[
    refused(lambda: store.pushpull("a", other)),
    refused(lambda: store.push("a", value) if rank else store._barrier()),
    refused(lambda: store.init("b" if rank else "c", value)),
    refused(lambda: store.push(["a", "z"] if rank else ["a"], [value, many[0]][: rank + 1])),
    refused(lambda: store.set_gradient_compression({"type": "2bit"})),
    refused(lambda: store.set_optimizer(mx.optimizer.create("adam" if rank else "sgd"))),
])
store.set_optimizer(mx.optimizer.SGD(learning_rate=0.1 + rank))
show(rate=refused(lambda: store.push("a", value)))
store._barrier()
show(any=[store.any(rank == 1), store.any(False)])
""",
        )
    )
    assert two["init"] == [[1.0] * 3] * 2
    assert two["push"] == [[6.0] * 3] * 2 and two["pushed"] == [[1.0] * 3] * 2
    assert two["types"][1] == [2] * 3 and two["types"][2] == [2 + 1 / 1024] * 3
    assert two["buckets"] == [[2.0 * k + 1] * 2 for k in range(5)]
    assert two["rows"] == [1.0, 1.0, 2.0, 0.0]
    shape, call, key, more, compression, optimizer = two["errors"]
    assert "rank 1" in shape and "'a' is (3, 2) float32" in shape and "(2, 3) float32" in shape
    assert "rank 1" in call and "calls push" in call and "calls barrier" in call
    assert "rank 1" in key and "has key 'b'" in key
    assert "rank 1" in more and "has key 'z'" in more
    assert "leave compression_params out" in compression
    assert "rank 1" in optimizer and "Adam" in optimizer and "SGD" in optimizer
    assert "rank 1" in two["rate"] and "learning rate" in two["rate"]
    assert two["any"] == [True, False]


ENDS = {
    "kill": ("os.kill(os.getpid(), 9)", "rank 1 .*has died"),
    "raise": ("raise ValueError('no luck')", "rank 1 .*was ended by ValueError: no luck"),
    "finish": ("sys.exit(0)", "rank 1 .*has come to the end of its program"),
    "late": ("time.sleep(100)", "has waited 1 s for push: rank 1 .*did not come"),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_rank_that_ends_or_falls_behind_ends_the_others(mpirun, end):
    how, words = ENDS[end]
    program = f"""
x = nd.ones(3)
x.attach_grad()
store.init("a", x)
for step in range(4):
    with autograd.record():
        y = x * x
    y.backward()
    if step == 3 and rank == 1:
        {how}
    store.push("a", x.grad)
    assert step == 0 or store._early._plan is not None, "sums would not begin in backward"
print("went on")
"""
    began = time.monotonic()
    done = mpirun(2, START + program, **({"GLUONJIT_DIST_TIMEOUT": "1"} if end == "late" else {}))
    assert time.monotonic() - began < 30
    assert done.returncode != 0 and "went on" not in done.stdout
    assert re.search(words, done.stderr), done.stderr


def test_the_document_runs(mpirun, root):
    text = (root / "docs" / "distributed.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.S)
    done = mpirun(2, program)
    assert done.returncode == 0, done.stderr
    losses = [float(x) for x in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert len(losses) == 5 and losses[-1] < losses[0]
