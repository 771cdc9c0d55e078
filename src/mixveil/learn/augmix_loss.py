"""The loss of a party that trains with Fed-AugMix: cross-entropy, and how far views of an image are apart."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.local_training import AugMix
from mixveil.core.randomness import Stream
from mixveil.core.types import Batch
from mixveil.data import augmix
from mixveil.learn.losses import LossOf
from mixveil.theory.consistency import jensen_shannon, phased


class AugMixLoss:
    """L_c + λ · JS over an image and its views, with λ in phases. Views follow from the stream and the step alone.

    shape: (channels, height, width) of a row, whose pixels lie in [0, 1].
    """

    def __init__(self, settings: AugMix, shape: tuple[int, ...], stream: Stream) -> None:
        self.settings, self.shape = settings, shape
        self._draws = DeviceStream(stream)

    def __call__(self, model: nn.Module, batch: Batch, step: int, rows: int) -> Tensor:
        """Of (m, c·h·w) flat images with (m, classes) soft labels. All views go through the model in one pass."""
        self._draws.restart(step)
        x = batch.x.reshape(len(batch.x), *self.shape)
        with torch.no_grad():
            seen = torch.cat([x[None], augmix.views(x, self.settings, self._draws)])
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.device.type == "cuda"):
            scores = model(seen.flatten(0, 1).flatten(1), len(seen) * rows)
        scores = scores.float().view(len(seen), len(x), -1)
        named, apart = cross_entropy(scores[0], batch.y), jensen_shannon(scores).mean(-1)
        settings = self.settings
        weight = phased(named, apart, base=settings.weight, scale=settings.scale, large=settings.large)
        return named + weight * apart


def augmix_loss(
    settings: AugMix, shape: tuple[int, ...], low: float, high: float, *, stream: Stream | None = None
) -> LossOf:
    """The loss of parties whose images have this shape and range; each draws views by its own seed. stream: of the
    views of one party, where others know that seed."""
    if len(shape) != 3 or (low, high) != (0.0, 1.0):
        raise ArgumentError(
            f"Fed-AugMix takes images of (channels, height, width) with pixels in [0, 1]; these rows have the shape "
            f"{shape} and values from {low:g} to {high:g}"
        )
    return lambda recipe: AugMixLoss(settings, shape, stream or recipe.stream("augmix"))
