"""Attacks take large releases part by part; what they find does not depend on the parts."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from torch import Tensor

from mixveil.attacks.catalogue import attacks
from mixveil.attacks.shared import prior
from mixveil.attacks.shared.base import CannotAttackError
from mixveil.audit import noise_check, self_test
from mixveil.audit.truth import standardised_noise
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, KnownRecords, Tau, View
from mixveil.data.row_views import Subset
from mixveil.encoders import calibration
from mixveil.encoders.identity import Identity
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from tests.made import encoded, images

ROWS = 40
DATA = images(ROWS, (1, 8, 8), classes=4)
OTHERS = images(120, (1, 8, 8), classes=4, seed=5)
NAMES = sorted(name for name, kind in attacks().items() if kind.payload == "records" and not kind.trains)
SINGULAR = calibration.calibrate(Singular(), Tau(1e-2, "energy"), DATA, stream=SeededStream(0))[0]


def view(encoder: Encoder, releases: int) -> View:
    pairs = [encoded(encoder, DATA, SeededStream(t)) for t in range(releases)]
    own = torch.arange(0, ROWS, 2)
    candidates = torch.cat([DATA.take(torch.arange(ROWS)).x, OTHERS.take(torch.arange(60)).x])
    return View(
        tuple(release for release, _ in pairs),
        tuple(trace for _, trace in pairs),
        Subset(OTHERS, torch.arange(60, 120)),
        candidates=candidates,
        candidate_labels=torch.arange(len(candidates)) % 4,
        known=KnownRecords(own, DATA.take(own).x),
    )


def told(name: str, seen: View) -> dict[str, Tensor]:
    attack = attacks()[name]()
    if attack.cannot(seen) is not None:
        return {}
    try:
        guess = attack(seen, stream=SeededStream(1))
    except CannotAttackError:
        return {}
    found = {field.name: getattr(guess, field.name) for field in fields(guess)}
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


@pytest.mark.parametrize("releases", [1, 3])
@pytest.mark.parametrize("encoder", [SINGULAR, Mixup()], ids=["singular", "mixup"])
def test_guesses_are_those_of_all_rows_at_once(
    encoder: Encoder, releases: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {name: told(name, view(encoder, releases)) for name in NAMES}
    monkeypatch.setattr(prior, "AT_ONCE", 200)  # three rows, and one at the end
    again = {name: told(name, view(encoder, releases)) for name in NAMES}
    assert sum(map(bool, whole.values())) > 10
    for name in NAMES:
        assert whole[name].keys() == again[name].keys(), name
        for field, value in whole[name].items():
            assert value.shape == again[name][field].shape
            close = torch.isclose(value.double(), again[name][field].double(), rtol=1e-5, atol=1e-6, equal_nan=True)
            assert bool(close.all()), (name, field)


def test_rows_without_a_defence_are_those_of_all_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    like, _ = encoded(SINGULAR, DATA, SeededStream(0))
    part = Subset(DATA, torch.arange(ROWS))
    index = torch.arange(ROWS)
    whole, trace = self_test.released(like, Identity(), part, SeededStream(2))
    monkeypatch.setattr(self_test, "_AT_ONCE", 200)
    again, same = self_test.released(like, Identity(), part, SeededStream(2))
    assert torch.equal(trace.weight, same.weight)
    assert torch.equal(whole.payload.take(index).x, again.payload.take(index).x)
    assert torch.equal(whole.payload.take(index).y, again.payload.take(index).y)


def test_noise_of_rows_that_are_made_in_parts_is_new_in_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    like, _ = encoded(SINGULAR, DATA, SeededStream(0))
    part = Subset(DATA, torch.arange(ROWS))
    monkeypatch.setattr(self_test, "_AT_ONCE", 200)
    made, trace = self_test.released(like, SINGULAR, part, SeededStream(2))
    normals = standardised_noise(made, trace, part)
    assert noise_check.faults(normals, normals.square().sum(1), SINGULAR.law) == []
