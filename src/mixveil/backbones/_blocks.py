"""What the networks are built of. For inference only: frozen, in plain torch, with the published files' key names."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn


class Frozen(nn.Module):
    """A network in stages. `maps` gives the map after each of them, by name, the last one first pooled for features."""

    def maps(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        raise NotImplementedError


def conv(inside: int, outside: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)
