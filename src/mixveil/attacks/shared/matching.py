"""Inverting gradients (Geiping et al., 2020): images whose update points where the party's update points.

    argmin_x  1 − cos(Δ(x), Δ)  +  ζ · TV(x)

by Adam on the sign of the slope, the rate falling to a tenth after 3/8, 5/8 and 7/8 of the steps, pixels kept in their
range. Δ(x) is what the party would have sent of x: one gradient, or the way of the weights over several local steps,
through which the slope goes back (unrolled). Of AdamW, whose steps hardly depend on a gradient's size, attackers
compare the softened signs of the gradients at the weights before.

Many parties are worked on side by side. On a GPU a step is recorded once, as a CUDA graph, and replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from mixveil.attacks.shared.updates import UpdateTarget
from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.types import Progress
from mixveil.features.stacked.local_steps import Rows, gradients, local_steps

Views = Callable[[Tensor], Tensor]
"""Views (v, k, b, …) of images (k, b, …), as a party that uses Fed-AugMix draws them; other ones with every call."""

_BETAS, _EPSILON = (0.9, 0.999), 1e-8
_FALLS, _FALL = (3 / 8, 5 / 8, 7 / 8), 0.1
_SPREAD = 0.25  # of pixels, as a share of their range: rates are for values of about this deviation
_SOFT = 0.02  # of a tensor's mean size: gradients that are smaller hardly decide on a sign of AdamW
_BEFORE = 3  # steps before a graph is recorded: libraries choose their kernels in them


@dataclass(frozen=True)
class Descent:
    """How images are looked for.

    Attributes:
        steps: Of Adam. rate: at first, for pixels of deviation one.
        tv: ζ, of the mean absolute difference between neighbouring pixels.
        signed: Whether only the sign of a slope counts.
        coarse: For this share of the steps, the first ones, the party's local steps are taken as one with the sum of
            their rates, which is as many times as fast. It is right where weights move little in a round, and costs
            much of the image where they do not.
    """

    steps: int = 2500
    rate: float = 0.1
    tv: float = 1e-6
    signed: bool = True
    coarse: float = 0.0

    def __post_init__(self) -> None:
        checks.at_least("steps", self.steps, 1)
        checks.finite_positive("rate", self.rate)
        if not 0 <= self.coarse <= 1:
            raise ArgumentError(f"coarse must be in [0, 1], got {self.coarse:g}")

    def rate_at(self, step: int) -> float:
        """It falls to a tenth three times."""
        return self.rate * _FALL ** sum(step >= fall * self.steps for fall in _FALLS)


def variation(x: Tensor) -> Tensor:
    """(k,) of (k, b, c, h, w) images: the mean absolute difference of neighbours, down and across; 0 of other rows."""
    if x.dim() != 5:
        return x.new_zeros(len(x))
    down, across = x[..., 1:, :] - x[..., :-1, :], x[..., 1:] - x[..., :-1]
    return down.abs().flatten(1).mean(1) + across.abs().flatten(1).mean(1)


def flat(tensors: dict[str, Tensor]) -> Tensor:
    """(k, values) of (k, …) by name."""
    return torch.cat([tensor.flatten(1) for tensor in tensors.values()], 1)


def batches(rows: int, batch: int, steps: int) -> list[slice]:
    """The rows of each step, as an attacker has to assume them: one batch after the other, in every epoch."""
    parts = [slice(first, min(first + batch, rows)) for first in range(0, rows, batch)]
    return [parts[step % len(parts)] for step in range(steps)]


def simulated(
    target: UpdateTarget, x: Tensor, y: Tensor, views: Views | None = None, *, differentiable: bool = True
) -> Tensor:
    """(k, values) what parties with images x (k, b, …) and soft labels y would have sent, less what they were sent;
    differentiable in x. views: None: as if they did not use Fed-AugMix."""
    training = target.training
    parts = batches(training.rows, training.batch, len(training.rates))

    def rows(part: slice) -> Rows:
        own = x[:, part]
        return Rows(own, y[:, part], None if views is None else views(own))

    before = {name: value.detach() for name, value in target.before.items()}
    if training.optimiser == "adamw":
        total = torch.zeros((), device=x.device)
        for part in parts[: max(1, -(-training.rows // training.batch))]:
            slopes = gradients(target.net, before, rows(part), training.augmix, differentiable=differentiable)
            total = total - flat({name: _soft_sign(slope) for name, slope in slopes.items()})
        return total
    after = local_steps(target.net, before, [rows(part) for part in parts], training, differentiable=differentiable)
    return flat({name: after[name] - before[name] for name in before})


def coarse(target: UpdateTarget) -> UpdateTarget:
    """The same parties, as if they had taken one step on all their rows with the sum of all rates."""
    if target.training.optimiser != "sgd":
        return target
    training = target.training
    one = replace(training, batch=training.rows, rates=(sum(training.rates),), momentum=0.0, proximal=None)
    return replace(target, training=one)


def _soft_sign(slope: Tensor) -> Tensor:
    size = slope.abs()
    return slope / (size + _SOFT * size.detach().flatten(1).mean(1).view(-1, *[1] * (slope.dim() - 1)) + 1e-30)


def sent(target: UpdateTarget) -> Tensor:
    """(k, values) the parties' way from the weights before."""
    return flat({name: target.after[name] - value for name, value in target.before.items()})


