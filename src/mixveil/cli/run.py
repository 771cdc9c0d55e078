"""`mixveil run`, `mixveil status` and `mixveil stop`: a coordinator starts jobs, and sees what becomes of them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mixveil.cli._common import AsJson, err, escape, out, print_json, warn
from mixveil.cli.serve import Server
from mixveil.core import files
from mixveil.core.errors import EXIT_CODES, ArgumentError, ServiceError
from mixveil.federated.methods.catalogue import between_machines

_LOOK = 0.3  # seconds between two looks at a job's folder
_ASK = 15.0  # seconds between two questions whether a run that has not begun has failed


def run(
    method: Annotated[str, typer.Argument(help=f"One of {', '.join(between_machines())}.", show_default=False)],
    server: Server,
    job: Annotated[
        str,
        typer.Option(
            "--job",
            help="Its name. A new one begins a job, which costs every party; the same one continues with what arrived.",
            show_default=False,
        ),
    ],
    projection: Annotated[
        str | None,
        typer.Option(
            "--projection",
            help="The public one that records go through, from `mixveil prepare`. Default: photographs, which comes "
            "with mixveil, where the method needs one.",
            show_default=False,
        ),
    ] = None,
    parties: Annotated[
        int | None, typer.Option("--parties", help="How many there are. Default: all whose keys are known.")
    ] = None,
    min_parties: Annotated[
        int | None,
        typer.Option("--min-parties", help="How many must take part: with fewer nothing is made. Default: two."),
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", help="Seconds to wait for the server, and for the parties in each step.")
    ] = 3600.0,
    head: Annotated[
        Literal["discriminant", "linear", "mlp", "lenet5", "convnet"] | None,
        typer.Option(
            "--head",
            help="Of the model. Default: discriminant; linear in rounds. lenet5, convnet: of weights, on images.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Megabytes of a release that is taken.")] = 8192,
    backbone: Annotated[
        str, typer.Option("--backbone", help="In rounds: the public network whose features are taken; none: pixels.")
    ] = "none",
    stage: Annotated[
        str, typer.Option("--stage", help="In rounds: the network's stage, as for `mixveil encode`.")
    ] = "",
    mirror: Annotated[
        bool, typer.Option("--mirror", help="In rounds: average with the mirrored image's features.")
    ] = False,
    rounds: Annotated[int, typer.Option("--rounds", help="Of methods that average weights.")] = 50,
    epochs: Annotated[
        int, typer.Option("--epochs", help="Of mlp on releases (20), or between rounds (1).", show_default=False)
    ] = 0,
    batch: Annotated[int, typer.Option("--batch", help="Rows of a step.")] = 128,
    optimiser: Annotated[Literal["adamw", "sgd"], typer.Option("--optimiser")] = "adamw",
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="Falling to zero.")] = 1e-3,
    proximal: Annotated[float, typer.Option("--proximal", help="μ of fedprox and fedprox-augmix.")] = 1e-3,
    severity: Annotated[
        float, typer.Option("--severity", help="Of the views of fed-augmix and fedprox-augmix, in (0, 10].")
    ] = 2.0,
    seed: Annotated[int, typer.Option("--seed", help="Of a training: first weights, order, dropout.")] = 0,
    again: Annotated[bool, typer.Option("--again", help="Train again, where it is done already.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a job with all parties, follow it, and say what became of each.

    one-shot: every party sends one release of its records. two-step: first noisy class sums, which show the directions
    that matter, then records in those. fedavg, fedprox: weights in rounds, which promise nothing of a record; with
    fed-augmix and fedprox-augmix parties also compare augmented views of their images, which promises nothing either.
    rounds: noisy class sums, then noisy residual sums of a head that every round improves; the projection holds how
    many, by its public data. rounds-secure: the same, of which this server sees the sums over all parties alone. μ
    covers labels in both.

    The job runs at the server. Ending this command (Ctrl-C, SIGTERM) does not end it: parties go on sending, and spend
    their μ, until it is done or [bold]mixveil stop[/] ends it. [bold]mixveil status[/] shows how far it is.
    """
    from mixveil.features.shipped import PHOTOGRAPHS, located
    from mixveil.federated.jobs.job import ended_as, outcome
    from mixveil.federated.jobs.job_config import JobConfig, check_order
    from mixveil.federated.transport import link
    from mixveil.federated.transport.flower import environment

    environment.check_installed()
    if method not in between_machines() and str(server) in between_machines():
        raise ArgumentError(f"the method comes first: mixveil run {server} {method}")
    server = server.absolute()
    known = link.expected(server)
    if parties is None and not known:
        raise ArgumentError("parties is missing: this server knows no keys, so say how many there are (--parties)")
    count = len(known) if parties is None else parties
    config = JobConfig(
        job=job,
        method=method,
        parties=count,
        min_parties=min(2, count) if min_parties is None else min_parties,
        wait=wait,
        projection="" if projection is None else str(located(projection).absolute()),
        head=head or "",
        limit=limit,
        backbone=backbone,
        stage=stage,
        mirror=mirror,
        rounds=rounds,
        epochs=epochs,
        batch=batch,
        optimiser=optimiser,
        learning_rate=learning_rate,
        proximal=proximal,
        seed=seed,
        severity=severity,
    )
    check_order(server, config)
    folder = server / "jobs" / config.job
    if files.held_by(folder) is not None:
        raise ServiceError(f"the job {config.job} is running already: `mixveil stop` ends it")
    whole = outcome(folder)
    if whole is not None and whole["ok"] and not again:
        if not as_json:
            out.print(f"{config.job} is done already; --again trains again on what arrived", soft_wrap=True)
    else:
        if config.projection_path == located(PHOTOGRAPHS) and not as_json:
            err.print("projection: photographs, which comes with mixveil; --projection names another", soft_wrap=True)
        if config.projection_path is None and config.rules.projection == "optional":
            warn("without --projection parties release noisy pixels, which teach little: see `mixveil prepare`")
            asks = sys.stdin.isatty() and not (as_json or folder.exists())
            if asks and not typer.confirm("Every party pays for it. Begin the job all the same?", err=True):
                raise typer.Exit(EXIT_CODES["stopped"])
        whole = _run(server, folder, config.plain(), wait, quiet=as_json)
    if as_json:
        print_json(whole)
    else:
        _show(whole)
    if not whole["ok"]:
        raise typer.Exit(EXIT_CODES[ended_as(whole)])


