"""`mixveil update`, and `mixveil audit` of what it makes, with the attacks that the package has."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import mixveil
from mixveil.cli.update import update as verb
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError, MismatchError
from mixveil.core.local_training import AugMix, LocalTraining
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Batch
from mixveil.data.augmix import views
from mixveil.data.opening import DataOptions, open_data
from mixveil.features.stacked.party import Defence, batches, sent_back
from mixveil.learn.local_update import linear
from mixveil.releases.kinds.updates import AFTER, BEFORE
from mixveil.releases.reading import read_release
from mixveil.releases.updates import settings_of, weights_of, write_update
from tests.command import Run, refused
from tests.notes import codes, holds, read, shows

WORDS = ("update", "digits:train", "--out", "u", "--rows", "4")


def weights(folder: Path, part: str) -> dict[str, Tensor]:
    return weights_of(read_release(folder), part)


def obvious(folder: Path, rows: int, **how: Any) -> dict[str, Tensor]:
    """The same training, by torch's own SGD on a network of torch."""
    data, batch = open_data("digits:train"), how.get("batch", 4)
    net = linear(data.shape, len(data.classes))
    net.load_state_dict(weights(folder, BEFORE))
    start = {name: value.detach().clone() for name, value in net.named_parameters()}
    steps = torch.optim.SGD(net.parameters(), lr=0.1, momentum=how.get("momentum", 0.0))
    for _ in range(how.get("epochs", 1)):
        for first in range(0, rows, batch):
            x, y = data.take(torch.arange(first, min(first + batch, rows)))
            steps.zero_grad()
            nn.functional.cross_entropy(net(x), y.argmax(1)).backward()  # type: ignore[no-untyped-call]
            for name, value in net.named_parameters():
                assert value.grad is not None
                value.grad += how.get("proximal", 0.0) * (value.detach() - start[name])
            steps.step()
    return dict(net.state_dict())


# What is made


@pytest.mark.parametrize(
    "more", [{}, {"epochs": 3, "batch": 3, "momentum": 0.9}, {"epochs": 2, "batch": 2, "proximal": 0.7}]
)
def test_an_update_is_what_a_party_s_sgd_makes(tmp_path: Path, run: Run, more: dict[str, Any]) -> None:
    given = [text for name, value in more.items() for text in (f"--{name}", str(value))]
    told = run(*WORDS, *given)
    assert told.code == 0, told.err
    assert shows(told.err, "updates-warning") and "not certified" in told.out
    assert shows(told.out, "update-trained")
    expected, after = obvious(tmp_path / "u", 4, **more), weights(tmp_path / "u", AFTER)
    assert all(torch.allclose(after[name], value, atol=1e-6) for name, value in expected.items())
    settings = settings_of(read_release(tmp_path / "u"))
    training = settings.training
    assert training is not None and training.rows == 4 and settings.shape == (1, 8, 8)
    assert len(training.rates) == more.get("epochs", 1) * math.ceil(4 / more.get("batch", 4))
    assert settings.method == ("fedprox" if "proximal" in more else "fedavg")
    assert run("verify", "u").code == 0


def test_a_later_round_begins_with_the_weights_of_an_earlier_one(tmp_path: Path, run: Run) -> None:
    assert run(*WORDS, "--seed", "5").code == 0
    told = run("update", "digits:train", "--out", "v", "--before", "u", "--json")
    assert told.code == 0, told.err
    assert told.json["kind"] == "updates" and told.json["training"]["rows"] == len(open_data("digits:train"))
    assert holds(read(told.json["warnings"]), "updates-warning") and told.json["spent"]["releases"] == 2
    before, after = weights(tmp_path / "v", BEFORE), weights(tmp_path / "u", AFTER)
    assert all(torch.equal(before[name], value) for name, value in after.items())
    mixveil.update("digits:train", tmp_path / "w", rows=4, seed=6)
    other, first = weights(tmp_path / "w", BEFORE), weights(tmp_path / "u", BEFORE)
    assert not torch.equal(other["scores.weight"], first["scores.weight"])
    with pytest.raises(ArgumentError, match="network"):
        mixveil.update("digits:train", tmp_path / "x", before=tmp_path / "u", network="linear")
    np.savez(tmp_path / "other.npz", x=np.zeros((4, 1, 4, 4), np.float32), y=np.arange(4))
    with pytest.raises(MismatchError, match="4, 4"):
        mixveil.update(tmp_path / "other.npz", tmp_path / "x", before=tmp_path / "u")


