"""The products of the weights of any two rows, from how the rows' values go together (Chen et al. 2020, step 2).

One of three measures: where signs are seen, the covariance of values; where they are hidden and part of each row is
known, the covariance of what the rest of each row is on average; where they are hidden and nothing is known, sizes and
squares. The noise of a release is fresh in every row, and adds to no product of two rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mixveil.attacks.shared.gaussian.folded_gram import correlations, squared_correlations
from mixveil.attacks.shared.gaussian.line_graph import Gram
from mixveil.attacks.shared.gaussian.mixture_rows import MixtureRows
from mixveil.attacks.shared.gaussian.public_part import expected_rest, unknown_variance

_SURE = 5.0  # deviations: so far out is one in two million pairs of rows that share nothing


@dataclass(frozen=True)
class Measure:
    """How products are measured.

    Attributes:
        seen: (m, d) what is compared.
        deviation: (m,) by which a row's correlations are multiplied.
        squared: Whether only the squares of correlations show.
    """

    seen: Tensor
    deviation: Tensor
    squared: bool

    @classmethod
    def of(cls, rows: MixtureRows) -> Measure:
        if rows.masked and not len(rows.covers):
            return cls(rows.x, rows.x.square().mean(1).sqrt(), True)
        part = rows.part
        if not rows.masked:
            return cls(rows.x - part, (rows.x - part).std(1), False)
        unknown = unknown_variance(rows.x, part)
        rest = expected_rest(rows.x, part, unknown)
        return cls(rest, unknown[:, 0] / rest.square().mean(1).sqrt(), False)

    @property
    def chance(self) -> float:
        """What a correlation of rows that share nothing does not exceed."""
        squared = _SURE / math.sqrt(self.seen.shape[1])
        return math.sqrt(squared) if self.squared else squared

    def gram(self, pair: Tensor) -> Gram:
        """pair: (m, 2) the weights of each row, the larger first."""
        found = correlations(self.seen) if not self.squared else squared_correlations(self.seen).clamp(min=0).sqrt()
        if self.squared:  # a root has no mean of zero where rows share nothing
            found = torch.where(found > self.chance, found, 0.0)
        most = torch.outer(self.deviation, self.deviation)
        value = found * most
        value.diagonal().copy_(pair.square().sum(1))
        return Gram(value, self.chance * most, pair[:, 1], pair.sum(1))

    def clarity(self, low: Tensor) -> Tensor:
        """(m,) from 1 on, a row shows that it shares an image with another such row, if only by their smaller weights
        low (m,)."""
        return low.square() / (self.chance * self.deviation.square())

    def needed(self, low: Tensor) -> int:
        """How many values make half of the rows clear."""
        typical = max(float(self.clarity(low).median()), 1e-6)
        return math.ceil(self.seen.shape[1] / typical ** (4 if self.squared else 2))
