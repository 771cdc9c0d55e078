"""The sweep of an audit: as data, as pictures, and as a section of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mixveil.audit.figures import named
from mixveil.audit.judge import FPR
from mixveil.audit.known_records import SHARES
from mixveil.audit.sweep import MAIN, Swept
from mixveil.audit.thumbnails import LARGEST, Shown, shrunk
from mixveil.report.lines import Curve, plot, styles
from mixveil.report.pictures import png

PREFIX = "sweep/"
_VALUES = 1_800_000  # in all pictures together, so that the page stays small
_NAMES = {"tau": "τ", "mu": "μ", "releases": "number of releases"}
_KINDS = ("original", "released", "guess")
_METRICS = {
    "snr_db": "SNR of reconstructions in dB",
    "ssim": "SSIM of reconstructions",
    "lpips": "LPIPS of reconstructions",
    "mse": "Mean squared error of reconstructions",
    "row identified": "Records whose row is found",
    "pair found": "Rows of which both sources are found",
    f"tpr at {FPR:.0%} fpr": f"Members found at {FPR:.0%} false alarms",
}
_SHARES = MAIN[1:]
_CEILINGS = {"mse": "best linear attacker", MAIN[-1]: "the most that μ permits"}
_UNIT_CEILINGS = {"unit": "most by μ: units", "record": "most by μ: single images"}


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
                "rows": [asdict(row) for row in point.rows],
                "attacks": [asdict(item) for item in point.attacks],
            }
            for point in swept.points
        ],
    }


def to_pictures(swept: Swept) -> dict[str, Tensor]:
    """By attack and kind, (p, c, h, w) of the p values at which it ran, and which these were; with each picture's
    record."""
    found: dict[str, Tensor] = {}
    for name in dict.fromkeys(name for point in swept.points for name in point.best):
        for choice in ("followed", "best"):
            here = [(place, getattr(point, choice)) for place, point in enumerate(swept.points)]
            shown: list[tuple[int, Shown]] = [(place, of[name]) for place, of in here if name in of]
            key = f"{PREFIX}{name}/{choice}"
            found[f"{key}/records"] = torch.tensor([item.number for _, item in shown])
            found[f"{key}/places"] = torch.tensor([place for place, _ in shown])
            for kind in _KINDS:
                found[f"{key}/{kind}"] = torch.stack([getattr(item, kind) for _, item in shown]).contiguous()
    return found


class Strip(NamedTuple):
    """One table of pictures: of an attack, by column the value and the record, by row the kind and the pictures."""

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
    beaten: list[str]
    missing: list[str]


def section(sweep: Mapping[str, Any], pictures: Mapping[str, Tensor], unit: str | None = None) -> Section:
    """The page's part, from data and pictures as they were written. unit: what a unit of several rows is called."""
    points, symbol = sweep["points"], _NAMES[sweep["name"]]
    labels = [f"{point['value']:g}" for point in points]
    beaten = [
        f"At {symbol} = {point['value']:g}, {row['attack']} beats its ceiling: "
        f"{named(row['metric'], row['of'], unit)} {row['mean']:.4g}, where {row['ceiling']:.4g} should be "
        f"the best. A claim of this encoder is false, or this audit is."
        for point in points
        for row in point["rows"]
        if row["beaten"]
    ]
    rows = [row for point in points for row in point["rows"] if row["attack"] != "prior"]
    measured = dict.fromkeys(row["metric"] for row in rows)
    ordered = [metric for kind in _METRICS for metric in measured if _kind(metric) == kind]
    names = list(dict.fromkeys(row["attack"] for row in rows if row["metric"] in ordered))
    return Section(
        symbol=symbol,
        labels=labels,
        charts=[_chart(metric, symbol, points, names, unit) for metric in ordered],
        figures=[(name, metric, _means(points, name, metric)) for name in names for metric in ordered],
        followed=_strips(pictures, "followed", labels),
        best=_strips(pictures, "best", labels),
        beaten=beaten,
        missing=_missing(points, symbol),
    )


def _missing(points: Sequence[Mapping[str, Any]], symbol: str) -> list[str]:
    """Why a curve has gaps: what ran at some values and not at others."""
    ran = {item["attack"] for point in points for item in point["attacks"] if item["status"] == "ran"}
    return [
        f"{item['attack']} at {symbol} = {point['value']:g}: {item['status']}: {item['why']}"
        for point in points
        for item in point["attacks"]
        if item["attack"] in ran and item["status"] != "ran"
    ]


def _kind(metric: str) -> str:
    """LPIPS is measured by several networks."""
    return "lpips" if metric.startswith("lpips-") else metric


def _means(points: Sequence[Mapping[str, Any]], name: str, metric: str) -> list[float | None]:
    return [
        next((row["mean"] for row in point["rows"] if (row["attack"], row["metric"]) == (name, metric)), None)
        for point in points
    ]


def _chart(
    metric: str, symbol: str, points: Sequence[Mapping[str, Any]], names: Sequence[str], unit: str | None
) -> str:
    """One metric over the values: a curve an attack, what knowing nothing gets, and the ceiling where there is one."""
    style, curves = styles(names), []
    for name in names:
        means = zip(points, _means(points, name, metric), strict=True)
        found = sorted((point["value"], mean) for point, mean in means if mean is not None)
        if found:
            curves.append(Curve(name, found, style[name]))
    blank = _level(metric, points, "know_nothing", max)
    if blank:
        curves.append(Curve("knowing nothing", blank, None, "8 5"))
    for of, dashes in (("unit", "2 4"), ("record", "2 8" if unit else "2 4")):
        ceiling = _level(metric, points, "ceiling", min if metric == "mse" else max, of)
        if len(ceiling) > 1:
            said = _UNIT_CEILINGS[of] if unit and metric == MAIN[-1] else _CEILINGS[metric]
            curves.append(Curve(said, ceiling, None, dashes))
    title = _METRICS[_kind(metric)]
    title += f" ({metric})" if _kind(metric) != metric else ""
    return plot(title, symbol, [point["value"] for point in points], curves, shares=metric in _SHARES)


def _level(
    metric: str, points: Sequence[Mapping[str, Any]], key: str, choose: Any, of: str | None = None
) -> list[tuple[float, float]]:
    """By value the one of all attacks that counts: where they differ, what the best attacker is measured by. of: of
    whom the figures speak, if that matters."""
    found = []
    for point in points:
        rows = [row for row in point["rows"] if row["attack"] not in SHARES]  # who knows records is another attacker
        rows = [row for row in rows if row["metric"] == metric and of in (None, row["of"])]
        here = [row[key] for row in rows if row[key] is not None]
        if here:
            found.append((point["value"], choose(here)))
    return sorted(found)


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
