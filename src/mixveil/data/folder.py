"""A folder of images, one subfolder a class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mixveil.data.binary import scaled
from mixveil.data.images import Images
from mixveil.errors import DataFormatError, MissingDependencyError, UnreadableImageError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm"}


def folder_images(root: Path, *, name: str | None = None, size: int | None = None) -> Images:
    """root/CLASS/…/image: class names in alphabetical order; see `listed_images` for sizes and colours."""
    classes = tuple(sorted(entry.name for entry in root.iterdir() if entry.is_dir() and entry.name[0] != "."))
    found = [
        (path, label)
        for label, class_name in enumerate(classes)
        for path in sorted((root / class_name).rglob("*"))
        if path.suffix.lower() in SUFFIXES and path.is_file()
    ]
    if not found:
        raise DataFormatError(f"{root}: no images found; it must hold one subfolder a class, with images inside")
    paths, labels = zip(*found, strict=True)
    return listed_images(name or root.name, paths, torch.tensor(labels), classes, size=size)


def listed_images(
    name: str, paths: Sequence[Path], labels: Tensor, classes: tuple[str, ...], *, size: int | None = None
) -> Images:
    """Image files with their labels. All must be of one size, or `size` makes them so (square); they are read as
    colour unless every one of them is greyscale."""
    image = _pillow()
    sizes: Counter[tuple[int, int]] = Counter()
    grey = True
    for path in paths:
        with _opened(image, path) as file:
            sizes[file.size] += 1
            grey = grey and file.mode in ("1", "L", "LA")
    if size is None and len(sizes) > 1:
        common = ", ".join(f"{w}×{h} ({count})" for (w, h), count in sizes.most_common(3))
        raise DataFormatError(f"{name}: images of {len(sizes)} different sizes: {common}, …; give one size (--size)")
    width, height = (size, size) if size else next(iter(sizes))
    mode, channels = ("L", 1) if grey else ("RGB", 3)

    def read(index: Tensor) -> Tensor:
        pixels = np.empty((len(index), height, width, channels), np.uint8)
        for slot, row in enumerate(index.tolist()):
            with _opened(image, paths[row]) as file:
                try:
                    picture = file.convert(mode)
                except (OSError, ValueError, SyntaxError) as error:
                    raise UnreadableImageError(f"{paths[row]}: cannot be decoded: {error}") from None
                if picture.size != (width, height):
                    picture = picture.resize((width, height), image.Resampling.BILINEAR)
                pixels[slot] = np.asarray(picture).reshape(height, width, channels)
        return scaled(pixels.transpose(0, 3, 1, 2))

    return Images(name, read, labels, classes, (channels, height, width))


def _opened(image: Any, path: Path) -> Any:
    try:
        return image.open(path)
    except (OSError, ValueError, SyntaxError) as error:
        raise UnreadableImageError(f"{path}: not a readable image: {error}") from None


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependencyError("reading image files needs Pillow: pip install 'mixveil[images]'") from None
    return Image
