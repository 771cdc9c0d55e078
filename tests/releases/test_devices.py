"""Noise is drawn on a GPU where that is asked for and can be; nothing else about a release changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import mixveil
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, Mu, Tau
from mixveil.data.row_views import OnDevice
from mixveil.encoders.laplace import Laplace
from mixveil.encoders.singular import Singular
from mixveil.releases import devices, records
from mixveil.releases.devices import Device, chosen
from mixveil.releases.reading import verify_release
from tests.made import images, range_facts, with_moments

DATA = images(30)
GAUSSIAN: Encoder = Singular().calibrate(Mu(1.0), range_facts(DATA))[0]
CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU and Triton, as far as `chosen` asks."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(devices, "available", lambda device: True)


def test_a_gpu_is_refused_where_there_is_none(
    tmp_path: Path, own_state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ArgumentError, match="device = cuda: torch finds no GPU"):
        mixveil.encode("digits", tmp_path / "r", mu=1.0, device="cuda")
    assert not (tmp_path / "r").exists()
    assert not own_state_folder.exists()


def test_another_device_is_refused() -> None:
    other: Any = "tpu"
    with pytest.raises(ArgumentError, match="device must be cpu or cuda, got 'tpu'"):
        chosen(other, DATA, GAUSSIAN)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("device", "lie", "goes"),
    [(None, CPU, None), ("cpu", CPU, None), ("cuda", CPU, GPU), (None, torch.device("meta"), CPU)],
)
def test_rows_go_where_they_are_asked_to_or_stay(
    device: Device | None, lie: torch.device, goes: torch.device | None
) -> None:
    assert chosen(device, OnDevice(DATA, lie), GAUSSIAN) == (goes, [])


@pytest.mark.usefixtures("gpu")
def test_noise_that_is_not_gaussian_has_no_gpu() -> None:
    facts = with_moments(range_facts(DATA), energy=1.0, lambda_max=0.5)
    sphere = Singular(noise="sphere").calibrate(Tau(0.5, "energy"), facts)[0]
    for encoder in (Laplace.example(), sphere):
        with pytest.raises(ArgumentError, match="is for Gaussian noise"):
            chosen("cuda", DATA, encoder)
        assert chosen(None, DATA, encoder) == (None, [])


@pytest.mark.usefixtures("gpu")
def test_without_triton_the_cpu_draws_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "available", lambda device: False)
    where, (told,) = chosen("cuda", DATA, GAUSSIAN)
    assert where == CPU and told.code == "encoded-without-triton"


def test_a_release_of_brought_rows_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(name: str) -> dict[str, Any]:
        records.write_release(tmp_path / name, DATA, GAUSSIAN, (), party="p", stream=SeededStream(1))
        verify_release(tmp_path / name)
        manifest = json.loads((tmp_path / name / "manifest.json").read_text())
        return {key: value for key, value in manifest.items() if key not in ("id", "created")}

    plain = made("plain")
    monkeypatch.setattr(records, "chosen", lambda *_: (CPU, []))
    assert made("brought") == plain


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_release_made_on_a_gpu_is_verified_and_does_not_say_so(tmp_path: Path) -> None:
    stated = []
    for device in ("cpu", "cuda"):
        written = records.write_release(
            tmp_path / device, DATA, GAUSSIAN, (), party="p", stream=SeededStream(1), device=device
        )
        assert verify_release(tmp_path / device).rows == 30
        stated.append((written.settings, written.guarantees, written.assets))
    assert stated[0] == stated[1]
