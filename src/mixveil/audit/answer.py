"""The first sentence of an audit of records: what an owner wants to know before anything else; and which warnings are
loud."""

from __future__ import annotations

from collections.abc import Iterable

from mixveil.audit.figures import Figure
from mixveil.audit.found import Audit
from mixveil.core.types import AttackKind
from mixveil.core.wording.notes import Note, note

_MUCH, _NOTHING = 0.2, 0.02  # shares of the error of guessing: as the verdict calls them

_FALSE = {
    "ceiling-beaten",
    "labels-not-randomised",
    "noise-false",
    "noise-reproducible",
    "noise-shared-by-releases",
    "noise-wrong",
    "units-paired",
}
"""Warnings that something which the release states is false, or that its noise can be removed."""

_RECONSTRUCTED = {"images-reconstructed", "values-reconstructed", "pictures-decoded"}
_RECOGNISED = {
    "covers-recognised",
    "members-recognised",
    "members-recognised-single",
    "pairs-recognised",
    "records-told-apart",
    "rows-grouped",
    "rows-recognised",
    "sources-recognised",
    "units-recognised",
}
MILD = (
    "attack-broken",
    "labels-unchecked",
    "no-trace",
    "promise-loose",
    "strangers-among-private",
    "truth-not-shown",
    "truth-not-shown-randomised",
    "truth-not-shown-screened",
    "truth-not-shown-screened-randomised",
    "units-unchecked",
)
"""Warnings that something was not measured, or not well: nothing is wrong with the release by them."""

_TESTING: tuple[AttackKind, ...] = ("reconstruction", "linkage", "pairs", "membership")
_OPEN = {"verdict-untested", "verdict-unasked", "verdict-members-untested", "verdict-members-untested-bounded"}


def answer(found: Audit, warnings: Iterable[Note], verdict: Iterable[Note]) -> Note:
    """What is said first. It reports, and advises only where a release is not what it states: whether a certified
    release is sent must not depend on what attacks found."""
    warned, told = {item.code for item in warnings}, {item.code for item in verdict}
    if warned & _FALSE or any(promise.name == "gdp" and promise.broken for promise in found.promises):
        return note("answer-do-not-send")
    if warned & (_RECONSTRUCTED | _RECOGNISED):
        both = bool(warned & _RECONSTRUCTED) and bool(warned & _RECOGNISED)
        return note("answer-both" if both else f"answer-{'reconstructed' if warned & _RECONSTRUCTED else 'recognised'}")
    if any(_gained(figure) >= _MUCH for figure in found.figures if figure.known is not None):
        return note("answer-known")
    if not any(figure.kind in _TESTING for figure in found.figures):
        return note("answer-untested")
    if any(code.endswith("-too-weak") for code in told):
        return note("answer-too-weak")
    amount = "some" if any(_beyond_guessing(figure) for figure in found.figures) else "little"
    return note(f"answer-{amount}-in-part" if told & _OPEN else f"answer-{amount}")


def _gained(figure: Figure) -> float:
    """The share of the error of guessing without the release that is gone; 0 of figures that are no errors."""
    if figure.metric != "mse" or not figure.know_nothing:
        return 0.0
    return 1 - figure.mean / figure.know_nothing


def _beyond_guessing(figure: Figure) -> bool:
    """Whether an attack got anything beyond guessing. That labels are shown is said apart."""
    if figure.kind in ("labels", "prior"):
        return False
    if figure.interval is not None and figure.know_nothing is not None:
        return figure.interval[0] > figure.know_nothing
    return _gained(figure) >= _NOTHING
