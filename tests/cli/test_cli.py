"""The command line, as its users call it: good input, and every kind of bad input."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixveil.cli import _common
from mixveil.core.watching import Moment
from mixveil.core.wording.notes import Note, note
from mixveil.releases.ledger import Ledger
from mixveil.theory import gdp
from tests.command import Run, flip, left, refused
from tests.made import tiny_weights
from tests.notes import holds, read, shows


def archive(path: Path, **arrays: Any) -> Path:
    defaults: dict[str, Any] = {"x": np.full((6, 1, 2, 2), 0.5, np.float32), "y": np.arange(6) % 2}
    np.savez(path, **{**defaults, **arrays})
    return path


def test_encode_then_verify(run: Run, small: Path, tmp_path: Path) -> None:
    encoded = run("encode", small, "--mu", 1, "--out", "release", "--party", "north", "--json")
    assert encoded.code == 0
    assert encoded.json["certified"] is True and encoded.json["party"] == "north" and encoded.json["rows"] == 30
    assert encoded.json["guarantees"][0]["nominal"] == 1.0
    assert Path(encoded.json["trace"]).exists()
    verified = run("verify", "release", "--json")
    assert verified.code == 0 and verified.json["verified"] is True and verified.json["id"] == encoded.json["id"]
    text = run("verify", "release").out
    assert "verified" in text and shows(text, "labels-shown") and shows(text, "gdp-record-of-label", mu=1.0)
    assert "follows from its settings" in text


@pytest.mark.parametrize("calibration", ["theorem", "spectral", "energy"])
def test_encode_for_tau(run: Run, small: Path, calibration: str) -> None:
    result = run("encode", small, "--tau", 0.1, "--calibration", calibration, "--out", "r", "--json")
    assert result.code == 0 and result.json["certified"] is False
    assert (result.json["guarantees"][0]["realised"] > 0.101) == (calibration == "energy")
    text = run("verify", "r").out
    assert "rests on the party's word" in text and "promised: directional" not in text


def test_mixup_of_more_images(run: Run, small: Path) -> None:
    assert run("encode", small, "--encoder", "mixup", "--images-per-row", 4, "--out", "r").code == 0
    assert run("verify", "r").code == 0


@pytest.mark.parametrize("encoder", ["identity", "mixup"])
def test_encode_without_a_promise(run: Run, small: Path, encoder: str) -> None:
    result = run("encode", small, "--encoder", encoder, "--out", "r", "--json")
    assert result.code == 0 and result.json["guarantees"] == []
    assert shows(run("verify", "r").out, "no-noise")


def test_a_seed_makes_the_same_release_and_marks_it(run: Run, small: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        result = run("encode", small, "--mu", 1, "--seed", 7, "--out", name, "--json").json
        assert result["reproducible"] is True and result["guarantees"] == []
    shards = [(tmp_path / name / "shard-00000.safetensors").read_bytes() for name in ("a", "b")]
    assert shards[0] == shards[1]
    for name in ("c", "d"):
        run("encode", small, "--mu", 1, "--out", name)
    shards = [(tmp_path / name / "shard-00000.safetensors").read_bytes() for name in ("c", "d")]
    assert shards[0] != shards[1]


def test_public_data_and_a_given_clip_norm(run: Run, small: Path) -> None:
    np.savez("other.npz", x=np.random.default_rng(1).random((50, 1, 4, 4), dtype=np.float32), y=np.arange(50) % 3)
    one = run("encode", small, "--mu", 1, "--public", "other.npz", "--out", "a", "--json").json
    assert one["guarantees"][0]["assumes"]["clip"] == "public" and one["certified"] is True
    assert run("encode", small, "--mu", 1, "--clip", 0.7, "--out", "b", "--json").json["certified"] is True


def test_calibrate_prints_every_figure_for_every_calibration(run: Run, small: Path) -> None:
    result = run("calibrate", small, "--mu", 1, "--tau", 0.1, "--json")
    rows = result.json["calibrations"]
    assert [row["calibration"] for row in rows] == ["theorem", "spectral", "energy", "certified"]
    keys = {"radius", "sigma", "nominal_tau", "realised_snr", "mu", "epsilon", "delta", "member_tpr", "minimax"}
    keys |= {"bayes_mse", "facts"}
    for row in rows:
        assert all(row[key] is not None for key in keys)
    assert rows[3]["facts"]["clip"]["origin"] == "range" and "lambda_max" not in rows[3]["facts"]
    assert rows[0]["facts"]["lambda_max"]["origin"] == "private"
    text = run("calibrate", small)
    for words in ("realised sup SNR", "Bayes error", "minimax", "member TPR", "certified", "V and λ from", "private"):
        assert words in text.out
    assert shows(text.err, "labels-not-protected")


def test_mu_is_chosen_before_anything_is_paid(run: Run, small: Path, own_state_folder: Path) -> None:
    told = run("calibrate", small, "--mu", "0.5,1,2", "--json").json
    assert [item["mu"] for item in told["choices"]] == [0.5, 1.0, 2.0] == [item["mu"] for item in told["calibrations"]]
    assert told["choices"][1]["member_tpr"] == pytest.approx(0.0924, abs=1e-4)
    assert told["choices"][1]["together"]["4"] == 2.0 and told["choices"][1]["learnt"] == "next-to-nothing"
    text = run("calibrate", small, "--mu", "0.5,1,2")
    for mu, item in zip((0.5, 1.0, 2.0), told["choices"], strict=True):
        figures = {"found": 100 * item["member_tpr"], "epsilon": item["epsilon"], "four": item["together"]["4"]}
        assert shows(text.out, "choice-of-mu", mu=mu, **figures, members=note("members"), alarms=1.0, delta=1e-5)
    assert told["choices"][1]["epsilon"] == pytest.approx(4.377, abs=1e-3) and "Bayes" not in text.out
    last = read(told["warnings"])[-1]
    assert shows(text.err, last.code, **last.figures) and last.figures["mu"] == 2
    assert last.figures["what"].code == "classes-drowned" and last.figures["what"].figures["much"] == note("little")
    assert not own_state_folder.exists()
    assert run("calibrate", small, "--mu", "0.5,much", "--json").json["error"]["type"] == "ArgumentError"


def test_pixels_that_teach_nothing_are_warned_of_before_they_are_paid_for(
    run: Run, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning is on the screen when the release is entered."""
    done: list[str] = []
    warn, enter = _common.warn, Ledger.enter

    def warned(told: Note | str) -> None:
        done.append(told.code if isinstance(told, Note) else told)
        warn(told)

    def entered(self: Ledger, *words: Any, **named: Any) -> Any:
        done.append("entered")
        return enter(self, *words, **named)

    monkeypatch.setattr(_common, "warn", warned)
    monkeypatch.setattr(Ledger, "enter", entered)
    assert run("encode", small, "--mu", 1, "--out", "r").code == 0
    assert done == ["classes-drowned", "entered"]


