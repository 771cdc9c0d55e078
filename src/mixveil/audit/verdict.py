"""An audit as notes: what to be warned of, and what the best attack of each kind got."""

from __future__ import annotations

from dataclasses import dataclass

from mixveil.audit.ceilings import MembershipBound
from mixveil.audit.figures import AttackRun, Figure, Subject, caption, promise_caption
from mixveil.audit.guarantees_found import Promise
from mixveil.audit.noise_check import noticed
from mixveil.core.types import AttackKind, View
from mixveil.core.wording.notes import Note, note

_NOT_MEANT = ("attack-needs-images", "attack-needs-features")
"""Reasons for which an attack is not meant for such releases at all."""

_KINDS: tuple[tuple[str, tuple[AttackKind, ...]], ...] = (
    ("images", ("reconstruction",)),
    ("recognition", ("linkage", "pairs")),
    ("membership", ("membership",)),
)


@dataclass(frozen=True)
class Facts:
    """What an audit found, before anything is said of it.

    Attributes:
        view: All releases, whole.
        figures: Of all attacks.
        attacks: How each attack fared.
        promises: Each guarantee, and what was found of it.
        bounds: What is promised of membership.
        unit: What a unit is called, where something is promised to units of several rows.
        attacked: How many rows were attacked.
        rows: How many rows the releases have.
        spread: The variance of a value of the records, in units of the range squared.
        moved: What choosing the rows can have done to a test of single values' noise; None where none was made.
    """

    view: View
    figures: tuple[Figure, ...]
    attacks: tuple[AttackRun, ...]
    promises: tuple[Promise, ...]
    bounds: tuple[MembershipBound, ...]
    unit: str | None
    attacked: int
    rows: int
    spread: float
    moved: float | None

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

    def surest(self, metric: str, of: Subject = "record") -> Figure | None:
        """The figure that is surest to be more than a guess."""
        asked = [figure for figure in self.figures if figure.metric == metric and figure.of == of and figure.interval]
        return max(asked, key=lambda figure: (figure.interval or (0, 0))[0] - (figure.know_nothing or 0), default=None)

    def best(self, metric: str) -> tuple[Figure | None, float]:
        """The attack that leaves the least error, and the share of knowing nothing's error that it takes away.
        Attackers who have some of the records are spoken of apart."""
        errors = [f for f in self.figures if f.metric == metric and f.kind != "prior" and f.known is None]
        least = min((figure.mean for figure in errors), default=0.0)
        near = [f for f in errors if f.mean <= 1.001 * least]  # a network that adds nothing is not the better attack
        trained = {run.attack for run in self.attacks if run.trains}
        best = min(near, key=lambda figure: figure.attack in trained, default=None)
        return best, 1 - best.mean / best.know_nothing if best and best.know_nothing else 0.0


def warnings(facts: Facts) -> list[Note]:
    """What to be warned of; the labels first."""
    notes = [_labels(facts)]
    notes += [
        note(
            "ceiling-beaten",
            attack=figure.attack,
            figure=caption(figure.metric, figure.of, figure.know_nothing, facts.unit),
            mean=figure.mean,
            ceiling=figure.ceiling,
        )
        for figure in facts.figures
        if figure.beaten
    ]
    for promise in facts.promises:
        if promise.broken or promise.loose:
            code = "promise-broken" if promise.broken else "promise-loose"
            if promise.broken and promise.name == "noise":
                code = "noise-false"
            name = promise_caption(promise.name, promise.of, facts.unit)
            notes.append(note(code, promise=name, nominal=promise.nominal, found=promise.found))
    notes += _successes(facts)
    notes += [note("attack-broken", attack=r.attack, why=r.why) for r in facts.attacks if r.status == "broken"]
    if any(release.reproducible for release in facts.view.releases):
        notes.append(note("noise-reproducible"))
    if any(not release.guarantees for release in facts.view.releases):
        notes.append(note("no-guarantee-stated"))
    return notes


def _labels(facts: Facts) -> Note:
    if (epsilon := facts.label_epsilon) is not None:
        return note("audit-labels-randomised", epsilon=epsilon)
    screened = any(release.screened is not None for release in facts.view.releases)
    return note("audit-labels-screened" if screened else "audit-labels-shown")


def _successes(facts: Facts) -> list[Note]:
    """What came out, where it is much."""
    notes = []
    kinds = (("mse", 0.2, "images-reconstructed" if facts.of_images else "values-reconstructed"),)
    for metric, much, code in (*kinds, ("picture-mse", 0.1, "pictures-decoded")):
        best, gained = facts.best(metric)
        if best and gained >= much:
            notes.append(note(code, attack=best.attack, gained=gained))
    shares: list[tuple[str, Subject, str]] = [
        ("row-identified", "record", "rows-recognised"),
        ("pair-found", "record", "pairs-recognised"),
        ("tpr-at-1-fpr", "unit", "units-recognised"),
        ("tpr-at-1-fpr", "record", "members-recognised-single" if facts.unit else "members-recognised"),
    ]
    for metric, of, code in shares:
        top = facts.surest(metric, of)
        if top and top.interval and top.interval[0] > 3 * (top.know_nothing or 0):
            notes.append(note(code, attack=top.attack, mean=top.mean, chance=top.know_nothing, unit=facts.unit))
    return notes


