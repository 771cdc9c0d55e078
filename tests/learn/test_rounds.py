"""Rounds of sums at the server: the formulas, that they improve the head of class sums, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mixveil.core.errors import MismatchError, TrainingError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Release
from mixveil.features.cache import Features
from mixveil.features.projection import Projected, Projection
from mixveil.features.projection_fit import fit
from mixveil.learn import rounds
from mixveil.learn.class_means import Totals, class_counts, totals
from mixveil.learn.protocol import Learned, in_rounds, learn
from mixveil.learn.rounds import LAST, State, shrunk
from mixveil.releases.contributions import Head
from mixveil.releases.sums import class_sums, residual_sums
from tests.made import blobs, features_of
from tests.sums import DIGEST, SETTINGS, WEIGHTS, ball, base, residual_sum

FREE = 1e9  # of μ: noise is off


def tied(n: int, seed: int, private: bool) -> Tensor:
    """Classes that differ a little in one value, which varies much, in private data together with another one: public
    data do not say how."""
    stream = SeededStream(seed)
    common, own = stream.normal(n), 0.2 * stream.normal(n, 4)
    x = torch.stack([common, (1.0 if private else 0.0) * common, 0 * common, 0 * common], 1) + own
    x[:, 0] += 0.6 * (torch.arange(n) % 2)
    return x


def rows(n: int, seed: int, *, private: bool = True, units: int | None = None) -> Features:
    names = None if units is None else tuple(str(i * 7 % n % units) for i in range(n))
    return ball(tied(n, seed, private), torch.arange(n) % 2, names)


def public() -> Projection:
    found = fit(rows(2000, 1, private=False), WEIGHTS)
    return replace(found, norms=torch.linspace(2.0, 4.0, 4), clip=4.0)


MANY = replace(SETTINGS, directions=4, rounds=30, rate=20.0, clip=0.5, momentum=0.5)
TEST = rows(3000, 5)


def test_without_noise_rounds_repair_what_class_sums_cannot_see() -> None:
    """Class means know nothing of the private covariance. The gradients of the cross-entropy do."""
    right: list[float] = []
    wide = public()

    def after(head: Head) -> None:
        x = (TEST.read(torch.arange(3000)) - wide.mean) @ wide.matrix
        right.append(float(rounds.discriminant_of(head)(x).argmax(1).eq(TEST.labels).double().mean()))

    found = in_rounds([rows(6000, 2)], wide, FREE, settings=MANY, stream=SeededStream(0), after=after)
    sums = learn([rows(6000, 2)], wide, "sums", FREE, stream=SeededStream(0)).accuracy(TEST)
    assert len(right) == 31 and found.accuracy(TEST) == right[-1]
    assert abs(right[0] - sums) < 0.05 and right[-1] > max(sums, right[0]) + 0.1


def test_noise_costs_accuracy_and_sharing_it_gives_some_back() -> None:
    parts, wide, fewer = [rows(300, seed) for seed in range(2, 12)], public(), replace(MANY, rounds=10)

    def accuracy(mu: float, honest: int) -> float:
        found = [in_rounds(parts, wide, mu, honest=honest, settings=fewer, stream=SeededStream(s)) for s in range(3)]
        return sum(one.accuracy(TEST) for one in found) / 3

    clear, shared, each = accuracy(FREE, 1), accuracy(0.03, 10), accuracy(0.03, 1)
    assert clear > shared + 0.01 and shared > each + 0.03


def weights(found: Learned) -> Tensor:
    return torch.cat([found.head.weight.flatten(), found.head.bias])


def test_it_does_not_matter_who_has_which_rows() -> None:
    whole, wide = rows(600, 2), public()
    index = torch.arange(600)
    one = in_rounds([whole], wide, FREE, settings=MANY, stream=SeededStream(0))
    for deal in (index % 3, (index >= 100).long() + (index >= 150).long(), index % 2 * 2 + (index < 300).long()):
        parts = [whole.part(index[deal == party]) for party in sorted({*deal.tolist()})]
        found = in_rounds(parts, wide, FREE, settings=MANY, stream=SeededStream(0))
        assert torch.allclose(weights(found), weights(one), rtol=1e-4, atol=1e-4)
    turned = in_rounds([whole.part(index.flip(0))], wide, FREE, settings=MANY, stream=SeededStream(0))
    assert torch.allclose(weights(turned), weights(one), rtol=1e-4, atol=1e-4)


def test_units_are_counted_not_their_rows() -> None:
    """Every row three times, all three of one unit: their gradients are clipped together, as one row's are."""
    whole = rows(200, 2)
    thrice = whole.part(torch.arange(600) % 200)
    named = replace(thrice, rows=replace(thrice.rows, units=tuple(str(i % 200) for i in range(600))))
    wide, stream = public(), SeededStream(4)
    head = Head(stream.normal(4, 2), stream.normal(2), torch.zeros(4).double())
    state, found = State(head, torch.zeros(2, 5).double(), (0.0, 0.0, 0.0)), []
    for own in (whole, named, thrice):
        asked = (Projected(own, wide), DIGEST, head, rounds.head_digest(head), 1e-3, FREE)  # every gradient is clipped
        part = residual_sums(*asked, party="p", stream=SeededStream(0))
        found.append((part, rounds.from_residuals(state, [part], MANY).learnt.weight))
    assert [totals([part], "residuals").units for part, _ in found] == [200, 200, 600]
    assert torch.allclose(found[0][0].payload, found[1][0].payload, atol=1e-5)
    assert all(torch.allclose(found[0][1], weight, atol=1e-3) for _, weight in found)


