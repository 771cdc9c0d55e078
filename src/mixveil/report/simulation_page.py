"""From a simulation to one self-contained page: what it says, what each method reaches, sends and promises, and who has
what."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from mixveil.core import files
from mixveil.core.wording.notes import Note
from mixveil.report.lines import Curve, dashes_of, marks, plot, styles
from mixveil.report.pages import amount, environment, figure

_POINTS = 12  # of a curve that are marked
_TITLE = b"<title>Learning together: "
_ACCURACIES = ("best party", "worst party")  # among the settings that a method found: shares of the test rows
_LEVELS = ("7 4", "2 3", "9 3 2 3")  # dashes of what methods are compared with

_CELL, _NAME = 14, 24  # pixels of a square, and letters of a class that are shown
_SHARES = (0.05, 0.25, 0.5, 1.0)  # in the legend of who has what

Rows = Sequence[Mapping[str, Any]]
"""Rows of a simulation, for people: as `readable` makes them."""


def write_page(path: Path, whole: Mapping[str, Any], beside: Rows, verdict: Sequence[Note]) -> None:
    """Write the page of a simulation as its file has it. beside: methods that send once, by those with rounds."""
    files.write_whole(path, page(whole, beside, verdict).encode(), 0o600)


def is_page(path: Path) -> bool:
    """Whether a file is such a page."""
    with path.open("rb") as file:
        return _TITLE in file.read(1000)


def page(whole: Mapping[str, Any], beside: Rows, verdict: Sequence[Note]) -> str:
    found = environment()
    found.filters["amount"] = amount
    rows, settings = whole["rows"], whole["settings"]
    text: str = found.get_template("simulation.html.j2").render(
        settings=settings,
        provenance=whole["provenance"],
        verdict=verdict,
        rows=rows,
        chosen=chosen,
        beside=beside,
        charts=charts(rows),
        dealt=dealt(whole["counts"], settings["classes"]) if whole["counts"] else "",
    )
    return text


def chosen(row: Mapping[str, Any]) -> str:
    """What a method found by itself.

    >>> chosen({"chosen": {"best party": 0.9107, "directions": 48}})
    '; best party 91.1 %; directions 48'
    """
    shown = {name: f"{100 * x:.1f} %" if name in _ACCURACIES else figure(x) for name, x in row["chosen"].items()}
    return "".join(f"; {name} {value}" for name, value in shown.items())


def charts(rows: Rows) -> list[str]:
    """Accuracy over bytes, over seconds, and over μ. What methods are compared with is a level in each."""
    methods = sorted((row for row in rows if not row["baseline"]), key=lambda row: row["mu"] is None)
    look, mus = styles(list(dict.fromkeys(row["method"] for row in methods))), sorted({r["mu"] or 0 for r in methods})
    over = []
    bytes_, seconds = (0, 1e6, "bytes", "megabytes sent, both ways"), (2, 1.0, "time", "seconds, party after party")
    for place, scale, what, across in (bytes_, seconds):
        curves: list[Curve] = []
        for row in methods:
            points = [(point[place] / scale, point[3]) for point in thinned(row["curve"]) if point[place] > 0]
            if points:
                name = row["method"] if row["mu"] is None else f"{row['method']}, μ = {row['mu']:g}"
                dashes = dashes_of(mus.index(row["mu"] or 0))
                curves.append(Curve(name, points, look[row["method"]], dashes))
        if curves:
            values = decades([x for curve in curves for x, _ in curve.points])
            over.append(_chart(f"Accuracy over {what}", across, values, curves, rows))
    promised = sorted({row["mu"] for row in methods if row["mu"] is not None})
    if len(promised) > 1:
        curves = []
        for method in look:
            points = sorted((row["mu"], row["accuracy"]) for row in rows if row["method"] == method and row["mu"])
            if points:
                curves.append(Curve(method, points, look[method]))
        across = "μ of a record: the smaller, the more is promised"
        over.append(_chart("Accuracy over μ", across, promised, curves, rows))
    return over


def _chart(title: str, across: str, values: Sequence[float], curves: list[Curve], rows: Rows) -> str:
    styles_of = [curve.style or 0 for curve in curves]
    curves = [curve._replace(mark=mark) for curve, mark in zip(curves, marks(styles_of), strict=True)]
    baselines, levels = [row for row in rows if row["baseline"]], []
    for number, row in enumerate(baselines):
        name, points = (
            f"{row['method']}: {100 * row['accuracy']:.1f} %",
            [(x, row["accuracy"]) for x in (values[0], values[-1])],
        )
        levels.append(Curve(name, points, None, _LEVELS[number % len(_LEVELS)]))
    return plot(title, across, values, [*curves, *levels], shares=True, below=True)


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


def dealt(counts: Sequence[Sequence[int]], classes: Sequence[str]) -> str:
    """Who has what: a square for each party and class, the fuller the larger its share of the party's rows. classes:
    their names."""
    parties, step = len(counts), 28 if len(counts) <= 20 else _CELL if len(counts) <= 50 else 7
    names = [name if len(name) <= _NAME else f"{name[: _NAME - 1]}…" for name in classes]
    left = 16 + 7 * max(map(len, [*names, "class"]))
    parts = [
        _text(left - 8, 14, "class", "end"),
        *(_text(left - 8, 32 + y * _CELL, name, "end") for y, name in enumerate(names)),
    ]
    for x, own in enumerate(counts):
        total = max(1, sum(own))
        for y, count in enumerate(own):
            if count:
                said = f"party {x + 1}, {escape(classes[y])}: {count:,} of {total:,} rows"
                parts.append(_square(left + x * step, 20 + y * _CELL, step, count / total, said))
    down = 20 + len(classes) * _CELL
    every = next(apart for apart in (1, 2, 5, 10, 20, 50, 100, 1000) if apart * step >= 24)
    numbers = [number for number in range(1, parties + 1) if number % every == 0 or (number == 1 and every > 2)]
    parts += [_text(left + (number - 0.5) * step, down + 14, str(number), "middle") for number in numbers]
    parts += [_text(left - 8, down + 14, "party", "end"), _text(0, down + 44, "Of a party's rows:", "start")]
    for number, share in enumerate(_SHARES):
        right = 112 + 60 * number
        parts += [_square(right, down + 34, 18, share, ""), _text(right + 22, down + 44, f"{share:.0%}", "start")]
    width, height = max(368, left + 20 + parties * step), down + 56
    told = (
        f"{parties} parties, {len(classes)} classes; the fuller a square, the more of a party's rows are of the class"
    )
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" style="max-width:none" role="img" aria-label="{told}">'
        f"{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, said: str, anchor: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(said)}</text>'


def _square(x: float, y: float, width: int, share: float, said: str) -> str:
    """The fuller the larger the share; its square root, so that small shares show."""
    told = f"<title>{said}</title>" if said else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width - 1}" height="{_CELL - 1}" fill="#2f81f7" '
        f'fill-opacity="{math.sqrt(share):.2f}">{told}</rect>'
    )
