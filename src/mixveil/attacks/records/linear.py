"""The paper's linear attack (§5.1, App. F): gradient steps on the known mixture, smoothness and small values preferred.

    min over V:  MSE(x̃, W V) + 10⁻³ TV(V) + 10⁻⁴ mean(V²)

V starts at the mixtures; 200 steps of Adam at 0.05, clamped after each to what a normalised pixel can be. The gradient
is written out, and made for a few values or records at a time. It is weak:
it fits noise as if it were signal, and from weak noise on it is worse than knowing nothing. It is here for its table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from mixveil.attacks.shared import model
from mixveil.attacks.shared.base import PASS, ImageAttack
from mixveil.attacks.shared.model import MixingMatrix
from mixveil.attacks.shared.pixels import Pixels
from mixveil.attacks.shared.prior import in_parts
from mixveil.attacks.shared.training import fastest
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, Sizes, View
from mixveil.theory.moments import blocks

_STEPS, _RATE = 200, 0.05
_SMOOTH, _SMALL = 1e-3, 1e-4
_BETAS, _EPSILON = (0.9, 0.999), 1e-8
_BLOCK = 1 << 18  # values whose gradient is made at a time: they stay in a processor's cache
_PASSES = 2  # of `PASS`, a step: most of it is done in a processor's cache


@dataclass(frozen=True)
class Linear(ImageAttack):
    """All rows of all releases, with the pairing known. normalised: rows are under ImageNet's normalisation already."""

    name: ClassVar[str] = "linear"
    kind: ClassVar[AttackKind] = "reconstruction"
    needs: ClassVar[frozenset[str]] = frozenset({"traces"})
    learns: ClassVar[bool] = False
    normalised: bool = False

    def work(self, sizes: Sizes) -> float:
        return _PASSES * _STEPS * PASS * sizes.rows * float(sizes.values)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        traces, shape = model.traces_of(view), view.releases[0].shape
        pixels, device = Pixels.of(view, self.normalised), fastest()
        rows = []
        for release in view.releases:
            parts = (release.encoder.restore(block).view(-1, *shape) for block in blocks(release.payload))
            rows.append(torch.cat([pixels.enter(part).float() for part in parts]).to(device))
        found = recovered(MixingMatrix.of(traces), rows, pixels)[: len(rows[0])].cpu()
        for part in torch.split(found, max(1, _BLOCK // found[0].numel())):
            part.copy_(pixels.leave(part))
        return Guess(images=found)


def recovered(mixings: list[MixingMatrix], rows: list[Tensor], pixels: Pixels) -> Tensor:
    """(records, c, h, w) that the rows (n, c, h, w) of each release could be mixed of, normalised."""
    shape, device = rows[0].shape[1:], rows[0].device
    start = torch.stack(rows).mean(0) if len(rows) > 1 else rows[0].clone()
    alone = mixings[0].records - len(start)  # records without a row
    guess = torch.cat([start, start.mean(0).expand(alone, *shape)]) if alone else start
    fit, after = _Fit.of(mixings, rows, 2 * _SMALL / guess.numel()), torch.empty_like(guess)
    first, second = torch.zeros_like(guess), torch.zeros_like(guess)
    block = len(guess) if device.type == "cuda" else max(1, _BLOCK // guess[0].numel())
    for step in range(1, _STEPS + 1):
        for place in range(0, len(guess), block):
            part = slice(place, place + block)
            slope = fit.slope(guess, part)
            _smoothen(guess[part], slope, len(guess))
            _adam(guess[part], slope, first[part], second[part], step, after[part])
            pixels.clamp_(after[part])
        guess, after = after, guess
    return guess


class _Fit(NamedTuple):
    """The gradient of the mean squared error and of the preference for small values. Of record i it is
    itself[i] · record[i] + Σ_j share[i, j] · record[other[i, j]] − wanted[i], of records that share rows with it.

    Attributes:
        itself: (records, 1)
        other, share: (records, m); fewer have shares of 0
        wanted: (records, …)
    """

    itself: Tensor
    other: Tensor
    share: Tensor
    wanted: Tensor

    @classmethod
    def of(cls, mixings: list[MixingMatrix], rows: list[Tensor], small: float) -> _Fit:
        records = mixings[0].records
        wanted = rows[0].new_zeros(records, *rows[0].shape[1:])
        pairs, shares = [torch.arange(records) * (records + 1)], [torch.full((records,), small, dtype=torch.float64)]
        for mixing, x in zip(mixings, rows, strict=True):
            source, weight, scale = mixing.source.cpu().clamp(min=0), mixing.weight.cpu(), 2 / (len(rows) * x.numel())
            for part in in_parts(len(x), x[0].numel()):
                for of, by in zip(source[part].T, (scale * weight[part]).T.to(x), strict=True):
                    wanted.index_add_(0, of.to(x.device), by.view(-1, 1, 1, 1) * x[part])
            pairs.append((source[:, :, None] * records + source[:, None]).flatten())
            shares.append((scale * weight[:, :, None] * weight[:, None]).flatten())
        pair, place = torch.unique(torch.cat(pairs), return_inverse=True)
        share = torch.zeros(len(pair), dtype=torch.float64).index_add_(0, place, torch.cat(shares))
        own = pair % (records + 1) == 0
        others, by = _listed(pair[~own], share[~own], records)
        device = wanted.device
        return cls(share[own, None].to(wanted), others.to(device), by.to(wanted), wanted)

    def slope(self, records: Tensor, part: slice) -> Tensor:
        """(r, …) of some of the records."""
        shape = (-1, *[1] * (records.dim() - 1))
        found = records[part] * self.itself[part].view(shape)
        for other, share in zip(self.other[part].T, self.share[part].T, strict=True):
            found.addcmul_(share.view(shape), records.index_select(0, other))
        return found.sub_(self.wanted[part])


def _listed(pair: Tensor, share: Tensor, records: int) -> tuple[Tensor, Tensor]:
    """(records, m) each: for every record the others, and their shares. pair: record · records + other, ascending."""
    record = pair // records
    count = record.bincount(minlength=records)
    place = torch.arange(len(pair)) - (count.cumsum(0) - count)[record]
    other = torch.zeros(records, int(count.max()), dtype=torch.int64)
    by = torch.zeros(other.shape, dtype=torch.float64)
    other[record, place], by[record, place] = pair % records, share
    return other, by


def _smoothen(guess: Tensor, slope: Tensor, records: int) -> None:
    """Adds the gradient of the preference for smooth images, of some of so many records."""
    for way in (2, 3):
        apart = guess.diff(dim=way).sign_()
        if apart.numel():
            size, worth = apart.shape[way], _SMOOTH / (records * apart[0].numel())
            slope.narrow(way, 1, size).add_(apart, alpha=worth)
            slope.narrow(way, 0, size).sub_(apart, alpha=worth)


def _adam(guess: Tensor, slope: Tensor, first: Tensor, second: Tensor, step: int, after: Tensor) -> None:
    """One step of Adam, into `after` (Kingma and Ba 2015)."""
    first.lerp_(slope, 1 - _BETAS[0])
    second.mul_(_BETAS[1]).addcmul_(slope, slope, value=1 - _BETAS[1])
    size = second.sqrt().div_(math.sqrt(1 - _BETAS[1] ** step)).add_(_EPSILON)
    torch.addcdiv(guess, first, size, value=-_RATE / (1 - _BETAS[0] ** step), out=after)
