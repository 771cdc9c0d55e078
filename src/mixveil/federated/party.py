"""A party's side of a job: it makes what it is asked for once, keeps it, and sends what it kept.

What leaves is decided by the party's own settings, never by the server's wish and never by what the data are: errors
that could tell of the data are for the owner's eyes, and the server hears only that there was one.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load, save

from mixveil import calibration, files, keys, projection, state, strict, units
from mixveil.data import Images
from mixveil.encoders.singular import Singular
from mixveil.errors import BudgetError, DataFormatError, FalseClaimError, MismatchError, RefusedError
from mixveil.extractor import Extractor
from mixveil.federated.algorithms import local, new_head
from mixveil.federated.parcel import INLINE, MANIFEST, Parcel, Task, printable
from mixveil.federated.settings import Settings
from mixveil.ledger import Entry, Ledger
from mixveil.model import read_model
from mixveil.projection import Projected
from mixveil.release import read_manifest, read_shard, verify_release, write_release
from mixveil.spending import Owners
from mixveil.statistics import read_statistics, write_statistics
from mixveil.train.batches import RemixedEveryBatch, Source
from mixveil.train.fit import Recipe
from mixveil.types import Cost

Kind = Literal["statistics", "records", "updates"]
SUMS = "sums.safetensors"
FAILED = "it could not be made; its owner sees why"
WAITING, REFUSED = "waiting-", "refused-"
MOST_WAITING = 10
"""Jobs that may wait for their owner at a time."""

_ENTERED = "updates.json"
_MOST_MODELS, _LARGEST_SIZE = 20, 512
_MODEL = ("model.safetensors", "card.json")
_STEPS: dict[str, tuple[Kind, ...]] = {
    "one-shot": ("records",),
    "two-step": ("statistics", "records"),
    "fedavg": ("updates",),
    "fedprox": ("updates",),
}


class Party:
    """Answers what a server asks. say: tells the owner what happens."""

    def __init__(self, settings: Settings, say: Callable[[str], None] = lambda text: None) -> None:
        self.settings, self.say = settings, say
        self.folder = Path(settings.folder) / settings.party
        self._owners: tuple[Images, str] | None = None

    def answer(self, parcel: Parcel) -> Parcel:
        """Whatever happens, there is an answer, and it tells nothing that must not be told. One at a time: what is made
        is made once."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with files.locked(self.folder / ".lock"):
                return self._answered(parcel)
        except RefusedError as refused:
            self.say(f"{_job(parcel)}: refused: {refused}")
            return self._said("refused", str(refused))
        except Exception as error:
            self.say(f"{_job(parcel)}: failed: {error} ({type(error).__name__})")
            return self._said("failed", FAILED)

    def _answered(self, parcel: Parcel) -> Parcel:
        about = parcel.about
        task = Task.read(about)
        if about.get("you", self.settings.party) != self.settings.party:
            raise RefusedError(f"its key is known as {strict.shown(about.get('you'))}, and it calls itself another")
        if about.get("ask") == "ended":
            self.say(f"{task.name} ended without a model: {printable(str(about.get('reason'))[:500])}")
            return self._said("ready")
        if task.method not in self.settings.methods:
            raise RefusedError(f"{self.settings.party} does not take part in {task.method}")
        if about.get("ask") == "hello":
            return self._said("ready")
        desk = _Desk(self, task)
        desk.check_same()
        if about.get("ask") == "offer":
            return self._offered(desk, parcel)
        if about.get("ask") == "file":
            return self._sent(desk, parcel)
        if about.get("ask") == "round":
            return self._trained(desk, parcel)
        if about.get("ask") == "model":
            desk.keep_model(parcel)
            return self._said("ready")
        raise RefusedError(f"it does not know how to {strict.shown(about.get('ask'))}")

    def _said(self, status: str, reason: str = "", **more: Any) -> Parcel:
        return Parcel({"state": status, "party": self.settings.party, "reason": reason, **more})

    def _offered(self, desk: _Desk, parcel: Parcel) -> Parcel:
        """What the server will get, in its manifest; made now, if it was not before."""
        kind = _kind(desk.task, parcel)
        digest = parcel.about.get("projection")
        if digest is not None:
            strict.text("projection", digest, "[0-9a-f]{64}")
        self._check_room(desk)
        desk.begin(digest)
        if digest is not None and not desk.keep_projection(digest, parcel):
            return self._said("send projection")
        if kind == "updates":
            return self._ready_for_rounds(desk, parcel)
        if not (desk.folder / kind).exists():
            if kind == "statistics":
                desk.make_statistics()
            else:
                desk.make_records(digest)
            self.say(f"{kind} for {desk.task.name} are made: {desk.folder / kind}")
        written = desk.manifest(kind)
        if not desk.approved(kind, written):
            return self._waits(desk, kind)
        desk.verify(kind)
        small = desk.small_files(kind)
        self.say(f"{desk.task.name}: sending {kind}")
        return Parcel(self._said("ready").about, {MANIFEST: written, **small})

    def _waits(self, desk: _Desk, kind: Kind) -> Parcel:
        if desk.mark_waiting(kind):
            self.say(f"{kind} for {desk.task.name} wait for you: mixveil approve {desk.task.name}")
        return self._said("waiting", "its owner has not approved it yet")

    def _check_room(self, desk: _Desk) -> None:
        """Refuse a further job where many wait for their owner already: each has made something."""
        if self.settings.approve and not desk.folder.exists():
            waiting = {path.parent for path in self.folder.glob(f"*/{WAITING}*")}
            if len(waiting) >= MOST_WAITING:
                raise RefusedError(f"{len(waiting)} jobs wait for its owner already")

    def _sent(self, desk: _Desk, parcel: Parcel) -> Parcel:
        """One file of what was offered, as it lies on disk."""
        kind, name = _kind(desk.task, parcel), strict.text("file", parcel.about.get("file"))
        if kind == "updates" or not (desk.folder / kind).exists():
            raise RefusedError("nothing of the kind was offered")
        if not desk.approved(kind, desk.manifest(kind)):
            return self._waits(desk, kind)
        return Parcel(self._said("ready").about, {name: desk.file(kind, name)})

    # FedAvg and FedProx

    def _ready_for_rounds(self, desk: _Desk, parcel: Parcel) -> Parcel:
        """Whether it takes part in rounds, with how many rows. What its weights show has no bound: it is entered in the
        ledger as something that promises nothing."""
        if not desk.approved("updates", desk.task.id.encode()):
            return self._waits(desk, "updates")
        source, images = self._rows(parcel)
        desk.enter_updates(images)
        return self._said(
            "ready", rows=source.rows, inputs=source.inputs, classes=list(images.classes), weights=self._held[2]
        )

    def _trained(self, desk: _Desk, parcel: Parcel) -> Parcel:
        """The server's weights, trained some epochs further on the party's rows."""
        if _kind(desk.task, parcel) != "updates" or not desk.approved("updates", desk.task.id.encode()):
            raise RefusedError("nothing of the kind was offered")
        about = parcel.about
        source, images = self._rows(parcel)
        desk.check_entered(images)
        head = strict.text("head", about.get("head"), "linear|mlp")
        first, last = strict.items("epochs", about.get("epochs"))
        recipe = Recipe(**strict.mapping("recipe", about.get("recipe")))
        proximal = None if about.get("proximal") is None else strict.number("proximal", about.get("proximal"))
        model = new_head("mlp" if head == "mlp" else "linear", source.inputs, len(images.classes), recipe)
        weights = load(parcel.files["weights"])
        number = strict.of("number", about.get("number"), int)
        found = local(model, weights, source, recipe, range(first, last), party=number, proximal=proximal)
        self.say(f"{desk.task.name}: sending weights after epoch {last} of {recipe.epochs}")
        return Parcel(self._said("ready", rows=source.rows).about, {"weights": save(dict(found))})

    def owners(self, images: Images) -> str:
        """Whose the images are, as the ledger knows them: read once, while they are held."""
        if self._owners is None or self._owners[0] is not images:
            self._owners = (images, _digest(Ledger().owners(images)))
        return self._owners[1]

    def _rows(self, parcel: Parcel) -> tuple[Source, Images]:
        """Its rows in the clear, as the job wants them, in memory: they do not leave it."""
        extractor = _modest(Extractor.read(parcel.about.get("extractor")))
        held = self.__dict__.get("_held")
        if held is None or held[3] != extractor:
            images = self.settings.images()
            features, weights = self.settings.features(images, extractor)
            x = features.take(torch.arange(len(images))).x
            source = RemixedEveryBatch(x, features.labels, len(images.classes), None)
            self._held = (source, images, weights if extractor.names else None, extractor)
        return self._held[0], self._held[1]


