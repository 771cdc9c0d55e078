from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from mixveil.attacks import _model
from mixveil.attacks._model import prior_of
from mixveil.attacks.labels import Labels
from mixveil.attacks.linkage import Linkage, Membership
from mixveil.attacks.lmmse import Lmmse, LmmseRow
from mixveil.attacks.lowpass import Lowpass, pooled
from mixveil.data import Images, from_tensors
from mixveil.encoders.singular import Singular
from mixveil.errors import ArgumentError
from mixveil.keys import SecureStream, SeededStream
from mixveil.metrics.detection import tpr_at_fpr
from mixveil.metrics.image import mse
from mixveil.theory import bayes
from mixveil.types import Mu, Tau, Trace, View
from tests.made import encoded, mixing_matrix, range_facts, with_moments

SCALES = torch.tensor([0.2, 0.1, 0.05, 0.02, 0.01, 0.005])


def gaussian(n: int, seed: int) -> Images:
    """Records with known moments: six independent values."""
    x = 0.5 + SeededStream(seed).normal(n, 6) * SCALES / 4
    return from_tensors(x.clamp(0, 1).float().view(n, 1, 2, 3), torch.arange(n) % 3, classes=3)


def weak(data: Images, tau: float = 0.5, *, sphere: bool = False) -> Singular:
    facts = with_moments(range_facts(data), energy=0.004, lambda_max=0.0025)
    return Singular(noise="sphere" if sphere else "gaussian").calibrate(Tau(tau, "energy"), facts)[0]


def dense_posterior(view: View) -> Tensor:
    """The slow twin: the posterior mean of all records at once, direction by direction."""
    prior = prior_of(view)
    assert view.traces is not None
    n = len(view.releases[0].payload)
    guesses = torch.empty(n, len(prior.variance), dtype=torch.float64)
    for k, variance in enumerate(prior.variance.tolist()):
        precision = torch.eye(n, dtype=torch.float64) / variance
        target = torch.zeros(n, dtype=torch.float64)
        for release, trace in zip(view.releases, view.traces, strict=True):
            matrix = mixing_matrix(trace.partner[:, 0], trace.weight)
            noise = torch.diag(1 / (trace.weight[:, 1].double() * float(release.encoder.sigma or 0)) ** 2)
            rows = release.payload.take(torch.arange(n)).x.flatten(1).double()
            precision += matrix.T @ noise @ matrix
            target += matrix.T @ noise @ ((rows - prior.mean) @ prior.basis[:, k])
        guesses[:, k] = torch.linalg.solve(precision, target)
    return prior.images(view, guesses)


@pytest.mark.parametrize("releases", [1, 3])
@pytest.mark.parametrize("tau", [1.0, 0.01])
def test_whole_release_lmmse_is_the_dense_posterior(releases: int, tau: float) -> None:
    data = gaussian(60, 1)
    made = [encoded(weak(data, tau), data, SeededStream(seed)) for seed in range(releases)]
    seen = View(tuple(r for r, _ in made), tuple(t for _, t in made), gaussian(500, 2))
    images = Lmmse()(seen, stream=SeededStream(0)).images
    assert images is not None
    assert torch.allclose(images, dense_posterior(seen), atol=1e-6 * float(images.abs().max()))


def test_single_row_lmmse_is_the_dense_posterior_of_one_row() -> None:
    data = gaussian(40, 1)
    release, trace = encoded(weak(data), data, SeededStream(3))
    seen = View((release,), (trace,), gaussian(500, 2))
    prior = prior_of(seen)
    images = LmmseRow()(seen, stream=SeededStream(0)).images
    assert images is not None
    covariance = prior.basis @ torch.diag(prior.variance) @ prior.basis.T
    rows = release.payload.take(torch.arange(40)).x.flatten(1).double()
    for i in range(40):
        own, other = trace.weight[i].double().tolist()
        eye = torch.eye(6, dtype=torch.float64)
        observed = (own**2 + other**2) * covariance + (other * float(release.encoder.sigma or 0)) ** 2 * eye
        z = prior.mean + own * covariance @ torch.linalg.solve(observed, rows[i] - prior.mean)
        assert torch.allclose(images[i].flatten(), z + 0.5, atol=1e-6)


