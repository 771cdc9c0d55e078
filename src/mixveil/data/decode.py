"""Reading the pixels of one image file: 8 bits in any format of Pillow, 16-bit greyscale PNG and TIFF, and DICOM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mixveil.core.errors import UnreadableImageError
from mixveil.data.binary import scaled
from mixveil.data.dicom import dicom_header, dicom_pixels, is_dicom
from mixveil.data.header import Floats, Header, pillow, plain, reading, unit_range

_GREY = {"1", "L", "LA"}
_OCTETS = _GREY | {"P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"}
_DEEP = {"I;16", "I;16L", "I;16B"}
_BITS_PER_SAMPLE, _PHOTOMETRIC = 258, 262  # tags of a TIFF; photometric 0 means that the value 0 is white


def header(path: Path) -> Header:
    """The header of a file, without its pixels."""
    image = pillow()
    with reading(path):
        if is_dicom(path):
            return dicom_header(path)
        with plain(path) as opened, image.open(opened) as file:
            bits = _bits(path, file)
            grey = bits > 8 or file.mode in _GREY
            return Header(file.size, f"{file.format}, {bits}-bit {'greyscale' if grey else 'colour'}", grey)


def own_pixels(path: Path, depth: int | None) -> Tensor:
    """At the file's own size, (1, h, w) for greyscale and (3, h, w) for colour, in [0, 1] by the bits of the file.

    depth: how many bits a pixel has at most, where a file has room for more than 8.
    """
    if depth is not None:
        _decoded(path, depth, None)  # refuses pixels with more bits
    found = _decoded(path, None, None)
    return torch.from_numpy(found) if isinstance(found, np.ndarray) else _octets(found)


def fitted_pixels(path: Path, depth: int | None, shape: tuple[int, int, int]) -> Tensor:
    """The pixels resized to (channels, height, width): colour for three channels, greyscale for one."""
    channels, height, width = shape
    found = _decoded(path, depth, "L" if channels == 1 else "RGB")
    if not isinstance(found, np.ndarray):
        return _octets(found if found.size == (width, height) else found.resize((width, height), _bilinear()))
    if channels == 1 and len(found) == 3:  # colour of 8 bits
        octets = (found * 255).round().astype(np.uint8).transpose(1, 2, 0)
        found = np.asarray(pillow().fromarray(np.ascontiguousarray(octets)).convert("L"), np.float32)[None] / 255
    if found.shape[1:] != (height, width):
        planes = [pillow().fromarray(plane).resize((width, height), _bilinear()) for plane in found]
        found = np.stack([np.asarray(plane) for plane in planes]).clip(0, 1)  # rounding may leave the range
    return torch.from_numpy(found).expand(shape)


def _decoded(path: Path, depth: int | None, mode: str | None) -> Any:
    """A Pillow image of octets, in `mode` or its own of L and RGB; or floats (channels, h, w) where pixels are
    deeper."""
    image = pillow()
    with reading(path):
        if is_dicom(path):
            return dicom_pixels(path, depth)
        with plain(path) as opened, image.open(opened) as file:
            bits = _bits(path, file)
            if bits > 8:
                return _deep(path, file, depth or bits)
            return file.convert(mode or ("L" if file.mode in _GREY else "RGB"))


def _bits(path: Path, file: Any) -> int:
    """The bits of a pixel, as Pillow gives it."""
    if file.mode in _OCTETS:
        return 8
    if file.mode in _DEEP or (file.mode == "I" and file.format == "PNG"):
        return int(_tiff_tag(file, _BITS_PER_SAMPLE, (16,))[0])
    raise UnreadableImageError(
        f"{path}: pixels of the kind {file.mode!r} in {file.format} are not supported: they must have 8 bits, or 16 in "
        f"a greyscale PNG or TIFF"
    )


def _deep(path: Path, file: Any, bits: int) -> Floats:
    values = np.asarray(file).astype(np.int64)
    return unit_range(path, values, bits, zero_is_white=_tiff_tag(file, _PHOTOMETRIC, 1) == 0)[None]


def _tiff_tag(file: Any, tag: int, default: Any) -> Any:
    return file.tag_v2.get(tag, default) if file.format == "TIFF" else default


def _octets(picture: Any) -> Tensor:
    pixels = np.array(picture)
    return scaled(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


def _bilinear() -> Any:
    return pillow().Resampling.BILINEAR
