"""What an audit found; and as notes: what to be warned of, what attacks got, what did not run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from mixveil.audit.ceilings import MembershipBound
from mixveil.audit.figures import AttackRun, Figure, Subject, caption, promise_caption
from mixveil.audit.guarantees_found import Promise
from mixveil.audit.metrics.detection import Roc
from mixveil.audit.noise_check import noticed
from mixveil.core.types import AttackKind, View
from mixveil.core.wording.notes import Note, note

_NOT_MEANT = ("attack-needs-images", "attack-needs-features", "attack-needs-mask", "attack-needs-covers")
"""Reasons for which an attack is not meant for such releases at all."""

_KINDS: tuple[tuple[str, tuple[AttackKind, ...]], ...] = (
    ("images", ("reconstruction",)),
    ("recognition", ("linkage", "pairs")),
    ("membership", ("membership",)),
)

_BEST_ONLY = (
    ("sources-found", "verdict-sources", "sources-recognised"),
    ("cover-found", "verdict-covers", "covers-recognised"),
    ("nearest-shares-source", "verdict-grouped", "rows-grouped"),
    ("told-apart", "verdict-told-apart", "records-told-apart"),
)
"""Shares of which the largest is told, and as a warning where it is much."""


@dataclass(frozen=True)
class Audit:
    """What an audit found. It shows private records.

    Attributes:
        view: What was attacked, of n rows.
        pixels: (n, …) the records that own these rows.
        low, high: The range that values can have.
        numbers: (n,) of these rows in the releases.
        of: How many rows the releases have.
        unit: What a unit of several rows is called (`patient`); None where nothing is promised to such units.
        promised: What all releases together promise of membership, to units first.
        spread: The variance of a value of the records, in units of the range squared.
        moved: What choosing the rows can have done to a test of single values' noise; None where none was made.
        images: (n, …) the records as attacks guess them, by attack.
        curves: ROCs, by attack.
        pictures: The images behind features, `original` and as attacks guess them.
    """

    view: View = field(repr=False)
    pixels: Tensor = field(repr=False)
    low: float
    high: float
    numbers: Tensor = field(repr=False)
    of: int
    unit: str | None
    promised: tuple[MembershipBound, ...]
    figures: tuple[Figure, ...]
    attacks: tuple[AttackRun, ...]
    promises: tuple[Promise, ...]
    spread: float
    moved: float | None
    warnings: tuple[Note, ...] = ()
    verdict: tuple[Note, ...] = ()
    images: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    curves: Mapping[str, Roc] = field(default_factory=dict, repr=False)
    pictures: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def of_images(self) -> bool:
        """Whether records are images: features are not."""
        return len(self.view.releases[0].shape) == 3

    @property
    def label_epsilon(self) -> float | None:
        """Of all releases together; None where one shows labels as they are, or randomised them by a seed."""
        stated = [None if release.reproducible else release.label_epsilon for release in self.view.releases]
        known = [epsilon for epsilon in stated if epsilon is not None]
        return sum(known) if len(known) == len(stated) else None

    def shares(self, metric: str, of: Subject = "record") -> list[Figure]:
        """What each attack that was asked found. They guess differently well, so that none speaks for another."""
        return [figure for figure in self.figures if figure.metric == metric and figure.of == of and figure.interval]

    def most(self, metric: str) -> Figure | None:
        """The attack that found the largest share."""
        return max(self.shares(metric), key=lambda figure: figure.mean, default=None)

    def best(self, metric: str) -> tuple[Figure | None, float]:
        """The attack that leaves the least error, and the share of knowing nothing's error that it takes away.
        Attackers who have some of the records are spoken of apart."""
        errors = [f for f in self.figures if f.metric == metric and f.kind != "prior" and f.known is None]
        least = min((figure.mean for figure in errors), default=0.0)
        near = [f for f in errors if f.mean <= 1.001 * least]  # a network that adds nothing is not the better attack
        trained = {run.attack for run in self.attacks if run.trains}
        best = min(near, key=lambda figure: figure.attack in trained, default=None)
        return best, 1 - best.mean / best.know_nothing if best and best.know_nothing else 0.0


def warnings(found: Audit) -> list[Note]:
    """What to be warned of; the labels first."""
    notes = [_labels(found)]
    for row in (figure for figure in found.figures if figure.beaten):
        figure = caption(row.metric, row.of, row.know_nothing, found.unit)
        notes.append(note("ceiling-beaten", attack=row.attack, figure=figure, mean=row.mean, ceiling=row.ceiling))
    for promise in (promise for promise in found.promises if promise.broken or promise.loose):
        code = "promise-loose" if not promise.broken else "noise-false" if promise.name == "noise" else "promise-broken"
        name = promise_caption(promise.name, promise.of, found.unit)
        notes.append(note(code, promise=name, nominal=promise.nominal, found=promise.found))
    notes += _successes(found)
    notes += [note("attack-broken", attack=r.attack, why=r.why) for r in found.attacks if r.status == "broken"]
    if any(release.reproducible for release in found.view.releases):
        notes.append(note("noise-reproducible"))
    if any(not release.guarantees for release in found.view.releases):
        notes.append(note("no-guarantee-stated"))
    return notes


def _labels(found: Audit) -> Note:
    if (epsilon := found.label_epsilon) is not None:
        return note("audit-labels-randomised", epsilon=epsilon)
    screened = any(release.screened is not None for release in found.view.releases)
    return note("audit-labels-screened" if screened else "audit-labels-shown")


def _successes(found: Audit) -> list[Note]:
    """What came out, where it is much."""
    notes = []
    records = "images-reconstructed" if found.of_images else "values-reconstructed"
    for metric, much, code in (("mse", 0.2, records), ("picture-mse", 0.1, "pictures-decoded")):
        best, gained = found.best(metric)
        if best and gained >= much:
            notes.append(note(code, attack=best.attack, gained=gained))
    shares: list[tuple[str, Subject, str]] = [
        ("row-identified", "record", "rows-recognised"),
        ("pair-found", "record", "pairs-recognised"),
        ("tpr-at-1-fpr", "unit", "units-recognised"),
        ("tpr-at-1-fpr", "record", "members-recognised-single" if found.unit else "members-recognised"),
    ]
    for metric, _, code in _BEST_ONLY:
        share = found.most(metric)
        if share and share.interval and share.interval[0] > _much(share.know_nothing or 0):
            notes.append(note(code, **_share(share)))
    for metric, of, code in shares:
        for share in found.shares(metric, of):
            if share.interval and share.interval[0] > 3 * (share.know_nothing or 0):
                notes.append(note(code, **_share(share), unit=found.unit))
    return notes


def _much(chance: float) -> float:
    """The share that is a warning: three times what chance gives, or half of what it leaves."""
    return min(3 * chance, (1 + chance) / 2)


def _share(figure: Figure) -> dict[str, Any]:
    return {"attack": figure.attack, "mean": figure.mean, "chance": figure.know_nothing}


def verdict(found: Audit, warned: int) -> list[Note]:
    """What attacks got, and what was not tested. warned: how many warnings there are."""
    codes = [code for release in found.view.releases for code in release.encoder.unpromised]
    notes = [note(code) for code in dict.fromkeys(codes)]  # what a manifest says first: whatever attacks get
    if len(found.numbers) < found.of:
        notes.append(note("verdict-part", attacked=len(found.numbers), rows=found.of))
    notes += _dropped(found)
    members = _members(found)
    notes += members if found.unit else []
    values = [*_reconstructed(found), *_known(found)]
    weak = any(told.code.endswith("-too-weak") for told in values)
    values += [note("verdict-give-public-data")] if weak and found.view.public is None else []
    notes += [*values, *_recognised(found)]
    notes += [] if found.unit else members
    notes += _not_run(found)
    if found.view.traces is None:
        notes.append(note("verdict-noise-unmeasured"))
    epsilon = found.label_epsilon
    notes += [note("verdict-labels-shown") if epsilon is None else note("verdict-labels-randomised", epsilon=epsilon)]
    return notes + ([note("verdict-warnings", count=warned - 1)] if warned > 1 else [])


def _dropped(found: Audit) -> list[Note]:
    """What an audit of a screened release leaves open."""
    screened = found.view.releases[0].screened
    if screened is None:
        return []
    dropped = screened.records - found.of
    told = note("verdict-screened", dropped=dropped, records=screened.records, screen=str(screened.screen))
    return [told] if found.moved is None else [told, noticed(len(found.numbers), found.moved)]


def _reconstructed(found: Audit) -> list[Note]:
    """What the best attack on values got, and what a decoder makes of features."""
    mirrors = found.images and any(release.encoder.moved for release in found.view.releases)
    notes = [note("verdict-mirrored")] if mirrors else []
    best, gained = found.best("mse")
    possible = _possible(found)
    if best and (gained < -0.005 or gained <= 0 < possible - 0.02):
        notes.append(note("verdict-images-too-weak" if found.of_images else "verdict-values-too-weak"))
        notes += [note("verdict-linear-possible", possible=possible)] if possible > 0 else []
    elif best:
        amount = "next-to-nothing" if gained < 0.02 else "something" if gained < 0.2 else "a-great-deal"
        figures = {"attack": best.attack, "gained": max(gained, 0.0), "amount": note(f"amount-{amount}")}
        notes.append(note("verdict-images" if found.of_images else "verdict-values", **figures))
    decoded = next((figure for figure in found.figures if figure.metric == "picture-ssim"), None)
    if decoded:
        means = {"mean": decoded.mean, "worst": decoded.worst, "nothing": decoded.know_nothing}
        notes.append(note("verdict-pictures", attack=decoded.attack, **means))
    return notes


def _possible(found: Audit) -> float:
    """The share of the records' variance that the best linear attacker would explain, if that is known. They know the
    records' mean: what the mean itself is worth is not the release's doing."""
    errors = [figure for figure in found.figures if figure.metric == "mse" and figure.known is None]
    return max((1 - f.ceiling / found.spread for f in errors if f.ceiling and found.spread), default=0.0)


def _known(found: Audit) -> list[Note]:
    """What attackers got who have some of the records."""
    errors = [f for f in found.figures if f.metric == "mse" and f.known is not None and f.know_nothing]
    if not errors:
        return []
    if all(figure.mean > (figure.know_nothing or 0) for figure in errors):
        return [note("verdict-known-too-weak")]
    gains = {f"gained_{100 * (f.known or 0):.0f}": max(0.0, 1 - f.mean / (f.know_nothing or 1)) for f in errors}
    return [note("verdict-known-of-unit", unit=found.unit, **gains) if found.unit else note("verdict-known", **gains)]


def _recognised(found: Audit) -> list[Note]:
    """How many records or pairs were recognised, and what of the rows' making."""
    codes = {"row-identified": "verdict-rows-single" if found.unit else "verdict-rows", "pair-found": "verdict-pairs"}
    notes = [note(code, **_share(share)) for metric, code in codes.items() for share in found.shares(metric)]
    notes += [note("verdict-signs", **_share(figure)) for figure in found.figures if figure.metric == "signs-found"]
    best = [(code, found.most(metric)) for metric, code, _ in _BEST_ONLY]
    return notes + [note(code, **_share(share)) for code, share in best if share is not None]


