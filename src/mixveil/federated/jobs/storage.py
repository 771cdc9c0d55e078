"""What a party keeps of one job, in a folder: what it made, what its owner said of it, the models that came back.

Whether a job may go on is decided by the party's settings, by what its owner said, and by the total of its ledger. No
record enters any of these, so a server may hear the answer.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from mixveil.core import files, randomness
from mixveil.core.errors import DataFormatError, FalseClaimError, MismatchError, RefusedError
from mixveil.data.opening import Images
from mixveil.encoders import calibration
from mixveil.encoders.singular import Singular
from mixveil.features import projection, projection_file
from mixveil.features.extractor import Extractor
from mixveil.features.projection import Projected
from mixveil.federated.jobs.messages import INLINE, MANIFEST, MODELS_LIMIT, PROJECTION_LIMIT, Parcel, Task
from mixveil.federated.jobs.settings import Settings, computed
from mixveil.learn.model import CARD, TENSORS, read_model
from mixveil.releases import traces
from mixveil.releases.ledger import Entry, Ledger
from mixveil.releases.reading import read_envelope, read_file, verify_release
from mixveil.releases.records import write_release
from mixveil.releases.spending import Owners, within
from mixveil.releases.sums import write_statistics

Kind = Literal["statistics", "records", "updates"]
STEPS: dict[str, tuple[Kind, ...]] = {
    "one-shot": ("records",),
    "two-step": ("statistics", "records"),
    "fedavg": ("updates",),
    "fedprox": ("updates",),
}
Question = Literal["job", "records"]
QUESTIONS: tuple[Question, ...] = ("job", "records")
"""What an owner is asked: whether to take part in a job, before anything is made for it; and where a release promises
nothing, whether it may leave."""

OVER = "its budget does not allow it"
_WAITING, _REFUSED = "waiting-", "refused"
ENTERED, _ENDED = "entered", "ended"
_FREE = ("party", "folder", "budget", "label-budget", "allow", "approve", "to")  # settings that change no release
_MODEL = (TENSORS, CARD)
_MOST_MODELS, _LARGEST_SIZE = 20, 512


class Desk:
    """What a party keeps of one job."""

    def __init__(self, folder: Path, settings: Settings, task: Task, say: Callable[[str], None]) -> None:
        self.settings, self.say, self.task = settings, say, task
        self.folder = folder / f"{task.name}-{task.id}"

    # Which job it is

    def check_same(self) -> None:
        """An id is one job's of one server for ever: what was allowed for it is not allowed for another."""
        if not (stored := self._stored):
            return
        if Task.read(stored) != self.task:
            raise RefusedError("this id is another job's")
        if stored["settings"].get("server") != self.settings.server:
            raise RefusedError("this id is a job of another server's")

    def begin(self) -> None:
        """Write down which job this is, and with which settings. Once something is entered they stay what they were,
        and nothing is made with others: neither its owner nor its first step knew of them."""
        stored, plain = self._stored, self.settings.plain()
        if stored and self.begun:
            before = stored["settings"]
            others = {name for name in before.keys() | plain.keys() if before.get(name) != plain.get(name)}
            if others - set(_FREE) and self._missing:
                raise RefusedError("its settings are others than those that this job was begun with")
            return
        if stored and stored["settings"] == plain:
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write_json(self.folder / "job.json", {**self.task.plain(), "begun": _now(), "settings": plain})

    @property
    def _stored(self) -> dict[str, Any]:
        path = self.folder / "job.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}

    @property
    def begun(self) -> bool:
        """Whether anything of it was entered in the ledger."""
        return (self.folder / ENTERED).exists()

    def resume(self) -> None:
        """The server goes on with a job that it had ended."""
        (self.folder / _ENDED).unlink(missing_ok=True)

    def end(self) -> bool:
        """The server gave it up: what is not made is not held back from other jobs. Whether there was such a job."""
        if not self.folder.exists() or (self.folder / _ENDED).exists():
            return False
        (self.folder / _ENDED).touch(0o600)
        return True

    def forget(self) -> None:
        """Keep nothing of a job that failed before anything was entered, but what its owner said of it."""
        if self.begun or not self.folder.exists():
            return
        for path in self.folder.glob("projection-*"):
            path.unlink()
        if not any(self.folder.glob("approved-*")) and not (self.folder / _REFUSED).exists():
            shutil.rmtree(self.folder, ignore_errors=True)

    # Whether it may go on

    def check_affordable(self) -> None:
        """Refuse a job that the budgets do not allow, with all that is still to be made for it. What the ledger's
        releases cost together counts, whoever's records were in them: no record enters the decision."""
        missing = self._missing
        limit, label_limit = self.settings.limit, self.settings.label_limit
        if not missing or (limit is None and label_limit is None):
            return
        total, share = self.settings.total, len(missing) / len(STEPS[self.task.method])
        held, held_labels = self._held()
        mu = math.inf if "updates" in missing or self.settings.mu is None else self.settings.mu
        mu = math.sqrt(total.mu**2 + held + mu**2 * share)
        labels = total.label_epsilon + held_labels + share * (self.settings.label_epsilon or math.inf)
        if limit is not None and (total.unbounded or not within(mu, limit)):
            spent = "something promises nothing" if total.unbounded else f"{total.mu:.4g} is spent in all"
            self.say(f"{self.task.name} would be beyond the budget of {limit:g}: {spent}, with it μ = {mu:.4g}")
            raise RefusedError(OVER)
        if label_limit is not None and not within(labels, label_limit):
            self.say(
                f"{self.task.name} would be beyond the label budget of {label_limit:g}: labels would cost {labels:.4g}"
            )
            raise RefusedError(OVER)

    def _held(self) -> tuple[float, float]:
        """Σμ² and Σε of the second steps of other jobs, whose first ones are paid: they are held back for them."""
        mu = labels = 0.0
        for path in self.folder.parent.parent.glob("*/*/statistics"):
            job = path.parent
            if not (job / "job.json").exists():  # not a job's
                continue
            stored = json.loads((job / "job.json").read_text(encoding="utf-8"))
            if job == self.folder or (job / _ENDED).exists() or is_over(job, Task.read(stored)):
                continue
            settings = stored["settings"]
            mu += settings["mu"] ** 2 / 2
            labels += settings.get("label-epsilon", 0.0) / 2
        return mu, labels

    @property
    def _missing(self) -> list[Kind]:
        """The steps for which nothing is made yet."""
        return [step for step in STEPS[self.task.method] if not self._made(step)]

    def _made(self, kind: Kind) -> bool:
        return self.entered if kind == "updates" else (self.folder / kind).exists()

    def agreed(self, question: Question) -> bool:
        """Whether its owner need not be asked, or said yes."""
        if (self.folder / _REFUSED).exists():
            raise RefusedError("its owner said no")
        rounds = STEPS[self.task.method] == ("updates",)
        asked = self.settings.approve or rounds if question == "job" else not self.settings.certified
        return not asked or is_approved(self.folder, question)

    def mark_waiting(self, question: Question) -> bool:
        """Remember that its owner is asked something; whether that is new."""
        path = self.folder / f"{_WAITING}{question}"
        new = not path.exists()
        path.touch(0o600)
        return new

    # What is made

    def lacks(self, digest: str | None, parcel: Parcel) -> bool:
        """Whether a projection is named that neither came nor is here."""
        return digest is not None and "projection" not in parcel.files and not self._projection(digest).exists()

    def keep_projection(self, digest: str, parcel: Parcel) -> None:
        """Keep the projection that came with a parcel."""
        path = self._projection(digest)
        if path.exists():
            return
        if len(list(self.folder.glob("projection-*"))) >= len(STEPS[self.task.method]):
            raise RefusedError("this job has its projections already")
        data = parcel.files["projection"]
        if len(data) > PROJECTION_LIMIT:
            raise RefusedError(
                f"a projection of {len(data):,} bytes is more than the {PROJECTION_LIMIT:,} that it takes"
            )
        files.check_space(path, len(data))
        if hashlib.sha256(data).hexdigest() != digest:
            raise RefusedError("the projection that came is not the one that was named")
        files.write_whole(path, data, 0o600)
        try:
            projection_file.read(path)
        except DataFormatError as error:
            path.unlink()
            raise RefusedError(f"what came is not a projection: {str(error).partition(': ')[2]}") from None

    def _projection(self, digest: str) -> Path:
        return self.folder / f"projection-{digest[:16]}.safetensors"

    @cached_property
    def _images(self) -> Images:
        return self.settings.images()

    def _projected(self, digest: str) -> Projected:
        found, _ = projection_file.read(self._projection(digest))
        wanted = found.weights, found.mean.numel()
        loaded = self.settings.networks(self._images, modest(found.extractor), *wanted)
        protected = self.settings.certified or self.settings.label_epsilon is not None
        features = computed(self._images, loaded)
        rows = projection.projected(features, loaded.digest, found, certified=protected)
        if found.classes and rows.classes != found.classes:
            raise MismatchError("your data do not have the classes of the statistics, in the same order")
        if self.settings.certified and not found.spent and (shared := projection.shared(found, self._images)):
            self.say(
                f"warning: {shared} of your images were used to fit the projection: it is not public for them, and "
                f"what is certified does not hold"
            )
        return rows

    @contextmanager
    def _entering(self) -> Iterator[None]:
        """Around what enters something in the ledger: from then on the job is kept."""
        mark, before = self.folder / ENTERED, Ledger().total().releases
        first = not mark.exists()
        mark.touch(0o600)
        try:
            yield
        except BaseException:
            if first and Ledger().total().releases == before:
                mark.unlink()
            raise

    def make_statistics(self, digest: str | None) -> None:
        """Noisy class sums, with half of μ²."""
        if digest is None:
            raise RefusedError("statistics go through a projection, and none came")
        mu, rows = self._mu(), self._projected(digest)
        with self._entering():
            write_statistics(
                self.folder / "statistics",
                rows,
                digest,
                mu / math.sqrt(2),
                party=self.settings.party,
                stream=randomness.SecureStream(),
                label_epsilon=self._label_epsilon,
                recipient=self._recipient,
                budget=self.settings.budget,
                label_budget=self.settings.label_budget,
                against="everything",
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
        stream = randomness.SecureStream()
        encoder, guarantees, warnings = calibration.calibrate(
            Singular(), target, rows, clip=clip, stream=stream.fork("facts")
        )
        for text in warnings:
            self.say(f"warning: {text}")
        with self._entering():
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
                label_budget=self.settings.label_budget,
                against="everything",
            )

    def _check_own(self, rows: Images | Projected) -> None:
        """The directions of the second step are found from the first one's statistics, the party's own among them, and
        what was agreed to then holds now."""
        if not (self.folder / "statistics").exists():
            raise RefusedError("it sent no statistics for this job")
        own = read_envelope(self.folder / "statistics")
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
            id=randomness.release_id(),
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
        with self._entering(), book.making(promised, owners, self.settings.budget, against="everything"):
            files.write_json(path, {"id": promised.id, "owners": _digest(owners)})

    @property
    def entered(self) -> bool:
        return (self.folder / "updates.json").exists()

    def manifest(self, kind: Kind) -> bytes:
        """The manifest of what was made, if it is as it was written here."""
        folder = self.folder / kind
        written = (folder / MANIFEST).read_bytes()
        if kind == "records":
            identity = read_envelope(folder).id
            if traces.recorded_manifest(identity) != hashlib.sha256(written).hexdigest():
                raise FalseClaimError(f"{folder}: its manifest was changed since it was written here")
        return written

    def verify(self, kind: Kind) -> None:
        """Check all of it, before it is offered."""
        verify_release(self.folder / kind)

    def small_files(self, kind: Kind) -> dict[str, bytes]:
        """Its first files, as many as go with its manifest: a small release needs no further question."""
        found, room = {}, INLINE
        for file in read_envelope(self.folder / kind).files:
            room -= file.bytes
            if room < 0:
                break
            found[file.name] = (self.folder / kind / file.name).read_bytes()
        return found

    def file(self, kind: Kind, name: str) -> bytes:
        """One of its files, checked once more."""
        folder = self.folder / kind
        if folder.exists():
            envelope = read_envelope(folder)
            for file in envelope.files:
                if file.name == name:
                    read_file(folder, envelope, file)
                    return (folder / name).read_bytes()
        raise RefusedError(f"there is no file {name!r:.60} in it")

    def keep_model(self, parcel: Parcel) -> None:
        """The model that came back, beside those that came before."""
        if set(parcel.files) != set(_MODEL):
            raise RefusedError("a model has a card and tensors")
        if not self.begun:
            raise RefusedError("it took no part in this job")
        kept = sum(path.stat().st_size for path in self.folder.glob("model*/*"))
        if kept + parcel.bytes > MODELS_LIMIT:
            raise RefusedError(f"models of one job may have {MODELS_LIMIT:,} bytes, and it has {kept:,} already")
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

    @property
    def _recipient(self) -> str:
        return f"{self.settings.to or self.settings.server or 'the server'}, job {self.task.name}"


