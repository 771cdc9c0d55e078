"""Releases of features, as their users make them: encode, verify, audit, and what calibrate says of them."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from mixveil.cli.train import told_to_end
from mixveil.core.errors import OutputError
from mixveil.learn.fit import _Training
from mixveil.releases.ledger import Ledger
from tests.command import Run, refused
from tests.made import NET, tiny_weights
from tests.notes import shows


def test_encode_verify_and_audit_features(run: Run, data: Path) -> None:
    told = run("encode", "private.npz", *NET, "--mu", 5, "--clip", 4, "--out", "r", "--json")
    assert told.code == 0, told.err
    assert told.json["certified"] and told.json["shape"] == [3 * 14 * 14] and told.json["displacement"] is None
    network = {"names": ["tiny"], "stage": "head", "mirror": False, "size": None}  # the network's own, 224 pixels
    assert told.json["extractor"] == network
    stated = json.loads((data / "r" / "manifest.json").read_text())
    assert stated["payload"]["extractor"] == network and list(stated["assets"]) == ["features"]
    shown = run("verify", "r")
    assert shown.code == 0 and shows(shown.out, "features-of", extractor="tiny, head", size=224)
    assert run("verify", "r", "--json").json["extractor"] == network
    audited = run("audit", "r", "--truth", "private.npz", "--public", "public.npz", "--out", "a", "--json")
    assert audited.code == 0, audited.err
    figures = audited.json
    assert "verdict-noise-unmeasured" not in [told["code"] for told in figures["verdict"]]
    errors = [row for row in figures["figures"] if row["metric"] == "mse"]
    assert errors and all(0 < row["mean"] < 1 and 0 < row["know_nothing"] < 1 for row in errors)
    noise = next(item for item in figures["promises"] if item["name"] == "noise")
    assert not noise["broken"] and noise["found"] == pytest.approx(noise["nominal"], rel=0.05)


def test_an_audit_refuses_other_weights_and_mixed_releases(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = ("--truth", "private.npz", "--out", "a")
    assert run("encode", "private.npz", *NET, "--mu", 5, "--clip", 4, "--out", "r").code == 0
    assert run("encode", "private.npz", "--backbone", "tiny", "--mu", 5, "--clip", 4, "--out", "pooled").code == 0
    assert run("encode", "private.npz", "--mu", 5, "--out", "pixels").code == 0
    for words, said in (
        (("r", "pixels"), "not all of the same features"),
        (("pixels", "r"), "some of pixels"),
        (("r", "pooled"), "not all of the same features"),
    ):
        told = run("audit", *words, *audit, "--json")
        assert refused(told, "MismatchError") and said in told.json["error"]["message"]
    tiny_weights(data / "data", monkeypatch, seed=1)
    told = run("audit", "r", *audit, "--json")
    assert refused(told, "MismatchError") and "digest" in told.json["error"]["message"]


def test_displacement_is_released_with_its_warning(run: Run, data: Path) -> None:
    job = ("encode", "private.npz", *NET, "--tau", 1e-6, "--calibration", "displacement", "--noise", "sphere")
    told = run(*job, "--out", "r", "--json")
    assert told.code == 0, told.err
    (guarantee,), moved = told.json["guarantees"], told.json["displacement"]
    assert guarantee["nominal"] == 1e-6 and guarantee["realised"] > 1e-3
    assert guarantee["assumes"]["calibration"] == "displacement"
    assert guarantee["assumes"]["displacement"] == guarantee["assumes"]["amplitude"] == "private"
    assert "private-facts" in told.json["not_promised"]
    settings = json.loads((data / "r" / "manifest.json").read_text())["payload"]["encoder"]["settings"]
    assert settings["sigma"] == pytest.approx(moved["radius"] / (3 * 14 * 14) ** 0.5)
    (warned,) = [of["figures"]["what"] for of in told.json["warnings"] if of["code"] == "by-calibration"]
    assert warned["code"] == "snr-exceeded-by-displacement" and warned["figures"]["nominal"] == 1e-6
    assert warned["figures"]["realised"] == pytest.approx(guarantee["realised"])
    assert warned["figures"]["without_noise"] == pytest.approx(5.44, abs=0.01)
    assert warned["figures"]["factor"] == pytest.approx(guarantee["realised"] / 1e-6)
    told = run(*job, "--out", "again")
    assert shows(told.out, "displacement-measured", images=40)
    assert shows(told.err, warned["code"], nominal=1e-6, without_noise=warned["figures"]["without_noise"])
    kept = {"calibration": "displacement", "tau": 1e-6}
    assert shows(run("verify", "r").out, "snr-not-kept", **kept, snr=guarantee["realised"])
    public = run(*job, "--public", "public.npz", "--out", "p")
    assert public.code == 0 and shows(public.out, "snr-not-stated", **kept) and not shows(public.out, "private-facts")


def test_a_seeded_release_says_that_its_settings_may_show_private_figures(run: Run, data: Path) -> None:
    job = ("encode", "private.npz", *NET, "--tau", 1e-3, "--calibration", "displacement", "--seed", 1)
    for noise in ("sphere", "gaussian"):
        said = run(*job, "--noise", noise, "--out", noise, "--json").json["not_promised"]
        assert "maybe-private-facts" in said and "noise-for-comparison" not in said


def test_images_without_contrast_do_not_saturate(run: Run, data: Path) -> None:
    """What is said of the clamp is what was measured."""
    flat = 0.5 + 0.02 * np.random.default_rng(1).standard_normal((40, 1, 8, 8)).clip(-3, 3)
    np.savez("flat.npz", x=flat.astype(np.float32), y=np.arange(40) % 3)
    told = run("calibrate", "flat.npz", "--backbone", "tiny", "--stage", "stem", "--tau", 0.1)
    assert told.code == 0 and shows(told.out, "image-noise-grows") and not shows(told.out, "image-noise-saturates")
    assert shows(run("calibrate", "private.npz", *NET, "--tau", 1e-6).out, "image-noise-saturates")


def test_private_images_that_pass_for_public(run: Run, data: Path) -> None:
    (data / "copy.npz").write_bytes((data / "private.npz").read_bytes())
    own, other = np.load("private.npz"), np.load("public.npz")
    np.savez("part.npz", x=np.concatenate([own["x"][:3], other["x"]]), y=np.arange(43) % 3)
    for public, count in (("copy.npz", 40), ("part.npz", 3)):
        job = ("private.npz", *NET, "--public", public)
        verbs = ("encode", *job, "--out", "r"), ("calibrate", *job)
        targets = ("--mu", 2), ("--tau", 0.1)
        for words in [*((*verb, *target) for verb in verbs for target in targets), ("calibrate", *job)]:
            told = run(*words, "--json")
            assert refused(told, "PrivateFactError"), words
            assert f"{count} of these 40 images are in the public data" in told.json["error"]["message"]
        assert not Path("r").exists() and not Ledger().entries()
    assert run("encode", "private.npz", *NET, "--mu", 2, "--public", "public.npz", "--out", "fine").code == 0


def test_calibrate_shows_that_the_radius_hardly_depends_on_tau(run: Run, data: Path) -> None:
    told = run("calibrate", "private.npz", *NET, "--tau", 1e-6, "--json")
    assert told.code == 0, told.err
    assert [item["calibration"] for item in told.json["calibrations"]] == [
        "theorem",
        "spectral",
        "energy",
        "displacement",
    ]
    one, asked = told.json["displacement"]
    assert (one["tau"], asked["tau"]) == (1.0, 1e-6) and asked["image_radius"] > 1000 * one["image_radius"]
    assert one["radius"] < asked["radius"] < 2 * one["radius"]
    last = told.json["calibrations"][-1]
    assert last["radius"] == pytest.approx(asked["radius"])
    assert last["realised_snr"] == pytest.approx(asked["realised_snr"]) and asked["realised_snr"] > 1e-3
    shown = run("calibrate", "private.npz", *NET, "--tau", 1e-6)
    said = " ".join(shown.out.split())
    assert shows(said, "image-noise-saturates")
    assert shows(said, "displaced-snr", realised=asked["realised_snr"])
    assert "per feature value" in said and "features of tiny, head" in said
    assert not shows(shown.err, "certified-left-out")


def test_calibrate_shows_the_certified_column_where_something_bounds_the_rows(run: Run, data: Path) -> None:
    def columns(*words: object) -> list[str]:
        return [
            item["calibration"] for item in run("calibrate", "private.npz", *NET, *words, "--json").json["calibrations"]
        ]

    bare = run("calibrate", "private.npz", *NET)
    assert bare.code == 0 and shows(bare.err, "certified-left-out")
    assert columns() == ["theorem", "spectral", "energy", "displacement"]
    assert columns("--clip", 4)[-1] == columns("--public", "public.npz")[-1] == "certified"
    assert columns("--mu", 1, "--clip", 4) == ["certified"]
    assert columns("--tau", 0.1, "--alpha", 0.5) == ["theorem", "spectral", "energy", "displacement"]
    assert run("calibrate", "private.npz", "--tau", 0.1, "--json").json["displacement"] == []


def test_both_normalisations(run: Run, data: Path) -> None:
    radii = []
    for name in ("imagenet", "table7"):
        words = ("calibrate", "mnist.npz", *NET, "--tau", 0.5, "--normalisation", name, "--json")
        radii.append(run(*words).json["displacement"][-1]["image_radius"])
    assert radii[0] > 1.2 * radii[1]


def test_bad_words(run: Run, data: Path) -> None:
    encode, moved = ("encode", "private.npz", "--out", "x"), ("--tau", 0.1, "--calibration", "displacement")
    for words, error in (
        ((*encode, *NET, "--mu", 1), "MissingFactError"),
        (("calibrate", "private.npz", *NET, "--mu", 1), "MissingFactError"),
        ((*encode, *NET, "--projection", "p", "--mu", 1), "ArgumentError"),
        ((*encode, "--stage", "head", "--mu", 1), "ArgumentError"),
        ((*encode, "--mirror", "--mu", 1), "ArgumentError"),
        ((*encode, "--backbone", "none", "--mu", 1, "--clip", 1), "ArgumentError"),
        ((*encode, "--backbone", "magic", "--mu", 1, "--clip", 1), "ArgumentError"),
        ((*encode, "--backbone", "tiny", "--stage", "nose", "--mu", 1, "--clip", 1), "ArgumentError"),
        ((*encode, *moved), "ArgumentError"),
        ((*encode, *NET, *moved, "--normalisation", "table7"), "ArgumentError"),
        ((*encode, *NET, "--tau", 0.1, "--normalisation", "imagenet"), "ArgumentError"),
        (("calibrate", "private.npz", "--normalisation", "imagenet"), "ArgumentError"),
        ((*encode, *NET, "--calibration", "displacement"), "ArgumentError"),
    ):
        told = run(*words, "--json")
        assert refused(told, error), (words, told.err)
    assert not (data / "x").exists()


def test_train_refuses_early_and_loses_nothing_late(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = ("train", "r", "--head", "mlp", "--epochs", 1, "--batch", 16)
    assert run("encode", "private.npz", *NET, "--tau", 1e-3, "--calibration", "displacement", "--out", "r").code == 0
    some = np.load("public.npz")
    kept = some["y"] > 0  # two of three classes, in another order
    np.savez("some.npz", x=some["x"][kept], y=2 - some["y"][kept], classes=np.array(["2", "1"]))
    told = run(*job, "--test", "some.npz", "--out", "m", "--json").json
    named = np.array([int(name) for name in run("predict", "m", "some.npz", "--json").json["classes"]])
    assert told["accuracy"]["accuracy"] == pytest.approx(float((named == some["y"][kept]).mean()))
    with monkeypatch.context() as inside:
        inside.setattr(_Training, "_step", lambda *_: pytest.fail("it was trained"))
        for words in (("--out", "m"), ("--out", "x", "--seed", -1), ("--out", "x", "--test", "nothing.npz")):
            assert run(*job, *words).code == 2
    with monkeypatch.context() as inside:
        gone: list[Path] = []
        inside.setattr("mixveil.learn.model.write_model", refuse)
        inside.setattr("mixveil.core.checkpoint.discard", gone.append)
        assert run(*job, "--out", "n").code == 5 and not gone
    with monkeypatch.context() as inside:
        inside.setenv("WORLD_SIZE", "2")
        inside.setenv("RANK", "0")
        assert "torchrun is for head = mlp" in " ".join(run("train", "r", "--out", "x").err.split())
    tiny_weights(data / "data", monkeypatch, seed=1)
    other = run("predict", "m", "some.npz", "--json")
    assert refused(other, "MismatchError")


def refuse(*_: object) -> None:
    raise OutputError("no room")


def test_told_twice_to_end_it_ends_at_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with told_to_end() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGTERM)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_papers_recipe_from_images_to_predictions(run: Run, data: Path) -> None:
    job = ("private.npz", *NET, "--tau", 1e-6, "--calibration", "displacement")
    for name in ("r", "again"):
        assert run("encode", *job, "--out", name).code == 0
    words = ("--head", "mlp", "--epochs", 3, "--batch", 16, "--test", "public.npz", "--out", "m", "--json")
    told = run("train", "r", "again", *words)
    assert told.code == 0, told.err
    assert told.json["guarantee"][0]["code"] == "model-promises-nothing" and told.json["how"]["rows"] == 80
    assert told.json["extractor"]["names"] == ["tiny"] and told.json["weights"] is not None
    named = run("predict", "m", "public.npz", "--json").json
    assert named["accuracy"] == told.json["accuracy"]["accuracy"] and len(named["classes"]) == 40
    some = np.load("public.npz")
    np.savez("some.npz", x=some["x"][:6], y=some["y"][:6] % 2)  # two of its three classes
    assert run("predict", "m", "some.npz", "--json").json["accuracy"] is not None
    np.savez("more.npz", x=some["x"][:8], y=np.arange(8))
    more = run("predict", "m", "more.npz")
    assert more.code == 0 and shows(more.err, "classes-unknown-to-model")
    assert run("encode", "private.npz", "--backbone", "tiny", "--mu", 5, "--clip", 4, "--out", "pooled").code == 0
    for wrong, said in (
        (("r", "pooled", "--out", "x"), "has features of tiny"),
        (("r", "--test", "more.npz", "--out", "x"), "classes that the releases do not have: 3, 4"),
        (("r", "--out", "/proc/x"), "cannot be written"),
    ):
        told = run("train", *wrong, "--head", "mlp")
        assert told.code == (5 if "/proc/x" in wrong else 2) and said in " ".join(told.err.split()), told.err
    assert run("predict", "r", "public.npz").err.count("is a release") == 1


def test_a_network_on_images_from_a_release_to_predictions(data: Path, run: Run) -> None:
    """`--head resnet18` on InstaHide's rows: trained, read again, and asked with encodings and without."""
    assert run("encode", "private.npz", "--encoder", "instahide", "--party", "a", "--out", "r", "--seed", 1).code == 0
    words = ("--head", "resnet18", "--width", 2, "--epochs", 1, "--batch", 16, "--test", "public.npz")
    told = run("train", "r", *words, "--out", "m", "--json")
    card = json.loads(told.out)
    assert told.code == 0 and card["how"]["head"] == "resnet18" and card["resnet18"]["instahide"]["k"] == 4
    answers = [json.loads(run("predict", "m", "public.npz", "--encodings", n, "--json").out) for n in (0, 10)]
    assert answers[1] == json.loads(run("predict", "m", "public.npz", "--json").out)
    assert answers[1]["accuracy"] == card["accuracy"]["accuracy"] and answers[0]["rows"] == 40
    assert run("train", "r", "--head", "mlp", "--epochs", 1, "--batch", 16, "--out", "d").code == 0
    refused = run("predict", "d", "public.npz", "--encodings", 3)
    assert refused.code == 2 and "trained on InstaHide" in " ".join(refused.err.split())
    assert "on images" in run("train", "r", *words[:-2], "--out", "again").out
