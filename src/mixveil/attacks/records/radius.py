"""Radius check: noise on a sphere has one exact length, and only the true pair of sources leaves that length.

‖x̃ − w₁a − w₂b‖ = w₂r up to rounding, whatever r is: no amount of sphere noise hides a pair from an attacker
who holds it among their candidates. Against Gaussian noise the likeliest residual is the best guess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks.shared import pairs as _pairs
from mixveil.attacks.shared.base import BaseAttack
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, View


@dataclass(frozen=True)
class Radius(BaseAttack):
    """Which two candidates fit a row best, by the length of what they leave of it. exact: whether to test for the
    sphere's length; None: where the release says that its noise is on a sphere."""

    name: ClassVar[str] = "radius"
    kind: ClassVar[AttackKind] = "pairs"
    needs: ClassVar[frozenset[str]] = frozenset({"candidates"})
    exact: bool | None = None

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        return _best_pairs(view, self.exact, None)


@dataclass(frozen=True)
class RadiusLabels(Radius):
    """The same, with only the pairs whose classes the row's label names."""

    name: ClassVar[str] = "radius-labels"
    needs: ClassVar[frozenset[str]] = frozenset({"candidates", "candidate_labels"})

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        if view.candidate_labels is None:
            raise ArgumentError("this attack needs candidate_labels")
        return _best_pairs(view, self.exact, view.candidate_labels)


def _best_pairs(view: View, exact: bool | None, labels: Tensor | None) -> Guess:
    """For each row, the ordered pair of candidates that fits best."""
    known = _pairs.candidates(view)
    encoder = view.releases[0].encoder
    sphere = encoder.law == "sphere" if exact is None else exact
    radius = encoder.sigma * math.sqrt(known.shape[1])
    gram = known @ known.T
    n = len(view.releases[0].payload)
    pairs, doubts = torch.full((n, 2), -1), torch.full((n,), math.inf, dtype=torch.float64)
    for question in _pairs.questions(view):
        for own, other in question.weights:
            length = _residual_norms(question.x, known, gram, own, other)
            doubt = _doubt(length, other * radius, known.shape[1], sphere)
            doubt.fill_diagonal_(math.inf)  # no record is paired with itself
            if labels is not None:
                doubt[~question.fits(labels, own, other)] = math.inf
            best = int(doubt.argmin())
            if doubt.view(-1)[best] < doubts[question.row]:
                doubts[question.row] = doubt.view(-1)[best]
                pairs[question.row] = torch.tensor(divmod(best, len(known)))
    return Guess(pairs=pairs, doubts=doubts)


def _doubt(length: Tensor, radius: float, dimension: int, sphere: bool) -> Tensor:
    """How badly residuals of that length fit noise of that radius: off the sphere; or less likely, for Gaussian noise;
    or, where there is none, just long."""
    if not radius > 0:
        return length
    if sphere:
        return (length / radius - 1).abs()
    return dimension * ((length / radius).square() / 2 + math.log(radius))


def _residual_norms(x: Tensor, known: Tensor, gram: Tensor, own: float, other: float) -> Tensor:
    """(c, c) ‖x̃ − own·a − other·b‖ for all ordered pairs, from inner products alone."""
    cross, square = known @ x, gram.diagonal()
    own_part = own**2 * square - 2 * own * cross
    other_part = other**2 * square - 2 * other * cross
    squared = x @ x + own_part[:, None] + other_part[None, :] + 2 * own * other * gram
    return squared.clamp_(min=0).sqrt()
