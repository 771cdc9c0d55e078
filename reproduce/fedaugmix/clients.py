"""The clients of Fed-AugMix's Table II: four images each, five local epochs of SGD, with a defence or without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor

from mixveil.attacks.shared.updates import UpdateTarget
from mixveil.core.device_random import DeviceStream
from mixveil.core.first_weights import started
from mixveil.core.local_training import AugMix, LocalTraining
from mixveil.core.randomness import SeededStream
from mixveil.data import augmix
from mixveil.encoders.batch_transform import BatchTransform
from mixveil.encoders.instahide import CalibratedInstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.features.split.networks import convnet, network
from mixveil.features.stacked.local_steps import Rows, gradients, local_steps
from mixveil.features.stacked.network import Stacked, Weights, stacked
from mixveil.federated.cohort_rows import dealt
from reproduce.enlarged import open_data
from reproduce.fedaugmix.accuracy import CLIENTS, RECIPES

RATE = 0.01  # of local steps: the paper does not say it


class Scaled(Stacked):
    """A network on pixels in [0, 1], which are centred and scaled before its first layer."""

    def __init__(self, net: torch.nn.Sequential, centre: Tensor, spread: Tensor) -> None:
        super().__init__(net)
        self._centre, self._spread = centre.view(-1, 1, 1), spread.view(-1, 1, 1)

    def __call__(self, weights: Weights, x: Tensor) -> Tensor:
        return super().__call__(weights, (x - self._centre) / self._spread)


class Setting(NamedTuple):
    """What clients have and how they train. stage: `untrained`, or the file of weights that were trained; dealt: among
    how many clients the training set is dealt, of which some are attacked."""

    dataset: str
    stage: str
    batch: int = 4
    epochs: int = 5
    clients: int = 16
    skewed: bool = True
    seed: int = 0
    width: int | None = None
    dealt: int = CLIENTS


@dataclass(frozen=True)
class Defence:
    """What a client does against attacks.

    Attributes:
        name: For tables.
        augmix: Of Fed-AugMix. compared: else views take the place of the images, and are not compared with them.
        clip, noise: Each record's gradient has norm `clip` at most, and the sum of a step noise of `noise` · clip.
        pruned: The share of a step's gradient, its smallest values, that is set to 0.
        encoder: `mixup` or `instahide`: what is trained on in place of images, encoded once for the round.
    """

    name: str
    augmix: AugMix | None = None
    compared: bool = True
    clip: float | None = None
    noise: float = 0.0
    pruned: float = 0.0
    encoder: str | None = None


@dataclass(frozen=True)
class Clients:
    """x: (k, b, …) images in [0, 1]; y: (k, b, classes); target: their updates; spread: of pixels, for the paper's MSE;
    trained: (k, b, …) what was trained on, where it was not the images; soft: its labels."""

    x: Tensor
    y: Tensor
    target: UpdateTarget
    spread: float
    trained: Tensor | None = None
    soft: Tensor | None = None


def net_of(setting: Setting, shape: tuple[int, ...], classes: int) -> torch.nn.Sequential:
    """The network of a data set with its first weights, in memory."""
    if setting.width is not None:
        net = convnet(shape, classes, width=setting.width)
    else:
        net = network(RECIPES[setting.dataset].network, shape, classes)
    return started(net, DeviceStream(SeededStream(setting.seed).fork("first weights")), torch.device("cpu"))


def prepared(setting: Setting, folder: Path, device: torch.device) -> tuple[Tensor, Tensor, Scaled, Weights]:
    """Images and labels of all clients, the network, and the weights that the server sends."""
    recipe = RECIPES[setting.dataset]
    data = open_data(f"{setting.dataset}:train", data_dir=folder)
    stream = SeededStream(setting.seed).fork("clients")
    if setting.skewed:  # as the paper deals its data: some clients have images of one class only
        parts = dealt(data.labels, setting.dealt, beta=0.1, test_share=0.25, sizes="drawn", stream=stream.fork("dealt"))
        own = [part.train for part in parts if len(part.train) >= setting.batch][: setting.clients]
        rows = torch.stack([part[stream.permutation(len(part))[: setting.batch]] for part in own])
    else:
        rows = stream.permutation(len(data))[: setting.clients * setting.batch].view(setting.clients, setting.batch)
    batch = data.take(rows.flatten())
    x = batch.x.float().view(*rows.shape, *data.shape).to(device)
    y = batch.y.float().view(*rows.shape, -1).to(device)
    net = net_of(setting, data.shape, y.shape[-1])
    if setting.stage != "untrained":
        net.load_state_dict(load_file(setting.stage))
    centre, spread = (torch.tensor(values, device=device) for values in (recipe.centre, recipe.spread))
    before = {name: value.contiguous() for name, value in stacked(dict(net.named_parameters()), len(x)).items()}
    return x, y, Scaled(net, centre, spread), {name: value.to(device) for name, value in before.items()}


def clients(setting: Setting, defence: Defence, folder: Path, device: torch.device) -> Clients:
    """What clients with a defence send."""
    x, y, net, before = prepared(setting, folder, device)
    stream = SeededStream(setting.seed).fork(f"draws {defence.name}")
    draws = DeviceStream(stream.fork("views"))
    training = LocalTraining(setting.batch, setting.batch, (RATE,) * setting.epochs, augmix=defence.augmix)
    steps, trained, soft = [], None, None
    if defence.encoder is not None:
        trained, soft = encoded(defence.encoder, x, y, stream.fork("mixing"))
    for step in range(setting.epochs):
        if trained is not None and soft is not None:
            steps.append(Rows(trained, soft))
        elif defence.augmix is None:
            steps.append(Rows(x, y))
        else:
            draws.restart(step)
            views = augmix.views(x.flatten(0, 1), defence.augmix, draws).view(-1, *x.shape)
            steps.append(Rows(x, y, views) if defence.compared else Rows(views[0], y))
    seen = training if defence.compared else replace(training, augmix=None)
    if defence.clip is not None:
        after = private_steps(net, before, steps, seen, defence, DeviceStream(stream.fork("noise")))
    else:
        after = local_steps(net, before, steps, seen, changed=pruning(defence.pruned))
    spread = float(torch.tensor(RECIPES[setting.dataset].spread).mean())
    low, high = (0.0, 1.0) if trained is None else (float(trained.min()), float(trained.max()))
    target = UpdateTarget(before, after, net, seen, y.shape[-1], tuple(x.shape[2:]), low, high)
    return Clients(x, y, target, spread, trained, soft)


def encoded(name: str, x: Tensor, y: Tensor, stream: SeededStream) -> tuple[Tensor, Tensor]:
    """Each client's batch, mixed within itself."""
    values, classes = x[0, 0].numel(), y.shape[-1]
    encoder = Mixup() if name == "mixup" else CalibratedInstaHide(
        k=4, c1=0.65, c2=0.0, covers=0, pad=0, values=values, centre=0.5
    )  # fmt: skip
    transform = BatchTransform(encoder, classes=classes, stream=stream)
    made = [transform(own, labels.argmax(-1)) for own, labels in zip(x, y, strict=True)]
    return torch.stack([m[0].view_as(x[0]) for m in made]), torch.stack([m[1] for m in made])


