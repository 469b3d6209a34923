"""LeNet-5 as the Gluon hybrid tutorial writes it: layers, plain operators and a weight used by hand in one block."""

import gluonjit as mx
from gluonjit import gluon
from gluonjit.gluon import nn


class Net(gluon.HybridBlock):
    """Images (batch, 1, 28, 28) → scores (batch, 10)."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.conv1 = nn.Conv2D(6, kernel_size=5)
            self.pool1 = nn.MaxPool2D(pool_size=2)
            self.conv2 = nn.Conv2D(16, kernel_size=5)
            self.pool2 = nn.MaxPool2D(pool_size=2)
            self.fc1 = nn.Dense(120)
            self.fc2 = nn.Dense(84)
            # A Dense layer would do; as a parameter it shows how weights reach hybrid_forward.
            self.fc3_weight = self.params.get("fc3_weight", shape=(10, 84))

    def hybrid_forward(self, F, x, fc3_weight):
        # F is mx.nd or mx.sym; x and fc3_weight are NDArrays or Symbols accordingly.
        x = self.pool1(F.relu(self.conv1(x)))
        x = self.pool2(F.relu(self.conv2(x)))
        x = x.reshape((0, -1))  # 0 keeps the batch, -1 takes the rest
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return F.dot(x, fc3_weight, transpose_b=True)


def net():
    """An initialized LeNet; what `gluonjit dump examples/lenet.py:net --input 16x1x28x28` shows."""
    block = Net()
    block.initialize(mx.init.Xavier())
    return block
