"""Write an audit of one's own releases: figures, pictures and a page, for their owner only."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from mixveil.audit.own_releases import Audited
from mixveil.report.audit_page import to_json, write_audit


def write_report(out: Path | str, audited: Audited, *, command: str = "") -> Path:
    """Write an audit as a folder that only its owner should see. It must not exist. The path of its page.

    command: what makes it again, for the page."""
    folder = Path(out)
    write_audit(folder, audited.audit, provenance(audited, command), audited.swept)
    return folder / "report.html"


def plain(audited: Audited, *, command: str = "") -> dict[str, Any]:
    """For JSON."""
    return to_json(audited.audit, provenance(audited, command), audited.swept)


def provenance(audited: Audited, command: str) -> dict[str, Any]:
    """What it takes to do it again."""
    versions = {name: version(name) for name in ("mixveil", "torch")}
    return {"command": command, **versions, "seed": audited.seed}
