"""A release for the terminal: what it is, what is promised, what is not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixveil.cli._common import escape, say

if TYPE_CHECKING:
    from mixveil.releases.envelope import Envelope


def summary(written: Envelope) -> dict[str, Any]:
    """What a release says of itself, for `--json`."""
    whole = written.plain()
    whole = {**whole["payload"], **whole, "rows": written.rows, "bytes": written.bytes}
    for name in ("format", "version", "created", "files", "payload"):
        del whole[name]
    return {**whole, "encoder": written.settings.defence}


def show(folder: Path, written: Envelope) -> None:
    from mixveil.releases import notes

    say(f"[bold]{escape(str(folder))}[/]: {escape(str(written.settings.note(written)))}")
    for told in notes.details(written):
        say(f"  {escape(str(told))}")
    for told in notes.promises(written):
        stated = told.code != "label-dp" and not written.certified
        say(f"  {'stated' if stated else 'promised'}: {escape(str(told))}")
    kind = "[green]certified[/]" if written.certified else "[yellow]not certified[/]"
    say(f"  {kind}, id {written.id}")
    for told in notes.not_promised(written):
        say(f"  [dim]not promised:[/] {escape(str(told))}")
