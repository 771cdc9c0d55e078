"""Rows as mixtures of images whose values are normal draws: what each row shows before it is compared with others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.attacks.shared.base import CannotAttackError
from mixveil.attacks.shared.covers import entering
from mixveil.attacks.shared.gaussian.public_part import coordinates
from mixveil.attacks.shared.gaussian.sparse_solve import Selection
from mixveil.attacks.shared.pool import Pool
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, View
from mixveil.core.wording.notes import note

_DRAWS = 400  # of the weights' law
_SEEN = 5.0  # deviations: what images vary by is seen from here on


@dataclass(frozen=True)
class MixtureRows:
    """Rows in units of the images' deviation.

    Attributes:
        x: (m, d) as released; without signs, where these are hidden.
        masked: Whether they are.
        covers: (p, d) the public images that are mixed in, p = 0 where none are; in the same units.
        cover: (m, q) the covers that each row seems to hold, none twice.
        share: (m, q) their weights.
        pair: (m, 2) the weights of a row's two private images, the larger first, as far as labels or lengths show them.
        noise: (m,) the variance of the noise in one value.
        scale: The images' deviation, in the values that are released.
    """

    x: Tensor
    masked: bool
    covers: Tensor
    cover: Tensor
    share: Tensor
    pair: Tensor
    noise: Tensor
    scale: float

    @property
    def total(self) -> Tensor:
        """(m,) what the weights of private images sum to."""
        return self.pair.sum(1)

    @property
    def part(self) -> Tensor:
        """(m, d) what rows hold of covers."""
        return Selection.of_covers(self.cover, self.share).part(self.covers)

    @classmethod
    def of(cls, view: View, pool: Pool) -> MixtureRows:
        """Refuses rows whose noise hides how much images vary."""
        encoder = view.releases[0].encoder
        law = encoder.plan(_DRAWS, stream=SeededStream(0)).weight.double()
        x = pool.x.abs() if encoder.masked else pool.x
        covers = torch.cat(list(entering(view)())).double() if encoder.covers else x[:0]
        cover, share = held_covers(x, covers, law.shape[1] - pool.private, encoder.masked)
        part = Selection.of_covers(cover, share).part(covers)
        energy = x.square().mean(1) - part.square().mean(1) if encoder.masked else (x - part).var(1, unbiased=False)
        shown = Shown.of(pool)
        noise = row_noise(shown, law[:, : pool.private], encoder)
        variance = image_variance(energy, noise, shown, law[:, : pool.private], x.shape[1])
        total = pool.y.sum(1) if encoder.covers else torch.ones_like(energy)
        even = total[:, None].expand(-1, 2) / 2
        pair = by_energy(energy / variance, total) if encoder.law == "none" else even
        pair = torch.where(shown.row[:, None], shown.two.sort(1, descending=True).values, pair)
        scale = math.sqrt(variance)
        return cls(x / scale, encoder.masked, covers / scale, cover, share, pair, noise.mean / variance, scale)


class Shown(NamedTuple):
    """What labels show of weights.

    Attributes:
        row: (m,) whether a row's label has two classes, and so both weights.
        two: (m, 2) the weights of these rows: the own image's first if that is known, else the larger first.
        ordered: Whether it is known.
    """

    row: Tensor
    two: Tensor
    ordered: bool

    @classmethod
    def of(cls, pool: Pool) -> Shown:
        """The class of a record is that which most of its rows have."""
        row, y = (pool.y > 0).sum(1) == 2, pool.y
        two = torch.cat([y, torch.zeros_like(y[:, :1])], dim=1).topk(2, dim=1).values
        if pool.own is None:
            return cls(row, two, False)
        have = torch.zeros(pool.records, y.shape[1], dtype=y.dtype).index_add_(0, pool.own, (y > 0).to(y.dtype))
        mine = y.gather(1, have.argmax(1)[pool.own][:, None])[:, 0]
        return cls(row & (mine > 0), torch.stack([mine, y.sum(1) - mine], dim=1), True)


class RowNoise(NamedTuple):
    """mean: (m,) the variance of the noise in one value of each row; doubt: (m,) by how much it may be another, as it
    depends on weights that are not known, or not which of them is the own image's."""

    mean: Tensor
    doubt: Tensor


def row_noise(shown: Shown, law: Tensor, encoder: Encoder) -> RowNoise:
    """law: (s, k) draws of the weights of private images."""
    one, other = (encoder.deviation(two).square() for two in (shown.two, shown.two.flip(1)))
    drawn = encoder.deviation(law).square()
    mean, doubt = (one, 0 * one) if shown.ordered else ((one + other) / 2, (one - other).abs() / 2)
    return RowNoise(torch.where(shown.row, mean, drawn.mean()), torch.where(shown.row, doubt, drawn.std()))


def image_variance(energy: Tensor, noise: RowNoise, shown: Shown, law: Tensor, values: int) -> float:
    """The variance of an image's values, from rows whose weights labels show, if there are any. energy: (m,) that of
    what rows hold of private images, noise included. Refused where it may be chance."""
    some = shown.row if bool(shown.row.any()) else ~shown.row
    squares = torch.where(shown.row, shown.two.square().sum(1), law.square().sum(1).mean())[some]
    left = float((energy - noise.mean)[some].sum())
    chance = (energy.square() * 2 / values + noise.doubt.square())[some].sum().sqrt()
    if not left > _SEEN * float(chance):
        raise CannotAttackError(note("attack-drowned", noise=float(noise.mean.mean().sqrt())))
    return left / float(squares.sum())


def held_covers(x: Tensor, covers: Tensor, slots: int, masked: bool) -> tuple[Tensor, Tensor]:
    """(m, q) the covers (p, d) that rows hold most of, no more than have a place in a row, and their weights."""
    if not len(covers):
        return torch.empty(len(x), 0, dtype=torch.int64), x[:, :0]
    if masked:
        held = coordinates(x, covers)
    else:  # what all images have in common is not taken for one of the covers
        x, covers = x - x.mean(1, keepdim=True), covers - covers.mean(1, keepdim=True)
        held = x @ covers.T @ torch.linalg.pinv(covers @ covers.T)
    most = held.topk(min(slots, len(covers)), dim=1)
    return most.indices, most.values.clamp(min=0)


def by_energy(squares: Tensor, total: Tensor) -> Tensor:
    """(m, 2) two weights that are not negative, the larger first, from the sums (m,) of their squares and of both."""
    half = total / 2
    apart = (squares / 2 - half.square()).clamp(min=0).sqrt().minimum(half)
    return torch.stack([half + apart, half - apart], dim=1)
