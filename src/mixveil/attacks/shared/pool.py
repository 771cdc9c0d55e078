"""All rows of all releases of the same records together: what the breaks of InstaHide begin with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mixveil.attacks.shared import model
from mixveil.attacks.shared.base import CannotAttackError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, View
from mixveil.core.wording.notes import Note, note

_DRAWS = 400  # of the weights' law


@dataclass(frozen=True)
class Pool:
    """Rows of several releases, one release after another.

    Attributes:
        x: (m, d) float64, as released: mixtures of records as they enter (`Encoder.prepare`), masked or not.
        y: (m, classes) float64, their soft labels.
        release: (m,) the number of the release that each row is of.
        own: (m,) the record that each row is of; None where rows are in no known order.
        records: How many records there are.
        private: How many records a row is made of at most; what else it holds are covers.
        shape: Of a row.
    """

    x: Tensor
    y: Tensor
    release: Tensor
    own: Tensor | None
    records: int
    private: int
    shape: tuple[int, ...]

    @classmethod
    def of(cls, view: View) -> Pool:
        parts = [model.released(release) for release in view.releases]
        x = torch.cat(parts) if len(parts) > 1 else parts[0]
        y = torch.cat([release.payload.take(torch.arange(len(release.payload))).y for release in view.releases])
        sizes = [len(release.payload) for release in view.releases]
        number = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        own, records = None, view.records
        if records is None:
            if len(set(sizes)) != 1:
                raise CannotAttackError(note("attack-needs-equal-rows"))
            own, records = torch.cat([torch.arange(size) for size in sizes]), sizes[0]
        private = max(private_sources(release.encoder) for release in view.releases)
        return cls(x, y.double(), number, own, records, private, view.releases[0].shape)


def private_sources(encoder: Encoder) -> int:
    """How many records a row of this encoder is made of."""
    partner = encoder.plan(_DRAWS, stream=SeededStream(0)).partner
    return 1 + int((partner < _DRAWS).any(0).sum())


def out_of_order(view: View) -> Note | None:
    """Why rows cannot be told to be of a record: labels were randomised, and rows put in another order each time."""
    if view.records is None and any(release.label_epsilon is not None for release in view.releases):
        return note("attack-needs-row-order")
    return None
