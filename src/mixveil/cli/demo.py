"""`mixveil demo`: the whole job. Parties that may not show their images train one model together."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixveil.cli._common import AsJson, Cache, DataDir, escape, out, print_json, say
from mixveil.core.errors import ArgumentError

if TYPE_CHECKING:
    from torch import Tensor

    from mixveil.data.images import Images
    from mixveil.data.opening import DataOptions
    from mixveil.features.cache import Features
    from mixveil.features.projection import Projection

_PUBLIC = {"cifar10": "cifar100", "mnist": "fashion-mnist", "fashion-mnist": "mnist"}
_MUS = (8.0, 4.0, 2.0, 1.0)
_COLUMNS = {
    "two-step": "records, mixed",
    "two-step-gaussian": "records, plain",
    "sums-twice": "sums, twice",
    "sums": "sums alone",
}


def demo(
    folder: Annotated[Path, typer.Option("--out", help="The folder to make. It must not exist.")] = Path("demo-out"),
    data: Annotated[str, typer.Option("--data", help="A named set with a train and a test split.")] = "digits",
    public: Annotated[str | None, typer.Option("--public", help="PUBLIC data of the same kind.")] = None,
    backbone: Annotated[str, typer.Option("--backbone", help="Public network, or none: the pixels.")] = "none",
    parties: Annotated[int, typer.Option("--parties", min=2, help="Among how many the data are split.")] = 3,
    mu: Annotated[float, typer.Option("--mu", help="The total guarantee of every record.")] = 2.0,
    data_dir: DataDir = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Let parties train one model on images that none of them shows; then attack what one of them sent.

    Each sends noisy class sums, and then its records in the directions that all sums together show, at one total μ.
    """
    from mixveil.core import files
    from mixveil.data.opening import DataOptions

    files.check_new(folder)
    os.environ["MIXVEIL_STATE"] = str(folder.resolve() / "state")  # the demo's own ledger
    sets = _sets(data, public, DataOptions(data_dir=data_dir))
    figures = _Demo(folder, sets, backbone, parties, mu, DataOptions(data_dir=data_dir), cache, quiet=as_json).run()
    if as_json:
        print_json(figures)


