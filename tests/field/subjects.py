"""Which models each package registers, and what they are called with.

Everything here goes through `import mxnet`, so that it serves gluonjit and the real MXNet alike: `run.py` and
`reference.py`.
"""

from __future__ import annotations

import contextlib
import fnmatch
import importlib
import inspect
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import gluonts_networks as networks
import numpy as np

Array = np.ndarray


class Package:
    """The models of one package: `names()`, `family(name)`, `build(name)`, `inputs(name, net)`."""

    name: str
    broken: dict[str, str] = {}
    """Patterns of names that real MXNet cannot build or run either, and why."""
    untrained: dict[str, str] = {}
    """Patterns of names that real MXNet cannot train, and why."""
    unhybrid: tuple[str, ...] = ()
    """Patterns of names that the package itself does not hybridize."""
    drawn: tuple[str, ...] = ()
    """Patterns of names whose answers are drawn at random, so that MXNet gives others."""

    def hybridizes(self, name: str) -> bool:
        return not any(fnmatch.fnmatch(name, pattern) for pattern in self.unhybrid)

    def names(self) -> list[str]:
        raise NotImplementedError

    def family(self, name: str) -> str:
        """What a sample takes one model of."""
        raise NotImplementedError

    def build(self, name: str) -> Any:
        """The block, its parameters not initialized."""
        raise NotImplementedError

    def inputs(self, name: str, net: Any) -> list[Any]:
        """Arguments of the size that the model's own defaults say, one example each: arrays, nested in lists or not."""
        raise NotImplementedError

    def small(self, name: str) -> tuple[Any, list[Any]]:
        """The block, and arguments to train it with: small, a batch of two."""
        net = self.build(name)
        return net, self.inputs(name, net)


def image(height: int, width: int | None = None, channels: int = 3) -> Array:
    """A batch of one picture, with numbers from 0 to 1."""
    return numbers(1, channels, height, width or height)


def numbers(*shape: int) -> Array:
    return np.random.RandomState(0).uniform(0, 1, shape).astype(np.float32)


class GluonCV2(Package):
    """gluoncv2, by Oleg Sémery: image classification above all. A net knows its `in_size`."""

    name = "gluoncv2"
    SPEECH = ("jasper", "jasperdr", "quartznet")
    broken = dict.fromkeys(
        ("alphapose_*", "simplepose_mobile_*"),
        "its constructor leaves out arguments: DucBlock needs in_size and fixed_size",
    )
    untrained = {"ntsnet_cub": "its forward writes to a part of an array, which MXNet refuses while it records"}
    unhybrid = ("ntsnet_cub",)  # its forward reads scores to cut out parts of the picture

    def _models(self) -> dict[str, Callable[..., Any]]:
        return importlib.import_module("gluoncv2.model_provider")._models

    def names(self) -> list[str]:
        return sorted(self._models())

    def family(self, name: str) -> str:
        return self._models()[name].__module__.rpartition(".")[2]

    def build(self, name: str) -> Any:
        # The networks for speech, without the block in front that makes spectra of sound, which needs librosa.
        spectra = {"from_audio": False} if self.family(name) in self.SPEECH else {}
        return self._models()[name](pretrained=False, **spectra)

    def inputs(self, name: str, net: Any) -> list[Array]:
        family = self.family(name)
        if family in self.SPEECH:
            return [numbers(1, 64, 150), np.array([148], np.float32)]
        if family == "nvpattexp":
            return [numbers(1, 8, 16, 29), np.array([3], np.float32)]
        if family == "visemenet":
            return [numbers(34, 8, 195), np.full((34, 76), 3, np.float32)]  # windows over the batch
        if family == "voca":
            return [numbers(1, 1, 16, 29), np.array([3], np.float32)]
        return [image(*net.in_size, channels=1 if family == "superpointnet" else 3)]

    ANY_SIZE = ("_cityscapes", "_voc", "_coco", "_celebamaskhq", "_widerface", "superpointnet")
    """Parts of the names of what takes pictures of any size; other networks end in a pooling of a fixed one."""

    def small(self, name: str) -> tuple[Any, list[Any]]:
        if self.family(name) in (*self.SPEECH, "nvpattexp", "visemenet", "voca"):
            return super().small(name)
        if not any(part in name for part in self.ANY_SIZE):
            net = self.build(name)
            return net, [numbers(2, 3, *net.in_size)]
        size = (128, 128)
        # Heat maps are trained; the points found in them are written to arrays, which no gradient can follow.
        maps = {"return_heatmap": True} if name.startswith(("simplepose", "centernet")) else {}
        net = self._models()[name](pretrained=False, in_size=size, **maps)
        return net, [numbers(1, 1, *size) if name == "superpointnet" else numbers(2, 3, *size)]


