from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mixveil.core import errors
from mixveil.core.randomness import SecureStream, SeededStream, Stream
from mixveil.core.types import Batch, Fact, Facts, Mu, Release
from mixveil.data.opening import Images, from_tensors
from mixveil.encoders.singular import Singular
from mixveil.features.cache import Features
from mixveil.features.projection import Projected, Projection
from mixveil.features.projection_fit import fit
from mixveil.learn.class_means import class_means, directions
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.sums import sums_of
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_release
from mixveil.releases.sums import class_sums, write_statistics
from tests.made import blobs, features_of
from tests.membership import likelihood_ratio, refutes

WEIGHTS, DIGEST = "a" * 64, "b" * 64


def base() -> Projection:
    return fit(features_of(blobs(600, 1)), WEIGHTS)


def made(n: int, seed: int, mu: float, *, stream: Stream | None = None, party: str = "p") -> Release:
    rows = Projected(features_of(blobs(n, seed)), base())
    return class_sums(rows, DIGEST, mu, party=party, stream=stream or SeededStream(seed))


def test_the_sums_are_those_of_clipped_records_and_noise_of_the_stated_size() -> None:
    rows = Projected(features_of(blobs(300, 2)), base())
    clip = rows.projection.clip
    z = rows.take(torch.arange(300)).x.double()
    truth = torch.stack([z[rows.labels == c].sum(0) for c in range(3)])
    noise = torch.stack([made(300, 2, 0.5, stream=SeededStream(s)).payload - truth for s in range(300)])
    sigma = 2 * clip / 0.5
    assert float(noise.std()) == pytest.approx(sigma, rel=0.03)
    assert float(noise.mean().abs()) < 5 * sigma / math.sqrt(noise.numel())
    assert sums_of(made(300, 2, 0.5)).counts == (100, 100, 100)


# The guarantee, against the best attacker


def ball(points: Tensor, labels: Tensor, units: tuple[str, ...] | None = None) -> Features:
    data: Images = from_tensors(points.float().view(len(points), 1, 1, 4), labels, classes=int(labels.max()) + 1)
    return features_of(replace(data, low=-1e9, high=1e9, units=units))


def identity() -> Projection:
    """Four numbers as they are, clipped to norm 1."""
    eye = torch.eye(4)
    sample = SeededStream(0).normal(64, 4).half() * 0.4
    ones = torch.ones(4)
    return replace(base(), mean=0 * ones, matrix=eye, clip=1.0, sample=sample, separation=ones, norms=ones)


