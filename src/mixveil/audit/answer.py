"""The first sentence of an audit of records: what an owner wants to know before anything else; and which warnings are
loud."""

from __future__ import annotations

from collections.abc import Iterable

from mixveil.audit.figures import Figure, attack_title, caption, promise_caption
from mixveil.audit.found import Audit
from mixveil.audit.metrics.catalogue import BY_CODE
from mixveil.core.types import AttackKind
from mixveil.core.wording.notes import Note, note

_MUCH, _NOTHING = 0.2, 0.02  # shares of the error of guessing: as the verdict calls them

_FALSE = {
    "labels-not-randomised",
    "noise-false",
    "noise-shared-by-releases",
    "noise-wrong",
    "units-paired",
}
"""Warnings that something which the release states is false, or that its noise can be removed. All of them come from
the noise, the traces and the plan: what attacks found must not decide whether a certified release is sent."""

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
_OF_LABELS = ("own-class-shown", "class-counts-shown", "labels-found")
_OPEN = {
    "attack-broken",
    "verdict-members-untested",
    "verdict-members-untested-bounded",
    "verdict-noise-unmeasured",
    "verdict-not-linear",
    "verdict-part",
    "verdict-screened",
    "verdict-unasked",
    "verdict-untested",
    "verdict-untrained",
}
"""What is said where something was not tested."""


def answer(found: Audit, warnings: Iterable[Note], verdict: Iterable[Note]) -> Note:
    """What is said first. It reports, and advises only where a release is not what it states, or states nothing. Of
    seeded trials that they are such comes first: what they state of their noise is no more than that."""
    warned, told = {item.code for item in warnings}, {item.code for item in verdict}
    seeded = "noise-reproducible" in warned
    said = _answer(found, warned - {"no-guarantee-stated"} if seeded else warned, told)
    return note("answer-seeded", said=said) if seeded else said


def _answer(found: Audit, warned: set[str], told: set[str]) -> Note:
    if warned & _FALSE or _states_falsely(found):
        return note("answer-do-not-send")
    if "ceiling-beaten" in warned:
        return note("answer-ceiling-beaten")
    said = _attacked(found, warned, told)
    for promise in [promise for promise in found.promises if promise.broken][:1]:
        what = promise_caption(promise.name, promise.of, found.unit)
        said = note("answer-not-kept", promise=what, nominal=promise.nominal, found=promise.found, attacked=said)
    return note("answer-no-guarantee", attacked=said) if "no-guarantee-stated" in warned else said


def _states_falsely(found: Audit) -> bool:
    """Whether a guarantee is not kept that a release certifies, or that follows from one. A τ that is not reached is
    stated beside what is."""
    certified = {release.id for release in found.view.releases if release.certified}
    broken = [promise for promise in found.promises if promise.broken]
    return any(promise.name != "directional-snr" or promise.release in certified for promise in broken)


def _attacked(found: Audit, warned: set[str], told: set[str]) -> Note:
    """What attacks got."""
    if warned & (_RECONSTRUCTED | _RECOGNISED):
        both = bool(warned & _RECONSTRUCTED) and bool(warned & _RECOGNISED)
        return note("answer-both" if both else f"answer-{'reconstructed' if warned & _RECONSTRUCTED else 'recognised'}")
    if any(f.metric == "mse" and _gained(f) >= _MUCH for f in found.figures if f.known is not None):
        return note("answer-known")
    ending = "-in-part" if (told | warned) & _OPEN else ""
    most = max(
        found.figures, key=lambda figure: (_gained(figure) > 0, figure.known is None, _gained(figure)), default=None
    )
    if most is not None and _gained(most) > 0:
        what = caption(most.metric, most.of, most.know_nothing, found.unit)
        figures = {"attack": attack_title(most.attack), "mean": most.mean, "nothing": most.know_nothing}
        return note(f"answer-some{ending}", figure=what, **figures, single=_single(found))
    if not any(figure.kind in _TESTING for figure in found.figures):
        return note("answer-untested")
    if any(code.endswith("-too-weak") for code in told):
        return note("answer-too-weak")
    return note(f"answer-little{ending}", single=_single(found))


def _gained(figure: Figure) -> float:
    """How much an attack took away of what guessing leaves, on average; 0 where that is next to nothing, or where it
    was not shown to be more than guessing gets. That labels are shown is said apart."""
    metric, nothing = BY_CODE.get(figure.metric), figure.know_nothing
    if metric is None or nothing is None or figure.kind in ("labels", "prior") or figure.metric in _OF_LABELS:
        return 0.0
    gained = metric.gained(figure.mean, nothing)
    if figure.interval is None:
        return gained if gained >= _NOTHING else 0.0
    low, high = figure.interval
    return gained if (low > nothing if metric.worse == "higher" else high < nothing) else 0.0


def _single(found: Audit) -> Note:
    """Of the record that is guessed best, by the attack that is furthest beyond chance with it."""
    better = [best for best in found.best_guesses if best.gained > 0]
    if not better:
        return note("single-no-better" if found.best_guesses else "single-not-guessed")
    best = max(better, key=lambda best: best.gained - best.chance)
    chance = max(0.0, best.chance)
    return note("single-guessed", attack=attack_title(best.attack), gained=best.gained, chance=chance)
