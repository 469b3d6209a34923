"""Steps of optimizers: real MXNet's (`tests/oracle/record_training.py`), compiled, in place, saved and loaded."""

import io
import pickle
import struct

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import nd, optimizer
from gluonjit.base import CheckpointError, MXNetError
from gluonjit.files import state_files
from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.kernels.element_plans import Copy
from gluonjit.operators.optimizers import update_rules
from gluonjit.optimizer import step as steps
from support import optimizer_cases


@pytest.fixture(scope="module")
def recorded(root):
    return np.load(root / "tests" / "data" / "training.npz")


@pytest.fixture
def compiled(monkeypatch):
    """The graphs that steps compile."""
    found = []
    from gluonjit.runtime import compiler

    original = compiler.compile_graph
    monkeypatch.setattr(
        compiler, "compile_graph", lambda graph, **options: found.append(graph) or original(graph, **options)
    )
    return found


def close(got, expected):
    tolerance = 2e-3 if expected.dtype == np.float16 else 1e-5
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, tolerance, tolerance)


def test_every_optimizer_has_a_case():
    declared = optimizer.Optimizer.opt_registry.items()
    ours = {name for name, kind in declared if kind.__module__.startswith("gluonjit.")} - {"sgld"}
    assert ours == {kind for kind, _ in optimizer_cases.CASES.values()}


@pytest.mark.parametrize("case", optimizer_cases.CASES)
def test_steps_equal_mxnet(case, recorded):
    for name, weight in optimizer_cases.steps(mx, case).items():
        close(weight, recorded[f"steps/{case}/{name}"])


@pytest.mark.parametrize("case", ["sgd_all", "nag_half", "lamb_all", "lars", "rmsprop_centered", "nadam"])
def test_a_single_update_computes_the_same(case, recorded, monkeypatch):
    """`Optimizer.update_multi_precision`, which compiles nothing."""
    monkeypatch.setattr(steps.Steps, "take", lambda self, updates: steps.take(updates))
    test_steps_equal_mxnet(case, recorded)


def test_dcasgd_with_momentum():
    w, g = nd.array([1.0, 2.0]), nd.array([0.5, -0.5])
    updater = optimizer.get_updater(optimizer.create("dcasgd", learning_rate=0.1, momentum=0.5, lamda=0.2, wd=0.1))
    x, before, mom = np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.zeros(2)
    for _ in range(3):
        updater(0, g, w)
        own = g.asnumpy()
        mom = 0.5 * mom - 0.1 * (own + 0.1 * x + 0.2 * own * own * (x - before))
        before, x = x, x + mom
    np.testing.assert_allclose(w.asnumpy(), x, 1e-6)


def test_langevin_noise_has_the_variance_of_the_rate():
    w, g = nd.zeros(20000), nd.ones(20000)
    mx.random.seed(3)
    optimizer.get_updater(optimizer.create("sgld", learning_rate=0.04))(0, g, w)
    assert abs(w.asnumpy().mean() + 0.02) < 0.01 and abs(w.asnumpy().std() - 0.2) < 0.01


# One compiled call


def three(kind="adam", **settings):
    updater = optimizer.get_updater(optimizer.create(kind, **settings))
    weights = [nd.array(np.arange(n) / 8.0 + 1) for n in (4, 4, 6)]
    grads = [w * 0 + 1 for w in weights]
    return updater, weights, grads


def test_schedules_compile_nothing(compiled):
    updater, weights, grads = three(
        lr_scheduler=mx.lr_scheduler.FactorScheduler(1, 0.5, base_lr=0.1), learning_rate=0.1
    )
    for k in range(4):
        updater([0, 1, 2], grads, weights)
        updater.optimizer.rescale_grad, updater.optimizer.wd, updater.optimizer.beta1 = (
            1.0 / (k + 1),
            k / 10,
            0.9 - k / 10,
        )
    assert len(compiled) == 1


