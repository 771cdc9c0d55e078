"""The public rows that attackers have, and what is remembered of them."""

from __future__ import annotations

import torch

from mixveil.attacks.shared.model import entry_of, prior_of
from mixveil.audit.public import Held, with_some_public
from mixveil.core.types import Mu, Tau, View
from tests.audited import PUBLIC, made
from tests.notes import holds

RELEASE, TRACE = made(Tau(1.0, "energy"))
CLIPPED, _ = made(Mu(1.0), seed=3)
VIEW = View((RELEASE,), (TRACE,), PUBLIC)


def test_as_many_public_rows_as_attacks_learn_from_are_held_in_memory() -> None:
    whole, said = with_some_public(VIEW, 600 * 64)
    assert isinstance(whole.public, Held) and said == []
    index = torch.tensor([5, 0, 599])
    for mine, theirs in zip(whole.public.take(index), PUBLIC.take(index), strict=True):
        assert torch.equal(mine, theirs)
    assert (len(whole.public), whole.public.low, whole.public.high) == (600, PUBLIC.low, PUBLIC.high)
    some, said = with_some_public(VIEW, 100 * 64)
    assert some.public is not None and len(some.public) == 100
    assert holds(said, "verdict-some-public", used=100, rows=600)
    spread = torch.linspace(0, 599, 100).round().long()
    assert torch.equal(some.public.take(torch.arange(100)).x, PUBLIC.take(spread).x)
    assert with_some_public(View((RELEASE,)), 1) == (View((RELEASE,)), [])


def test_how_records_enter_is_worked_out_once_for_each_encoder() -> None:
    seen, _ = with_some_public(View((RELEASE, CLIPPED), None, PUBLIC), 1 << 20)
    prior = prior_of(seen)
    entries = [entry_of(seen, t, prior) for t in (0, 1)]
    again = [entry_of(View((CLIPPED, RELEASE), None, seen.public), t, prior) for t in (1, 0)]
    assert again[0] is entries[0] and again[1] is entries[1] and entries[0] is not entries[1]
    other = View((CLIPPED,), None, PUBLIC)
    fresh = entry_of(other, 0, prior_of(other))
    assert fresh is not entries[1] and torch.allclose(fresh.gain, entries[1].gain)
