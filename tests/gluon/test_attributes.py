"""What `hybrid_forward` reads and sets of its blocks: compiled code follows, or the block runs as Python."""

import copy
import pickle
import random
import threading
import warnings

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon, nd
from gluonjit.gluon import nn
from support.threads import at_once

X = nd.array([1.0, 2.0])


class Scaled(gluon.HybridBlock):
    """Reads attributes: its own, a class's, one that may be missing, and one by a computed name."""

    bias = 0

    def __init__(self):
        super().__init__()
        self.scale, self.power = 2, 1

    def hybrid_forward(self, F, x):
        y = x * self.scale + self.bias
        if hasattr(self, "negate"):
            y = -y
        return y ** getattr(self, "pow" + "er")


def compiled(block):
    """A hybridized block that has been called, and runs natively."""
    block.initialize()
    block.hybridize()
    block(X)
    assert block._jit_cached.traces and block._fast_call is not None
    return block


@pytest.mark.parametrize("name, value", [("scale", 3), ("power", 2.0), ("bias", 1), ("negate", True), ("scale", 2.0)])
def test_changes_of_what_was_read_are_seen(name, value):
    block = compiled(Scaled())
    setattr(block, name, value)
    plain = Scaled()
    setattr(plain, name, value)
    assert block(X).asnumpy().tolist() == plain(X).asnumpy().tolist()
    delattr(block, name)
    if name in ("negate", "bias"):
        assert block(X).asnumpy().tolist() == [2, 4]
    else:
        with pytest.raises(AttributeError, match=name):
            block(X)


def test_other_changes_drop_nothing():
    block = compiled(Scaled())
    known, fast = block._jit_cached.traces[0], block._fast_call
    block.scale, block.epoch, block.power = 2, 7, int("1")
    assert block._jit_cached.traces == [known] and block._fast_call is fast


def test_changes_inside_of_a_compiled_block_are_seen():
    """A layer's own attributes, too: the program of `Dropout` and `LeakyReLU` is gluonjit's."""
    inner = Scaled()
    net = nn.HybridSequential()
    net.add(nn.HybridLambda(lambda F, x: x + 1), inner, nn.LeakyReLU(0.5))
    compiled(net)
    inner.scale = -1
    assert net(X).asnumpy().tolist() == [-1, -1.5]
    net[2]._alpha = 1
    assert net(X).asnumpy().tolist() == [-2, -3]


@pytest.mark.parametrize("method", ["forward", "hybrid_forward"])
def test_a_method_that_is_replaced_on_the_block(method):
    block = compiled(Scaled())
    net = nn.HybridSequential()
    net.add(block)
    net.hybridize()
    compiled(net)
    block(X)
    assert block._fast_call is not None
    setattr(block, method, lambda *args: args[-1] * 7)
    assert block(X).asnumpy().tolist() == net(X).asnumpy().tolist() == [7, 14]
    delattr(block, method)
    assert block(X).asnumpy().tolist() == net(X).asnumpy().tolist() == [2, 4]


