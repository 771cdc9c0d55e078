"""What attacks on pairs of candidates share: which candidates could make up a row, and with which weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.attacks.shared.model import check_linear
from mixveil.core.errors import ArgumentError
from mixveil.core.types import View

_SLACK = 1e-5  # labels are float32


class Question(NamedTuple):
    """One row that an attack asks about: its number, values x (d,) float64, label y, and the (own, partner) weights
    that its label allows."""

    row: int
    x: Tensor
    y: Tensor
    weights: list[tuple[float, float]]

    def fits(self, labels: Tensor, own: float, other: float) -> Tensor:
        """(c, c) whether candidates of these classes, so weighed, give the row's label."""
        first, second = (self.y[labels] - own).abs() < _SLACK, (self.y[labels] - other).abs() < _SLACK
        return first[:, None] & second[None, :] & (labels[:, None] != labels[None, :])


def candidates(view: View) -> Tensor:
    """(c, d) float64: the candidates as they would enter the mixture."""
    if view.candidates is None or not view.releases:
        raise ArgumentError("this attack needs a release and candidates")
    check_linear(view)
    return view.releases[0].encoder.prepare(view.candidates)


def questions(view: View) -> Iterator[Question]:
    """Every row of the first release. A label that names two classes shows both weights, but not which is the
    row's own; one that names a single class shows nothing, and the row has no weights to try."""
    release = view.releases[0]
    for row in range(len(release.payload)):
        x, y = release.payload.take(torch.tensor([row]))
        shares = y[0][y[0] > 0].double().tolist()
        weights = [(shares[0], shares[1]), (shares[1], shares[0])] if len(shares) == 2 else []
        yield Question(row, x.flatten().double(), y[0].double(), weights)
