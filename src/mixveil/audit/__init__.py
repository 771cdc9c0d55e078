"""The audit: every attack that the view allows, measured against the truth and set beside what theory permits.

The attacks see a View; only the judge sees the truth. The result shows private data and stays with the owner.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from mixveil.attacks import attacks as known_attacks
from mixveil.audit.figures import Ran, Row
from mixveil.audit.judge import FPR, Judge
from mixveil.audit.neighbours import SHARES
from mixveil.audit.promises import Promise, label_faults, noise_faults, promises, unit_faults
from mixveil.audit.sample import sample
from mixveil.audit.truth import check_truth, in_record_order, inspect, ranged, rows_first, unsure
from mixveil.errors import ArgumentError
from mixveil.keys import Stream
from mixveil.metrics import detection
from mixveil.metrics.lpips import Lpips
from mixveil.theory.moments import Moments, blocks, moments
from mixveil.types import Attack, Batch, Dataset, Encoder, Rows, View

LABELS = (
    "The labels are not protected: whoever gets the release reads the classes of every row and how many records of "
    "each class there are. In a hospital the label is the diagnosis."
)
LABELS_RANDOMISED = (
    "The labels were randomised: of each record these releases say its class with ε = {:.3g}. The noise on the images "
    "does not protect them any further."
)
Watch = Callable[[str], None]

_KINDS = {
    "Pictures": {"lmmse", "lmmse-row", "lowpass", "lowpass-row", "known", "average"},
    "Recognition": {"linkage", "radius", "radius-labels", "grid"},
    "Membership": {"membership"},
}


@dataclass(frozen=True)
class Profile:
    """How much an audit attacks. rows, values: at most so many rows, and values in all of them; pairs: how many rows
    the attacks on pairs are asked about, and among how many candidates; perceptual: how many records LPIPS looks at."""

    rows: int
    values: int
    pairs: tuple[int, int]
    perceptual: int = 200


PROFILES = {"quick": Profile(2000, 1 << 23, (20, 60)), "full": Profile(5000, 1 << 25, (100, 200), perceptual=2000)}


@dataclass(frozen=True)
class Audit:
    """view: what was attacked, of n rows; numbers: (n,) of those rows in the releases; pixels: (n, …) their own
    records; of: how many rows the releases have; bound: μ of all releases together, if all state one."""

    view: View = field(repr=False)
    pixels: Tensor = field(repr=False)
    low: float
    high: float
    numbers: Tensor = field(repr=False)
    of: int
    bound: float | None
    rows: tuple[Row, ...]
    attacks: tuple[Ran, ...]
    promises: tuple[Promise, ...]
    warnings: tuple[str, ...]
    verdict: tuple[str, ...]
    images: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    curves: Mapping[str, detection.Roc] = field(default_factory=dict, repr=False)


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
) -> Audit:
    """Attack the releases of `truth` in every way that the view allows.

    others: (m, …) images that are not in the releases, for membership. names: the attacks to run (all).
    profile: `quick` or `full`: how many rows and pairs are tried. perceptual: the LPIPS to measure, of images."""
    if profile not in PROFILES:
        raise ArgumentError(f"profile must be one of {', '.join(PROFILES)}, got {profile!r}")
    chosen, limits = _chosen(names), PROFILES[profile]
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
    judge = Judge(seen, records, found, len(others[:n]), stream, limits.pairs, perceptual, limits.perceptual)
    rows: list[Row] = []
    ran: list[Ran] = []
    for name, attack in chosen.items():
        watch(name)
        ran.append(judge.run(name, attack, rows))
    watch("noise")
    kept = tuple(promises(view, inspected, found))
    faults = noise_faults(seen, records, inspected) + label_faults(view, inspected, whole)
    faults += unit_faults(view, truth)
    warnings = (*_warnings(view, rows, ran, kept), *faults, *unsure(view, inspected), *overlap)
    return Audit(
        view=seen,
        pixels=own.x,
        low=truth.low,
        high=truth.high,
        numbers=numbers,
        of=whole,
        bound=judge.mu if math.isfinite(judge.mu) else None,
        rows=tuple(rows),
        attacks=tuple(ran),
        promises=kept,
        warnings=warnings,
        verdict=tuple(_verdict(rows, ran, warnings, seen, n, whole, _spread(truth, found))),
        images=judge.images,
        curves=judge.curves,
    )


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


def _chosen(names: Sequence[str] | None) -> dict[str, Attack]:
    """The attacks of these names. Where none are given: all but those that train networks, which have a `workshop`."""
    known = known_attacks()
    for name in names or ():
        if name not in known:
            raise ArgumentError(f"attack must be one of {', '.join(known)}, got {name!r}")
    asked = [name for name, kind in known.items() if not hasattr(kind, "workshop")] if names is None else names
    return {name: kind() for name, kind in known.items() if name in asked}


def _warnings(view: View, rows: list[Row], ran: list[Ran], promises: tuple[Promise, ...]) -> list[str]:
    said = [LABELS if _label_epsilon(view) is None else LABELS_RANDOMISED.format(_label_epsilon(view))]
    said += [
        f"{row.attack} beats its ceiling: {row.metric} {row.mean:.4g}, where {row.ceiling:.4g} should be the best. The "
        f"claim of this release is false, or this audit is."
        for row in rows
        if row.beaten
    ]
    for promise in promises:
        if promise.broken and promise.name == "noise":
            said.append(
                f"The noise is not what the release says: σ = {promise.found:.4g} was found, {promise.nominal:.4g} is "
                f"stated. Every figure that rests on it is false. Do not send this release."
            )
        elif promise.broken:
            said.append(
                f"{promise.name}: {promise.nominal:.4g} was asked for, on these records it is {promise.found:.4g}: the "
                f"nominal figure does not hold."
            )
        elif promise.loose:
            said.append(
                f"{promise.name}: {promise.nominal:.4g} was asked for, on these records it is {promise.found:.4g}: "
                f"there is more noise than the nominal figure needs."
            )
    said += _successes(rows, view)
    said += [f"{item.attack} is broken: {item.why}" for item in ran if item.status == "broken"]
    if any(release.reproducible for release in view.releases):
        said.append("The noise came from a seeded stream: whoever finds the seed removes it. Do not send this release.")
    if any(not release.guarantees for release in view.releases):
        said.append("A release states no guarantee at all: it is for experiments, do not send it.")
    return said


def _label_epsilon(view: View) -> float | None:
    """Of all releases together; None where one shows labels as they are, or randomised them by a seed."""
    found = [None if release.reproducible else release.label_epsilon for release in view.releases]
    known = [epsilon for epsilon in found if epsilon is not None]
    return sum(known) if len(known) == len(found) else None


def _successes(rows: list[Row], view: View) -> list[str]:
    """What came out, where it is much."""
    said = []
    best, gained = _best_pictures(rows)
    if best and gained >= 0.2:
        said.append(
            f"{_kind(view)[0]} come out: {best.attack} takes away {gained:.0%} of the error of knowing nothing. Look "
            f"at them before you decide."
        )
    for metric, words in (
        ("row identified", "Records are recognised: {attack} finds the row of {mean:.0%} of them"),
        ("pair found", "Pairs are recognised: {attack} names both sources of {mean:.0%} of the rows"),
        (f"tpr at {FPR:.0%} fpr", "Members are recognised: {attack} finds {mean:.0%} of them at 1 % false alarms"),
    ):
        top = _most(rows, metric)
        if top and top.interval and top.interval[0] > 3 * (top.know_nothing or 0):
            said.append(words.format(attack=top.attack, mean=top.mean) + f" (guessing: {top.know_nothing:.2%}).")
    return said


def _most(rows: list[Row], metric: str) -> Row | None:
    """The figure that is surest to be more than a guess."""
    found = [row for row in rows if row.metric == metric and row.interval]
    return max(found, key=lambda row: (row.interval or (0, 0))[0] - (row.know_nothing or 0), default=None)


def _kind(view: View) -> tuple[str, str]:
    """What is reconstructed: features are no pictures."""
    return ("Pictures", "images") if len(view.releases[0].shape) == 3 else ("Values", "records' values")


def _best_pictures(rows: list[Row]) -> tuple[Row | None, float]:
    """The attack that leaves the least error, and the share that it takes away of knowing nothing's. Attackers who have
    records already are counted apart."""
    errors = [row for row in rows if row.metric == "mse" and row.attack not in ("prior", *SHARES)]
    best = min(errors, key=lambda row: row.mean, default=None)
    return best, 1 - best.mean / best.know_nothing if best and best.know_nothing else 0.0


def _spread(truth: Dataset, found: Moments) -> float:
    """The records' variance a value, in the units of the figures: of the range."""
    return found.energy / len(found.mean) / (truth.high - truth.low) ** 2


