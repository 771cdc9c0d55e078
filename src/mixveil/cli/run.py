"""`mixveil run` and `mixveil status`: a coordinator starts jobs, and sees what becomes of them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mixveil.cli._common import AsJson, err, escape, out, print_json, warn
from mixveil.cli.serve import Server
from mixveil.core import files
from mixveil.core.errors import ServiceError
from mixveil.core.wording import notes

_START = 60.0  # seconds that a job has to begin


def run(
    method: Annotated[
        Literal["one-shot", "two-step", "fedavg", "fedprox"], typer.Argument(help="What is done.", show_default=False)
    ],
    server: Server,
    job: Annotated[
        str,
        typer.Option(
            "--job",
            help="Its name. A new one begins a job, which costs every party; the same one goes on with what arrived.",
            show_default=False,
        ),
    ],
    projection: Annotated[
        Path | None, typer.Option("--projection", help="The public one that records go through: `mixveil prepare`.")
    ] = None,
    parties: Annotated[
        int | None, typer.Option("--parties", help="How many there are. Default: all whose keys are known.")
    ] = None,
    least: Annotated[
        int | None, typer.Option("--least", help="How many must take part: with fewer nothing is made. Default: two.")
    ] = None,
    wait: Annotated[float, typer.Option("--wait", help="Seconds to wait for the parties in each step.")] = 3600.0,
    head: Annotated[
        Literal["discriminant", "linear", "mlp"] | None,
        typer.Option("--head", help="Of the model. Default: discriminant; linear in rounds.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Megabytes of a release that is taken.")] = 8192,
    backbone: Annotated[str, typer.Option("--backbone", help="In rounds: of whose features; none: pixels.")] = "none",
    stage: Annotated[str, typer.Option("--stage", help="In rounds: as of `mixveil encode`.")] = "",
    mirror: Annotated[bool, typer.Option("--mirror", help="In rounds: as of `mixveil encode`.")] = False,
    rounds: Annotated[int, typer.Option("--rounds", help="Of fedavg and fedprox.")] = 50,
    epochs: Annotated[
        int, typer.Option("--epochs", help="Of mlp on releases (20), or between rounds (1).", show_default=False)
    ] = 0,
    batch: Annotated[int, typer.Option("--batch", help="Rows of a step.")] = 128,
    optimiser: Annotated[Literal["adamw", "sgd"], typer.Option("--optimiser")] = "adamw",
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="Falling to zero.")] = 1e-3,
    proximal: Annotated[float, typer.Option("--proximal", help="μ of fedprox.")] = 1e-3,
    seed: Annotated[int, typer.Option("--seed", help="Of a training: first weights, order, dropout.")] = 0,
    again: Annotated[bool, typer.Option("--again", help="Train again, where it is done already.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a job with all parties, follow it, and say what became of each.

    one-shot: every party sends one release of its records. two-step: first noisy class sums, which show the directions
    that matter, then records in those. fedavg, fedprox: weights in rounds, which promise nothing to anybody.
    """
    from mixveil.federated.jobs.orders import Order, look
    from mixveil.federated.transport import link
    from mixveil.federated.transport.flower import environment

    environment.check_installed()
    server = server.absolute()
    known = link.expected(server)
    if parties is None and not known:
        raise ServiceError("this server knows no keys: say with --parties how many parties there are")
    count = len(known) if parties is None else parties
    order = Order(
        job=job,
        method=method,
        parties=count,
        least=min(2, count) if least is None else least,
        wait=wait,
        projection="" if projection is None else str(projection.absolute()),
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
    )
    look(server, order)
    folder = server / "jobs" / order.job
    _check_idle(folder)
    whole = _done(folder)
    if whole is not None and not again:
        if not as_json:
            out.print(f"{order.job} is done already; --again trains again on what arrived", soft_wrap=True)
    else:
        if method == "one-shot" and projection is None:
            warn("without --projection parties release noisy pixels, which teach little: see `mixveil prepare`")
        started = time.time()
        _start(server, order.plain())
        whole = _followed(folder, started, quiet=as_json)
    if as_json:
        print_json(whole)
    else:
        _show(folder, whole)
    if not whole.get("ok"):
        raise typer.Exit(2)


