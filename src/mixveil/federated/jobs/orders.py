"""A server's side: what a job is, where it is kept, and what became of it."""

from __future__ import annotations

import dataclasses
import json
import shutil
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from mixveil.core import checks, files, randomness
from mixveil.core.errors import ArgumentError, MismatchError, ServiceError
from mixveil.features import projection_file
from mixveil.features.extractor import Extractor
from mixveil.features.projection import Projection
from mixveil.federated.algorithms import Rounds
from mixveil.federated.jobs import config as config_of
from mixveil.federated.jobs.messages import METHODS, Method, Task, check_name, printable
from mixveil.learn.fit import TrainingRecipe


@dataclass(frozen=True)
class Order:
    """What a coordinator asks for. job: its name; parties: how many there are; least: with how many it goes on; wait:
    seconds to wait for them in each step; projection: the file of the public one that their records go through; head:
    of the model, `discriminant` or `mlp` on releases, `linear` or `mlp` in rounds; limit: bytes of a release that is
    taken, in megabytes; backbone, stage, mirror: the features of rounds; the others are a training's."""

    job: str
    method: str
    parties: int
    least: int = 1
    wait: float = 3600.0
    projection: str = ""
    head: str = ""
    limit: int = 8192
    backbone: str = "none"
    stage: str = ""
    mirror: bool = False
    rounds: int = 50
    epochs: int = 0
    batch: int = 128
    optimiser: str = "adamw"
    learning_rate: float = 1e-3
    proximal: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        check_name("job", self.job)
        if self.method not in METHODS:
            raise ArgumentError(f"method must be one of {', '.join(METHODS)}, got {self.method!r:.40}")
        for name in ("parties", "least", "limit", "rounds"):
            checks.at_least(name, getattr(self, name), 1)
        if self.least > self.parties:
            raise ArgumentError(f"at least {self.least} of {self.parties} parties cannot be")
        checks.finite_positive("wait", self.wait)
        heads = ("linear", "mlp") if self.by_rounds else ("discriminant", "mlp")
        if self.head not in ("", *heads):
            raise ArgumentError(f"the head of {self.method} is {' or '.join(heads)}, got {self.head!r:.40}")
        if self.method == "two-step" and not self.projection:
            raise ArgumentError("two-step needs the public projection that all parties share (`mixveil prepare`)")
        if self.by_rounds and self.projection:
            raise ArgumentError(f"{self.method} sends no records: it takes no projection, but a backbone")
        self.recipe  # noqa: B018, each checks itself
        self.extractor  # noqa: B018
        if self.proximal < 0:
            raise ArgumentError(f"proximal must not be negative, got {self.proximal:g}")

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Order:
        """From a run's configuration."""
        return config_of.read(cls, config, "a job")

    def plain(self) -> dict[str, Any]:
        return config_of.plain(self)

    @property
    def by_rounds(self) -> bool:
        return self.method in ("fedavg", "fedprox")

    @property
    def known_method(self) -> Method:
        return next(known for known in METHODS if known == self.method)

    @property
    def recipe(self) -> TrainingRecipe:
        """Of the head mlp on releases, or of all rounds together."""
        if self.optimiser not in ("adamw", "sgd"):
            raise ArgumentError(f"optimiser must be adamw or sgd, got {self.optimiser!r:.40}")
        optimiser: Literal["adamw", "sgd"] = "adamw" if self.optimiser == "adamw" else "sgd"
        whole = TrainingRecipe(self.epochs or 20, self.batch, optimiser, self.learning_rate, self.seed)
        return self.schedule.recipe(whole) if self.by_rounds else whole

    @property
    def schedule(self) -> Rounds:
        return Rounds(self.rounds, self.epochs or 1)

    @property
    def extractor(self) -> Extractor:
        return Extractor.parse(self.backbone, stage=self.stage or None, mirror=self.mirror)


@dataclass
class Fate:
    """What became of a party in a job. state: `expected` (it has not come), `waiting` for its owner, `willing`,
    `sending`, `arrived`, `rejected` by the server, `refused` or `failed` by itself; why: in words; bytes: that came
    from it."""

    state: str = "expected"
    why: str = ""
    bytes: int = 0
    returned: bool = False
    rounds: int = 0


