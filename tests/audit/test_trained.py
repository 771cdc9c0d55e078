"""Attacks that train, in an audit: when they run, when they are called broken, and pictures out of features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from mixveil.attacks.features.decoder import FeatureDecoder
from mixveil.attacks.records.prior import KnowNothing
from mixveil.attacks.records.unet import Unet
from mixveil.attacks.shared.training import Schedule, TrainingCache
from mixveil.audit.auditing import audit
from mixveil.audit.thumbnails import LARGEST_GUESSED, SmallImages
from mixveil.core.errors import TrainingError
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import Guess, View
from mixveil.data.images import from_tensors
from mixveil.report.audit_page import render, write_audit
from tests.attacks.made import digits, random_features, released
from tests.notes import codes, holds

_QUICKLY = Schedule(epochs=1000, batch=32, rate=3e-3)


@dataclass(frozen=True)
class SmallUnet(Unet):
    base: int = 6
    schedule: Schedule = _QUICKLY


@dataclass(frozen=True)
class SmallDecoder(FeatureDecoder):
    base: int = 4
    rounds: int = 1
    schedule: Schedule = _QUICKLY


class Deaf(SmallUnet):
    """Does not look at the rows."""

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        images = super().__call__(view, stream=stream).images
        return Guess(images=None if images is None else 0 * images)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"prior": KnowNothing, "unet": SmallUnet, "decoder": SmallDecoder}
    monkeypatch.setattr("mixveil.audit.auditing.known_attacks", lambda: found)


def test_a_quick_audit_trains_nothing_unasked_and_says_so() -> None:
    data = digits(0, 60)
    found = audit(released(data, 1.0, digits(600, 800)), data, stream=SeededStream(0), names=None)
    skipped = {item.attack: item.why for item in found.attacks if item.status == "skipped"}
    assert codes([skipped["unet"], skipped["unet-strong"]]) == {"attack-trains"}
    assert codes([skipped["decoder"]]) == {"attack-needs-features"}
    (told,) = [told for told in found.verdict if told.code == "verdict-untrained"]
    trained = "average-known, average-similar, carlini, luo, unet, unet-strong"
    assert told.figures["attacks"] == trained and "full-profile-runs-them" in codes([told])
    alone = audit(released(data, 1.0, None), data, stream=SeededStream(0), profile="full")
    (told,) = [told for told in alone.verdict if told.code == "verdict-untrained"]
    assert told.figures["attacks"] == trained and holds([told], "attack-needs", fields="public")
    assert {item.attack for item in found.attacks if item.status == "ran"} >= {"linear", "lmmse", "known", "average"}


@pytest.mark.usefixtures("small")
def test_an_attack_that_trains_runs_when_it_is_named_and_in_a_full_audit(tmp_path: Path) -> None:
    data, heard = digits(0, 60), list[str]()
    view = released(data, 0.3, digits(600, 1000))
    cache = TrainingCache(tmp_path, max_steps=150, watch=heard.append)
    named = audit(view, data, stream=SeededStream(0), names=["unet"], cache=cache)
    assert [(item.attack, item.status) for item in named.attacks] == [("unet", "ran")]
    assert any(text.startswith("trying unet") for text in heard) and any(text.startswith("unet") for text in heard)
    full = audit(view, data, stream=SeededStream(0), profile="full", cache=cache)
    assert {item.attack: item.status for item in full.attacks} == {"prior": "ran", "unet": "ran", "decoder": "skipped"}
    assert len(list((tmp_path / "attacks").iterdir())) == 1  # trained once


def test_a_network_that_learns_nothing_is_called_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixveil.audit.auditing.known_attacks", lambda: {"unet": Deaf})
    monkeypatch.setattr("mixveil.audit.judge._TRIED", 3)
    data = digits(0, 60)
    found = audit(
        released(data, 0.3, digits(600, 800)),
        data,
        stream=SeededStream(0),
        names=["unet"],
        cache=TrainingCache(max_steps=3),
    )
    assert [item.status for item in found.attacks] == ["broken"]


class Diverging(SmallUnet):
    def __call__(self, view: View, *, stream: Stream) -> Guess:
        raise TrainingError("the training diverged")


class Numberless(SmallUnet):
    """Gets everything without a defence, and then says nothing that is a number."""

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        rows = view.releases[0].payload.take(torch.arange(len(view.releases[0].payload))).x.double()
        return Guess(images=rows if view.releases[0].encoder.name == "identity" else rows * float("nan"))


@pytest.mark.parametrize("kind", [Diverging, Numberless])
def test_a_training_that_fails_does_not_take_the_audit_with_it(
    kind: type[Unet], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mixveil.audit.auditing.known_attacks", lambda: {"unet": kind, "prior": KnowNothing})
    data = digits(0, 60)
    found = audit(released(data, 0.3, digits(600, 800)), data, stream=SeededStream(0), names=["unet", "prior"])
    assert {item.attack: item.status for item in found.attacks} == {"unet": "broken", "prior": "ran"}
    assert {row.attack for row in found.figures} == {"prior"}


@pytest.mark.usefixtures("small")
def test_public_pictures_of_another_size_are_said_and_not_decoded() -> None:
    data, public = digits(0, 60), digits(600, 700)
    larger = from_tensors(torch.zeros(100, 1, 16, 16), torch.zeros(100).long())
    view = replace(released(random_features(data), 1.0, random_features(public)), pictures=SmallImages(larger))
    found = audit(view, random_features(data), stream=SeededStream(0), names=["decoder"], pictures=data)
    assert [item.status for item in found.attacks] == ["skipped"]
    assert holds([found.attacks[0].why], "pictures-of-other-size", private="1×8×8", public="1×16×16")


@pytest.mark.usefixtures("small")
def test_pictures_come_out_of_weakly_hidden_features_and_are_shown(tmp_path: Path) -> None:
    data, public = digits(0, 120), digits(600, 1600)
    view = replace(released(random_features(data), 0.05, random_features(public)), pictures=SmallImages(public))
    found = audit(
        view,
        random_features(data),
        stream=SeededStream(0),
        names=["decoder"],
        pictures=data,
        cache=TrainingCache(max_steps=400),
    )
    (row,) = [row for row in found.figures if row.metric == "picture-ssim"]
    assert row.know_nothing is not None and row.mean > row.know_nothing + 0.15
    assert holds(found.warnings, "pictures-decoded", attack="decoder")
    assert holds(found.verdict, "verdict-pictures", attack="decoder", mean=row.mean)
    truth = data.take(found.numbers).x
    assert torch.equal(found.pictures["original"], truth)
    how = {"command": "x", "mixveil": "0", "torch": "0", "seed": 0}
    write_audit(tmp_path / "report", found, how)
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Pictures out of features" in page and 'alt="decoder, record' in page
    assert render(tmp_path / "report").read_text() == page


def test_small_images_are_small_and_within_zero_and_one() -> None:
    x = SeededStream(0).uniform(3, 3, 2 * LARGEST_GUESSED, LARGEST_GUESSED).float()
    data = replace(from_tensors(x * 0, torch.zeros(3).long()), read=lambda index: x[index] * 4 - 2, low=-2.0, high=2.0)
    shown = SmallImages(replace(data, shape=(3, 2 * LARGEST_GUESSED, LARGEST_GUESSED))).take(torch.arange(3)).x
    assert shown.shape == (3, 3, LARGEST_GUESSED, LARGEST_GUESSED // 2)
    assert torch.allclose(shown.mean((2, 3)), x.mean((2, 3)), atol=0.01)
    assert float(shown.min()) >= 0 and float(shown.max()) <= 1
