"""What is measured beside us does what it is said to do."""

from __future__ import annotations

import math

import pytest
import torch
from benchmarks.encode import _figures
from benchmarks.timing import extra_megabytes, medians

from benchmarks import peers
from mixveil.core.randomness import SeededStream


def mixture(rows: int, width: int, sigma: float) -> peers.Mixture:
    stream = SeededStream(3)
    x = stream.uniform(rows, width).float()
    return peers.Mixture(
        x, stream.derangement(rows), stream.capped_weights(rows, 0.55), sigma=sigma, centre=0.5, step=2.0**-6
    )


@pytest.mark.parametrize("encode", [peers.whole, peers.blocks, peers.loop])
def test_mixtures_are_those_of_the_formula(encode: object) -> None:
    assert callable(encode)
    given = mixture(300, 1100, 0.0)  # so many that there are several blocks
    own, share = given.weight[:, :1].double(), given.weight[:, 1:].double()
    exact = (own * (given.x.double() - 0.5) + share * (given.x.double()[given.partner] - 0.5)) / given.step
    assert float((encode(given) - exact).abs().max()) < 0.5001
    noisy = mixture(300, 1100, 3.0)
    deviation = (encode(noisy) - exact).div(share).std() * given.step
    assert float(deviation) == pytest.approx(3.0, rel=0.01)


def test_rolled_batches_are_mixed_with_the_image_before() -> None:
    torch.manual_seed(0)
    x = mixture(200, 7, 0.0).x
    found = peers.rolled(x)
    for start, end in ((0, 128), (128, 200)):
        batch, mixed = x[start:end], found[start:end]
        before = batch[[len(batch) - 1, *range(len(batch) - 1)]]
        weight = ((mixed - before) / (batch - before)).median()
        assert 0 <= weight <= 1
        assert torch.allclose(mixed, weight * batch + (1 - weight) * before, atol=1e-5)


def test_permuted_batches_keep_their_sum_of_weights() -> None:
    """Of one-hot rows, a mixture shows its weights and its partner."""
    torch.manual_seed(0)
    found = peers.permuted(torch.eye(100))
    assert torch.allclose(found.sum(1), torch.ones(100))
    assert int((found > 0).sum(1).max()) == 2
    assert len({round(float(value), 6) for value in found.diagonal()}) > 90


def test_opacus_adds_its_noise_and_takes_the_steps() -> None:
    pytest.importorskip("opacus")
    torch.manual_seed(0)
    x, labels = torch.zeros(100, 4000), torch.arange(100) % 5  # without a gradient but for the bias
    weights = peers.opacus_steps(x, labels, 5, 4, share=0.2, noise=8.0, clip=0.5)
    assert float(weights.std()) == pytest.approx(math.sqrt(4) * 8.0 * 0.5 / 20, rel=0.02)


def test_all_works_of_an_encoding_are_measured() -> None:
    rows = _figures(4, 96, 1)
    assert {row["values"] for row in rows} == {384}
    assert [row["over_floor"] for row in rows if row["work"] == "copy"] == [1.0]
    assert len(rows) == 8


def test_medians_and_memory() -> None:
    calls: list[str] = []
    medians(lambda: calls.append("a"), lambda: calls.append("b"), repetitions=2, calls=3, warm_up=1)
    assert calls == ["a", "a", "a", "b", "b", "b"] * 3
    held = extra_megabytes(lambda: torch.ones(32 << 20, dtype=torch.uint8))
    if held is not None:  # the kernel may not let us look
        assert 30 < held < 100
