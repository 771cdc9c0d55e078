"""Losses of one step of a training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mixveil.core.types import Batch

if TYPE_CHECKING:
    from mixveil.learn.fit import TrainingRecipe


class StepLoss(Protocol):
    """The loss of one step. It is averaged over all rows of the step."""

    def __call__(self, model: torch.nn.Module, batch: Batch, step: int, rows: int) -> Tensor:
        """step: of the training, for draws; rows: of the step, over all processes."""


LossOf = Callable[["TrainingRecipe"], StepLoss]
"""The loss of a party, from a recipe with its own seed."""


@dataclass(frozen=True)
class CrossEntropy:
    """With soft labels. processes: how many train together."""

    processes: int = 1

    def __call__(self, model: torch.nn.Module, batch: Batch, step: int, rows: int) -> Tensor:
        with torch.autocast(batch.x.device.type, torch.bfloat16, enabled=batch.x.device.type == "cuda"):
            scores = model(batch.x, rows)
        # The mean over the whole batch: processes average their gradients, and their shares may differ by a row.
        return cross_entropy(scores.float(), batch.y, reduction="sum") * (self.processes / rows)
