"""What every attack must do: the registry is walked."""

from __future__ import annotations

import pytest
import torch

from mixveil.attacks import attacks
from mixveil.encoders.singular import Singular
from mixveil.errors import ArgumentError
from mixveil.keys import SeededStream
from mixveil.types import Attack, View
from tests.made import encoded, images


@pytest.fixture(params=sorted(attacks()))
def attack(request: pytest.FixtureRequest) -> Attack:
    return attacks()[request.param]()


def view() -> View:
    data = images(8)
    release, _ = encoded(Singular.example(), data, SeededStream(1))
    return View((release,), candidates=data.take(torch.arange(8)).x)


def test_the_same_view_gives_the_same_guess(attack: Attack) -> None:
    seen = view()
    one, two = attack(seen, stream=SeededStream(0)), attack(seen, stream=SeededStream(0))
    assert torch.equal(one.pairs, two.pairs) and torch.equal(one.doubts, two.doubts)
    assert one.pairs.shape == (8, 2)


def test_the_view_is_not_changed(attack: Attack) -> None:
    seen = view()
    assert seen.candidates is not None
    before = seen.candidates.clone()
    attack(seen, stream=SeededStream(0))
    assert torch.equal(seen.candidates, before)


def test_an_attack_says_what_it_needs(attack: Attack) -> None:
    bare = View(view().releases)
    for name in attack.needs:
        assert getattr(bare, name) is None
        with pytest.raises(ArgumentError, match=name):
            attack(bare, stream=SeededStream(0))
