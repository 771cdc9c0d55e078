"""`mixveil split`: train both halves of a network, run the client half on images, and sweep over MixCon's settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mixveil.cli import _common, _release
from mixveil.cli._common import AsJson, escape, number, out, print_json, say
from mixveil.cli.train import told_to_end
from mixveil.data.opening import DataOptions

if TYPE_CHECKING:
    from mixveil.learn.split import SplitTrained
    from mixveil.learn.split_sweep import SplitSweep
    from mixveil.learn.split_training import SplitRecipe

app = typer.Typer(
    add_completion=False,
    help="Split a network between parties and a server, and see what that shows.",
    no_args_is_help=True,
)

Network = Annotated[str, typer.Option("--network", help="lenet5, vgg16 (images of 32 × 32 or more) or synthetic.")]
Cut = Annotated[
    str | None, typer.Option("--cut", help="The block behind which it is cut. Default: as MixCon's paper does.")
]
Penalty = Annotated[
    Literal["mixcon", "unicon", "none"],
    typer.Option("--penalty", help="The loss that adjusts how far representations lie apart."),
]
Weight = Annotated[float, typer.Option("--weight", help="Its weight λ.")]
Beta = Annotated[float, typer.Option("--beta", help="β of mixcon: 0 lets representations fall together.")]
Epochs = Annotated[int, typer.Option("--epochs", help="Of the training.")]
BatchRows = Annotated[int, typer.Option("--batch", help="Rows of a step.")]
Rate = Annotated[float, typer.Option("--learning-rate", help="Of SGD.")]
Falls = Annotated[
    str | None, typer.Option("--falls", help="Epochs after which the rate falls to a tenth, with commas between.")
]
Momentum = Annotated[float, typer.Option("--momentum", help="Of SGD, in [0, 1).")]
Decay = Annotated[float, typer.Option("--weight-decay", help="Of SGD.")]
Augmented = Annotated[
    bool, typer.Option("--augmented", help="Move images by up to four pixels and mirror them, in every epoch.")
]
Seed = Annotated[int, typer.Option("--seed", help="Of first weights and the order of rows.")]
TestData = Annotated[str | None, typer.Option("--test", help="Labelled data to test on: as DATA.")]
Tested = Annotated[str, typer.Option("--test", help="Labelled data to test on, and to attack: as DATA.")]
Client = Annotated[Path, typer.Option("--client", help="The folder of the client half.")]
Labelled = Annotated[bool, typer.Option("--labelled", help="Send labels too. A server that only answers needs none.")]
Weights = Annotated[str | None, typer.Option("--weights", help="λ, with commas between. Default: the paper's eight.")]
Betas = Annotated[str | None, typer.Option("--betas", help="β, with commas between. Default: the paper's seven.")]
Attacks = Annotated[
    str, typer.Option("--attacks", help="Attacks on representations: inversion, inversion-gan, inversion-adaptive.")
]
Attacked = Annotated[int, typer.Option("--images", help="How many test images are attacked.")]
Within = Annotated[
    float, typer.Option("--within", help="How much accuracy a setting may lose to be marked: 0.01 is a point.")
]
Steps = Annotated[
    int | None, typer.Option("--steps", help="At most so many steps for each network that attacks train.")
]
SweepFolder = Annotated[
    Path, typer.Option("--out", help="The folder to make, or of a sweep that was stopped: it goes on.")
]


@app.command("train")
@_common.data_options("classes")
def train(
    data: _common.Data,
    folder: _common.NewFolder,
    *,
    network: Network = "lenet5",
    cut: Cut = None,
    penalty: Penalty = "mixcon",
    weight: Weight = 1.0,
    beta: Beta = 1e-4,
    epochs: Epochs = 20,
    batch: BatchRows = 64,
    learning_rate: Rate = 0.01,
    falls: Falls = None,
    momentum: Momentum = 0.9,
    weight_decay: Decay = 0.0,
    augmented: Augmented = False,
    seed: Seed = 0,
    test: TestData = None,
    options: DataOptions,
    as_json: AsJson = False,
) -> None:
    """Train both halves of a network on DATA that you hold, with a loss that adjusts how far representations lie apart.

    OUT/client is for parties, OUT/server stays with the server. Halves are trained without noise: their weights may
    show training images, and the client half goes to all parties. Train on public data, or on data that may be shown.
    A training that is stopped keeps its state beside OUT; the same command goes on.
    """
    recipe = _recipe(locals())
    import mixveil

    made = mixveil.split_train(
        data,
        folder,
        network=network,
        cut=cut,
        recipe=recipe,
        test=test,
        options=options,
        watch=_common.progress,
        say=lambda text: _common.err.print(escape(text)),
        stopping=told_to_end,
    )
    if as_json:
        print_json(_plain(folder, made))
    else:
        _show(folder, made)


@app.command("encode")
@_common.data_options("classes")
def encode(
    data: _common.Data,
    client: Client,
    folder: _common.NewFolder,
    *,
    labelled: Labelled = False,
    party: _common.Party = "party",
    recipient: _common.Recipient = None,
    budget: _common.Budget = None,
    label_budget: _common.LabelBudget = None,
    options: DataOptions,
    as_json: AsJson = False,
) -> None:
    """Release what the client half makes of DATA, one row an image. No noise is added, and nothing is promised.

    First see what attackers get: encode and audit public data that are like yours, in another state folder
    (MIXVEIL_STATE). Your ledger counts this as a release without a bound.
    """
    asked = _common.asked(locals(), "folder")
    import mixveil
    from mixveil.releases.accounting import spent_note
    from mixveil.releases.accounting import summary as spent

    made = mixveil.split_encode(**asked, out=folder, watch=_common.progress, warn=_common.warning(quiet=as_json))
    if as_json:
        told = {"release": str(made.folder), **_release.summary(made.manifest)}
        print_json({**told, "warnings": _common.plain(made.warnings), "spent": spent(made.standing)})
        return
    _release.show(made.folder, made.manifest)
    say(spent_note(made.standing))


@app.command("sweep")
@_common.data_options("classes")
def sweep(
    data: _common.Data,
    folder: SweepFolder,
    test: Tested,
    *,
    network: Network = "lenet5",
    cut: Cut = None,
    weights: Weights = None,
    betas: Betas = None,
    attacks: Attacks = "inversion",
    images: Attacked = 100,
    within: Within = 0.01,
    steps: Steps = None,
    epochs: Epochs = 20,
    batch: BatchRows = 64,
    learning_rate: Rate = 0.01,
    falls: Falls = None,
    momentum: Momentum = 0.9,
    weight_decay: Decay = 0.0,
    augmented: Augmented = False,
    seed: Seed = 0,
    options: DataOptions,
    as_json: AsJson = False,
) -> None:
    """Train at every λ and β of MixCon's loss, attack each client half on test images, and draw what each leaves of
    accuracy, separability and pictures.

    A sweep that is stopped goes on with the same command. What it marks was chosen on the test images: measure the
    setting that you take on others. Halves are trained without noise: their weights may show training images.
    """
    recipe = _recipe(locals())
    import mixveil
    from mixveil.learn.split_sweep import BETAS, WEIGHTS

    made = mixveil.split_sweep(
        data,
        folder,
        test=test,
        network=network,
        cut=cut,
        weights=WEIGHTS if weights is None else _numbers("weights", weights),
        betas=BETAS if betas is None else _numbers("betas", betas),
        recipe=recipe,
        attacks=[name.strip() for name in attacks.split(",")],
        attacked=images,
        within=within,
        steps=steps,
        options=options,
        watch=_common.progress,
        say=lambda text: _common.err.print(escape(text)),
        stopping=told_to_end,
    )
    if as_json:
        chosen = None if made.chosen is None else made.points[made.chosen].plain()
        told = {"page": str(made.page), "points": [point.plain() for point in made.points], "chosen": chosen}
        print_json({**told, "warnings": _common.plain(made.warnings)})
    else:
        _show_sweep(made)


def _recipe(given: dict[str, Any]) -> SplitRecipe:
    """How halves are trained, of a verb's options."""
    from mixveil.learn.split_training import SplitRecipe

    names = ("penalty", "weight", "beta", "epochs", "batch", "learning_rate", "momentum", "weight_decay", "augmented")
    numbers = [] if given["falls"] is None else _numbers("falls", given["falls"])
    falls = tuple(int(x) if x.is_integer() else x for x in numbers)  # the recipe refuses others
    settings = {name: given[name] for name in (*names, "seed") if name in given}
    return SplitRecipe(**settings, falls=falls)  # type: ignore[arg-type]


