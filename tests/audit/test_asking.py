"""What goes wrong inside an attack, or is wrong with its guess, is told of it; others go on, with the same figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import pytest
import torch
from torch import Tensor

from mixveil.attacks.catalogue import ATTACKS
from mixveil.attacks.records.linkage import Linkage, Membership
from mixveil.attacks.shared.base import BaseAttack
from mixveil.attacks.shared.model import released
from mixveil.audit import self_test
from mixveil.audit.asking import JUDGED_BY, BrokenAttackError, guess_of
from mixveil.audit.auditing import audit
from mixveil.audit.found import Audit
from mixveil.core.errors import TrainingStopped
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import AttackKind, Guess, KnownRecords, Mu, Sizes, View
from mixveil.core.wording.notes import Note
from tests.audited import FEW, FEW_PUBLIC, OTHERS, template
from tests.notes import holds

N, STRANGERS = len(FEW), 200
RELEASE, TRACE = template(Mu(8.0))
Wrong = Callable[[View, Guess], Any]


def raised(error: BaseException) -> Wrong:
    def fails(view: View, guess: Guess) -> Any:
        raise error

    return fails


def audited(*names: str) -> Audit:
    others = OTHERS.take(torch.arange(STRANGERS)).x
    view = View((RELEASE,), (TRACE,), FEW_PUBLIC)
    return audit(view, FEW, others=others, names=names, stream=SeededStream(1))


def why_of(found: Audit, name: str) -> Note:
    (run,) = (run for run in found.attacks if run.attack == name)
    assert run.status == "broken" and run.why is not None
    assert holds(found.warnings, "attack-broken", attack=name) and not any(f.attack == name for f in found.figures)
    return run.why


class Wrongly(BaseAttack):
    """Linkage and membership at once, and then something wrong."""

    name: ClassVar[str] = "a-wrong-one"  # the first of all
    kind: ClassVar[AttackKind] = "linkage"
    needs: ClassVar[frozenset[str]] = frozenset({"traces", "candidates"})
    threat: ClassVar[str] = "threat-linkage"
    wrong: ClassVar[Wrong]
    bare: ClassVar[bool] = True

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        guess = replace(Linkage()(view, stream=stream), scores=Membership()(view, stream=stream).scores)
        if self.bare or len(view.candidates if view.candidates is not None else ()) == N + N:
            guess = type(self).wrong(view, guess)
        return guess


def links(guess: Guess) -> Tensor:
    return torch.as_tensor(guess.links)


WRONG: Mapping[str, tuple[Wrong, str, Mapping[str, object]]] = {
    "error": (raised(RuntimeError("sizes differ\nat once")), "attack-failed", {"error": "RuntimeError: sizes differ"}),
    "steering": (raised(KeyError("\x1b[2J" + "x" * 500)), "attack-failed", {}),
    "memory": (raised(MemoryError()), "attack-failed", {"error": "MemoryError"}),
    "nothing": (lambda view, guess: None, "guess-no-guess", {"came": "NoneType"}),
    "empty": (lambda view, guess: Guess(), "guess-empty", {"kind": "linkage", "wanted": "links / rows"}),
    "other-field": (lambda view, guess: replace(guess, links=None), "guess-lacks", {"came": ["scores"]}),
    "array": (
        lambda view, guess: replace(guess, links=cast(Any, links(guess).numpy())),
        "guess-no-tensor",
        {"field": "links", "came": "ndarray"},
    ),
    "fewer-rows": (
        lambda view, guess: replace(guess, links=links(guess)[:-5]),
        "guess-of-other-shape",
        {"field": "links"},
    ),
    "no-numbers": (
        lambda view, guess: replace(guess, links=links(guess) * torch.nan),
        "guess-not-finite",
        {"field": "links"},
    ),
    "short-scores": (
        lambda view, guess: replace(guess, scores=torch.as_tensor(guess.scores)[:-1]),
        "guess-of-other-shape",
        {"field": "scores"},
    ),
}


@pytest.mark.parametrize("bare", [True, False])
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_an_attack_is_told_and_others_go_on(
    name: str, bare: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no defence, or on the release alone."""
    wrong, code, told = WRONG[name]
    monkeypatch.setattr(Wrongly, "wrong", staticmethod(wrong), raising=False)
    monkeypatch.setattr(Wrongly, "bare", bare)
    with ATTACKS.including(Wrongly):
        found = audited(Wrongly.name, "lmmse")
    why = why_of(found, Wrongly.name)
    assert why.code == code and told.items() <= why.figures.items()
    assert str(why).isprintable() and len(str(why)) < 300
    assert [figure for figure in found.figures if figure.attack == "lmmse"] == list(audited("lmmse").figures)


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(143), TrainingStopped("stopped by the user")])
def test_who_stops_an_audit_stops_it(stop: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wrongly, "wrong", staticmethod(raised(stop)), raising=False)
    with ATTACKS.including(Wrongly), pytest.raises(type(stop)):
        audited(Wrongly.name)


