"""Curves as SVG, for a page that loads nothing: told apart by marker and dashes as well as by colour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 400, 40, 246
_LEGEND = 424
_NARROW, _COLUMNS = 440, (20, 232)  # the width of a plot with its legend below, and where the legend's columns begin
_APART = 40  # of two labels below the axis

# Each is legible on white and on the dark page.
_COLOURS = ("#2f81f7", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#bf3989", "#0e7c86", "#bc4c00")
_MARKERS = ("circle", "square", "triangle", "diamond", "cross", "plus", "down", "bar")
_DASHES = ("", "9 3", "2 3", "9 3 2 3")
LEVEL = "#7a8490"

Marks = Sequence[tuple[float, str]]


class Curve(NamedTuple):
    """points: (x, y). style: which colour, marker and dashes; None for a level that no attack reached by itself.
    dashes: of a level, or in place of the style's; mark: which marker, in place of the style's."""

    name: str
    points: Sequence[tuple[float, float]]
    style: int | None = None
    dashes: str = ""
    mark: int | None = None


def styles(names: Sequence[str]) -> Mapping[str, int]:
    """A style for each name, the same in all pictures of a page."""
    return {name: number for number, name in enumerate(names)}


def marks(styles_: Sequence[int]) -> list[int]:
    """A marker for each curve: up to eight curves of one colour have different ones.

    >>> marks([0, 0, 1, 8])
    [0, 3, 1, 6]
    """
    found, seen = [], [0] * len(_COLOURS)
    for colour in (style % len(_COLOURS) for style in styles_):
        found.append((colour + 3 * seen[colour]) % len(_MARKERS))
        seen[colour] += 1
    return found


def dashes_of(number: int) -> str:
    """Dashes to tell curves of one colour apart."""
    return _DASHES[number % len(_DASHES)]


def plot(
    title: str, across: str, values: Sequence[float], curves: Sequence[Curve], *, shares: bool, below: bool = False
) -> str:
    """Curves over positive values on a logarithmic axis. shares: the other axis is in per cent. below: the legend is
    below the plot, which is then legible on a narrow screen, and not to its right."""
    xs = sorted(values)
    heights = ticks([y for curve in curves for _, y in curve.points])
    low, high = heights[0], heights[-1]
    span = math.log(xs[-1] / xs[0]) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        right = _LEFT + 14 + (_RIGHT - _LEFT - 28) * math.log(x / xs[0]) / span
        return round(right, 1), round(_BOTTOM - (_BOTTOM - _TOP) * (y - low) / (high - low), 1)

    parts = [f'<text x="{_LEFT}" y="22" style="font-weight:600">{escape(title)}</text>']
    for y in heights:
        level = place(xs[0], y)[1]
        parts.append(f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{level}" y2="{level}" stroke="#8886" stroke-width=".7"/>')
        parts.append(f'<text x="{_LEFT - 7}" y="{level + 4}" text-anchor="end">{shown(y, shares)}</text>')
    parts += _axis([(place(x, low)[0], f"{x:g}") for x in xs], across)
    for number, curve in enumerate(curves):
        parts.append(_drawn(curve, [place(x, y) for x, y in curve.points]))
        line, column = divmod(number, 2) if below else (number, 0)
        place_of = (_COLUMNS[column], _HEIGHT + 12) if below else (_LEGEND, _TOP + 8)
        parts.append(_legend(curve, place_of[0], place_of[1] + 20 * line))
    lines = (len(curves) + 1) // 2 if below else len(curves)
    width, height = (_NARROW, _HEIGHT + 20 * lines + 12) if below else (_WIDTH, max(_HEIGHT, _TOP + 28 + 20 * lines))
    said = escape(_in_words(title, across, curves, shares), quote=True)
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{said}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def chart(title: str, lines: Mapping[str, Sequence[tuple[float, float]]], levels: Mapping[str, float]) -> str:
    """Shares against μ, and levels across, as a file of its own."""
    values = sorted({x for points in lines.values() for x, _ in points})
    curves = [Curve(name, sorted(points), style) for style, (name, points) in enumerate(lines.items())]
    curves += [Curve(name, [(values[0], y), (values[-1], y)], None, "5 4") for name, y in levels.items()]
    namespace = '<svg xmlns="http://www.w3.org/2000/svg" font-family="system-ui" font-size="12"'
    drawn = plot(title, "μ", values, curves, shares=True).replace("<svg", namespace, 1)
    return drawn.replace("</title>", '</title><rect width="100%" height="100%" fill="#fff"/>', 1) + "\n"


def ticks(values: Sequence[float]) -> list[float]:
    """Four to eight round figures, evenly spaced, that hold all values between them.

    >>> ticks([-0.3, 7.2])
    [-2.0, 0.0, 2.0, 4.0, 6.0, 8.0]
    """
    low, high = min(values), max(values)
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-9):
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
    rough = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{number * step:.10g}") for number in range(first, last + 1)]


def _axis(places: Sequence[tuple[float, str]], across: str) -> list[str]:
    """A mark at every value, and its label where that does not run into the last one."""
    parts, last = [], -math.inf
    for right, label in places:
        parts.append(f'<line x1="{right}" x2="{right}" y1="{_BOTTOM}" y2="{_BOTTOM + 4}" stroke="{LEVEL}"/>')
        if right - last >= _APART:
            parts.append(f'<text x="{right}" y="{_BOTTOM + 19}" text-anchor="middle">{label}</text>')
            last = right
    middle = (_LEFT + _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_BOTTOM + 40}" text-anchor="middle">{escape(across)}</text>')
    return parts


def _drawn(curve: Curve, places: Sequence[tuple[float, float]]) -> str:
    colour, dashes = _look(curve)
    points = " ".join(f"{right},{down}" for right, down in places)
    line = f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"{dashes}/>'
    return line + "".join(marker(_mark(curve), right, down, colour) for right, down in places)


def _legend(curve: Curve, right: float, down: float) -> str:
    colour, dashes = _look(curve)
    line = f'<path d="M{right} {down}h30" stroke="{colour}" stroke-width="1.8"{dashes}/>'
    drawn = marker(_mark(curve), right + 15, down, colour)
    return f'{line}{drawn}<text x="{right + 38}" y="{down + 4}">{escape(curve.name)}</text>'


def _mark(curve: Curve) -> int | None:
    return curve.style if curve.mark is None else curve.mark


def look(style: int | None) -> str:
    """The colour of a style."""
    return LEVEL if style is None else _COLOURS[style % len(_COLOURS)]


def _look(curve: Curve) -> tuple[str, str]:
    colour = look(curve.style)
    dashes = curve.dashes or ("" if curve.style is None else dashes_of(curve.style // len(_COLOURS)))
    return colour, f' stroke-dasharray="{dashes}"' if dashes else ""


def marker(style: int | None, x: float, y: float, colour: str) -> str:
    """The marker of a style at a place; nothing for a level."""
    if style is None:
        return ""
    kind = _MARKERS[(style + 3 * (style // len(_MARKERS))) % len(_MARKERS)]  # the ninth looks unlike the first
    if kind == "circle":
        return f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>'
    shape = {
        "square": "M-4-4h8v8h-8z",
        "triangle": "M0-5L5 4H-5z",
        "down": "M0 5L5-4H-5z",
        "diamond": "M0-5.5L5.5 0L0 5.5L-5.5 0z",
        "cross": "M-4-4L4 4M-4 4L4-4",
        "plus": "M-5 0H5M0-5V5",
        "bar": "M-5-2H5V2H-5z",
    }[kind]
    return f'<path d="{shape}" transform="translate({x} {y})" fill="{colour}" stroke="{colour}" stroke-width="1.8"/>'


def shown(value: float, shares: bool) -> str:
    """A figure of an axis. shares: in per cent."""
    return f"{100 * value:.3g} %" if shares else f"{value:.4g}"


def _in_words(title: str, across: str, curves: Sequence[Curve], shares: bool) -> str:
    """The same for those who do not see it: where each curve begins and ends."""
    said = [
        f"{curve.name} from {shown(curve.points[0][1], shares)} at {curve.points[0][0]:g} to "
        f"{shown(curve.points[-1][1], shares)} at {curve.points[-1][0]:g}"
        for curve in curves
    ]
    return f"{title} over {across}, logarithmic: {'; '.join(said)}"


class Box(NamedTuple):
    """Where a plot's axes lie, in pixels."""

    left: int
    right: int
    top: int
    bottom: int


def axes(title: str, across: str, box: Box, columns: Marks, rows: Marks) -> list[str]:
    """A plot's title, its axes, and what is across. columns, rows: where a mark is, in pixels, and what it says."""
    left, right, _, bottom = box
    parts = [f'<text x="{left}" y="22" style="font-weight:600">{escape(title)}</text>']
    for level, said in rows:
        parts.append(f'<line x1="{left}" x2="{right}" y1="{level}" y2="{level}" stroke="#8886" stroke-width=".7"/>')
        parts.append(f'<text x="{left - 7}" y="{level + 4}" text-anchor="end">{said}</text>')
    for place, said in columns:
        parts.append(f'<line x1="{place}" x2="{place}" y1="{bottom}" y2="{bottom + 4}" stroke="{LEVEL}"/>')
        parts.append(f'<text x="{place}" y="{bottom + 19}" text-anchor="middle">{said}</text>')
    middle = (left + right) / 2
    parts.append(f'<text x="{middle}" y="{bottom + 40}" text-anchor="middle">{escape(across)}</text>')
    return parts
