"""Writing a release of any kind: a folder with `manifest.json` and safetensors files.

Writing is atomic: everything is made in a hidden folder beside the output and renamed in one step, so that a killed
process leaves no release that verifies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

from safetensors.torch import save
from torch import Tensor

from mixveil.core import checks, files
from mixveil.core.errors import ArgumentError
from mixveil.core.types import Dataset, Trace
from mixveil.data import privacy_units
from mixveil.releases import traces
from mixveil.releases.envelope import MANIFEST, Envelope, File, parse
from mixveil.releases.ledger import Against, Entry, Ledger
from mixveil.releases.spending import Owners

Produced = tuple[Iterable[File], Callable[[], Trace] | None]
"""Files that are written as they are asked for; and the trace, once all of them are there, for a kind that has one."""


class LedgerTerms(TypedDict, total=False):
    """How a release is entered in its owner's ledger.

    Attributes:
        recipient: To whom it goes.
        budget: The release is refused where it would bring a record beyond this μ.
        label_budget: The release is refused where it would bring a label beyond this ε.
        against: What budgets are compared with; `records` unless another is given.
        plan: The plan whose reservation pays for it.
        owners: What `Ledger.owners` said of the rows; else they are read now.
        ledger: Else that of the state folder.
    """

    recipient: str | None
    budget: float | None
    label_budget: float | None
    against: Against
    plan: str | None
    owners: Owners | None
    ledger: Ledger | None


def write(
    out: Path,
    rows: Dataset,
    envelope: Envelope,
    produce: Callable[[Path], Produced],
    *,
    space: int,
    **terms: Unpack[LedgerTerms],
) -> Envelope:
    """Write a release of these rows, and return its envelope with its files. envelope: without files; produce: writes
    them into a folder; space: about how many bytes they take.

    The release is entered in the ledger before a byte is written. Images that changed since they were entered are
    refused, and the entry counts. The trace goes to the owner's state folder, nowhere else.
    """
    check_output(out, envelope.party)
    files.check_space(out, space)
    ledger = terms.get("ledger") or Ledger()
    owners = terms.get("owners") or ledger.owners(rows)
    if (rows.units is None) != (owners.units is None):
        raise ArgumentError("owners must name units where the rows do, and only there")
    if envelope.certified and (largest := privacy_units.largest(rows)) > envelope.unit_rows:
        raise ArgumentError(f"a unit has {largest} rows, and the envelope promises to units of {envelope.unit_rows}")
    entry = entry_of(envelope, len(rows), terms.get("recipient"))
    budget, label_budget = terms.get("budget"), terms.get("label_budget")
    against, plan = terms.get("against", "records"), terms.get("plan")
    with ledger.making(entry, owners, budget, label_budget=label_budget, against=against, plan=plan):
        try:
            with files.atomic_folder(out, envelope.id[:8]) as folder:
                written, trace = produce(folder)
                envelope = replace(envelope, files=tuple(written))
                ledger.confirm(rows, owners)
                text = envelope.to_json()
                parse(text)  # what would be refused when read is not written
                if trace is not None:
                    traces.save_trace(envelope.id, trace(), hashlib.sha256(text.encode()).hexdigest(), ledger.folder)
                files.write_file(folder / MANIFEST, text.encode())
        except BaseException:
            if not out.exists():  # once it is there its owner needs the trace
                traces.discard_trace(envelope.id, ledger.folder)
            raise
        files.sync_folder(out.parent)
    return envelope


def write_tensors(path: Path, tensors: Mapping[str, Tensor], rows: int | None = None) -> File:
    """Write one file of a release. rows: how many rows it holds, where its kind has rows."""
    data = save(dict(tensors))
    files.write_file(path, data)
    return File(path.name, len(data), hashlib.sha256(data).hexdigest(), rows)


def check_output(out: Path, party: str) -> None:
    """Refuse a folder that exists and a party without a short printable name, before any work is done."""
    files.check_new(out)
    checks.name("party", party)


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
        label_epsilon=envelope.label_cost,
        rows=rows,
    )
