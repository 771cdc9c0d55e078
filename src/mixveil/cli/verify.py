"""`mixveil verify`: check a release of any party."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mixveil.cli._common import AsJson, look_at_json, out, print_json, warn_of_others
from mixveil.cli._release import show, summary


def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a release.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Check a release: sizes, hashes, dtypes, shapes, finiteness, grid, labels, and that what it certifies follows from
    its own settings. Files in the folder that its manifest does not name are listed. Whether the noise was really drawn
    as stated, only its owner can tell."""
    look_at_json(folder / "manifest.json", "a release")
    from mixveil.core.files import others
    from mixveil.core.wording.sentences import sentence
    from mixveil.releases.envelope import MANIFEST
    from mixveil.releases.reading import verify_release

    stated = verify_release(folder)
    beside = others(folder, {MANIFEST, *(file.name for file in stated.files)})
    if as_json:
        print_json({"verified": True, "release": str(folder), "not_part_of_it": beside, **summary(stated)})
        return
    show(folder, stated)
    _say_verified(beside)
    if stated.guarantees:
        out.print(sentence("promises-hold" if stated.certified else "states-only"))


def _say_verified(beside: list[str]) -> None:
    """Speak of the whole folder only where the manifest does."""
    if not beside:
        out.print("[green]verified[/]: every byte is as the manifest says.")
        return
    out.print("[green]verified[/]: every byte of the files that the manifest names is as it says.")
    warn_of_others(beside, "release")
