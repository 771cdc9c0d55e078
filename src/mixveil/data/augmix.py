"""AugMix (Hendrycks et al., 2020), as Fed-AugMix takes it: an image mixed with chains of operations on itself.

    x_aug = Σ_i b_i · chain_i(x),   x_augmix = m · x + (1 − m) · x_aug,   b ~ Dirichlet(α, …), m ~ Beta(α, α)

(Li et al., 2024, Algorithm 2). A chain has 1 to `longest` operations, each drawn uniformly with a level of its own,
U(0.1, s)/10 of its most. Posterize, solarize, equalize and autocontrast do what Pillow does; shears start from the
upper left corner and rotations turn about the centre, as in AugMix's own code. That code moves by whole pixels and
turns by whole degrees; here levels are not rounded (Eq. 2): images are moved by fractions of a pixel, too. What comes
in from outside is black.

All draws are made in memory, so that a seed gives the same views on every device, and a GPU is never waited for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.local_training import AugMix

MOVES: Final = ("rotate", "shear-x", "shear-y", "translate-x", "translate-y")
OPERATIONS: Final = (*MOVES, "posterize", "solarize", "equalize", "autocontrast")
DEGREES, SHEAR, SHIFT, BITS = 30.0, 0.3, 1 / 3, 4
"""The most of each: an angle, a slope, a part of the side, and bits taken from the four that are kept at least."""

_LEAST = 0.1
_NONE = len(OPERATIONS)


class Plan(NamedTuple):
    """What happens to n images, in memory.

    operation (n, chains, longest): numbers of `OPERATIONS`, and one past them behind the end of a chain; level
    (n, chains, longest): in [−1, 1], a part of the operation's most, of which only moves use the sign; weights
    (n, chains) of the chains; kept (n,): the weight of the image itself.
    """

    operation: Tensor
    level: Tensor
    weights: Tensor
    kept: Tensor


def augmix(x: Tensor, settings: AugMix, draws: DeviceStream) -> Tensor:
    """(n, c, h, w) one augmented view of each of (n, c, h, w) images in [0, 1], differentiable in them. Posterize and
    equalize, which have no slope, hand gradients through as they are."""
    if x.dim() != 4 or not x.is_floating_point() or not x.numel():
        raise ArgumentError(f"x must be floats (n, c, h, w), none of them 0, got {tuple(x.shape)} of {x.dtype}")
    return followed(x, planned(len(x), settings, draws))


def views(x: Tensor, settings: AugMix, draws: DeviceStream) -> Tensor:
    """(views, n, c, h, w) of (n, c, h, w) images in [0, 1]: every view with draws of its own."""
    return augmix(x.repeat(settings.views, *[1] * (x.dim() - 1)), settings, draws).view(settings.views, *x.shape)


def planned(n: int, settings: AugMix, draws: DeviceStream) -> Plan:
    """Operations, levels and weights for n images."""
    shape = n, settings.chains, settings.longest
    length = draws.below(settings.longest, n * settings.chains).add_(1).view(*shape[:2], 1)
    operation = draws.below(_NONE, math.prod(shape)).view(shape)
    operation = torch.where(torch.arange(settings.longest) < length, operation, _NONE)
    level = (_LEAST + (settings.severity - _LEAST) * draws.uniform(*shape, device=torch.device("cpu"))) / 10
    level = level * draws.signs(level)
    return Plan(
        operation,
        level,
        draws.dirichlet(n, settings.chains, settings.alpha),
        draws.dirichlet(n, 2, settings.alpha)[:, 0],
    )


def followed(x: Tensor, plan: Plan) -> Tensor:
    """(n, c, h, w): a plan carried out on (n, c, h, w) images."""
    n, chains, longest = plan.operation.shape
    now, rows = x, torch.arange(n).repeat_interleave(chains)
    for place in range(longest):
        now, rows = _done(now, rows, plan.operation[..., place].flatten(), plan.level[..., place].flatten())
    ends = _taken(now, rows).view(n, chains, *x.shape[1:])
    mixed = (_sent(plan.weights, x)[..., None, None, None] * ends).sum(1)
    kept = _sent(plan.kept, x)[:, None, None, None]
    return _as_if_unchanged(kept * x + (1 - kept) * mixed, lambda found: found.clamp(0, 1))


def applied(x: Tensor, operation: Tensor, level: Tensor) -> Tensor:
    """(m, c, h, w): to each of (m, c, h, w) images its operation (m,), at its level (m,), both in memory."""
    return _taken(*_done(x, torch.arange(len(x)), operation, level))


def _done(x: Tensor, rows: Tensor, operation: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    """To each image its operation: (m, c, h, w) in another order, and in which row of it each is now. rows (m,): in
    which row of x each is.

    Images are put in the order of what is done to them, so that each is worked on once. How many there are of each is
    known in memory: no GPU is asked.
    """
    kind = (operation - len(MOVES) + 1).clamp(min=0)  # 0: any move
    order = kind.argsort(stable=True)
    sizes = kind.bincount(minlength=len(_KINDS) + 1).tolist()
    parts = torch.split(_taken(x, rows[order]), sizes)
    how = zip(torch.split(operation[order], sizes), torch.split(level[order], sizes), strict=True)
    done = [
        run(part, which, at) if len(part) else part
        for run, part, (which, at) in zip((*_KINDS, _unchanged), parts, how, strict=True)
    ]
    return torch.cat(done), order.argsort()


def _taken(x: Tensor, rows: Tensor) -> Tensor:
    return x.index_select(0, rows.to(x.device, non_blocking=True))


def _sent(values: Tensor, x: Tensor) -> Tensor:
    """Values from memory, of the type of x and where it is."""
    return values.to(x.dtype).to(x.device, non_blocking=True)


def _as_if_unchanged(x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """The changed values, with the gradient of the unchanged ones."""
    return x + (change(x.detach()) - x.detach())


def _octets(x: Tensor) -> Tensor:
    """0…255, as 8-bit images have them; numbers that are none are black."""
    return x.mul(255).nan_to_num(0.0).clamp(0, 255).round()


def _moved(x: Tensor, operation: Tensor, level: Tensor) -> Tensor:
    shape = _sent(_affine(operation, level, *x.shape[2:]), x)[:, None, None]
    down, right = (torch.arange(1, 2 * side, 2, dtype=x.dtype, device=x.device) / side - 1 for side in x.shape[2:])
    # Not `affine_grid`, whose many small products of matrices take longer than all that follows.
    places = torch.addcmul(shape[..., 2], shape[..., 0], right[:, None])
    places = torch.addcmul(places, shape[..., 1], down[:, None, None])
    return grid_sample(x, places, mode="bilinear", padding_mode="zeros", align_corners=False)


def _affine(operation: Tensor, level: Tensor, height: int, width: int) -> Tensor:
    """(m, 2, 3) from where each pixel is taken, in torch's coordinates: −1…1 from edge to edge, both ways."""
    rotate, shear_x, shear_y, right, down = (operation == number for number in range(len(MOVES)))
    angle = torch.where(rotate, level * math.radians(DEGREES), 0.0)
    across = torch.where(shear_x, level * SHEAR, 0.0) * (height / width)
    along = torch.where(shear_y, level * SHEAR, 0.0) * (width / height)
    # A shear leaves the upper left corner, −1, where it is.
    aside = across + torch.where(right, 2 * SHIFT * level, 0.0)
    below = along + torch.where(down, 2 * SHIFT * level, 0.0)
    cosine, sine = angle.cos(), angle.sin()
    first = cosine, across - sine * (height / width), aside
    second = along + sine * (width / height), cosine, below
    return torch.stack([*first, *second], 1).view(-1, 2, 3)


