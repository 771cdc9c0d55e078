"""Six rows that hold all pairs of four images: the floral submatrix of Chen et al. 2020 for two images a row.

Rows are edges between images, and two rows touch if they share one. Six edges of four images touch as the corners of an
octahedron do: each touches four others and not the one opposite. Three edges at one image and three edges of a triangle
touch alike, and the eight faces of the octahedron are four of each. The six rows do not tell which: taking the opposite
edge for each edge swaps both and keeps every touch. A seventh row tells: if it holds one of the four images, it
touches the three rows at that image, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

_SAME = 0.8  # of all rows that touch one of two rows: so many touch both, where both hold the same pair
_MAJORITY = 2  # times as many rows must speak for the images as for the triangles


@dataclass(frozen=True)
class Floral:
    """rows: (6,) their numbers; image: (6, 2) the two of the images 0…3 that each holds."""

    rows: Tensor
    image: Tensor


def florals(touch: Tensor, strength: Tensor) -> Iterator[Floral]:
    """All that can be told, those of the strongest rows first. touch: (m, m) booleans, False on the diagonal; strength:
    (m,) how well each row shows what it touches."""
    kept = one_of_each_pair(touch, strength)
    among = touch[kept][:, kept]
    found = octahedra(among)
    weakest = [float(strength[kept[list(rows)]].min()) for rows in found]
    for place in sorted(range(len(found)), key=lambda i: -weakest[i]):
        rows = torch.tensor(found[place])
        outside = torch.ones(len(kept), dtype=torch.bool).index_fill_(0, rows, False)
        image = told_images(among[outside][:, rows])
        if image is not None:
            yield Floral(kept[rows], image)


def one_of_each_pair(touch: Tensor, strength: Tensor) -> Tensor:
    """(u,) the strongest of all rows that touch the same rows: they hold the same pair, or are as good as that."""
    near = touch | torch.eye(len(touch), dtype=torch.bool)
    both = near.double() @ near.double().T
    either = near.sum(1)[:, None] + near.sum(1) - both
    same = touch & (both >= _SAME * either)
    kept: list[int] = []
    for row in strength.argsort(descending=True, stable=True).tolist():
        if not bool(same[row, kept].any()):
            kept.append(row)
    return torch.tensor(sorted(kept), dtype=torch.int64)


def octahedra(touch: Tensor) -> list[tuple[int, ...]]:
    """Six rows each, as three pairs of opposite ones, one pair after the other. Of rows of different pairs exactly four
    touch both of two opposite ones."""
    common = touch.double() @ touch.double()
    found = []
    for one, other in ((common == 4) & ~touch).triu(1).nonzero().tolist():
        ring = (touch[one] & touch[other]).nonzero()[:, 0]
        inside = touch[ring][:, ring]
        if bool((inside.sum(1) == 2).all()) and one < int(ring.min()):
            facing = int((~inside[0, 1:]).nonzero()[0, 0]) + 1
            rest = [int(ring[i]) for i in range(1, 4) if i != facing]
            found.append((one, other, int(ring[0]), int(ring[facing]), *rest))
    return found


def told_images(touched: Tensor) -> Tensor | None:
    """(6, 2) the images of three opposite pairs of rows, from what other rows touch of them, (q, 6): each row that
    touches one of every pair names a face, and faces at images have an even number of second rows, or all an odd one.
    None if that stays open."""
    pairs = touched.view(-1, 3, 2)
    naming = (pairs.sum(2) == 1).all(1)
    odd = pairs[naming, :, 1].sum(1) % 2
    votes = [int((odd == side).sum()) for side in (0, 1)]
    side = votes[1] > votes[0]
    if votes[side] <= _MAJORITY * votes[not side]:
        return None
    faces = [face for face in product((0, 1), repeat=3) if sum(face) % 2 == side]
    held = [[i for i, face in enumerate(faces) if face[pair] == second] for pair in range(3) for second in (0, 1)]
    return torch.tensor(held)
