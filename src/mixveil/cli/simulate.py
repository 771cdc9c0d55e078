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
    escape,
    out,
    print_json,
)

if TYPE_CHECKING:
    from mixveil.data import Images
    from mixveil.features import Features, Loaded
    from mixveil.federated.simulate import Kept, Prepared, Setting

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
    float, typer.Option("--rho", help="Size skew: one party has ρ times as many rows as each of the others.")
]
Methods = Annotated[str, typer.Option("--methods", help="all, or names with commas between: see below.")]
Mus = Annotated[str, typer.Option("--mu", help="Guarantees to run the private methods at, with commas between.")]
NominalTau = Annotated[float, typer.Option("--tau", help="Nominal τ of one-shot and of remixed.")]
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
    tau: NominalTau = 1e-6,
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
    """Deal DATA to parties and let them learn together in every way there is, in this process.

    [bold]local[/] each alone; [bold]centralised[/] all rows in one place; [bold]fedavg[/], [bold]fedprox[/] as the
    paper has it, [bold]fedprox-tuned[/] by a small grid on rows held out; [bold]one-shot[/] one release at τ,
    [bold]remixed[/] as the paper's code does; at a μ: [bold]two-step[/], [bold]two-step-gaussian[/], [bold]sums[/],
    [bold]sums-twice[/], [bold]moments[/], [bold]dp-sgd[/].

    An experiment: noise is seeded, nothing leaves, and the ledger is not touched.
    """
    from mixveil.errors import ArgumentError
    from mixveil.federated import simulate as engine
    from mixveil.federated.methods import chosen_methods

    names = chosen_methods(methods)
    mus = _mus(mu)
    rate = {"linear": 5e-3, "mlp": 1e-3}[head] if learning_rate is None else learning_rate
    setting = engine.Setting(parties, beta, rho, head, rounds, epochs, learning_rate=rate, tau=tau, seed=seed)
    if page is not None and page.suffix.lower() not in (".html", ".htm"):
        raise ArgumentError(f"--page {page}: a page is an .html file")
    about = {
        "data": data,
        "test": test,
        "public": public,
        "backbone": backbone or "none",
        "mirror": mirror,
        **asdict(setting),
    }
    kept = engine.Kept(out_file, about)
    todo = [job for job in engine.jobs(names, mus) if not kept.has(job)]
    if todo:
        sets = _sets(data, test, public, data_dir, size, grey, depth)
        _run(kept, todo, setting, sets, backbone, mirror, data_dir, cache)
    shown = [row for row in kept.rows if (row["method"], row["mu"]) in engine.jobs(names, mus)]
    found = engine.compared(shown)
    if page is not None:
        from mixveil.report.simulation import write_page

        write_page(page, {**kept.whole(), "rows": shown}, [asdict(item) for item in found])
    if as_json:
        print_json({**kept.whole(), "rows": shown, "compared": [asdict(item) for item in found]})
        return
    skew = "" if beta is None else f", β = {beta:g}"
    skew += "" if rho == 1 else f", ρ = {rho:g}"
    _print(f"{data}, {parties} parties{skew}, head {head}", shown, found, public is None)


def _mus(text: str) -> list[float]:
    from mixveil import checks
    from mixveil.errors import ArgumentError

    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ArgumentError(f"--mu {text!r}: numbers with commas between are wanted") from None
    if not found:
        raise ArgumentError("--mu: no number is given")
    return [checks.positive("mu", value) for value in dict.fromkeys(found)]


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
    import torch

    from mixveil.data import NAMED, open_data
    from mixveil.errors import ArgumentError

    def opened(name: str) -> Images:
        return open_data(name, data_dir=data_dir, size=size, grey=grey, depth=depth)

    splits = NAMED[data].splits if data in NAMED else ()
    if test in (data, f"{data}:train") or public in (data, f"{data}:train"):
        raise ArgumentError("the rows to deal, those to test on and the public ones must not be the same")
    if test is None and {"train", "test"} <= set(splits):
        rows, tested = opened(f"{data}:train"), opened(f"{data}:test")
    else:
        rows = opened(data)
        index = torch.arange(len(rows))
        if test is None:
            rows, tested = rows.part(index[index % 5 != 0]), rows.part(index[index % 5 == 0])
        else:
            tested = opened(test).listed(rows.classes)
    if public is not None:
        return rows, tested, opened(public)
    index = torch.arange(len(rows))
    return rows.part(index[index % 4 != 0]), tested, rows.part(index[index % 4 == 0])


