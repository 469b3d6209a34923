"""Sums that begin while backward runs: the bits of those that begin in the step, whatever a program does between."""

import numpy as np

from support import ranks
from support.ranks import numbers, shown

PROGRAM = """
import hashlib, json, os, time
from contextlib import nullcontext
from functools import cache
import numpy as np
import gluonjit as mx
from gluonjit import autograd, gluon, nd
from gluonjit.gluon import nn
from support import ranks
from support.ranks import one_compiles

rank = None
STEPS = 6


def under_way(bucket):
    return bucket.is_under_way or (bucket.stage == 0 and all(x is not None for x in bucket.values))


@cache
def made(hybrid, dtype):
    # What it compiles serves all that is trained so.
    net = nn.HybridSequential()
    net.add(nn.Dense(160, activation="relu", in_units=120), nn.Dense(160, in_units=160, use_bias=False))
    net.add(nn.Dense(4, in_units=160))
    net.cast(dtype)
    net.hybridize(hybrid)
    return net


def train(early, between=None, hybrid=True, on_store=True, request="write", dtype="float32"):
    global rank
    os.environ["GLUONJIT_DIST_OVERLAP"] = "1" if early else "0"
    store = mx.kv.create("dist_sync")
    rank = store.rank
    net = made(hybrid, dtype)
    mx.random.seed(3)
    net.initialize(mx.init.Xavier(), force_reinit=True)
    params = net.collect_params()
    params.setattr("grad_req", request)
    trainer = gluon.Trainer(params, "sgd", {"learning_rate": 0.1, "momentum": 0.9}, store, update_on_kvstore=on_store)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    draw = np.random.RandomState(rank)
    sent = []

    def backward():
        with autograd.record():
            loss = loss_of(net(nd.array(draw.randn(8, 120), dtype=dtype)), nd.array(draw.randint(0, 4, 8), dtype=dtype))
        loss.backward()

    for step in range(STEPS):
        params.zero_grad()
        with one_compiles(store) if step == 0 else nullcontext():
            backward()
        plan = store._early._plan
        if plan is not None:
            if early == "all":
                until = time.monotonic() + 60
                while any(map(under_way, plan._buckets)) and time.monotonic() < until:
                    time.sleep(1e-3)
            sent.append(sum(b.is_early for b in plan._buckets) / len(plan._buckets))
        if between is not None:
            between(step, net, backward)
        trainer.step(32)
    digest = hashlib.md5(b"".join(p.data().asnumpy().tobytes() for p in params.values())).hexdigest()
    return digest, sent


def show(**values):
    if rank == 0:
        print(json.dumps(values), flush=True)


def reads(step, net, backward):
    # What a program sees between backward and the step is this rank's own.
    own = net[0].weight.grad().asnumpy()
    time.sleep(2e-3)
    assert (net[0].weight.grad().asnumpy() == own).all()


def clips(step, net, backward):
    gluon.utils.clip_global_norm([p.grad() for p in net.collect_params().values()], 0.05)


def gets_other_arrays(step, net, backward):
    if rank == 1 and step == 2:
        net.cast("float64")
        net.cast("float32")
        backward()


def clips_on_one_rank(step, net, backward):
    if rank == 1 and step == 3:
        clips(step, net, backward)


def twice(step, net, backward):
    for _ in range(1 + (step + rank) % 3):
        backward()


def changes_unseen(step, net, backward):
    nd.from_dlpack(net[1].weight.grad().to_dlpack_for_write())[:] *= 0.5
"""


def test_bits_of_four_processes(mpirun):
    found = shown(
        mpirun(
            4,
            PROGRAM
            + """
for name, settings in {
    "compiled": {},
    "tape": {"hybrid": False, "dtype": "float16"},
    "off_store": {"on_store": False, "dtype": "float64"},
    "add": {"request": "add"},
    "reads": {"between": reads},
    "clips": {"between": clips},
    "clips_on_one_rank": {"between": clips_on_one_rank},
    "twice": {"between": twice},
    "gets_other_arrays": {"between": gets_other_arrays},
    "changes_unseen": {"between": changes_unseen},
}.items():
    late, _ = train(False, **settings)
    early, sent = train("all", **settings)
    show(**{name: [early == late, sent, late]})
show(again=train(True)[0])
for key in ("losses", "losses_again"):
    show(**{key: ranks.gluon_losses(mx.kv.create("dist_sync"), True)})
""",
        )
    )
    losses = found.pop("losses")
    assert found.pop("again") == found["compiled"][2] and found.pop("losses_again") == losses
    np.testing.assert_allclose(numbers(losses), numbers(ranks.gluon_losses()), rtol=1e-5)
    assert {name: same for name, (same, _, _) in found.items()} == dict.fromkeys(found, True)
    # From the third step on: the share of buckets that was sent before the step. One whose early sum was useless rests.
    sent = {name: sent for name, (_, sent, _) in found.items()}
    assert sent.pop("add") == []
    assert sent.pop("clips") == sent.pop("twice") == [1.0, 0.0, 1.0, 0.0]
    assert sent.pop("clips_on_one_rank") == [1.0, 1.0, 0.0, 1.0]
    assert sent.pop("changes_unseen") == [1.0, 0.75, 1.0, 0.75]
    assert sent.pop("gets_other_arrays") == [1.0, 1.0, 1.0]  # one step without, to look at the others
    assert sent == dict.fromkeys(sent, [1.0] * 4)