def pruning(share: float) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """Sets the smallest values of each client's gradient to 0: of each tensor its share."""

    def pruned(slopes: dict[str, Tensor]) -> dict[str, Tensor]:
        found = {}
        for name, slope in slopes.items():
            flat = slope.flatten(1).abs()
            least = flat.kthvalue(max(1, round(share * flat.shape[1])), 1).values
            found[name] = slope * (slope.abs() > least.view(-1, *[1] * (slope.dim() - 1)))
        return found

    return pruned if share else lambda slopes: slopes


def private_steps(
    net: Stacked, before: Weights, steps: list[Rows], training: LocalTraining, defence: Defence, draws: DeviceStream
) -> dict[str, Tensor]:
    """DP-SGD's steps: every record's gradient is clipped, and noise is added to their sum. The records of a batch stand
    for clients of their own, so that each has a gradient."""
    now = {name: value.clone() for name, value in before.items()}
    for rate, rows in zip(training.rates, steps, strict=True):
        clients, batch = rows.x.shape[:2]
        each = {name: value.repeat_interleave(batch, 0) for name, value in now.items()}
        slopes = gradients(net, each, Rows(rows.x.flatten(0, 1)[:, None], rows.y.flatten(0, 1)[:, None]))
        norm = sum(slope.flatten(1).square().sum(1) for slope in slopes.values()).sqrt()  # type: ignore[union-attr]
        scale = (float(defence.clip or 1) / norm).clamp(max=1)
        for name, slope in slopes.items():
            clipped = slope * scale.view(-1, *[1] * (slope.dim() - 1))
            total = clipped.view(clients, batch, *slope.shape[1:]).sum(1)
            noisy = total + defence.noise * float(defence.clip or 1) * draws.normal(total)
            now[name] = now[name] - rate * noisy / batch
    return {name: value.detach() for name, value in now.items()}
