"""The tables of docs/breaks.md, from `breaks.json`, `breaks-table.json` and `chen.json`.

python -m reproduce.instahide.break_tables
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from mixveil.report.results import read_results
from reproduce.singular.shared import Row

HERE = Path(__file__).parent
STAGES = {
    "labels alone: AUC": "pairs of rows by labels alone, AUC",
    "alike: AUC": "pairs of rows by labels and networks, AUC",
    "alike: the nearest row shares a record": "the most alike row shares a record",
    "clusters: records found": "records that have a cluster",
    "clusters: purity": "rows of clusters that hold the record",
    "sources: all right": "rows of which both records are right",
    "sources: one right": "rows of which one is right",
    "signs found": "signs found by demasking",
}

CHEN = {
    "mixup, k = 6": "mixup, k = 4, public images",
    "instahide, k = 6": "instahide, k = 4, public images",
    "singular, τ = 1 (energy)": "singular, tau = 1, energy",
    "singular, τ = 1 (spectral)": "singular, tau = 1, spectral",
    "singular, τ = 0.01 (energy)": "singular, tau = 0.01, energy",
    "singular, τ = 0.01 (spectral)": "singular, tau = 0.01, spectral",
    "singular, certified μ = 1 each": "singular, mu = 1",
}
"""What Chen et al.'s attack was run on beside each release: the nearest that it can be."""

WHY = {"attack-drowned": "not run: the noise drowns it"}


def rows_of(name: str) -> list[Row]:
    path = HERE / name
    return [{**row} for row in read_results(path).rows] if path.exists() else []


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def images(row: Row) -> list[str]:
    """Mean, median, best SSIM, and the share above ½."""
    figures = row["figures"]
    told = [f"{figures[name]:.2f}" for name in ("SSIM", "median SSIM", "best SSIM")]
    return [*told, f"{figures['recovered']:.0%}"]


def challenge() -> str:
    rows = [row for row in rows_of("breaks.json") if row["settings"]["part"] == "challenge"]
    head = ["attack", "given the truth of", "mean SSIM", "median", "best", "above 0.5", "SNR dB", "seconds"]
    lines = [
        [*(row["settings"][name] for name in ("attack", "given")), *images(row), *_rest(row["figures"])] for row in rows
    ]
    return table(head, lines)


def _rest(figures: Row) -> list[str]:
    return [f"{figures['SNR dB']:.1f}", f"{figures['seconds']:,.0f}"]


def stages() -> str:
    rows = [row for row in rows_of("breaks.json") if row["settings"]["given"] == "nothing"]
    rows = [row for row in rows if (row["settings"]["attack"] == "luo") <= bool(row["settings"].get("augmented"))]
    rows.sort(key=_order)
    lines = [[title, *(f"{row['figures'][key]:.1%}" for row in rows)] for key, title in STAGES.items()]
    return table(["", *(f"`{row['settings']['attack']}`, {_name(row)}" for row in rows)], lines)


def _order(row: Row) -> tuple[bool, int, str]:
    settings = row["settings"]
    return bool(settings.get("augmented")), -settings["encodings"], settings["attack"]


def _name(row: Row) -> str:
    settings = row["settings"]
    return f"T = {settings['encodings']}" + (", augmented" if settings.get("augmented") else "")


def augmented() -> str:
    rows = [row for row in rows_of("breaks.json") if row["settings"]["given"] == "nothing"]
    rows.sort(
        key=lambda r: (bool(r["settings"].get("augmented")), -r["settings"]["encodings"], r["settings"]["attack"])
    )
    head = [
        "InstaHide",
        "attack",
        "mean SSIM",
        "median",
        "best",
        "above 0.5",
        "mean image",
        "another image",
        "both right",
    ]
    lines = []
    for row in rows:
        figures = row["figures"]
        near = [f"{figures[f'SSIM of {name}']:.2f}" for name in ("mean image", "another image")]
        lines.append(
            [_name(row), row["settings"]["attack"], *images(row), *near, f"{figures['sources: all right']:.0%}"]
        )
    return table(head, lines)


def encoders() -> str:
    """One row an encoder: Carlini et al. and Luo et al. on CIFAR-10, Chen et al. on images of normal values."""
    cells: dict[str, dict[str, str]] = {}
    for row in rows_of("breaks-table.json"):
        settings, figures = row["settings"], row["figures"]
        column = f"{settings['attack']}, T = {settings['encodings']}"
        shown = f"{figures['SSIM']:.2f}, {figures['best SSIM']:.2f}"
        cells.setdefault(settings["release"], {})[column] = shown
    chen = {r["settings"]["encoder"]: r["figures"] for r in rows_of("chen.json") if r["settings"]["part"] == "encoders"}
    for release, row in cells.items():
        figures = chen[CHEN[release]] if release in CHEN else {}
        left = f"{figures['error left']:.0%}" if "error left" in figures else WHY.get(str(figures.get("refused")), "–")
        row["chen, error left"] = left
    columns = list(dict.fromkeys(name for row in cells.values() for name in row))
    return table(["", *columns], [[name, *(row.get(c, "–") for c in columns)] for name, row in cells.items()])


def main() -> None:
    for name, made in (("challenge", challenge), ("stages", stages), ("augmented", augmented), ("encoders", encoders)):
        sys.stdout.write(f"{name}\n\n{made()}\n")


if __name__ == "__main__":
    main()
