from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from mixveil.core import errors
from mixveil.data.decode import fitted_pixels, header, own_pixels
from mixveil.data.folder import listed_images
from mixveil.data.images import Images
from mixveil.data.opening import open_data
from tests.data.made_dicom import write_dicom

DEEP = np.array([[0, 1, 4095], [3000, 40_000, 65_535]], np.uint16)
TWELVE = np.array([[0, 1, 4095], [3000, 2000, 7]], np.uint16)
BOTH = torch.tensor([0, 1])


def share(values: npt.NDArray[Any], top: int) -> list[Any]:
    return [(values.astype(np.float32) / np.float32(top)).tolist()]


def listed(*paths: Path, **options: Any) -> Images:
    return listed_images("t", paths, torch.zeros(len(paths)).long(), ("a",), **options)


def tiff(
    path: Path, values: npt.NDArray[Any], *, photometric: int = 1, order: str = "<", packed: bytes | None = None
) -> Path:
    """A greyscale TIFF of 16 bits, or of 12 that are packed already, written out by hand."""
    height, width = values.shape
    data = values.astype(f"{order}u2").tobytes() if packed is None else packed
    shorts = {256: width, 257: height, 258: 16 if packed is None else 12, 259: 1, 262: photometric, 277: 1, 278: height}
    entries = [(tag, struct.pack(f"{order}HHIHH", tag, 3, 1, value, 0)) for tag, value in shorts.items()]
    entries += [(tag, struct.pack(f"{order}HHII", tag, 4, 1, value)) for tag, value in ((273, 8), (279, len(data)))]
    start = struct.pack(f"{order}2sHI", b"II" if order == "<" else b"MM", 42, 8 + len(data))
    directory = struct.pack(f"{order}H", len(entries)) + b"".join(entry for _, entry in sorted(entries)) + bytes(4)
    path.write_bytes(start + data + directory)
    return path


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_16_bits_are_kept(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"deep.{suffix}"
    Image.fromarray(DEEP).save(path)
    assert own_pixels(path, None).tolist() == share(DEEP, 65_535)
    assert fitted_pixels(path, None, (3, 2, 3)).tolist() == share(DEEP, 65_535) * 3
    assert header(path).kind.endswith("16-bit greyscale") and header(path).size == (3, 2) and header(path).grey


@pytest.mark.parametrize("order", ["<", ">"])
def test_tiff_of_either_byte_order(tmp_path: Path, order: str) -> None:
    path = tiff(tmp_path / "a.tif", DEEP, photometric=1, order=order)
    assert own_pixels(path, None).tolist() == share(DEEP, 65_535)


def test_a_tiff_whose_zero_is_white(tmp_path: Path) -> None:
    path = tiff(tmp_path / "a.tif", DEEP, photometric=0)
    assert own_pixels(path, None).tolist() == share(65_535 - DEEP, 65_535)


def test_a_tiff_of_12_bits(tmp_path: Path) -> None:
    values = np.array([[0xABC, 0x123], [0xFFF, 0x000]])
    path = tiff(tmp_path / "a.tif", values, packed=bytes.fromhex("abc123fff000"))
    assert own_pixels(path, None).tolist() == share(values, 4095)
    assert header(path).kind == "TIFF, 12-bit greyscale"


def test_the_bits_that_a_pixel_really_has(tmp_path: Path) -> None:
    Image.fromarray(TWELVE).save(tmp_path / "twelve.png")
    Image.fromarray(DEEP).save(tmp_path / "deep.png")
    Image.fromarray(np.full((2, 3), 51, np.uint8)).save(tmp_path / "eight.png")
    assert fitted_pixels(tmp_path / "twelve.png", 12, (1, 2, 3)).tolist() == share(TWELVE, 4095)
    assert fitted_pixels(tmp_path / "eight.png", 12, (1, 2, 3)).tolist() == share(np.full((2, 3), 51), 255)
    own = own_pixels(tmp_path / "twelve.png", 12)  # by which an image is known: no option changes it
    assert own.tolist() == own_pixels(tmp_path / "twelve.png", None).tolist() == share(TWELVE, 65_535)
    with pytest.raises(errors.PixelError, match=r"deep\.png: the pixel 65535 is outside 0…4095"):
        own_pixels(tmp_path / "deep.png", 12)
    with pytest.raises(errors.PixelError, match=r"deep\.png: the pixel 65535 is outside 0…4095"):
        listed(tmp_path / "twelve.png", tmp_path / "deep.png", depth=12).take(BOTH)
    for depth in (0, 17):
        with pytest.raises(errors.ArgumentError, match=rf"depth must be in 1…16, got {depth}"):
            open_data(tmp_path, depth=depth)


def test_deep_pictures_are_resized_in_floats(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 1], [0, 1]], np.uint16)).save(tmp_path / "a.png")
    small = fitted_pixels(tmp_path / "a.png", None, (1, 1, 1))
    assert float(small) == pytest.approx(0.5 / 65_535, rel=1e-5)  # in octets it would be 0


