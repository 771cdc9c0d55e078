"""What rows hold of images that an attacker has: against an eigendecomposition, Bayes' rule and the likelihood."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mixveil.attacks.shared.gaussian.public_part import (
    climbed,
    coordinates,
    expected_rest,
    expected_signs,
    leading_direction,
)
from mixveil.core.randomness import SeededStream

KNOWN = SeededStream(1).normal(12, 6000)


def rows(unknown: float, count: int = 8) -> tuple[Tensor, Tensor]:
    """Two known images each, by their weights, and normal values beside them, of this deviation."""
    stream = SeededStream(2)
    weight = torch.zeros(count, len(KNOWN), dtype=torch.float64)
    for row in weight:
        row[stream.permutation(len(KNOWN))[:2]] = 0.1 + 0.4 * stream.uniform(2)
    rest = unknown * stream.normal(count, KNOWN.shape[1])
    return (weight @ KNOWN + rest).abs(), weight


def test_the_direction_is_the_first_of_the_matrix() -> None:
    size, _ = rows(0.3)
    told = leading_direction(size, KNOWN)
    for x, found in zip(size, told, strict=True):
        matrix = torch.zeros(len(KNOWN), len(KNOWN), dtype=torch.float64)
        for value, p in zip(x, KNOWN.T, strict=True):
            matrix += value**2 * (torch.outer(p, p) - torch.eye(len(p)))
        eigenvalues, vectors = torch.linalg.eigh(matrix / len(x))
        slow = vectors[:, -1] * math.sqrt(float(eigenvalues[-1]) / 2) * vectors[:, -1].sum().sign()
        assert torch.allclose(found, slow, atol=0.01)


def test_it_is_near_the_weights_and_the_likelihood_takes_it_nearer() -> None:
    size, weight = rows(0.3)
    first, then = leading_direction(size, KNOWN), coordinates(size, KNOWN)
    assert float((first - weight).abs().max()) < 0.1 and float((then - weight).abs().max()) < 0.03
    assert float((then - weight).square().mean()) < float((first - weight).square().mean())
    assert (likelihood(size, then) > likelihood(size, first)).all()


def likelihood(size: Tensor, weight: Tensor) -> Tensor:
    """(m,) of rows, each with the deviation beside its known part that fits best."""
    part, tried = weight @ KNOWN, torch.linspace(0.2, 0.5, 61, dtype=torch.float64)
    densities = [
        (torch.exp(-((size - part) ** 2) / (2 * s**2)) + torch.exp(-((size + part) ** 2) / (2 * s**2))) / s
        for s in tried.tolist()
    ]
    return torch.stack([density.log().sum(1) for density in densities]).amax(0)


def test_where_all_images_of_a_row_are_known_the_weights_are_exact() -> None:
    size, weight = rows(0.0)
    assert torch.allclose(coordinates(size, KNOWN), weight, atol=1e-8)
    assert torch.allclose(climbed(size, KNOWN, weight), weight, atol=1e-8)


def test_other_scales_of_known_images_scale_their_weights() -> None:
    size, weight = rows(0.0)
    assert torch.allclose(coordinates(5 * size, 10 * KNOWN), weight / 2, atol=1e-8)


def test_signs_and_the_rest_are_by_the_rule_of_bayes() -> None:
    size, part, variance = torch.tensor([[0.7, 0.2]]), torch.tensor([[0.3, -0.5]]), torch.tensor([[0.4]])
    for place in range(2):
        x, p, v = float(size[0, place]), float(part[0, place]), 0.4
        up, down = (math.exp(-((sign * x - p) ** 2) / (2 * v)) for sign in (1, -1))
        expected = (up - down) / (up + down)
        assert abs(float(expected_signs(size, part, variance)[0, place]) - expected) < 1e-6
        rest = (up * (x - p) + down * (-x - p)) / (up + down)
        assert abs(float(expected_rest(size, part, variance)[0, place]) - rest) < 1e-6
