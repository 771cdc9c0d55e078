"""Curves over two logarithmic axes as SVG, for a page that loads nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from mixveil.report.lines import Box, axes, dashes_of, look, marker

Points = Sequence[tuple[float, float]]
_WIDTH, _BOX = 760, Box(76, 470, 40, 330)
_LEFT, _RIGHT, _TOP, _BOTTOM = _BOX
_LEGEND = 496


def log_plot(title: str, across: str, up: str, curves: Mapping[str, Points]) -> str:
    """A curve for each name; all values are positive. across, up: what the axes are."""
    columns = decades([x for points in curves.values() for x, _ in points])
    rows = decades([y for points in curves.values() for _, y in points])

    def place(x: float, y: float) -> tuple[float, float]:
        right = _LEFT + (_RIGHT - _LEFT) * share(x, columns)
        return round(right, 1), round(_BOTTOM - (_BOTTOM - _TOP) * share(y, rows), 1)

    parts = axes(
        title,
        f"{up} over {across}",
        _BOX,
        [(place(x, rows[0])[0], f"{x:g}") for x in columns],
        [(place(columns[0], y)[1], f"{y:g}") for y in rows],
    )
    for number, (name, points) in enumerate(curves.items()):
        places, down = [place(*point) for point in sorted(points)], _TOP + 8 + 22 * number
        parts += [_line(number, places), _line(number, [(_LEGEND, down), (_LEGEND + 30, down)])]
        parts += [marker(number, *spot, look(number)) for spot in (*places, (_LEGEND + 15, down))]
        parts.append(f'<text x="{_LEGEND + 40}" y="{down + 4}">{escape(name)}</text>')
    height = max(_BOTTOM + 52, _TOP + 30 + 22 * len(curves))
    said = escape(f"{title}: {up} over {across}, both logarithmic, of {', '.join(curves)}", quote=True)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img" aria-label="{said}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def decades(values: Sequence[float]) -> list[float]:
    """Powers of ten that hold all values between them; where they are few, two and five times those too.

    >>> decades([3.0, 40.0])
    [2.0, 5.0, 10.0, 20.0, 50.0]
    >>> decades([1e6, 1e8, 3e9])
    [1000000.0, 10000000.0, 100000000.0, 1000000000.0, 10000000000.0]
    """
    low, high = min(values), max(values)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    factors = (1, 2, 5) if high / low < 100 else (1,)
    marks = [float(f"{factor}e{power}") for power in powers for factor in factors]
    first = max(place for place, mark in enumerate(marks) if mark <= low * (1 + 1e-12))
    last = min(place for place, mark in enumerate(marks) if mark >= high * (1 - 1e-12))
    return marks[first : max(last, first + 1) + 1]


def share(value: float, marks: Sequence[float]) -> float:
    """Where a value lies between the first mark and the last, 0 to 1."""
    return math.log(value / marks[0]) / math.log(marks[-1] / marks[0])


def _line(number: int, places: Sequence[tuple[float, float]]) -> str:
    dashes = dashes_of(number)
    line = " ".join(f"{right},{down}" for right, down in places)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{line}" fill="none" stroke="{look(number)}" stroke-width="1.8"{dashed}/>'