class _Desk:
    """What a party keeps of one job."""

    def __init__(self, party: Party, task: Task) -> None:
        self._party, self.settings, self.say, self.task = party, party.settings, party.say, task
        self.folder = party.folder / f"{task.name}-{task.id}"

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
            files.write_whole(path, _json(whole), 0o600)

    def keep_projection(self, digest: str, parcel: Parcel) -> bool:
        """Keep the projection that came with a parcel; whether it is there."""
        path = self._projection(digest)
        if path.exists():
            return True
        if "projection" not in parcel.files:
            return False
        if len(list(self.folder.glob("projection-*"))) >= len(_STEPS[self.task.method]):
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
        features, weights = self.settings.features(self._images, _modest(found.extractor), found.weights)
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
        """Enter the rounds of this job in the ledger, once, before anything leaves."""
        if (self.folder / _ENTERED).exists():
            self.check_entered(images)
            return
        book, identity, nothing = Ledger(), keys.release_id(), None
        owners = book.owners(images)
        entry = Entry(
            identity,
            "updates",
            self.settings.party,
            self._recipient,
            self.task.method,
            nothing,
            nothing,
            nothing,
            nothing,
            len(images),
        )
        with book.making(entry, owners, self.settings.budget):
            files.write_whole(self.folder / _ENTERED, _json({"id": identity, "owners": _digest(owners)}), 0o600)

    def check_entered(self, images: Images) -> None:
        """Refuse rounds on other records than those that were entered."""
        path = self.folder / _ENTERED
        if not path.exists():
            raise RefusedError("nothing of the kind was offered")
        if json.loads(path.read_text())["owners"] != self._party.owners(images):
            raise MismatchError("your data are not those that this job was entered with: it is over")

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
        names = [SUMS] if kind == "statistics" else [s.file for s in read_manifest(self.folder / kind).shards]
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
        if kind == "statistics" and name == SUMS:
            read_statistics(folder)
            return (folder / SUMS).read_bytes()
        stated = read_manifest(folder) if kind == "records" else None
        for shard in stated.shards if stated else ():
            if stated is not None and shard.file == name:
                read_shard(folder, stated, shard)
                return (folder / name).read_bytes()
        raise RefusedError(f"there is no file {name!r:.60} in it")

    def approved(self, kind: Kind, written: bytes) -> bool:
        """Whether it may leave. written: what the owner looked at. What promises nothing never leaves without."""
        if (self.folder / f"{REFUSED}{kind}").exists():
            raise RefusedError("its owner said no")
        if not self.settings.approve and kind != "updates":
            return True
        path = self.folder / f"approved-{kind}.json"
        if not path.exists():
            return False
        return bool(json.loads(path.read_text())["sha256"] == hashlib.sha256(written).hexdigest())

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


