"""The paper's linear attack (§5.1, App. F): gradient steps on the known mixture, smoothness and small values preferred.

    min over V:  MSE(x̃, W V) + 10⁻³ TV(V) + 10⁻⁴ mean(V²)

V starts at the mixtures; 200 steps of Adam at 0.05, clamped after each to what a normalised pixel can be. It is weak:
it fits noise as if it were signal, and from weak noise on it is worse than knowing nothing. It is here for its table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks.shared import model
from mixveil.attacks.shared.base import ImageAttack
from mixveil.attacks.shared.model import MixingMatrix
from mixveil.attacks.shared.pixels import Pixels, total_variation
from mixveil.attacks.shared.training import fastest
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, View

_STEPS, _RATE = 200, 0.05
_SMOOTH, _SMALL = 1e-3, 1e-4


@dataclass(frozen=True)
class Linear(ImageAttack):
    """All rows of all releases, with the pairing known. normalised: rows are under ImageNet's normalisation already."""

    name: ClassVar[str] = "linear"
    kind: ClassVar[AttackKind] = "reconstruction"
    needs: ClassVar[frozenset[str]] = frozenset({"traces"})
    normalised: bool = False

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        traces, shape = model.traces_of(view), view.releases[0].shape
        pixels, device = Pixels.of(view, self.normalised), fastest()
        rows = []
        for release in view.releases:
            values = release.encoder.restore(model.released(release)).view(-1, *shape)
            rows.append(pixels.enter(values).float().to(device))
        found = recovered(MixingMatrix.of(traces), rows, pixels)[: len(rows[0])]
        return Guess(images=pixels.leave(found.cpu().double()))


def recovered(mixings: list[MixingMatrix], rows: list[Tensor], pixels: Pixels) -> Tensor:
    """(records, c, h, w) that the rows (n, c, h, w) of each release could be mixed of, normalised."""
    device = rows[0].device
    parts = [(m.source.to(device), m.weight.float().to(device), x) for m, x in zip(mixings, rows, strict=True)]
    start = torch.stack(rows).mean(0)
    alone = start.mean(0).expand(mixings[0].records - len(start), *start.shape[1:])  # records without a row
    guess = torch.cat([start, alone]).requires_grad_()
    optimiser = torch.optim.Adam([guess], lr=_RATE)
    for _ in range(_STEPS):
        optimiser.zero_grad(set_to_none=True)
        fits = [(_mixed(source, weight, guess) - x).square().mean() for source, weight, x in parts]
        loss = torch.stack(fits).mean() + _SMOOTH * total_variation(guess) + _SMALL * guess.square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        with torch.no_grad():
            guess.copy_(pixels.clamp(guess))
    return guess.detach()


def _mixed(source: Tensor, weight: Tensor, records: Tensor) -> Tensor:
    """W records."""
    columns = zip(source.T, weight.T, strict=True)
    return torch.stack([w.view(-1, 1, 1, 1) * records.index_select(0, s) for s, w in columns]).sum(0)
