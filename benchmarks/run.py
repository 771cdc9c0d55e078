"""Run benchmarks by name, and write what they measured. See README.md beside this file."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from benchmarks.record import RESULTS, recorded

# Those that measure the memory of the process come first: its peak would count the arrays of the others.
BENCHMARKS = {
    "growth": "growth:growth",
    "minimax": "minimax:minimax",
    "encode": "encode:encode",
    "noise": "noise:noise",
    "exactness": "exactness:exactness",
    "dpsgd": "dpsgd:dpsgd",
    "features": "learning:features",
    "training": "learning:training",
    "transform": "transform:transform",
    "penalties": "split:penalties",
    "augmix": "augmix:augmented",
    "audits": "audits:audits",
    "network": "load:network",
    "secure-sums": "secure_sums:secured",
}
"""The function of each, in a module beside this file."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(BENCHMARKS)}; else all of them")
    parser.add_argument("--folder", type=Path, help="where 13 GB can be written for a while; else the temporary folder")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of results")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    tempfile.tempdir = chosen.folder and str(chosen.folder)
    with tempfile.TemporaryDirectory() as state:
        os.environ["MIXVEIL_STATE"] = state
        for name in chosen.names or BENCHMARKS:
            start = time.perf_counter()
            path = run(name, chosen.out)
            sys.stdout.write(f"{name}: {time.perf_counter() - start:.0f} s, {path}\n")
            sys.stdout.flush()


def run(name: str, out: Path) -> Path:
    module, function = BENCHMARKS[name].split(":")
    return recorded(name, getattr(import_module(f"benchmarks.{module}"), function), out)


if __name__ == "__main__":
    main()