# The formulas


def class_parts(mu: float = 2.0) -> list[Release]:
    return [
        class_sums(
            Projected(features_of(blobs(300, seed)), base()), DIGEST, mu, party=str(seed), stream=SeededStream(0)
        )
        for seed in (2, 3)
    ]


def test_the_first_head_is_that_of_the_class_means() -> None:
    """W = t·(m̂ − centre)ᵀ, b = −(t/2)‖m̂ − centre‖² less what noise adds to that length."""
    parts, t = class_parts(), SETTINGS.temperature
    state = rounds.from_class_sums(parts, SETTINGS)
    whole = totals(parts)
    counts, noise = class_counts(whole, base().clip)
    centre = whole.sums[:, :-1].sum(0) / counts.sum()
    assert torch.allclose(state.head.centre, centre) and state.done == 0 and not bool(state.velocity.any())
    for c in range(3):
        n = float(counts[c])
        factor = n / (n**2 + noise)
        away = whole.sums[c, :-1] * factor - centre
        length = float(away @ away) - 6 * whole.variance * factor**2
        assert torch.allclose(state.learnt.weight[:, c], t * away)
        assert float(state.learnt.bias[c]) == pytest.approx(-t / 2 * max(length, 0.0))


def test_without_noise_the_first_head_is_the_discriminant_of_the_means() -> None:
    parts = class_parts(FREE)
    head = rounds.from_class_sums(parts, replace(SETTINGS, temperature=1.0)).head
    means = torch.stack([part.payload[:, :-1] for part in parts]).sum(0) / 200
    probe = SeededStream(9).normal(50, 6)
    nearest = torch.cdist(probe, means).argmin(1)
    assert torch.equal(rounds.discriminant_of(head)(probe).argmax(1), nearest)
    assert torch.allclose(rounds.discriminant_of(head)(probe), head.scores(probe - head.centre))


def test_a_step_goes_against_the_mean_gradient_with_momentum() -> None:
    stream = SeededStream(4)
    head = Head(stream.normal(6, 3), stream.normal(3), stream.normal(6))
    state = State(head, stream.normal(3, 7), (0.0, 0.0, 0.0), 2)
    found = Totals(stream.normal(3, 7), 1.0, 50.0)
    after = rounds.improved(state, found, 0.1, SETTINGS)
    velocity = SETTINGS.momentum * state.velocity + found.sums / (50.0 * 0.1)
    rate = SETTINGS.rate * LAST ** (2 / 5)  # of six rounds this is the third
    assert torch.allclose(after.velocity, velocity) and after.done == 3
    assert torch.allclose(after.learnt.weight, head.weight - rate * velocity[:, :-1].T)
    assert torch.allclose(after.learnt.bias, head.bias - rate * velocity[:, -1])
    assert torch.equal(after.head.centre, head.centre)