def status(server: Server, as_json: AsJson = False) -> None:
    """Who is there, and what became of each job, the newest first."""
    from mixveil.federated.transport import link
    from mixveil.federated.transport.flower import environment

    environment.check_installed()
    server = server.absolute()
    names = link.expected(server)
    jobs = [_job(path.parent) for path in _begun(server)]
    seen: list[dict[str, str]] = []
    down = ""
    try:
        nodes = _flwr(server, "supernode", "list", link.NAME, "--format", "json").get("nodes", [])
        known = link.read_nodes(server)
        for node in nodes:
            number = str(node.get("node-id"))
            seen.append({"party": known.get(number, f"node {number}"), "status": str(node.get("status", "unknown"))})
    except ServiceError:
        down = "the server is not running"
        seen = [{"party": name, "status": "unknown"} for name in names]
    if as_json:
        print_json({"running": not down, "parties": seen, "jobs": jobs})
        return
    if down:
        warn(down)
    for item in seen:
        colour = "green" if item["status"] == "online" else "dim"
        status = "never came yet" if item["status"] == "registered" else item["status"]
        out.print(f"[{colour}]{escape(item['party'])}: {status}[/]")
    for job in jobs:
        out.print(f"[bold]{escape(job['job'])}[/] ({job['method']}): {escape(job['state'])}", soft_wrap=True)
        for name, fate in job["parties"].items():
            out.print(f"  {escape(name)}: {_fate(fate)}", soft_wrap=True)
        if job.get("model"):
            out.print(f"  {escape(job['model'])}", soft_wrap=True)
    if not jobs:
        out.print("No job was started yet.")


def stop(
    server: Server, job: Annotated[str, typer.Argument(metavar="JOB", help="Its name.", show_default=False)]
) -> None:
    """End a job that is running. What arrived stays, and the same job can go on later."""
    import signal

    from mixveil.federated.jobs.orders import find

    folder = find(server.absolute(), job)
    pid = files.held_by(folder)
    if pid is None:
        raise ServiceError(f"{job} is not running")
    os.kill(pid, signal.SIGTERM)
    out.print(f"{escape(job)} is told to end")


def _begun(server: Path) -> list[Path]:
    found = (server / "jobs").glob("*/job.json")
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def _start(server: Path, config: dict[str, Any]) -> None:
    """Give the order to Flower: `flwr run`."""
    from mixveil.federated.transport import link
    from mixveil.federated.transport.flower import environment

    path = link.home(server) / "run.toml"
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in config.items()))
    _flwr(server, "run", str(environment.APP), link.NAME, "--run-config", str(path), "--format", "json")


def _flwr(server: Path, *arguments: str) -> dict[str, Any]:
    """One of Flower's own commands, and what it says in JSON."""
    from mixveil.federated.transport import link
    from mixveil.federated.transport.flower import environment

    home = link.home(server)
    done = subprocess.run(  # noqa: S603
        ["flwr", *arguments],  # noqa: S607, the one beside this Python: `environment` puts it first
        env=environment.environment(home),
        cwd=home,
        capture_output=True,
        text=True,
    )
    try:
        whole = json.loads(done.stdout)
    except ValueError:
        whole = {}
    if done.returncode or not isinstance(whole, dict) or whole.get("success") is False:
        said = whole.get("error-message") if isinstance(whole, dict) else None
        lines = [line.strip() for line in (said or done.stderr or done.stdout).splitlines() if line.strip()]
        raise ServiceError(
            f"the server does not answer; is `mixveil serve` running? Flower says: {' '.join(lines)[-200:]}"
        )
    return whole


