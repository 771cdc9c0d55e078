"""The classifier of the singularized-mixup paper (App. E): three dense layers, batch normalisation, GELU, dropout.

Several processes compute what one process would: batch statistics are taken over all rows of the batch, and each
process draws the dropout masks of the whole batch and uses those of its rows.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.functional import batch_norm, gelu

from mixveil.core.device_random import DeviceStream
from mixveil.learn.distributed import ALONE, Group
from mixveil.learn.layers import Layers

WIDTHS = (1024, 512)
DROPOUT = 0.5
_EPSILON = 1e-5
_MOMENTUM = 0.1


class Classifier(nn.Module):
    """The classifier. draws: of the first weights and of dropout masks; group: the processes that train together."""

    def __init__(self, inputs: int, classes: int, *, draws: DeviceStream, group: Group = ALONE) -> None:
        super().__init__()
        self.draws, self.group = draws, group
        sizes = pairwise((inputs, *WIDTHS, classes))
        self._dense = [_Dense(before, after, draws, group.device) for before, after in sizes]
        self._norms = [_Norm(width, group) for width in WIDTHS]
        self.dense, self.norms = nn.ModuleList(self._dense), nn.ModuleList(self._norms)

    def forward(self, x: Tensor, rows: int | None = None) -> Tensor:
        """(m, classes) scores of (m, inputs). rows: of the batch, over all processes; None for a single process."""
        rows = len(x) if rows is None else rows
        *hidden, last = self._dense
        for dense, norm in zip(hidden, self._norms, strict=True):
            x = self._dropped(gelu(norm(dense(x), rows)), rows)
        scores: Tensor = last(x)
        return scores

    def _dropped(self, x: Tensor, rows: int) -> Tensor:
        if not self.training:
            return x
        kept = self.draws.uniform(rows, x.shape[1], device=x.device) >= DROPOUT
        return x * self.group.own(kept).to(x.dtype).mul_(1 / (1 - DROPOUT))

    @torch.no_grad()
    def layers(self) -> Layers:
        """The trained layers, with batch normalisation multiplied into the layer before it."""
        layers = []
        for dense, norm in zip(self._dense, (*self._norms, None), strict=True):
            weight, bias = dense.weight.double(), dense.bias.double()
            if norm is not None:
                scale = norm.weight.double() / (norm.running_var.double() + _EPSILON).sqrt()
                weight, bias = weight * scale[:, None], (bias - norm.running_mean) * scale + norm.bias
            layers.append((weight.T.float().contiguous().cpu(), bias.float().cpu()))
        return Layers(tuple(layers))


class Linear(nn.Module):
    """Softmax regression: one layer. On good features it learns what the classifier learns in a hundredth of the
    time."""

    def __init__(self, inputs: int, classes: int, *, draws: DeviceStream) -> None:
        super().__init__()
        self.draws = draws
        self.dense = _Dense(inputs, classes, draws, ALONE.device)

    def forward(self, x: Tensor, rows: int | None = None) -> Tensor:
        scores: Tensor = self.dense(x)
        return scores

    @torch.no_grad()
    def layers(self) -> Layers:
        return Layers(((self.dense.weight.T.contiguous().clone(), self.dense.bias.clone()),))


class _Dense(nn.Module):
    """A linear layer whose first weights are uniform within ±1/√inputs, as in torch."""

    def __init__(self, inputs: int, outputs: int, draws: DeviceStream, device: torch.device) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(draws.uniform(outputs, inputs, device=device).mul_(2 * bound).sub_(bound))
        self.bias = nn.Parameter(draws.uniform(outputs, device=device).mul_(2 * bound).sub_(bound))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class _Norm(nn.Module):
    """Batch normalisation over the rows of all processes. torch has it for GPUs only."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, group: Group) -> None:
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(torch.ones(width, device=group.device))
        self.bias = nn.Parameter(torch.zeros(width, device=group.device))
        self.register_buffer("running_mean", torch.zeros(width, device=group.device))
        self.register_buffer("running_var", torch.ones(width, device=group.device))

    def forward(self, x: Tensor, rows: int) -> Tensor:
        if not self.training or self.group.size == 1:
            settings = (self.weight, self.bias, self.training, _MOMENTUM, _EPSILON)
            return batch_norm(x, self.running_mean, self.running_var, *settings)
        x = x.float()
        mean: Tensor = all_reduce(x.sum(0)) / rows  # type: ignore[no-untyped-call]
        left = x - mean
        variance: Tensor = all_reduce(left.square().sum(0)) / rows  # type: ignore[no-untyped-call]
        with torch.no_grad():
            self.running_mean.lerp_(mean, _MOMENTUM)
            self.running_var.lerp_(variance * (rows / (rows - 1)), _MOMENTUM)
        return left * (variance + _EPSILON).rsqrt() * self.weight + self.bias
