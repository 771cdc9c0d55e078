"""`mixveil`: the verbs, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import io
import signal
import sys

import typer

from mixveil.cli import (
    audit,
    calibrate,
    data,
    demo,
    encode,
    join,
    keys,
    ledger,
    prepare,
    results,
    run,
    serve,
    simulate,
    statistics,
    train,
    verify,
)
from mixveil.cli._common import err, escape, print_json
from mixveil.core.errors import MixveilError, TrainingStopped

app = typer.Typer(
    help="Train one model on images that no party may show.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(data.app, name="data")
app.command("calibrate")(calibrate.calibrate)
app.command("prepare")(prepare.prepare)
app.command("statistics")(statistics.statistics)
app.command("directions")(statistics.directions)
app.command("encode")(encode.encode)
app.command("ledger")(ledger.ledger)
app.command("verify")(verify.verify)
app.command("audit")(audit.audit)
app.command("report")(audit.report)
app.command("train")(train.train)
app.command("predict")(train.predict)
app.command("simulate")(simulate.simulate)
app.add_typer(keys.app, name="keys")
app.command("serve")(serve.serve)
app.command("join")(join.join)
app.command("approve")(join.approve)
app.command("run")(run.run)
app.command("status")(run.status)
app.command("stop")(run.stop)
app.command("results")(results.results)
app.command("demo")(demo.demo)


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"mixveil {installed('mixveil')}")
        raise typer.Exit


def main() -> None:
    """Run a verb. An error that mixveil raises on purpose: its message, and exit code 2."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is half written is removed
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except TrainingStopped as stopped:
        err.print(f"{escape(str(stopped))}: give the same command to go on", soft_wrap=True)
        sys.exit(130)
    except MixveilError as error:
        if "--json" in sys.argv:
            print_json({"error": {"type": type(error).__name__, "message": str(error)}})
        said = "\n".join(escape(line) for line in str(error).split("\n"))  # a list of files has several
        err.print(f"[red]error:[/] {said} [dim]({type(error).__name__})[/]", soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
