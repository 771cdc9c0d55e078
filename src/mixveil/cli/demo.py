"""`mixveil demo`: the whole job. Parties that may not show their images train one model together."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixveil.cli import _common, _spending
from mixveil.cli._common import AsJson, Cache, DataDir, escape, out, print_json
from mixveil.core.errors import ArgumentError

if TYPE_CHECKING:
    from torch import Tensor

    from mixveil.data.opening import Images
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

    files.check_new(folder)
    os.environ["MIXVEIL_STATE"] = str(folder.resolve() / "state")  # nobody's real ledger
    found = _Job(folder, data, public, backbone, parties, mu, data_dir, cache, quiet=as_json).run()
    if as_json:
        print_json(found)


class _Job:
    """The steps, one after the other, with files between them."""

    def __init__(
        self,
        folder: Path,
        data: str,
        public: str | None,
        backbone: str,
        parties: int,
        mu: float,
        data_dir: Path | None,
        cache: Path | None,
        *,
        quiet: bool,
    ) -> None:
        from mixveil.encoders.calibration import check_apart

        self.folder, self.mu, self.data_dir, self.cache, self.quiet = folder, mu, data_dir, cache, quiet
        known, private, self.test_images = _sets(data, public, data_dir)
        check_apart(private, known)
        if self.test_images.classes != private.classes:
            raise ArgumentError(f"{data}: its train and test splits do not have the same classes")
        self.names = [f"party-{chr(97 + i) if i < 26 else i}" for i in range(parties)]
        self.known = self._features(known, backbone)
        self.private = self._features(private, backbone)
        self.test = self._features(self.test_images, backbone)
        self.dealt = _dealt(private, parties)

    def run(self) -> dict[str, Any]:
        from mixveil.features import projection
        from mixveil.learn.protocol import learn

        self._title(f"1. All prepare the same public projection, from {len(self.known):,} public images")
        whole = projection.fit(self.known, self.weights)
        k = projection.directions_for_sums(
            whole,
            parties=len(self.dealt),
            rows=len(self.private),
            classes=len(self.private.classes),
            mu=self.mu / math.sqrt(2),
        )
        self._say(f"{self.known.shape[0]:,} features → {k:,} directions: the rule looks at no private image")
        narrow, accuracy = self._two_steps(whole.first(k))
        self._title("4. What is it worth?")
        alone = [self._clear([part], whole) for part in self._parts()]
        together = self._clear(self._parts(), whole)
        sweep: dict[float, dict[str, float]] = {}
        for mu in _MUS:
            sweep[mu] = {
                name: learn(self._parts(), whole, name, mu, stream=_common.stream_for(None)).accuracy(self.test)  # type: ignore[arg-type]
                for name in _COLUMNS
            }
        self._table(alone, together, sweep)
        plot = self._plot(sweep, alone, together)
        report = self._audit(narrow)
        spent = self._ledger()
        return {
            "folder": str(self.folder),
            "parties": dict(zip(self.names, alone, strict=True)),
            "together": together,
            "mu": self.mu,
            "accuracy": accuracy,
            "sweep": {f"{mu:g}": row for mu, row in sweep.items()},
            "plot": str(plot),
            "report": report,
            "spent": spent,
        }

    def _two_steps(self, wide: Projection) -> tuple[Path, float]:
        """Statistics, directions, releases, model: as files. The narrow projection, and the accuracy."""
        from mixveil.core.types import Mu
        from mixveil.encoders.calibration import settled_facts
        from mixveil.encoders.singular import Singular
        from mixveil.features import projection
        from mixveil.features.projection import Projected, projected
        from mixveil.learn.model import in_words, write_model
        from mixveil.learn.training import opened, train
        from mixveil.releases.records import write_release
        from mixveil.releases.sums import directions, read_statistics, write_statistics

        half = self.mu / math.sqrt(2)
        self.folder.mkdir(parents=True)
        digest = projection.write(self.folder / "public.projection", wide)
        self._title(f"2. Each party sends noisy class sums, at μ = {half:.3g}")
        sums = []
        for name, part in zip(self.names, self._parts(), strict=True):
            rows = projected(part, self.weights, wide, certified=True)
            target = self.folder / "statistics" / name
            sums.append(write_statistics(target, rows, digest, half, party=name, stream=_common.stream_for(None)))
            most = int(part.labels.bincount(minlength=len(part.classes)).argmax())
            self._say(
                f"{name}: {len(part):,} images, most of class {part.classes[most]} → {len(part.classes)} sums of "
                f"{wide.dimension:,} values"
            )
        found = directions([read_statistics(self.folder / "statistics" / name) for name in self.names], wide, digest)
        narrow = self.folder / "task.projection"
        digest = projection.write(narrow, found)
        self._say(f"The server finds {found.dimension} directions in which the classes differ")
        self._title(f"3. Each sends its records there, at μ = {half:.3g}: {self.mu:g} in all")
        releases = []
        for name, part in zip(self.names, self._parts(), strict=True):
            records = Projected(part, found)
            facts = settled_facts(records, certified=True, public=None, clip=found.clip)
            encoder, guarantees = Singular().calibrate(Mu(half), facts)
            target = self.folder / "releases" / name
            write_release(
                target,
                records,
                encoder,
                guarantees,
                party=name,
                stream=_common.stream_for(None),
                assets={"projection": digest},
            )
            releases.append(target)
        trained = train(opened(releases, (found, digest)))
        right = float(trained.layers.named(self.test).eq(self.test.labels).double().mean())
        write_model(
            self.folder / "model", trained, {"data": "test", "rows": len(self.test), "accuracy": right}, {"mu": self.mu}
        )
        self._say(f"Accuracy on {len(self.test):,} test images: {right:.1%}. {in_words(trained)}")
        return narrow, right

    def _clear(self, parts: list[Features], whole: Projection) -> float:
        """What the same head learns from these parties' records themselves."""
        from mixveil.encoders.identity import Identity
        from mixveil.features.projection import Projected
        from mixveil.learn.discriminant import from_records
        from mixveil.learn.layers import Layers
        from mixveil.releases.records import in_memory

        releases = [
            in_memory(Projected(part, whole), Identity(), (), party="clear", stream=_common.stream_for(0))
            for part in parts
        ]
        named = Layers.of(from_records(releases, whole), whole).named(self.test)
        return float(named.eq(self.test.labels).double().mean())

    def _audit(self, narrow: Path) -> str:
        """The first party attacks what it sent."""
        from mixveil.audit.auditing import audit
        from mixveil.cli.audit import show
        from mixveil.core.randomness import SeededStream
        from mixveil.core.types import View
        from mixveil.core.wording.notes import note
        from mixveil.data.row_views import Part
        from mixveil.features.projection import Projected, read
        from mixveil.releases.records import read_release
        from mixveil.releases.traces import load_trace
        from mixveil.report.audit_page import write_audit

        self._title(f"5. What {self.names[0]} sees when it attacks what it sent")
        projection, _ = read(narrow)
        release = read_release(self.folder / "releases" / self.names[0])
        trace = load_trace(release.id, len(release.payload))
        truth, similar = Projected(self._parts()[0], projection), Projected(self.known, projection)
        import torch

        half = torch.arange(0, len(similar), 2), torch.arange(1, len(similar), 2)
        others = similar.take(half[1][: len(truth)]).x
        view = View((release,), None if trace is None else (trace,), Part(similar, half[0]))
        found = audit(view, truth, others=others, stream=SeededStream(0))
        found = replace(found, verdict=(*found.verdict, *([note("for-knowing")] if release.certified else [])))
        how = {"command": "mixveil demo", "seed": 0, **_common.versions()}
        write_audit(self.folder / "audit", found, how)
        report = self.folder / "audit" / "report.html"
        if not self.quiet:
            show(found)
            out.print(f"Report, private, for your eyes only: {escape(str(report))}", soft_wrap=True)
        return str(report)

    def _ledger(self) -> dict[str, object]:
        """What the first party has spent, by its ledger: the parties of a demo share one, their records do not."""
        self._title(f"6. What {self.names[0]}'s ledger says of its {len(self.dealt[0]):,} images")
        owners = _spending.owners_of(self._parts()[0])
        if not self.quiet:
            out.print(_spending.sentence(owners), soft_wrap=True)
        return _spending.summary(owners)

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
        out.print(
            "Pairing buys nothing in μ, and a linear head learns as much from sums (up to chance: compare the "
            "columns). Records are sent for what sums cannot give: other heads, later questions, a look at outliers.",
            soft_wrap=True,
        )

    def _plot(self, sweep: dict[float, dict[str, float]], alone: list[float], together: float) -> Path:
        from mixveil.core.files import write_whole
        from mixveil.report.lines import chart

        lines = {title: [(mu, row[name]) for mu, row in sweep.items()] for name, title in _COLUMNS.items()}
        levels = {"all, in the clear": together, "a party alone": sum(alone) / len(alone)}
        path = self.folder / "accuracy.svg"
        write_whole(path, chart("accuracy against μ", lines, levels).encode())
        self._say(f"A picture of it: {path}")
        return path

    def _features(self, images: Images, backbone: str) -> Features:
        from mixveil.features.extractor import Extractor

        found, self.weights = _common.open_features(images, Extractor.parse(backbone), self.data_dir, self.cache)
        return found

    def _parts(self) -> list[Features]:
        return [self.private.part(index) for index in self.dealt]

    def _title(self, text: str) -> None:
        if not self.quiet:
            out.rule(text, align="left")

    def _say(self, text: str) -> None:
        if not self.quiet:
            out.print(escape(text), soft_wrap=True)


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


def _sets(data: str, public: str | None, data_dir: Path | None) -> tuple[Images, Images, Images]:
    """Public, private and test images. Of the digits, every fourth of the train split plays the public data."""
    import torch

    from mixveil.data.opening import open_data

    train, test = (open_data(f"{data}:{split}", data_dir=data_dir) for split in ("train", "test"))
    if data == "digits" and public is None:
        index = torch.arange(len(train))
        return train.part(index[index % 4 == 0]), train.part(index[index % 4 != 0]), test
    if public is None and data not in _PUBLIC:
        raise ArgumentError(f"say with --public what public data are like {data}")
    return open_data(public or _PUBLIC[data], data_dir=data_dir), train, test
