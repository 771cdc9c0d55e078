"""Reading the pixels of DICOM files, and nothing else. No value of a header appears in an error or a message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mixveil.core.errors import MissingDependencyError, MixveilError, UnreadableImageError
from mixveil.data.header import Floats, Header, pillow, plain, unit_range

SUFFIXES = {".dcm", ".dicom"}

_COLOUR = {"RGB", "YBR_FULL", "YBR_FULL_422"}  # pydicom turns the latter two into the first
_GREY = {"MONOCHROME1", "MONOCHROME2"}
_DEFLATED = "1.2.840.10008.1.2.1.99"  # its decompression has no limit
_ASKED = [
    "Rows",
    "Columns",
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
    "NumberOfFrames",
]


def is_dicom(path: Path) -> bool:
    """Whether a file is DICOM, by its suffix or by the letters DICM at byte 128."""
    if path.suffix.lower() in SUFFIXES:
        return True
    with plain(path) as file:
        return file.read(132)[128:] == b"DICM"


def dicom_header(path: Path) -> Header:
    """Size and kind, from the elements that describe the pixels."""
    found = _described(path)
    colour = found.PhotometricInterpretation in _COLOUR
    kind = f"DICOM, {found.BitsStored}-bit {'colour' if colour else 'greyscale'}"
    return Header((found.Columns, found.Rows), kind, not colour)


def dicom_pixels(path: Path, depth: int | None) -> Floats:
    """Pixels (channels, height, width) in [0, 1]: stored values over the range of the stored bits, or of `depth` bits
    where more than 8 are stored. Signed values are shifted to start at 0; MONOCHROME1, where 0 is white, is
    inverted."""
    found = _described(path)
    try:
        with plain(path) as file:
            values = np.asarray(_pydicom().pixels.pixel_array(file)).astype(np.int64)
    except Exception as error:
        syntax = _named(found.file_meta.TransferSyntaxUID)
        raise UnreadableImageError(
            f"{path}: its pixels cannot be decoded ({type(error).__name__}), transfer syntax {syntax}"
        ) from None
    if values.shape != (found.Rows, found.Columns, 3)[: 3 if found.SamplesPerPixel == 3 else 2]:
        raise UnreadableImageError(f"{path}: its pixels are not of the size that its header says")
    bits = int(found.BitsStored)
    if depth is not None and bits > 8:
        bits = depth
    if found.PixelRepresentation:
        values += 2 ** (bits - 1)
    pixels = unit_range(path, values, bits, zero_is_white=found.PhotometricInterpretation == "MONOCHROME1")
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _described(path: Path) -> Any:
    """The elements that describe the pixels; a file whose pixels cannot be read is refused."""
    pydicom = _pydicom()
    try:
        with plain(path) as file:
            syntax = pydicom.filereader.read_file_meta_info(path).TransferSyntaxUID
            _readable_syntax(pydicom, path, pydicom.uid.UID(syntax))
            found = pydicom.dcmread(file, stop_before_pixels=True, specific_tags=_ASKED)
        why = _refused(found)
    except (MixveilError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:
        raise UnreadableImageError(f"{path}: not a readable DICOM file ({type(error).__name__})") from None
    if why:
        raise UnreadableImageError(f"{path}: {why}")
    return found


def _readable_syntax(pydicom: Any, path: Path, uid: Any) -> None:
    try:
        readable = pydicom.pixels.get_decoder(uid).is_available and uid != _DEFLATED
    except NotImplementedError:
        readable = False
    if not readable:
        raise UnreadableImageError(f"{path}: no installed decoder reads its transfer syntax {_named(uid)}")


def _named(uid: Any) -> str:
    """A transfer syntax by its number and name. Any other text in its place is not shown."""
    if set(uid) - set("0123456789."):
        return "that is no UID"
    return f"{uid} ({uid.name})" if uid.name != uid else str(uid)


def _refused(found: Any) -> str | None:
    """Why these pixels are not read; None if they are."""
    if not all(name in found for name in _ASKED[:5]) or 0 in (found.Rows, found.Columns):
        return "a DICOM file without a picture"
    if int(found.get("NumberOfFrames") or 1) != 1:
        return "a DICOM file of several frames: give one file a picture"
    photometric, samples, bits = found.PhotometricInterpretation, found.SamplesPerPixel, found.BitsStored
    signed = found.get("PixelRepresentation")
    grey = photometric in _GREY and samples == 1 and 1 <= bits <= 16
    colour = photometric in _COLOUR and samples == 3 and bits == 8 and not signed
    if not (grey or colour) or signed not in (0, 1) or found.get("HighBit") != bits - 1:
        return "DICOM pixels are read as greyscale of at most 16 bits or colour of 8, and these are neither"
    most = pillow().MAX_IMAGE_PIXELS
    if most is not None and found.Rows * found.Columns > most:
        return f"not a readable image: more than {most} pixels"
    return None


def _pydicom() -> Any:
    try:
        import pydicom
        import pydicom.pixels
    except ImportError:
        raise MissingDependencyError("reading DICOM files needs pydicom: pip install 'mixveil[dicom]'") from None
    return pydicom
