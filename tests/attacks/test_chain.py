from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixveil.attacks.records import lmmse
from mixveil.attacks.records.lmmse import unmixed
from mixveil.attacks.shared import chain
from mixveil.attacks.shared.model import MixingMatrix
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Trace
from tests.made import mixing_matrix

PAIRINGS = {
    "one ring": [1, 2, 3, 4, 0],
    "two alone together": [1, 0],
    "a fixed point": [0, 2, 1, 3],
    "rings of every length": [0, 2, 1, 4, 5, 3, 7, 8, 9, 6],
    "a stretch that leaves the sample": [1, 2, 3, 4],
    "stretches and a ring": [1, 6, 3, 2, 5, 7],
}


@pytest.mark.parametrize("name", PAIRINGS)
def test_a_pairing_is_solved_as_a_dense_matrix_is(name: str) -> None:
    partner = torch.tensor(PAIRINGS[name])
    n, records = len(partner), max(len(partner), int(partner.max()) + 1)
    stream = SeededStream(1)
    weight = stream.capped_weights(n, 0.9)
    rows, variance = stream.normal(n, 3), torch.tensor([2.0, 0.5, 1e-3], dtype=torch.float64)
    noise = 0.1 + stream.uniform(n, 3)
    gain = torch.tensor([1.0, 0.7, 0.9], dtype=torch.float64)
    found = unmixed(MixingMatrix.of((Trace(partner[:, None], weight),)), [rows], [noise], [gain], variance)
    whole = torch.cat([partner, torch.arange(n, records)])
    matrix = mixing_matrix(whole, torch.cat([weight, torch.zeros(records - n, 2)]))[:n]
    for k in range(3):
        w = matrix * gain[k]
        precision = w.T @ torch.diag(1 / noise[:, k]) @ w + torch.eye(records, dtype=torch.float64) / variance[k]
        expected = torch.linalg.solve(precision, w.T @ (rows[:, k] / noise[:, k]))
        assert torch.allclose(found[:, k], expected, rtol=1e-10, atol=1e-12)


@settings(deadline=None, max_examples=60)
@given(n=st.integers(0, 14), more=st.integers(0, 3), seed=st.integers(0, 10**6), block=st.sampled_from([1, 64]))
def test_rings_are_solved_as_a_dense_matrix_is(n: int, more: int, seed: int, block: int) -> None:
    """Rings and open chains of all lengths, fixed points, records without a row; weak ties and strong ones; directions
    one by one and all at once."""
    stream, records = SeededStream(seed), n + more
    if not records:
        return
    partner = stream.permutation(records)[:n]
    partner[stream.uniform(n) < 0.2] = -1
    left, right = (10 ** (2 * stream.normal(2, n, 3).clamp(-2, 2))).unbind()
    ridge = 10 ** stream.normal(3)
    matrix, coupling = torch.zeros(3, records, records, dtype=torch.float64), left * right
    matrix.diagonal(dim1=1, dim2=2).add_(ridge[:, None])
    diagonal = ridge.expand(records, 3).clone()
    for row, other in enumerate(partner.tolist()):
        w = torch.zeros(3, records, dtype=torch.float64)
        w[:, row] += left[row]
        diagonal[row] += left[row].square()
        if other >= 0:
            w[:, other] += right[row]
            diagonal[other] += right[row].square()
        matrix += w[:, :, None] * w[:, None, :]
    target = stream.normal(records, 3)
    rings, found = chain.Rings.of(partner, records), torch.empty_like(target)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "_BLOCK_VALUES", block)
        for part in chain.directions(records, 3, target.device):
            found[:, part] = rings.solve(diagonal[:, part], coupling[:, part], target[:, part])
    expected = torch.linalg.solve(matrix, target.T).T
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-8 * float(expected.abs().max()))


def test_a_ring_is_solved_in_as_many_steps_as_its_length_can_be_halved() -> None:
    assert len(chain.Rings.of(torch.arange(1000).roll(-1), 1000).levels) == 10
    assert len(chain.Rings.of(torch.arange(1000), 1000).levels) == 0


@pytest.mark.parametrize("dense", [0, 100], ids=["by steps", "at once"])
def test_mixtures_of_several_are_solved_as_a_dense_matrix_is(dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two releases of mixtures of four, some of records that have no row: in steps, and by one eigenbasis."""
    monkeypatch.setattr(lmmse, "_DENSE", dense)
    stream, n, records = SeededStream(2), 12, 15
    traces = [Trace((stream.uniform(n, 3) * records).long(), stream.mixing_weights(n, 4)) for _ in range(2)]
    traces[0].partner[0, 0] = records - 1
    seen = [stream.normal(n, 3) for _ in traces]
    noises = [0.1 + stream.uniform(n, 1) for _ in traces]
    gains = [torch.full((3,), gain, dtype=torch.float64) for gain in (1.0, 0.7)]
    variance = torch.tensor([2.0, 0.5, 0.1])

    found = unmixed(MixingMatrix.of(tuple(traces)), seen, noises, gains, variance.double())
    for k in range(3):
        precision, target = torch.eye(records, dtype=torch.float64) / variance[k].double(), torch.zeros(1).double()
        for trace, x, noise, gain in zip(traces, seen, noises, gains, strict=True):
            w = torch.zeros(n, records, dtype=torch.float64)
            for row in range(n):
                for source, share in zip([row, *trace.partner[row].tolist()], trace.weight[row].tolist(), strict=True):
                    w[row, source] += float(gain[k]) * share
            precision, target = precision + w.T @ (w / noise), target + w.T @ (x[:, k] / noise[:, 0])
        assert torch.allclose(found[:, k], torch.linalg.solve(precision, target), rtol=1e-7, atol=1e-9)
