"""Several audits on one page, side by side: what each attack makes of one release, and of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixveil.audit.figures import attack_title, caption
from mixveil.core import files
from mixveil.core.errors import ArgumentError, DataFormatError
from mixveil.core.wording.sentences import plural
from mixveil.report.audit_page import BROKEN_FILE, kind_of, read_audit, strips
from mixveil.report.pages import environment

_COMPARED = ("mse", "snr-db", "ssim")
"""By which the best attacks of audits of different kinds are compared."""


@dataclass(frozen=True)
class Column:
    """One audit. kind: of its releases; figures: by attack and metric; runs: by attack; strips: pictures, by what they
    are of."""

    name: str
    kind: str
    audit: Mapping[str, Any]
    figures: Mapping[tuple[str, str], Mapping[str, Any]]
    runs: Mapping[str, Mapping[str, Any]]
    strips: Mapping[str, list[str]]

    @property
    def best(self) -> str | None:
        """The attack that leaves the least error; attackers who have some of the records are spoken of apart."""
        errors = [figure for (_, metric), figure in self.figures.items() if metric == "mse"]
        fair = [figure for figure in errors if figure["kind"] != "prior" and figure["known"] is None]
        return min(fair, key=lambda figure: float(figure["mean"]))["attack"] if fair else None


def write_beside(folders: Sequence[Path | str], out: Path | str) -> Path:
    """One page of several audits, in their order, for their owner's eyes. It must not exist."""
    paths, out = [Path(folder) for folder in folders], Path(out)
    if len(paths) < 2:
        raise ArgumentError(f"audits are set side by side, two at least, got {len(paths)}")
    files.check_new(out)
    files.check_writable(out)
    columns = [_column(path) for path in paths]
    try:
        text = _page(columns)
    except BROKEN_FILE as error:
        raise DataFormatError(f"an audit.json is not whole: {error}") from None
    files.write_file(out, text.encode(), 0o600)
    return out


def _column(folder: Path) -> Column:
    whole, pictures = read_audit(folder)
    try:
        figures = {(figure["attack"], figure["metric"]): figure for figure in whole["figures"]}
        runs = {run["attack"]: run for run in whole["attacks"]}
        return Column(folder.resolve().name, kind_of(whole), whole, figures, runs, strips(whole, pictures))
    except BROKEN_FILE as error:
        raise DataFormatError(f"{folder}: its audit.json is not whole: {error}") from None


def _page(columns: list[Column]) -> str:
    rows = list(dict.fromkeys(key for column in columns for key in column.figures))
    shown = list(dict.fromkeys(name for column in columns for name in column.strips))
    shown.sort(key=lambda name: (name not in ("original", "released"), name))
    kinds = list(dict.fromkeys(column.kind for column in columns))
    words = {"title": attack_title, "caption": caption, "plural": plural, "kinds": kinds, "compared": _COMPARED}
    page: str = environment().get_template("beside.html.j2").render(columns=columns, rows=rows, shown=shown, **words)
    return page
