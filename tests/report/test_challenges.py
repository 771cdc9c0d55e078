"""Challenges: what is published says nothing of the truth but what the encoder shows, and a score is what it says."""

from __future__ import annotations

import hashlib
import html
import json
import re
import shutil
import stat
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import mixveil
from mixveil.audit.challenge_scoring import score_images, score_sources
from mixveil.audit.challenge_truth import ChallengeTruth
from mixveil.core import errors
from mixveil.core.randomness import SeededStream
from mixveil.core.wording.notes import Note
from mixveil.data.images import Images
from mixveil.data.similarity import ssim
from mixveil.encoders.instahide import signs
from mixveil.report import challenge_pages
from mixveil.report.challenges import MadeChallenge
from mixveil.report.pictures import png
from tests.command import flip
from tests.notes import shows

N, T = 20, 6


@pytest.fixture(scope="module")
def digits() -> Images:
    return mixveil.open_data("digits")


@pytest.fixture(scope="module")
def made(digits: Images, tmp_path_factory: pytest.TempPathFactory) -> MadeChallenge:
    """InstaHide with public patches and moved images: everything that a truth can hold."""
    folder = tmp_path_factory.mktemp("challenge")
    return mixveil.make_challenge(
        digits,
        folder / "c",
        images=N,
        encodings=T,
        augmented=True,
        public=patterns(),
        patches=50,
        keypoints=0,
        ledger=mixveil.Ledger(folder / "state"),
    )


def patterns() -> Images:
    return mixveil.from_tensors(SeededStream(9).uniform(12, 1, 11, 10).float(), torch.zeros(12).long(), name="patterns")


def truth_of(made: MadeChallenge) -> dict[str, Tensor]:
    return load_file(made.truth / "truth.safetensors")


def guessed(path: Path, **tensors: Tensor) -> Path:
    save_file({name: values.contiguous() for name, values in tensors.items()}, path)
    return path


def test_the_folders_hold_what_they_should(made: MadeChallenge) -> None:
    shown, kept = ({path.name for path in folder.iterdir()} for folder in (made.folder, made.truth))
    assert shown == {"challenge.json", "encodings.safetensors", "index.html"}
    assert kept == {"truth.json", "truth.safetensors"} and made.truth.name == "c.truth"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (made.truth, *made.truth.iterdir())]
    assert modes == [0o700, 0o600, 0o600]
    card = mixveil.open_challenge(made.folder).card
    assert card == made.card and (card.images, card.encodings, card.rows, card.private_per_row) == (N, T, N * T, 2)
    assert card.settings.encoder.covers == 50 and card.settings.shape == (1, 8, 8) and (card.low, card.high) == (0, 1)
    assert card.public is not None and (card.public.name, card.public.patches) == ("patterns", 50)
    truth = truth_of(made)
    assert hashlib.sha256((made.truth / "truth.safetensors").read_bytes()).hexdigest() == card.truth_sha256
    assert len({*truth["nonce"].tolist()}) == 4 and truth["patches"].amax() < 50


def test_the_truth_makes_the_rows(made: MadeChallenge, digits: Images) -> None:
    """Row by row, as the paper writes it, from the images, the public patches and what was drawn."""
    from mixveil.data.covers import Patches
    from mixveil.data.moves import moved

    truth, (x, y) = truth_of(made), mixveil.open_challenge(made.folder).rows()
    assert torch.equal(truth["images"], digits.take(truth["numbers"]).x)
    covers = Patches(patterns(), truth["covers"], digits)
    mask = signs(truth["extra.signs"], 64).view(-1, 1, 8, 8)
    for row in range(N * T):
        mixed, label = torch.zeros(1, 8, 8), torch.zeros(10)
        for j in range(4):
            source, weight = int(truth["sources"][row, j]), truth["weights"][row, j]
            if source < 0:
                image = covers.take(truth["patches"][row, j : j + 1]).x
            else:
                image = truth["images"][source][None]
                label[truth["labels"][source]] += weight
            mixed += weight * (moved(image, truth["extra.moves"][row, j : j + 1], 0.5)[0] - 0.5)
        torch.testing.assert_close(x[row], mask[row] * mixed, rtol=0, atol=1e-6)
        torch.testing.assert_close(y[row], label)
    own = zip(truth["sources"][:, 0].tolist(), truth["encoding"].tolist(), strict=True)
    assert len({*own}) == N * T  # every image once in every encoding
    assert ((truth["sources"] >= 0).sum(1) == 2).all() and (truth["patches"] >= 0).sum(1).eq(2).all()


