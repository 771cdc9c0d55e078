"""The update that a party sent last, kept as a release, so that its owner can attack it: `mixveil audit`.

It is not entered in the ledger: the rounds of its job were, under the same id.
"""

from __future__ import annotations

import json
import shutil
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load
from torch import Tensor, nn

from mixveil.core import files
from mixveil.core.wording.notes import note
from mixveil.features.split import layers
from mixveil.federated.jobs.job_folder import UPDATES, JobFolder
from mixveil.federated.jobs.round_order import RoundOrder
from mixveil.learn.sequence_head import PREFIX, ImageSequence
from mixveil.releases.envelope import MANIFEST, Envelope, parse
from mixveil.releases.kinds.updates import UpdateSettings
from mixveil.releases.updates import payload
from mixveil.releases.writing import write_tensors

if TYPE_CHECKING:
    from mixveil.federated.jobs.rounds import RowsInClear

FOLDER = "update"
"""Where it lies, in the folder of its job."""


@dataclass(frozen=True)
class Update:
    """What a party got and sent in one round.

    Attributes:
        tensors: The weights before and after, by the names that releases have.
        settings: What is said of them, but for the method.
    """

    tensors: Mapping[str, Tensor]
    settings: Mapping[str, Any]
    classes: tuple[str, ...]


def update_of(rows: RowsInClear, order: RoundOrder, before: bytes, after: bytes) -> Update:
    """From the weights of both messages. The network is told where it is a plain sequence of layers on pixels."""
    found = [{name.removeprefix(PREFIX): tensor for name, tensor in load(data).items()} for data in (before, after)]
    tensors, net = payload(*found), _network(rows, order)
    known = {
        "shapes": {name: tuple(tensor.shape) for name, tensor in tensors.items()},
        "shape": rows.shape,
        "low": rows.low,
        "high": rows.high if rows.high > rows.low else rows.low + 1,
        "training": order.training(rows.source.rows),
        "layers": None if net is None else layers.plain(net),
    }
    return Update(tensors, known, rows.classes)


def _network(rows: RowsInClear, order: RoundOrder) -> nn.Sequential | None:
    if rows.extractor.names:
        return None
    if order.head == "linear":
        dense = nn.Linear(rows.source.inputs, len(rows.classes))
        return nn.Sequential(OrderedDict(flat=nn.Flatten(), dense=dense))
    model = order.model(rows)
    return model.net if isinstance(model, ImageSequence) else None


def keep_update(kept: JobFolder, update: Update) -> None:
    """Write it into the job's folder, in place of the one of the round before. Its owner hears where it is once."""
    settings = UpdateSettings(method=kept.job.method, **update.settings)
    settings.check_network()
    entered = json.loads((kept.folder / UPDATES).read_text(encoding="utf-8"))["id"]
    out, new, old = (kept.folder / name for name in (FOLDER, f".{FOLDER}.new", f".{FOLDER}.old"))
    files.check_space(out, 2 * sum(tensor.nbytes for tensor in update.tensors.values()))
    for left in (new, old, *kept.folder.glob(f".{new.name}.*")):  # of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    with files.atomic_folder(new, entered[:8], 0o700) as folder:
        written = write_tensors(folder / settings.file_names(1)[0], update.tensors)
        envelope = Envelope(settings, kept.config.party, update.classes, files=(written,))
        text = replace(envelope, id=entered).to_json()
        parse(text)  # what would be refused when read is not written
        files.write_file(folder / MANIFEST, text.encode())
    first = not out.exists()
    _swap(out, new, old)
    if first:
        kept.log(note("update-kept", job=kept.job.name, path=str(out), data=kept.config.data))


def _swap(out: Path, new: Path, old: Path) -> None:
    if out.exists():
        out.rename(old)
    new.rename(out)
    shutil.rmtree(old, ignore_errors=True)
