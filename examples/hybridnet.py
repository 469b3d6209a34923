"""The tutorial's small net that prints what `hybrid_forward` gets: NDArrays in every call, or Symbols in one trace."""

from gluonjit.gluon import nn


class HybridNet(nn.HybridBlock):
    """Vectors (batch, 4) → (batch, 2)."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden = nn.Dense(10)
        self.output = nn.Dense(2)

    def hybrid_forward(self, F, x):
        print("F: ", F)
        print("x: ", x)
        x = F.relu(self.hidden(x))
        print("hidden: ", x)
        return self.output(x)


def net():
    """An initialized HybridNet."""
    block = HybridNet()
    block.initialize()
    return block
