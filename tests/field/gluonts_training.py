"""Trains estimators of GluonTS, hybridized, on its artificial series, and predicts; prints a line of JSON for each.

    python tests/field/gluonts_training.py deepar tft      # without names: all

`losses`: of each epoch; `first`: seconds of the first batch, in which everything is compiled; `step`: of a later one;
`predict`: of the first forecasts; `finite`: whether all losses and forecasts are. `--plain` does not hybridize.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import gluonts_networks as networks
import subjects

EPOCHS, BATCHES = 2, 3

READ_VALUES = ("deepstate", "deepvar_hierarchical")
"""Networks that read values when they predict, which neither MXNet nor gluonjit hybridizes."""


@functools.cache
def _trainer() -> type:
    """The class of trainers that note when batches ended, and the losses of epochs."""
    mx = importlib.import_module("gluonts.mx")
    callback = importlib.import_module("gluonts.mx.trainer.callback")

    class Noted(callback.Callback):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            self.ended: list[float] = []
            self.losses: list[float] = []

        def on_train_start(self, max_epochs: int) -> None:
            self.ended.append(time.perf_counter())

        def on_train_batch_end(self, training_network: Any) -> bool:
            self.ended.append(time.perf_counter())
            return True

        def on_train_epoch_end(
            self, epoch_no: int, epoch_loss: float, training_network: Any, trainer: Any, *rest: Any
        ) -> bool:
            self.losses.append(float(epoch_loss))
            return True

    class Timed(mx.Trainer):  # type: ignore[name-defined, misc]
        def __init__(self, hybridize: bool) -> None:
            self.noted = Noted()
            super().__init__(epochs=EPOCHS, num_batches_per_epoch=BATCHES, hybridize=hybridize, callbacks=[self.noted])

    return Timed


given = networks.series


def artificial(length: int = 60) -> list[dict[str, Any]]:
    """`networks.series`, with the values of GluonTS's artificial seasonal series."""
    made = importlib.import_module("gluonts.dataset.artificial").ComplexSeasonalTimeSeries(
        num_series=networks.SERIES,
        prediction_length=networks.FUTURE,
        freq_str="D",
        length_low=length + networks.FUTURE,
        length_high=length + networks.FUTURE + 1,
        is_integer=False,
    )
    entries = given(length)
    for entry, seasonal in zip(entries, made.train, strict=True):
        entry["target"] = np.asarray(seasonal["target"], np.float32)[:length]
    return entries


def train(name: str, hybridize: bool) -> dict[str, Any]:
    subjects.seed()
    np.random.seed(0)
    _, data, _ = networks.ESTIMATORS[name]
    trainer = _trainer()(hybridize=hybridize)
    predictor = networks.made(name, trainer).train(data())
    noted = trainer.noted
    steps = np.diff(noted.ended)
    started = time.perf_counter()
    if hybridize and name not in READ_VALUES:
        predictor.hybridize(dict(zip(predictor.input_names, networks.prediction_batch(predictor, data(future=True)))))
    forecasts = [_values(forecast) for forecast in predictor.predict(data(future=True))]
    return {
        "losses": noted.losses,
        "finite": bool(np.isfinite(noted.losses).all() and all(np.isfinite(f).all() for f in forecasts)),
        "forecasts": [list(f.shape) for f in forecasts],
        "first": round(float(steps[0]), 2),
        "step": round(float(np.median(steps[1:])), 4),
        "predict": round(time.perf_counter() - started, 2),
    }


def train_ensemble(hybridize: bool) -> dict[str, Any]:
    """Two estimators of N-BEATS, each hybridized by its trainer; the forecast is their median."""
    mx = importlib.import_module("gluonts.mx")
    estimator = mx.NBEATSEnsembleEstimator(
        freq="D",
        prediction_length=networks.FUTURE,
        meta_context_length=[8, 12],
        meta_loss_function=["sMAPE"],
        meta_bagging_size=1,
        num_stacks=2,
        widths=[8],
        num_block_layers=[2],
        expansion_coefficient_lengths=[4],
        trainer=mx.Trainer(epochs=1, num_batches_per_epoch=BATCHES, hybridize=hybridize),
    )
    predictor = estimator.train(networks.univariate())
    forecasts = [_values(forecast) for forecast in predictor.predict(networks.univariate(future=True))]
    return {"finite": all(np.isfinite(f).all() for f in forecasts), "forecasts": [list(f.shape) for f in forecasts]}


def train_points(hybridize: bool) -> dict[str, Any]:
    """The networks of DeepTPP, whose estimator leaves out an argument of its data's splitter.

    Not hybridized: the estimator refuses it.
    """
    import mxnet as mx

    batch = dict(zip(("target", "valid_length"), map(mx.nd.array, networks.points())))
    trainer = _trainer()(hybridize=False)
    net = networks.point_network("deeptpp.training.weibull")
    net.initialize()
    trainer(net, [batch] * BATCHES)
    forecast = networks.point_network("deeptpp.prediction.weibull")
    forecast.initialize()
    importlib.import_module("gluonts.mx").copy_parameters(net, forecast)
    found = [x.asnumpy() for x in forecast(*batch.values())]
    losses = trainer.noted.losses
    return {"losses": losses, "finite": bool(np.isfinite(losses).all() and all(np.isfinite(x).all() for x in found))}


def _values(forecast: Any) -> np.ndarray:
    """Samples, quantiles, or the mean of a distribution."""
    for kind in ("samples", "forecast_array"):
        if (found := getattr(forecast, kind, None)) is not None:
            return np.asarray(found)
    return np.asarray(forecast.distribution.mean.asnumpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--plain", action="store_true", help="do not hybridize")
    arguments = parser.parse_args()
    import gluonjit

    gluonjit.install_as_mxnet(numpy_aliases=True)
    warnings.simplefilter("ignore")
    networks.series = artificial
    others = {"n_beats_ensemble": train_ensemble, "deeptpp": train_points}
    for name in arguments.names or [*networks.ESTIMATORS, *others]:
        try:
            row = others[name](not arguments.plain) if name in others else train(name, not arguments.plain)
        except Exception as e:
            row = {"failed": f"{type(e).__name__}: {e}", "where": traceback.format_exc()}
        print(json.dumps({"name": name, **row}), flush=True)


if __name__ == "__main__":
    main()