def test_a_defect_of_the_audit_itself_is_not_told_of_an_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(self_test, "_fails", broken)
    with pytest.raises(ZeroDivisionError):
        audited("lmmse")


@dataclass(frozen=True)
class Unwell(Linkage):
    """Fails before it is asked anything."""

    name: ClassVar[str] = "unwell"

    def cannot(self, view: View) -> Note | None:
        raise ZeroDivisionError

    def work(self, sizes: Sizes) -> float:
        raise ZeroDivisionError


@dataclass(frozen=True)
class Unsized(Linkage):
    """Does not know how much work it is."""

    name: ClassVar[str] = "unsized"

    def work(self, sizes: Sizes) -> float:
        raise ZeroDivisionError


@dataclass(frozen=True)
class Knowing(BaseAttack):
    """Guesses all records by a known one, one record too few."""

    name: ClassVar[str] = "knowing"
    kind: ClassVar[AttackKind] = "reconstruction"
    needs: ClassVar[frozenset[str]] = frozenset({"known", "candidates"})
    threat: ClassVar[str] = "threat-known"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        return Guess(images=torch.as_tensor(view.candidates)[: len(view.releases[0].payload)])

    def knowing(self, view: View, *, stream: Stream) -> Callable[[KnownRecords, Tensor], Tensor]:
        return lambda known, wanted: known.images[:1]


def test_other_code_of_an_attack_may_fail_too() -> None:
    with ATTACKS.including(Unwell, Unsized, Knowing):
        found = audited("unwell", "unsized", "knowing", "lmmse")
    assert {run.attack: run.status for run in found.attacks} == {
        "unwell": "broken",
        "unsized": "ran",
        "knowing": "broken",
        "lmmse": "ran",
    }
    assert why_of(found, "unwell").figures["error"] == "ZeroDivisionError"
    assert why_of(found, "knowing").code == "guess-of-other-shape"


# Each field, on a view that is made by hand

CANDIDATES = FEW.take(torch.arange(N)).x
VIEW = View((RELEASE, RELEASE), (TRACE, TRACE), candidates=torch.cat([CANDIDATES, CANDIDATES[:7]]), covers=FEW_PUBLIC)
C, P = N + 7, len(FEW_PUBLIC)


@dataclass
class Saying(BaseAttack):
    """Says what it was told to."""

    name = "saying"
    says: Guess

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        return self.says


def said(guess: Guess, view: View = VIEW) -> str | None:
    """The code of what is wrong with a guess; None if nothing is."""
    attack = Saying(guess)
    attack.kind = next(kind for kind, names in JUDGED_BY.items() if any(getattr(guess, n) is not None for n in names))  # type: ignore[misc]
    try:
        guess_of(attack, view, stream=SeededStream(0))
    except BrokenAttackError as error:
        return error.why.code
    return None


def whole(*shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=torch.int64)


SHAPE, FLOAT, WHOLE, RANGE = "guess-of-other-shape", "guess-no-figures", "guess-no-integers", "guess-out-of-range"


