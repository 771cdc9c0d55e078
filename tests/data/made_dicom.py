"""DICOM files for tests, with a patient's name in the header that nothing may show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

PATIENT = "Musterfrau^Erika"


def write_dicom(
    path: Path, pixels: npt.NDArray[Any], *, syntax: str = "1.2.840.10008.1.2.1", padding: int = 0, **elements: Any
) -> Path:
    """Uncompressed pixels of 8 or 16 bits, greyscale or colour by their shape; elements: what to set otherwise."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.encaps import encapsulate
    from pydicom.uid import UID

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = UID("1.2.840.10008.5.1.4.1.1.2")
    meta.MediaStorageSOPInstanceUID = UID("1.2.3")
    meta.TransferSyntaxUID = UID(syntax)
    made = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    made.PatientName, made.PatientID, made.PatientBirthDate = PATIENT, "Musterfrau-4711", "19640812"
    colour = pixels.ndim == 3 and pixels.shape[-1] == 3
    made.Rows, made.Columns = pixels.shape[:2]
    made.SamplesPerPixel = 3 if colour else 1
    made.PhotometricInterpretation = "RGB" if colour else "MONOCHROME2"
    if colour:
        made.PlanarConfiguration = 0
    made.BitsAllocated = made.BitsStored = 8 * pixels.dtype.itemsize
    made.PixelRepresentation = int(pixels.dtype.kind == "i")
    for name, value in elements.items():
        setattr(made, name, value)
    made.HighBit = elements.get("HighBit", made.BitsStored - 1)
    data = np.ascontiguousarray(pixels).tobytes() + bytes(padding)
    packed = syntax.startswith("1.2.840.10008.1.2.4.")
    made.add_new(0x7FE00010, "OW", encapsulate([data]) if packed else data)
    made["PixelData"].is_undefined_length = packed
    made.save_as(path, implicit_vr=False, little_endian=True, enforce_file_format=True)
    return path
