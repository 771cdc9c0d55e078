"""What an audit found, before anything is said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from mixveil.audit.best_guesses import BestGuess
from mixveil.audit.ceilings import MembershipBound
from mixveil.audit.figures import AttackRun, Figure, Subject
from mixveil.audit.ground_truth import encoders
from mixveil.audit.guarantees_found import Promise
from mixveil.audit.metrics.detection import Roc
from mixveil.core.types import Encoder, View
from mixveil.core.wording.notes import Note
from mixveil.data.similarity import mse

_BLOCK_VALUES = 1 << 21


@dataclass(frozen=True)
class Audit:
    """What an audit found. It shows private records.

    Attributes:
        view: What was attacked, of n rows.
        pixels: (n, …) the records that own these rows.
        low, high: The range that values can have.
        numbers: (n,) of these rows in the releases.
        of: How many rows the releases have.
        unit: What a unit of several rows is called (`patient`); None where nothing is promised to such units.
        promised: What all releases together promise of membership, to units first.
        spread: The variance of a value of the records, in units of the range squared.
        moved: What choosing the rows can have done to a test of single values' noise; None where none was made.
        images: (n, …) uint8 the records as attacks guess them, by attack: 0 is `low`, 255 is `high`. They are shown,
            large pictures smaller than they are.
        errors: (n,) the mean squared errors of these guesses at full size, in units of the range squared, by attack.
        best_guesses: Of each attack that guesses records; attackers who look at no release are left out.
        curves: ROCs, by attack.
        pictures: The images behind features, `original` and as attacks guess them.
    """

    view: View = field(repr=False)
    pixels: Tensor = field(repr=False)
    low: float
    high: float
    numbers: Tensor = field(repr=False)
    of: int
    unit: str | None
    promised: tuple[MembershipBound, ...]
    figures: tuple[Figure, ...]
    attacks: tuple[AttackRun, ...]
    promises: tuple[Promise, ...]
    spread: float
    moved: float | None
    warnings: tuple[Note, ...] = ()
    verdict: tuple[Note, ...] = ()
    images: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    errors: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    best_guesses: tuple[BestGuess, ...] = ()
    curves: Mapping[str, Roc] = field(default_factory=dict, repr=False)
    pictures: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    @cached_property
    def spreads(self) -> Tensor:
        """(n,) the same of guessing the mean of the records."""
        blocks = torch.split(self.pixels, self._block)
        mean = torch.stack([block.double().sum(0) for block in blocks]).sum(0) / len(self.pixels)
        span = self.high - self.low
        return torch.cat([mse(block / span, (mean / span).expand_as(block)) for block in blocks])

    @property
    def _block(self) -> int:
        """Records that are compared at a time."""
        return max(1, _BLOCK_VALUES // max(1, self.pixels[0].numel()))

    @property
    def kind(self) -> str:
        """Of the payload of its releases."""
        return self.view.releases[0].envelope.kind

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one record."""
        return tuple(self.pixels.shape[1:])

    @property
    def of_images(self) -> bool:
        """Whether records are images: features are not."""
        return len(self.shape) == 3

    @property
    def encoded(self) -> int:
        """How many records the releases were made of: as many as they have rows, unless rows were dropped."""
        return self.view.releases[0].records if self.encoders else self.of

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """Of releases of records; other kinds have none."""
        return encoders(self.view.releases)

    @property
    def label_epsilon(self) -> float | None:
        """Of all releases together; None where one shows labels as they are, or randomised them by a seed."""
        stated = [None if release.reproducible else release.label_epsilon for release in self.view.releases]
        known = [epsilon for epsilon in stated if epsilon is not None]
        return sum(known) if len(known) == len(stated) else None

    def shares(self, metric: str, of: Subject = "record") -> list[Figure]:
        """What each attack that was asked found. They guess differently well, so that none speaks for another."""
        return [figure for figure in self.figures if figure.metric == metric and figure.of == of and figure.interval]

    def most(self, metric: str) -> Figure | None:
        """The attack that found the largest share."""
        return max(self.shares(metric), key=lambda figure: figure.mean, default=None)

    def best(self, metric: str) -> tuple[Figure | None, float]:
        """The attack that leaves the least error, and the share of knowing nothing's error that it takes away.
        Attackers who have some of the records are spoken of apart."""
        errors = [f for f in self.figures if f.metric == metric and f.kind != "prior" and f.known is None]
        least = min((figure.mean for figure in errors), default=0.0)
        near = [f for f in errors if f.mean <= 1.001 * least]  # a network that adds nothing is not the better attack
        trained = {run.attack for run in self.attacks if run.trains}
        best = min(near, key=lambda figure: figure.attack in trained, default=None)
        return best, 1 - best.mean / best.know_nothing if best and best.know_nothing else 0.0
