"""A sweep over MixCon's settings: its points, going on after a stop, what it marks, and its page."""

from __future__ import annotations

import json
import re
import shutil
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mixveil.core import errors, files
from mixveil.core.errors import ArgumentError, BusyError, DataFormatError, MixveilError, TrainingStopped
from mixveil.core.types import Guess, View
from mixveil.core.wording.notes import note
from mixveil.data.images import Images, from_tensors
from mixveil.data.opening import open_data
from mixveil.data.similarity import mse, ssim
from mixveil.features.split.half import read_half
from mixveil.features.split.networks import NETWORKS, KnownNetwork
from mixveil.learn import split_sweep as sweeping
from mixveil.learn.image_training import ImageTraining
from mixveil.learn.split import SplitTrained, measured
from mixveil.learn.split_sweep import SplitSweep, points_of, split_sweep
from mixveil.learn.split_training import SplitRecipe
from mixveil.report.split_page import AttackFigures, SweepPoint, chosen, page
from mixveil.theory.separability import Separability
from tests.learn.test_split import counting, told_at
from tests.notes import shows

TRAIN = open_data("digits:train").part(torch.arange(120))
TEST = open_data("digits:test").part(torch.arange(40))
RECIPE = SplitRecipe(epochs=2, batch=40, learning_rate=0.05)
ASKED: dict[str, Any] = {"network": "tiny", "weights": (1.0, 5.0), "betas": (0.01,), "attacked": 3, "recipe": RECIPE}