def is_approved(folder: Path, question: Question) -> bool:
    """Whether the owner said yes to what a job's folder holds now."""
    path = folder / f"approved-{question}.json"
    return path.exists() and bool(json.loads(path.read_text())["sha256"] == _asked(folder, question))


def is_waiting(folder: Path, question: Question) -> bool:
    """Whether the owner was asked, and has not answered."""
    said_no = (folder / _REFUSED).exists() or (folder / _ENDED).exists()  # nobody asks any more
    return (folder / f"{_WAITING}{question}").exists() and not said_no and not is_approved(folder, question)


def is_over(folder: Path, task: Task) -> bool:
    """Whether nothing more is made for a job: all of it is there, or its owner said no."""
    return (folder / _REFUSED).exists() or all((folder / step).exists() for step in STEPS[task.method])


def approve(folder: Path, question: Question, *, looked_at: Literal["figures", "audit"]) -> None:
    """The owner looked at it, and says yes."""
    whole = {"sha256": _asked(folder, question), "looked_at": looked_at, "when": _now()}
    files.write_json(folder / f"approved-{question}.json", whole)


def refuse(folder: Path) -> None:
    """The owner says no to all that a job still asks for, for good."""
    (folder / _REFUSED).touch(0o600)


def _asked(folder: Path, question: Question) -> str:
    """The SHA-256 of what an owner says yes to: a manifest, or a job with the settings that it is done with."""
    if question == "records":
        return hashlib.sha256((folder / "records" / MANIFEST).read_bytes()).hexdigest()
    whole = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    settings = {name: value for name, value in whole["settings"].items() if name not in _FREE}
    plain = {**Task.read(whole).plain(), "settings": settings}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


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
