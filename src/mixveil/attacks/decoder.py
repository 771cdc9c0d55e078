"""From features back to pictures: what an attacker sees of a release that shows no pixels.

The best linear attacker's estimates of the features, from all rows with the pairing known, go through a network that
was trained on public images: on such estimates of their features, at all strengths of noise, pictures beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks import _estimates, _model, _nets, _training
from mixveil.attacks._estimates import Estimates
from mixveil.attacks._model import Prior
from mixveil.attacks._training import NOTHING_KEPT, Recipe, Workshop
from mixveil.attacks.unet import unscaled
from mixveil.errors import ArgumentError
from mixveil.keys import DeviceStream, Stream
from mixveil.types import Guess, View

_DIRECTIONS = 2048  # the strongest: weaker ones hardly show in pictures
_MOST_ROWS = 20_000
_RECIPE = Recipe(epochs=20, batch=64, falling=True)


@dataclass(frozen=True)
class FeatureDecoder:
    """Pictures from all rows of all releases, with the pairing known."""

    name: ClassVar[str] = "decoder"
    needs: ClassVar[frozenset[str]] = frozenset({"traces", "public", "pictures"})
    threat: ClassVar[str] = (
        "Holds public images and the public network, knows who was paired with whom and the weights; solves all rows "
        "together and trains a network from features back to pictures."
    )
    base: int = 48
    rounds: int = 4
    recipe: Recipe = _RECIPE
    workshop: Workshop = NOTHING_KEPT

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        if view.public is None or view.pictures is None:
            raise ArgumentError("this attack needs public data and their pictures")
        prior, device = _model.prior_of(view), _training.fastest()
        strongest = prior.variance.argsort(descending=True)[:_DIRECTIONS]
        basis, size = prior.basis[:, strongest], prior.variance[strongest].sqrt()

        turns: dict[int, tuple[Prior, Tensor, Tensor]] = {}

        def shown(coordinates: Tensor, known: Prior) -> Tensor:
            """In the same directions whatever it was estimated in, each in units of its own spread."""
            if id(known) not in turns:
                turns[id(known)] = known, (known.mean - prior.mean) @ basis, known.basis.T @ basis
            _, offset, turn = turns[id(known)]
            return ((offset + coordinates @ turn) / size).float()

        release = _estimates.of_releases(view, prior, shown).to(device)
        self.workshop.watch(f"{self.name}: solving public mixtures")
        index, made = _estimates.of_public(view, shown, self.rounds, _MOST_ROWS, stream.fork("public"))
        pictures = view.pictures.take(index).x
        about = {"attack": self.name, "base": self.base, "rounds": self.rounds, "directions": len(strongest)}
        about |= {"seed": int(stream.fork("seed").words(1)), "pictures": _training.digest(pictures)}
        about |= {"public": _training.digest(prior.mean), **unscaled(view)}
        made, pictures = made.to(device), pictures.to(device)
        mean, unit = pictures.mean(0), float(pictures.std())
        draws = DeviceStream(stream.fork("first weights"))
        net = _nets.started(_nets.Decoder(basis.shape[1] + 2, tuple(pictures.shape[1:]), self.base), draws, device)

        def decoded(seen: Estimates) -> Tensor:
            with torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
                found: Tensor = net(torch.cat([seen.linear, seen.conditions], dim=1))
            return mean + unit * found.float()

        def loss(rows: Tensor, draws: DeviceStream) -> Tensor:
            rows = rows.to(device)
            return ((decoded(made.part(rows)) - pictures[rows]) / unit).square().mean()

        draws = DeviceStream(stream.fork("draws"))
        _training.train(net, loss, len(index), self.recipe, about=about, draws=draws, workshop=self.workshop)
        with torch.no_grad():
            parts = torch.split(torch.arange(len(release.error), device=device), 64)
            return Guess(pictures=torch.cat([decoded(release.part(part)) for part in parts]).cpu().double())