def approve(folder: Path, kind: Kind, *, looked_at: Literal["figures", "audit"]) -> None:
    """The owner looked at what a job's folder holds of a kind, and lets it leave."""
    if kind == "updates":
        written = Task.read(json.loads((folder / "job.json").read_text())).id.encode()
    else:
        written = (folder / kind / MANIFEST).read_bytes()
    whole = {"sha256": hashlib.sha256(written).hexdigest(), "looked_at": looked_at, "when": _now()}
    files.write_whole(folder / f"approved-{kind}.json", _json(whole), 0o600)


def refuse(folder: Path, kind: Kind) -> None:
    """The owner looked, and says no for good."""
    (folder / f"{REFUSED}{kind}").touch(0o600)


def _job(parcel: Parcel) -> str:
    return printable(str(parcel.about.get("name"))[:64])


def _digest(owners: Owners) -> str:
    whole = owners.records.tobytes() + (b"" if owners.units is None else owners.units.tobytes())
    return hashlib.sha256(whole).hexdigest()


def _modest(extractor: Extractor) -> Extractor:
    """Features that a server may ask for: larger images would keep the machine busy."""
    if extractor.size > _LARGEST_SIZE:
        raise RefusedError(f"images of {extractor.size} pixels are more than the {_LARGEST_SIZE} that it computes")
    return extractor


def _kind(task: Task, parcel: Parcel) -> Kind:
    kind = parcel.about.get("kind")
    for known in _STEPS[task.method]:
        if kind == known:
            return known
    raise RefusedError(f"{task.method} asks for {' and '.join(_STEPS[task.method])}, not for {strict.shown(kind)}")


def _json(whole: Any) -> bytes:
    return (json.dumps(whole, indent=2) + "\n").encode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
