"""The networks of GluonTS: each estimator's training and prediction network; and the distributions.

Like `subjects.py`, everything goes through `import mxnet`. Names are `<estimator>.training`, `<estimator>.prediction`
and `distribution.<name>`. The data are a few short synthetic series.
"""

from __future__ import annotations

import copy
import functools
import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = np.ndarray

PAST, FUTURE = 12, 4
"""Days that models look back and forward."""
SERIES = 3
SMALL = {"num_parallel_samples": 5}
DAILY = {"freq": "D", "prediction_length": FUTURE, "context_length": PAST}


# Data


def series(length: int = 60) -> list[dict[str, Any]]:
    """Waves with noise, one of them with gaps; with features of each kind that some model takes."""
    r = np.random.RandomState(7)
    found = []
    for k in range(SERIES):
        wave = 10 * (k + 1) + 3 * np.sin(np.arange(length) / (2 + k)) + r.uniform(-1, 1, length)
        if k == 1:
            wave[20:23] = np.nan
        found.append(
            {
                "start": "2020-01-01",
                "target": wave.astype(np.float32),
                "feat_static_cat": np.array([k, k % 2]),
                "feat_static_real": np.array([k / 2.0, 1.0], np.float32),
                "feat_dynamic_real": r.uniform(0, 1, (2, length + FUTURE)).astype(np.float32),
                "item_id": str(k),
            }
        )
    return found


def _listed(entries: list[dict[str, Any]], univariate: bool = True) -> Any:
    from gluonts.dataset.common import ListDataset

    return ListDataset(entries, freq="D", one_dim_target=univariate)


def univariate(future: bool = False) -> Any:
    """`future`: dynamic features reach over what is to be predicted."""
    entries = series()
    for entry in entries:
        if not future:
            entry["feat_dynamic_real"] = entry["feat_dynamic_real"][:, : len(entry["target"])]
    return _listed(entries)


def one_category(future: bool = False) -> Any:
    entries = series()
    for entry in entries:
        entry["feat_static_cat"] = entry["feat_static_cat"][:1]
        del entry["feat_dynamic_real"]
    return _listed(entries)


def counts(future: bool = False) -> Any:
    """Intermittent demand: whole numbers, most of them 0."""
    r = np.random.RandomState(3)
    return _listed(
        [
            {"start": "2020-01-01", "target": (r.uniform(size=60) < 0.3) * r.randint(1, 5, 60).astype(np.float32)}
            for _ in range(SERIES)
        ]
    )


def multivariate(future: bool = False) -> Any:
    """One series of several dimensions."""
    rows = np.stack([np.nan_to_num(entry["target"], nan=5.0) for entry in series()])
    return _listed([{"start": "2020-01-01", "target": rows, "feat_static_cat": np.array([0])}], univariate=False)


def hierarchy(future: bool = False) -> Any:
    """The sum of two series, and both."""
    rows = np.stack([np.nan_to_num(entry["target"], nan=5.0) for entry in series()[:2]])
    rows = np.concatenate([rows.sum(0, keepdims=True), rows])
    return _listed([{"start": "2020-01-01", "target": rows, "feat_static_cat": np.array([0])}], univariate=False)


# Estimators


def _mx() -> Any:
    return importlib.import_module("gluonts.mx")


def _distributions() -> Any:
    return importlib.import_module("gluonts.mx.distribution")


@functools.cache
def _untrained() -> type:
    """The class of trainers that leave a network as it is, but keep it and its first batch."""

    class Untrained(_mx().Trainer):  # type: ignore[misc]
        def __call__(self, net: Any, train_iter: Any, validation_iter: Any = None) -> None:
            self.net, self.batch = net, next(iter(train_iter))
            net(*self.batch.values())  # finishes what waits for shapes

    return Untrained


def _issm() -> Any:
    issm = importlib.import_module("gluonts.mx.model.deepstate.issm")
    return issm.CompositeISSM.get_from_freq("D", add_trend=True)