def test_the_noise_of_the_weights_is_what_many_runs_show() -> None:
    """Sums of nothing but noise, three rounds after class sums of known counts."""
    stream, ends = SeededStream(5), []
    counts = torch.full((3, 1), 40.0).double()
    for _ in range(200):
        noisy = torch.cat([2.0 * stream.normal(3, 40), counts], 1)
        state = rounds.first(Totals(noisy, 4.0, 120.0), 1.0, SETTINGS)
        for _ in range(3):
            state = rounds.improved(state, Totals(3.0 * stream.normal(3, 41), 9.0, 120.0), 0.5, SETTINGS)
        ends.append(state)
    learnt = torch.stack([end.learnt.weight for end in ends])
    velocity = torch.stack([end.velocity[:, :-1].T for end in ends])
    of_weight, shared, of_velocity = ends[0].noise
    assert float(velocity.square().mean()) == pytest.approx(of_velocity, rel=0.05)
    assert float((learnt * velocity).mean()) == pytest.approx(shared, rel=0.08)
    # the first means lose a third of their variance with the centre, which three classes share
    assert 0.9 * of_weight < float(learnt.square().mean()) < 1.05 * of_weight


def test_weights_are_shrunk_as_far_as_noise_explains_them() -> None:
    stream = SeededStream(6)
    weight = torch.cat([5.0 + stream.normal(32, 3), stream.normal(40, 3)])
    found = shrunk(weight, 1.0)
    strong, weak = (found / weight)[:32], (found / weight)[32:64]
    assert bool((strong > 0.9).all()) and bool((weak < 0.4).all())
    assert torch.allclose(strong, strong[0, 0]) and torch.equal(shrunk(weight, 0.0), weight)
    assert not bool(shrunk(torch.zeros(5, 2).double(), 1.0).any())


def test_unclipped_residual_sums_are_the_gradient_of_the_cross_entropy() -> None:
    data = Projected(features_of(blobs(90, 2)), base())
    stream = SeededStream(4)
    head = Head(stream.normal(6, 3), stream.normal(3), torch.zeros(6).double())
    z = data.take(torch.arange(90)).x.double()
    weight, bias = head.weight.clone().requires_grad_(), head.bias.clone().requires_grad_()
    torch.nn.functional.cross_entropy(z @ weight + bias, data.labels, reduction="sum").backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None and bias.grad is not None
    expected = torch.cat([weight.grad.T, bias.grad[:, None]], 1)
    assert torch.allclose(residual_sum(data, head, 100.0), expected, rtol=1e-3, atol=1e-2)


# What is refused


def residual_part(state: State, **changed: str) -> Release:
    rows_ = Projected(features_of(blobs(60, 2)), base())
    digest = changed.get("digest", rounds.head_digest(state.head))
    return residual_sums(rows_, DIGEST, state.head, digest, 0.1, 1.0, party="p", stream=SeededStream(0))


def test_sums_of_another_head_are_refused() -> None:
    state = rounds.from_class_sums(class_parts(), SETTINGS)
    own = residual_part(state)
    after = rounds.from_residuals(state, [own], SETTINGS)
    assert after.done == 1
    with pytest.raises(MismatchError, match="of another head"):
        rounds.from_residuals(after, [own], SETTINGS)  # the sums of the round before
    with pytest.raises(MismatchError, match="of another head"):
        rounds.from_residuals(state, [own, residual_part(state, digest="0" * 64)], SETTINGS)
    with pytest.raises(MismatchError, match="holds residual sums, not class sums"):
        rounds.from_class_sums([own], SETTINGS)
    with pytest.raises(MismatchError, match="are masked"):
        rounds.from_residuals(state, [own.with_(payload=own.payload.long())], SETTINGS)


@pytest.mark.parametrize("absurd", [math.inf, math.nan, 1e308])
def test_absurd_sums_make_no_head(absurd: float) -> None:
    parts = class_parts()
    state = rounds.from_class_sums(parts, SETTINGS)
    own = residual_part(state)
    with pytest.raises(TrainingError, match="not finite"):
        rounds.from_residuals(state, [own.with_(payload=torch.full_like(own.payload, absurd))], SETTINGS)
    with pytest.raises(TrainingError, match="not finite"):
        rounds.from_class_sums([parts[0].with_(payload=torch.full_like(parts[0].payload, absurd))], SETTINGS)


def test_a_head_survives_its_file() -> None:
    state = rounds.from_class_sums(class_parts(), SETTINGS)
    data = rounds.head_bytes(state.head)
    again = Head.read(data, 6, 3)
    assert rounds.head_bytes(again) == data and rounds.head_digest(again) == rounds.head_digest(state.head)
    moved = replace(state.head, bias=state.head.bias + 1e-9)
    assert rounds.head_digest(moved) != rounds.head_digest(state.head)
