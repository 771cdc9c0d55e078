"""What the entries of all papers share: asking for a table, and running its quick version or its scripts."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from reproduce import catalogue
from reproduce.entry import NAMES, Entry

Row = dict[str, Any]
QUICK, FULL = Path("build/reproduce-quick"), Path("build/reproduce")


def file_of(entry: Entry, folder: Path) -> Path:
    return folder / f"{entry.paper}-{entry.table}.json"


def run_module(name: str, asked: Sequence[str]) -> None:
    """Run the command line of a script of this package, in this process."""
    module, before = import_module(name), sys.argv
    sys.argv = [name, *asked]
    try:
        module.main()
    finally:
        sys.argv = before


def quick(entry: Entry, out: Path, seed: int) -> float:
    """Make the small version of a table and keep it; in so many seconds."""
    from mixveil.report import results

    tables = cast(
        "dict[str, Callable[[int, Path], Iterator[Row]]]", import_module(f"reproduce.quick.{entry.paper}").TABLES
    )
    started = time.perf_counter()
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = tuple(tables[entry.table](seed, out))
    seconds = time.perf_counter() - started
    about = results.provenance({"set-up": entry.quick, "seed": seed, "seconds": round(seconds, 1)})
    title = f"Quick, not comparable with the paper: {NAMES[entry.paper]}, {entry.name}, {entry.title}"
    results.write_results(out, results.Results(title, about, rows))
    return seconds


def full(entry: Entry, out: Path, data: Path | None) -> None:
    """Run the scripts of a table."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if data is not None:
        os.environ["MIXVEIL_DATA"] = str(data)
    given = {"out": str(out), "beside": str(out.with_suffix("")), "data": os.environ.get("MIXVEIL_DATA", "")}
    for module, *asked in entry.full:
        filled = [word.format(**given) for word in asked]
        sys.stderr.write(f"python -m reproduce.{entry.paper}.{module} {' '.join(filled)}\n")
        run_module(f"reproduce.{entry.paper}.{module}", filled)


def stored(out: Path) -> bool:
    """Whether this is one of the files that hold the measurements of this repository."""
    return out.resolve().is_relative_to(catalogue.ROOT.resolve())


def main(paper: str, words: Sequence[str] | None = None) -> None:
    """The command of a paper: `python -m reproduce.PAPER TABLE --quick|--full`."""
    entries = catalogue.of_paper(paper)
    lines = [(table, entry.title, f"--full takes: {entry.needs}") for table, entry in entries.items()]
    parser = argparse.ArgumentParser(
        f"python -m reproduce.{paper}",
        description=f"Tables of {NAMES[paper]}:\n\n{catalogue.aligned(lines)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table", nargs="?", choices=entries, metavar="TABLE", help=", ".join(entries))
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a small version, which needs no downloads")
    size.add_argument("--full", action="store_true", help="as near to the paper as our scripts come")
    parser.add_argument("--data", type=Path, help="the folder of data sets, for --full; else MIXVEIL_DATA")
    parser.add_argument("--out", type=Path, help=f"default: in {QUICK} or {FULL}")
    parser.add_argument("--seed", type=int, default=0, help="of --quick")
    asked = parser.parse_args(words)
    if asked.table is None:
        parser.print_help()
        return
    entry = entries[asked.table]
    if not (asked.quick or asked.full):
        parser.error(f"table {asked.table}: say --quick ({entry.quick}) or --full (it takes: {entry.needs})")
    out: Path = asked.out or file_of(entry, QUICK if asked.quick else FULL)
    if asked.quick:
        if stored(out):
            parser.error(f"{out}: a quick table is not written among the measurements in {catalogue.ROOT}")
        print(f"{out}: {quick(entry, out, asked.seed):.0f} s; {entry.quick}")
        return
    if entry.downloads and asked.data is None and not os.environ.get("MIXVEIL_DATA"):
        parser.error(f"table {asked.table}: --full takes {entry.needs}: name their folder with --data or MIXVEIL_DATA")
    full(entry, out, asked.data)
    print(out)