def test_8_bit_pictures_at_their_own_size_and_fitted(tmp_path: Path) -> None:
    colour = np.array([[[200, 100, 50], [0, 0, 0]]], np.uint8)
    Image.fromarray(colour).save(tmp_path / "colour.png")
    Image.fromarray(colour[..., 0]).save(tmp_path / "grey.png")
    data = listed(tmp_path / "colour.png", tmp_path / "grey.png", size=1, grey=True)
    full = data.originals(BOTH)
    assert full[0].tolist() == (torch.from_numpy(colour.transpose(2, 0, 1)).float() / 255).tolist()
    assert full[1].tolist() == (torch.from_numpy(colour[None, ..., 0]).float() / 255).tolist()
    luma = np.asarray(Image.fromarray(colour).convert("L").resize((1, 1), Image.Resampling.BILINEAR))
    assert float(data.take(BOTH).x[0]) == float(np.float32(luma[0, 0]) / np.float32(255))
    assert data.part(torch.tensor([1])).files == (tmp_path / "grey.png",)


def test_more_bits_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((2, 2), np.int32)).save(tmp_path / "i.tif")
    Image.fromarray(np.zeros((2, 2), np.float32)).save(tmp_path / "f.tif")
    with pytest.raises(errors.UnreadableImageError) as told:
        listed(tmp_path / "i.tif", tmp_path / "f.tif")
    assert len(told.value.files) == 2
    assert "i.tif: pixels of the kind 'I' in TIFF" in str(told.value) and "'F'" in str(told.value)


def test_all_unreadable_files_are_named_at_once(tmp_path: Path) -> None:
    Image.new("L", (2, 2)).save(tmp_path / "good.png")
    missing = [tmp_path / f"{i}.png" for i in range(60)]
    (tmp_path / "bad.png").write_bytes(b"not a picture")
    with pytest.raises(errors.UnreadableImageError) as told:
        listed(*missing, tmp_path / "good.png", tmp_path / "bad.png", tmp_path)
    assert len(told.value.files) == 62
    lines = str(told.value).splitlines()
    assert lines[0] == "62 image files cannot be read:" and len(lines) == 52 and lines[-1] == "… and 12 more"
    assert lines[1] == f"{tmp_path / '0.png'}: does not exist"
    assert told.value.files[60] == f"{tmp_path / 'bad.png'}: not an image of a known kind"