class _Demo:
    """The steps, one after the other, with files between them."""

    def __init__(
        self,
        folder: Path,
        sets: tuple[Images, Images, Images],
        backbone: str,
        parties: int,
        mu: float,
        options: DataOptions,
        cache: Path | None,
        *,
        quiet: bool,
    ) -> None:
        self.folder, self.backbone, self.mu, self.quiet = folder, backbone, mu, quiet
        self.how: dict[str, Any] = {"options": options, "cache": cache}
        self.known, self.private, self.test = sets
        self.names = [f"party-{chr(97 + i) if i < 26 else i}" for i in range(parties)]
        self.parts = [self.private.part(index) for index in _dealt(self.private, parties)]

    def run(self) -> dict[str, Any]:
        narrow, accuracy = self._two_steps()
        self._title("4. What is it worth?")
        alone, together, sweep = self._compared()
        self._table(alone, together, sweep)
        return {
            "folder": str(self.folder),
            "parties": dict(zip(self.names, alone, strict=True)),
            "together": together,
            "mu": self.mu,
            "accuracy": accuracy,
            "sweep": {f"{mu:g}": row for mu, row in sweep.items()},
            "plot": self._plot(sweep, alone, together),
            "report": self._audit(narrow),
            "spent": self._ledger(),
        }

    def _two_steps(self) -> tuple[Path, float]:
        """Statistics, directions, releases, model: as files. The narrow projection, and the accuracy."""
        import mixveil
        from mixveil.learn.model import in_words

        half = self.mu / math.sqrt(2)
        self.folder.mkdir(parents=True)
        self._title(f"1. All prepare the same public projection, from {len(self.known):,} public images")
        wide, narrow = self.folder / "public.projection", self.folder / "task.projection"
        fitted = mixveil.prepare(
            self.known,
            wide,
            backbone=self.backbone,
            mu=self.mu,
            parties=len(self.parts),
            rows=len(self.private),
            num_classes=len(self.private.classes),
            **self.how,
        ).projection
        counts = f"{fitted.mean.numel():,} features → {fitted.dimension:,} directions"
        self._say(f"{counts}: the rule looks at no private image")
        self._title(f"2. Each party sends noisy class sums, at μ = {half:.3g}")
        sums = [self.folder / "statistics" / name for name in self.names]
        for name, part, target in zip(self.names, self.parts, sums, strict=True):
            mixveil.statistics(part, target, projection=wide, mu=half, party=name, **self.how)
            most = int(part.labels.bincount(minlength=len(part.classes)).argmax())
            sent = f"{len(part.classes)} sums of {fitted.dimension:,} values"
            self._say(f"{name}: {len(part):,} images, most of class {part.classes[most]} → {sent}")
        found = mixveil.directions(sums, narrow, projection=wide)
        self._say(f"The server finds {found.projection.dimension} directions in which the classes differ")
        self._title(f"3. Each sends its records there, at μ = {half:.3g}: {self.mu:g} in all")
        releases = [self.folder / "releases" / name for name in self.names]
        for name, part, target in zip(self.names, self.parts, releases, strict=True):
            mixveil.encode(part, target, projection=narrow, mu=half, party=name, **self.how)
        model = mixveil.train(releases, self.folder / "model", projection=narrow, test=self.test, **self.how)
        if model is None or model.tested is None:
            raise ArgumentError("a demo is one process: do not start it with torchrun")
        right = float(model.tested["accuracy"])
        self._say(f"Accuracy on {len(self.test):,} test images: {right:.1%}. {in_words(model.trained)}")
        return narrow, right

    def _compared(self) -> tuple[list[float], float, dict[float, dict[str, float]]]:
        """Accuracies: of each party alone and of all together in the clear, and of all released at several μ."""
        from mixveil.core.randomness import SecureStream
        from mixveil.features import projection_fit
        from mixveil.features.extractor import Extractor
        from mixveil.features.opening import FeatureOptions
        from mixveil.learn.protocol import learn

        features, extractor = FeatureOptions(self.how["options"], self.how["cache"]), Extractor.parse(self.backbone)
        known, weights = features.open(self.known, extractor)
        test, parts = features.open(self.test, extractor)[0], [features.open(p, extractor)[0] for p in self.parts]
        whole = projection_fit.fit(known, weights)
        alone, together = [_clear([part], whole, test) for part in parts], _clear(parts, whole, test)
        sweep = {
            mu: {
                name: learn(parts, whole, name, mu, stream=SecureStream()).accuracy(test)  # type: ignore[arg-type]
                for name in _COLUMNS
            }
            for mu in _MUS
        }
        return alone, together, sweep

    def _audit(self, narrow: Path) -> str:
        """The first party attacks what it sent."""
        import mixveil
        from mixveil.cli.audit import show

        self._title(f"5. What {self.names[0]} sees when it attacks what it sent")
        release = self.folder / "releases" / self.names[0]
        audited = mixveil.audit([release], self.parts[0], public=self.known, projection=narrow, **self.how)
        page = mixveil.write_report(self.folder / "audit", audited, command="mixveil demo")
        if not self.quiet:
            show(audited.audit, page)
        return str(page)

    def _ledger(self) -> dict[str, Any]:
        """What the first party has spent, by its ledger: the parties of a demo share one, their records do not."""
        from mixveil.releases import accounting
        from mixveil.releases.ledger import Ledger

        self._title(f"6. What {self.names[0]}'s ledger says of its {len(self.parts[0]):,} images")
        ledger = Ledger()
        standing = ledger.standing(accounting.owners_of(ledger, self.parts[0]))
        self._say(str(accounting.spent_note(standing)))
        return accounting.summary(standing)

    def _table(self, alone: list[float], together: float, sweep: dict[float, dict[str, float]]) -> None:
        if self.quiet:
            return
        from rich.table import Column, Table

        from mixveil.theory import gdp

        table = Table(Column("who", no_wrap=True), Column("promised", no_wrap=True), *_COLUMNS.values())
        for name, accuracy in zip(self.names, alone, strict=True):
            table.add_row(f"{name} alone", "–", f"{accuracy:.1%}")
        table.add_row("all, in the clear", "nothing", f"{together:.1%}")
        for mu, row in sweep.items():
            promise = f"μ {mu:g}, ε {gdp.epsilon(mu):.2g}" + ("*" if mu >= 4 else "")
            table.add_row("all, released", promise, *(f"{row[name]:.1%}" for name in _COLUMNS))
        out.print(table)
        out.print("* No meaningful guarantee: to show what noise costs.")
        say(
            "Pairing buys nothing in μ, and a linear head learns as much from sums (up to chance: compare the "
            "columns). Records are sent for what sums cannot give: other heads, later questions, a look at outliers."
        )

    def _plot(self, sweep: dict[float, dict[str, float]], alone: list[float], together: float) -> str:
        from mixveil.core.files import write_whole
        from mixveil.report.lines import chart

        lines = {title: [(mu, row[name]) for mu, row in sweep.items()] for name, title in _COLUMNS.items()}
        levels = {"all, in the clear": together, "a party alone": sum(alone) / len(alone)}
        path = self.folder / "accuracy.svg"
        write_whole(path, chart("accuracy against μ", lines, levels).encode())
        self._say(f"A picture of it: {path}")
        return str(path)

    def _title(self, text: str) -> None:
        if not self.quiet:
            out.rule(text, align="left")

    def _say(self, text: str) -> None:
        if not self.quiet:
            say(escape(text))


