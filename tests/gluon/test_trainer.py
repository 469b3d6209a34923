"""`gluon.Trainer` and `gluon.utils`: what works without gradients, and what says that there are none."""

import hashlib

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon, nd
from gluonjit.base import MXNetError
from gluonjit.gluon import utils


def dense():
    net = gluon.nn.Dense(3, in_units=2)
    net.initialize()
    return net


def test_a_trainer_can_be_made_and_asked(tmp_path):
    net = dense()
    schedule = mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.4)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.4, "lr_scheduler": schedule, "wd": 0.1})
    assert trainer.learning_rate == 0.4 and trainer.optimizer.wd == 0.1
    net.weight.lr_mult = 2
    assert sorted(trainer.optimizer._get_lrs([0, 1])) == [0.4, 0.8]
    with pytest.raises(UserWarning, match="LRScheduler"):
        trainer.set_learning_rate(0.1)
    plain = gluon.Trainer(list(net.collect_params().values()), mx.optimizer.SGD(momentum=0.9))
    plain.set_learning_rate(0.3)
    assert plain.learning_rate == 0.3
    plain.save_states(tmp_path / "states")
    other = gluon.Trainer(net.collect_params(), "sgd")
    other.load_states(tmp_path / "states")
    assert other.learning_rate == 0.3 and other.optimizer.momentum == 0.9 and len(other.optimizer.param_dict) == 2


@pytest.mark.parametrize("call", ["step", "update", "allreduce_grads"])
def test_steps_need_gradients(call):
    trainer = gluon.Trainer(dense().collect_params(), "sgd")
    with pytest.raises(MXNetError, match=f"Trainer.{call}: gradients are not available yet"):
        getattr(trainer, call)(*[1] * (call != "allreduce_grads"))


def test_what_a_trainer_refuses():
    params = dense().collect_params()
    with pytest.raises(ValueError, match="must be a list or dict of Parameters, got <class 'int'>"):
        gluon.Trainer(3, "sgd")
    with pytest.raises(ValueError, match="got list of <class 'int'>"):
        gluon.Trainer([3], "sgd")
    with pytest.raises(ValueError, match="Cannot find optimizer adm; did you mean 'adam'"):
        gluon.Trainer(params, "adm")
    with pytest.raises(AssertionError, match="optimizer_params must be None"):
        gluon.Trainer(params, mx.optimizer.SGD(), {"wd": 1})
    with pytest.raises(RuntimeError, match="has not been initialized"):
        gluon.Trainer(gluon.nn.Dense(3, in_units=2).collect_params(), "sgd")


def test_uneven_splits():
    with pytest.raises(ValueError, match="cannot be evenly split into 2 slices along axis 0"):
        utils.split_data(nd.ones((3, 2)), 2)
    with pytest.raises(ValueError, match="cannot be split into 4"):
        utils.split_data(nd.ones((3, 2)), 4, even_split=False)


def test_norms_that_are_not_finite():
    x = nd.array([np.inf, 1])
    with pytest.warns(UserWarning, match="nan or inf is detected"):
        assert utils.clip_global_norm([x], 1.0) == np.inf
    assert utils.clip_global_norm([nd.array([3, 4])], 1.0, check_isfinite=False).asnumpy().tolist() == [5.0]


def test_nothing_is_downloaded(tmp_path):
    url = "https://example.org/files/weights.params"
    with pytest.raises(MXNetError, match=f"downloads nothing; fetch {url} and save it as .*weights.params"):
        utils.download(url, tmp_path)
    file = tmp_path / "weights.params"
    file.write_bytes(b"contents")
    sha1 = hashlib.sha1(b"contents").hexdigest()
    assert utils.download(url, tmp_path, sha1_hash=sha1) == utils.download(url, str(file)) == str(file)
    assert utils.check_sha1(file, sha1) and not utils.check_sha1(file, sha1[:8])
    with pytest.raises(MXNetError, match="is not the expected one"):
        utils.download(url, tmp_path, sha1_hash="0" * 40)
    utils.replace_file(file, tmp_path / "moved")
    assert (tmp_path / "moved").read_bytes() == b"contents" and not file.exists()
    assert utils._get_repo_file_url("a", "b.zip").endswith("/a/b.zip")
