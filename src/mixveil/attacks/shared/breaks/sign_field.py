"""Which of a solution and its negative is right, value by value: one sign for each place, the same in all images.

Rows whose signs are hidden do not tell. What images are like does: if they are Gaussian, with the mean m and the
covariance of public images, whose inverse is P, then the likeliest signs s of images X maximise hᵀs − sᵀQs / 2, where
Q = P ∘ XᵀX and h = P m ∘ Xᵀ1. Signs are drawn one after another while a temperature falls (simulated annealing),
several times side by side, and the best is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mixveil.core.randomness import Stream

MOST_VALUES = 4096
"""Of an image: the covariance of more does not fit."""

_RIDGE = 0.05  # of the mean variance
_TRIES, _SWEEPS, _COLD = 8, 60, 10  # the last sweeps are without a temperature
_HOT = 0.2  # of what a sign hangs on, the temperature in the beginning


@dataclass(frozen=True, eq=False)
class PixelPrior:
    """What images are like, by public ones.

    Attributes:
        examples: (k, d) public images.
        mean, variance: (d,) of their values.
    """

    examples: Tensor
    mean: Tensor
    variance: Tensor

    @classmethod
    def of(cls, images: Tensor) -> PixelPrior:
        """As images (k, d) are like."""
        spread = images.var(0)
        return cls(images, images.mean(0), spread.clamp(min=1e-3 * float(spread.mean()) + 1e-12))

    def precision(self) -> Tensor:
        """(d, d) float64: the inverse of the covariance, with a ridge."""
        covariance = torch.cov(self.examples.double().T)
        ridge = _RIDGE * float(covariance.diagonal().mean()) + 1e-12
        inverse: Tensor = torch.linalg.inv(covariance + ridge * torch.eye(len(covariance), dtype=torch.float64))
        return inverse


def chosen_signs(images: Tensor, prior: PixelPrior, stream: Stream) -> Tensor:
    """(d,) ±1 for images (n, d), d at most `MOST_VALUES`."""
    x, precision = images.double().cpu(), prior.precision()
    pull = ((precision @ prior.mean.double().cpu()) * x.sum(0)).numpy()
    links = (precision * (x.T @ x)).fill_diagonal_(0).numpy()
    found = annealed(pull, links, stream)
    return torch.from_numpy(found).to(images)


def annealed(pull: np.ndarray, links: np.ndarray, stream: Stream) -> np.ndarray:
    """(d,) ±1 that make pullᵀs − sᵀ links s / 2 large. pull: (d,); links: (d, d), symmetric, with zeros on its
    diagonal."""
    count = len(pull)
    signs = np.where(stream.uniform(_TRIES, count).numpy() < 0.5, -1.0, 1.0)
    signs[0] = np.where(pull < 0, -1.0, 1.0)
    felt = pull - signs @ links
    hot = _HOT * float(np.abs(pull).mean() + np.abs(links).sum(1).mean())
    for sweep in range(_SWEEPS):
        warm = hot * max(0.0, 1 - sweep / (_SWEEPS - _COLD))
        chance = stream.uniform(count, _TRIES).numpy().clip(1e-12, 1 - 1e-12)
        bars = warm / 2 * np.log(chance / (1 - chance))
        for place, bar in enumerate(bars):
            drawn = np.where(felt[:, place] > bar, 1.0, -1.0)
            change = drawn - signs[:, place]
            if change.any():
                felt -= change[:, None] * links[place]
                signs[:, place] = drawn
    signs = np.concatenate([signs, -signs])  # single signs do not lead from a whole to its negative
    worth = signs @ pull - 0.5 * ((signs @ links) * signs).sum(1)
    best: np.ndarray = signs[worth.argmax()]
    return best
