"""scikit-learn's digits: 1,797 greyscale images of 8×8, in the package itself."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from mixveil.core.errors import MissingDependencyError
from mixveil.data.images import Images, from_tensors


def named_images(_: Path, split: str) -> Images:
    """Pixels 0…16 are scaled to [0, 1]. `train` is the first 1,200 images, `test` the rest."""
    pixels, labels = _all()
    chosen = {"all": slice(None), "train": slice(1200), "test": slice(1200, None)}[split]
    return from_tensors(pixels[chosen].clone(), labels[chosen].clone(), classes=10, name="digits")


@cache
def _all() -> tuple[Tensor, Tensor]:
    """Pixels and labels of all: reading them from scikit-learn's text file takes as long as much that is done with
    them."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingDependencyError("digits comes with scikit-learn: pip install 'mixveil[digits]'") from None
    pixels, labels = load_digits(return_X_y=True)
    return torch.from_numpy(pixels).float().div_(16).view(-1, 1, 8, 8), torch.from_numpy(labels)
