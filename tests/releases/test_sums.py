from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from mixveil.core import errors
from mixveil.core.randomness import SecureStream, SeededStream, Stream
from mixveil.core.types import Fact, Facts, Mu, Release, Trace
from mixveil.data.images import Images, from_tensors
from mixveil.encoders.singular import CalibratedSingular, Singular
from mixveil.features.projection import HeldRows, Projected
from mixveil.learn.class_means import class_counts, class_means, directions, totals
from mixveil.releases import contributions, notes, sums
from mixveil.releases.contributions import with_constant
from mixveil.releases.envelope import Envelope, File, parse
from mixveil.releases.kinds.sums import SumSettings, sums_of
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_release
from mixveil.releases.sums import ALONE, Sharing, class_sums, write_statistics
from mixveil.theory import clipping
from tests.made import blobs, features_of
from tests.membership import DIRECTION, likelihood_ratios, refutes
from tests.notes import codes, holds
from tests.sums import DIGEST, LastIsBare, Watched, ball, base, class_sum, given, identity, scores


def made(n: int, seed: int, mu: float, *, stream: Stream | None = None, party: str = "p") -> Release:
    rows = Projected(features_of(blobs(n, seed)), base())
    return class_sums(rows, DIGEST, mu, party=party, stream=stream or SeededStream(seed))


def test_the_sums_are_those_of_clipped_records_and_noise_of_the_stated_size() -> None:
    """The last value of a class counts its rows, times the clip norm, under the same noise."""
    rows = Projected(features_of(blobs(300, 2)), base())
    clip = rows.projection.clip
    z = with_constant(rows.take(torch.arange(300)).x.double(), clip)
    truth = torch.stack([z[rows.labels == c].sum(0) for c in range(3)])
    drawn = (class_sums(rows, DIGEST, 0.5, party="p", stream=SeededStream(seed)).payload for seed in range(300))
    noise = torch.stack(list(drawn)) - truth
    sigma = 2 * clip / 0.5
    assert float(noise.std()) == pytest.approx(sigma, rel=0.03)
    assert float(noise[:, :, -1].std()) == pytest.approx(sigma, rel=0.1)
    assert float(noise.mean().abs()) < 5 * sigma / math.sqrt(noise.numel())
    found = sums_of(made(300, 2, 0.5))
    assert (found.per, found.units, found.class_count, found.dimension) == ("record", 300, 3, 6)
    assert found.sigma == pytest.approx(sigma) and found.shape == (3, 7)


def test_every_draw_is_rounded_to_the_public_grid() -> None:
    part = made(60, 2, 1.0, stream=SecureStream())
    indices = part.payload / sums_of(part).step
    assert torch.equal(indices.round() * sums_of(part).step, part.payload)
    assert sums_of(part).step == sums_of(part).clip * 2.0**-30 and sums_of(part).sigma < 2**32 * sums_of(part).step


FILE = File("sums.safetensors", 240, "0" * 64)


@pytest.mark.parametrize("honest", [1, 3, 7])
def test_the_noise_in_steps_is_never_less_than_mu_asks_for(honest: int) -> None:
    """A unit moves a sum by 2·2ᵇⁱᵗˢ steps at most: in exact rationals, and μ is never more than is stated."""
    rows = given(DIRECTION.repeat(4, 1), torch.arange(4) % 2, clip=0.7)
    for mu in (1e-3, 0.1, 1 / 3, 1.0, 2.7, 1e4):
        Watched.scales.clear()
        made = class_sums(rows, DIGEST, mu, party="p", stream=Watched(0), sharing=Sharing(honest, lambda x: x))
        settings, (scale,) = sums_of(made), map(Fraction, Watched.scales)
        steps = Fraction(settings.clip) / Fraction(settings.step)
        assert steps.denominator == 1 and (2 * steps / scale) ** 2 <= Fraction(mu) ** 2 * honest
        assert (2 * steps / scale) ** 2 >= Fraction(mu) ** 2 * honest * (1 - Fraction(1, 1 << 38))
        alone = settings.claims()["gdp" if honest == 1 else "gdp-alone"].claim
        assert 2 * steps / scale <= Fraction(alone) and alone <= mu * math.sqrt(honest) * (1 + 1e-11)


