"""`mixveil challenge`: made and scored by commands, and refused as Python refuses it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import mixveil
from mixveil.attacks.catalogue import ATTACKS
from mixveil.cli import challenge
from mixveil.core import errors
from mixveil.core.wording.sentences import WORDS
from mixveil.data.opening import DataOptions
from tests.command import Run, refused
from tests.notes import shows
from tests.plugins.toy_breaker import LeastSquares


def test_a_challenge_from_end_to_end(run: Run, tmp_path: Path) -> None:
    told = run("challenge", "make", "digits", "--out", "c", "--images", 12, "--encodings", 3, "--json")
    assert told.code == 0 and told.json["rows"] == 36 and told.json["truth"] == "c.truth"
    assert told.json["payload"]["encoder"]["name"] == "instahide"
    warned = [item["code"] for item in told.json["warnings"]]
    assert "challenge-images-shown" in warned and all(code in WORDS for code in warned) and not told.err
    truth = load_file("c.truth/truth.safetensors")
    save_file({"images": truth["images"], "sources": truth["sources"]}, "g.safetensors")
    told = run("challenge", "score", "c", "c.truth", "--guess", "g.safetensors", "--out", "s", "--json")
    assert told.code == 0 and told.json["images"]["found"]["ssim"]["mean"] == pytest.approx(1)
    assert told.json["linkage"]["found"] == {"whole": 1.0, "some": 1.0} and Path(told.json["page"]).exists()
    assert [item["code"] for item in told.json["notes"]] == ["challenge-recovered", "challenge-linked"]
    shown = run("challenge", "score", "c", "c.truth", "--guess", "g.safetensors")
    assert shown.code == 0 and "SSIM, median" in shown.out and not shown.err
    other = run("challenge", "make", "digits", "--encoder", "singular", "--mu", 2, "--images", 12, "--out", "d")
    assert other.code == 0 and "600 rows" in other.out and "d.truth" in other.out and "warning" in other.err
    assert (tmp_path / "d" / "index.html").exists()


@pytest.mark.parametrize(
    ("verb", "job"), [(challenge.make, mixveil.make_challenge), (challenge.attack, mixveil.attack_challenge)]
)
def test_options_are_arguments_of_the_function(verb: Callable[..., None], job: Callable[..., Any]) -> None:
    options, arguments = inspect.signature(verb).parameters, inspect.signature(job).parameters
    own = options.keys() - {field.name for field in fields(DataOptions)} - {"as_json", "folder", "out_file"}
    assert len(own) > 9 and own <= arguments.keys()
    assert all(options[name].default == arguments[name].default for name in own - {"given"})


def test_an_attack_on_a_challenge_and_the_truth_for_its_owner(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXVEIL_CACHE", str(Path("cache").absolute()))
    assert run("challenge", "make", "digits", "--out", "c", "--images", 12, "--encodings", 4).code == 0
    attack = ("challenge", "attack", "c", "--attack", "least-squares")
    with ATTACKS.including(LeastSquares):
        told = run(*attack, "--out", "a.safetensors", "--json")
        given = ("--truth", "c.truth", "--given", "sources, weights,signs")
        owner = run(*attack, *given, "--out", "b.safetensors", "--json")
        shown = run(*attack, *given, "--out", "d.safetensors")
    assert told.code == owner.code == shown.code == 0 and not told.err and not owner.err
    assert told.json["given"] == [] and told.json["images"] == [12, 1, 8, 8] and told.json["sources"] == [48, 4]
    assert owner.json["given"] == ["sources", "weights", "signs"] and owner.json["attack"] == "least-squares"
    assert all(item["code"] in WORDS for item in owner.json["notes"])
    assert "guess-given-truth" in [item["code"] for item in owner.json["notes"]]
    assert shows(shown.out, "guess-given-truth") and "d.safetensors" in shown.out and not shows(shown.out, "no-number")
    scores = [
        run("challenge", "score", "c", "c.truth", "--guess", f"{name}.safetensors", "--json").json for name in "ab"
    ]
    assert scores[0]["images"]["found"]["recovered"] < scores[1]["images"]["found"]["recovered"] == 1
    assert scores[1]["linkage"]["found"]["whole"] == 1


class BadAttack(NamedTuple):
    """An attack on a challenge that is refused. options: by their names in Python."""

    options: dict[str, Any]
    error: type[errors.MixveilError]


LEAST, TOLD = {"attack": "least-squares"}, {"truth": "c.truth"}
ATTACKED = [
    BadAttack({"attack": "magic"}, errors.ArgumentError),
    BadAttack({"attack": "membership"}, errors.ArgumentError),  # another kind of guess
    BadAttack({"attack": "lmmse"}, errors.ArgumentError),  # it needs traces
    BadAttack({"attack": "prior", "public": "public.npz"}, errors.ArgumentError),  # one image a row
    BadAttack({**LEAST, "public": "wide.npz"}, errors.ArgumentError),
    BadAttack({**LEAST, "public": "nothing"}, errors.DataNotFoundError),
    BadAttack({**LEAST, "covers": "public.npz"}, errors.ArgumentError),
    BadAttack({**LEAST, "patches": 5}, errors.ArgumentError),
    BadAttack({**LEAST, "steps": 0}, errors.ArgumentError),
    BadAttack({**LEAST, "seed": -1}, errors.ArgumentError),
    BadAttack({**LEAST, "given": "signs"}, errors.ArgumentError),
    BadAttack({**LEAST, **TOLD}, errors.ArgumentError),
    BadAttack({**LEAST, **TOLD, "given": "signs,magic"}, errors.ArgumentError),
    BadAttack({**LEAST, **TOLD, "given": "moves"}, errors.ArgumentError),  # none were made
    BadAttack({"attack": "average", **TOLD, "given": "signs"}, errors.ArgumentError),  # it has no oracle
    BadAttack({**LEAST, "truth": "other.truth", "given": "signs"}, errors.MismatchError),
    BadAttack({**LEAST, "truth": "nothing", "given": "signs"}, errors.MissingPathError),
    BadAttack({**LEAST, "out": "there"}, errors.OutputExistsError),
    BadAttack({**LEAST, "out": "nowhere/g.safetensors"}, errors.OutputError),
    BadAttack({**LEAST, "challenge": "c.truth"}, errors.ManifestError),
    BadAttack({**LEAST, "challenge": "nothing"}, errors.MissingPathError),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two challenges of images of 4×4, and public images."""
    folder, rng = tmp_path_factory.mktemp("attacked"), np.random.default_rng(0)
    for name, side in (("own", 4), ("public", 4), ("wide", 5)):
        np.savez(folder / f"{name}.npz", x=rng.random((40, 1, side, side), dtype=np.float32), y=np.arange(40) % 2)
    for name in ("c", "other"):
        ledger = mixveil.Ledger(folder / "state")
        mixveil.make_challenge(folder / "own.npz", folder / name, images=8, encodings=2, ledger=ledger)
    (folder / "there").mkdir()
    return folder


