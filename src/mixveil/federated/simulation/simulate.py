"""All methods on one partition of one data set, in one process: for a fair look at what each of them costs and gives.

What is found is written after every method, so that a run that was stopped goes on with those that are left.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixveil.core import checks, files, strict_json
from mixveil.core.errors import ArgumentError, DataFormatError, ManifestError, OutputError, UnreadableFileError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Fact, Progress, Tau
from mixveil.core.watching import unwatched
from mixveil.core.wording import notes
from mixveil.core.wording.jobs import GUARANTEES
from mixveil.core.wording.sentences import fields_of
from mixveil.data.partition import partition
from mixveil.encoders.calibration import facts_for, watched_moments
from mixveil.encoders.singular import CalibratedSingular, Singular
from mixveil.features import projection_fit
from mixveil.features.cache import Features
from mixveil.features.projection import Projection
from mixveil.federated.algorithms import HeadName, Rounds
from mixveil.federated.methods.catalogue import METHODS, method_named
from mixveil.federated.simulation.setup import Outcome, Point, Simulation
from mixveil.learn.fit import TrainingRecipe
from mixveil.report import results

FORMAT = "mixveil-simulation"
VERSION = 1
_ROWS = 4096
_LIMIT = 64 << 20


@dataclass(frozen=True)
class SimulationConfig:
    """What is simulated.

    Attributes:
        parties: How many there are.
        beta: Of the Dirichlet law of each class over parties; None: all are dealt alike.
        rho: The last party's rows over those of any other.
        head: What methods with a gradient train.
        rounds: Rounds, of one epoch each.
        epochs: Of trainings without rounds.
        batch: Rows of a step.
        learning_rate: Falling to zero.
        tau: The nominal τ of one release.
        seed: Of partition, noise and training.
    """

    parties: int
    beta: float | None = None
    rho: float = 1.0
    head: HeadName = "linear"
    rounds: int = 50
    epochs: int = 20
    batch: int = 128
    learning_rate: float = 5e-3
    tau: float = 1e-6
    seed: int = 0

    def __post_init__(self) -> None:
        checks.finite_positive("tau", self.tau)
        Rounds(self.rounds)
        self.recipe()

    def recipe(self) -> TrainingRecipe:
        return TrainingRecipe(self.epochs, self.batch, learning_rate=self.learning_rate, seed=self.seed)


@dataclass(frozen=True)
class Row:
    """One method; mu: the guarantee that it was run at, where it is run at one."""

    method: str
    mu: float | None
    outcome: Outcome

    def plain(self) -> dict[str, Any]:
        outcome = asdict(self.outcome)
        outcome["curve"] = [list(point) for point in self.outcome.curve]
        outcome["guarantee"] = self.outcome.guarantee.plain()
        return {"method": self.method, "mu": self.mu, **outcome, "commit": _commit()}


@dataclass(frozen=True)
class PublicSetup:
    """What all parties agree on beforehand, from public data only.

    Attributes:
        projection: Fitted on the public rows.
        encoder: Of one release at the nominal τ.
        lambda_max: The largest variance of the public rows.
        tau: The nominal τ.
        mean: (d,) of the public rows.
        norm: The median norm of the centred public rows.
        rows: (n, d) the public rows.
        labels: (n,) their classes.
        classes: The classes' names.
    """

    projection: Projection
    encoder: CalibratedSingular
    lambda_max: float
    tau: float
    mean: Tensor
    norm: float
    rows: Tensor
    labels: Tensor
    classes: tuple[str, ...]


def prepared(public: Features, weights: str, *, tau: float, radius: float | None = None) -> PublicSetup:
    """From labelled public rows. weights: the digest of what made their features. radius: of the noise that the paper
    gives features, from `displacement`; None: from the energy of the public rows."""
    target = Tau(tau, "energy" if radius is None else "displacement")
    facts = facts_for(
        target,
        public,
        public=None,
        clip=None,
        moments_of=watched_moments(SeededStream(0).fork("facts"), unwatched),
        displacement=None if radius is None else Fact(radius, "public"),
    )
    known = held(public).float()
    mean = known.mean(0)
    norm = float(torch.linalg.vector_norm(known - mean, dim=1).median())
    return PublicSetup(
        projection=projection_fit.fit(public, weights),
        encoder=Singular().calibrate(target, facts)[0],
        lambda_max=facts["lambda_max"],
        tau=tau,
        mean=mean,
        norm=norm or 1.0,
        rows=known,
        labels=public.labels,
        classes=public.classes,
    )


def set_up(train: Features, test: Features, agreed: PublicSetup, config: SimulationConfig) -> Simulation:
    """Deal the rows to the parties."""
    if train.classes != test.classes:
        raise ArgumentError("the rows to train on and those to test on do not have the same classes")
    if train.units is not None:
        raise ArgumentError("a simulation deals single rows: those of one unit would come to several parties")
    stream = SeededStream(config.seed).fork("partition")
    parts = partition(train.labels, config.parties, beta=config.beta, rho=config.rho, stream=stream)
    whole = held(train)
    x = [whole[index] for index in parts]
    return Simulation(
        parties=[_in_memory(train.part(index), own) for index, own in zip(parts, x, strict=True)],
        x=x,
        test=test,
        test_x=held(test),
        projection=agreed.projection,
        encoder=agreed.encoder,
        lambda_max=agreed.lambda_max,
        tau=agreed.tau,
        scale=(agreed.mean, agreed.norm),
        public=(agreed.labels if agreed.classes == train.classes else None, agreed.rows),
        head=config.head,
        rounds=Rounds(config.rounds),
        recipe=config.recipe(),
    )


def _in_memory(features: Features, x: Tensor) -> Features:
    return replace(features, read=lambda index: x[index])


def held(features: Features) -> Tensor:
    """(n, d) all features in memory."""
    return torch.cat([features.read(index) for index in torch.split(torch.arange(len(features)), _ROWS)])


def jobs(methods: Sequence[str], mus: Sequence[float]) -> list[tuple[str, float | None]]:
    """Every method, those with a μ at each."""
    found: list[tuple[str, float | None]] = []
    for name in methods:
        found += [(name, mu) for mu in mus] if method_named(name).simulated_at == "mu" else [(name, None)]
    return found


def work(simulation: Simulation, name: str) -> int:
    """How many rows a method goes over, for a progress bar."""
    return method_named(name).passes(simulation) * simulation.rows


def simulate(simulation: Simulation, name: str, mu: float | None = None, *, progress: Progress = lambda _: None) -> Row:
    """Run one method."""
    return Row(name, mu, method_named(name).simulate(simulation, 0.0 if mu is None else mu, progress))


@cache
def _commit() -> str:
    return str(results.provenance({})["commit"])


class Kept:
    """The file of a simulation, rewritten after every method. about: what it is a simulation of; the file of another is
    refused."""

    def __init__(self, path: Path | None, about: dict[str, Any]) -> None:
        self.path, self.about = path, json.loads(json.dumps(about))
        self.rows: list[dict[str, Any]] = []
        self.counts: list[list[int]] = []  # of each party's rows of each class
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        found = read_simulation(path)
        if found["settings"] != self.about:
            other = found["settings"]
            differ = sorted(key for key in {*other, *self.about} if other.get(key) != self.about.get(key))
            raise OutputError(
                f"{path} is of another simulation, with other {', '.join(differ)}: name another file, or remove it"
            )
        self.rows, self.counts = list(found["rows"]), found["counts"]

    def has(self, job: tuple[str, float | None]) -> bool:
        return any((row["method"], row["mu"]) == job for row in self.rows)

    def add(self, row: Row) -> None:
        self.rows.append(row.plain())
        if self.path is not None:
            text = json.dumps(self.whole(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
            files.write_whole(self.path, text.encode(), 0o600)  # unprotected figures of private rows

    def whole(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "provenance": results.provenance({}),
            "settings": self.about,
            "counts": self.counts,
            "rows": self.rows,
        }


def read_simulation(path: Path) -> dict[str, Any]:
    """A simulation's file; every row as it must be."""
    try:
        whole = strict_json.mapping("simulation", strict_json.parsed(files.read_small(path, _LIMIT)))
        strict_json.only("simulation", whole, {"format", "version", "provenance", "settings", "counts", "rows"})
        if whole["format"] != FORMAT or whole["version"] != VERSION:
            raise ManifestError(f"not a simulation of version {VERSION}")
        strict_json.mapping("settings", whole["settings"])
        for own in strict_json.items("counts", whole["counts"]):
            for count in strict_json.items("counts", own):
                if type(count) is not int or not 0 <= count < 1 << 48:
                    raise ManifestError(f"a count cannot be {strict_json.shown(count)}")
        for row in strict_json.items("rows", whole["rows"]):
            _check_row(strict_json.mapping("row", row))
    except (UnreadableFileError, ManifestError) as error:
        raise DataFormatError(f"{path} does not hold a simulation: {error}") from None
    return dict(whole)