def _members(found: Audit) -> list[Note]:
    """How many members were recognised, and how many any attack may recognise: of units first, where something is
    promised to units, and then of single records."""
    notes = []
    kinds: list[tuple[Subject, Note]] = [("record", note("membership"))]
    if found.unit:
        whole = note("membership-of-unit", unit=found.unit)
        kinds = [("unit", whole), ("record", note("membership-of-single-image"))]
    for of, what in kinds:
        shares, bound = found.shares("tpr-at-1-fpr", of), next((b for b in found.promised if b.of == of), None)
        ending, more = ("", {}) if bound is None else ("-bounded", {"tpr": bound.tpr})
        notes += [note(f"verdict-members{ending}", what=what, **_share(share), **more) for share in shares]
        if not shares and of == "unit":
            run = next((run for run in found.attacks if run.kind == "membership" and run.of == "unit"), None)
            why = note("attack-not-asked-for")
            if run is not None:
                why = note("attack-not-run", attack=run.attack, status=run.status, why=run.why)
            notes.append(note(f"verdict-members-untested{ending}", what=what, why=why, **more))
    return notes


def _not_run(found: Audit) -> list[Note]:
    """Which kinds of attack on records gave no figures; which attacks need linear rows, or train networks; and why."""
    notes, told = [], set()
    covered = any(release.encoder.covers for release in found.view.releases)
    for name, kinds in (*_KINDS, *([("covers", ("covers",))] if covered else [])):
        pictured = name == "images" and any(f.metric == "mse" and f.kind != "prior" for f in found.figures)
        if pictured or any(figure.kind in kinds and figure.of == "record" for figure in found.figures):
            continue
        what = note("membership-of-single-image" if found.unit and name == "membership" else name)
        tried = [run for run in found.attacks if run.kind in kinds and run.of == "record"]
        told |= {run.attack for run in tried}
        notes += [note("verdict-untested", what=what, **reason) for reason in _by_reason(tried)]
        notes += [] if tried else [note("verdict-unasked", what=what)]
    missing = [(run, run.why.code) for run in found.attacks if run.status != "ran" and run.why is not None]
    linear = [run for run, why in missing if why == "attack-needs-linear" and not run.trains and run.attack not in told]
    trained = [run for run, why in missing if run.trains and why not in _NOT_MEANT]
    notes += [note("verdict-not-linear", **reason) for reason in _by_reason(linear)]
    return notes + [note("verdict-untrained", **reason) for reason in _by_reason(trained)]


def _by_reason(runs: Iterable[AttackRun]) -> list[dict[str, Any]]:
    """For each reason the attacks that did not run because of it."""
    reasons: dict[str, tuple[Note, list[str]]] = {}
    for run in runs:
        why = run.why or note("no-figures")
        why = note("full-profile-runs-them") if why.code == "attack-trains" else why
        reasons.setdefault(str(why.plain()), (why, []))[1].append(run.attack)
    return [{"attacks": ", ".join(names), "why": why} for why, names in reasons.values()]
