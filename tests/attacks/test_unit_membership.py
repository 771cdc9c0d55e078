"""The attack on whole units, against slow twins, and over many secure draws."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from scipy import stats
from torch import Tensor

from mixveil.attacks.records.linkage import Linkage, Membership
from mixveil.attacks.records.unit_membership import UnitMembership, evidence
from mixveil.attacks.shared.model import prior_of
from mixveil.audit.metrics.detection import tpr_at_fpr
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SecureStream, SeededStream, Stream
from mixveil.core.types import Attack, Batch, Encoder, Fact, Facts, Mu, Release, Trace, Units, View
from mixveil.data.images import Images, from_tensors
from mixveil.data.row_views import InMemoryRows
from mixveil.encoders.singular import CalibratedSingular, Singular
from mixveil.theory.gdp import member_tpr
from tests.made import basis_of, in_memory, mixing_matrix
from tests.membership import refutes

SIGMAS = torch.tensor([0.3, 0.2, 0.1, 0.05], dtype=torch.float64)


def gaussian(n: int, seed: int) -> Images:
    """Records of four values, longer than no clip norm here."""
    x = 0.5 + SIGMAS * SeededStream(seed).normal(n, 4)
    return replace(from_tensors(x.float(), torch.arange(n) % 2), low=-9.0, high=9.0)


def facts(clip: float, rows: int) -> Facts:
    known = {"dimension": 4.0, "centre": 0.5, "amplitude": 9.0, "clip": clip, "unit_rows": float(rows)}
    return Facts({name: Fact(value, "public") for name, value in known.items()})


def released(encoder: Encoder, data: Images, whose: Tensor, stream: Stream) -> tuple[Release, Trace]:
    trace = encoder.plan(len(data), stream=stream.fork("plan"), units=whose)
    batch = encoder.encode(data, torch.arange(len(data)), trace, stream=stream.fork("noise"))
    return in_memory(encoder, batch, encoder.step, data.classes), trace


def dense(view: View, rows: list[int], candidates: list[int]) -> float:
    """The slow twin: the densities of all rows that hold a record of the unit, from one covariance a direction."""
    assert view.candidates is not None and view.traces is not None
    prior, release, trace = prior_of(view), view.releases[0], view.traces[0]
    n = len(trace.weight)
    matrix = mixing_matrix(trace.partner[:, 0], trace.weight)
    noise = torch.diag((trace.weight[:, 1].double() * release.encoder.sigma) ** 2)
    seen = (release.payload.take(torch.arange(n)).x.flatten(1).double() + 0.5 - prior.mean) @ basis_of(prior)
    asked = (view.candidates[candidates].flatten(1).double() - prior.mean) @ basis_of(prior)
    here = [row for row in range(n) if float(matrix[row, rows].abs().sum()) > 0]
    others = matrix.clone()
    others[:, rows] = 0
    total = 0.0
    for k, variance in enumerate(prior.variance.tolist()):
        alone = variance * others @ others.T + noise
        mixed = variance * matrix @ matrix.T + noise
        x, centre = seen[here, k].numpy(), (matrix[:, rows] @ asked[:, k])[here].numpy()
        total += stats.multivariate_normal.logpdf(x, centre, alone[here][:, here].numpy())
        total -= stats.multivariate_normal.logpdf(x, 0 * centre, mixed[here][:, here].numpy())
    return total


def tiny(seed: int, mu: float = 40.0) -> View:
    """Seven rows of three persons, so few that rows of a unit share others' records and close whole cycles."""
    whose = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    encoder, _ = Singular().calibrate(Mu(mu), facts(2.0, 3))
    release, trace = released(encoder, data := gaussian(7, 1), whose, SeededStream(seed))
    candidates = torch.cat([data.take(torch.arange(7)).x, gaussian(3, 9).take(torch.arange(3)).x])
    groups = [([0, 1, 2], [0, 1, 2]), ([3, 4], [3, 4]), ([6, 5], [6, 5]), ([0, 1, 2], [7, 9, 8]), ([3, 4], [8, 7])]
    return View((release,), (trace,), gaussian(500, 2), candidates, units=as_units(groups))


def as_units(groups: list[tuple[list[int], list[int]]]) -> Units:
    number = torch.tensor([i for i, (rows, _) in enumerate(groups) for _ in rows])
    rows = torch.tensor([row for rows, _ in groups for row in rows])
    return Units(number, rows, torch.tensor([c for _, candidates in groups for c in candidates]))


@pytest.mark.parametrize("seed", range(4))
def test_the_ratio_is_that_of_the_dense_densities(seed: int) -> None:
    view = tiny(seed)
    assert view.units is not None
    found = evidence(view).ratio
    for group in range(5):
        mine = view.units.group == group
        wanted = dense(view, view.units.row[mine].tolist(), view.units.candidate[mine].tolist())
        assert float(found[group]) == pytest.approx(wanted, rel=1e-7, abs=1e-7)


