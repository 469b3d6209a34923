"""Models in use by others: the `Predictor` of programs and workers, and the server of `gluonjit serve`."""
