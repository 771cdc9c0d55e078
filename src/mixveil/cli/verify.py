"""`mixveil verify`: check a release of any party."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mixveil.cli import _release
from mixveil.cli._common import AsJson, look_at, plain, print_json, say, warn, warn_of_others


def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a release, or of statistics.")],
    as_json: AsJson = False,
) -> None:
    """Check a release: sizes, hashes, dtypes, shapes, finiteness, grid, labels, and that what it certifies follows from
    its own settings. Files in the folder that its manifest does not name are listed. Only its owner can tell whether
    the noise was really drawn as stated."""
    look_at(folder / "manifest.json", "a release")
    import mixveil

    checked = mixveil.verify(folder)
    stated = checked.stated
    if as_json:
        told = {"verified": True, "release": str(folder), "not_part_of_it": list(checked.others)}
        told["warnings"] = plain(checked.warnings)
        print_json({**told, **_release.summary(stated)})
        return
    _release.show(folder, stated)
    if checked.others:  # speak of the whole folder only where the manifest does
        say("[green]verified[/]: every byte of the files that the manifest names is as it says.")
        warn_of_others(checked.others, "release")
    else:
        say("[green]verified[/]: every byte is as the manifest says.")
    for warning in checked.warnings:
        warn(warning)
    if stated.certified:
        say("What it certifies follows from its settings, provided the noise was drawn as they say.")
    elif stated.guarantees:
        say("What it states rests on the party's word: a reader cannot check it.")