def sum_scores(
    mu: float, actual: float, length: float = 1.0, repetitions: int = 20_000, each: int = 1, named: bool = True
) -> tuple[Tensor, Tensor]:
    """Scores of the optimal test: every class is one repetition, with one person's records ±u in it, `each` of them.
    named: whether it is said that they are one person's."""
    direction = torch.tensor([0.5, -0.5, 0.5, 0.5])
    found = []
    for sign in (1, -1):
        points = (sign * length * direction).expand(each * repetitions, 4)
        units = tuple(str(i // each) for i in range(each * repetitions)) if each > 1 and named else None
        rows = Projected(ball(points, torch.arange(each * repetitions) // each, units), identity())
        sums = class_sums(rows, DIGEST, actual, party="p", stream=SecureStream()).payload
        found.append(sums @ direction.double() * 2 * each / (2 * each / mu) ** 2)
    return found[0], found[1]


def test_20_000_repetitions_of_the_optimal_test_against_the_sums() -> None:
    members, others = sum_scores(1.0, 1.0)
    assert not refutes(members, others, mu=1.0)
    assert refutes(members, others, mu=0.8) and refutes(members, others, mu=0.5)
    assert not refutes(*sum_scores(1.0, 1.0, length=7.0), mu=1.0)  # longer records are clipped
    assert refutes(*sum_scores(1.0, 2.0), mu=1.0)  # a planted lie: half the noise


def test_the_optimal_test_against_a_patient_with_three_images() -> None:
    members, others = sum_scores(1.0, 1.0, each=3, repetitions=8000)
    assert not refutes(members, others, mu=1.0) and refutes(members, others, mu=0.7)
    assert refutes(
        *sum_scores(1.0, 1.0, each=3, named=False, repetitions=2000), mu=1.0
    )  # records that nobody named as one person's


class Unclipped(Projected):
    """Records that come out as they are, far beyond the clip norm."""

    def take(self, index: Tensor) -> Batch:
        return self.rows.take(index)


def test_the_sums_clip_by_themselves() -> None:
    """Whatever the rows are: the guarantee must not rest on who projected them."""
    direction = torch.tensor([0.5, -0.5, 0.5, 0.5])
    rows = Unclipped(ball((7 * direction).expand(4, 4), torch.arange(4) % 2), identity())
    sums = class_sums(rows, DIGEST, 1e4, party="p", stream=SeededStream(0)).payload
    assert torch.allclose(sums @ direction.double(), torch.full((2,), 2.0).double(), atol=0.01)


def both_scores(half: float, actual: float, repetitions: int) -> tuple[Tensor, Tensor]:
    """The optimal test against statistics and the records in the directions that they found, together. The sums of all
    repetitions are drawn at once: two classes each."""
    direction = torch.tensor([0.5, -0.5, 0.5, 0.5])
    stream, wide, labels = SecureStream(), identity(), torch.tensor([0, 1, 1])
    worlds = [torch.stack([sign * direction, torch.zeros(4), 0.3 * direction.flip(0)]) for sign in (1, -1)]
    facts = {name: Fact(value, "public") for name, value in (("dimension", 1.0), ("centre", 0.0))}
    encoder = Singular(alpha=0.5).calibrate(
        Mu(half), Facts({**facts, "amplitude": Fact(1.0, "public"), "clip": Fact(1.0, "public")})
    )[0]
    found = []
    for points in worlds:
        everyone = ball(points.repeat(repetitions, 1), (labels + 2 * torch.arange(repetitions)[:, None]).flatten())
        drawn = class_sums(Projected(everyone, wide), DIGEST, actual, party="p", stream=stream)
        part, kept = ball(points, labels), []
        for sums in drawn.payload.view(repetitions, 2, 4):
            one = drawn.with_(payload=sums, counts=(1, 2), classes=part.classes)
            narrow = replace(directions([one], wide, DIGEST), clip=1.0)
            trace = encoder.plan(3, stream=stream)
            batch = encoder.encode(Projected(part, narrow), torch.arange(3), trace, stream=stream)
            x, seen = batch.x.double() * float(encoder.step or 1), [narrow(world).double() for world in worlds]
            score = float(sums[0] @ direction.double()) * 2 / (2 / half) ** 2
            kept.append(score + likelihood_ratio(x, seen[0], seen[1][0], encoder, trace))
        found.append(torch.tensor(kept))
    return found[0], found[1]


def test_both_steps_together_stay_under_their_composed_bound() -> None:
    """One direction between two classes; it depends on the noisy sums, as it does in the protocol."""
    half = 1 / math.sqrt(2)
    members, others = both_scores(half, half, 8000)
    assert not refutes(members, others, mu=1.0)
    assert refutes(members, others, mu=0.5)
    assert refutes(*both_scores(half, 4 * half, 3000), mu=1.0)  # sums with a quarter of the noise that they state


# Means and directions


def test_every_party_counts_by_its_precision() -> None:
    parts = [made(300, seed, mu, party=f"p{seed}") for seed, mu in ((2, 8.0), (3, 0.05), (4, 8.0))]
    means, variance = class_means(parts)
    rows = Projected(features_of(blobs(6000, 9)), base())
    truth = torch.stack([rows.take((rows.labels == c).nonzero()[:, 0]).x.double().mean(0) for c in range(3)])
    errors_ = [
        float((class_means(some)[0] - truth).square().mean()) for some in ([parts[0]], [parts[1]], parts, parts[:1])
    ]
    assert errors_[2] < errors_[0] < errors_[1]
    told = [(p.payload[0], sums_of(p).counts[0], sums_of(p).sigma) for p in parts]
    top = torch.stack([sums * n / (n + sigma**2) for sums, n, sigma in told]).sum(0)
    bottom = sum(n**2 / (n + sigma**2) for _, n, sigma in told)
    assert torch.allclose(means[0], top / bottom) and float(variance[0]) == pytest.approx(1 / bottom)


def test_directions_are_those_between_the_classes() -> None:
    wide = base()
    found = directions([made(3000, 2, 8.0)], wide, DIGEST)
    assert found.dimension == 2 and found.spent[0][1:] == ("p", 0.0, 1, None)  # a seeded stream promises nothing
    means, _ = class_means([made(3000, 2, 8.0)])
    z = (means - means.mean(0)).float()
    inside = torch.linalg.lstsq(wide.matrix, found.matrix).solution
    assert torch.allclose(inside.T @ inside, torch.eye(2), atol=1e-4)
    assert torch.allclose(z @ inside @ inside.T, z, atol=1e-3)
    assert torch.allclose(found.means.double(), means @ inside.double(), atol=1e-4)


def test_what_does_not_belong_together_is_refused() -> None:
    part = made(60, 2, 1.0)
    with pytest.raises(errors.MismatchError, match="bbbbbbbb, not with cccccccc"):
        directions([part], base(), "c" * 64)
    with pytest.raises(errors.MismatchError, match="same classes"):
        directions([part, part.with_(id="1" * 32, classes=("x", "y", "z"))], base(), DIGEST)
    with pytest.raises(errors.MismatchError, match="twice"):
        directions([part, part], base(), DIGEST)
    with pytest.raises(errors.MismatchError, match="clipped to"):
        directions([part.with_(clip=sums_of(part).clip / 2)], base(), DIGEST)
    with pytest.raises(errors.MismatchError, match="state 5 values"):
        directions([part.with_(dimension=5, payload=part.payload[:, :5])], base(), DIGEST)
    with pytest.raises(errors.ArgumentError, match="no statistics"):
        directions([], base(), DIGEST)
    with pytest.raises(errors.ArgumentError, match="fewer than two"):
        directions([part.with_(counts=(60, 0, 0))], base(), DIGEST)


# On disk


def written(folder: Path, stream: Stream) -> Envelope:
    rows = Projected(features_of(blobs(60, 2)), base())
    return write_statistics(folder, rows, DIGEST, 1.0, party="p", stream=stream)


def test_they_are_written_read_and_remembered(tmp_path: Path) -> None:
    found = written(tmp_path / "s", SecureStream())
    again = read_release(tmp_path / "s")
    assert again.envelope == found and again.certified and again.mu == 1.0 and again.payload.shape == (3, 6)
    (entry,) = Ledger().entries()
    assert (entry.id, entry.stated, entry.kind) == (again.id, 1.0, "sums") and entry.finished
    assert entry.encoder == "class-sums" and found.kind == "sums"
    seeded = written(tmp_path / "t", SeededStream(0))
    assert not seeded.certified and seeded.mu is None and not read_release(tmp_path / "t").guarantees
    with pytest.raises(errors.OutputExistsError):
        written(tmp_path / "s", SecureStream())


def set_(*path: str | int, value: Any) -> Callable[[Any], None]:
    def change(whole: Any) -> None:
        for step in path[:-1]:
            whole = whole[step]
        whole[path[-1]] = value

    return change


LIES: dict[str, tuple[Callable[[Any], None], type[Exception]]] = {
    "a smaller mu": (set_("guarantees", 0, "nominal", value=0.5), errors.FalseClaimError),
    "a smaller realised mu": (set_("guarantees", 0, "realised", value=0.5), errors.FalseClaimError),
    "less clipping": (set_("payload", "clip", value=1e3), errors.FalseClaimError),
    "other conditions": (set_("guarantees", 0, "assumes", "neighbours", value="replace-set"), errors.FalseClaimError),
    "no caveat": (set_("not_promised", value=[]), errors.FalseClaimError),
    "certified without a guarantee": (set_("guarantees", value=[]), errors.FalseClaimError),
    "seeded and certified": (set_("reproducible", value=True), errors.FalseClaimError),
    "the future": (set_("version", value=7), errors.VersionError),
    "another kind": (set_("kind", value="records"), errors.ManifestError),
    "negative counts": (set_("payload", "counts", value=[-1, 30, 30]), errors.ManifestError),
    "too few counts": (set_("payload", "counts", value=[30, 30]), errors.ManifestError),
    "sums beyond what counts allow": (set_("payload", "counts", value=[1, 1, 0]), errors.GridError),
    "a count beyond all numbers": (set_("payload", "counts", value=[10**400, 1, 1]), errors.ManifestError),
    "another size": (set_("files", 0, "bytes", value=1), errors.ShardSizeError),
    "another file": (set_("files", 0, "sha256", value="0" * 64), errors.HashError),
    "another shape": (set_("payload", "dimension", value=5), errors.ShapeError),
    "an unknown field": (set_("more", value=1), errors.ManifestError),
    "an unknown setting": (set_("payload", "more", value=1), errors.ManifestError),
    "no projection": (set_("assets", value={}), errors.ManifestError),
    "features": (set_("assets", "features", value="0" * 64), errors.ManifestError),
    "rows": (set_("files", 0, "rows", value=600), errors.ManifestError),
    "another name": (set_("files", 0, "name", value="shard-00000.safetensors"), errors.ManifestError),
    "a private fact": (set_("guarantees", 0, "assumes", "clip", value="private"), errors.FalseClaimError),
    "a range": (set_("guarantees", 0, "assumes", "clip", value="range"), errors.FalseClaimError),
    "nothing realised": (set_("guarantees", 0, "realised", value=None), errors.FalseClaimError),
    "a tau": (set_("guarantees", 0, "name", value="directional-snr"), errors.FalseClaimError),
}


@pytest.mark.parametrize("lie", LIES)
def test_each_lie_has_its_error(lie: str, tmp_path: Path) -> None:
    change, error = LIES[lie]
    rows = Projected(features_of(blobs(600, 2)), base())
    write_statistics(tmp_path / "s", rows, DIGEST, 1.0, party="p", stream=SecureStream())
    path = tmp_path / "s" / "manifest.json"
    whole = json.loads(path.read_text())
    change(whole)
    path.write_text(json.dumps(whole))
    with pytest.raises(error):
        read_release(tmp_path / "s")


def test_a_missing_file_and_no_folder(tmp_path: Path) -> None:
    written(tmp_path / "s", SecureStream())
    (tmp_path / "s" / "sums.safetensors").unlink()
    with pytest.raises(errors.MissingShardError):
        read_release(tmp_path / "s")
    with pytest.raises(errors.ManifestError):
        read_release(tmp_path / "nothing")
    written(tmp_path / "t", SecureStream())
    with pytest.raises(errors.MismatchError, match="holds sums"):
        read_release(tmp_path / "t", "records")