def leaked(published: list[bytes], truth: dict[str, Tensor]) -> list[str]:
    """What of the truth stands in the published files as it is: any image, and any tensor whole."""
    parts = {name: [values.numpy().tobytes()] for name, values in truth.items()}
    parts["images"] = [image.numpy().tobytes() for image in truth["images"]]
    parts["octets"] = [image.mul(255).round().byte().numpy().tobytes() for image in truth["images"]]
    return [name for name, some in parts.items() if any(part in file for part in some for file in published)]


def test_nothing_of_the_truth_is_published(made: MadeChallenge, digits: Images, tmp_path: Path) -> None:
    assert leaked([path.read_bytes() for path in made.folder.iterdir()], truth_of(made)) == []
    bare = mixveil.make_challenge(digits, tmp_path / "c", encoder="identity", images=N, encodings=1)
    assert leaked([path.read_bytes() for path in bare.folder.iterdir()], truth_of(bare)) == ["images"]


def test_the_order_says_nothing_of_images_and_encodings(digits: Images, tmp_path: Path) -> None:
    made = mixveil.make_challenge(digits, tmp_path / "c", encoder="mixup", images=50, encodings=40, seed=3)
    truth = truth_of(made)
    place = torch.arange(2000.0)
    for what in (truth["sources"][:, 0], truth["encoding"], truth["labels"][truth["sources"][:, 0]]):
        assert abs(float(torch.corrcoef(torch.stack([place, what.float()]))[0, 1])) < 4 / 2000**0.5
        follows = (what[1:] == what[:-1]).double().mean()
        share = what.bincount().double().div(2000).square().sum()
        assert abs(follows - share) < 4 * (share / 2000) ** 0.5  # as often as by chance
    assert made.card.reproducible and "challenge-seeded" in {told.code for told in made.warnings}
    again = mixveil.make_challenge(digits, tmp_path / "d", encoder="mixup", images=50, encodings=40, seed=3)
    assert torch.equal(truth["sources"], truth_of(again)["sources"])


def test_two_challenges_share_no_draws(digits: Images, tmp_path: Path) -> None:
    found = [truth_of(mixveil.make_challenge(digits, tmp_path / name, images=N, encodings=2)) for name in ("a", "b")]
    assert not torch.equal(found[0]["numbers"], found[1]["numbers"])
    for name in ("weights", "extra.signs", "nonce"):  # nor two rows of one
        drawn = [row for truth in found for row in truth[name].tolist()]
        assert len({str(row) for row in drawn}) == len(drawn)


# Scores


def test_the_truth_itself_and_shuffled_is_a_perfect_guess(made: MadeChallenge, tmp_path: Path) -> None:
    truth, stream = truth_of(made), SeededStream(1)
    order, names = stream.permutation(N), stream.permutation(N)
    images, sources = truth["images"][order], truth["sources"][:, :2].flip(1)
    guess = guessed(tmp_path / "g.safetensors", images=images, sources=names[sources])
    out = tmp_path / "score"
    score = mixveil.score_challenge(made.folder, made.truth, guess, out=out)
    assert score.images is not None and score.linkage is not None and score.page == out / "score.html"
    assert score.images.found.recovered == 1 and score.images.found.ssim is not None
    assert score.images.found.ssim.mean == pytest.approx(1) and score.images.found.snr_db.mean == 999
    assert torch.equal(order[score.images.assigned], torch.arange(N))
    assert score.linkage.found == (1, 1) and score.linkage.chance.whole < 0.2
    whole = json.loads((out / "score.json").read_text())
    assert whole["images"]["found"]["ssim"]["best"] == pytest.approx(1) and whole["linkage"]["found"]["whole"] == 1
    assert [stat.S_IMODE(path.stat().st_mode) for path in (out, *out.iterdir())] == [0o700, 0o600, 0o600]
    page = score.page.read_text()
    assert page.count("<img") == 3 * N and not re.search(r"(src|href)=\"(?!data:)", page)


