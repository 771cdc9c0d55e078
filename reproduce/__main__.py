"""What there is to make again.

python -m reproduce                          # the list
python -m reproduce --quick [--out DIR]      # every quick table, one after the other
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reproduce import catalogue, running
from reproduce.entries import ENTRIES


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m reproduce", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="make every quick table")
    parser.add_argument("--out", type=Path, default=running.QUICK, help="the folder of the quick tables")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if not asked.quick:
        sys.stdout.write(catalogue.aligned(catalogue.listed()))
        return
    if running.stored(asked.out):
        parser.error(f"{asked.out}: quick tables are not written among the measurements in {catalogue.ROOT}")
    whole = 0.0
    for entry in ENTRIES:
        out = running.file_of(entry, asked.out)
        seconds = running.quick(entry, out, asked.seed)
        whole += seconds
        print(f"{out}: {seconds:.0f} s", flush=True)
    print(f"{len(ENTRIES)} quick tables in {whole:.0f} s")


if __name__ == "__main__":
    main()
