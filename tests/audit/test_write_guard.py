"""An attack that writes to what it is given changes nothing of what others are measured by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from mixveil.attacks.catalogue import ATTACKS
from mixveil.attacks.records.linkage import Linkage
from mixveil.attacks.shared.base import BaseAttack, CannotAttackError
from mixveil.audit.found import Audit
from mixveil.audit.write_guard import Candidates, WriteGuard, WrittenError
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import AttackKind, Batch, Guess, Mu, View
from mixveil.core.wording.notes import note
from mixveil.data.row_views import InMemoryRows, Subset
from tests.audited import PRIVATE, audited, made
from tests.made import encoded
from tests.notes import holds

NAMES = ["linkage", "lmmse", "membership"]


def given(view: View) -> tuple[Tensor, Tensor]:
    assert view.candidates is not None and view.traces is not None
    return view.candidates, view.traces[0].weight


def by_numpy(view: View) -> None:
    given(view)[0].numpy()[:] = 0.5


def by_a_slice(view: View) -> None:
    given(view)[0][3:5].mul_(0.5)


def without_a_count(view: View) -> None:
    given(view)[0].data.clamp_(0.4, 0.6)


def to_the_weights(view: View) -> None:
    given(view)[1].fill_(0.5)


def before_an_error(view: View) -> None:
    given(view)[0].zero_()
    raise CannotAttackError(note("no-figures"))


def with_others_asked(view: View) -> None:
    """What other attacks keep of a view must not be of what it was for a while."""
    given(view)[0].zero_()
    Linkage()(view, stream=SeededStream(0))


WRITES: Mapping[str, Callable[[View], None]] = {
    write.__name__: write
    for write in (by_numpy, by_a_slice, without_a_count, to_the_weights, before_an_error, with_others_asked)
}


@dataclass(frozen=True)
class Writing(BaseAttack):
    """It makes guesses good by making the truth bad."""

    name: ClassVar[str] = "a-writing-one"  # the first of all
    kind: ClassVar[AttackKind] = "linkage"
    needs: ClassVar[frozenset[str]] = frozenset({"candidates"})
    write: ClassVar[Callable[[View], None]]

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        if view.candidates is not None and len(view.candidates) == 1000:  # not where there is no defence
            type(self).write(view)
        return Linkage()(view, stream=stream)


def figures(found: Audit) -> list[object]:
    return [figure for figure in found.figures if figure.attack in NAMES]


@pytest.mark.parametrize("write", WRITES)
def test_an_attack_that_writes_is_broken_and_others_have_the_same_figures(
    write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = made(Mu(8.0))
    alone = audited(release, names=NAMES)
    monkeypatch.setattr(Writing, "write", staticmethod(WRITES[write]), raising=False)
    with ATTACKS.including(Writing):
        found = audited(release, names=[Writing.name, *NAMES])
    assert [run.status for run in found.attacks] == ["broken", "ran", "ran", "ran"]
    assert holds(found.warnings, "attack-wrote") and not any(f.attack == Writing.name for f in found.figures)
    assert torch.equal(found.pixels, PRIVATE.take(torch.arange(500)).x)
    assert figures(found) == figures(alone) and not holds(found.warnings, "noise-wrong")


def test_links_are_given_anew_each_time() -> None:
    """An attack that changes a guess which it was given changes no other."""
    release, trace = encoded(made(Mu(8.0))[0].encoder, PRIVATE, SeededStream(0))
    seen = View((release,), (trace,), candidates=PRIVATE.take(torch.arange(100)).x)
    links = Linkage()(seen, stream=SeededStream(0)).links
    assert links is not None
    kept = links.clone()
    links.zero_()
    again = Linkage()(seen, stream=SeededStream(0)).links
    assert again is not None and torch.equal(again, kept)


def test_candidates_are_read_in_their_order_and_restored_in_their_place() -> None:
    own, others = Subset(PRIVATE, torch.tensor([4, 2])), InMemoryRows(Batch(torch.ones(1, 1, 8, 8), torch.zeros(1, 1)))
    asked = Candidates.of(own, others)
    x, y = PRIVATE.take(torch.tensor([4, 2]))
    whole = torch.cat([x, torch.ones(1, 1, 8, 8)])
    assert torch.equal(asked.x, whole) and torch.equal(asked.labels, y.argmax(1))
    guard = WriteGuard([], [asked])
    with guard:
        pass
    for _ in range(2):
        with pytest.raises(WrittenError), guard:
            asked.x[1].sort()
            asked.x[1] = asked.x[1].flip(2)
        assert torch.equal(asked.x, whole)
    assert len(Candidates.of(own, Subset(PRIVATE, torch.arange(0))).x) == 2
