"""Dots in a plane as SVG, for a page that loads nothing: groups are told apart by marker as well as by colour."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from mixveil.report.lines import Box, axes, look, marker, shown, ticks

_WIDTH, _HEIGHT = 640, 340
_BOX = Box(66, 450, 40, 286)
_LEFT, _RIGHT, _TOP, _BOTTOM = _BOX
_LEGEND = 474


class Dot(NamedTuple):
    """x, y, the group that it belongs to, and what it is, for a reader who points at it. marked: it is circled."""

    x: float
    y: float
    group: str
    label: str
    marked: bool = False


def scatter(title: str, across: str, dots: Sequence[Dot], *, shares: bool) -> str:
    """Dots over linear axes. across: what x is; shares: y is in per cent."""
    columns, rows = ticks([dot.x for dot in dots]), ticks([dot.y for dot in dots])
    groups = list(dict.fromkeys(dot.group for dot in dots))

    def place(x: float, y: float) -> tuple[float, float]:
        right = _LEFT + (_RIGHT - _LEFT) * (x - columns[0]) / (columns[-1] - columns[0])
        return round(right, 1), round(_BOTTOM - (_BOTTOM - _TOP) * (y - rows[0]) / (rows[-1] - rows[0]), 1)

    parts = axes(
        title,
        across,
        _BOX,
        [(place(x, rows[0])[0], f"{x:g}") for x in columns],
        [(place(columns[0], y)[1], shown(y, shares)) for y in rows],
    )
    parts += [_dot(dot, place(dot.x, dot.y), groups.index(dot.group)) for dot in dots]
    for number, group in enumerate(groups):
        down = _TOP + 8 + 20 * number
        parts.append(marker(number, _LEGEND, down, look(number)))
        parts.append(f'<text x="{_LEGEND + 14}" y="{down + 4}">{escape(group)}</text>')
    height = max(_HEIGHT, _TOP + 28 + 20 * len(groups))
    marked = "; ".join(f"{dot.label}: {shown(dot.y, shares)} at {dot.x:.3g}" for dot in dots if dot.marked)
    count = f"{len(dots)} dot{'s' * (len(dots) != 1)}"
    said = escape(f"{title}, {count}" + (f"; marked: {marked}" if marked else ""), quote=True)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img" aria-label="{said}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _dot(dot: Dot, place: tuple[float, float], style: int) -> str:
    ring = f'<circle cx="{place[0]}" cy="{place[1]}" r="9" fill="none" stroke="#d1242f" stroke-width="2"/>'
    return f"<g><title>{escape(dot.label)}</title>{marker(style, *place, look(style))}{ring if dot.marked else ''}</g>"
