"""Audits with pictures: what attacks make of InstaHide, of Mixup and of certified singularized mixup, side by side.

    MIXVEIL_DATA=DIR python -m reproduce.instahide.audits OUT [--records 100] [--releases 20] [--patches 1000]

Each encoder releases the same CIFAR-10 images so many times, as encoding again for every epoch does. Every release is
written, entered in a ledger of its own under OUT, and audited by the package's own jobs; OUT/beside.html has all three.
They show CIFAR-10's images. Without a GPU networks take most of the time: `--steps` shortens their training.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

import mixveil
from mixveil.core.watching import Moment
from mixveil.data.images import Images
from mixveil.data.opening import open_data
from mixveil.report.beside_page import write_beside

ATTACKS = [
    "prior",
    "labels",
    "inner-product",
    "inner-product-squares",
    "inner-product-average",
    "public-search",
    "braverman",
    "braverman-whitened",
    "kolmogorov-smirnov",
    "demask",
    "average-known",
    "average-similar",
    "demask-search",
    "carlini",
    "luo",
    "chen",
    "linkage",
]
K = 6


def encoders(public: Images, patches: int) -> dict[str, dict[str, Any]]:
    mixed = {"images_per_row": K, "public": public, "patches": patches}
    return {
        "instahide": {"encoder": "instahide", **mixed},
        "mixup": {"encoder": "mixup", **mixed},
        "singular-mu-1": {"encoder": "singular", "mu": 1.0},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--records", type=int, default=100)
    parser.add_argument("--releases", type=int, default=20)
    parser.add_argument("--patches", type=int, default=1000)
    parser.add_argument("--attacks", nargs="+", default=ATTACKS)
    parser.add_argument("--steps", type=int, help="of the demasking network, at most: for a CPU")
    parser.add_argument("--only", help="encoders whose names hold this text")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    os.environ["MIXVEIL_STATE"] = str((chosen.out / "state").resolve())
    private = open_data("cifar10:test").part(torch.arange(chosen.records))
    similar, public = open_data("cifar100").part(torch.arange(8000)), open_data("tiny-imagenet")
    public = public.part(torch.arange(0, len(public), 7))  # fewer to compare with the private ones, every time
    folders = []
    for name, settings in encoders(public, chosen.patches).items():
        if chosen.only and chosen.only not in name:
            continue
        begun = time.monotonic()
        made = [chosen.out / "releases" / f"{name}-{number}" for number in range(chosen.releases)]
        for folder in made:
            if not folder.exists():
                folder.parent.mkdir(exist_ok=True)
                mixveil.encode(private, folder, party=name, **settings)
        report = chosen.out / name
        covers = settings.get("public")
        if not report.exists():
            found = mixveil.audit(
                made,
                private,
                public=similar,
                attacks=chosen.attacks,
                covers=covers,
                steps=chosen.steps,
                cache=chosen.out / "cache",
                watch=_told,
            )
            mixveil.write_report(report, found)
        folders.append(report)
        sys.stdout.write(f"{name}: {report / 'report.html'}, {time.monotonic() - begun:.0f} s\n")
    if len(folders) > 1:
        page = chosen.out / "beside.html"
        page.unlink(missing_ok=True)
        sys.stdout.write(f"{write_beside(folders, page)}\n")


def _told(moment: Moment) -> None:
    sys.stderr.write(f"\r{moment.doing[:110]:110}")


if __name__ == "__main__":
    main()