def test_audit_and_report(run: Run, tmp_path: Path) -> None:
    run("encode", "digits:test", "--mu", 1, "--out", "r")
    words = ["audit", "r", "--truth", "digits:test", "--public", "digits:train"]
    told = run(*words, "--out", "a", "--json").json
    assert told["verdict"] and told["warnings"][0] == {"code": "audit-labels-shown"}
    skipped = [item["attack"] for item in told["attacks"] if item["status"] != "ran"]
    for_covers = {"braverman", "braverman-whitened", "demask-search", "public-search", "search-learned"}
    for_networks = {"average-known", "average-similar", "carlini", "decoder", "demask", "luo", "unet", "unet-strong"}
    assert {*skipped} == for_covers | for_networks | {"chen", "grid", "kolmogorov-smirnov", "unit-membership"}
    assert skipped == sorted(skipped)
    assert Path(told["report"]).exists()
    (tmp_path / "a" / "report.html").unlink()
    assert run("report", "a", "--json").json["report"] == "a/report.html"
    assert told["verdict"][1] == {"code": "for-knowing"}  # it answers whether to send, and is not to be missed
    assert shows((tmp_path / "a" / "report.html").read_text(), "for-knowing")
    shown = run("audit", "r", "--truth", "digits:test", "--out", "b", "--attacks", "lmmse,labels")
    assert shows(shown.out, "for-knowing")
    assert shows(shown.out.splitlines()[0], "answer-too-weak")  # and not a table
    run("encode", "digits:test", "--tau", 0.1, "--out", "loose")
    # To try μ on private records is to choose by them.
    for more, said in ((list[str](), False), (["--sweep", "mu=1,2"], True)):
        job = ("audit", "loose", "--truth", "digits:test", "--attacks", "prior", "--out", f"loose-{said}")
        told = run(*job, *more, "--json").json
        assert ({"code": "for-choosing"} in told["verdict"]) == said
        assert {"code": "for-knowing"} not in told["verdict"]  # there is no certificate to void
    assert shown.code == 0 and "lmmse" in shown.out and "report.html" in shown.out
    assert shows(shown.err, "audit-labels-shown")


def test_private_images_among_the_public_ones_take_no_place_of_a_stranger(run: Run, tmp_path: Path) -> None:
    """Of 150 that may be strangers 40 are private, and 110 rows are attacked, where membership needs 100."""
    x = np.random.default_rng(0).random((410, 1, 4, 4), dtype=np.float32)
    private, public = x[:110], x[110:].copy()
    public[1:80:2] = private[:40]  # the odd rows may be strangers
    archive(tmp_path / "private.npz", x=private, y=np.arange(110) % 2)
    archive(tmp_path / "public.npz", x=public, y=np.arange(300) % 2)
    run("encode", "private.npz", "--mu", 1, "--out", "r")
    words = ["--truth", "private.npz", "--public", "public.npz", "--attacks", "membership", "--out", "a", "--json"]
    told = run("audit", "r", *words).json
    assert holds(read(told["warnings"]), "strangers-among-private", images=40)
    assert [attack["status"] for attack in told["attacks"]] == ["ran"]


