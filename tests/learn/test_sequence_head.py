"""Networks on images that are plain sequences of layers: round trips, what is named, and what others may forge."""

from __future__ import annotations

import copy
import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

import mixveil
from mixveil.core import errors
from mixveil.core.device_random import DeviceStream
from mixveil.core.randomness import SeededStream
from mixveil.data.images import from_tensors
from mixveil.features.extractor import Extractor
from mixveil.features.split.layers import BatchNorm
from mixveil.learn import sequence_head
from mixveil.learn.model import CARD, TENSORS, read_model, write_model
from mixveil.learn.sequence_head import ImageSequence, SequenceHead
from mixveil.learn.training import Trained
from tests.forged.forge import drawn, forged_bytes, forged_json
from tests.made import features_of, images

CLASSES = tuple("abcd")


def draws(seed: int = 0) -> DeviceStream:
    return DeviceStream(SeededStream(seed))


def trained(head: SequenceHead) -> Trained:
    return Trained(head, {"head": "lenet5"}, CLASSES, Extractor(), None, None, (), {}, {}, False)


def lenet() -> ImageSequence:
    """One that names several classes: its first weights alone name one."""
    model = ImageSequence.of("lenet5", (1, 8, 8), 4, draws=draws())
    x = images(30, (1, 8, 8)).take(torch.arange(30)).x.flatten(1)
    with torch.no_grad():
        model.get_parameter("net.scores.bias").sub_(model(x).mean(0))
    return model


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "m"
    write_model(out, trained(lenet().head()), None, {})
    return out


def test_flat_rows_are_seen_as_images() -> None:
    model = ImageSequence.of("convnet", (3, 16, 16), 5, draws=draws())
    x = SeededStream(1).uniform(6, 3, 16, 16).float()
    assert torch.equal(model(x.flatten(1), 6), model.net(x))
    again = ImageSequence.of("convnet", (3, 16, 16), 5, draws=draws())
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    other = ImageSequence.of("convnet", (3, 16, 16), 5, draws=draws(1))
    assert not torch.equal(next(model.parameters()), next(other.parameters()))


def test_a_network_is_written_and_read_as_it_is(written: Path) -> None:
    model, data = lenet(), images(30, (1, 8, 8))
    read = read_model(written)
    assert isinstance(read.head, SequenceHead) and read.head.shape == (1, 8, 8) and read.head.inputs == 64
    for name, tensor in model.net.state_dict().items():
        assert torch.equal(read.head.net.state_dict()[name], tensor)
    wanted = model(data.take(torch.arange(30)).x.flatten(1)).argmax(1)
    assert torch.equal(read.head.named(features_of(data)), wanted)
    found = mixveil.predict(written, data)
    assert [CLASSES.index(name) for name in found.classes] == wanted.tolist() and len({*found.classes}) > 1
    with pytest.raises(errors.MismatchError, match="network on images"):
        _ = read.layers
    with pytest.raises(errors.MismatchError, match="network on images"):
        model.layers()


def test_a_head_is_a_copy_of_what_was_trained() -> None:
    model = ImageSequence.of("lenet5", (1, 8, 8), 4, draws=draws())
    head, before = model.head(), next(model.parameters()).detach().clone()
    with torch.no_grad():
        next(model.parameters()).add_(1)
    assert torch.equal(next(head.net.parameters()), before)
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    with pytest.raises(errors.TrainingError, match="not finite"):
        model.head()


def test_images_that_it_does_not_take_are_refused(written: Path) -> None:
    with pytest.raises(errors.MismatchError, match=r"takes images of \(1, 8, 8\)"):
        mixveil.predict(written, from_tensors(torch.zeros(4, 1, 4, 16), torch.arange(4)))
    with pytest.raises(errors.MismatchError, match="encodings are for"):
        mixveil.predict(written, images(4, (1, 8, 8)), encodings=2)
    with pytest.raises(errors.ArgumentError, match="network must be one of"):
        ImageSequence.of("resnet", (1, 8, 8), 4, draws=draws())


