from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from mixveil.attacks.records.average import Average, averaged, one_to_one, partners, understood
from mixveil.attacks.records.lmmse import Lmmse, LmmseRow
from mixveil.attacks.shared import model
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Attack, Mu, Release, Tau, Trace, View
from mixveil.core.wording.sentences import sentence
from mixveil.data.images import Images
from mixveil.data.opening import open_data
from mixveil.data.row_views import Subset
from mixveil.data.similarity import mse
from mixveil.encoders import calibration
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from tests.made import encoded, images, range_facts

N = 300


def digits(start: int, stop: int) -> Images:
    data = open_data("digits")
    read, index = data.read, torch.arange(start, stop)
    return replace(data, read=lambda rows: read(index[rows]), labels=data.labels[start:stop])


PRIVATE, PUBLIC = digits(0, N), digits(N, 1797)
TRUTH = PRIVATE.take(torch.arange(N)).x


@cache
def made(count: int, noise: float) -> tuple[tuple[Release, ...], tuple[Trace, ...]]:
    """noise: times that of τ = 1 by `energy`."""
    ready, _, _ = calibration.calibrate(Singular(), Tau(1.0, "energy"), PRIVATE, stream=SeededStream(0))
    ready = replace(ready, sigma=ready.sigma * noise)
    pairs = [encoded(ready, PRIVATE, SeededStream(seed)) for seed in range(count)]
    return tuple(r for r, _ in pairs), tuple(t for _, t in pairs)


def error(attack: Attack, view: View) -> float:
    guess = attack(view, stream=SeededStream(0)).images
    assert guess is not None
    return float(mse(TRUTH, guess).mean())


def found_pairs(count: int, noise: float) -> tuple[float, float, float]:
    """The shares of rows whose partner is named rightly and wrongly, and of records whose class is read rightly."""
    releases, traces = made(count, noise)
    view = View(releases, public=PUBLIC)
    prior = model.prior_of(view)
    read, classes = understood(view, prior, SeededStream(0))
    right = wrong = 0.0
    for (partner, chance), trace in zip(partners(view, read, classes, prior), traces, strict=True):
        named, same = chance[:, 0] > 0, partner == trace.partner[:, 0]
        right += float((named & same).double().mean()) / count
        wrong += float((named & ~same).double().mean()) / count
    return right, wrong, float((classes == PRIVATE.labels).double().mean())


def test_more_releases_give_it_more_and_at_sixteen_it_needs_no_trace() -> None:
    errors = [error(Average(), View(made(count, 0.25)[0], public=PUBLIC)) for count in (1, 4, 16)]
    assert errors[1] < 0.2 * errors[0] and errors[2] < 0.3 * errors[1]
    known = View(*made(16, 0.25), PUBLIC)
    assert errors[2] < 0.2 * error(LmmseRow(), known)
    assert errors[2] < 1.3 * error(Lmmse(), known)


def test_it_finds_who_was_paired_with_whom() -> None:
    right, wrong, read = found_pairs(16, 0.25)
    assert right > 0.9 and wrong < 0.02 and read == 1.0  # a guess among those of the class: 0.03
    right, wrong, read = found_pairs(4, 0.25)
    assert right > 0.6 and wrong < 0.1 and read > 0.98


