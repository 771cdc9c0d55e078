"""What parties compute between two messages of federated averaging, many of them side by side: differentiable in their
images, so that an attacker who guesses images sees how the update would change with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from mixveil.core.errors import ArgumentError
from mixveil.core.local_training import AugMix, LocalTraining
from mixveil.features.stacked.network import Stacked, Weights
from mixveil.theory.consistency import jensen_shannon, phased


class Rows(NamedTuple):
    """What clients train on in one step: x (k, b, …) images, y (k, b, classes) soft labels, and where views of the
    images are compared with them, views (v, k, b, …). shares: (k, b) of each row in its client's means, which sum to
    one; None: all rows alike. Rows that only fill up a batch have none."""

    x: Tensor
    y: Tensor
    views: Tensor | None = None
    shares: Tensor | None = None


Changed = Callable[[dict[str, Tensor]], dict[str, Tensor]]
"""What a defence makes of the gradients of one step."""


def cross_entropy(scores: Tensor, y: Tensor, shares: Tensor | None = None) -> Tensor:
    """(…) the mean over rows, of (…, b, classes) scores and soft labels; shares: as in `Rows`."""
    return -_mean((log_softmax(scores, -1) * y).sum(-1), shares)


def losses(net: Stacked, weights: Weights, rows: Rows, augmix: AugMix | None = None) -> Tensor:
    """(k,) of every client: the cross-entropy, and with views the weighed divergence between them and the images."""
    if rows.views is None or augmix is None:
        return cross_entropy(net(weights, rows.x), rows.y, rows.shares)
    seen = torch.cat([rows.x[None], rows.views])
    views, clients, batch = seen.shape[:3]
    scores = net(weights, seen.transpose(0, 1).flatten(1, 2)).view(clients, views, batch, -1).transpose(0, 1)
    named = cross_entropy(scores[0], rows.y, rows.shares)
    apart = _mean(jensen_shannon(scores), rows.shares)
    weight = phased(named, apart, base=augmix.weight, scale=augmix.scale, large=augmix.large)
    return named + weight * apart


def gradients(
    net: Stacked, weights: dict[str, Tensor], rows: Rows, augmix: AugMix | None = None, *, differentiable: bool = False
) -> dict[str, Tensor]:
    """(k, …) by name: of every client's loss by its own weights. differentiable: in the images, too."""
    own = {name: value if value.requires_grad else value.detach().requires_grad_() for name, value in weights.items()}
    loss = losses(net, own, rows, augmix).sum()
    found = torch.autograd.grad(loss, [*own.values()], create_graph=differentiable)
    return dict(zip(own, found, strict=True))


def local_steps(
    net: Stacked,
    weights: Weights,
    steps: Sequence[Rows],
    training: LocalTraining,
    *,
    differentiable: bool = False,
    changed: Changed = lambda slopes: slopes,
) -> dict[str, Tensor]:
    """The weights after these steps of SGD, (k, …) by name. steps: what is trained on in each. changed: what a defence
    makes of each step's gradients."""
    if training.optimiser != "sgd" or training.weight_decay:
        raise ArgumentError("only steps of plain SGD are computed here")
    if len(steps) != len(training.rates):
        raise ArgumentError(f"{len(training.rates)} steps have rates, and {len(steps)} have rows")
    start = {name: value.detach() for name, value in weights.items()}
    now = {name: value.clone() for name, value in start.items()}
    speed: dict[str, Tensor] = {}
    for rate, rows in zip(training.rates, steps, strict=True):
        slopes = changed(gradients(net, now, rows, training.augmix, differentiable=differentiable))
        if training.proximal is not None:
            slopes = {name: slope + training.proximal * (now[name] - start[name]) for name, slope in slopes.items()}
        if training.momentum:
            speed = {name: training.momentum * speed[name] + s if speed else s for name, s in slopes.items()}
            slopes = speed
        now = {name: now[name] - rate * slope for name, slope in slopes.items()}
    return now


def _mean(values: Tensor, shares: Tensor | None) -> Tensor:
    return values.mean(-1) if shares is None else (values * shares).sum(-1)
