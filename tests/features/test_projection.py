from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mixveil.core import tensor_files as tensors
from mixveil.core.errors import ArgumentError, DataFormatError, OutputExistsError, PrivateFactError, ProjectionError
from mixveil.core.randomness import SeededStream
from mixveil.data.images import from_tensors
from mixveil.features import projection, projection_file
from mixveil.features.projection import Projection, projected
from mixveil.features.projection_fit import directions_for_records, directions_for_sums, fit
from tests.made import blobs, features_of

WEIGHTS = "a" * 64


def fitted(n: int = 600, seed: int = 1) -> Projection:
    return fit(features_of(blobs(n, seed)), WEIGHTS)


def test_it_whitens_within_classes() -> None:
    data = features_of(blobs(3000, 1))
    found = fit(data, WEIGHTS)
    x = data.take(torch.arange(3000)).x.double()
    means = torch.stack([x[data.labels == c].mean(0) for c in range(3)])
    z = (x - x.mean(0)) @ found.matrix.double()
    left = z - torch.stack([z[data.labels == c].mean(0) for c in range(3)])[data.labels]
    spread = torch.cov((x - means[data.labels]).T, correction=0)
    ridge = 0.1 * float(spread.diagonal().mean())
    expected = found.matrix.double().T @ spread @ found.matrix.double()
    assert torch.allclose(left.T @ left / 3000, expected, atol=1e-5)
    whole = found.matrix.double().T @ (spread + ridge * torch.eye(6).double()) @ found.matrix.double()
    assert torch.allclose(whole, torch.eye(6).double(), atol=1e-5)


def test_its_first_directions_are_those_of_most_variance() -> None:
    """The first k numbers tell the k leading principal components, and nothing else."""
    data = features_of(blobs(800, 1))
    found = fit(data, WEIGHTS)
    x = data.take(torch.arange(800)).x.double()
    leading = torch.linalg.eigh(torch.cov(x.T, correction=0)).eigenvectors.flip(1)
    for k in (1, 3):
        span = torch.linalg.qr(found.first(k).matrix.double()).Q
        assert torch.allclose(span @ span.T @ leading[:, :k], leading[:, :k], atol=1e-4)


def test_separation_norms_and_clip_are_the_public_ones() -> None:
    data = features_of(blobs(900, 1))
    found = fit(data, WEIGHTS)
    z = (data.take(torch.arange(900)).x - found.mean) @ found.matrix
    means = torch.stack([z[data.labels == c].mean(0) for c in range(3)])
    pairs = [(means[a] - means[b]).square() for a in range(3) for b in range(3) if a != b]
    assert torch.allclose(found.separation, torch.stack(pairs).mean(0) - 2 / 300, atol=1e-3)
    assert found.first(2).clip == pytest.approx(float(z[:, :2].norm(dim=1).median()), rel=1e-2)
    inside = projected(features_of(blobs(50, 7)), WEIGHTS, found, certified=True).take(torch.arange(50)).x
    assert float(inside.norm(dim=1).max()) <= found.clip * (1 + 1e-6)
    assert not torch.equal(inside.norm(dim=1), torch.full((50,), found.clip))


def test_the_rule_takes_fewer_directions_the_more_noise_there_is() -> None:
    """Separation that fades with every direction: noise decides how many are worth it."""
    found = replace(
        fitted(),
        matrix=torch.eye(400),
        separation=4.0 * torch.arange(1, 401).float() ** -1.2,
        norms=torch.arange(1, 401).float().sqrt(),
    )
    job = {"rows": 10_000, "classes": 10}
    chosen = [directions_for_sums(found, parties=p, mu=mu, **job) for p, mu in ((1, 1.0), (10, 1.0), (100, 1.0))]
    assert 400 >= chosen[0] > chosen[1] > chosen[2] >= 1
    assert directions_for_sums(found, parties=1, mu=0.1, **job) == chosen[2]  # √P and 1/μ weigh the same
    assert directions_for_records(found, mu=1.0, alpha=0.55, **job) < chosen[0]
    noise = 10 * (2 * found.norms.double() / 1.0 / 1000).square()
    apart = found.separation.double().cumsum(0)
    worth = [float(a**2 / (a + 2 * (k + 1) * v)) for k, (a, v) in enumerate(zip(apart, noise, strict=True))]
    assert chosen[1] == worth.index(max(worth)) + 1


def test_the_clip_norm_in_new_directions_is_a_public_quantile() -> None:
    found = fitted()
    directions = torch.linalg.qr(SeededStream(1).normal(6, 2)).Q.float()
    along = found.along(directions, torch.zeros(3, 6).double(), torch.ones(3).double(), ("a", "b", "c"), ())
    norms = (found.sample.float() @ directions).norm(dim=1)
    assert along.clip == pytest.approx(float(norms.quantile(0.7)))
    assert along.classes == ("a", "b", "c") and along.dimension == 2


def test_it_is_written_and_read_as_it_is(tmp_path: Path) -> None:
    found = fitted()
    digest = projection_file.write(tmp_path / "p", found)
    again, same = projection_file.read(tmp_path / "p")
    assert digest == same == found.digest() == again.digest()
    assert torch.equal(again.matrix, found.matrix) and again.clip == found.clip and again.extractor == found.extractor
    with pytest.raises(OutputExistsError):
        projection_file.write(tmp_path / "p", found)


