"""A model on the partitions of a Dask DataFrame: two processes, each with the model and half of the cores.

pip install "dask[distributed,dataframe]" gluonjit
python examples/clusters/dask_partitions.py
"""

import os

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.distributed import Client, LocalCluster

import gluonjit

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORKERS = 2
THREADS = max(1, (os.cpu_count() or 1) // WORKERS)
COLUMNS = [f"pixel{k}" for k in range(3 * 17 * 17)]


def score(frame, predictor):
    """The id of each row of a partition, and the class with the best score."""
    pixels = frame[COLUMNS].to_numpy(np.float32).reshape(-1, 3, 17, 17)
    (scores,) = predictor({"data": pixels}).values()
    return pd.DataFrame({"id": frame["id"].to_numpy(), "best": scores.reshape(len(scores), -1).argmax(axis=1)})


def main(rows=1000):
    """How many rows were scored, and the sum of their ids."""
    # What travels to the workers are the names of the files; each opens them when it gets its first partition.
    predictor = gluonjit.Predictor(
        f"{HERE}/fire-symbol.json", f"{HERE}/fire-0000.params", inputs={"data": "batchx3x17x17"}, threads=THREADS
    )
    pixels = np.random.default_rng(0).standard_normal((rows, len(COLUMNS))).astype(np.float32)
    frame = pd.concat([pd.DataFrame({"id": np.arange(rows)}), pd.DataFrame(pixels, columns=COLUMNS)], axis=1)
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        parts = dd.from_pandas(frame, npartitions=8)
        found = parts.map_partitions(score, predictor, meta={"id": "int64", "best": "int64"}).compute()
    return len(found), int(found["id"].sum())


if __name__ == "__main__":
    print(main())
