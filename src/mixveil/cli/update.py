"""`mixveil update`: what a party would send after its part of a round of federated averaging."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mixveil.cli import _common, _release
from mixveil.cli._common import AsJson, print_json, say
from mixveil.data.opening import DataOptions

Network = Annotated[
    str | None,
    typer.Option("--network", help="lenet5, convnet or linear. Default: lenet5 for 28 to 32 pixels a side, or linear."),
]
RowCount = Annotated[
    int | None,
    typer.Option("--rows", help="Only the first so many: the fewer, the more an update shows. Default: all rows."),
]
BatchRows = Annotated[int, typer.Option("--batch", help="Rows of a step.")]
Epochs = Annotated[int, typer.Option("--epochs", help="That the party trains before it sends its weights.")]
Rate = Annotated[float, typer.Option("--learning-rate", help="Of SGD.")]
Momentum = Annotated[float, typer.Option("--momentum", help="Of SGD, in [0, 1).")]
Proximal = Annotated[float | None, typer.Option("--proximal", help="FedProx: μ of its term.")]
AugMixSeverity = Annotated[
    float | None, typer.Option("--augmix", metavar="SEVERITY", help="Fed-AugMix: how much views differ, up to 10.")
]
Clip = Annotated[float | None, typer.Option("--clip", help="The norm C that each record's gradient has at most.")]
Noise = Annotated[
    float | None,
    typer.Option("--noise", help="Noise of deviation z·C/batch on each step, with --clip. It is NOT accounted."),
]
Prune = Annotated[
    float | None, typer.Option("--prune", metavar="SHARE", help="The share of each step's gradient that is set to 0.")
]
Seed = Annotated[int, typer.Option("--seed", help="Of the first weights.")]
Before = Annotated[
    Path | None, typer.Option("--before", help="The folder of an earlier update, to begin with what came of it.")
]


@_common.data_options("classes")
def update(
    data: _common.Data,
    out: _common.NewFolder,
    *,
    network: Network = None,
    rows: RowCount = None,
    batch: BatchRows = 4,
    epochs: Epochs = 1,
    learning_rate: Rate = 0.1,
    momentum: Momentum = 0.0,
    proximal: Proximal = None,
    augmix: AugMixSeverity = None,
    clip: Clip = None,
    noise: Noise = None,
    prune: Prune = None,
    seed: Seed = 0,
    before: Before = None,
    party: _common.Party = "party",
    recipient: _common.Recipient = None,
    budget: _common.Budget = None,
    label_budget: _common.LabelBudget = None,
    options: DataOptions,
    as_json: AsJson = False,
) -> None:
    """Make what you would send to a server after your part of a round of FedAvg, FedProx or Fed-AugMix, to attack it
    before you join (`mixveil audit OUT --truth DATA`).

    It promises nothing. --clip, --noise and --prune are for experiments: no guarantee is computed. DATA are images,
    and the network works on their pixels. To try it, give public data that are like yours, in another state folder
    (MIXVEIL_STATE): your ledger counts this as a release without a bound.
    """
    asked = _common.asked(locals())
    import mixveil
    from mixveil.releases.accounting import spent_note
    from mixveil.releases.accounting import summary as spent

    made = mixveil.update(**asked, watch=_common.progress, warn=_common.warning(quiet=as_json))
    if as_json:
        told = {"release": str(made.folder), **_release.summary(made.manifest)}
        print_json({**told, "warnings": _common.plain(made.warnings), "spent": spent(made.standing)})
        return
    _release.show(made.folder, made.manifest)
    say(spent_note(made.standing))
