"""A folder of images, one subfolder a class."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mixveil.data.binary import scaled
from mixveil.data.images import Images
from mixveil.errors import DataFormatError, MissingDependencyError, UnreadableImageError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm"}


_OCTETS = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"}


def folder_images(root: Path, *, name: str | None = None, size: int | None = None, grey: bool = False) -> Images:
    """root/CLASS/…/image: class names in alphabetical order; see `listed_images` for sizes and colours."""
    classes = tuple(sorted(entry.name for entry in root.iterdir() if entry.is_dir() and entry.name[0] != "."))
    found: list[tuple[Path, int]] = []
    for label, class_name in enumerate(classes):
        files = sorted(path for path in (root / class_name).rglob("*") if path.is_file())
        found += [(path, label) for path in files if path.suffix.lower() in SUFFIXES]
    if not found:
        raise DataFormatError(f"{root}: no images found; it must hold one subfolder a class, with images inside")
    paths, labels = zip(*found, strict=True)
    images = listed_images(name or root.name, paths, torch.tensor(labels), classes, size=size, grey=grey)
    skipped = sum(path.is_file() and path.name[0] != "." for path in root.rglob("*")) - len(found)
    if not skipped:
        return images
    note = f"{skipped} files under {root} were left out: not in a class folder, or of no known image suffix"
    return replace(images, notes=(*images.notes, note))


def loose_files(root: Path) -> list[Path]:
    """Images that lie in a folder itself, in no class folder."""
    return sorted(path for path in root.iterdir() if path.is_file() and path.suffix.lower() in SUFFIXES)


def loose_images(root: Path, *, size: int | None = None, grey: bool = False) -> Images:
    """Images without labels: all are of the one class `?`."""
    paths = loose_files(root)
    if not paths:
        raise DataFormatError(f"{root}: no images found")
    return listed_images(root.name, paths, torch.zeros(len(paths)).long(), ("?",), size=size, grey=grey)


def listed_images(
    name: str,
    paths: Sequence[Path],
    labels: Tensor,
    classes: tuple[str, ...],
    *,
    size: int | None = None,
    grey: bool = False,
) -> Images:
    """Image files with their labels. All must be of one size, or `size` makes them so (square). Every image is
    read as colour, or with `grey` as greyscale: what one image is like must not change the shape of a release."""
    image = _pillow()
    sizes, modes = _survey(image, paths)
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

    images = Images(name, read, labels, classes, (channels, height, width))
    if grey or set(modes) - {"1", "L", "LA"}:
        return images
    return replace(images, notes=("all images are greyscale: with --grey a release would be a third as large",))


def _survey(image: Any, paths: Sequence[Path]) -> tuple[Counter[tuple[int, int]], Counter[str]]:
    """The sizes and pixel kinds of all files, from their headers."""
    sizes: Counter[tuple[int, int]] = Counter()
    modes: Counter[str] = Counter()
    for path in paths:
        with _opened(image, path) as file:
            sizes[file.size] += 1
            modes[file.mode] += 1
            if file.mode not in _OCTETS:
                raise UnreadableImageError(f"{path}: pixels of the kind {file.mode!r} have more than 8 bits: not read")
    return sizes, modes


def _opened(image: Any, path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", image.DecompressionBombWarning)
            return image.open(path)
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError, image.DecompressionBombWarning) as error:
        raise UnreadableImageError(f"{path}: not a readable image: {error}") from None


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependencyError("reading image files needs Pillow: pip install 'mixveil[images]'") from None
    return Image
