"""What the processes of a distributed test do; one process alone does the same with the whole batch."""

from __future__ import annotations

import json
from contextlib import contextmanager, nullcontext

import numpy as np

import gluonjit as mx
from gluonjit import autograd, gluon, nd
from gluonjit.gluon import nn

STEPS, EXAMPLES = 5, 16


def network(embedded: bool = False, seed: int = 5) -> nn.HybridSequential:
    """Shapes are known after the first call only, one parameter is not trained, and one gradient adds up."""
    mx.random.seed(seed)
    net = nn.HybridSequential()
    if embedded:
        net.add(nn.Embedding(10, 4, sparse_grad=True))
    net.add(nn.Dense(16, activation="relu"), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    net[-1].bias.grad_req = "null"
    net[-2].bias.grad_req = "add"
    net.hybridize()
    return net


def batches(embedded: bool = False) -> list[tuple[np.ndarray, np.ndarray]]:
    draw = np.random.RandomState(0)
    shape = (EXAMPLES, 6)
    return [
        (
            (draw.randint(0, 10, shape) if embedded else draw.randn(*shape)).astype(np.float32),
            draw.randint(0, 3, EXAMPLES).astype(np.float32),
        )
        for _ in range(STEPS)
    ]


def part(x: np.ndarray, rank: int, size: int) -> nd.NDArray:
    each = len(x) // size
    return nd.array(x[rank * each : (rank + 1) * each])


@contextmanager
def one_compiles(store):
    """Other ranks do this after rank 0, whose code they then find in the object cache: many ranks, few cores."""
    if store is not None and store.rank:
        store._barrier()
    yield
    if store is not None and not store.rank:
        store._barrier()


def total(store, values: np.ndarray) -> np.ndarray:
    """The sums over ranks."""
    if store is None:
        return values
    array = nd.array(values)
    own = mx.kv.create(store.type)
    own.init("values", array)
    own.pushpull("values", array)
    return array.asnumpy()


def gluon_losses(store=None, update_on_kvstore=None, optimizer="adam", embedded=False, resumed_from=None) -> list[str]:
    """The loss of every step, summed over ranks, exactly. `resumed_from`: a file name; training is stopped in the
    middle, and goes on with a new network from what was saved."""
    rank, size = (0, 1) if store is None else (store.rank, store.num_workers)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    def start():
        net = network(embedded)
        own = None if store is None else mx.kv.create(store.type)
        return net, gluon.Trainer(
            net.collect_params(),
            optimizer,
            {"learning_rate": 0.05},
            kvstore="device" if own is None else own,
            update_on_kvstore=update_on_kvstore,
        )

    net, trainer = start()
    found = []
    for k, (x, y) in enumerate(batches(embedded)):
        if resumed_from and k == STEPS // 2:
            if rank == 0:
                net.save_parameters(f"{resumed_from}.params")
                trainer.save_states(f"{resumed_from}.states")
            if store is not None:
                store._barrier()
            net, trainer = start()
            net.load_parameters(f"{resumed_from}.params")
            trainer.load_states(f"{resumed_from}.states")
        net[-2].bias.zero_grad()
        with one_compiles(store) if k == 0 else nullcontext():
            with autograd.record():
                loss = loss_of(net(part(x, rank, size)), part(y, rank, size))
            loss.backward()
        trainer.step(EXAMPLES)
        found.append(loss.sum().asnumpy())
    return [float(x).hex() for x in total(store, np.concatenate(found).astype(np.float64)) / EXAMPLES]


def module_losses(store=None) -> list[str]:
    """The same of `Module.fit`."""
    rank, size = (0, 1) if store is None else (store.rank, store.num_workers)
    data = batches()
    x, y = (np.concatenate([part(b[k], rank, size).asnumpy() for b in data]) for k in (0, 1))
    mx.random.seed(5)
    out = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="dense")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(out, mx.sym.var("softmax_label")))
    found = []

    def note(batch) -> None:
        output = module.get_outputs()[0].asnumpy()
        label = batch.locals["data_batch"].label[0].asnumpy().astype(int)
        found.append(-np.log(output[np.arange(len(label)), label]).sum())

    module.fit(
        mx.io.NDArrayIter(x, y, EXAMPLES // size),
        num_epoch=2,
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9},
        initializer=mx.init.Xavier(),
        kvstore="local" if store is None else store,
        batch_end_callback=note,
    )
    return [float(v).hex() for v in total(store, np.array(found, np.float64)) / EXAMPLES]


def sparse_module_weights(store=None) -> list[float]:
    """The weights of a linear model of csr batches, whose gradients are row_sparse, after three steps of a Module."""
    rank, size = (0, 1) if store is None else (store.rank, store.num_workers)
    weight = mx.sym.var("w", shape=(6, 1), stype="row_sparse", init=mx.init.One())
    out = mx.sym.LinearRegressionOutput(mx.sym.dot(mx.sym.var("data", stype="csr"), weight), mx.sym.var("label"))
    module = mx.mod.Module(out, label_names=["label"])
    module.bind([("data", (4 // size, 6))], [("label", (4 // size, 1))])
    module.init_params()
    module.init_optimizer(store or "local", optimizer_params={"learning_rate": 0.1})
    for k in range(3):
        x = np.arange(24, dtype=np.float32).reshape(4, 6) % 7 * (np.arange(24).reshape(4, 6) % 3 == k)
        x = mx.nd.array(part(x, rank, size)).tostype("csr")
        module.forward_backward(mx.io.DataBatch([x], [mx.nd.ones((4 // size, 1))]))
        module.update()
    return module.get_params()[0]["w"].asnumpy().ravel().tolist()


def shown(done) -> dict:
    """What the processes of a program that ended well have printed, as JSON."""
    assert done.returncode == 0, done.stderr
    return {k: v for line in done.stdout.splitlines() for k, v in json.loads(line).items()}


def numbers(texts: list[str]) -> np.ndarray:
    return np.array([float.fromhex(x) for x in texts])
