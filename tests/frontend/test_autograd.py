"""Training and recording modes; computing gradients is an error that says that they are not implemented."""

import threading

import pytest

from gluonjit import MXNetError, autograd, nd


def modes():
    return autograd.is_recording(), autograd.is_training()


def test_scopes():
    assert modes() == (False, False)
    with autograd.record():
        assert modes() == (True, True)
        with autograd.pause():
            assert modes() == (False, False)
            with autograd.train_mode():
                assert modes() == (False, True)
        with autograd.predict_mode():
            assert modes() == (True, False)
        assert modes() == (True, True)
    with autograd.record(train_mode=False):
        assert modes() == (True, False)
    assert modes() == (False, False)


def test_a_scope_may_be_entered_again():
    scope = autograd.train_mode()
    with scope:
        with scope:
            assert autograd.is_training()
        assert autograd.is_training()
    assert not autograd.is_training()


def test_setters_return_the_mode_before():
    assert autograd.set_training(True) is False
    assert autograd.set_training(False) is True
    assert autograd.set_recording(True) is False
    assert autograd.set_recording(False) is True


def test_modes_are_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), autograd.record():
        raise ZeroDivisionError
    assert modes() == (False, False)


def test_modes_are_thread_local():
    seen = []
    with autograd.record():
        thread = threading.Thread(target=lambda: seen.append(modes()))
        thread.start()
        thread.join()
    assert seen == [(False, False)]


def test_no_gradients_yet():
    x = nd.array([1.0])
    assert x.grad is None
    for ask in [x.attach_grad, x.backward, lambda: autograd.backward(x), lambda: autograd.grad(x, [x])]:
        with pytest.raises(MXNetError, match="gradients are not available yet"):
            ask()