@pytest.mark.parametrize("bad", ATTACKED, ids=lambda bad: f"{bad.options} {bad.error.code}")
def test_attacks_are_refused_alike(bad: BadAttack, run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    before = {path.name for path in place.iterdir()}
    options = {"challenge": "c", "out": "g.safetensors", **bad.options}
    words = [f"--{name}={value}" for name, value in options.items() if name != "challenge"]
    if "given" in options:
        options["given"] = options["given"].split(",")
    with ATTACKS.including(LeastSquares):
        with pytest.raises(errors.MixveilError) as caught:
            mixveil.attack_challenge(options.pop("challenge"), **options)
        assert type(caught.value) is bad.error, caught.value
        told = run("challenge", "attack", bad.options.get("challenge", "c"), *words, "--json")
    assert refused(told, bad.error.__name__) and told.json["error"]["message"] == str(caught.value)
    assert {path.name for path in place.iterdir()} <= before


class Bad(NamedTuple):
    """A challenge that is refused. options: by their names in Python."""

    data: str
    options: dict[str, Any]
    error: type[errors.MixveilError]


OWN = "own.npz"
TABLE = [
    Bad(OWN, {"images": 1}, errors.ArgumentError),
    Bad(OWN, {"images": 41}, errors.ArgumentError),
    Bad(OWN, {"images": 1001}, errors.ArgumentError),
    Bad(OWN, {"encodings": 0}, errors.ArgumentError),
    Bad(OWN, {"encodings": 10**9}, errors.ArgumentError),
    Bad(OWN, {"encoder": "magic"}, errors.ArgumentError),
    Bad(OWN, {"mu": 1.0}, errors.ArgumentError),
    Bad(OWN, {"encoder": "singular", "mu": 1.0, "tau": 0.1}, errors.ArgumentError),
    Bad(OWN, {"encoder": "singular", "tau": 0.1, "calibration": "displacement"}, errors.ArgumentError),
    Bad(OWN, {"encoder": "identity", "images_per_row": 3}, errors.ArgumentError),
    Bad(OWN, {"images_per_row": 3, "c1": 0.2}, errors.ArgumentError),
    Bad(OWN, {"patches": 5}, errors.ArgumentError),
    Bad(OWN, {"public": OWN, "keypoints": 0}, errors.ArgumentError),
    Bad(OWN, {"public": "more.npz", "keypoints": 0}, errors.PrivateFactError),
    Bad(OWN, {"truth": "x/truth"}, errors.ArgumentError),
    Bad(OWN, {"truth": "x"}, errors.ArgumentError),
    Bad(OWN, {"truth": "there"}, errors.OutputExistsError),
    Bad(OWN, {"out": "there"}, errors.OutputExistsError),
    Bad(OWN, {"out": "there/in/x", "truth": "there/in"}, errors.ArgumentError),
    Bad(OWN, {"seed": -1}, errors.ArgumentError),
    Bad("nan.npz", {"images": 6}, errors.PixelError),
    Bad("nothing", {}, errors.DataNotFoundError),
]


@pytest.mark.parametrize("bad", TABLE, ids=lambda bad: f"{bad.options} {bad.error.code}")
def test_the_command_line_and_python_refuse_alike(bad: Bad, run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((40, 1, 4, 4), dtype=np.float32)
    np.savez(OWN, x=x, y=np.arange(40) % 2)
    np.savez("more.npz", x=np.concatenate([rng.random((5, 1, 4, 4), dtype=np.float32), x]), y=np.arange(45) % 2)
    np.savez("nan.npz", x=np.full((6, 1, 4, 4), np.nan, np.float32), y=np.arange(6) % 2)
    (tmp_path / "there").mkdir()
    before = {path.name for path in tmp_path.iterdir()} | {"state"}
    options = {"out": "x", "images": 10, "encodings": 2, **bad.options}
    with pytest.raises(errors.MixveilError) as caught:
        mixveil.make_challenge(bad.data, **options)
    assert type(caught.value) is bad.error, caught.value
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    told = run("challenge", "make", bad.data, *words, "--json")
    assert refused(told, bad.error.__name__) and told.json["error"]["message"] == str(caught.value)
    assert not mixveil.Ledger().entries() and {path.name for path in tmp_path.iterdir()} <= before


def test_bad_scores_have_their_exit_codes(run: Run, small: Path) -> None:
    for name in ("c", "d"):
        assert run("challenge", "make", small, "--images", 8, "--encodings", 1, "--out", name).code == 0
    save_file({"images": torch.zeros(8, 1, 4, 4)}, "g.safetensors")
    save_file({"images": torch.zeros(7, 1, 4, 4)}, "few.safetensors")
    score = ("challenge", "score", "c")
    cases = [
        ((*score, "d.truth", "--guess", "g.safetensors"), "MismatchError"),
        ((*score, "c.truth", "--guess", "few.safetensors"), "DataFormatError"),
        ((*score, "c.truth", "--guess", "none.safetensors"), "MissingPathError"),
        ((*score, "nothing", "--guess", "g.safetensors"), "MissingPathError"),
        (("challenge", "score", "nothing", "c.truth", "--guess", "g.safetensors"), "MissingPathError"),
        (("challenge", "score", "c.truth", "c.truth", "--guess", "g.safetensors"), "ManifestError"),
        ((*score, "c.truth", "--guess", "g.safetensors", "--out", "d"), "OutputExistsError"),
    ]
    for words, error in cases:
        assert refused(run(*words, "--json"), error), words
    assert run(*score, "c.truth").code == 2 and run("challenge", "nothing").code == 2
    encoded = run("encode", small, "--mu", 1, "--out", "r")
    assert encoded.code == 0
    told = run("challenge", "make", small, "--images", 8, "--encodings", 1, "--out", "e", "--json")
    assert refused(told, "PrivateFactError") and told.code == 3
