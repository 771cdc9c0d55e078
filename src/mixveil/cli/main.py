"""`mixveil`: the verbs by role, and the one place where errors become messages and exit codes.

A verb's module is imported when the verb is called: the list of verbs, with a line of help each, is kept here.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import click
import typer
from typer.core import TyperCommand, TyperGroup

from mixveil.cli._ending import end_when_told
from mixveil.core.errors import MixveilError, TrainingStopped, one_line

OWNER, COORDINATOR, RESEARCHER, EVERYONE = "Data owner", "Coordinator", "Researcher", "Everyone"


class Verb(NamedTuple):
    """A verb of the command line. module: the file of this room with its function; group: with an `app` of several."""

    module: str
    panel: str
    help: str
    group: bool = False


VERBS: dict[str, Verb] = {
    "calibrate": Verb("calibrate", OWNER, "Show what a release would promise and cost, before there is one."),
    "encode": Verb("encode", OWNER, "Encode DATA once, as a release that may leave this machine."),
    "statistics": Verb("statistics", OWNER, "Release the noisy class sums of DATA."),
    "update": Verb("update", OWNER, "Make what a party of FedAvg would send after a round, to attack it first."),
    "audit": Verb("audit", OWNER, "Attack your own release in every way known here, and write a report."),
    "report": Verb("audit", OWNER, "Make the page of an audit again, or one page of several."),
    "ledger": Verb("ledger", OWNER, "Show what was released, what it cost, and what is left of the budget."),
    "join": Verb("join", OWNER, "Take part in the jobs of a server."),
    "approve": Verb("join", OWNER, "See which jobs ask for you, and agree or refuse."),
    "prepare": Verb("prepare", COORDINATOR, "Fit a projection on PUBLIC data, which every party uses."),
    "directions": Verb("statistics", COORDINATOR, "Find the directions in which the classes differ."),
    "train": Verb("train", COORDINATOR, "Train one model on all releases."),
    "serve": Verb("serve", COORDINATOR, "Run the server that parties join."),
    "run": Verb("run", COORDINATOR, "Start a job with all parties, and follow it."),
    "status": Verb("run", COORDINATOR, "Show who is there, and what became of each job."),
    "stop": Verb("run", COORDINATOR, "End a job that is running."),
    "simulate": Verb("simulate", RESEARCHER, "Compare ways of learning together, in an experiment on this machine."),
    "results": Verb("results", RESEARCHER, "Show results as a table."),
    "demo": Verb("demo", RESEARCHER, "Let parties train one model, then attack what one of them sent."),
    "challenge": Verb(
        "challenge", RESEARCHER, "Let others try to break an encoder, or try it, and score guesses.", group=True
    ),
    "split": Verb(
        "split", RESEARCHER, "Split a network between parties and a server, and see what that shows.", group=True
    ),
    "rounds": Verb(
        "rounds", EVERYONE, "Learn together in rounds of sums, by files that you exchange yourselves.", group=True
    ),
    "verify": Verb("verify", EVERYONE, "Check a release."),
    "card": Verb("card", EVERYONE, "Check a release, and write one page about it, to read and to sign."),
    "predict": Verb("train", EVERYONE, "Name the class of every image of DATA."),
    "data": Verb("data", EVERYONE, "Look at data sets.", group=True),
    "keys": Verb("keys", EVERYONE, "Make certificates and keys for jobs between organisations.", group=True),
}

EPILOG = (
    "Exit codes: 0 done; 2 the command cannot be done as it was given; 3 refused, by a budget or because a promise "
    "would be false; 4 a release, a model or data are not valid; 5 nothing came of it; 130 and 143 stopped. "
    "With --json an error is printed as its code, type and message."
)


class Verbs(TyperGroup):
    """The verbs, each imported when it is asked for. The help lists them without importing any."""

    listing = False

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _usage_as_json():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _usage_as_json():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            for close in get_close_matches(args[0], VERBS, 1):
                raise click.UsageError(f"{error.format_message()} Did you mean '{close}'?", ctx) from None
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        verb = VERBS[cmd_name]
        if self.listing:
            return TyperCommand(cmd_name, help=verb.help, rich_help_panel=verb.panel)
        return _loaded(cmd_name, verb)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self.listing = False


@contextmanager
def _usage_as_json() -> Iterator[None]:
    """With --json a usage error is printed as JSON too, beside the text that typer prints."""
    try:
        yield
    except click.UsageError as error:
        if "--json" in sys.argv:
            from mixveil.cli._common import print_json

            message = one_line(error.format_message())
            print_json({"error": {"code": "usage", "type": "UsageError", "message": message}})
        raise


def _loaded(name: str, verb: Verb) -> click.Command:
    """The verb with its options; of a group, with its own verbs."""
    module: Any = import_module(f"mixveil.cli.{verb.module}")
    if verb.group:
        group = typer.main.get_command(module.app)
        group.name = name
        for own in group.commands.values() if isinstance(group, click.Group) else ():
            own.help = _unwrapped(own.help)
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    function = getattr(module, name)
    alone.command(name, help=_unwrapped(function.__doc__), rich_help_panel=verb.panel)(function)
    return typer.main.get_command(alone)


def _unwrapped(text: str | None) -> str:
    """A docstring with each paragraph in one line, so that a terminal wraps it at its own width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n"))


app = typer.Typer(
    cls=Verbs,
    help="Train one model on images that no party may show.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"mixveil {installed('mixveil')}")
        raise typer.Exit


def main() -> None:
    """Run a verb. An error that mixveil raises on purpose: its message, and the exit code of its kind."""
    end_when_told()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except MixveilError as error:
        _tell(error)
        sys.exit(error.exit_code)


def _tell(error: MixveilError) -> None:
    from mixveil.cli._common import err, escape, print_json

    if "--json" in sys.argv:
        print_json({"error": error.plain()})
    said = "\n".join(escape(line) for line in str(error).split("\n"))  # a list of files has several
    if isinstance(error, TrainingStopped):
        err.print(f"{said}: give the same command to go on", soft_wrap=True)
    else:
        err.print(f"[red]error:[/] {said}", soft_wrap=True)


if __name__ == "__main__":
    main()
