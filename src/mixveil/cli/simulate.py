"""`mixveil simulate`: the ways to learn together, side by side on one partition."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mixveil.cli import _common
from mixveil.cli._common import (
    AsJson,
    Backbone,
    Cache,
    Data,
    DataDir,
    Depth,
    Grey,
    Mirror,
    Size,
    err,
    escape,
    out,
    print_json,
)
from mixveil.core.errors import OutputError

if TYPE_CHECKING:
    from mixveil.data.opening import Images
    from mixveil.features.cache import Features, Loaded
    from mixveil.federated.simulation.simulate import Compared, Kept, PublicSetup, SimulationConfig

Parties = Annotated[int, typer.Option("--parties", min=1, help="Among how many the rows are dealt.")]
Beta = Annotated[
    float | None,
    typer.Option(
        "--beta",
        help="Label skew: each class is dealt in proportions from Dir(β), the smaller the more unlike. Default: alike.",
        show_default=False,
    ),
]
Rho = Annotated[
    float, typer.Option("--rho", help="Size skew, in (0, 1]: one party has ρ times as many rows as each of the others.")
]
Methods = Annotated[str, typer.Option("--methods", help="all, or names with commas between, as listed above.")]
Mus = Annotated[str, typer.Option("--mu", help="Guarantees to run the private methods at, with commas between.")]
NominalTau = Annotated[
    float | None,
    typer.Option(
        "--tau",
        help="Nominal τ of one-shot and of remixed. Default: 1e-6, the paper's, of features; 0.1 of pixels.",
        show_default=False,
    ),
]
Head = Annotated[
    Literal["linear", "mlp"],
    typer.Option("--head", help="What methods with a gradient train: one layer, or the paper's classifier."),
]


def simulate(
    data: Data,
    parties: Parties = 10,
    beta: Beta = None,
    rho: Rho = 1.0,
    methods: Methods = "all",
    mu: Mus = "2",
    tau: NominalTau = None,
    head: Head = "linear",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Of one epoch each, of methods with rounds.")] = 50,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Of trainings without rounds.")] = 20,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            "--learning-rate",
            help="Of AdamW, falling to zero. Default: 0.005, and 0.001 of mlp. The paper's FedProx keeps its own.",
            show_default=False,
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            "--test", help="Rows to test on, as DATA. Default: the set's test split, else a fifth.", show_default=False
        ),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(
            "--public",
            help="Labelled PUBLIC data. Default: a quarter of DATA is set aside and plays them.",
            show_default=False,
        ),
    ] = None,
    backbone: Backbone = None,
    mirror: Mirror = False,
    seed: Annotated[int, typer.Option("--seed", help="Of partition, noise and training.")] = 0,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="Keep what is found in this JSON file; the same command goes on with what is left."),
    ] = None,
    page: Annotated[Path | None, typer.Option("--page", help="Also make a page with tables and plots.")] = None,
    data_dir: DataDir = None,
    size: Size = None,
    grey: Grey = False,
    depth: Depth = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Deal DATA to parties and let them learn together in many ways, in this process: an experiment with seeded noise,
    of which nothing leaves and the ledger hears nothing.

    Without a guarantee: [bold]local[/] each party alone; [bold]public[/] the public rows alone; [bold]centralised[/]
    all rows in one place; [bold]fedavg[/]; [bold]fedprox[/] in the paper's setting; [bold]fedprox-tuned[/] by rows held
    out; [bold]one-shot[/] one release at τ; [bold]remixed[/] anew in every epoch, as the paper's code does.

    At a μ: [bold]two-step[/] class sums, then mixed records in the directions found; [bold]two-step-gaussian[/] plain
    records instead; [bold]sums[/] class sums alone; [bold]sums-twice[/] again in the directions found; [bold]moments[/]
    with second moments; [bold]dp-sgd[/] FedAvg with noisy steps, at the ε of that μ. These end in a linear head always.

    What the server and the other parties learn in each: docs/federated.md.
    """
    from mixveil.core import files
    from mixveil.core.errors import ArgumentError
    from mixveil.federated.methods.catalogue import chosen_methods
    from mixveil.federated.simulation import simulate as engine

    names, mus = chosen_methods(methods), _common.several_mus(mu)
    rate = {"linear": 5e-3, "mlp": 1e-3}[head] if learning_rate is None else learning_rate
    nominal = (0.1 if backbone is None else 1e-6) if tau is None else tau
    setting = engine.SimulationConfig(
        parties, beta, rho, head, rounds, epochs, learning_rate=rate, tau=nominal, seed=seed
    )
    if page is not None:
        _check_page(page)
    for path in (out_file, page):
        if path is not None:
            files.check_parent(path)
    sets = _sets(data, test, public, data_dir, size, grey, depth)
    about = {
        "data": data,
        "test": test,
        "public": public,
        "backbone": backbone or "none",
        "mirror": mirror,
        "rows": [len(images) for images in sets],
        "digest": _digest(sets),
        **asdict(setting),
    }
    wanted = engine.jobs(names, mus)
    kept = engine.Kept(out_file, about)
    todo = [job for job in wanted if not kept.has(job)]
    if len(todo) < len(wanted):
        err.print(f"{len(wanted) - len(todo)} of {len(wanted)} are in {out_file} already")
    failed = _run(kept, todo, setting, sets, backbone, mirror, data_dir, cache) if todo else {}
    shown = [row for job in wanted for row in kept.rows if (row["method"], row["mu"]) == job]
    found = engine.compared(shown)
    if as_json:
        beside = [asdict(item) for item in found]
        caveats = _caveats(len(sets[1]), public is None)
        print_json({**kept.whole(), "rows": shown, "compared": beside, "failed": failed, "caveats": caveats})
    else:
        skew = ("" if beta is None else f", β = {beta:g}") + ("" if rho == 1 else f", ρ = {rho:g}")
        _print(f"{data}, {parties} {'party' if parties == 1 else 'parties'}{skew}, head {head}", shown, found, rounds)
        for text in _caveats(len(sets[1]), public is None):
            out.print(text, soft_wrap=True)
    if page is not None:
        from mixveil.report.simulation_page import write_page

        write_page(page, {**kept.whole(), "rows": engine.readable(shown)}, [asdict(item) for item in found])
    if not shown:
        raise ArgumentError("no method could be run: see the warnings")


