"""The audit: every attack that the view allows, measured against the truth and set beside what theory permits.

The attacks see a View; only the judge sees the truth. The result shows private data and stays with the owner.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from mixveil.attacks.catalogue import attacks as known_attacks
from mixveil.attacks.shared.training import NOTHING_KEPT, Workshop
from mixveil.audit.figures import Promised, Ran, Row
from mixveil.audit.groups import UnitView
from mixveil.audit.guarantees_found import Promise, by_value, label_faults, noise_faults, promises, unit_faults
from mixveil.audit.images_behind_features import Portraits
from mixveil.audit.judge import NO_UNITS, Judge, unit_rows
from mixveil.audit.metrics import detection
from mixveil.audit.sample import sample, unit_sample
from mixveil.audit.truth import check_truth, in_record_order, inspect, ranged, rows_first, unsure
from mixveil.audit.verdict import TRAINS, spread_of, verdict_of, warnings_of
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import Attack, Batch, Dataset, Encoder, Rows, View
from mixveil.data import privacy_units
from mixveil.data.row_views import Subset
from mixveil.features.lpips import Lpips
from mixveil.theory.moments import blocks, moments

Watch = Callable[[str], None]


@dataclass(frozen=True)
class Profile:
    """How much an audit attacks. rows, values: at most so many rows, and values in all of them; pairs: how many rows
    the attacks on pairs are asked about, and among how many candidates; perceptual: how many records LPIPS looks at;
    trains: whether attacks that train a network run unasked."""

    rows: int
    values: int
    pairs: tuple[int, int]
    perceptual: int = 200
    trains: bool = False


PROFILES = {
    "quick": Profile(2000, 1 << 23, (20, 60)),
    "full": Profile(5000, 1 << 25, (100, 200), perceptual=2000, trains=True),
}


@dataclass(frozen=True)
class Audit:
    """view: what was attacked, of n rows; numbers: (n,) of those rows in the releases; pixels: (n, …) their own
    records; of: how many rows the releases have; unit: what is promised to units of several rows is promised to these
    (`patient`), None where it is to records; promised: of membership, by all releases together, to units first;
    portraits: the images behind features, `original` and as attacks guess them."""

    view: View = field(repr=False)
    pixels: Tensor = field(repr=False)
    low: float
    high: float
    numbers: Tensor = field(repr=False)
    of: int
    unit: str | None
    promised: tuple[Promised, ...]
    rows: tuple[Row, ...]
    attacks: tuple[Ran, ...]
    promises: tuple[Promise, ...]
    warnings: tuple[str, ...]
    verdict: tuple[str, ...]
    images: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    curves: Mapping[str, detection.Roc] = field(default_factory=dict, repr=False)
    portraits: Mapping[str, Tensor] = field(default_factory=dict, repr=False)


def audit(
    view: View,
    truth: Dataset,
    *,
    others: Tensor | None = None,
    names: Sequence[str] | None = None,
    profile: str = "quick",
    stream: Stream,
    watch: Watch = lambda _: None,
    perceptual: Sequence[Lpips] = (),
    pictures: Dataset | None = None,
    workshop: Workshop = NOTHING_KEPT,
    unit: str = "unit",
) -> Audit:
    """Attack the releases of `truth` in every way that the view allows.

    others: (m, …) images that are not in the releases, for membership. names: the attacks to run; else all, but those
    that train a network only where the profile says so. profile: `quick` or `full`: how many rows and pairs are tried.
    perceptual: the LPIPS to measure, of images. pictures: the images that the records are features of. workshop: where
    attacks train. unit: what a unit of several rows is called, where the releases promise something to such."""
    if profile not in PROFILES:
        raise ArgumentError(f"profile must be one of {', '.join(PROFILES)}, got {profile!r}")
    limits = PROFILES[profile]
    chosen = _chosen(names, workshop)
    check_truth(view, truth)
    truth = ranged(truth)
    view, truth = rows_first(in_record_order(view), truth)
    whole = len(view.releases[0].payload)
    watch("records")
    most = most_rows(truth, limits)
    inspected = inspect(view, truth)
    seen, records, numbers = sample(view, truth, most, stream.fork("sample"))
    others, overlap = _strangers(truth, view.public, others)
    n = len(numbers)
    own = records.take(torch.arange(n))
    seen = replace(seen, candidates=torch.cat([own.x, others[:n]]), candidate_labels=own.y.argmax(1))
    found = moments(_Prepared(truth, view.releases[0].encoder), stream=stream.fork("moments"))
    whole_units = _units(view, truth, seen, others, most, stream)
    judge = Judge(
        seen, records, found, len(others[:n]), stream, limits.pairs, perceptual, limits.perceptual, whole_units
    )
    judge.of = whole
    if pictures is not None:
        judge.portraits["original"] = Portraits(pictures).take(numbers).x
    rows: list[Row] = []
    ran: list[Ran] = []
    for name, attack in chosen.items():
        asked = names is not None or limits.trains or not hasattr(attack, "workshop")
        if not asked and not judge.cannot(name, attack):
            why = f"{TRAINS}, which takes a while: --attacks {name} or --profile full runs it"
            ran.append(Ran(name, attack.threat, "skipped", why))
            continue
        watch(name)
        ran.append(judge.run(name, attack, rows))
    watch("noise")
    kept = tuple(promises(view, inspected, found, privacy_units.numbered(truth)))
    called = unit if unit_rows(view.releases) > 1 else None
    faults = noise_faults(seen, records, inspected) + label_faults(view, inspected, whole)
    faults += unit_faults(view, truth)
    moved = inspected[0].moved if view.traces is not None and by_value(view.releases[0]) else None
    warnings = (*warnings_of(view, rows, ran, kept, called), *faults, *unsure(view, inspected), *overlap)
    return Audit(
        view=seen,
        pixels=own.x,
        low=truth.low,
        high=truth.high,
        numbers=numbers,
        of=whole,
        unit=called,
        promised=tuple(judge.promised.values()),
        rows=tuple(rows),
        attacks=tuple(ran),
        promises=kept,
        warnings=warnings,
        verdict=tuple(
            verdict_of(rows, ran, warnings, seen, n, whole, spread_of(truth, found), moved, called, judge.promised)
        ),
        images=judge.images,
        curves=judge.curves,
        portraits=judge.portraits,
    )


def _units(view: View, truth: Dataset, seen: View, others: Tensor, most: int, stream: Stream) -> UnitView | str:
    """What the attack on whole units sees of the releases, or why there is nothing to see. seen: what others see."""
    whose = privacy_units.numbered(truth)
    if unit_rows(view.releases) == 1:
        return NO_UNITS
    if whose is None:
        return "it is not said which rows belong together (--unit)"
    if view.traces is None:
        return "it needs traces, and there is none"
    if any(release.screened is not None for release in view.releases):
        return "rows were dropped from the release: some units have not all of theirs"
    part, whose = unit_sample(view, truth, whose, most, stream.fork("units"))
    if len(part.numbers) == len(view.releases[0].payload):
        return UnitView(seen, truth, whose)
    own = Subset(part.records, torch.arange(len(part.numbers)))
    x = own.take(torch.arange(len(own))).x
    return UnitView(replace(part.view, candidates=torch.cat([x, others[: len(own)]])), own, whose)


def most_rows(truth: Dataset, limits: Profile) -> int:
    """Of larger releases this many rows are attacked."""
    return max(2, min(limits.rows, limits.values // math.prod(truth.shape)))


def _strangers(truth: Dataset, public: Rows | None, others: Tensor | None) -> tuple[Tensor, list[str]]:
    """Those of the others that are really in no release; and what to say if public data hold private records."""
    prints = [_fingerprint(row) for block in blocks(truth) for row in block]
    own = set(prints)
    said = []
    if len(own) < len(prints):
        said.append(
            f"{len(prints) - len(own)} records are copies of others: what is promised of one record is not promised of "
            f"all its copies together."
        )
    if public is not None:
        shared = sum(_fingerprint(row) in own for block in blocks(public) for row in block)
        if shared:
            said.append(f"{shared} of the public images are among the private ones: the attacker was given them.")
    if others is None:
        return torch.empty(0, *truth.shape), said
    strange = torch.tensor([_fingerprint(row.flatten().double()) not in own for row in others], dtype=torch.bool)
    if not bool(strange.all()):
        said.append(
            f"{int((~strange).sum())} images that should be in no release are among the private ones: left out of the "
            f"membership test."
        )
    return others[strange], said


def _fingerprint(row: Tensor) -> bytes:
    return hashlib.blake2b(row.numpy().tobytes(), digest_size=16).digest()


@dataclass(frozen=True)
class _Prepared:
    """Records as they enter the mixture."""

    rows: Rows
    encoder: Encoder

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, index: Tensor) -> Batch:
        batch = self.rows.take(index)
        return Batch(self.encoder.prepare(batch.x), batch.y)


def _chosen(names: Sequence[str] | None, workshop: Workshop) -> dict[str, Attack]:
    """The attacks of these names, or all. Those that train have a workshop."""
    known = known_attacks()
    for name in names or ():
        if name not in known:
            raise ArgumentError(f"attack must be one of {', '.join(known)}, got {name!r}")
    chosen: dict[str, Any] = {name: kind for name, kind in known.items() if names is None or name in names}
    return {name: kind(workshop=workshop) if hasattr(kind, "workshop") else kind() for name, kind in chosen.items()}