def test_what_was_released_without_the_margin_still_verifies() -> None:
    """On a coarser grid, too."""
    found = made(60, 2, 0.3, stream=SecureStream()).envelope
    settings = cast("SumSettings", found.settings)
    sigma = 2 * settings.clip / 0.3
    stated = replace(found.guarantees[0], assumes={**found.guarantees[0].assumes, "noise": "gaussian-secure"})
    settings = replace(settings, sigma=sigma, step=sigma / 1024)
    before = replace(found, settings=settings, guarantees=(stated,), files=(FILE,))
    again = parse(before.to_json())
    assert again == before and again.mu == 0.3 and again.guarantees[0].assumes["noise"] == "gaussian-secure"
    claim = replace(before.guarantees[0], nominal=0.3 * (1 - 1e-8))
    with pytest.raises(errors.FalseClaimError, match="its settings give"):
        parse(replace(before, guarantees=(claim,)).to_json())


def test_too_many_units_are_refused_before_any_row_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipping, "MOST_UNITS", 60)
    assert made(59, 2, 1.0)
    monkeypatch.setattr(sums, "class_total", None)
    with pytest.raises(errors.ArgumentError, match="fewer than 60 units, got 60"):
        made(60, 2, 1.0)


# The guarantee, against the best attacker


REPETITIONS = 100_000
LONG, BACK, AWAY = DIRECTION, -DIRECTION, torch.tensor([0.5, 0.5, 0.5, -0.5], dtype=torch.float64)


def world(z: Tensor, label: int, each: int = 1, *, named: bool = True) -> HeldRows:
    """A person's records, `each` of them, of one label, beside a stranger's."""
    rows = torch.cat([z.expand(each, 4), 0.3 * AWAY[None]])
    labels, units = torch.tensor([label] * each + [0]), ["patient"] * each + ["stranger"]
    return given(rows, labels, units if named else None, clip=1.0)


def stated(rows: HeldRows, mu: float, sharing: Sharing = ALONE) -> SumSettings:
    """What a release of these rows says of itself."""
    return sums_of(class_sums(rows, DIGEST, mu, party="p", stream=SecureStream(), sharing=sharing))