def test_the_risk_that_theory_states_is_what_the_attack_leaves() -> None:
    """Neither more nor less: the ceiling of the audit and its attack are the same thing."""
    data = gaussian(3000, 1)
    encoder = weak(data)
    release, trace = encoded(encoder, data, SecureStream())
    seen = View((release,), (trace,), gaussian(5000, 2))
    truth = data.take(torch.arange(3000)).x
    variance = (SCALES.double() / 4).square()
    whole = bayes.whole_release_risk(variance, trace.partner[:, 0], trace.weight, float(encoder.sigma or 0))
    single = bayes.single_row_risk(variance, trace.weight, float(encoder.sigma or 0))
    for attack, risk in ((Lmmse(), whole), (LmmseRow(), single)):
        images = attack(seen, stream=SeededStream(0)).images
        assert images is not None
        assert float(mse(truth, images).mean()) == pytest.approx(float(risk.mean()), rel=0.06)


def test_moments_from_the_release_itself_are_nearly_as_good() -> None:
    data = gaussian(3000, 1)
    release, trace = encoded(weak(data), data, SeededStream(3))
    truth = data.take(torch.arange(3000)).x
    errors = []
    for public in (gaussian(3000, 2), None):
        images = Lmmse()(View((release,), (trace,), public), stream=SeededStream(0)).images
        assert images is not None
        errors.append(float(mse(truth, images).mean()))
    assert errors[1] < 1.1 * errors[0]


def test_more_dimensions_than_public_rows() -> None:
    """What few rows show is believed, and what they cannot show is not taken for impossible."""
    public = spread(30, 1)  # 64 dimensions
    release, _ = encoded(Singular().calibrate(Mu(1.0), range_facts(public))[0], public, SeededStream(0))
    prior = prior_of(View((release,), public=public))
    x = public.take(torch.arange(30)).x.flatten(1).double()
    covariance = torch.cov(x.T, correction=0)
    found = prior.basis @ torch.diag(prior.variance) @ prior.basis.T
    assert torch.allclose(prior.basis.T @ prior.basis, torch.eye(64, dtype=torch.float64), atol=1e-9)
    least = 0.01 * float(covariance.trace()) / 64
    assert float(prior.variance.min()) == pytest.approx(least)
    assert float((found - covariance).abs().max()) <= least * 1.001


def test_in_very_many_dimensions_the_basis_spans_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_model, "DENSE_LIMIT", 10)
    x = spread(30, 1).take(torch.arange(30)).x.flatten(1).double()
    prior = _model._fitted(x, 0.0, 1.0)
    assert prior.basis.shape == (64, 29)
    found = prior.basis @ torch.diag(prior.variance) @ prior.basis.T
    assert float((found - torch.cov(x.T, correction=0)).abs().max()) < 0.01


def test_records_that_do_not_vary_are_refused() -> None:
    with pytest.raises(ArgumentError, match="do not vary"):
        _model._fitted(torch.ones(5, 3, dtype=torch.float64), 0.0, 1.0)


def test_linkage_ratios_are_those_of_the_densities() -> None:
    data = gaussian(12, 1)
    release, trace = encoded(weak(data), data, SeededStream(3))
    candidates = gaussian(5, 9).take(torch.arange(5)).x
    seen = View((release,), (trace,), gaussian(500, 2), candidates)
    links = Linkage()(seen, stream=SeededStream(0)).links
    prior = prior_of(seen)
    rows = prior.coordinates(release.payload.take(torch.arange(12)).x.flatten(1).double())
    asked = prior.coordinates(candidates.flatten(1).double() - 0.5)
    assert links is not None
    for c in range(5):
        for r in range(12):
            own, other = trace.weight[r].double().tolist()
            noise = (other * float(release.encoder.sigma or 0)) ** 2
            one = stats.norm.logpdf(rows[r], own * asked[c], (other**2 * prior.variance + noise).sqrt()).sum()
            none = stats.norm.logpdf(rows[r], 0, ((own**2 + other**2) * prior.variance + noise).sqrt()).sum()
            assert float(links[c, r]) == pytest.approx(one - none, rel=1e-6, abs=1e-6)


