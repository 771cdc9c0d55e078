"""The sweep of an audit: as data, as pictures, and as a section of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mixveil.audit.figures import attack_title, caption
from mixveil.audit.metrics.catalogue import METRICS, Metric
from mixveil.audit.sweep import Swept
from mixveil.audit.thumbnails import LARGEST, Thumbnails, shrunk
from mixveil.core.wording.notes import Note, note, read
from mixveil.core.wording.sentences import sentence
from mixveil.report.lines import Curve, plot, styles
from mixveil.report.pictures import png

PREFIX = "sweep/"
_VALUES = 1_800_000  # in all pictures together, so that the page stays small
_NAMES = {"tau": "τ", "mu": "μ", "releases": "number of releases"}
_KINDS = ("original", "released", "guess")


def to_json(swept: Swept) -> dict[str, Any]:
    """The sweep as data, without pictures."""
    return {
        "name": swept.sweep.name,
        "seed": swept.seed,
        "records": swept.records,
        "of": swept.of,
        "points": [
            {
                "value": point.value,
                "sigma": point.sigma,
                "figures": [asdict(figure) for figure in point.figures],
                "attacks": [run.plain() for run in point.attacks],
            }
            for point in swept.points
        ],
    }


def to_pictures(swept: Swept) -> dict[str, Tensor]:
    """By attack and kind, (p, c, h, w) of the p values at which it ran, and which these were; with each picture's
    record."""
    found: dict[str, Tensor] = {}
    for name in dict.fromkeys(name for point in swept.points for name in point.best):
        chosen = {
            "followed": [point.followed for point in swept.points],
            "best": [point.best for point in swept.points],
        }
        for choice, here in chosen.items():
            kept: list[tuple[int, Thumbnails]] = [(place, of[name]) for place, of in enumerate(here) if name in of]
            key = f"{PREFIX}{name}/{choice}"
            found[f"{key}/records"] = torch.tensor([item.number for _, item in kept])
            found[f"{key}/places"] = torch.tensor([place for place, _ in kept])
            for kind in _KINDS:
                found[f"{key}/{kind}"] = torch.stack([item._asdict()[kind] for _, item in kept]).contiguous()
    return found


class Strip(NamedTuple):
    """One table of pictures of an attack: by column the value and the record, by row the kind and the pictures."""

    attack: str
    labels: list[str]
    records: list[int]
    rows: list[tuple[str, list[str]]]


class Section(NamedTuple):
    """What the page shows of a sweep."""

    symbol: str
    labels: list[str]
    charts: list[str]
    figures: list[tuple[str, str, list[float | None]]]
    followed: list[Strip]
    best: list[Strip]
    beaten: list[Note]
    missing: list[Note]


def section(sweep: Mapping[str, Any], pictures: Mapping[str, Tensor], unit: str | None = None) -> Section:
    """The page's part, from data and pictures as they were written. unit: what a unit of several rows is called."""
    points, symbol = sweep["points"], _NAMES[sweep["name"]]
    labels = [f"{point['value']:g}" for point in points]
    figures = [figure for point in points for figure in point["figures"] if figure["kind"] != "prior"]
    measured = {figure["metric"] for figure in figures}
    charted = [metric for metric in METRICS if metric.charted and metric.code in measured]
    codes = {metric.code for metric in charted}
    names = list(dict.fromkeys(figure["attack"] for figure in figures if figure["metric"] in codes))
    return Section(
        symbol=symbol,
        labels=labels,
        charts=[_chart(metric, symbol, points, names, unit) for metric in charted],
        figures=[(name, metric.code, _means(points, name, metric.code)) for name in names for metric in charted],
        followed=_strips(pictures, "followed", labels),
        best=_strips(pictures, "best", labels),
        beaten=_beaten(points, symbol, unit),
        missing=_missing(points, symbol),
    )


def _beaten(points: Sequence[Mapping[str, Any]], symbol: str, unit: str | None) -> list[Note]:
    notes = []
    for value, row in ((point["value"], row) for point in points for row in point["figures"] if row["beaten"]):
        figure = caption(row["metric"], row["of"], row["know_nothing"], unit)
        figures = {name: row[name] for name in ("attack", "mean", "ceiling")}
        notes.append(note("sweep-ceiling-beaten", symbol=symbol, value=value, figure=figure, **figures))
    return notes


