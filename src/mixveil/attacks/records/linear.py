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
    parts = [_Part.of(mixing, x, len(rows)) for mixing, x in zip(mixings, rows, strict=True)]
    gradient, first, second = (torch.zeros_like(guess) for _ in range(3))
    block = len(guess) if device.type == "cuda" else max(1, _BLOCK // guess[0].numel())
    for step in range(1, _STEPS + 1):
        _fit(guess.flatten(1), parts, gradient.flatten(1))
        for place in range(0, len(guess), block):
            of, fit, mean, square = (x[place : place + block] for x in (guess, gradient, first, second))
            _adam(of, fit.add_(_preference(of, len(guess))), mean, square, step)
            pixels.clamp_(of)
    return guess


class _Part(NamedTuple):
    """A release: its rows (n, values), the sources and weights (n, s) of each, and for every record the rows that hold
    it, (records, m), with what their errors count in its gradient; 0 where fewer rows hold it."""

    rows: Tensor
    source: Tensor
    weight: Tensor
    holder: Tensor
    share: Tensor

    @classmethod
    def of(cls, mixing: MixingMatrix, rows: Tensor, releases: int) -> _Part:
        source, weight = mixing.source.cpu(), mixing.weight.cpu()
        order = source.flatten().argsort(stable=True)
        record = source.flatten()[order]
        count = record.bincount(minlength=mixing.records)
        place = torch.arange(len(record)) - (count.cumsum(0) - count)[record]
        holder = torch.zeros(mixing.records, int(count.max()), dtype=torch.int64)
        share = torch.zeros(holder.shape, dtype=torch.float64)
        holder[record, place] = order // source.shape[1]
        share[record, place] = weight.flatten()[order] * 2 / (releases * rows.numel())
        fitting = (source, weight.float(), holder, share.float())
        return cls(rows.flatten(1), *(x.to(rows.device) for x in fitting))


def _fit(guess: Tensor, parts: list[_Part], gradient: Tensor) -> None:
    """Puts the gradient of the mean squared error, over all releases, at records (records, values) into `gradient`."""
    gradient.zero_()
    width = guess.shape[1] if guess.device.type == "cuda" else max(1, _BLOCK // len(guess))
    for columns in range(0, guess.shape[1], width):
        here = slice(columns, columns + width)
        for part in parts:
            left = part.rows[:, here].neg()
            for source, weight in zip(part.source.T, part.weight.T, strict=True):
                left.addcmul_(weight[:, None], guess[:, here].index_select(0, source))
            for holder, share in zip(part.holder.T, part.share.T, strict=True):
                gradient[:, here].addcmul_(share[:, None], left.index_select(0, holder))


def _preference(guess: Tensor, records: int) -> Tensor:
    """The gradient of what is preferred, smooth and small images: of some of so many records."""
    found = guess * (2 * _SMALL / (records * guess[0].numel()))
    for way in (2, 3):
        apart = guess.diff(dim=way).sign_()
        if apart.numel():
            apart *= _SMOOTH / (records * apart[0].numel())
            size = apart.shape[way]
            found.narrow(way, 1, size).add_(apart)
            found.narrow(way, 0, size).sub_(apart)
    return found


def _adam(guess: Tensor, gradient: Tensor, first: Tensor, second: Tensor, step: int) -> None:
    """One step of Adam, in place (Kingma and Ba 2015)."""
    first.lerp_(gradient, 1 - _BETAS[0])
    second.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
    size = second.sqrt().div_(math.sqrt(1 - _BETAS[1] ** step)).add_(_EPSILON)
    guess.addcdiv_(first, size, value=-_RATE / (1 - _BETAS[0] ** step))
