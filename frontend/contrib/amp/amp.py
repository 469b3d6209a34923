"""What programs ask about mixed precision: it is never on. A model is cast as a whole: `net.cast('float16')`."""

from __future__ import annotations

from typing import Any, NoReturn

from gluonjit.base import MXNetError
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.language.modes import no_gradients

_amp_initialized = False
"""Programs read it to see whether `init` has been called."""


def init(target_dtype: str = "float16", *lists: Any, **named_lists: Any) -> NoReturn:
    raise MXNetError(
        f"amp.init(): gluonjit does not choose a precision for each operator; net.cast({target_dtype!r}) casts a model"
    )


def init_trainer(optimizer_or_trainer: Any) -> NoReturn:
    no_gradients("amp.init_trainer")


def scale_loss(loss: Any, optimizer_or_trainer: Any) -> NoReturn:
    no_gradients("amp.scale_loss")


def unscale(optimizer_or_trainer: Any) -> NoReturn:
    no_gradients("amp.unscale")


_mxnet_names.explain(__name__)
