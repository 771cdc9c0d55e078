"""Know nothing: every record is guessed to be the mean. Whatever does not beat this learned nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mixveil.attacks.shared import model
from mixveil.core.randomness import Stream
from mixveil.core.types import Guess, View


@dataclass(frozen=True)
class KnowNothing:
    """The mean of public data, or else of the release."""

    name: ClassVar[str] = "prior"
    needs: ClassVar[frozenset[str]] = frozenset()
    threat: ClassVar[str] = "Knows what such images look like on average, and does not look at the release."
    trains: ClassVar[bool] = False
    least_releases: ClassVar[int] = 1

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        prior = model.prior_of(view)
        n = len(view.releases[0].payload)
        return Guess(images=prior.mean.view(view.releases[0].shape).expand(n, *view.releases[0].shape))
