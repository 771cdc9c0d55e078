from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixveil.core.randomness import SeededStream
from mixveil.theory import rings


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
    made, found = rings.Rings.of(partner, records), torch.empty_like(target)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rings, "_BLOCK_VALUES", block)
        for part in rings.directions(records, 3, target.device):
            found[:, part] = made.solve(diagonal[:, part], coupling[:, part], target[:, part])
    expected = torch.linalg.solve(matrix, target.T).T
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-8 * float(expected.abs().max()))
    variances = torch.linalg.inv(matrix).diagonal(dim1=1, dim2=2).T
    assert torch.allclose(made.variances(diagonal, coupling), variances, rtol=1e-6)


def test_a_ring_is_solved_in_as_many_steps_as_its_length_can_be_halved() -> None:
    assert len(rings.Rings.of(torch.arange(1000).roll(-1), 1000).levels) == 10
    assert len(rings.Rings.of(torch.arange(1000), 1000).levels) == 0