def test_an_array_that_is_replaced_from_outside():
    class Shifted(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.shift = nd.zeros((1,))

        def hybrid_forward(self, F, x):
            return x + self.shift

    block = compiled(Shifted())
    block.shift = nd.ones((1,))
    assert block(X).asnumpy().tolist() == [2, 3]
    block.shift[:] = 5
    assert block(X).asnumpy().tolist() == [6, 7]


class Counting(gluon.HybridBlock):
    """The next call is another one."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def hybrid_forward(self, F, x):
        self.calls += 1
        return x * self.calls


def silent(function, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return function(*args)


def test_a_program_that_counts_runs_as_python():
    block = Counting()
    block.hybridize()
    with pytest.warns(
        UserWarning, match=r"(?s)counting\d+ .*runs as Python.*self\.calls.*test_attributes.py:\d+.*calls \+= 1"
    ):
        assert block(X).asnumpy().tolist() == [1, 2]
    assert silent(block, X).asnumpy().tolist() == [2, 4] and block.calls == 2
    with pytest.raises(RuntimeError, match="runs as Python"):
        block.export("nowhere")


def test_what_is_beside_it_is_compiled():
    net = nn.HybridSequential()
    net.add(nn.HybridLambda(lambda F, x: x + 1), Counting(), nn.HybridLambda(lambda F, x: x + 1))
    net.hybridize()
    with pytest.warns(UserWarning, match="and the blocks around it"):
        assert net(X).asnumpy().tolist() == [3, 4]
    assert silent(net, X).asnumpy().tolist() == [5, 7]
    assert net(X).asnumpy().tolist() == [7, 10]
    assert net[0]._jit_cached.traces and net[1]._jit_cached is None and net._jit_cached is None


class Lazy(gluon.HybridBlock):
    """Makes at first what later calls use; anew for another length."""

    def __init__(self):
        super().__init__()
        self.grid = None

    def hybrid_forward(self, F, x):
        if self.grid is None or len(self.grid) != len(x):
            self.grid = nd.arange(len(x))
        return x + self.grid


def test_what_is_made_at_the_first_call():
    block = Lazy()
    block.hybridize()
    assert silent(block, X).asnumpy().tolist() == [1, 3]
    assert isinstance(block.grid, nd.NDArray) and block._jit_cached.traces
    assert silent(block, X).asnumpy().tolist() == [1, 3] and len(block._jit_cached.traces) == 1
    assert block._fast_call is not None
    longer = nd.array([1, 1, 1])
    assert silent(block, longer).asnumpy().tolist() == [1, 2, 3]
    assert silent(block, longer).asnumpy().tolist() == [1, 2, 3]
    assert silent(block, X).asnumpy().tolist() == [1, 3]
    with pytest.warns(UserWarning, match="runs as Python"):  # there and back so often that tracing does not pay
        for k in range(40):
            x = (X, longer)[k % 2]
            assert block(x).asnumpy().tolist() == (x.asnumpy() + np.arange(len(x))).tolist()


class Shifted(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.shift = self.params.get_constant("shift", [1, 2])

    def hybrid_forward(self, F, x, shift):
        return x + shift


class Growing(gluon.HybridBlock):
    """A block that makes a layer at its first call, and does not register it, as targets of detectors are made."""

    def __init__(self):
        super().__init__()
        self._layers = set()

    def hybrid_forward(self, F, x):
        if not self._layers:
            layer = gluon.nn.HybridSequential()
            layer.add(
                gluon.nn.Dense(2, in_units=3, weight_initializer="ones"), gluon.nn.BatchNorm(in_channels=2), Shifted()
            )
            layer.initialize()
            self._layers.add(layer)
        (layer,) = self._layers
        return layer(x)


@pytest.mark.filterwarnings("ignore:hybrid_forward of .* sets self.shift")
@pytest.mark.parametrize("hybridize", [False, True])
def test_a_layer_that_the_program_initializes(hybridize):
    net = Growing()
    net.hybridize(hybridize)
    x = mx.nd.array([[1, 2, 3], [4, 5, 6]])
    for _ in range(2):
        np.testing.assert_allclose(net(x).asnumpy(), [[7, 8], [16, 17]], rtol=1e-4)
    (layer,) = net._layers
    with mx.autograd.record():
        y = net(x)
    y.backward(mx.nd.array([[1, 0], [0, 0]]))
    assert np.abs(layer[0].weight.grad().asnumpy()[0]).max() > 0 and layer[1].running_mean.data().asnumpy().any()


def test_arrays_that_are_replaced():
    class Running(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.mean = nd.zeros((2,))

        def hybrid_forward(self, F, x):
            self.mean = self.mean * 0.5 + x
            return self.mean

    plain, block = Running(), Running()
    block.hybridize()
    with pytest.warns(UserWarning, match=r"(?s)runs as Python.*self\.mean"):
        for _ in range(4):
            assert block(X).asnumpy().tolist() == plain(X).asnumpy().tolist()
    assert isinstance(block.mean, nd.NDArray)


def test_what_is_only_set_is_said():
    class Keeping(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            self.seen = x * 2
            return x + 1

    block = Keeping()
    block.hybridize()
    with pytest.warns(UserWarning, match=r"(?s)sets self\.seen.*when the block is traced.*self\.seen = x \* 2") as said:
        block(X)
    assert said[0].filename == __file__
    assert silent(block, X).asnumpy().tolist() == [2, 3] and block._fast_call is not None


@pytest.mark.parametrize(
    "draw",
    [
        lambda block: random.random(),
        lambda block: random.gauss(0, 1),
        lambda block: np.random.uniform(),
        lambda block: np.random.permutation(5)[0],
        lambda block: block.generator.standard_normal(),
        lambda block: block.old.rand(),
        lambda block: block.python.random(),
        lambda block: block.bits.random_raw() % 1024,
    ],
)
def test_random_numbers_of_python_and_numpy(draw):
    class Noisy(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.generator, self.old, self.python = np.random.default_rng(3), np.random.RandomState(3), random.Random(3)
            self.bits = np.random.PCG64(3)

        def hybrid_forward(self, F, x):
            y = x + 1
            noise = float(draw(self))
            return y + noise

    def calls(block):
        random.seed(5), np.random.seed(5)
        return [block(X).asnumpy().tolist() for _ in range(3)]

    net = nn.HybridSequential()
    net.add(nn.HybridLambda(lambda F, x: x * 1), Noisy())
    net.hybridize()
    with pytest.warns(UserWarning, match=r"(?s)noisy\d+ .*draws random numbers.*return y \+ noise.*F\.random"):
        found = calls(net)
    np.testing.assert_allclose(found, calls(Noisy()), rtol=1e-6)
    assert len({tuple(x) for x in found}) == 3
    assert net[0]._jit_cached.traces and net[1]._jit_cached is None


def test_random_numbers_of_the_system():
    class Noisy(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.system = random.SystemRandom()

        def hybrid_forward(self, F, x):
            return x + self.system.random()

    block = Noisy()
    block.hybridize()
    with pytest.warns(UserWarning, match=r"(?s)noisy\d+ .*draws random numbers"):
        assert len({float(block(X).asnumpy()[0]) for _ in range(3)}) == 3


def test_random_numbers_of_other_threads():
    """A thread that loads data may draw while another one traces: its sequence goes on, and the block is compiled."""
    turns = [random.random]

    class Slow(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            y = x + 1
            if turns:
                thread = threading.Thread(target=turns.pop())
                thread.start()
                thread.join()
            return y * 2

    random.seed(7)
    numbers = [random.random() for _ in range(2)]
    random.seed(7)
    block = Slow()
    block.hybridize()
    assert silent(block, X).asnumpy().tolist() == [4, 6]
    assert random.random() == numbers[1] and block._fast_call is not None


def test_seeding_is_refused():
    class Seeding(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            mx.random.seed(3)
            return x + F.random.uniform(shape=(2,))

    block = Seeding()
    block.hybridize()
    with pytest.raises(mx.base.TraceError, match=r"(?s)mx\.random\.seed.*mx\.random\.seed\(3\).*before the call"):
        block(X)


def test_modes_are_apart():
    """Random only while training: what it computes otherwise stays compiled."""

    class Dropped(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x * (random.random() if mx.autograd.is_training() else 2)

    block = compiled(Dropped())
    with mx.autograd.train_mode(), pytest.warns(UserWarning, match="runs as Python"):
        assert block(X).asnumpy().tolist() != block(X).asnumpy().tolist()
    assert silent(block, X).asnumpy().tolist() == [2, 4]
    silent(block, X)
    assert block._fast_call is not None


def test_plain_values_that_are_only_set():
    """As a part of a network of gluoncv does for another part."""

    class Tuned(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.part = Scaled()

        def hybrid_forward(self, F, x):
            self.part.scale, self.sizes = 3, (x.shape[0], "a")
            return self.part(x)

    block = Tuned()
    block.hybridize()
    for _ in range(3):
        assert silent(block, X).asnumpy().tolist() == [3, 6]
    block.part.scale = 7
    assert silent(block, X).asnumpy().tolist() == [3, 6] and block.part.scale == 3


class Sizes(gluon.HybridBlock):
    """Each shape has a trace of its own, which sets or reads the same attribute."""

    rows = 1

    def hybrid_forward(self, F, x):
        if x.shape[0] > 2:
            return x * self.rows
        self.rows = x.shape[0] + 5
        return x


def test_every_call_sets_what_a_program_sets():
    one, two, three = nd.ones((1,)), nd.ones((2,)), nd.ones((3,))
    plain, block = Sizes(), Sizes()
    block.hybridize()
    for x in (three, one, three, two, three, two, two, three, one, one, three):
        assert block(x).asnumpy().tolist() == plain(x).asnumpy().tolist()
        assert block.rows == plain.rows
    for x in (one, three):
        block.rows = plain.rows = 40
        assert block(x).asnumpy().tolist() == plain(x).asnumpy().tolist()
        assert block.rows == plain.rows


def test_setting_again_keeps_traces():
    class Counted(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            self.rows = x.shape[0]
            return x * self.rows

    block = Counted()
    block.hybridize()
    for n in (2, 3, 2, 3):
        assert block(nd.ones((n,))).asnumpy().tolist() == [n] * n and block.rows == n
    assert len(block._jit_cached.traces) == 2


class Slotted(gluon.HybridBlock):
    __slots__ = ("calls", "scale")

    def __init__(self):
        super().__init__()
        self.scale, self.calls = 2, 0

    def hybrid_forward(self, F, x):
        return x * self.scale


class Computed(gluon.HybridBlock):
    """Keeps an attribute where nobody looks."""

    def __init__(self):
        super().__init__()
        self._kept = {}
        self.scale = 2

    @property
    def scale(self):
        return self._kept["scale"]

    @scale.setter
    def scale(self, value):
        self._kept["scale"] = value

    @scale.deleter
    def scale(self):
        self._kept["scale"] = 1

    def hybrid_forward(self, F, x):
        return x * self.scale


@pytest.mark.parametrize("kind", [Slotted, Computed])
def test_slots_and_properties(kind):
    block = compiled(kind())
    block.scale = 3
    assert block(X).asnumpy().tolist() == [3, 6]
    if kind is Computed:
        del block.scale
        assert block(X).asnumpy().tolist() == [1, 2]


def test_counting_in_a_slot():
    class Steps(Slotted):
        def hybrid_forward(self, F, x):
            self.calls += 1
            return x * self.calls

    block = Steps()
    block.hybridize()
    with pytest.warns(UserWarning, match="runs as Python"):
        assert [block(X).asnumpy()[0] for _ in range(3)] == [1, 2, 3]


def test_what_is_deleted_was_there():
    class Once(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.ticket = 1

        def hybrid_forward(self, F, x):
            del self.ticket
            return x * 2

    block = Once()
    block.hybridize()
    assert block(X).asnumpy().tolist() == [2, 4]
    for _ in range(2):
        with pytest.raises(AttributeError, match="ticket"):
            block(X)
    block.ticket = 2
    with pytest.warns(UserWarning, match="runs as Python"):
        assert block(X).asnumpy().tolist() == [2, 4]


def test_a_call_is_done_though_the_next_one_will_fail():
    class Twice(gluon.HybridBlock):
        left = 1

        def hybrid_forward(self, F, x):
            if not self.left:
                raise KeyError("no call left")
            self.left -= 1
            return x * 2

    block = Twice()
    block.hybridize()
    assert block(X).asnumpy().tolist() == [2, 4]
    with pytest.raises(KeyError, match="no call left"):
        block(X)


def test_changes_while_another_thread_traces():
    others = []

    class Racing(Scaled):
        def hybrid_forward(self, F, x):
            y = x * self.scale
            if others:
                thread = others.pop()
                thread.start()
                thread.join()
            return y

    block = Racing()
    block.hybridize()
    others.append(threading.Thread(target=setattr, args=(block, "scale", 9)))
    assert block(X).asnumpy().tolist() == [2, 4]
    assert block(X).asnumpy().tolist() == [9, 18]


def test_export_after_one_call(tmp_path):
    block = Lazy()
    block.hybridize()
    block(X)
    block.export(str(tmp_path / "lazy"))
    net = gluon.SymbolBlock.imports(str(tmp_path / "lazy-symbol.json"), ["data"], str(tmp_path / "lazy-0000.params"))
    assert net(X).asnumpy().tolist() == [1, 3]
    other = Lazy()
    other.optimize_for(X, backend="llvm")
    assert other._jit_cached.traces


def test_failures_leave_nothing_behind():
    class Failing(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def hybrid_forward(self, F, x):
            self.calls += 1
            random.random()
            return F.elemwise_add(x, F.ones((7,)))

    block = Failing()
    block.hybridize()
    random.seed(1)
    before = random.getstate()
    with pytest.raises(mx.MXNetError):
        block(X)
    assert block.calls == 0 and random.getstate() == before


def test_looking_for_shapes_leaves_nothing_behind():
    class Deferred(Counting):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(2)

        def hybrid_forward(self, F, x):
            self.calls += 1
            return self.dense(x)

    block = Deferred()
    block.initialize()
    block(nd.ones((1, 3)))
    assert block.calls == 1


def test_copies_and_pickles_are_on_their_own():
    block = compiled(Scaled())
    for other in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        other.scale = 5
        assert block._jit_cached.traces
        assert other(X).asnumpy().tolist() == [5, 10]
    assert block(X).asnumpy().tolist() == [2, 4]


def test_copies_have_the_attributes_in_slots():
    class Slotted(Scaled):
        __slots__ = ("__hidden", "empty", "temperature")

        def __init__(self):
            super().__init__()
            self.temperature = 3
            self.__hidden = 4

        def hidden(self):
            return self.__hidden

    block = compiled(Slotted())
    for other in (copy.deepcopy(block), copy.copy(block)):
        assert other.temperature == 3 and other.hidden() == 4 and not hasattr(other, "empty")
        assert other(X).asnumpy().tolist() == [2, 4]


def test_no_cost_after_the_trace():
    compiled(Scaled())
    assert "__getattribute__" not in vars(gluon.Block)


def test_threads_that_call_while_one_changes():
    """Every answer is one of before or after the change, and the last one that of after."""
    block = compiled(Scaled())
    done = threading.Event()

    def call():
        while not done.is_set():
            assert block(X).asnumpy().tolist() in [[k, 2 * k] for k in range(2, 8)]

    def change():
        try:
            for k in range(2, 8):
                block.scale = k
                assert block(X).asnumpy().tolist() == [k, 2 * k]
        finally:
            done.set()

    at_once(lambda k: change() if k == 0 else call(), 3)
    assert block(X).asnumpy().tolist() == [7, 14]
