"""Images from absolute values of weighed sums of pairs, one place of the images at a time.

    size_i = |part_i + Σ_v W_iv z_v|

Six rows of all pairs of four images are six equations in four unknowns. Of the 2⁶ ways to choose their signs, the right
one fits, and others fit by chance only. From there every other image has two possible values for each row that it
shares with a known one, and the value on which these rows agree is taken.
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from mixveil.attacks.shared.gaussian.floral import Floral

_HELD = 0.02  # a weight; by less a row tells nothing of an image
_VOTES = 6  # rows by which an image's values are chosen
_TRIES = 4  # sign patterns
_DOUBTFUL = 3.0  # times the typical misfit
_POLISHES = 3


def strongest_floral(weight: Tensor) -> tuple[Floral, Tensor] | None:
    """Six rows of all pairs of four images, whose smallest weight is largest; and (4,) the images. weight: (m, n), two
    a row. None if no four images have all their pairs."""
    best = pair_strengths(weight)
    strength, four, most = best.values, None, 0.0
    for a, b in strength.triu(1).nonzero().tolist():
        after = torch.arange(b + 1, len(strength))
        both = torch.minimum(strength[a, after], strength[b, after]).clamp(max=strength[a, b])
        near = after[both > most]
        inner = strength[near][:, near].minimum(both[both > most]).minimum(both[both > most, None]).triu(1)
        if len(near) > 1 and float(inner.max()) > most:
            most, place = float(inner.max()), int(inner.argmax())
            four = torch.tensor([a, b, int(near[place // len(near)]), int(near[place % len(near)])])
    if four is None:
        return None
    pairs = torch.combinations(torch.arange(4), 2)
    return Floral(best.indices[four[pairs[:, 0]], four[pairs[:, 1]]], pairs), four


def pair_strengths(weight: Tensor) -> torch.return_types.max:
    """(n, n) the smaller weight in the row of each pair where it is largest, 0 where there is none; and these rows."""
    least = torch.minimum(weight[:, :, None], weight[:, None, :])
    least.diagonal(dim1=1, dim2=2).zero_()
    return torch.where(least > _HELD, least, 0.0).max(0)


def recovered(size: Tensor, part: Tensor, weight: Tensor, floral: Floral, images: Tensor) -> Tensor:
    """(n, d) images. size, part: (m, d); weight: (m, n), two a row; images: (4,) those of the floral submatrix. Where
    all parts are zero, the values at one place come with one common sign that nothing tells."""
    order = spreading_order(weight, images)
    ranked = best_patterns(size[floral.rows], part[floral.rows], weight[floral.rows][:, images])
    found = spread(size, part, weight, order, images, ranked[0])
    left = misfit(size, part, weight, found)
    for values in ranked[1:]:  # where the best pattern does not lead to images that fit, try the next
        doubtful = (left > _DOUBTFUL * left.median()).nonzero()[:, 0]
        if not len(doubtful):
            break
        seen, beside = size[:, doubtful], part[:, doubtful]
        other = spread(seen, beside, weight, order, images, values[:, doubtful])
        now = misfit(seen, beside, weight, other)
        better = now < left[doubtful]
        found[:, doubtful[better]], left[doubtful[better]] = other[:, better], now[better]
    return found


def best_patterns(size: Tensor, part: Tensor, weight: Tensor) -> list[Tensor]:
    """The values (4, d) of four images from six rows, by the signs that fit best; then by those that fit second best,
    and so on."""
    signs = torch.tensor(list(product((1.0, -1.0), repeat=len(size))), dtype=size.dtype)
    unexplained = torch.linalg.svd(weight).U[:, weight.shape[1] :].T
    cost = torch.stack([(unexplained @ (sign[:, None] * size - part)).square().sum(0) for sign in signs])
    if not bool(part.any()):
        cost = cost[: len(signs) // 2]  # the others are these with all signs changed
    ranked = cost.topk(_TRIES, dim=0, largest=False).indices
    inverse = torch.linalg.pinv(weight)
    return [inverse @ (signs[chosen].T * size - part) for chosen in ranked]


def spreading_order(weight: Tensor, images: Tensor) -> list[int]:
    """All images beyond these, each when it shares rows with most of those before. Several rows of one pair count
    little more than one: where their weights are equal, they say the same."""
    held = (weight > _HELD).to(weight.dtype)
    shared = (held.T @ held).fill_diagonal_(0)
    counted = (shared > 0) + shared / (1 + shared.sum())
    known = torch.zeros(weight.shape[1], dtype=torch.bool).index_fill_(0, images, True)
    order = []
    while not bool(known.all()):
        count = (counted * known).sum(1).masked_fill(known, -1)
        order.append(int(count.argmax()))
        known[order[-1]] = True
    return order


def spread(size: Tensor, part: Tensor, weight: Tensor, order: list[int], images: Tensor, values: Tensor) -> Tensor:
    """(n, d) all images, from the values (4, d) of four."""
    found = torch.zeros(weight.shape[1], size.shape[1], dtype=size.dtype)
    found[images] = values
    known = torch.zeros(len(found), dtype=torch.bool).index_fill_(0, images, True)
    for image in order:
        rows = voting(weight, image, known)
        known[image] = True
        if len(rows):
            found[image] = agreed(size[rows], part[rows] + weight[rows] @ found, weight[rows, image])
    return polished(size, part, weight, found)


def voting(weight: Tensor, image: int, known: Tensor) -> Tensor:
    """(r,) the rows by which an image is chosen: of each known image that shares rows with it the strongest one, and
    then others."""
    rows = ((weight[:, image] > _HELD) & (weight * ~known > _HELD).sum(1).eq(1)).nonzero()[:, 0]
    rows = rows[weight[rows, image].argsort(descending=True, stable=True)]
    other = (weight[rows] * known).argmax(1)
    before = (other[:, None] == other).tril(-1).sum(1)
    return rows[before.argsort(stable=True)][:_VOTES]


def agreed(size: Tensor, part: Tensor, share: Tensor) -> Tensor:
    """(d,) the value v for which |part + share v| is nearest to size over r rows. size, part: (r, d); share: (r,)."""
    share = share[:, None]
    tried = torch.cat([(size - part) / share, (-size - part) / share])
    cost = torch.stack([((part + share * v).abs() - size).abs().sum(0) for v in tried])
    best = tried.gather(0, cost.argmin(0, keepdim=True))
    signed = size * torch.where(part + share * best < 0, -1.0, 1.0)
    return (share * (signed - part)).sum(0) / share.square().sum()


def polished(size: Tensor, part: Tensor, weight: Tensor, found: Tensor) -> Tensor:
    """(n, d) the least squares of all rows with the signs that images give them, where that fits better."""
    left = misfit(size, part, weight, found)
    inverse = torch.linalg.pinv(weight)
    for _ in range(_POLISHES):
        new = inverse @ (signed(size, part, weight, found) - part)
        now = misfit(size, part, weight, new)
        found, left = torch.where(now < left, new, found), torch.minimum(now, left)
    return found


def signed(size: Tensor, part: Tensor, weight: Tensor, found: Tensor) -> Tensor:
    """(m, d) rows with the signs that images give them."""
    return size * torch.where(part + weight @ found < 0, -1.0, 1.0)


def misfit(size: Tensor, part: Tensor, weight: Tensor, found: Tensor) -> Tensor:
    """(d,) how far rows are from what images make of them, a place of the images at a time."""
    return ((part + weight @ found).abs() - size).square().mean(0).sqrt()