def _possible(rows: list[Row], spread: float) -> float:
    """The share of the records' variance that the best linear attacker would explain, if that is known. He knows their
    mean: what the mean itself is worth is not the release's doing. spread: the variance of a value, on average."""
    errors = [row for row in rows if row.metric == "mse" and row.attack not in SHARES]
    known = [1 - row.ceiling / spread for row in errors if row.ceiling and spread]
    return max(known, default=0.0)


def _dropped(view: View, rows: int) -> list[str]:
    """What an audit of a screened release leaves open. rows: how many the release has."""
    release = view.releases[0]
    if release.screened is None:
        return []
    made = release.screened.records
    return [
        f"Screened: {made - rows:,} of {made:,} rows were dropped ({release.screened.screen}). Their records were not "
        f"attacked by rows of their own: what is left of them in the rows of others is not measured here. The noise "
        f"was tested more loosely, as the rows that are left were chosen."
    ]


def _verdict(
    rows: list[Row], ran: list[Ran], warnings: tuple[str, ...], view: View, n: int, of: int, spread: float
) -> list[str]:
    """In plain words, with reasons: what the best attack of each kind got."""
    said = []
    if n < of:
        said.append(
            f"A part: {n:,} of {of:,} rows were attacked, joined along their pairs. Who has all rows gets at least "
            f"these pictures; records are recognised among the rows of the part. The noise's strength was measured in "
            f"all rows, its other properties in the part."
        )
    said += _dropped(view, of)
    kind, what = _kind(view)
    best, gained = _best_pictures(rows)
    if best:
        amount = "next to nothing" if gained < 0.02 else "something" if gained < 0.2 else "a great deal"
        possible = _possible(rows, spread)
        if gained <= 0 < possible - 0.02:
            said.append(
                f"{kind}: these attacks were too weak to tell (they do worse than knowing nothing). The best linear "
                f"attacker, who knows the mean, would explain up to {possible:.1%} of how records differ from it. Give "
                f"public data."
            )
        else:
            said.append(
                f"{kind}: the best of these attacks ({best.attack}) takes away {max(gained, 0):.1%} of the error of "
                f"knowing nothing: on average it gets {amount} of the {what}."
            )
    known = {row.attack: row for row in rows if row.metric == "mse" and row.attack in SHARES and row.know_nothing}
    if known:
        gains = [f"{max(0.0, 1 - row.mean / (row.know_nothing or 1)):.1%}" for row in known.values()]
        said.append(
            f"Known records: an attacker who has 10, 50 or 90 % of the records, and the pairing, takes away "
            f"{gains[0]}, {gains[1]} or {gains[2]} of that error on the others."
        )
    for metric, words in (
        (
            "row identified",
            "Recognition: with the original at hand this attack finds its row for {mean:.1%} of the records",
        ),
        (
            "pair found",
            "Recognition: with both sources among others these attacks name them for {mean:.1%} of the rows",
        ),
        (f"tpr at {FPR:.0%} fpr", "Membership: this attack finds {mean:.1%} of the members at 1 % false alarms"),
    ):
        top = _most(rows, metric)
        if top:
            chance = "" if top.know_nothing is None else f" (guessing: {top.know_nothing:.2%})"
            bound = (
                ""
                if top.ceiling is None
                else f"; as μ is stated no attack on these releases finds more than {top.ceiling:.1%}"
            )
            said.append(words.format(mean=top.mean) + chance + bound + ".")
    for kind, metrics in (
        ("Pictures", {"mse"}),
        ("Recognition", {"row identified", "pair found"}),
        ("Membership", {f"tpr at {FPR:.0%} fpr"}),
    ):
        if not any(row.metric in metrics and row.attack != "prior" for row in rows):
            tried = ", ".join(f"{item.attack} {item.status}" for item in ran if item.attack in _KINDS[kind])
            said.append(f"{kind}: NOT tested: {tried or 'no attack of this kind was asked for'}.")
    if view.traces is None:
        said.append("Noise: NOT measured, for want of the trace: whether it is what the release says is not known.")
    epsilon = _label_epsilon(view)
    how = (
        "shown to everyone who gets the release"
        if epsilon is None
        else f"randomised, ε = {epsilon:.3g} a record in these releases"
    )
    said.append(f"Labels: {how}.")
    if len(warnings) > 1:
        said.append(f"{len(warnings) - 1} warning(s) beside that of the labels: read them before anything leaves.")
    return said
