"""Noisy second moments: their noise, what an attacker can tell of a record, and what a head learns from them."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.core.types import Batch
from mixveil.features.projection import Projected
from mixveil.features.projection_fit import fit
from mixveil.learn import discriminant
from mixveil.releases import second_moments
from mixveil.releases.contributions import square_total
from mixveil.releases.sums import class_sums
from tests.made import blobs, features_of
from tests.membership import refutes
from tests.sums import DIGEST, WEIGHTS, Watched, ball, base, identity


def test_they_are_the_second_moments_of_clipped_records_and_noise_of_the_stated_size() -> None:
    rows = Projected(features_of(blobs(300, 2)), base())
    clip = second_moments._ROOM * float(rows.projection.norms[3])
    z = rows.take(torch.arange(300)).x[:, :4].double()
    z *= (clip / z.norm(dim=1, keepdim=True)).clamp(max=1)
    found = [second_moments.noisy(rows, 4, 0.5, stream=SeededStream(seed)) for seed in range(2000)]
    noise = torch.stack([part.second for part in found]) - z.T @ z
    sigma = math.sqrt(2) * clip**2 / 0.5
    assert float(noise.diagonal(dim1=1, dim2=2).std()) == pytest.approx(sigma, rel=0.04)
    above = noise[:, *torch.triu_indices(4, 4, 1)]
    assert float(above.std()) == pytest.approx(sigma / math.sqrt(2), rel=0.04)
    assert float(noise.mean().abs()) < 0.05 * sigma and torch.equal(noise, noise.mT)
    assert found[0].rows == 300 and found[0].variance == pytest.approx(sigma**2 / 2)


def test_the_noise_in_steps_is_never_less_than_mu_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Squares move by √2·2ᵇⁱᵗˢ steps at most, what is off the diagonal counts twice: in exact rationals."""
    rows, grids, real = Projected(features_of(blobs(30, 2)), base()), list[int](), square_total

    def watched(rows: Projected, k: int, clip: float, bits: int) -> Tensor:
        grids.append(bits)
        return real(rows, k, clip, bits)

    monkeypatch.setattr(second_moments, "square_total", watched)
    for mu in (1e-3, 0.3, 1.0, 4.2, 1e4):
        Watched.scales.clear()
        second_moments.noisy(rows, 4, mu, stream=Watched(0))
        off, on = map(Fraction, Watched.scales)
        most = Fraction(4) ** grids[-1]
        assert grids[-1] % 2 == 0 and on < 1 << 33
        assert 2 * most <= (Fraction(mu) * on) ** 2 and most <= (Fraction(mu) * off) ** 2
        assert 2 * most >= (Fraction(mu) * on) ** 2 * (1 - Fraction(1, 1 << 38))


BLOCKS = 25  # independent problems in one draw: of more, most of the draw lies off the diagonal, and is not looked at


