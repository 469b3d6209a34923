"""Results of the Python parts of MXNet's interface, computed by real MXNet and by gluonjit.

`answers(mx)` is a dict of plain values. `oracle/python_api.py` stores real MXNet's in `data/python_api.json`. This
module imports neither of them.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import random
import tempfile
import warnings
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """`value` as JSON has it; numbers keep 6 digits."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "asnumpy"):
        return plain(value.asnumpy())
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return repr(value) if not np.isfinite(value) else float(f"{value:.5e}")
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, (int, str, bool)) or value is None else str(value)


def arrays(rng: np.random.RandomState, *shape: int) -> np.ndarray:
    return rng.uniform(0.01, 1, shape).astype(np.float32)


def metrics(mx: Any) -> dict[str, Any]:
    rng = np.random.RandomState(1)
    scores, classes = [arrays(rng, 8, 4) for _ in range(2)], [rng.randint(0, 4, 8) for _ in range(2)]
    two, binary = [arrays(rng, 9, 2) for _ in range(2)], [rng.randint(0, 2, 9) for _ in range(2)]
    column, truth = [arrays(rng, 6, 1) for _ in range(2)], [arrays(rng, 6) for _ in range(2)]
    m = mx.metric
    cases = {
        "accuracy": (m.Accuracy(), classes, scores),
        "accuracy of classes": (m.create("acc"), classes, [c[::-1].copy() for c in classes]),
        "top 2": (m.create("top_k_acc", top_k=2), classes, scores),
        "f1": (m.F1(), binary, two),
        "f1 micro": (m.F1(average="micro"), binary, two),
        "mcc": (m.MCC(), binary, two),
        "mcc micro": (m.MCC(average="micro"), binary, two),
        "pcc": (m.PCC(), classes, scores),
        "perplexity": (m.Perplexity(ignore_label=None), classes, scores),
        "perplexity, ignoring": (m.Perplexity(ignore_label=1), classes, scores),
        "mae": (m.MAE(), truth, column),
        "mse": (m.MSE(), truth, column),
        "rmse": (m.create("rmse"), truth, column),
        "cross entropy": (m.create("ce"), classes, scores),
        "likelihood": (m.create("nll_loss"), classes, scores),
        "pearson": (m.PearsonCorrelation(), column, [c * c for c in column]),
        "pearson micro": (m.PearsonCorrelation(average="micro"), column, [c * c for c in column]),
        "loss": (m.Loss(), classes, scores),
        "several": (m.CompositeEvalMetric(["acc", m.Loss()]), classes, scores),
        "custom": (m.np(lambda a, b: float(np.abs(a - b[:, 0]).sum())), truth, column),
        "custom sum": (m.create(lambda a, b: (float(a.sum()), a.size)), truth, column),
    }
    result: dict[str, Any] = {}
    for name, (metric, labels, preds) in cases.items():
        seen = [metric.get_name_value()]
        for k in range(2):
            metric.update([mx.nd.array(labels[k])], [mx.nd.array(preds[k])])
            seen.append(metric.get_name_value())
        if name != "pearson micro":  # MXNet's knows no global value
            seen.append(metric.get_global_name_value())
            metric.reset_local()
            metric.update([mx.nd.array(labels[0])], [mx.nd.array(preds[0])])
            seen += [metric.get_name_value(), metric.get_global_name_value()]
        metric.reset()
        result[name] = [*seen, metric.get_name_value()]
    result["config"] = m.TopKAccuracy(top_k=3, name="best").get_config()
    result["text"] = str(m.create(m.MAE().get_config()))
    return result


def schedules(mx: Any) -> dict[str, Any]:
    s = mx.lr_scheduler
    warm = {"warmup_steps": 4, "warmup_begin_lr": 0.1}
    cases = {
        "factor": s.FactorScheduler(3, 0.5, stop_factor_lr=0.2, base_lr=1),
        "factor, warm": s.FactorScheduler(3, 0.5, base_lr=1, **warm),
        "factors": s.MultiFactorScheduler([2, 5, 6], 0.1, base_lr=2),
        "polynomial": s.PolyScheduler(10, base_lr=1, pwr=3, final_lr=0.1, **warm),
        "cosine": s.CosineScheduler(8, base_lr=1, final_lr=0.2, warmup_mode="constant", **warm),
    }
    return {name: [schedule(k) for k in range(12)] for name, schedule in cases.items()}


