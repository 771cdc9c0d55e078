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


_COLOURS = ("#2f81f7", "#d1242f", "#1a7f37", "#9a6700", "#8250df")


def chart(title: str, lines: Mapping[str, Sequence[tuple[float, float]]], levels: Mapping[str, float]) -> str:
    """Shares against a positive figure on a logarithmic axis, and levels across, as an SVG picture."""
    xs = sorted({x for points in lines.values() for x, _ in points})
    ys = [y for points in lines.values() for _, y in points] + list(levels.values())
    low, high = math.floor(min(ys) * 20) / 20, math.ceil(max(ys) * 20) / 20
    span = math.log(xs[-1] / xs[0]) or 1.0

    def place(x: float, y: float) -> str:
        across = 60 + 300 * math.log(x / xs[0]) / span
        return f"{across:.1f},{250 - 200 * (y - low) / max(high - low, 1e-9):.1f}"

    parts = [f'<text x="60" y="24" font-size="15">{title}</text>']
    parts += [f'<text x="{place(x, low).split(",")[0]}" y="270" text-anchor="middle">{x:g}</text>' for x in xs]
    for y in (low, (low + high) / 2, high):
        height = place(xs[0], y).split(",")[1]
        parts.append(f'<line x1="60" x2="360" y1="{height}" y2="{height}" stroke="#8884"/>')
        parts.append(f'<text x="54" y="{height}" text-anchor="end" dominant-baseline="middle">{y:.0%}</text>')
    drawn = [(name, [place(x, y) for x, y in sorted(points)], "") for name, points in lines.items()]
    drawn += [(name, [place(xs[0], y), place(xs[-1], y)], ' stroke-dasharray="5 4"') for name, y in levels.items()]
    for i, (name, points, dashes) in enumerate(drawn):
        colour = "#6e7781" if dashes else _COLOURS[i % len(_COLOURS)]
        parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        parts.append(f'<text x="376" y="{60 + 20 * i}" fill="{colour}">{"- " if dashes else ""}{name}</text>')
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 560 290" font-family="system-ui" font-size="12">'
        '<rect width="560" height="290" fill="#fff"/>' + "".join(parts) + "</svg>\n"
    )


def _x(share: float, decades: int) -> float:
    return _EDGE + max(0.0, 1 + math.log10(share) / decades) * (_WIDTH - 2 * _EDGE)


def _y(share: float) -> float:
    place = max(0.0, 1 + math.log10(share) / _UP) if share > 0 else 0.0
    return _HEIGHT - _EDGE - place * (_HEIGHT - 2 * _EDGE)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
