"""The break of Luo et al. 2022 ("A fusion-denoising attack on InstaHide with data augmentation").

Images that are mirrored and moved before they are mixed do not lie on one another in different rows, and the linear
system of Carlini et al. has no solution. Luo et al. compare rows by a network that sees them at two resolutions,
cluster them, reweigh the rows of a record, and let networks fuse and denoise them.

Here a U-Net, which sees rows at four resolutions, is the comparative network, and rows are compared in every place:
first in pairs, then every row with the rows of a record (`prototypes`); so moves are found, and undone before rows are
fused (`fusing`). Of the moves of a record one thing stays unknown: whether it is the mirror image. Both are equally
likely for every attacker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from mixveil.attacks.shared import nets, training
from mixveil.attacks.shared.breaks import fusing
from mixveil.attacks.shared.breaks.breaking import Break, Linked, Recovered, Work, noise_variance
from mixveil.attacks.shared.breaks.encodings import encodings
from mixveil.attacks.shared.breaks.fusing import Fuser, RecordRows
from mixveil.attacks.shared.pixels import Pixels
from mixveil.attacks.shared.training import Schedule
from mixveil.core.device_random import DeviceStream
from mixveil.core.randomness import Stream

_GROUP, _ROWS = 32, 1600  # public images that are encoded together, at least; and rows, where these are few
_MOST_TIMES = 50
_PASSES, _STEPS = 20, 2000  # over all groups, and in all, at most


@dataclass(frozen=True)
class Luo(Break):
    """Every record, from all rows of all releases together; where images were moved, up to mirroring."""

    name: ClassVar[str] = "luo"
    undoes_moves: ClassVar[bool] = True

    def recovered(self, work: Work, linked: Linked) -> Recovered:
        return work.kept(lambda: self._recovered(work, linked))

    def _recovered(self, work: Work, linked: Linked) -> Recovered:
        fusion, pool = _Fusion(work), work.pool
        held = linked.sources, linked.weights, linked.moves
        signs = work.truth.signs if self.given("signs") else None
        rows = fusion.given(pool.x, *held, pool.records, ordered=pool.own is not None, signs=signs)
        return Recovered(fusion.images(rows), linked.sources)


class _Group(NamedTuple):
    """Public images (n, c, h, w) in [0, 1], and their rows."""

    rows: RecordRows
    images: Tensor


class _Fusion:
    """The networks of one run, and what they are given: values less their mean, in units of their deviation."""

    def __init__(self, work: Work) -> None:
        self.work, self.pixels = work, Pixels.of(work.view, normalised=False)
        prior, self.rest = work.entering
        self.mean, self.unit = prior.mean, math.sqrt(float(prior.variance.mean()))
        self.device = training.fastest()

    def given(
        self,
        x: Tensor,
        sources: Tensor,
        weights: Tensor,
        moves: Tensor,
        records: int,
        *,
        ordered: bool,
        signs: Tensor | None = None,
    ) -> RecordRows:
        """The rows of every record, of rows (m, d). ordered: whether a row's own record comes first; signs: (m, d) of
        the mixtures, where they are given."""
        shape, logits = self.work.pool.shape, self.work.logits(x)
        demasked = x if logits is None else x.abs() * torch.tanh(logits.double() / 2)
        demasked = demasked if signs is None else x.abs() * signs
        held = torch.where(sources >= 0, weights, 0).double().sum(1, keepdim=True)
        demasked = demasked - held * self.mean - (1 - held).clamp(min=0) * self.rest
        size = x if logits is None else x.abs()
        told, seen = ((values / self.unit).float().view(-1, *shape) for values in (demasked, size))
        errors = noise_variance(self.work.encoder, weights, ordered=ordered) / self.unit**2
        return fusing.gathered(fusing.Rows(told, seen, errors, sources, weights, moves), records)

    def images(self, given: RecordRows) -> Tensor:
        """(n, c, h, w) in the data's own values, as the networks make them."""
        net = self._trained()
        with torch.inference_mode():
            parts = [self._through(net, RecordRows(*part))[1] for part in zip(*_split(given), strict=True)]
        return (torch.cat(parts).double().cpu() * (self.pixels.high - self.pixels.low)) + self.pixels.low

    def _through(self, net: Fuser, given: RecordRows) -> tuple[Tensor, Tensor]:
        """What was fused, and what was made of it, (n, c, h, w) in [0, 1]."""
        rows = RecordRows(*(x.to(self.device) for x in given))
        with training.low_precision(self.device):
            found = net(rows._replace(rows=rows.rows.float(), mean=rows.mean.float()))
        shape, encoder, pixels = rows.mean.shape, self.work.encoder, self.pixels
        mean = encoder.restore(self.mean[None]).float().view(1, *shape[1:]).to(self.device)
        fused, image = (((mean + self.unit * x.float()) - pixels.low) / (pixels.high - pixels.low) for x in found)
        return fused, image

    def _trained(self) -> Fuser:
        work, attack = self.work, self.work.attack
        times = self._times
        about, stream = work.known.about("fusing", attack, work.encoder, times=times)
        net = nets.started(Fuser(work.pool.shape[0], attack.base), DeviceStream(stream.fork("weights")), self.device)
        net.begin()
        count = max(1, attack.affordable(work.pool.shape) // (self._images * times))

        @cache
        def groups() -> list[_Group]:  # not where the networks are in the cache
            attack.cache.watch(f"{attack.name}: encoding public images")
            return [self._group(stream.fork("group")) for _ in range(count)]

        def step(index: Tensor, draws: DeviceStream) -> Tensor:
            rows, images = groups()[int(index[0])]
            images = images.to(self.device)
            if int(draws.below(2, 1)):
                rows, images = RecordRows(rows.mean.flip(3), rows.rows.flip(4), rows.there), images.flip(3)
            fused, found = self._through(net, rows)
            return fusing.loss(fused, images) + fusing.loss(found, images)

        schedule = Schedule(max(1, min(_PASSES, _STEPS // count)), 1, attack.schedule.rate, falling=True)
        draws = DeviceStream(stream.fork("draws"))
        training.train(net, step, count, schedule, about=about, draws=draws, cache=attack.cache)
        return net

    @property
    def _times(self) -> int:
        """How often public images are encoded: as the records are."""
        return max(1, min(_MOST_TIMES, len(self.work.pool.x) // self.work.pool.records))

    @property
    def _images(self) -> int:
        """How many public images are encoded together."""
        return max(_GROUP, min(8 * _GROUP, _ROWS // self._times))

    def _group(self, stream: Stream) -> _Group:
        work, learnt = self.work, self.work.known.learnt
        images = learnt[stream.permutation(len(learnt))[torch.arange(self._images) % len(learnt)]]
        made = encodings(work.encoder, work.known, images, self._times, stream)
        held = made.sources, made.weights, made.moves
        rows = self.given(made.rows.flatten(1).double(), *held, len(images), ordered=True)
        scaled = (images.float() - self.pixels.low) / (self.pixels.high - self.pixels.low)
        return _Group(RecordRows(rows.mean.half(), rows.rows.half(), rows.there), scaled)


def _split(given: RecordRows) -> list[tuple[Tensor, ...]]:
    return [torch.split(x, _GROUP) for x in given]
