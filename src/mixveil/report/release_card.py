"""The card of a release: one page that a data protection officer reads and signs, and the same as data.

All of it follows from the release's own folder, which its recipients get, and from what the card's maker adds. Records,
traces and audits are not looked at, and a ledger only where it is given.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mixveil.core import files, strict_json
from mixveil.core.errors import ArgumentError, ManifestError, UnreadableFileError, one_line
from mixveil.core.types import ANY_ROWS
from mixveil.core.wording.notes import Note
from mixveil.releases import notes
from mixveil.releases.envelope import MANIFEST, Envelope, parse
from mixveil.releases.kinds.records import RecordSettings
from mixveil.releases.kinds.representations import RepresentationSettings
from mixveil.releases.kinds.sums import SumSettings
from mixveil.releases.kinds.updates import AFTER, UpdateSettings
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import Verified, verify
from mixveil.report import card_statements
from mixveil.report.pages import amount, environment

FORMAT, VERSION = "mixveil-release-card", 1
PAGE, DATA = "card.html", "card.json"
_FILES_SHOWN, _CLASSES_SHOWN, _NAME = 6, 24, 40
_LONGEST = 1000  # characters of what the card's maker adds


@dataclass(frozen=True)
class ReleaseCard:
    """The card of a release that was verified.

    Attributes:
        checked: The release.
        whole: The card as data: `card.schema.json` beside this file is its format.
        folder: Where the page and the data were written; None where they were not.
    """

    checked: Verified
    whole: Mapping[str, Any]
    folder: Path | None = None

    @property
    def page(self) -> Path | None:
        return None if self.folder is None else self.folder / PAGE


def card(
    release: Path | str,
    out: Path | str | None = None,
    *,
    recipient: str | None = None,
    note: str | None = None,
    ledger: Ledger | None = None,
) -> ReleaseCard:
    """Verify a release of any kind, and make a card of it that its owner reads and signs.

    Args:
        release: Its folder. What does not verify is refused, and nothing is written.
        out: The folder to make, with the page and the data; None: nothing is written.
        recipient: Who is to get it. None: a line to fill in.
        note: A line of the card's maker, such as where an audit of public data is kept.
        ledger: Add what all releases in it cost together. That is its owner's: such a card is written for them alone.
    """
    folder = Path(release)
    added = {"recipient": _line("recipient", recipient), "note": _line("note", note)}
    if out is not None:
        files.check_new(Path(out))
    checked = verify(folder)
    whole = _card_json(checked, _digest(checked), **added)
    if ledger is not None:
        entry = next((entry for entry in ledger.entries() if entry.id == checked.stated.id), None)
        whole["ledger"] = card_statements.of_ledger(ledger.total(), known=entry is not None)
        if recipient is None and entry is not None:
            whole["release"]["recipient"] = entry.recipient
    if out is None:
        return ReleaseCard(checked, whole)
    _write(Path(out), whole, private=ledger is not None)
    return ReleaseCard(checked, whole, Path(out))


def _line(name: str, text: str | None) -> str | None:
    if text is not None and not (text.isprintable() and 0 < len(text) <= _LONGEST):
        raise ArgumentError(f"{name} must be one line of 1 to {_LONGEST:,} printable characters, got {text!r:.60}")
    return text


def _digest(checked: Verified) -> str:
    """The SHA-256 of the manifest that was checked: it names those of all files."""
    try:
        data = files.read_small(checked.folder / MANIFEST, strict_json.MANIFEST_LIMIT)
    except UnreadableFileError as error:
        raise ManifestError(f"{checked.folder} is no longer a release: {error}") from None
    if parse(strict_json.decoded(data)) != checked.stated:
        raise ManifestError(f"{checked.folder}: the manifest changed while the release was checked")
    return sha256(data).hexdigest()


def _write(out: Path, whole: Mapping[str, Any], *, private: bool) -> None:
    mode = 0o600 if private else 0o644
    with files.atomic_folder(out, whole["release"]["id"][:8], 0o700 if private else 0o755) as folder:
        data = json.dumps(whole, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        files.write_file(folder / DATA, data.encode(), mode)
        files.write_file(folder / PAGE, _page(whole).encode(), mode)


def _card_json(checked: Verified, digest: str, *, recipient: str | None, note: str | None) -> dict[str, Any]:
    stated = checked.stated
    return {
        "format": FORMAT,
        "version": VERSION,
        "made": {"at": datetime.now(UTC).isoformat(timespec="seconds"), "mixveil": version("mixveil")},
        "release": _release(stated, digest, recipient),
        "leaves": _leaves(checked),
        "state": card_statements.state(stated).plain(),
        "promised": [
            card_statements.promise(
                of,
                certified=stated.certified,
                randomised=bool(stated.label_cost),
                paired=card_statements.paired(stated),
            )
            for of in stated.guarantees
        ],
        "labels": card_statements.labels(stated),
        "not_promised": _plain(card_statements.not_promised(stated)),
        "cost": _plain(card_statements.cost(stated)),
        "ledger": None,
        "checked": _plain(card_statements.checked(stated)),
        "assumed": _plain(card_statements.assumed(stated)),
        "note": note,
    }


def _plain(told: list[Note]) -> list[dict[str, Any]]:
    return [item.plain() for item in told]


def _release(stated: Envelope, digest: str, recipient: str | None) -> dict[str, Any]:
    return {
        "id": stated.id,
        "kind": stated.kind,
        "encoder": stated.settings.defence,
        "party": stated.party,
        "recipient": recipient,
        "created": stated.created,
        "certified": stated.certified,
        "reproducible": stated.reproducible,
        "manifest_sha256": digest,
    }


def _leaves(checked: Verified) -> dict[str, Any]:
    """What leaves, in figures that every recipient sees. units: what the promise speaks of."""
    stated = checked.stated
    rows, values = _sizes(stated)
    return {
        "what": stated.settings.note(stated).plain(),
        "rows": rows,
        "values_per_row": values,
        "bytes": stated.bytes,
        "files": [asdict(file) for file in stated.files],
        "not_part_of_it": len(checked.others),
        "classes": list(stated.classes),
        "assets": dict(stated.assets),
        "unit": {
            "of": "record" if stated.unit_rows == 1 else "unit",
            "most_rows": None if stated.unit_rows == ANY_ROWS else stated.unit_rows,
        },
        "made": _plain(card_statements.made(stated)),
    }


def _sizes(stated: Envelope) -> tuple[int | None, int | None]:
    """How many rows leave, with how many values each, labels aside; None where a kind of payload has none."""
    settings = stated.settings
    if isinstance(settings, RecordSettings):
        return stated.rows, math.prod(settings.shape)
    if isinstance(settings, RepresentationSettings):
        return stated.rows, settings.values
    if isinstance(settings, SumSettings):
        return settings.shape
    if isinstance(settings, UpdateSettings):
        after = [shape for name, shape in settings.shapes.items() if name.startswith(AFTER)]
        return None, sum(map(math.prod, after)) or None
    return stated.rows or None, None


def _page(whole: Mapping[str, Any]) -> str:
    """The card for people: of many files and classes the first, as the data have all."""
    leaves = whole["leaves"]
    bounds = [item for item in whole["promised"] if item["mu"] is not None]
    label_kept = any(item["assumes"].get("neighbours") in notes.LABEL_KEPT for item in bounds)
    made = environment()
    made.filters["amount"] = amount
    text: str = made.get_template("card.html.j2").render(
        card=whole,
        release=whole["release"],
        leaves=leaves,
        files=leaves["files"][:_FILES_SHOWN],
        classes=[one_line(name, _NAME) for name in leaves["classes"][:_CLASSES_SHOWN]],
        bounds=bounds,
        meaning="members-meaning-of-label" if label_kept else "members-meaning",
        description=DATA,
    )
    return text
