"""The first sentence of an audit of records: what an owner wants to know before anything else."""

from __future__ import annotations

from collections.abc import Iterable

from mixveil.audit.found import Audit
from mixveil.core.types import AttackKind
from mixveil.core.wording.notes import Note, note

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
    if not any(figure.kind in _TESTING for figure in found.figures):
        return note("answer-untested")
    if any(code.endswith("-too-weak") for code in told):
        return note("answer-too-weak")
    return note("answer-little-in-part" if told & _OPEN else "answer-little")
