"""Training both halves of a split network: the loss by hand, stopping and going on, what separates, halves on disk."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mixveil.core import errors
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError, MismatchError, OutputExistsError, TooFewRowsError, TrainingStopped
from mixveil.core.first_weights import started
from mixveil.core.types import Batch, Progress, Release
from mixveil.core.watching import Watch
from mixveil.data.images import Images, from_tensors
from mixveil.data.opening import DataSpec, open_data
from mixveil.features.split.half import read_half
from mixveil.features.split.networks import cut
from mixveil.learn import split
from mixveil.learn.image_training import ImageTraining
from mixveil.learn.split import SplitJob, SplitTrained, in_turns, measured, split_answer, split_train
from mixveil.learn.split_training import SplitNetwork, SplitRecipe, begun, ended
from mixveil.releases.kinds.records import Records
from mixveil.releases.kinds.representations import RepresentationSettings
from mixveil.releases.representations import in_memory, split_encode
from tests.made import write as write_records

CPU = torch.device("cpu")
TRAIN, TEST = open_data("digits:train"), open_data("digits:test")
SOME = TRAIN.part(torch.arange(150))
FEW = TEST.part(torch.arange(60))
QUICK = SplitRecipe(epochs=2, batch=32, learning_rate=0.05)


def tiny(channels: int = 1, side: int = 8, classes: int = 10) -> nn.Sequential:
    block = nn.Sequential(nn.Conv2d(channels, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    scores = nn.Linear(4 * (side // 2) ** 2, classes)
    return nn.Sequential(OrderedDict(block=block, flat=nn.Flatten(), scores=scores))


def pixels(data: Images) -> Tensor:
    return data.take(torch.arange(len(data))).x


def same(one: SplitTrained, other: SplitTrained) -> bool:
    halves = (one.client.digest, one.server.digest) == (other.client.digest, other.server.digest)
    return halves and one.curve == other.curve


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("penalty", "magic", "penalty must be one of none, mixcon, unicon, got 'magic'"),
        ("weight", -1.0, "weight must be 0 or positive, and finite, got -1.0"),
        ("weight", math.nan, "weight must be .* got nan"),
        ("beta", math.inf, "beta must be .* got inf"),
        ("beta", "much", "beta must be .* got 'much'"),
        ("epochs", 0, "epochs must be at least 1, got 0"),
        ("batch", 4, "batch must be at least 8, got 4"),
        ("learning_rate", 0.0, r"learning rate must be positive and finite, got 0\.0"),
        ("weight_decay", -0.5, "weight decay must be 0 or positive, got -0.5"),
        ("momentum", 1.0, r"momentum must be in \[0, 1\), got 1\.0"),
        ("falls", (2, 1.5), "falls must be whole numbers of epochs, got 1.5"),
        ("falls", (-1,), "falls must be whole numbers of epochs, got -1"),
        ("seed", -1, "seed"),
    ],
)
def test_bad_settings_are_refused_by_name_and_value(name: str, value: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        SplitRecipe(**{name: value})


def test_the_rate_falls_after_the_epochs_that_are_named() -> None:
    recipe = SplitRecipe(learning_rate=1.0, falls=[2, 3])  # type: ignore[arg-type]
    assert [recipe.rate(epoch) for epoch in range(4)] == pytest.approx([1, 1, 0.1, 0.01])
    assert recipe == replace(recipe, falls=(2, 3)) and hash(recipe)


def penalty_by_hand(recipe: SplitRecipe, h: Tensor, labels: list[int]) -> Tensor:
    """Eq. 1 of the paper, and UniCon, one pair after the other."""
    rows = [row / row.norm() if recipe.normalised else row for row in h.flatten(1)]
    members = {c: [i for i, label in enumerate(labels) if label == c] for c in sorted(set(labels))}
    total = torch.zeros(())
    if recipe.penalty == "unicon":
        for of in members.values():
            for i, j in combinations(of, 2):
                total = total + 2 * (rows[i] - rows[j]).square().sum() / (len(of) * (len(of) - 1))
        return total / len(members)
    p = min(map(len, members.values()))
    for place in range(p):
        for one, other in combinations(members, 2):
            apart = (rows[members[one][place]] - rows[members[other][place]]).square().sum()
            total = total + 2 * (apart + recipe.beta / apart)
    return total / (p * len(members) * (len(members) - 1))


@pytest.mark.parametrize("penalty", ["none", "mixcon", "unicon"])
@pytest.mark.parametrize("normalised", [True, False])
def test_a_step_is_one_of_cross_entropy_and_the_weighted_penalty(penalty: Any, normalised: bool) -> None:
    """One step on all rows: its loss, and where SGD takes the weights by the slope of that."""
    recipe = SplitRecipe(epochs=1, batch=60, penalty=penalty, weight=0.7, beta=0.02, normalised=normalised)
    x, labels = pixels(FEW), FEW.labels
    client, server = cut(tiny(), "block")
    training = begun(client, server, x, labels, 10, recipe)
    assert list(training.steps()) == [60] and training.rows == 60
    both = SplitNetwork(*cut(tiny(), "block"))
    slow = started(both, DeviceStream(recipe.stream("first weights")), CPU)
    order = recipe.stream("epoch 0").permutation(60)  # which sample of a class is the first depends on it
    h = slow.client(x[order])
    chosen = torch.log_softmax(slow.server(h), 1)[torch.arange(60), labels[order]]
    loss = -chosen.mean()
    if penalty != "none":
        loss = loss + 0.7 * penalty_by_hand(recipe, h, labels[order].tolist())
    assert ended(training)[0]["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    slow.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    for name, value in slow.named_parameters():
        assert value.grad is not None and float(value.grad.abs().max()) > 0
        moved = value.detach() - 0.01 * value.grad
        assert torch.allclose(training.model.get_parameter(name), moved, atol=1e-6), name


def told_at(step: int) -> Callable[[], AbstractContextManager[Callable[[], bool]]]:
    """A user who asks a training to end, after so many steps."""

    @contextmanager
    def stopping() -> Iterator[Callable[[], bool]]:
        asked = iter(range(1, 1000))
        yield lambda: next(asked) == step

    return stopping


def counting(steps: list[int]) -> Watch:
    """Progress that keeps its total, below zero, and then each step."""

    @contextmanager
    def watch(what: str, total: int) -> Iterator[Progress]:
        steps.append(-total)
        yield steps.append

    return watch


@pytest.mark.parametrize("augmented", [False, True], ids=["", "augmented"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_training_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, momentum: float, augmented: bool) -> None:
    recipe = replace(QUICK, momentum=momentum, augmented=augmented, falls=(1,))
    asked: dict[str, Any] = {"network": tiny(), "cut": "block", "recipe": recipe}
    whole = split_train(SOME, tmp_path / "whole", **asked)
    with pytest.raises(TrainingStopped, match="stopped after step 7 of 10"):
        split_train(SOME, tmp_path / "a", **asked, stopping=told_at(7))
    assert not (tmp_path / "a").exists() and (tmp_path / ".a.training").exists()
    with pytest.raises(errors.TrainingError, match="another training, its weight differ"):
        split_train(SOME, tmp_path / "a", **{**asked, "recipe": replace(recipe, weight=2.0)})
    with pytest.raises(errors.TrainingError, match="another training, its data differ"):
        split_train(SOME.listed((*SOME.classes[1:], "0")), tmp_path / "a", **asked)
    told, counted = list[str](), list[int]()
    again = split_train(SOME, tmp_path / "a", **asked, say=told.append, watch=counting(counted))
    assert same(whole, again) and told == ["going on after step 7 of 10"] and sum(counted) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "whole"]


def test_a_layer_that_is_there_twice_does_not_keep_a_training_from_being_stopped(tmp_path: Path) -> None:
    twice = nn.Linear(16, 16)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), twice, nn.ReLU(), twice, nn.Linear(16, 10))
    asked: dict[str, Any] = {"network": net, "cut": "2", "recipe": QUICK}
    with pytest.raises(TrainingStopped):
        split_train(SOME, tmp_path / "a", **asked, stopping=told_at(3))
    again = split_train(SOME, tmp_path / "a", **asked)
    assert same(split_train(SOME, tmp_path / "b", **asked), again)


def test_progress_counts_the_rows_of_all_steps(tmp_path: Path) -> None:
    """The last four rows are too few for a step."""
    counted = list[int]()
    split_train(
        TRAIN.part(torch.arange(68)), tmp_path / "a", network=tiny(), cut="block", recipe=QUICK, watch=counting(counted)
    )
    assert counted[0] == -2 * 64 and sum(counted) == 0


@pytest.mark.parametrize("together", [1, 3])
def test_trainings_in_turns_give_what_single_ones_give(together: int, tmp_path: Path) -> None:
    """Also of a user's own network, of which each training has a copy."""
    net = tiny()
    before = [value.clone() for value in net.parameters()]
    job = SplitJob.of(SOME, net, "block")
    recipes = [
        QUICK,
        replace(QUICK, penalty="none", epochs=1),
        replace(QUICK, penalty="unicon"),
        replace(QUICK, seed=1),
    ]
    done = list[int]()
    found = dict(in_turns(job, [(recipe, None) for recipe in recipes], together=together, progress=done.append))
    assert sorted(found) == [0, 1, 2, 3] and sum(done) == 7 * 150
    assert next(iter(found)) == (0 if together == 1 else 1)  # that of one epoch is finished first
    for number, recipe in enumerate(recipes):
        alone = job.begun(recipe)
        assert sum(alone.steps()) == alone.rows
        assert same(found[number], job.ended(alone, recipe)), number
    assert len({trained.client.digest for trained in found.values()}) == 4
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