def test_files_that_break_below_their_headers_are_named_at_once(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for path in paths:
        Image.effect_noise((64, 64), 50).save(path)
    for path in paths[1:]:
        path.write_bytes(path.read_bytes()[:200])
    data = listed(*paths)
    for ask in (data.take, data.originals):
        with pytest.raises(errors.UnreadableImageError) as told:
            ask(torch.tensor([2, 0, 1, 1]))
        assert [line.partition(":")[0] for line in told.value.files] == [str(paths[2]), str(paths[1])]


def test_dicom_by_the_bits_that_are_stored(tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", TWELVE, BitsStored=12)
    assert header(path).kind == "DICOM, 12-bit greyscale" and header(path).size == (3, 2)
    assert own_pixels(path, None).tolist() == share(TWELVE, 4095)
    assert fitted_pixels(path, None, (3, 2, 3)).tolist() == share(TWELVE, 4095) * 3
    sixteen = write_dicom(tmp_path / "b.dcm", TWELVE)
    assert own_pixels(sixteen, None).tolist() == share(TWELVE, 65_535)
    assert own_pixels(sixteen, 12).tolist() == share(TWELVE, 65_535)
    assert fitted_pixels(sixteen, 12, (1, 2, 3)).tolist() == share(TWELVE, 4095)
    with pytest.raises(errors.PixelError, match=r"b\.dcm: the pixel 4095 is outside 0…2047"):
        own_pixels(sixteen, 11)


@pytest.mark.parametrize("padding", [6, 8])  # 8: as long as the picture itself
def test_what_follows_the_pixels_is_padding(tmp_path: Path, padding: int) -> None:
    path = write_dicom(tmp_path / "a.dcm", TWELVE[:, :2], BitsStored=12, padding=padding)
    assert own_pixels(path, None).tolist() == share(TWELVE[:, :2], 4095)


def test_what_a_decoder_would_warn_of_is_not_said(tmp_path: Path) -> None:
    """Tests turn warnings into errors: Pillow has something to say of this palette."""
    picture = Image.new("P", (2, 1), 1)
    picture.putpalette([0, 0, 0, 51, 102, 153])
    picture.save(tmp_path / "a.png", transparency=bytes([0, 128]))
    assert own_pixels(tmp_path / "a.png", None)[:, 0, 0].tolist() == pytest.approx([0.2, 0.4, 0.6])


def test_dicom_whose_zero_is_white(tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", TWELVE, BitsStored=12, PhotometricInterpretation="MONOCHROME1")
    assert own_pixels(path, None).tolist() == share(4095 - TWELVE, 4095)


def test_dicom_of_signed_values(tmp_path: Path) -> None:
    values = np.array([[-2048, -1, 0], [1, 1000, 2047]], np.int16)
    stored = write_dicom(tmp_path / "a.dcm", values, BitsStored=12)
    assert own_pixels(stored, None).tolist() == share(values + 2048, 4095)
    roomy = write_dicom(tmp_path / "b.dcm", values)
    assert own_pixels(roomy, None).tolist() == share(values.astype(int) + 32_768, 65_535)
    assert fitted_pixels(roomy, 12, (1, 2, 3)).tolist() == share(values + 2048, 4095)


def test_dicom_in_colour_and_of_8_bits(tmp_path: Path) -> None:
    colour = np.array([[[200, 100, 50], [0, 255, 3]]], np.uint8)
    path = write_dicom(tmp_path / "a.dcm", colour)
    assert own_pixels(path, 12).tolist() == (torch.from_numpy(colour.transpose(2, 0, 1)).float() / 255).tolist()
    luma = np.asarray(Image.fromarray(colour).convert("L"))
    assert fitted_pixels(path, None, (1, 1, 2)).tolist() == share(luma, 255)
    grey = write_dicom(tmp_path / "b.dcm", colour[..., 0])
    assert own_pixels(grey, 12).tolist() == share(colour[..., 0], 255)


def test_dicom_without_a_suffix_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "f" / "ct").mkdir(parents=True)
    write_dicom(tmp_path / "f" / "ct" / "1.2.840.7", TWELVE)
    write_dicom(tmp_path / "f" / "ct" / "DICOMDIR", TWELVE)
    (tmp_path / "f" / "ct" / "notes.txt").write_text("x" * 200)
    data = open_data(str(tmp_path / "f"), grey=True, depth=12)
    assert len(data) == 1 and data.take(torch.tensor([0])).x[0].tolist() == share(TWELVE, 4095)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a syntax nobody knows": ({"syntax": "1.2.999.1"}, "transfer syntax 1.2.999.1"),
    "a syntax without a decoder": ({"syntax": "1.2.840.10008.1.2.4.80"}, "1.2.840.10008.1.2.4.80 (JPEG-LS Lossless"),
    "deflated": (
        {"syntax": "1.2.840.10008.1.2.1.99"},
        "no installed decoder reads its transfer syntax 1.2.840.10008.1.2.1.99 (Deflated",
    ),
    "pixels that are not what the syntax says": (
        {"syntax": "1.2.840.10008.1.2.4.50"},
        "cannot be decoded (RuntimeError), transfer syntax 1.2.840.10008.1.2.4.50 (JPEG Baseline",
    ),
    "several frames": ({"NumberOfFrames": 2}, "several frames"),
    "a palette": ({"PhotometricInterpretation": "PALETTE COLOR"}, "these are neither"),
    "a name where the kind should be": ({"PhotometricInterpretation": "MUSTERFRAU"}, "these are neither"),
    "shifted bits": ({"BitsStored": 12, "HighBit": 15}, "these are neither"),
    "more rows than pixels": ({"Rows": 40}, "cannot be decoded"),
    "no rows": ({"Rows": 0}, "without a picture"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_dicom_that_is_refused(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    options, words = REFUSED[name]
    path = write_dicom(tmp_path / "a.dcm", TWELVE, **options)
    with caplog.at_level(logging.DEBUG), pytest.raises(errors.UnreadableImageError) as told:
        listed(path).take(torch.tensor([0]))
    assert len(told.value.files) == 1 and str(path) in str(told.value) and words in str(told.value)
    captured = capsys.readouterr()
    for text in (str(told.value), caplog.text, captured.out, captured.err):
        assert "musterfrau" not in text.lower() and "1964" not in text


@pytest.mark.parametrize(
    "damage",
    ["empty", "no DICOM", "cut in the header", "cut in the pixels", "a name as a number", "a name as a syntax"],
)
def test_damaged_dicom(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    path = write_dicom(tmp_path / "a.dcm", TWELVE, NumberOfFrames=1)
    data = path.read_bytes()
    assert b"1.2.840.10008.1.2.1\0" in data
    frames = data.index(b"IS", data.index(b"\x28\x00\x08\x00"))
    path.write_bytes(
        {
            "empty": b"",
            "no DICOM": b"x" * 300,
            "cut in the header": data[:200],
            "cut in the pixels": data[:-4],
            "a name as a number": data[: frames + 4] + b"Mu" + data[frames + 6 :],
            "a name as a syntax": data.replace(b"1.2.840.10008.1.2.1\0", b"Musterfrau".ljust(20, b"\0")),
        }[damage]
    )
    with caplog.at_level(logging.DEBUG), pytest.raises(errors.UnreadableImageError, match=r"a\.dcm") as told:
        listed(path).take(torch.tensor([0]))
    assert "Mu" not in str(told.value) and "Mu" not in caplog.text
    assert told.value.__context__ is None  # no traceback quotes what a decoder said


def test_dicom_that_claims_to_be_huge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5)
    with pytest.raises(errors.UnreadableImageError, match="more than 5 pixels"):
        listed(write_dicom(tmp_path / "a.dcm", TWELVE))


def test_a_reader_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_dicom(tmp_path / "a.dcm", TWELVE)
    monkeypatch.setitem(__import__("sys").modules, "pydicom", None)
    with pytest.raises(errors.MissingDependencyError, match=r"mixveil\[dicom\]"):
        listed(path)