@pytest.mark.parametrize("scores", [1, 5])
def test_a_network_for_other_classes_is_not_trained(tmp_path: Path, scores: int) -> None:
    """With one score its loss is 0 whatever the rows are: the update would seem to hide them all."""
    data = open_data("digits:train").part(torch.arange(4))
    net = linear(data.shape, scores)
    sent = {name: value.detach() for name, value in net.named_parameters()}
    back = {name: value.clone() for name, value in sent.items()}
    write_update(tmp_path / "u", data, sent, back, method="fedavg", training=None, net=net, party="server")
    with pytest.raises(MismatchError, match="10 classes"):
        mixveil.update("digits:train", tmp_path / "v", before=tmp_path / "u", rows=4)
    assert not (tmp_path / "v").exists()


def test_steps_on_rows_of_one_class_are_warned_of(tmp_path: Path) -> None:
    """A folder of class folders is in the order of its classes."""
    x = SeededStream(1).uniform(8, 1, 8, 8).float().numpy()
    for name, labels in (("sorted", [0, 0, 0, 0, 1, 1, 1, 1]), ("mixed", [0, 1, 0, 1, 0, 1, 0, 1])):
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.array(labels), classes=np.array(["ill", "well"]))
        for batch in (1, 2, 4):
            made = mixveil.update(tmp_path / f"{name}.npz", tmp_path / f"{name}{batch}", batch=batch)
            warned = "update-steps-of-one-class" in codes(made.warnings)
            assert warned is (name == "sorted" and batch > 1)


def test_networks_are_chosen_by_the_size_of_images(tmp_path: Path) -> None:
    for side, name in ((28, "block1"), (20, "flat")):
        x = SeededStream(1).uniform(2, 1, side, side).float().numpy()
        np.savez(tmp_path / f"{side}.npz", x=x, y=np.arange(2))
        made = mixveil.update(tmp_path / f"{side}.npz", tmp_path / f"u{side}")
        layers = made.manifest.plain()["payload"]["layers"]
        assert layers[0]["name"] == name
    made = mixveil.update(tmp_path / "20.npz", tmp_path / "c", network="convnet")
    assert made.manifest.plain()["payload"]["layers"][-1]["name"] == "scores"


def test_augmented_views_are_other_ones_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        made = mixveil.update("digits:train", tmp_path / name, rows=4, augmix=6.0)
    assert made.manifest.settings.defence == "fedavg-augmix"
    one, other = (weights(tmp_path / name, AFTER)["scores.weight"] for name in ("a", "b"))
    assert not torch.allclose(one, other, atol=1e-5)


# Defences


def party(rows: int = 5) -> tuple[nn.Sequential, dict[str, Tensor], Batch]:
    data = open_data("digits:train")
    net, draws = linear(data.shape, 10), SeededStream(3)
    before = {name: 0.1 * draws.normal(*value.shape).float() for name, value in net.named_parameters()}
    return net, before, data.take(torch.arange(rows))


def slopes(net: nn.Sequential, now: dict[str, Tensor], x: Tensor, y: Tensor) -> list[Tensor]:
    net.load_state_dict(now)
    loss = nn.functional.cross_entropy(net(x), y.argmax(1))
    return list(torch.autograd.grad(loss, list(net.parameters())))


