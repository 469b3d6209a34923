"""Run by Python at start: gives a script what it found in its time, without changing it."""

import os

if "FIELD_OLD_PANDAS" in os.environ:
    import pandas

    for kind in (pandas.DataFrame, pandas.Series):
        kind.as_matrix = lambda self: self.to_numpy(dtype="float64")

if "FIELD_REAL_MXNET" in os.environ:
    # The files are made up, so their sums are not those of the published ones; MXNet would download these.
    import mxnet.gluon.contrib.data.text
    import mxnet.gluon.data.vision.datasets
    import mxnet.gluon.utils

    for module in (mxnet.gluon.utils, mxnet.gluon.contrib.data.text, mxnet.gluon.data.vision.datasets):
        module.check_sha1 = lambda path, sum: True
