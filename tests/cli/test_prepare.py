"""`mixveil prepare --backbone best`: the networks at hand are compared, and the projection takes the best."""

from __future__ import annotations

from pathlib import Path

import pytest

import mixveil
from mixveil.features.backbones.loading import KNOWN
from tests.command import Run, refused


@pytest.fixture
def alone(data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No network at hand but `tiny`, whatever packages are installed."""
    for name in set(KNOWN) - {"tiny"}:
        monkeypatch.delitem(KNOWN, name)
    return data


def test_the_best_network_is_taken(run: Run, alone: Path) -> None:
    told = run("prepare", "public.npz", "--backbone", "best", "--mirror", "--out", "p", "--json")
    assert told.code == 0, told.err
    found = told.json["comparison"]
    assert found["best"]["names"] == ["tiny"] and found["candidates"] == [found["best"]]
    assert (found["learnt"], found["tested"]) == (21, 19) and told.json["backbone"] == "tiny, mirrored"
    named = run("prepare", "public.npz", "--backbone", "tiny", "--mirror", "--out", "q", "--json").json
    assert named["comparison"] is None and (alone / "p").read_bytes() == (alone / "q").read_bytes()
    shown = run("prepare", "public.npz", "--backbone", "best", "--out", "r")
    assert shown.code == 0 and "taken" in shown.out and "21 of the images" in shown.out
    assert mixveil.prepare("public.npz", alone / "s", backbone="best").comparison is not None


def test_what_best_cannot_do(run: Run, alone: Path) -> None:
    job = ("prepare", "public.npz", "--backbone", "best", "--out", "p")
    assert refused(run(*job, "--stage", "head", "--json"), "ArgumentError")
    (alone / "data" / "weights" / "tiny.pth").unlink()
    assert refused(run(*job, "--json"), "WeightsError")
    assert not (alone / "p").exists()
