"""Rows that share an image have a large inner product (Huang et al. 2020, Section 2.1 and Theorem B.1).

    ⟨x̃, x̃'⟩ ≈ λλ'‖z‖²   if both hold z with weights λ and λ';   ≈ 0 if they share nothing

That is true of images whose values are independent. Natural images share low frequencies, and their plain inner
products fail; rows are compared where they vary alike (`shared.whitening`). A random sign for every value makes
inner products small whatever rows share. It does not change squares, and rows that share an image share some of their
squares' structure too: `inner-product-squares`, after Braverman's idea (Section 9), which the authors did not try on
pairs of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from mixveil.attacks.shared.base import BaseAttack
from mixveil.attacks.shared.whitening import centred, first_rows, noise_of, squares, whitening
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, View


@dataclass(frozen=True)
class InnerProduct(BaseAttack):
    """Which rows share a source? From the rows alone."""

    name: ClassVar[str] = "inner-product"
    kind: ClassVar[AttackKind] = "grouping"
    linear: ClassVar[bool] = False
    least_releases: ClassVar[int] = 2  # where nothing is mixed, rows of one release share nothing

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        rows = centred(first_rows(view))
        return Guess(alike=whitening(rows, view.releases[0].shape, noise_of(view)).alike(rows))


@dataclass(frozen=True)
class InnerProductSquares(InnerProduct):
    """The same by the squares of the rows' values, which no sign hides."""

    name: ClassVar[str] = "inner-product-squares"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        seen = zip(view.releases, first_rows(view), strict=False)
        parts = [squares(release, x) for release, x in seen]
        rows = torch.cat(parts) if len(parts) > 1 else parts[0]
        return Guess(alike=whitening(rows, view.releases[0].shape).alike(rows))