def apart(trained: SplitTrained) -> tuple[float, float]:
    """The mean distances of representations, scaled to norm 1, of test digits: across classes, and within."""
    h = nn.functional.normalize(trained.client.in_batches(pixels(TEST)[:300]), dim=1).double()
    alike = TEST.labels[:300, None] == TEST.labels[:300]
    distance = torch.cdist(h, h)
    return float(distance[~alike].mean()), float(distance[alike & ~torch.eye(300, dtype=torch.bool)].mean())


def test_the_losses_bring_representations_together_and_the_digits_are_still_told_apart() -> None:
    """Fails where a loss does not reach the weights of the client half, or has the wrong sign."""
    job = SplitJob.of(TRAIN, tiny(), "block")
    bare = SplitRecipe(epochs=6, batch=32, learning_rate=0.05, penalty="none")
    recipes = [bare, replace(bare, penalty="mixcon", weight=3.0), replace(bare, penalty="unicon", weight=3.0)]
    none, mixcon, unicon = (trained for _, trained in in_turns(job, [(recipe, None) for recipe in recipes]))
    (across, within), (mixed, _), (_, united) = apart(none), apart(mixcon), apart(unicon)
    assert mixed < 0.5 * across and united < 0.6 * within
    assert min(measured(trained, TEST).accuracy for trained in (none, mixcon, unicon)) > 0.7


