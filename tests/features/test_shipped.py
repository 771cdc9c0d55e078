"""The projection that comes with mixveil: it is whole, of the network that it names, installed, and has a name."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
import torch

import mixveil
from mixveil.core.errors import MismatchError, MixveilError
from mixveil.data.images import Images
from mixveil.data.opening import DataOptions
from mixveil.features import projection_file, shipped
from mixveil.features.backbones import loading
from mixveil.features.extractor import Extractor
from mixveil.features.opening import FeatureOptions
from mixveil.features.projection import Projection
from mixveil.learn import public_tasks
from tests.made import images

DATA = Path(os.environ["MIXVEIL_DATA"]) if os.environ.get("MIXVEIL_DATA") else None
FILE = shipped.located(shipped.PHOTOGRAPHS)


@pytest.fixture(scope="module")
def photographs() -> Projection:
    return projection_file.read(FILE)[0]


def test_it_is_public_and_says_what_it_was_fitted_on(photographs: Projection) -> None:
    assert photographs.origin == "public" and photographs.spent == () and photographs.classes == ()
    about = {"public": "tiny-imagenet:train", "rows": "20000", "classes": "200"}
    assert about.items() <= photographs.about.items()
    assert len(photographs.prints) == 20_000 and len(photographs.sample) == 2_000
    assert photographs.matrix.shape == (1280, 512) and FILE.stat().st_size < 5 << 20
    assert photographs.extractor == Extractor(("efficientnet_lite0",), mirror=True)


def test_it_has_settings_for_every_level_of_noise(photographs: Projection) -> None:
    assert tuple(item.noise for item in photographs.rounds) == public_tasks.LEVELS
    assert max(item.directions for item in photographs.rounds) <= photographs.dimension
    assert photographs.rounds[0].accuracy > photographs.rounds[-1].accuracy


def test_its_directions_are_whitened(photographs: Projection) -> None:
    """Classes are shared out by the sample: its numbers vary by about one within a class, a little more in all."""
    spread = photographs.sample.float().var(0)
    assert float(spread.min()) > 0.5 and float(spread[64:].max()) < 2
    norms = photographs.sample.float().square().cumsum(1).sqrt().median(0).values
    assert torch.allclose(norms, photographs.norms, rtol=1e-2)
    assert photographs.clip == pytest.approx(float(photographs.norms[-1]))


@pytest.mark.skipif("efficientnet_lite0" not in loading.at_hand(DATA), reason="no weights of EfficientNet-Lite0 here")
def test_its_network_is_the_one_that_is_loaded(photographs: Projection) -> None:
    assert FeatureOptions(DataOptions(data_dir=DATA)).load(photographs.extractor).digest == photographs.weights


def test_it_is_installed() -> None:
    """Every pattern of the package's data is followed by setuptools; this one finds the file."""
    root = Path(mixveil.__file__).parent
    whole = tomllib.loads((root.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = whole["tool"]["setuptools"]["package-data"]["mixveil"]
    assert FILE in {path for pattern in patterns for path in root.glob(pattern)}
    assert all(list(root.glob(pattern)) for pattern in patterns)


def test_the_bare_name_is_the_shipped_one_and_a_path_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, photographs: Projection
) -> None:
    monkeypatch.chdir(tmp_path)
    own = projection_file.write(Path("photographs"), photographs.first(3))
    assert projection_file.read(shipped.located("photographs"))[0].dimension == 512
    for path in ("./photographs", Path("photographs"), tmp_path / "photographs"):
        assert projection_file.read(shipped.located(path))[1] == own


def test_jobs_know_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job that takes a projection reads the shipped one; which network it asks for is seen before any runs."""
    asked: list[Extractor] = []

    def opened(self: FeatureOptions, data: Images, extractor: Extractor) -> None:
        asked.append(extractor)
        raise MixveilError("enough")

    monkeypatch.setattr(FeatureOptions, "open", opened)
    for job in (mixveil.statistics, mixveil.encode):
        with pytest.raises(MixveilError, match="enough"):
            job(images(), tmp_path / "out", projection="photographs", mu=1.0)
    assert asked == [Extractor(("efficientnet_lite0",), mirror=True)] * 2
    monkeypatch.undo()
    monkeypatch.setenv("MIXVEIL_STATE", str(tmp_path / "state"))
    mixveil.prepare(images(40), tmp_path / "p", backbone="none")
    mixveil.statistics(images(30, seed=2), tmp_path / "sums", projection=tmp_path / "p", mu=1.0)
    with pytest.raises(MismatchError):
        mixveil.directions([tmp_path / "sums"], tmp_path / "narrow", projection="photographs")
    with pytest.raises(MismatchError):
        mixveil.train([tmp_path / "sums"], tmp_path / "model", projection="photographs")
