"""MixCon's Figures 3 and 4: accuracy, separability and inversion at many (λ, β).

python -m reproduce.mixcon.sweep --data mnist --data-dir DIR --work WORK
python -m reproduce.mixcon.sweep --data mnist --work WORK --gather

Trains on all but the last 10,000 training images, and measures and attacks those: nothing is chosen on test images.
WORK/DATA has the page with pictures; the figures are added to `sweep.json` beside this file. `--gather` only reads the
points that are in WORK, of a sweep on another machine or one that was stopped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from mixveil import open_data, split_sweep
from mixveil.learn.split_sweep import BETAS, WEIGHTS
from mixveil.report import split_page
from mixveil.report.results import provenance
from mixveil.report.split_page import SweepPoint
from reproduce.singular.shared import Row, keep

HERE = Path(__file__).parent
ASIDE, WITHIN = 10_000, 0.01


def rows_of(data: str, points: Sequence[SweepPoint]) -> Iterator[Row]:
    """What was measured on the images that were set aside. The setting that is marked: the least SSIM of those within a
    point of the accuracy without a penalty."""
    marked = split_page.chosen(points, WITHIN, nothing=0.0)
    for number, point in enumerate(points):
        alike = point.attacks["inversion"]
        settings = {"data": data, "penalty": point.penalty, "lambda": point.weight, "beta": point.beta}
        figures = {"accuracy": point.accuracy, "mean distance": point.separability.mean}
        figures |= {"least distance": point.separability.least, "largest across classes": point.separability.most}
        found = {"SSIM": alike.ssim, "SSIM worst": alike.ssim_worst, "MSE": alike.mse, "marked": number == marked}
        yield {"settings": settings, "figures": {**figures, **found}}


def gathered(folder: Path) -> list[SweepPoint]:
    paths = sorted(path.parent for path in folder.glob("points/*/figures.json"))
    return [SweepPoint.read(json.loads((path / "figures.json").read_text()), path) for path in paths]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--weights", type=float, nargs="*", default=WEIGHTS)
    parser.add_argument("--betas", type=float, nargs="*", default=BETAS)
    parser.add_argument("--gather", action="store_true")
    parser.add_argument("--measured-on", default="cuda" if torch.cuda.is_available() else "cpu", help="for the results")
    parser.add_argument("--out", type=Path, default=HERE / "sweep.json")
    asked = parser.parse_args()
    if asked.gather:
        points: Sequence[SweepPoint] = gathered(asked.work / asked.data)
    else:
        data = open_data(f"{asked.data}:train", data_dir=asked.data_dir)
        last = len(data) - ASIDE
        train, aside = data.part(torch.arange(last)), data.part(torch.arange(last, len(data)))
        grid = {"weights": asked.weights, "betas": asked.betas, "within": WITHIN}
        points = split_sweep(train, asked.work / asked.data, test=aside, network="lenet5", say=print, **grid).points
    about = provenance({"images": 100, "set aside": ASIDE}, device=asked.measured_on)
    keep(asked.out, "MixCon: a sweep over (λ, β), Figure 3", *rows_of(asked.data, points), about=about)


if __name__ == "__main__":
    main()
