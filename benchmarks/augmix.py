"""What AugMix costs an image: against the same in Pillow, one image at a time, and beside a training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.record import Found, Plain
from benchmarks.timing import device_name, medians
from mixveil.core.device_random import DeviceStream
from mixveil.core.local_training import AugMix
from mixveil.core.randomness import SeededStream
from mixveil.data.augmix import DEGREES, OPERATIONS, SHEAR, SHIFT, augmix, views
from mixveil.features.split import networks
from mixveil.theory.consistency import jensen_shannon

_CASES = (("lenet5", (1, 28, 28)), ("convnet", (3, 32, 32)))


def augmented(batch: int = 128, severity: float = 6.0) -> Found:
    """For images of the size of MNIST's and of CIFAR's. A step of Fed-AugMix has two views of every image, and three
    images go through the network instead of one."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = [_figures(device, batch, AugMix(severity), *case) for case in _CASES]
    return Found(rows, {"warm_up": 1, "repetitions": 7, "statistic": "median"}, device=device_name())


def _figures(
    device: torch.device, batch: int, settings: AugMix, name: str, shape: tuple[int, int, int]
) -> dict[str, Plain]:
    cuda, draws = device.type == "cuda", DeviceStream(SeededStream(0))
    x = draws.uniform(batch, *shape, device=device).mul_(255).round_().div_(255)
    y = torch.arange(batch, device=device) % 10
    pictures = [_picture(image) for image in x.cpu()]
    rng = np.random.default_rng(0)
    net = networks.network(name, shape, 10).to(device)
    works: tuple[Callable[[], object], ...] = (
        lambda: augmix(x, settings, draws),
        lambda: [_in_pillow(picture, settings, rng) for picture in pictures],
        _step(net, x, y, None, draws),
        _step(net, x, y, settings, draws),
    )
    ours, pillow, plain, whole = medians(*works, calls=20 if cuda else 3, repetitions=7)
    return {
        "device": device_name(),
        "network": name,
        "rows": batch,
        "pixels": shape[1],
        "view_us_per_image": ours / batch * 1e6,
        "pillow_over_ours": pillow / ours,
        "plain_step_ms": plain * 1e3,
        "two_views_over_plain_step": 2 * ours / plain,
        "fed_augmix_step_over_plain_step": whole / plain,
    }


def _step(net: nn.Module, x: Tensor, y: Tensor, settings: AugMix | None, draws: DeviceStream) -> Callable[[], object]:
    optimiser = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

    def step() -> None:
        optimiser.zero_grad()
        if settings is None:
            loss = cross_entropy(net(x), y)
        else:
            seen = torch.cat([x[None], views(x, settings, draws)])
            scores = net(seen.flatten(0, 1)).view(len(seen), len(x), -1)
            loss = cross_entropy(scores[0], y) + settings.weight * jensen_shannon(scores).mean()
        loss.backward()
        optimiser.step()

    return step


def _picture(image: Tensor) -> Image.Image:
    octets = image.mul(255).round().to(torch.uint8).movedim(0, -1).numpy()
    return Image.fromarray(octets[..., 0] if octets.shape[-1] == 1 else octets)


def _in_pillow(picture: Image.Image, settings: AugMix, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[Any]]:
    """Algorithm 2 as AugMix's own code goes, but for its whole pixels and degrees."""
    weights, kept = rng.dirichlet([settings.alpha] * settings.chains), rng.beta(settings.alpha, settings.alpha)
    image = np.asarray(picture, np.float32) / 255
    mixed = np.zeros_like(image)
    for weight in weights:
        now = picture
        for _ in range(rng.integers(1, settings.longest + 1)):
            level = rng.uniform(0.1, settings.severity) / 10
            now = _operated(now, OPERATIONS[rng.integers(len(OPERATIONS))], level, 1 if rng.random() < 0.5 else -1)
        mixed += np.float32(weight) * (np.asarray(now, np.float32) / 255)
    return kept * image + (1 - kept) * mixed


def _operated(image: Image.Image, name: str, level: float, sign: int) -> Image.Image:
    if name == "rotate":
        return image.rotate(sign * level * DEGREES, Image.Resampling.BILINEAR)
    if name == "posterize":
        return ImageOps.posterize(image, 4 - min(3, int(4 * level)))
    if name == "solarize":
        return ImageOps.solarize(image, round(256 * (1 - level)))
    if name in ("equalize", "autocontrast"):
        return ImageOps.equalize(image) if name == "equalize" else ImageOps.autocontrast(image)
    move = sign * level
    numbers = {
        "shear-x": (1, SHEAR * move, 0, 0, 1, 0),
        "shear-y": (1, 0, 0, SHEAR * move, 1, 0),
        "translate-x": (1, 0, SHIFT * move * image.width, 0, 1, 0),
        "translate-y": (1, 0, 0, 0, 1, SHIFT * move * image.height),
    }[name]
    return image.transform(image.size, Image.Transform.AFFINE, numbers, Image.Resampling.BILINEAR)