def optimizers(mx: Any) -> dict[str, Any]:
    names = [
        "sgd",
        "nag",
        "adam",
        "adagrad",
        "rmsprop",
        "adadelta",
        "ftrl",
        "adamax",
        "nadam",
        "signum",
        "ftml",
        "sgld",
    ]
    names += ["lars", "lbsgd", "lamb", "dcasgd", "groupadagrad"]
    settings = {}
    hidden = ("aggregate_num", "adaptive", "allow_np_array", "lbmult", "admult", "skip")  # MXNet's own state
    for name in names:
        optimizer = mx.optimizer.create(name)
        shown = {k: v for k, v in vars(optimizer).items() if isinstance(v, (bool, int, float)) and k not in hidden}
        settings[name] = {k: shown[k] for k in sorted(shown)}
    sgd = mx.optimizer.SGD(learning_rate=0.5, wd=0.1, param_idx2name={0: "a_weight", 1: "a_bias", 2: "a_gamma"})
    sgd.set_lr_mult({"a_bias": 3, 2: 0.25})
    rates = [sgd._get_lr(k) for k in range(4)], [sgd._get_wd(k) for k in range(4)]
    sgd.set_wd_mult({"a_bias": 2})
    return {"settings": settings, "rates": [*rates, [sgd._get_wd(k) for k in range(4)]]}


def iterators(mx: Any) -> dict[str, Any]:
    data, label = np.arange(14).reshape(7, 2), np.arange(7)
    result: dict[str, Any] = {}
    for handle in ("pad", "discard"):
        it = mx.io.NDArrayIter(data, label, 3, last_batch_handle=handle)
        epochs = []
        for _ in range(2):
            it.reset()
            epochs.append([(b.data[0], b.label[0], b.pad) for b in it])
        result[handle] = epochs
    it = mx.io.NDArrayIter(data, label, 3, last_batch_handle="roll_over")
    epochs = []
    for _ in range(3):
        epochs.append([(b.data[0], b.label[0], b.pad) for b in it])
        it.reset()
    result["roll_over"] = epochs
    it = mx.io.NDArrayIter({"b": data, "a": data.astype("int32") * 2}, [label, label + 1], 10)
    result["names"] = [it.provide_data, it.provide_label]
    result["types"] = [[x.dtype.__name__ for x in batch.data] for batch in it]
    it = mx.io.ResizeIter(mx.io.NDArrayIter(data, label, 3), 4)
    result["resized"] = [(b.data[0], b.pad) for b in it]
    it = mx.io.PrefetchingIter(mx.io.NDArrayIter(data, label, 3))
    result["prefetched"] = [[(b.data[0], b.pad) for b in it], it.reset(), [(b.data[0], b.pad) for b in it]]
    result["batch"] = str(mx.io.DataBatch([mx.nd.zeros((2, 3))], [mx.nd.zeros(2)]))
    result["described"] = mx.io.DataDesc.get_list([("x", (2, 3))], [("x", "int32")])
    return result


def samplers(mx: Any) -> dict[str, Any]:
    d = mx.gluon.data
    result: dict[str, Any] = {}
    for last in ("keep", "discard", "rollover"):
        batches = d.BatchSampler(d.SequentialSampler(7, 2), 3, last)
        result[last] = [[len(batches), list(batches)] for _ in range(2)]
    np.random.seed(5)
    result["random"] = list(d.RandomSampler(6))
    dataset = d.SimpleDataset(list(range(10)))
    result["filter"] = list(dataset.filter(lambda x: x % 3 == 0))
    result["shards"] = [list(dataset.shard(4, k)) for k in range(4)]
    result["take"] = [list(dataset.take(3)), len(dataset.take(None)), len(dataset.take(99))]
    result["sample"] = list(dataset.sample(d.SequentialSampler(2, 7)))
    pairs = d.ArrayDataset(mx.nd.arange(4), [4, 5, 6, 7])
    result["pairs"] = [
        list(pairs),
        list(pairs.transform(lambda a, b: a + b)),
        list(pairs.transform_first(lambda a: -a)),
    ]
    loader = d.DataLoader(pairs, 3, last_batch="rollover")
    result["loader"] = [[list(batch) for batch in loader] for _ in range(2)]
    result["parts"] = [
        mx.gluon.utils.split_data(mx.nd.arange(7), 3, even_split=False),
        mx.gluon.utils.split_data(mx.nd.arange(8).reshape((2, 4)), 2, batch_axis=1),
        mx.gluon.utils.split_and_load([1, 2, 3], [mx.cpu()]),
    ]
    x = [mx.nd.array([3.0, 4.0]), mx.nd.array([12.0])]
    result["norm"] = [mx.gluon.utils.clip_global_norm(x, 6.5), x, mx.gluon.utils.clip_global_norm(x, 100), x]
    return result