def _check_page(page: Path) -> None:
    from mixveil.core.errors import ArgumentError
    from mixveil.report.simulation_page import is_page

    if page.suffix.lower() not in (".html", ".htm"):
        raise ArgumentError(f"--page {page}: a page is an .html file")
    if page.is_file() and not is_page(page):
        raise OutputError(f"{page} exists, and is not the page of a simulation: it is not overwritten")


def _sets(
    data: str,
    test: str | None,
    public: str | None,
    data_dir: Path | None,
    size: int | None,
    grey: bool,
    depth: int | None,
) -> tuple[Images, Images, Images]:
    """Rows to deal, to test on, and public ones."""
    from mixveil.core.randomness import SeededStream
    from mixveil.data.opening import NAMED, open_data
    from mixveil.data.partition import set_aside

    def opened(name: str) -> Images:
        return open_data(name, data_dir=data_dir, size=size, grey=grey, depth=depth)

    def parted(images: Images, share: int) -> tuple[Images, Images]:
        stay, aside = set_aside(images.labels, share, stream=SeededStream(0).fork(f"apart {share}"))
        return images.part(stay), images.part(aside)

    if data in NAMED and {"train", "test"} <= set(NAMED[data].splits):
        data, test = f"{data}:train", test or f"{data}:test"
    rows = opened(data)
    rows, tested = parted(rows, 5) if test is None else (rows, opened(test).listed(rows.classes))
    rows, known = parted(rows, 4) if public is None else (rows, opened(public))
    return rows, tested, known


def _digest(sets: tuple[Images, Images, Images]) -> str:
    """Of all images and labels: what was found for others is not taken for theirs. Refuses sets that share rows, but
    for the copies that data have by nature."""
    from hashlib import sha256

    from mixveil.core.errors import ArgumentError
    from mixveil.data.fingerprint import among, fingerprints

    prints = [fingerprints(images) for images in sets]
    for one, other, what in ((0, 1, "test"), (0, 2, "public"), (2, 1, "test and public")):
        shared = among(prints[one], prints[other])
        if shared > 0.1 * min(len(sets[one]), len(sets[other])):
            raise ArgumentError(
                f"{shared:,} of the {what} rows are among the others: rows to deal, to test on and public ones must "
                f"not be the same"
            )
        if shared:
            _common.warn(f"{shared:,} of the {what} rows have a copy among the others")
    whole = sha256()
    for images, found in zip(sets, prints, strict=True):
        whole.update(found.numpy().tobytes() + images.labels.numpy().tobytes())
    return whole.hexdigest()


