"""The record that an attack guesses best. Means do not show it; and of many records one is guessed well by chance,
which is told beside it."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.audit.ground_truth import GroundTruth
from mixveil.core.randomness import SeededStream
from mixveil.data import similarity

_BLOCK_VALUES = 1 << 18


class BestGuess(NamedTuple):
    """The record that an attack guesses best.

    Attributes:
        attack: As in its figures.
        gained: The share of the error of guessing this record without the release that is gone.
        chance: The most of it where the guesses are dealt to other records.
    """

    attack: str
    gained: float
    chance: float


class BestGuesses:
    """Those of all attacks so far, in `found`."""

    def __init__(self, truth: GroundTruth) -> None:
        self._truth = truth
        self.found: list[BestGuess] = []

    @cached_property
    def others(self) -> Tensor:
        """(n,) for each record another one, at random: neighbours are often of one class."""
        order = SeededStream(0).permutation(self._truth.n)
        return torch.empty_like(order).scatter_(0, order, order.roll(1))

    def add(self, attack: str, errors: Tensor, nothing: Tensor, dealt: Tensor) -> None:
        """From (n,) errors at records, those of knowing nothing of them, and those of the guesses at `others`."""
        self.found.append(BestGuess(attack, _gained(errors, nothing), _gained(dealt, nothing[self.others])))

    def dealt(self, guess: Tensor) -> Tensor:
        """(n,) the mean squared errors of guesses (n, …) at other records, in units of the range squared."""
        truth, found = self._truth, []
        for rows in torch.split(torch.arange(truth.n), max(1, _BLOCK_VALUES // max(1, guess[:1].numel()))):
            pixels, part = truth.pixels[self.others[rows]], truth.clamped(guess[rows])
            errors = [similarity.mse(pixels, x) for x in ([part, part.flip(3)] if truth.mirrors else [part])]
            found.append(torch.stack(errors).amin(0) / truth.span**2)
        return torch.cat(found)


def _gained(errors: Tensor, nothing: Tensor) -> float:
    """The largest share of (n,) errors of knowing nothing that is gone."""
    gained = torch.where(nothing > 0, 1 - errors / nothing, 0.0)
    return float(gained.nan_to_num(nan=0.0, neginf=-999.0).amax())