def verdict(facts: Facts, warned: int) -> list[Note]:
    """What the best attack of each kind got, and what was not tested. warned: how many warnings there are."""
    notes = []
    if facts.attacked < facts.rows:
        notes.append(note("verdict-part", attacked=facts.attacked, rows=facts.rows))
    notes += _dropped(facts)
    members = _members(facts)
    notes += members if facts.unit else []
    notes += [*_reconstructed(facts), *_known(facts), *_recognised(facts)]
    notes += [] if facts.unit else members
    notes += [*_untested(facts), *_untrained(facts)]
    if facts.view.traces is None:
        notes.append(note("verdict-noise-unmeasured"))
    epsilon = facts.label_epsilon
    notes.append(
        note("verdict-labels-shown") if epsilon is None else note("verdict-labels-randomised", epsilon=epsilon)
    )
    if warned > 1:
        notes.append(note("verdict-warnings", count=warned - 1))
    return notes


def _dropped(facts: Facts) -> list[Note]:
    """What an audit of a screened release leaves open."""
    screened = facts.view.releases[0].screened
    if screened is None:
        return []
    dropped = screened.records - facts.rows
    told = note("verdict-screened", dropped=dropped, records=screened.records, screen=str(screened.screen))
    return [told] if facts.moved is None else [told, noticed(facts.attacked, facts.moved)]


def _reconstructed(facts: Facts) -> list[Note]:
    """What the best attack on values got, and what a decoder makes of features."""
    notes = []
    best, gained = facts.best("mse")
    possible = _possible(facts)
    if best and (gained < -0.005 or gained <= 0 < possible - 0.02):
        notes.append(note("verdict-images-too-weak" if facts.of_images else "verdict-values-too-weak"))
        notes += [note("verdict-linear-possible", possible=possible)] if possible > 0 else []
    elif best:
        amount = "next-to-nothing" if gained < 0.02 else "something" if gained < 0.2 else "a-great-deal"
        figures = {"attack": best.attack, "gained": max(gained, 0.0), "amount": note(f"amount-{amount}")}
        notes.append(note("verdict-images" if facts.of_images else "verdict-values", **figures))
    decoded = next((figure for figure in facts.figures if figure.metric == "picture-ssim"), None)
    if decoded:
        means = {"mean": decoded.mean, "worst": decoded.worst, "nothing": decoded.know_nothing}
        notes.append(note("verdict-pictures", attack=decoded.attack, **means))
    return notes


def _possible(facts: Facts) -> float:
    """The share of the records' variance that the best linear attacker would explain, if that is known. They know the
    records' mean: what the mean itself is worth is not the release's doing."""
    errors = [figure for figure in facts.figures if figure.metric == "mse" and figure.known is None]
    return max((1 - f.ceiling / facts.spread for f in errors if f.ceiling and facts.spread), default=0.0)


def _known(facts: Facts) -> list[Note]:
    """What attackers got who have some of the records."""
    errors = [f for f in facts.figures if f.metric == "mse" and f.known is not None and f.know_nothing]
    if not errors:
        return []
    if all(figure.mean > (figure.know_nothing or 0) for figure in errors):
        return [note("verdict-known-too-weak")]
    gains = {f"gained_{100 * (f.known or 0):.0f}": max(0.0, 1 - f.mean / (f.know_nothing or 1)) for f in errors}
    if facts.unit:
        return [note("verdict-known-of-unit", unit=facts.unit, **gains)]
    return [note("verdict-known", **gains)]


def _recognised(facts: Facts) -> list[Note]:
    """How many records or pairs were recognised."""
    codes = {"row-identified": "verdict-rows-single" if facts.unit else "verdict-rows", "pair-found": "verdict-pairs"}
    tops = [(facts.surest(metric), code) for metric, code in codes.items()]
    return [note(code, mean=top.mean, chance=top.know_nothing) for top, code in tops if top]


def _members(facts: Facts) -> list[Note]:
    """How many members were recognised, and how many any attack may recognise: of units first, where something is
    promised to units, and then of single records."""
    notes = []
    kinds: list[tuple[Subject, Note]] = [("record", note("membership"))]
    if facts.unit:
        whole = note("membership-of-unit", unit=facts.unit)
        kinds = [("unit", whole), ("record", note("membership-of-single-image"))]
    for of, what in kinds:
        top, bound = facts.surest("tpr-at-1-fpr", of), next((b for b in facts.bounds if b.of == of), None)
        ending, more = ("", {}) if bound is None else ("-bounded", {"tpr": bound.tpr})
        if top:
            figures = {"mean": top.mean, "chance": top.know_nothing, **more}
            notes.append(note(f"verdict-members{ending}", what=what, **figures))
        elif of == "unit":
            run = next((run for run in facts.attacks if run.kind == "membership" and run.of == "unit"), None)
            why = note("nobody-asked-for-it")
            if run is not None:
                why = note("attack-not-run", attack=run.attack, status=run.status, why=run.why)
            notes.append(note(f"verdict-members-untested{ending}", what=what, why=why, **more))
    return notes


def _untested(facts: Facts) -> list[Note]:
    """The kinds of attack on records of which none ran."""
    notes = []
    for name, kinds in _KINDS:
        if any(figure.kind in kinds and figure.of == "record" for figure in facts.figures):
            continue
        what = note("membership-of-single-image" if facts.unit and name == "membership" else name)
        tried = [run.attack for run in facts.attacks if run.kind in kinds and run.of == "record"]
        told = note("verdict-untested", what=what, attacks=", ".join(tried))
        notes.append(told if tried else note("verdict-unasked", what=what))
    return notes


def _untrained(facts: Facts) -> list[Note]:
    """Which of the attacks that train networks, and could be meant for such releases, did not run, and why."""
    missing: dict[str, tuple[Note, list[str]]] = {}
    for run in facts.attacks:
        if not run.trains or run.status == "ran" or run.why is None or run.why.code in _NOT_MEANT:
            continue
        why = note("full-profile-runs-them") if run.why.code == "attack-trains" else run.why
        missing.setdefault(str(why.plain()), (why, []))[1].append(run.attack)
    return [note("verdict-untrained", attacks=", ".join(names), why=why) for why, names in missing.values()]
