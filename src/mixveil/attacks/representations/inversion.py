"""MixCon's own attack (Li et al., 2020, App. C): the image whose representation is what was sent, by gradient descent.

    argmin_s  distance(h(s), z) + ζ · TV(s),   TV isotropic

by SGD at the rate 10 with weight decay 10⁻⁴ in 500 steps; of vectors (App. C.1) by the l1 distance without total
variation, at the rate 0.01, each by itself. The range of a pixel is kept at the end only.

The paper does not say where it starts, nor of what the rate 10 is. Of the distance of one image it leads nowhere: SSIM
0.03 on LeNet-5 and MNIST without a defence. Of the mean distance of its 100 images, which is a rate of 0.1 for each, it
comes to 0.60 (LeNet-5 with maxima) or 0.80 (with averages) from zeros, where the paper has 0.64; so that is what is
done. Where every unit of the first layer is off at the start, or slopes are steeper, that leads nowhere: an image that
does not fit better than the start, or is no number, is tried again from noise, and then at a tenth of the rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from mixveil.attacks.shared.inverting import RepresentationAttack, Target, total_variation
from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import Guess, View

Distance = Literal["l2", "mse", "l1"]
Start = Literal["zeros", "grey", "noise"]

_TRIES = 3  # at smaller rates


@dataclass(frozen=True)
class Inversion(RepresentationAttack):
    """Gradient descent on the pixels.

    Attributes:
        zeta: The weight of the total variation, for images; the paper's for MNIST (0.01 for SVHN).
        distance: `l2`: the norm ‖·‖₂, as printed; `mse`: the mean of squares; `l1`: the norm ‖·‖₁.
        start: `grey`: the middle of a pixel's range; `noise`: uniform in it.
        mean_over: The rate is of the mean of so many images' objectives: each has its own part of the rate. Weight
            decay has the whole rate.
    """

    name: ClassVar[str] = "inversion"
    steps: int = 500
    rate: float = 10.0
    zeta: float = 1e-5
    weight_decay: float = 1e-4
    distance: Distance = "l2"
    start: Start = "zeros"
    mean_over: int = 100

    def __post_init__(self) -> None:
        if self.distance not in get_args(Distance):
            raise ArgumentError(f"distance must be one of {', '.join(get_args(Distance))}, got {self.distance!r:.60}")
        if self.start not in get_args(Start):
            raise ArgumentError(f"start must be one of {', '.join(get_args(Start))}, got {self.start!r:.60}")
        checks.at_least("mean_over", self.mean_over, 1)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        target = self.target(view)
        starts, noise = self._first(target, self.start, stream), self._first(target, "noise", stream)
        parts = zip(*(torch.split(x, target.together) for x in (starts, noise, target.z)), strict=True)
        found = torch.cat([self._found(target, *part) for part in parts])
        return Guess(images=target.inside(found).cpu().double())

    def objective(self, target: Target, s: Tensor, z: Tensor) -> Tensor:
        """(m,) of images s (m, *shape), for representations z (m, values)."""
        apart = target.h(s) - z
        if self.distance == "l1":
            found = apart.abs().sum(1)
        elif self.distance == "l2":
            found = torch.linalg.vector_norm(apart.double(), dim=1)  # no float32 is too small to be squared there
        else:
            found = apart.square().mean(1)
        return found + self.zeta * total_variation(s) if self.zeta and s.dim() == 4 else found

    def _first(self, target: Target, start: Start, stream: Stream) -> Tensor:
        """(n, *shape) where it starts."""
        low, high = target.client.low, target.client.high
        found = torch.zeros(len(target.z), *target.shape, device=target.device)
        if start == "noise":
            drawn = stream.fork("start").uniform(*found.shape).float()
            return (low + (high - low) * drawn).to(target.device)
        return found + (low + high) / 2 if start == "grey" else found

    def _found(self, target: Target, start: Tensor, noise: Tensor, z: Tensor) -> Tensor:
        """(m, *shape) for representations z. What is no number at any rate stays so: the attack failed there."""
        found = self._descended(target, start, z, self.rate)
        with torch.no_grad():
            least = self.objective(target, start, z)
        for tries in range(1, 2 * _TRIES + 2):
            with torch.no_grad():
                lost = ~(self.objective(target, found, z) < least)  # no number is not less either
            if not bool(lost.any()):
                break
            first = noise if tries % 2 else start
            found[lost] = self._descended(target, first[lost], z[lost], self.rate / 10 ** (tries // 2))
        return found

    def _descended(self, target: Target, s: Tensor, z: Tensor, rate: float) -> Tensor:
        for _ in range(self.steps):
            s = s.detach().requires_grad_()
            # The sum: what is found of one image does not depend on the others.
            (slope,) = torch.autograd.grad(self.objective(target, s, z).sum(), s)
            s = s.detach() - rate * (slope / self.mean_over + self.weight_decay * s.detach())
        return s.detach()
