"""What a party keeps of one job, in a folder: what it made, what its owner said of it, the models that came back."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

from mixveil import calibration, files, keys, projection, state, units
from mixveil.data import Images
from mixveil.encoders.singular import Singular
from mixveil.errors import BudgetError, DataFormatError, FalseClaimError, MismatchError, RefusedError
from mixveil.extractor import Extractor
from mixveil.federated.parcel import INLINE, MANIFEST, Parcel, Task
from mixveil.federated.settings import Settings
from mixveil.ledger import Entry, Ledger
from mixveil.model import CARD, TENSORS, read_model
from mixveil.projection import Projected
from mixveil.release import read_manifest, read_shard, verify_release, write_release
from mixveil.spending import Owners
from mixveil.statistics import FILE, read_statistics, write_statistics
from mixveil.types import Cost

Kind = Literal["statistics", "records", "updates"]
KINDS: tuple[Kind, ...] = ("statistics", "records", "updates")
STEPS: dict[str, tuple[Kind, ...]] = {
    "one-shot": ("records",),
    "two-step": ("statistics", "records"),
    "fedavg": ("updates",),
    "fedprox": ("updates",),
}
WAITING, REFUSED = "waiting-", "refused-"
_MODEL = (TENSORS, CARD)
_MOST_MODELS, _LARGEST_SIZE = 20, 512


class Desk:
    """What a party keeps of one job."""

    def __init__(self, folder: Path, settings: Settings, task: Task, say: Callable[[str], None]) -> None:
        self.settings, self.say, self.task = settings, say, task
        self.folder = folder / f"{task.name}-{task.id}"

    def check_same(self) -> None:
        """An id is one job's for ever: what was allowed for it is not allowed for another."""
        path = self.folder / "job.json"
        if path.exists() and Task.read(json.loads(path.read_text())) != self.task:
            raise RefusedError("this id is another job's")

    def begin(self, digest: str | None) -> None:
        """Write down which job this is."""
        path = self.folder / "job.json"
        if not path.exists():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            whole = {**self.task.plain(), "begun": _now(), "projection": digest, "settings": self.settings.plain()}
            files.write_json(path, whole)

    def keep_projection(self, digest: str, parcel: Parcel) -> bool:
        """Keep the projection that came with a parcel; whether it is there."""
        path = self._projection(digest)
        if path.exists():
            return True
        if "projection" not in parcel.files:
            return False
        if len(list(self.folder.glob("projection-*"))) >= len(STEPS[self.task.method]):
            raise RefusedError("this job has its projections already")
        data = parcel.files["projection"]
        files.check_space(path, len(data))
        if hashlib.sha256(data).hexdigest() != digest:
            raise RefusedError("the projection that came is not the one that was named")
        files.write_whole(path, data, 0o600)
        try:
            projection.read(path)
        except DataFormatError as error:
            path.unlink()
            raise RefusedError(f"what came is not a projection: {str(error).partition(': ')[2]}") from None
        return True

    def _projection(self, digest: str) -> Path:
        return self.folder / f"projection-{digest[:16]}.safetensors"

    @cached_property
    def _images(self) -> Images:
        return self.settings.images()

    def _projected(self, digest: str) -> Projected:
        found, _ = projection.read(self._projection(digest))
        features, weights = self.settings.features(self._images, modest(found.extractor), found.weights)
        protected = self.settings.certified or self.settings.label_epsilon is not None
        rows = projection.projected(features, weights, found, certified=protected)
        if found.classes and rows.classes != found.classes:
            raise MismatchError("your data do not have the classes of the statistics, in the same order")
        if self.settings.certified and not found.spent and (shared := projection.shared(found, self._images)):
            self.say(
                f"warning: {shared} of your images were used to fit the projection: it is not public for them, and "
                f"what is certified does not hold"
            )
        return rows

    def make_statistics(self) -> None:
        """Noisy class sums, with half of μ²; refused where the second step would be beyond the budget."""
        mu, digest = self._mu(), self._digest()
        rows = self._projected(digest)
        book = Ledger()
        owners = book.owners(self._images)
        limits = [limit for limit in (self.settings.budget, book.budget) if limit is not None]
        row = mu / units.largest(rows)  # of a unit's rows each costs its share
        if limits and book.spent(owners, Cost(row, row, 1.0)).most > min(limits) * (1 + 1e-9):
            raise BudgetError(f"both steps would cost some record more than the budget of {min(limits):g}")
        write_statistics(
            self.folder / "statistics",
            rows,
            digest,
            mu / math.sqrt(2),
            party=self.settings.party,
            stream=keys.SecureStream(),
            label_epsilon=self._label_epsilon,
            recipient=self._recipient,
            budget=self.settings.budget,
            owners=owners,
        )

    def make_records(self, digest: str | None) -> None:
        """Encode all rows: as they are, or through the projection; in the second of two steps with half of μ²."""
        rows: Images | Projected = self._images
        clip, assets, target = None, {}, self.settings.target
        if digest is not None:
            rows = self._projected(digest)
            clip, assets = rows.projection.clip, {"projection": digest}
        if self.task.method == "two-step":
            self._check_own(rows)
            target = type(target)(self._mu() / math.sqrt(2))
        stream = keys.SecureStream()
        encoder, guarantees, warnings = calibration.calibrate(
            Singular(), target, rows, clip=clip, stream=stream.fork("facts")
        )
        for text in warnings:
            self.say(f"warning: {text}")
        write_release(
            self.folder / "records",
            rows,
            encoder,
            guarantees,
            party=self.settings.party,
            stream=stream.fork("release"),
            assets=assets,
            label_epsilon=self._label_epsilon,
            recipient=self._recipient,
            budget=self.settings.budget,
        )

    def _check_own(self, rows: Images | Projected) -> None:
        """The directions of the second step are found from the first one's statistics, the party's own among them."""
        if not (self.folder / "statistics").exists():
            raise RefusedError("it sent no statistics for this job")
        own = read_statistics(self.folder / "statistics")
        used = rows.projection.spent if isinstance(rows, Projected) else ()
        if (own.id, own.party) not in {(item.id, item.party) for item in used}:
            raise RefusedError("the directions were not found from its statistics")

    def enter_updates(self, images: Images) -> None:
        """Enter the rounds of this job in the ledger, once, before anything leaves; on other records than those that
        were entered there are none."""
        book, path = Ledger(), self.folder / "updates.json"
        owners = book.owners(images)
        if path.exists():
            if json.loads(path.read_text())["owners"] != _digest(owners):
                raise MismatchError("your data are not those that this job was entered with: it is over")
            return
        promised = Entry(
            id=keys.release_id(),
            kind="updates",
            party=self.settings.party,
            recipient=self._recipient,
            encoder=self.task.method,
            sigma=None,
            cost=None,
            stated=None,
            label_epsilon=None,
            rows=len(images),
        )
        with book.making(promised, owners, self.settings.budget):
            files.write_json(path, {"id": promised.id, "owners": _digest(owners)})

    @property
    def entered(self) -> bool:
        return (self.folder / "updates.json").exists()

    def manifest(self, kind: Kind) -> bytes:
        """The manifest of what was made, if it is as it was written here."""
        folder = self.folder / kind
        written = (folder / MANIFEST).read_bytes()
        if kind == "records":
            identity = read_manifest(folder).id
            if state.recorded_manifest(identity) != hashlib.sha256(written).hexdigest():
                raise FalseClaimError(f"{folder}: its manifest was changed since it was written here")
        return written

    def verify(self, kind: Kind) -> None:
        """Check all of it, before it is offered."""
        if kind == "statistics":
            read_statistics(self.folder / kind)
        else:
            verify_release(self.folder / kind)

    def small_files(self, kind: Kind) -> dict[str, bytes]:
        """Its first files, as many as go with its manifest: a small release needs no further question."""
        names = [FILE] if kind == "statistics" else [s.file for s in read_manifest(self.folder / kind).shards]
        found, room = {}, INLINE
        for name in names:
            room -= (self.folder / kind / name).stat().st_size
            if room < 0:
                break
            found[name] = (self.folder / kind / name).read_bytes()
        return found

    def file(self, kind: Kind, name: str) -> bytes:
        """One of its files, checked once more."""
        folder = self.folder / kind
        if kind == "statistics" and name == FILE:
            read_statistics(folder)
            return (folder / FILE).read_bytes()
        stated = read_manifest(folder) if kind == "records" else None
        for shard in stated.shards if stated else ():
            if stated is not None and shard.file == name:
                read_shard(folder, stated, shard)
                return (folder / name).read_bytes()
        raise RefusedError(f"there is no file {name!r:.60} in it")

    def approved(self, kind: Kind) -> bool:
        """Whether it may leave. What promises nothing never leaves without."""
        if (self.folder / f"{REFUSED}{kind}").exists():
            raise RefusedError("its owner said no")
        return (not self.settings.approve and kind != "updates") or is_approved(self.folder, kind)

    def mark_waiting(self, kind: Kind) -> bool:
        """Remember that something waits for its owner; whether it is new."""
        path = self.folder / f"{WAITING}{kind}"
        new = not path.exists()
        path.touch(0o600)
        return new

    def keep_model(self, parcel: Parcel) -> None:
        """The model that came back, beside those that came before."""
        if set(parcel.files) != set(_MODEL):
            raise RefusedError("a model has a card and tensors")
        if not (self.folder / "job.json").exists():
            raise RefusedError("it took no part in this job")
        files.check_space(self.folder, parcel.bytes)
        for out in self._models():
            if out.exists():
                if all((out / name).read_bytes() == parcel.files[name] for name in _MODEL):
                    return
                continue
            with files.atomic_folder(out, "model", 0o700) as folder:
                for name in _MODEL:
                    files.write_file(folder / name, parcel.files[name], 0o600)
                try:
                    read_model(folder)
                except DataFormatError as error:
                    raise RefusedError(f"what came is not a model: {str(error).partition(': ')[2]}") from None
            self.say(f"the model of {self.task.name} is here: {out}")
            return

    def _models(self) -> Iterator[Path]:
        yield self.folder / "model"
        for number in range(2, _MOST_MODELS + 1):
            yield self.folder / f"model-{number}"
        raise RefusedError(f"it has {_MOST_MODELS} models of this job already")

    @property
    def _label_epsilon(self) -> float | None:
        """Of one step: labels are randomised in each."""
        epsilon = self.settings.label_epsilon
        return epsilon if epsilon is None or self.task.method != "two-step" else epsilon / 2

    def _mu(self) -> float:
        if self.settings.mu is None:
            raise RefusedError("two steps are certified, and this party has no μ")
        return self.settings.mu

    def _digest(self) -> str:
        digest = json.loads((self.folder / "job.json").read_text())["projection"]
        if digest is None:
            raise RefusedError("statistics go through a projection, and none came")
        return str(digest)

    @property
    def _recipient(self) -> str:
        return f"{self.settings.to or 'the server'}, job {self.task.name}"


