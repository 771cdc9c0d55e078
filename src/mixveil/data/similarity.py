"""Measures of how close a reconstruction comes to the truth.

All take (n, …) truth and guess in [0, 1] and give (n,) float64 on the same device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError
from mixveil.core.types import Progress

_WINDOW, _SIGMA = 11, 1.5
SSIM = (0.01**2, 0.03**2)  # C₁ and C₂, for values in [0, 1]
_PAIRS = 1 << 16  # pairs of windows that are compared together: more do not stay in the cache
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
    x, y = truth.double(), guess.double().view_as(truth)
    window = _window(x)

    def blur(image: Tensor) -> Tensor:
        planes = image.reshape(-1, 1, *image.shape[2:])
        rows = torch.nn.functional.conv2d(planes, window.view(1, 1, -1, 1))
        return torch.nn.functional.conv2d(rows, window.view(1, 1, 1, -1))

    c1, c2 = constants
    mean_x, mean_y = blur(x), blur(y)
    variance_x, variance_y = blur(x * x) - mean_x**2, blur(y * y) - mean_y**2
    covariance = blur(x * y) - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
    structure = (2 * covariance + c2) / (variance_x + variance_y + c2)
    return (luminance * structure).view(len(x), -1).mean(1)


def ssim_matrix(truth: Tensor, guess: Tensor, progress: Progress = lambda _: None) -> Tensor:
    """(n, m) the `ssim` of every image of (n, c, h, w) with every one of (m, c, h, w). progress: is told of rows of
    windows, `ssim_matrix_steps` in all."""
    if truth.dim() != 4 or truth.shape[1:] != guess.shape[1:]:
        raise ArgumentError(f"ssim needs images (n, c, h, w), got {tuple(truth.shape)} and {tuple(guess.shape)}")
    x, y = truth.double(), guess.double()
    window = _window(x)
    size, weight = len(window), torch.outer(window, window).flatten()
    places = (x.shape[2] - size + 1) * (x.shape[3] - size + 1)
    at_once = max(1, _PAIRS // (len(x) * len(y)))
    total = torch.zeros(len(x), len(y), dtype=torch.float64)
    for channel in range(x.shape[1]):
        for top in range(x.shape[2] - size + 1):
            strips = (image[:, channel, top : top + size].unfold(2, size, 1) for image in (x, y))
            a, b = (strip.permute(2, 0, 1, 3).flatten(2) for strip in strips)  # (places, images, values of a window)
            for here, other in zip(torch.split(a, at_once), torch.split(b, at_once), strict=True):
                total += _similar(here, other, weight)
            progress(1)
    return total / (x.shape[1] * places)


def ssim_matrix_steps(shape: tuple[int, ...]) -> int:
    """How many steps `ssim_matrix` takes for images of this shape (c, h, w)."""
    return shape[0] * (shape[1] - _window_size(shape[1:]) + 1)


def _similar(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """(n, m) the sum over places of how similar the windows (places, n, v) and (places, m, v) are."""
    (mean_x, variance_x), (mean_y, variance_y) = (_moments(part, weight) for part in (x, y))
    across, down = mean_x[:, :, None], mean_y[:, None, :]
    product = across * down
    covariance = (x * weight) @ y.transpose(1, 2) - product
    luminance = (2 * product + SSIM[0]) / (across**2 + down**2 + SSIM[0])
    structure = (2 * covariance + SSIM[1]) / (variance_x[:, :, None] + variance_y[:, None, :] + SSIM[1])
    return (luminance * structure).sum(0)


def _moments(windows: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    mean = windows @ weight
    return mean, windows.square() @ weight - mean**2


def _window(images: Tensor) -> Tensor:
    """SSIM's Gaussian window for images (n, c, h, w), along one side."""
    size = _window_size(images.shape[2:])
    place = torch.arange(size, dtype=torch.float64, device=images.device) - size // 2
    return torch.softmax(-place.square() / (2 * _SIGMA**2), 0)


def _window_size(sides: Sequence[int]) -> int:
    return min(_WINDOW, *(side - 1 + side % 2 for side in sides))


def _flat(x: Tensor) -> Tensor:
    return x.flatten(1).double()
