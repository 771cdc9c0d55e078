"""What is said of an audit of representations, as notes. Nothing here calls them safe: what attacks get is the least
that attackers get."""

from __future__ import annotations

from mixveil.audit.found import Audit
from mixveil.audit.verdict import IMAGES, broken, not_run, reconstructed, successes
from mixveil.core.types import View
from mixveil.core.wording.notes import Note, note
from mixveil.releases.kinds.representations import RepresentationSettings

_MUCH = 0.2  # of knowing nothing's error that is taken away


def labelled(view: View) -> bool:
    """Whether any of the releases shows labels."""
    settings = [release.envelope.settings for release in view.releases]
    return any(isinstance(of, RepresentationSettings) and of.labelled for of in settings)


def warnings(found: Audit) -> list[Note]:
    """What to be warned of; labels first, where they are shown. That nothing is promised is always among it."""
    notes = [note("audit-labels-shown")] if labelled(found.view) else []
    return [*notes, *successes(found), *broken(found), note("no-guarantee-stated")]


def verdict(found: Audit, warned: int) -> list[Note]:
    """What attacks got, and what was not tested. warned: how many warnings there are."""
    notes = [note(code) for code in _unpromised(found.view)]  # what a manifest says first: whatever attacks get
    if len(found.numbers) < found.of and any(run.status == "ran" for run in found.attacks):
        notes.append(note("verdict-part-inverted", attacked=len(found.numbers), rows=found.of))
    notes += reconstructed(found)
    notes += _open(found)
    notes.append(note("verdict-rows-recomputed"))
    notes += not_run(found, (IMAGES,))
    if _lack_public(found):
        notes.append(note("verdict-inversion-public"))
    notes.append(note("verdict-labels-shown" if labelled(found.view) else "verdict-labels-not-sent"))
    return [*notes, note("verdict-warnings-all", count=warned)]


def _unpromised(view: View) -> dict[str, None]:
    """Codes of what settings do not promise, each once."""
    settings = [release.envelope.settings for release in view.releases]
    return {code: None for of in settings if isinstance(of, RepresentationSettings) for code in of.unpromised}


def _open(found: Audit) -> list[Note]:
    """What these figures leave open: attackers who learn where none ran, and others where those that ran got little."""
    ran = [run for run in found.attacks if run.status == "ran" and run.kind == "reconstruction"]
    if not ran:
        return []
    if not any(run.trains for run in ran):
        return [note("verdict-inversion-only", attacks=", ".join(run.attack for run in ran))]
    return [note("verdict-inversion-little")] if found.best("mse")[1] < _MUCH else []


def _lack_public(found: Audit) -> bool:
    """Whether an attack did not run because it needs public data."""
    whys = [run.why for run in found.attacks if run.status == "skipped" and run.why is not None]
    return any("public" in str(why.figures.get("fields", "")).split(", ") for why in whys)
