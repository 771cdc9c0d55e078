"""Pictures for a page that loads nothing: PNG as data, curves as SVG."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

_WIDTH, _HEIGHT, _EDGE = 360, 300, 44
_UP = 3  # decades of members found


def png(image: Tensor) -> str:
    """(1 or 3, h, w) in [0, 1] as a `data:` address."""
    channels, height, width = image.shape
    octets = image.clamp(0, 1).mul(255).round().byte().permute(1, 2, 0).reshape(height, width * channels)
    lines = b"".join(b"\0" + bytes(line.tolist()) for line in octets)
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines)) + _chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()


class Axes(NamedTuple):
    """A ROC on logarithmic axes as polylines of a 360 × 300 picture, and where the axes' labels go."""

    found: str
    bound: str
    guess: str
    across: list[tuple[float, str]]
    up: list[tuple[float, str]]


def roc(curve: Mapping[str, Sequence[Sequence[float]]]) -> Axes:
    """False alarms from the smallest that the curve has, members found from a thousandth."""
    seen = [fpr for fpr, _ in curve["points"] if fpr > 0]
    decades = max(2, min(5, math.ceil(-math.log10(min(seen)) - 1e-9))) if seen else 2
    ends = [(10.0**-place, 10.0**-place) for place in range(decades + 1)]

    def line(points: Iterable[Sequence[float]]) -> str:
        return " ".join(f"{_x(fpr, decades):.1f},{_y(tpr):.1f}" for fpr, tpr in points if fpr > 0)

    return Axes(
        found=line(curve["points"]),
        bound=line(curve.get("bound", [])),
        guess=line(ends),
        across=[(round(_x(10.0**-p, decades), 1), f"{10.0**-p:g}") for p in range(decades + 1)],
        up=[(round(_y(10.0**-p), 1), f"{10.0**-p:g}") for p in range(_UP + 1)],
    )


def _x(share: float, decades: int) -> float:
    return _EDGE + max(0.0, 1 + math.log10(share) / decades) * (_WIDTH - 2 * _EDGE)


def _y(share: float) -> float:
    place = max(0.0, 1 + math.log10(share) / _UP) if share > 0 else 0.0
    return _HEIGHT - _EDGE - place * (_HEIGHT - 2 * _EDGE)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
