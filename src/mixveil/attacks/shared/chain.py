"""One pairing ties records into rings, each to two neighbours: what all rows say of them is solved directly.

Along a ring the posterior precision is tridiagonal with one corner. One pass forward and one back solve it in O(n) for
all directions at once; the corner is a rank-one change (Sherman and Morrison).
"""

from __future__ import annotations

import torch
from torch import Tensor


def chains(partner: Tensor, records: int) -> list[tuple[list[int], bool]]:
    """The records along the pairing, chain by chain, and whether a chain closes to a ring. partner: (n,), the partner
    of each of the first n records, −1 for none; the others have no row of their own. No record may be a partner
    twice."""
    ahead = partner.tolist()
    first = set(range(records)) - set(ahead)
    found, seen = [], [False] * records
    for start in [*sorted(first), *range(records)]:
        chain = []
        here = start
        while not seen[here]:
            seen[here] = True
            chain.append(here)
            if here >= len(ahead) or ahead[here] < 0:
                break
            here = ahead[here]
        if chain:
            found.append((chain, start not in first))
    return found


def solve(partner: Tensor, diagonal: Tensor, coupling: Tensor, target: Tensor) -> Tensor:
    """z with diagonal · z plus its neighbours' share = target, all (records, k). coupling: (n, k), of each row between
    its own record and its partner; that of a record with itself is in the diagonal already."""
    z = torch.empty_like(target)
    for chain, closed in chains(partner, len(target)):
        index = torch.tensor(chain)
        links = coupling[index[:-1]]
        corner = coupling[index[-1]] if closed and len(chain) > 1 else None
        if corner is not None and len(chain) == 2:  # both rows tie the same two
            links, corner = links + corner, None
        z[index] = _line(diagonal[index], links, target[index], corner)
    return z


def _line(diagonal: Tensor, links: Tensor, target: Tensor, corner: Tensor | None) -> Tensor:
    """(m, k) of one chain."""
    if corner is None:
        return _tridiagonal(diagonal, links, target[None])[0]
    ends = torch.zeros_like(target)
    ends[0], ends[-1] = -diagonal[0], corner
    bent = diagonal.clone()
    bent[0] *= 2
    bent[-1] += corner.square() / diagonal[0]
    plain, change = _tridiagonal(bent, links, torch.stack([target, ends]))
    ratio = -corner / diagonal[0]
    change *= (plain[0] + ratio * plain[-1]) / (1 + change[0] + ratio * change[-1])
    solved: Tensor = plain - change
    return solved


def _tridiagonal(diagonal: Tensor, links: Tensor, targets: Tensor) -> Tensor:
    """Symmetric, positive definite: (s, m, k) solutions of s right sides."""
    pivots, found = diagonal.clone(), targets.clone()
    for i in range(1, len(diagonal)):
        share = links[i - 1] / pivots[i - 1]
        pivots[i] -= share * links[i - 1]
        found[:, i] -= share * found[:, i - 1]
    found[:, -1] /= pivots[-1]
    for i in range(len(diagonal) - 2, -1, -1):
        found[:, i] = (found[:, i] - links[i] * found[:, i + 1]) / pivots[i]
    return found
