"""LPIPS in an audit: on how many records it is measured, and what is known of these before any attack is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.audit.figures import finite
from mixveil.audit.ground_truth import GroundTruth
from mixveil.features.lpips import Lpips

_LEAST = 8


class Look(NamedTuple):
    """One network on some records: their numbers `rows` (m,), LPIPS `apart` of guesses (m, …) in [0, 1] at them, and
    what guessing without a row gets, on average."""

    name: str
    rows: Tensor
    apart: Callable[[Tensor], Tensor]
    nothing: float


@dataclass
class Perceptual:
    """The LPIPS to measure. A network takes billions of operations an image, for every attack: so many records are
    measured as `work` operations allow, 8 at least and `most` at most, evenly spaced."""

    networks: Sequence[Lpips] = ()
    most: int = 200
    work: float = 4e10
    _looks: list[Look] | None = field(default=None, init=False, repr=False)

    def records(self, network: Lpips, shape: tuple[int, ...], rows: int) -> int:
        """On how many of these rows this network is asked."""
        return min(rows, self.most, max(_LEAST, int(self.work / network.work(shape))))

    def operations(self, shape: tuple[int, ...], rows: int) -> float:
        """Of one attack."""
        return sum(self.records(n, shape, rows) * n.work(shape) for n in self.networks) if _pictured(shape) else 0.0

    def looks(self, truth: GroundTruth) -> list[Look]:
        """Every network on its records; none where records are no pictures."""
        if self._looks is None:
            shape = tuple(truth.pixels.shape[1:])
            self._looks = [self._look(network, truth) for network in self.networks] if _pictured(shape) else []
        return self._looks

    def _look(self, network: Lpips, truth: GroundTruth) -> Look:
        count = self.records(network, tuple(truth.pixels.shape[1:]), truth.n)
        index = torch.linspace(0, truth.n - 1, count).long()
        apart = network.from_these(truth.scaled(truth.pixels[index]).clamp(0, 1))
        nothing = apart(truth.scaled(truth.know_nothing[index]).clamp(0, 1))
        return Look(network.name, index, apart, finite(nothing.mean()))


def _pictured(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] in (1, 3)
