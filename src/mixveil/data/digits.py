"""scikit-learn's digits: 1,797 greyscale images of 8×8, in the package itself."""

from __future__ import annotations

from pathlib import Path

import torch

from mixveil.core.errors import MissingDependencyError
from mixveil.data.images import Images, from_tensors


def named_images(_: Path, split: str) -> Images:
    """Pixels 0…16 are scaled to [0, 1]. `train` is the first 1,200 images, `test` the rest."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingDependencyError("digits comes with scikit-learn: pip install 'mixveil[digits]'") from None
    pixels, labels = load_digits(return_X_y=True)
    chosen = {"all": slice(None), "train": slice(1200), "test": slice(1200, None)}[split]
    x = torch.from_numpy(pixels[chosen]).float().div_(16).view(-1, 1, 8, 8)
    return from_tensors(x, torch.from_numpy(labels[chosen]), classes=10, name="digits")
