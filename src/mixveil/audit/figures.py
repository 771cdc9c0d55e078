"""What an audit says of each attack: whether it ran, and its figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from mixveil.audit.metrics.catalogue import BY_CODE
from mixveil.core.types import AttackKind
from mixveil.core.wording.notes import Note, note
from mixveil.core.wording.sentences import WORDS

Subject = Literal["record", "unit"]
"""Of whom a figure or a promise speaks: of single records, or of units, all rows of a person together."""

Status = Literal["ran", "skipped", "broken"]
"""`skipped`: it lacks something. `broken`: it fails even without a defence, or otherwise cannot be measured."""


@dataclass(frozen=True)
class Figure:
    """One figure of one attack: mean, deviation and most revealing value over records; or the figure itself, as mean.

    Attributes:
        attack: Its name; with known records also how many of a hundred are known (`known-10`).
        metric: The code of the metric.
        know_nothing: The same for the mean image, or for a guess.
        ceiling: The most that theory permits any attacker of this kind; `beaten`: beyond chance.
        interval: 95 %, for shares and for what has no deviation over records, as if candidates were independent: they
            share the rows, so it is too narrow.
        known: The share of the records that the attacker has already.
        records: How many records it was measured on; None: all that were attacked.
    """

    attack: str
    kind: AttackKind
    metric: str
    mean: float
    std: float | None = None
    worst: float | None = None
    know_nothing: float | None = None
    ceiling: float | None = None
    interval: tuple[float, float] | None = None
    beaten: bool = False
    of: Subject = "record"
    known: float | None = None
    records: int | None = None


@dataclass(frozen=True)
class AttackRun:
    """What became of an attack, and why; where it ran, `why` is a remark. threat: the code of its threat model."""

    attack: str
    kind: AttackKind
    of: Subject
    trains: bool
    threat: str
    status: Status
    why: Note | None = None

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "why": None if self.why is None else self.why.plain()}


def caption(metric: str, of: str, at: float | None, unit: str | None) -> Note:
    """What a figure is called. In an audit of units the figures of members say whether they are of units or of single
    images: they have different ceilings. at: what knowing nothing gets; unit: what a unit is called, None where nothing
    is promised to units.

    >>> str(caption("auc", "unit", 0.5, "patient")), str(caption("auc", "record", 0.5, "patient"))
    ('auc, of a patient', 'auc, of a single image')
    >>> str(caption("mse", "record", 0.1, "patient")), str(caption("tpr-above-bound", "record", 0.015, None))
    ('mse', 'tpr at 1.5% fpr or less')
    """
    plain = note(f"metric-{metric}", at=at)
    if unit is None or metric not in BY_CODE or not BY_CODE[metric].members:
        return plain
    if of == "unit":
        return note("figure-of-unit", figure=plain, unit=unit)
    return note("figure-of-single-image", figure=plain)


def attack_title(name: str) -> str:
    """What an attack is called in tables.

    >>> attack_title("known-10"), attack_title("lmmse")
    ('known 10 %', 'lmmse')
    """
    return WORDS.get(f"attack-{name}", name)


def promise_caption(name: str, of: str, unit: str | None) -> Note:
    """What a guarantee is called."""
    single = "-single" if unit is not None and name == "variance-left-unknown" else ""
    whom = (unit or "unit") if of == "unit" else "record"
    return note(f"promise-{name.replace('_', '-')}{single}", whom=whom)


def finite(value: Tensor) -> float:
    """For JSON: a perfect guess has an infinite SNR, shown as 999 dB."""
    return float(value.nan_to_num(nan=0.0, posinf=999.0, neginf=-999.0))
