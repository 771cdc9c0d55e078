"""`mixveil verify`: check a release, whoever made it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mixveil.cli import statistics
from mixveil.cli._common import AsJson, look_at_json, out, print_json, warn_of_others
from mixveil.cli._release import show, summary


def verify(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of a release, or of statistics.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Check a release: sizes, hashes, dtypes, shapes, finiteness, grid, labels, and that what it certifies follows from
    its own settings. Files in the folder that its manifest does not name are listed. Whether the noise was really drawn
    as stated, only its owner can tell."""
    look_at_json(folder / "manifest.json", "a release")
    from mixveil.core.files import others
    from mixveil.releases.records import MANIFEST, verify_release
    from mixveil.releases.sums import FILE, is_statistics, read_statistics

    if is_statistics(folder):
        sums = read_statistics(folder)
        beside = others(folder, {MANIFEST, FILE})
        if as_json:
            told = {"verified": True, "statistics": str(folder), "not_part_of_it": beside}
            print_json({**told, **statistics.summary(sums)})
            return
        statistics.show(folder, sums)
        _say_verified("statistics", beside)
        return
    stated = verify_release(folder)
    beside = others(folder, {MANIFEST, *(shard.file for shard in stated.shards)})
    if as_json:
        told = {"verified": True, "release": str(folder), "not_part_of_it": beside}
        print_json({**told, **summary(stated)})
        return
    show(folder, stated)
    _say_verified("release", beside)
    if stated.certified:
        out.print("What it certifies follows from its settings, provided the noise was drawn as they say.")
    elif stated.guarantees:
        out.print("What it states rests on the party's word: a reader cannot check it.")


def _say_verified(what: str, beside: list[str]) -> None:
    """Speak of the whole folder only where the manifest does."""
    if not beside:
        out.print("[green]verified[/]: every byte is as the manifest says.")
        return
    out.print("[green]verified[/]: every byte of the files that the manifest names is as it says.")
    warn_of_others(beside, what)
