"""A party's side of a job: it makes what it is asked for once, keeps it, and sends what it kept.

What leaves is decided by the party's own settings, its owner's word and the total of its ledger, never by the server's
wish and never by what the data are. Errors that could tell of the data are for the owner's eyes, and the server hears
only that there was one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load, save

from mixveil.core import files, strict_json
from mixveil.core.errors import BudgetError, RefusedError
from mixveil.features.extractor import Extractor
from mixveil.federated.algorithms import local, new_head
from mixveil.federated.jobs.messages import MANIFEST, Parcel, Task, printable
from mixveil.federated.jobs.settings import Settings, computed
from mixveil.federated.jobs.storage import OVER, STEPS, Desk, Kind, Question, is_waiting, modest
from mixveil.learn.batches import BatchSource, RemixedEveryBatch
from mixveil.learn.fit import TrainingRecipe

FAILED = "it could not be made; its owner sees why"
MOST_WAITING = 10
"""Jobs that may ask their owner something at a time."""


class Party:
    """Answers what a server asks. say: tells the owner what happens."""

    def __init__(self, settings: Settings, say: Callable[[str], None] = lambda text: None) -> None:
        self.settings, self.say = settings, say
        self.folder = Path(settings.folder) / settings.party
        self._held: _Held | None = None
        self._greeted: list[str] = []  # the last jobs of which it heard, and not yet how they ended

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
        except BudgetError as error:  # by the ledger's total, which no record enters: another job was faster
            self.say(f"{_job(parcel)}: refused: {error}")
            return self._said("refused", OVER)
        except Exception as error:
            self.say(f"{_job(parcel)}: failed: {error} ({type(error).__name__})")
            return self._said("failed", FAILED)

    def _answered(self, parcel: Parcel) -> Parcel:
        about = parcel.about
        task = Task.read(about)
        if about.get("you", self.settings.party) != self.settings.party:
            raise RefusedError(
                f"its key is known as {strict_json.shown(about.get('you'))}, and it calls itself another"
            )
        desk = Desk(self.folder, self.settings, task, self.say)
        desk.check_same()
        if about.get("ask") == "ended":
            if desk.end() or task.id in self._greeted:
                self._greeted = [known for known in self._greeted if known != task.id]
                self.say(f'{task.name} ended without a model: "{printable(str(about.get("reason")))[:300]}"')
            return self._said("ready")
        if task.method not in self.settings.methods:
            raise RefusedError(f"{self.settings.party} does not take part in {task.method}")
        desk.resume()
        if about.get("ask") == "hello":
            self._greeted = [*self._greeted, task.id][-MOST_WAITING:]
            return self._admitted(desk) or self._said("ready")
        if about.get("ask") == "offer":
            return self._offered(desk, parcel)
        if about.get("ask") == "file":
            return self._sent(desk, parcel)
        if about.get("ask") == "round":
            return self._trained(desk, parcel)
        if about.get("ask") == "model":
            desk.keep_model(parcel)
            return self._said("ready")
        raise RefusedError(f"it does not know how to {strict_json.shown(about.get('ask'))}")

    def _said(self, status: str, reason: str = "", **more: Any) -> Parcel:
        return Parcel({"state": status, "party": self.settings.party, "reason": reason, **more})

    def _admitted(self, desk: Desk) -> Parcel | None:
        """None if the job may go on; else the answer that it waits for its owner. Asked before anything is made for it,
        and again before anything leaves."""
        desk.check_affordable()
        if desk.folder.exists():
            desk.begin()  # what an owner agreed to with other settings does not count
        if desk.agreed("job"):
            return None
        self._check_room(desk)
        desk.begin()
        return self._waits(desk, "job")

    def _check_room(self, desk: Desk) -> None:
        """Refuse a further question where many wait for the owner already."""
        if not desk.folder.exists():
            waiting = sum(is_waiting(path, "job") for path in self.folder.iterdir() if path.is_dir())
            if waiting >= MOST_WAITING:
                raise RefusedError(f"{waiting} jobs wait for its owner already")

    def _waits(self, desk: Desk, question: Question) -> Parcel:
        if desk.mark_waiting(question):
            what = "asks whether you take part" if question == "job" else "has a release for you to look at"
            self.say(f"{desk.task.name} {what}: mixveil approve {desk.task.name}")
        return self._said("waiting", "its owner has not approved it yet")

    def _offered(self, desk: Desk, parcel: Parcel) -> Parcel:
        """What the server will get, in its manifest; made now, if it was not before."""
        kind = _kind(desk.task, parcel)
        digest = parcel.about.get("projection")
        if digest is not None:
            strict_json.text("projection", digest, "[0-9a-f]{64}")
        if (waits := self._admitted(desk)) is not None:
            return waits
        if desk.lacks(digest, parcel):
            return self._said("send projection")
        desk.begin()
        try:
            if digest is not None:
                desk.keep_projection(digest, parcel)
            if kind == "updates":
                return self._ready_for_rounds(desk, parcel)
            if not (desk.folder / kind).exists():
                if kind == "statistics":
                    desk.make_statistics(digest)
                else:
                    desk.make_records(digest)
                self.say(f"{kind} for {desk.task.name} are made: {desk.folder / kind}")
        except BaseException:
            desk.forget()
            raise
        written = desk.manifest(kind)
        if kind == "records" and not desk.agreed("records"):
            return self._waits(desk, "records")
        desk.verify(kind)
        small = desk.small_files(kind)
        self.say(f"{desk.task.name}: sending {kind}")
        return Parcel(self._said("ready").about, {MANIFEST: written, **small})

    def _sent(self, desk: Desk, parcel: Parcel) -> Parcel:
        """One file of what was offered, as it lies on disk."""
        kind, name = _kind(desk.task, parcel), strict_json.text("file", parcel.about.get("file"))
        if kind == "updates" or not (desk.folder / kind).exists():
            raise RefusedError("nothing of the kind was offered")
        desk.manifest(kind)  # it must be as it was written
        if not desk.agreed("job"):
            return self._waits(desk, "job")
        if kind == "records" and not desk.agreed("records"):
            return self._waits(desk, "records")
        return Parcel(self._said("ready").about, {name: desk.file(kind, name)})

    # FedAvg and FedProx

    def _ready_for_rounds(self, desk: Desk, parcel: Parcel) -> Parcel:
        """Whether it takes part in rounds, with how many rows. What its weights show has no bound: it is entered in the
        ledger as something that promises nothing."""
        held = self._rows(desk, parcel)
        rows, inputs = held.source.rows, held.source.inputs
        return self._said("ready", rows=rows, inputs=inputs, classes=list(held.classes), weights=held.weights)

    def _trained(self, desk: Desk, parcel: Parcel) -> Parcel:
        """The server's weights, trained some epochs further on the party's rows."""
        if _kind(desk.task, parcel) != "updates" or not desk.agreed("job") or not desk.entered:
            raise RefusedError("nothing of the kind was offered")
        about = parcel.about
        held = self._rows(desk, parcel)
        source = held.source
        head = strict_json.text("head", about.get("head"), "linear|mlp")
        first, last = strict_json.items("epochs", about.get("epochs"))
        recipe = TrainingRecipe(**strict_json.mapping("recipe", about.get("recipe")))
        proximal = None if about.get("proximal") is None else strict_json.number("proximal", about.get("proximal"))
        model = new_head("mlp" if head == "mlp" else "linear", source.inputs, len(held.classes), recipe)
        weights = load(parcel.files["weights"])
        number = strict_json.of("number", about.get("number"), int)
        found = local(model, weights, source, recipe, range(first, last), party=number, proximal=proximal)
        self.say(f"{desk.task.name}: sending weights after epoch {last} of {recipe.epochs}")
        return Parcel(self._said("ready", rows=source.rows).about, {"weights": save(dict(found))})

    def _rows(self, desk: Desk, parcel: Parcel) -> _Held:
        """Its rows in the clear, as the job wants them, in memory: they do not leave it. Before they are used they are
        entered."""
        extractor = modest(Extractor.read(parcel.about.get("extractor")))
        if self._held is None or self._held.extractor != extractor or self._held.job != desk.task.id:
            images = self.settings.images()
            loaded = self.settings.networks(images, extractor)  # before it is entered: it may refuse
            desk.enter_updates(images)
            features = computed(images, loaded)
            x = features.take(torch.arange(len(images))).x
            source = RemixedEveryBatch(x, features.labels, len(images.classes), None)
            weights = loaded.digest if extractor.names else None
            self._held = _Held(desk.task.id, extractor, source, images.classes, weights)
        return self._held


class _Held(NamedTuple):
    """What rounds of a job are trained on. weights: the digest of the networks before it."""

    job: str
    extractor: Extractor
    source: BatchSource
    classes: tuple[str, ...]
    weights: str | None


def _job(parcel: Parcel) -> str:
    return printable(str(parcel.about.get("name"))[:64])


def _kind(task: Task, parcel: Parcel) -> Kind:
    kind = parcel.about.get("kind")
    for known in STEPS[task.method]:
        if kind == known:
            return known
    raise RefusedError(f"{task.method} asks for {' and '.join(STEPS[task.method])}, not for {strict_json.shown(kind)}")