def test_beta_keeps_representations_from_falling_together() -> None:
    job = SplitJob.of(TRAIN.part(torch.arange(600)), tiny(), "block")
    recipe = SplitRecipe(epochs=3, batch=32, learning_rate=0.05, weight=10.0)
    betas = (0.0, 0.1)
    found = {betas[n]: made for n, made in in_turns(job, [(replace(recipe, beta=beta), None) for beta in betas])}
    assert 3 * apart(found[0.0])[0] < apart(found[0.1])[0]


def test_figures_are_those_of_a_slow_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "_COMPARED", 25)
    job = SplitJob.of(SOME, tiny(), "block")
    ((_, trained),) = in_turns(job, [(QUICK, None)])
    found = measured(trained, FEW)
    right, h = 0, []
    for image, label in zip(pixels(FEW), FEW.labels.tolist(), strict=True):
        h.append(trained.client.net(image[None])[0].detach().flatten().double())
        right += int(trained.server.net(h[-1].float().view(1, 4, 4, 4)).argmax()) == label
    assert found.rows == 60 and found.accuracy == right / 60
    pairs = list(combinations(range(25), 2))
    distances = [float((h[i] / h[i].norm() - h[j] / h[j].norm()).norm()) for i, j in pairs]
    across = [d for d, (i, j) in zip(distances, pairs, strict=True) if FEW.labels[i] != FEW.labels[j]]
    assert found.separability.least == pytest.approx(min(distances), rel=1e-4)
    assert found.separability.mean == pytest.approx(sum(distances) / len(distances), rel=1e-4)
    assert found.separability.most == pytest.approx(max(across), rel=1e-4)
    assert json.loads(json.dumps(found.plain())) == {"rows": 60, "accuracy": right / 60, **found.separability._asdict()}


def test_data_are_read_once() -> None:
    read = list[int]()

    def counting(index: Tensor) -> Tensor:
        read.extend(index.tolist())
        return SOME.read(index)

    job = SplitJob.of(replace(SOME, read=counting), tiny(), "block")
    assert list(in_turns(job, [(QUICK, None), (replace(QUICK, seed=1), None)]))
    assert torch.equal(pixels(job.images), pixels(SOME)) and sorted(read) == list(range(150))


