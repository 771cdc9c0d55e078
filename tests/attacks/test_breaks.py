"""The breaks of InstaHide end to end: what they must recover, what noise keeps from them, and how a stopped one goes
on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import avg_pool2d

import mixveil
from mixveil.attacks.records.carlini import Carlini
from mixveil.attacks.records.luo import Luo
from mixveil.attacks.shared.base import CannotAttackError
from mixveil.attacks.shared.breaks import breaking
from mixveil.attacks.shared.breaks.breaking import MOST_ROWS, Break, Work
from mixveil.attacks.shared.stages import Stage
from mixveil.attacks.shared.training import Schedule, TrainingCache
from mixveil.audit import oracle
from mixveil.audit.challenge import Challenge
from mixveil.audit.challenge_scoring import ImageScore, score_images, score_sources
from mixveil.audit.challenge_truth import ChallengeTruth, read_truth
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Batch, Guess, Mu, View
from mixveil.data import similarity
from mixveil.data.images import Images
from mixveil.data.row_views import InMemoryRows
from mixveil.encoders.identity import Identity
from mixveil.encoders.instahide import CalibratedInstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from tests.attacks.made import digits, several
from tests.made import range_facts
from tests.notes import holds

PUBLIC = digits(600, 1000)


def brief(
    kind: type[Break], steps: int = 30, folder: Path | None = None, watch: Callable[[str], None] = lambda _: None
) -> Break:
    """With small networks, which are trained briefly."""
    schedule = Schedule(epochs=1000, batch=32, rate=3e-3, falling=True)
    return kind(base=8, encodings=4000, schedule=schedule, cache=TrainingCache(folder, max_steps=steps, watch=watch))


def made(tmp_path: Path, data: Images, seed: int = 1, **more: Any) -> tuple[Challenge, ChallengeTruth]:
    """Ten images, each encoded twenty times with one other: 200 rows in one random order."""
    settings = {"images": 10, "encodings": 20, "images_per_row": 2, "seed": seed, **more}
    folders = mixveil.make_challenge(data, tmp_path / "c", **settings)
    challenge = mixveil.open_challenge(folders.folder)
    return challenge, read_truth(folders.truth, challenge.card, (folders.folder / "challenge.json").read_text())


def fields(n: int, seed: int) -> Images:
    """Smooth random patterns of 16 × 16."""
    x = SeededStream(seed).normal(n, 1, 20, 20).float()
    x = (0.5 + 0.9 * avg_pool2d(avg_pool2d(x, 3, 1), 3, 1)).clamp(0, 1)
    return mixveil.from_tensors(x, torch.arange(n) % 4, name=f"fields {seed}")


def seen(challenge: Challenge, public: Images = PUBLIC) -> View:
    return replace(challenge.view, public=public)


def scored(guess: Guess, challenge: Challenge, truth: ChallengeTruth) -> tuple[ImageScore, float]:
    """Of images, and the share of rows of which all records are named."""
    assert guess.images is not None and guess.sources is not None
    mirrors = challenge.card.settings.encoder.moved > 0
    images = score_images(guess.images, truth.images, challenge.card.low, challenge.card.high, mirrors=mirrors)
    return images, score_sources(guess.sources, truth).found.whole


def ssim(score: ImageScore) -> float:
    assert score.found.ssim is not None
    return score.found.ssim.mean


@pytest.mark.parametrize("seed", [1, 2])
def test_digits_come_out_whole(seed: int, tmp_path: Path) -> None:
    """Absolute values, two networks, clusters, assignment, folded system, signs of places, colours."""
    challenge, truth = made(tmp_path, digits(0, 200), seed)
    score, named = scored(brief(Carlini)(seen(challenge), stream=SeededStream(0)), challenge, truth)
    assert score.other_image.ssim is not None and score.other_image.ssim.mean < 0.75
    assert ssim(score) > 0.95 and float(score.each.min()) > 0.85 and score.found.snr_db.mean > 20
    assert named > 0.7


def test_noise_keeps_them_hidden(tmp_path: Path) -> None:
    """Twenty certified encodings, μ = 1 all together: what comes out is worth no more than the mean of public
    digits. (Who is in which row is another matter: labels are shown, and tell much of that.)"""
    challenge, truth = made(tmp_path, digits(0, 200), encoder="singular", mu=20**-0.5, images_per_row=None)
    score, _ = scored(brief(Carlini, 5)(seen(challenge), stream=SeededStream(0)), challenge, truth)
    mean = PUBLIC.take(torch.arange(len(PUBLIC))).x.mean(0)
    nothing = score_images(mean.expand_as(truth.images), truth.images, 0.0, 1.0)
    assert ssim(score) < ssim(nothing) + 0.05 and score.found.snr_db.mean < nothing.found.snr_db.mean + 0.5


def test_the_truth_shows_which_stage_is_hard(tmp_path: Path) -> None:
    challenge, truth = made(tmp_path, digits(0, 200))
    found = {}
    given: tuple[Stage, ...]
    for given in (("alike",), ("clusters",), ("sources",), ("sources", "weights", "signs")):
        told = oracle.of_challenge(challenge, truth, given)
        attack = replace(brief(Carlini, 5, tmp_path / "cache"), oracle=told)
        found[given[-1]] = scored(attack(seen(challenge), stream=SeededStream(0)), challenge, truth)
    assert found["sources"][1] == found["signs"][1] == 1 and ssim(found["signs"][0]) > 0.95
    assert ssim(found["signs"][0]) >= max(ssim(score) for score, _ in found.values()) - 0.05
    other = replace(brief(Carlini, 5), oracle=oracle.of_challenge(challenge, truth, ["sources"]))
    with pytest.raises(CannotAttackError) as raised:
        other(replace(several(Mixup(2), digits(0, 30), 1), public=PUBLIC), stream=SeededStream(0))
    assert raised.value.why.code == "attack-oracle-of-other-rows"


def test_signs_that_are_given_reach_the_fused_rows(tmp_path: Path) -> None:
    challenge, truth = made(tmp_path, digits(0, 200))
    images = []
    stages: tuple[Stage, ...]
    for stages in (("sources", "weights"), ("sources", "weights", "signs")):
        attack = replace(brief(Luo, 30, tmp_path / "cache"), schedule=Schedule(1000, 32, falling=True))
        attack = replace(attack, oracle=oracle.of_challenge(challenge, truth, stages))
        images.append(scored(attack(seen(challenge), stream=SeededStream(0)), challenge, truth)[0])
    assert ssim(images[1]) > max(0.85, ssim(images[0]) + 0.2)


@pytest.mark.parametrize(
    ("kind", "stages"), [(Carlini, ["weights"]), (Luo, ["moves"]), (Carlini, ["sources", "moves"])]
)
def test_truth_that_no_stage_would_take_is_refused(kind: type[Break], stages: list[Stage], tmp_path: Path) -> None:
    challenge, truth = made(tmp_path, fields(40, 1), augmented=True)
    told = oracle.of_challenge(challenge, truth, stages)
    with pytest.raises(ArgumentError, match=r"sources too|does not undo moves"):
        replace(kind(), oracle=told)
    assert replace(Luo(), oracle=oracle.of_challenge(challenge, truth, ["sources", "weights", "moves"])).given("moves")


@pytest.mark.parametrize("huge", [True, False])
def test_rows_that_are_no_plain_rows_are_refused(huge: bool, tmp_path: Path) -> None:
    challenge, _ = made(tmp_path, digits(0, 200))
    x, y = challenge.rows()
    if huge:
        x[3, 0, 0, 0] = 1e30
    else:
        y[3] = 0
    release = challenge.release.with_(payload=InMemoryRows(Batch(x, y)))
    with pytest.raises(CannotAttackError) as raised:
        brief(Carlini, 2)(replace(seen(challenge), releases=(release,)), stream=SeededStream(0))
    assert raised.value.why.code == "attack-needs-plain-rows"


class _StoppedError(Exception):
    pass


def test_a_stopped_attack_goes_on_where_it_was(tmp_path: Path) -> None:
    challenge, _ = made(tmp_path, digits(0, 200))
    told: list[str] = []

    def stop(text: str) -> None:
        told.append(text)
        if text.endswith("images by carlini"):
            raise _StoppedError

    with pytest.raises(_StoppedError):
        brief(Carlini, 5, tmp_path / "cache", stop)(seen(challenge), stream=SeededStream(0))
    assert any("pairs" in text for text in told) and any("prototypes" in text for text in told)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache" / "attacks").iterdir()}
    told.clear()
    went_on = brief(Carlini, 5, tmp_path / "cache", told.append)(seen(challenge), stream=SeededStream(0))
    assert not any("pairs, training" in text or "prototypes, training" in text for text in told)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    whole = brief(Carlini, 5)(seen(challenge), stream=SeededStream(7))  # draws follow from what is attacked
    assert went_on.images is not None and whole.images is not None and went_on.sources is not None
    assert torch.equal(went_on.images, whole.images) and torch.equal(went_on.sources, torch.as_tensor(whole.sources))


def test_several_releases_need_no_clusters() -> None:
    """Where row i is of record i, only partners are looked for."""
    data, encoder = digits(0, 12), CalibratedInstaHide(k=2, c1=0.65, c2=0.3, covers=0, pad=0, values=64, centre=0.5)
    view = several(encoder, data, 20)
    guess = brief(Carlini)(replace(view, traces=None, public=PUBLIC), stream=SeededStream(0))
    truth = data.take(torch.arange(12)).x.double()
    assert guess.images is not None and guess.sources is not None
    assert torch.equal(guess.sources[:, 0], torch.arange(12).repeat(20))
    assert float(similarity.ssim(truth, guess.images.clamp(0, 1)).mean()) > 0.9


def test_rows_of_one_record_each_need_no_network() -> None:
    data, told = digits(0, 12), list[str]()
    view = replace(several(Identity(), data, 2), traces=None, public=PUBLIC)
    guess = brief(Carlini, watch=told.append)(view, stream=SeededStream(0))
    assert guess.images is not None and guess.sources is not None and not any("training" in text for text in told)
    assert torch.equal(guess.sources[:, 0], torch.arange(12).repeat(2))
    torch.testing.assert_close(guess.images, data.take(torch.arange(12)).x.double(), rtol=0, atol=0.02)


def test_plain_mixtures_are_solved_by_the_same_steps() -> None:
    data = digits(0, 12)
    view = replace(several(Mixup(2), data, 20), traces=None, public=PUBLIC)
    guess = brief(Carlini)(view, stream=SeededStream(0))
    truth = data.take(torch.arange(12)).x.double()
    assert guess.images is not None
    assert float(similarity.ssim(truth, guess.images.clamp(0, 1)).mean()) > 0.95


def test_images_that_were_moved_are_compared_in_every_place(tmp_path: Path) -> None:
    """Luo et al. find who is in which row, and Carlini et al. do not."""
    challenge, truth = made(tmp_path, fields(40, 1), images=8, augmented=True)
    assert challenge.card.settings.encoder.moved == 2
    view, named = seen(challenge, fields(200, 2)), {}
    for kind in (Carlini, Luo):
        work = Work(brief(kind, 10, tmp_path / "cache"), view)
        linked = work.linked()
        named[kind.name] = score_sources(linked.sources, truth).found.whole
    assert named["luo"] > named["carlini"] + 0.15 and named["luo"] > 0.5
    assert int(linked.moves[..., 1:].abs().max()) <= 2 * 2 and bool((linked.moves[..., 0] <= 1).all())


def test_they_say_what_they_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    data = digits(0, 30)
    certified, _ = Singular().calibrate(Mu(1.0), range_facts(data))
    view = replace(several(certified, data, 2), public=PUBLIC)
    assert Carlini().cannot(view) is None
    both = replace(view, releases=(view.releases[0], several(Mixup(2), data, 1).releases[0]))
    assert holds([Carlini().cannot(both)], "attack-needs-one-encoder")
    many = replace(view, releases=view.releases[:1] * (MOST_ROWS // 30 + 1))
    assert holds([Luo().cannot(many)], "attack-needs-fewer-rows", most=MOST_ROWS)
    covered = CalibratedInstaHide(k=4, c1=0.65, c2=0.3, covers=9, pad=0, values=64, centre=0.5)
    hidden = replace(several(covered, data, 2, digits(30, 39)), covers=None, public=PUBLIC)
    assert holds([Carlini().cannot(hidden)], "attack-needs", fields="covers")
    monkeypatch.setattr(breaking, "_MOST_VALUES", 64 * 59)  # of two releases of 30 rows
    assert holds([Carlini().cannot(view)], "attack-needs-fewer-rows", rows=60, most=59)
