"""`mx.model`: checkpoints as MXNet lays them out: `prefix-symbol.json` and `prefix-0003.params`."""

from __future__ import annotations

import logging
from collections import namedtuple
from collections.abc import Mapping
from typing import Any

from gluonjit import ndarray, symbol
from gluonjit.language import late
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.ndarray import NDArray
from gluonjit.symbol import Symbol

__all__ = ["BatchEndParam", "load_checkpoint", "load_params", "save_checkpoint"]

BatchEndParam = namedtuple("BatchEndParam", ["epoch", "nbatch", "eval_metric", "locals"])
"""What training loops hand to callbacks after a batch."""

Params = dict[str, NDArray]


def save_checkpoint(
    prefix: str,
    epoch: int,
    symbol: Symbol | None,
    arg_params: Mapping[str, NDArray],
    aux_params: Mapping[str, NDArray],
    remove_amp_cast: bool = True,
) -> None:
    """Writes the graph, and the parameters of `epoch`, under the names `arg:…` and `aux:…`."""
    if symbol is not None:
        symbol.save(f"{prefix}-symbol.json", remove_amp_cast=remove_amp_cast)
    arrays = {f"arg:{name}": x for name, x in arg_params.items()}
    arrays |= {f"aux:{name}": x for name, x in aux_params.items()}
    file = f"{prefix}-{epoch:04d}.params"
    ndarray.save(file, arrays)
    logging.info('Saved checkpoint to "%s"', file)


def load_params(prefix: str, epoch: int) -> tuple[Params, Params]:
    """Arguments and auxiliary states that `save_checkpoint` or MXNet wrote."""
    file = f"{prefix}-{epoch:04d}.params"
    arrays = ndarray.load(file)
    args: Params = {}
    aux: Params = {}
    if not arrays:
        logging.warning("Params file '%s' is empty", file)
    elif not isinstance(arrays, dict):
        raise ValueError(f"{file} holds arrays without names, so it is not a checkpoint")
    else:
        for key, x in arrays.items():
            kind, _, name = key.partition(":")
            if kind == "arg":
                args[name] = x
            elif kind == "aux":
                aux[name] = x
    return args, aux


def load_checkpoint(prefix: str, epoch: int) -> tuple[Symbol, Params, Params]:
    """The graph, and arguments and auxiliary states of `epoch`."""
    return (symbol.load(f"{prefix}-symbol.json"), *load_params(prefix, epoch))


_mxnet_names.explain(__name__)
_of_mxnet = globals()["__getattr__"]


def __getattr__(name: str) -> Any:
    """Imports `FeedForward` on first use: it stands on modules, which stand on this one."""
    if name == "FeedForward":
        return late.feed_forward_class()
    return _of_mxnet(name)
