"""`mixveil prepare --backbone best`: the networks at hand are compared, and the projection takes the best."""

from __future__ import annotations

from pathlib import Path

import pytest

import mixveil
from mixveil.features import projection_file
from mixveil.features.backbones.loading import KNOWN
from mixveil.learn import public_tasks
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


def test_settings_for_rounds_are_shown(run: Run, tmp_path: Path) -> None:
    job = ("prepare", "digits:test", "--backbone", "none", "--directions", 20)
    told = run(*job, "--out", "p", "--json")
    settings = projection_file.read(tmp_path / "p")[0].rounds
    assert told.code == 0 and told.json["settings"] == public_tasks.shown(settings)
    assert told.json["public"] == "digits:test" and len(settings) == len(public_tasks.LEVELS)
    shown = run(*job, "--out", "q").out
    assert "400,000" in shown and "391" in shown and f"{100 * settings[0].accuracy:.1f} %" in shown


def test_few_classes_have_no_settings_to_show(run: Run, data: Path) -> None:
    told = run("prepare", "public.npz", "--backbone", "none", "--out", "p")
    assert told.code == 0 and "No settings for rounds" in told.out
    assert run("prepare", "public.npz", "--backbone", "none", "--out", "q", "--json").json["settings"] == []


def test_a_path_to_a_file_of_the_shipped_name_is_that_file(run: Run, data: Path) -> None:
    assert run("prepare", "public.npz", "--backbone", "none", "--out", "photographs").code == 0
    job = ("statistics", "private.npz", "--mu", 1, "--classes", "0,1,2", "--projection", "./photographs")
    assert run(*job, "--out", "sums").code == 0
    more = ("directions", "sums", "--out", "narrow", "--json", "--projection")
    assert refused(run(*more, "photographs"), "MismatchError")
    assert run(*more, "./photographs").code == 0