@dataclass
class Job:
    """A job in its folder. Whoever runs it again goes on where it ended."""

    folder: Path
    order: Order
    task: Task
    known: tuple[Projection, str] | None
    names: frozenset[str] = frozenset()
    """The parties that the server knows by their keys."""

    fates: dict[str, Fate] = field(default_factory=dict)
    strangers: dict[str, str] = field(default_factory=dict)
    """Those that are no party of this job, and why."""

    _saying: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def say(self, text: str) -> None:
        """Tell whoever follows the job, and keep it."""
        with self._saying:
            self._say(text)

    def _say(self, text: str) -> None:
        line = f"{datetime.now(UTC).strftime('%H:%M:%S')} {printable(text)}"
        with (self.folder / "events.log").open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        files.write_json(self.folder / "progress.json", self._parties())

    def turn_away(self, strangers: Mapping[str, str]) -> None:
        for who, why in strangers.items():
            if who not in self.strangers:
                self.strangers[who] = why
                self.say(f"{who} is turned away: {why}")

    @property
    def directions_path(self) -> Path:
        return self.folder / "directions.safetensors"

    def new_model(self) -> Path:
        """Where the next model goes: nothing is overwritten."""
        number = 1
        while (path := self.folder / ("model" if number == 1 else f"model-{number}")).exists():
            number += 1
        return path

    def conclude(self, **more: Any) -> dict[str, Any]:
        """Write down how it ended."""
        whole = {
            "job": self.task.name,
            "method": self.task.method,
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "parties": self._parties(),
            "turned_away": {who: printable(why) for who, why in self.strangers.items()},
            **more,
        }
        files.write_json(self.folder / "outcome.json", whole)
        return whole

    def _parties(self) -> dict[str, Any]:
        found = {name: self.fates.get(name, Fate()) for name in sorted({*self.fates, *self.names})}
        return {name: {**dataclasses.asdict(fate), "why": printable(fate.why)} for name, fate in found.items()}


def begin(server: Path, order: Order, names: Iterable[str] = ()) -> Job:
    """Open a job's folder, or make it. A job that was begun before must be the same one still. names: of the parties
    that the server knows."""
    look(server, order)
    folder = server / "jobs" / order.job
    path = folder / "job.json"
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        task = Task(randomness.release_id(), order.job, order.known_method)
        digest = None
        if order.projection:
            shutil.copyfile(order.projection, folder / "projection.safetensors")
            digest = projection_file.read(folder / "projection.safetensors")[1]
        files.write_json(path, {**task.plain(), "projection": digest})
    stated = json.loads(path.read_text(encoding="utf-8"))
    known = None if stated["projection"] is None else projection_file.read(folder / "projection.safetensors")
    (folder / "outcome.json").unlink(missing_ok=True)
    (folder / "incoming").mkdir(mode=0o700, exist_ok=True)
    return Job(folder, order, Task.read(stated), known, frozenset(names))


def look(server: Path, order: Order) -> None:
    """Refuse an order that cannot be done, before anything is begun."""
    known = projection_file.read(Path(order.projection)) if order.projection else None
    _check(order, known)
    path = server / "jobs" / order.job / "job.json"
    if not path.exists():
        return
    stated = json.loads(path.read_text(encoding="utf-8"))
    if stated["method"] != order.method:
        raise MismatchError(f"the job {order.job} is a {stated['method']}: give another name to a {order.method}")
    if known is not None and stated["projection"] != known[1]:
        raise MismatchError(f"the job {order.job} was begun with another projection: give this one another name")


def _check(order: Order, known: tuple[Projection, str] | None) -> None:
    if known is not None and known[0].origin != "public":
        raise ArgumentError("the projection was fitted on private data: no party would certify anything with it")
    if known is not None and order.method == "two-step" and known[0].spent:
        raise ArgumentError("the projection is that of a second step: give the public one")


def find(server: Path, name: str) -> Path:
    """The folder of a job that was begun."""
    folder = server / "jobs" / check_name("job", name)
    if not (folder / "job.json").is_file():
        raise ServiceError(f"{server} has no job {name}")
    return folder
