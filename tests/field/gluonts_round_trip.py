"""Writes and reads a predictor of GluonTS in the ways that it knows, and prints how far the forecasts move (JSON).

python tests/field/gluonts_round_trip.py deepar /tmp/folder
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import gluonts_networks as networks
import run
import subjects


def forecasts(predictor: Any, data: Any) -> list[np.ndarray]:
    """The numbers of all forecasts: samples, quantiles, or means of distributions."""
    subjects.seed()
    found = []
    for forecast in predictor.predict(data):
        kinds = [getattr(forecast, kind, None) for kind in ("samples", "forecast_array")]
        given = [values for values in kinds if values is not None]
        found.append(np.asarray(given[0]) if given else forecast.distribution.mean.asnumpy())
    return found


def main(name: str, folder: Path) -> None:
    from gluonts.model.predictor import Predictor

    predictor = networks.trained(name)[0].predictor
    data = networks.ESTIMATORS[name][1](future=True)
    subjects.initialize(predictor.prediction_net)
    expected = forecasts(predictor, data)
    found = {}

    def read_again(predictor: Any, where: Path) -> Any:
        where.mkdir()
        predictor.serialize(where)
        return Predictor.deserialize(where)

    found["read"] = run.difference(forecasts(read_again(predictor, folder / "program"), data), expected)
    batch = dict(zip(predictor.input_names, networks.prediction_batch(predictor, data)))
    predictor.hybridize(batch)
    found["hybridized"] = run.difference(forecasts(predictor, data), expected)
    graph = predictor.as_symbol_block_predictor(batch=batch)
    found["symbol block"] = run.difference(forecasts(graph, data), expected)
    found["symbol block read"] = run.difference(forecasts(read_again(graph, folder / "graph"), data), expected)
    print(json.dumps(found))


if __name__ == "__main__":
    import gluonjit

    gluonjit.install_as_mxnet(numpy_aliases=True)
    main(sys.argv[1], Path(sys.argv[2]))