@pytest.mark.parametrize("noise", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("count", [2, 4])
def test_what_it_takes_for_pairs_does_not_make_it_worse_than_averages(count: int, noise: float) -> None:
    view = View(made(count, noise)[0], public=PUBLIC)
    prior = model.prior_of(view)
    read, _ = understood(view, prior, SeededStream(0))
    plain = prior.images(view, averaged(read, prior.variance)[0])
    assert error(Average(), view) < 1.005 * float(mse(TRUTH, plain).mean())


def test_labels_and_noise_show_the_weights_nearly_as_well_as_a_trace() -> None:
    releases, traces = made(1, 1.0)
    alone, known = error(Average(), View(releases, public=PUBLIC)), error(LmmseRow(), View(releases, traces, PUBLIC))
    assert known < alone < 1.03 * known


def test_a_guessed_weight_is_near_and_its_error_counts_as_noise() -> None:
    """Where both records are of one class the label shows no weight, but the strength of the noise does in part."""
    (release,), (trace,) = made(1, 1.0)
    view = View((release,), public=PUBLIC)
    prior = model.prior_of(view)
    (own,), _ = understood(view, prior, SeededStream(0))
    shown = (release.payload.take(torch.arange(N)).y > 0).sum(1) > 1
    noise = (own.weight[:, 1:] * release.encoder.sigma).square()
    assert torch.allclose(own.noise[shown], noise[shown].expand_as(own.noise[shown]))
    off = (own.weight - trace.weight)[~shown, 0].square().mean()
    assert float(off) < 0.5 * float((trace.weight[~shown, 0] - 0.5).square().mean())
    said = ((own.noise - noise)[~shown] / prior.variance / 2).mean()
    assert 0.5 * float(off) < float(said) < 2 * float(off)


def test_averages_are_lmmse_of_own_rows_where_all_weights_are_shown() -> None:
    """Records of as many classes as there are: every label shows both weights."""
    data = images(8, (1, 4, 4), classes=8)
    facts = range_facts(data)
    encoder = replace(Singular().calibrate(Mu(1.0), facts)[0], sigma=0.05)
    pairs = [encoded(encoder, data, SeededStream(seed)) for seed in range(3)]
    view = View(tuple(r for r, _ in pairs), tuple(t for _, t in pairs), images(300, (1, 4, 4), seed=2))
    prior = model.prior_of(view)
    read, classes = understood(view, prior, SeededStream(0))
    assert torch.equal(classes, data.labels)
    row = LmmseRow()(view, stream=SeededStream(0)).images
    assert row is not None
    assert torch.allclose(prior.images(view, averaged(read, prior.variance)[0]), row, atol=1e-9)


def test_of_a_part_most_partners_that_are_not_there_are_not_named() -> None:
    """A third of the rows: of two in three the partner is elsewhere. Those that are named instead look like it."""
    releases, traces = made(16, 0.25)
    inside = torch.arange(N // 3)
    view = View(tuple(replace(r, payload=Subset(r.payload, inside)) for r in releases), public=PUBLIC)
    prior = model.prior_of(view)
    read, classes = understood(view, prior, SeededStream(0))
    here = missed = elsewhere = named = 0
    for (partner, chance), trace in zip(partners(view, read, classes, prior), traces, strict=True):
        true, sure = trace.partner[inside, 0], chance[:, 0] > 0
        here += int((true < len(inside)).sum())
        missed += int(((true < len(inside)) & ~(sure & (partner == true))).sum())
        elsewhere += int((true >= len(inside)).sum())
        named += int(((true >= len(inside)) & sure).sum())
    assert missed < 0.1 * here and named < 0.25 * elsewhere
    plain = prior.images(view, averaged(read, prior.variance)[0])
    guess = Average()(view, stream=SeededStream(0)).images
    assert guess is not None
    assert float(mse(TRUTH[inside], guess).mean()) < 0.5 * float(mse(TRUTH[inside], plain).mean())


def test_a_pairing_is_made_one_to_one() -> None:
    """Two rows fit record 0; one of them fits record 1 as well, and nobody fits the last row."""
    none = -torch.inf
    links = torch.tensor([[30.0, none, none], [30.0, 25.0, none], [none, none, -30.0]], dtype=torch.float64)
    chance = one_to_one(links)
    assert chance[:2].argmax(1).tolist() == [0, 1] and float(chance[1, 1]) > 0.9
    assert float(chance[2].max()) < 1e-9 and bool((chance.sum(0) < 1.1).all())


def test_plain_records_are_averaged_and_others_are_refused() -> None:
    encoder = Gaussian().calibrate(Mu(60.0), range_facts(PRIVATE))[0]
    pairs = [encoded(encoder, PRIVATE, SeededStream(seed)) for seed in range(3)]
    view = View(tuple(r for r, _ in pairs), tuple(t for _, t in pairs), PUBLIC)
    assert error(Average(), view) == pytest.approx(error(Lmmse(), view), rel=1e-9)
    triples = View((encoded(Mixup(k=3), PRIVATE, SeededStream(0))[0],), public=PUBLIC)
    with pytest.raises(ArgumentError, match=sentence("attack-needs-pairs")):
        Average()(triples, stream=SeededStream(0))
    shorter = encoded(encoder, digits(0, N - 1), SeededStream(0))[0]
    with pytest.raises(ArgumentError, match=sentence("attack-needs-equal-rows")):
        Average()(replace(view, releases=(view.releases[0], shorter)), stream=SeededStream(0))


def slow_links(residual: Tensor, mean: Tensor, share: Tensor, spread: Tensor) -> Tensor:
    normal = torch.distributions.Normal
    return torch.tensor(
        [
            [
                float(normal(w * other, s.sqrt()).log_prob(row).sum())  # type: ignore[no-untyped-call]
                for other in mean
            ]
            for row, w, s in zip(residual, share, spread, strict=True)
        ],
        dtype=torch.float64,
    )


def test_the_ratios_of_partners_are_those_of_the_densities(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow twin that averages every record anew without the row in question."""
    from mixveil.attacks.records import average

    kept: list[Tensor] = []

    def watched(links: Tensor) -> Tensor:
        kept.append(links)
        return one_to_one(links)

    monkeypatch.setattr(average, "one_to_one", watched)
    releases, _ = made(2, 0.25)
    cut = tuple(replace(release, payload=Subset(release.payload, torch.arange(20))) for release in releases)
    view = View(cut, public=PUBLIC)
    prior = model.prior_of(view)
    read, classes = understood(view, prior, SeededStream(0))
    partners(view, read, classes, prior)
    for t, own in enumerate(read):
        mean, precision = averaged(read, prior.variance)
        others, surely = averaged(read[:t] + read[t + 1 :], prior.variance)
        w1, w2 = own.weight[:, :1], own.weight[:, 1:]
        residual, covered = own.rows - w1 * others, w1.square() / surely + own.noise
        links = slow_links(residual, mean, w2, covered + w2.square() * (1 / precision).mean(0))
        nobody = slow_links(residual, torch.zeros_like(mean[:1]), w2, covered + w2.square() * prior.variance)
        expected = links - nobody
        possible = kept[t].isfinite()
        assert torch.allclose(kept[t][possible], expected[possible], rtol=1e-8, atol=1e-6)
        fits = (own.other[:, None] == classes) & ~torch.eye(20, dtype=torch.bool)
        assert torch.equal(possible, fits)