def _check_row(row: Any) -> None:
    row.pop("title", None)  # of files that an earlier version wrote
    strict_json.only("row", row, {"method", "mu", "commit", *Outcome.__dataclass_fields__})
    for name in ("method", "commit"):
        strict_json.text(name, row[name])
    _check_guarantee(row["guarantee"])
    if row["method"] not in METHODS.all():
        raise ManifestError(f"no method is called {strict_json.shown(row['method'])}")
    if row["mu"] is not None:
        strict_json.figure("mu", row["mu"])
    for name, value in strict_json.mapping("chosen", row["chosen"]).items():
        strict_json.number(name, value)
    for name in ("accuracy", "bytes_up", "bytes_down", "messages", "seconds"):
        _measured(name, row[name])
    for point in strict_json.items("curve", row["curve"]):
        if not isinstance(point, list) or len(point) != len(Point._fields):
            raise ManifestError("a point of the curve must have bytes, messages, seconds and accuracy")
        for value in point:
            _measured("curve", value)


def _check_guarantee(item: Any) -> None:
    """A code with numbers; a text, where an earlier version wrote one."""
    if isinstance(item, str):
        strict_json.text("guarantee", item)
        return
    figures = strict_json.mapping("guarantee", item).get("figures", {})
    code = strict_json.text("guarantee", item.get("code"), "[a-z0-9-]{1,60}")
    for name, value in strict_json.mapping("figures", figures).items():
        strict_json.number(name, value)
    if code in GUARANTEES:
        strict_json.only(code, figures, fields_of(GUARANTEES[code]))


