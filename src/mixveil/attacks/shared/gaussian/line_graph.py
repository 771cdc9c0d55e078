"""Which images each row holds, and how much of each, from the Gram matrix of the rows' weights: M = W Wᵀ.

A row of W has two weights, not negative, whose sum is known. The rows of a floral submatrix begin: their weights follow
from M. The products of any other row with them are its weights of their four images, by least squares. A row that
holds one known image and one unknown joins others like it: two such rows share the unknown image if their product is
more than the known image explains. So images are added, one by one, until all rows are told.

Where the owner of each row is known, its own image is: then rows that touch all rows of an image hold it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from mixveil.attacks.shared.gaussian.floral import Floral, florals

_HELD = 0.6  # of a row's smaller weight: with more of an image than this a row holds it
_NOT_HELD = 0.35  # of the same: with less it does not
_TRIES, _AGREED = 12, 0.98  # floral submatrices; and the share of touching rows from which on no other is tried
_TOUCHED = 0.75  # of the rows of an image must touch a row that holds it
_CLEARLY = 2.0  # times as much of its second image as of any third has a row that is told
_NONE = 1e-6
_ROUNDS = 12


@dataclass(frozen=True)
class Gram:
    """What is known of the rows' weights.

    Attributes:
        value: (m, m) their products, on the diagonal too.
        least: (m, m) above this a product is not chance.
        low: (m,) the smaller of each row's two weights.
        total: (m,) what both sum to.
    """

    value: Tensor
    least: Tensor
    low: Tensor
    total: Tensor

    def part(self, rows: Tensor) -> Gram:
        return Gram(self.value[rows][:, rows], self.least[rows][:, rows], self.low[rows], self.total[rows])

    @property
    def touch(self) -> Tensor:
        """(m, m) which rows share an image."""
        likely = self.value > torch.maximum(self.least, _HELD * torch.outer(self.low, self.low))
        return (likely & likely.T).fill_diagonal_(False)


def told_apart(gram: Gram, clear: Tensor, images: int) -> Tensor | None:
    """(m, images) weights of images in rows, numbered in any order; rows that are not told have none. It begins with
    clear rows, (m,) booleans. Of several floral submatrices to begin with, that counts which explains best which rows
    touch; None if there is none."""
    best, most = None, -1.0
    part = gram.part(clear)
    for floral in islice(florals(part.touch, part.low), _TRIES):
        weight = extended(part, begun(part, floral), images)
        agreeing = agreement(part.touch, weight)
        if agreeing > most:
            best, most = weight, agreeing
        if most > _AGREED and told_images(weight) == images:
            break
    return None if best is None else settled(gram, clear, best)


def agreement(touch: Tensor, weight: Tensor) -> float:
    """Of all pairs of rows that touch, or share an image by their weights (m, k): how many do both."""
    held = (weight > 0).to(weight.dtype)
    shared = (held @ held.T > 0).fill_diagonal_(False)
    return float((touch & shared).sum() / (touch | shared).sum().clamp(min=1))


def told_by_owner(gram: Gram, clear: Tensor, own: Tensor, images: int) -> Tensor:
    """The same where the own image (m,) of each row is known: rows touch all rows of the other."""
    part, mine = gram.part(clear), own[clear]
    of = torch.nn.functional.one_hot(mine, images).to(gram.value.dtype)
    share = part.touch.to(of.dtype) @ of / of.sum(0).clamp(min=1)
    best = share.masked_fill(of > 0, -1).topk(2, dim=1)
    sure = (best.values[:, 0] >= _TOUCHED) & (best.values[:, 1] < _TOUCHED)
    other = torch.nn.functional.one_hot(best.indices[:, 0], images)
    weight = (of + other) * sure[:, None] * part.total[:, None] / 2
    return settled(gram, clear, weight, own) if bool(sure.any()) else torch.zeros(len(own), images, dtype=of.dtype)


def told_images(weight: Tensor) -> int:
    """How many images some row holds by these weights (m, k)."""
    return int((weight > 0).any(0).sum())


def settled(gram: Gram, clear: Tensor, weight: Tensor, own: Tensor | None = None) -> Tensor:
    """(m, k) weights of all rows, from those of clear rows; none, where a third image fits a row about as well as the
    second. own: (m,) an image that each row holds."""
    whole = torch.zeros(len(clear), weight.shape[1], dtype=weight.dtype)
    whole[clear] = weight
    whole = refined(gram, whole, own)
    held = fitted(gram, whole)
    third = held.masked_fill(whole > 0, -torch.inf).amax(1)
    second = torch.where(whole > 0, held, torch.inf).amin(1)
    return whole * (second > _CLEARLY * third)[:, None]


def begun(gram: Gram, floral: Floral) -> Tensor:
    """(m, 4) the weights of a floral submatrix's rows; other rows have none. Of three rows i, j, k at one image,
    M_ij M_ik/M_jk is the square of the image's weight in row i."""
    weight = torch.zeros(len(gram.low), 4, dtype=gram.value.dtype)
    for image in range(4):
        rows = floral.rows[(floral.image == image).any(1)]
        for turn in range(3):
            i, j, k = rows.roll(turn).tolist()
            weight[i, image] = (gram.value[i, j] * gram.value[i, k] / gram.value[j, k]).clamp(min=0).sqrt()
    return summing_to(weight, gram.total)


