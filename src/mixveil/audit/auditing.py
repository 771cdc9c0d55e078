"""The audit of releases of records: every attack that the view allows, measured against the truth and set beside what
theory permits. Audits of other kinds take the profiles and the choice of attacks from here.

The attacks see a View; only the judge sees the truth. The result shows private data and stays with the owner.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import torch
from torch import Tensor

from mixveil.attacks.catalogue import attacks as known_attacks
from mixveil.attacks.shared.prior import spaced
from mixveil.attacks.shared.training import NO_CACHE, TrainingCache, with_cache
from mixveil.audit import verdict
from mixveil.audit.answer import answer
from mixveil.audit.ceilings import membership_bounds, unit_rows
from mixveil.audit.course import Course
from mixveil.audit.covers import covered, with_covers
from mixveil.audit.estimate import begun, soon
from mixveil.audit.figures import AttackRun
from mixveil.audit.found import Audit
from mixveil.audit.ground_truth import GroundTruth
from mixveil.audit.groups import LEAST_STRANGERS, UnitView
from mixveil.audit.guarantees_found import by_value, label_faults, noise_faults, promises, unit_faults
from mixveil.audit.judge import Judge, Stage, told
from mixveil.audit.measuring import Measure
from mixveil.audit.perceptual import Perceptual
from mixveil.audit.public import held, with_some_public
from mixveil.audit.sample import sample, unit_sample
from mixveil.audit.thumbnails import SmallImages
from mixveil.audit.ties import Known
from mixveil.audit.truth import check_truth, in_record_order, inspect, ranged, rows_first, unsure
from mixveil.audit.write_guard import Candidates
from mixveil.core.errors import ArgumentError
from mixveil.core.memory import give_back
from mixveil.core.randomness import Stream
from mixveil.core.types import Attack, Batch, Dataset, Rows, View
from mixveil.core.watching import Observe, Warn, unheard, unobserved
from mixveil.core.wording.notes import Note, note
from mixveil.data import privacy_units
from mixveil.data.row_views import InMemoryRows, Subset
from mixveil.encoders.calibration import PreparedRows
from mixveil.features.lpips import Lpips
from mixveil.theory.moments import Moments, moments

_PAYLOAD = "records"
_LOOKED = 256  # of the others that are read at a time, at least, while strangers are looked for


@dataclass(frozen=True)
class Profile:
    """How much an audit attacks: at most so many rows, and values in all of them. pairs: how many rows the attacks on
    pairs are asked about, and among how many candidates; perceptual: how many records LPIPS looks at, at most, and
    looked: by how many operations of each network for an attack; trains: whether attacks that train a network run
    unasked; inverted: at most so many representations, for each goes through the network, there and back, at hundreds
    of steps; public: at most so many values of public rows are held, and known to attackers."""

    rows: int
    values: int
    pairs: tuple[int, int]
    perceptual: int = 200
    looked: float = 4e10
    trains: bool = False
    inverted: int = 100
    public: int = 1 << 26

    def perceives(self, networks: Sequence[Lpips]) -> Perceptual:
        """How these networks are asked."""
        return Perceptual(networks, self.perceptual, self.looked)


PROFILES = {
    "quick": Profile(2000, 1 << 27, (20, 60)),
    "full": Profile(5000, 1 << 28, (100, 200), perceptual=2000, looked=2e12, trains=True, inverted=500, public=1 << 32),
}


def unpromised(
    known: GroundTruth, measured: Measure, truth: Dataset, numbers: Tensor, ran: tuple[AttackRun, ...]
) -> Audit:
    """What was found of releases that promise nothing, without what is said of it. numbers: (n,) of the rows that were
    attacked."""
    return Audit(
        view=known.view,
        pixels=known.pixels,
        low=truth.low,
        high=truth.high,
        numbers=numbers,
        of=known.rows,
        unit=None,
        promised=(),
        figures=tuple(measured.figures),
        attacks=ran,
        promises=(),
        spread=float(known.scaled(known.pixels).var(0, correction=0).mean()),
        moved=None,
        images=measured.images,
        errors=measured.errors,
    )


def limits_of(profile: str) -> Profile:
    """The profile of this name."""
    if profile not in PROFILES:
        raise ArgumentError(f"profile must be one of {', '.join(PROFILES)}, got {profile!r}")
    return PROFILES[profile]


def audit(
    view: View,
    truth: Dataset,
    *,
    others: Rows | Tensor | None = None,
    names: Sequence[str] | None = None,
    profile: str = "quick",
    stream: Stream,
    watch: Observe = unobserved,
    tell: Warn = unheard,
    perceptual: Sequence[Lpips] = (),
    pictures: Dataset | None = None,
    cache: TrainingCache = NO_CACHE,
    covers: Dataset | None = None,
    unit: str = "unit",
) -> Audit:
    """Attack the releases of `truth` in every way that the view allows.

    Args:
        others: Images that are not in the releases, for membership.
        names: The attacks to run; else all, but those that train a network only where the profile says so.
        stream: Of the attacks' own draws.
        watch, tell: Are told how far it is; and what it lacks and takes before it begins, and what attacks find.
        perceptual: The LPIPS to measure, of images.
        pictures: The images that the records are features of.
        covers: The public images that the releases mix in, where they do.
        unit: What a unit of several rows is called, where the releases promise something to such.
    """
    limits, asked = limits_of(profile), chosen(_PAYLOAD, names, cache)
    check_truth(view, truth)
    trains, looking = names is not None or limits.trains, limits.perceives(perceptual)
    most = most_rows(truth, limits)
    rows = min(most, len(view.releases[0].payload))
    counted, course = begun(view, truth, others, asked, trains, rows, limits, looking, tell=tell, watch=watch)
    with course.step("records"):
        truth = ranged(held(truth))
        view, truth = rows_first(in_record_order(view), truth)
        view, mixed = with_covers(view, truth, covers)
        view, of_public = with_some_public(view, limits.public)
        inspected = inspect(view, mixed)
        strange, overlap = strangers(truth, view.public, others, max(rows, LEAST_STRANGERS))
        known, spread, numbers = _sampled(view, truth, mixed, strange, most, pictures, stream)
        units = _units(view, truth, mixed, known.view, strange, most, stream)

    def did(attack: Attack, stage: Stage) -> None:
        course.did(getattr(counted.stages(attack), stage), attack.name)
        give_back()  # what each stage leaves lies between what is used, and grows

    with course.step("public"):
        _ = known.know_nothing  # what records are like, by public data: attacks take the same
        measured = Measure(known, looking)
        judge = Judge(
            known,
            measured,
            units=units,
            pairs=limits.pairs,
            cache=cache,
            stream=stream,
            did=did,
        )
    ran = run_all(judge, asked, trains, course, tell)
    with course.step("noise"):
        faults = noise_faults(known.view, known.records, inspected) + label_faults(view, inspected, known.rows)
    found = Audit(
        view=known.view,
        pixels=known.pixels,
        low=truth.low,
        high=truth.high,
        numbers=numbers,
        of=known.rows,
        unit=unit if unit_rows(view.releases) > 1 else None,
        promised=membership_bounds(view.releases),
        figures=tuple(measured.figures),
        attacks=ran,
        promises=tuple(promises(view, inspected, spread, privacy_units.numbered(truth))),
        spread=spread.energy / len(spread.mean) / known.span**2,
        moved=inspected[0].moved if view.traces is not None and by_value(view.releases[0]) else None,
        images=measured.images,
        errors=measured.errors,
        best_guesses=tuple(measured.best.found),
        curves=measured.curves,
        pictures={} if known.pictures is None else {"original": known.pictures, **measured.pictures},
    )
    faults += unit_faults(view, truth)
    warnings = (*verdict.warnings(found), *faults, *unsure(view, inspected), *overlap)
    verdicts = (*verdict.verdict(found, len(warnings)), *of_public)
    return replace(found, warnings=warnings, verdict=(answer(found, warnings, verdicts), *verdicts))


def _sampled(
    view: View,
    truth: Dataset,
    mixed: Dataset,
    others: Subset,
    most: int,
    pictures: Dataset | None,
    stream: Stream,
) -> tuple[GroundTruth, Moments, Tensor]:
    """What is attacked, with candidates; the moments of all records; and (n,) the numbers of its rows in the releases.
    mixed: all that rows are made of, the records first."""
    seen, records, numbers = sample(view, mixed, most, stream.fork("sample"))
    asked = _candidates(Subset(records, torch.arange(len(numbers))), others)
    seen = replace(seen, candidates=asked.x, candidate_labels=asked.labels)
    spread = moments(PreparedRows(truth, view.releases[0].encoder.prepare), stream=stream.fork("moments"))
    originals = None if pictures is None else SmallImages(pictures).take(numbers).x
    among = covered(view, len(truth))
    among = None if among is None else among[numbers]
    return GroundTruth(seen, records, spread, len(view.releases[0].payload), originals, among, asked), spread, numbers


def _candidates(own: Subset, others: Subset) -> Candidates:
    """The rows' own records, and then as many strangers; of few rows as many strangers as membership needs."""
    most = max(len(own), LEAST_STRANGERS)
    return Candidates.of(own, Subset(others.rows, others.index[:most]))


