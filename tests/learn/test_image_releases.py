"""`train --head resnet18` on releases of images, the model on disk, and `predict` with encodings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

import mixveil
from mixveil.core import errors
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder
from mixveil.data.images import Images, from_tensors
from mixveil.data.opening import open_data
from mixveil.encoders.identity import Identity
from mixveil.encoders.instahide import CalibratedInstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.learn.image_head import ImageHead
from mixveil.learn.model import CARD, TENSORS, read_model
from mixveil.releases.records import write_release

HIDDEN = CalibratedInstaHide(k=2, c1=0.65, c2=0.3, covers=0, pad=0, values=64, centre=0.0)
TINY: dict[str, Any] = {"head": "resnet18", "width": 4, "batch": 32}


def digits(split: str, rows: int) -> Images:
    return open_data(f"digits:{split}").part(torch.arange(rows))


def release(folder: Path, encoder: Encoder, images: Images | None = None, party: str = "north", seed: int = 0) -> Path:
    write_release(folder, images or digits("train", 400), encoder, (), party=party, stream=SeededStream(seed))
    return folder


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model, trained on two InstaHide releases of the same digits."""
    place = tmp_path_factory.mktemp("hidden")
    whole = digits("train", 1000)
    with pytest.MonkeyPatch.context() as inside:
        inside.setenv("MIXVEIL_STATE", str(place / "state"))
        folders = [release(place / f"r{i}", replace(HIDDEN, k=1), whole, seed=i) for i in range(2)]
    mixveil.train(folders, place / "model", epochs=3, test=digits("test", 200), **TINY)
    return place / "model"


def test_it_learns_from_instahide_and_says_so(hidden: Path) -> None:
    model = read_model(hidden)
    card = model.card
    assert isinstance(model.head, ImageHead) and card["how"]["head"] == "resnet18" and len(card["trained_on"]) == 2
    assert card["resnet18"] == model.head.plain() and card["resnet18"]["instahide"] == {"k": 1, "c1": 0.65, "centre": 0}
    assert card["guarantee"] == [{"code": "model-promises-nothing"}]
    assert card["accuracy"]["accuracy"] > 0.3  # of ten classes
    found = mixveil.predict(hidden, digits("test", 200))
    assert found.accuracy == card["accuracy"]["accuracy"]
    with pytest.raises(errors.MismatchError, match="a network on images"):
        model.layers  # noqa: B018


def test_predictions_average_encodings(hidden: Path) -> None:
    images = digits("test", 60)
    assert mixveil.predict(hidden, images) == mixveil.predict(hidden, images, encodings=0)
    assert mixveil.predict(hidden, images, encodings=10) == mixveil.predict(hidden, images, encodings=10)
    head = read_model(hidden).head
    assert isinstance(head, ImageHead)
    plain, masked = head.probabilities(images, 0), head.probabilities(images, 3)
    x = (images.take(torch.arange(60)).x - head.mean) / head.std
    with torch.no_grad():
        assert torch.allclose(plain, torch.softmax(head.net.cpu()(x), 1), atol=1e-4)
    assert not torch.allclose(plain, masked, atol=1e-3) and torch.allclose(masked.sum(1), torch.ones(60), atol=1e-4)
    for encodings, said in ((-1, "0 or more"), (2, "no other to be mixed with")):
        with pytest.raises(errors.ArgumentError, match=said):
            mixveil.predict(hidden, images.part(torch.tensor([0])), encodings=encodings)


def test_a_stopped_training_ends_with_the_same_model(tmp_path: Path) -> None:
    folder = release(tmp_path / "r", HIDDEN, digits("train", 120))

    class Stops:
        """Told to end after four steps."""

        def __enter__(self) -> Any:
            steps = iter(range(100))
            return lambda: next(steps) == 3

        def __exit__(self, *_: object) -> None:
            return None

    with pytest.raises(errors.TrainingStopped, match="step 4 of 8"):
        mixveil.train([folder], tmp_path / "m", epochs=2, stopping=Stops, **TINY)
    assert (tmp_path / ".m.training").exists()
    told: list[str] = []
    mixveil.train([folder], tmp_path / "m", epochs=2, say=told.append, **TINY)
    assert told == ["going on after step 4 of 8"] and not (tmp_path / ".m.training").exists()
    mixveil.train([folder], tmp_path / "whole", epochs=2, **TINY)
    one, two = (load((tmp_path / name / TENSORS).read_bytes()) for name in ("m", "whole"))
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_other_encoders_train_too_and_encode_nothing(tmp_path: Path) -> None:
    """Rows in the clear are learnt as they are; several releases of unlike encoders have no encoding in common."""
    folders = [release(tmp_path / "a", Identity()), release(tmp_path / "b", Mixup(k=2), party="south")]
    made = mixveil.train(folders, tmp_path / "m", epochs=2, test=digits("test", 100), **TINY)
    assert made is not None and made.tested is not None and made.tested["accuracy"] > 0.3
    assert isinstance(made.model.head, ImageHead) and made.model.head.instahide is None
    plain = mixveil.predict(tmp_path / "m", digits("test", 100))
    assert plain == mixveil.predict(tmp_path / "m", digits("test", 100), encodings=0)
    with pytest.raises(errors.MismatchError, match="trained on InstaHide, and this one was not"):
        mixveil.predict(tmp_path / "m", digits("test", 100), encodings=10)
    mixveil.train(folders[:1], tmp_path / "d")
    with pytest.raises(errors.MismatchError, match="for a network on images"):
        mixveil.predict(tmp_path / "d", digits("test", 100), encodings=10)
    assert mixveil.predict(tmp_path / "d", digits("test", 100), encodings=0).accuracy is not None


