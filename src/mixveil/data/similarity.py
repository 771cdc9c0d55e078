"""Measures of how close a reconstruction comes to the truth.

All take (n, …) truth and guess in [0, 1] and give (n,) float64 on the same device.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError

_WINDOW, _SIGMA = 11, 1.5
_AT_ONCE = 1 << 18  # values of images that are compared at a time: they stay in a processor's cache
SSIM = (0.01**2, 0.03**2)  # C₁ and C₂, for values in [0, 1]
PUBLISHED_SSIM = (0.012, 0.032)  # the paper's constants, for the comparison with its table only


def mse(truth: Tensor, guess: Tensor) -> Tensor:
    """The mean squared error of a value."""
    return (_flat(truth) - _flat(guess)).square().mean(1)


def snr_db(truth: Tensor, guess: Tensor) -> Tensor:
    """10 log₁₀(‖x‖² / ‖x − x̂‖²): +∞ for a perfect guess.

    >>> import torch
    >>> round(float(snr_db(torch.ones(1, 4), torch.full((1, 4), 0.9))), 4)
    20.0
    """
    x = _flat(truth)
    return 10 * torch.log10(x.square().sum(1) / (x - _flat(guess)).square().sum(1))


def psnr_db(truth: Tensor, guess: Tensor) -> Tensor:
    """10 log₁₀(1 / MSE), for values in [0, 1]."""
    return -10 * torch.log10(mse(truth, guess))


def cosine(truth: Tensor, guess: Tensor) -> Tensor:
    """The cosine of the angle between truth and guess; 0 where one of them is zero."""
    return torch.nn.functional.cosine_similarity(_flat(truth), _flat(guess), dim=1)


def ssim(truth: Tensor, guess: Tensor, constants: tuple[float, float] = SSIM) -> Tensor:
    """Structural similarity of (n, c, h, w) images in [0, 1]: Gaussian window 11 with σ = 1.5, the mean over the
    places where the window fits, and over channels. Images smaller than the window get the largest odd one.
    constants: C₁ and C₂, which keep the quotients stable."""
    if truth.dim() != 4:
        raise ArgumentError(f"ssim needs images (n, c, h, w), got {tuple(truth.shape)}")
    y, size = guess.view_as(truth), len(truth)
    if truth.device.type == "cpu":
        size = max(1, _AT_ONCE // max(1, truth[:1].numel()))
    parts = zip(torch.split(truth, size), torch.split(y, size), strict=True)
    return torch.cat([_ssim(one.double(), other.double(), constants) for one, other in parts])


def _ssim(x: Tensor, y: Tensor, constants: tuple[float, float]) -> Tensor:
    c1, c2 = constants
    mean_x, mean_y = _blurred(x), _blurred(y)
    product, squares = mean_x * mean_y, mean_x.square().addcmul_(mean_y, mean_y)
    covariance, variances = _blurred(x * y) - product, _blurred(torch.addcmul(x * x, y, y)) - squares
    luminance = (2 * product + c1) / (squares + c1)
    structure = (2 * covariance + c2) / (variances + c2)
    return (luminance * structure).view(len(x), -1).mean(1)


def ssim_of_all(one: Tensor, other: Tensor, constants: tuple[float, float] = SSIM) -> Tensor:
    """(n, m) float32: `ssim` of every image of (n, c, h, w) with every image of (m, c, h, w).

    The covariance in one place of the window is a matrix product for all pairs; all else needs each image by itself.
    What is large is (n, m): callers with very many images ask for a part of them at a time."""
    if one.dim() != 4 or one.shape[1:] != other.shape[1:]:
        raise ArgumentError(f"ssim needs images of one shape, got {tuple(one.shape)} and {tuple(other.shape)}")
    c1, c2 = constants
    root = _window(one).float().sqrt()
    weights, size = torch.outer(root, root) * 2**0.5, len(root)  # 2 x·y is what is needed
    (mean_x, spread_x), (mean_y, spread_y) = _moments(one), _moments(other)
    channels, height, width = mean_x.shape[:-1]
    total = one.new_zeros(len(one), len(other), dtype=torch.float32)
    for place in itertools.product(range(channels), range(height), range(width)):
        channel, top, left = place
        x, y = (
            (images[:, channel, top : top + size, left : left + size].float() * weights).flatten(1)
            for images in (one, other)
        )
        means = torch.outer(2 * mean_x[place], mean_y[place])
        covariances = torch.addmm(means, x, y.T, beta=-1)
        squares = mean_x[place].square()[:, None] + (mean_y[place].square() + c1)
        spreads = spread_x[place][:, None] + (spread_y[place] + c2)
        total.addcdiv_(means.add_(c1).mul_(covariances.add_(c2)), squares.mul_(spreads))
    return total.div_(channels * height * width)


def _moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """(c, h', w', n) float32 each: mean and variance of every image in every place of the window."""
    x = images.double()
    mean = _blurred(x)
    variance = _blurred(x * x) - mean**2
    return mean.movedim(0, -1).float().contiguous(), variance.movedim(0, -1).float().contiguous()


def _blurred(images: Tensor) -> Tensor:
    """(n, c, h', w') means under SSIM's window, in every place where it fits: of one side after the other, the images
    moved and added. Of few images that is faster than a convolution, by far in double precision."""
    window = _window(images).tolist()
    for side in (2, 3):
        places = images.shape[side] - len(window) + 1
        found = images.narrow(side, 0, places) * window[0]
        for shift, weight in enumerate(window[1:], 1):
            found.add_(images.narrow(side, shift, places), alpha=weight)
        images = found
    return images


def _window(images: Tensor) -> Tensor:
    """The weights of SSIM's window along one side: a Gaussian, of the largest odd size where images are smaller."""
    size = min(_WINDOW, *(side - 1 + side % 2 for side in images.shape[2:]))
    place = torch.arange(size, dtype=torch.float64, device=images.device) - size // 2
    return torch.softmax(-place.square() / (2 * _SIGMA**2), 0)


def _flat(x: Tensor) -> Tensor:
    return x.flatten(1).double()