def extended(gram: Gram, weight: Tensor, images: int) -> Tensor:
    """(m, images) weights, from those of some rows and images (m, k)."""
    while True:
        weight = completed(gram, weight)
        if weight.shape[1] >= images or (column := next_image(gram, weight)) is None:
            break
        weight = column
    return torch.cat([weight, weight.new_zeros(len(weight), images - weight.shape[1])], dim=1)


def completed(gram: Gram, weight: Tensor) -> Tensor:
    """The same, with the weights of all rows that hold two of these images."""
    while True:
        largest = fitted(gram, weight).topk(2, dim=1)
        both = (largest.values[:, 1] > _HELD * gram.low) & (weight == 0).all(1)
        if not bool(both.any()):
            return weight
        told = torch.zeros_like(weight).scatter_(1, largest.indices, largest.values)
        weight = torch.where(both[:, None], summing_to(told, gram.total), weight)


def next_image(gram: Gram, weight: Tensor) -> Tensor | None:
    """(m, k + 1) the same with one more image: that which most rows of one known image share. None if there is none."""
    most = fitted(gram, weight).topk(2, dim=1)
    one = (most.values[:, 0] > _HELD * gram.low) & (most.values[:, 1] < _NOT_HELD * gram.low)
    half = (one & (weight == 0).all(1)).nonzero()[:, 0]
    if not len(half):
        return None
    known, value = most.indices[half, 0], most.values[half, 0].minimum(gram.total[half] - gram.low[half] / 2)
    rest = gram.total[half] - value
    explained = torch.outer(value, value) * (known[:, None] == known)
    left = gram.value[half][:, half] - explained
    shared = (left > torch.outer(rest, rest) / 2).fill_diagonal_(True)
    first = int(shared.sum(1).argmax())
    agreeing = shared[:, shared[first]].double().mean(1) > 0.5
    place = shared[first] & agreeing
    wider = torch.cat([weight, torch.zeros_like(weight[:, :1])], dim=1)
    wider[half[place], known[place]] = value[place]
    wider[half[place], -1] = rest[place]
    return wider


def fitted(gram: Gram, weight: Tensor) -> Tensor:
    """(m, k) how much of each of these images every row holds, by least squares from its products with told rows."""
    told = (weight > 0).any(1)
    value = gram.value.clone()
    value.diagonal()[told] = weight[told].square().sum(1)
    trust = 1 / gram.least.diagonal()[told, None].sqrt()
    held: Tensor = torch.linalg.pinv(trust * weight[told]) @ (trust * value[told])
    return held.T


def refined(gram: Gram, weight: Tensor, own: Tensor | None = None) -> Tensor:
    """(m, k) the weights of all rows by all others, again and again. own: (m,) an image that each row holds; of an own
    image that no row tells of, a row holds what its other image leaves."""
    row = torch.arange(len(weight))
    for _ in range(_ROUNDS):
        held = fitted(gram, weight)
        ranked = held.clone()
        if own is not None:
            ranked[row, own] = torch.inf
            unseen = ~(weight > 0).any(0)[own]
            held[row[unseen], own[unseen]] = (gram.total - ranked.topk(2, dim=1).values[:, 1])[unseen]
        two = ranked.topk(2, dim=1).indices
        told = torch.zeros_like(held).scatter_(1, two, held.gather(1, two).clamp(min=_NONE))
        weight = summing_to(told, gram.total)
    return weight


def summing_to(weight: Tensor, total: Tensor) -> Tensor:
    """The same weights, scaled to these sums; rows without any stay so."""
    scale = total[:, None] / weight.sum(1, keepdim=True).clamp(min=1e-300)
    return weight * torch.where(weight.sum(1, keepdim=True) > 0, scale, 0.0)
