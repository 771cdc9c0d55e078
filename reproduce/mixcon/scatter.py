"""Points in the plane as panels of one SVG picture, two classes told apart by colour and shape."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from torch import Tensor

from mixveil.report.lines import ticks

_SIDE, _LEFT, _TOP, _GAP, _COLUMNS = 220, 56, 60, 70, 2
_COLOURS = ("#d1242f", "#2f81f7")


class Panel(NamedTuple):
    """points: (n, 2); labels: (n,) of 0 and 1."""

    title: str
    points: Tensor
    labels: Tensor


def drawn(title: str, panels: Sequence[Panel]) -> str:
    """All panels, two in a row, each with its own axes."""
    width = _LEFT + _COLUMNS * (_SIDE + _GAP)
    height = _TOP + -(-len(panels) // _COLUMNS) * (_SIDE + _GAP)
    parts = [f'<text x="{_LEFT}" y="22" style="font-weight:600">{escape(title)}</text>']
    for number, panel in enumerate(panels):
        down, right = divmod(number, _COLUMNS)
        place = f"translate({_LEFT + right * (_SIDE + _GAP)} {_TOP + down * (_SIDE + _GAP)})"
        parts.append(f'<g transform="{place}">{_panel(panel)}</g>')
    said = escape(f"{title}: {'; '.join(_in_words(panel) for panel in panels)}", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="{said}" font-family="system-ui" font-size="12"><title>{escape(title)}</title>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _panel(panel: Panel) -> str:
    axes = [ticks([*panel.points[:, axis].tolist(), 0.0]) for axis in (0, 1)]
    parts = [
        f'<text x="0" y="-10">{escape(panel.title)}</text>',
        f'<rect width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#7a8490"/>',
    ]
    across, up = axes
    parts += [f'<text x="{_at(x, across)}" y="{_SIDE + 16}" text-anchor="middle">{x:g}</text>' for x in across[::2]]
    parts += [f'<text x="-6" y="{_SIDE - _at(y, up) + 4:.1f}" text-anchor="end">{y:g}</text>' for y in up[::2]]
    for (x, y), label in zip(panel.points.tolist(), panel.labels.tolist(), strict=True):
        right, down, colour = _at(x, across), round(_SIDE - _at(y, up), 1), _COLOURS[label]
        if label:
            parts.append(f'<circle cx="{right}" cy="{down}" r="2" fill="{colour}" fill-opacity=".5"/>')
        else:
            parts.append(f'<path d="M{right} {down}m-2-2l4 4m0-4l-4 4" stroke="{colour}" stroke-opacity=".5"/>')
    return "".join(parts)


def _at(value: float, axis: Sequence[float]) -> float:
    return round(_SIDE * (value - axis[0]) / (axis[-1] - axis[0]), 1)


def _in_words(panel: Panel) -> str:
    means = [panel.points[panel.labels == label].mean(0).tolist() for label in (0, 1)]
    return f"{panel.title}, class means " + " and ".join(f"({x:.3g}, {y:.3g})" for x, y in means)