def status(server: Server, as_json: AsJson = False) -> None:
    """Show which parties are there, and what became of each job, the newest first."""
    from mixveil.federated.jobs.job import state_of, status_of, summary
    from mixveil.federated.transport import link
    from mixveil.federated.transport.flower import commands, environment

    environment.check_installed()
    server = server.absolute()
    names = link.expected(server)
    begun = sorted((server / "jobs").glob("*/job.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    jobs = [summary(path.parent) for path in begun]
    running = commands.is_running(server)
    nodes = [{"party": name, "status": "unknown"} for name in names]
    if running:
        try:
            nodes = commands.nodes(server)
        except ServiceError:  # it has not begun to listen, or is ending
            running = False
    if as_json:
        print_json({"running": running, "parties": nodes, "jobs": jobs})
        return
    if not running:
        warn(f"the server does not run: `mixveil serve {server}` starts it")
    for node in nodes:
        colour = "green" if node["status"] == "online" else "dim"
        text = "has never come" if node["status"] == "registered" else node["status"]
        out.print(f"[{colour}]{escape(node['party'])}: {text}[/]")
    for job in jobs:
        out.print(f"[bold]{escape(job['job'])}[/] ({job['method']}): {escape(str(state_of(job)))}", soft_wrap=True)
        for name, party in job["parties"].items():
            out.print(f"  {escape(name)}: {escape(status_of(party))}", soft_wrap=True)
        if job["model"]:
            out.print(f"  {escape(job['model'])}", soft_wrap=True)
    if not jobs:
        out.print("No job was started yet.")


def stop(
    server: Server, job: Annotated[str, typer.Argument(metavar="JOB", help="Its name.", show_default=False)]
) -> None:
    """End a job that is running. What arrived stays, and the same job can continue later."""
    from mixveil.federated.jobs.job import find

    pid = files.held_by(find(server.absolute(), job))
    if pid is None:
        raise ServiceError(f"{job} is not running")
    os.kill(pid, signal.SIGTERM)
    out.print(f"{escape(job)} is told to end")


def _run(server: Path, folder: Path, config: dict[str, Any], wait: float, *, quiet: bool) -> dict[str, Any]:
    """Start a job, and show what happens in it until it ends; how it ended."""
    from mixveil.federated.jobs.job import Events, outcome
    from mixveil.federated.transport.flower import commands

    def waiting() -> None:
        err.print(f"waiting for the server: `mixveil serve {escape(str(server))}`; {wait:g} s left", soft_wrap=True)

    commands.wait_for_server(server, wait, waiting)
    events, started = Events(folder), time.time()
    events.skip()
    run = commands.start(server, config)
    ask = time.monotonic() + _ASK
    try:
        while True:
            whole = outcome(folder) if _since(folder / "outcome.json", started) else None
            for line in [] if quiet else events.lines():
                err.print(escape(line), soft_wrap=True)
            if whole is not None:
                return whole
            if _since(folder / "pid", started):
                _check_alive(folder)
            elif time.monotonic() >= ask:  # it takes as long as the machine needs to load torch
                _check_starting(server, folder, run, started)
                ask = time.monotonic() + _ASK
            time.sleep(_LOOK)
    except (KeyboardInterrupt, SystemExit):
        warn(f"the job goes on: `{shlex.join(['mixveil', 'stop', str(server), folder.name])}` ends it")
        raise


def _since(path: Path, started: float) -> bool:
    return path.exists() and path.stat().st_mtime >= started - 1


def _check_alive(folder: Path) -> None:
    if files.held_by(folder) is None and not (folder / "outcome.json").exists():
        raise ServiceError(f"the job stopped before it was done: {folder} keeps what arrived; the same job continues")


def _check_starting(server: Path, folder: Path, run: str, started: float) -> None:
    from mixveil.federated.transport.flower import commands

    if not commands.is_running(server):
        raise ServiceError("the server ended before the job began: start it again, and give the same command")
    if commands.has_ended(server, run) and not _since(folder / "pid", started):
        raise ServiceError("the job failed before it began: `mixveil serve` printed why")


def _show(whole: dict[str, Any]) -> None:
    from mixveil.core.wording import notes
    from mixveil.federated.jobs.job import status_of

    for name, party in whole["parties"].items():
        colour = "green" if party["state"] == "arrived" else "yellow"
        out.print(f"[{colour}]{escape(name)}[/]: {escape(status_of(party))}", soft_wrap=True)
    if whole["ok"]:
        card = json.loads((Path(whole["model"]) / "card.json").read_text(encoding="utf-8"))
        told = card["guarantee"]
        told = [told] if isinstance(told, str) else told  # a text, where an earlier version wrote the card
        promised = " ".join(str(notes.read(item)) for item in told)
        out.print(f"[bold]{escape(whole['model'])}[/]: {escape(promised)}", soft_wrap=True)
        out.print(f"Test it on labelled data of yours: mixveil predict {escape(whole['model'])} DATA", soft_wrap=True)
        return
    out.print(f"[red]The job ended without a model[/]: {escape(str(notes.read(whole['why'])))}", soft_wrap=True)
    states = {party["state"] for party in whole["parties"].values()}
    if "arrived" in states or any(party.get("rounds") for party in whole["parties"].values()):
        out.print("What arrived is kept: the same command continues with it; another --job begins from nothing.")
    if "refused" in states:
        out.print("A refusal stands: continue without that party (--min-parties), or begin another --job.")
