"""What an attack on whole units is asked about: the units of a release, and strangers in their places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.core.randomness import Stream
from mixveil.core.types import Dataset, Units, View

LEAST_UNITS = 20
LEAST_STRANGERS = 100
GROUPS = 500  # of strangers, at least: false alarms of one in a hundred must be seen
FEW_GROUPS = 100  # enough for an AUC


class Asked(NamedTuple):
    """units: groups of candidates; members: how many of them, the first, are units of the release; the others are
    strangers, several groups in the place of one unit where there are few units."""

    units: Units
    members: int


@dataclass(frozen=True)
class UnitView:
    """What the attack on units sees. view: of n rows, with candidates, their records first and then strangers; records:
    the n records; whose: (n,) the unit of each row, −1 where it is not asked about."""

    view: View
    records: Dataset
    whose: Tensor

    @property
    def strangers(self) -> int:
        return 0 if self.view.candidates is None else len(self.view.candidates) - len(self.whose)

    def unusable(self) -> str:
        """Why there is too little to ask about; nothing, if there is enough."""
        sizes = self.whose[self.whose >= 0].bincount()
        units, least = int((sizes > 0).sum()), max(LEAST_STRANGERS, int(sizes.max()) if len(sizes) else 0)
        if units < LEAST_UNITS:
            return f"it needs at least {LEAST_UNITS} units of which all rows can be attacked, got {units}"
        if self.strangers < least:
            return f"it needs at least {least} images that are not in the release (public data)"
        return ""


def groups(whose: Tensor, first: int, strangers: int, stream: Stream, least: int = FEW_GROUPS) -> Asked:
    """Every unit of `whose` (n,), and groups of as many strangers in its place, at least so many groups in all. Row i
    is candidate i's own; strangers are the candidates from `first` on. In a group no stranger comes twice; in different
    ones they do where they are few."""
    order = whose.argsort(stable=True)
    order = order[whose[order] >= 0]
    sizes = whose[order].bincount()
    slots = torch.split(order, sizes[sizes > 0].tolist())
    found = [(rows, rows) for rows in slots]
    deck = torch.empty(0, dtype=torch.int64)
    for _ in range(-(-least // len(slots))):
        for rows in slots:
            if len(deck) < len(rows):
                deck = first + stream.permutation(strangers)
            found.append((rows, deck[: len(rows)]))
            deck = deck[len(rows) :]
    number = torch.repeat_interleave(torch.arange(len(found)), torch.tensor([len(rows) for rows, _ in found]))
    units = Units(number, torch.cat([rows for rows, _ in found]), torch.cat([c for _, c in found]))
    return Asked(units, len(slots))
