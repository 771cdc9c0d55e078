"""What was attacked, and the records behind it. The attacks see the view; only the judge sees the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mixveil.attacks.shared.model import prior_of
from mixveil.audit.write_guard import Candidates
from mixveil.core.errors import ArgumentError
from mixveil.core.types import Dataset, Encoder, OfRecords, Release, View
from mixveil.data import similarity
from mixveil.data.moves import mirrored
from mixveil.data.row_views import Subset
from mixveil.theory.moments import Moments, blocks

_BLOCK, _BLOCK_VALUES = 256, 1 << 22


def encoders(releases: Sequence[Release]) -> tuple[Encoder, ...]:
    """Of releases of records; other kinds have none."""
    return tuple(release.encoder for release in releases if isinstance(release.envelope.settings, OfRecords))


@dataclass(frozen=True)
class GroundTruth:
    """The truth about n attacked rows.

    Attributes:
        view: What attacks see; its candidates are the rows' own records, and then strangers, which are in no release.
        records: The n records that own the rows, then those that only were partners.
        moments: Of all records, as they enter the mixture; None where releases hold no records.
        rows: How many rows the whole releases have, of which these are a part.
        pictures: (n, c, h, w) in [0, 1], the images that the records are features of; None where they are not.
        covered: (n, q) which of the view's covers are in each row of the first release; None where none are.
        asked: The view's candidates, and where they were read; None where there are none.
    """

    view: View
    records: Dataset
    moments: Moments | None
    rows: int
    pictures: Tensor | None = None
    covered: Tensor | None = None
    asked: Candidates | None = None

    @cached_property
    def n(self) -> int:
        return len(self.view.releases[0].payload)

    @cached_property
    def own(self) -> Subset:
        """The records that own the rows."""
        return Subset(self.records, torch.arange(self.n))

    @cached_property
    def pixels(self) -> Tensor:
        """(n, …) the values of these records: the first candidates are the same ones."""
        candidates = self.view.candidates
        return self.own.take(torch.arange(self.n)).x if candidates is None else candidates[: self.n]

    @cached_property
    def labels(self) -> Tensor:
        """(n,) the classes of these records."""
        return self.own.take(torch.arange(self.n)).y.argmax(1)

    @cached_property
    def signs(self) -> Tensor | None:
        """(n, d) −1, 0 or 1: the signs of the mixtures of the first release; None without its trace."""
        if self.view.traces is None:
            return None
        observation = self.view.releases[0].encoder.observation(self.view.traces[0])
        parts = torch.split(torch.arange(self.n), _BLOCK)
        return torch.cat([observation.mixture(self.records, rows).x.sign().to(torch.int8) for rows in parts])

    @property
    def strangers(self) -> int:
        """How many candidates are in no release."""
        return 0 if self.view.candidates is None else len(self.view.candidates) - self.n

    @property
    def span(self) -> float:
        return self.records.high - self.records.low

    def clamped(self, images: Tensor) -> Tensor:
        """Guesses within the range that values can have."""
        return images.clamp(self.records.low, self.records.high)

    @property
    def mirrors(self) -> bool:
        """Whether images were mirrored at random before they were mixed, in one release at least: a mirrored face is a
        recovered face, also where an attacker could tell which of both it was."""
        return any(encoder.moved > 0 for encoder in encoders(self.view.releases)) and self.pixels.dim() == 4

    def nearer(self, images: Tensor) -> Tensor:
        """Guesses (n, …) at the records; where images were mirrored, of each its mirror image if that is nearer."""
        if not self.mirrors:
            return images
        one, other = (similarity.mse(self.pixels, self.clamped(guess)) for guess in (images, images.flip(3)))
        return mirrored(images, other < one)

    def scaled(self, images: Tensor) -> Tensor:
        """In units of the range: float64, [0, 1] for values within it."""
        return (images.double() - self.records.low) / self.span

    @cached_property
    def know_nothing(self) -> Tensor:
        """The better of two guesses that use no row: the mean that an attacker has, and the middle of the range."""
        shape = self.pixels.shape
        middle = torch.full(shape[1:], (self.records.low + self.records.high) / 2, dtype=torch.float64).expand(shape)
        known = self._known_mean
        if known is None:
            return middle
        mean = self.nearer(self.clamped(known.view(shape[1:])).expand(shape))
        return mean if self._error(mean) <= self._error(middle) else middle

    def _error(self, guess: Tensor) -> float:
        """The mean squared error of a value of guesses (n, …)."""
        parts = max(1, _BLOCK_VALUES // max(1, self.pixels[0].numel()))
        both = zip(torch.split(self.pixels, parts), torch.split(guess, parts), strict=True)
        return float(torch.cat([similarity.mse(one, other) for one, other in both]).mean())

    @property
    def _known_mean(self) -> Tensor | None:
        """(d,) the mean record that an attacker has before they look at rows of their own: that of public data, or what
        records that were mixed show of it; None where there is none."""
        if encoders(self.view.releases):
            try:
                return prior_of(self.view).mean
            except ArgumentError:  # what the attacker knows does not vary
                return None
        if self.view.public is None:
            return None
        return torch.stack([block.sum(0) for block in blocks(self.view.public)]).sum(0) / len(self.view.public)

    @cached_property
    def clipped(self) -> bool:
        """Whether any of these records was made shorter on its way into a release."""
        parts = torch.split(self.pixels, max(1, _BLOCK_VALUES // max(1, self.pixels[0].numel())))
        return any(_clips(release, part) for release in self.view.releases for part in parts)


def _clips(release: Release, pixels: Tensor) -> bool:
    entered = torch.linalg.vector_norm(release.encoder.prepare(pixels), dim=1)
    whole = torch.linalg.vector_norm(pixels.flatten(1).double() - release.encoder.restore(torch.zeros(1)), dim=1)
    return bool((entered < whole * (1 - 1e-9)).any())