@pytest.mark.parametrize("kind", ["sgd", "adam", "dcasgd", "adamax", "rmsprop"])
def test_weights_and_states_are_written_in_place(kind, compiled):
    """No copy in the end, but for a state that takes over the old weight."""
    from gluonjit.codegen.target import named
    from gluonjit.passes import run_passes
    from gluonjit.passes.pipelines import PIPELINE

    updater, weights, grads = three(kind)
    arrays = [w._array for w in weights]
    updater([0, 1, 2], grads, weights)
    assert all(w._array is x for w, x in zip(weights, arrays))
    planned = run_passes(compiled[0], PIPELINE, target=named("x86-64-v3"))
    copies = [op for op in planned.ops if isinstance(KERNEL.of(op), Copy)]
    assert len(copies) == (6 if kind == "dcasgd" else 0)


@pytest.mark.parametrize("kind", ["adam", "lamb", "dcasgd", "lars"])
def test_many_threads_compute_the_same(kind):
    rng = np.random.RandomState(0)
    arrays = [rng.uniform(-1, 1, 1 << 17).astype(np.float32) for _ in range(2)]
    found = []
    for threads in (1, 4):
        before = mx.get_num_threads()
        mx.set_num_threads(threads)
        try:
            updater = optimizer.get_updater(optimizer.create(kind, learning_rate=0.1, wd=0.1))
            weight, grad = map(nd.array, arrays)
            for _ in range(3):
                updater(0, grad, weight)
        finally:
            mx.set_num_threads(before)
        found.append(weight.asnumpy())
    one = optimizer.create(kind, learning_rate=0.1, wd=0.1)
    weight, grad = map(nd.array, arrays)
    state = one.create_state(0, weight)
    for _ in range(3):
        one.update(0, weight, grad, state)
    assert (found[0] == found[1]).all()
    np.testing.assert_allclose(found[0], weight.asnumpy(), 1e-5, 1e-6)


def test_compiled_code_sees_new_weights():
    net = mx.gluon.nn.Dense(2, in_units=3, use_bias=False)
    net.initialize()
    net.hybridize()
    x, w = nd.ones((1, 3)), net.weight.data()
    net(x), net(x)
    optimizer.get_updater(optimizer.create("sgd", learning_rate=1.0))(0, nd.ones((2, 3)), w)
    np.testing.assert_allclose(net(x).asnumpy(), x.asnumpy() @ w.asnumpy().T, 1e-6)


def test_views_are_updated_one_after_the_other(compiled):
    base = nd.ones(4)
    updater = optimizer.get_updater(optimizer.create("sgd", learning_rate=0.5))
    updater([0, 1], [nd.ones(4), nd.ones(2)], [base, base[1:3]])
    assert base.asnumpy().tolist() == [0.5, 0.0, 0.0, 0.5]


def test_gradients_of_other_shapes_are_refused():
    updater, weights, _ = three("sgd")
    with pytest.raises(MXNetError, match=r"gradient has shape \(3,\), the weight \(4,\)"):
        updater(0, nd.ones(3), weights[0])


def test_weights_of_other_arrays_are_found(compiled):
    updater, weights, grads = three("sgd", learning_rate=1.0)
    updater([0, 1, 2], grads, weights)
    others = [w.copy() for w in weights]
    updater([0, 1, 2], grads, others)
    assert len(compiled) == 1
    assert (others[2].asnumpy() == weights[2].asnumpy() - 1).all()


def test_any_number_of_lists_compiles_little(compiled, monkeypatch):
    monkeypatch.setattr(steps, "MAX_STEPS", 2)
    updater, weights, grads = three("sgd", learning_rate=0.25)
    for chosen in ([0], [0, 1, 2], [2], [1, 2], [0, 2], [0, 1], [1]):
        updater(chosen, [grads[k] for k in chosen], [weights[k] for k in chosen])
    assert len(compiled) == 4  # [0], [0, 1, 2]; then a weight of 6 elements, and one of 4
    assert [w.asnumpy()[0] for w in weights] == [0.0, 0.0, 0.0]


def test_memory_does_not_grow():
    import tracemalloc

    updater, weights, grads = three()

    def run(n):
        for _ in range(n):
            updater([0, 1, 2], grads, weights)

    tracemalloc.start()
    run(1000)  # Python keeps up to 2000 tuples for later
    before, _ = tracemalloc.get_traced_memory()
    run(1000)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 20_000


