"""DP-SGD: its step against autograd and Opacus, its noise against its accountant, and its promise against an attack."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mixveil.audit.metrics.detection import clopper_pearson
from mixveil.core.errors import ArgumentError, MissingDependencyError
from mixveil.core.randomness import SeededStream
from mixveil.federated import dpsgd
from mixveil.federated.algorithms import Rounds
from mixveil.federated.dpsgd import Party, Private, clipped_gradient, federated_dpsgd, noise_multiplier, planned
from mixveil.theory import gdp
from tests.sums import Watched


def rows(n: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    stream = SeededStream(seed)
    return stream.normal(n, 5).float() * 2, (stream.uniform(n) * 3).long()


def weights(seed: int = 2) -> tuple[Tensor, Tensor]:
    stream = SeededStream(seed)
    return stream.normal(5, 3).float(), stream.normal(3).float()


def gradient(weight: Tensor, bias: Tensor, x: Tensor, labels: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """In values, by weight and by bias."""
    found = clipped_gradient(weight, bias, x, labels, clip, 32).double() * math.ldexp(clip, -32)
    return found[:-1].float(), found[-1].float()


@pytest.mark.parametrize("clip", [0.3, 1.0, 100.0])
def test_the_clipped_gradient_is_that_of_each_record_by_autograd(clip: float) -> None:
    (x, labels), (weight, bias) = rows(40), weights()
    slope, tilt = torch.zeros_like(weight), torch.zeros_like(bias)
    clipped = 0
    for row, label in zip(x, labels, strict=True):
        w, b = weight.clone().requires_grad_(), bias.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy((row @ w + b)[None], label[None])
        own = torch.autograd.grad(loss, (w, b))
        norm = float(torch.cat([part.flatten() for part in own]).norm())
        clipped += norm > clip
        slope += own[0] * min(1.0, clip / norm)
        tilt += own[1] * min(1.0, clip / norm)
    found = gradient(weight, bias, x, labels, clip)
    atol = 0.05 * clip / math.sqrt(40)  # of 40 records, each in steps of 2⁻¹⁶ of its length and of the clip norm
    assert torch.allclose(found[0], slope, atol=atol) and torch.allclose(found[1], tilt, atol=atol)
    assert {0.3: clipped > 30, 1.0: 10 < clipped < 40, 100.0: clipped == 0}[clip]


def test_a_record_moves_a_step_by_no_more_than_the_clip_norm() -> None:
    """Taken out, wherever it stands: in whole numbers, without any rounding."""
    (x, labels), (weight, bias) = rows(40), weights()
    x[3], x[17], x[39] = 1e30, float("inf"), 1e-30
    x = torch.where(x.isfinite(), x, 0.0)
    for bits, clip in ((32, 1.0), (20, 0.3), (7, 50.0)):
        farthest = 0
        whole = clipped_gradient(weight, bias, x, labels, clip, bits)
        for out in range(40):
            left = torch.arange(40) != out
            moved = (whole - clipped_gradient(weight, bias, x[left], labels[left], clip, bits)).flatten().tolist()
            farthest = max(farthest, sum(value**2 for value in moved))
        assert (0.9 if bits > 10 else 0) * 4**bits < farthest <= 4**bits  # some records are clipped


def test_the_noise_in_steps_is_never_less_than_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    for noise in (0.3, 1.7, 55.0):
        monkeypatch.setattr(dpsgd, "noise_multiplier", lambda *args, noise=noise: noise)
        Watched.scales.clear()
        party, settings = Party(*rows(20)), Private(1.0, clip=0.3, rate=1.0)
        list(federated_dpsgd([party], 3, settings, Rounds(2), stream=Watched(0)))
        bits = planned(20, settings, Rounds(2)).bits
        assert len(Watched.scales) == 2 and noise * 2**bits < min(Watched.scales) < noise * 2**bits * (1 + 1e-11)


def test_the_step_is_that_of_opacus() -> None:
    pytest.importorskip("opacus")
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    (x, labels), (weight, bias) = rows(40), weights()
    plain = torch.nn.Linear(5, 3)
    plain.load_state_dict({"weight": weight.T, "bias": bias})
    model = GradSampleModule(plain)
    optimiser = DPOptimizer(
        torch.optim.SGD(model.parameters(), 0.7), noise_multiplier=0.0, max_grad_norm=1.0, expected_batch_size=40
    )
    torch.nn.functional.cross_entropy(model(x.requires_grad_()), labels).backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    slope, tilt = gradient(weight, bias, x.detach(), labels, 1.0)
    assert torch.allclose(plain.weight.T, weight - 0.7 / 40 * slope, atol=1e-5)
    assert torch.allclose(plain.bias, bias - 0.7 / 40 * tilt, atol=1e-5)


def test_the_noise_is_as_strong_as_it_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of zeros have no gradient but for the bias: what is left is noise."""
    monkeypatch.setattr(dpsgd, "noise_multiplier", lambda *args: 1.7)
    party = Party(torch.zeros(50, 4000), torch.arange(50) % 5)
    (found,) = federated_dpsgd([party], 5, Private(1.0, clip=0.3, rate=2.0), Rounds(1), stream=SeededStream(0))
    assert float(found["weight"].std()) == pytest.approx(2.0 / 50 * 1.7 * 0.3, rel=0.02)
    assert abs(float(found["weight"].mean())) < 4 * 2.0 / 50 * 1.7 * 0.3 / math.sqrt(20_000)