def images(mx: Any) -> dict[str, Any]:
    rng = np.random.RandomState(2)
    picture = mx.nd.array(rng.randint(0, 256, (9, 6, 3)))
    m = mx.image
    random.seed(3)
    result = {
        "short edge": [m.resize_short(picture, 4, k).shape for k in range(5)],
        "center": m.center_crop(picture, (4, 5)),
        "center, larger": m.center_crop(picture, (12, 9), 1),
        "fixed": m.fixed_crop(picture, 1, 2, 4, 3, (2, 5), 1),
        "random": m.random_crop(picture, (5, 4)),
        "random size": m.random_size_crop(picture, (5, 5), (0.3, 0.6), (0.7, 1.4), 1),
        "scaled down": [m.scale_down((640, 480), (720, 120)), m.scale_down((3, 9), (6, 6))],
        "normalized": m.color_normalize(picture.copy(), mx.nd.array([1, 2, 3]), mx.nd.array([4, 5, 8])),
        "bordered": [m.copyMakeBorder(picture, 1, 2, 3, 0, type=k).sum(axis=(1, 2)) for k in (0, 1, 2, 4)],
        "methods": [m.image._get_interp_method(9, s) for s in ((1, 1, 2, 2), (2, 2, 1, 1), (1, 2, 2, 1), ())],
        "turned": [
            m.imrotate(picture.transpose((2, 0, 1)) / 255, 30, **zoom)
            for zoom in ({}, {"zoom_in": True}, {"zoom_out": True})
        ],
    }
    flips = m.CreateAugmenter((3, 4, 4), resize=6, rand_crop=True, rand_mirror=True, mean=True, std=True, rand_gray=0.2)
    result["augmenters"] = [type(a).__name__ for a in flips]
    result["described"] = [a.dumps() for a in flips[:4]]
    augmented = picture.astype("uint8")
    for augment in flips:
        augmented = augment(augmented)
    result["augmented"] = augmented
    colors = [m.BrightnessJitterAug(0.3), m.ContrastJitterAug(0.3), m.SaturationJitterAug(0.3), m.HueJitterAug(0.3)]
    result["colors"] = [augment(picture.copy()) for augment in colors]
    t = mx.gluon.data.vision.transforms
    chain = t.Compose([t.Resize(8), t.CenterCrop((6, 4)), t.ToTensor(), t.Normalize((0.1, 0.2, 0.3), 0.5)])
    result["transformed"] = chain(picture)
    result["cropped"] = t.CropResize(1, 2, 4, 5)(picture)
    result["cast"] = t.Cast("int32")(picture).dtype.__name__
    return result


def records(mx: Any) -> dict[str, Any]:
    r = mx.recordio
    magic = (0xCED7230A).to_bytes(4, "little")
    contents = [b"", b"a", b"abcd", b"abcd" + magic + b"tail", magic + magic, b"x" + magic, magic * 2 + b"yz"]
    with tempfile.TemporaryDirectory() as folder:
        path, index = os.path.join(folder, "x.rec"), os.path.join(folder, "x.idx")
        file = r.MXIndexedRecordIO(index, path, "w")
        for k, content in enumerate(contents):
            file.write_idx(k * 10, content)
        file.close()
        with open(path, "rb") as a, open(index) as b:
            written = [a.read(), b.read()]
        file = r.MXIndexedRecordIO(index, path, "r")
        read = [file.read_idx(k * 10) for k in reversed(range(len(contents)))]
        sequence = r.MXRecordIO(path, "r")
        first = [sequence.read() for _ in range(len(contents) + 1)]
    one, many = r.pack(r.IRHeader(0, 3.5, 7, 0), b"body"), r.pack(r.IRHeader(0, [1, 2.5], 8, 1), b"body")
    unpacked = [[*map(list, [[h.flag, h.id, h.id2], np.atleast_1d(h.label)]), s] for h, s in map(r.unpack, (one, many))]
    return {"written": written, "read": read, "sequence": first, "packed": [one, many], "unpacked": unpacked}


def summaries(mx: Any) -> dict[str, Any]:
    x = mx.sym.var("data")
    y = mx.sym.Convolution(x, kernel=(3, 3), num_filter=8, name="conv")
    y = mx.sym.Activation(mx.sym.BatchNorm(y, name="bn"), act_type="relu", name="act")
    y = mx.sym.concat(y, y * 2, dim=1, name="joined")
    y = mx.sym.FullyConnected(mx.sym.Flatten(y, name="flat"), num_hidden=10, name="fc")
    y = mx.sym.softmax(y, name="probability")
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        mx.viz.print_summary(y, shape={"data": (1, 3, 8, 8)})
    return {"table": text.getvalue().replace("_mulscalar0", "double")}


def answers(mx: Any) -> dict[str, Any]:
    """Every question's answer."""
    questions = (metrics, schedules, optimizers, iterators, samplers, images, records, summaries)
    disabled = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings(), mx.name.NameManager():
            warnings.simplefilter("ignore")
            return {question.__name__: plain(question(mx)) for question in questions}
    finally:
        logging.disable(disabled)
