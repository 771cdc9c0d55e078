"""What Huang et al. 2020 prove of Gaussian images (Appendix B), with constants that say something at d = 3072.

For x ~ N(0, I/d) and δ shared among P events, L = ln(2P/δ):

    |⟨x, x'⟩| ≤ (√(2dL) + L)/d      two images; the paper has 10⁴ √d log²(d/δ)/d, which is above 1 at any d in use
    ‖x‖² ≥ 1 − 2√(dL)/d             Laurent and Massart, as in the paper's Lemma B.5

(⟨x, x'⟩ has the cumulants −(d/2) ln(1 − s²/d²) ≤ (s²/d)/(2(1 − s/d)), which gives the first by Chernoff's bound.) The
corollaries print their conditions the wrong way round: their proofs need √d to be large beside the logarithms.
"""

from __future__ import annotations

import math

import pytest
from torch import Tensor

from mixveil.core.randomness import SeededStream

DELTA = 1e-3


def images(n: int, d: int, seed: int = 1) -> Tensor:
    return SeededStream(seed).normal(n, d) / math.sqrt(d)


def inner_bound(d: int, events: int) -> float:
    logarithm = math.log(2 * events / DELTA)
    return (math.sqrt(2 * d * logarithm) + logarithm) / d


def least_energy(d: int, events: int) -> float:
    return 1 - 2 * math.sqrt(d * math.log(2 * events / DELTA)) / d


def mixtures(d: int, masked: bool = False) -> tuple[Tensor, Tensor]:
    """Inner products of sums of two that share one image, and of sums that share none: x₃ + x₁ with x₃ + x₂ and with
    x₂ + x₂'. masked: every sum behind signs of its own."""
    n = 40
    x1, x2, x3 = images(3 * n, d).view(3, n, d).unbind(0)
    sums = [x3 + x1, x3 + x2, x2 + x2.roll(1, 0)]
    if masked:
        sums = [s * SeededStream(seed).signs(n, d) for seed, s in enumerate(sums, 5)]
    shared = (sums[0] * sums[1]).sum(1)
    return shared, (sums[0] @ sums[2].T).flatten()


def test_sums_that_share_an_image_are_told_by_their_inner_product() -> None:
    """Theorem B.1 and Corollary B.2: with the ratio β > 1 that the bounds give."""
    d = 3072
    shared, others = mixtures(d)
    events = len(others) * 4 + len(shared) * 4
    inner, energy = inner_bound(d, events), least_energy(d, events)
    assert float(others.abs().max()) <= 4 * inner
    assert float(shared.min()) >= energy - 3 * inner
    beta = (energy - 3 * inner) / (4 * inner)
    assert beta > 1 and float(shared.min()) >= beta * float(others.abs().max())


@pytest.mark.parametrize(("d", "masked"), [(16, False), (3072, True)])
def test_few_values_or_hidden_signs_hide_what_sums_share(d: int, masked: bool) -> None:
    shared, others = mixtures(d, masked)
    assert float(shared.min()) < float(others.abs().max())
    assert not masked or float(shared.abs().mean()) < 2 * float(others.abs().mean())


def searched(d: int, k: int, masked: bool = False) -> tuple[Tensor, Tensor]:
    """Inner products of x̃ = Σ x_i with the k images in it, and with 400 others."""
    x = images(400 + k, d)
    mixed = x[:k].sum(0)
    mixed = mixed * SeededStream(7).signs(d) if masked else mixed
    inner = x @ mixed
    return inner[:k], inner[k:]


@pytest.mark.parametrize("k", [2, 4])
def test_images_in_a_sum_are_told_by_their_inner_product(k: int) -> None:
    """Theorem B.3 and Corollary B.4."""
    d = 1 << 15
    held, others = searched(d, k)
    events = k * (len(others) + len(held) + 1)
    inner, energy = inner_bound(d, events), least_energy(d, events)
    assert float(others.abs().max()) <= k * inner
    assert float(held.min()) >= energy - (k - 1) * inner
    beta = (energy - (k - 1) * inner) / (k * inner)
    assert beta > 1 and float(held.min()) >= beta * float(others.abs().max())


def test_at_the_size_of_small_images_four_of_them_are_still_told() -> None:
    """d = 3072 and k = 4: the bound's β is below 1, what happens is not."""
    held, others = searched(3072, 4)
    assert float(held.min()) > 3 * float(others.abs().max())


@pytest.mark.parametrize(("d", "masked"), [(16, False), (1 << 15, True)])
def test_few_values_or_hidden_signs_hide_what_a_sum_holds(d: int, masked: bool) -> None:
    held, others = searched(d, 4, masked)
    assert float(held.min()) < float(others.abs().max())


def test_squares_show_what_signs_hide_of_gaussian_images() -> None:
    """Section 9: E v_s = 2λ²σ⁴d for an image s in the row with weight λ, and 0 for another."""
    d, n = 3072, 1500
    x, s = images(n, d, 2) * math.sqrt(d), images(n, d, 3) * math.sqrt(d)
    row = 0.6 * x + 0.4 * s
    row = row * SeededStream(4).signs(n, d)
    energy = row.square()

    def score(of: Tensor) -> Tensor:
        return (energy * of.square()).sum(1) - energy.sum(1) * of.square().sum(1) / d

    for of, expected in ((x, 2 * 0.36 * d), (s, 2 * 0.16 * d), (x.roll(1, 0), 0.0)):
        told = score(of)
        # ‖s‖² and ⟨x̃², s²⟩ share noise: of what is expected, 2/d is missing.
        error = float(told.std()) / math.sqrt(n)
        assert abs(float(told.mean()) - expected) < 4 * error + 4 * expected / d