def test_a_network_too_large_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.ArgumentError, match="weights, and"):
        ImageSequence.of("lenet5", (1, 1500, 1500), 4, draws=draws())
    with pytest.raises(errors.MismatchError):
        ImageSequence.of("convnet", (1, 1 << 20, 1 << 20), 4, draws=draws())
    monkeypatch.setattr(sequence_head, "MOST_WEIGHTS", 1000)
    with pytest.raises(errors.ArgumentError, match="1,000 is the most"):
        ImageSequence.of("lenet5", (1, 8, 8), 4, draws=draws())


def test_forged_models_are_refused(written: Path, tmp_path: Path) -> None:
    card, tensors = json.loads((written / CARD).read_text()), load((written / TENSORS).read_bytes())
    own = card["network"]

    def refused(said: str, stated: Any, found: dict[str, Tensor] | None = None, **more: Any) -> None:
        (tmp_path / CARD).write_text(json.dumps({**card, "network": stated, **more}))
        (tmp_path / TENSORS).write_bytes(save(found or tensors))
        with pytest.raises(errors.DataFormatError, match=said):
            read_model(tmp_path)

    refused("no network takes images of", {**own, "shape": [64]})
    refused("no network takes images of", {**own, "shape": [1, 1 << 20, 1 << 20]})
    refused("shape must be", {**own, "shape": [1, -8, 8]})
    refused("does not take", {**own, "shape": [3, 8, 8]})
    refused("does not take", {**own, "shape": [1, 16, 16]})
    refused("more|unknown|not", {**own, "more": 1})
    refused("layers", {"shape": [1, 8, 8]})
    refused("layer must be one of", {**own, "layers": [{"name": "a", "layer": "lambda"}]})
    refused("classes", {**own, "layers": own["layers"][:-1]})
    wide = {"name": "w", "layer": "linear", "in_features": 4, "out_features": 1 << 16, "bias": 1}
    narrow = {"name": "v", "layer": "linear", "in_features": 1 << 16, "out_features": 1 << 16, "bias": 1}
    refused("not those of its layers|multiply-adds|classes", {**own, "layers": [*own["layers"], wide, narrow]})
    refused("two networks", own, resnet18={})
    refused("images and features", own, extractor={**card["extractor"], "names": ["mobilenet_v2"]})
    refused("not those of its layers", own, {"0.weight": torch.zeros(2, 2)})
    refused("impossible values", own, {**tensors, "scores.bias": tensors["scores.bias"] * torch.nan})
    refused("float64", own, {**tensors, "scores.bias": tensors["scores.bias"].double()})
    refused("of shape", own, {**tensors, "scores.bias": torch.zeros(5)})


def test_a_negative_variance_is_refused() -> None:
    net = nn.Sequential(OrderedDict(norm=BatchNorm(1), flat=nn.Flatten(), scores=nn.Linear(16, 4)))
    head = SequenceHead(net.eval(), (1, 4, 4))
    plain, tensors = head.plain(), head.tensors()
    assert isinstance(SequenceHead.read(plain, tensors, 4), SequenceHead)
    with pytest.raises(errors.ManifestError, match="impossible values"):
        SequenceHead.read(plain, {**tensors, "norm.running_var": -torch.ones(1)}, 4)


def test_forgeries_by_chance_are_refused_or_usable(written: Path, tmp_path: Path) -> None:
    card, data, rows, read = (written / CARD).read_text(), (written / TENSORS).read_bytes(), images(3, (1, 8, 8)), 0
    for number in range(60):
        draw = drawn(f"network {number}")
        forge = number % 2
        (tmp_path / CARD).write_text(card if forge else forged_json(card, draw), errors="surrogatepass")
        (tmp_path / TENSORS).write_bytes(forged_bytes(data, draw) if forge else data)
        try:
            found = read_model(tmp_path)
        except errors.MixveilError:
            continue
        read += 1
        if isinstance(found.head, SequenceHead) and found.head.shape == rows.shape:
            assert len(copy.deepcopy(found.head).named(features_of(rows))) == 3
    assert 0 < read < 60
