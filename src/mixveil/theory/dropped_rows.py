"""What dropping rows does to a pairing: cycles break into chains, and a chain has one record more than it has rows.

Row i holds record i and record π(i). A whole cycle has as many rows as records, and W can be inverted. The r rows of a
chain hold r + 1 records, all with positive weights: for any value of one record there are values of the others that
give the same rows. The rows alone determine no record of a chain.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError
from mixveil.theory.minimax import cycles


class BrokenCycles(NamedTuple):
    """The cycles of a pairing after rows were dropped. A record that is its own partner is in both rows or in none.

    Attributes:
        cycles: of the whole pairing.
        opened: how many of them lost a row.
        both: records that are left in both of their rows.
        one: records that are left in one of their rows.
        none: records that are left in no row.
    """

    cycles: int
    opened: int
    both: int
    one: int
    none: int


def broken_cycles(partner: Tensor, kept: Tensor) -> BrokenCycles:
    """Count the cycles that lost a row. partner: (n,) a permutation; kept: (n,) whether each row was kept.

    >>> import torch
    >>> broken_cycles(torch.tensor([1, 2, 0, 4, 3]), torch.tensor([True, False, True, True, True]))
    BrokenCycles(cycles=2, opened=1, both=3, one=2, none=0)
    """
    if kept.dtype != torch.bool or kept.shape != partner.shape:
        raise ArgumentError(f"kept must be {len(partner)} flags, got {kept.dtype} of shape {tuple(kept.shape)}")
    count = broken = 0
    for rows in cycles(partner):
        count += len(rows)
        broken += int((~kept[rows]).any(1).sum())
    rows_left = kept.long().index_add(0, partner, kept.long())
    none, one, both = rows_left.bincount(minlength=3).tolist()
    return BrokenCycles(count, broken, both, one, none)
