"""The plain ways to mix images and to add noise, in our own words: what users would write, or have in a library.

None of them is private but for `whole`, `blocks` and `loop`, whose noise is as large as ours. It comes from torch's own
generator, and is rounded without a proof.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

MOVED = 10
"""Bytes that a value of an encoding moves at least: two float32 are read, an int16 is written."""

_BATCH = 128  # images that a training loop mixes at a time
_BLOCK = 1 << 18  # values


@dataclass(frozen=True)
class Mixture:
    """x: (n, d) float32; partner: (n,); weight: (n, 2). A row is round((w₁z + w₂(z' + σN))/step), z = x − centre."""

    x: Tensor
    partner: Tensor
    weight: Tensor
    sigma: float
    centre: float
    step: float


def whole(mixture: Mixture) -> Tensor:
    """Whole arrays, as the formula is written down."""
    z, weight = mixture.x - mixture.centre, mixture.weight
    noise = mixture.sigma * torch.randn(z.shape)
    mixed = weight[:, :1] * z + weight[:, 1:] * (z[mixture.partner] + noise)
    return (mixed / mixture.step).round().to(torch.int16)


def blocks(mixture: Mixture) -> Tensor:
    """The same, some rows at a time, which stay in the cache."""
    out = torch.empty(mixture.x.shape, dtype=torch.int16)
    rows = max(1, _BLOCK // mixture.x.shape[1])
    for index in torch.split(torch.arange(len(out)), rows):
        weight = mixture.weight[index]
        own, other = (mixture.x[chosen] - mixture.centre for chosen in (index, mixture.partner[index]))
        other += mixture.sigma * torch.randn(other.shape)
        out[index] = (weight[:, :1] * own).addcmul_(weight[:, 1:], other).div_(mixture.step).round_().to(torch.int16)
    return out


def loop(mixture: Mixture) -> Tensor:
    """One image after the other, as published scripts do: two images, two weights, a fresh noise image."""
    out = torch.empty(mixture.x.shape, dtype=torch.int16)
    for i in range(len(out)):
        own, other = mixture.x[i] - mixture.centre, mixture.x[int(mixture.partner[i])] - mixture.centre
        noise = torch.normal(0.0, mixture.sigma, size=other.shape)
        mixed = float(mixture.weight[i, 0]) * own + float(mixture.weight[i, 1]) * (other + noise)
        out[i] = torch.round(mixed / mixture.step)
    return out


def rolled(x: Tensor, alpha: float = 1.0) -> Tensor:
    """MixUp as torchvision has it: each batch is mixed with itself, moved by one image, by one weight for all."""
    out = torch.empty_like(x)
    law = torch.distributions.Beta(torch.tensor(alpha), torch.tensor(alpha))
    for index in torch.split(torch.arange(len(x)), _BATCH):
        batch, weight = x[index[0] : index[-1] + 1], float(law.sample())
        out[index[0] : index[-1] + 1] = batch.roll(1, 0).mul_(1 - weight).add_(batch, alpha=weight)
    return out


def permuted(x: Tensor) -> Tensor:
    """MixUp as kornia has it: partners by a permutation of the batch, a weight for each image."""
    out = torch.empty_like(x)
    for start in range(0, len(x), _BATCH):
        batch = x[start : start + _BATCH]
        weight = torch.rand(len(batch), 1)
        out[start : start + _BATCH] = batch * (1 - weight) + batch[torch.randperm(len(batch))] * weight
    return out


def opacus_steps(
    x: Tensor, labels: Tensor, classes: int, steps: int, *, share: float, noise: float, clip: float
) -> Tensor:
    """(classes, d) the weights of a linear head after steps of DP-SGD by Opacus, at a rate of one: the gradients of
    samples clipped and summed, and noise of its own."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    head = torch.nn.Linear(x.shape[1], classes)
    model = GradSampleModule(head)
    optimiser = DPOptimizer(
        torch.optim.SGD(model.parameters(), 1.0),
        noise_multiplier=noise,
        max_grad_norm=clip,
        expected_batch_size=math.ceil(share * len(x)),
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook")  # inputs need no gradients
        for _ in range(steps):
            chosen = (torch.rand(len(x)) < share).nonzero()[:, 0]
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(x[chosen]), labels[chosen]).backward()
            optimiser.step()
    return head.weight.detach()
