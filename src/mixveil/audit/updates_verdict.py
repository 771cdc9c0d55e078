"""What is said of an audit of an update, as notes. Nothing here calls one safe: where attacks that work elsewhere get
little, that is what was measured, and where none works, nothing can be said."""

from __future__ import annotations

from collections.abc import Iterable

from mixveil.audit.figures import AttackRun
from mixveil.audit.found import Audit
from mixveil.audit.verdict import IMAGES, broken, not_run, reconstructed, successes
from mixveil.core.wording.notes import Note, note
from mixveil.releases.notes import trained
from mixveil.releases.updates import settings_of

_MUCH = 0.2  # of knowing nothing's error that is taken away
_READ = 0.25  # of knowing nothing's error that is left of a record that was read
_ALIKE = 0.5  # of SSIM, where knowing nothing has less
_LABELS = 0.5  # of the rows whose class guessing does not find
_NOT_MEANT = "attack-needs-views"  # it attacks Fed-AugMix alone: nothing is missing where that is not used


def warnings(found: Audit) -> list[Note]:
    """What to be warned of. That nothing is promised is always among it."""
    labels, notes = found.most("labels-found"), []
    chance = 0.0 if labels is None else labels.know_nothing or 0.0
    if labels is not None and labels.mean > chance + _LABELS * (1 - chance):
        notes.append(note("labels-read-off", attack=labels.attack, mean=labels.mean, chance=labels.know_nothing))
    return [*successes(found), *_beyond_the_mean(found), *notes, *broken(found), note("no-guarantee-stated")]


def verdict(found: Audit, warned: int) -> list[Note]:
    """What attacks got, which of them show nothing, and what was not tested. warned: how many warnings there are."""
    notes = [note("updates-not-promised"), *_attacked(found)]  # whatever attacks get
    notes += reconstructed(found)
    notes += [note("verdict-updates-grey")] if found.images and found.view.public is None else []
    notes += _open(found)
    notes += not_run(found, (IMAGES,))
    for labels in found.shares("labels-found"):
        figures = {"attack": labels.attack, "mean": labels.mean, "chance": labels.know_nothing}
        notes.append(note("verdict-labels-found", **figures))
    notes.append(note("verdict-update-labels"))
    return [*notes, note("verdict-warnings-all", count=warned)]


def _attacked(found: Audit) -> list[Note]:
    """What this update is: pages of several audits would not tell them apart."""
    settings = settings_of(found.view.releases[0])
    return [note("verdict-update", method=settings.method, how=how) for how in trained(settings)]


def _open(found: Audit) -> list[Note]:
    """What these figures leave open: attacks that fail without a defence show nothing, and where there is no other,
    nothing can be said; attacks that work and got little show what they got, and no more."""
    runs = [run for run in found.attacks if run.kind == "reconstruction"]
    fail = [run.attack for run in runs if run.status == "broken"]
    notes = [note("verdict-fails-undefended", attacks=", ".join(fail))] if fail else []
    ran = [run.attack for run in runs if run.status == "ran"]
    if not ran:
        return [*notes, note("verdict-nothing-said")]
    beyond = _beyond_the_mean(found)
    if found.best("mse")[1] < _MUCH and not beyond:
        notes.append(note("verdict-updates-little", attacks=", ".join(ran)))
    return [*notes, *beyond, *_not_tried(runs)]


def _beyond_the_mean(found: Audit) -> list[Note]:
    """What a mean of squared errors does not show: a single record that was read among many, and pictures that are like
    the records and too bright or too dark."""
    if found.best("mse")[1] >= _MUCH:  # that is said
        return []
    shares = {
        f.attack: (f.worst or 0.0) / f.know_nothing for f in found.figures if f.metric == "mse" and f.know_nothing
    }
    alike = [f for f in found.figures if f.metric == "ssim" and f.mean >= _ALIKE > (f.know_nothing or 0.0)]
    attack = min(shares, key=lambda name: shares[name], default="")
    notes = [note("update-record-read", attack=attack, left=shares[attack])] if shares.get(attack, 1.0) <= _READ else []
    best = max(alike, key=lambda figure: figure.mean, default=None)
    told = [] if best is None else [{"attack": best.attack, "mean": best.mean, "nothing": best.know_nothing}]
    return [*notes, *(note("update-pictures-alike", **figures) for figures in told)]


def _not_tried(runs: Iterable[AttackRun]) -> list[Note]:
    """Which attacks lack something here, while others ran."""
    reasons: dict[str, tuple[Note, list[str]]] = {}
    for run in runs:
        if run.status == "skipped" and run.why is not None and run.why.code != _NOT_MEANT:
            reasons.setdefault(str(run.why.plain()), (run.why, []))[1].append(run.attack)
    return [note("verdict-attacks-not-run", attacks=", ".join(names), why=why) for why, names in reasons.values()]
