"""No defence at all: the data as they are. Every attack must succeed here, or the attack is broken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mixveil.core.randomness import Stream
from mixveil.core.types import Trace
from mixveil.encoders.linear import unmixed
from mixveil.encoders.plain import NoNoise


@dataclass(frozen=True)
class Identity(NoNoise):
    name: ClassVar[str] = "identity"
    sources: ClassVar[int] = 1
    covers: ClassVar[int] = 0

    def plan(self, n: int, *, stream: Stream, units: Tensor | None = None) -> Trace:
        return unmixed(n)