def _posterized(x: Tensor, _: Tensor, level: Tensor) -> Tensor:
    """The highest 4 − ⌊4 · level⌋ of 8 bits stay, one at least."""
    taken = (level.abs() * BITS).floor().clamp(max=BITS - 1)
    steps = _sent(2 ** (8 - BITS + taken), x)[:, None, None, None]
    return _as_if_unchanged(x, lambda values: (_octets(values) / steps).floor() * steps / 255)


def _solarized(x: Tensor, _: Tensor, level: Tensor) -> Tensor:
    """What is not below 1 − level is inverted."""
    return torch.where(x < _sent(1 - level.abs(), x)[:, None, None, None], x, 1 - x)


def _equalized(x: Tensor, *_: Tensor) -> Tensor:
    """Pillow's way for each image and channel: a pixel becomes the number of darker ones in steps, of which 255 reach
    the brightest. Where less than 255 pixels are darker than those, nothing changes."""
    return _as_if_unchanged(x, _by_rank)


def _by_rank(x: Tensor) -> Tensor:
    octets = _octets(x).flatten(2).long()
    counts = torch.zeros(*octets.shape[:2], 256, dtype=torch.long, device=x.device)
    counts.scatter_add_(2, octets, torch.ones_like(octets))
    darker = (counts.cumsum(2) - counts).gather(2, octets)
    step = darker.amax(2, keepdim=True) // 255  # whole numbers from here on, as Pillow has them
    ranks = ((darker + step // 2) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, ranks.to(x.dtype) / 255, x.flatten(2)).view_as(x)


def _stretched(x: Tensor, *_: Tensor) -> Tensor:
    """Each image and channel from its darkest to its brightest pixel; flat ones stay as they are."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    flat = high - low < 0.5 / 255  # 8-bit images differ by 1/255, or not at all
    return torch.where(flat, x, (x - low) / torch.where(flat, 1.0, high - low))


def _unchanged(x: Tensor, *_: Tensor) -> Tensor:
    return x


_KINDS: Final[tuple[Callable[[Tensor, Tensor, Tensor], Tensor], ...]] = (
    _moved,
    _posterized,
    _solarized,
    _equalized,
    _stretched,
)