def _run(
    kept: Kept,
    todo: list[tuple[str, float | None]],
    setting: Setting,
    sets: tuple[Images, Images, Images],
    backbone: str | None,
    mirror: bool,
    data_dir: Path | None,
    cache: Path | None,
) -> None:
    from mixveil.extractor import Extractor
    from mixveil.federated import simulate as engine

    extractor = _common.chosen_extractor(backbone, None, mirror) or Extractor()
    loaded = _common.load_extractor(extractor, data_dir)
    train, test, known = (_common.features_of(images, loaded, cache) for images in sets)
    agreed = _agreed(known, loaded, sets[2], setting.tau, {name for name, _ in todo})
    scene = engine.set_scene(train, test, agreed, setting)
    kept.counts = scene.counts
    with _common.progress("simulating", engine.work(scene, todo)) as step:
        engine.simulate(scene, todo, done=kept.add, progress=step)


def _agreed(known: Features, loaded: Loaded, images: Images, tau: float, names: set[str]) -> Prepared:
    """What is public. The paper's noise on features is measured where it is used."""
    from mixveil.cli._displacement import displacements
    from mixveil.federated.simulate import prepared
    from mixveil.keys import SeededStream

    radius = None
    if loaded.nets and names & {"one-shot", "remixed"}:
        radius = displacements(images, loaded, [tau], None, None, SeededStream(0))[-1].radius
    return prepared(known, loaded.digest, tau=tau, radius=radius)


def _print(title: str, rows: list[dict[str, Any]], found: list[Any], set_aside: bool) -> None:
    from rich.table import Column, Table

    from mixveil.report.pages import amount

    figures = ("μ", "accuracy", "up", "down", "messages", "seconds")
    table = Table(
        Column("method", no_wrap=True), *(Column(name, justify="right", no_wrap=True) for name in figures), title=title
    )
    for row in rows:
        table.add_row(
            row["method"],
            "—" if row["mu"] is None else f"{row['mu']:g}",
            f"{row['accuracy']:.1%}",
            amount(row["bytes_up"]),
            amount(row["bytes_down"]),
            f"{row['messages']:,}",
            f"{row['seconds']:.1f}",
        )
    out.print(table)
    said: dict[str, list[str]] = {}
    for row in rows:
        said.setdefault(row["guarantee"], []).append(row["method"])
    for words, names in said.items():
        out.print(f"[bold]{', '.join(dict.fromkeys(names))}[/]: {escape(words)}.", soft_wrap=True)
    for item in found:
        if item.other not in ("fedavg", "fedprox", "fedprox-tuned") or item.method not in ("one-shot", "two-step"):
            continue
        name = item.method if item.mu is None else f"{item.method} at μ = {item.mu:g}"
        before = "has not finished a round" if item.at_bytes is None else f"is at {item.at_bytes:.1%}"
        if item.bytes_ratio is None or item.seconds_ratio is None:
            after = "never gets there"
        else:
            after = (
                f"gets there with {item.bytes_ratio:.3g} times the bytes and {item.seconds_ratio:.3g} times the seconds"
            )
        out.print(
            f"{name}: {item.accuracy:.1%}; with the same bytes {item.other} {before}, and {after}.", soft_wrap=True
        )
    if set_aside:
        out.print("A quarter of the rows played the public data: real public data are less like the private ones.")