def one_layer(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """A client half that the paper's inversion sees through."""
    block = nn.Sequential(nn.Conv2d(shape[0], 6, 3, padding=1), nn.ReLU())
    return nn.Sequential(OrderedDict(block=block, flat=nn.Flatten(), scores=nn.Linear(6 * 64, classes)))


@contextmanager
def tiny_network() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(NETWORKS, "tiny", KnownNetwork("block", one_layer))
        yield patch


@pytest.fixture
def patched() -> Iterator[pytest.MonkeyPatch]:
    with tiny_network() as patch:
        yield patch


class Quick:
    """Guesses one value everywhere, at once."""

    name: ClassVar[str] = "inversion"
    payload: ClassVar[str] = "representations"
    trains: ClassVar[bool] = False
    value: ClassVar[float] = 0.3
    calls: ClassVar[list[View]] = []

    def cannot(self, view: View) -> None:
        return None

    def __call__(self, view: View, *, stream: Any) -> Guess:
        self.calls.append(view)
        assert view.client is not None
        return Guess(images=torch.full((len(view.releases[0].payload), *view.client.shape), self.value).double())


@pytest.fixture
def quick(patched: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Attacks take no time, and find nothing."""
    patched.setattr(sweeping, "known_attacks", lambda: {"inversion": Quick})
    patched.setattr(Quick, "calls", [])
    return patched


def trainings(patch: pytest.MonkeyPatch) -> list[str]:
    """The settings of the trainings that are begun from now on."""
    begun, steps = list[str](), ImageTraining.steps

    def counted(self: ImageTraining) -> Iterator[int]:
        assert isinstance(self.recipe, SplitRecipe)
        begun.append(f"{self.recipe.weight:g}")
        return steps(self)

    patch.setattr(ImageTraining, "steps", counted)
    return begun


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SplitSweep:
    with tiny_network():
        return split_sweep(TRAIN, tmp_path_factory.mktemp("sweep") / "s", test=TEST, **ASKED)


def test_points_are_all_pairs_and_the_one_without_a_penalty() -> None:
    found = points_of((1, 2.0), (0.1, 0.0), RECIPE)
    assert [(each.penalty, each.weight, each.beta) for each in found] == [
        ("none", 0, 0), ("mixcon", 1, 0.1), ("mixcon", 1, 0), ("mixcon", 2, 0.1), ("mixcon", 2, 0)
    ]  # fmt: skip
    assert all(replace(each, penalty="mixcon", weight=1.0, beta=1e-4) == RECIPE for each in found)
    assert all(type(each.weight) is float for each in found)
    assert len(points_of(sweeping.WEIGHTS, sweeping.BETAS, RECIPE)) == 1 + 8 * 7


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"weights": ()}, "a weight and a β at least"),
        ({"weights": (1.0, 0.0)}, "weights must be positive"),
        ({"betas": (0.1, 0.1)}, "given twice"),
        ({"betas": (-1.0,)}, "beta must be 0 or positive, and finite, got -1.0"),
        ({"recipe": replace(RECIPE, penalty="unicon")}, "got the penalty unicon"),
        ({"attacked": 1}, "images to attack must be at least 2, got 1"),
        ({"attacks": ["lmmse"]}, "inversion, inversion-adaptive, inversion-gan; got 'lmmse'"),
        ({"attacks": []}, "got none"),
        ({"attacks": ["inversion", "inversion"]}, "must be different names"),
        ({"within": -0.1}, "within must be .* got -0.1"),
        ({"within": float("nan")}, "got nan"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"network": "magic"}, "got 'magic'"),
        ({"recipe": replace(RECIPE, augmented=True), "network": "synthetic", "vectors": True}, "only images"),
    ],
    ids=str,
)
def test_bad_settings_are_refused_and_nothing_is_left(
    asked: dict[str, Any], said: str, patched: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = [vectors(part) if asked.get("vectors") else part for part in (TRAIN, TEST)]
    asked = {name: value for name, value in asked.items() if name != "vectors"}
    with pytest.raises(ArgumentError, match=said):
        split_sweep(data[0], tmp_path / "s", test=data[1], **{**ASKED, **asked})
    assert not list(tmp_path.iterdir())


def vectors(data: Images) -> Images:
    x = data.take(torch.arange(len(data))).x
    return from_tensors(x.flatten(1)[:, 20:30], data.labels, classes=data.classes)


def test_a_point_has_the_figures_of_its_halves_and_of_the_attack(whole: SplitSweep) -> None:
    assert [point.label for point in whole.points] == ["no penalty", "λ = 1, β = 0.01", "λ = 5, β = 0.01"]
    for number, point in enumerate(whole.points):
        assert point.folder == whole.folder / "points" / f"{number:03d}" and point.folder is not None
        client, server = (read_half(point.folder / "halves" / name) for name in ("client", "server"))
        figures = measured(SplitTrained(client, server, None, ()), TEST)
        assert point.accuracy == figures.accuracy
        assert tuple(point.separability) == pytest.approx(tuple(figures.separability), rel=1e-5)
        assert json.loads((point.folder / "figures.json").read_text()) == point.plain()
        pictures = load_file(point.folder / "pictures.safetensors")
        truth = TEST.take(torch.arange(3)).x
        assert torch.equal(pictures["original"], truth)
        guess, (found,) = pictures["inversion"].double(), point.attacks.values()
        likeness, error = ssim(truth.double(), guess), mse(truth.double(), guess)
        assert found.ssim == pytest.approx(float(likeness.mean()), abs=1e-5)
        assert found.ssim_std == pytest.approx(float(likeness.std()), abs=1e-5)
        assert found.ssim_worst == pytest.approx(max(likeness.tolist()), abs=1e-5)
        assert (found.mse, found.mse_worst) == pytest.approx((float(error.mean()), min(error.tolist())), abs=1e-5)
    assert whole.points[0].attacks["inversion"].ssim > 0.7  # type: ignore[operator]
    assert sorted(path.name for path in whole.folder.iterdir()) == ["pid", "points", "sweep.html", "sweep.json"]
    assert sorted(path.name for path in (whole.folder / "points").iterdir()) == ["000", "001", "002"]


def test_the_page_is_private_loads_nothing_and_shows_all(whole: SplitSweep) -> None:
    assert whole.page.stat().st_mode & 0o777 == 0o600 and whole.folder.stat().st_mode & 0o777 == 0o700
    assert (whole.folder / "points" / "000").stat().st_mode & 0o777 == 0o700
    shown = whole.page.read_text()
    assert (
        "default-src 'none'" in shown and "http://" not in shown and "https://" not in shown and "<script" not in shown
    )
    assert all(source.startswith("data:image/png;base64,") for source in re.findall(r'src="([^"]*)"', shown))
    assert shown.count("<img") == 3 * (1 + 3) and shown.count("<svg") == 2  # originals once; two plots
    for point in whole.points:
        assert f">{point.label}</th>" in shown and f"{100 * point.accuracy:.2f} %" in shown
        assert f"{point.separability.mean:.4g}" in shown
    assert "attacked on 3 test images" in shown


def test_a_finished_sweep_trains_nothing_and_gives_the_same_page(
    whole: SplitSweep, quick: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(whole.folder, tmp_path / "s")
    begun, counted = trainings(quick), list[int]()
    (tmp_path / "s" / "sweep.html").unlink()
    again = split_sweep(TRAIN, tmp_path / "s", test=TEST, **ASKED, watch=counting(counted))
    assert again.points == whole.points and again.chosen == whole.chosen and not begun and not Quick.calls
    assert again.page.read_bytes() == whole.page.read_bytes()
    assert counted == [-3 * 2 * 120, 3 * 2 * 120]
    strict = split_sweep(TRAIN, tmp_path / "s", test=TEST, **ASKED, within=1.0)  # marks anew, and no more
    assert strict.points == whole.points and not begun
    least = min((1, 2), key=lambda number: whole.points[number].most())
    assert strict.chosen in (None, least) and strict.page.read_bytes() != whole.page.read_bytes()


def test_a_sweep_that_was_stopped_goes_on(quick: pytest.MonkeyPatch, tmp_path: Path) -> None:
    full = split_sweep(TRAIN, tmp_path / "full", test=TEST, **ASKED)
    with pytest.raises(TrainingStopped, match="after step 2 of 6"):
        split_sweep(TRAIN, tmp_path / "s", test=TEST, **ASKED, stopping=told_at(5 + 2))  # the last step does not ask
    points = tmp_path / "s" / "points"
    assert sorted(path.name for path in points.iterdir()) == [".001.training", "000"]
    (points / ".001.point.partial").mkdir()  # as a process that was killed leaves it
    (points / ".001.point.partial" / "figures.json").touch()
    begun, counted, told = trainings(quick), list[int](), list[str]()
    again = split_sweep(TRAIN, tmp_path / "s", test=TEST, **ASKED, watch=counting(counted), say=told.append)
    assert begun == ["1", "5"] and told == ["going on after step 2 of 6"] and sum(counted) == 0
    assert again.points == full.points and again.page.read_bytes() == full.page.read_bytes()
    assert sorted(path.name for path in points.iterdir()) == ["000", "001", "002"]
    for number in range(3):
        one, other = (
            read_half(sweep / "points" / f"{number:03d}" / "halves" / "client") for sweep in (full.folder, again.folder)
        )
        assert one.digest == other.digest


def test_a_sweep_that_was_killed_in_an_attack_leaves_no_half_of_a_point(
    quick: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    guess = Quick.__call__

    def interrupted(self: Quick, view: View, *, stream: Any) -> Guess:
        if len(self.calls) == 1:
            raise KeyboardInterrupt
        return guess(self, view, stream=stream)

    quick.setattr(Quick, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        split_sweep(TRAIN, tmp_path / "s", test=TEST, **ASKED)
    assert [path.name for path in (tmp_path / "s" / "points").iterdir()] == ["000"]
    quick.setattr(Quick, "__call__", guess)
    begun = trainings(quick)
    assert len(split_sweep(TRAIN, tmp_path / "s", test=TEST, **ASKED).points) == 3 and begun == ["1", "5"]


def other_labels(data: Images) -> Images:
    return replace(data, labels=data.labels.flip(0))


@pytest.mark.parametrize(
    "other",
    [
        {"weights": (1.0, 6.0)},
        {"betas": (0.02,)},
        {"recipe": replace(RECIPE, epochs=3)},
        {"attacked": 4},
        {"steps": 7},
        {"test": other_labels(TEST)},
        {"data": other_labels(TRAIN)},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_folder_of_other_settings_or_data_is_refused(
    other: dict[str, Any], whole: SplitSweep, quick: pytest.MonkeyPatch
) -> None:
    before, begun = whole.page.read_bytes(), trainings(quick)
    with pytest.raises(ArgumentError, match="other settings or data"):
        split_sweep(**{"data": TRAIN, "out": whole.folder, "test": TEST, **ASKED, **other})
    assert whole.page.read_bytes() == before and not begun


def test_other_folders_and_a_sweep_that_runs_are_left_alone(
    whole: SplitSweep, patched: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(errors.OutputExistsError):
        split_sweep(TRAIN, tmp_path / "full", test=TEST, **ASKED)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]
    with files.alone(whole.folder), pytest.raises(BusyError):
        split_sweep(TRAIN, whole.folder, test=TEST, **ASKED)


def _edited(folder: Path, **fields: Any) -> None:
    item = json.loads((folder / "figures.json").read_text())
    (folder / "figures.json").write_text(json.dumps({**item, **fields}))


def _attacked(folder: Path, **fields: Any) -> None:
    figures = json.loads((folder / "figures.json").read_text())["attacks"]["inversion"]
    _edited(folder, attacks={"inversion": {**figures, **fields}})


def _all_pictures(folder: Path, x: Tensor) -> None:
    _pictures(folder, original=x, inversion=x.clone())


def _pictures(folder: Path, **tensors: Tensor) -> None:
    path = folder / "pictures.safetensors"
    found = {**load_file(path), **tensors}
    path.unlink()
    save_file({name: tensor for name, tensor in found.items() if len(tensor)}, path)


DAMAGES: dict[str, Any] = {
    "no figures": lambda folder: (folder / "figures.json").unlink(),
    "no JSON": lambda folder: (folder / "figures.json").write_text("{"),
    "a list": lambda folder: (folder / "figures.json").write_text("[]"),
    "a field more": lambda folder: _edited(folder, more=1),
    "other settings": lambda folder: _edited(folder, weight=3.0),
    "accuracy": lambda folder: _edited(folder, accuracy="high"),
    "separability": lambda folder: _edited(folder, separability={"least": 0.1, "most": 0.2}),
    "a distance": lambda folder: _edited(folder, separability={"least": 0.1, "most": 0.2, "mean": None}),
    "no attack": lambda folder: _edited(folder, attacks={}),
    "attacks": lambda folder: _edited(folder, attacks=[1]),
    "a figure": lambda folder: _edited(
        folder, attacks={"inversion": {"ssim": "a", "ssim_std": 0, "ssim_worst": 0, "mse": 0, "mse_worst": 0}}
    ),
    "accuracy of 7": lambda folder: _edited(folder, accuracy=7.0),
    "accuracy below 0": lambda folder: _edited(folder, accuracy=-0.1),
    "a distance below 0": lambda folder: _edited(folder, separability={"least": -0.1, "most": 0.2, "mean": 0.1}),
    "a distance of 3": lambda folder: _edited(folder, separability={"least": 0.1, "most": 3.0, "mean": 0.1}),
    "SSIM of -5": lambda folder: _attacked(folder, ssim=-5.0),
    "SSIM of 2": lambda folder: _attacked(folder, ssim_worst=2.0),
    "a deviation below 0": lambda folder: _attacked(folder, ssim_std=-0.1),
    "an error below 0": lambda folder: _attacked(folder, mse=-0.1),
    "no SSIM": lambda folder: _attacked(folder, ssim=None),
    "no SSIM at all": lambda folder: _attacked(folder, ssim=None, ssim_std=None, ssim_worst=None),
    "no error": lambda folder: _attacked(folder, mse=None),
    "failed, with pictures": lambda folder: _attacked(folder, **dict.fromkeys(AttackFigures._fields)),
    "beyond white": lambda folder: _pictures(folder, inversion=torch.full((3, 1, 8, 8), 1e30)),
    "below black": lambda folder: _pictures(folder, inversion=torch.full((3, 1, 8, 8), -0.1)),
    "other originals": lambda folder: _pictures(folder, original=torch.zeros(3, 1, 8, 8)),
    "empty pictures": lambda folder: _all_pictures(folder, torch.zeros(3, 1, 0, 0)),
    "numbers, not pictures": lambda folder: _all_pictures(folder, torch.zeros(3)),
    "wide pictures": lambda folder: _all_pictures(folder, torch.zeros(3, 1, 1, 4000)),
    "more pictures": lambda folder: _all_pictures(folder, torch.zeros(4, 1, 8, 8)),
    "no pictures": lambda folder: (folder / "pictures.safetensors").unlink(),
    "not pictures": lambda folder: (folder / "pictures.safetensors").write_bytes(b"x" * 100),
    "no originals": lambda folder: _pictures(folder, original=torch.zeros(0)),
    "fewer pictures": lambda folder: _pictures(folder, inversion=torch.zeros(2, 1, 8, 8)),
    "whole numbers": lambda folder: _pictures(folder, inversion=torch.zeros(3, 1, 8, 8).long()),
    "no numbers": lambda folder: _pictures(folder, inversion=torch.full((3, 1, 8, 8), torch.nan)),
}


def test_a_damaged_point_is_refused_by_its_path(whole: SplitSweep, quick: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun, out = trainings(quick), tmp_path / "s"
    for name, damage in DAMAGES.items():
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(whole.folder, out)
        shutil.rmtree(out / "points" / "002")
        damage(out / "points" / "001")
        try:
            split_sweep(TRAIN, out, test=TEST, **ASKED)
        except MixveilError as error:
            assert type(error) is DataFormatError and str(out / "points" / "001") in str(error), name
            assert "remove it to train it again" in str(error) and not begun, name
        else:
            pytest.fail(f"{name}: it was not refused")


def test_data_are_read_once_for_all_points(quick: pytest.MonkeyPatch, tmp_path: Path) -> None:
    read: dict[str, list[int]] = {"train": [], "test": []}

    def counting(name: str, data: Images) -> Images:
        def counted(index: Tensor) -> Tensor:
            read[name].extend(index.tolist())
            return data.read(index)

        return replace(data, read=counted)

    found = split_sweep(counting("train", TRAIN), tmp_path / "s", test=counting("test", TEST), **ASKED)
    assert len(found.points) == len(Quick.calls) == 3
    assert {name: sorted(rows) for name, rows in read.items()} == {"train": [*range(120)], "test": [*range(40)]}


def test_all_test_images_are_attacked_where_more_are_asked_for(quick: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = split_sweep(TRAIN, tmp_path / "s", test=TEST, **{**ASKED, "attacked": 1000, "weights": (1,)})
    assert [len(view.releases[0].payload) for view in Quick.calls] == [40, 40]
    assert "attacked on 40 test images" in found.page.read_text()
    again = split_sweep(TRAIN, tmp_path / "s", test=TEST, **{**ASKED, "attacked": 40, "weights": (1.0,)})
    assert again.points == found.points and len(Quick.calls) == 2


def test_nothing_is_marked_where_the_attack_fails_without_a_penalty_too(
    quick: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also a guess that is no number is a failure, not an error."""
    learning = {**ASKED, "recipe": replace(RECIPE, epochs=8)}
    for value, said in ((0.3, "without any penalty too"), (float("nan"), "without a penalty an attack failed")):
        quick.setattr(Quick, "value", value)
        found = split_sweep(TRAIN, tmp_path / str(value), test=TEST, **learning, within=1.0)
        assert found.chosen is None
        shown = found.page.read_text()
        assert "No setting is marked" in shown and said in shown
        assert len(re.findall('r="9" fill="none"', shown)) == 1  # the one whose representations lie closest together


def test_an_attack_that_gives_no_number_has_failed_and_is_no_defence(quick: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One value of one image is enough. The attack sees through the network without a penalty, and fails elsewhere."""
    truth = TEST.take(torch.arange(3)).x.double()

    def fails(self: Quick, view: View, *, stream: Any) -> Guess:
        self.calls.append(view)
        guess = truth.clone()
        if len(self.calls) > 1:
            guess[1, 0, 3, 3] = (torch.nan, torch.inf)[len(self.calls) % 2]
        return Guess(images=guess)

    quick.setattr(Quick, "__call__", fails)
    asked = {**ASKED, "recipe": replace(RECIPE, epochs=8), "within": 1.0}
    found = split_sweep(TRAIN, tmp_path / "s", test=TEST, **asked)
    assert found.points[0].attacks["inversion"].ssim == pytest.approx(1) and found.chosen is None
    for failed in found.points[1:]:
        assert failed.attacks["inversion"] == AttackFigures(None, None, None, None, None)
        assert failed.failed == ["inversion"] and failed.recovered is None
    shown = found.page.read_text()
    assert shown.count('<td class="n">failed</td>') == 2 and "values that are not finite" in shown
    assert shown.count("<img") == 3 * 2 and shown.count('<div class="strip">failed</div>') == 2
    begun = trainings(quick)
    again = split_sweep(TRAIN, tmp_path / "s", test=TEST, **asked)
    assert again.points == found.points and not begun and again.page.read_text() == shown


def test_nothing_is_marked_of_a_network_that_learned_nothing(quick: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The attack gets less with a penalty, and no accuracy is lost, as there is none."""
    truth = TEST.take(torch.arange(3)).x.double()

    def weaker(self: Quick, view: View, *, stream: Any) -> Guess:
        self.calls.append(view)
        return Guess(images=truth / len(self.calls))

    quick.setattr(Quick, "__call__", weaker)
    lazy = {**ASKED, "recipe": replace(RECIPE, epochs=1, learning_rate=1e-9), "within": 1.0}
    found = split_sweep(TRAIN, tmp_path / "lazy", test=TEST, **lazy)
    shown, commonest = found.page.read_text(), max(TEST.labels.bincount().tolist()) / len(TEST)
    assert found.points[0].accuracy < commonest + 0.05 and found.chosen is None
    assert (
        "does not clearly beat naming the commonest class" in shown and f"that class {100 * commonest:.2f} %" in shown
    )
    assert 'r="9" fill="none"' not in shown
    Quick.calls.clear()
    quick.setattr(Quick, "__call__", weaker)
    able = split_sweep(TRAIN, tmp_path / "able", test=TEST, **{**lazy, "recipe": replace(RECIPE, epochs=8)})
    assert able.chosen == 2 and "commonest class" not in able.page.read_text()


def test_a_sweep_warns_and_says_whether_attackers_who_train_were_tried(
    whole: SplitSweep, quick: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert [told.code for told in whole.warnings] == ["halves-warning", "sweep-warning", "sweep-untrained"]
    assert all(shows(whole.page.read_text(), told.code, **told.figures) for told in whole.warnings[1:])
    quick.setattr(Quick, "trains", True)
    quick.setattr(sweeping, "with_cache", lambda attack, cache: attack)
    trained = split_sweep(TRAIN, tmp_path / "s", test=TEST, **ASKED)
    assert [told.code for told in trained.warnings] == ["halves-warning", "sweep-warning"]
    assert not shows(trained.page.read_text(), "sweep-untrained")


def test_an_attack_that_learns_from_public_images_gets_the_training_data(
    patched: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = {**ASKED, "weights": (1.0,), "attacks": ["inversion-adaptive"], "steps": 5}
    found = split_sweep(TRAIN, tmp_path / "s", test=TEST, **asked)
    likeness = found.points[0].attacks["inversion-adaptive"].ssim
    assert likeness is not None and likeness > 0.5 and found.page.read_text().count("<svg") == 2


def test_records_that_are_no_images_have_no_ssim(quick: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = {**ASKED, "network": "synthetic", "weights": (1.0,)}
    found = split_sweep(vectors(TRAIN), tmp_path / "s", test=vectors(TEST), **asked)
    assert found.chosen is None and all(point.recovered is None for point in found.points)
    figures = found.points[0].attacks["inversion"]
    truth = vectors(TEST).take(torch.arange(3)).x
    assert figures.mse == pytest.approx(float((truth - 0.3).square().mean()), rel=1e-5)
    shown = found.page.read_text()
    assert "these records are no images" in shown and "<img" not in shown and shown.count("<svg") == 1
    again = split_sweep(vectors(TRAIN), tmp_path / "s", test=vectors(TEST), **asked)
    assert again.points == found.points


def test_colour_images_of_another_range(quick: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Errors are in parts of the range."""

    def coloured(data: Images) -> Images:
        read = data.read
        return replace(
            data, read=lambda index: (4 * read(index) - 2).expand(-1, 3, -1, -1), shape=(3, 8, 8), low=-2.0, high=2.0
        )

    quick.setattr(Quick, "value", 1.0)  # three quarters of the range
    found = split_sweep(coloured(TRAIN), tmp_path / "s", test=coloured(TEST), **{**ASKED, "weights": (1.0,)})
    truth = TEST.take(torch.arange(3)).x.double()
    assert found.points[0].attacks["inversion"].mse == pytest.approx(float((truth - 0.75).square().mean()), rel=1e-5)
    assert found.page.read_text().count("<img") == 3 * (1 + 2)
    pictures = load_file(tmp_path / "s" / "points" / "000" / "pictures.safetensors")
    assert torch.allclose(pictures["original"], truth.float().expand(-1, 3, -1, -1), atol=1e-6)


def point(accuracy: float, likeness: float | None, *, mean: float = 0.5, **more: Any) -> SweepPoint:
    figures = AttackFigures(likeness, None if likeness is None else 0.0, likeness, 0.1, 0.05)
    apart = Separability(0.1, 1.0, mean)
    settings = {"penalty": "mixcon", "weight": 1.0, "beta": 0.1, "attacks": {"inversion": figures}, **more}
    return SweepPoint(accuracy=accuracy, separability=apart, **settings)


BARE = point(0.9, 0.8, penalty="none")


def test_what_is_recovered_least_within_the_loss_is_chosen() -> None:
    points = [BARE, point(0.895, 0.6), point(0.89, 0.4), point(0.85, 0.1), point(0.95, 0.5)]
    assert chosen(points, 0.011, 0.2) == 2
    assert chosen(points, 0.007, 0.2) == 4
    assert chosen(points, 0.06, 0.2) == 3
    assert chosen(points[:1], 0.01, 0.2) is None and chosen([BARE, points[3]], 0.01, 0.2) is None
    assert chosen(points, 0.011, 0.76) is None  # the attack is hardly better than the mean image without a penalty
    assert chosen(points, 0.011, None) is None
    assert chosen(points, 0.011, 0.2, 0.84) == 2 and chosen(points, 0.011, 0.2, 0.86) is None  # it learned little
    failed = AttackFigures(None, None, None, None, None)
    half = {"inversion": points[2].attacks["inversion"], "adaptive": failed}
    assert chosen([BARE, points[1], replace(points[2], attacks=half)], 0.011, 0.2) == 1  # no point with a failed attack
    assert chosen([BARE, replace(points[2], attacks=half)], 0.011, 0.2) is None
    bare = replace(BARE, attacks={**BARE.attacks, "adaptive": failed})  # what the other recovers there is known
    assert chosen([bare, points[1]], 0.011, 0.2) == 1 and chosen([bare, point(0.9, 0.79)], 0.011, 0.2) is None
    more = {name: figures._replace(ssim=0.99) for name, figures in points[2].attacks.items()}
    assert chosen([BARE, replace(points[2], attacks=more)], 0.011, 0.2) is None  # more is recovered than without
    strong = {"inversion": points[2].attacks["inversion"], "adaptive": AttackFigures(0.7, 0.0, 0.7, 0.1, 0.1)}
    assert chosen([BARE, points[1], replace(points[2], attacks=strong)], 0.011, 0.2) == 1  # the strongest attack counts


def test_the_page_says_what_is_chosen_in_good_english_and_escapes_names() -> None:
    bad = '<b a="&">'
    figures = AttackFigures(0.3, 0.0, 0.4, 0.1, 0.05)
    points = [replace(each, attacks={bad: figures._replace(ssim=each.recovered)}) for each in (BARE, point(0.9, 0.3))]
    about: dict[str, Any] = {"about": {"network": bad, "cut": bad, "attacked": 5}, "commonest": 0.1}
    about["warnings"] = [note("sweep-warning")]
    shown = page(points, **about, within=0.01, nothing=0.2)
    assert shows(shown, "sweep-warning")
    assert bad not in shown and "&lt;b a=" in shown
    assert "lose at most 1 point of accuracy" in shown and "<strong>λ = 1, β = 0.1</strong>: accuracy 90.00 %" in shown
    assert shown.count('r="9" fill="none"') == 2
    assert "lose at most 2.5 points of accuracy" in page(points, **about, within=0.025, nothing=0.2)
    lossy = page([points[0], replace(points[1], accuracy=0.5)], **about, within=0.01, nothing=0.2)
    assert "Every setting loses more than 1 point of accuracy" in lossy and 'r="9" fill="none"' not in lossy


def test_points_are_read_as_they_were_written() -> None:
    failed = {"inversion": AttackFigures(None, None, None, None, None)}
    for each in (BARE, point(0.5, None), point(0.25, 0.125), point(0.25, None, attacks=failed)):
        assert SweepPoint.read(json.loads(json.dumps(each.plain())), Path("x")) == each


def test_the_context_of_a_stop_is_left(quick: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A handler of signals is taken back, whatever happens."""
    left = list[bool]()

    @contextmanager
    def stopping() -> Iterator[Any]:
        try:
            yield lambda: True
        finally:
            left.append(True)

    made: AbstractContextManager[Any] = pytest.raises(TrainingStopped)
    with made:
        split_sweep(TRAIN, tmp_path / "s", test=TEST, **ASKED, stopping=stopping)
    assert left == [True]


def test_an_attack_that_cannot_be_run_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    few = TRAIN.part(torch.arange(30))
    with pytest.raises(ArgumentError, match="inversion-gan cannot be run here"):
        split_sweep(
            few, tmp_path / "s", test=TEST, **{**ASKED, "network": "lenet5", "cut": None, "attacks": ["inversion-gan"]}
        )
    assert not (tmp_path / "s").exists()
