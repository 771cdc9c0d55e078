"""Which rows share an image, and what averages of them show: on digits, with and without a defence."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mixveil.attacks.records.inner_product import InnerProduct, InnerProductSquares
from mixveil.attacks.records.inner_product_average import InnerProductAverage
from mixveil.attacks.shared import whitening
from mixveil.attacks.shared.base import CannotAttackError
from mixveil.attacks.shared.model import prior_of
from mixveil.audit.metrics.sources import Shared, shared
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, Mu, View
from mixveil.data.similarity import mse
from mixveil.encoders.identity import Identity
from mixveil.encoders.instahide import CalibratedInstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from tests.attacks.made import digits, weak
from tests.made import basis_of, encoded, range_facts

DATA = digits(0, 120)
INSTAHIDE = CalibratedInstaHide(k=4, c1=0.65, c2=0.3, covers=0, pad=0, values=64, centre=0.5)
CERTIFIED = Singular().calibrate(Mu(1.0), range_facts(DATA))[0]


def view(encoder: Encoder, releases: int = 1) -> View:
    pairs = [encoded(encoder, DATA, SeededStream(seed)) for seed in range(releases)]
    return View(tuple(release for release, _ in pairs), tuple(trace for _, trace in pairs))


def grouped(attack: InnerProduct, seen: View) -> Shared:
    alike = attack(seen, stream=SeededStream(0)).alike
    assert alike is not None and seen.traces is not None
    found = shared(alike, seen.traces)
    assert found is not None
    return found


@pytest.mark.parametrize("shape", [(3, 5, 4), (60,)])
@pytest.mark.parametrize("rows", [30, 300])
def test_directions_are_orthonormal_and_rows_vary_alike_in_them(shape: tuple[int, ...], rows: int) -> None:
    x = SeededStream(1).normal(rows, 60) @ SeededStream(2).normal(60, 60)
    x = x - x.mean(0)
    space = whitening.whitening(x, shape)
    assert (space.basis is None) == (rows == 30)
    assert torch.allclose(space.back(space.coordinates(x)), x)
    assert torch.allclose(space.coordinates(x).square().sum(1), x.square().sum(1))
    assert 0.9 < float(space.white(x).square().mean()) < 1
    assert torch.equal(whitening.whitening(x, shape, noise=1.0).variance, space.variance)


def test_alike_is_the_cosine_of_what_is_not_noise() -> None:
    x = SeededStream(1).normal(20, 12) * torch.linspace(0.5, 3, 12)
    space = whitening.whitening(x - x.mean(0), (12,), noise=0.2)
    rows = x - x.mean(0)
    weight = space.signal / space.variance.square()
    for i, j in ((0, 1), (3, 7)):
        product = sum(float(weight[v] * rows[i, v] * rows[j, v]) for v in range(12))
        length = [sum(float(weight[v] * rows[r, v] ** 2) for v in range(12)) ** 0.5 for r in (i, j)]
        assert abs(float(space.alike(rows)[i, j]) - product / length[0] / length[1]) < 1e-5


def test_of_too_many_releases_the_first_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whitening, "MOST_ROWS", 250)
    assert len(whitening.first_rows(view(Mixup(), 4))) == 2
    monkeypatch.setattr(whitening, "MOST_ROWS", 10)
    assert len(whitening.first_rows(view(Mixup(), 4))) == 1
    assert grouped(InnerProduct(), view(Mixup(), 4)).rows == 120


@pytest.mark.parametrize(("encoder", "nearest"), [(Mixup(2), 0.85), (Mixup(4), 0.95)])
def test_rows_of_mixup_that_share_an_image_are_found(encoder: Mixup, nearest: float) -> None:
    seen = view(encoder, 2)
    found = grouped(InnerProduct(), seen)
    assert found.nearest > nearest * found.rows > 6 * found.chance * found.rows and found.auc > 0.7
    rows = whitening.centred(whitening.first_rows(seen))
    plain = rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    assert seen.traces is not None
    told = shared(plain @ plain.T, seen.traces)
    assert told is not None and told.nearest < 0.8 * found.nearest  # digits are all alike where they are not whitened


@pytest.mark.parametrize("encoder", [INSTAHIDE, CERTIFIED])
def test_hidden_signs_and_certified_noise_hide_what_rows_share(encoder: Encoder) -> None:
    found = grouped(InnerProduct(), view(encoder, 2))
    assert abs(found.auc - 0.5) < 0.03 and found.nearest < (found.chance + 0.08) * found.rows


def test_squares_show_it_behind_signs_and_not_under_certified_noise() -> None:
    found = grouped(InnerProductSquares(), view(INSTAHIDE, 2))
    assert found.nearest > 0.5 * found.rows > 4 * found.chance * found.rows and found.auc > 0.6
    found = grouped(InnerProductSquares(), view(CERTIFIED, 2))
    assert abs(found.auc - 0.5) < 0.03 and found.nearest < (found.chance + 0.05) * found.rows


def left(encoder: Encoder, releases: int) -> float:
    """The share of the mean's error that is left."""
    truth = DATA.take(torch.arange(len(DATA))).x
    images = InnerProductAverage()(view(encoder, releases), stream=SeededStream(0)).images
    assert images is not None
    return float(mse(truth, images).mean() / mse(truth, truth.mean(0).expand_as(truth)).mean())