@dataclass(frozen=True)
class Sought:
    """What updates are compared with: wanted (k, values), and the weight of each value in the comparison."""

    wanted: Tensor
    weight: Tensor | None = None

    def misfit(self, found: Tensor) -> Tensor:
        """(k,) one less the cosine between both."""
        # Over the largest value: squares of small updates are no float32.
        scale = 1 / self.wanted.abs().amax(1, keepdim=True).clamp(min=1e-30)
        scale = scale if self.weight is None else scale * self.weight
        return 1 - cosine_similarity(found * scale, self.wanted * scale, dim=1, eps=1e-30)


@dataclass(frozen=True)
class Found:
    """images: (k, b, …); misfit: (k,) one less the cosine of both ways."""

    images: Tensor
    misfit: Tensor


def descend(
    target: UpdateTarget,
    start: Tensor,
    y: Tensor,
    how: Descent,
    *,
    sought: Sought | None = None,
    progress: Progress = lambda _: None,
) -> Found:
    """Look for every party's images from `start` (k, b, …), with soft labels y (k, b, classes). The party is simulated
    without Fed-AugMix. sought: what to come to; else what the party sent."""
    descent = _Descending(target, start, y, how, sought or Sought(sent(target)))
    fine = round(how.coarse * how.steps) if len(target.training.rates) > 1 else 0
    run = descent.step
    for step in range(how.steps):
        if step in (0, fine):
            descent.target = coarse(target) if step < fine else target
            run = _recorded(descent) if start.device.type == "cuda" else descent.step
        descent.set(step)
        run()
        progress(1)
    return Found(descent.x.detach(), descent.misfit.detach().clone())


class _Descending:
    """One descent: tensors at fixed places, changed in place, so that a step can be recorded."""

    def __init__(self, target: UpdateTarget, start: Tensor, y: Tensor, how: Descent, sought: Sought) -> None:
        self.target, self.y, self.how, self.sought = target, y, how, sought
        self.x = start.clone()
        self.first, self.second = torch.zeros_like(self.x), torch.zeros_like(self.x)
        self.misfit = torch.zeros(len(start), device=start.device)
        self.rate, self.one, self.two = (torch.zeros((), device=start.device) for _ in range(3))
        self.scale = _SPREAD * (target.high - target.low)

    def set(self, step: int) -> None:
        """What changes from step to step."""
        self.rate.fill_(self.how.rate_at(step) * self.scale)
        self.one.fill_(1 / (1 - _BETAS[0] ** (step + 1)))
        self.two.fill_(1 / (1 - _BETAS[1] ** (step + 1)))

    def step(self) -> None:
        x = self.x.detach().requires_grad_()
        misfit = self.sought.misfit(simulated(self.target, x, self.y))
        smooth = self.how.tv * variation(x) / self.scale
        (slope,) = torch.autograd.grad((misfit + smooth).sum(), x)
        with torch.no_grad():
            self.misfit.copy_(misfit)
            slope = torch.nan_to_num(slope, 0.0, 0.0, 0.0)
            slope = slope.sign() if self.how.signed else slope
            self.first.lerp_(slope, 1 - _BETAS[0])
            self.second.lerp_(slope.square(), 1 - _BETAS[1])
            moved = self.first * self.one / ((self.second * self.two).sqrt() + _EPSILON)
            self.x.sub_(moved * self.rate).clamp_(self.target.low, self.target.high)


def _recorded(descent: _Descending) -> Callable[[], None]:
    """A step as a CUDA graph. What the steps before it changed is put back."""
    kept = [descent.x.clone(), descent.first.clone(), descent.second.clone()]
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_BEFORE):
            descent.step()
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        descent.step()
    for place, was in zip((descent.x, descent.first, descent.second), kept, strict=True):
        place.copy_(was)
    return recorded.replay