# Operators


def test_update_operators_overwrite_states():
    w, g, mom = nd.ones(3), nd.ones(3), nd.ones(3)
    out = nd.sgd_mom_update(w, g, mom, lr=0.5, momentum=0.5)
    assert out.asnumpy().tolist() == [1.0] * 3 and w.asnumpy().tolist() == [1.0] * 3
    assert mom.asnumpy().tolist() == [0.0] * 3
    assert nd.reset_arrays(w, g, num_arrays=2) == [] and not (w + g).asnumpy().any()


def test_update_operators_of_symbols():
    names = ("weight", "grad", "mom")
    symbol = mx.sym.sgd_mom_update(*map(mx.sym.var, names), lr=0.5, momentum=0.5, name="u")
    assert symbol.list_auxiliary_states() == ["mom"] and symbol.list_outputs() == ["u_output"]
    executor = symbol.bind(mx.cpu(), {n: nd.ones(3) for n in names[:2]}, aux_states={"mom": nd.ones(3)})
    assert executor.forward()[0].asnumpy().tolist() == [1.0] * 3
    assert executor.aux_dict["mom"].asnumpy().tolist() == [0.0] * 3


class Momentum(mx.gluon.HybridBlock):
    def hybrid_forward(self, F, w, g, mom):
        return F.sgd_mom_update(w, g, mom, lr=0.5, momentum=0.5)


def test_update_operators_in_compiled_code():
    net = Momentum()
    net.hybridize()
    mom = nd.ones(3)
    assert net(nd.ones(3), nd.ones(3), mom).asnumpy().tolist() == [1.0] * 3
    assert mom.asnumpy().tolist() == [0.0] * 3


def test_sparse_rules_equal_mxnets_formula():
    """Of MXNet's `sparse.adagrad_update` and `contrib.group_adagrad_update`, whose gradients are never dense."""
    g, h = np.array([[1.0, 3.0]]), np.array([[0.5, 1.0]])
    history = nd.array(h)
    new = nd.sparse.adagrad_update(nd.ones((1, 2)), nd.array(g), history, lr=0.1, epsilon=0.0).asnumpy()
    np.testing.assert_allclose(new, 1 - 0.1 * g / np.sqrt(h + g * g), 1e-6)
    rows = nd.array([[2.0]])
    new = nd.contrib.group_adagrad_update(nd.ones((1, 2)), nd.array(g), rows, lr=0.1, epsilon=0.0).asnumpy()
    np.testing.assert_allclose(rows.asnumpy(), [[7.0]])
    np.testing.assert_allclose(new, 1 - 0.1 * g / np.sqrt(7.0), 1e-6)


def test_rules_are_the_operators():
    """`rest` rounds as MXNet's operators do, whose attributes are float32."""
    assert update_rules.rest(0.999) == np.float32(1) - np.float32(0.999) != 1 - 0.999


# Files of states


def test_states_come_back(compiled):
    updater, weights, grads = three(
        lr_scheduler=mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.1), learning_rate=0.1
    )
    updater([0, 1, 2], grads, weights)
    again = optimizer.get_updater(optimizer.create("sgd"))
    again.set_states(updater.get_states(dump_optimizer=True))
    copies = [w.copy() for w in weights]
    for _ in range(3):
        updater([0, 1, 2], grads, weights)
        again([0, 1, 2], grads, copies)
    assert all((w.asnumpy() == c.asnumpy()).all() for w, c in zip(weights, copies))
    assert again.optimizer.learning_rate == updater.optimizer.learning_rate == 0.05
    only = optimizer.get_updater(optimizer.create("adam"))
    only.set_states(updater.get_states())
    assert sorted(only.states) == [0, 1, 2] and only.states[2][0].shape == (6,)


