"""What an audit says of each attack: whether it ran, and its figures."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Row:
    """One figure of one attack. worst: of the record for which it is most revealing; ceiling: the most that theory
    permits any attacker of this kind, and whether it was beaten; interval: 95 %, for shares, as if candidates
    were independent: they share the rows, so it is too narrow."""

    attack: str
    metric: str
    mean: float
    std: float | None
    worst: float | None
    know_nothing: float | None
    ceiling: float | None
    interval: tuple[float, float] | None = None
    beaten: bool = False


@dataclass(frozen=True)
class Ran:
    """How an attack fared: `ran`, `skipped` for want of something, or `broken`: it fails even without a defence."""

    attack: str
    threat: str
    status: str
    why: str = ""


def finite(value: Tensor) -> float:
    """For JSON: a perfect guess has an infinite SNR, shown as 999 dB."""
    return float(value.nan_to_num(nan=0.0, posinf=999.0, neginf=-999.0))
