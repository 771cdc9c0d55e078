"""From a simulation to one self-contained page: who has what, what each method reaches, sends and promises."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mixveil.core import files
from mixveil.report.lines import Curve, plot, styles
from mixveil.report.pages import amount, environment

_POINTS = 12  # of a curve that are marked
_CELL = 12
_TITLE = b"<title>Learning together: "


def write_page(path: Path, whole: Mapping[str, Any], beside: Sequence[Mapping[str, Any]]) -> None:
    """Write the page of a simulation as its file has it. beside: methods that send once, by those with rounds."""
    files.write_whole(path, page(whole, beside).encode(), 0o600)


def is_page(path: Path) -> bool:
    """Whether a file is such a page."""
    with path.open("rb") as file:
        return _TITLE in file.read(1000)


def page(whole: Mapping[str, Any], beside: Sequence[Mapping[str, Any]]) -> str:
    found = environment()
    found.filters["amount"] = amount
    rows = whole["rows"]
    text: str = found.get_template("simulation.html.j2").render(
        settings=whole["settings"],
        provenance=whole["provenance"],
        rows=rows,
        beside=beside,
        charts=charts(rows),
        dealt=dealt(whole["counts"]) if whole["counts"] else "",
    )
    return text


def charts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Accuracy over bytes, over seconds, and over μ."""
    look = styles(list(dict.fromkeys(row["method"] for row in rows)))
    over = []
    bytes_, seconds = (0, 1e6, "bytes", "megabytes sent, both ways"), (2, 1.0, "time", "seconds, party after party")
    for place, scale, what, across in (bytes_, seconds):
        curves = []
        for row in rows:
            points = [(point[place] / scale, point[3]) for point in thinned(row["curve"]) if point[place] > 0]
            if points:
                name = row["method"] if row["mu"] is None else f"{row['method']}, μ = {row['mu']:g}"
                curves.append(Curve(name, points, look[row["method"]]))
        if curves:
            marks = decades([x for curve in curves for x, _ in curve.points])
            over.append(plot(f"Accuracy over {what}", across, marks, curves, shares=True))
    mus = sorted({row["mu"] for row in rows if row["mu"] is not None})
    if len(mus) > 1:
        curves = []
        for method in look:
            points = sorted((row["mu"], row["accuracy"]) for row in rows if row["method"] == method and row["mu"])
            if points:
                curves.append(Curve(method, points, look[method]))
        across = "μ of a record: the smaller, the more is promised"
        over.append(plot("Accuracy over μ", across, mus, curves, shares=True))
    return over


def thinned(curve: Sequence[Sequence[float]]) -> list[Sequence[float]]:
    """A dozen points of a curve, its first and its last among them, evenly spread on a logarithmic axis."""
    if len(curve) <= _POINTS:
        return list(curve)
    last = len(curve) - 1
    wanted = {round(math.exp(math.log(last + 1) * i / (_POINTS - 1))) - 1 for i in range(_POINTS)}
    return [curve[place] for place in sorted(wanted)]


def decades(values: Sequence[float]) -> list[float]:
    """Powers of ten that hold all values between them.

    >>> decades([0.3, 42.0])
    [0.1, 1.0, 10.0, 100.0]
    """
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [float(f"1e{power}") for power in range(low, max(high, low + 1) + 1)]


def dealt(counts: Sequence[Sequence[int]]) -> str:
    """Who has what: a square for each party and class, the fuller the larger its share of the party's rows."""
    parties, classes = len(counts), len(counts[0])
    step = _CELL if parties <= 50 else 6
    parts = []
    for x, own in enumerate(counts):
        total = max(1, sum(own))
        for y, count in enumerate(own):
            if count:
                strength = math.sqrt(count / total)
                parts.append(
                    f'<rect x="{60 + x * step}" y="{20 + y * _CELL}" width="{step - 1}" height="{_CELL - 1}" '
                    f'fill="#2f81f7" fill-opacity="{strength:.2f}"><title>party {x + 1}, class {y + 1}: {count} of '
                    f"{total} rows</title></rect>"
                )
    width, height = max(220, 80 + parties * step), 50 + classes * _CELL
    said = (
        f"{parties} parties and {classes} classes; the fuller a square, the more of the party's rows are of the class"
    )
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{said}"><title>{said}</title>'
        f'<text x="54" y="30" text-anchor="end">class 1</text>'
        f'<text x="60" y="{height - 12}">party 1 to {parties}</text>'
        f"{''.join(parts)}</svg>"
    )