def test_bad_input_to_an_audit(run: Run, small: Path, tmp_path: Path) -> None:
    run("encode", small, "--mu", 1, "--out", "r")
    other = archive(tmp_path / "other.npz")
    tests: list[tuple[list[object], str]] = [
        (["--truth", other], "WrongTruthError"),
        (["--truth", small, "--attacks", "magic"], "ArgumentError"),
        (["--truth", small, "--public", other], "ArgumentError"),
        (["--truth", "nothing"], "DataNotFoundError"),
    ]
    for words, error in tests:
        result = run("audit", "r", *words, "--out", "a", "--json")
        assert refused(result, error)
        assert not (tmp_path / "a").exists()
    flip(tmp_path / "r" / "shard-00000.safetensors")
    assert run("audit", "r", "--truth", small, "--out", "a", "--json").json["error"]["type"] == "HashError"
    assert run("report", "r", "--json").json["error"]["type"] == "DataFormatError"


def test_a_manifest_that_was_changed_is_not_audited(run: Run, small: Path, tmp_path: Path) -> None:
    run("encode", small, "--mu", 1, "--out", "r")
    manifest = tmp_path / "r" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"party": "party"', '"party": "other"'))
    assert run("verify", "r").code == 0  # a reader cannot tell
    result = run("audit", "r", "--truth", small, "--out", "a", "--json")
    assert refused(result, "FalseClaimError")


def test_without_the_trace_the_audit_says_what_it_skips(run: Run, small: Path) -> None:
    made = run("encode", small, "--mu", 1, "--out", "r", "--json").json
    Path(made["trace"]).unlink()
    told = run("audit", "r", "--truth", small, "--out", "a", "--json").json
    assert any(item["attack"] == "lmmse" and item["status"] == "skipped" for item in told["attacks"])


def test_of_two_releases_the_one_whose_trace_is_lost_is_left_out_and_that_is_said(run: Run, small: Path) -> None:
    run("encode", small, "--mu", 1, "--out", "kept")
    lost = run("encode", small, "--mu", 1, "--out", "lost", "--json").json
    Path(lost["trace"]).unlink()
    result = run("audit", "kept", "lost", "--truth", small, "--out", "a", "--json")
    assert len(result.json["releases"]) == 1
    assert any(item["attack"] == "lmmse" and item["status"] == "ran" for item in result.json["attacks"])
    assert "release-left-out" in [told["code"] for told in result.json["warnings"]]


def test_data_list(run: Run, tmp_path: Path) -> None:
    sets = {row["name"] + ":" + row["split"]: row for row in run("data", "list", "--json").json["sets"]}
    assert sets["digits:all"]["rows"] == 1797
    assert sets["mnist:train"]["found"] is False and sets["mnist:train"]["error"]["code"] == "data-not-found"
    assert "digits:all" in run("data", "list").out


