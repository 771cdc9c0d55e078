"""What an audit says of each attack: whether it ran, and its figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Whose = Literal["record", "unit"]
"""Of whom a figure or a promise speaks: of single records, or of units, all rows of a person together."""


@dataclass(frozen=True)
class Row:
    """One figure of one attack. worst: of the record for which it is most revealing; ceiling: the most that theory
    permits any attacker of this kind, and whether it was beaten; interval: 95 %, for shares, as if candidates
    were independent: they share the rows, so it is too narrow; of: whom it speaks of."""

    attack: str
    metric: str
    mean: float
    std: float | None
    worst: float | None
    know_nothing: float | None
    ceiling: float | None
    interval: tuple[float, float] | None = None
    beaten: bool = False
    of: Whose = "record"


@dataclass(frozen=True)
class Promised:
    """What is promised of membership. mu: of all releases together; tpr: the most members that any attack finds at
    `fpr` false alarms, by that μ."""

    of: Whose
    mu: float
    fpr: float
    tpr: float


def named(metric: str, of: str, unit: str | None) -> str:
    """A figure's name. In an audit of units what is found of members says whether it is of units or of single images:
    they have different ceilings. unit: what a unit is called; None where nothing is promised to units.

    >>> named("auc", "unit", "patient"), named("auc", "record", "patient"), named("mse", "record", "patient")
    ('auc, of a patient', 'auc, of a single image', 'mse')
    """
    if unit is None or not metric.startswith(("auc", "tpr")):
        return metric
    return f"{metric}, of a {unit if of == 'unit' else 'single image'}"


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
