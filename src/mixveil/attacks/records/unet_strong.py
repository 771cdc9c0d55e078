"""A U-Net where the paper's stops: it sees the whole release, unclamped, and is told how strong the noise is.

It starts from what the best linear attacker says of a record from all rows (`lmmse`), sees the record's own rows beside
it, is told weights and noise by how much they say of the record, and learns only what is left: of images more is known
than their second moments. One network serves all strengths of noise. What it adds is scaled by what that is worth on
public images it has not seen, so that it hardly ever falls behind the linear attacker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks.records.unet import unscaled
from mixveil.attacks.shared import estimates, model, nets, training
from mixveil.attacks.shared.base import ImageAttack, mixes_covers
from mixveil.attacks.shared.estimates import Estimates, held_out, nearest, worth_of
from mixveil.attacks.shared.model import Prior
from mixveil.attacks.shared.training import NO_CACHE, Schedule, TrainingCache
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, View
from mixveil.core.wording.notes import Note

_VALUES = 1 << 29  # of estimates that are held in memory
_MOST_ROWS = 20_000
_LEAST = 1e-10
_SCHEDULE = Schedule(epochs=15, batch=64, falling=True)


@dataclass(frozen=True)
class UnetStrong(ImageAttack):
    """From all rows of all releases, with the pairing known."""

    name: ClassVar[str] = "unet-strong"
    kind: ClassVar[AttackKind] = "reconstruction"
    needs: ClassVar[frozenset[str]] = frozenset({"traces", "public"})
    trains: ClassVar[bool] = True
    base: int = 48
    rounds: int = 4
    schedule: Schedule = _SCHEDULE
    cache: TrainingCache = NO_CACHE

    def cannot(self, view: View) -> Note | None:
        return super().cannot(view) or mixes_covers(view)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        shape = view.releases[0].shape
        if len(shape) != 3 or view.public is None:
            raise ArgumentError(f"this attack needs public images, and a release of images, not of the shape {shape}")
        prior, device = model.prior_of(view), training.fastest()

        def render(coordinates: Tensor, known: Prior) -> Tensor:
            return known.values(coordinates).float().view(-1, *shape)

        release = estimates.of_releases(view, prior, render).to(device)
        most = min(_MOST_ROWS, _VALUES // (2 * self.rounds * math.prod(shape)))
        self.cache.watch(f"{self.name}: solving public mixtures")
        index, made = estimates.of_public(view, render, self.rounds, most, stream.fork("public"))
        truth = view.public.take(index).x
        about = {"attack": self.name, "base": self.base, "rounds": self.rounds, "most": most}
        about |= {"seed": int(stream.fork("seed").words(1)), "public": training.digest(truth, prior.mean)}
        about |= unscaled(view)
        made, truth = made.to(device), truth.to(device)
        held, fitted = held_out(index)
        mender = _Mender(prior, shape, self.base, DeviceStream(stream.fork("first weights")), device)

        def loss(rows: Tensor, draws: DeviceStream) -> Tensor:
            rows = fitted[rows].to(device)
            seen = made.part(rows)
            missing = (truth[rows] - seen.linear) / size_of(seen)
            return (mender(seen) - missing).square().mean()

        draws = DeviceStream(stream.fork("draws"))
        training.train(mender.net, loss, len(fitted), self.schedule, about=about, draws=draws, cache=self.cache)
        near = held.to(device)[nearest(made.part(held.to(device)), release)]
        worth = worth_of(truth[near] - made.linear[near], mender.adds(made.part(near)))
        return Guess(images=(release.linear + worth * mender.adds(release)).cpu().double())


class _Mender:
    """Says what to add to linear estimates, in units of the error that they are thought to have."""

    def __init__(
        self, prior: Prior, shape: tuple[int, ...], base: int, draws: DeviceStream, device: torch.device
    ) -> None:
        self.mean, self.unit = prior.mean.float().view(shape).to(device), math.sqrt(prior.typical)
        self.net = nets.started(net := nets.UNet(2 * shape[0] + 2, shape[0], base), draws, device)
        with torch.no_grad():  # it begins as the linear attacker
            for tensor in net.out.parameters():
                tensor.zero_()

    def __call__(self, seen: Estimates) -> Tensor:
        pictures = [(x - self.mean) / self.unit for x in (seen.linear, seen.own)]
        planes = seen.conditions[:, :, None, None].expand(-1, -1, *self.mean.shape[1:])
        inputs = torch.cat([*pictures, planes], dim=1).contiguous(memory_format=torch.channels_last)
        with training.low_precision(inputs.device):
            found: Tensor = self.net(inputs)
        return found.float()

    @torch.no_grad()
    def adds(self, seen: Estimates) -> Tensor:
        """(n, …) to the linear estimates, in the records' own values."""
        index = torch.arange(len(seen.error), device=seen.error.device)
        return torch.cat([self(seen.part(part)) * size_of(seen.part(part)) for part in torch.split(index, 64)])


def size_of(seen: Estimates) -> Tensor:
    """(n, 1, 1, 1) how far off a value of each estimate is thought to be."""
    return seen.error.clamp(min=_LEAST).sqrt().view(-1, 1, 1, 1)
