"""Pictures for a page that loads nothing: PNG as data, curves as SVG."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Mapping, Sequence

from torch import Tensor

_WIDTH, _HEIGHT, _EDGE = 360, 300, 44
_DECADES = 3


def png(image: Tensor) -> str:
    """(1 or 3, h, w) in [0, 1] as a `data:` address."""
    channels, height, width = image.shape
    octets = image.clamp(0, 1).mul(255).round().byte().permute(1, 2, 0).reshape(height, width * channels)
    lines = b"".join(b"\0" + bytes(line.tolist()) for line in octets)
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines)) + _chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()


def roc_points(curve: Mapping[str, Sequence[float]]) -> str:
    """Points of a polyline of a ROC on logarithmic axes, both from 10⁻³ to 1, in a 360 × 300 picture."""
    points = [(_place(f), _place(t)) for f, t in zip(curve["fpr"], curve["tpr"], strict=True) if f > 0 and t > 0]
    return " ".join(
        f"{_EDGE + x * (_WIDTH - 2 * _EDGE):.1f},{_HEIGHT - _EDGE - y * (_HEIGHT - 2 * _EDGE):.1f}" for x, y in points
    )


def _place(share: float) -> float:
    return max(0.0, 1 + math.log10(share) / _DECADES)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