def test_parties_draw_noise_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpsgd, "noise_multiplier", lambda *args: 1.0)
    party = Party(torch.zeros(50, 4000), torch.arange(50) % 5)
    spread = []
    for parties in (1, 4):
        settings = Private(1.0, rate=1.0)
        *_, found = federated_dpsgd([party] * parties, 5, settings, Rounds(1), stream=SeededStream(0))
        spread.append(float(found["weight"].std()))
    assert spread[1] == pytest.approx(spread[0] / 2, rel=0.05)


def test_rows_are_drawn_with_the_share_that_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = dpsgd.clipped_gradient

    def watched(weight: Tensor, bias: Tensor, x: Tensor, labels: Tensor, clip: float, bits: int) -> Tensor:
        seen.append(len(x))
        return real(weight, bias, x, labels, clip, bits)

    monkeypatch.setattr(dpsgd, "clipped_gradient", watched)
    monkeypatch.setattr(dpsgd, "noise_multiplier", lambda *args: 1.0)
    party = Party(torch.zeros(400, 2), torch.zeros(400, dtype=torch.int64))
    list(federated_dpsgd([party], 2, Private(1.0, batch=100), Rounds(25), stream=SeededStream(1)))
    assert len(seen) == 100 and sum(seen) / len(seen) == pytest.approx(100, rel=0.05) and len(set(seen)) > 10


def test_the_accountant_never_counts_less_than_is_spent() -> None:
    """All rows in every step: what Gaussian noise costs is known exactly."""
    pytest.importorskip("opacus")
    for epsilon, steps in ((10.0, 50), (2.0, 20)):
        noise = noise_multiplier(epsilon, 1e-5, 1.0, steps)
        spent = gdp.epsilon(math.sqrt(steps) / noise, 1e-5)
        assert spent == pytest.approx(epsilon, rel=1e-6)
    share, rdp = 0.2, pytest.importorskip("opacus.accountants").RDPAccountant()
    rdp.history = [(noise_multiplier(2.0, 1e-5, share, 60), share, 60)]
    assert 2.0 < rdp.get_epsilon(1e-5) < 2.6  # a cruder bound, of Opacus's as well, is a little above
    part, whole = (noise_multiplier(2.0, 1e-5, share, 100) for share in (0.1, 1.0))
    assert part < whole / 3
    share, steps, noise = planned(1000, Private(2.0, batch=100), Rounds(10))
    assert share == pytest.approx(0.1, rel=1e-14) and share <= 0.1 and share * 2**53 == int(share * 2**53)
    assert steps == 10 and part < noise < part * (1 + 1e-9)


