"""`mixveil.prepare` as a whole: the settings for rounds and the name of the public data that a projection carries."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch

import mixveil
from mixveil.core.types import Progress
from mixveil.core.watching import unwatched
from mixveil.data.opening import DataSpec, open_data
from mixveil.features import projection_file
from mixveil.features.projection import Projection
from mixveil.learn import public_tasks
from tests.made import blobs, features_of


def written(path: Path) -> Projection:
    return projection_file.read(path)[0]


def test_settings_are_found_for_the_directions_that_are_kept(tmp_path: Path) -> None:
    made = mixveil.prepare("digits:test", tmp_path / "p", backbone="none", directions=20)
    settings = written(tmp_path / "p").rounds
    assert settings == made.projection.rounds == public_tasks.find(features_of(open_data("digits:test")), most=20)
    assert tuple(item.noise for item in settings) == public_tasks.LEVELS
    assert max(item.directions for item in settings) <= 20


def test_the_rule_for_a_job_leaves_settings_for_every_level(tmp_path: Path) -> None:
    made = mixveil.prepare("digits:test", tmp_path / "p", backbone="none", mu=2.0, parties=3, rows=900, num_classes=10)
    assert len(made.projection.rounds) == len(public_tasks.LEVELS)
    assert max(item.directions for item in made.projection.rounds) <= made.projection.dimension < 64


def test_named_public_data_are_named_and_paths_are_not(tmp_path: Path) -> None:
    assert mixveil.prepare("digits:test", tmp_path / "p", backbone="none").projection.about["public"] == "digits:test"
    data = blobs(60, 1)
    x = data.take(torch.arange(len(data))).x
    np.savez(tmp_path / "secret-name.npz", x=x.numpy(), y=data.labels.numpy())
    specs: list[DataSpec] = [tmp_path / "secret-name.npz", str(tmp_path / "secret-name.npz"), data]
    for number, public in enumerate(specs):
        mixveil.prepare(public, tmp_path / f"q{number}", backbone="none")
        assert "public" not in written(tmp_path / f"q{number}").about
        assert b"secret-name" not in (tmp_path / f"q{number}").read_bytes()


def test_private_data_give_neither_settings_nor_a_name(tmp_path: Path) -> None:
    found = mixveil.prepare("digits:test", tmp_path / "p", backbone="none", private=True).projection
    assert found.rounds == () and "public" not in found.about


def test_too_few_classes_have_no_settings(tmp_path: Path) -> None:
    assert mixveil.prepare(blobs(60, 1), tmp_path / "p", backbone="none").projection.rounds == ()


def test_the_search_shows_its_progress(tmp_path: Path) -> None:
    bars: list[str] = []

    def watch(what: str, total: int) -> AbstractContextManager[Progress]:
        bars.append(what)
        return unwatched(what, total)

    mixveil.prepare(blobs(80, 1, classes=4), tmp_path / "p", backbone="none", watch=watch)
    assert bars.count("settings") == 1
