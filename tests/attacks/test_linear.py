from __future__ import annotations

import gc
import itertools
import math
from dataclasses import replace

import pytest
import torch
from scipy import stats

from mixveil.attacks.records import linkage
from mixveil.attacks.records.labels import Labels
from mixveil.attacks.records.linkage import Linkage, Membership
from mixveil.attacks.records.lmmse import Lmmse, LmmseRow
from mixveil.attacks.records.lowpass import Lowpass, LowpassRow, enlarged
from mixveil.attacks.shared import model
from mixveil.attacks.shared.model import prior_of
from mixveil.audit.metrics.detection import tpr_at_fpr
from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.core.types import Mu, Tau, Trace, View
from mixveil.data.images import Images, from_tensors
from mixveil.data.similarity import mse
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.singular import CalibratedSingular, Singular
from mixveil.theory import bayes
from tests.attacks.made import SCALES, gaussian, weak
from tests.made import basis_of, dense_posterior, encoded, range_facts, with_moments


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
    covariance = basis_of(prior) @ torch.diag(prior.variance) @ basis_of(prior).T
    rows = release.payload.take(torch.arange(40)).x.flatten(1).double()
    for i in range(40):
        own, other = trace.weight[i].double().tolist()
        eye = torch.eye(6, dtype=torch.float64)
        observed = (own**2 + other**2) * covariance + (other * release.encoder.sigma) ** 2 * eye
        x = prior.mean + own * covariance @ torch.linalg.solve(observed, rows[i] + 0.5 - prior.mean)
        assert torch.allclose(images[i].flatten(), x, atol=1e-6)


def test_the_risk_that_theory_states_is_what_the_attack_leaves() -> None:
    """Neither more nor less: the ceiling of the audit and its attack are the same thing."""
    data = gaussian(3000, 1)
    encoder = weak(data)
    release, trace = encoded(encoder, data, SeededStream(4))
    seen = View((release,), (trace,), gaussian(5000, 2))
    truth = data.take(torch.arange(3000)).x
    variance = (SCALES.double() / 4).square()
    whole = bayes.whole_release_risk(variance, trace.partner[:, 0], trace.weight, encoder.sigma)
    single = bayes.single_row_risk(variance, trace.weight, encoder.sigma)
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


def test_linkage_ratios_are_those_of_the_densities() -> None:
    """Of a record's own row and the one that it is the partner in, together."""
    data = gaussian(12, 1)
    release, trace = encoded(weak(data), data, SeededStream(3))
    candidates = gaussian(5, 9).take(torch.arange(5)).x
    seen = View((release,), (trace,), gaussian(500, 2), candidates)
    links = Linkage()(seen, stream=SeededStream(0)).links
    prior = prior_of(seen)
    rows = (release.payload.take(torch.arange(12)).x.flatten(1).double() + 0.5 - prior.mean) @ basis_of(prior)
    asked = (candidates.flatten(1).double() - prior.mean) @ basis_of(prior)
    assert links is not None
    behind = trace.partner[:, 0].argsort()
    for c in range(5):
        for r in range(12):
            p, ratio = int(behind[r]), 0.0
            (own, other), (first, second) = trace.weight[r].double().tolist(), trace.weight[p].double().tolist()
            noises = [(w * release.encoder.sigma) ** 2 for w in (other, second)]
            for k, variance in enumerate(prior.variance.tolist()):
                x = [float(rows[r, k]), float(rows[p, k])]
                a = float(asked[c, k])
                one = stats.norm.logpdf(x[0], own * a, math.sqrt(other**2 * variance + noises[0]))
                one += stats.norm.logpdf(x[1], second * a, math.sqrt(first**2 * variance + noises[1]))
                between = own * second * variance
                around = [(own**2 + other**2) * variance + noises[0], (first**2 + second**2) * variance + noises[1]]
                none = stats.multivariate_normal.logpdf(x, [0, 0], [[around[0], between], [between, around[1]]])
                ratio += one - none
            assert float(links[c, r]) == pytest.approx(ratio, rel=1e-6, abs=1e-6)


def spread(n: int, seed: int) -> Images:
    x = SeededStream(seed).uniform(n, 1, 8, 8).float()
    return from_tensors(x, torch.arange(n) % 3, classes=3)


def members_and_others(encoder: CalibratedSingular, n: int = 200) -> tuple[View, Trace]:
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