def told_apart(noise: float, runs: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Records each of a direction of its own, or none of them: of so many with them and without them, how often the
    weights in such a direction are beyond a threshold. Each direction has noise of its own: one training with all of
    them is as many trainings with one, where the rate makes up for the number of rows."""
    monkeypatch.setattr(dpsgd, "noise_multiplier", lambda *args: noise)
    x, labels = torch.zeros(19 + runs, 1 + runs), torch.arange(19 + runs) % 2
    x[:19, 0], x[19:, 1:] = 1.0, 50.0 * torch.eye(runs)
    hits = []
    for rows in (19 + runs, 19):
        settings, party = Private(1.0, rate=rows / 20, batch=rows), Party(x[:rows], labels[:rows])
        *_, found = federated_dpsgd([party], 2, settings, Rounds(4), stream=SeededStream(9).fork(f"{rows}"))
        towards = (found["weight"][1:, 1] - found["weight"][1:, 0]) * (2 * labels[19:] - 1)
        hits.append(int((towards > 0.05 * noise).sum()))
    return hits[0], hits[1]


@pytest.mark.parametrize(("noise", "holds"), [(2.0, True), (1.0, False), (0.4, False)])
def test_no_attack_tells_a_record_better_than_promised(
    noise: float, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four steps over all rows at z = 2 are μ = 1 for a record taken out. With half of the noise the same test finds
    the record: it could fail."""
    runs, mu = 2000, math.sqrt(4) / 2.0
    members, others = told_apart(noise, runs, monkeypatch)
    low, high = clopper_pearson(members, runs, 0.99)[0], clopper_pearson(others, runs, 0.99)[1]
    assert (low <= gdp.member_tpr(mu, high)) == holds
    assert members > 1.5 * others  # it is an attack


def test_a_row_that_holds_no_number_does_not_show() -> None:
    x, labels = rows(40)
    x[3, 1], x[7, 0] = float("nan"), float("inf")
    x[9], x[11] = 1e38, torch.tensor([3e37, -3e37, 1e25, 0, 0])  # numbers, but beyond what float32 can square
    *_, found = federated_dpsgd([Party(x, labels)], 3, Private(1.0, rate=1.0), Rounds(2), stream=SeededStream(0))
    assert found["weight"].isfinite().all()


def test_the_rate_falls_as_noise_grows_and_follows_from_public_numbers() -> None:
    pytest.importorskip("opacus")
    weak, strong = (dpsgd.rate_for([100] * 5, Private(epsilon), Rounds(10)) for epsilon in (10.0, 1.0))
    assert strong < weak <= 64 and dpsgd.rate_for([256] * 100, Private(50.0), Rounds(1)) == 64
    with pytest.raises(ArgumentError, match="ε = 200 promises nothing"):
        noise_multiplier(200.0, 1e-5, 1.0, 5)


def test_it_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpsgd, "noise_multiplier", lambda *args: 2.5)
    stream = SeededStream(3)
    labels = torch.arange(3000) % 3
    x = (stream.normal(3000, 6) * 0.2 + torch.eye(3, 6)[labels]).float()
    parties = [Party(x[i::5], labels[i::5]) for i in range(5)]
    *_, found = federated_dpsgd(parties, 3, Private(4.0, rate=8.0), Rounds(15), stream=SeededStream(0))
    right = (x @ found["weight"] + found["bias"]).argmax(1).eq(labels).double().mean()
    assert float(right) > 0.95


def test_bad_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("epsilon", 0.0), ("delta", 1.0), ("clip", -1.0), ("rate", 0.0), ("batch", 0)):
        with pytest.raises(ArgumentError, match=f"{name} must be"):
            replace(Private(1.0), **{name: value})  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "opacus.accountants.utils", None)
    with pytest.raises(MissingDependencyError, match="pip install 'mixveil"):
        noise_multiplier(1.0, 1e-5, 0.123, 3)  # counted nowhere else: what was counted is kept for all tests