def test_both_halves_are_written_and_answer_as_the_network_did(tmp_path: Path) -> None:
    net = tiny()
    made = split_train(SOME, tmp_path / "n", network=net, cut="block.1", recipe=QUICK, test=FEW)
    client, server = read_half(tmp_path / "n" / "client", "client"), read_half(tmp_path / "n" / "server", "server")
    assert (client.digest, server.digest) == (made.client.digest, made.server.digest)
    assert client.output == (4, 8, 8) and server.classes == SOME.classes and server.partner == client.digest
    assert client.how["penalty"] == "mixcon" and client.how["cut"] == "block.1"
    x = pixels(FEW)
    with torch.no_grad():
        scores = made.server.net(made.client.net(x))
    split_encode(FEW, tmp_path / "r", client=client)
    answers = split_answer(tmp_path / "r", tmp_path / "n" / "server")
    assert torch.allclose(answers.scores, scores, atol=1e-6)
    assert answers.classes == tuple(SOME.classes[number] for number in scores.argmax(1).tolist())
    assert made.figures is not None
    right = [name == FEW.classes[label] for name, label in zip(answers.classes, FEW.labels.tolist(), strict=True)]
    assert made.figures.accuracy == sum(right) / 60
    written = json.loads((tmp_path / "n" / "training.json").read_text())
    assert written["tested"] == made.figures.plain() and written["curve"] == list(made.curve)
    assert [row["epoch"] for row in made.curve] == [1, 2] and written["recipe"]["weight"] == 1.0


def test_colour_images_and_classes_in_another_order(tmp_path: Path) -> None:
    x = torch.cat([pixels(SOME)] * 3, 1)
    names = [f"digit {number}" for number in range(10)]
    colour = from_tensors(x, SOME.labels, classes=names)
    other = x.clone()
    other[:, :, 0, 0] = 0.5  # else they would be the images that it is trained on
    turned = from_tensors(other, 9 - SOME.labels, classes=names[::-1])
    recipe = SplitRecipe(epochs=10, batch=16, learning_rate=0.05, penalty="none")
    made = split_train(colour, tmp_path / "a", network=tiny(3), cut="block", recipe=recipe, test=turned)
    assert made.client.shape == (3, 8, 8) and made.figures is not None and made.figures.accuracy > 0.7
    assert made.figures == measured(made, from_tensors(other, SOME.labels, classes=names))
    lenet5 = SplitJob.of(colour, "lenet5", None).begun(replace(QUICK, augmented=True, epochs=1))
    assert sum(lenet5.steps()) == 150 and ended(lenet5)[0]["loss"] > 0


def test_images_that_were_trained_on_are_no_test(tmp_path: Path) -> None:
    with pytest.raises(errors.MismatchError, match="150 of its 150 images"):
        split_train(SOME, tmp_path / "n", network=tiny(1), cut="block", recipe=QUICK, test=SOME)
    assert not (tmp_path / "n").exists()


def npz(path: Path, x: Tensor, y: Tensor, **more: Any) -> Path:
    np.savez(path, x=x.numpy(), y=y.numpy(), **more)
    return path