def test_the_mean_image_is_knowing_nothing_and_noise_is_worse(digits: Images, tmp_path: Path) -> None:
    made = mixveil.make_challenge(digits, tmp_path / "c", encoder="mixup", images=N, encodings=T, seed=1)
    truth, stream = truth_of(made), SeededStream(2)
    flat = guessed(tmp_path / "m.safetensors", images=truth["images"].double().mean(0).expand(N, 1, 8, 8))
    found = mixveil.score_challenge(made.folder, made.truth, flat).images
    assert found is not None and found.found.ssim is not None and found.mean_image.ssim is not None
    assert found.found.ssim.mean == pytest.approx(found.mean_image.ssim.mean, abs=1e-6)
    assert found.found.snr_db.median == pytest.approx(found.mean_image.snr_db.median, abs=1e-4)
    noise = {"images": stream.uniform(N, 1, 8, 8), "sources": (stream.uniform(N * T, 2) * N).long()}
    score = mixveil.score_challenge(made.folder, made.truth, guessed(tmp_path / "n.safetensors", **noise))
    assert score.images is not None and score.images.found.ssim is not None and score.linkage is not None
    assert score.images.found.ssim.mean < found.mean_image.ssim.mean and score.images.found.recovered == 0
    for what, chance in zip(score.linkage.found, score.linkage.chance, strict=True):
        assert abs(what - chance) < 0.08  # three deviations of 40 such guesses


def test_images_get_the_guesses_that_are_nearest_in_all() -> None:
    """Against all 120 ways of dealing five guesses, with values in [-1, 3]; guesses beyond that are brought to it."""
    stream = SeededStream(3)
    truth, guess = 4 * stream.uniform(5, 1, 6, 6) - 1, 6 * stream.uniform(5, 1, 6, 6) - 2
    guess += truth[stream.permutation(5)]
    found = score_images(guess, truth, -1, 3)
    x, y = (truth + 1) / 4, (guess.clamp(-1, 3) + 1) / 4
    ways = [float(ssim(x, y[list(way)]).mean()) for way in permutations(range(5))]
    assert found.found.ssim is not None and found.found.ssim.mean == pytest.approx(max(ways), abs=1e-12)
    others = [
        float(ssim(x, x[list(way)]).mean()) for way in permutations(range(5)) if all(i != j for i, j in enumerate(way))
    ]
    assert found.other_image.ssim is not None and found.other_image.ssim.mean == pytest.approx(max(others), abs=1e-12)
    torch.testing.assert_close(found.each, ssim(x, y[found.assigned]))


def test_a_guess_and_its_mirror_image_count_alike_where_images_were_mirrored() -> None:
    """Against all ways of dealing five guesses, each as it is or mirrored; what knows nothing is mirrored alike."""
    stream = SeededStream(5)
    truth = (stream.uniform(1, 1, 6, 6) + stream.uniform(5, 1, 6, 6)) / 2
    truth[4] = truth[4].flip(2)
    guess = (truth + 0.2 * stream.uniform(5, 1, 6, 6))[stream.permutation(5)]
    guess[::2] = guess[::2].flip(3)
    found, plain = score_images(guess, truth, 0, 2, mirrors=True), score_images(guess, truth, 0, 2)
    x, y = truth / 2, guess / 2

    def both(images: Tensor) -> Tensor:
        return torch.maximum(ssim(x, images), ssim(x, images.flip(3)))

    ways = [float(both(y[list(way)]).mean()) for way in permutations(range(5))]
    assert found.found.ssim is not None and found.found.ssim.mean == pytest.approx(max(ways), abs=1e-12)
    others = [
        float(both(x[list(way)]).mean()) for way in permutations(range(5)) if all(i != j for i, j in enumerate(way))
    ]
    assert found.other_image.ssim is not None and found.other_image.ssim.mean == pytest.approx(max(others), abs=1e-12)
    mean = x.mean(0).expand_as(x)
    assert found.mean_image.ssim is not None and found.mean_image.ssim.mean == pytest.approx(float(both(mean).mean()))
    assert plain.mirrored is None and plain.found.ssim is not None and plain.mean_image.ssim is not None
    assert plain.found.ssim.mean < found.found.ssim.mean - 0.1
    assert plain.mean_image.ssim.mean < found.mean_image.ssim.mean
    assert found.mirrored is not None and torch.equal(found.mirrored, found.assigned % 2 == 0)
    torch.testing.assert_close(found.each, both(y[found.assigned]))


