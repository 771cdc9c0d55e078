from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mixveil.audit.found import Audit
from mixveil.audit.known_records import SHARES, folds
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Batch, Mu, Release, Tau, Trace
from mixveil.releases.kinds.records import Records
from mixveil.theory import bayes, gdp
from tests.audited import PRIVATE, audited, figure, made
from tests.notes import holds


@pytest.mark.parametrize("n", [2, 5, 11, 100, 505])
def test_each_record_is_guessed_once_while_it_is_not_known(n: int) -> None:
    order, before = SeededStream(n).permutation(n), set[int]()
    for share in SHARES:
        parts = folds(order, share)
        assert sorted(torch.cat([wanted for wanted, _ in parts]).tolist()) == list(range(n))
        for wanted, known in parts:
            assert not set(wanted.tolist()) & set(known.tolist())
            assert len(set(known.tolist())) == len(known) == min(max(1, round(share * n)), n - 1)
        assert before <= set(parts[0][1].tolist())
        before = set(parts[0][1].tolist())


def errors(found: Audit) -> dict[str, float]:
    return {row.attack: row.mean for row in found.figures if row.metric == "mse"}


def test_the_more_is_known_the_more_of_the_rest_comes_out() -> None:
    found = audited(made(Tau(1.0, "energy")), names=["lmmse", "known"])
    error = errors(found)
    assert error["known-90"] < error["known-50"] < error["known-10"] < error["lmmse"]
    assert error["known-90"] < 0.9 * error["lmmse"]
    assert {"known-10", "known-50", "known-90"} <= set(found.images)
    assert {row.known for row in found.figures if row.attack.startswith("known")} == set(SHARES)
    assert {row.metric for row in found.figures if row.attack == "known-90"} >= {"mse", "snr-db", "psnr-db", "ssim"}
    assert holds(found.verdict, "verdict-images", attack="lmmse")
    (told,) = [told for told in found.verdict if told.code == "verdict-known"]
    assert told.figures["gained_10"] < told.figures["gained_50"] < told.figures["gained_90"]


def test_nothing_beats_its_ceiling_and_it_is_near() -> None:
    for count in (1, 3):
        found = audited(*(made(Tau(0.3, "energy"), seed) for seed in range(count)), names=["lmmse", "known"])
        ceilings = {row.attack: row.ceiling for row in found.figures if row.metric == "mse"}
        for name, error in errors(found).items():
            ceiling = ceilings[name]
            assert ceiling is not None and 0.95 * ceiling < error < 1.25 * ceiling
        assert not any(row.beaten for row in found.figures)


def without_noise(release: Release, trace: Trace) -> Release:
    x = release.encoder.prepare(PRIVATE.take(torch.arange(500)).x)
    rows = (trace.weight.double()[:, :1] * x + trace.weight.double()[:, 1:] * x[trace.partner[:, 0]]).float()
    batch = Batch(rows.view(500, 1, 8, 8), release.payload.take(torch.arange(500)).y)
    return replace(release, payload=Records((batch,), None))


@pytest.mark.parametrize("count", [1, 2])
def test_rows_without_the_noise_that_is_stated_are_an_alarm(count: int) -> None:
    pairs = [made(Tau(0.1, "energy"), seed) for seed in range(count)]
    found = audited(*((without_noise(*pair), pair[1]) for pair in pairs), names=["known"])
    assert holds(found.warnings, "ceiling-beaten", attack="known-90")


def test_an_attack_that_forgets_what_is_known_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixveil.attacks.records.known_records import Solver

    monkeypatch.setattr(
        Solver, "coordinates", lambda self, known, wanted: torch.zeros_like(self.seen[0])[: len(wanted)]
    )
    assert audited(made(Tau(1.0, "energy")), names=["known"]).attacks[0].status == "broken"


def test_of_a_part_known_records_are_among_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixveil.audit import auditing as module

    whole = audited(made(Tau(1.0, "energy")), names=["known"])
    monkeypatch.setitem(module.PROFILES, "quick", module.Profile(200, 1 << 23, (20, 60)))
    part = audited(made(Tau(1.0, "energy")), names=["known"])
    assert figure(part, "known-90", "mse") == pytest.approx(figure(whole, "known-90", "mse"), rel=0.1)
    assert not any(row.beaten for row in part.figures)


def test_the_share_that_mu_leaves_unknown_is_stated_and_holds() -> None:
    pairs = [made(Mu(mu), seed) for seed, mu in enumerate((8.0, 6.0))]
    found = audited(*pairs, names=["known", "lmmse"])
    promise = next(promise for promise in found.promises if promise.name == "variance-left-unknown")
    x = pairs[0][0].encoder.prepare(PRIVATE.take(torch.arange(500)).x)
    spectrum = torch.linalg.eigvalsh(torch.cov(x.T, correction=0)).clamp(min=0)
    clip = pairs[0][0].encoder.clip
    assert clip is not None
    risk = bayes.certified_risk(spectrum, gdp.compose([8.0, 6.0]), clip).sum()
    assert promise.nominal == pytest.approx(float(risk / spectrum.sum()), rel=1e-9)
    assert promise.found is not None and promise.nominal < promise.found < 1 and not promise.broken
    least = min(row.mean for row in found.figures if row.metric == "mse")
    assert least > 0.95 * promise.nominal * float(spectrum.sum()) / 64


def test_weights_that_leave_less_than_mu_promises_are_found() -> None:
    release, trace = made(Mu(8.0))
    stated = tuple(replace(g, nominal=1.0, realised=1.0) if g.name == "gdp" else g for g in release.guarantees)
    found = audited((release.with_(guarantees=stated), trace), names=["prior"])
    assert next(promise for promise in found.promises if promise.name == "variance-left-unknown").broken
    weak, plan = made(Tau(0.1, "energy"))
    none = audited((weak, plan), names=["prior"]).promises
    assert not any(promise.name == "variance-left-unknown" for promise in none)
