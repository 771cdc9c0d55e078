"""Attacks on challenges as a whole job: what they see, what they are given, and what is written of what they say."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file

import mixveil
from mixveil.attacks.catalogue import ATTACKS
from mixveil.attacks.shared.base import BaseAttack, CannotAttackError
from mixveil.audit import challenge_attacking
from mixveil.audit.challenge_attacking import AttackedChallenge
from mixveil.core import files
from mixveil.core.errors import ArgumentError, OutputError, OutputExistsError, TrainingError
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import AttackKind, Guess, View
from mixveil.core.wording.notes import note
from mixveil.data.covers import Patches, patches
from mixveil.data.images import Images
from mixveil.report.challenges import MadeChallenge
from tests.audited import digits
from tests.notes import codes
from tests.plugins.toy_breaker import LeastSquares

N, T = 12, 5
DIGITS, PUBLIC = digits(0, 100), digits(100, 200)


@dataclass(frozen=True)
class Saying(BaseAttack):
    """Says what a test wants it to say, and shows what it saw."""

    name: ClassVar[str] = "saying"
    kind: ClassVar[AttackKind] = "reconstruction"
    threat: ClassVar[str] = "threat-prior"
    linear: ClassVar[bool] = False
    says: ClassVar[Any] = None
    seen: ClassVar[list[View]] = []

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        self.seen.append(view)
        if isinstance(self.says, Exception):
            raise self.says
        return Guess(**self.says)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIXVEIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Saying, "seen", [])
    with ATTACKS.including(Saying, LeastSquares):
        yield


def make(**more: Any) -> MadeChallenge:
    return mixveil.make_challenge(DIGITS, "c", **{"images": N, "encodings": T, **more})


def saying(monkeypatch: pytest.MonkeyPatch, says: Any, **more: Any) -> AttackedChallenge:
    monkeypatch.setattr(Saying, "says", says)
    return mixveil.attack_challenge("c", "g.safetensors", attack="saying", **more)


def test_an_attack_of_the_package_breaks_what_is_no_defence() -> None:
    made = make(encoder="identity", encodings=1)
    told = mixveil.attack_challenge("c", "g.safetensors", attack="average", public=PUBLIC)
    assert told.given == () and codes(told.notes) == {"guess-of-images"} and told.guess.sources is None
    assert stat.S_IMODE(Path("g.safetensors").stat().st_mode) == 0o644
    score = mixveil.score_challenge(made.folder, made.truth, told.out).images
    assert score is not None and score.found.recovered == 1


def test_the_truth_shows_where_a_defence_bites() -> None:
    """Signs are what hides: with sources and weights alone images are not found, with the signs they are."""
    make()
    found = {}
    for given in ((), ("weights", "sources"), ("signs", "weights", "sources")):
        truth = "c.truth" if given else None
        name = f"{len(given)}.safetensors"
        told = mixveil.attack_challenge("c", name, attack="least-squares", truth=truth, given=given)
        assert {*told.given} == {*given} and ("guess-given-truth" in codes(told.notes)) is bool(given)
        assert told.plain()["given"] == [*told.given] and told.plain()["images"] == [N, 1, 8, 8]
        assert stat.S_IMODE(told.out.stat().st_mode) == (0o600 if given else 0o644)
        score = mixveil.score_challenge("c", "c.truth", told.out)
        assert score.images is not None and score.images.found.ssim is not None and score.linkage is not None
        found[given] = (score.images.found.ssim.mean, score.linkage.found.whole)
    (nothing, _), (linked, whole), (all_of_it, _) = found.values()
    assert whole == 1 and all_of_it > 0.99 and max(nothing, linked) < 0.5


def test_the_attacker_cuts_patches_of_their_own_by_the_rules_of_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    patterns = mixveil.from_tensors(SeededStream(9).uniform(12, 1, 11, 10).float(), torch.zeros(12).long())
    made = make(public=patterns, patches=40, keypoints=0)
    asked = []

    def cutting(images: Images, like: Images, **how: Any) -> Patches:
        asked.append((images, like.shape, (like.low, like.high), how["count"], how["keypoints"]))
        return patches(images, like, **how)

    monkeypatch.setattr(challenge_attacking, "cut_patches", cutting)
    watched: list[str] = []
    images = torch.zeros(N, 1, 8, 8)
    told = saying(monkeypatch, {"images": images}, covers=patterns, public=PUBLIC, watch=watched.append)
    (view,) = Saying.seen
    assert asked == [(patterns, (1, 8, 8), (0, 1), 40, 0)] and view.public is PUBLIC and view.records == N
    assert isinstance(view.covers, Patches) and view.covers.take(torch.arange(40)).x.shape == (40, 1, 8, 8)
    assert not torch.equal(view.covers.table, load_file(made.truth / "truth.safetensors")["covers"])
    assert view.traces is None and "saying" in watched and any("40 of 40" in text for text in watched)
    assert told.guess.images is not None and torch.equal(told.guess.images, images)
    monkeypatch.setattr(challenge_attacking, "PATCHES", 30)
    for wanted, count in ((None, 30), (7, 7)):
        Path("g.safetensors").unlink()
        saying(monkeypatch, {"images": images}, covers=patterns, patches=wanted)
        assert asked[-1][3] == count and len(Saying.seen[-1].covers or ()) == count
    first, second = (view.covers for view in Saying.seen[:2])
    assert isinstance(first, Patches) and isinstance(second, Patches)
    assert torch.equal(first.table[:30], second.table)  # by the same seed


IMAGES = torch.full((N, 1, 8, 8), 0.5)
SOURCES = torch.zeros(N * T, 4, dtype=torch.int64)


@pytest.mark.parametrize(
    "sources",
    [
        torch.zeros(N * T, 5, dtype=torch.int64),
        torch.zeros(N, 4, dtype=torch.int64),
        torch.full((N * T, 4), N),
        torch.full((N * T, 4), -2),
        torch.zeros(N * T, 4),
    ],
)
def test_sources_that_do_not_fit_are_left_out(sources: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    make()
    told = saying(monkeypatch, {"images": IMAGES, "sources": sources})
    assert load_file("g.safetensors").keys() == {"images"} and told.guess.sources is None
    assert codes(told.notes) == {"guess-of-images", "guess-sources-left-out"}
    assert told.plain()["sources"] is None
    Path("g.safetensors").unlink()
    with pytest.raises(ArgumentError, match="saying"):
        saying(monkeypatch, {"sources": sources})
    assert not Path("g.safetensors").exists()


@pytest.mark.parametrize(
    "images", [torch.zeros(N * T, 1, 8, 8), torch.zeros(N, 64), torch.full((N, 1, 8, 8), torch.nan)]
)
def test_images_that_do_not_fit_are_left_out(images: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    make()
    told = saying(monkeypatch, {"images": images, "sources": SOURCES})
    assert load_file("g.safetensors").keys() == {"sources"}
    assert codes(told.notes) == {"guess-of-sources", "guess-images-left-out"}
    assert mixveil.score_challenge("c", "c.truth", "g.safetensors").images is None
    Path("g.safetensors").unlink()
    with pytest.raises(ArgumentError, match="saying"):
        saying(monkeypatch, {"images": images})
    assert not Path("g.safetensors").exists()


def test_an_attack_that_fails_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    make()
    with pytest.raises(ArgumentError, match="saying"):
        saying(monkeypatch, {"labels": torch.zeros(N * T, 2)})
    with pytest.raises(ArgumentError, match="saying") as caught:
        saying(monkeypatch, CannotAttackError(note("attack-needs-pairs")))
    assert type(caught.value) is ArgumentError and str(note("attack-needs-pairs")) in str(caught.value)
    with pytest.raises(TrainingError):
        saying(monkeypatch, TrainingError("no"))
    monkeypatch.setattr(files, "write_file", _fail)
    with pytest.raises(OutputError):
        saying(monkeypatch, {"images": IMAGES})
    assert {path.name for path in Path().iterdir()} <= {"c", "c.truth", "state", "cache"}


def _fail(*given: Any) -> None:
    raise OSError("no space")


def test_a_file_that_came_meanwhile_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    make()

    def meanwhile(self: Saying, view: View, *, stream: Stream) -> Guess:
        Path("g.safetensors").write_text("mine")
        return Guess(images=IMAGES)

    monkeypatch.setattr(Saying, "__call__", meanwhile)
    with pytest.raises(OutputExistsError):
        saying(monkeypatch, {})
    assert Path("g.safetensors").read_text() == "mine"


def test_the_same_seed_gives_the_same_guess() -> None:
    make()
    found = [
        mixveil.attack_challenge("c", f"{i}.safetensors", attack="least-squares", seed=seed).out.read_bytes()
        for i, seed in enumerate((3, 3, 4))
    ]
    assert found[0] == found[1] != found[2]
