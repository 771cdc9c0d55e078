"""Once records are recovered, rows say better what they hold: what was recovered is put in the place of each record of
a row, and the likeliest assignment that all labels agree with is taken again.

Labels do not show the shares of records of one class, nor that a row holds one record twice. Both are tried too.
Where much else is mixed in, values that depend on one another make that a bad guess: rows then stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from mixveil.attacks.shared.breaks.assignment import assigned
from mixveil.attacks.shared.breaks.folded import FoldedRows, System
from mixveil.attacks.shared.breaks.prototypes import label_weights
from mixveil.core.randomness import Stream

_PAIR = 2
_ROUNDS = 6
_VALUES = 1 << 25  # of rows that are compared at a time
_SHARES = 19  # of a label that are tried, for two records of its class


def refined(rows: FoldedRows, y: Tensor, classes: Tensor, own: Tensor | None, stream: Stream) -> FoldedRows:
    """The same rows of two records at most, with what they hold more likely. y: (m, classes) labels; classes: (n,) of
    the records; own: (m,) the record of each row, where it is known."""
    for number in range(_ROUNDS):
        tried = _Tried(rows, classes, stream.fork(f"round {number}"))
        if not tried.system.nearly_exact(tried.factor):
            break
        sources = assigned(tried.fit(), y, classes, _PAIR, own, most=(rows.sources >= 0).sum(1))
        same = torch.equal(sources.sort(1).values, rows.sources.sort(1).values)
        sources, weights = tried.shares(sources, label_weights(sources, y, classes), y, own)
        rows = replace(rows, sources=sources, weights=weights)
        if same:
            break
    return rows


class _Tried:
    """Recovered records in the place of others."""

    def __init__(self, rows: FoldedRows, classes: Tensor, stream: Stream) -> None:
        self.rows, self.classes = rows, classes
        self.system = System(rows, len(classes))
        found, self.factor = self.system.found(stream)
        self.whole = found + self.system.mean.float()
        self.mixtures = self.system.mixtures(found)

    def fit(self) -> Tensor:
        """(m, n) how much likelier each row is with a record in the place of one of the same class that it is said to
        hold, than with none there."""
        rows, device = self.rows, self.whole.device
        fit = torch.full((len(rows.sources), len(self.classes)), -torch.inf)
        for source, weight in zip(rows.sources.T, rows.weights.float().T, strict=True):
            for part, records in self._parts(source):
                share, place = weight[part].to(device)[:, None], part.to(device)
                without = self.mixtures[place] - share * self.whole[source[part].to(device)]
                with_each = without[:, None] + share[:, None] * self.whole[records.to(device)]
                told = self._likely(with_each, part) - self._likely(without[:, None], part)
                fit[part[:, None], records] = torch.maximum(fit[part[:, None], records], told.cpu())
        return torch.where(fit.isfinite(), fit, fit[fit.isfinite()].min() - 1)

    def shares(self, sources: Tensor, weights: Tensor, y: Tensor, own: Tensor | None) -> tuple[Tensor, Tensor]:
        """Records and weights (m, 2) of rows whose labels show one class: both records by the share that is likeliest,
        or one of them alone, where that is likelier: a row's own record, where it is known."""
        sources, weights = sources.clone(), weights.clone()
        of_one = ((y > 0).sum(1) == 1) & (sources >= 0).all(1)
        for part in torch.split(of_one.nonzero()[:, 0], max(1, _VALUES // (_SHARES * self.whole.shape[1]))):
            one, other = (self.whole[sources[part, column].to(self.whole.device)][:, None] for column in (0, 1))
            share = torch.linspace(0, 1, _SHARES + 2, device=one.device).view(1, -1, 1)
            held = weights[part].sum(1).to(one)
            covers = self.mixtures[part.to(one.device)] - self._held(part)
            told = self._likely(covers[:, None] + held.view(-1, 1, 1) * (share * one + (1 - share) * other), part).cpu()
            best = told[:, 1:-1].argmax(1) + 1
            part_of = share.flatten().cpu()[best].to(weights) * held.cpu().to(weights)
            weights[part, 0], weights[part, 1] = part_of, held.cpu().to(weights) - part_of
            alone = told[:, [-1, 0]] if own is None else told[:, -1:]  # a share of one for the first, or none
            single, which = alone.max(1)
            twice = single > told.gather(1, best[:, None])[:, 0]
            sources[part[twice], 0] = sources[part[twice], which[twice]]
            sources[part[twice], 1] = -1
            weights[part[twice], 0], weights[part[twice], 1] = held.cpu().to(weights)[twice], 0
        return sources, weights

    def _held(self, part: Tensor) -> Tensor:
        """(k, d) what the rows of these numbers hold of records, as they are said to."""
        device, total = self.whole.device, torch.zeros(1, device=self.whole.device)
        for source, weight in zip(self.rows.sources[part].T, self.rows.weights[part].float().T, strict=True):
            share = torch.where(source >= 0, weight, 0).to(device)[:, None]
            total = total + share * self.whole[source.clamp(min=0).to(device)]
        return total

    def _likely(self, mixtures: Tensor, part: Tensor) -> Tensor:
        return self.system.likely(mixtures, part.to(mixtures.device), self.factor)

    def _parts(self, source: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows that are said to hold a record of a class, (k,) at a time, and all records of that class."""
        kind = torch.where(source >= 0, self.classes[source.clamp(min=0)], -1)
        for number in sorted({*kind.tolist()} - {-1}):
            records = (self.classes == number).nonzero()[:, 0]
            size = max(1, _VALUES // (len(records) * self.whole.shape[1]))
            for part in torch.split((kind == number).nonzero()[:, 0], size):
                yield part, records
