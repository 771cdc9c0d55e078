"""Writing a release of any kind: a folder with `manifest.json` and safetensors files.

Writing is atomic: everything is made in a hidden folder beside the output and renamed in one step, so that a killed
process leaves no release that verifies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from mixveil.core import files
from mixveil.core.errors import ArgumentError
from mixveil.core.types import Dataset, Trace
from mixveil.releases import traces
from mixveil.releases.envelope import MANIFEST, Envelope, File, parse
from mixveil.releases.ledger import Against, Entry, Ledger
from mixveil.releases.spending import Owners

Produced = tuple[Iterable[File], Callable[[], Trace] | None]
"""Files that are written as they are asked for; and the trace, once all of them are there, for a kind that has one."""


def write(
    out: Path,
    rows: Dataset,
    envelope: Envelope,
    produce: Callable[[Path], Produced],
    *,
    space: int,
    recipient: str | None = None,
    budget: float | None = None,
    label_budget: float | None = None,
    against: Against = "records",
    owners: Owners | None = None,
    ledger: Ledger | None = None,
) -> Envelope:
    """Write a release of these rows, and return its envelope with its files. envelope: without files; produce: writes
    them into a folder; space: about how many bytes they take.

    It is entered in the owner's ledger before a byte is written, and refused where it would cost some record more than
    the budget, or its label more than the label budget; against: what budgets are compared with (`ledger.Against`).
    Images that changed since they were entered are refused, and the entry counts. recipient: to whom it goes, for the
    ledger; owners: what `Ledger.owners` said of the rows. The trace goes to the owner's state folder, nowhere else.
    """
    check_output(out, envelope.party)
    files.check_space(out, space)
    ledger = Ledger() if ledger is None else ledger
    owners = ledger.owners(rows) if owners is None else owners
    if (rows.units is None) != (owners.units is None):
        raise ArgumentError("the rows have units, and their owners none, or the other way round")
    entry = entry_of(envelope, len(rows), recipient)
    with ledger.making(entry, owners, budget, label_budget=label_budget, against=against):
        try:
            with files.atomic_folder(out, envelope.id[:8]) as folder:
                written, trace = produce(folder)
                envelope = replace(envelope, files=tuple(written))
                ledger.confirm(rows, owners)
                text = envelope.to_json()
                parse(text)  # what would be refused when read is not written
                if trace is not None:
                    traces.save_trace(envelope.id, trace(), hashlib.sha256(text.encode()).hexdigest())
                files.write_file(folder / MANIFEST, text.encode())
        except BaseException:
            if not out.exists():  # once it is there its owner needs the trace
                traces.discard_trace(envelope.id)
            raise
        files.sync_folder(out.parent)
    return envelope


def write_tensors(path: Path, tensors: Mapping[str, Tensor], rows: int | None = None) -> File:
    """Write one file of a release. rows: how many it holds, where its kind has rows."""
    data = save(dict(tensors))
    files.write_file(path, data)
    return File(path.name, len(data), hashlib.sha256(data).hexdigest(), rows)


def check_output(out: Path, party: str) -> None:
    """What can be refused before any work is done."""
    files.check_new(out)
    if not party or not party.isprintable() or len(party) > 1000:
        raise ArgumentError(f"party must be a printable name of at most 1000 characters, got {party!r}")


def entry_of(envelope: Envelope, rows: int, recipient: str | None) -> Entry:
    """What the ledger keeps of a release."""
    return Entry(
        id=envelope.id,
        kind=envelope.kind,
        party=envelope.party,
        recipient=recipient,
        encoder=envelope.settings.defence,
        sigma=envelope.settings.noise,
        cost=envelope.settings.cost() if envelope.certified else None,
        stated=envelope.mu,
        label_epsilon=None if envelope.reproducible else envelope.label_epsilon,
        rows=rows,
    )
