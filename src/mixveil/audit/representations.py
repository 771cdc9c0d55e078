"""The audit of releases of representations: every attack that inverts them, measured against the images.

Representations carry no noise and promise nothing, so there is no ceiling, and little that attacks get shows little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mixveil.attacks.shared.training import NO_CACHE, TrainingCache
from mixveil.audit import representations_verdict
from mixveil.audit.auditing import Profile, chosen, limits_of, most_rows, run_all, strangers, unpromised
from mixveil.audit.course import Course, Step
from mixveil.audit.found import Audit
from mixveil.audit.ground_truth import GroundTruth
from mixveil.audit.judge import Judge
from mixveil.audit.measuring import Measure
from mixveil.audit.sample import sample
from mixveil.audit.truth import ranged
from mixveil.core.errors import ArgumentError, MismatchError, WrongTruthError
from mixveil.core.randomness import Stream
from mixveil.core.types import Batch, Dataset, Release, Rows, View
from mixveil.core.watching import Moment, Observe, Warn, unheard, unobserved
from mixveil.core.wording.notes import Note, note
from mixveil.features.lpips import Lpips
from mixveil.features.split.half import Half
from mixveil.releases.kinds.representations import RepresentationSettings
from mixveil.releases.representations import check_takes, represented

_ROUNDING = 3e-3
"""How far a representation that another device computed may be off, as a share of the representations' length: GPUs
convolve numbers of ten bits."""

_OFF = 0.2
"""How far all values of a representation may be off in the mean, each as a share of its own size: large values hide
wrong small ones from the length. More than above: near zero, rounding is a large share of a value."""

_ALIKE = 2  # times that: representations that differ by less are hardly told from one another
_BLOCK = 1024


def audit(
    releases: Sequence[Release],
    truth: Dataset,
    *,
    client: Half,
    public: Rows | None = None,
    names: Sequence[str] | None = None,
    profile: str = "quick",
    stream: Stream,
    watch: Observe = unobserved,
    tell: Warn = unheard,
    perceptual: Sequence[Lpips] = (),
    cache: TrainingCache = NO_CACHE,
) -> Audit:
    """Attack the representations of `truth` in every way that is known here.

    Args:
        client: The half that made them. Attackers have it.
        public: Images like the private ones that attackers hold.
        names: The attacks to run; else all, but those that train a network only where the profile says so.
        stream: Of the attacks' own draws.
        perceptual: The LPIPS to measure, of images.
    """
    limits, asked = limits_of(profile), chosen("representations", names, cache)
    check_client(releases, client)
    check_takes(client, truth)
    course = Course([Step(attack.name, 1.0) for attack in asked], watch)
    watch(Moment("representations", 0.0))
    unsure = check_truth(releases, truth, client)
    truth = ranged(truth)
    _, overlap = strangers(truth, public)
    view = View(tuple(releases), public=public, client=client)
    part, records, numbers = sample(view, truth, _most(truth, client, limits), stream.fork("sample"))
    known = GroundTruth(part, records, None, len(truth))
    measured = Measure(known, limits.perceives(perceptual))
    units = note("no-units-promised")
    judge = Judge(known, measured, units=units, pairs=limits.pairs, cache=cache, stream=stream)
    ran = run_all(judge, asked, names is not None or limits.trains, course, tell)
    found = unpromised(known, measured, truth, numbers, ran)
    warnings = (*representations_verdict.warnings(found), *unsure, *overlap)
    return replace(found, warnings=warnings, verdict=tuple(representations_verdict.verdict(found, len(warnings))))


def _most(truth: Dataset, client: Half, limits: Profile) -> int:
    """Of larger releases this many rows are attacked."""
    return min(limits.inverted, most_rows(truth, limits), max(2, limits.values // client.values))


def settings_of(release: Release) -> RepresentationSettings:
    settings = release.envelope.settings
    if not isinstance(settings, RepresentationSettings):
        raise MismatchError(f"release {release.id[:8]} holds {release.envelope.kind}, not representations")
    return settings


def check_client(releases: Sequence[Release], client: Half) -> None:
    """Refuse a half that did not make these representations."""
    for release in releases:
        stated = release.assets.get("client")
        if stated != client.digest or settings_of(release).shape != client.output:
            raise MismatchError(
                f"the client half with the digest {client.digest[:8]} did not make release {release.id[:8]}: give that "
                f"with {str(stated)[:8]}"
            )


def check_truth(releases: Sequence[Release], truth: Dataset, client: Half) -> list[Note]:
    """Refuse data that the releases were not made of: an audit of other data would say that all is well. All rows are
    computed again. Returns what representations cannot tell, where the half makes nearly the same of all images."""
    if len({release.id for release in releases}) != len(releases):
        raise ArgumentError("releases: one is given twice")
    for release in releases:
        if len(release.payload) != len(truth) or release.classes != truth.classes:
            raise WrongTruthError(
                f"release {release.id} was made of {len(release.payload)} images in {len(release.classes)} classes, "
                f"the truth has {len(truth)} in {len(truth.classes)}"
            )
    square, total = torch.zeros(2, client.values, dtype=torch.float64)
    sizes = {release.id: _sizes(release) for release in releases}
    apart: dict[str, list[Tensor]] = {release.id: [] for release in releases}
    for rows in torch.split(torch.arange(len(truth)), _BLOCK):
        x, y = represented(truth, client, rows, labelled=True)
        square, total = square + x.double().square().sum(0), total + x.double().sum(0)
        for release in releases:
            apart[release.id].append(_apart(release, rows, Batch(x, y), sizes[release.id]))
    n, square = len(truth), square / len(truth)
    most = torch.tensor([_ROUNDING * math.sqrt(float(square.sum())), _OFF], dtype=torch.float64)
    for release in releases:
        if wrong := int((~(torch.cat(apart[release.id]) <= most).all(1)).sum()):  # no number is wrong too
            raise WrongTruthError(
                f"release {release.id} was not made of these data: {wrong} of {n} rows are not what the client half "
                f"makes of these images"
            )
    variance = (square - (total / n).square()).clamp(min=0)
    shares = variance / torch.where(square > 0, square, 1.0)
    spread = torch.stack([variance.sum(), shares.mean()]).sqrt()
    told = bool((spread > _ALIKE * most).any())
    return [] if told else [note("representations-alike", release=r.id[:8]) for r in releases]


def _sizes(release: Release) -> Tensor:
    """(values,) the root of the mean square of each value that was sent."""
    rows = torch.split(torch.arange(len(release.payload)), _BLOCK)
    squares = [release.payload.take(part).x.double().square().sum(0) for part in rows]
    return torch.stack(squares).sum(0).div(len(release.payload)).sqrt()


def _apart(release: Release, rows: Tensor, made: Batch, sizes: Tensor) -> Tensor:
    """(m, 2) how far some rows are from what the half makes of their images: in length, and each value as a share of
    its size, no more than the whole, in the root of the mean square. Values that are 0 for all of them do not count.
    Their labels must be theirs, if any are."""
    seen: Batch = release.payload.take(rows)
    if settings_of(release).labelled and not torch.allclose(made.y, seen.y, atol=1e-6):
        raise WrongTruthError(f"release {release.id} was not made of these data: its labels are not theirs")
    off, some = (seen.x - made.x).double().abs(), (sizes > 0) & (made.x != 0).any(0)
    shares = (off[:, some] / sizes[some]).clamp(max=1).square().sum(1) / max(1, int(some.sum()))
    return torch.stack([torch.linalg.vector_norm(off, dim=1), shares.sqrt()], dim=1)
