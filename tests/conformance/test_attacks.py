"""What every attack must do: the registry is walked."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from mixveil.attacks.catalogue import attacks
from mixveil.attacks.shared.training import Recipe, Workshop
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Attack, Encoder, Known, Tau, Units, View
from mixveil.data.opening import Images, from_tensors
from mixveil.data.similarity import mse
from mixveil.encoders.identity import Identity
from mixveil.encoders.singular import Singular
from tests.made import encoded, range_facts, with_moments


@pytest.fixture(params=sorted(attacks()))
def attack(request: pytest.FixtureRequest) -> Attack:
    kind = attacks()[request.param]
    trained = {
        "base": 8,
        "rounds": 1,
        "recipe": Recipe(epochs=1000, batch=16, rate=3e-3),
        "workshop": Workshop(most=150),
    }
    fields = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in trained.items() if name in fields})


def smooth(n: int, seed: int) -> Images:
    """Images of 4×4 that vary in two directions mostly."""
    stream = SeededStream(seed)
    ramp = torch.linspace(-1, 1, 4, dtype=torch.float64)
    shapes = torch.stack([ramp[:, None].expand(4, 4), ramp[None].expand(4, 4)]).view(2, 16)
    x = 0.5 + 0.1 * stream.normal(n, 2) @ shapes + 0.01 * stream.normal(n, 16)
    return from_tensors(x.clamp(0, 1).float().view(n, 1, 4, 4), torch.arange(n) % 4, classes=4)


def view(encoder: Encoder, n: int = 8) -> View:
    data = smooth(n, 1)
    release, trace = encoded(encoder, data, SeededStream(1))
    public, x, some = smooth(200, 2), data.take(torch.arange(n)).x, torch.arange(0, n, 3)
    units = Units(torch.arange(n) // 2, torch.arange(n), torch.arange(n))
    return View((release,), (trace,), public, x, data.labels, Known(some, x[some]), public, units)


def test_the_same_view_gives_the_same_guess(attack: Attack) -> None:
    seen = view(Singular.example())
    one, two = attack(seen, stream=SeededStream(0)), attack(seen, stream=SeededStream(0))
    said = [field.name for field in dataclasses.fields(one) if getattr(one, field.name) is not None]
    assert said
    for name in said:
        assert torch.equal(getattr(one, name), getattr(two, name))


def test_the_view_is_not_changed(attack: Attack) -> None:
    seen = view(Singular.example())
    assert seen.candidates is not None and seen.traces is not None
    before = seen.candidates.clone(), seen.traces[0].weight.clone(), seen.traces[0].partner.clone()
    attack(seen, stream=SeededStream(0))
    after = seen.candidates, seen.traces[0].weight, seen.traces[0].partner
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_an_attack_says_what_it_needs_and_nothing_more(attack: Attack) -> None:
    seen = view(Singular.example())
    given: dict[str, Any] = {name: getattr(seen, name) for name in attack.needs}
    attack(View(seen.releases, **given), stream=SeededStream(0))
    for name in attack.needs:
        with pytest.raises(ArgumentError, match=name):
            attack(View(seen.releases, **{k: v for k, v in given.items() if k != name}), stream=SeededStream(0))


def test_every_reconstruction_beats_knowing_nothing_where_there_is_no_defence(attack: Attack) -> None:
    seen = view(Identity(), 30)
    guess = attack(seen, stream=SeededStream(0))
    images = guess.images if guess.pictures is None else guess.pictures
    if images is None or attack.name == "prior":
        return
    nothing = attacks()["prior"]()(seen, stream=SeededStream(0)).images
    assert seen.candidates is not None and nothing is not None
    most = 0.1 if guess.pictures is None else 0.2  # few public images teach a decoder less
    assert float(mse(seen.candidates, images).mean()) < most * float(mse(seen.candidates, nothing).mean())


def test_every_reconstruction_takes_several_releases_and_gains_from_them(attack: Attack) -> None:
    data = smooth(60, 1)
    facts = with_moments(range_facts(data), energy=0.3, lambda_max=0.1)
    encoder, _ = Singular().calibrate(Tau(0.5, "energy"), facts)
    pairs = [encoded(encoder, data, SeededStream(seed)) for seed in range(6)]
    releases, traces = zip(*pairs, strict=True)
    truth = data.take(torch.arange(60)).x
    errors = []
    for count in (1, 6):
        public, known = smooth(400, 2), Known(torch.arange(6), truth[:6])
        units = Units(torch.arange(60) // 3, torch.arange(60), torch.arange(60))
        seen = View(releases[:count], traces[:count], public, truth, data.labels, known, public, units)
        guess = attack(seen, stream=SeededStream(0))
        images = guess.images if guess.pictures is None else guess.pictures
        if images is None or attack.name == "prior":
            return
        errors.append(float(mse(truth, images).mean()))
    assert errors[1] < 0.95 * errors[0]