PAIRS = {
    "the same label": (world(LONG, 0), world(BACK, 0)),
    "another label": (world(LONG, 0), world(LONG, 1)),
    "another record and label": (world(LONG, 0), world(AWAY, 1)),
    "three records": (world(LONG, 0, 3), world(BACK, 0, 3)),
    "another number of records and labels": (world(LONG, 0, 3), world(BACK, 1, 2)),
    "seven times too long": (world(7 * LONG, 0), world(-7 * LONG, 0)),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_the_optimal_test_against_the_sums(pair: str) -> None:
    """Of image and label: each pair is a worst case, so the test comes near the bound, and stays within it."""
    one, other = PAIRS[pair]
    found = scores(class_sum(one, 1.0), class_sum(other, 1.0), stated(one, 1.0), REPETITIONS)
    assert not refutes(*found, mu=1.0)
    assert refutes(*found, mu=0.9)


def test_planted_lies_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    (one, other), honest = PAIRS["another label"], stated(PAIRS["another label"][0], 1.0)
    totals = class_sum(one, 1.0), class_sum(other, 1.0)
    assert refutes(*scores(*totals, honest, REPETITIONS, LastIsBare()), mu=1.0)  # counts without noise
    assert refutes(*scores(*totals, stated(one, 2.0), REPETITIONS), mu=1.0)  # half the noise
    apart = [class_sum(world(z, 0, 3, named=False), 1.0) for z in (LONG, BACK)]
    assert refutes(*scores(apart[0], apart[1], honest, REPETITIONS), mu=1.0)  # three records that are clipped alone
    monkeypatch.setattr(contributions, "whole", lambda z, radius, scale: clipping.whole(z, 1.2 * radius, scale))
    longer = [class_sum(world(1.2 * z, 0, named=False), 1.0) for z in (LONG, BACK)]
    assert refutes(*scores(longer[0], longer[1], honest, REPETITIONS), mu=1.0)  # records that are clipped too late


EACH = 1000  # classes of one draw


def release_scores(mu: float, repetitions: int, length: float = 1.0) -> tuple[Tensor, Tensor]:
    """The same of whole releases: every two classes are a repetition, with one record ±u in the first or the second."""
    labels, found = torch.arange(0, EACH, 2), []
    towards = torch.stack([torch.cat([DIRECTION, torch.ones(1)]), torch.cat([DIRECTION, -torch.ones(1)])])
    for sign, moved in ((1, 0), (-1, 1)):
        points = (sign * length * DIRECTION).expand(len(labels), 4)
        rows = given(points, labels + moved, clip=1.0, classes=EACH)
        drawn = [
            class_sums(rows, DIGEST, mu, party="p", stream=SecureStream()).payload.view(-1, 2, 5)
            for _ in range(repetitions // len(labels))
        ]
        found.append((torch.cat(drawn) * towards).sum((1, 2)))
    return found[0], found[1]


def test_the_optimal_test_against_whole_releases() -> None:
    found = release_scores(1.0, REPETITIONS)
    assert not refutes(*found, mu=1.0) and refutes(*found, mu=0.9)
    assert not refutes(*release_scores(1.0, REPETITIONS, length=7.0), mu=1.0)
    assert refutes(*release_scores(2.0, REPETITIONS), mu=1.0)  # half the noise


def test_shared_noise_holds_for_the_sum_and_says_what_holds_alone() -> None:
    """Three honest parties: their sum has all the noise that μ asks for, and one alone μ·√3."""
    one, other = PAIRS["another label"]
    totals, shared = (class_sum(one, 1.0), class_sum(other, 1.0)), stated(one, 1.0, Sharing(3))
    together, alone = scores(*totals, shared, REPETITIONS, parties=3), scores(*totals, shared, REPETITIONS)
    assert not refutes(*together, mu=1.0) and refutes(*together, mu=0.9)
    assert not refutes(*alone, mu=math.sqrt(3)) and refutes(*alone, mu=1.0)
    claims = {name: claim.claim for name, claim in shared.claims().items()}
    assert claims == {"gdp": pytest.approx(1.0), "gdp-alone": pytest.approx(math.sqrt(3))}


def test_the_sums_clip_by_themselves() -> None:
    """Whatever the rows are: the guarantee must not rest on who projected them."""
    rows = given((7 * DIRECTION).expand(4, 4), torch.arange(4) % 2, clip=1.0)
    sums = class_sums(rows, DIGEST, 1e4, party="p", stream=SeededStream(0)).payload
    assert torch.allclose(sums[:, :-1] @ DIRECTION, torch.full((2,), 2.0).double(), atol=0.01)
    assert torch.allclose(sums[:, -1], torch.full((2,), 2.0).double(), atol=0.01)  # two rows of each class


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
        sums = torch.cat([part.payload for part in drawn]).view(repetitions, 2, 5)
        along, sigma = between(sums, sums_of(drawn[0]).sigma), sums_of(drawn[0]).sigma
        for one, line in zip(sums[:20], along, strict=False):
            check_protocol(drawn[0].with_(payload=one, class_count=2, units=3, classes=("0", "1")), line, sigma)
        seen, member, other = ((world @ along.T).T.reshape(-1, 1) for world in (points, *worlds))
        trace = in_threes(encoder, repetitions, stream)
        batch = encoder.encode(unranged(seen), torch.arange(len(seen)), trace, stream=stream)
        x = batch.x.double() * float(encoder.step or 1)
        ratios = likelihood_ratios(x, member, member - other, target, encoder, trace)
        found.append(sums[:, 0, :-1] @ DIRECTION * 2 / (2 / half) ** 2 + ratios)
    return found[0], found[1]


def between(sums: Tensor, sigma: float) -> Tensor:
    """(m, d) from (m, 2, d + 1) sums of one and two records: the direction between both means, of length one."""
    counts = sums[:, :, -1:].clamp(min=0)
    means = sums[:, :, :-1] * counts / (counts.square() + sigma**2)
    return torch.nn.functional.normalize(means[:, 0] - means[:, 1], dim=1)


def check_protocol(part: Release, line: Tensor, sigma: float) -> None:
    """The protocol finds this line, where both counts stand out of the noise, or neither does and both are positive."""
    high = part.payload[:, -1] > 2 * sigma
    if int(high.sum()) == 2 or (not bool(high.any()) and bool((part.payload[:, -1] > 0).all())):
        protocol = directions([part], identity(), DIGEST).matrix[:, 0].double()
        assert float(protocol @ line) ** 2 == pytest.approx(1.0)
    else:
        with pytest.raises(errors.ArgumentError, match="fewer than two"):
            directions([part], identity(), DIGEST)


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
    least, clip = min(sums_of(p).sigma for p in parts), base().clip
    weights = [(least / sums_of(p).sigma) ** 2 for p in parts]
    whole = sum((w * p.payload[0] for w, p in zip(weights, parts, strict=True)), torch.zeros(7).double())
    noise = sum((w * sums_of(p).sigma) ** 2 for w, p in zip(weights, parts, strict=True))
    n = float(whole[-1]) / clip
    assert torch.allclose(means[0], whole[:-1] * n / (n**2 + noise / clip**2))
    assert float(variance[0]) == pytest.approx((n + noise) * (n / (n**2 + noise / clip**2)) ** 2)


def test_directions_are_those_between_the_classes() -> None:
    wide = base()
    found = directions([made(3000, 2, 8.0)], wide, DIGEST)
    assert found.dimension == 2 and found.spent[0][1:] == ("p", 0.0, 1, None)  # a seeded stream promises nothing
    secure = directions([made(3000, 2, 8.0, stream=SecureStream())], wide, DIGEST)
    assert secure.spent[0][1:] == ("p", 8.0, 1, 0.0)  # μ covers labels
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
        directions([part.with_(payload=part.payload * torch.tensor([[1.0], [0.0], [0.0]]))], base(), DIGEST)
    with pytest.raises(errors.MismatchError, match="are masked"):
        directions([part.with_(payload=part.payload.long())], base(), DIGEST)
    with pytest.raises(errors.MismatchError, match="holds residual sums, not class sums"):
        directions([part.with_(what="residuals")], base(), DIGEST)


def test_a_class_whose_count_noise_explains_is_not_taken_for_one() -> None:
    """A class without records has a noisy sum, too: its mean is not learned from."""
    rows = Projected(features_of(blobs(600, 2, classes=4, rare=1)), base())
    part = class_sums(rows, DIGEST, 2.0, party="p", stream=SeededStream(0))
    means, variance = class_means([part])
    assert part.payload.shape == (4, 7) and float(part.payload[3].abs().min()) > 0
    assert variance.isfinite().tolist() == [True, True, True, False] and not bool(means[3].any())


def test_noisy_counts_are_near_the_right_ones() -> None:
    """Each has the noise 2/μ, in rows."""
    parts = [made(300, seed, 1.0) for seed in range(100)]
    counts = torch.stack([class_counts(totals([part]), base().clip)[0] for part in parts])
    assert float(counts.mean()) == pytest.approx(100, abs=0.5) and float(counts.std()) == pytest.approx(2, rel=0.15)
    assert class_counts(totals(parts[:4]), base().clip)[1] == pytest.approx(4 * 2**2)


# On disk


def written(folder: Path, stream: Stream) -> Envelope:
    rows = Projected(features_of(blobs(60, 2)), base())
    return write_statistics(folder, rows, DIGEST, 1.0, party="p", stream=stream)


def estimated(part: Release) -> Tensor:
    """Of each class how many records it has, by what every reader can compute: they add up to the number of records."""
    settings = sums_of(part)
    counts = torch.as_tensor(part.payload)[:, -1] / settings.clip
    return counts + (settings.units - counts.sum()) / len(counts)


def test_how_far_counts_of_classes_can_be_told_is_said() -> None:
    """By the noise alone, at every μ: what is said must not be more than a reader gets wrong."""
    truth = torch.as_tensor(blobs(300, 2).labels.bincount(minlength=3)).double()
    off = torch.stack([estimated(made(300, seed=2, mu=1.0, stream=SeededStream(s))) - truth for s in range(300)])
    envelope = made(300, 2, 1.0).envelope
    stated = sums_of(made(300, 2, 1.0)).counts_off
    assert stated is not None and float(off.square().mean().sqrt()) == pytest.approx(stated, rel=0.08)
    assert stated == pytest.approx(2 * math.sqrt(2 / 3), rel=0.01)
    certified = replace(envelope, guarantees=tuple(envelope.settings.claims().values()), reproducible=False)
    assert holds(notes.promises(certified), "labels-covered-counts", off=pytest.approx(stated))
    assert "counts-shown" not in codes(notes.not_promised(certified))


def test_where_counts_of_classes_can_be_read_off_that_is_not_promised() -> None:
    part = made(300, 2, 10.0)
    truth = torch.as_tensor(blobs(300, 2).labels.bincount(minlength=3)).double()
    assert torch.equal(estimated(part).round(), truth)
    envelope = part.envelope
    certified = replace(envelope, guarantees=tuple(envelope.settings.claims().values()), reproducible=False)
    assert holds(notes.promises(certified), "labels-covered-counts-shown")
    assert holds(notes.not_promised(certified), "counts-shown")
    by_units = replace(sums_of(part), per="unit")
    assert by_units.counts_off == pytest.approx(0.2, rel=0.01)
    assert replace(sums_of(part), what="residuals").counts_off is None


def test_they_are_written_read_and_remembered(tmp_path: Path) -> None:
    found = written(tmp_path / "s", SecureStream())
    again = read_release(tmp_path / "s")
    assert again.envelope == found and again.certified and again.mu == 1.0 and again.payload.shape == (3, 7)
    (entry,) = Ledger().entries()
    assert (entry.id, entry.stated, entry.kind) == (again.id, 1.0, "sums") and entry.finished
    assert entry.encoder == "class-sums" and found.kind == "sums" and entry.label_epsilon == 0.0
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


def both(*changes: Callable[[Any], None]) -> Callable[[Any], None]:
    def change(whole: Any) -> None:
        for one in changes:
            one(whole)

    return change


def step_of(share: float) -> Callable[[Any], None]:
    """A step that is such a share of the noise."""
    return lambda whole: whole["payload"].update(step=share * whole["payload"]["sigma"])


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
    "units instead of records": (set_("payload", "per", value="unit"), errors.FalseClaimError),
    "no units": (set_("payload", "units", value=0), errors.ManifestError),
    "sums beyond what units allow": (set_("payload", "units", value=1), errors.GridError),
    "units beyond all numbers": (set_("payload", "units", value=10**400), errors.ManifestError),
    "another number of classes": (set_("payload", "class_count", value=2), errors.ManifestError),
    "fewer classes": (
        both(set_("payload", "class_count", value=2), set_("classes", value=["0", "1"])),
        errors.ShapeError,
    ),
    "exact counts": (set_("payload", "counts", value=[200, 200, 200]), errors.VersionError),
    "labels that are said": (set_("label_epsilon", value=1.0), errors.ManifestError),
    "a step that is too coarse": (step_of(0.26), errors.ManifestError),
    "a step that is too fine": (step_of(2.0**-41), errors.ManifestError),
    "another step": (step_of(0.25), errors.GridError),
    "shared noise without masks": (set_("payload", "honest", value=3), errors.ManifestError),
    "masks without shared noise": (set_("payload", "masked", value=True), errors.ManifestError),
    "noise that others add": (
        both(set_("payload", "honest", value=4), set_("payload", "masked", value=True)),
        errors.FalseClaimError,
    ),
    "residuals without a head": (set_("payload", "what", value="residuals"), errors.ManifestError),
    "a head": (set_("assets", "head", value="0" * 64), errors.ManifestError),
    "something else": (set_("payload", "what", value="records"), errors.ManifestError),
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
