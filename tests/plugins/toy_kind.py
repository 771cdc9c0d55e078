"""A kind of payload that the package does not know: noisy counts of bins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mixveil.core.errors import ShapeError
from mixveil.core.types import Cost, Guarantee
from mixveil.encoders.noisy import gdp_conditions
from mixveil.releases.envelope import Envelope, File
from mixveil.releases.kinds.settings import PayloadSettings


@dataclass(frozen=True)
class Histogram(PayloadSettings):
    """Noisy counts of bins: replacing a record moves two of them by one, so that μ = √2/σ."""

    name: ClassVar[str] = "toy-histogram"
    bins: int
    sigma: float

    def claims(self) -> Mapping[str, Guarantee]:
        mu = 2**0.5 / self.sigma
        return {"gdp": Guarantee("gdp", mu, mu, gdp_conditions(1))}

    def cost(self) -> Cost:
        mu = 2**0.5 / self.sigma
        return Cost(mu, mu, 1.0)

    def file_bytes(self, file: File, envelope: Envelope) -> int:
        return 4 * self.bins

    def checked(self, where: str, tensors: Mapping[str, Tensor], file: File, envelope: Envelope) -> Tensor:
        if set(tensors) != {"counts"} or tensors["counts"].shape != (self.bins,):
            raise ShapeError(f"{where}: not {self.bins} counts")
        return tensors["counts"]
