"""From features back to pictures: what an attacker sees of a release that shows no pixels.

The best linear attacker's estimates of the features, from all rows with the pairing known, go through a network that
was trained on public images: on such estimates of their features, at all strengths of noise, pictures beside them. The
network adds to the best linear map, and what it adds is scaled by what that is worth on images that it has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks.records.unet import unscaled
from mixveil.attacks.shared import estimates, model, nets, training
from mixveil.attacks.shared.base import BaseAttack
from mixveil.attacks.shared.estimates import Estimates, held_out, nearest, ridge_map, worth_of
from mixveil.attacks.shared.model import Prior
from mixveil.attacks.shared.training import NO_CACHE, Schedule, TrainingCache
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, View

_DIRECTIONS = 2048  # the strongest: weaker ones hardly show in pictures
_ROWS_A_DIRECTION = 4  # of public data: what fewer teach is not true of others
_MOST_ROWS = 20_000
_LEAST = 1e-6
_SCHEDULE = Schedule(epochs=20, batch=64, falling=True)


@dataclass(frozen=True)
class FeatureDecoder(BaseAttack):
    """Pictures from all rows of all releases, with the pairing known."""

    name: ClassVar[str] = "decoder"
    kind: ClassVar[AttackKind] = "reconstruction"
    needs: ClassVar[frozenset[str]] = frozenset({"traces", "public", "pictures"})
    trains: ClassVar[bool] = True
    base: int = 48
    rounds: int = 4
    schedule: Schedule = _SCHEDULE
    cache: TrainingCache = NO_CACHE

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        if view.public is None or view.pictures is None:
            raise ArgumentError("this attack needs public data and their pictures")
        prior, device = model.prior_of(view), training.fastest()
        most = min(_DIRECTIONS, len(prior.variance), max(2, len(view.public) // _ROWS_A_DIRECTION))
        strongest = prior.variance.argsort(descending=True, stable=True)[:most]
        units = torch.zeros(most, len(prior.variance)).double().scatter_(1, strongest[:, None], 1.0)
        basis, size = prior.directions.back(units).T, float(prior.variance[strongest].mean().sqrt())

        turns: dict[int, tuple[Prior, Tensor, Tensor]] = {}

        def render(coordinates: Tensor, known: Prior) -> Tensor:
            """In the same directions whatever it was estimated in, all on one scale: weak ones say little."""
            if id(known) not in turns:
                turn = known.directions.coordinates(basis.T).T
                turns[id(known)] = known, (known.mean - prior.mean) @ basis, turn
            _, offset, turn = turns[id(known)]
            return ((offset + coordinates @ turn) / size).float()

        release = estimates.of_releases(view, prior, render).to(device)
        self.cache.watch(f"{self.name}: solving public mixtures")
        index, made = estimates.of_public(view, render, self.rounds, _MOST_ROWS, stream.fork("public"))
        pictures = view.pictures.take(index).x
        about = {"attack": self.name, "base": self.base, "rounds": self.rounds, "directions": most}
        about |= {"seed": int(stream.fork("seed").words(1)), "pictures": training.digest(pictures)}
        about |= {"public": training.digest(prior.mean, prior.variance), **unscaled(view)}
        made, pictures = made.to(device), pictures.to(device)
        held, fitted = held_out(index)
        mean, unit = pictures.mean(0), max(float(pictures.std()), _LEAST)
        straight = ridge_map(made.linear, (pictures - mean).flatten(1), fitted.to(device), held.to(device))
        net = nets.Decoder(most + 2, tuple(pictures.shape[1:]), self.base)
        started = nets.started(net, DeviceStream(stream.fork("first weights")), device)

        def plain(seen: Estimates) -> Tensor:
            return (seen.linear @ straight).view(-1, *mean.shape)

        def bent(seen: Estimates) -> Tensor:
            with training.low_precision(device):
                found: Tensor = started(torch.cat([seen.linear, seen.conditions], dim=1))
            return unit * found.float()

        def loss(rows: Tensor, draws: DeviceStream) -> Tensor:
            rows = fitted[rows].to(device)
            seen = made.part(rows)
            return ((pictures[rows] - mean - plain(seen) - bent(seen)) / unit).square().mean()

        draws = DeviceStream(stream.fork("draws"))
        training.train(started, loss, len(fitted), self.schedule, about=about, draws=draws, cache=self.cache)
        near = held.to(device)[nearest(made.part(held.to(device)), release)]
        with torch.no_grad():
            seen = made.part(near)
            added = torch.cat([bent(made.part(part)) for part in torch.split(near, 64)])
            worth = worth_of(pictures[near] - mean - plain(seen), added)
            parts = torch.split(torch.arange(len(release.error), device=device), 64)
            found = [mean + plain(seen) + worth * bent(seen) for seen in (release.part(part) for part in parts)]
        return Guess(pictures=torch.cat(found).cpu().double())
