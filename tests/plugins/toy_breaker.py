"""An attack with stages that the package does not know: who is in a row, with what weight, under which signs.

It finds none of them, but all images of a challenge where its owner gives it the truth about all three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from mixveil.attacks.shared.base import BaseAttack
from mixveil.attacks.shared.pool import Pool
from mixveil.attacks.shared.stages import Oracle
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, View
from mixveil.core.wording.sentences import add

add({"threat-least-squares": "They solve all rows for the records, by whatever they take their sources to be."})


@dataclass(frozen=True)
class LeastSquares(BaseAttack):
    """Rows as weighed sums of records, solved together."""

    name: ClassVar[str] = "least-squares"
    kind: ClassVar[AttackKind] = "reconstruction"
    linear: ClassVar[bool] = False
    oracle: Oracle | None = None

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        pool, told = Pool.of(view), self.oracle
        shape = len(pool.x), pool.private
        sources, weights, mixtures = (stream.uniform(*shape) * pool.records).long(), stream.uniform(*shape), pool.x
        if told is not None and told.knows("sources"):
            sources = told.sources
        if told is not None and told.knows("weights"):
            weights = told.weights.double()
        if told is not None and told.knows("signs") and told.signs is not None:
            mixtures = pool.x.abs() * told.signs
        matrix = torch.zeros(len(pool.x), pool.records, dtype=torch.float64)
        matrix.scatter_add_(1, sources.clamp(min=0), weights * (sources >= 0))
        solved = torch.linalg.lstsq(matrix, mixtures).solution
        images = view.releases[0].encoder.restore(solved).view(-1, *pool.shape)
        return Guess(images=images, sources=sources)