def _recurrent_encoder() -> Any:
    """An encoder of targets (batch, time), as `Seq2SeqEstimator` gives them; GluonTS's own take (batch, time, 1)."""

    class Encoder(importlib.import_module("gluonts.mx.block.encoder").RNNEncoder):  # type: ignore[misc]
        def hybrid_forward(self, F: Any, target: Any, *features: Any) -> Any:
            return super().hybrid_forward(F, target.expand_dims(axis=2), *features)

    return Encoder("lstm", 6, 1, bidirectional=True, use_static_feat=True, use_dynamic_feat=True)


def _rnn_of(name: str, **options: Any) -> Callable[..., Any]:
    def make(**shared: Any) -> Any:
        canonical = importlib.import_module("gluonts.mx.model.canonical._estimator")
        return getattr(canonical, name)(**options, **shared)

    return make


def _seq2seq(name: str) -> Callable[..., Any]:
    def make(**shared: Any) -> Any:
        module = importlib.import_module("gluonts.mx.model.seq2seq._seq2seq_estimator")
        return getattr(module, name)(**shared)

    return make


def _named(name: str) -> Callable[..., Any]:
    return lambda **shared: getattr(_mx(), name)(**shared)


def _output(name: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    return lambda: getattr(_distributions(), name)(*args, **kwargs)


_TO_QUANTILES = {
    **DAILY,
    "cardinality": [3, 2],
    "embedding_dimension": 4,
    "decoder_mlp_layer": [8],
    "decoder_mlp_static_dim": 3,
    **SMALL,
}
_CANONICAL = {**DAILY, "cardinality": [3], "embedding_dimension": 4, **SMALL}
_DEEPAR = {**DAILY, "num_cells": 8, **SMALL}
_DEEPVAR = {**DAILY, "target_dim": SERIES, "num_cells": 8, **SMALL}

ESTIMATORS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Mapping[str, Any]]] = {
    # name: constructor, data, arguments; what is callable is called
    "deepar": (_named("DeepAREstimator"), univariate, _DEEPAR),
    "deepar_gru": (
        _named("DeepAREstimator"),
        univariate,
        {
            **_DEEPAR,
            "cell_type": "gru",
            "use_feat_static_cat": True,
            "cardinality": [3, 2],
            "use_feat_static_real": True,
            "use_feat_dynamic_real": True,
            "dropoutcell_type": "VariationalDropoutCell",
            "distr_output": _output("NegativeBinomialOutput"),
            "alpha": 0.1,
            "beta": 0.1,
        },
    ),
    "deepar_rnnzoneout": (
        _named("DeepAREstimator"),
        univariate,
        {
            **_DEEPAR,
            "dropoutcell_type": "RNNZoneoutCell",
            "distr_output": _output("PiecewiseLinearOutput", num_pieces=3),
        },
    ),
    "deepar_variationalzoneout": (
        _named("DeepAREstimator"),
        univariate,
        {
            **_DEEPAR,
            "dropoutcell_type": "VariationalZoneoutCell",
            "distr_output": _output("GaussianOutput"),
            "impute_missing_values": True,
            "scaling": False,
        },
    ),
    "deepstate": (
        _named("DeepStateEstimator"),
        univariate,
        {
            "freq": "D",
            "prediction_length": FUTURE,
            "cardinality": [3, 2],
            "past_length": 28,
            "num_cells": 8,
            "use_feat_dynamic_real": True,
            "issm": _issm,
            **SMALL,
        },
    ),
    "deep_factor": (
        _named("DeepFactorEstimator"),
        one_category,
        {**DAILY, "num_hidden_global": 8, "num_factors": 3, "cardinality": [3], **SMALL},
    ),
    "deepvar": (_named("DeepVAREstimator"), multivariate, _DEEPVAR),
    "deepvar_marginal": (_named("DeepVAREstimator"), multivariate, {**_DEEPVAR, "use_marginal_transformation": True}),
    "deepvar_gaussian": (
        _named("DeepVAREstimator"),
        multivariate,
        {**_DEEPVAR, "cell_type": "gru", "distr_output": _output("MultivariateGaussianOutput", dim=SERIES)},
    ),
    "deepvar_hierarchical": (
        _named("DeepVARHierarchicalEstimator"),
        hierarchy,
        {
            **DAILY,
            "S": lambda: np.array([[1, 1], [1, 0], [0, 1]], np.float32),
            "num_samples_for_loss": 6,
            "num_cells": 8,
            "likelihood_weight": 0.5,
            **SMALL,
        },
    ),
    "gpvar": (_named("GPVAREstimator"), multivariate, {**_DEEPVAR, "target_dim_sample": 2}),
    "gp_forecaster": (
        _named("GaussianProcessEstimator"),
        one_category,
        {**DAILY, "cardinality": SERIES, "max_iter_jitter": 3, **SMALL},
    ),
    "lstnet": (
        _named("LSTNetEstimator"),
        multivariate,
        {
            "prediction_length": FUTURE,
            "context_length": 24,
            "num_series": SERIES,
            "skip_size": 4,
            "ar_window": 6,
            "channels": 8,
            "rnn_num_cells": 8,
            "rnn_num_layers": 1,
        },
    ),
    "n_beats": (
        _named("NBEATSEstimator"),
        univariate,
        {**DAILY, "num_stacks": 3, "widths": [16], "num_block_layers": [2], "expansion_coefficient_lengths": [4]},
    ),
    "n_beats_interpretable": (
        _named("NBEATSEstimator"),
        univariate,
        {
            **DAILY,
            "num_stacks": 2,
            "widths": [16],
            "num_blocks": [2],
            "sharing": [True],
            "stack_types": ["T", "S"],
            "expansion_coefficient_lengths": [3],
            "loss_function": "sMAPE",
            "scale": True,
        },
    ),
    "renewal": (
        _named("DeepRenewalProcessEstimator"),
        counts,
        {"prediction_length": FUTURE, "context_length": 30, "num_cells": 8, "num_layers": 1, **SMALL},
    ),
    "mqcnn": (
        _named("MQCNNEstimator"),
        univariate,
        {
            **DAILY,
            "use_past_feat_dynamic_real": False,
            "use_feat_dynamic_real": True,
            "use_feat_static_cat": True,
            "cardinality": [3, 2],
            "embedding_dimension": [2, 2],
            "channels_seq": [6, 6],
            "dilation_seq": [1, 3],
            "kernel_size_seq": [3, 3],
            "decoder_mlp_dim_seq": [6],
            "quantiles": [0.1, 0.5, 0.9],
            "scaling": True,
        },
    ),
    "mqcnn_distribution": (
        _named("MQCNNEstimator"),
        univariate,
        {
            **DAILY,
            "channels_seq": [6],
            "dilation_seq": [2],
            "kernel_size_seq": [3],
            "distr_output": _output("GaussianOutput"),
        },
    ),
    "mqrnn": (_named("MQRNNEstimator"), univariate, {**DAILY, "quantiles": [0.1, 0.5, 0.9]}),
    "seq2seq": (
        _named("Seq2SeqEstimator"),
        univariate,
        {**_TO_QUANTILES, "context_length": FUTURE, "encoder": _recurrent_encoder},
    ),
    "rnn2qr": (
        _named("RNN2QRForecaster"),
        univariate,
        {**_TO_QUANTILES, "encoder_rnn_layer": 1, "encoder_rnn_num_hidden": 6},
    ),
    "mlp2qr": (_seq2seq("MLP2QRForecaster"), univariate, {**_TO_QUANTILES, "encoder_mlp_layer": [8]}),
    "cnn2qr": (_seq2seq("CNN2QRForecaster"), univariate, _TO_QUANTILES),
    "simple_feedforward": (
        _named("SimpleFeedForwardEstimator"),
        univariate,
        {
            "prediction_length": FUTURE,
            "context_length": PAST,
            "num_hidden_dimensions": [8, 8],
            "batch_normalization": True,
            **SMALL,
        },
    ),
    "simple_feedforward_distribution": (
        _named("SimpleFeedForwardEstimator"),
        univariate,
        {"prediction_length": FUTURE, "context_length": PAST, "sampling": False, "mean_scaling": False},
    ),
    "canonical_rnn": (_rnn_of("CanonicalRNNEstimator", num_cells=8), one_category, _CANONICAL),
    "canonical_mlp": (_rnn_of("MLPForecasterEstimator", hidden_dim_sequence=[8]), one_category, _CANONICAL),
    "tft": (
        _named("TemporalFusionTransformerEstimator"),
        univariate,
        {**DAILY, "hidden_dim": 8, "num_heads": 2, "dynamic_feature_dims": {"feat_dynamic_real": 2}},
    ),
    "transformer": (_named("TransformerEstimator"), univariate, {**DAILY, "model_dim": 8, "num_heads": 2, **SMALL}),
    "wavenet": (
        _named("WaveNetEstimator"),
        one_category,
        {
            "freq": "D",
            "prediction_length": FUTURE,
            "cardinality": [3],
            "num_bins": 24,
            "n_residue": 4,
            "n_skip": 4,
            "dilation_depth": 3,
            "train_window_length": FUTURE,
            **SMALL,
        },
    ),
}


