"""What is said of an audit, as notes: what to be warned of, what attacks got, what did not run. Of releases of records;
other kinds take from it what is right for them too."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from mixveil.audit.figures import AttackRun, Figure, Subject, caption, promise_caption
from mixveil.audit.found import Audit
from mixveil.audit.noise_check import noticed
from mixveil.audit.ties import FEW_NUMBERS
from mixveil.core.types import AttackKind
from mixveil.core.wording.notes import Note, note

_NOT_MEANT = ("attack-needs-images", "attack-needs-features", "attack-needs-mask", "attack-needs-covers")
"""Reasons for which an attack is not meant for such releases at all."""

Tested = tuple[str, tuple[AttackKind, ...]]
"""What is said to be tested or not, and the kinds of attack that test it."""

IMAGES: Tested = ("images", ("reconstruction",))
_KINDS: tuple[Tested, ...] = (IMAGES, ("recognition", ("linkage", "pairs")), ("membership", ("membership",)))
_COVERS: Tested = ("covers", ("covers",))

_BEST_ONLY = (
    ("sources-found", "verdict-sources", "sources-recognised"),
    ("cover-found", "verdict-covers", "covers-recognised"),
    ("nearest-shares-source", "verdict-grouped", "rows-grouped"),
    ("told-apart", "verdict-told-apart", "records-told-apart"),
)
"""Shares of which the largest is told, and as a warning where it is much."""


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
    notes += [*successes(found), *broken(found)]
    if any(release.reproducible for release in found.view.releases):
        notes.append(note("noise-reproducible"))
    if any(not release.guarantees for release in found.view.releases):
        notes.append(note("no-guarantee-stated"))
    return notes


def broken(found: Audit) -> list[Note]:
    """The attacks that fail even where there is no defence."""
    return [note("attack-broken", attack=run.attack, why=run.why) for run in found.attacks if run.status == "broken"]


def _labels(found: Audit) -> Note:
    if (epsilon := found.label_epsilon) is not None:
        return note("audit-labels-randomised", epsilon=epsilon)
    screened = any(release.screened is not None for release in found.view.releases)
    return note("audit-labels-screened" if screened else "audit-labels-shown")


def successes(found: Audit) -> list[Note]:
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
    numbers = math.prod(found.pixels.shape[1:])
    notes += [note("verdict-few-numbers", numbers=numbers)] if numbers < FEW_NUMBERS else []
    notes += _dropped(found)
    members = _members(found)
    notes += members if found.unit else []
    values = [*reconstructed(found), *_known(found)]
    weak = any(told.code.endswith("-too-weak") for told in values)
    values += [note("verdict-give-public-data")] if weak and found.view.public is None else []
    notes += [*values, *_recognised(found)]
    notes += [] if found.unit else members
    covered = any(encoder.covers for encoder in found.encoders)
    notes += not_run(found, (*_KINDS, _COVERS) if covered else _KINDS)
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


def reconstructed(found: Audit) -> list[Note]:
    """What the best attack on values got, and what a decoder makes of features."""
    mirrors = found.images and any(encoder.moved for encoder in found.encoders)
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


def not_run(found: Audit, tested: Iterable[Tested]) -> list[Note]:
    """Which kinds of attack on records gave no figures; which attacks need linear rows, or train networks; and why.
    tested: the kinds that there should be."""
    notes, told = [], set()
    for name, kinds in tested:
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
