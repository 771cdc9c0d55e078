"""Weights and images that together explain rows, by turns: images for given weights by least squares, then weights for
these images, where the sum of a row's two weights is known.

Both need only the products of rows with one another and with known images, (m + p)² numbers, whatever the number of
values: hundreds of turns cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

_TURNS = 500
_DONE = 1e-13  # change of a weight
_RIDGE = 1e-12  # of a typical product: a row may hold an image twice, and z_a − z_b is nothing


@dataclass(frozen=True)
class Selection:
    """What each row is made of.

    Attributes:
        source: (m, 2) its images.
        weight: (m, 2) their weights.
        cover: (m, q) its known images, none of them twice; q may be 0.
        share: (m, q) their weights.
    """

    source: Tensor
    weight: Tensor
    cover: Tensor
    share: Tensor

    @classmethod
    def of_covers(cls, cover: Tensor, share: Tensor) -> Selection:
        """Of known images alone."""
        return cls(cover[:, :0], share[:, :0], cover, share)

    def dense(self, images: int) -> Tensor:
        """(m, images) the weights of images."""
        return _spread(self.source, self.weight, images)

    def part(self, covers: Tensor) -> Tensor:
        """(m, d) what of the rows is of covers (p, d)."""
        return _spread(self.cover, self.share, len(covers)) @ covers

    def of(self, rows: Tensor) -> Selection:
        return Selection(self.source[rows], self.weight[rows], self.cover[rows], self.share[rows])


def solved(products: Tensor, start: Selection, images: int, fixed: Tensor) -> Selection:
    """The weights from which rows come, from a start near them. products: (m + p, m + p) of m rows, with their signs,
    and p known images; fixed: (m,) which rows keep the weights of their two images."""
    found = start
    for _ in range(_TURNS):
        new = _turn(products, found, images)
        new = replace(new, weight=torch.where(fixed[:, None], start.weight, new.weight))
        change = float((new.weight - found.weight).abs().max())
        found = new
        if change < _DONE:
            break
    return found


def _turn(products: Tensor, found: Selection, images: int) -> Selection:
    """Images z as sums of rows and known images. Then, with S the sum of a row's two weights, the row less
    S(z_a + z_b)/2 by least squares on z_a − z_b and its known images: the first factor is a's weight less S/2."""
    m, (a, b) = len(found.source), found.source.T
    row, cover = torch.arange(m), m + found.cover
    inverse = torch.linalg.pinv(found.dense(images))
    made_of = torch.cat([inverse, -inverse @ _spread(found.cover, found.share, len(products) - m)], dim=1)
    z_with_all = made_of @ products
    z_with_z = z_with_all @ made_of.T
    half = found.weight.sum(1) / 2
    apart, both = z_with_all[a] - z_with_all[b], half[:, None] * (z_with_all[a] + z_with_all[b])
    first = z_with_z[a, a] + z_with_z[b, b] - 2 * z_with_z[a, b]
    across = apart.gather(1, cover)
    among = products[cover[:, :, None], cover[:, None, :]]
    normal = torch.cat(
        [torch.cat([first[:, None], across], dim=1)[:, None], torch.cat([across[:, :, None], among], dim=2)], dim=1
    )
    wanted = torch.cat(
        [
            (apart[row, row] - half * (z_with_z[a, a] - z_with_z[b, b]))[:, None],
            products[cover, row[:, None]] - both.gather(1, cover),
        ],
        dim=1,
    )
    normal.diagonal(dim1=1, dim2=2).add_(_RIDGE * float(products.diagonal().mean()))
    told = torch.linalg.solve(normal, wanted)
    weight = torch.stack([half + told[:, 0], half - told[:, 0]], dim=1)
    return Selection(found.source, weight, found.cover, told[:, 1:])


def _spread(place: Tensor, value: Tensor, columns: int) -> Tensor:
    """(m, columns) with values (m, q) at these places (m, q), added where a place comes twice."""
    return torch.zeros(len(place), columns, dtype=value.dtype).scatter_add_(1, place, value)
