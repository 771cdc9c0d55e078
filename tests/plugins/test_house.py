"""The proof that the house is open: an encoder with random signs, an attack on it, a method of learning together and a
kind of payload, one file each, registered without a change to the package, walk through every verb."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import mixveil
from mixveil.attacks.catalogue import ATTACKS
from mixveil.encoders.catalogue import ENCODERS
from mixveil.federated.methods.catalogue import METHODS
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.catalogue import KINDS
from mixveil.releases.ledger import Ledger
from mixveil.releases.writing import write, write_tensors
from tests.command import Run
from tests.made import images
from tests.plugins.toy_attack import AbsoluteValues
from tests.plugins.toy_encoder import SignMask
from tests.plugins.toy_kind import Histogram
from tests.plugins.toy_method import NearestMean


@pytest.fixture(autouse=True)
def moved_in() -> Iterator[None]:
    with (
        ENCODERS.including(SignMask),
        ATTACKS.including(AbsoluteValues),
        METHODS.including(NearestMean),
        KINDS.including(Histogram),
    ):
        yield


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    """120 small images of three classes that are easy to tell apart."""
    rng, y = np.random.default_rng(0), np.arange(120) % 3
    x = np.clip(0.2 + 0.3 * y[:, None, None, None] + 0.2 * rng.standard_normal((120, 1, 8, 8)), 0, 1)
    np.savez(tmp_path / "blobs.npz", x=x.astype(np.float32), y=y)
    return tmp_path / "blobs.npz"


def test_every_verb_takes_the_toy_encoder(run: Run, blobs: Path) -> None:
    made = run("encode", blobs, "--encoder", SignMask.name, "--out", "r", "--json").json
    assert not made["certified"] and made["encoder"] == SignMask.name and "no-noise" in made["not_promised"]
    assert run("verify", "r", "--json").json["verified"]
    audit = run("audit", "r", "--truth", blobs, "--out", "a", "--json")
    assert audit.code == 0, audit.err
    attacks = {item["attack"]: item for item in audit.json["attacks"]}
    assert attacks[AbsoluteValues.name]["status"] == "ran"
    assert {item["status"] for item in attacks.values()} <= {"ran", "skipped"}  # none is called broken, and none lies
    found = {(row["attack"], row["metric"]): row for row in audit.json["figures"]}
    assert found[AbsoluteValues.name, "row-identified"]["mean"] > 0.1  # guessing: 1/120
    assert (Path("a") / "report.html").exists()
    refused = run("train", "r", "--out", "closed", "--json")
    assert refused.code == 2 and refused.json["error"]["code"] == "argument"  # it needs weighed sums, and says so
    trained = run("train", "r", "--head", "mlp", "--epochs", 3, "--out", "m", "--json")
    assert trained.code == 0, trained.err
    assert run("predict", "m", blobs, "--json").code == 0
    assert [entry.encoder for entry in Ledger().entries()] == [SignMask.name]


def test_a_changed_row_is_noticed(run: Run, blobs: Path, tmp_path: Path) -> None:
    """The audit is honest because the encoder says what rows should be: other data are refused."""
    assert run("encode", blobs, "--encoder", SignMask.name, "--out", "r").code == 0
    with np.load(blobs) as whole:
        np.savez(tmp_path / "other.npz", x=whole["x"][::-1], y=whole["y"])
    refused = run("audit", "r", "--truth", tmp_path / "other.npz", "--out", "a", "--json")
    assert refused.json["error"]["code"] == "wrong-truth" and refused.code == 4


def test_a_simulation_runs_the_toy_method(run: Run, blobs: Path) -> None:
    found = run("simulate", blobs, "--parties", 3, "--methods", f"{NearestMean.name},local", "--epochs", 2, "--json")
    assert found.code == 0, found.err
    rows = {row["method"]: row for row in found.json["rows"]}
    assert rows[NearestMean.name]["accuracy"] > 0.8
    assert rows[NearestMean.name]["guarantee"]["code"] == "means-in-the-clear"


def test_the_toy_payload_leaves_as_any_other(run: Run, tmp_path: Path) -> None:
    data, settings = images(30), Histogram(3, 2.0)
    envelope = Envelope(settings, "p", data.classes, tuple(settings.claims().values()))
    counts = torch.tensor([10.0, 11.5, 8.25])
    write(
        tmp_path / "h",
        data,
        envelope,
        lambda folder: ([write_tensors(folder / settings.file_names(1)[0], {"counts": counts})], None),
        space=12,
    )
    verified = run("verify", tmp_path / "h", "--json").json
    assert verified["kind"] == Histogram.name and verified["certified"]
    assert torch.equal(mixveil.read_release(tmp_path / "h").payload, counts)
    assert Ledger().total().mu == pytest.approx(2**-0.5)