def spread(n: int, seed: int) -> Images:
    x = SeededStream(seed).uniform(n, 1, 8, 8).float()
    return from_tensors(x, torch.arange(n) % 3, classes=3)


def members_and_others(encoder: Singular, n: int = 200) -> tuple[View, Trace]:
    data, others = spread(n, 1), spread(n, 2)
    release, trace = encoded(encoder, data, SecureStream())
    candidates = torch.cat([d.take(torch.arange(n)).x for d in (data, others)])
    return View((release,), (trace,), spread(2000, 3), candidates), trace


def test_linkage_and_membership_find_what_weak_noise_shows() -> None:
    facts = with_moments(range_facts(spread(9, 1)), energy=1.0, lambda_max=0.1)
    seen, _ = members_and_others(Singular().calibrate(Tau(1.0, "energy"), facts)[0])
    links = Linkage()(seen, stream=SeededStream(0)).links
    scores = Membership()(seen, stream=SeededStream(0)).scores
    assert links is not None and scores is not None
    found = float(links[:200].argmax(1).eq(torch.arange(200)).double().mean())
    assert found > 0.5  # chance is 0.005
    assert tpr_at_fpr(scores[:200], scores[200:], 0.01) > 0.5


def test_membership_stays_under_the_bound_of_a_certified_release() -> None:
    seen, _ = members_and_others(Singular().calibrate(Mu(1.0), range_facts(spread(9, 1)))[0], 1000)
    scores = Membership()(seen, stream=SeededStream(0)).scores
    assert scores is not None
    allowed = 0.0924 + 5 * math.sqrt(0.0924 / 1000)
    assert tpr_at_fpr(scores[:1000], scores[1000:], 0.01) < allowed


def test_lowpass_finds_the_smooth_part() -> None:
    ramp = torch.linspace(-0.2, 0.2, 8)
    stream = SeededStream(0)

    def make(n: int) -> Images:
        x = (0.5 + stream.normal(n, 1, 1, 1) * ramp[:, None].double()).expand(n, 1, 8, 8)
        return from_tensors(x.clamp(0, 1).float(), torch.arange(n) % 2)

    data, public = make(50), make(500)
    facts = with_moments(range_facts(data), energy=1.0, lambda_max=1.0)
    release, _ = encoded(Singular().calibrate(Tau(1.0, "energy"), facts)[0], data, stream)
    images = Lowpass()(View((release,), public=public), stream=stream).images
    assert images is not None
    truth = data.take(torch.arange(50)).x
    assert float(mse(truth, images).mean()) < 0.9 * float(mse(truth, truth.mean(0).expand_as(truth)).mean())


def test_pooling_keeps_the_means_of_squares() -> None:
    image = torch.arange(16.0).view(1, 1, 4, 4)
    assert pooled(image, 2)[0, 0, 0].tolist() == [2.5, 3.0, 4.0, 4.5]  # means of 2.5 and 4.5, a line between
    assert torch.equal(pooled(image, 1), image)
    assert float(pooled(image, 4).std()) == 0.0


def test_labels_show_both_classes_of_every_pair() -> None:
    data = gaussian(50, 1)
    release, trace = encoded(weak(data), data, SeededStream(0))
    labels = Labels()(View((release,)), stream=SeededStream(0)).labels
    assert labels is not None
    truth = torch.stack([data.labels, data.labels[trace.partner[:, 0]]], dim=1)
    assert torch.equal(labels.sort(1).values, truth.sort(1).values)
