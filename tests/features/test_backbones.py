"""Networks under their files' key names. Real weights are not at hand in tests: shapes, keys, sizes and hashes are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mixveil.core.errors import ArgumentError, WeightsError
from mixveil.features import cache
from mixveil.features.backbones import loading
from mixveil.features.backbones.loading import KNOWN, load
from mixveil.features.backbones.resnet import Bottleneck
from mixveil.features.extractor import Extractor
from tests.made import images

# Parameters of the published networks, running statistics not counted: their own tables say so.
SIZES = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet50-keras": 25_557_032,
    "mobilenet_v2": 3_504_872,
    "efficientnet_lite0": 4_652_008,
    "efficientnet_lite1": 5_416_680,
    "efficientnet_lite2": 6_092_072,
}
KEYS = {
    "resnet18": "layer2.0.downsample.0.weight",
    "resnet50": "layer4.2.conv3.weight",
    "mobilenet_v2": "features.18.1.running_var",
    "efficientnet_lite0": "_blocks.15._project_conv.weight",
    "efficientnet_lite1": "_blocks.20._project_conv.weight",
    "efficientnet_lite2": "_blocks.20._bn2.weight",
}
WIDTHS = {"resnet18": 512, "resnet34": 512, "resnet50": 2048, "resnet50-keras": 2048}


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of every network with random weights."""
    (tmp_path / "weights").mkdir()
    for name in ("resnet18", "mobilenet_v2", "efficientnet_lite0"):
        torch.manual_seed(0)
        torch.save(KNOWN[name].make().state_dict(), tmp_path / "weights" / KNOWN[name].file)
        monkeypatch.setitem(KNOWN, name, replace(KNOWN[name], digest=""))
    return tmp_path


@pytest.mark.parametrize("name", KNOWN)
def test_the_networks_are_the_published_ones(name: str) -> None:
    net = KNOWN[name].make().eval()
    assert sum(p.numel() for p in net.parameters()) == SIZES[name]
    assert name not in KEYS or KEYS[name] in net.state_dict()
    with torch.inference_mode():
        maps = dict(net.maps(torch.rand(1, 3, 64, 64)))
    assert list(maps.values())[-1].shape == (1, WIDTHS.get(name, 1280), 2, 2)


def test_the_keras_variant_strides_early() -> None:
    net = KNOWN["resnet50-keras"].make()
    block = net.get_submodule("layer2.0")
    assert isinstance(block, Bottleneck) and block.conv1.stride == (2, 2) and block.conv2.stride == (1, 1)
    assert block.bn1.eps == 1e-3


