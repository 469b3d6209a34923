"""A model as a function of Spark's columns: two Python workers, each with the model and half of the cores.

pip install pyspark pandas pyarrow gluonjit
python examples/clusters/spark_udf.py
"""

import os
import sys

import numpy as np
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, FloatType

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORKERS = 2
THREADS = max(1, (os.cpu_count() or 1) // WORKERS)


def make_predict():
    """Runs once in each worker; what it returns gets the arrays of a batch."""
    import gluonjit

    predictor = gluonjit.Predictor(
        f"{HERE}/fire-symbol.json", f"{HERE}/fire-0000.params", inputs={"data": "batchx3x17x17"}, threads=THREADS
    )

    def predict(pixels):
        (scores,) = predictor({"data": pixels}).values()
        return scores.reshape(len(scores), -1)

    return predict


def main(rows=1000):
    """How many rows were scored, and the sum of their ids."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run in the same environment
    spark = (
        SparkSession.builder.master(f"local[{WORKERS}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    try:
        pixels = np.random.default_rng(0).standard_normal((rows, 3 * 17 * 17)).astype(np.float32)
        frame = spark.createDataFrame(
            [(k, x.tolist()) for k, x in enumerate(pixels)], schema="id long, pixels array<float>"
        ).repartition(4)
        score = predict_batch_udf(
            make_predict,
            return_type=ArrayType(FloatType()),
            batch_size=64,
            input_tensor_shapes=[[3, 17, 17]],
        )
        found = frame.withColumn("scores", score("pixels")).select("id", "scores").collect()
    finally:
        spark.stop()
    assert all(len(row["scores"]) == len(found[0]["scores"]) for row in found)
    return len(found), sum(row["id"] for row in found)


if __name__ == "__main__":
    print(main())
