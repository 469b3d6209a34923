"""Training steps in PyTorch: eager, and with `torch.compile` around forward and loss.

Modules have the names of the Gluon nets' parameters, so that they start from the same values. Images are channels-last,
as PyTorch's documentation advises for convolutions on CPUs.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Any

from benchmarks.model import Model
from benchmarks.peers import LOSSES, Loaded, losses_array
from benchmarks.steps import DETECTOR, ENCODERS, NOISE, STEPS, WORDS, Step, batches
from benchmarks.weights import values


def eager(model: Model, threads: int) -> Loaded:
    return _load(model, threads, compiled=False)


def compiled(model: Model, threads: int) -> Loaded:
    return _load(model, threads, compiled=True)


def _load(model: Model, threads: int, compiled: bool) -> Loaded:
    import torch

    torch.set_num_threads(threads)
    facts = model.facts
    step, updates = STEPS[facts["step"]], facts["updates"]
    if step.is_adversarial:
        return _load_adversarial(step, facts["batch"], compiled, updates)
    net = _net(step)
    _set_parameters(net, step)
    data = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in batches(step, facts["batch"])]
    if not step.is_of_boxes:
        data = [(x, y.long()) for x, y in data]
    if step.is_of_words:
        data = [(x.long(), y) for x, y in data]
    if data[0][0].ndim == 4:
        net = net.to(memory_format=torch.channels_last)
        data = [(x.contiguous(memory_format=torch.channels_last), y) for x, y in data]

    def evaluate(x: Any, y: Any) -> Any:
        scores = net(x)
        if step.is_of_boxes:
            scores, offsets = scores
            y, wanted = y[..., :1], y[..., 1:]
            of_objects = torch.nn.functional.l1_loss(offsets * y, wanted * y)
            return torch.nn.functional.cross_entropy(scores.flatten(0, 1), y.long().flatten()) + of_objects
        return torch.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))

    forward = torch.compile(evaluate) if compiled else evaluate
    optimizer = _optimizer(step, net)
    turns, losses = itertools.cycle(data), []

    def call() -> None:
        x, y = next(turns)
        optimizer.zero_grad(set_to_none=True)
        loss = forward(x, y)
        loss.backward()
        if step.clip is not None:
            torch.nn.utils.clip_grad_norm_(net.parameters(), step.clip)
        if updates:
            optimizer.step()
        if len(losses) < LOSSES:
            losses.append(loss.item())

    return Loaded(call, [], lambda _: losses_array(losses), torch.__version__)


def _load_adversarial(step: Step, batch: int, compiled: bool, updates: bool) -> Loaded:
    """A step of the discriminator, by pictures and by generated ones, and one of the generator."""
    import torch

    nets = {"generator": _generator(), "discriminator": _discriminator()}
    for name, net in nets.items():
        _set_parameters(net, step, f"{name}.")
        nets[name] = net.to(memory_format=torch.channels_last)
    data = [
        tuple(torch.from_numpy(x).contiguous(memory_format=torch.channels_last) for x in xs)
        for xs in batches(step, batch)
    ]
    true, false = torch.ones(batch), torch.zeros(batch)
    optimizers = {name: _optimizer(step, net) for name, net in nets.items()}
    generate, judge = (torch.compile(net) if compiled else net for net in nets.values())
    turns, losses = itertools.cycle(data), []

    def loss_of(pictures: Any, labels: Any) -> Any:
        return torch.nn.functional.binary_cross_entropy_with_logits(judge(pictures).reshape(-1), labels)

    def call() -> None:
        pictures, noise = next(turns)
        optimizers["discriminator"].zero_grad(set_to_none=True)
        fake = generate(noise)
        loss = loss_of(pictures, true) + loss_of(fake.detach(), false)
        loss.backward()
        if updates:
            optimizers["discriminator"].step()
        optimizers["generator"].zero_grad(set_to_none=True)
        deceived = loss_of(fake, true)
        deceived.backward()
        if updates:
            optimizers["generator"].step()
        if len(losses) < LOSSES:
            losses.append(loss.item() + deceived.item())

    return Loaded(call, [], lambda _: losses_array(losses), torch.__version__)


def _optimizer(step: Step, net: Any) -> Any:
    import torch

    s = step.settings
    if step.optimizer == "adam":
        return torch.optim.Adam(net.parameters(), s["learning_rate"], betas=(s.get("beta1", 0.9), 0.999))
    return torch.optim.SGD(
        net.parameters(), s["learning_rate"], momentum=s.get("momentum", 0.0), weight_decay=s.get("wd", 0.0)
    )


def _set_parameters(net: Any, step: Step, prefix: str = "") -> None:
    """Gluon calls the factors of a normalization `gamma`, sums `beta`, and names a recurrent layer's as its cells'."""
    import torch

    norms = (torch.nn.BatchNorm2d, torch.nn.LayerNorm)
    for path, module in net.named_modules():
        tensors = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False))}
        for name, tensor in tensors.items():
            if name == "num_batches_tracked":
                continue
            if isinstance(module, norms):
                name = {"weight": "gamma", "bias": "beta"}.get(name, name)
            elif isinstance(module, torch.nn.RNNBase):
                kind, side, layer = name.split("_")  # weight_ih_l0
                name = f"_unfused.{layer[1:]}.{side[0]}2h_{kind}"
            found = values(f"{prefix}{path}.{name}", tuple(tensor.shape), step.gain)
            tensor.data.copy_(torch.from_numpy(found))


def _net(step: Step) -> Any:
    from torch import nn

    if step.key == "T1":
        return _sequence(nn.Linear(784, 128), "relu", nn.Linear(128, 64), "relu", nn.Linear(64, 10))
    if step.key == "T2":
        convolutions = (nn.Conv2d(1, 20, 5), "relu", nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), "relu", nn.MaxPool2d(2))
        return _sequence(*convolutions, "flatten", nn.Linear(800, 500), "relu", nn.Linear(500, 10))
    if step.is_of_boxes:
        return _detector()
    if step.is_of_words:
        return _language_model(step)
    if step.key in ENCODERS:
        return _encoder(step)
    return _mobilenet(step) if step.key == "T5" else _resnet(step)


def _sequence(*layers: Any) -> Any:
    """Numbers the layers as Gluon does; those given by a name are parts of others there."""
    from torch import nn

    kinds = {"relu": nn.ReLU, "flatten": nn.Flatten}
    found: OrderedDict[str, Any] = OrderedDict()
    count = 0
    for place, layer in enumerate(layers):
        if isinstance(layer, str):
            found[f"{layer}{place}"] = kinds[layer]()
        else:
            found[str(count)] = layer
            count += 1
    return nn.Sequential(found)


def _classifier(features: Any, output: Any) -> Any:
    from torch import nn

    return nn.Sequential(OrderedDict(features=features, output=output))


def _resnet(step: Step) -> Any:
    from torch import nn

    def body(before: int, channels: int, stride: int) -> Any:
        if step.key != "T8":
            return _sequence(
                nn.Conv2d(before, channels, 3, stride, 1, bias=False),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
                nn.BatchNorm2d(channels),
            )
        inner = channels // 4
        return _sequence(
            nn.Conv2d(before, inner, 1, stride),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, inner, 3, 1, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, channels, 1),
            nn.BatchNorm2d(channels),
        )

    class Block(nn.Module):
        def __init__(self, before: int, channels: int, stride: int) -> None:
            super().__init__()
            self.body = body(before, channels, stride)
            self.downsample = nn.Identity()
            if stride != 1 or before != channels:
                convolution = nn.Conv2d(before, channels, 1, stride, bias=False)
                self.downsample = _sequence(convolution, nn.BatchNorm2d(channels))

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.body(x) + self.downsample(x))

    if step.key == "T3":
        layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False)]
    else:
        first = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        layers = [first, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before, widen = 64, 4 if step.key == "T8" else 1
    for stage, count in enumerate((3, 4, 6, 3) if step.key == "T8" else (2, 2, 2, 2)):
        channels = (64 << stage) * widen
        strides = [1 if stage == 0 else 2, *[1] * (count - 1)]
        layers.append(_sequence(*(Block(before if k == 0 else channels, channels, s) for k, s in enumerate(strides))))
        before = channels
    return _classifier(_sequence(*layers, nn.AdaptiveAvgPool2d(1), "flatten"), nn.Linear(before, step.classes))


def _generator() -> Any:
    from torch import nn

    layers: list[Any] = []
    before = NOISE
    for channels, stride, padding in ((512, 1, 0), (256, 2, 1), (128, 2, 1), (64, 2, 1)):
        layers.append(nn.ConvTranspose2d(before, channels, 4, stride, padding, bias=False))
        layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        before = channels
    return _sequence(*layers, nn.ConvTranspose2d(before, 3, 4, 2, 1, bias=False), nn.Tanh())


def _discriminator() -> Any:
    from torch import nn

    layers: list[Any] = [nn.Conv2d(3, 64, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
    for channels in (128, 256, 512):
        layers += [nn.Conv2d(channels // 2, channels, 4, 2, 1, bias=False), nn.BatchNorm2d(channels), nn.LeakyReLU(0.2)]
    return _sequence(*layers, nn.Conv2d(512, 1, 4, 1, 0, bias=False))


def _mobilenet(step: Step) -> Any:
    from torch import nn

    def convolution(before: int, channels: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[Any]:
        pad = kernel // 2
        return [
            nn.Conv2d(before, channels, kernel, stride, pad, groups=groups, bias=False),
            nn.BatchNorm2d(channels),
        ]

    class Bottleneck(nn.Module):
        def __init__(self, before: int, channels: int, t: int, stride: int) -> None:
            super().__init__()
            inner = before * t
            self.adds = stride == 1 and before == channels
            self.out = _sequence(
                *convolution(before, inner),
                nn.ReLU6(),
                *convolution(inner, inner, 3, stride, inner),
                nn.ReLU6(),
                *convolution(inner, channels),
            )

        def forward(self, x: Any) -> Any:
            return x + self.out(x) if self.adds else self.out(x)

    layers = [*convolution(3, 32, 3, 2), nn.ReLU6()]
    before = 32
    groups = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for t, channels, count, first in groups:
        for k in range(count):
            layers.append(Bottleneck(before, channels, t, first if k == 0 else 1))
            before = channels
    layers += [*convolution(before, 1280), nn.ReLU6(), nn.AdaptiveAvgPool2d(1)]
    return _classifier(_sequence(*layers), _sequence(nn.Conv2d(1280, step.classes, 1, bias=False), "flatten"))


def _detector() -> Any:
    import torch
    from torch import nn

    def halved(before: int, channels: int) -> Any:
        layers: list[Any] = []
        for count in (before, channels):
            layers += [nn.Conv2d(count, channels, 3, 1, 1), nn.BatchNorm2d(channels), nn.ReLU()]
        return _sequence(*layers, nn.MaxPool2d(2))

    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            before, after = DETECTOR
            first = _sequence(*(halved(*pair) for pair in zip((3, *before), before)))
            others = [halved(*pair) for pair in zip((before[-1], *after), after)]
            self.stages = _sequence(first, *others, nn.AdaptiveMaxPool2d(1))
            counts = (before[-1], *after, after[-1])
            self.scores = _sequence(*(nn.Conv2d(count, 8, 3, 1, 1) for count in counts))
            self.offsets = _sequence(*(nn.Conv2d(count, 16, 3, 1, 1) for count in counts))

        def forward(self, x: Any) -> Any:
            found = []
            for stage, *heads in zip(self.stages, self.scores, self.offsets):
                x = stage(x)
                found.append([head(x).permute(0, 2, 3, 1).flatten(1) for head in heads])
            scores, offsets = (torch.cat(parts, 1) for parts in zip(*found))
            return scores.unflatten(1, (-1, 2)), offsets.unflatten(1, (-1, 4))

    return Detector()


def _language_model(step: Step) -> Any:
    from torch import nn

    class LanguageModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(WORDS, 200)
            self.recurrent = (nn.GRU if step.key == "T10" else nn.LSTM)(200, 200, 2)
            self.decoder = nn.Linear(200, WORDS)

        def forward(self, words: Any) -> Any:
            return self.decoder(self.recurrent(self.embedding(words))[0])

    return LanguageModel()


def _encoder(step: Step) -> Any:
    from torch import nn

    class Layer(nn.Module):
        def __init__(self, units: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.qkv = nn.Linear(units, 3 * units)
            self.proj = nn.Linear(units, units)
            self.norm1 = nn.LayerNorm(units)
            self.ffn1 = nn.Linear(units, 4 * units)
            self.ffn2 = nn.Linear(4 * units, units)
            self.norm2 = nn.LayerNorm(units)

        def forward(self, x: Any) -> Any:
            parts = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(*parts.unbind())
            x = self.norm1(x + self.proj(mixed.transpose(1, 2).flatten(2)))
            return self.norm2(x + self.ffn2(nn.functional.gelu(self.ffn1(x))))

    class Mean(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.mean(1)

    (layers, heads), units = ENCODERS[step.key], step.shape[-1]
    return _sequence(*(Layer(units, heads) for _ in range(layers)), Mean(), nn.Linear(units, 10))
