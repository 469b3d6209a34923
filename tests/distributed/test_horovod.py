"""Programs that import `horovod.mxnet` run with `gluonjit exec`."""

import numpy as np

from support import ranks
from support.ranks import numbers, shown

PROGRAM = """
import json
import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from support import ranks

try:
    hvd.size()
except ValueError as e:
    early = str(e)
hvd.init()
rank, size = hvd.rank(), hvd.size()


def show(**values):
    if rank == 0:
        print(json.dumps(values), flush=True)


def means(values):
    return [float(x).hex() for x in hvd.allreduce(mx.nd.array(values, dtype="float64"), name="losses").asnumpy()]


show(early=early, local=[hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()])

# Other first values on each rank, which are known after the first call only.
net = ranks.network(seed=5 + rank)
params = net.collect_params()
hvd.broadcast_parameters(params, root_rank=0)
trainer = hvd.DistributedTrainer(params, mx.optimizer.create("adam", learning_rate=0.05))
loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
losses = []
for x, y in ranks.batches():
    net[-2].bias.zero_grad()
    with autograd.record():
        loss = loss_of(net(ranks.part(x, rank, size)), ranks.part(y, rank, size))
    loss.backward()
    trainer.step(len(loss))
    losses.append(float(loss.asnumpy().astype("float64").mean()))
show(gluon=means(losses))


class Plain(mx.optimizer.Optimizer):
    def create_state(self, index, weight):
        return None

    def update(self, index, weight, grad, state):
        weight -= self.lr * self.rescale_grad * grad


for name, made in (("sgd", mx.optimizer.SGD), ("own", Plain)):
    symbol = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="dense")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(symbol, mx.sym.var("softmax_label")))
    (x, y), *_ = ranks.batches()
    x, y = ranks.part(x, rank, size).asnumpy(), ranks.part(y, rank, size).asnumpy()
    data = mx.io.NDArrayIter(x, y, len(x))
    module.bind(data.provide_data, data.provide_label)
    module.init_params(mx.init.Constant(0.1 * (rank + 1)))
    args, aux = module.get_params()
    hvd.broadcast_parameters(args, root_rank=0)
    module.set_params(args, aux)
    optimizer = hvd.DistributedOptimizer(made(learning_rate=0.5, rescale_grad=1 / len(x)))
    assert isinstance(optimizer, hvd.DistributedOptimizer) and isinstance(optimizer, made)
    module.fit(data, kvstore=None, optimizer=optimizer, num_epoch=3)
    show(**{name: module.get_params()[0]["dense_weight"].asnumpy().tolist()})

own = mx.nd.full((1 + rank, 2), rank)
show(
    mean=hvd.allreduce(mx.nd.full(2, rank)).asnumpy().tolist(),
    sum=hvd.allreduce(mx.nd.full(2, rank + 1), average=False).asnumpy().tolist(),
    gathered=hvd.allgather(own).asnumpy().tolist(),
    last=hvd.broadcast(mx.nd.full(2, rank), root_rank=1).asnumpy().tolist(),
)
store = mx.kv.create("horovod")
x = mx.nd.full(2, rank + 1)
store.pushpull("x", x)
show(store=[store.type, store.is_capable("optimizer"), x.asnumpy().tolist()])
"""


def module_weight():
    import gluonjit as mx

    symbol = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="dense")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(symbol, mx.sym.var("softmax_label")))
    (x, y), *_ = ranks.batches()
    data = mx.io.NDArrayIter(x, y, len(x))
    settings = {"learning_rate": 0.5, "rescale_grad": 1 / len(x)}
    module.fit(data, initializer=mx.init.Constant(0.1), optimizer_params=settings, num_epoch=3)
    return module.get_params()[0]["dense_weight"].asnumpy()


def test_a_program_with_horovods_names(mpirun):
    two = shown(mpirun(2, PROGRAM, "-m", "gluonjit", "exec"))
    assert two["early"] == "Horovod has not been initialized; use hvd.init()."
    assert two["local"] == [0, 2, 0, 1, True]
    np.testing.assert_allclose(numbers(two["gluon"]), numbers(ranks.gluon_losses()), rtol=1e-5)
    for name in ("sgd", "own"):
        np.testing.assert_allclose(two[name], module_weight(), rtol=1e-5, atol=1e-6)
    assert two["mean"] == [0.5] * 2 and two["sum"] == [3.0] * 2 and two["last"] == [1.0] * 2
    assert two["gathered"] == [[0.0] * 2, [1.0] * 2, [1.0] * 2]
    assert two["store"] == ["horovod", False, [3.0] * 2]