class GluonCV(Package):
    """gluoncv: classification, detection, segmentation, pose, video."""

    name = "gluoncv"
    broken = {"custom_faster_rcnn_fpn": "with the box_features it is built with, its forward never assigns cls_feat"}

    def _zoo(self) -> Any:
        return importlib.import_module("gluoncv.model_zoo.model_zoo")

    def names(self) -> list[str]:
        return sorted(self._zoo()._models)

    def family(self, name: str) -> str:
        return self._zoo()._models[name].__module__.partition("model_zoo.")[2] or self._zoo()._models[name].__module__

    def build(self, name: str, **more: Any) -> Any:
        make = self._zoo()._models[name]
        kwargs: dict[str, Any] = {"pretrained": False, **more}
        if "custom" in name:
            video = self.family(name).startswith("action_recognition")
            kwargs |= {"nclass": 3} if video else {"classes": ["cat", "dog", "bird"]}
        if "use_kinetics_pretrain" in inspect.signature(make).parameters:
            kwargs["use_kinetics_pretrain"] = False
        with self._without_weights():
            try:
                return make(pretrained_base=False, **kwargs)
            except (TypeError, Warning):  # it is no model on top of another
                return make(**kwargs)

    @contextlib.contextmanager
    def _without_weights(self) -> Iterator[None]:
        """Constructors do without the weights that some of them download in any case: `initialize` replaces all.

        They do not move parameters without values to a device, either, which MXNet refuses.
        """
        import mxnet as mx

        store = importlib.import_module("gluoncv.model_zoo.model_store")
        with (
            mock.patch.object(store, "get_model_file", lambda name, *args, **kwargs: name),
            mock.patch.object(mx.gluon.Block, "load_parameters", lambda net, *args, **kwargs: None),
            mock.patch.object(mx.gluon.ParameterDict, "reset_ctx", lambda params, ctx: None),
        ):
            yield

    # By the name's beginning: height, width.
    SIZES: tuple[tuple[str, tuple[int, int]], ...] = (
        (r"cifar", (32, 32)),
        (r"inceptionv3|xception|nasnet", (299, 299)),
        (r"ssd_300", (300, 300)),
        (r"ssd_512|center_net", (512, 512)),
        (r"yolo3", (416, 416)),
        (r"simple_pose|mobile_pose|alpha_pose", (256, 192)),
        (r"monodepth2", (192, 640)),
    )

    def inputs(self, name: str, net: Any) -> list[Array]:
        if self.family(name).startswith("action_recognition") or re.search("_(ucf101|kinetics400)_int8", name):
            return [self._video(name, net)]
        if name.startswith("siamrpn"):
            return [image(127), image(287)]
        for pattern, size in self.SIZES:
            if re.match(pattern, name):
                return [image(*size)]
        if "rcnn" in name:  # of those for one's own classes, anchors reach this far
            return [image(512 if name.startswith("custom") else np.max(net.short))]
        if hasattr(net, "crop_size"):
            return [image(net.crop_size)]
        segmentation = name.startswith(("fcn", "psp", "deeplab"))
        return [image(480 if segmentation else 224)]

    SMALL = (
        (r"cifar", 32),
        (r"densenet|nasnet|senet|googlenet|inceptionv1|squeezenet|hrnet.*_c$", 224),
        (r"inceptionv3", 299),
        (r"icnet|ssd|fcn|psp|deeplab|danet|fastscnn", 128),
        (r".*rcnn", 192),  # with as many anchors as proposals are asked for
    )
    """Height and width of small pictures, by the name's beginning, where it is not 64."""

    def small(self, name: str) -> tuple[Any, list[Any]]:
        size = next((size for pattern, size in self.SMALL if re.match(pattern, name)), 64)
        segments = re.match("icnet|fcn|psp|deeplab|danet|fastscnn", name)
        net = self.build(name, **({"crop_size": size} if segments else {}))
        inputs = self.inputs(name, net)
        if name.startswith("siamrpn") or inputs[0].ndim == 5:  # its own reshapes are for one example
            return net, inputs
        batch = 1 if "rcnn" in name else 2
        inputs = [numbers(batch, 3, size, size)]
        corners = np.array([[[4, 4, 40, 40], [8, 20, 50, 60]]] * batch, np.float32)
        if "rcnn" in name:  # boxes and their classes
            return net, [*inputs, corners, np.array([[[1], [2]]], np.float32)]
        if name.startswith("yolo3"):  # as their prefetch generator makes targets for each anchor
            anchors = sum(3 * (size // stride) ** 2 for stride in (8, 16, 32))
            targets = [numbers(batch, anchors, k) for k in (2, 2, 2, len(net.classes))]
            return net, [*inputs, corners, numbers(batch, anchors, 1), *targets]
        return net, inputs

    def _video(self, name: str, net: Any) -> Array:
        if name.startswith(("c3d", "r2plus1d")):
            return numbers(1, 3, 16, 112, 112)
        if name.startswith("slowfast"):
            return numbers(1, 3, net.fast_frames + net.slow_frames, 224, 224)
        size = 299 if "inceptionv3" in name else 224
        if name.startswith(("i3d", "p3d")):
            return numbers(1, 3, 32 if name.startswith("i3d") else 16, size, size)
        segments = 7 if "resnet" in name else 3  # of a film, as the graphs of integers have it
        return numbers(segments if "int8" in name else net.num_segments, 3, size, size)


class GluonNLP(Package):
    """gluonnlp: language models."""

    name = "gluonnlp"
    LENGTH = 64

    def _zoo(self) -> Any:
        return importlib.import_module("gluonnlp.model")

    def names(self) -> list[str]:
        model = self._zoo()
        found = {}
        for module in ("bert", "language_model", "elmo", "transformer"):
            content = getattr(model, module)
            found.update({n: f for n, f in vars(content).items() if n in content.__all__ and n == n.lower()})
        return sorted(
            n for n in found if n not in ("get_model", "get_bert_model", "get_roberta_model", "get_transformer")
        )

    def family(self, name: str) -> str:
        return getattr(self._zoo(), name).__module__.rpartition(".")[2]

    def _vocabulary(self, bert: bool) -> Any:
        import gluonnlp as nlp

        counter = nlp.data.count_tokens([f"w{k}" for k in range(1000)])
        return nlp.vocab.BERTVocab(counter) if bert else nlp.Vocab(counter)

    def build(self, name: str) -> Any:
        if name.startswith("transformer"):
            return self._transformer()
        make = getattr(self._zoo(), name)
        if name.startswith(("bert", "roberta", "ernie", "distilbert")):
            vocab = self._vocabulary(not name.startswith("roberta"))
            return make(dataset_name=None, vocab=vocab, pretrained=False)[0]
        if name.startswith("elmo"):
            return make(pretrained=False)[0]
        return make(vocab=self._vocabulary(False), pretrained=False)[0]

    def _transformer(self) -> Any:
        """`transformer_en_de_512`, whose own constructor wants a vocabulary that it downloads."""
        model, vocab = self._zoo(), self._vocabulary(False)
        encoder, decoder, one_step_ahead = model.transformer.get_transformer_encoder_decoder(
            units=512,
            hidden_size=2048,
            dropout=0.1,
            num_layers=6,
            num_heads=8,
            max_src_length=530,
            max_tgt_length=549,
            scaled=True,
        )
        return model.translation.NMTModel(
            src_vocab=vocab,
            tgt_vocab=vocab,
            encoder=encoder,
            decoder=decoder,
            one_step_ahead_decoder=one_step_ahead,
            share_embed=True,
            embed_size=512,
            tie_weights=True,
            embed_initializer=None,
            prefix="transformer_",
        )

    def inputs(self, name: str, net: Any) -> list[Any]:
        tokens = np.random.RandomState(0).randint(4, 900, (1, self.LENGTH)).astype(np.float32)
        length = np.array([self.LENGTH - 7], np.float32)
        masked = np.array([[3, 5, 8]], np.float32)
        if name.startswith(("bert", "ernie")):
            return [tokens, np.zeros_like(tokens), length, masked]
        if name.startswith("roberta"):
            return [tokens, length, masked]
        if name.startswith("distilbert"):
            return [tokens, length]
        if name.startswith("elmo"):
            characters = np.random.RandomState(0).randint(1, 200, (1, 20, 50)).astype(np.float32)
            return [characters, self._begin_state(net, 1), np.ones((1, 20), np.float32)]
        if name.startswith("transformer"):
            return [tokens, tokens[:, :20], length, np.array([17], np.float32)]
        if name.startswith("big_rnn"):
            return [tokens.T[:35], self._begin_state(net, 1)]
        return [tokens.T[:35]]  # time first

    def _begin_state(self, net: Any, batch: int) -> Any:
        import mxnet as mx

        return net.begin_state(batch_size=batch, func=mx.nd.zeros)


class GluonTS(Package):
    """gluonts: forecasts; networks that are trained, networks that predict, distributions, see `gluonts_networks`."""

    name = "gluonts"
    broken = dict.fromkeys(
        ("rnn2qr.*", "mlp2qr.*", "cnn2qr.*"),
        "its encoder multiplies matrices of rank 2, as its own transformation gives them, in a batch",
    )
    unhybrid = ("deeptpp.*",)
    drawn = (
        *("*.prediction", "deeptpp.prediction.*", "samples.*"),
        # Losses of samples, and of gaps filled with some.
        *("deepvar_hierarchical.training", "deepar_variationalzoneout.training", "distribution.empirical"),
    )

    def names(self) -> list[str]:
        estimators = [f"{name}.{which}" for name in networks.ESTIMATORS for which in ("training", "prediction")]
        distributions = [f"{kind}.{name}" for name in networks.DISTRIBUTIONS for kind in ("distribution", "samples")]
        blocks = [f"block.{name}" for name in networks.BLOCKS]
        return sorted([*estimators, *distributions, *networks.POINTS, *blocks])

    def family(self, name: str) -> str:
        return name.partition(".")[0]

    def build(self, name: str) -> Any:
        if name in networks.POINTS:
            return networks.point_network(name)
        if name.startswith("block."):
            return networks.BLOCKS[name.partition(".")[2]].make()
        made_of = name.startswith(("distribution.", "samples."))
        return networks.distribution_block(name) if made_of else networks.network(name)

    def inputs(self, name: str, net: Any) -> list[Any]:
        if name in networks.POINTS:
            return networks.points()
        if name.startswith("block."):
            return networks.BLOCKS[name.partition(".")[2]].inputs()
        if name.startswith(("distribution.", "samples.")):
            return networks.distribution_inputs(name)
        return _as_numpy(networks.batch(name))


def _as_numpy(value: Any) -> Any:
    return [_as_numpy(part) for part in value] if isinstance(value, (list, tuple)) else value.asnumpy()


PACKAGES: dict[str, Package] = {p.name: p for p in (GluonCV2(), GluonCV(), GluonNLP(), GluonTS())}


def as_ndarrays(value: Any, dtype: str | None = None) -> Any:
    """Nested NumPy arrays as MXNet's. Each call of a model gets its own: some write to the lists they are given."""
    import mxnet as mx

    if isinstance(value, (list, tuple)):
        return [as_ndarrays(part, dtype) for part in value]
    if isinstance(value, np.ndarray):
        return mx.nd.array(value, dtype=dtype or value.dtype)
    return value.astype(dtype) if dtype is not None else value


def seed() -> None:
    """Before every call, so that what is drawn at random is the same in both modes."""
    import mxnet as mx

    mx.random.seed(1)
    np.random.seed(1)


# Weights


def initialize(net: Any) -> None:
    """Gives every parameter a value that its structured name determines, so that any two machines agree.

    Scales keep activations finite in deep nets; statistics are near those of normalized data.
    """
    import mxnet as mx

    structured = {id(p): name for name, p in net._collect_params_with_prefix().items()}

    class ByName(mx.init.Initializer):
        """Fills an array from its parameter's structured name."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.key = name

        def _init_weight(self, desc: Any, array: Any) -> None:
            array[:] = mx.nd.array(value_of(self.key, array.shape))

        _init_bias = _init_gamma = _init_beta = _init_zero = _init_one = _init_default = _init_weight

        def __call__(self, desc: Any, array: Any) -> None:
            self._init_weight(desc, array)

    for key, param in net.collect_params().items():
        if type(param).__name__ == "Constant":
            param.initialize(force_reinit=True)
            continue
        param.init = ByName(structured.get(id(param), key))
        param.initialize(ctx=mx.cpu(), default_init=param.init, force_reinit=True)


def value_of(name: str, shape: tuple[int, ...]) -> Array:
    """A parameter's value, from its name and shape.

    Normalizations scale down a little: where nothing has been trained, each residual branch adds to what goes on, and
    activations that grow from layer to layer make a sigmoid behind them jump at the last digit of its argument.
    """
    r = np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)
    if name.endswith("gamma"):
        return r.uniform(0.4, 0.6, shape).astype(np.float32)
    if name.endswith("running_var"):
        return r.uniform(0.8, 1.2, shape).astype(np.float32)
    if len(shape) < 2 or name.endswith(("beta", "bias", "running_mean")):
        return r.uniform(-0.1, 0.1, shape).astype(np.float32)
    return (r.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)


# Double precision


def in_float64(package: Package, name: str) -> Any:
    net = package.build(name)
    initialize(net)
    net.cast("float64")
    return net


@contextlib.contextmanager
def making_float64() -> Iterator[None]:
    """What gives float32 unless told otherwise, or is told so, gives float64: a model has no other way to float32."""
    import mxnet as mx

    def wide(value: Any) -> Any:
        return "float64" if isinstance(value, (str, type)) and value in ("float32", np.float32) else value

    def wider(function: Callable[..., Any], **defaults: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: function(
            *map(wide, args), **{key: wide(value) for key, value in {**defaults, **kwargs}.items()}
        )

    def from_numpy(source: Any, ctx: Any = None, dtype: Any = None) -> Any:
        return made(source, ctx, dtype or ("float64" if not isinstance(source, mx.nd.NDArray) else None))

    made = mx.nd.array
    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(mx.nd, "array", from_numpy))
        for F in (mx.nd, mx.sym):
            for name in ("arange", "topk", "argsort"):
                patches.enter_context(mock.patch.object(F, name, wider(getattr(F, name), dtype="float64")))
            patches.enter_context(mock.patch.object(F, "cast", wider(F.cast)))
        for kind in (mx.nd.NDArray, mx.sym.Symbol, *mx.sym.Symbol.__subclasses__()):
            if "astype" in vars(kind):
                patches.enter_context(mock.patch.object(kind, "astype", wider(kind.astype)))
        yield