@pytest.mark.parametrize("augmented", [True, False])
def test_mirrored_images_are_recovered_only_where_the_encoder_mirrors(
    augmented: bool, digits: Images, tmp_path: Path
) -> None:
    made = mixveil.make_challenge(digits, tmp_path / "c", images=N, encodings=2, augmented=augmented)
    guess = guessed(tmp_path / "g.safetensors", images=truth_of(made)["images"].flip(3))
    score = mixveil.score_challenge(made.folder, made.truth, guess, out=tmp_path / "s")
    assert score.images is not None and score.images.found.ssim is not None
    assert (score.images.found.ssim.mean > 0.999) is augmented and (score.images.mirrored is not None) is augmented
    whole = json.loads((tmp_path / "s" / "score.json").read_text())
    assert ("challenge-mirrored" in {told["code"] for told in whole["notes"]}) is augmented
    assert (whole["images"]["mirrored"] is not None) is augmented
    for page in ((tmp_path / "s" / "score.html"), (made.folder / "index.html")):
        assert shows(page.read_text(), "challenge-mirrored") is augmented


def test_the_page_shows_original_encoding_and_guess_side_by_side(made: MadeChallenge, tmp_path: Path) -> None:
    """The encoding is the row in which the image weighs most, and a mirrored guess is shown as it was measured."""
    truth, order = truth_of(made), SeededStream(1).permutation(N)
    guess = guessed(tmp_path / "g.safetensors", images=truth["images"][order].flip(3))
    mixveil.score_challenge(made.folder, made.truth, guess, out=tmp_path / "s")
    page = (tmp_path / "s" / "score.html").read_text()
    heads = re.findall(r'<th scope="col"[^>]*>([^<]+)</th>', page)
    assert [*heads[-5:-1]] == ["image", "original", "encoding", "guess"]
    lines = re.findall(r'<tr><th scope="row">(\d+)</th>(.*)</tr>', page)
    assert {int(number) for number, _ in lines} == {*range(N)}
    x = mixveil.open_challenge(made.folder).rows().x
    for number, line in lines:
        held = (truth["sources"] == int(number)) * truth["weights"]
        row = int(held.amax(1).argmax())
        stretched = (x[row] - x[row].min()) / (x[row].max() - x[row].min())
        pictures = re.findall(r'<img src="([^"]+)"', line)
        assert pictures == [png(truth["images"][int(number)]), png(stretched), pictures[0]]


def test_the_heaviest_row_of_an_image() -> None:
    held = torch.tensor([[0, 1, -1], [2, 0, 0], [1, 2, -1], [2, 1, 0]])
    weights = torch.tensor([[0.1, 0.5, 0.9], [0.3, 0.2, 0.4], [0.6, 0.2, 0.9], [0.1, 0.1, 0.3]])
    truth = ChallengeTruth(torch.zeros(4, 1), torch.zeros(4), held, weights)
    assert truth.heaviest_rows().tolist() == [1, 2, 1, -1]


@pytest.mark.parametrize("columns", [1, 2])
def test_linkage_counts_rows_under_the_best_names(columns: int) -> None:
    """Against all ways of naming four images, with repeated and missing ones."""
    stream = SeededStream(columns)
    there = (stream.uniform(60, 3) * 5).long() - 1
    there[:, 0] = there[:, 0].clamp(min=0)
    guess = torch.where(
        stream.uniform(60, columns) < 0.6, (there[:, :columns] + 1) % 4, (stream.uniform(60, columns) * 5).long() - 1
    )
    rows = [({*row} - {-1}, {*mine} - {-1}) for row, mine in zip(there.tolist(), guess.tolist(), strict=True)]
    truth = ChallengeTruth(torch.zeros(4, 1), torch.zeros(4), there, there.float())

    def under(names: tuple[int, ...]) -> tuple[int, float, float]:
        both = [(own, {names[a] for a in mine}) for own, mine in rows]
        right = sum(len(own & mine) for own, mine in both)
        shares = (sum(own == mine for own, mine in both) / 60, sum(bool(own & mine) for own, mine in both) / 60)
        return right, *shares

    found = score_sources(guess, truth)
    best = max(under(names) for names in permutations(range(4)))
    assert tuple(found.found) == pytest.approx(best[1:]) and found.found.some > found.chance.some


