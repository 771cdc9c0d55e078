"""The paper's linear attack, with its gradient written out, against the same by automatic differentiation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mixveil.attacks.records import linear
from mixveil.attacks.records.linear import recovered
from mixveil.attacks.shared.model import MixingMatrix
from mixveil.attacks.shared.pixels import Pixels, total_variation
from mixveil.core.randomness import SeededStream


def twin(mixings: list[MixingMatrix], rows: list[Tensor], pixels: Pixels) -> Tensor:
    """The loss as it is written, in double precision, by torch's own Adam."""
    start = torch.stack(rows).mean(0).double()
    alone = start.mean(0).expand(mixings[0].records - len(start), *start.shape[1:])
    guess = torch.cat([start, alone]).requires_grad_()
    optimiser = torch.optim.Adam([guess], lr=0.05)
    for _ in range(200):
        optimiser.zero_grad()
        fits = [
            (m.rows(guess.flatten(1)).view_as(x) - x.double()).square().mean()
            for m, x in zip(mixings, rows, strict=True)
        ]
        loss = torch.stack(fits).mean() + 1e-3 * total_variation(guess) + 1e-4 * guess.square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        with torch.no_grad():
            guess.copy_(pixels.clamp(guess))
    return guess.detach()


@pytest.mark.parametrize("releases", [1, 3])
@pytest.mark.parametrize("sources", [2, 4])
def test_the_gradient_is_that_of_the_loss(releases: int, sources: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_BLOCK", 500)  # three records at a time
    draws, n, records = SeededStream(7), 9, 11
    mixings, rows = [], []
    for _ in range(releases):
        weight = torch.softmax(draws.normal(n, sources), 1)
        source = torch.stack([draws.permutation(records)[:n] for _ in range(sources)], dim=1)
        source[:, 0] = torch.arange(n)  # as encoders have it; a record may be its own partner
        mixings.append(MixingMatrix(source, weight.double(), records))
        rows.append(draws.normal(n, 3, 6, 8).float())
    pixels = Pixels(3, 0.0, 1.0, False)
    given = [x.clone() for x in rows]
    found, expected = recovered(mixings, rows, pixels), twin(mixings, rows, pixels)
    assert found.shape == (records, 3, 6, 8) and all(torch.equal(x, y) for x, y in zip(rows, given, strict=True))
    apart, moved = (found - expected).abs().mean(), (expected[:n] - torch.stack(rows).mean(0)).abs().mean()
    assert float(apart) < 0.01 * float(moved)
    assert torch.equal(found, pixels.clamp(found))