def test_a_unit_of_one_row_in_a_long_cycle_has_the_ratio_of_linkage() -> None:
    view = tiny(0)
    asked = replace(view, units=as_units([([row], [7]) for row in range(7)]))
    assert view.traces is not None
    partner = view.traces[0].partner[:, 0]
    apart = partner[partner] != torch.arange(7)  # two that are paired with each other share both records
    links = Linkage()(view, stream=SeededStream(0)).links
    assert links is not None and bool(apart.any())
    assert torch.allclose(evidence(asked).ratio[apart], links[7][apart])


def test_mean_and_variance_are_those_of_rows_that_hold_others() -> None:
    """Against releases of other records: the attacker's law of records is the one that they are drawn from."""
    view, draws = tiny(0), 800
    assert view.units is not None and view.traces is not None
    encoder, trace, prior = view.releases[0].encoder, view.traces[0], prior_of(view)
    drawn = prior.variance.sqrt() * SeededStream(5).normal(draws, 7, 4)
    records = drawn @ basis_of(prior).T + prior.mean - 0.5
    noise = encoder.deviation(trace.weight)[:, None] * SeededStream(6).normal(draws, 7, 4)
    rows = mixing_matrix(trace.partner[:, 0], trace.weight) @ records + noise
    held = [replace(view.releases[0], payload=InMemoryRows(Batch(x, torch.zeros(7, 2)))) for x in rows]
    found = [evidence(replace(view, releases=(release,))) for release in held]
    seen, mean, variance = torch.stack([of.ratio for of in found]), found[0].mean, found[0].variance
    assert bool(((seen.mean(0) - mean).abs() < 5 * (variance / draws).sqrt()).all())
    assert torch.allclose(seen.var(0), variance, rtol=0.4)


def test_groups_that_cannot_be_are_refused() -> None:
    with pytest.raises(ArgumentError, match="two images for one row"):
        evidence(replace(tiny(0), units=as_units([([1, 1], [0, 1])])))


# Over many secure draws

M, UNITS = 4, 50
CLIP = 1.0


def longest(n: int, seed: int) -> Images:
    """Records of 16 values, all as long as the clip norm, in every direction."""
    x = SeededStream(seed).normal(n, 16)
    x = 0.5 + CLIP * x / torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return replace(from_tensors(x.float(), torch.arange(n) % 2), low=-9.0, high=9.0)


def scores(encoder: Encoder, draws: int, m: int = M, singly: bool = False) -> dict[str, tuple[Tensor, Tensor]]:
    """By attack, the scores of members and of strangers: of whole units; singly, also of images one by one.
    Every release is of the same records, under new secure noise; strangers take the places of units."""
    n = m * UNITS
    data, others, public = longest(n, 1), longest(n, 2), longest(2000, 3)
    candidates = torch.cat([of.take(torch.arange(n)).x for of in (data, others)])
    whose = torch.arange(n) // m
    rows = torch.cat([torch.arange(n), torch.arange(n)])
    whole = Units(torch.cat([whose, whose + UNITS]), rows, torch.arange(2 * n))
    found: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for _ in range(draws):
        release, trace = released(encoder, data, whose, SecureStream())
        view = View((release,), (trace,), public, candidates, units=whole)
        single = replace(view, units=Units(torch.arange(2 * n), rows, torch.arange(2 * n)))
        asked: list[tuple[str, View, Attack]] = [("units", view, UnitMembership())]
        if singly:
            asked += [("images", single, UnitMembership()), ("membership", view, Membership())]
        for name, seen, attack in asked:
            got = attack(seen, stream=SeededStream(0)).scores
            assert got is not None
            found.setdefault(name, []).append((got[: len(got) // 2], got[len(got) // 2 :]))
    return {name: (torch.cat([a for a, _ in of]), torch.cat([b for _, b in of])) for name, of in found.items()}


def calibrated(mu: float, rows: int = M) -> CalibratedSingular:
    return Singular().calibrate(Mu(mu), wide(rows))[0]


def wide(rows: int) -> Facts:
    return facts(CLIP, rows).with_(dimension=Fact(16.0, "public"), amplitude=Fact(1.0, "public"))


@pytest.mark.parametrize("mu", [1.0, 6.0])
def test_honest_releases_keep_their_ceiling_and_units_are_easier_to_find_than_images(mu: float) -> None:
    found = scores(calibrated(mu), 16, singly=True)
    for members, others in found.values():
        assert not refutes(members, others, mu)
    got = {name: tpr_at_fpr(*of, 0.01) for name, of in found.items()}
    ceiling = member_tpr(mu, 0.01)
    assert got["units"] < ceiling + 4 * math.sqrt(ceiling * (1 - ceiling) / (16 * UNITS))
    if mu > 1:
        assert got["units"] > 0.4 and got["units"] > 2.5 * max(got["images"], got["membership"])


def test_noise_for_single_images_refutes_what_it_claims_of_units() -> None:
    """Sixteen images a person under noise for one: the claim of μ = 1 is refuted, what the settings give is not."""
    liar = replace(calibrated(1.0, 1), unit_rows=16)
    members, others = scores(liar, 24, m=16)["units"]
    assert refutes(members, others, 1.0) and not refutes(members, others, 4.0)
