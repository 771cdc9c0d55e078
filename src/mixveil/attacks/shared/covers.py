"""What the attacks on rows with public patches share: the patches as they enter mixtures, a few at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks.shared.base import BaseAttack
from mixveil.core.errors import ArgumentError
from mixveil.core.types import AttackKind, Rows, View
from mixveil.core.wording.notes import Note, note

_BLOCK_VALUES = 1 << 23
_KEPT_VALUES = 1 << 27  # of covers that are kept in memory; more are cut again for every search

Blocks = Callable[[], Iterable[Tensor]]
"""All covers in order, (b, d) float32 at a time; called once for every search."""


class CoverAttack(BaseAttack):
    """An attack that names the covers in each row of the first release."""

    kind: ClassVar[AttackKind] = "covers"
    needs: ClassVar[frozenset[str]] = frozenset({"covers"})
    linear: ClassVar[bool] = False

    def cannot(self, view: View) -> Note | None:
        return without_covers(view) or super().cannot(view)


def without_covers(view: View) -> Note | None:
    """Why there are no covers to look for in the first release; None where there are."""
    encoder = view.releases[0].encoder
    return None if encoder.covers else note("attack-needs-covers", encoder=encoder.name)


def covers_of(view: View) -> Rows:
    if view.covers is None:
        raise ArgumentError("this attack needs covers")
    return view.covers


def entering(view: View) -> Blocks:
    """All covers as they enter mixtures."""
    covers, release = covers_of(view), view.releases[0]
    values = math.prod(release.shape)

    def cut() -> Iterator[Tensor]:
        for index in torch.split(torch.arange(len(covers)), max(1, _BLOCK_VALUES // values)):
            yield release.encoder.prepare(covers.take(index).x).float()

    if len(covers) * values > _KEPT_VALUES:
        return cut
    kept = list(cut())
    return lambda: kept


def changed(blocks: Blocks, change: Callable[[Tensor], Tensor]) -> Blocks:
    """The same covers, each block changed so."""
    return lambda: map(change, blocks())


def mean(blocks: Blocks) -> Tensor:
    """(d,) of all covers."""
    total, count = torch.zeros(1, dtype=torch.float64), 0
    for block in blocks():
        total, count = total + block.double().sum(0), count + len(block)
    return (total / count).float()


def scores(rows: Tensor, blocks: Blocks) -> Tensor:
    """(n, p) how far each cover stands out of rows (n, d), in deviations, where values of rows are independent with
    variance one: the inner product with the cover, over the cover's length. One product of matrices a block."""
    found = []
    for block in blocks():
        length = torch.linalg.vector_norm(block, dim=1).clamp(min=1e-30)
        found.append(rows @ block.T / length)
    return torch.cat(found, dim=1)