def test_releases_of_mixtures_are_averaged_and_then_solved() -> None:
    assert left(Identity(), 1) < 1e-9
    assert 0.35 < left(Mixup(), 2) < 0.5 < left(Mixup(), 1) < 0.7
    assert left(Mixup(), 4) < 0.15 and left(Mixup(4), 8) < 0.3
    assert left(CERTIFIED, 4) > 0.95


def test_the_average_is_the_posterior_mean_of_a_record_with_partners_as_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixveil.attacks.records.inner_product_average._SOLVED", 99)
    seen = view(Mixup(), 3)
    images = InnerProductAverage()(seen, stream=SeededStream(0)).images
    assert images is not None
    law = Mixup().plan(400, stream=SeededStream(0).fork("law")).weight.double()
    own, share = float(law[:, 0].mean()), float(law.square().sum(1).mean())
    rows = whitening.first_rows(seen)
    mean = torch.stack([x.mean(0) for x in rows])
    covariance = torch.full((3, 3), own**2, dtype=torch.float64)  # of a record's rows, in units of its variance
    covariance.fill_diagonal_(share)
    gain = own * torch.linalg.inv(covariance).sum(0)
    for record in (0, 17):
        expected = mean.mean(0) + sum(gain[t] * (rows[t][record] - mean[t]) for t in range(3))
        assert torch.allclose(images[record].flatten(), expected)


def test_under_noise_it_is_that_of_each_direction() -> None:
    data = digits(0, 60)
    encoder = weak(data)
    pairs = [encoded(encoder, data, SeededStream(seed)) for seed in (1, 2)]
    seen = View(tuple(release for release, _ in pairs), public=digits(200, 700))
    images = InnerProductAverage()(seen, stream=SeededStream(0)).images
    prior, stream = prior_of(seen), SeededStream(0)
    laws = [encoder.plan(400, stream=stream.fork("law")).weight.double() for _ in range(2)]
    own = torch.tensor([float(law[:, 0].mean()) for law in laws], dtype=torch.float64)
    share = torch.tensor([float(law.square().sum(1).mean()) for law in laws], dtype=torch.float64)
    noise = torch.tensor([float((law[:, 1] * encoder.sigma).square().mean()) for law in laws], dtype=torch.float64)
    rows = [release.payload.take(torch.arange(60)).x.flatten(1).double() for release in seen.releases]
    record, expected = 5, prior.mean.clone()
    for k in range(len(prior.variance)):
        variance = float(prior.variance[k])
        covariance = variance * torch.outer(own, own)
        covariance.diagonal().copy_(share * variance + noise)
        told = torch.stack([(x[record] + 0.5 - prior.mean) @ basis_of(prior)[:, k] for x in rows])
        expected += variance * (own @ torch.linalg.inv(covariance) @ told) * basis_of(prior)[:, k]
    assert images is not None and torch.allclose(images[record].flatten(), expected, atol=1e-6)


def test_what_the_average_cannot_use_it_says() -> None:
    attack, seen = InnerProductAverage(), view(Mixup(), 2)
    shuffled = replace(seen, releases=tuple(release.with_(label_epsilon=1.0) for release in seen.releases))
    why = attack.cannot(shuffled)
    assert why is not None and why.code == "attack-needs-row-order"
    assert attack.cannot(replace(shuffled, releases=shuffled.releases[:1])) is None
    why = attack.cannot(view(INSTAHIDE, 2))
    assert why is not None and why.code == "attack-needs-linear"
    fewer, _ = encoded(Mixup(), digits(0, 40), SeededStream(3))
    with pytest.raises(CannotAttackError) as refused:
        attack(replace(seen, releases=(*seen.releases, fewer)), stream=SeededStream(0))
    assert refused.value.why.code == "attack-needs-equal-rows"
