"""Inverting gradients by attackers who know that the party uses Fed-AugMix.

The divergence between views puts into an update what attackers do not know: the party's draws. They know its law. With
the images that the plain attack found they play the party many times, with draws of their own, and see how much each
tensor of the update varies from one play to the next. Then they look again, with every tensor weighed by one over that
noise: layers in which the views are loud count little, and those that the views hardly touch count much. The louder the
views, the smoother the images that they look for. Each round of this begins with the images of the last.

Two other ways were tried, on MNIST and LeNet-5, and were worse: views drawn within every step of the descent, and an
update from which the mean effect of the views had been taken away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks.shared.matching import Descent, Found, Sought, Views, descend, sent, simulated
from mixveil.attacks.shared.updates import UpdateTarget
from mixveil.attacks.updates.invgrad import InvGrad, without_views
from mixveil.core import checks
from mixveil.core.device_random import DeviceStream
from mixveil.core.local_training import AugMix
from mixveil.core.randomness import Stream
from mixveil.core.types import View
from mixveil.core.wording.notes import Note, note
from mixveil.data import augmix

_LEAST = 0.05  # of the mean size of a value of the update: noise below that is as good as none
_LOUD = 0.2  # noise over the size of the update, at which images are looked for as smooth as they may get


@dataclass(frozen=True)
class InvGradAdaptive(InvGrad):
    """As above.

    Attributes:
        plays: Of the party with the images found so far.
        rounds: Of weighing and looking again.
        smoother: How many times the weight of the total variation then, where views are loud; where they are silent, it
            stays.
    """

    name: ClassVar[str] = "invgrad-adaptive"
    plays: int = 24
    rounds: int = 2
    smoother: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least("plays", self.plays, 2)
        checks.at_least("rounds", self.rounds, 1)

    def cannot(self, view: View) -> Note | None:
        why = super().cannot(view)
        if why is not None:
            return why
        training = getattr(view.releases[0].envelope.settings, "training", None)
        return None if training is not None and training.augmix is not None else note("attack-needs-views")

    def found(self, target: UpdateTarget, y: Tensor, stream: Stream) -> Found:
        return self.refined(target, y, super().found(target, y, stream), stream)

    def refined(self, target: UpdateTarget, y: Tensor, now: Found, stream: Stream) -> Found:
        """What is found from the images of another attack on."""
        settings = target.training.augmix
        if settings is None:
            return now
        draw = views_of(target, settings, DeviceStream(stream.fork("views")))
        for _ in range(self.rounds):
            loud = noise(target, now.images, y, draw, self.plays)
            size = sent(target).double().square().mean(1).sqrt()
            share = float((loud.double().square().mean(1).sqrt() / size.clamp(min=1e-300)).mean())
            tv = self.tv * max(1.0, self.smoother * min(1.0, share / _LOUD))
            again = Descent(self.steps, self.rate / 2, tv, coarse=self.coarse)
            now = descend(
                without_views(target), now.images, y, again, sought=Sought(sent(target), weights(target, loud))
            )
        return now


def views_of(target: UpdateTarget, settings: AugMix, draws: DeviceStream) -> Views:
    """Views of images (k, b, …) in the target's range, by new draws at every call."""

    def drawn(x: Tensor) -> Tensor:
        pixels = ((x - target.low) / (target.high - target.low)).clamp(0, 1)
        made = augmix.views(pixels.flatten(0, 1), settings, draws)
        return made.view(settings.views, *x.shape) * (target.high - target.low) + target.low

    return drawn


def noise(target: UpdateTarget, x: Tensor, y: Tensor, views: Views, plays: int) -> Tensor:
    """(k, values) how much a value of its tensor varies over plays of the party with images x (k, b, …): the standard
    deviation."""
    played = torch.zeros_like(sent(target), dtype=torch.float64)
    squares = played.clone()
    for _ in range(plays):
        update = simulated(target, x, y, views, differentiable=False).double()
        played, squares = played + update, squares + update.square()
    variance = (squares - played.square() / plays).clamp(min=0) / (plays - 1)
    sizes = [value[0].numel() for value in target.before.values()]
    each = torch.stack([part.mean(1) for part in torch.split(variance, sizes, 1)], 1).sqrt()
    return each.repeat_interleave(torch.tensor(sizes, device=each.device), 1).float()


def weights(target: UpdateTarget, loud: Tensor) -> Tensor:
    """(k, values) of each value where its tensor is so loud; where nothing is loud, all count alike."""
    size = sent(target).double().square().mean(1, keepdim=True).sqrt()
    scale = torch.maximum(loud.double(), _LEAST * size)
    least = scale.amin(1, keepdim=True)
    return torch.where(least > 0, least / scale, 1.0).float()