@pytest.mark.parametrize("case", optimizer_cases.TRAININGS)
def test_files_of_mxnet_are_read(case, recorded):
    updater = optimizer.get_updater(optimizer.create("test"))
    updater.set_states(recorded[f"{case}/states"].tobytes())
    assert type(updater.optimizer).__name__.lower() == case and updater.optimizer.num_update == 10
    assert updater.optimizer._index_update_count is updater.optimizer._all_index_update_counts[0]
    shapes = {
        state[0].shape if case == "adam" else state.shape for state in updater.states.values() if state is not None
    }
    assert (4, 1, 5, 5) in shapes
    assert (updater.optimizer.lr_scheduler is not None) == (case == "adam")


def test_files_have_the_names_of_mxnet():
    updater, weights, grads = three("sgd", momentum=0.9)
    updater([0, 1, 2], grads, weights)
    found = state_files.loads(updater.get_states(dump_optimizer=True))
    state, own = found[0][1], found[1]
    assert (state.module, state.name) == state_files.NDARRAY and isinstance(state.state["handle"], bytearray)
    assert (own.module, own.name) == ("mxnet.optimizer.optimizer", "SGD") and "param_dict" not in own.state


class Runs:
    def __init__(self, call, *args):
        self.call, self.args = call, args

    def __reduce__(self):
        return self.call, self.args


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (b"", "not the states of an optimizer"),
        (b"no pickle", "not the states of an optimizer"),
        (b"\x12\x01" + bytes(22), "not the states of an optimizer, but a file of parameters"),
        (pickle.dumps([1, 2]), "but a list"),
        (pickle.dumps({0: Runs(bytearray, 1 << 50)}), "bytes of something else"),
        (pickle.dumps(({}, {"no": "optimizer"})), "in the place of the optimizer is a dict"),
        (b"\x80\x04r\xff\xff\xff\x7f.", "not the states of an optimizer"),
        (pickle.dumps({0: np.float64(2)})[:-3], "not the states of an optimizer"),
    ],
)
def test_damaged_files_are_refused(states, words):
    with pytest.raises(CheckpointError, match=words):
        optimizer.get_updater(optimizer.create("sgd")).set_states(states)


def test_sizes_in_files_are_compared_with_what_is_there():
    """Before memory is taken, of which this test would need 4 GB."""
    hostile = pickle.PROTO + b"\x05" + pickle.BYTEARRAY8 + struct.pack("<Q", 1 << 32) + b"abc."
    with pytest.raises(CheckpointError, match="a bytearray of 4294967296 bytes of which 4 are there"):
        state_files.loads(hostile)


def saved_adam():
    updater, weights, grads = three("adam")
    updater([0, 1, 2], grads, weights)
    return state_files.loads(updater.get_states(dump_optimizer=True))


def nested(x):
    for _ in range(40):
        x = (x, x)
    return x


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ([1, 2, 3], "an object of type list"),
        (None, r"nothing for the weight 0, where Adam keeps \(float32\["),
        ("dog", "an object of type str"),
        (nested("dog"), "an object of type tuple"),
        (state_files.array(np.zeros(1, np.float32)), r"float32\[1\]"),
        ((state_files.array(np.zeros(1, np.float32)),) * 2, r"\(float32\[1\], float32\[1\]\) for the weight 0"),
        ((state_files.array(np.zeros((2, 3), np.float64)),) * 2, "float64"),
    ],
)
def test_states_of_other_weights_are_refused(state, words):
    again, weights, grads = three("adam")
    again.set_states(state_files.dumps((dict.fromkeys(range(3), state), saved_adam()[1])))
    before = [w.asnumpy() for w in weights]
    with pytest.raises(MXNetError, match=f"{words}.*(?s:.*)belong to another optimizer"):
        again([0, 1, 2], grads, weights)
    assert all((w.asnumpy() == b).all() for w, b in zip(weights, before)) and again.optimizer.num_update == 1


@pytest.mark.parametrize(
    "change",
    [
        {"lr": None},
        {"beta1": "dog"},
        {"wd": 10**400},
        {"num_update": []},
        {"aggregate_num": "dog"},
        {"_all_index_update_counts": None},
        {"lr_scheduler": "dog"},
        {"lr_scheduler": state_files.Named("mxnet.lr_scheduler", "PolyScheduler", {})},
        {"lr_scheduler": state_files.Named("mxnet.lr_scheduler", "FactorScheduler", {"step": 0, "warmup_steps": 0})},
    ],
    ids=lambda change: next(iter(change)),
)
def test_optimizers_with_damaged_settings_are_refused(change):
    states, own = saved_adam()
    own.state.update(change)
    again, weights, grads = three("adam")
    with pytest.raises(CheckpointError, match="Adam, has settings that are damaged"):
        again.set_states(state_files.dumps((states, own)))
    again([0, 1, 2], grads, weights)