@pytest.mark.parametrize(
    ("code", "guess"),
    [
        (None, Guess(images=torch.zeros(N, 1, 8, 8, requires_grad=True), sources=whole(2 * N, 3) - 1)),
        (SHAPE, Guess(images=torch.zeros(1, 1, 8, 8))),
        (SHAPE, Guess(images=torch.zeros(N, 64))),
        (FLOAT, Guess(images=whole(N, 1, 8, 8))),
        (FLOAT, Guess(images=torch.zeros(N, 1, 8, 8, dtype=torch.complex64))),
        (SHAPE, Guess(images=torch.zeros(N, 1, 8, 8), sources=whole(N, 2))),
        (RANGE, Guess(images=torch.zeros(N, 1, 8, 8), sources=whole(2 * N, 2) + N)),
        (None, Guess(pairs=whole(N, 2) - 1, doubts=torch.full((N,), torch.inf))),
        (SHAPE, Guess(pairs=whole(N, 3))),
        (RANGE, Guess(pairs=whole(N, 2) + C)),
        (WHOLE, Guess(pairs=torch.zeros(N, 2))),
        (None, Guess(links=torch.zeros(C, N))),
        (SHAPE, Guess(links=torch.zeros(N, C))),
        (None, Guess(rows=whole(C))),
        (SHAPE, Guess(rows=whole(N))),
        (RANGE, Guess(rows=whole(C) + N)),
        (None, Guess(scores=torch.zeros(C))),
        (SHAPE, Guess(scores=torch.zeros(C, 1))),
        ("guess-not-finite", Guess(scores=torch.full((C,), torch.inf))),
        (None, Guess(labels=whole(N, 2))),
        (RANGE, Guess(labels=whole(N, 2) - 1)),
        (None, Guess(counts=whole(10))),
        (SHAPE, Guess(counts=whole(9))),
        (None, Guess(covers=torch.zeros(N, P))),
        (SHAPE, Guess(covers=torch.zeros(N, P - 1))),
        (None, Guess(signs=torch.ones(N, 64, dtype=torch.int8))),
        ("guess-no-signs", Guess(signs=torch.zeros(N, 64))),
        (None, Guess(alike=torch.zeros(N, N))),  # of the rows of the first release alone
        (None, Guess(alike=torch.zeros(2 * N, 2 * N))),
        (SHAPE, Guess(alike=torch.zeros(N - 1, N - 1))),
        (None, Guess(apart=torch.ones(N, 4))),
        (SHAPE, Guess(apart=torch.ones(N, 0))),
        (RANGE, Guess(apart=2 * torch.ones(N, 4))),
    ],
)
def test_every_field_of_a_guess_has_its_shape_and_values(code: str | None, guess: Guess) -> None:
    assert said(guess) == code


def test_a_sentence_says_what_was_wanted_and_what_came() -> None:
    with pytest.raises(BrokenAttackError) as caught:
        attack = Saying(Guess(links=torch.zeros(C - 5, N)))
        attack.kind = "linkage"  # type: ignore[misc]
        guess_of(attack, VIEW, stream=SeededStream(0))
    figures = caught.value.why.figures
    assert (figures["wanted"], figures["came"]) == (f"(candidates = {C}, rows = {N})", f"({C - 5}, {N})")


def test_a_guess_is_measured_without_slopes() -> None:
    attack = Saying(Guess(scores=torch.zeros(C, requires_grad=True)))
    attack.kind = "membership"  # type: ignore[misc]
    scores = guess_of(attack, VIEW, stream=SeededStream(0)).scores
    assert scores is not None and not scores.requires_grad


@dataclass(frozen=True)
class Blurry(BaseAttack):
    """Leaves a figure where there is no defence that depends on the draws of that release alone."""

    name: ClassVar[str] = "z-blurry"  # the last of all
    kind: ClassVar[AttackKind] = "reconstruction"
    threat: ClassVar[str] = "threat-lmmse"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        release = view.releases[0]
        rows = release.encoder.restore(released(release)).view(-1, *release.shape)
        return Guess(images=rows if release.encoder.name == "identity" else 3 * rows)


def test_what_is_left_without_a_defence_does_not_depend_on_other_attacks() -> None:
    with ATTACKS.including(Blurry):
        alone, among = (audited(*names, Blurry.name) for names in ((), ("lmmse", "linkage", "membership")))
    one, other = (why_of(found, Blurry.name) for found in (alone, among))
    assert one.code == "bare-records-left" and one == other
    error, nothing, most = (one.figures[name] for name in ("error", "nothing", "most"))
    assert error > most * nothing and most == 0.95