def scores(mu: float, actual: float, repetitions: int, length: float = 1.0, each: int = 1) -> tuple[Tensor, Tensor]:
    """Of the optimal test, of one record (or `each` of one unit) replaced by one at a right angle: the worst case.

    Every four directions are a problem of their own: one record's square, and the noise of a block of the diagonal."""
    k, wide = 4 * BLOCKS, replace(identity(4 * BLOCKS), clip=100.0)  # what is clipped is clipped here
    one, other = torch.tensor([0.5, -0.5, 0.5, 0.5]), torch.tensor([0.5, 0.5, -0.5, 0.5])
    towards = (one.outer(one) - other.outer(other)).double() * each * second_moments._ROOM**2
    sigma = math.sqrt(2) * each * second_moments._ROOM**2 / mu
    block = torch.arange(each * BLOCKS) // each
    units = tuple(str(number) for number in block.tolist()) if each > 1 else None
    found = []
    for record in (one, other):
        points = torch.zeros(len(block), BLOCKS, 4)
        points[torch.arange(len(block)), block] = length * second_moments._ROOM * record
        rows = Projected(ball(points.flatten(1), 0 * block, units), wide)
        parts = []
        for _ in range(repetitions // BLOCKS):
            second = second_moments.noisy(rows, k, actual, stream=SecureStream()).second.view(BLOCKS, 4, BLOCKS, 4)
            parts.append((second.diagonal(dim1=0, dim2=2) * towards[:, :, None]).sum((0, 1)) / sigma**2)
        found.append(torch.cat(parts))
    return found[0], found[1]


def test_the_optimal_test_against_them() -> None:
    members, others = scores(1.0, 1.0, 4000)
    assert not refutes(members, others, mu=1.0)
    assert refutes(members, others, mu=0.6)  # it comes near the bound: this is the worst case
    assert refutes(*scores(1.0, 2.0, 2000), mu=1.0)  # a planted lie: half the noise
    assert not refutes(*scores(1.0, 1.0, 2000, length=7.0), mu=1.0)  # longer records are clipped
    assert not refutes(*scores(1.0, 1.0, 2000, each=3), mu=1.0)  # three images of one patient


def test_they_clip_by_themselves_and_what_is_no_number_does_not_show() -> None:
    direction = torch.tensor([0.5, -0.5, 0.5, 0.5])
    wild = torch.stack([7 * direction, torch.full((4,), float("nan")), torch.full((4,), float("inf"))])

    class Wild(Projected):
        def take(self, index: Tensor) -> Batch:
            return Batch(wild[index], torch.ones(len(index), 1))

    rows = Wild(ball(torch.zeros(3, 4), torch.zeros(3, dtype=torch.int64)), identity())
    second = second_moments.noisy(rows, 4, 1e6, stream=SeededStream(0)).second
    assert float(direction.double() @ second @ direction.double()) == pytest.approx(second_moments._ROOM**2, abs=1e-3)
    assert float(second.trace()) == pytest.approx(second_moments._ROOM**2, abs=1e-3)


def test_the_rule_takes_fewer_directions_the_more_noise_there_is() -> None:
    public = fit(features_of(blobs(600, 1)), WEIGHTS)

    def count(parties: int = 1, rows: int = 3000, mu: float = 1.0) -> int:
        return second_moments.directions(public, parties=parties, rows=rows, mu=mu)

    assert count(mu=100.0) == public.dimension
    assert count(rows=300) <= count() <= count(mu=4.0) and count(parties=400) < count()
    assert count(rows=3, mu=0.01) == 0
    with pytest.raises(ArgumentError, match="mu must be"):
        count(mu=0.0)


def test_a_head_learns_the_private_covariance_from_them() -> None:
    """Classes that differ a little in one value, and vary much in another that has nothing to do with them, together
    with the first: only who knows how both vary together can tell the classes apart."""

    def data(n: int, seed: int, tied: float) -> Tensor:
        stream = SeededStream(seed)
        common, own = stream.normal(n), 0.2 * stream.normal(n, 4)
        x = torch.stack([common, tied * common, 0 * common, 0 * common], 1) + own
        x[:, 0] += 0.6 * (torch.arange(n) % 2)
        return x

    labels = torch.arange(6000) % 2
    public = replace(
        fit(ball(data(2000, 1, 0.0), torch.arange(2000) % 2), WEIGHTS), norms=torch.linspace(2.0, 4.0, 4), clip=4.0
    )
    rows = Projected(ball(data(6000, 2, 1.0), labels), public)
    sums = [class_sums(rows, DIGEST, 5.0, party="p", stream=SeededStream(3))]
    second = [second_moments.noisy(rows, 4, 5.0, stream=SeededStream(4))]
    test = (ball(data(3000, 5, 1.0), labels[:3000]).read(torch.arange(3000)) - public.mean) @ public.matrix
    plain, better = (
        float(head(test).argmax(1).eq(labels[:3000]).double().mean())
        for head in (discriminant.from_sums(sums), discriminant.from_moments(sums, second))
    )
    assert plain < 0.75 and better > plain + 0.1