def test_each_record_s_gradient_is_clipped_by_itself() -> None:
    """Of batches of 2, 2 and 1, by hand: record by record."""
    net, before, rows = party()
    training = LocalTraining(5, 2, (0.1,) * 3, momentum=0.5)
    found = sent_back(net, before, rows, training, defence=Defence(clip=0.8))
    now, speed = {**before}, {name: torch.zeros_like(value) for name, value in before.items()}
    lengths = []
    for part in ((0, 1), (2, 3), (4,)):
        mean = {name: torch.zeros_like(value) for name, value in before.items()}
        for row in part:
            own = slopes(net, now, rows.x[[row]], rows.y[[row]])
            lengths.append(float(sum(slope.square().sum() for slope in own)) ** 0.5)
            for name, slope in zip(before, own, strict=True):
                mean[name] += slope * min(1.0, 0.8 / lengths[-1]) / len(part)
        speed = {name: 0.5 * speed[name] + mean[name] for name in before}
        now = {name: now[name] - 0.1 * speed[name] for name in before}
    assert max(lengths) > 0.8
    assert all(torch.allclose(found[name], value, atol=1e-6) for name, value in now.items())
    unclipped = sent_back(net, before, rows, training, defence=Defence(clip=1e9))
    plain = sent_back(net, before, rows, training)
    assert all(torch.allclose(unclipped[name], value, atol=1e-6) for name, value in plain.items())


@pytest.mark.parametrize("clip", [None, 1e9])
def test_a_step_of_fed_augmix_compares_views_with_the_images(clip: float | None) -> None:
    """By hand, with the same views: of the batch together, or where gradients are clipped of each record by itself."""
    net, before, rows = party(3)
    settings = AugMix(5.0, scale=0.0, large=7.0)  # the classification's loss is above 0: λ is 7
    training = LocalTraining(3, 3, (0.1,), augmix=settings)
    found = sent_back(net, before, rows, training, defence=Defence(clip=clip), stream=SeededStream(4))
    seen = views(rows.x, settings, DeviceStream(SeededStream(4).fork("views")))
    assert seen.shape == (2, 3, 1, 8, 8) and not torch.allclose(seen[0], seen[1])
    net.load_state_dict(before)
    shares = torch.stack([net(x).softmax(1) for x in (rows.x, *seen)])
    middle = shares.mean(0)
    apart = sum((share * (share / middle).log()).sum(1).mean() for share in shares) / 3
    loss = nn.functional.cross_entropy(net(rows.x), rows.y.argmax(1)) + 7 * apart
    slopes = torch.autograd.grad(loss, list(net.parameters()))
    for (name, value), slope in zip(before.items(), slopes, strict=True):
        assert torch.allclose(found[name], value - 0.1 * slope, atol=1e-5)


def test_noise_has_the_stated_size_and_the_smallest_values_are_pruned() -> None:
    net, before, rows = party(4)
    training = LocalTraining(4, 4, (1.0,))
    clipped = sent_back(net, before, rows, training, defence=Defence(clip=0.5))
    noisy = sent_back(net, before, rows, training, defence=Defence(clip=0.5, noise=3.0), stream=SeededStream(0))
    noise = torch.cat([(noisy[name] - clipped[name]).flatten() for name in before])
    assert float(noise.std()) == pytest.approx(3 * 0.5 / 4, rel=0.1) and abs(float(noise.mean())) < 0.05
    plain = sent_back(net, before, rows, training)
    pruned = sent_back(net, before, rows, training, defence=Defence(prune=0.9))
    one, other = (torch.cat([(before[n] - after[n]).flatten() for n in before]) for after in (plain, pruned))
    gone = (other == 0) & (one != 0)
    assert int((other == 0).sum()) == pytest.approx(0.9 * len(one), abs=1)
    assert float(one[gone].abs().max()) <= float(one[other != 0].abs().min())
    assert torch.allclose(one[other != 0], other[other != 0], atol=1e-6)


