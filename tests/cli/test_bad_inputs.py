"""One table of bad inputs, given to the command line and to Python: the same error, with the same code, either way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import mixveil
from mixveil.core import errors
from mixveil.data.opening import DataOptions
from tests.command import Run, flip, refused

_READING = DataOptions.__dataclass_fields__.keys()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with data, a release, a damaged one, statistics, projections, a model and halves of a network, and the
    ledger of them."""
    folder, before = tmp_path_factory.mktemp("bad"), os.environ.get("MIXVEIL_STATE")
    os.environ["MIXVEIL_STATE"] = str(folder / "state")
    rng = np.random.default_rng(0)
    for name, rows, side in (("own", 40, 4), ("public", 60, 4), ("wide", 40, 5), ("one", 1, 4)):
        x = rng.random((rows, 1, side, side), dtype=np.float32)
        np.savez(folder / f"{name}.npz", x=x, y=np.arange(rows) % 2)
    np.savez(folder / "nan.npz", x=np.full((6, 1, 4, 4), np.nan, np.float32), y=np.arange(6) % 2)
    own, public, bare = folder / "own.npz", folder / "public.npz", folder / "bare"
    mixveil.prepare(public, bare, backbone="none", directions=5)
    mixveil.prepare(own, folder / "leaky", backbone="none", directions=5)
    for name in ("release", "damaged"):
        mixveil.encode(own, folder / name, mu=1.0)
    flip(folder / "damaged" / "shard-00000.safetensors")
    mixveil.encode(own, folder / "projected", mu=1.0, projection=bare)
    mixveil.statistics(own, folder / "sums", projection=bare, mu=1.0, options=DataOptions(classes=["0", "1"]))
    mixveil.train([folder / "release"], folder / "model")
    brief = mixveil.SplitRecipe(epochs=1)
    mixveil.split_train(own, folder / "halves", network="lenet5", cut="block1", recipe=brief)
    np.savez(folder / "signed.npz", x=2 * rng.random((9, 1, 4, 4)) - 1, y=np.arange(9) % 2, range=[-1.0, 1.0])
    np.savez(folder / "same.npz", x=rng.random((20, 1, 4, 4), dtype=np.float32), y=np.zeros(20, int))
    yield folder
    if before is not None:
        os.environ["MIXVEIL_STATE"] = before


class Bad(NamedTuple):
    """A job that is refused. given: its positional arguments; options: the others, by their names in Python."""

    verb: str
    given: list[str]
    options: dict[str, Any]
    error: type[errors.MixveilError]