def test_attributes_of_subclasses_hide_nothing():
    """Keras' optimizers are subclasses with attributes of their own, such as `updates`."""

    class Kept(mx.optimizer.SGD):
        def __init__(self):
            super().__init__(learning_rate=1)
            self.updates = self.has_rules = self.master_last = []

    w = mx.nd.zeros(1)
    mx.optimizer.get_updater(Kept())(0, mx.nd.ones(1), w)
    assert w.asscalar() == -1


def test_loading_draws_no_random_numbers():
    updater = optimizer.get_updater(optimizer.create("sgld"))
    before = mx.random.get_state()
    updater.set_states(updater.get_states(dump_optimizer=True))
    assert mx.random.get_state() == before


def test_weights_cast_after_their_first_step_say_what_to_do(compiled):
    updater = optimizer.get_updater(optimizer.create("sgd", momentum=0.9))
    updater(0, nd.ones(3), nd.ones(3))
    with pytest.raises(MXNetError, match=r"f64\[3\] with states f32\[3\](?s:.*)make a new Trainer"):
        updater(0, nd.ones(3, dtype="float64"), nd.ones(3, dtype="float64"))


def test_nothing_in_a_file_is_executed(tmp_path):
    import os

    target = tmp_path / "made"
    hostile = pickle.dumps({0: Runs(os.mkdir, str(target))})
    with pytest.raises(MXNetError, match="needs the optimizer or schedule .*mkdir, which is not known"):
        optimizer.get_updater(optimizer.create("sgd")).set_states(hostile)
    assert not target.exists()
    with pytest.raises(MXNetError, match=r"optimizer or schedule mxnet\.optimizer\.optimizer\.Gone"):
        data = state_files.dumps(({}, state_files.Named("mxnet.optimizer.optimizer", "Gone", {})))
        optimizer.get_updater(optimizer.create("sgd")).set_states(data)


def test_a_file_cannot_change_its_reader():
    """A pickle can set attributes of what it has named."""

    class Pickler(pickle._Pickler):
        def save_tricky(self):
            self.write(pickle.PROTO + b"\x02" + pickle.GLOBAL + b"builtins\nbytearray\n")
            self.write(pickle.MARK + pickle.EMPTY_DICT)
            super().save("make")
            super().save(3)
            self.write(pickle.SETITEM + pickle.BUILD + pickle.STOP)

    file = io.BytesIO()
    Pickler(file, 2).save_tricky()
    with pytest.raises(CheckpointError):
        state_files.loads(file.getvalue())
    assert state_files.loads(pickle.dumps(bytearray(b"a"))) == bytearray(b"a")


def test_what_is_no_data_is_not_saved():
    updater = optimizer.get_updater(optimizer.create("sgd"))
    updater.states[0] = open
    with pytest.raises(MXNetError, match="saved as numbers, strings, arrays"):
        updater.get_states()


def test_adamax_leaves_a_weight_without_gradient_alone():
    """0 / 0 is NaN in MXNet, for ever after."""
    rule = optimizer.Adamax()
    weight, grad = nd.array([1, 2]), nd.array([0, 1])
    rule.update(0, weight, grad, rule.create_state(0, weight))
    np.testing.assert_allclose(weight.asnumpy(), [1, 1.998], rtol=1e-6)


@pytest.mark.parametrize("history", ["float64", "int32"])
def test_states_of_another_type_are_refused_as_in_compiled_code(history):
    weight, state = mx.nd.ones((2, 3)), mx.nd.ones((2, 1), dtype=history)
    with pytest.raises(mx.MXNetError, match="operands must have one element type"):
        mx.nd.contrib.group_adagrad_update(weight, weight, state, lr=0.1)