def test_settings_that_mean_nothing_are_refused() -> None:
    for wrong in ({"noise": 1.0}, {"clip": -1.0}, {"prune": 1.0}, {"prune": 0.0}, {"clip": math.nan}):
        with pytest.raises(ArgumentError):
            Defence(**wrong)
    net, before, rows = party(4)
    with pytest.raises(ArgumentError, match="stream"):
        sent_back(net, before, rows, LocalTraining(4, 4, (0.1,), augmix=AugMix(3.0)))
    with pytest.raises(ArgumentError, match="epochs"):
        batches(LocalTraining(5, 2, (0.1,) * 4))


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (("--network", "vgg16"), "ArgumentError"),
        (("--network", "convnet"), "ArgumentError"),
        (("--rows", "0"), "ArgumentError"),
        (("--rows", "5000"), "TooFewRowsError"),
        (("--batch", "0"), "ArgumentError"),
        (("--noise", "1"), "ArgumentError"),
        (("--augmix", "11"), "ArgumentError"),
        (("--learning-rate", "1e38", "--epochs", "3"), "NotFiniteError"),
        (("--budget", "1"), "BudgetError"),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_is_left(
    more: Sequence[str], error: str, tmp_path: Path, run: Run
) -> None:
    assert refused(run(*WORDS, *more, "--json"), error)
    assert not (tmp_path / "u").exists()


def test_the_options_are_the_arguments_of_the_function() -> None:
    options, arguments = (inspect.signature(of).parameters for of in (verb, mixveil.update))
    own = options.keys() - {field.name for field in fields(DataOptions)} - {"as_json"}
    assert own <= arguments.keys() and all(options[name].default == arguments[name].default for name in own)


# And attacked


def test_a_party_attacks_its_own_update_before_it_joins(tmp_path: Path, run: Run) -> None:
    assert run(*WORDS, "--network", "linear").code == 0
    attacks = ("--attacks", "gradient-rows,update-labels")
    told = run("audit", "u", "--truth", "digits:train", "--out", "a", *attacks)
    assert told.code == 0, told.err
    whole = json.loads((tmp_path / "a" / "audit.json").read_text())
    assert {item["attack"]: item["status"] for item in whole["attacks"]} == {
        "gradient-rows": "ran", "update-labels": "ran"
    }  # fmt: skip
    figures = {(figure["attack"], figure["metric"]): figure for figure in whole["figures"]}
    error = figures["gradient-rows", "mse"]
    assert error["mean"] < 0.05 * error["know_nothing"] and figures["gradient-rows", "ssim"]["mean"] > 0.8
    assert figures["update-labels", "labels-found"]["mean"] == 1
    verdict = read(whole["verdict"])
    assert verdict[0].code == "updates-not-promised" and holds(verdict, "verdict-images", attack="gradient-rows")
    assert whole["records"]["rows"] == 4 and "in-all" in codes(verdict)
    assert shows(told.out, "updates-not-promised")
    page = (tmp_path / "a" / "report.html").read_text()
    assert page.count("data:image/png") == 2 * 4 and shows(page, "page-released-updates")


def test_noise_keeps_the_attack_off_and_the_report_does_not_call_it_safe(tmp_path: Path, run: Run) -> None:
    told = run(*WORDS, "--network", "linear", "--clip", "0.1", "--noise", "20")
    assert told.code == 0 and shows(told.err, "update-noise-unaccounted")
    assert run("audit", "u", "--truth", "digits:train", "--out", "a", "--attacks", "gradient-rows").code == 0
    whole = json.loads((tmp_path / "a" / "audit.json").read_text())
    verdict, warnings = read(whole["verdict"]), read(whole["warnings"])
    assert {"updates-not-promised", "verdict-updates-little"} <= codes(verdict)
    assert {"no-guarantee-stated", "update-not-recomputed"} <= codes(warnings)


def test_the_truth_is_the_first_rows_of_the_data(tmp_path: Path, run: Run) -> None:
    assert run(*WORDS).code == 0
    audit = ("audit", "u", "--out", "a", "--attacks", "update-labels", "--json", "--truth")
    assert refused(run(*audit, "digits:test"), "WrongTruthError")
    few = open_data("digits:train").part(torch.arange(3))
    np.savez(tmp_path / "few.npz", x=few.take(torch.arange(3)).x.numpy(), y=few.labels.numpy(), classes=few.classes)
    assert refused(run(*audit, "few.npz"), "WrongTruthError")
    assert not (tmp_path / "a").exists()
    assert run(*audit, "digits:train").code == 0
