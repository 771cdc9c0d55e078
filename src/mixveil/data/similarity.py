"""Measures of how close a reconstruction comes to the truth.

All take (n, …) truth and guess in [0, 1] and give (n,) float64 on the same device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError

_WINDOW, _SIGMA = 11, 1.5
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
    x, y = truth.double(), guess.double().view_as(truth)
    size = min(_WINDOW, *(side - 1 + side % 2 for side in x.shape[2:]))
    place = torch.arange(size, dtype=torch.float64, device=x.device) - size // 2
    window = torch.softmax(-place.square() / (2 * _SIGMA**2), 0)

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


def _flat(x: Tensor) -> Tensor:
    return x.flatten(1).double()