def test_data_list_shows_the_networks_at_hand(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_weights(tmp_path / "data", monkeypatch)
    networks = {row["name"]: row for row in run("data", "list", "--data-dir", folder, "--json").json["networks"]}
    assert networks["tiny"]["found"] and networks["tiny"]["path"] == str(folder / "weights" / "tiny.pth")
    assert not networks["resnet34"]["found"] and networks["resnet34"]["path"] is None
    assert "'mixveil[backbones]'" in networks["efficientnet_lite2"]["get"]
    shown = "".join(run("data", "list", "--data-dir", folder).out.replace("│", "").split())
    assert "tiny.pth" in shown and "resnet34-b627a593.pth" in shown


def test_statistics_of_persons_name_units_and_list_all_classes(run: Run) -> None:
    """Rows of a table: its labels are not asked which classes there are."""
    run("prepare", "digits:test", "--backbone", "none", "--directions", 5, "--out", "p")
    data = np.load(split_digits())
    units = np.array([f"patient {i // 4}" for i in range(60)])
    np.savez("own.npz", x=data["x"][:60], y=data["y"][:60], units=units)
    job = ("statistics", "own.npz", "--projection", "p", "--mu", 1, "--unit", "units")
    undeclared = run(*job, "--out", "s", "--json")
    assert refused(undeclared, "ArgumentError") and "--classes" in undeclared.json["error"]["message"]
    assert run(*job, "--out", "s", "--label-epsilon", 1).code == 2  # no such option: labels are covered
    made = run(*job, "--out", "s", "--classes", "0,1,2,3,4,5,6,7,8,9,ten")
    assert made.code == 0 and shows(made.out, "over-unit", number=15) and shows(made.out, "unit-is-clipped"), made.err
    assert str(1 << 40) not in made.out and not re.search(r"\b60\b", made.out)  # an id may hold these digits
    trained = run("train", "s", "--projection", "p", "--out", "m")
    assert "15 records or units" in trained.out and str(1 << 40) not in Path("m/card.json").read_text()


def test_the_two_steps_from_images_to_predictions(run: Run) -> None:
    job = ("--mu", 2, "--parties", 2, "--rows", 1200, "--num-classes", 10)
    told = run("prepare", "digits:test", "--backbone", "none", *job, "--out", "p", "--json").json
    assert 9 < told["directions"] <= 64 and told["origin"] == "public"
    data = np.load(split_digits())
    for i in range(2):
        np.savez(f"part{i}.npz", x=data["x"][i::2], y=data["y"][i::2], classes=data["classes"])
        made = run(
            "statistics",
            f"part{i}.npz",
            "--projection",
            "p",
            "--mu",
            1.4,
            "--party",
            f"h{i}",
            "--out",
            f"s{i}",
            "--json",
        )
        assert made.json["certified"] and run("verify", f"s{i}", "--json").json["verified"]
    said = made.json
    assert said["per"] == "record" and said["units"] == 600 and said["spent"]["labels_covered"]
    assert not said["spent"]["labels_shown"] and said["label_epsilon"] is None and "counts" not in said
    assert shows(run("verify", "s0").out, "over-record", number=600) and shows(
        run("verify", "s0").out, "labels-covered-counts", off=2 / 1.4 * (1 - 1 / 10) ** 0.5
    )
    assert run("directions", "s0", "s1", "--projection", "p", "--out", "p2", "--json").json["directions"] == 9
    trained = run("train", "s0", "s1", "--projection", "p", "--out", "of-sums")
    assert shows(trained.out, "model-labels-covered") and "1,200 records of 2 parties, on pixels" in trained.out
    for i in range(2):
        wanted = ("--projection", "p2", "--mu", 1.4, "--party", f"h{i}", "--out", f"r{i}")
        made = run("encode", f"part{i}.npz", *wanted, "--json")
        assert made.json["spent"]["total_mu"] == pytest.approx(2**0.5 * 1.4) and made.json["shape"] == [9]
    told = run("train", "r0", "r1", "--projection", "p2", "--test", "part0.npz", "--out", "m", "--json").json
    assert told["accuracy"]["accuracy"] > 0.8 and told["mu"] == {
        "h0": pytest.approx(1.98, abs=0.01),
        "h1": pytest.approx(1.98, abs=0.01),
    }
    named = run("predict", "m", "part1.npz", "--json").json
    assert named["accuracy"] > 0.8 and len(named["classes"]) == 600
    assert sum(item["rows"] for item in named["confused"]) == 600
    right = sum(item["rows"] for item in named["confused"] if item["class"] == item["named"])
    assert right / 600 == pytest.approx(named["accuracy"])
    shown = run("predict", "m", "part1.npz")
    assert "accuracy" in shown.err and "named as" in shown.err and len(shown.out.splitlines()) == 600
    written = run("predict", "m", "part1.npz", "--out", "named.csv")
    assert written.code == 0 and len(written.out.splitlines()) == 1
    lines = Path("named.csv").read_text().splitlines()
    assert lines[0] == "image,class,label" and len(lines) == 601 and lines[1].startswith(f"0,{named['classes'][0]},")
    assert run("predict", "m", "part1.npz", "--out", "named.csv", "--json").json["error"]["type"] == "OutputExistsError"
    from PIL import Image

    Path("new").mkdir()
    for i in range(3):
        Image.fromarray((data["x"][i, 0] * 255).round().astype(np.uint8)).save(f"new/{i}.png")
    loose = run("predict", "m", "new", "--grey", "--json").json
    assert loose["names"] == ["0.png", "1.png", "2.png"] and loose["accuracy"] is None and len(loose["classes"]) == 3
    run("predict", "m", "new", "--grey", "--out", "new.csv")
    assert Path("new.csv").read_text().splitlines()[0] == "image,class" and loose["confused"] == []
    assert run("predict", "m", "new", "--json").json["error"]["type"] == "MismatchError"  # in colour: other features
    audited = run(
        "audit", "r0", "--truth", "part0.npz", "--projection", "p2", "--public", "part1.npz", "--out", "a", "--json"
    )
    codes = {told["code"] for told in audited.json["verdict"]}
    assert codes & {"verdict-values", "verdict-values-too-weak"} and "verdict-images" not in codes  # of features
    assert audited.code == 0 and any(
        item["attack"] == "lmmse" and item["status"] == "ran" for item in audited.json["attacks"]
    )
    warned = run("statistics", "part0.npz", "--projection", "p", "--mu", 5, "--party", "h0", "--out", "loud")
    assert warned.code == 0 and shows(warned.err, "meaningless-mu", mu=5.0)
    seeded = run("statistics", "part0.npz", "--projection", "p", "--mu", 1, "--seed", 1, "--party", "h0", "--out", "s2")
    assert seeded.code == 0 and run("directions", "s2", "--projection", "p", "--out", "p3").code == 0
    again = ("--projection", "p3", "--mu", 1, "--party", "h0", "--out", "r3", "--json")
    unpromised = run("encode", "part0.npz", *again).json
    assert unpromised["spent"]["total_mu"] is None and len(unpromised["spent"]["without_promise"]) == 1
    sown = ("--projection", "p2", "--mu", 1, "--party", "h0", "--seed", 3)
    for verb, folder in (("encode", "r4"), ("statistics", "s4")):
        told = run(verb, "part0.npz", *sown, "--out", folder, "--json").json
        assert told["spent"]["total_mu"] is None and told["id"] in told["spent"]["without_promise"]
    private = run("prepare", "part0.npz", "--backbone", "none", "--private", "--out", "pp")
    assert private.code == 0 and shows(private.err, "private-projection")
    assert [(e.kind, e.cost, bool(e.finished)) for e in Ledger().entries()][-1] == ("projection", None, True)
    np.savez("colour.npz", x=np.zeros((20, 3, 8, 8), np.float32), y=np.arange(20) % 10, classes=data["classes"])
    nothing = ("--mu", 0, "--parties", 0, "--rows", 0, "--num-classes", 0)
    bad: list[tuple[tuple[object, ...], str]] = [
        (("train", "r0", "--out", "x"), "MismatchError"),
        (("train", "r0", "--projection", "p", "--out", "x"), "MismatchError"),
        (("directions", "s0", "--projection", "p2", "--out", "x"), "MismatchError"),
        (("audit", "r0", "--truth", "part0.npz", "--out", "x"), "MismatchError"),
        (("encode", "part0.npz", "--projection", "p2", "--mu", 1, "--party", "q", "--out", "x"), "ArgumentError"),
        (("statistics", "colour.npz", "--projection", "p", "--mu", 1, "--out", "x"), "ProjectionError"),
        (("train", "r0", "--projection", "p2", "--test", "colour.npz", "--out", "x"), "MismatchError"),
        (("prepare", "digits:test", "--backbone", "none", *nothing, "--out", "x"), "ArgumentError"),
        (("prepare", "digits:test", "--backbone", "magic", "--out", "x"), "ArgumentError"),
        (("prepare", "digits:test", "--backbone", "none", "--mu", 1, "--out", "x"), "ArgumentError"),
        (("prepare", "digits:test", "--backbone", "resnet18", "--out", "x"), "WeightsError"),
        (("predict", "r0", "digits:test"), "DataFormatError"),
        (("results", "m/card.json"), "DataFormatError"),
    ]
    for words, error in bad:
        result = run(*words, "--json")
        assert refused(result, error), words
        assert not Path("x").exists()
    classifier = ("--projection", "p2", "--head", "mlp", "--epochs", 10, "--test", "part1.npz")
    told = run("train", "r0", "r1", *classifier, "--out", "mlp", "--json").json
    assert told["accuracy"]["accuracy"] > 0.2 and told["how"]["head"] == "mlp" and told["mu"]["h0"] > 1.97
    assert run("predict", "mlp", "part1.npz", "--json").json["accuracy"] == told["accuracy"]["accuracy"]
    assert not Path(".mlp.training").exists()
    for words, said in (
        (("r0", "--epochs", 3), "epochs is for head = mlp"),
        (("r0", "--learning-rate", 3), "learning_rate is for head = mlp"),
        (("r0", "--head", "mlp", "--batch", 1), "batch must be"),
        (("s0", "--projection", "p", "--head", "mlp"), "not on statistics"),
    ):
        wrong = run("train", *words, "--out", "x", *(() if "p" in words else ("--projection", "p2")))
        assert wrong.code == 2 and said in wrong.err, wrong.err


def test_told_to_end_a_training_keeps_its_state_and_goes_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM and Ctrl-C are heard after the step that is being done."""
    from mixveil.learn.fit import _Training

    assert run("encode", "digits:test", "--encoder", "identity", "--out", "r").code == 0
    job = ("train", "r", "--head", "mlp", "--epochs", 3, "--out", "m")
    step, before = _Training._step, signal.getsignal(signal.SIGINT)  # ignored, where tests run in the background
    for number, after in ((signal.SIGTERM, 2), (signal.SIGINT, 6)):

        def told(self: Any, model: Any, place: int, batch: Any, number: int = number, after: int = after) -> Any:
            if place + 1 == after:
                os.kill(os.getpid(), number)
            return step(self, model, place, batch)

        monkeypatch.setattr(_Training, "_step", told)
        stopped = run(*job)
        assert stopped.code == 130 and f"stopped after step {after} of 15" in stopped.err, stopped.err
        assert "give the same command to go on" in " ".join(stopped.err.split())
        assert signal.getsignal(signal.SIGINT) == before
        assert Path(".m.training").exists() and not Path("m").exists()
    monkeypatch.setattr(_Training, "_step", step)
    other = run("train", "r", "--head", "mlp", "--epochs", 4, "--out", "m")
    assert other.code == 5 and "epochs" in other.err
    done = run(*job)
    assert done.code == 0 and "going on after step 6 of 15" in done.err and not Path(".m.training").exists()
    assert run("train", "r", "--head", "mlp", "--epochs", 3, "--out", "whole").code == 0
    assert Path("m/model.safetensors").read_bytes() == Path("whole/model.safetensors").read_bytes()


def split_digits() -> Path:
    import torch

    from mixveil.data.opening import open_data

    digits = open_data("digits:train")
    x = digits.take(torch.arange(len(digits))).x.numpy()
    np.savez("digits.npz", x=x, y=digits.labels.numpy(), classes=np.array(digits.classes))
    return Path("digits.npz")


def test_demo(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXVEIL_STATE", os.environ["MIXVEIL_STATE"])  # restored afterwards
    told = run("demo", "--out", "d", "--json").json
    assert told["accuracy"] > 0.75 and set(told["sweep"]) == {"8", "4", "2", "1"}
    for path in ("model/card.json", "releases/party-a/manifest.json", "audit/report.html", "accuracy.svg"):
        assert (tmp_path / "d" / path).exists()
    assert run("demo", "--out", "d").code == 2
    assert run("demo", "--data", "cifar10", "--out", "f", "--json").json["error"]["type"] == "DataNotFoundError"
    assert not (tmp_path / "f").exists()


NEW = ("prepare", "statistics", "directions", "train", "predict", "results")


def test_help_and_version(run: Run) -> None:
    for words in (
        [],
        ["data"],
        ["calibrate"],
        ["encode"],
        ["verify"],
        ["audit"],
        ["report"],
        ["demo"],
        *[[verb] for verb in NEW],
    ):
        result = run(*words, "--help")
        assert result.code == 0 and "Usage" in result.out
    assert run("--version").out.startswith("mixveil ")


def test_a_verb_that_is_nearly_one_is_told_which(run: Run) -> None:
    told = run("encod", "digits")
    assert told.code == 2 and told.err.count("'encode'") == 1
    assert "Did you mean" not in run("zzzz").err


def test_of_many_classes_the_most_frequent_mistakes_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from mixveil.cli.train import _show_confused
    from mixveil.learn.train import Predicted

    labels = tuple(f"c{i % 13}" for i in range(39))
    classes = tuple("c1" if label == "c7" else label for label in labels)
    _show_confused(Predicted(tuple(map(str, range(39))), classes, labels, 36 / 39, False, ()))
    assert capsys.readouterr().err == "  3 of c7 named c1\n"


def test_errors_are_said_without_the_names_of_classes(run: Run) -> None:
    assert "nothing" in run("verify", "nothing").err and "Error)" not in run("verify", "nothing").err


def test_a_job_in_a_pipe_says_how_far_it_is_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with _common.progress("encoding", 1_000) as step, _common.observing() as watch:
        for seconds, said in ((29, ""), (30, "encoding: 400 of 1,000\n"), (31, ""), (61, "encoding: 800 of 1,000\n")):
            now[0] = seconds
            step(200)
            assert capsys.readouterr().err == said
        watch(Moment("lmmse", 0.25))
        watch(Moment("membership", None))
    with _common.attacking() as tell:
        tell("pairs")
        now[0] = 92
        tell("[unmixing]")
    assert capsys.readouterr().err == "lmmse: 25% of all is done\nattacking: [unmixing]\n"


def test_the_command_line_imports_nothing_slow_before_a_verb_runs() -> None:
    code = "import sys, mixveil.cli.main; print(sorted({'torch', 'numpy', 'sklearn', 'PIL'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_progress_bar_in_a_pipe(small: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mixveil.cli.main",
        "encode",
        str(small),
        "--mu",
        "1",
        "--out",
        str(tmp_path / "r"),
    ]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["rows"] == 30 and done.stderr == ""


# Bad input: a typed error that names it, exit code 2, and nothing left on disk

BAD_DATA: dict[str, tuple[dict[str, Any], str]] = {
    "one row": ({"x": np.full((1, 2), 0.5), "y": np.array([0])}, "TooFewRowsError"),
    "no rows": ({"x": np.zeros((0, 2)), "y": np.zeros(0, int)}, "TooFewRowsError"),
    "a NaN pixel": ({"x": np.array([[0.5, np.nan]] * 6)}, "PixelError"),
    "a pixel out of range": ({"x": np.array([[0.5, 7.0]] * 6)}, "PixelError"),
    "a label out of range": ({"classes": np.array(["only"])}, "LabelError"),
    "a negative label": ({"y": np.array([0, 1, -3, 0, 1, 0])}, "LabelError"),
}


@pytest.mark.parametrize("name", BAD_DATA)
@pytest.mark.parametrize("ask", [("--mu", 1), ("--tau", 0.1)], ids=["mu", "tau"])
def test_bad_data(run: Run, tmp_path: Path, own_state_folder: Path, name: str, ask: tuple[str, float]) -> None:
    arrays, error = BAD_DATA[name]
    data = archive(tmp_path / "bad.npz", **arrays)
    result = run("encode", data, *ask, "--out", "r", "--json")
    assert refused(result, error) and result.json["error"]["message"] in result.err
    assert left(tmp_path) == ["bad.npz"]
    calibrated = run("calibrate", data, "--json")
    assert refused(calibrated, error)


BAD_WORDS: dict[str, tuple[list[object], str, str]] = {
    "tau = 0": (["--tau", 0], "ArgumentError", "tau must be in (0, 1], got 0"),
    "tau > 1": (["--tau", 3], "ArgumentError", "tau must be in (0, 1], got 3"),
    "mu < 0": (["--mu", -1], "ArgumentError", "mu must be positive and finite, got -1"),
    "mu = 0": (["--mu", 0], "ArgumentError", "mu must be positive"),
    "mu = nan": (["--mu", "nan"], "ArgumentError", "mu must be positive"),
    "alpha < 0.5": (["--mu", 1, "--alpha", 0.4], "ArgumentError", "alpha must be in [0.5, 1), got 0.4"),
    "alpha = 1": (["--mu", 1, "--alpha", 1], "ArgumentError", "alpha must be in [0.5, 1), got 1"),
    "clip = 0": (["--mu", 1, "--clip", 0], "ArgumentError", "clip must be positive"),
    "neither mu nor tau": ([], "ArgumentError", "mu"),
    "both mu and tau": (["--mu", 1, "--tau", 0.1], "ArgumentError", "mu = 1"),
    "mu of sphere noise": (["--mu", 1, "--noise", "sphere"], "ArgumentError", "sphere"),
    "mu of mixup": (["--mu", 1, "--encoder", "mixup"], "ArgumentError", "adds no noise"),
    "an unknown encoder": (["--mu", 1, "--encoder", "magic"], "ArgumentError", "'magic'"),
    "a negative seed": (["--mu", 1, "--seed", -1], "ArgumentError", "seed"),
    "a party with a line break": (["--mu", 1, "--party", "a\nb"], "ArgumentError", "party"),
    "an option of another encoder": (["--encoder", "mixup", "--alpha", 0.6], "ArgumentError", "alpha"),
    "a clip norm for mixup": (["--encoder", "mixup", "--clip", 1], "ArgumentError", "adds none"),
    "k of singular": (["--mu", 1, "--images-per-row", 3], "ArgumentError", "images_per_row"),
    "a calibration for mu": (["--mu", 1, "--calibration", "energy"], "ArgumentError", "calibration"),
    "a size for an archive": (["--mu", 1, "--size", 8], "ArgumentError", "folders"),
    "mu that nothing can hold": (["--mu", "1e-160"], "ArgumentError", "mu must be between"),
    "a huge clip norm": (["--mu", 1, "--clip", "1e200"], "ArgumentError", "clip must be between"),
    "the private data as public": (["--mu", 1, "--public", "./good.npz"], "ArgumentError", "private data"),
    "missing public data": (["--mu", 1, "--public", "nothing"], "DataNotFoundError", "nothing"),
}


@pytest.mark.parametrize("name", BAD_WORDS)
def test_bad_words(run: Run, tmp_path: Path, name: str) -> None:
    words, error, message = BAD_WORDS[name]
    data = archive(tmp_path / "good.npz")
    result = run("encode", data, *words, "--out", "deep/r", "--json")
    assert refused(result, error)
    assert message in result.json["error"]["message"]
    assert left(tmp_path) == ["good.npz"]


def test_an_unknown_option_is_exit_code_2_too(run: Run, small: Path) -> None:
    assert run("encode", small, "--wish", 1, "--out", "r").code == 2
    assert run("encode", small, "--tau", 0.1, "--calibration", "wish", "--out", "r").code == 2


def test_an_unreadable_image_among_good_ones(run: Run, tmp_path: Path) -> None:
    from PIL import Image

    for number in range(4):
        folder = tmp_path / "f" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), 60 * number).save(folder / f"{number}.png")
    whole = (tmp_path / "f" / "b" / "3.png").read_bytes()
    for damage in (b"junk", whole[:50]):
        (tmp_path / "f" / "b" / "3.png").write_bytes(damage)
        result = run("encode", "f", "--mu", 1, "--out", "r", "--json")
        assert refused(result, "UnreadableImageError")
        assert "b/3.png" in result.json["error"]["message"]
        assert left(tmp_path) == ["f"]


def test_an_existing_output(run: Run, small: Path, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    result = run("encode", small, "--mu", 1, "--out", "r", "--json")
    assert refused(result, "OutputExistsError")
    assert list((tmp_path / "r").iterdir()) == []


def test_one_class_only_is_allowed_with_a_warning(run: Run, tmp_path: Path) -> None:
    data = archive(tmp_path / "one.npz", y=np.zeros(6, int))
    result = run("encode", data, "--mu", 1, "--out", "r", "--json")
    assert result.code == 0 and result.json["warnings"][0]["code"] == "one-class-only"
    assert shows(run("encode", data, "--mu", 1, "--out", "s").err, "one-class-only", rows=6, name="0")


def truncate(shard: Path) -> None:
    shard.write_bytes(shard.read_bytes()[:-10])


def replace_by_pickle(shard: Path) -> None:
    shard.write_bytes(pickle.dumps([1]).ljust(shard.stat().st_size, b"\0"))


def lie(shard: Path) -> None:
    manifest = shard.parent / "manifest.json"
    whole = json.loads(manifest.read_text())
    whole["payload"]["shape"] = [1, 16, 1]
    manifest.write_text(json.dumps(whole))


@pytest.mark.parametrize(
    ("damage", "error"),
    [(truncate, "ShardSizeError"), (flip, "HashError"), (replace_by_pickle, "HashError"), (lie, "ShapeError")],
)
def test_a_damaged_release(run: Run, small: Path, tmp_path: Path, damage: Callable[[Path], None], error: str) -> None:
    run("encode", small, "--mu", 1, "--out", "r")
    damage(tmp_path / "r" / "shard-00000.safetensors")
    result = run("verify", "r", "--json")
    assert refused(result, error)


def test_markup_and_control_characters_from_outside_are_not_obeyed(run: Run) -> None:
    result = run("verify", "[bold]no[/bold]\x1b[2J")
    assert result.code == 2 and "[bold]no[/bold]" in result.err and "\x1b[2J" not in result.err


def test_patients_and_their_labels_from_a_table(run: Run, tmp_path: Path) -> None:
    """As a hospital would: check, encode for patients with randomised labels, count, audit; and what goes wrong."""
    from PIL import Image

    rng = np.random.default_rng(0)
    (tmp_path / "scans").mkdir()
    lines = ["path,label,patient"]
    for i in range(60):
        Image.fromarray(rng.integers(0, 4096, (6, 6), dtype=np.uint16)).save(tmp_path / "scans" / f"{i}.png")
        lines.append(f"scans/{i}.png,{'ill' if i % 4 == 0 else 'well'},p{i // 3}")
    (tmp_path / "t.csv").write_text("\n".join(lines))
    how = ("--grey", "--depth", 12, "--unit", "patient", "--classes", "well,ill,other")
    checked = run("data", "check", "t.csv", *how, "--json").json
    assert checked["units"]["count"] == 20 and [c["rows"] for c in checked["classes"]] == [45, 15, 0]
    made = run("encode", "t.csv", *how, "--mu", 1, "--label-epsilon", 2, "--budget", 1.2, "--out", "r", "--json").json
    assert (
        made["spent"]["per"] == "unit" and made["spent"]["total_mu"] == pytest.approx(1) and made["label_epsilon"] == 2
    )
    assert made["spent"]["label_epsilon"] == 6 and made["spent"]["labels_shown"] is False
    text = run("verify", "r").out
    assert shows(text, "gdp-unit-of-labels", mu=1.0, found=gdp.member_tpr(1.0, 0.01))
    assert shows(text, "label-dp", epsilon=2.0)
    again = run("encode", "t.csv", "--grey", "--depth", 12, "--mu", 1, "--budget", 1.2, "--out", "s", "--json")
    assert refused(again, "BudgetError")
    audited = run("audit", "r", "--truth", "t.csv", *how, "--attacks", "prior,labels", "--out", "a", "--json").json
    assert "in-all" in [told["code"] for told in audited["verdict"]]
    # What is promised of membership is the same figure of a patient wherever it is stated.
    (told,) = [told for told in audited["verdict"] if told["code"] == "verdict-members-untested-bounded"]
    assert told["figures"]["tpr"] == pytest.approx(gdp.member_tpr(1.0, 0.01)) == pytest.approx(0.0924, abs=1e-4)
    assert [round(100 * of["tpr"], 1) for of in audited["promised"]] == [9.2, 4.0] and audited["unit"] == "patient"
    assert shows(Path("a/report.html").read_text(), "promise-gdp", whom="patient")
    shown = run("audit", "r", "--truth", "t.csv", *how, "--attacks", "unit-membership", "--out", "a2")
    whose = note("membership-of-unit", unit="patient")
    assert shown.code == 0 and shows(shown.out, told["code"], what=whose, tpr=told["figures"]["tpr"])
    (tmp_path / "u.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]))
    bad: list[tuple[tuple[object, ...], str]] = [
        (("audit", "r", "--truth", "u.csv", *how, "--out", "b"), "WrongTruthError"),
        (("audit", "r", "--truth", "t.csv", *how[:3], "--unit", "label", *how[5:], "--out", "b"), "ArgumentError"),
        (("encode", "t.csv", *how[:5], "--mu", 1, "--label-epsilon", 1, "--out", "c"), "ArgumentError"),
        (("encode", "t.csv", *how[:5], "--classes", "well,sick", "--mu", 1, "--out", "c"), "LabelError"),
        (("encode", "t.csv", *how, "--encoder", "mixup", "--out", "c"), "ArgumentError"),
        (("encode", "t.csv", *how[:3], "--unit", "nobody", "--mu", 1, "--out", "c"), "DataFormatError"),
        (("encode", "t.csv", *how, "--mu", 1, "--label-epsilon", 0, "--out", "c"), "ArgumentError"),
        (("encode", "t.csv", *how, "--mu", 1, "--budget", "nan", "--out", "c"), "ArgumentError"),
    ]
    for words, error in bad:
        result = run(*words, "--json")
        assert refused(result, error), words
    assert run("ledger", "--json").json["spent"]["releases"] == 1 and not Path("c").exists()
    shown = run("encode", "t.csv", "--grey", "--depth", 12, "--mu", 1, "--out", "d", "--json").json["spent"]
    assert shown["labels_shown"] is True and shown["label_epsilon"] is None
    late = run("encode", "t.csv", *how, "--mu", 1, "--label-epsilon", 2, "--out", "e")
    assert shows(late.err, "labels-were-shown")
