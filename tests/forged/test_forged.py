"""A thousand forged releases, statistics, models and projections: each is refused by a typed error that is one
printable line, or it reads, and then every figure in it is finite and it can be used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mixveil.cli import _release
from mixveil.core.errors import MixveilError
from mixveil.features import projection_file
from mixveil.learn.class_means import directions
from mixveil.learn.model import read_model
from mixveil.learn.training import opened, train
from mixveil.releases.reading import read_release, verify_release
from tests.forged.forge import agreeing, drawn, forged_bytes, forged_json
from tests.forged.honest import SHARD, SUMS, TENSORS, check_finite, copied
from tests.made import blobs, features_of, images


def check_message(error: MixveilError, case: object) -> None:
    text = str(error)
    assert text.isprintable() and 0 < len(text) < 2000, (case, text[:200])


def tried(case: object, read: Callable[[], Any], use: Callable[[Any], None]) -> bool:
    """Whether it was read; what may be refused is checked, and everything else is a failure."""
    try:
        found = read()
        check_finite(found, case)
    except MixveilError as error:
        check_message(error, case)
        return False
    try:
        use(found)
    except MixveilError as error:
        check_message(error, case)
    return True


def check_shown(capsys: pytest.CaptureFixture[str], case: object) -> None:
    said = capsys.readouterr()
    assert all(c.isprintable() or c == "\n" for c in said.out + said.err), case
    assert not any(line.startswith("verified") for line in said.out.splitlines()), case


CHUNK = 100
SUMMED = ("statistics", "persons", "residuals")


@pytest.mark.parametrize("chunk", range(4))
def test_releases(honest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], chunk: int) -> None:
    read = 0
    for number in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        draw = drawn(f"release {number}")
        folder = copied(honest, f"release-{number % 6}", tmp_path / "r")
        shard, manifest = folder / SHARD, folder / "manifest.json"
        text = manifest.read_text()
        if number % 3 == 2:
            data = forged_bytes(shard.read_bytes(), draw)
            shard.write_bytes(data)
            text = agreeing(text, data, "files", 0) if draw.random() < 0.8 else text
        else:
            text = forged_json(text, draw)
        manifest.write_text(text, errors="surrogatepass")

        def use(_: Any, folder: Path = folder) -> None:
            _release.show(folder, verify_release(folder))
            check_finite(train(opened([folder])).layers, folder)

        read += tried(f"release {number}", lambda folder=folder: read_release(folder), use)  # type: ignore[misc]
        check_shown(capsys, number)
    assert 0 < read < CHUNK


@pytest.mark.parametrize("chunk", range(2))
def test_statistics(honest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], chunk: int) -> None:
    base, read = projection_file.read(honest / "projection"), 0
    for number in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        draw = drawn(f"statistics {number}")
        folder = copied(honest, SUMMED[number // 3 % 3], tmp_path / "s")
        sums, manifest = folder / SUMS, folder / "manifest.json"
        text = manifest.read_text()
        if number % 3 == 2:
            data = forged_bytes(sums.read_bytes(), draw)
            sums.write_bytes(data)
            text = agreeing(text, data, "files", 0)
        else:
            text = forged_json(text, draw)
        manifest.write_text(text, errors="surrogatepass")

        def use(found: Any, folder: Path = folder) -> None:
            _release.show(folder, found.envelope)
            check_finite(train(opened([folder], base)).layers, folder)
            check_finite(directions([found], *base), folder)

        read += tried(f"statistics {number}", lambda folder=folder: read_release(folder), use)  # type: ignore[misc]
        check_shown(capsys, number)
    assert 0 < read < CHUNK


@pytest.mark.parametrize("chunk", range(2))
def test_models(honest: Path, tmp_path: Path, chunk: int) -> None:
    features, read = features_of(images(6)), 0
    for number in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        draw = drawn(f"model {number}")
        folder = copied(honest, "model", tmp_path / "m")
        card, tensors = folder / "card.json", folder / TENSORS
        if number % 2:
            tensors.write_bytes(forged_bytes(tensors.read_bytes(), draw))
        else:
            card.write_text(forged_json(card.read_text(), draw), errors="surrogatepass")

        def use(found: Any, case: int = number) -> None:
            if found.layers.inputs == features.shape[0]:
                assert len(found.layers.named(features)) == 6, case

        read += tried(f"model {number}", lambda folder=folder: read_model(folder), use)  # type: ignore[misc]
    assert 0 < read < CHUNK


@pytest.mark.parametrize("chunk", range(2))
def test_projections(honest: Path, tmp_path: Path, chunk: int) -> None:
    rows, read = features_of(blobs(12, 3)), 0
    x = rows.take(torch.arange(12)).x
    part = read_release(honest / "statistics")
    for number in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        draw = drawn(f"projection {number}")
        path = tmp_path / f"p{number}"
        data = (honest / ("directions" if number % 2 else "projection")).read_bytes()
        if number % 3 == 2:
            data = forged_bytes(data, draw)
        else:
            length = int.from_bytes(data[:8], "little")
            whole = json.loads(data[8 : 8 + length])
            settings = forged_json(whole["__metadata__"]["mixveil"], draw)
            whole["__metadata__"]["mixveil"] = settings
            text = json.dumps(whole).encode()
            data = len(text).to_bytes(8, "little") + text + data[8 + length :]
        path.write_bytes(data)

        def use(found: Any, case: int = number, tmp: Path = tmp_path) -> None:
            projected, digest = found
            if projected.mean.numel() == x.shape[1]:
                z = projected(x)
                assert bool(z.isfinite().all()) and float(z.double().norm(dim=1).max()) <= projected.clip * (1 + 1e-6)
            assert projected.first(1).dimension == 1
            mine = part.with_(assets={"projection": digest}, clip=projected.clip)
            projection_file.write(tmp / f"d{case}", directions([mine], projected, digest))
            check_finite(projection_file.read(tmp / f"d{case}")[0], case)

        read += tried(f"projection {number}", lambda path=path: projection_file.read(path), use)  # type: ignore[misc]
    assert 0 < read < CHUNK
