"""An attacker who knows MixCon and all of its attacks, and does better than those.

They put public images through the client part itself, so whatever it was trained to hide, they see how much of it is
left. Representations are rescaled first by how those of public images vary, each value by itself and then all of them
together: a defence that squeezes them into a small ball, or sends large values beside small ones, leaves every
direction as visible as before. Then

1. a decoder: the best linear map to images, and a network that adds to its logits; what that changes is scaled by what
   it is worth on images that the network has not seen;
2. gradient descent by Adam from three images (the decoder's, the linear map's, the public mean) on

       mean (w(h(s)) − w(z))² + pull · mean ((s − decoded) / error)² + smooth · TV(s) / pixels,

   w the rescaling and `error` how far the decoder usually is from each pixel. Each image keeps what has the least;
3. what of 2. is better than 1.: weights of the prior, and how far to go from the decoder's image to what was found, are
   chosen on public images that were held out, by the mean squared error, never on what is attacked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from mixveil.attacks.shared import model, nets, training
from mixveil.attacks.shared.estimates import held_out, ridge_map, worth_of
from mixveil.attacks.shared.inverting import (
    Target,
    TaughtAttack,
    Whitening,
    public_pairs,
    told,
    total_variation,
)
from mixveil.attacks.shared.training import NO_CACHE, Schedule, TrainingCache
from mixveil.core.device_random import DeviceStream
from mixveil.core.randomness import Stream
from mixveil.core.types import Guess, View

_SCHEDULE = Schedule(epochs=15, batch=64, rate=2e-3, falling=True)
_RATE = 0.03  # of the range of a pixel, in the first step
_CHOSEN_ON = 48  # held-out images on which the prior is chosen
_TRIED = 4  # a prior is tried in one of so many steps
_EDGE = 0.02  # pixels of the linear map are kept so far from the ends of their range: logits are finite
_LEAST = 1e-4  # of the range of a pixel: no decoder's error is taken for smaller


class Prior(NamedTuple):
    """The weights of what is known of images before a representation is looked at."""

    pull: float
    smooth: float


PRIORS = tuple(Prior(pull, smooth) for pull in (0.0, 1e-3, 1e-2, 1e-1) for smooth in (0.0, 1e-2, 5e-2))


class Decoded(NamedTuple):
    """Of m representations: linear, images (m, c, h, w) by the best linear map, and by the whole decoder."""

    linear: Tensor
    images: Tensor


Decode = Callable[[Tensor], Decoded]


@dataclass(frozen=True)
class Descent:
    """Gradient descent on pixels. error: (c, h, w) of the decoder; mean: (c, h, w) of public images."""

    target: Target
    white: Whitening
    decode: Decode
    error: Tensor
    mean: Tensor
    steps: int

    def objective(self, s: Tensor, wanted: Tensor, decoded: Tensor, prior: Prior) -> Tensor:
        """(m,) of images s, for whitened representations and the decoder's images."""
        found = (self.white(self.target.h(s)) - wanted).square().mean(1)
        if prior.pull:
            found = found + prior.pull * ((s - decoded) / self.error).square().flatten(1).mean(1)
        return found + prior.smooth * total_variation(s) / s[0].numel() if prior.smooth else found

    def found(self, z: Tensor, prior: Prior, *, brief: bool = False) -> Tensor:
        """(m, c, h, w) for representations z. brief: from the decoder's images alone, in few steps."""
        return torch.cat([self._found(part, prior, brief) for part in torch.split(z, self.target.together)])

    def _found(self, z: Tensor, prior: Prior, brief: bool) -> Tensor:
        seen, wanted = self.decode(z), self.white(z)
        steps = max(1, self.steps // _TRIED) if brief else self.steps
        starts = [seen.images] if brief else [seen.images, seen.linear, self.mean.expand_as(seen.images)]
        best, least = seen.images, torch.full((len(z),), torch.inf, device=z.device)
        for start in starts:
            s = self._descended(start, wanted, seen.images, prior, steps)
            with torch.no_grad():
                value = self.objective(s, wanted, seen.images, prior)
            better = value < least
            best, least = torch.where(better.view(-1, 1, 1, 1), s, best), torch.where(better, value, least)
        return best

    def _descended(self, start: Tensor, wanted: Tensor, decoded: Tensor, prior: Prior, steps: int) -> Tensor:
        client = self.target.client
        s = start.clone().requires_grad_()
        optimiser = torch.optim.Adam([s], _RATE * (client.high - client.low))
        for step in range(steps):
            for settings in optimiser.param_groups:
                settings["lr"] = _RATE * (client.high - client.low) * (1 + math.cos(math.pi * step / steps)) / 2
            # The sum: what is found of one image does not depend on the others.
            (s.grad,) = torch.autograd.grad(self.objective(s, wanted, decoded, prior).sum(), s)
            optimiser.step()
            with torch.no_grad():
                s.clamp_(client.low, client.high)
        return s.detach()


@dataclass(frozen=True)
class InversionAdaptive(TaughtAttack):
    """A trained decoder, and gradient descent from its images. steps: of each descent."""

    name: ClassVar[str] = "inversion-adaptive"
    base: int = 16
    steps: int = 800
    schedule: Schedule = _SCHEDULE
    cache: TrainingCache = NO_CACHE

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        target = self.target(view)
        x, z = public_pairs(view, target)
        held, fitted = (index.to(target.device) for index in held_out(torch.arange(len(x))))
        white = Whitening.of(z[fitted])
        decode = self._decoder(target, x, z, (held, fitted), white, stream)
        apart = torch.cat([x[part] - decode(z[part]).images for part in torch.split(held, target.together)])
        least = _LEAST * (target.client.high - target.client.low)
        error = apart.square().mean(0).add(apart.square().mean()).div(2).sqrt().clamp(min=least)
        steps = min(self.steps, self.cache.max_steps or self.steps)
        descent = Descent(target, white, decode, error, x[fitted].mean(0), steps)
        some = held[model.spaced(len(held), _CHOSEN_ON).to(target.device)]
        prior, worth = self._chosen(descent, x[some], z[some])
        self.cache.watch(f"{self.name}: descending")
        plain = torch.cat([decode(part).images for part in torch.split(target.z, target.together)])
        found = plain + worth * (descent.found(target.z, prior) - plain) if worth else plain
        return Guess(images=target.inside(found).cpu().double())

    def _chosen(self, descent: Descent, x: Tensor, z: Tensor) -> tuple[Prior, float]:
        """The prior that is best on held-out images, and how far to go to what is found: 0 for not at all."""
        errors = {}
        for prior in PRIORS:
            self.cache.watch(f"{self.name}: trying a prior on public images")
            errors[prior] = float((x - descent.found(z, prior, brief=True)).square().mean())
        best = min(errors, key=lambda prior: errors[prior])
        plain = descent.decode(z).images
        return best, worth_of(x - plain, descent.found(z, best) - plain)

    def _decoder(
        self,
        target: Target,
        x: Tensor,
        z: Tensor,
        parts: tuple[Tensor, Tensor],
        white: Whitening,
        stream: Stream,
    ) -> Decode:
        """From representations to images, learned from the fitted ones of public images x; parts: held out, fitted."""
        held, fitted = parts
        mean, low, size = x[fitted].mean(0), target.client.low, target.client.high - target.client.low
        unit = max(float(x[fitted].std()), _LEAST * size)
        straight = ridge_map(white(z), (x - mean).flatten(1), fitted, held)
        net = nets.MapDecoder(target.output, target.shape, self.base, normalised=True)
        net = nets.started(net, DeviceStream(stream.fork("first weights")), target.device)

        def plain(rows: Tensor) -> Tensor:
            return target.inside(mean + (white(rows) @ straight).view(-1, *target.shape))

        def bent(rows: Tensor) -> Tensor:
            with training.low_precision(target.device):
                found: Tensor = net(white.standard(rows).float())
            return low + size * torch.sigmoid(torch.logit((plain(rows) - low) / size, _EDGE) + found.float())

        def loss(rows: Tensor, draws: DeviceStream) -> Tensor:
            rows = fitted[rows.to(target.device)]
            return ((x[rows] - bent(z[rows])) / unit).square().mean()

        about = {"attack": self.name, "base": self.base, "seed": int(stream.fork("seed").words(1))}
        about |= told(target, x, z)
        draws = DeviceStream(stream.fork("draws"))
        training.train(net, loss, len(fitted), self.schedule, about=about, draws=draws, cache=self.cache)
        with torch.no_grad():
            added = torch.cat([bent(z[part]) - plain(z[part]) for part in torch.split(held, 64)])
            worth = worth_of(x[held] - plain(z[held]), added)

        @torch.no_grad()
        def decode(rows: Tensor) -> Decoded:
            linear = plain(rows)
            return Decoded(linear, linear + worth * (bent(rows) - linear))

        return decode