OWN, OUT = "own.npz", {"out": "x"}
TABLE = [
    Bad("encode", [OWN], {"mu": -1.0, **OUT}, errors.ArgumentError),
    Bad("encode", [OWN], {"mu": 1.0, "tau": 0.1, **OUT}, errors.ArgumentError),
    Bad("encode", [OWN], {"tau": 3.0, **OUT}, errors.ArgumentError),
    Bad("encode", [OWN], {"mu": 1.0, "calibration": "energy", **OUT}, errors.ArgumentError),
    Bad("encode", [OWN], {"mu": 1.0, "encoder": "magic", **OUT}, errors.ArgumentError),
    Bad("encode", [OWN], {"mu": 1.0, "images_per_row": 3, **OUT}, errors.ArgumentError),
    Bad("encode", [OWN], {"mu": 1.0, "screen": "ssim:0.5", **OUT}, errors.PrivateFactError),
    Bad("encode", [OWN], {"mu": 1.0, "projection": "bare", "clip": 1.0, **OUT}, errors.ArgumentError),
    Bad("encode", [OWN], {"mu": 1.0, "projection": "leaky", **OUT}, errors.PrivateFactError),
    Bad("encode", [OWN], {"mu": 1.0, "public": OWN, **OUT}, errors.ArgumentError),
    Bad("encode", [OWN], {"mu": 1.0, "backbone": "mobilenet_v2", **OUT}, errors.MissingFactError),
    Bad("encode", [OWN], {"mu": 1.0, "budget": 0.5, **OUT}, errors.BudgetError),
    Bad("encode", [OWN], {"mu": 1.0, "label_budget": 1.0, **OUT}, errors.BudgetError),
    Bad("encode", [OWN], {"mu": 1.0, "label_epsilon": 1.0, **OUT}, errors.ArgumentError),
    Bad("encode", [OWN], {"mu": 1.0, "size": 8, **OUT}, errors.ArgumentError),
    Bad("encode", [OWN], {"mu": 1.0, "party": "a\nb", **OUT}, errors.ArgumentError),
    Bad("encode", [OWN], {"mu": 1.0, "out": "release"}, errors.OutputExistsError),
    Bad("encode", ["nothing"], {"mu": 1.0, **OUT}, errors.DataNotFoundError),
    Bad("encode", ["one.npz"], {"mu": 1.0, **OUT}, errors.TooFewRowsError),
    Bad("encode", ["nan.npz"], {"mu": 1.0, **OUT}, errors.PixelError),
    Bad("verify", ["damaged"], {}, errors.HashError),
    Bad("verify", ["model"], {}, errors.ManifestError),
    Bad("verify", ["nothing"], {}, errors.MissingPathError),
    Bad("audit", ["nothing"], {"truth": OWN, **OUT}, errors.MissingPathError),
    Bad("train", ["nothing"], OUT, errors.MissingPathError),
    Bad("predict", ["nothing", OWN], {}, errors.MissingPathError),
    Bad("encode", [OWN], {"mu": 1.0, "projection": "nothing", **OUT}, errors.MissingPathError),
    Bad("statistics", [OWN], {"projection": "nothing", "mu": 1.0, **OUT}, errors.MissingPathError),
    Bad("directions", ["nothing"], {"projection": "bare", **OUT}, errors.MissingPathError),
    Bad("audit", ["release"], {"truth": "public.npz", **OUT}, errors.WrongTruthError),
    Bad("audit", ["release"], {"truth": OWN, "public": "wide.npz", **OUT}, errors.ArgumentError),
    Bad("audit", ["release"], {"truth": OWN, "attacks": "magic", **OUT}, errors.ArgumentError),
    Bad("audit", ["release"], {"truth": OWN, "sweep": "mu=1", **OUT}, errors.ArgumentError),
    Bad("audit", ["projected"], {"truth": OWN, **OUT}, errors.MismatchError),
    Bad("audit", ["damaged"], {"truth": OWN, **OUT}, errors.HashError),
    Bad("train", ["projected"], OUT, errors.MismatchError),
    Bad("train", ["sums"], OUT, errors.ArgumentError),
    Bad("train", ["release"], {"epochs": 3, **OUT}, errors.ArgumentError),
    Bad("train", ["damaged"], OUT, errors.HashError),
    Bad("train", ["release"], {"test": "wide.npz", **OUT}, errors.MismatchError),
    Bad("train", ["release"], {"out": "model"}, errors.OutputExistsError),
    Bad("predict", ["release", OWN], {}, errors.DataFormatError),
    Bad("predict", ["model", "wide.npz"], {}, errors.MismatchError),
    Bad("prepare", [OWN], {"backbone": "magic", **OUT}, errors.ArgumentError),
    Bad("prepare", [OWN], {"backbone": "none", "mu": 1.0, **OUT}, errors.ArgumentError),
    Bad("prepare", [OWN], {"backbone": "resnet18", **OUT}, errors.WeightsError),
    Bad("statistics", [OWN], {"projection": "leaky", "mu": 1.0, **OUT}, errors.PrivateFactError),
    Bad("statistics", ["wide.npz"], {"projection": "bare", "mu": 1.0, **OUT}, errors.ProjectionError),
    Bad("statistics", [OWN], {"projection": "release", "mu": 1.0, **OUT}, errors.DataFormatError),
    Bad("statistics", [OWN], {"projection": "bare", "mu": 1.0, **OUT}, errors.ArgumentError),  # classes of the labels
    Bad("directions", ["sums"], {"projection": "leaky", **OUT}, errors.MismatchError),
    Bad("calibrate", [OWN], {"mu": 0.0}, errors.ArgumentError),
    Bad("calibrate", [OWN], {"public": "wide.npz"}, errors.ArgumentError),
    Bad("calibrate", [OWN], {"backbone": "mobilenet_v2", "mu": 1.0}, errors.MissingFactError),
    Bad("split train", [OWN], {"out": "halves"}, errors.OutputExistsError),
    Bad("split train", ["nothing"], OUT, errors.DataNotFoundError),
    Bad("split train", ["one.npz"], OUT, errors.ArgumentError),
    Bad("split train", ["same.npz"], OUT, errors.ArgumentError),
    Bad("split train", ["nan.npz"], OUT, errors.PixelError),
    Bad("split train", [OWN], {"network": "magic", **OUT}, errors.ArgumentError),
    Bad("split train", [OWN], {"network": "vgg16", **OUT}, errors.ArgumentError),
    Bad("split train", [OWN], {"network": "synthetic", **OUT}, errors.MismatchError),
    Bad("split train", [OWN], {"cut": "scores", **OUT}, errors.ArgumentError),
    Bad("split train", [OWN], {"test": "wide.npz", **OUT}, errors.MismatchError),
    Bad("split train", [OWN], {"test": "signed.npz", **OUT}, errors.MismatchError),
    Bad("split train", [OWN], {"test": "one.npz", **OUT}, errors.TooFewRowsError),
    Bad("split train", [OWN], {"size": 8, **OUT}, errors.ArgumentError),
    Bad("split train", [OWN], {"weight": -1.0, **OUT}, errors.ArgumentError),
    Bad("split train", [OWN], {"beta": float("nan"), **OUT}, errors.ArgumentError),
    Bad("split train", [OWN], {"momentum": 1.0, **OUT}, errors.ArgumentError),
    Bad("split train", [OWN], {"falls": "1.5", **OUT}, errors.ArgumentError),
    Bad("split train", [OWN], {"falls": "inf", **OUT}, errors.ArgumentError),
    Bad("split train", [OWN], {"epochs": 0, **OUT}, errors.ArgumentError),
    Bad("split encode", [OWN], {"client": "nothing", **OUT}, errors.MissingPathError),
    Bad("split encode", [OWN], {"client": "release", **OUT}, errors.DataFormatError),
    Bad("split encode", [OWN], {"client": "halves/server", **OUT}, errors.MismatchError),
    Bad("split encode", ["wide.npz"], {"client": "halves/client", **OUT}, errors.MismatchError),
    Bad("split encode", ["signed.npz"], {"client": "halves/client", **OUT}, errors.MismatchError),
    Bad("split encode", [OWN], {"client": "halves/client", "out": "release"}, errors.OutputExistsError),
    Bad("split encode", [OWN], {"client": "halves/client", "budget": 1.0, **OUT}, errors.BudgetError),
    Bad("split encode", [OWN], {"client": "halves/client", "party": "a\nb", **OUT}, errors.ArgumentError),
    Bad("split sweep", [OWN], {"test": "wide.npz", **OUT}, errors.MismatchError),
    Bad("split sweep", [OWN], {"test": "one.npz", **OUT}, errors.TooFewRowsError),
    Bad("split sweep", [OWN], {"test": "nothing", **OUT}, errors.DataNotFoundError),
    Bad("split sweep", [OWN], {"test": "public.npz", "weights": "1,1", **OUT}, errors.ArgumentError),
    Bad("split sweep", [OWN], {"test": "public.npz", "betas": "-1", **OUT}, errors.ArgumentError),
    Bad("split sweep", [OWN], {"test": "public.npz", "betas": "", **OUT}, errors.ArgumentError),
    Bad("split sweep", [OWN], {"test": "public.npz", "attacks": "lmmse", **OUT}, errors.ArgumentError),
    Bad("split sweep", [OWN], {"test": "public.npz", "attacked": 1, **OUT}, errors.ArgumentError),
    Bad("split sweep", [OWN], {"test": "public.npz", "within": -1.0, **OUT}, errors.ArgumentError),
    Bad("split sweep", [OWN], {"test": "public.npz", "steps": 0, **OUT}, errors.ArgumentError),
    Bad("split sweep", [OWN], {"test": "public.npz", "out": "release"}, errors.OutputExistsError),
    Bad("simulate", [OWN], {"methods": "magic"}, errors.ArgumentError),
    Bad("simulate", [OWN], {"methods": "sums", "test": OWN}, errors.ArgumentError),
    Bad("simulate", [OWN], {"methods": "sums", "page": "page.pdf"}, errors.ArgumentError),
]


