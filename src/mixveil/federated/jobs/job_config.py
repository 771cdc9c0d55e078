"""Settings between machines, and those of a job: what a coordinator asks for. Reading them needs no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from mixveil.core import checks, files, strict_json
from mixveil.core.errors import (
    ArgumentError,
    DataFormatError,
    ManifestError,
    MismatchError,
    ReleaseError,
    UnreadableFileError,
)
from mixveil.core.local_training import AugMix
from mixveil.core.tensor_files import check_header
from mixveil.features.shipped import PHOTOGRAPHS, located
from mixveil.federated.jobs.messages import PROJECTION_LIMIT, check_name
from mixveil.federated.methods.base import IMAGE_HEADS, Method
from mixveil.federated.methods.catalogue import between_machines, method_named

if TYPE_CHECKING:
    from mixveil.features.extractor import Extractor
    from mixveil.federated.algorithms import Rounds
    from mixveil.learn.fit import TrainingRecipe


@dataclass(frozen=True)
class Settings:
    """Settings as Flower carries them, a table of plain values, read strictly into a frozen dataclass."""

    old_names: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Every value must be known and of its type; dashes in names are underscores here."""
        given = {cls.old_names.get(name, name).replace("-", "_"): value for name, value in config.items()}
        hints = typing.get_type_hints(cls)
        fields = {field.name: field for field in dataclasses.fields(cls)}
        if unknown := given.keys() - fields.keys():
            raise ArgumentError(f"{cls.__name__} has no setting {', '.join(sorted(unknown))!r:.80}")
        for name, field in fields.items():
            if field.default is dataclasses.MISSING and name not in given:
                raise ArgumentError(f"the setting {name} is missing")
            if name in given and not strict_json.fits(given[name], hints[name]):
                raise ArgumentError(f"the setting {name} cannot be {strict_json.shown(given[name])}")
        return cls(**given)

    def plain(self) -> dict[str, Any]:
        """What was given, as a table."""
        return {name.replace("_", "-"): value for name, value in dataclasses.asdict(self).items() if value is not None}


