"""Image files in a folder with one subfolder a class, or in a list with labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError, DataFormatError, UnreadableImageError
from mixveil.core.wording.notes import Note, note
from mixveil.data import dicom
from mixveil.data.decode import fitted_pixels, header, own_pixels
from mixveil.data.header import Header, every
from mixveil.data.images import Images

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm"} | dicom.SUFFIXES


def folder_images(
    root: Path, *, name: str | None = None, size: int | None = None, grey: bool = False, depth: int | None = None
) -> Images:
    """Images root/CLASS/…/FILE, with class names in alphabetical order. Sizes and colours are those of
    `listed_images`."""
    classes = tuple(sorted(entry.name for entry in root.iterdir() if entry.is_dir() and entry.name[0] != "."))
    found: list[tuple[Path, int]] = []
    for label, class_name in enumerate(classes):
        files = sorted(path for path in (root / class_name).rglob("*") if path.is_file())
        found += [(path, label) for path in files if _is_image(path)]
    if not found:
        raise DataFormatError(f"{root}: no images found; it must hold one subfolder a class, with images inside")
    paths, labels = zip(*found, strict=True)
    images = listed_images(name or root.name, paths, torch.tensor(labels), classes, size=size, grey=grey, depth=depth)
    skipped = sum(path.is_file() and path.name[0] != "." for path in root.rglob("*")) - len(found)
    if not skipped:
        return images
    return replace(images, notes=(*images.notes, note("files-left-out", files=skipped, folder=str(root))))


def loose_files(root: Path) -> list[Path]:
    """The image files directly in a folder."""
    return sorted(path for path in root.iterdir() if path.is_file() and _is_image(path))


def loose_images(root: Path, *, size: int | None = None, grey: bool = False, depth: int | None = None) -> Images:
    """Images without labels: all have the class `?`."""
    paths = loose_files(root)
    if not paths:
        raise DataFormatError(f"{root}: no images found")
    return listed_images(root.name, paths, torch.zeros(len(paths)).long(), ("?",), size=size, grey=grey, depth=depth)


def listed_images(
    name: str,
    paths: Sequence[Path],
    labels: Tensor,
    classes: tuple[str, ...],
    *,
    size: int | None = None,
    grey: bool = False,
    depth: int | None = None,
    units: tuple[str, ...] | None = None,
) -> Images:
    """Image files with their labels.

    Every image is read as colour, or with `grey` as greyscale: a single image must not change the shape of a release.

    Args:
        name: of the data.
        paths: the files.
        labels: (n,) class numbers.
        classes: the names of the classes.
        size: resize all images to this square; without it all must have one size.
        grey: read greyscale.
        depth: how many bits a pixel really has, where files have room for more than 8.
        units: the unit of each row.
    """
    if depth is not None and not 1 <= depth <= 16:
        raise ArgumentError(f"depth must be in 1…16, got {depth}")
    headers = read_headers(paths, depth)
    sizes = Counter(item.size for item in headers)
    if size is None and len(sizes) > 1:
        common = ", ".join(f"{w}×{h} ({count})" for (w, h), count in sizes.most_common(3))
        raise DataFormatError(f"{name}: images of {len(sizes)} different sizes: {common}, …; give one size (--size)")
    width, height = (size, size) if size else next(iter(sizes))
    shape = (1 if grey else 3, height, width)

    def read(index: Tensor) -> Tensor:
        pixels = torch.empty(len(index), *shape)

        def fill(place: int, path: Path) -> None:
            pixels[place] = fitted_pixels(path, depth, shape)

        every([paths[row] for row in index.tolist()], fill)
        return pixels

    def full(index: Tensor) -> list[Tensor]:
        found: list[Tensor] = []
        every([paths[row] for row in index.tolist()], lambda _, path: found.append(own_pixels(path, depth)))
        return found

    notes: tuple[Note, ...] = ()
    if not grey and all(item.grey for item in headers):
        notes = (note("all-grey"),)
    return Images(name, read, labels, classes, shape, notes=notes, units=units, full=full, files=tuple(paths))


def read_headers(paths: Sequence[Path], depth: int | None = None) -> list[Header]:
    """The headers of all files. One error names all files that cannot be read, also those that are damaged after the
    header."""
    headers: list[Header] = []
    with suppress(UnreadableImageError):
        every(paths, lambda _, path: headers.append(header(path)))
    if len(headers) < len(paths):
        every(paths, lambda _, path: (header(path), own_pixels(path, depth)))
    return headers


def _is_image(path: Path) -> bool:
    """Whether a file is an image, by its suffix. DICOM files often have none, or the end of a number."""
    return path.suffix.lower() in SUFFIXES or (path.name[0] != "." and path.name != "DICOMDIR" and _marked(path))


def _marked(path: Path) -> bool:
    try:
        return dicom.is_dicom(path)
    except OSError:
        return False
