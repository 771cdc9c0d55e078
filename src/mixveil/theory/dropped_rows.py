"""What dropping rows does to a pairing: cycles open into chains, and a chain has one record more than it has rows.

Row i holds record i and record π(i). On a cycle that is whole there are as many rows as records, and W can be inverted;
r rows in a chain hold r + 1 records, all with weights above zero, so that every record of it could be anything for some
choice of the others: rows alone determine none.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError
from mixveil.theory.minimax import cycles


class Opened(NamedTuple):
    """cycles: of the pairing, and how many of them were opened; both, one, none: the records that are left in both of
    their rows, in one of them and in none. A record that is its own partner is in both or none."""

    cycles: int
    opened: int
    both: int
    one: int
    none: int


def opened(partner: Tensor, kept: Tensor) -> Opened:
    """partner: (n,) a permutation; kept: (n,) whether each row was kept.

    >>> import torch
    >>> opened(torch.tensor([1, 2, 0, 4, 3]), torch.tensor([True, False, True, True, True]))
    Opened(cycles=2, opened=1, both=3, one=2, none=0)
    """
    if kept.dtype != torch.bool or kept.shape != partner.shape:
        raise ArgumentError(f"kept must say of {len(partner)} rows whether they were, got {tuple(kept.shape)}")
    count = broken = 0
    for rows in cycles(partner):
        count += len(rows)
        broken += int((~kept[rows]).any(1).sum())
    rows_left = kept.long().index_add(0, partner, kept.long())
    none, one, both = rows_left.bincount(minlength=3).tolist()
    return Opened(count, broken, both, one, none)