@dataclass(frozen=True)
class JobConfig(Settings):
    """What a coordinator asks for; the help of `mixveil run` says what each setting is.

    Attributes:
        min_parties: How many must take part.
        wait: Seconds to wait for the parties in each step.
        projection: The file of the public projection that records go through; empty: the one that comes with mixveil
            where the method needs one, else none.
        head: Of the model; empty: the method's first.
        limit: Megabytes of a release that is taken.
        stage: Of the backbone; empty: its last features.
        epochs: Of a training; 0: 20 on releases, 1 between rounds.
        severity: Of Fed-AugMix's views, in (0, 10].
    """

    job: str
    method: str
    parties: int
    min_parties: int = 1
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
    severity: float = 2.0

    def __post_init__(self) -> None:
        check_name("job", self.job)
        if self.method not in between_machines():
            raise ArgumentError(f"method must be one of {', '.join(between_machines())}, got {self.method!r:.40}")
        for name in ("parties", "min_parties", "limit", "rounds"):
            checks.at_least(name, getattr(self, name), 1)
        if self.min_parties > self.parties:
            raise ArgumentError(f"min_parties must be at most the {self.parties} parties, got {self.min_parties}")
        checks.finite_positive("wait", self.wait)
        self._check_method()
        self._check_training()

    def _check_method(self) -> None:
        rules = self.rules
        if self.head not in ("", *rules.heads):
            raise ArgumentError(f"head must be {' or '.join(rules.heads)} for {self.method}, got {self.head!r:.40}")
        if rules.projection == "none" and self.projection:
            raise ArgumentError(f"projection must be empty for {self.method}, which sends no records")
        if self.backbone != "none" and self.needs_images:
            what = f"head {self.head}" if self.head in IMAGE_HEADS else self.method
            raise ArgumentError(f"backbone must be none for {what}, which takes images, got {self.backbone!r:.40}")

    def _check_training(self) -> None:
        """What `learn` would refuse as well, without loading it."""
        if self.optimiser not in ("adamw", "sgd"):
            raise ArgumentError(f"optimiser must be adamw or sgd, got {self.optimiser!r:.40}")
        checks.at_least("epochs", self.epochs, 0)
        checks.at_least("batch", self.batch, 2)
        checks.finite_positive("learning_rate", self.learning_rate)
        if not 0 <= self.seed < 1 << 64:
            raise ArgumentError(f"seed must be in [0, 2⁶⁴), got {self.seed}")
        if not 0 <= self.proximal < float("inf"):
            raise ArgumentError(f"proximal must not be negative, got {self.proximal:g}")
        AugMix(self.severity)  # it checks itself
        if self.backbone != "none" or self.stage or self.mirror:
            self.extractor  # noqa: B018, it checks itself

    @property
    def rules(self) -> Method:
        """The method itself."""
        return method_named(self.method)

    @property
    def chosen_head(self) -> str:
        return self.head or self.rules.heads[0]

    @property
    def projection_path(self) -> Path | None:
        """The file of the projection that is used; None: there is none."""
        if self.projection:
            return Path(self.projection)
        return located(PHOTOGRAPHS) if self.rules.projection == "required" else None

    @property
    def needs_images(self) -> bool:
        """Whether parties train on images, not on any rows."""
        return self.head in IMAGE_HEADS or self.rules.needs_images

    @property
    def recipe(self) -> TrainingRecipe:
        """Of the head mlp on releases, or of all rounds together."""
        from mixveil.learn.fit import TrainingRecipe

        optimiser: Literal["adamw", "sgd"] = "adamw" if self.optimiser == "adamw" else "sgd"
        whole = TrainingRecipe(self.epochs or 20, self.batch, optimiser, self.learning_rate, self.seed)
        return self.schedule.recipe(whole) if self.rules.in_rounds else whole

    @property
    def schedule(self) -> Rounds:
        from mixveil.federated.algorithms import Rounds

        return Rounds(self.rounds, self.epochs or 1)

    @property
    def extractor(self) -> Extractor:
        from mixveil.features.extractor import Extractor

        return Extractor.parse(self.backbone, stage=self.stage or None, mirror=self.mirror)


def check_order(server: Path, config: JobConfig) -> None:
    """Refuse a job that cannot be done, before anything is begun."""
    source = config.projection_path
    digest, public, second_step = (None, True, False) if source is None else _stated(source)
    if not public:
        raise ArgumentError("projection was fitted on private data: no party would certify anything with it")
    if second_step and len(config.rules.sends) > 1:
        raise ArgumentError(
            "projection: this file is from the second step. Give the public projection from `mixveil prepare`"
        )
    path = server / "jobs" / config.job / "job.json"
    if not path.exists():
        return
    begun = json.loads(path.read_text(encoding="utf-8"))
    if begun["method"] != config.method:
        raise MismatchError(f"the job {config.job} is a {begun['method']}: give another name to a {config.method}")
    if digest is not None and begun["projection"] != digest:
        raise MismatchError(f"the job {config.job} was begun with another projection: give this one another name")


def _stated(path: Path) -> tuple[str, bool, bool]:
    """What a projection's file says of itself: its digest, whether it was fitted on public data, and whether it is of a
    second step. The server reads and checks the rest."""
    files.check_there(path, "the file of a projection")
    try:
        with files.opened(path, PROJECTION_LIMIT) as file:
            check_header(file, path, limit=strict_json.MANIFEST_LIMIT, metadata=("mixveil",))
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        whole = strict_json.mapping("settings", strict_json.loads(header.get("__metadata__", {}).get("mixveil", "")))
        return digest, whole.get("origin") == "public", bool(whole.get("spent"))
    except (OSError, UnreadableFileError, ReleaseError, ManifestError) as error:
        raise DataFormatError(f"{path} is not a projection: {error}") from None