def refusals(folder: Path) -> dict[str, tuple[DataSpec, dict[str, Any], type[errors.MixveilError], str]]:
    x, y = pixels(FEW), FEW.labels
    wide = npz(folder / "wide.npz", torch.zeros(20, 1, 9, 9), torch.arange(20) % 10)
    signed = npz(folder / "signed.npz", 2 * x - 1, y, range=[-1.0, 1.0])
    own = {"network": tiny(), "cut": "block"}
    odd = nn.Sequential(
        OrderedDict(block=nn.Sequential(nn.Flatten(), nn.Linear(64, 8)), act=nn.ELU(), s=nn.Linear(8, 10))
    )
    return {
        "other shape": (SOME, {"test": wide}, MismatchError, "wide has images of"),
        "other range": (SOME, {"test": signed}, MismatchError, r"signed has pixels in \[-1, 1\]"),
        "one test image": (SOME, {"test": FEW.part(torch.arange(1))}, TooFewRowsError, "two images or more"),
        "no test image": (SOME, {"test": FEW.part(torch.arange(0))}, TooFewRowsError, "got 0"),
        "other classes": (SOME, {"test": from_tensors(x, y, classes=11)}, MismatchError, "do not have: 10"),
        "one class": (from_tensors(x, 0 * y), {}, ArgumentError, "rows of one class only"),
        "one class of ten": (from_tensors(x, 0 * y, classes=10), {}, ArgumentError, "rows of one class only"),
        "few rows": (SOME.part(torch.arange(6)), own, TooFewRowsError, "at least 8 rows, got 6"),
        "unknown network": (SOME, {"network": "resnet"}, ArgumentError, "synthetic, convnet, got 'resnet'"),
        "network for others": (SOME, {"network": "vgg16"}, ArgumentError, "32 × 32"),
        "unknown cut": (SOME, {"cut": "block9"}, ArgumentError, "got 'block9'"),
        "no cut": (SOME, {"network": tiny()}, ArgumentError, "cut must name"),
        "own and unknown cut": (SOME, {**own, "cut": "head"}, ArgumentError, "block, flat, scores, got 'head'"),
        "nothing behind": (SOME, {**own, "cut": "scores"}, ArgumentError, "nothing is left for the server"),
        "other colours": (SOME, {"network": tiny(3), "cut": "block"}, MismatchError, "does not take 1 × 8 × 8"),
        "other scores": (SOME, {"network": tiny(classes=9), "cut": "block"}, MismatchError, r"\(9,\) scores for 10"),
        "strange layer": (SOME, {"network": odd, "cut": "block"}, ArgumentError, "layer act is a ELU"),
        "moved vectors": (
            from_tensors(x.flatten(1), y), {"network": "synthetic", "recipe": replace(QUICK, augmented=True)},
            ArgumentError, "only images can be moved",
        ),
    }  # fmt: skip


def test_what_cannot_be_is_refused_before_any_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageTraining, "steps", lambda self: pytest.fail("it trains"))
    cases = refusals(tmp_path)
    for name, (data, asked, error, said) in cases.items():
        with pytest.raises(errors.MixveilError, match=said) as caught:
            split_train(data, tmp_path / "a", **{"recipe": QUICK, **asked})
        assert type(caught.value) is error, name
    (tmp_path / "there").mkdir()
    with pytest.raises(OutputExistsError):
        split_train("nothing", tmp_path / "there")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["signed.npz", "there", "wide.npz"]


def test_the_server_half_answers_its_own_client_alone(tmp_path: Path) -> None:
    job = SplitJob.of(SOME, tiny(), "block")
    (_, one), (_, other) = in_turns(job, [(QUICK, None), (replace(QUICK, seed=1), None)])
    release = in_memory(FEW, one.client)
    assert len(split_answer(release, one.server).classes) == 60
    with pytest.raises(MismatchError, match="another client half"):
        split_answer(release, other.server)
    with pytest.raises(MismatchError, match="client half of a network"):
        split_answer(release, one.client)
    with pytest.raises(MismatchError, match="holds records, and representations are needed"):
        split_answer(write_records(tmp_path / "records"), one.server)
    with pytest.raises(errors.MissingPathError):
        split_answer(release, tmp_path / "nothing")
    narrow = replace(release.envelope, settings=RepresentationSettings((5,), False))
    forged = Release(narrow, Records((Batch(torch.zeros(3, 5), torch.zeros(3, 0)),), None))
    with pytest.raises(MismatchError, match=r"takes representations of \(4, 4, 4\), and these have \(5,\)"):
        split_answer(forged, one.server)


def test_scores_that_are_not_finite_are_no_answer() -> None:
    """Rows are finite, and their scores overflow."""
    job = SplitJob.of(SOME, tiny(), "block")
    ((_, made),) = in_turns(job, [(QUICK, None)])
    release = in_memory(FEW, made.client)
    x = release.payload.take(torch.arange(3)).x.clone()
    scores = dict(made.server.net.named_parameters())["scores.weight"][0]
    x[1] = 3e38 * scores.detach().sign()
    forged = Release(release.envelope, Records((Batch(x, torch.zeros(3, 0)),), None))
    with pytest.raises(errors.NotFiniteError, match="of row 1 the server half makes scores that are not finite"):
        split_answer(forged, made.server)


def test_a_training_that_diverges_says_so(tmp_path: Path) -> None:
    with pytest.raises(errors.TrainingError, match="smaller learning rate"):
        split_train(SOME, tmp_path / "a", network=tiny(), cut="block", recipe=replace(QUICK, learning_rate=1e30))
    assert not list(tmp_path.iterdir())