def _run(
    kept: Kept,
    todo: list[tuple[str, float | None]],
    setting: SimulationConfig,
    sets: tuple[Images, Images, Images],
    backbone: str | None,
    mirror: bool,
    data_dir: Path | None,
    cache: Path | None,
) -> dict[str, str]:
    """Run what is left; why what could not be run could not."""
    from mixveil.core.errors import MixveilError
    from mixveil.features.extractor import Extractor
    from mixveil.federated.methods.catalogue import method_named
    from mixveil.federated.simulation import simulate as engine

    extractor = _common.chosen_extractor(backbone, None, mirror) or Extractor()
    loaded = _common.load_extractor(extractor, data_dir)
    train, test, known = (_common.features_of(images, loaded, cache) for images in sets)
    agreed = _agreed(known, loaded, sets[2], setting.tau, {name for name, _ in todo})
    simulation = engine.set_up(train, test, agreed, setting)
    kept.counts = simulation.counts
    failed: dict[str, str] = {}
    for name, mu in todo:
        title = method_named(name).title + ("" if mu is None else f", μ = {mu:g}")
        try:
            with _common.progress(title, engine.work(simulation, name)) as step:
                kept.add(engine.simulate(simulation, name, mu, progress=step))
        except OutputError:
            raise
        except MixveilError as error:
            failed[name] = str(error)
            _common.warn(f"{title}: not run: {error}")
    return failed


def _agreed(known: Features, loaded: Loaded, images: Images, tau: float, names: set[str]) -> PublicSetup:
    """What is public. The paper's noise on features is measured where it is used."""
    from mixveil.cli._displacement import displacements
    from mixveil.core.randomness import SeededStream
    from mixveil.federated.methods.catalogue import method_named
    from mixveil.federated.simulation.simulate import prepared

    radius = None
    if loaded.nets and any(method_named(name).simulated_at == "tau" for name in names):
        radius = displacements(images, loaded, [tau], None, None, SeededStream(0))[-1].radius
    return prepared(known, loaded.digest, tau=tau, radius=radius)


def _print(title: str, rows: list[dict[str, Any]], found: list[Compared], rounds: int) -> None:
    from rich.table import Column, Table

    from mixveil.federated.methods.catalogue import method_named
    from mixveil.federated.simulation.simulate import readable
    from mixveil.report.pages import amount

    wide = out.width >= 78
    figures = ("μ", "accuracy", "up", "down", "messages", "seconds") if wide else ("μ", "accuracy", "sent")
    table = Table(
        Column("method", no_wrap=True), *(Column(name, justify="right", no_wrap=True) for name in figures), title=title
    )
    for row in rows:
        cells = [row["method"], "—" if row["mu"] is None else f"{row['mu']:g}", f"{row['accuracy']:.1%}"]
        if wide:
            cells += [amount(row["bytes_up"]), amount(row["bytes_down"]), f"{row['messages']:,}"]
            cells.append(f"{row['seconds']:.1f}")
        else:
            cells.append(amount(row["bytes_up"] + row["bytes_down"]))
        table.add_row(*cells)
    out.print(table)
    said: dict[str, list[str]] = {}
    for row in readable(rows):
        said.setdefault(row["guarantee"], []).append(row["method"])
    for words, names in said.items():
        out.print(f"[bold]{', '.join(dict.fromkeys(names))}[/]: {escape(words)}.", soft_wrap=True)
    for item in found:
        if not (method_named(item.other).compared and method_named(item.method).compared):
            continue
        name = item.method if item.mu is None else f"{item.method} at μ = {item.mu:g}"
        before = "has not finished a round" if item.at_bytes is None else f"is at {item.at_bytes:.1%}"
        after = f"is not there after {rounds} rounds"
        if item.bytes_ratio is not None and item.seconds_ratio is not None:
            after = f"needs {item.bytes_ratio:.3g} times its bytes and {item.seconds_ratio:.3g} times its seconds"
        out.print(
            f"{name} has {item.accuracy:.1%}: with the same bytes {item.other} {before}, and for the same accuracy it "
            f"{after}.",
            soft_wrap=True,
        )


def _caveats(tested: int, set_aside: bool) -> list[str]:
    said = [
        f"One seed, tested on {tested:,} rows: up to ± {100 / tested**0.5:.1f} points are chance. Several images of "
        f"one person are not covered together.",
        "Noise was seeded: this is an experiment, not a release. All figures here, accuracies and class counts too, "
        "were computed from the rows without protection: keep them as you keep the data.",
    ]
    if set_aside:
        said.append(
            "A quarter of the rows, with their labels, played the public data, which the methods with a μ and one-shot "
            "use: real public data are less like the private ones."
        )
    return said
