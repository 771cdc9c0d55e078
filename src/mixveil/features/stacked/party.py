"""One party's part of a round: from the server's weights and its rows to the weights that it sends back.

Rows are trained on in their order, batch after batch, in every epoch again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mixveil.core import checks
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.local_training import LocalTraining
from mixveil.core.randomness import Stream
from mixveil.core.types import Batch
from mixveil.data.augmix import views
from mixveil.features.stacked.local_steps import Changed, Rows, local_steps
from mixveil.features.stacked.network import Stacked, stacked


@dataclass(frozen=True)
class Defence:
    """What is done to the gradient of every step, for experiments. Nothing is promised by it: no noise is accounted.

    Attributes:
        clip: C, to which the gradient of every record is scaled down where it is longer.
        noise: z: normal noise of deviation z·C/rows on the mean gradient of a step's rows.
        prune: The share of a step's gradient values, the smallest of all layers together, that is set to 0.
    """

    clip: float | None = None
    noise: float | None = None
    prune: float | None = None

    def __post_init__(self) -> None:
        for name in ("clip", "noise"):
            if (value := getattr(self, name)) is not None:
                checks.finite_positive(name, value)
        if self.noise is not None and self.clip is None:
            raise ArgumentError(f"noise = {self.noise:g} is a multiple of the clip norm: give clip too")
        if self.prune is not None and not 0 < self.prune < 1:
            raise ArgumentError(f"prune must lie between 0 and 1, got {self.prune:g}")

    @property
    def words(self) -> tuple[str, ...]:
        """What it does, for the name of a method."""
        named = (("clipped", self.clip), ("noisy", self.noise), ("pruned", self.prune))
        return tuple(word for word, value in named if value is not None)


NO_DEFENCE = Defence()


def batches(training: LocalTraining) -> list[Tensor]:
    """The numbers of the rows of every step."""
    epoch = torch.split(torch.arange(training.rows), training.batch)
    epochs, over = divmod(len(training.rates), len(epoch))
    if over:
        raise ArgumentError(f"{len(training.rates)} steps are no whole number of epochs of {len(epoch)}")
    return [*epoch] * epochs


def sent_back(
    net: nn.Sequential,
    before: Mapping[str, Tensor],
    rows: Batch,
    training: LocalTraining,
    *,
    defence: Defence = NO_DEFENCE,
    stream: Stream | None = None,
) -> dict[str, Tensor]:
    """The weights after the party's part of a round, by name. rows: all that it has; stream: of views and noise."""
    if (training.augmix is not None or defence.noise is not None) and stream is None:
        raise ArgumentError("views and noise are drawn: give a stream")
    order = batches(training)
    clients = 1 if defence.clip is None else min(training.batch, training.rows)  # each record is one, to be clipped
    draws = None if stream is None else DeviceStream(stream.fork("views"))
    steps = [_step(rows, index, training, clients, draws) for index in order]
    changed = _changed(defence, [len(index) for index in order], stream)
    after = local_steps(Stacked(net), stacked(before, clients), steps, training, changed=changed)
    return {name: value[0].detach().clone() for name, value in after.items()}


def _step(rows: Batch, index: Tensor, training: LocalTraining, clients: int, draws: DeviceStream | None) -> Rows:
    """What one step trains on: (1, b, …), or (b, 1, …) where each record is a client of its own. A last batch that is
    smaller is filled up with its first row, whose gradients `_changed` leaves out."""
    if clients > 1:
        index = torch.cat([index, index[:1].expand(clients - len(index))])
    x, y = rows.x[index], rows.y[index]
    seen = None if training.augmix is None or draws is None else views(x, training.augmix, draws)
    if clients > 1:
        return Rows(x[:, None], y[:, None], None if seen is None else seen[:, :, None])
    return Rows(x[None], y[None], None if seen is None else seen[:, None])


def _changed(defence: Defence, sizes: Sequence[int], stream: Stream | None) -> Changed:
    """What the defence makes of gradients (k, …), step by step. sizes: how many of the clients are records, of each."""
    left = iter(sizes)

    def changed(slopes: dict[str, Tensor]) -> dict[str, Tensor]:
        clients, size = len(next(iter(slopes.values()))), next(left)
        if defence.clip is not None:
            mean = _clipped({name: slope[:size] for name, slope in slopes.items()}, defence.clip)
            if defence.noise is not None and stream is not None:
                deviation = defence.noise * defence.clip / size
                mean = {n: s + deviation * stream.normal(*s.shape).to(s) for n, s in mean.items()}
            slopes = {name: slope.expand(clients, *slope.shape) for name, slope in mean.items()}
        return slopes if defence.prune is None else _pruned(slopes, defence.prune)

    return changed


def _clipped(slopes: dict[str, Tensor], clip: float) -> dict[str, Tensor]:
    """The mean over records of gradients (m, …), each no longer than `clip` over all layers."""
    squares = torch.stack([slope.flatten(1).square().sum(1) for slope in slopes.values()]).sum(0)
    factor = (clip / squares.sqrt().clamp(min=1e-30)).clamp(max=1)
    return {name: torch.tensordot(factor, slope, 1) / len(factor) for name, slope in slopes.items()}


def _pruned(slopes: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """Gradients (k, …), all k the same, with the smallest values at 0: so large a share of all layers together."""
    one = torch.cat([slope[0].flatten() for slope in slopes.values()])
    kept = torch.ones_like(one)
    kept[one.abs().argsort(stable=True)[: math.floor(share * len(one))]] = 0
    parts = torch.split(kept, [slope[0].numel() for slope in slopes.values()])
    return {name: slope * part.view(slope.shape[1:]) for (name, slope), part in zip(slopes.items(), parts, strict=True)}