def most_rows(truth: Dataset, limits: Profile) -> int:
    """Of larger releases this many rows are attacked."""
    return max(2, min(limits.rows, limits.values // math.prod(truth.shape)))


def chosen(payload: str, names: Sequence[str] | None, cache: TrainingCache) -> list[Attack]:
    """The attacks on this kind of payload that have these names, or all of them. Those that train have the cache."""
    known = {name: kind for name, kind in known_attacks().items() if kind.payload == payload}
    for name in names or ():
        if name not in known:
            close = get_close_matches(name, known) if isinstance(name, str) else []
            meant = f"Did you mean {' or '.join(close)}? " if close else ""
            raise ArgumentError(
                f"there is no attack {name!r:.60} on {payload}. {meant}There are {', '.join(known)}. Attacks of your "
                f"own are registered and run from Python"
            )
    return [with_cache(kind(), cache) for name, kind in known.items() if names is None or name in names]


def run_all(
    judge: Judge, attacks: Sequence[Attack], trains: bool, course: Course, tell: Warn = unheard
) -> tuple[AttackRun, ...]:
    """trains: whether attacks that train a network run too."""
    return tuple(_run(judge, attack, trains, course, tell) for attack in attacks)


def _run(judge: Judge, attack: Attack, trains: bool, course: Course, tell: Warn) -> AttackRun:
    if attack.trains and not trains and judge.can(attack):
        return told(attack, "skipped", note("attack-trains", attack=attack.name))
    before = len(judge.measure.figures)
    with course.step(attack.name):
        run = judge.run(attack)
    give_back()
    for said in soon(run, judge.measure.figures[before:]):
        tell(said)
    return run


def _units(
    view: View, truth: Dataset, mixed: Dataset, seen: View, others: Subset, most: int, stream: Stream
) -> UnitView | Note:
    """What attacks on whole units see of the releases, or why there is nothing to see. mixed: all that rows are made
    of; seen: what other attacks see."""
    whose = privacy_units.numbered(truth)
    if unit_rows(view.releases) == 1:
        return note("no-units-promised")
    if whose is None:
        return note("units-not-stated")
    if view.traces is None:
        return note("attack-needs", fields="traces")
    if any(release.screened is not None for release in view.releases):
        return note("units-incomplete")
    part, whose = unit_sample(view, mixed, whose, most, stream.fork("units"))
    if len(part.numbers) == len(view.releases[0].payload):
        return UnitView(seen, truth, whose)
    own = Subset(part.records, torch.arange(len(part.numbers)))
    asked = _candidates(own, others)
    return UnitView(replace(part.view, candidates=asked.x), own, whose, asked)


def strangers(
    truth: Dataset, public: Rows | None, others: Rows | Tensor | None = None, most: int = 0
) -> tuple[Subset, list[Note]]:
    """So many of the others that are really in no release, evenly spread over them if that is enough; and what to say
    if public data hold private records."""
    own, notes = Known(truth), []
    if copies := own.copies:
        notes.append(note("records-copied", copies=copies))
    if public is not None and (shared := sum(own.among(public))):
        notes.append(note("public-among-private", images=shared))
    if others is None:
        return Subset(truth, torch.empty(0, dtype=torch.int64)), notes
    rows = InMemoryRows(Batch(others, torch.zeros(len(others), 1))) if isinstance(others, Tensor) else others
    found, looked = torch.empty(0, dtype=torch.int64), 0
    order = _spaced_first(len(rows), most)
    while len(found) < most and looked < len(order):
        index = order[looked : looked + max(most - len(found), _LOOKED)]
        found = torch.cat([found, index[~torch.tensor(own.among(Subset(rows, index)), dtype=torch.bool)]])
        looked += len(index)
    if looked > len(found):
        notes.append(note("strangers-among-private", images=looked - len(found)))
    return Subset(rows, found[:most].sort().values), notes


def _spaced_first(count: int, most: int) -> Tensor:
    """All row numbers, first so many that are evenly spread over them."""
    if count == 0:
        return torch.empty(0, dtype=torch.int64)
    first = spaced(count, most)
    later = torch.ones(count, dtype=torch.bool)
    later[first] = False
    return torch.cat([first, later.nonzero()[:, 0]])
