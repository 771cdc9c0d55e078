"""`mixveil encode --screen`, as its users call it, and the verbs that read what it leaves."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from torch import Tensor

from mixveil.releases.ledger import Ledger
from mixveil.releases.traces import load_trace
from tests.command import Run, left
from tests.notes import shows


@pytest.fixture
def blots(tmp_path: Path) -> Path:
    """80 images of 8×8 in four classes, each with a bright quarter of its own."""
    rng = np.random.default_rng(0)
    x, y = 0.3 * rng.random((80, 1, 8, 8), dtype=np.float32), np.arange(80) % 4
    for i, label in enumerate(y):
        x[i, 0, label // 2 * 4 : label // 2 * 4 + 4, label % 2 * 4 : label % 2 * 4 + 4] += 0.6
    np.savez(tmp_path / "blots.npz", x=x, y=y)
    return tmp_path / "blots.npz"


def test_from_encode_to_train_and_audit(run: Run, blots: Path, tmp_path: Path) -> None:
    made = run(
        "encode", blots, "--tau", 1, "--calibration", "energy", "--screen", "ssim:0.5", "--out", "r", "--json"
    ).json
    said = made["screening"]
    assert said["made"] == 80 and said["screen"] == "ssim:0.5" and 5 < said["dropped"] < 70
    assert made["rows"] == 80 - said["dropped"] and said["share"] == said["dropped"] / 80
    assert made["screened"] == {"metric": "ssim", "threshold": 0.5, "records": 80}
    pairing = said["pairing"]
    assert pairing["both"] + pairing["one"] + pairing["none"] == 80
    assert 2 * pairing["both"] + pairing["one"] == 2 * made["rows"] and 1 <= pairing["opened"] <= pairing["cycles"]
    trace = load_trace(made["id"], made["rows"])
    assert trace is not None and trace.partner.shape == (80, 1)

    checked = run("verify", "r")
    assert checked.code == 0 and shows(checked.out, "screened-by", screen="ssim:0.5", dropped=said["dropped"], made=80)
    assert shows(checked.out, "rows-dropped") and shows(checked.out, "averaged-before-dropping")
    assert run("verify", "r", "--json").json["screened"] == made["screened"]
    assert run("ledger", "--json").json["entries"][0]["rows"] == 80

    assert run("train", "r", "--out", "model").code == 0
    assert run("predict", "model", blots, "--json").json["accuracy"] > 0.9
    audited = run("audit", "r", "--truth", blots, "--out", "audit", "--json")
    assert audited.code == 0 and audited.json["records"]["rows"] == made["rows"]
    (told,) = [told for told in audited.json["verdict"] if told["code"] == "verdict-screened"]
    assert (told["figures"]["dropped"], told["figures"]["records"]) == (said["dropped"], 80)
    assert shows((tmp_path / "audit" / "report.html").read_text(), told["code"], **told["figures"])

    run("encode", blots, "--tau", 1, "--out", "other")
    both = run("audit", "r", "other", "--truth", blots, "--out", "both")
    assert both.code == 2 and "audit it alone" in both.err


def test_the_owner_is_told_what_was_dropped(run: Run, blots: Path) -> None:
    text = run("encode", blots, "--tau", 1, "--calibration", "energy", "--screen", "ssim:0.5", "--out", "r").out
    assert "For your eyes only" in text and "opened into chains" in text and "fewer rows than records" in text
    text = run(
        "encode", blots, "--encoder", "mixup", "--images-per-row", 3, "--screen", "ssim:0.9", "--out", "three"
    ).out
    assert "were dropped." in text and "cycle" not in text  # three in a row are no pairing
    text = run("encode", blots, "--tau", 0.1, "--screen", "ssim:0.99", "--out", "all").out
    assert "0 of 80 rows (0.0%) were dropped" in text and "fewer rows than records" not in text
    seeded = run("encode", blots, "--tau", 1, "--seed", 3, "--screen", "snr:5", "--out", "seeded", "--json").json
    assert seeded["guarantees"] == [] and seeded["screened"]["records"] == 80
    assert run("encode", blots, "--tau", 1, "--out", "plain", "--json").json["screening"] is None


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--mu", 1], 3, "with mu"),
        (["--mu", 1, "--seed", 1], 3, "with mu"),
        (["--tau", 1, "--label-epsilon", 1], 3, "with label_epsilon"),
        (["--tau", 1, "--backbone", "resnet18"], 2, "it is for pixels"),
        (["--tau", 1, "--projection", "p"], 2, "it is for pixels"),
        (["--tau", 1, "--screen", "ssim:2"], 2, "in (-1, 1)"),
        (["--tau", 1, "--screen", "ssim"], 2, "METRIC:THRESHOLD"),
    ],
)
def test_what_is_refused_is_refused_before_anything_is_read(
    run: Run, tmp_path: Path, words: list[object], code: int, said: str
) -> None:
    result = run("encode", "nowhere.npz", "--screen", "ssim:0.5", *words, "--out", "r")
    assert result.code == code and said in result.err.replace("\n", " ") and "nowhere" not in result.err
    assert left(tmp_path) == []


def test_a_screen_that_leaves_nothing_counts(run: Run, blots: Path, tmp_path: Path) -> None:
    result = run("encode", blots, "--tau", 1, "--screen", "ssim:-0.99", "--out", "r")
    assert result.code == 5 and "leaves 0" in result.err and "the try counts in your ledger" in result.err
    assert [entry.rows for entry in Ledger().entries()] == [80]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "state") == ["blots.npz"]


def test_lpips_is_loaded_with_vgg_from_the_data_folder(
    run: Run, blots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    class Standin(ModuleType):
        @staticmethod
        def load(net: str, folder: Path | None) -> object:
            asked.append((net, folder))
            return lambda truth, guess: distance(truth, guess)

    def distance(truth: Tensor, guess: Tensor) -> Tensor:
        assert truth.shape[1:] == guess.shape[1:] == (1, 8, 8)
        return (truth - guess).abs().mean((1, 2, 3))

    monkeypatch.setitem(sys.modules, "mixveil.features.lpips", Standin("mixveil.features.lpips"))
    result = run("encode", blots, "--tau", 1, "--screen", "lpips:0.2", "--data-dir", tmp_path, "--out", "r", "--json")
    assert result.code == 0, result.err
    assert asked == [("vgg", tmp_path)] and json.loads(result.out)["screened"]["metric"] == "lpips"
    asked.clear()
    assert run("encode", blots, "--tau", 1, "--screen", "ssim:0.5", "--out", "s").code == 0 and not asked
