"""The tables of docs/fedaugmix.md, from `attack.json`, `accuracy.json` and `accuracy-curves.json`, beside the paper's
figures; and a page of pictures from the folder of images that `attack` wrote.

python -m reproduce.fedaugmix.tables
python -m reproduce.fedaugmix.tables --images FOLDER --out panels.html     holds images of the data sets
"""

from __future__ import annotations

import argparse
import csv
import html
import sys
from pathlib import Path

from safetensors.torch import load_file

from mixveil.report.pictures import png
from mixveil.report.results import read_results
from reproduce.instahide.break_tables import table
from reproduce.singular.shared import Row

HERE = Path(__file__).parent
SETS = {"MNIST": "mnist", "CIFAR-10": "cifar10", "CIFAR-100": "cifar100"}
ATTACKS = ("paper", "strong", "adaptive")


def rows_of(name: str) -> list[Row]:
    path = HERE / name
    return [{**row["settings"], **row["figures"]} for row in read_results(path).rows] if path.exists() else []


def claims(name: str) -> list[dict[str, str]]:
    with (HERE / "claims" / name).open() as file:
        return list(csv.DictReader(file))


def attacked(row: Row) -> str:
    """MSE / SSIM / PSNR as the paper has them."""
    return f"{row['mse']:.2f} / {row['ssim %']:.1f} / {row['psnr dB']:.1f}"


def works() -> str:
    """Plain gradients of untrained networks."""
    lines = []
    for row in rows_of("attack.json"):
        if row["work"] == "works":
            cells = [f"{row['dataset']}, {row['network']}", str(row["batch"]), str(row["batch"] * row["clients"])]
            cells += [f"{row['median psnr dB']:.1f}", f"{row['median ssim %'] / 100:.2f}", f"{row['tv']:g}"]
            lines.append([*cells, f"{row['restarts']} × {row['steps']:,}"])
    return table(
        ["data and network", "batch", "images", "median PSNR, dB", "median SSIM", "TV", "starts × steps"], lines
    )


def table2() -> str:
    """Table II, with every attack."""
    rows = [row for row in rows_of("attack.json") if row["work"] == "table2"]
    lines = []
    for claim in claims("table2.csv"):
        severity = claim["severity"]
        defence = "none" if severity == "none" else f"severity {severity}"
        wanted = (SETS[claim["dataset"]], claim["stage"], defence)
        here: dict[str, Row] = {}
        for row in rows:  # the one with most steps
            if (row["dataset"], row["stage"], row["defence"]) == wanted:
                known = here.get(row["attack"])
                here[row["attack"]] = row if known is None or row["steps"] > known["steps"] else known
        if here:
            published = (
                f"{float(claim['mse']):.2f} / {float(claim['ssim_percent']):.1f} / {float(claim['psnr_db']):.1f}"
            )
            cells = [attacked(here[attack]) if attack in here else "" for attack in ATTACKS]
            lines.append([claim["dataset"], claim["stage"], severity, published, *cells])
    return table(["data", "stage", "s", "paper", "paper's attack", "strong", "adaptive"], lines)


def others(work: str) -> str:
    """Ablations, or other defences."""
    rows = [row for row in rows_of("attack.json") if row["work"] == work]
    lines = []
    for dataset, stage, defence in dict.fromkeys((row["dataset"], row["stage"], row["defence"]) for row in rows):
        here = {r["attack"]: r for r in rows if (r["dataset"], r["stage"], r["defence"]) == (dataset, stage, defence)}
        encoding = next((f"{r['encoding ssim %']:.1f}" for r in here.values() if "encoding ssim %" in r), "")
        cells = [attacked(here[attack]) if attack in here else "" for attack in ATTACKS]
        lines.append([f"{dataset}, {stage}", defence, *cells, *([encoding] if work == "defences" else [])])
    head = ["data and stage", "defence", "paper's attack", "strong", "adaptive"]
    return table([*head, *(["SSIM of the encoding"] if work == "defences" else [])], lines)


def table3() -> str:
    """Table III, and accuracy by severity and variant."""
    paper = {(SETS[line["dataset"]], line["method"].lower()): line for line in claims("table3.csv")}
    lines = []
    for row in rows_of("accuracy.json"):
        claim = paper.get((row["dataset"], row["method"]), {})
        published = claim.get("fedaugmix_percent" if row["severity"] else "vanilla_percent", "")
        published = published if row["severity"] in (0, 2) and row["variant"] in ("none", "whole") else ""
        defence = f"s = {row['severity']:g}" + ("" if row["variant"] == "whole" else f", {row['variant']}")
        cells = [f"{row['dataset']}, {row['network']}", row["method"], defence if row["severity"] else "without"]
        if "collapsed" in row:
            lines.append([*cells, str(row["rounds"]), *["collapsed"] * 3, published, ""])
            continue
        cells += [str(row["rounds"]), f"{row['clients last %']:.1f}", f"{row['test last %']:.1f}"]
        seconds = row["seconds steps"] + row.get("seconds views", 0.0)
        views = f"{seconds:.0f} ({row.get('seconds views', 0.0) / seconds:.0%} views)"
        lines.append([*cells, f"{row['own clients %']:.1f}", published, views])
    head = ["data and network", "method", "Fed-AugMix", "rounds", "clients' test rows, %", "test set, %"]
    return table([*head, "own model, %", "paper, %", "seconds"], lines)


def curves() -> str:
    """Figure 7: accuracy on the test set by round."""
    rows = rows_of("accuracy-curves.json")
    rounds = sorted({row["round"] for row in rows})
    names = dict.fromkeys((row["dataset"], row["method"], row["severity"], row["variant"]) for row in rows)
    lines = []
    for name in names:
        here = {
            row["round"]: row["test"]
            for row in rows
            if (row["dataset"], row["method"], row["severity"], row["variant"]) == name
        }
        label = f"{name[0]}, {name[1]}, " + (f"s = {name[2]:g}, {name[3]}" if name[2] else "without")
        lines.append([label, *(f"{100 * here[number]:.1f}" if number in here else "" for number in rounds)])
    return table(["test accuracy, %, after rounds", *(f"{number:g}" for number in rounds)], lines)


def panels(folder: Path, out: Path) -> None:
    """A page of pictures: originals and what every attack got."""
    parts = []
    for path in sorted(folder.glob("*.safetensors")):
        kept = load_file(path)
        parts.append(f"<h2>{html.escape(path.stem)}</h2>")
        for name in ("original", *sorted(set(kept) - {"original"})):
            shown = "".join(f'<img width=96 src="{png(image)}">' for image in kept[name][:8].float() / 255)
            parts.append(f"<p>{html.escape(name)}<br>{shown}</p>")
    style = "<style>img{image-rendering:pixelated}</style>"
    page = f"<!doctype html><meta charset=utf-8><title>Fed-AugMix</title>{style}{''.join(parts)}"
    out.write_text(page, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.images is not None:
        panels(asked.images, asked.out or Path("panels.html"))
        return
    for title, made in (
        ("Where the attack works", works()),
        ("Table II: MSE / SSIM % / PSNR dB", table2()),
        ("Ablations", others("ablations")),
        ("Defences", others("defences")),
        ("Table III and severity", table3()),
        ("Figure 7", curves()),
    ):
        sys.stdout.write(f"\n{title}\n\n{made}\n")


if __name__ == "__main__":
    main()
