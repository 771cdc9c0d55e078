"""What every attack on updates must do, by what it declares: the registry is walked, and no attack is known by its name
here."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mixveil.attacks.catalogue import attacks
from mixveil.attacks.shared.base import CannotAttackError
from mixveil.attacks.shared.training import TrainingCache, with_cache
from mixveil.core.device_random import DeviceStream
from mixveil.core.first_weights import started
from mixveil.core.local_training import AugMix, LocalTraining
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Attack, AttackKind, Guess, View
from mixveil.core.wording.sentences import WORDS
from mixveil.data.images import Images
from mixveil.data.similarity import mse
from mixveil.encoders.identity import Identity
from mixveil.features.stacked.local_steps import Rows, local_steps
from mixveil.features.stacked.network import Stacked, stacked
from mixveil.releases.updates import in_memory
from tests.conformance.test_attacks import smooth, view

UPDATES = sorted(name for name, kind in attacks().items() if kind.payload == "updates")
SHAPE, CLASSES = (1, 8, 8), 4
SAYS: dict[AttackKind, set[str]] = {"reconstruction": {"images"}, "labels": {"counts"}}


def brief(name: str, steps: int = 3) -> Attack:
    """With few steps, where it takes some, and from one start."""
    kind: Any = attacks()[name]
    given = {"steps": steps, "restarts": 1}
    fields = {field.name for field in dataclasses.fields(kind)}
    made: Attack = kind(**{name: value for name, value in given.items() if name in fields})
    return with_cache(made, TrainingCache(max_steps=steps))


@pytest.fixture(params=UPDATES)
def attack(request: pytest.FixtureRequest) -> Attack:
    return brief(request.param)


def dense() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Sigmoid(), nn.Linear(32, CLASSES))


def convolution() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64, CLASSES))


def party(rows: int) -> Images:
    return smooth(rows, 1, SHAPE)


def truth(rows: int) -> Tensor:
    return party(rows).take(torch.arange(rows)).x


def sent(net: nn.Sequential | None = None, rows: int = 1, steps: int = 1, *, told: bool = False) -> View:
    """An update without a defence; told: attackers know the labels."""
    net = started(dense() if net is None else net, DeviceStream(SeededStream(3)), torch.device("cpu"))
    data = party(rows)
    x, y = data.take(torch.arange(rows))
    training = LocalTraining(rows, rows, (0.1,) * steps)
    before = stacked(dict(net.named_parameters()), 1)
    after = local_steps(Stacked(net), before, [Rows(x[None], y[None])] * steps, training)
    both = [{name: value[0] for name, value in ends.items()} for ends in (before, after)]
    release = in_memory(data, both[0], both[1], method="fedavg", training=training, net=net)
    public = smooth(200, 2, SHAPE)
    return View((release,), public=public, labels=data.labels if told else None)


def fitting(attack: Attack, rows: int = 1) -> View:
    """An update without a defence. For attacks on Fed-AugMix alone, said to be of one whose views weigh next to
    nothing."""
    seen = sent(rows=rows)
    if attack.cannot(seen) is None:
        return seen
    little = AugMix(1.0, weight=1e-3, scale=0.0, large=1e-3)
    settings: Any = seen.releases[0].envelope.settings
    training = dataclasses.replace(settings.training, augmix=little)
    return dataclasses.replace(seen, releases=(seen.releases[0].with_(training=training),))


def said(attack: Attack, seen: View) -> Guess | None:
    """What the attack guesses; nothing where it says why it cannot."""
    why = attack.cannot(seen)
    if why is None:
        return attack(seen, stream=SeededStream(0))
    assert why.code in WORDS and "{" not in str(why)
    with pytest.raises(CannotAttackError):
        attack(seen, stream=SeededStream(0))
    return None


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize(("rows", "steps"), [(1, 1), (1, 3), (3, 1), (3, 2), (40, 2)])
@pytest.mark.parametrize("make", [dense, convolution])
def test_it_attacks_every_update_that_it_says_it_can(
    attack: Attack, make: Any, rows: int, steps: int, told: bool
) -> None:
    guess = said(attack, sent(make(), rows, steps, told=told))
    if guess is None:
        return
    fields = {field.name for field in dataclasses.fields(guess) if getattr(guess, field.name) is not None}
    assert fields == SAYS[attack.kind]
    if guess.images is not None:
        assert guess.images.shape == (rows, *SHAPE) and guess.images.dtype == torch.float64
        assert 0 <= float(guess.images.min()) <= float(guess.images.max()) <= 1
    if guess.counts is not None:
        assert guess.counts.shape == (CLASSES,) and guess.counts.dtype == torch.int64
        assert int(guess.counts.min()) >= 0 and int(guess.counts.sum()) == rows


def test_an_update_without_any_change_gives_numbers(attack: Attack) -> None:
    seen = fitting(attack, 3)
    same = {name: seen.releases[0].payload[f"before.{name.partition('.')[2]}"] for name in seen.releases[0].payload}
    guess = said(attack, dataclasses.replace(seen, releases=(seen.releases[0].with_(payload=same),)))
    assert guess is not None
    for field in SAYS[attack.kind]:
        assert bool(getattr(guess, field).double().isfinite().all())


def test_the_same_update_gives_the_same_guess_and_is_not_changed(attack: Attack) -> None:
    seen = fitting(attack, 2)
    payload = seen.releases[0].payload
    before = {name: value.clone() for name, value in payload.items()}
    one, two = (attack(seen, stream=SeededStream(0)) for _ in range(2))
    for field in SAYS[attack.kind]:
        assert torch.equal(getattr(one, field), getattr(two, field))
    assert all(torch.equal(before[name], value) and not value.requires_grad for name, value in payload.items())


@pytest.mark.parametrize("name", UPDATES)
def test_where_there_is_no_defence_it_succeeds(name: str) -> None:
    attack = brief(name, 300)
    seen = fitting(attack)
    guess = attack(seen, stream=SeededStream(0))
    if attack.kind == "labels":
        assert (
            guess.counts is not None and guess.counts.tolist() == torch.bincount(party(1).labels, minlength=4).tolist()
        )
        return
    nothing = smooth(200, 2, SHAPE).take(torch.arange(200)).x.mean(0)[None]
    assert guess.images is not None
    assert float(mse(truth(1), guess.images)) < 0.1 * float(mse(truth(1), nothing))


def test_it_refuses_other_views_and_says_why(attack: Attack) -> None:
    seen = sent()
    release = seen.releases[0]
    cases = {
        "attack-needs-updates": View(view(Identity()).releases),
        "attack-needs-training": View((release.with_(training=None),)),
        "attack-needs-layers": View((release.with_(layers=None),)),
    }
    for code, wrong in cases.items():
        why = attack.cannot(wrong)
        assert why is not None and why.code == code and code in WORDS
        assert said(attack, wrong) is None