_RECIPE = mixveil.SplitRecipe.__dataclass_fields__.keys()
_SPELT = {"attacked": "images"}  # what has another name on the command line


def on_the_command_line(bad: Bad) -> list[object]:
    words: list[object] = [*bad.verb.split(), *bad.given]
    for name, value in bad.options.items():
        words += [f"--{_SPELT.get(name, name).replace('_', '-')}", value]
    return [*words, "--json"]


def in_python(bad: Bad) -> Any:
    options = dict(bad.options)
    reading = {name: options.pop(name) for name in _READING & options.keys()}
    if reading:
        options["options"] = DataOptions(**reading)
    if "attacks" in options:
        options["attacks"] = options["attacks"].split(",")
    for name in {"weights", "betas", "falls"} & options.keys():
        options[name] = [float(part) for part in options[name].split(",") if part]
    if bad.verb in ("split train", "split sweep") and _RECIPE & options.keys():
        options["recipe"] = mixveil.SplitRecipe(**{name: options.pop(name) for name in _RECIPE & options.keys()})
    given: list[Any] = list(bad.given)
    if bad.verb in ("audit", "train", "directions"):
        given = [given]
    if bad.verb == "audit":
        options.pop("out")
    for name in ("truth", "out") if bad.verb != "simulate" else ():
        if name in options:
            given.append(options.pop(name))
    return getattr(mixveil, bad.verb.replace(" ", "_"))(*given, **options)