def _followed(folder: Path, started: float, *, quiet: bool) -> dict[str, Any]:
    """Show what happens in a job until it ends; how it ended."""
    log, outcome, shown = folder / "events.log", folder / "outcome.json", 0
    begun = log.stat().st_size if log.exists() else 0
    shown = begun
    try:
        while True:
            ended = outcome.exists() and outcome.stat().st_mtime >= started - 1
            if log.exists() and not quiet:
                with log.open("rb") as file:
                    file.seek(shown)
                    new = file.read()
                shown += len(new)
                for line in new.decode("utf-8", "replace").splitlines():
                    err.print(escape(line), soft_wrap=True)
            if ended:
                found: dict[str, Any] = json.loads(outcome.read_text(encoding="utf-8"))
                return found
            _check_alive(folder, started)
            time.sleep(0.3)
    except KeyboardInterrupt:
        warn("the job goes on without you: `mixveil status` tells what becomes of it, `mixveil stop` ends it")
        raise


def _check_alive(folder: Path, started: float) -> None:
    path = folder / "pid"
    if path.exists() and path.stat().st_mtime >= started - 1:
        if files.held_by(folder) is None and not (folder / "outcome.json").exists():
            raise ServiceError(
                f"it ended before it was done: what arrived is in {folder}; the same job goes on from there"
            )
    elif time.time() - started > _START:
        raise ServiceError(f"the job did not begin within {_START:g} s: see what `mixveil serve` says")


def _check_idle(folder: Path) -> None:
    if files.held_by(folder) is not None:
        raise ServiceError(f"the job {folder.name} is running already: `mixveil stop` ends it")


def _done(folder: Path) -> dict[str, Any] | None:
    """How a job ended, if it ended with a model."""
    path = folder / "outcome.json"
    whole: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return whole if whole.get("ok") else None


def _job(folder: Path) -> dict[str, Any]:
    stated = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = {"job": folder.name, "method": stated["method"], "state": "running", "parties": {}}
    if (folder / "outcome.json").exists():
        whole = json.loads((folder / "outcome.json").read_text(encoding="utf-8"))
        ended = whole["ended"].replace("T", " ").replace("+00:00", " UTC")
        found |= {"state": f"done, {ended}" if whole["ok"] else f"ended without a model, {ended}: {whole['reason']}"}
        return found | {"model": whole["model"], "parties": whole["parties"]}
    if files.held_by(folder) is None:
        found["state"] = "ended before it was done: start it again to go on"
    if (folder / "progress.json").exists():
        found["parties"] = json.loads((folder / "progress.json").read_text(encoding="utf-8"))
    return found


def _fate(fate: dict[str, Any]) -> str:
    state = "never came" if fate["state"] == "expected" and not fate["why"] else fate["state"]
    why = f": {fate['why']}" if fate["why"] else ""
    size = f", {fate['bytes'] / 1e3:,.0f} kB" if fate["bytes"] else ""
    return f"{state}{escape(why)}{size}{', has the model' if fate['returned'] else ''}"


def _show(folder: Path, whole: dict[str, Any]) -> None:
    for name, fate in whole["parties"].items():
        colour = "green" if fate["state"] == "arrived" else "yellow"
        out.print(f"[{colour}]{escape(name)}[/]: {_fate(fate)}", soft_wrap=True)
    if whole.get("ok"):
        card = json.loads((Path(whole["model"]) / "card.json").read_text(encoding="utf-8"))
        promised = " ".join(str(notes.read(told)) for told in card["guarantee"])
        out.print(f"[bold]{escape(whole['model'])}[/]: {escape(promised)}", soft_wrap=True)
        out.print(
            f"How good it is, on labelled data of yours: mixveil predict {escape(whole['model'])} DATA", soft_wrap=True
        )
    else:
        out.print(f"[red]It ended without a model[/]: {escape(whole['reason'])}", soft_wrap=True)
        fates = whole["parties"].values()
        if any(fate["state"] == "arrived" for fate in fates):
            out.print("What arrived is kept: the same command goes on with it; another --job would begin anew.")
        if any(fate["state"] == "refused" for fate in fates):
            out.print("An owner's no is for good: go on without that party (--least), or begin another --job.")
