"""`mx.optimizer`: optimizers, and the states that they keep for weights."""

from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.optimizer.optimizer import Optimizer, Updater, create, get_updater, register
from gluonjit.optimizer.rules import (
    DCASGD,
    FTML,
    LAMB,
    LARS,
    LBSGD,
    NAG,
    SGD,
    SGLD,
    AdaDelta,
    AdaGrad,
    Adam,
    Adamax,
    Ftrl,
    GroupAdaGrad,
    Nadam,
    RMSProp,
    Signum,
    Test,
    ccSGD,
)

__all__ = [
    "DCASGD",
    "FTML",
    "LAMB",
    "LARS",
    "LBSGD",
    "NAG",
    "SGD",
    "SGLD",
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "Adamax",
    "Ftrl",
    "GroupAdaGrad",
    "Nadam",
    "Optimizer",
    "RMSProp",
    "Signum",
    "Test",
    "Updater",
    "ccSGD",
    "create",
    "get_updater",
    "register",
]

_mxnet_names.explain(__name__)
