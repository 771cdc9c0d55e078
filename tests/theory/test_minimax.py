from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.theory import minimax
from mixveil.theory.minimax import cycles, known_others_factors, log_minimax_factors
from tests.made import mixing_matrix


def dense_factors(partner: Tensor, weight: Tensor) -> Tensor:
    inverse: Tensor = torch.linalg.inv(mixing_matrix(partner, weight))
    return inverse.square() @ weight[:, 1].double().square()


def test_factors_equal_the_dense_inverse_on_200_random_cases() -> None:
    stream = SeededStream(3)
    worst = 0.0
    for _ in range(200):
        n = 2 + int(stream.uniform(1) * 299)
        alpha = 0.51 + 0.48 * float(stream.uniform(1))
        partner, weight = stream.permutation(n), stream.capped_weights(n, alpha)
        fast, slow = log_minimax_factors(partner, weight).exp(), dense_factors(partner, weight)
        worst = max(worst, float(((fast - slow) / slow).abs().max()))
    assert worst < 1e-9


@settings(deadline=None)
@given(n=st.integers(1, 12), seed=st.integers(0, 10**6), cyclic=st.booleans())
def test_factors_on_small_cycles_of_every_kind(n: int, seed: int, cyclic: bool) -> None:
    """Fixed points, two-cycles, odd and even, forwards and backwards."""
    stream = SeededStream(seed)
    partner = torch.arange(n).roll(-1) if cyclic else stream.permutation(n)
    weight = stream.capped_weights(n, 0.9)
    assert torch.allclose(log_minimax_factors(partner, weight).exp(), dense_factors(partner, weight), rtol=1e-8)


@settings(deadline=None)
@given(n=st.integers(2, 30), seed=st.integers(0, 10**6), chunk=st.integers(1, 7), cyclic=st.booleans())
def test_factors_do_not_depend_on_how_much_is_held_at_a_time(n: int, seed: int, chunk: int, cyclic: bool) -> None:
    stream = SeededStream(seed)
    partner = stream.derangement(n) if cyclic else stream.permutation(n)
    weight = stream.capped_weights(n, 0.9)
    whole = log_minimax_factors(partner, weight)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minimax, "_CHUNK", chunk)
        parts = log_minimax_factors(partner, weight)
    assert torch.allclose(parts, whole, rtol=1e-9, atol=1e-9)
    assert torch.allclose(parts.exp(), dense_factors(partner, weight), rtol=1e-7)


@pytest.mark.parametrize("own", [0.3, 0.7])
def test_long_cycles_neither_overflow_nor_cancel(own: float) -> None:
    """The trap: in the wrong direction the products of 100,000 ratios overflow and 1 − P² cancels."""
    n = 100_000
    weight = torch.tensor([[own, 1 - own]]).expand(n, 2)
    logs = log_minimax_factors(torch.arange(n).roll(-1), weight)
    ratio = (0.7 / 0.3) ** 2
    expected = 1 / (ratio - 1) if own == 0.7 else 1 / (1 - 1 / ratio)
    assert torch.allclose(logs.exp(), torch.tensor(expected, dtype=torch.float64), rtol=1e-6)


def test_a_million_rows_stay_finite_in_logarithms() -> None:
    stream = SeededStream(1)
    logs = log_minimax_factors(stream.permutation(1_000_000), stream.capped_weights(1_000_000, 0.7))
    assert bool(logs.isfinite().all())


def test_half_weights_are_singular_on_even_cycles_only() -> None:
    weight = torch.full((7, 2), 0.5)
    factors = log_minimax_factors(torch.tensor([1, 0, 3, 4, 2, 6, 5]), weight).exp()
    assert factors.isinf().tolist() == [True, True, False, False, False, True, True]
    assert torch.allclose(factors[2:5], torch.tensor(0.75, dtype=torch.float64))


def test_no_estimator_with_w_known_beats_the_factor() -> None:
    """Monte Carlo twin: the least-squares estimator W⁻¹X̃ has exactly that error."""
    stream = SeededStream(5)
    partner, weight = torch.tensor([2, 0, 1, 4, 3]), stream.capped_weights(5, 0.7)
    noise = stream.sphere(200_000 * 5, 3, 2.0).view(200_000, 5, 3) * weight[:, 1:].double()
    error = torch.linalg.inv(mixing_matrix(partner, weight)) @ noise
    measured = error.square().sum(2).mean(0)
    assert torch.allclose(measured, 4 * log_minimax_factors(partner, weight).exp(), rtol=0.05)


def test_an_attacker_who_knows_all_others() -> None:
    """His error is that of two looks at one record: w₁x under noise w₂, and w₂'x under noise w₂'."""
    weight = torch.tensor([[0.7, 0.3], [0.4, 0.6]])
    looks = torch.tensor([(0.7 / 0.3) ** 2 + 1, (0.4 / 0.6) ** 2 + 1], dtype=torch.float64)
    assert torch.allclose(known_others_factors(weight), 1 / looks)
    assert math.isclose(float(known_others_factors(torch.tensor([[0.7, 0.3]]))), 0.155, abs_tol=1e-3)


def test_cycles_follow_the_partner() -> None:
    partner = torch.tensor([3, 4, 2, 5, 1, 0])
    found = {tuple(cycle) for group in cycles(partner) for cycle in group.tolist()}
    assert found == {(2,), (1, 4), (0, 3, 5)}


@pytest.mark.parametrize("partner", [[0, 0], [1, 2], [-1, 0]])
def test_what_is_no_permutation_is_refused(partner: list[int]) -> None:
    with pytest.raises(ArgumentError, match="permutation"):
        log_minimax_factors(torch.tensor(partner), torch.full((2, 2), 0.5))
