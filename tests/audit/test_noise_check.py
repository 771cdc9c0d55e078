from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mixveil.audit import noise_check
from mixveil.core.randomness import SeededStream
from tests.notes import codes


def faults(normals: Tensor, *, sphere: bool) -> set[str]:
    return codes(noise_check.faults(normals, normals.square().sum(1), "sphere" if sphere else "gaussian"))


SHAPES = [(20, 8), (100, 9), (50, 64), (500, 64), (3000, 16), (10, 3072)]


@pytest.mark.parametrize("shape", SHAPES)
def test_honest_noise_passes(shape: tuple[int, int]) -> None:
    for seed in range(20):
        assert faults(SeededStream(seed).normal(*shape), sphere=False) == set()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_without_noise_is_found(shape: tuple[int, int]) -> None:
    noise = SeededStream(0).normal(*shape)
    noise[3] = 1e-4  # what rounding leaves
    assert "noise-odd-rows" in faults(noise, sphere=False)


def test_noise_on_a_sphere_passes_as_such_only() -> None:
    noise = SeededStream(0).sphere(200, 64, 8.0)
    assert faults(noise, sphere=True) == set()
    noise[5] *= 1.01
    assert "noise-off-sphere" in faults(noise, sphere=True)


def test_laplace_noise_is_told_from_gaussian() -> None:
    laplace, normal = SeededStream(0).laplace(200, 64) / 2**0.5, SeededStream(0).normal(200, 64)

    def found(noise: Tensor) -> set[str]:
        return codes(noise_check.faults(noise, noise.square().sum(1), "laplace"))

    assert found(laplace) == set() and "noise-not-laplace" in found(normal)
    assert "noise-shared-by-rows" in found(torch.cat([laplace[:100], laplace[:100]]))
    assert faults(laplace, sphere=False)


def test_what_is_said_to_be_noticed_is_noticed_and_what_is_not_is_not() -> None:
    """Single values with weak noise, in rows that were chosen: the sentence and the test agree."""
    rows, stream = 2000, SeededStream(5)
    assert noise_check.noticed(20, math.sqrt(20)).code == "verdict-weak-noise-unnoticed"
    for moved in (0.0, 5.0, math.sqrt(rows)):
        limit = noise_check.noticed(rows, moved).figures["share"]
        for factor, seen in ((limit - 0.06, True), (limit + 0.06, False)):
            noise = stream.normal(rows, 20)
            noise[:, 3] *= factor
            said_of = noise_check.faults(noise, noise.square().sum(1), "gaussian", moved)
            assert ("noise-odd-values" in codes(said_of)) == seen
