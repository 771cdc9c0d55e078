"""What an attack on whole units is asked about: the units of a release, and strangers in their places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.audit.write_guard import Candidates
from mixveil.core.randomness import Stream
from mixveil.core.types import Dataset, Units, View
from mixveil.core.wording.notes import Note, note

LEAST_UNITS = 20
LEAST_STRANGERS = 100
GROUPS = 500  # of strangers, at least: false alarms of one in a hundred must be seen
FEW_GROUPS = 100  # enough for an AUC


class UnitGroups(NamedTuple):
    """Groups of candidates that an attack on whole units is asked about. The first `members` are units of the release;
    the others are strangers, several groups in the place of one unit where there are few units."""

    units: Units
    members: int


@dataclass(frozen=True)
class UnitView:
    """What the attack on units sees: n rows, with their records and then strangers as candidates. whose: (n,) the unit
    of each row, −1 where it is not asked about. asked: its candidates, where other attacks have others."""

    view: View
    records: Dataset
    whose: Tensor
    asked: Candidates | None = None

    @property
    def strangers(self) -> int:
        return 0 if self.view.candidates is None else len(self.view.candidates) - len(self.whose)

    def cannot(self) -> Note | None:
        """Why there is too little to ask about; None if there is enough."""
        sizes = self.whose[self.whose >= 0].bincount()
        units, least = int((sizes > 0).sum()), max(LEAST_STRANGERS, int(sizes.max()) if len(sizes) else 0)
        if units < LEAST_UNITS:
            return note("attack-needs-units", least=LEAST_UNITS, units=units)
        if self.strangers < least:
            return note("attack-needs-strangers", least=least, strangers=self.strangers)
        return None


def groups(whose: Tensor, first: int, strangers: int, stream: Stream, least: int = FEW_GROUPS) -> UnitGroups:
    """Every unit of `whose` (n,), and groups of as many strangers in its place, at least so many groups in all. Row i
    is candidate i's own; strangers are the candidates from `first` on. In a group no stranger comes twice; in different
    ones they do where they are few."""
    order = whose.argsort(stable=True)
    order = order[whose[order] >= 0]
    sizes = whose[order].bincount()
    slots = torch.split(order, sizes[sizes > 0].tolist())
    filled = [(rows, rows) for rows in slots]
    deck = torch.empty(0, dtype=torch.int64)
    for _ in range(-(-least // len(slots))):
        for rows in slots:
            if len(deck) < len(rows):
                deck = first + stream.permutation(strangers)
            filled.append((rows, deck[: len(rows)]))
            deck = deck[len(rows) :]
    number = torch.repeat_interleave(torch.arange(len(filled)), torch.tensor([len(rows) for rows, _ in filled]))
    units = Units(number, torch.cat([rows for rows, _ in filled]), torch.cat([c for _, c in filled]))
    return UnitGroups(units, len(slots))
