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
from mixveil.core.types import Batch, Fact, Facts, Mu, Release, Trace
from mixveil.data.images import Images, from_tensors
from mixveil.encoders.singular import CalibratedSingular, Singular
from mixveil.features.projection import Projected
from mixveil.learn.class_means import class_means, directions
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.sums import sums_of
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_release
from mixveil.releases.sums import class_sums, write_statistics
from tests.made import blobs, features_of
from tests.membership import DIRECTION, likelihood_ratios, refutes
from tests.sums import DIGEST, ball, base, identity


def made(n: int, seed: int, mu: float, *, stream: Stream | None = None, party: str = "p") -> Release:
    rows = Projected(features_of(blobs(n, seed)), base())
    return class_sums(rows, DIGEST, mu, party=party, stream=stream or SeededStream(seed))


def test_the_sums_are_those_of_clipped_records_and_noise_of_the_stated_size() -> None:
    rows = Projected(features_of(blobs(300, 2)), base())
    clip = rows.projection.clip
    z = rows.take(torch.arange(300)).x.double()
    truth = torch.stack([z[rows.labels == c].sum(0) for c in range(3)])
    drawn = (class_sums(rows, DIGEST, 0.5, party="p", stream=SeededStream(seed)).payload for seed in range(300))
    noise = torch.stack(list(drawn)) - truth
    sigma = 2 * clip / 0.5
    assert float(noise.std()) == pytest.approx(sigma, rel=0.03)
    assert float(noise.mean().abs()) < 5 * sigma / math.sqrt(noise.numel())
    assert sums_of(made(300, 2, 0.5)).counts == (100, 100, 100)


# The guarantee, against the best attacker


EACH = 1000  # classes of one draw


def sum_scores(
    mu: float, actual: float, length: float = 1.0, repetitions: int = 20_000, each: int = 1, named: bool = True
) -> tuple[Tensor, Tensor]:
    """Scores of the optimal test: every class is one repetition, with one person's records ±u in it, `each` of them.
    named: whether it is said that they are one person's."""
    labels = torch.arange(each * EACH) // each
    units = tuple(str(i) for i in labels.tolist()) if each > 1 and named else None
    found = []
    for sign in (1, -1):
        rows = Projected(ball((sign * length * DIRECTION).expand(len(labels), 4), labels, units), identity())
        drawn = (
            class_sums(rows, DIGEST, actual, party="p", stream=SecureStream()).payload
            for _ in range(repetitions // EACH)
        )
        found.append(torch.cat(list(drawn)) @ DIRECTION * 2 * each / (2 * each / mu) ** 2)
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
    """The optimal test against statistics and the records in the directions that they found, together: three records
    of two classes in every repetition, with a direction of its own."""
    stream, labels, each = SecureStream(), torch.tensor([0, 1, 1]), EACH // 2
    worlds = [torch.stack([sign * DIRECTION, 0 * DIRECTION, 0.3 * DIRECTION.flip(0)]) for sign in (1, -1)]
    facts = {name: Fact(value, "public") for name, value in (("dimension", 1.0), ("centre", 0.0))}
    encoder = Singular(alpha=0.5).calibrate(
        Mu(half), Facts({**facts, "amplitude": Fact(1.0, "public"), "clip": Fact(1.0, "public")})
    )[0]
    target = torch.where(torch.arange(3 * repetitions) % 3 == 0, torch.arange(3 * repetitions) // 3, -1)
    found = []
    for points in worlds:
        everyone = ball(points.repeat(each, 1), (labels + 2 * torch.arange(each)[:, None]).flatten())
        rows = Projected(everyone, identity())
        drawn = [class_sums(rows, DIGEST, actual, party="p", stream=stream) for _ in range(repetitions // each)]
        sums = torch.cat([part.payload for part in drawn]).view(repetitions, 2, 4)
        along = between(sums)
        for one, line in zip(sums[:20], along, strict=False):  # as the protocol finds it
            part = drawn[0].with_(payload=one, counts=(1, 2), classes=("0", "1"))
            protocol = directions([part], identity(), DIGEST).matrix[:, 0].double()
            assert float(protocol @ line) ** 2 == pytest.approx(1.0)
        seen, member, other = ((world @ along.T).T.reshape(-1, 1) for world in (points, *worlds))
        trace = in_threes(encoder, repetitions, stream)
        batch = encoder.encode(unranged(seen), torch.arange(len(seen)), trace, stream=stream)
        x = batch.x.double() * float(encoder.step or 1)
        ratios = likelihood_ratios(x, member, member - other, target, encoder, trace)
        found.append(sums[:, 0] @ DIRECTION * 2 / (2 / half) ** 2 + ratios)
    return found[0], found[1]


def between(sums: Tensor) -> Tensor:
    """(m, d) from (m, 2, d) sums of one and two records: the direction between the two means, of length one."""
    return torch.nn.functional.normalize(sums[:, 0] - sums[:, 1] / 2, dim=1)


def unranged(x: Tensor) -> Images:
    return replace(from_tensors(x.float(), torch.arange(len(x)) % 2), low=-9.0, high=9.0)


def in_threes(encoder: CalibratedSingular, repetitions: int, stream: Stream) -> Trace:
    """The pairing of many releases of three records each: one of the two circles there are, at random."""
    place, turn = torch.arange(3), stream.signs(repetitions).long()[:, None]
    partner = 3 * torch.arange(repetitions)[:, None] + (place + turn) % 3
    return Trace(partner=partner.view(-1, 1), weight=encoder.plan(3 * repetitions, stream=stream).weight)


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
    with pytest.raises(errors.MissingPathError):
        read_release(tmp_path / "nothing")
    written(tmp_path / "t", SecureStream())
    with pytest.raises(errors.MismatchError, match="holds sums"):
        read_release(tmp_path / "t", "records")
