"""`mixveil split`: train both halves, encode and sweep, as users call them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import mixveil
from mixveil.data.opening import open_data
from mixveil.learn import split_sweep as sweeping
from mixveil.learn.image_training import ImageTraining
from mixveil.learn.split import split_answer
from mixveil.releases.ledger import Ledger
from tests.command import Run, left, refused
from tests.notes import codes, read, shows

QUICK = ("--epochs", 1, "--batch", 32)


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """A hundred digits in `train.npz`, and twenty in `test.npz`."""
    for name, rows in (("train", 100), ("test", 20)):
        data = open_data(f"digits:{name}")
        x = data.take(torch.arange(rows)).x.numpy()
        np.savez(tmp_path / f"{name}.npz", x=x, y=data.labels[:rows].numpy(), classes=np.array(data.classes))
    return tmp_path


def test_train_encode_and_answer(run: Run, digits: Path) -> None:
    told = run("split", "train", "train.npz", "--out", "n", "--test", "test.npz", *QUICK, "--json")
    assert told.code == 0 and not told.err, told.err
    made, client = told.json, mixveil.read_half("n/client")
    assert made["client"] == "n/client" and made["server"] == "n/server" and made["shape"] == [16, 5, 5]
    assert made["digest"] == client.digest and made["tested"]["rows"] == 20 and 0 <= made["tested"]["accuracy"] <= 1
    assert {"halves-warning", "halves-promise-nothing"} == codes(read(made["warnings"]))
    assert 0 < made["tested"]["least"] <= made["tested"]["mean"] <= 2 and made["loss"] > 0
    assert json.loads((digits / "n" / "training.json").read_text())["tested"] == made["tested"]
    sent = run("split", "encode", "test.npz", "--client", "n/client", "--out", "r", "--party", "north", "--json")
    assert sent.code == 0 and not sent.err, sent.err
    assert sent.json["party"] == "north" and sent.json["rows"] == 20 and sent.json["guarantees"] == []
    assert "representations-warning" in codes(read(sent.json["warnings"]))
    assert [entry.id for entry in Ledger().entries()] == [sent.json["id"]]
    answers = split_answer("r", "n/server")
    labels = open_data("digits:test").labels[:20].tolist()
    right = [name == str(label) for name, label in zip(answers.classes, labels, strict=True)]
    assert sum(right) / 20 == made["tested"]["accuracy"]


def test_train_and_encode_in_words(run: Run, digits: Path) -> None:
    told = run("split", "train", "train.npz", "--out", "n", "--test", "test.npz", "--penalty", "unicon", *QUICK)
    assert told.code == 0, told.err
    assert "n/client: for parties; it turns an image into 16×5×5 values" in told.out
    assert "n/server: for the server; it tells 10 classes apart" in told.out
    assert "accuracy on 20 test images: " in told.out and "distances of representations" in told.out
    assert shows(told.err, "halves-promise-nothing") and shows(told.err, "halves-warning")
    untested = run("split", "train", "train.npz", "--out", "m", "--penalty", "none", "--cut", "block1", *QUICK)
    assert untested.code == 0 and "accuracy" not in untested.out and "6×14×14" in untested.out
    sent = run("split", "encode", "test.npz", "--client", "n/client", "--out", "r", "--labelled")
    assert sent.code == 0 and shows(sent.err, "representations-warning") and shows(sent.out, "hardness-not-promised")
    assert run("verify", "r").code == 0


def test_options_of_a_training_reach_it(run: Run, digits: Path) -> None:
    words = ("--penalty", "unicon", "--weight", 2, "--beta", 0.5, "--epochs", 2, "--batch", 16, "--learning-rate", 0.02)
    more = ("--falls", "1, 2", "--momentum", 0, "--weight-decay", 0.001, "--augmented", "--seed", 5)
    assert run("split", "train", "train.npz", "--out", "n", *words, *more, "--cut", "block1").code == 0
    recipe = json.loads((digits / "n" / "training.json").read_text())["recipe"]
    assert recipe == {
        "penalty": "unicon", "weight": 2.0, "beta": 0.5, "epochs": 2, "batch": 16, "learning_rate": 0.02,
        "falls": [1, 2], "momentum": 0.0, "weight_decay": 0.001, "augmented": True, "normalised": True, "seed": 5,
    }  # fmt: skip


def test_a_training_that_is_told_to_end_keeps_its_state_and_goes_on(
    run: Run, digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import signal

    update, steps = ImageTraining.update, list[int]()

    def ended(self: ImageTraining, within: torch.Tensor) -> None:
        update(self, within)
        steps.append(len(within))
        if len(steps) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(ImageTraining, "update", ended)
    words = ("split", "train", "train.npz", "--out", "n", *QUICK)
    told = run(*words, "--json")
    assert refused(told, "TrainingStopped") and left(digits) == [".n.training", "test.npz", "train.npz"]
    again = run(*words)
    assert again.code == 0 and "going on after step 2 of 3" in again.err and steps == [32, 32, 32]
    assert left(digits) == ["n", "test.npz", "train.npz"]


def test_sweep(run: Run, digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("split", "sweep", "train.npz", "--test", "test.npz", "--out", "s", "--weights", "1", "--betas", "0.01,0")
    told = run(*words, "--images", 2, *QUICK, "--json")
    assert told.code == 0 and not told.err, told.err
    points = told.json["points"]
    assert [(point["penalty"], point["weight"], point["beta"]) for point in points] == [
        ("none", 0, 0), ("mixcon", 1, 0.01), ("mixcon", 1, 0)
    ]  # fmt: skip
    assert told.json["chosen"] in (None, points[1], points[2]) and told.json["page"] == "s/sweep.html"
    assert {"halves-warning", "sweep-warning", "sweep-untrained"} == codes(read(told.json["warnings"]))
    for point in points:
        assert set(point["attacks"]) == {"inversion"} and -1 <= point["attacks"]["inversion"]["ssim"] <= 1
    monkeypatch.setattr(sweeping, "in_turns", lambda job, asked, **_: iter(asked))  # nothing is left to train
    text = run(*words, "--images", 2, "--within", 1, *QUICK)
    assert text.code == 0, text.err
    for word in ("no penalty", "mean distance", "SSIM of inversion", "s/sweep.html"):
        assert word in text.out
    assert shows(text.err, "sweep-warning") and shows(text.err, "sweep-untrained", attacks="inversion")
    assert shows(text.err, "halves-warning")
    best = min(points[1:], key=lambda point: point["attacks"]["inversion"]["ssim"])
    marked = f"on these test images: λ = 1, β = {best['beta']:g}." in text.out
    assert marked != ("No setting is marked by what attackers recover: the page says why." in text.out)
    other = run(*words, "--images", 3, *QUICK, "--json")
    assert refused(other, "ArgumentError") and left(digits) == ["s", "test.npz", "train.npz"]


def test_a_sweep_of_vectors_has_no_pictures(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", x=rng.random((40, 10), dtype=np.float32), y=np.arange(40) % 2)
    words = ("split", "sweep", "a.npz", "--test", "b.npz", "--out", "s", "--network", "synthetic", "--weights", 1)
    told = run(*words, "--betas", 0.1, "--images", 2, *QUICK, "--json")
    assert told.code == 0, told.err
    assert told.json["chosen"] is None and told.json["points"][0]["attacks"]["inversion"]["ssim"] is None
    assert told.json["points"][0]["attacks"]["inversion"]["mse"] > 0
    assert "—" in run(*words, "--betas", 0.1, "--images", 2, *QUICK).out


@pytest.mark.parametrize("verb", ["train", "encode", "sweep"])
def test_help_names_the_options(verb: str, run: Run) -> None:
    assert "--out" in run("split", verb, "--help").out
    told = run("split", verb, "--json")
    assert told.code == 2 and told.json["error"]["code"] == "usage"


def test_help_names_the_commands(run: Run) -> None:
    shown = run("split", "--help").out
    assert all(verb in shown for verb in ("train", "encode", "sweep"))
