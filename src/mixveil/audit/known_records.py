"""What comes out of the rest if an attacker has some of the records: each record is guessed while it is not known."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from mixveil.audit.asking import fitting, of_records, own_code
from mixveil.core.randomness import Stream
from mixveil.core.types import Attack, Batch, KnownRecords, View
from mixveil.data.row_views import InMemoryRows

TAUGHT_VALUES = 1024
"""Records of so many values, at most, teach what records are like: one eigenbasis a fold."""

SHARES = (0.1, 0.5, 0.9)
"""Of the records that an attacker has."""


Folds = list[tuple[Tensor, Tensor]]


def folds(order: Tensor, share: float) -> Folds:
    """(wanted, known): each record is wanted once, while that share of the others, and not it, is known. order: (n,) in
    a random one; of the first fold, a larger share holds all of a smaller one."""
    n = len(order)
    hidden = n - min(max(1, round(share * n)), n - 1)
    return [(order[start : start + hidden], order.roll(-start)[hidden:]) for start in range(0, n, hidden)]


def guessed(
    attack: Attack, view: View, pixels: Tensor, parts: Folds, stream: Stream, *, taught: bool = False
) -> Tensor:
    """(n, …) float32 guesses of the records that have rows, each while others are known, by `folds`. pixels: (n, …)
    these records. Records that only others' rows hold, where a part of a release is seen, are never known. taught: what
    records are like is learned from the known ones."""
    with own_code():
        guess = None if taught else attack.knowing(view, stream=stream)
    images = torch.empty(pixels.shape)
    for wanted, known in parts:
        given = pixels[known]
        public = InMemoryRows(Batch(given, torch.zeros(len(known), 1)))
        with own_code():
            ask = guess or attack.knowing(replace(view, public=public), stream=stream)
            found = ask(KnownRecords(known, given), wanted)
        images[wanted] = fitting("images", found, of_records(len(wanted), tuple(pixels.shape[1:]))).float()
    return images