def readable(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows for people: with titles, and guarantees as sentences."""
    return [
        {**row, "title": method_named(row["method"]).title, "guarantee": str(notes.read(row["guarantee"]))}
        for row in rows
    ]


def _measured(name: str, value: Any) -> None:
    """Something that was counted or timed."""
    if strict_json.number(name, value):
        strict_json.figure(name, value)


@dataclass(frozen=True)
class Compared:
    """A method that sends once, or twice, beside one with rounds. at_bytes: what the other reaches with no more bytes
    than it needs, None: the other has not finished a round by then; bytes_ratio, seconds_ratio: what the other needs
    over what it needs to reach the same accuracy, None: the other never does."""

    method: str
    mu: float | None
    other: str
    accuracy: float
    at_bytes: float | None
    bytes_ratio: float | None
    seconds_ratio: float | None


def compared(rows: Sequence[dict[str, Any]]) -> list[Compared]:
    """Every method of one or two steps beside every one with rounds, by their curves."""
    found = []
    for row in rows:
        if method_named(row["method"]).in_rounds or not row["curve"]:
            continue
        own = Point(*row["curve"][0])
        for other in rows:
            if not method_named(other["method"]).in_rounds or other["mu"] not in (None, row["mu"]):
                continue
            points = [Point(*point) for point in other["curve"]]
            before = [point.accuracy for point in points if point.bytes <= own.bytes]
            reached = next((point for point in points if point.accuracy >= own.accuracy), None)
            found.append(
                Compared(
                    row["method"],
                    row["mu"],
                    other["method"],
                    own.accuracy,
                    before[-1] if before else None,
                    reached.bytes / own.bytes if reached and own.bytes else None,
                    reached.seconds / own.seconds if reached and own.seconds else None,
                )
            )
    return found