@pytest.mark.parametrize("releases", [1, 2])
def test_what_is_kept_of_the_ratios_is_what_all_of_them_say(releases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block by block, as from the whole matrix of candidates and rows."""
    data, candidates = gaussian(23, 1), gaussian(11, 9).take(torch.arange(11)).x
    made = [encoded(weak(data), data, SeededStream(seed)) for seed in range(releases)]
    seen = View(tuple(r for r, _ in made), tuple(t for _, t in made), gaussian(500, 2), candidates)
    links, scores = Linkage()(seen, stream=SeededStream(0)).links, Membership()(seen, stream=SeededStream(0)).scores
    assert links is not None and scores is not None
    monkeypatch.setattr(linkage, "_BLOCK", 4)
    monkeypatch.setattr(linkage, "_REMEMBERED", 0)
    monkeypatch.setattr(linkage, "_LEAST", 1)
    monkeypatch.setattr(linkage, "_WEIGHED", 1)
    monkeypatch.setattr(linkage, "_DIRECTIONS", 4)
    again, found = Linkage()(replace(seen), stream=SeededStream(0)).links, linkage.summary(seen)
    assert again is not None and torch.allclose(links, again, rtol=1e-12)
    assert torch.equal(found.row, links.argmax(1)) and torch.allclose(found.most, links.amax(1))
    assert torch.allclose(found.mean, links.mean(1)) and torch.allclose(found.deviation, links.std(1))
    assert torch.allclose(found.evidence, links.logsumexp(1))
    monkeypatch.setattr(linkage, "_MOST_LINKS", 11 * 23 - 1)
    many = Linkage()(seen, stream=SeededStream(0))
    assert many.links is None and many.rows is not None and torch.equal(many.rows, links.argmax(1))
    in_blocks = Membership()(seen, stream=SeededStream(0)).scores
    assert in_blocks is not None and torch.allclose(scores, in_blocks)


def test_lowpass_finds_the_smooth_part() -> None:
    ramp = torch.linspace(-0.2, 0.2, 8)
    stream = SeededStream(0)

    def make(n: int) -> Images:
        x = (0.5 + stream.normal(n, 1, 1, 1) * ramp[:, None].double()).expand(n, 1, 8, 8)
        return from_tensors(x.clamp(0, 1).float(), torch.arange(n) % 2)

    data, public = make(50), make(500)
    facts = with_moments(range_facts(data), energy=1.0, lambda_max=1.0)
    release, trace = encoded(Singular().calibrate(Tau(1.0, "energy"), facts)[0], data, stream)
    truth = data.take(torch.arange(50)).x
    errors = [float(mse(truth, truth.mean(0).expand_as(truth)).mean())]
    for attack, view in (
        (LowpassRow(), View((release,), public=public)),
        (Lowpass(), View((release,), (trace,), public)),
    ):
        images = attack(view, stream=stream).images
        assert images is not None
        errors.append(float(mse(truth, images).mean()))
    assert errors[1] < 0.9 * errors[0] and errors[2] < 0.9 * errors[1]  # knowing nothing; the row; all rows


def test_enlarging_draws_straight_lines() -> None:
    small = torch.tensor([[2.5, 4.5], [10.5, 12.5]]).view(1, 1, 2, 2)
    assert enlarged(small, (4, 4))[0, 0, 0].tolist() == [2.5, 3.0, 4.0, 4.5]
    assert enlarged(small, (2, 2)) is small


def test_the_same_object_is_asked_once_and_forgotten_with_it() -> None:
    class Thing:
        pass

    count = itertools.count(1)
    answer = model.remembered(lambda _: next(count))
    one, two = Thing(), Thing()
    assert [answer(one), answer(one), answer(two), answer(one)] == [1, 1, 2, 1]
    del one
    gc.collect()
    assert answer(Thing()) == 3


def test_clipping_is_reckoned_with() -> None:
    """Half of the records are clipped, to their half: the attacker knows how much on average, and undoes it."""
    data, public = gaussian(400, 1), gaussian(2000, 2)
    x = data.take(torch.arange(400)).x.flatten(1).double() - 0.5
    facts = with_moments(range_facts(data), energy=0.004, lambda_max=0.0025)
    clip = float(x.norm(dim=1).median()) / 2
    encoder = replace(Singular().calibrate(Tau(0.9, "energy"), facts)[0], clip=clip, sigma=1e-4)
    release, trace = encoded(encoder, data, SeededStream(3))
    images = Lmmse()(View((release,), (trace,), public), stream=SeededStream(0)).images
    assert images is not None
    truth = data.take(torch.arange(400)).x
    clipped = (encoder.restore(encoder.prepare(truth))).view_as(truth)  # all that a careless attacker could hope for
    assert float(mse(truth, images).mean()) < 0.7 * float(mse(truth, clipped).mean())


def test_releases_of_the_same_records_with_other_centres_and_clips_are_solved_together() -> None:
    data, public = gaussian(300, 1), gaussian(2000, 2)
    truth = data.take(torch.arange(300)).x
    one = weak(data)
    other = replace(one, centre=0.2, clip=10.0, sigma=1.2 * one.sigma)
    made = [encoded(one, data, SeededStream(1)), encoded(other, data, SeededStream(2))]
    errors = []
    for count in (1, 2):
        seen = View(tuple(r for r, _ in made[:count]), tuple(t for _, t in made[:count]), public)
        images = Lmmse()(seen, stream=SeededStream(0)).images
        assert images is not None
        errors.append(float(mse(truth, images).mean()))
    assert errors[1] < 0.8 * errors[0]


def test_labels_show_both_classes_of_every_pair() -> None:
    data = gaussian(50, 1)
    release, trace = encoded(weak(data), data, SeededStream(0))
    labels = Labels()(View((release,)), stream=SeededStream(0)).labels
    assert labels is not None
    truth = torch.stack([data.labels, data.labels[trace.partner[:, 0]]], dim=1)
    assert torch.equal(labels.sort(1).values, truth.sort(1).values)


def test_plain_gaussian_records_are_attacked_like_any() -> None:
    """No pairing, one weight: the posterior of each record by itself, with the moments of the release."""
    data = gaussian(4000, 1)
    facts = range_facts(data)
    encoder = Gaussian().calibrate(Mu(60.0), facts)[0]
    release, trace = encoded(encoder, data, SeededStream(3))
    images = Lmmse()(View((release,), (trace,)), stream=SeededStream(0)).images
    assert images is not None
    truth = data.take(torch.arange(4000)).x
    variance, noise = (SCALES.double() / 4).square(), encoder.sigma**2
    risk = float((variance * noise / (variance + noise)).mean())
    assert float(mse(truth, images).mean()) == pytest.approx(risk, rel=0.06)