def test_rows_that_are_no_images_are_scored_by_snr(tmp_path: Path) -> None:
    data = mixveil.from_tensors(SeededStream(4).uniform(12, 6).float(), torch.arange(12) % 2)
    made = mixveil.make_challenge(data, tmp_path / "c", encoder="identity", images=10, encodings=2)
    images = truth_of(made)["images"].flip(0)
    score = mixveil.score_challenge(made.folder, made.truth, guessed(tmp_path / "g", images=images), out=tmp_path / "s")
    assert score.images is not None and score.images.found.ssim is None and score.images.found.recovered is None
    assert score.images.found.snr_db.mean == 999 > score.images.other_image.snr_db.mean and score.linkage is None
    assert "<img" not in (tmp_path / "s" / "score.html").read_text() + (made.folder / "index.html").read_text()


# The page, and attackers in Python


def test_the_page_shows_how_to_read_the_files(made: MadeChallenge, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (made.folder / "index.html").read_text()
    assert not re.search(r"(src|href)=\"(?!data:)|https?:", page) and page.count("<img") == 8
    monkeypatch.chdir(made.folder)
    names: dict[str, Any] = {}
    exec(html.unescape(re.findall("<pre>(.*?)</pre>", page, re.S)[0]), names)  # noqa: S102
    x, y = mixveil.open_challenge(made.folder).rows()
    assert torch.equal(names["x"], x) and torch.equal(names["y"], y)


def test_singular_with_a_certificate(digits: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = replace(digits, classes=("<b>", *digits.classes[1:]))
    made = mixveil.make_challenge(data, tmp_path / "c", encoder="singular", mu=2.0, images=N, encodings=9)
    page = (made.folder / "index.html").read_text()
    assert "<b>" not in page and "&lt;b&gt;" in page and {"challenge-mu", "challenge-randomness"} <= codes(made)
    (told,) = (told for told in challenge_pages._known(made.card) if told.code == "challenge-mu")
    assert told.figures["together"] == pytest.approx(6.0)  # √9 times 2
    monkeypatch.chdir(made.folder)
    names: dict[str, Any] = {}
    exec(html.unescape(re.findall("<pre>(.*?)</pre>", page, re.S)[0]), names)  # noqa: S102
    torch.testing.assert_close(names["x"], mixveil.open_challenge(made.folder).rows().x)
    assert made.card.settings.grid is not None and made.card.private_per_row == 2
    truth = truth_of(made)
    noise = (
        names["x"].flatten(1)
        + 0.5
        - sum(truth["weights"][:, [j]] * truth["images"].flatten(1)[truth["sources"][:, j]] for j in (0, 1))
    )
    noise /= truth["weights"][:, 1:] * made.card.settings.encoder.sigma
    assert float(noise.std()) == pytest.approx(1, abs=0.05)


def codes(made: MadeChallenge) -> set[str]:
    return {told.code for told in challenge_pages._known(made.card)}


def test_a_seeded_challenge_promises_nothing(digits: Images, tmp_path: Path) -> None:
    made = mixveil.make_challenge(digits, tmp_path / "c", encoder="gaussian", mu=1.0, images=N, encodings=2, seed=1)
    assert codes(made) == {"challenge-order", "challenge-randomness-seeded"}


def test_attacks_run_on_an_opened_challenge(digits: Images, tmp_path: Path) -> None:
    made = mixveil.make_challenge(digits, tmp_path / "c", encoder="identity", images=N, encodings=2)
    opened = mixveil.open_challenge(str(made.folder))
    assert opened.view.traces is None and len(opened.view.releases[0]) == 2 * N and not opened.release.certified
    attack = mixveil.attacks()["average"]()
    view = replace(opened.view, public=digits)
    assert attack.cannot(view) is None
    guess = attack(view, stream=SeededStream(0)).images
    assert guess is not None and guess.shape == (2 * N, 1, 8, 8)
    x = opened.rows().x
    first = [int((x.flatten(1) == image.flatten()).all(1).nonzero()[0]) for image in truth_of(made)["images"]]
    images = guess[torch.tensor(first)]
    score = mixveil.score_challenge(made.folder, made.truth, guessed(tmp_path / "g", images=images)).images
    assert score is not None and score.found.ssim is not None and score.found.ssim.mean > 0.99


# The ledger


def test_a_challenge_is_entered_and_other_releases_are_not_shown(digits: Images, tmp_path: Path) -> None:
    data, ledger = digits.part(torch.arange(30)), mixveil.Ledger()
    made = mixveil.make_challenge(data, tmp_path / "a", images=30, encodings=1)
    (entry,) = ledger.entries()
    assert (entry.id, entry.kind, entry.rows, entry.cost, bool(entry.finished)) == (
        made.card.id,
        "challenge",
        30,
        None,
        True,
    )
    mixveil.make_challenge(data, tmp_path / "b", images=30, encodings=1)  # what is shown already may be shown again
    mixveil.encode(data.part(torch.arange(5)), tmp_path / "r", mu=1.0)
    with pytest.raises(errors.PrivateFactError, match="1 release of these images"):
        mixveil.make_challenge(data, tmp_path / "c", images=30, encodings=1)
    other = digits.part(torch.arange(40, 60))
    mixveil.make_challenge(other, tmp_path / "d", images=20, encodings=1)
    assert len(ledger.entries()) == 4 and not (tmp_path / "c").exists() and not (tmp_path / "c.truth").exists()
    with pytest.raises(errors.BudgetError):  # and what was shown has no budget left
        mixveil.encode(other, tmp_path / "s", mu=1.0, budget=5.0)


def test_a_standing_budget_holds_for_challenges_too(digits: Images, tmp_path: Path) -> None:
    mixveil.Ledger().set_budget(2.0)
    with pytest.raises(errors.BudgetError):
        mixveil.make_challenge(digits, tmp_path / "c", encoder="singular", mu=0.1, images=N, encodings=1)
    assert not mixveil.Ledger().entries() and not (tmp_path / "c").exists() and not (tmp_path / "c.truth").exists()


def test_a_warning_can_stop_it_before_it_is_entered(digits: Images, tmp_path: Path) -> None:
    def stop(told: Note) -> None:
        raise errors.ArgumentError(told.code)

    with pytest.raises(errors.ArgumentError, match="challenge-images-shown"):
        mixveil.make_challenge(digits, tmp_path / "c", images=N, encodings=1, warn=stop)
    assert not mixveil.Ledger().entries() and not (tmp_path / "c").exists()


@pytest.mark.parametrize("when", ["page", "rename"])
def test_both_folders_or_neither(when: str, digits: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def fails(*given: Any) -> Any:
        if when == "rename" and Path(given[1]).name != "c":
            return rename(*given)
        raise OSError("no space")

    broken: Any = challenge_pages if when == "page" else Path
    monkeypatch.setattr(broken, "challenge_page" if when == "page" else "rename", fails)
    with pytest.raises(errors.OutputError, match="counts in your ledger"):
        mixveil.make_challenge(digits, tmp_path / "c", images=N, encodings=1)
    assert {path.name for path in tmp_path.iterdir()} == {"state"}


# What must be refused


def test_the_truth_of_another_challenge_is_refused(made: MadeChallenge, digits: Images, tmp_path: Path) -> None:
    other = mixveil.make_challenge(digits, tmp_path / "o", images=N, encodings=T)
    guess = guessed(tmp_path / "g.safetensors", images=truth_of(made)["images"])
    for folder, truth in ((made.folder, other.truth), (other.folder, made.truth)):
        with pytest.raises(errors.MismatchError):
            mixveil.score_challenge(folder, truth, guess)
    with pytest.raises(errors.ManifestError):
        mixveil.score_challenge(made.truth, made.folder, guess)


@pytest.mark.parametrize("name", ["challenge.json", "encodings.safetensors", "truth.json", "truth.safetensors"])
def test_changed_files_are_refused(name: str, made: MadeChallenge, tmp_path: Path) -> None:
    folders = shutil.copytree(made.folder, tmp_path / "c"), shutil.copytree(made.truth, tmp_path / "t")
    path = next(folder / name for folder in folders if (folder / name).exists())
    if name.endswith(".json"):
        path.write_text(path.read_text().replace('"patterns"', '"others"') + ("\n" if name == "challenge.json" else ""))
        if name == "truth.json":
            path.write_text(path.read_text().replace(made.card.truth_sha256, "0" * 64))
    else:
        flip(path)
    guess = guessed(tmp_path / "g.safetensors", images=truth_of(made)["images"])
    with pytest.raises(errors.HashError):
        mixveil.score_challenge(*folders, guess)


HOSTILE: dict[str, tuple[dict[str, Any], type[errors.MixveilError]]] = {
    "format": ({"format": "mixveil-release"}, errors.ManifestError),
    "version": ({"version": 2}, errors.VersionError),
    "unknown": ({"more": 1}, errors.ManifestError),
    "images": ({"images": 10**12}, errors.ManifestError),
    "rows": ({"rows": N * T + 1}, errors.ManifestError),
    "range": ({"range": [1, 0]}, errors.ManifestError),
    "order": ({"order": "as they are"}, errors.ManifestError),
    "rules": ({"rules": ["send money"]}, errors.ManifestError),
    "target": ({"target": {"name": "mu", "value": -1, "calibration": None}}, errors.ManifestError),
    "public": ({"public": {"name": "\n", "use": "facts", "patches": None, "keypoints": None}}, errors.ManifestError),
    "classes": ({"classes": ["a", "a"]}, errors.ManifestError),
    "fewer classes": ({"classes": ["a"]}, errors.ShapeError),
    "file": ({"file": {"name": "../x", "bytes": 1, "sha256": "0" * 64, "rows": N * T}}, errors.ManifestError),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_challenge_of_others_is_checked(what: str, made: MadeChallenge, tmp_path: Path) -> None:
    folder = shutil.copytree(made.folder, tmp_path / "c")
    changes, error = HOSTILE[what]
    (folder / "challenge.json").write_text(json.dumps({**made.card.plain(), **changes}))
    with pytest.raises(error):
        mixveil.open_challenge(folder)


GUESSES: dict[str, dict[str, Tensor]] = {
    "nothing": {},
    "another name": {"pictures": torch.zeros(N, 1, 8, 8)},
    "one more name": {"images": torch.zeros(N, 1, 8, 8), "x": torch.zeros(1)},
    "too few images": {"images": torch.zeros(N - 1, 1, 8, 8)},
    "another shape": {"images": torch.zeros(N, 64)},
    "octets": {"images": torch.zeros(N, 1, 8, 8, dtype=torch.uint8)},
    "too large": {"images": torch.zeros(N, 1, 80, 80)},
    "sources of floats": {"sources": torch.zeros(N * T, 2)},
    "sources of three": {"sources": torch.zeros(N * T, 3, dtype=torch.int64)},
    "sources of none": {"sources": torch.zeros(N * T, 0, dtype=torch.int64)},
    "sources of too few rows": {"sources": torch.zeros(N, 2, dtype=torch.int64)},
    "a number too large": {"sources": torch.full((N * T, 2), N)},
    "a number too small": {"sources": torch.full((N * T, 1), -2)},
}


@pytest.mark.parametrize("what", GUESSES)
def test_a_guess_that_does_not_fit_is_refused(what: str, made: MadeChallenge, tmp_path: Path) -> None:
    with pytest.raises(errors.DataFormatError):
        mixveil.score_challenge(made.folder, made.truth, guessed(tmp_path / "g.safetensors", **GUESSES[what]))


def test_hostile_files_are_no_guesses(made: MadeChallenge, tmp_path: Path) -> None:
    def score(path: Path) -> Any:
        return mixveil.score_challenge(made.folder, made.truth, path)

    path = tmp_path / "g.safetensors"
    for value in (torch.nan, torch.inf):
        images = torch.zeros(N, 1, 8, 8)
        images[3, 0, 2, 2] = value
        with pytest.raises(errors.PixelError):
            score(guessed(path, images=images))
    torch.save({"images": torch.zeros(N, 1, 8, 8)}, path)  # a pickle
    with pytest.raises(errors.DataFormatError):
        score(path)
    header = json.dumps({"images": {"dtype": "F32", "shape": [N, 1, 8, 8], "data_offsets": [0, 10**9]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(errors.DataFormatError):
        score(path)
    (tmp_path / "link").symlink_to(guessed(path, images=torch.zeros(N, 1, 8, 8)))
    for other in (tmp_path / "link", tmp_path, Path("/dev/zero")):
        with pytest.raises(errors.DataFormatError):
            score(other)
    with pytest.raises(errors.MissingPathError):
        score(tmp_path / "none")