def made(name: str, trainer: Any) -> Any:
    """The estimator of this name, not trained."""
    make, _, arguments = ESTIMATORS[name]
    options = {key: value() if callable(value) else copy.deepcopy(value) for key, value in arguments.items()}
    batch = {} if name in _WITHOUT_BATCH_SIZE else {"batch_size": 4}
    return make(trainer=trainer, **options, **batch)


@functools.cache
def trained(name: str) -> Any:
    """What `train_model` gives (predictor, network, transformation), and the trainer with the first batch."""
    np.random.seed(0)
    estimator = made(name, _untrained()(epochs=1, num_batches_per_epoch=1, hybridize=False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas' about names of frequencies
        output = estimator.train_model(ESTIMATORS[name][1]())
    return output, estimator.trainer


_WITHOUT_BATCH_SIZE = ("canonical_rnn", "canonical_mlp", "rnn2qr", "mlp2qr", "cnn2qr")


def prediction_batch(predictor: Any, data: Any) -> list[Any]:
    """The arrays that the predictor's network is called with first."""
    from gluonts.dataset.loader import InferenceDataLoader

    batchify = importlib.import_module("gluonts.mx.batchify")
    ragged = type(predictor).__name__ == "DeepRenewalProcessPredictor"  # as its own `predict` does
    lengths = {"variable_length": True, "is_right_pad": False} if ragged else {}
    stack = functools.partial(batchify.batchify, ctx=predictor.ctx, dtype=predictor.dtype, **lengths)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.random.seed(0)
        loader = InferenceDataLoader(
            data, transform=predictor.input_transform, batch_size=predictor.batch_size, stack_fn=stack
        )
        batch = next(iter(loader))
    return [batch[key] for key in predictor.input_names]


def network(name: str) -> Any:
    """The network `<estimator>.training` or `<estimator>.prediction`, not hybridized."""
    estimator, _, which = name.partition(".")
    output, trainer = trained(estimator)
    net = trainer.net if which == "training" else output.predictor.prediction_net
    return net


def batch(name: str) -> list[Any]:
    """The first arrays that the network of this name is called with."""
    estimator, _, which = name.partition(".")
    output, trainer = trained(estimator)
    if which == "training":
        return list(trainer.batch.values())
    return prediction_batch(output.predictor, ESTIMATORS[estimator][1](future=True))


# Points in time: gluonts' own DeepTPPEstimator leaves out an argument of its data's splitter.


def point_network(name: str) -> Any:
    deeptpp = importlib.import_module("gluonts.mx.model.tpp.deeptpp._network")
    distributions = importlib.import_module("gluonts.mx.model.tpp.distribution")
    which, _, output = name.removeprefix("deeptpp.").partition(".")
    options = {
        "num_marks": 2,
        "interval_length": 8.0,
        "num_hidden_dimensions": 6,
        "time_distr_output": getattr(distributions, {"weibull": "WeibullOutput"}.get(output, "LoglogisticOutput"))(),
    }
    if which == "training":
        return deeptpp.DeepTPPTrainingNetwork(**options)
    return deeptpp.DeepTPPPredictionNetwork(prediction_interval_length=3.0, **SMALL, **options)


POINTS = [f"deeptpp.{which}.{output}" for which in ("training", "prediction") for output in ("weibull", "loglogistic")]


def points() -> list[Array]:
    """Waiting times and marks, and how many there are in each row."""
    r = np.random.RandomState(5)
    times = np.stack([r.uniform(0.2, 1.0, (SERIES, 7)), r.randint(0, 2, (SERIES, 7))], -1)
    return [times.astype(np.float32), np.array([7, 5, 6], np.float32)]


# Distributions


def _bin_centers() -> Any:
    import mxnet as mx

    return mx.nd.array(np.linspace(-2, 2, 6))


def _box_cox() -> Any:
    d = _distributions()
    return d.TransformedDistributionOutput(d.GaussianOutput(), [d.InverseBoxCoxTransformOutput(lb_obs=-3.0)])


DISTRIBUTIONS: dict[str, tuple[Callable[[], Any], str, tuple[str, ...]]] = {
    # name: what makes the output, the support of its values, what is asked beside log_prob
    "beta": (_output("BetaOutput"), "unit", ("mean", "variance")),
    "binned": (lambda: _distributions().BinnedOutput(_bin_centers()), "real", ("mean", "variance", "cdf")),
    "binned_smooth": (lambda: _distributions().BinnedOutput(_bin_centers(), label_smoothing=0.1), "real", ()),
    "box_cox": (_box_cox, "positive", ("cdf",)),
    "categorical": (_output("CategoricalOutput", num_cats=4), "category", ()),
    "deterministic": (_output("DeterministicOutput", value=1.0), "one", ("mean", "variance", "cdf")),
    "dirichlet": (_output("DirichletOutput", dim=3), "simplex", ("mean", "variance")),
    "dirichlet_multinomial": (_output("DirichletMultinomialOutput", dim=3, n_trials=5), "trials", ("mean", "variance")),
    "empirical": (
        lambda: _distributions().EmpiricalDistributionOutput(10, _distributions().GaussianOutput()),
        "real",
        ("-log_prob", "crps_univariate"),
    ),
    "fixed_knots": (
        _output("FixedKnotsPiecewiseLinearOutput", quantile_levels=[0.1, 0.5, 0.9]),
        "real",
        ("-log_prob", "crps", "cdf"),
    ),
    "gamma": (_output("GammaOutput"), "positive", ("mean", "variance")),
    "gaussian": (_output("GaussianOutput"), "real", ("mean", "variance", "cdf", "quantile")),
    "genpareto": (_output("GenParetoOutput"), "positive", ("mean", "variance", "cdf", "quantile")),
    "isqf": (
        _output("ISQFOutput", num_pieces=3, qk_x=[0.1, 0.5, 0.9]),
        "real",
        ("-log_prob", "crps", "cdf"),
    ),
    "laplace": (_output("LaplaceOutput"), "real", ("mean", "variance", "cdf", "quantile")),
    "laplace_fixed_variance": (_output("LaplaceFixedVarianceOutput"), "real", ("mean", "variance")),
    "logit_normal": (_output("LogitNormalOutput"), "unit", ()),
    "lowrank": (_output("LowrankMultivariateGaussianOutput", dim=3, rank=2), "vector", ("mean", "variance")),
    "mixture": (
        lambda: _distributions().MixtureDistributionOutput(
            [_distributions().GaussianOutput(), _distributions().StudentTOutput()]
        ),
        "real",
        ("mean", "variance"),
    ),
    "multivariate": (_output("MultivariateGaussianOutput", dim=3), "vector", ("mean", "variance")),
    "nan_mixture": (
        lambda: _distributions().NanMixtureOutput(_distributions().GaussianOutput()),
        "gaps",
        (),
    ),
    "negative_binomial": (_output("NegativeBinomialOutput"), "count", ("mean", "variance")),
    "one_inflated_beta": (_output("OneInflatedBetaOutput"), "unit", ("mean", "variance")),
    "piecewise_linear": (_output("PiecewiseLinearOutput", num_pieces=3), "real", ("-log_prob", "crps", "cdf")),
    "poisson": (_output("PoissonOutput"), "count", ("mean", "variance")),
    "student_t": (_output("StudentTOutput"), "real", ("mean", "variance")),
    "uniform": (_output("UniformOutput"), "real", ("mean", "variance", "cdf", "quantile")),
    "zero_and_one_inflated_beta": (_output("ZeroAndOneInflatedBetaOutput"), "unit", ("mean", "variance")),
    "zero_inflated_beta": (_output("ZeroInflatedBetaOutput"), "unit", ("mean", "variance")),
    "zero_inflated_negative_binomial": (_output("ZeroInflatedNegativeBinomialOutput"), "count", ("mean", "variance")),
    "zero_inflated_poisson": (_output("ZeroInflatedPoissonOutput"), "count", ("mean", "variance")),
}

REPARAMETRIZED = ("gaussian", "laplace", "laplace_fixed_variance", "lowrank", "multivariate", "uniform")
"""Distributions with samples through which gradients go."""


def distribution_block(name: str) -> Any:
    """The block that makes a distribution of features, and asks it: `distribution.<name>` or `samples.<name>`."""
    import mxnet as mx

    kind, _, name = name.partition(".")
    make, _, questions = DISTRIBUTIONS[name]
    asked = [q for q in ("log_prob", *questions) if f"-{q}" not in questions and q[0] != "-"]

    class Asked(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.output = make()
            with self.name_scope():
                self.projection = self.output.get_args_proj()

        def hybrid_forward(self, F: Any, features: Any, value: Any, level: Any) -> Any:
            distribution = self.output.distribution(self.projection(features))
            if kind == "samples":
                reparametrized = [distribution.sample_rep(2)] if name in REPARAMETRIZED else []
                return [distribution.sample(), distribution.sample(3), *reparametrized]
            given = {**dict.fromkeys(("log_prob", "crps", "crps_univariate", "cdf"), value), "quantile": level}
            return [getattr(distribution, q)(given[q]) if q in given else getattr(distribution, q) for q in asked]

    return Asked()


def distribution_inputs(name: str) -> list[Array]:
    """Features, values in the distribution's support, levels."""
    r = np.random.RandomState(11)
    support = DISTRIBUTIONS[name.partition(".")[2]][1]
    shape = (2, 4)
    values = {
        "real": lambda: r.uniform(-2, 2, shape),
        "positive": lambda: r.uniform(0.1, 3, shape),
        "unit": lambda: r.uniform(0.05, 0.95, shape),
        "one": lambda: np.where(r.uniform(size=shape) < 0.5, 1.0, 0.5),
        "count": lambda: r.randint(0, 6, shape),
        "category": lambda: r.randint(0, 4, shape),
        "gaps": lambda: np.where(r.uniform(size=shape) < 0.3, np.nan, r.uniform(-1, 1, shape)),
        "vector": lambda: r.uniform(-2, 2, (*shape, 3)),
        "simplex": lambda: r.dirichlet([2.0, 3.0, 4.0], shape),
        "trials": lambda: r.multinomial(5, [0.2, 0.3, 0.5], shape),
    }[support]()
    features = r.uniform(-1, 1, (*shape, 5))
    return [x.astype(np.float32) for x in (features, values, np.array([0.1, 0.5, 0.8]))]


# Blocks that no estimator above contains


class Part:
    """What `block.<name>` is made of: a constructor, and the arguments that the block is called with."""

    def __init__(self, make: Callable[[], Any], inputs: Callable[[], list[Array]]) -> None:
        self.make, self.inputs = make, inputs


def _part(module: str, name: str, **options: Any) -> Callable[[], Any]:
    return lambda: getattr(importlib.import_module(f"gluonts.mx.{module}"), name)(**options)


def _observed() -> list[Array]:
    """Data, and which of it was observed."""
    r = np.random.RandomState(2)
    return [r.uniform(1, 5, (3, 8)).astype(np.float32), (r.uniform(size=(3, 8)) < 0.8).astype(np.float32)]


def _represented(name: str, *given: Any, **options: Any) -> Callable[[], Any]:
    """A representation, asked for the first of its results (data, scale, parameters)."""

    def make() -> Any:
        import mxnet as mx

        class Represented(mx.gluon.HybridBlock):
            def __init__(self) -> None:
                super().__init__()
                with self.name_scope():
                    made = getattr(importlib.import_module("gluonts.mx.representation"), name)
                    self.inner = made(*given, **options)

            def hybrid_forward(self, F: Any, data: Any, observed: Any) -> Any:
                return self.inner(data, observed, None, [])

        block = Represented()
        block.inner.initialize_from_array(np.random.RandomState(4).uniform(1, 5, 40))
        return block

    return make


def _vectors() -> list[Array]:
    return [np.random.RandomState(6).uniform(-1, 1, (2, 5, 3)).astype(np.float32)]


def _steps() -> list[Array]:
    """Target, static and dynamic features."""
    r = np.random.RandomState(8)
    shapes = (2, 7, 1), (2, 3), (2, 7, 2)
    return [r.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]


BLOCKS: dict[str, Part] = {
    "mean_scaler": Part(_part("block.scaler", "MeanScaler", keepdims=True, minimum_scale=0.1), _observed),
    "min_max": Part(_part("block.scaler", "MinMax"), _observed),
    "no_scaler": Part(_part("block.scaler", "NOPScaler"), _observed),
    "mlp_encoder": Part(_part("block.encoder", "MLPEncoder", layer_sizes=[6, 4]), _steps),
    "rnn_encoder": Part(
        _part(
            "block.encoder",
            "RNNEncoder",
            mode="gru",
            hidden_size=4,
            num_layers=1,
            bidirectional=True,
            use_static_feat=True,
            use_dynamic_feat=True,
        ),
        _steps,
    ),
    "causal_cnn_encoder": Part(
        _part(
            "block.encoder",
            "HierarchicalCausalConv1DEncoder",
            dilation_seq=[1, 2],
            kernel_size_seq=[3, 2],
            channels_seq=[4, 4],
            use_residual=True,
            use_static_feat=True,
            use_dynamic_feat=True,
        ),
        _steps,
    ),
    "spectral_mlp": Part(
        _part("block.snmlp", "SNMLPBlock", in_units=3, hidden_units=4, out_units=3, num_hidden_layers=1), _vectors
    ),
    "spectral_dense": Part(_part("block.sndense", "SNDense", units=4, in_units=3, flatten=False), _vectors),
    "lip_swish": Part(_part("activation", "LipSwish"), _vectors),
    "activation_regularization": Part(
        _part("block.regularization", "ActivationRegularizationLoss", alpha=0.3), _vectors
    ),
    "temporal_regularization": Part(
        _part("block.regularization", "TemporalActivationRegularizationLoss", beta=0.3), _vectors
    ),
    "mean_scaling": Part(_represented("MeanScaling", clip_max=3.0), _observed),
    "custom_binning": Part(_represented("CustomBinning", np.linspace(1, 5, 7)), _observed),
    "local_binning": Part(_represented("LocalAbsoluteBinning", num_bins=6), _observed),
    "global_binning": Part(_represented("GlobalRelativeBinning", num_bins=6), _observed),
    "discrete_pit": Part(_represented("DiscretePIT", num_bins=6), _observed),
    "dim_expansion": Part(_represented("DimExpansion"), _observed),
}