@pytest.mark.parametrize("bad", TABLE, ids=lambda bad: f"{bad.verb} {bad.given[0]} {bad.error.code}")
def test_the_command_line_and_python_refuse_alike(
    bad: Bad, run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("MIXVEIL_STATE", str(place / "state"))
    made = [entry.id for entry in mixveil.Ledger().entries()]
    with pytest.raises(errors.MixveilError) as caught:
        in_python(bad)
    assert type(caught.value) is bad.error, caught.value
    told = run(*on_the_command_line(bad))
    assert refused(told, bad.error.__name__), told
    assert told.json["error"]["message"] == str(caught.value)
    assert [entry.id for entry in mixveil.Ledger().entries()] == made and not Path("x").exists()


@pytest.mark.parametrize("verb", ["report", "results"])
def test_a_path_that_does_not_exist_is_a_usage_error(verb: str, run: Run) -> None:
    told = run(verb, "nothing")
    assert told.code == 2 and "nothing does not exist" in told.err


@pytest.mark.parametrize("words", [["encode", "x"], ["encode", "x", "--mu", "abc"], ["nothing"], ["data", "nothing"]])
def test_a_usage_error_is_json_too(words: list[str], run: Run) -> None:
    told, plain = run(*words, "--json"), run(*words)
    assert told.code == plain.code == 2 and told.err and plain.err and not plain.out
    error = told.json["error"]
    assert (error["code"], error["type"]) == ("usage", "UsageError") and error["message"]


def test_every_error_has_a_code_of_its_own_and_a_kind() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MixveilError)]
    assert len({kind.code for kind in kinds}) == len(kinds) > 40
    assert {kind.kind for kind in kinds} == errors.EXIT_CODES.keys()
    codes = [errors.EXIT_CODES[kind.kind] for kind in (errors.ArgumentError, errors.BudgetError, errors.HashError)]
    assert codes == [2, 3, 4] and errors.ServiceError("").exit_code == 5
    assert errors.FalseClaimError.code == "false-claim" and errors.TrainingStopped.code == "training-stopped"
