"""What comes out of the rest if an attacker has some of the records: each record is guessed while it is not known."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from mixveil.attacks.records.known_records import Solver
from mixveil.core.randomness import Stream
from mixveil.core.types import Batch, Known, View
from mixveil.data.row_views import InMemoryRows

TAUGHT_VALUES = 1024
"""Records of so many values, at most, teach what records are like: one eigenbasis a fold."""

SHARES = {"known 10 %": 0.1, "known 50 %": 0.5, "known 90 %": 0.9}


def folds(order: Tensor, share: float) -> list[tuple[Tensor, Tensor]]:
    """(wanted, known): each record is wanted once, while that share of the others, and not it, is known. order: (n,) in
    a random one; of the first fold, a larger share holds all of a smaller one."""
    n = len(order)
    hidden = n - min(max(1, round(share * n)), n - 1)
    return [(order[start : start + hidden], order.roll(-start)[hidden:]) for start in range(0, n, hidden)]


def guessed(view: View, pixels: Tensor, stream: Stream, *, taught: bool = False) -> dict[str, Tensor]:
    """(n, …) guesses of the records that have rows, by share. pixels: (n, …) these records. Records that only others'
    rows hold, where a part of a release is seen, are never known. taught: what records are like is learned from the
    known ones."""
    solver, order = None if taught else Solver(view), stream.permutation(len(pixels))
    found = {}
    for name, share in SHARES.items():
        images = torch.empty(pixels.shape, dtype=torch.float64)
        for wanted, known in folds(order, share):
            ours = solver or Solver(
                replace(view, public=InMemoryRows(Batch(pixels[known], torch.zeros(len(known), 1))))
            )
            coordinates = ours.coordinates(Known(known, pixels[known]), wanted)
            images[wanted] = ours.prior.images(view, coordinates)
        found[name] = images
    return found