def _missing(points: Sequence[Mapping[str, Any]], symbol: str) -> list[Note]:
    """Why a curve has gaps: what ran at some values and not at others."""
    ran = {run["attack"] for point in points for run in point["attacks"] if run["status"] == "ran"}
    notes = []
    for value, run in ((point["value"], run) for point in points for run in point["attacks"]):
        if run["attack"] in ran and run["status"] != "ran":
            figures = {"attack": run["attack"], "status": run["status"], "why": read(run["why"])}
            notes.append(note("sweep-gap", symbol=symbol, value=value, **figures))
    return notes


def _means(points: Sequence[Mapping[str, Any]], name: str, metric: str) -> list[float | None]:
    return [
        next((f["mean"] for f in point["figures"] if (f["attack"], f["metric"]) == (name, metric)), None)
        for point in points
    ]


def _chart(
    metric: Metric, symbol: str, points: Sequence[Mapping[str, Any]], names: Sequence[str], unit: str | None
) -> str:
    """One metric over the values: a curve an attack, what knowing nothing gets, and the ceiling where there is one."""
    style, curves = styles(names), []
    for name in names:
        means = zip(points, _means(points, name, metric.code), strict=True)
        measured = sorted((point["value"], mean) for point, mean in means if mean is not None)
        if measured:
            curves.append(Curve(attack_title(name), measured, style[name]))
    blank = _level(metric.code, points, "know_nothing", max)
    if blank:
        curves.append(Curve("knowing nothing", blank, None, "8 5"))
    for of, dashes in (("unit", "2 4"), ("record", "2 8" if unit else "2 4")):
        ceiling = _level(metric.code, points, "ceiling", min if metric.worse == "lower" else max, of)
        if len(ceiling) > 1 and metric.ceiling is not None:
            name = f"{metric.ceiling}-{of}" if unit and metric.members else metric.ceiling
            curves.append(Curve(sentence(name), ceiling, None, dashes))
    values = [point["value"] for point in points]
    return plot(sentence(f"chart-{metric.code}"), symbol, values, curves, shares=metric.share, below=True)


def _level(
    metric: str, points: Sequence[Mapping[str, Any]], key: str, choose: Any, of: str | None = None
) -> list[tuple[float, float]]:
    """By value the one of all attacks that counts: where they differ, what the best attacker is measured by. of: of
    whom the figures speak, if that matters."""
    levels = []
    for point in points:
        figures = [f for f in point["figures"] if f["known"] is None]  # one who has records is another attacker
        figures = [f for f in figures if f["metric"] == metric and of in (None, f["of"])]
        here = [f[key] for f in figures if f[key] is not None]
        if here:
            levels.append((point["value"], choose(here)))
    return sorted(levels)


def _strips(pictures: Mapping[str, Tensor], choice: str, labels: Sequence[str]) -> list[Strip]:
    found, side = [], _side(pictures)
    for name in sorted({key.split("/")[1] for key in pictures if key.startswith(PREFIX)}):
        key = f"{PREFIX}{name}/{choice}"
        if pictures[f"{key}/original"].shape[1] not in (1, 3):
            continue
        rows = [(kind, [png(shrunk(image, side)) for image in pictures[f"{key}/{kind}"]]) for kind in _KINDS]
        here = [labels[place] for place in pictures[f"{key}/places"].tolist()]
        found.append(Strip(name, here, pictures[f"{key}/records"].tolist(), rows))
    return found


def _side(pictures: Mapping[str, Tensor]) -> int:
    """How wide pictures may be so that all of them together have no more values than the page can bear."""
    ours = [of for key, of in pictures.items() if key.startswith(PREFIX) and key.rsplit("/", 1)[1] in _KINDS]
    values, largest = sum(of.numel() for of in ours), max((max(of.shape[2:]) for of in ours), default=1)
    return min(LARGEST, max(16, math.floor(largest * math.sqrt(min(1.0, _VALUES / max(1, values))))))