def _numbers(name: str, text: str) -> list[float]:
    from mixveil.core.errors import ArgumentError

    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ArgumentError(f"{name} = {text!r:.60}: give numbers with commas between") from None


def _plain(folder: Path, made: SplitTrained) -> dict[str, Any]:
    figures = None if made.figures is None else made.figures.plain()
    halves = {"client": str(folder / "client"), "server": str(folder / "server"), "digest": made.client.digest}
    told = {"shape": list(made.client.output), "tested": figures, "loss": made.curve[-1]["loss"]}
    return {**halves, **told, "warnings": _common.plain(made.warnings)}


def _show(folder: Path, made: SplitTrained) -> None:
    shape = "×".join(map(str, made.client.output))
    say(f"[bold]{escape(str(folder / 'client'))}[/]: for parties; it turns an image into {shape} values")
    say(f"[bold]{escape(str(folder / 'server'))}[/]: for the server; it tells {len(made.server.classes)} classes apart")
    if made.figures is not None:
        apart = made.figures.separability
        say(f"  accuracy on {made.figures.rows:,} test images: {made.figures.accuracy:.2%}")
        say(
            f"  distances of representations, scaled to norm 1: least {apart.least:.3g}, mean {apart.mean:.3g}, "
            f"largest across classes {apart.most:.3g}"
        )
    for told in made.warnings:
        _common.warn(told)


def _show_sweep(made: SplitSweep) -> None:
    from rich.table import Table

    names = list(made.points[0].attacks)
    table = Table("setting", "accuracy", "mean distance", *(f"SSIM of {name}" for name in names))
    for place, point in enumerate(made.points):
        cells = [point.label, f"{point.accuracy:.2%}", number(point.separability.mean)]
        found = [point.attacks[name] for name in names]
        cells += ["failed" if figures.failed else number(figures.ssim) for figures in found]
        table.add_row(*cells, style="bold" if place == made.chosen else "")
    out.print(table)
    if made.chosen is not None:
        say(f"Least recovered for little accuracy, on these test images: {escape(made.points[made.chosen].label)}.")
    else:
        say("No setting is marked by what attackers recover: the page says why.")
    say(f"Plots and pictures of test images: {escape(str(made.page))}")
    for told in made.warnings:
        _common.warn(told)
