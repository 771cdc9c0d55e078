"""What is said of an audit of an update, as notes. Nothing here calls one safe: where attacks that work elsewhere get
little, that is what was measured, and where none works, nothing can be said."""

from __future__ import annotations

from collections.abc import Iterable

from mixveil.audit.figures import AttackRun
from mixveil.audit.found import Audit
from mixveil.audit.verdict import IMAGES, broken, not_run, reconstructed, successes
from mixveil.core.wording.notes import Note, note

_MUCH = 0.2  # of knowing nothing's error that is taken away
_LABELS = 0.5  # of the rows whose class guessing does not find


def warnings(found: Audit) -> list[Note]:
    """What to be warned of. That nothing is promised is always among it."""
    labels, notes = found.most("labels-found"), []
    chance = 0.0 if labels is None else labels.know_nothing or 0.0
    if labels is not None and labels.mean > chance + _LABELS * (1 - chance):
        notes.append(note("labels-read-off", attack=labels.attack, mean=labels.mean, chance=labels.know_nothing))
    return [*successes(found), *notes, *broken(found), note("no-guarantee-stated")]


def verdict(found: Audit, warned: int) -> list[Note]:
    """What attacks got, which of them show nothing, and what was not tested. warned: how many warnings there are."""
    notes = [note("updates-not-promised")]  # whatever attacks get
    notes += reconstructed(found)
    notes += _open(found)
    notes += not_run(found, (IMAGES,))
    for labels in found.shares("labels-found"):
        figures = {"attack": labels.attack, "mean": labels.mean, "chance": labels.know_nothing}
        notes.append(note("verdict-labels-found", **figures))
    notes.append(note("verdict-update-labels"))
    return [*notes, note("verdict-warnings-all", count=warned)]


def _open(found: Audit) -> list[Note]:
    """What these figures leave open: attacks that fail without a defence show nothing, and where there is no other,
    nothing can be said; attacks that work and got little show what they got, and no more."""
    runs = [run for run in found.attacks if run.kind == "reconstruction"]
    notes = [note("verdict-fails-undefended", attack=run.attack) for run in runs if run.status == "broken"]
    ran = [run.attack for run in runs if run.status == "ran"]
    if not ran:
        return [*notes, note("verdict-nothing-said")]
    if found.best("mse")[1] < _MUCH:
        notes.append(note("verdict-updates-little", attacks=", ".join(ran)))
    return [*notes, *_not_tried(runs)]


def _not_tried(runs: Iterable[AttackRun]) -> list[Note]:
    """Which attacks lack something here, while others ran."""
    reasons: dict[str, tuple[Note, list[str]]] = {}
    for run in runs:
        if run.status == "skipped" and run.why is not None:
            reasons.setdefault(str(run.why.plain()), (run.why, []))[1].append(run.attack)
    return [note("verdict-attacks-not-run", attacks=", ".join(names), why=why) for why, names in reasons.values()]
