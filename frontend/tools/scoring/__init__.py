"""Files of rows through a model: what `gluonjit score` does, here, on Ray and on Dask."""