def test_classes_of_no_party_are_never_named(tmp_path: Path) -> None:
    few = digits("train", 300)
    few = few.part((few.labels < 4).nonzero()[:, 0])
    mixveil.train([release(tmp_path / "r", Identity(), few)], tmp_path / "m", epochs=1, **TINY)
    assert {*mixveil.predict(tmp_path / "m", digits("test", 100)).classes} <= {"0", "1", "2", "3"}


def test_what_is_no_image_is_refused(tmp_path: Path, hidden: Path) -> None:
    values = from_tensors(torch.rand(30, 12, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3)
    folder = release(tmp_path / "r", Identity(), values)
    with pytest.raises(errors.MismatchError, match=r"rows of shape \(12,\)"):
        mixveil.train([folder], tmp_path / "m", **TINY)
    wide = from_tensors(torch.zeros(4, 1, 4, 16), torch.arange(4))  # as many values, another shape
    with pytest.raises(errors.MismatchError, match=r"takes images of \(1, 8, 8\)"):
        mixveil.predict(hidden, wide)
    with pytest.raises(errors.MismatchError, match="takes 64 features"):
        mixveil.predict(hidden, values)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"head": "resnet18", "optimiser": "sgd"}, "optimiser is for head = mlp"),
        ({"head": "mlp", "width": 8}, "width is for head = resnet18"),
        ({"width": 8}, "width is for head = resnet18"),
        ({"epochs": 3}, "epochs is for head = mlp or resnet18"),
        ({"head": "resnet18", "batch": 2}, "batch must be at least 8"),
        ({"head": "unet"}, "head must be discriminant, mlp, resnet18"),
    ],
    ids=str,
)
def test_settings_of_other_heads_are_refused(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.ArgumentError, match=said):
        mixveil.train([tmp_path / "r"], tmp_path / "m", **given)


def test_forged_models_are_refused(hidden: Path, tmp_path: Path) -> None:
    card, tensors = json.loads((hidden / CARD).read_text()), load((hidden / TENSORS).read_bytes())
    own = card["resnet18"]

    def refused(said: str, stated: Any, found: dict[str, torch.Tensor] | None = None) -> None:
        (tmp_path / CARD).write_text(json.dumps({**card, "resnet18": stated}))
        (tmp_path / TENSORS).write_bytes(save(found or tensors))
        with pytest.raises(errors.DataFormatError, match=said):
            read_model(tmp_path)

    refused("its tensor .* of shape", {**own, "width": 8})
    refused("width must be", {**own, "width": 0})
    refused("no network of width", {**own, "width": 1 << 20})
    refused("takes images of", {**own, "shape": [2, 8, 8]})
    refused("takes images of", {**own, "std": 0.0})
    refused("k", {**own, "instahide": {"k": 0, "c1": 0.65, "centre": 0.0}})
    refused("c1", {**own, "instahide": {"k": 4, "c1": 0.1, "centre": 0.0}})
    refused("more|unknown|not", {**own, "more": 1})
    refused("not those of a ResNet-18", own, {"0.weight": torch.zeros(2, 2)})
    refused("impossible values", own, {**tensors, "stem.weight": tensors["stem.weight"] * torch.nan})
    refused("impossible values", own, {**tensors, "stem_norm.running_var": -tensors["stem_norm.running_var"] - 1})
    refused("no class can be named", own, {**tensors, "head.bias": torch.full((10,), -torch.inf)})
    refused("is torch.float64", own, {**tensors, "head.bias": tensors["head.bias"].double()})
