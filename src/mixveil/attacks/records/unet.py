"""The paper's nonlinear attack (§5.1, App. F): a U-Net from one mixture to its own record, trained on public images.

ℓ₁ + 10⁻⁴ TV, Adam 10⁻³, batches of 32, 30 epochs over up to 4,000 public images, each with the same partner throughout;
mixtures are clamped to what a normalised pixel can be before the network sees them, and so is what it says. One network
a noise strength. It sees one row, and the clamp takes away most of what strong noise leaves.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mixveil.attacks.shared import model, nets, training
from mixveil.attacks.shared.base import CannotAttackError, ImageAttack
from mixveil.attacks.shared.pixels import Pixels, total_variation
from mixveil.attacks.shared.training import NO_CACHE, Schedule, TrainingCache
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Encoder, Guess, View
from mixveil.core.wording.notes import note

_PUBLIC_ROWS = 4000
_PUBLIC_VALUES = 1 << 30  # of colour images larger than 299 × 299 there are fewer
_SMOOTH = 1e-4
_SCHEDULE = Schedule(epochs=30, batch=32)
_BLOCK_VALUES = 1 << 24
_LAW = 4096  # weights drawn, where those of the release are not known


@dataclass(frozen=True)
class Unet(ImageAttack):
    """Each record from its own rows, which are averaged over releases. normalised: rows are under ImageNet's
    normalisation already; base: channels of the first level."""

    name: ClassVar[str] = "unet"
    kind: ClassVar[AttackKind] = "reconstruction"
    needs: ClassVar[frozenset[str]] = frozenset({"public"})
    trains: ClassVar[bool] = True
    normalised: bool = False
    base: int = 48
    schedule: Schedule = _SCHEDULE
    cache: TrainingCache = NO_CACHE

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        pixels, device = Pixels.of(view, self.normalised), training.fastest()
        mixtures = _Mixtures(view, device, stream.fork("mixtures"))
        seed = int(stream.fork("seed").words(1))
        draws = DeviceStream(stream.fork("draws"))
        net = nets.started(nets.UNet(pixels.channels, pixels.channels, self.base), draws, device)

        faster = torch.compile(net) if self.cache.compiled else net

        def loss(index: Tensor, draws: DeviceStream) -> Tensor:
            truth, rows = mixtures.batch(index, draws)
            with training.low_precision(device):
                found = faster(pixels.clamp(pixels.enter(rows)).contiguous(memory_format=torch.channels_last))
            found = pixels.clamp(found.float())
            return (found - pixels.enter(truth)).abs().mean() + _SMOOTH * total_variation(found)

        about = {"attack": self.name, "seed": seed, "base": self.base, "pixels": asdict(pixels), **mixtures.about}
        training.train(net, loss, len(mixtures.x), self.schedule, about=about, draws=draws, cache=self.cache)
        rows = torch.stack([_released(view, t) for t in range(len(view.releases))]).mean(0)
        said = training.in_batches(net, pixels.clamp(pixels.enter(rows)).float().to(device))
        return Guess(images=pixels.leave(pixels.clamp(said)).double())


def _released(view: View, t: int) -> Tensor:
    """(n, c, h, w) the rows of a release in the records' own values."""
    release = view.releases[t]
    return release.encoder.restore(model.released(release)).view(-1, *release.shape)


class _Mixtures:
    """Public records, mixed as the releases mix theirs, with their weights where those are known. The
    pairing stays the same; weights and noise are drawn for every batch."""

    def __init__(self, view: View, device: torch.device, stream: Stream) -> None:
        if view.public is None:
            raise ArgumentError("this attack needs public images")
        model.check_linear(view)
        rows = min(_PUBLIC_ROWS, _PUBLIC_VALUES // math.prod(view.releases[0].shape))
        x = view.public.take(model.spaced(len(view.public), rows)).x
        self.x = x.to(device)
        self.encoders = [release.encoder for release in view.releases]
        mixed = x
        if any(encoder.covers for encoder in self.encoders):
            if view.covers is None:
                raise CannotAttackError(note("attack-needs", fields="covers"))
            mixed = torch.cat([x, view.covers.take(torch.arange(min(len(view.covers), rows))).x])
        entering = {encoder: _entering(encoder, mixed, device) for encoder in self.encoders}
        self.entering = [entering[encoder] for encoder in self.encoders]
        plans = [e.plan(len(x), stream=stream.fork(f"plan {t}")) for t, e in enumerate(self.encoders)]
        covers = max(1, len(mixed) - len(x))  # of more, the first stand for all
        self.partner = [p.partner.where(p.partner < len(x), len(x) + (p.partner - len(x)) % covers) for p in plans]
        law = [e.plan(_LAW, stream=stream.fork(f"law {t}")) for t, e in enumerate(self.encoders)]
        self.weights = [trace.weight for trace in view.traces or law]
        self.about: dict[str, Any] = {
            "public": training.digest(mixed),
            "encoders": [settings(encoder) for encoder in self.encoders],
            "weights": training.digest(*self.weights),
        }

    def batch(self, index: Tensor, draws: DeviceStream) -> tuple[Tensor, Tensor]:
        """Records and their rows, (m, c, h, w) each, in the records' own values; rows are the mean over releases."""
        device, rows = self.x.device, []
        for encoder, z, partner, weights in zip(self.encoders, self.entering, self.partner, self.weights, strict=True):
            weight = weights[(draws.uniform(len(index), device=torch.device("cpu")) * len(weights)).long()]
            mixed = torch.zeros(1, device=device)
            for j, source in enumerate([index, *partner[index].T]):
                mixed = mixed + _column(weight[:, j], device) * z[source.to(device)]
            rows.append(mixed + _column(encoder.deviation(weight), device) * draws.normal(mixed))
        return self.x[index.to(device)], torch.stack(rows).mean(0)


def _entering(encoder: Encoder, x: Tensor, device: torch.device) -> Tensor:
    """(m, …) records as they enter the mixture, in their own values; in blocks, as that is done in float64."""
    blocks = torch.split(x, max(1, _BLOCK_VALUES // x[0].numel()))
    return torch.cat([encoder.restore(encoder.prepare(b)).float().view(b.shape).to(device) for b in blocks])


def unscaled(view: View) -> dict[str, Any]:
    """What else decides on a network that serves all strengths of noise: the encoder, without its noise's."""
    return {"encoder": {**settings(view.releases[0].encoder), "sigma": None}}


def settings(encoder: Encoder) -> dict[str, Any]:
    """All public settings of an encoder, as JSON can say them."""
    found: dict[str, Any] = asdict(encoder)  # type: ignore[call-overload]
    return {"name": encoder.name, **found}


def _column(values: Tensor, device: torch.device) -> Tensor:
    return values.float().to(device).view(-1, 1, 1, 1)
