"""The audit of a release from which rows were dropped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mixveil.attacks.catalogue import attacks
from mixveil.audit import auditing as audits
from mixveil.audit.auditing import Profile, audit
from mixveil.audit.found import Audit
from mixveil.audit.guarantees_found import noise_faults, promises
from mixveil.audit.noise_check import noticed
from mixveil.audit.sample import sample
from mixveil.audit.truth import chosen, inspect, rows_first, standardised_noise
from mixveil.core.errors import ArgumentError, WrongTruthError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Batch, Encoder, Release, Tau, Trace, View
from mixveil.data.row_views import Subset
from mixveil.encoders import calibration
from mixveil.encoders.laplace import CalibratedLaplace
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from mixveil.releases.kinds.records import Records
from mixveil.releases.screening import Screen, Screened, Screening
from mixveil.theory.moments import moments
from tests.audited import OTHERS, PRIVATE, PUBLIC, figure
from tests.made import encoded
from tests.notes import codes, holds

SERIOUS = {
    "noise-false",
    "noise-wrong",
    "noise-shared-by-releases",
    "noise-reproducible",
    "units-paired",
    "labels-not-randomised",
}


def ready(tau: float) -> Encoder:
    return calibration.calibrate(Singular(), Tau(tau, "energy"), PRIVATE, stream=SeededStream(0))[0]


def released(encoder: Encoder, kept: Tensor | None = None, seed: int = 0, says: Encoder | None = None) -> View:
    """Of 500 digits: those rows that `kept` says, or the quieter half by SNR."""
    made, trace = encoded(encoder, PRIVATE, SeededStream(seed))
    stored = made.payload.shards[0]
    screen = Screen("snr", 3.0)
    if kept is None:
        kept = Screening(screen, PRIVATE, encoder).look(torch.arange(500), trace, stored.x)
    payload = Records((Batch(stored.x[kept], stored.y[kept]),), encoder.step)
    screened = Screened(screen, 500)
    release = made.with_(payload=payload, encoder=says or encoder, screened=screened, reproducible=False)
    return View((release,), (replace(trace, kept=kept),), PUBLIC)


def audited(view: View, names: list[str] | None = None) -> Audit:
    others = OTHERS.take(torch.arange(len(OTHERS))).x
    return audit(view, PRIVATE, others=others, names=names, stream=SeededStream(1))


def left(view: View) -> int:
    return len(view.releases[0].payload)


def test_attacks_run_and_the_dropped_are_counted() -> None:
    view = released(ready(0.3))
    assert 100 < left(view) < 400
    others = ("unit", "grid", "kolmogorov", "braverman", "public-search", "chen")  # for other rows
    ours = [name for name, kind in attacks().items() if kind.payload == "records" and not kind.trains]
    names = [name for name in ours if not name.startswith(others)]
    found = audited(view, names)
    assert len(names) > 8 and {item.status for item in found.attacks} == {"ran"}
    assert holds(found.verdict, "verdict-screened", dropped=500 - left(view), records=500, screen="snr:3")
    assert found.of == len(found.numbers) == len(found.pixels) == left(view)
    assert torch.equal(found.pixels, PRIVATE.take(kept_of(view).nonzero()[:, 0]).x)
    assert not SERIOUS & codes(found.warnings)


def kept_of(view: View) -> Tensor:
    kept = view.traces[0].kept if view.traces else None
    assert kept is not None
    return kept


def test_what_is_left_is_unmixed_as_the_dense_posterior_says() -> None:
    """The linear attack on the rows that are left, with records that have none: against a dense posterior."""
    view, truth = rows_first(released(ready(0.3)), PRIVATE)
    trace, m = view.traces[0] if view.traces else Trace(torch.empty(0), torch.empty(0)), left(view)
    assert int(trace.partner.max()) >= m  # some partners have no row of their own
    mean, variance, noise = 0.3, 0.1, view.releases[0].encoder.deviation(trace.weight).square()
    matrix = torch.zeros(m, 500, dtype=torch.float64)
    for row in range(m):
        matrix[row, row] += float(trace.weight[row, 0])
        matrix[row, int(trace.partner[row, 0])] += float(trace.weight[row, 1])
    seen = view.releases[0].payload.take(torch.arange(m)).x.flatten(1).double()
    seen = seen + view.releases[0].encoder.restore(torch.zeros(1)).double() - mean
    precision = matrix.T @ (matrix / noise[:, None]) + torch.eye(500) / variance
    dense = torch.linalg.solve(precision, matrix.T @ (seen / noise[:, None]))
    from mixveil.attacks.records.lmmse import unmixed
    from mixveil.attacks.shared.model import MixingMatrix

    one = torch.ones(64, dtype=torch.float64)
    fast = unmixed(MixingMatrix.of((trace,)), [seen], [noise[:, None]], [one], variance * one)
    assert torch.allclose(fast, dense[: len(fast)], atol=1e-8)
    pixels = truth.take(torch.arange(m)).x.flatten(1).double() - mean
    assert float((fast[:m] - pixels).square().mean()) < 0.8 * float(pixels.square().mean())


def test_weak_noise_shows_the_rows_that_are_left() -> None:
    """In the wrong order the attacks would look harmless."""
    some = torch.arange(500) % 5 != 0
    found = audited(released(ready(1.0), some), ["prior", "lmmse", "linkage"])
    assert figure(found, "lmmse", "mse") < 0.6 * figure(found, "prior", "mse")
    assert figure(found, "linkage", "row-identified") > 0.1


def test_a_part_of_a_screened_release_hangs_together(monkeypatch: pytest.MonkeyPatch) -> None:
    view, truth = rows_first(released(ready(0.3)), PRIVATE)
    part = sample(view, truth, 60, SeededStream(3))
    assert len(part.numbers) == 60 and int(part.numbers.max()) < left(view) and len(set(part.numbers.tolist())) == 60
    assert part.view.traces is not None
    noise = standardised_noise(part.view.releases[0], part.view.traces[0], part.records)
    assert 0.9 < float(noise.square().mean()) < 1.2  # of rows with the wrong records it would be far more
    monkeypatch.setitem(audits.PROFILES, "quick", Profile(60, 1 << 23, (20, 60)))
    found = audited(released(ready(0.3)), ["lmmse", "labels"])
    assert holds(found.verdict, "verdict-part", attacked=60, rows=left(view))
    assert noticed(60, chosen(view.releases[0])) in found.verdict
    assert noticed(left(view), chosen(view.releases[0])) not in found.verdict
    assert not SERIOUS & codes(found.warnings)


@pytest.mark.parametrize("encoder", [Mixup(), CalibratedLaplace(alpha=0.5, centre=0.0, scale=0.5)])
def test_no_test_of_single_values_is_claimed_where_there_is_none(encoder: Encoder) -> None:
    found = audited(released(encoder, torch.arange(500) % 5 != 0), ["prior", "labels"])
    assert holds(found.verdict, "verdict-screened", dropped=100, records=500)
    assert not {"verdict-noise-tested-loosely", "verdict-weak-noise-unnoticed"} & codes(found.verdict)
    assert found.warnings[0].code == "audit-labels-screened"


CHOICES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "the strongest noise": lambda noise, records: noise.square().sum(1),
    "noise away from the record": lambda noise, records: -(noise * records).sum(1),
    "noise in one value": lambda noise, records: noise[:, 20],
    "noise alike in two values": lambda noise, records: noise[:, 20] * noise[:, 30],
}


@pytest.mark.parametrize("choice", CHOICES)
def test_honest_noise_passes_however_rows_were_chosen_by_it(choice: str) -> None:
    """The half of the rows that is most so: without an allowance for it, the choice would be taken for false noise."""
    encoder = ready(0.3)
    whole, truth = rows_first(released(encoder, torch.ones(500, dtype=torch.bool)), PRIVATE)
    noise = standardised_noise(whole.releases[0], (whole.traces or ())[0], truth)
    score = CHOICES[choice](noise, PRIVATE.take(torch.arange(500)).x.flatten(1) - 0.3)
    view = released(encoder, score > score.median())
    assert not SERIOUS & codes(audited(view, ["prior"]).warnings)
    part, order = rows_first(view, PRIVATE)
    (found,) = inspect(part, order)
    unaware = [replace(found, moved=0.0)]
    moments_ = moments(PRIVATE, stream=SeededStream(0))
    broken = any(promise.broken for promise in promises(part, unaware, moments_) if promise.name == "noise")
    alarms = broken or bool(noise_faults(part, order, unaware))
    assert alarms or choice == "noise away from the record"  # that `inspect` would have taken for other data


def test_choosing_moves_a_sum_by_no_more_than_is_allowed() -> None:
    """The worst choice there is: the largest of many standard normals, at every share that can be dropped."""
    view = released(ready(0.3))
    drawn = SeededStream(0).normal(500).sort().values
    for dropped in (0, 1, 50, 250, 450, 498):
        payload = Subset(PRIVATE, torch.arange(500 - dropped))
        allowed = chosen(replace(view.releases[0], payload=payload))
        moved = float(drawn[dropped:].sum() - drawn.sum() * (500 - dropped) / 500) / (500 - dropped) ** 0.5
        assert moved <= allowed + 1e-9 and (dropped in (0, 1, 498) or moved > allowed / 3)
    assert chosen(view.releases[0].with_(screened=None)) == 0


def test_noise_that_is_not_what_it_says_is_found_all_the_same() -> None:
    encoder = ready(0.3)
    weaker = replace(encoder, sigma=encoder.sigma * 0.7)  # type: ignore[type-var]
    view = released(weaker, torch.arange(500) % 10 != 0, says=encoder)
    release: Release = replace(view.releases[0], payload=rescaled(view.releases[0], weaker))
    found = audited(replace(view, releases=(release,)), ["prior"])
    assert "noise-false" in codes(found.warnings)


def rescaled(release: Release, drawn: Encoder) -> Records:
    """The same values on the grid of the settings that the release states."""
    batch = release.payload.shards[0]
    return Records((Batch(batch.x.double() * (drawn.step or 1), batch.y),), None)


def test_what_cannot_be_measured_is_refused() -> None:
    view = released(ready(0.3))
    (release,), (trace,) = view.releases, view.traces or ()
    with pytest.raises(ArgumentError, match="trace"):
        audit(replace(view, traces=None), PRIVATE, stream=SeededStream(0))
    again = release.with_(id="1" * 32)
    with pytest.raises(ArgumentError, match="audit it alone"):
        audit(View((release, again), (trace, trace)), PRIVATE, stream=SeededStream(0))
    for other in (None, kept_of(view)[1:], ~kept_of(view)):
        with pytest.raises(ArgumentError, match="which of its rows were dropped"):
            audit(replace(view, traces=(replace(trace, kept=other),)), PRIVATE, stream=SeededStream(0))
    with pytest.raises(WrongTruthError, match="500 rows"):
        audit(view, Subset(PRIVATE, torch.arange(left(view))), stream=SeededStream(0))
    with pytest.raises(WrongTruthError, match="labels are not mixtures"):
        audit(view, Subset(PRIVATE, torch.arange(500).flip(0)), stream=SeededStream(0))
