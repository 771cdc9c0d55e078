"""MixCon, UniCon and how far representations lie apart, against loops written from the formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.theory.separability import EPSILON, mixcon, separability, squared_distances, unicon


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return SeededStream(seed).normal(*shape)


def flat(h: Tensor, normalised: bool) -> list[Tensor]:
    rows = [row.flatten() for row in h]
    return [row / row.norm() for row in rows] if normalised else rows


def by_class(rows: list[Tensor], labels: list[int]) -> dict[int, list[Tensor]]:
    found: dict[int, list[Tensor]] = {}
    for row, label in zip(rows, labels, strict=True):
        found.setdefault(label, []).append(row)
    return found


def slow_mixcon(h: Tensor, labels: Tensor, beta: float, *, normalised: bool = True, epsilon: float = EPSILON) -> Tensor:
    """Spec 03, term by term: x_{i,c} is the i-th sample of class c in the batch."""
    classes = by_class(flat(h, normalised), labels.tolist())
    p, total = min(map(len, classes.values())), 0 * h.sum()
    for i in range(p):
        for one in classes:
            for other in classes:
                if one != other:
                    dist = (classes[one][i] - classes[other][i]).square().sum().clamp(epsilon, 1 / epsilon)
                    total = total + dist + beta / dist
    return total / (p * len(classes) * (len(classes) - 1)) if len(classes) > 1 else total


def slow_unicon(h: Tensor, labels: Tensor, *, normalised: bool = True) -> Tensor:
    classes = by_class(flat(h, normalised), labels.tolist())
    total = 0 * h.sum()
    for rows in classes.values():
        if len(rows) > 1:
            pairs = [(one - other).square().sum() for one in rows for other in rows]
            total = total + torch.stack(pairs).sum() / (len(rows) * (len(rows) - 1))
    return total / len(classes)


def slow_separability(h: Tensor, labels: Tensor, normalised: bool) -> tuple[float, float, float]:
    rows, n = flat(h.double(), normalised), len(h)
    pairs = {(i, j): float((rows[i] - rows[j]).norm()) for i in range(n) for j in range(i)}
    across = [distance for (i, j), distance in pairs.items() if labels[i] != labels[j]]
    return min(pairs.values()), max(across, default=0.0), sum(pairs.values()) / len(pairs)


BATCHES = st.lists(st.sampled_from([0, 1, 2, 5, 70_000]), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(BATCHES, st.integers(0, 1 << 30), st.sampled_from([0.0, 1e-2, 1.0]), st.booleans(), st.booleans())
@example([0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0, 0], 22061, 1e-2, True, True)  # two nearly coincide
def test_losses_and_their_gradients_are_those_of_the_loops(
    classes: list[int], seed: int, beta: float, normalised: bool, double: bool
) -> None:
    dtype, near = (torch.float64, 1e-9) if double else (torch.float32, 1e-4)
    labels = torch.tensor(classes)
    if not double and len(classes) > 1:  # β / dist of two that nearly coincide has fewer digits than float32
        assume(slow_separability(drawn(len(labels), 3, seed=seed), labels, normalised)[0] > 0.1)
    for loss in ("mixcon", "unicon"):
        h = drawn(len(labels), 3, seed=seed).to(dtype).requires_grad_()
        twin = h.detach().double().requires_grad_()
        if loss == "mixcon":
            found = mixcon(h, labels, beta, normalised=normalised)
            expected = slow_mixcon(twin, labels, beta, normalised=normalised)
        else:
            found, expected = unicon(h, labels, normalised=normalised), slow_unicon(twin, labels, normalised=normalised)
        assert found.dtype == dtype and found.shape == ()
        torch.testing.assert_close(found.double(), expected, rtol=near, atol=near)
        (got,) = torch.autograd.grad(found, h)
        (wanted,) = torch.autograd.grad(expected, twin)
        torch.testing.assert_close(
            got.double(), wanted, rtol=100 * near, atol=10 * near * (1 + float(wanted.abs().max()))
        )


@pytest.mark.parametrize("normalised", [True, False])
def test_gradients_by_differences(normalised: bool) -> None:
    labels = torch.tensor([4, 1, 1, 4, 4, 7, 1, 7])
    h = drawn(8, 2, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda h: mixcon(h, labels, 0.3, normalised=normalised), (h,))
    assert torch.autograd.gradcheck(lambda h: unicon(h, labels, normalised=normalised), (h,))
    assert torch.autograd.gradcheck(squared_distances, (h,))


def test_the_order_within_a_class_decides_who_meets() -> None:
    """The second sample of each class meets the second of the others; the third of the larger class meets nobody."""
    h = torch.tensor([[0.0], [10.0], [1.0], [12.0], [50.0]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 0, 1, 1])
    assert float(mixcon(h, labels, 0.0, normalised=False)) == pytest.approx((10**2 + 11**2) / 2)
    moved = h + 1000 * (torch.arange(5) == 4)[:, None]
    assert float(mixcon(moved, labels, 0.0, normalised=False)) == pytest.approx((10**2 + 11**2) / 2)
    swapped = h[[2, 1, 0, 3, 4]]
    assert float(mixcon(swapped, labels, 0.0, normalised=False)) == pytest.approx((9**2 + 12**2) / 2)


def test_few_classes_and_few_samples() -> None:
    h = drawn(4, 3).requires_grad_()
    one = torch.full((4,), 70_000)
    (gradient,) = torch.autograd.grad(mixcon(h, one, 0.01), h)
    assert torch.equal(gradient, torch.zeros_like(h))
    h = h.detach()
    assert float(mixcon(h, one, 0.01)) == 0
    alone = torch.arange(4) * 70_000
    assert float(unicon(h, alone)) == 0 and float(mixcon(h, alone, 0.0)) > 0
    assert float(mixcon(h[:1], alone[:1], 0.01)) == 0 and float(unicon(h[:1], alone[:1])) == 0
    # a class without pairs is still a class of the average
    mixed = torch.tensor([0, 0, 0, 9])
    torch.testing.assert_close(unicon(h, mixed), unicon(h[:3], mixed[:3]) / 2)


def test_shapes_do_not_matter() -> None:
    h, labels = drawn(6, 2, 3, 4), torch.arange(6) % 2
    for loss in (lambda h: mixcon(h, labels, 0.1), lambda h: unicon(h, labels), squared_distances):
        torch.testing.assert_close(loss(h), loss(h.flatten(1)))
    assert separability(h, labels) == separability(h.flatten(1), labels)


def test_distances_beyond_the_clamp_have_no_gradient() -> None:
    labels, epsilon = torch.tensor([0, 1]), 1e-2
    for distance, value in ((1e-4, 1e-2), (0.0, 1e-2), (400.0, 100.0), (2.0, 2.0)):
        h = torch.tensor([[0.0], [math.sqrt(distance)]], dtype=torch.float64, requires_grad=True)
        loss = mixcon(h, labels, 0.5, normalised=False, epsilon=epsilon)
        assert float(loss.detach()) == pytest.approx(value + 0.5 / value)
        (gradient,) = torch.autograd.grad(loss, h)
        assert bool((gradient == 0).all()) == (value != distance)
    assert EPSILON == 1e-6
    same = torch.ones(2, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(mixcon(same, labels, 1e-2), same)
    assert torch.equal(gradient, torch.zeros(2, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_representations_of_zero_break_nothing(dtype: torch.dtype) -> None:
    """A network whose last ReLU is dead for an image gives exactly zero, which has no direction."""
    labels = torch.tensor([0, 1, 0, 1])
    before = torch.tensor([[-1.0, -2], [1, 2], [2, 1], [-1, -1]], dtype=dtype, requires_grad=True)
    for loss in (mixcon(before.relu(), labels, 0.01), unicon(before.relu(), labels)):
        (gradient,) = torch.autograd.grad(loss, before)
        assert bool(gradient.isfinite().all()) and bool(loss.isfinite())
        assert torch.equal(gradient[[0, 3]], torch.zeros(2, 2, dtype=dtype))


def test_distances_of_representations_that_lie_close_together() -> None:
    """All within 1e-4 of a common point of norm 1, in float32: without the mean taken off, ‖a‖² + ‖b‖² − 2ab is 0 or
    noise of 1e-7, ten times the distances themselves."""
    point = torch.nn.functional.normalize(drawn(16), dim=0)
    h = (point + 1e-4 * drawn(10, 16, seed=1) / 4).float()
    exact = torch.stack([(row.double() - h.double()).square().sum(1) for row in h])
    found = squared_distances(h).double()
    apart = ~torch.eye(10, dtype=torch.bool)
    assert float(exact[apart].max()) < 1e-7
    torch.testing.assert_close(found[apart], exact[apart], rtol=1e-3, atol=0)
    naive = (h.square().sum(1)[:, None] + h.square().sum(1) - 2 * h @ h.T).double()
    assert float((naive - exact)[apart].abs().max()) > float(exact[apart].mean())
    labels = torch.arange(10) % 2
    near, beta = 1e-2, 1e-14
    small = mixcon(h, labels, beta, normalised=False, epsilon=1e-12).double()
    slow = slow_mixcon(h.double(), labels, beta, normalised=False, epsilon=1e-12)
    torch.testing.assert_close(small, slow, rtol=near, atol=0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0, 3, 70_000]), min_size=2, max_size=9), st.integers(0, 1 << 30), st.booleans())
def test_separability_is_that_of_all_pairs(classes: list[int], seed: int, normalised: bool) -> None:
    labels = torch.tensor(classes)
    h = drawn(len(labels), 2, 2, seed=seed).float()
    found = separability(h, labels, normalised=normalised)
    assert found == pytest.approx(slow_separability(h, labels, normalised), rel=1e-9)


def test_separability_of_more_rows_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    h, labels = drawn(31, 3), torch.arange(31) % 4
    whole = separability(h, labels)
    for size in (1, 7, 30):
        monkeypatch.setattr("mixveil.theory.separability._BLOCK", size)
        assert separability(h, labels) == pytest.approx(whole, rel=1e-12)
    assert separability(torch.cat([h, h[:1]]), torch.arange(32) % 4).least == 0
    assert separability(h, torch.zeros(31)).most == 0
    for rows, names in ((h[:1], labels[:1]), (h, labels[:5])):
        with pytest.raises(ArgumentError):
            separability(rows, names)


def descended(loss: Callable[[Tensor], Tensor], h: Tensor, rate: float, steps: int) -> tuple[Tensor, list[float]]:
    """Gradient descent on representations themselves."""
    h, values = h.clone().requires_grad_(), []
    for _ in range(steps):
        value = loss(h)
        values.append(float(value.detach()))
        (gradient,) = torch.autograd.grad(value, h)
        h = (h - rate * gradient).detach().requires_grad_()
    return h.detach(), values


def across(h: Tensor, labels: Tensor) -> Tensor:
    """Squared distances of the samples that meet: the i-th of class 0 and the i-th of class 1."""
    return (h[labels == 0] - h[labels == 1]).square().sum(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("beta", [0.04, 1.0])
def test_descent_brings_classes_to_where_the_loss_is_least(beta: float, dtype: torch.dtype) -> None:
    """dist + β/dist is least at dist = √β: pairs go there from both sides, and stay apart."""
    labels = torch.arange(12) % 2
    h = drawn(12, 3, seed=3).to(dtype)
    h[labels == 1] = h[labels == 0] + torch.linspace(0.1, 1.5, 6, dtype=dtype)[:, None] / math.sqrt(3)
    assert float(across(h, labels).min()) < math.sqrt(beta) < float(across(h, labels).max())
    h, values = descended(lambda h: mixcon(h, labels, beta, normalised=False), h, 0.4 * math.sqrt(beta), 80)
    torch.testing.assert_close(across(h, labels), torch.full((6,), math.sqrt(beta), dtype=dtype), rtol=0.02, atol=0)
    assert values[-1] == pytest.approx(2 * math.sqrt(beta), rel=1e-3)  # what it is at its least


def test_descent_on_normalised_representations_and_its_collapse() -> None:
    labels = torch.arange(16) % 2
    h = drawn(16, 4, seed=5)
    before = separability(h, labels)
    kept, _ = descended(lambda h: mixcon(h, labels, 0.04), h, 1.0, 60)
    gone, values = descended(lambda h: mixcon(h, labels, 0.0), h, 1.0, 80)
    unit = torch.nn.functional.normalize
    torch.testing.assert_close(across(unit(kept), labels), torch.full((8,), 0.2).double(), rtol=0.05, atol=0)
    assert float(across(unit(gone), labels).max()) <= 2 * EPSILON  # β = 0: classes fall onto one another
    assert all(later <= earlier for earlier, later in pairwise(values))
    assert separability(kept, labels).most < before.most


def test_descent_on_unicon_draws_classes_together_and_not_towards_each_other() -> None:
    labels = torch.arange(20) % 2
    centres = torch.tensor([[-3.0, 0], [3, 0]]).double()
    h = centres[labels] + drawn(20, 2, seed=7)
    found, _ = descended(lambda h: unicon(h, labels, normalised=False), h, 0.5, 40)

    def spread(h: Tensor) -> float:
        return float(torch.stack([h[labels == c].var(0).sum() for c in (0, 1)]).max())

    def means(h: Tensor) -> Tensor:
        return torch.stack([h[labels == c].mean(0) for c in (0, 1)])

    assert spread(found) < 0.1 * spread(h)
    torch.testing.assert_close(means(found), means(h), rtol=0, atol=1e-9)
