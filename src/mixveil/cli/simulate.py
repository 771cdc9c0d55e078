"""`mixveil simulate`: the ways to learn together, side by side on one partition."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mixveil.cli import _common
from mixveil.cli._common import AsJson, Backbone, Cache, Data, Mirror, escape, out, say
from mixveil.core.wording.sentences import plural
from mixveil.data.opening import DataOptions

if TYPE_CHECKING:
    from mixveil.federated.simulation.simulate import Simulated

Parties = Annotated[int, typer.Option("--parties", min=1, help="Among how many the rows are dealt.")]
Beta = Annotated[
    float | None,
    typer.Option(
        "--beta",
        help="Label skew: each class is dealt in proportions from Dir(β), the smaller the more unlike. Default: alike.",
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
    ),
]
Head = Annotated[
    Literal["linear", "mlp", "lenet5", "convnet"],
    typer.Option(
        "--head",
        help="What methods with a gradient train: one layer, the paper's classifier, or a network on images (without "
        "--backbone): LeNet-5, or a ConvNet of 8 layers.",
    ),
]
Severity = Annotated[
    float, typer.Option("--severity", help="Of the views of fed-augmix and fedprox-augmix, in (0, 10].")
]


@_common.data_options()
def simulate(
    data: Data,
    *,
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
            help="Of AdamW, falling to zero. Default: 0.005 of linear, else 0.001. fedprox and fedprox-augmix keep the "
            "paper's, 0.001.",
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
        ),
    ] = None,
    backbone: Backbone = None,
    mirror: Mirror = False,
    seed: Annotated[int, typer.Option("--seed", help="Of partition, noise and training.")] = 0,
    severity: Severity = 2.0,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Keep what is found in this JSON file; the same command goes on with what is left."),
    ] = None,
    page: Annotated[Path | None, typer.Option("--page", help="Also make a page with tables and plots.")] = None,
    options: DataOptions,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Deal DATA to parties and let them learn together in many ways, in this process. It is an experiment with seeded
    noise: nothing leaves, and nothing is entered in the ledger.

    Without a guarantee. [bold]local[/]: each party alone. [bold]public[/]: the public rows alone. [bold]centralised[/]:
    all rows in one place. [bold]fedavg[/]. [bold]fedprox[/]: in the paper's setting. [bold]fedprox-tuned[/]: by rows
    held out. [bold]fed-augmix[/], [bold]fedprox-augmix[/]: FedAvg and FedProx whose parties compare views of their
    images (no backbone). [bold]one-shot[/]: one release at τ. [bold]remixed[/]: again in every epoch, as the paper's
    code does.

    At a μ. [bold]two-step[/]: class sums, then mixed records in the directions found. [bold]two-step-gaussian[/]: plain
    records instead. [bold]sums[/]: class sums alone. [bold]sums-twice[/]: again in the directions found.
    [bold]moments[/]: with second moments. [bold]rounds[/]: class sums, then rounds of residual sums.
    [bold]rounds-secure[/]: the same where the server sees sums over all parties alone, and they share the noise.
    [bold]dp-sgd[/]: FedAvg with noisy steps, at the ε that rounds of sums at that μ have for a record taken out. These
    always end in a linear head.

    The first lines say which method is best at which μ, and which do worse than each party alone.

    What the server and the other parties learn in each: docs/federated.md.
    """
    asked = _common.asked(locals()) | {"mu": _common.several_mus(mu)}
    import mixveil

    found = mixveil.simulate(**asked, watch=_common.progress, warn=_common.warn, tell=_common.telling(as_json))
    if as_json:
        lists = {"rows": list(found.rows), "compared": [asdict(item) for item in found.compared]}
        failed = {name: error.plain() for name, error in found.failed.items()}
        judged = {"verdict": _common.plain(found.verdict), "caveats": _common.plain(found.caveats)}
        _common.print_json({**found.whole, **lists, "failed": failed, **judged})
        return
    for told in found.verdict:
        say(f"{'[yellow]warning:[/] ' * (told.code == 'worse-than-local')}{escape(str(told))}")
    skew = ("" if beta is None else f", β = {beta:g}") + ("" if rho == 1 else f", ρ = {rho:g}")
    _print(f"{data}, {plural(parties, 'party', 'parties')}{skew}, head {head}", found, rounds)
    for told in found.caveats:
        say(told)


def _print(title: str, found: Simulated, rounds: int) -> None:
    from rich.table import Column, Table

    from mixveil.core.wording.notes import read
    from mixveil.federated.methods.catalogue import method_named
    from mixveil.report.pages import amount

    wide = out.width >= 78
    figures = ("μ", "accuracy", "up", "down", "messages", "seconds") if wide else ("μ", "accuracy", "sent")
    table = Table(
        Column("method", no_wrap=True), *(Column(name, justify="right", no_wrap=True) for name in figures), title=title
    )
    for row in found.rows:
        cells = [row["method"], "—" if row["mu"] is None else f"{row['mu']:g}", f"{row['accuracy']:.1%}"]
        if wide:
            cells += [amount(row["bytes_up"]), amount(row["bytes_down"]), f"{row['messages']:,}"]
            cells.append(f"{row['seconds']:.1f}")
        else:
            cells.append(amount(row["bytes_up"] + row["bytes_down"]))
        table.add_row(*cells)
    out.print(table)
    methods_of: dict[str, list[str]] = {}
    for row in found.rows:
        methods_of.setdefault(str(read(row["guarantee"])), []).append(row["method"])
    for guarantee, names in methods_of.items():
        say(f"[bold]{', '.join(dict.fromkeys(names))}[/]: {escape(guarantee)}.")
    for item in found.compared:
        if not (method_named(item.method).compared and method_named(item.other).compared):
            continue
        name = item.method if item.mu is None else f"{item.method} at μ = {item.mu:g}"
        before = "has not finished a round" if item.at_bytes is None else f"is at {item.at_bytes:.1%}"
        after = f"is not there after {rounds} rounds"
        if item.bytes_ratio is not None and item.seconds_ratio is not None:
            after = f"needs {item.bytes_ratio:.3g} times its bytes and {item.seconds_ratio:.3g} times its seconds"
        said = f"with the same bytes {item.other} {before}, and for the same accuracy it {after}."
        say(f"{name} has {item.accuracy:.1%}: {said}")