def _clear(parts: list[Features], whole: Projection, test: Features) -> float:
    """What the same head learns from these parties' records themselves."""
    from mixveil.core.randomness import SeededStream
    from mixveil.encoders.identity import Identity
    from mixveil.features.projection import Projected
    from mixveil.learn.discriminant import from_records
    from mixveil.learn.layers import Layers
    from mixveil.releases.records import in_memory

    releases = [
        in_memory(Projected(part, whole), Identity(), (), party="clear", stream=SeededStream(0)) for part in parts
    ]
    named = Layers.of(from_records(releases, whole), whole).named(test)
    return float(named.eq(test.labels).double().mean())


def _dealt(images: Images, parties: int) -> list[Tensor]:
    """Rows of each party. Each sees mostly some of the classes: four rows of five go by their class, one in turn."""
    import torch

    rows = torch.arange(len(images))
    by_class = images.labels * parties // len(images.classes)
    party = torch.where(rows % 5 == 0, (rows // 5) % parties, by_class)
    dealt = [rows[party == i] for i in range(parties)]
    if min(len(index) for index in dealt) < 2:
        raise ArgumentError(f"{len(images)} rows of {len(images.classes)} classes are too few for {parties} parties")
    return dealt


def _sets(data: str, public: str | None, options: DataOptions) -> tuple[Images, Images, Images]:
    """Public, private and test images. Of the digits, every fourth of the train split plays the public data."""
    import torch

    from mixveil.encoders.calibration import check_apart

    private, test = (options.open(f"{data}:{split}") for split in ("train", "test"))
    if data == "digits" and public is None:
        index = torch.arange(len(private))
        known, private = private.part(index[index % 4 == 0]), private.part(index[index % 4 != 0])
    elif public is None and data not in _PUBLIC:
        raise ArgumentError(f"public: name public data that are like {data}")
    else:
        known = options.open(public or _PUBLIC[data])
    check_apart(private, known)
    if test.classes != private.classes:
        raise ArgumentError(f"{data}: its train and test splits do not have the same classes")
    return known, private, test
