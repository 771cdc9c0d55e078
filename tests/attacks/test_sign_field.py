"""One sign for every value of all images: against all signs that there are, and planted ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from mixveil.attacks.shared.breaks.sign_field import PixelPrior, annealed, chosen_signs
from mixveil.core.randomness import SeededStream


def smooth(n: int, side: int, seed: int, mean: float = 0.5) -> Tensor:
    """(n, side²) Gaussian images in which pixels beside one another are alike."""
    place = torch.stack(torch.meshgrid(*2 * [torch.arange(side).double()], indexing="ij"), dim=-1).view(-1, 2)
    apart = (place[:, None] - place).square().sum(2)
    covariance = torch.exp(-apart / 8) + 0.01 * torch.eye(side**2)
    root: Tensor = torch.linalg.cholesky(covariance)
    return mean + SeededStream(seed).normal(n, side**2) @ root.T


def all_signs(count: int) -> np.ndarray:
    return np.array(list(itertools.product((-1.0, 1.0), repeat=count)))


@pytest.mark.parametrize("seed", range(12))
def test_annealing_finds_the_best_of_all_signs(seed: int) -> None:
    count = 4 + seed % 8
    drawn = SeededStream(seed).normal(count, count).numpy()
    links, pull = drawn + drawn.T, 0.5 * (seed % 3) * SeededStream(seed + 50).normal(count).numpy()
    np.fill_diagonal(links, 0)
    every = all_signs(count)
    worth = every @ pull - 0.5 * ((every @ links) * every).sum(1)
    found = annealed(pull, links, SeededStream(seed + 100))
    assert set(np.abs(found)) == {1.0}
    assert found @ pull - 0.5 * found @ links @ found == pytest.approx(worth.max())


@pytest.mark.parametrize("seed", range(12))
def test_chosen_signs_are_the_likeliest_of_gaussian_images(seed: int) -> None:
    """Whatever the images are: of these, their mean and their values beside one another say different things."""
    prior, x = PixelPrior.of(smooth(50, 3, seed)), 0.3 + SeededStream(seed + 10).normal(20, 9)
    every = torch.from_numpy(all_signs(9))
    beyond = every[:, None] * x - prior.mean
    likely = -0.5 * torch.einsum("sni,ij,snj->s", beyond, prior.precision(), beyond)
    assert torch.equal(chosen_signs(x, prior, SeededStream(0)), every[likely.argmax()])


@pytest.mark.parametrize("seed", range(4))
def test_planted_flips_are_undone(seed: int) -> None:
    flips = SeededStream(seed).signs(64).float()
    found = chosen_signs(flips * smooth(20, 8, seed + 10).float(), PixelPrior.of(smooth(300, 8, 99)), SeededStream(0))
    assert torch.equal(found, flips) and found.dtype == torch.float32


def test_without_a_mean_one_sign_of_all_values_together_stays_unknown() -> None:
    flips = SeededStream(1).signs(64).double()
    public = smooth(150, 8, 99, mean=0)
    x = smooth(20, 8, 5, mean=0)
    prior = PixelPrior.of(torch.cat([public, -public]))  # no mean at all
    found = chosen_signs(flips * x, prior, SeededStream(0))
    assert torch.equal(found, flips) or torch.equal(found, -flips)


def test_the_precision_is_the_inverse_of_covariance_and_ridge() -> None:
    x = smooth(40, 3, 1)
    covariance = np.cov(x.numpy().T)
    ridged = covariance + 0.05 * np.trace(covariance) / 9 * np.eye(9)
    precision = PixelPrior.of(x.float()).precision()
    assert precision.dtype == torch.float64
    np.testing.assert_allclose(precision.numpy() @ ridged, np.eye(9), atol=1e-5)
    few = PixelPrior.of(x[:4]).precision()  # fewer images than values
    assert bool(few.isfinite().all()) and bool((torch.linalg.eigvalsh(few) > 0).all())


def test_a_prior_has_the_moments_of_public_images_and_no_value_is_constant() -> None:
    x = smooth(40, 3, 1)
    x[:, 4] = 0.25
    prior = PixelPrior.of(x)
    torch.testing.assert_close(prior.mean, x.sum(0) / 40)
    variance = (x - prior.mean).square().sum(0) / 39
    others = torch.arange(9) != 4
    torch.testing.assert_close(prior.variance[others], variance[others])
    assert float(prior.variance[4]) == pytest.approx(1e-3 * float(variance.mean()))
    assert bool((PixelPrior.of(torch.ones(5, 3)).variance > 0).all())
