"""Building blocks of the networks, for inference only: frozen, in plain torch, with the key names of the published
files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from torch import Tensor, nn


class Frozen(nn.Module, ABC):
    """A network in stages."""

    @abstractmethod
    def maps(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        """The map after each stage, by its name. Features are pooled from the last map."""


def conv(inside: int, outside: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)
