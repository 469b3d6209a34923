"""Blocks: names, registration, hooks, summary, copies."""

import copy
import pickle
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon, nd
from gluonjit.gluon import block, nn

pytestmark = pytest.mark.usefixtures("fresh_names")


def names(block):
    return list(block.collect_params().keys())


class Both(gluon.HybridBlock):
    """Parameters, a constant and children of all kinds."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.w = self.params.get("w", shape=(2, 2))
            self.k = self.params.get_constant("k", [1.0, 2.0])
            self.d = nn.Dense(2)
            self.seq = nn.HybridSequential(prefix="")
            self.seq.add(nn.Dense(2), nn.Dense(2))

    def hybrid_forward(self, F, x, w, k):
        return F.dot(self.seq(self.d(x)), w) * k


# Names


def test_children_made_outside_a_scope_have_names_of_their_own():
    net = nn.HybridSequential()
    net.add(nn.Dense(2), nn.Dense(2))
    assert (net.prefix, net.name) == ("hybridsequential0_", "hybridsequential0")
    assert names(net) == ["dense0_weight", "dense0_bias", "dense1_weight", "dense1_bias"]
    assert list(net._collect_params_with_prefix()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_children_made_inside_a_scope_have_the_parents_prefix():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        layers = [nn.Dense(2, prefix="fc_"), nn.Conv2D(2, 1), nn.Conv1D(2, 1), nn.MaxPool2D(), nn.GlobalAvgPool1D()]
        layers += [nn.Conv2DTranspose(1, 1), nn.BatchNorm(), nn.Activation("relu"), nn.HybridLambda("tanh")]
    with net.name_scope():  # entering again goes on counting
        layers.append(nn.Conv3D(2, 1))
    assert [layer.prefix for layer in layers] == [
        "net_fc_",
        "net_conv0_",
        "net_conv1_",
        "net_pool0_",
        "net_pool1_",
        "net_conv2_",
        "net_batchnorm0_",
        "net_relu0_",
        "net_hybridlambda0_",
        "net_conv3_",
    ]


def test_nested_scopes_unwind():
    outer = nn.Sequential(prefix="outer_")
    with outer.name_scope():
        inner = nn.Sequential()
        with inner.name_scope(), inner.name_scope():
            assert nn.Dense(1).prefix == "outer_sequential0_dense0_"
        assert nn.Dense(1).prefix == "outer_dense0_"
        with pytest.raises(KeyError), inner.name_scope():
            raise KeyError
        assert nn.Dense(1).prefix == "outer_dense1_"
    assert nn.Dense(1).prefix == "dense0_"


def test_empty_prefix_is_transparent():
    net = nn.HybridSequential(prefix="")
    with net.name_scope():
        net.add(nn.Dense(2))
    assert net.prefix == "" and names(net) == ["dense0_weight", "dense0_bias"]


def test_prefix_without_underscore():
    dense = nn.Dense(3, prefix="noscore")
    assert dense.name == "noscore" and names(dense) == ["noscoreweight", "noscorebias"]


def test_parameters_and_printed_forms():
    net = Both()
    assert names(net) == [f"both0_{n}" for n in ("w", "k", "dense0_weight", "dense0_bias")] + [
        f"both0_dense{n}_{kind}" for n in (1, 2) for kind in ("weight", "bias")
    ]
    assert list(net._collect_params_with_prefix())[:4] == ["w", "k", "d.weight", "d.bias"]
    assert list(net._collect_params_with_prefix())[4:6] == ["seq.0.weight", "seq.0.bias"]
    assert names(net)[2::2] == list(net.collect_params(".*weight").keys())
    assert list(net.collect_params("both0_w|both0_dense1_bias").keys()) == ["both0_w", "both0_dense1_bias"]
    assert repr(net.collect_params(".*(w|k|dense0_bias)$")) == (
        "both0_ (\n"
        "  Parameter both0_w (shape=(2, 2), dtype=<class 'numpy.float32'>)\n"
        "  Constant both0_k (shape=(2,), dtype=<class 'numpy.float32'>)\n"
        "  Parameter both0_dense0_bias (shape=(2,), dtype=float32)\n"
        ")"
    )
    assert repr(net) == (
        "Both(\n"
        "  (d): Dense(None -> 2, linear)\n"
        "  (seq): HybridSequential(\n"
        "    (0): Dense(None -> 2, linear)\n"
        "    (1): Dense(None -> 2, linear)\n"
        "  )\n"
        ")"
    )
    assert Both().prefix == "both1_"


def test_shared_parameters():
    first = nn.Dense(3, in_units=2)
    second = nn.Dense(3, params=first.params)
    assert second.prefix == "dense1_" and names(second) == names(first)
    assert second.weight is first.weight and second.weight.shape == (3, 2)
    with pytest.raises(AssertionError, match=r"desired '\(4, 0\)' vs stored '\(3, 2\)'"):
        nn.Dense(4, params=first.params)


def test_parameters_shared_with_a_whole_model():
    first = Both()
    second = Both(params=first.collect_params())
    assert second.prefix == "both1_"
    for name, param in second.collect_params().items():
        assert param is first.collect_params()[name]


# Registration


def test_a_child_may_not_change_its_type():
    net = Both()
    with pytest.raises(
        TypeError,
        match=r"Changing attribute type for d from <class '.*Dense'> to <class 'int'>is not allowed\.",
    ):
        net.d = 3
    net.d = nn.Dense(5)
    assert net._children["d"] is net.d


@pytest.mark.parametrize("make", [lambda: nn.Dense(2), lambda: gluon.Parameter("w")])
def test_layers_come_after_the_constructor_of_the_base_class(make):
    class Early(gluon.HybridBlock):
        def __init__(self):
            self.first = make()
            super().__init__()

    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\*\*kwargs\) before self.first = "):
        Early()


def test_a_parameter_may_not_be_replaced():
    net = Both()
    with pytest.raises(AssertionError, match="Overriding Parameter attribute w is not allowed"):
        net.w = net.params.get("w2", shape=(1,))


def test_hybrid_blocks_have_hybrid_children():
    class B(gluon.Block):
        pass

    with pytest.raises(ValueError, match=r"Children of HybridBlock must also be HybridBlock, but B\(\n\n\) has type"):
        nn.HybridSequential().add(B())


def test_blocks_in_a_list_are_warned_about():
    class U(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.layers = {"a": [nn.Dense(2)]}

    with pytest.warns(UserWarning, match='"U.layers" is an unregistered container with Blocks'):
        U().collect_params()


def test_sequential_indexing():
    net = nn.HybridSequential()
    net.add(nn.Dense(2), nn.Dense(3), nn.Dense(4))
    tail = net[1:]
    assert type(tail) is nn.HybridSequential and tail.prefix == net.prefix
    assert [tail[0], tail[-1]] == [net[1], net[2]] and len(tail) == 2
    with pytest.raises(IndexError):
        net[5]


def test_sequential_warns_that_hybrid_is_better():
    net = nn.Sequential()
    net.add(nn.Dense(2))
    with pytest.warns(UserWarning, match="All children of this Sequential layer 'sequential0_' are HybridBlocks"):
        net.hybridize()


def test_apply_visits_children_first():
    seen = []
    net = Both()
    assert net.apply(seen.append) is net
    assert seen == [net.d, net.seq[0], net.seq[1], net.seq, net]


def test_cast():
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=3), nn.BatchNorm(in_channels=2))
    net.initialize()
    net.cast("float16")
    assert [np.dtype(p.dtype).name for p in net.collect_params().values()] == ["float16"] * 2 + ["float32"] * 4
    assert net[0].weight.data().dtype == np.float16
    net.cast("float64")
    assert {np.dtype(p.dtype).name for p in net.collect_params().values()} == {"float64"}
    assert net(mx.nd.ones((1, 3), dtype="float64")).dtype == np.float64


# Calls


def test_block_calls_forward():
    class Plain(gluon.Block):
        def forward(self, x, y):
            return x + y

    assert Plain()(mx.nd.ones((2,)), mx.nd.ones((2,))).asnumpy().tolist() == [2, 2]
    with pytest.raises(NotImplementedError):
        gluon.Block()(1)
    with pytest.raises(NotImplementedError):
        gluon.HybridBlock()(mx.nd.ones((1,)))


def test_hybrid_forward_gets_the_module_of_what_it_is_called_with():
    seen = []

    class Spy(gluon.HybridBlock):
        def hybrid_forward(self, F, x, y=None):
            seen.append(F)
            return x

    Spy()(mx.nd.ones((1,)))
    Spy()(mx.sym.var("x"), [mx.sym.var("y"), None])
    assert seen == [mx.nd, mx.sym]


@pytest.mark.parametrize("wrong", [lambda: np.ones((2, 2)), lambda: None, lambda: [3]])
def test_inputs_must_be_tensors(wrong):
    text = "In HybridBlock, there must be one NDArray or one Symbol in the input"
    with pytest.raises(ValueError, match=f"(?s){text}.*Got {type(wrong()).__name__}; mx.nd.array"):
        nn.Flatten()(wrong())


def test_symbols_and_arrays_do_not_mix():
    with pytest.raises(ValueError, match="we do not support mixed NDArrays and Symbols types for the input"):
        Both()(mx.nd.ones((2, 2)), [mx.sym.var("x")])


def test_uninitialized():
    net = nn.Dense(2)
    with pytest.raises(RuntimeError, match="Parameter 'dense0_weight' has not been initialized. Note that"):
        net(mx.nd.ones((1, 2)))
    assert net.weight.shape == (2, 0)


def test_deferred_initialization():
    net = Both()
    net.initialize(init="ones")
    with pytest.raises(gluon.DeferredInitializationError, match="Parameter 'both0_dense0_weight' has not been init"):
        net.d.weight.data()
    out = net(mx.nd.ones((1, 3)))
    assert net.d.weight.shape == (2, 3) and net.seq[0].weight.shape == (2, 2)
    # 3 ones per unit, then sums of 2 units twice; times w (ones), times k.
    np.testing.assert_array_equal(out.asnumpy(), [[24, 48]])


def test_deferred_initialization_by_threads_at_once():
    """All compute with the values of one initialization."""
    other_calls, made = threading.Event(), []

    class Slow(mx.init.Initializer):
        def _init_weight(self, name, x):
            made.append(name)
            other_calls.wait(5)
            time.sleep(0.01)
            x[:] = len(made)

    net = nn.Dense(2, weight_initializer=Slow(), use_bias=False)
    net.initialize()
    x = nd.ones((1, 3))
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(net, x), pool.submit(lambda: (other_calls.set(), net(x))[1])]
        assert [call.result().asnumpy().tolist() for call in calls] == [[[3, 3]]] * 2
    assert made == ["dense0_weight"]


def test_deferred_initialization_of_a_block_that_asks_for_shapes():
    class Asking(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.w = self.params.get("w", shape=(2, 0), init="ones", allow_deferred_init=True)

        def hybrid_forward(self, F, x, w):
            return F.FullyConnected(x.reshape((x.shape[0], -1)), w, no_bias=True, num_hidden=2)

    net = Asking()
    net.initialize()
    assert net(mx.nd.ones((3, 2, 2))).asnumpy().tolist() == [[4, 4]] * 3


def test_deferred_initialization_backwards():
    class Backwards(gluon.HybridBlock):
        """What `w` is multiplied with, alone does not tell its shape."""

        def __init__(self):
            super().__init__()
            self.w = self.params.get("w", shape=(0, 0), init="ones", allow_deferred_init=True)

        def hybrid_forward(self, F, x, w):
            return F.elemwise_mul(F.relu(w), x)

    net = Backwards()
    net.initialize()
    assert net(mx.nd.ones((3, 2))).shape == net.w.shape == (3, 2)


def test_deferred_initialization_that_cannot_be():
    class Lost(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.w = self.params.get("w", shape=(0, 2), allow_deferred_init=True)

        def hybrid_forward(self, F, x, w):
            return F.sum(w) + F.sum(x)

    net = Lost()
    net.initialize()
    with pytest.raises((ValueError, AssertionError), match="cannot be inferred|invalid shape"):
        net(mx.nd.ones((1, 2)))


@pytest.mark.parametrize("hybridize", [False, True])
def test_a_wrong_rank_while_shapes_are_being_found_has_the_users_line(hybridize):
    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2D(4, 3)

        def hybrid_forward(self, F, x):
            return self.conv(x)  # here

    net = Net()
    net.initialize()
    if hybridize:
        net.hybridize()
    with pytest.raises(
        (mx.MXNetError, ValueError), match=r"(?s)Convolution: Input data should be 4D.*test_block.*# here"
    ):
        net(mx.nd.ones((2, 3)))


def test_wrong_width_is_an_mxnet_error():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    with pytest.raises(mx.MXNetError):
        net(mx.nd.ones((1, 4)))


def test_infer_type():
    net = nn.Dense(2, dtype="float64")
    net.weight._dtype = net.bias._dtype = None  # unspecified, to be found from the input
    net.infer_type(mx.nd.ones((1, 3), dtype="float64"))
    assert np.dtype(net.weight.dtype) == np.float64


# Hooks


def test_mxnets_own_flattening():
    """`_flatten` and `_regroup` are private there, and imported by programs such as GluonTS; as `metric.ndarray` is."""
    assert mx.metric.ndarray is nd
    a, b, halves = nd.ones((1,)), mx.sym.var("b"), mx.sym.split(mx.sym.var("c"), 2)
    leaves, numbers = block._flatten([a, (None, [b, halves])], "input")
    assert leaves == [a, None, b, halves] and numbers == [0, [-1, [0, 2]]]
    assert block._regroup([a, None, b, *halves], numbers)[0] is a
    assert block._regroup([1, None, 2, 3, 4], numbers) == [1, [None, [2, [3, 4]]]]
    assert block._flatten(a, "input") == ([a], 0) and block._regroup([a], 0) is a
    with pytest.raises(ValueError, match="the input of HybridBlock output must be"):
        block._flatten([a, 3], "output")
    with pytest.raises(ValueError, match="Received arg = 7, fmt = -1"):
        block._regroup([7], -1)
    with pytest.raises(ValueError, match="Unsupported encoded format -2"):
        block._regroup([7], -2)


def test_hooks_run_around_forward_and_detach():
    calls = []
    net = nn.Dense(2, in_units=2)
    net.initialize()
    before = net.register_forward_pre_hook(lambda block, inputs: calls.append(("pre", block, len(inputs))))
    with net.register_forward_hook(lambda block, inputs, out: calls.append(("post", block, out.shape))):
        net(mx.nd.ones((3, 2)))
    assert calls == [("pre", net, 1), ("post", net, (3, 2))]
    net(mx.nd.ones((3, 2)))
    before.detach()
    before.detach()  # once more does no harm
    net(mx.nd.ones((3, 2)))
    assert len(calls) == 3


def test_a_hook_may_detach_itself():
    net = nn.Flatten()
    calls = []
    handle = net.register_forward_hook(lambda *_: (calls.append(1), handle.detach()))
    net(mx.nd.ones((1, 2)))
    net(mx.nd.ones((1, 2)))
    assert calls == [1]


# Summary


def test_summary(capsys):
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Conv2D(6, 5), nn.MaxPool2D(2, 2), nn.Flatten(), nn.Dense(12, activation="relu"))
        net.add(nn.Dense(12), nn.BatchNorm(), nn.Dense(3))
    net.initialize()
    net.summary(mx.nd.ones((2, 1, 28, 28)))
    assert (
        capsys.readouterr().out
        == """\