def test_a_damaged_projection_is_refused(tmp_path: Path) -> None:
    projection_file.write(tmp_path / "p", fitted())
    (tmp_path / "none").write_bytes(b"no")
    save_file({"x": torch.ones(1)}, tmp_path / "shard")
    for name in ("none", "shard"):
        with pytest.raises(DataFormatError, match="not a projection"):
            projection_file.read(tmp_path / name)
    tensors = load_file(tmp_path / "p")
    settings = json.loads(fitted_header(tmp_path / "p")["mixveil"])
    for name, (changed, header) in {
        "clip": ({}, {**settings, "clip": -1.0}),
        "nan": ({"mean": tensors["mean"] * math.nan}, settings),
        "shape": ({"norms": tensors["norms"][:-1].contiguous()}, settings),
        "dtype": ({"matrix": tensors["matrix"].double()}, settings),
        "prints": ({"prints": tensors["prints"].float()}, settings),
        "precision": ({"precision": torch.tensor(1.0)}, settings),
        "a clip beyond float32": ({}, {**settings, "clip": 1e39}),
        "a negative cost": ({}, {**settings, "spent": [["1" * 32, "p", -1.0]]}),
        "backbone": ({}, {**settings, "extractor": {**settings["extractor"], "names": ["magic"]}}),
        "more": ({}, {**settings, "more": 1}),
    }.items():
        save_file({**tensors, **changed}, tmp_path / name, {"mixveil": json.dumps(header)})
        with pytest.raises(DataFormatError):
            projection_file.read(tmp_path / name)
    save_file(tensors, tmp_path / "future", {"mixveil": json.dumps({**settings, "version": 9})})
    with pytest.raises(DataFormatError, match="version"):
        projection_file.read(tmp_path / "future")


def test_a_projection_that_is_replaced_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = tmp_path / "p", tmp_path / "other"
    digest = projection_file.write(path, fitted())
    projection_file.write(other, replace(fitted(), clip=0.125))
    check = tensors.check_header

    def replaced(*args: Any, **options: Any) -> None:
        check(*args, **options)
        other.rename(path)

    monkeypatch.setattr(projection_file, "check_header", replaced)
    found, hashed = projection_file.read(path)
    assert hashed == digest == found.digest() and not other.exists()


def fitted_header(path: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return dict(file.metadata())


def test_whose_images_were_fitted_can_be_seen_and_stops_nothing() -> None:
    """Whoever wrote the fingerprints would learn from a refusal whether an image is among the records."""
    own = features_of(blobs(60, 5))
    assert projection.shared(fit(own, WEIGHTS), own.rows) == 60
    assert projection.shared(fit(features_of(blobs(60, 6)), WEIGHTS), own.rows) == 0
    assert len(projected(own, WEIGHTS, fit(own, WEIGHTS), certified=True)) == 60
    private = fit(features_of(blobs(60, 6)), WEIGHTS, origin="private")
    with pytest.raises(PrivateFactError, match="private data"):
        projected(own, WEIGHTS, private, certified=True)
    assert len(private.sample) == len(private.prints) == 0  # it may be sent: no record goes with it
    assert projection.shared(private, features_of(blobs(60, 6)).rows) == 0
    with pytest.raises(ArgumentError, match="fitted on private data"):
        private.along(torch.eye(6)[:, :2], torch.zeros(3, 6).double(), torch.ones(3).double(), ("a", "b", "c"), ())


def test_what_does_not_go_through_it_is_refused() -> None:
    with pytest.raises(ProjectionError, match="these are of none"):
        projected(features_of(blobs(9, 5)), "b" * 64, fitted(), certified=True)
    other = from_tensors(torch.zeros(9, 1, 4, 4), torch.arange(9) % 3)
    with pytest.raises(ProjectionError, match="these images have 16"):
        projected(features_of(other), WEIGHTS, fitted(), certified=True)


def test_no_projection_makes_a_record_fail() -> None:
    """A server may send any: from nothing that happens may it learn of a record."""
    wicked = fitted()
    matrix = wicked.matrix.clone()
    matrix[:, 0] = 3.4e38
    wicked = replace(wicked, matrix=matrix, mean=torch.full((6,), -3.4e38))
    features = torch.cat(
        [SeededStream(0).uniform(20, 6).float(), torch.full((1, 6), torch.inf), torch.full((1, 6), torch.nan)]
    )
    z = wicked(features)
    assert bool(z.isfinite().all()) and float(z.norm(dim=1).max()) <= wicked.clip * (1 + 1e-6)
    beyond = replace(wicked, clip=1e39)
    assert bool(beyond(features).isfinite().all())


def test_what_cannot_be_fitted_is_refused() -> None:
    flat = from_tensors(torch.full((10, 1, 2, 3), 0.5), torch.arange(10) % 2)
    with pytest.raises(ArgumentError, match="do not vary"):
        fit(features_of(flat), WEIGHTS)
    one = from_tensors(SeededStream(0).uniform(10, 1, 2, 3).float(), torch.zeros(10).long())
    with pytest.raises(ArgumentError, match="two classes"):
        fit(features_of(one), WEIGHTS)
    assert fit(features_of(one), WEIGHTS, whitening="total").dimension == 6
    with pytest.raises(ArgumentError, match=r"\bk\b.* 7"):
        fitted().first(7)
    with pytest.raises(ArgumentError, match=r"\bk\b"):
        directions_for_sums(fit(features_of(one), WEIGHTS, whitening="total"), parties=1, rows=9, classes=2, mu=1.0)
