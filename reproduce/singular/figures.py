"""The paper's Figures 1 and 2: an image, its row, and what an attack makes of it, by τ.

    MIXVEIL_DATA=DIR python -m reproduce.singular.figures 1|2 [--row 0] [--out FILE.json]

The linear attack, or the paper's U-Net, on CIFAR-10 at 224 × 224. The picture lies beside FILE, with the ending .png;
it shows an image of the data set.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.attacks.records.linear import recovered
from mixveil.attacks.shared.model import MixingMatrix
from mixveil.attacks.shared.pixels import Pixels
from mixveil.attacks.shared.training import TrainingCache, fastest
from mixveil.core.device_random import DeviceStream
from mixveil.core.randomness import SeededStream
from mixveil.data.similarity import snr_db
from mixveil.features.cache import cache_folder
from mixveil.report import results
from reproduce.singular import tables
from reproduce.singular.shared import ALPHA, keep

ROWS = {"1": 64, "2": 200}
"""Images that are mixed with one another; one of them is shown."""


class Column(NamedTuple):
    """tau; truth, row, found: (c, h, w), normalised."""

    tau: float
    truth: Tensor
    row: Tensor
    found: Tensor


def picture(path: Path, columns: Sequence[Column]) -> None:
    """A column for each τ; from above: the image, its row clamped to what a pixel can be, and the attack's guess."""
    from PIL import Image

    strips = [torch.cat([tables.pixels(part).float() for part in column[1:]], dim=-2) for column in columns]
    whole = torch.cat([strip.reshape(3, *strip.shape[-2:]) for strip in strips], dim=-1)
    times = max(1, 96 // columns[0].truth.shape[-1])
    large = whole.repeat_interleave(times, 1).repeat_interleave(times, 2)
    Image.fromarray(large.mul(255).round().byte().permute(1, 2, 0).numpy()).save(path)


def columns_of(figure: str, shown: int) -> list[Column]:
    x, labels = tables.opened("cifar10", "test", 10_000)
    spread = tables.variance(x)
    truth, labels = tables.large(tables.normalised(x[: ROWS[figure]])), labels[: ROWS[figure]]
    cache = TrainingCache(cache_folder(), compiled=torch.cuda.is_available(), watch=tables.said)
    work = tables.Work(Path(), (), (), None, 1, (), cache)
    made = []
    for tau in tables.TAUS:
        draws = DeviceStream(SeededStream(0).fork(f"rows {tau}"))
        rows, trace = tables.mixed(truth.to(fastest()), tau, spread, draws)
        if figure == "1":
            pixels = Pixels(3, 0.0, 1.0, normalised=True)
            found = recovered(MixingMatrix.of((trace,)), [rows], pixels).cpu()
        else:  # the same seed: the same rows
            found = tables.by_unet(truth, labels, tau, spread, "tiny-imagenet", 0, work)
        made.append(Column(tau, truth[shown], rows[shown].cpu(), found[shown]))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=ROWS)
    parser.add_argument("--row", type=int, default=0, help="which image is shown")
    parser.add_argument("--out", type=Path, default=Path("build/reproduce/singular-figure.json"))
    chosen = parser.parse_args()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    columns = columns_of(chosen.figure, chosen.row)
    picture(chosen.out.with_suffix(".png"), columns)
    about = results.provenance({"alpha": ALPHA}, device=fastest().type)
    rows = [
        {
            "settings": {"figure": chosen.figure, "tau": column.tau, "row": chosen.row},
            "figures": {"SNR dB": float(snr_db(column.truth[None], column.found[None]))},
        }
        for column in columns
    ]
    keep(chosen.out, f"Figure {chosen.figure}: SNR of the image that is shown", *rows, about=about)


if __name__ == "__main__":
    main()
