"""Image files in a folder with one subfolder a class, or in a list with labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixveil.core.errors import DataFormatError, PixelError, UnreadableImageError
from mixveil.core.wording.notes import Note, note
from mixveil.data import dicom
from mixveil.data.decode import fitted_pixels, header, own_pixels
from mixveil.data.header import Header, every
from mixveil.data.images import Images

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm"} | dicom.SUFFIXES


def folder_images(
    root: Path,
    *,
    name: str | None = None,
    size: int | None = None,
    grey: bool = False,
    depth: int | None = None,
    faults: list[Note] | None = None,
) -> Images:
    """Images root/CLASS/…/FILE, with class names in alphabetical order. Sizes and colours are those of
    `listed_images`. faults: where it is given, files that cannot be read are left out, and what is wrong with them is
    added to it."""
    classes = tuple(sorted(entry.name for entry in root.iterdir() if entry.is_dir() and entry.name[0] != "."))
    found: list[tuple[Path, int]] = []
    for label, class_name in enumerate(classes):
        files = sorted(path for path in (root / class_name).rglob("*") if path.is_file())
        found += [(path, label) for path in files if _is_image(path)]
    if not found:
        raise DataFormatError(f"{root}: no images found; it must hold one subfolder a class, with images inside")
    skipped = sum(path.is_file() and path.name[0] != "." for path in root.rglob("*")) - len(found)
    if faults is not None:
        details = [file_fault(path, depth) for path, _ in found]
        faults += [note("file-unreadable", detail=detail) for detail in details if detail is not None]
        found = [item for item, detail in zip(found, details, strict=True) if detail is None]
        if not found:
            raise DataFormatError(f"{root}: no image can be read")
    paths, labels = zip(*found, strict=True)
    how: dict[str, Any] = {"size": size, "grey": grey, "depth": depth, "faults": faults}
    images = listed_images(name or root.name, paths, torch.tensor(labels), classes, **how)
    told = [note("files-left-out", files=skipped, folder=str(root))] if skipped else []
    return replace(images, notes=(*images.notes, *told))


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
    faults: list[Note] | None = None,
) -> Images:
    """Image files with their labels.

    Every image is read as colour, or with `grey` as greyscale: a single image must not change the shape of a release.

    labels, units: (n,) class numbers, and the unit of each row. size: of the square to which all images are resized;
    without it all must have one size. depth: how many bits a pixel really has, where files have room for more than 8.
    faults: where it is given, different sizes are added to it, and the most common one is taken.
    """
    headers = read_headers(paths, depth)
    sizes = Counter(item.size for item in headers)
    if size is None and len(sizes) > 1:
        common = ", ".join(f"{w}×{h} ({count})" for (w, h), count in sizes.most_common(3))
        rare = [item.size for item in headers].index(sizes.most_common()[-1][0])
        differ = note("sizes-differ", name=name, sizes=len(sizes), common=common, example=str(paths[rare]))
        if faults is None:
            raise DataFormatError(str(differ))
        faults.append(differ)
    width, height = (size, size) if size else sizes.most_common(1)[0][0]
    shape = (1 if grey else 3, height, width)

    def read(index: Tensor) -> Tensor:
        pixels: list[Tensor] = []
        every(index.tolist(), lambda row: pixels.append(fitted_pixels(paths[row], depth, shape)))
        return torch.stack(pixels) if pixels else torch.empty(0, *shape)

    def full(index: Tensor) -> list[Tensor]:
        pixels: list[Tensor] = []
        every(index.tolist(), lambda row: pixels.append(own_pixels(paths[row], depth)))
        return pixels

    notes: tuple[Note, ...] = ()
    if not grey and all(item.grey for item in headers):
        notes = (note("all-grey"),)
    return Images(name, read, labels, classes, shape, notes=notes, units=units, full=full, files=tuple(paths))


def read_headers(paths: Sequence[Path], depth: int | None = None) -> list[Header]:
    """The headers of all files. One error names all files that cannot be read, also those that are damaged after the
    header."""
    headers: list[Header] = []
    with suppress(UnreadableImageError):
        every(paths, lambda path: headers.append(header(path)))
    if len(headers) < len(paths):
        every(paths, lambda path: (header(path), own_pixels(path, depth)))
    return headers


def file_fault(path: Path, depth: int | None = None) -> str | None:
    """Why an image file cannot be used; None if it can."""
    try:
        header(path)
        own_pixels(path, depth)
    except UnreadableImageError as error:
        return "; ".join(error.files)
    except PixelError as error:
        return str(error)
    return None


def _is_image(path: Path) -> bool:
    """Whether a file is an image, by its suffix. DICOM files often have none, or the end of a number."""
    if path.suffix.lower() in SUFFIXES:
        return True
    with suppress(OSError):
        return path.name[0] != "." and path.name != "DICOMDIR" and dicom.is_dicom(path)
    return False
