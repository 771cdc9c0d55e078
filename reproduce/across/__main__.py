"""One table across the project: accuracy, what attacks get, bytes and what is promised, of every way to learn together.

    python -m reproduce.across --data DIR          # measures what is not in the file yet, on one core; --data has mnist
    python -m reproduce.across --table             # prints the table of docs/across.md
    python -m reproduce.across --write             # puts the tables into docs/across.md and README.md

`--data DIR` is a folder of `mixveil data`. Every row is kept as it is found: a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from mixveil.report.results import provenance, read_results
from reproduce.across import accuracy, attacks, tables
from reproduce.across.world import Scale, World
from reproduce.singular.shared import keep, known

OUT = Path(__file__).parent / "across.json"
TITLE = "One table across the project: one data set, one partition"
Figures = dict[str, Any]
NOTHING_SENT = {f"{cell} why": "nothing-sent" for cell in ("ssim", "linkage", "membership")}
ALL_SHOWN = {f"{cell} why": "all-shown" for cell in ("ssim", "linkage", "membership")}


def measured(world: World, method: str) -> Figures:
    """All cells of a row."""
    if method == "mixcon":
        halves, told = accuracy.split(world)
        return {**told, **attacks.of_representations(world, halves)}
    if method in ("mixup", "instahide"):
        return {**accuracy.mixed(world, method), **attacks.of_records(world, accuracy.encoder_of(world, method))}
    attacked: dict[str, Callable[[], Figures]] = {
        "public": lambda: dict(NOTHING_SENT),
        "local": lambda: dict(NOTHING_SENT),
        "centralised": lambda: dict(ALL_SHOWN),
        "one-shot": lambda: attacks.of_records(world, world.agreed.encoder),
        "two-step": lambda: attacks.of_certified(world),
        "sums": lambda: attacks.of_sums(world),
    }
    found = accuracy.simulated(world, method)
    return {**found, **attacked.get(method, lambda: attacks.of_updates(world, method))()}


def run(scale: Scale, data: Path | None, out: Path, methods: Sequence[str] = tables.METHODS) -> None:
    """Measure what is not in the file."""
    wanted = [method for method in methods if not known(out, {"method": method, **scale.plain()})]
    if not wanted:
        return
    with tempfile.TemporaryDirectory() as work:
        world = World(scale, data, Path(work))
        for method in wanted:
            start = time.monotonic()
            figures = measured(world, method)
            row = {"settings": {"method": method, **scale.plain()}, "figures": figures}
            row["figures"]["seconds"] = time.monotonic() - start
            keep(out, TITLE, row, about=provenance({"work": "reproduce.across"}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of data sets; else MIXVEIL_DATA")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--methods", default=",".join(tables.METHODS))
    parser.add_argument("--table", action="store_true", help="print the table, and measure nothing")
    parser.add_argument("--write", action="store_true", help="put the tables into the docs, and measure nothing")
    asked = parser.parse_args()
    if not (asked.table or asked.write):
        torch.set_num_threads(1)
        run(Scale(), asked.data, asked.out, asked.methods.split(","))
    found = read_results(asked.out)
    if asked.write:
        tables.write(found)
    sys.stdout.write(tables.whole(found))


if __name__ == "__main__":
    main()