def test_files_are_found_checked_and_refused(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load("resnet18", weights)
    assert len(loaded.digest) == 64 and not any(p.requires_grad for p in loaded.net.parameters())
    with pytest.raises(WeightsError, match="MIXVEIL_DATA"):
        load("resnet34", weights)
    with pytest.raises(WeightsError, match="no data folder"):
        load("resnet34", None)
    with pytest.raises(ArgumentError, match="'magic'"):
        load("magic", weights)
    monkeypatch.setitem(KNOWN, "resnet18", replace(KNOWN["resnet18"], digest="00000000"))
    with pytest.raises(WeightsError, match="SHA-256"):
        load("resnet18", weights)
    other = weights / "weights" / KNOWN["mobilenet_v2"].file
    other.write_bytes((weights / "weights" / KNOWN["efficientnet_lite0"].file).read_bytes())
    with pytest.raises(WeightsError, match="does not fit"):
        load("mobilenet_v2", weights)


def test_features_side_by_side_mirrored_and_of_a_stage(weights: Path) -> None:
    x = images(3, (1, 8, 8)).take(torch.arange(3)).x
    one, two, both = (
        cache.load(Extractor.parse(text, size=64), weights, "cpu")
        for text in ("mobilenet_v2", "efficientnet_lite0", "mobilenet_v2+efficientnet_lite0")
    )
    assert torch.allclose(both(x), torch.cat([one(x), two(x)], dim=1), atol=1e-5)
    mirrored = cache.load(Extractor.parse("mobilenet_v2", mirror=True, size=64), weights, "cpu")
    assert torch.allclose(mirrored(x), (one(x) + one(x.flip(3))) / 2, atol=1e-5)
    assert torch.allclose(mirrored(x), mirrored(x.flip(3)), atol=1e-5)
    stage = cache.load(Extractor.parse("resnet18", stage="layer3", size=64), weights, "cpu")
    assert stage(x).shape == (3, 256 * 4 * 4)
    with pytest.raises(ArgumentError, match="layer4, got 'layer9'"):
        cache.load(Extractor.parse("resnet18", stage="layer9", size=64), weights, "cpu")(x)
    assert len({loaded.digest for loaded in (one, two, both, mirrored, stage)}) == 5


def test_features_are_computed_once(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "CHUNK", 4)
    data = images(10, (1, 8, 8))
    loaded = cache.load(Extractor.parse("mobilenet_v2", size=32), weights, "cpu")
    found = cache.extract(data, loaded, tmp_path / "cache")
    straight = loaded(data.take(torch.arange(10)).x)
    assert torch.allclose(found.take(torch.tensor([7, 0])).x, straight[[7, 0]], rtol=2e-3, atol=1e-4)
    files = sorted((tmp_path / "cache" / "features").iterdir())
    assert len(files) == 3 and all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    monkeypatch.setattr(loading.Backbone, "map", lambda self, x, size, stage: 1 / 0)
    again = cache.extract(data, loaded, tmp_path / "cache")
    assert torch.equal(again.take(torch.arange(10)).x, found.take(torch.arange(10)).x)
    monkeypatch.undo()
    monkeypatch.setattr(cache, "CHUNK", 4)
    files[0].write_bytes(b"damaged")
    mended = cache.extract(data, loaded, tmp_path / "cache")
    assert torch.equal(mended.take(torch.arange(10)).x, found.take(torch.arange(10)).x)


def test_reading_touches_the_chunks_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "CHUNK", 4)
    data, met = images(10, (1, 2, 2)), []

    class Counted(torch.Tensor):
        def __getitem__(self, index: object) -> torch.Tensor:
            met.append(float(self.flatten().as_subclass(torch.Tensor)[0]))
            return self.as_subclass(torch.Tensor)[index]  # type: ignore[index]

    chunk = cache._chunk
    monkeypatch.setattr(cache, "_chunk", lambda *words: chunk(*words).as_subclass(Counted))
    found = cache.extract(data, cache.Loaded(Extractor(), (), torch.device("cpu")), None)
    index, x = torch.tensor([9, 0, 8, 1, 9]), data.take(torch.arange(10)).x.flatten(1)
    monkeypatch.setattr(cache, "CHUNK", 2048)
    assert torch.equal(found.take(index).x, x[index])
    assert met == [float(x[0, 0]), float(x[8, 0])]


def test_other_settings_and_other_weights_have_other_features(weights: Path, tmp_path: Path) -> None:
    """In one cache: what was kept for one network must never be read for another."""
    data, found = images(6, (1, 8, 8)), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        torch.save(KNOWN["resnet18"].make().state_dict(), weights / "weights" / KNOWN["resnet18"].file)
        for mirror in (False, True):
            loaded = cache.load(Extractor.parse("resnet18", mirror=mirror, size=32), weights, "cpu")
            found.append(cache.extract(data, loaded, tmp_path / "cache").take(torch.arange(6)).x)
    assert all(not torch.equal(found[i], found[j]) for i in range(4) for j in range(i))


def test_bad_extractors() -> None:
    with pytest.raises(ArgumentError, match="'magic'"):
        Extractor.parse("mobilenet_v2+magic")
    with pytest.raises(ArgumentError, match="mirrored"):
        Extractor.parse("none", mirror=True)
    assert str(Extractor.parse("resnet18+mobilenet_v2", mirror=True)) == "resnet18+mobilenet_v2, mirrored"