--------------------------------------------------------------------------------
        Layer (type)                                Output Shape         Param #
================================================================================
               Input                              (2, 1, 28, 28)               0
            Conv2D-1                              (2, 6, 24, 24)             156
         MaxPool2D-2                              (2, 6, 12, 12)               0
           Flatten-3                                    (2, 864)               0
        Activation-4                                     (2, 12)               0
             Dense-5                                     (2, 12)           10380
             Dense-6                                     (2, 12)             156
         BatchNorm-7                                     (2, 12)              48
             Dense-8                                      (2, 3)              39
================================================================================
Parameters in forward computation graph, duplicate included
   Total params: 10779
   Trainable params: 10755
   Non-trainable params: 24
Shared params in forward computation graph: 0
Unique parameters in model: 10779
--------------------------------------------------------------------------------
"""
    )


class Two(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.d = nn.Dense(3)
            self.e = nn.Dense(3, params=self.d.params)

    def hybrid_forward(self, F, x, y):
        return self.d(x), [self.e(x), y]


def test_summary_of_shared_parameters_and_nested_results(capsys):
    net = Two()
    net.initialize()
    net.summary(mx.nd.ones((2, 3)), mx.nd.ones((4, 3)))
    rows = capsys.readouterr().out.splitlines()
    assert rows[3:7] == [
        "               Input                              (2, 3), (4, 3)               0",
        "             Dense-1                                      (2, 3)              12",
        "             Dense-2                                      (2, 3)              12",
        "               Two-3                    (2, 3), [(2, 3), (4, 3)]               0",
    ]
    assert rows[-3:-1] == ["Shared params in forward computation graph: 12", "Unique parameters in model: 12"]


def test_summary_of_hybridized_nets_shows_all_layers_and_keeps_what_is_compiled(capsys):
    def build():
        net, inner = nn.HybridSequential(), nn.HybridSequential()
        inner.add(nn.Dense(3), nn.BatchNorm())
        net.add(inner, nn.Dense(2))
        net.initialize()
        return net

    x = mx.nd.ones((2, 4))
    build().summary(x)
    expected = capsys.readouterr().out
    net = build()
    net.hybridize()
    net.summary(x)  # finishes deferred initialization, too
    assert capsys.readouterr().out == expected
    blocks = [net, net[0]]  # compiled as a whole, and the child on its own
    before = [block(x).asnumpy() for block in blocks]
    compiled = [block._jit_cached for block in blocks]
    traces = [c.traces[0] for c in compiled]
    net.summary(x)
    assert capsys.readouterr().out == expected
    assert all(layer._active for layer in (net, net[0], net[0][0], net[1]))
    assert all((block(x).asnumpy() == y).all() for block, y in zip(blocks, before))
    assert [block._jit_cached for block in blocks] == compiled
    assert [c.traces[0] for c in compiled] == traces
    assert all(block._fast_call is not None for block in blocks)


def test_summary_that_fails_leaves_the_block_as_it_was(capsys):
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=4), nn.Dense(3, in_units=3))
    net.hybridize()
    with pytest.raises(RuntimeError, match="initialize"):
        net.summary(mx.nd.ones((2, 4)))
    assert net._active and net[0]._active and not net[0]._forward_hooks
    net.initialize()
    net[1].register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        net.summary(mx.nd.ones((2, 4)))
    assert net._active and net[0]._active and not net[0]._forward_hooks and len(net[1]._forward_hooks) == 1


# Copies


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_are_independent(duplicate):
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2, activation="relu"), nn.HybridLambda("tanh"))
    net.initialize(init="ones")
    x = mx.nd.ones((1, 2))
    expected = net(x).asnumpy()
    other = duplicate(net)
    net[0].weight.set_data(mx.nd.zeros((2, 2)))
    np.testing.assert_array_equal(other(x).asnumpy(), expected)
    assert repr(other) == repr(net) and names(other) == names(net)
    # A copy's children know their new parent: changing one reaches what the parent has compiled.
    other._jit_cached = object()
    other[0].register_child(nn.Dense(1))
    assert other._jit_cached is None


def test_what_was_compiled_is_dropped_with_every_change():
    inner = nn.HybridSequential()
    inner.add(nn.Dense(2, in_units=2))
    net = nn.HybridSequential()
    net.add(inner)
    for change in (
        lambda: inner.add(nn.Dense(2, in_units=2)),
        lambda: setattr(inner, "extra", nn.Dense(2)),
        lambda: setattr(inner[0], "scale", inner[0].params.get("scale", shape=(1,))),
        lambda: inner.cast("float64"),
        lambda: net.hybridize(),
    ):
        net._jit_cached = net._fast_call = object()
        change()
        assert net._jit_cached is None and net._fast_call is None


def test_no_warnings_in_ordinary_use():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net = Both()
        net.initialize()
        net(mx.nd.ones((1, 2)))


def test_private_names_that_a_program_uses_itself():
    """Attributes called `_cached` or `_parents` are the program's own."""
    own = ("cached", "parents", "readers", "completed", "exported", "interpreted", "compile_log", "log")

    class Own(nn.HybridSequential):
        def __init__(self):
            super().__init__()
            for name in own:
                setattr(self, f"_{name}", [name])
            self.add(nn.Dense(3))

        def _infer(self):
            return "mine"

    net = Own()
    net.initialize()
    x = mx.nd.ones((2, 3))
    plain = net(x).asnumpy()
    net.hybridize()
    assert (net(x).asnumpy() == plain).all()
    net.add(nn.Dense(2))
    net[1].initialize()
    assert net(x).shape == (2, 2)
    assert all(getattr(net, f"_{name}") == [name] for name in own) and net._infer() == "mine"
    assert copy.deepcopy(net)._cached == ["cached"]
