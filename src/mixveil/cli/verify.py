"""`mixveil verify`: check a release, whoever made it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mixveil.cli import statistics
from mixveil.cli._common import AsJson, out, print_json
from mixveil.cli._release import show, summary


def verify(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of a release, or of statistics.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Check a release: sizes, hashes, dtypes, shapes, finiteness, grid, labels, and that what it certifies follows from
    its own settings. Whether the noise was really drawn as stated, only its owner can tell."""
    from mixveil.release import verify_release
    from mixveil.statistics import is_statistics, read_statistics

    if is_statistics(folder):
        sums = read_statistics(folder)
        if as_json:
            print_json({"verified": True, "statistics": str(folder), **statistics.summary(sums)})
            return
        statistics.show(folder, sums)
        out.print("[green]verified[/]: every byte is as the manifest says.")
        return
    stated = verify_release(folder)
    if as_json:
        print_json({"verified": True, "release": str(folder), **summary(stated)})
        return
    show(folder, stated)
    out.print("[green]verified[/]: every byte is as the manifest says.")
    if stated.certified:
        out.print("What it certifies follows from its settings, provided the noise was drawn as they say.")
    elif stated.guarantees:
        out.print("What it states rests on the party's word: a reader cannot check it.")
