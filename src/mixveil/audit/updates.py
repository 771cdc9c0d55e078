"""The audit of an update: every attack on updates, measured against the rows that the party trained on.

Updates carry no accounted noise and promise nothing, so there is no ceiling. Attacks that fail on an update without a
defence are broken, and that they find nothing here shows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from mixveil.attacks.shared.training import NO_CACHE, TrainingCache
from mixveil.audit import updates_verdict
from mixveil.audit.auditing import chosen, limits_of, run_all, strangers, unpromised
from mixveil.audit.course import Course, Step
from mixveil.audit.found import Audit
from mixveil.audit.ground_truth import GroundTruth
from mixveil.audit.judge import Judge
from mixveil.audit.measuring import Measure
from mixveil.audit.metrics.order import in_order
from mixveil.audit.truth import ranged
from mixveil.core.errors import ArgumentError, MismatchError, WrongTruthError
from mixveil.core.randomness import Stream
from mixveil.core.types import Batch, Dataset, Release, Rows, View
from mixveil.core.watching import Moment, Observe, Warn, unheard, unobserved
from mixveil.core.wording.notes import Note, note
from mixveil.features.lpips import Lpips
from mixveil.features.split.shapes import shapes
from mixveil.features.stacked.network import Stacked
from mixveil.features.stacked.party import sent_back
from mixveil.releases.kinds.updates import AFTER, BEFORE, UpdateSettings
from mixveil.releases.updates import settings_of, weights_of

_ROUNDING = 1e-2
"""How far weights may be off that another machine trained, as a share of the way that they went."""

_FLOAT = 1e-6  # the same as a share of the weights themselves: float32
_HARDLY = 10  # times that: weights that went less far show hardly which rows they are of

_PLAIN = ("fedavg", "fedprox")
"""Methods without a defence: their updates are computed again."""


@dataclass(frozen=True)
class UpdateTruth(GroundTruth):
    """The truth about an update of n rows. Guesses at them come in any order."""

    @cached_property
    def n(self) -> int:
        return len(self.records)

    def nearer(self, images: Tensor) -> Tensor:
        """Guesses (m, …), each where it is nearest: one-to-one, with the least error in sum."""
        return in_order(self.pixels, self.clamped(images), (self.records.low + self.records.high) / 2)


def audit(
    releases: Sequence[Release],
    truth: Dataset,
    *,
    public: Rows | None = None,
    names: Sequence[str] | None = None,
    profile: str = "quick",
    stream: Stream,
    watch: Observe = unobserved,
    tell: Warn = unheard,
    perceptual: Sequence[Lpips] = (),
    cache: TrainingCache = NO_CACHE,
) -> Audit:
    """Attack the update that a party computed from `truth`, in every way that is known here. Attackers who look for
    images know the labels, as Fed-AugMix's paper has it; those who look for labels do not.

    Args:
        releases: One update.
        truth: The rows that the party trained on, in their order.
        public, names, stream, perceptual: As for audits of other kinds.
    """
    limits, asked = limits_of(profile), chosen("updates", names, cache)
    course = Course([Step(attack.name, 1.0) for attack in asked], watch)
    watch(Moment("updates", 0.0))
    unsure = check_truth(releases, truth)
    truth = ranged(truth)
    _, overlap = strangers(truth, public)
    labels = truth.take(torch.arange(len(truth))).y.argmax(1)
    view = View(tuple(releases), public=public, labels=labels)
    known = UpdateTruth(view, truth, None, len(truth))
    measured = Measure(known, limits.perceives(perceptual))
    judge = Judge(known, measured, units=note("no-units-promised"), pairs=limits.pairs, cache=cache, stream=stream)
    ran = run_all(judge, asked, names is not None or limits.trains, course, tell)
    found = unpromised(known, measured, truth, torch.arange(len(truth)), ran)
    warnings = (*updates_verdict.warnings(found), *unsure, *overlap)
    return replace(found, warnings=warnings, verdict=tuple(updates_verdict.verdict(found, len(warnings))))


def check_truth(releases: Sequence[Release], truth: Dataset) -> list[Note]:
    """Refuse data that an update was not computed from: an audit of other data would say that all is well. A plain
    update is computed again. Returns that another cannot be."""
    if len(releases) != 1:
        raise ArgumentError(f"releases: updates are audited one by one, got {len(releases)}")
    (release,) = releases
    settings = settings_of(release)
    if settings.layers is None and len(settings.shape) == 1 < len(truth.shape):
        raise MismatchError(
            f"release {release.id} was trained on features of {settings.shape[0]} values, and no attack here works on "
            f"such updates: nothing can be said of it"
        )
    rows = len(truth) if settings.training is None else settings.training.rows
    if rows != len(truth) or settings.shape != truth.shape or release.classes != truth.classes:
        raise WrongTruthError(
            f"release {release.id} was made of {rows} rows of {settings.shape} in {len(release.classes)} classes, the "
            f"truth has {len(truth)} of {truth.shape} in {len(truth.classes)}"
        )
    if math.isfinite(truth.high - truth.low) and (settings.low, settings.high) != (truth.low, truth.high):
        raise WrongTruthError(  # attackers would look in another range than the rows are in
            f"release {release.id} says that values are from {settings.low:g} to {settings.high:g}, and those of the "
            f"truth are from {truth.low:g} to {truth.high:g}"
        )
    unsure = [note("update-not-recomputed", release=release.id[:8], method=settings.method)]
    if not _can_be_repeated(release, settings):
        return unsure
    if not _repeats(release, settings, truth):
        raise WrongTruthError(
            f"release {release.id} was not made of these data: by {settings.method}, these rows in this order "
            f"give other weights"
        )
    return unsure if _within_rounding(release) else []


def _can_be_repeated(release: Release, settings: UpdateSettings) -> bool:
    """Whether the same rows always give this update."""
    training, net = settings.training, settings.network()
    if training is None or net is None or settings.method not in _PLAIN:
        return False
    if training.shuffled or training.augmix is not None or training.optimiser != "sgd" or training.weight_decay:
        return False
    if shapes(net, settings.shape)[-1] != (len(release.classes),):
        raise ArgumentError(f"the network of release {release.id[:8]} does not tell its {len(release.classes)} classes")
    try:
        Stacked(net)
    except ArgumentError:  # batch normalisation, for one
        return False
    return True


def _within_rounding(release: Release) -> bool:
    """Whether the weights went so short a way that any rows would seem to give it."""
    before, after = weights_of(release, BEFORE), weights_of(release, AFTER)
    start, end = (torch.cat([w[name].flatten().double() for name in before]) for w in (before, after))
    return bool(torch.linalg.vector_norm(end - start) <= _HARDLY * _FLOAT * torch.linalg.vector_norm(end))


def _repeats(release: Release, settings: UpdateSettings, truth: Dataset) -> bool:
    """Whether training on these rows gives the weights after, up to rounding."""
    before, after, net = weights_of(release, BEFORE), weights_of(release, AFTER), settings.network()
    if net is None or settings.training is None:
        return False
    x, y = truth.take(torch.arange(len(truth)))
    again = sent_back(net, before, Batch(x.float(), y.float()), settings.training)
    one, other, start = (torch.cat([w[name].flatten().double() for name in before]) for w in (after, again, before))
    off, way = torch.linalg.vector_norm(one - other), torch.linalg.vector_norm(one - start)
    return bool(off <= _ROUNDING * way + _FLOAT * torch.linalg.vector_norm(one))
