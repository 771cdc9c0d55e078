"""What an audit of records says before it begins, and as soon as an attack has ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from mixveil.audit.asking import unable
from mixveil.audit.course import Course
from mixveil.audit.figures import AttackRun, Figure, attack_title, caption
from mixveil.audit.metrics.catalogue import BY_CODE
from mixveil.audit.perceptual import Perceptual
from mixveil.audit.work import Counted, check_memory, speed
from mixveil.core.types import Attack, Dataset, KnownRecords, Rows, Sizes, Units, View
from mixveil.core.watching import Observe, Warn
from mixveil.core.wording.notes import Note, note
from mixveil.theory.moments import DENSE_LIMIT

_WAVES = 150  # a cosine transform takes as long, as measured on images of 32 to 224 pixels a side
_REACHED = 0.45  # of the speed of a product of matrices: an audit of 600 × 12,288 values on two idle cores


class Limits(Protocol):
    """What it needs of a profile."""

    @property
    def pairs(self) -> tuple[int, int]: ...
    @property
    def public(self) -> int: ...


def begun(
    view: View,
    truth: Dataset,
    others: Rows | Tensor | None,
    asked: Sequence[Attack],
    trains: bool,
    rows: int,
    limits: Limits,
    looking: Perceptual,
    *,
    tell: Warn,
    watch: Observe,
) -> tuple[Counted, Course]:
    """Counts the work of an audit; refuses what the memory does not hold; tells what attackers lack who have no public
    data, and what the audit takes. rows: that are attacked."""
    values = math.prod(truth.shape)
    public = 0 if view.public is None else min(len(view.public), max(2, limits.public // values))
    candidates = rows + (0 if others is None else min(len(others), max(rows, 100)))
    sizes = Sizes(rows, values, len(view.releases), _products(truth.shape, public), candidates)
    looked, own = looking.operations(tuple(truth.shape), rows), _products(truth.shape, rows)
    counted = Counted(sizes, own, len(view.releases[0].payload), len(truth.classes), public, limits.pairs, looked)
    check_memory(counted.memory, f"an audit of {rows:,} of {counted.whole:,} records of {values:,} values")
    skipped = will_not_run(view, asked, trains, others)
    course = Course(counted.steps(asked, skipped), watch)
    if public == 0:
        tell(note("audit-without-public"))
    tell(takes(counted, course, [attack for attack in asked if attack.name not in skipped]))
    return counted, course


def _products(shape: Sequence[int], rows: int) -> int:
    """How many numbers each coordinate is the sum of: in a basis that so many rows of this shape show, or of waves."""
    values = math.prod(shape)
    if values <= DENSE_LIMIT and rows > values:
        return values
    return _WAVES if len(shape) == 3 else min(values, rows, DENSE_LIMIT)


def will_not_run(view: View, asked: Sequence[Attack], trains: bool, others: Rows | Tensor | None) -> set[str]:
    """The names of attacks that cannot run on such a view, as far as that is seen before the records are."""
    none = torch.empty(0, dtype=torch.int64)
    nothing = torch.empty(0, *view.releases[0].shape)
    known = KnownRecords(none, nothing)
    offered = replace(view, candidates=nothing, candidate_labels=none, known=known, units=Units(none, none, none))
    found = set()
    for attack in asked:
        stranger = attack.kind == "membership" and others is None
        if stranger or (attack.trains and not trains) or unable(attack, offered):
            found.add(attack.name)
    return found


def takes(counted: Counted, course: Course, attacks: Sequence[Attack]) -> Note:
    """How long an audit takes on this machine as it is now, and how much memory; both are estimates."""
    seconds, memory = course.total / (_REACHED * speed()), counted.memory / 1e9
    short = seconds < 90
    said = note("about-seconds", about=max(10, 10 * round(seconds / 10)))
    said = said if short else note("about-minutes", about=max(2, round(seconds / 60)))
    code = "audit-takes-beside-networks" if any(attack.trains for attack in attacks) else "audit-takes"
    return note(code, rows=counted.sizes.rows, attacks=len(attacks), time=said, memory=memory)


def soon(run: AttackRun, figures: Sequence[Figure]) -> list[Note]:
    """What to tell of an attack when it has ended: its main figures; or that it fails without a defence."""
    if run.status == "broken":
        return [note("attack-broken", attack=run.attack, why=run.why)]
    return [
        note(
            "attack-found",
            attack=attack_title(figure.attack),
            figure=caption(figure.metric, figure.of, figure.know_nothing, None),
            mean=figure.mean,
            nothing=math.nan if figure.know_nothing is None else figure.know_nothing,
        )
        for figure in figures
        if BY_CODE[figure.metric].main
    ]
