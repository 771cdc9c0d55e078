"""Who is mixed with whom in a batch, drawn for several batches at once: a small draw, and its way to a GPU, cost as
much as many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.core.device_random import DeviceStream
from mixveil.core.randomness import this_process

_BATCHES, _ROWS = 64, 1 << 15  # at most, drawn at once


class Mixing(NamedTuple):
    """Of one batch, on its device.

    images: (k, n) those of each row: itself, others of the batch, then covers.
    weight: (k, n, 1) float32.
    share: (k − 1, n, 1) what the image before the last takes of both, the one before of these, and so on to the row
        itself.
    """

    images: Tensor
    weight: Tensor
    share: Tensor


@dataclass
class _Drawn:
    """Batches that are drawn and not yet used."""

    rows: int
    device: torch.device
    process: tuple[int, int]
    index: Tensor
    numbers: Tensor
    used: int = 0


class MixingDraws:
    """k: images of a row; c1: the largest weight; private: how many are of the batch; least: what the weights of these
    sum to at least; covers: how many there are."""

    def __init__(self, draws: DeviceStream, k: int, c1: float, private: int, least: float, covers: int) -> None:
        self._draws, self._covers, self._k, self.private = draws, covers, k, private
        self._bounds = (k, c1, private, least)
        self._drawn: _Drawn | None = None

    def restart(self) -> None:
        """Forget what was drawn ahead."""
        self._drawn = None

    def batch(self, n: int, device: torch.device) -> Mixing:
        """The next batch of n rows. The first draw is of one batch, later ones of twice as many as the last."""
        drawn = self._drawn
        known = drawn is not None and (drawn.rows, drawn.device, drawn.process) == (n, device, this_process())
        if drawn is None or not known:
            drawn = self._ahead(1, n, device)
        elif drawn.used == len(drawn.index):
            drawn = self._ahead(max(1, min(2 * drawn.used, _BATCHES, _ROWS // n)), n, device)
        self._drawn = drawn
        index, numbers = drawn.index[drawn.used], drawn.numbers[drawn.used]
        drawn.used += 1
        return Mixing(index, numbers[: self._k], numbers[self._k :])

    def _ahead(self, batches: int, n: int, device: torch.device) -> _Drawn:
        """Nothing is repeated in another process: there, all is drawn again."""
        weight = self._draws.bounded_weights(batches * n, *self._bounds).view(batches, n, self._k)
        backwards = weight.flip(2)
        share = (backwards / backwards.cumsum(2))[:, :, 1:]
        numbers = torch.cat([weight, share], dim=2).movedim(2, 1).contiguous()[..., None]
        own = torch.arange(n)
        partners = self.private - 1
        found = []
        for _ in range(batches):
            found += [own, *(self._draws.permutation(n) for _ in range(partners))]
            found += [self._draws.below(self._covers, n) for _ in range(self._k - self.private)]
        index = torch.stack(found).view(batches, self._k, n)
        here = (part.to(device, non_blocking=True) for part in (index, numbers))
        return _Drawn(n, device, this_process(), next(here), next(here))
