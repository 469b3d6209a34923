"""A model on the rows of a Ray Dataset: two workers, each with the model and half of the cores.

pip install "ray[data]" gluonjit
python examples/clusters/ray_data.py
"""

import os

import numpy as np
import ray

import gluonjit

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORKERS = 2
THREADS = max(1, (os.cpu_count() or 1) // WORKERS)


class Score:
    """A worker: opens the model once, and gets batches of rows as a dict of arrays."""

    def __init__(self):
        self.predictor = gluonjit.Predictor(
            f"{HERE}/fire-symbol.json",
            f"{HERE}/fire-0000.params",
            inputs={"data": "batchx3x17x17"},
            threads=THREADS,
        )

    def __call__(self, batch):
        (scores,) = self.predictor({"data": batch["pixels"]}).values()
        return {"id": batch["id"], "best": scores.reshape(len(scores), -1).argmax(axis=1)}


def main(rows=1000):
    """How many rows were scored, and the sum of their ids."""
    ray.init(num_cpus=max(WORKERS * THREADS, WORKERS + 1), include_dashboard=False, log_to_driver=False)
    try:
        rng = np.random.default_rng(0)
        pixels = rng.standard_normal((rows, 3, 17, 17)).astype(np.float32)
        data = ray.data.from_items([{"id": k, "pixels": x} for k, x in enumerate(pixels)])
        found = data.map_batches(Score, batch_size=64, concurrency=WORKERS, num_cpus=THREADS).take_all()
    finally:
        ray.shutdown()
    return len(found), sum(row["id"] for row in found)


if __name__ == "__main__":
    print(main())
