from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.data.partition import dirichlet, partition, set_aside, sizes

CASES = st.tuples(
    st.integers(1, 400),  # rows
    st.integers(1, 12),  # parties
    st.sampled_from([None, 0.01, 0.1, 1.0, 100.0]),  # beta
    st.sampled_from([1.0, 0.5, 0.1, 0.01]),  # rho
    st.integers(1, 5),  # fewest
    st.integers(0, 5),  # seed
)


@settings(max_examples=200, deadline=None)
@given(CASES)
def test_every_row_goes_to_one_party_and_sizes_are_exact(
    case: tuple[int, int, float | None, float, int, int],
) -> None:
    rows, parties, beta, rho, fewest, seed = case
    labels = (SeededStream(seed).uniform(rows) ** 2 * 7).long()
    if rows < parties * fewest:
        with pytest.raises(ArgumentError, match="too few for"):
            partition(labels, parties, beta=beta, rho=rho, fewest=fewest, stream=SeededStream(seed))
        return
    found = partition(labels, parties, beta=beta, rho=rho, fewest=fewest, stream=SeededStream(seed))
    assert torch.equal(torch.cat(found).sort().values, torch.arange(rows))
    assert [len(part) for part in found] == sizes(rows, parties, rho=rho, fewest=fewest)
    again = partition(labels, parties, beta=beta, rho=rho, fewest=fewest, stream=SeededStream(seed))
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 100_000), st.integers(2, 100), st.sampled_from([1.0, 0.3, 0.1, 0.01]), st.integers(1, 4))
def test_the_last_party_is_as_poor_as_asked_and_the_others_alike(
    rows: int, parties: int, rho: float, fewest: int
) -> None:
    if rows < parties * fewest:
        return
    *rich, poor = sizes(rows, parties, rho=rho, fewest=fewest)
    assert sum(rich) + poor == rows and max(rich) - min(rich) <= 1 and poor >= fewest
    if rho < 1:
        exact = rho * rows / (parties - 1 + rho)
        assert poor == fewest or abs(poor - exact) <= 0.5
        assert min(rich) >= fewest


def unlike(parts: list[torch.Tensor], labels: torch.Tensor) -> float:
    """The mean distance of the parties' class shares from those of all."""
    whole = labels.bincount().double() / len(labels)
    shares = [labels[part].bincount(minlength=len(whole)).double() / len(part) for part in parts]
    return float(torch.stack([(share - whole).abs().sum() / 2 for share in shares]).mean())


def test_the_smaller_beta_the_more_unlike_the_parties() -> None:
    labels = torch.arange(6000) % 10
    found = [
        unlike(partition(labels, 10, beta=beta, stream=SeededStream(1)), labels) for beta in (None, 10.0, 1.0, 0.1)
    ]
    assert found == sorted(found) and found[0] < 0.06 and found[1] < 0.2 and found[2] > 0.2 and found[3] > 0.4


def test_another_seed_is_another_partition() -> None:
    labels = torch.arange(60) % 3
    one, other = (partition(labels, 3, beta=1.0, stream=SeededStream(seed))[0] for seed in (1, 2))
    assert not torch.equal(one, other)


def test_class_proportions_follow_the_dirichlet_law() -> None:
    """One class, no sizes to keep: shares have the mean and the variance of Dir(β·1)."""
    from mixveil.data.partition import _dealt

    stream, beta, parties = SeededStream(3), 0.5, 4
    labels = torch.zeros(1000, dtype=torch.int64)
    draws = []
    for _ in range(800):
        dealt = _dealt(labels, torch.full((parties,), 250), dirichlet(stream, 1, parties, beta), stream)
        draws.append([len(part) / 1000 for part in dealt])
    found = torch.tensor(draws)
    expected = (parties - 1) / parties**2 / (parties * beta + 1)
    assert found.mean(0).sub(1 / parties).abs().max() < 0.04
    assert float(found.var(0).mean()) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("period", [2, 4, 5, 10])
def test_rows_are_set_aside_class_by_class_however_they_are_sorted(period: int) -> None:
    for labels in (torch.arange(400) % period, torch.arange(400) // (400 // period)):
        stay, aside = set_aside(labels, 5, stream=SeededStream(0))
        assert torch.equal(torch.cat([stay, aside]).sort().values, torch.arange(400)) and len(aside) == 80
        counts = labels[aside].bincount(minlength=period)
        assert int(counts.max() - counts.min()) <= 1
    with pytest.raises(ArgumentError, match="9 rows are too few to set one of 5 aside"):
        set_aside(torch.zeros(9, dtype=torch.int64), 5, stream=SeededStream(0))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"parties": 0}, "parties must be"),
        ({"parties": 3, "rho": 0.0}, r"rho must be in \(0, 1\], got 0"),
        ({"parties": 3, "rho": 1.5}, r"rho must be in \(0, 1\], got 1.5"),
        ({"parties": 3, "beta": 0.0}, "beta must be"),
        ({"parties": 3, "beta": float("nan")}, "beta must be"),
        ({"parties": 30}, "20 rows are too few for 30 parties of at least 2"),
        ({"parties": 3, "fewest": 0}, "fewest must be"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, float], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        partition(torch.arange(20) % 2, stream=SeededStream(0), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("beta", [0.1, 1.0, 5.0])
def test_dirichlet_marginals_are_beta(beta: float) -> None:
    rows = dirichlet(SeededStream(7), 20_000, 4, beta)
    assert torch.allclose(rows.sum(1), torch.ones(20_000, dtype=torch.float64))
    assert stats.kstest(rows[:, 1].numpy(), stats.beta(beta, 3 * beta).cdf).pvalue > 1e-9


def test_a_tiny_beta_still_gives_a_distribution() -> None:
    rows = dirichlet(SeededStream(0), 100, 10, 1e-4)
    assert bool(rows.isfinite().all()) and torch.allclose(rows.sum(1), torch.ones(100, dtype=torch.float64))