def what_is_looked_at(folder: Path, kind: Kind) -> str:
    """The SHA-256 of what an owner approves: a manifest, or the job itself where there is none."""
    if kind == "updates":
        return hashlib.sha256(Task.read(json.loads((folder / "job.json").read_text())).id.encode()).hexdigest()
    return hashlib.sha256((folder / kind / MANIFEST).read_bytes()).hexdigest()


def is_approved(folder: Path, kind: Kind) -> bool:
    """Whether the owner approved what a job's folder holds of a kind, as it is now."""
    path = folder / f"approved-{kind}.json"
    return path.exists() and bool(json.loads(path.read_text())["sha256"] == what_is_looked_at(folder, kind))


def approve(folder: Path, kind: Kind, *, looked_at: Literal["figures", "audit"]) -> None:
    """The owner looked at it, and lets it leave."""
    whole = {"sha256": what_is_looked_at(folder, kind), "looked_at": looked_at, "when": _now()}
    files.write_json(folder / f"approved-{kind}.json", whole)


def refuse(folder: Path, kind: Kind) -> None:
    """The owner looked, and says no for good."""
    (folder / f"{REFUSED}{kind}").touch(0o600)


def _digest(owners: Owners) -> str:
    whole = owners.records.tobytes() + (b"" if owners.units is None else owners.units.tobytes())
    return hashlib.sha256(whole).hexdigest()


def modest(extractor: Extractor) -> Extractor:
    """Features that a server may ask for: larger images would keep the machine busy."""
    if extractor.size > _LARGEST_SIZE:
        raise RefusedError(f"images of {extractor.size} pixels are more than the {_LARGEST_SIZE} that it computes")
    return extractor


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
