"""A model with a loop in a loop, a loop that ends by itself, and a branch. Its export is in control-flow.json.

Run by a Python that has MXNet (see tests/oracle/record.py), this file records what MXNet writes and computes.
"""

import json
from pathlib import Path

RECORDED = Path(__file__).resolve().parents[1] / "data" / "checkpoint" / "control-flow.json"


def values(mx):
    """What the model is run on."""
    x = mx.nd.arange(16).reshape((4, 2, 2)) / 16
    return [x, mx.nd.array([[0.5, -1], [2, 0.25]])]


def model(mx):
    class Net(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="net_")
            with self.name_scope():
                self.dense = mx.gluon.nn.Dense(2, in_units=2, flatten=False, activation="relu")

        def hybrid_forward(self, F, x, state):
            total = x.sum()

            def step(row, states):
                def inner(item, found):
                    new = F.broadcast_add(found, F.broadcast_mul(item, total))
                    return new * 0.5, new

                rows, last = F.contrib.foreach(inner, row, states[0].sum(axis=0))
                out = self.dense(rows) + states[0]
                return [out, row], [F.broadcast_add(out, last), states[1]]

            (rows, _), states = F.contrib.foreach(step, x, [state, F.ones((3,))])
            found, (count, _) = F.contrib.while_loop(
                lambda i, s: i < 3,
                lambda i, s: (F.broadcast_add(s, i), [i + 1, s * 0.5]),
                [F.zeros((1,)), states[0]],
                5,
            )
            chosen = F.contrib.cond(total < 5, lambda: F.broadcast_add(state, total), lambda: states[0] * 2)
            return rows, states[1], found, count, chosen

    net = Net()
    net.initialize(mx.init.One())
    net.hybridize()
    return net


if __name__ == "__main__":
    import tempfile

    import mxnet

    net = model(mxnet)
    outputs = [x.asnumpy().tolist() for x in net(*values(mxnet))]
    with tempfile.TemporaryDirectory() as folder:
        net.export(f"{folder}/net")
        symbol = Path(f"{folder}/net-symbol.json").read_text()
    RECORDED.write_text(json.dumps({"symbol": symbol.splitlines(), "outputs": outputs}, indent=0) + "\n")
