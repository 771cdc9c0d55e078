"""Radius check: noise on a sphere has one exact length, and only the true pair of sources leaves that length.

‖x̃ − w₁a − w₂b‖ = w₂r up to rounding, whatever r is: no amount of sphere noise hides a pair from someone who
holds it among his candidates. Against other noise the smallest residual is the best guess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks import _pairs
from mixveil.keys import Stream
from mixveil.types import Guess, View


@dataclass(frozen=True)
class Radius:
    """exact: test for the sphere's length (None: do so when the release says that its noise is on a sphere)."""

    name: ClassVar[str] = "radius"
    needs: ClassVar[frozenset[str]] = frozenset({"candidates"})
    threat: ClassVar[str] = "Holds both source images of a row among others; asks which two they are."
    exact: bool | None = None

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        known = _pairs.candidates(view)
        encoder = view.releases[0].encoder
        exact = getattr(encoder, "noise", "") == "sphere" if self.exact is None else self.exact
        radius = (encoder.sigma or 0.0) * math.sqrt(known.shape[1])
        gram = known @ known.T
        n = len(view.releases[0].payload)
        pairs, doubts = torch.full((n, 2), -1), torch.full((n,), math.inf, dtype=torch.float64)
        for row, x, weights in _pairs.questions(view):
            for own, other in weights:
                length = _residual_norms(x, known, gram, own, other)
                doubt = (length / (other * radius) - 1).abs() if exact and radius > 0 else length
                doubt.fill_diagonal_(math.inf)  # nobody is paired with himself
                best = int(doubt.argmin())
                if doubt.view(-1)[best] < doubts[row]:
                    doubts[row] = doubt.view(-1)[best]
                    pairs[row] = torch.tensor(divmod(best, len(known)))
        return Guess(pairs=pairs, doubts=doubts)


def _residual_norms(x: Tensor, known: Tensor, gram: Tensor, own: float, other: float) -> Tensor:
    """(c, c) ‖x̃ − own·a − other·b‖ for all ordered pairs, from inner products alone."""
    cross, square = known @ x, gram.diagonal()
    own_part = own**2 * square - 2 * own * cross
    other_part = other**2 * square - 2 * other * cross
    squared = x @ x + own_part[:, None] + other_part[None, :] + 2 * own * other * gram
    return squared.clamp_(min=0).sqrt()
