"""`mixveil rounds`: rounds of sums between parties who exchange files, by hand or by their own means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mixveil.cli import _common, _release
from mixveil.cli._common import AsJson, escape, print_json, say
from mixveil.core.wording.sentences import plural
from mixveil.data.opening import DataOptions

app = typer.Typer(
    add_completion=False,
    help="Learn together in rounds of sums, by files that you exchange yourselves.",
    no_args_is_help=True,
)

Plan = Annotated[Path, typer.Option("--plan", help="The plan that all parties have, from the coordinator.")]
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan, from the coordinator.", show_default=False)]
Units = Annotated[
    int, typer.Option("--units", help="About how many records, or persons with --unit, all parties have together.")
]
NumClasses = Annotated[int, typer.Option("--num-classes", min=2, help="How many classes there are.")]
Parties = Annotated[int, typer.Option("--parties", help="How many parties take part.")]
AboutMu = Annotated[float, typer.Option("--mu", help="About what each party will spend. Each gives its own in `send`.")]
TotalMu = Annotated[
    float,
    typer.Option(
        "--mu", help="All messages together: every record, its label with it, is μ-GDP; with --unit, every unit."
    ),
]
Head = Annotated[
    Path | None, typer.Option("--head", help="The coordinator's head, head.safetensors. Without it: the class sums.")
]
Messages = Annotated[
    list[Path], typer.Argument(metavar="MESSAGE…", help="One release of each party, all of one round.")
]
State = Annotated[
    Path | None, typer.Option("--state", help="The folder of the step before. Without it: these are class sums.")
]
OutState = Annotated[
    Path | None, typer.Option("--out", help="The folder to make, with the next head and the state. It must not exist.")
]
Model = Annotated[Path | None, typer.Option("--model", help="The folder of a model to make of what is learnt so far.")]
TestData = Annotated[str | None, typer.Option("--test", help="Labelled data to test the model on: as DATA.")]


@app.command("plan")
def plan(
    projection: _common.SharedProjection,
    units: Units,
    num_classes: NumClasses,
    parties: Parties,
    mu: AboutMu,
    out: _common.NewFile,
    as_json: AsJson = False,
) -> None:
    """The coordinator's: plan the rounds, once. Give the plan and the projection to every party.

    The settings are those that the projection carries for this much noise. They were found on public data.
    """
    _common.look_at_projection(projection)
    import mixveil

    made = mixveil.rounds_plan(out, projection=projection, units=units, num_classes=num_classes, parties=parties, mu=mu)
    if as_json:
        print_json({"plan": str(out), **made.plain()})
        return
    settings = made.settings
    say(
        f"[bold]{escape(str(out))}[/]: class sums, then {plural(settings.rounds, 'round')}, in {settings.directions:,} "
        f"directions\n  id {made.id}"
    )


@app.command("send")
@_common.data_options("unit", "classes")
def send(
    data: _common.Data,
    plan: Plan,
    projection: _common.SharedProjection,
    mu: TotalMu,
    out: _common.NewFolder,
    *,
    head: Head = None,
    party: _common.Party = "party",
    recipient: _common.Recipient = None,
    budget: _common.Budget = None,
    options: DataOptions,
    cache: _common.Cache = None,
    as_json: AsJson = False,
) -> None:
    """A party's: release the next message of a plan. First the class sums, then residual sums of each head.

    The whole μ is reserved in your ledger before the first message. Each message is made once: one that fails after it
    was entered is not made again, and you wait for the next head.
    """
    asked = _common.asked(locals())
    _common.look_at_projection(projection)
    if head is not None:
        _common.look_at(head, "a head")
    import mixveil
    from mixveil.releases import accounting

    made = mixveil.send_round(**asked, watch=_common.progress, warn=_common.warning(quiet=as_json))
    if as_json:
        told = {"message": made.message, "rounds": made.rounds, "release": str(out), **_release.summary(made.sums)}
        print_json({**told, "spent": accounting.summary(made.standing), "warnings": _common.plain(made.warnings)})
        return
    _release.show(out, made.sums)
    say(f"  message {made.message} of {made.rounds}: give this folder to the coordinator")
    say(accounting.spent_note(made.standing))


@app.command("step")
@_common.data_options()
def step(
    folders: Messages,
    plan: Plan,
    projection: _common.SharedProjection,
    *,
    state: State = None,
    out: OutState = None,
    model: Model = None,
    test: TestData = None,
    options: DataOptions,
    cache: _common.Cache = None,
    as_json: AsJson = False,
) -> None:
    """The coordinator's: learn from the messages of one round, and write the head for the next.

    Give OUT/head.safetensors to every party. After the last round, or before, --model writes a model.
    """
    asked = _common.asked(locals())
    for folder in folders:
        _common.look_at(folder / "manifest.json", "a release")
    _common.look_at_projection(projection)
    import mixveil
    from mixveil.learn.model import in_words

    made = mixveil.rounds_step(**asked, watch=_common.progress)
    if as_json:
        told = {"message": made.message, "rounds": made.rounds, "parties": list(made.parties)}
        told |= {"state": None if out is None else str(out), "head": None if made.head is None else str(made.head)}
        card = None if made.model is None else {"model": str(model), **made.model.model.card}
        print_json({**told, "model": card, "warnings": _common.plain(made.warnings)})
        return
    for item in made.warnings:
        _common.warn(item)
    say(f"message {made.message} of {made.rounds}, from {plural(len(made.parties), 'party', 'parties')}")
    if made.head is not None:
        say(f"  [bold]{escape(str(made.head))}[/]: give this to every party")
    if made.model is not None:
        say(f"  [bold]{escape(str(model))}[/]: {escape(in_words(made.model.trained))}")
        if tested := made.model.tested:
            say(f"  accuracy on {escape(tested['data'])}: {tested['accuracy']:.2%} of {tested['rows']:,}")


@app.command("leave")
def leave(plan: PlanFile, party: _common.Party = "party", as_json: AsJson = False) -> None:
    """A party's: leave a plan. Your ledger holds nothing more for it, and you send no more messages."""
    import mixveil

    held = mixveil.leave_rounds(plan, party=party)
    if as_json:
        print_json({"plan": str(plan), "party": party, "freed": held})
        return
    say(f"{escape(party)} left the plan: μ = {held:.4g} is no longer reserved")
