"""Linkage and membership: is this image in the release, and in which row?

For a candidate c and a row with weights w₁, w₂, in the eigenbasis of the records' covariance (variances λ):

    own record c:   x̃ ~ N(w₁c, w₂²λ + w₂²σ²)      partner c:  x̃ ~ N(w₂c, w₁²λ + w₂²σ²)
    neither:        x̃ ~ N(0, (w₁² + w₂²)λ + w₂²σ²)

The log-likelihood ratios of all candidates and rows are two matrix products. Plain inner products fail: natural images
share their low frequencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks import _model
from mixveil.errors import ArgumentError
from mixveil.keys import Stream
from mixveil.types import Guess, View


@dataclass(frozen=True)
class Linkage:
    """Which row is a candidate's own? The weights are known, the pairing is not used; ratios add over releases."""

    name: ClassVar[str] = "linkage"
    needs: ClassVar[frozenset[str]] = frozenset({"traces", "candidates"})
    threat: ClassVar[str] = "Holds the original image and knows the weights; asks which row it went into."

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        return Guess(links=sum((own for own, _ in _ratios(view)), start=torch.zeros(1, dtype=torch.float64)))


@dataclass(frozen=True)
class Membership:
    """Is a candidate in the releases at all? How far the row that fits it best stands out among all rows, as its own
    and as its partner's. A candidate is compared with itself in other rows, never with other candidates: what it
    looks like must not count."""

    name: ClassVar[str] = "membership"
    needs: ClassVar[frozenset[str]] = frozenset({"traces", "candidates"})
    threat: ClassVar[str] = "Holds an image and knows the weights; asks whether it is in the release at all."

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        scores = torch.zeros(1, dtype=torch.float64)
        for ratios in _ratios(view):
            for ratio in ratios:
                spread = ratio.std(1).clamp(min=1e-12)
                scores = scores + (ratio.amax(1) - ratio.mean(1)) / spread
        return Guess(scores=scores)


def _ratios(view: View) -> list[tuple[Tensor, Tensor]]:
    """For each release the (c, n) log-likelihood ratios of candidates as own records, and as partners."""
    if view.candidates is None:
        raise ArgumentError("this attack needs candidates")
    prior = _model.prior_of(view)
    asked = prior.coordinates(view.releases[0].encoder.prepare(view.candidates))
    found = []
    for release, trace in zip(view.releases, _model.traces_of(view), strict=True):
        weight = trace.weight.double()
        own, other = weight[:, :1], weight[:, 1:].square().sum(1, keepdim=True).sqrt()
        floor = float(prior.variance.max()) * 1e-7
        noise = _model.noise_variance(release, weight)[:, None].clamp(min=floor)
        rows = prior.coordinates(_model.released(release))
        neither = (own.square() + other.square()) * prior.variance + noise
        base = 0.5 * (neither.log() + rows.square() / neither).sum(1)
        found.append(
            (
                base + _fit(asked, rows, own, other.square() * prior.variance + noise),
                base + _fit(asked, rows, other, own.square() * prior.variance + noise),
            )
        )
    return found


def _fit(asked: Tensor, rows: Tensor, share: Tensor, spread: Tensor) -> Tensor:
    """(c, n) log-density of rows around share·candidate with that spread, without the constant."""
    alone = -0.5 * (spread.log() + rows.square() / spread).sum(1)
    return alone + asked @ (share * rows / spread).T - 0.5 * asked.square() @ (share.square() / spread).T
