"""`mixveil join` and `mixveil approve`: a party takes part in jobs, and its owner lets things leave."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mixveil.cli import _common
from mixveil.cli._common import (
    AsJson,
    Classes,
    DataDir,
    Depth,
    Grey,
    LabelEpsilon,
    Size,
    Unit,
    err,
    escape,
    out,
    print_json,
)
from mixveil.cli._ending import end_within
from mixveil.federated.methods.catalogue import between_machines

if TYPE_CHECKING:
    from mixveil.federated.jobs.approval import LookedAt, Waiting
    from mixveil.federated.jobs.party_config import PartyConfig

PartyName = Annotated[str, typer.Option("--party", help="The party's name, as its key is known to the coordinator.")]
Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="Where jobs are kept; else jobs/ in the state folder.", show_default=False),
]


def join(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The server's.", show_default=False)],
    party: PartyName,
    data: Annotated[str, typer.Option("--data", help=_common.DATA_HELP)],
    keys: Annotated[
        Path | None,
        typer.Option("--keys", help="The folder with PARTY.key and the server's ca.crt.", show_default=False),
    ] = None,
    mu: Annotated[
        float | None,
        typer.Option("--mu", help="Certified: what each job may cost a record (a unit), in all its steps."),
    ] = None,
    tau: Annotated[
        float | None, typer.Option("--tau", help="Instead: Theorem 2's directional SNR. Nothing is certified.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            help="What everything in your ledger may cost in all: every release counts, whichever records it holds.",
        ),
    ] = None,
    allow: Annotated[
        str | None,
        typer.Option(
            "--allow",
            help=f"Methods to take part in, of {', '.join(between_machines())}. Default: those that keep --mu or "
            "--tau. The others promise nothing: name them to allow them.",
            show_default=False,
        ),
    ] = None,
    approve: Annotated[
        bool, typer.Option("--approve", help="Nothing is made for a job before you agree to it: `mixveil approve`.")
    ] = False,
    unit: Unit = None,
    classes: Classes = None,
    label_epsilon: LabelEpsilon = None,
    label_budget: Annotated[
        float | None,
        typer.Option("--label-budget", help="What everything in your ledger may cost a label in all, as ε."),
    ] = None,
    roster: Annotated[
        Path | None,
        typer.Option(
            "--roster",
            help="For rounds-secure: the roster (`mixveil keys roster`). PARTY.roster.key is in the folder of --keys.",
        ),
    ] = None,
    honest: Annotated[
        int | None,
        typer.Option("--honest", help="With --roster: how many honest parties you rely on in a sum, you included."),
    ] = None,
    smallest: Annotated[
        int | None,
        typer.Option("--smallest", help="With --roster: the fewest parties of a sum. Default: the whole roster."),
    ] = None,
    recipient: Annotated[str | None, typer.Option("--recipient", help="Who runs the server, for your ledger.")] = None,
    folder: Folder = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="No encryption: on 127.0.0.1 alone.")] = False,
    data_dir: DataDir = None,
    size: Size = None,
    grey: Grey = False,
    depth: Depth = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show all that Flower says.")] = False,
) -> None:
    """Take part in the jobs of a server, until it is stopped (a Flower SuperNode).

    You decide what is sent, by --mu or --tau, --budget and --allow; the server cannot change it. Everything is encoded
    once a job, with secure noise, entered in your ledger, kept, and sent as it was kept. The server cannot run code
    here, and what it hears depends on your records through the noise alone; but for weights in rounds (fedavg and the
    like), which --allow has to name: they come without noise, and promise nothing (`mixveil update`).

    rounds: your noise covers every record and its label. rounds-secure (--roster, --honest): the server sees the sum
    over all parties alone, and the parties share the noise. If at least --honest of them are honest a record is μ-GDP;
    whatever the others do it is μ·√honest-GDP. A record that m parties have is in the sum m times: m·μ.
    """
    from mixveil.core import files
    from mixveil.data.opening import class_names
    from mixveil.encoders.calibration import meaningless
    from mixveil.federated.jobs.party_config import PartyConfig
    from mixveil.federated.transport import certificates, link
    from mixveil.federated.transport.flower import environment
    from mixveil.releases import accounting
    from mixveil.releases.ledger import Ledger

    environment.check_installed()
    names = None if classes is None else class_names(classes)
    config = PartyConfig(
        party=party,
        data=str(Path(data).absolute()) if Path(data).exists() else data,
        folder=str(_folder(folder)),
        mu=mu,
        tau=tau,
        budget=budget,
        allow=allow or "",
        approve=approve,
        unit=unit,
        classes=None if names is None else ",".join(names),
        label_epsilon=label_epsilon,
        size=size,
        grey=grey,
        depth=depth,
        data_dir=None if data_dir is None else str(data_dir.absolute()),
        recipient=recipient,
        label_budget=label_budget,
        roster=None if roster is None else str(roster.absolute()),
        roster_key=None if roster is None else str(_roster_key(roster, keys, party)),
        honest=honest,
        smallest=smallest,
    )
    config.check_bounded()
    images = config.images()  # what is wrong with the data is said now, and not to a server
    for told in (
        images.warnings()
        + accounting.copies(accounting.owners_of(Ledger(), images, _common.progress))
        + meaningless(mu or 0.0)
    ):
        _common.warn(told)
    if (outlook := config.outlook()) is not None:
        _common.warn(outlook)
    config.check_labels(images)
    if (unlisted := config.unlisted(images)) is not None:
        _common.warn(unlisted)
    node = link.joining(address, party, keys, insecure=insecure)
    server = address if keys is None else certificates.fingerprint(keys / certificates.CA)
    config = replace(config, server=server)
    if unused := environment.proxies():
        _common.warn(f"not used: {', '.join(unused)}. This machine connects to {address} itself, or not at all")
    units = None if images.units is None else len(set(images.units))
    own = Path(config.folder) / party
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    with files.alone(own):
        path = link.write_settings(Path(config.folder), party, config.plain())
        environment.settle(Path(config.folder) / ".flower", verbose=verbose)
        from mixveil.federated.transport.flower import supernode

        what = _what(config, len(images), units)
        err.print(f"[bold]{escape(party)}[/] joins {escape(address)}: {what}", soft_wrap=True)
        if keys is not None:
            err.print(f"  ca.crt: {server}")
        try:
            supernode.join(node, Path(config.folder), path)
        except SystemExit:  # Flower hears signals itself, and then ends like this
            end_within()
            raise


def approve(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="A job's name, or the first digits of its id.")
    ] = None,
    folder: Folder = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask. Not for methods that promise nothing.")] = False,
    refuse: Annotated[bool, typer.Option("--refuse", help="Refuse for good, also a job that is under way.")] = False,
    as_json: AsJson = False,
) -> None:
    """See which jobs wait for you, and agree or refuse. Without JOB: list them.

    You are asked before anything is made: a job that you refuse then costs nothing. For a certified job you see what it
    costs, and nothing that depends on your records: a decision by an attack on the release would tell of them, and void
    the certificate. Refuse because of the job, the server or the μ, never because of a record. A release that promises
    nothing (--tau) is made when you agree, attacked, and waits for you once more.
    """
    from mixveil.core.errors import ArgumentError
    from mixveil.federated.jobs.approval import unfinished, waiting

    if as_json and job is not None:
        raise ArgumentError("--json lists what waits: leave JOB out")
    if yes and refuse:
        raise ArgumentError("--yes or --refuse: one of the two")
    items = unfinished(_folder(folder)) if refuse else waiting(_folder(folder))
    if job is None:
        _list(items, as_json)
        return
    named = [item for item in items if job in (item.job.name, item.job.id)]
    chosen = named or [item for item in items if item.job.id.startswith(job)]
    if len({item.job.id for item in chosen}) > 1:
        ids = ", ".join(sorted({item.job.id for item in chosen}))
        raise ArgumentError(f"several jobs are called {job!r:.60}: name one by its id, {ids}")
    if not chosen:
        what = "no unfinished job" if refuse else "no job that waits for you"
        raise ArgumentError(f"there is {what} called {job!r:.60} in {_folder(folder)}")
    for item in chosen:
        name = escape(item.job.name)
        if refuse:
            item.refuse()
            out.print(f"refused: {name}; {'its cost stays in your ledger' if item.begun else 'it cost nothing'}")
            continue
        if yes and not item.job.rules.targets:
            raise ArgumentError("--yes is not for methods that promise nothing: answer the question")
        looked_at, question = _show_job(item) if item.question == "job" else _show_release(item)
        if yes or typer.confirm(question, err=True):
            item.approve(looked_at)
            out.print(f"[green]approved[/]: {name}")
        else:
            out.print(f"not approved: {name}. It still waits; --refuse refuses for good")


def _list(items: list[Waiting], as_json: bool) -> None:
    if as_json:
        listed = [{"job": item.job.name, "id": item.job.id, "question": item.question} for item in items]
        print_json({"waiting": listed})
        return
    for item in items:
        asks = "whether you take part" if item.question == "job" else "whether its release may leave"
        out.print(f"{escape(item.job.name)} ({item.job.id[:8]}) asks {asks}")
    if not items:
        out.print("No job is waiting for your approval.")


def _show_job(item: Waiting) -> tuple[LookedAt, str]:
    """Show what a job would cost: settings and the ledger's total, nothing of the records."""
    from mixveil.encoders.calibration import meaningless

    config, job = item.config, item.job
    question = f"Take part in {job.name} ({job.id[:8]})?"
    whom = escape(config.recipient or config.server or "the server")
    out.print(f"[bold]{escape(job.name)}[/], a {job.method} for {whom}, with {escape(config.data)}", soft_wrap=True)
    if not job.rules.targets:
        out.print(
            "Weights that were trained on your records leave in every round. [bold]Nothing bounds what they show.[/]"
        )
        return "figures", question
    if config.mu is None:
        out.print(
            f"A release for τ = {config.tau:g}. [bold]Nothing is certified.[/] If you agree, it is made, entered in "
            f"your ledger and attacked; then you are asked once more before it leaves.",
            soft_wrap=True,
        )
        return "figures", question
    steps = len(job.rules.sends)
    split = f" in {steps} steps" if steps > 1 else ", over all its messages" if job.rules.covers_labels else ""
    out.print(f"Every {config.unit or 'record'} is {config.mu:g}-GDP against the server{split}.", soft_wrap=True)
    for told in meaningless(config.mu):
        _common.warn(told)
    if job.rules.secure and config.honest is not None:
        out.print(
            f"That holds if at least {config.honest} parties are honest, you included: the parties share the noise. "
            f"[bold]Whatever the others do, it is {config.mu * math.sqrt(config.honest):.4g}-GDP.[/] A "
            f"{config.unit or 'record'} that other parties have too is in the sum several times: with m such parties, "
            f"yours among them, it is up to {config.mu:g}·m-GDP.",
            soft_wrap=True,
        )
    labels = "Labels are shown as they are."
    if job.rules.covers_labels:
        labels = "That covers labels too."
    elif config.label_epsilon is not None:
        labels = f"Each label is {config.label_epsilon:g}-DP."
    total, limit = config.total, config.limit
    shared_by = config.party if job.rules.secure else None
    after = total.plus(job.id, config.mu, None, shared_by).mu
    out.print(
        f"{labels} Everything in your ledger cost μ = {total.mu:.4g} so far, and {after:.4g} with this job"
        f"{'' if limit is None else f', of a budget of {limit:g}'}.",
        soft_wrap=True,
    )
    out.print("Nothing is made yet. If you agree, it is made, entered in your ledger, and sent.", soft_wrap=True)
    return "figures", question


def _show_release(item: Waiting) -> tuple[LookedAt, str]:
    """Show a release that promises nothing, and what attacks get of it."""
    import mixveil
    from mixveil.cli import _release
    from mixveil.cli.audit import show
    from mixveil.releases.reading import verify_release

    _release.show(item.records, verify_release(item.records))
    config, place = item.config, item.folder / "audit"
    if not place.exists():
        found = mixveil.audit([item.records], config.data, projection=item.projection, options=config.options)
        show(found.audit, mixveil.write_report(place, found, command=f"mixveil approve {item.job.name}"))
    out.print(f"Its audit, for your eyes only: {escape(str(place / 'report.html'))}", soft_wrap=True)
    out.print("It is in your ledger already: whether it leaves or not, its cost is counted.", soft_wrap=True)
    return "audit", f"Let the release of {item.job.name} ({item.job.id[:8]}) leave?"


def _roster_key(roster: Path, keys: Path | None, party: str) -> Path:
    """Where the party's private roster key is: beside its other keys, or beside the roster. What is wrong with either
    file is said now, and not to a server."""
    from mixveil.core.errors import ArgumentError
    from mixveil.federated import roster as rosters

    path = (keys or roster.parent).absolute() / f"{party}{rosters.PRIVATE}"
    known, key = rosters.read(roster), rosters.read_key(path)
    if known.keys.get(party) != key.public_key().public_bytes_raw():
        raise ArgumentError(
            f"{roster} does not name {party} with the key {path}: give the roster that all parties have"
        )
    return path


def _folder(folder: Path | None) -> Path:
    from mixveil.releases.traces import state_folder

    return (state_folder() / "jobs" if folder is None else folder).absolute()


def _what(config: PartyConfig, rows: int, units: int | None) -> str:
    """What a party agrees to by joining."""
    whose = f"{rows:,} rows" if units is None else f"{rows:,} rows of {units:,} {config.unit}s"
    promising = ", ".join(name for name in config.methods if name not in config.unpromising)
    parts = [whose]
    if promising and config.mu is not None:
        limit = "" if config.limit is None else f", {config.limit:g} in all"
        parts.append(f"{promising} at μ = {config.mu:g} a job for every {config.unit or 'record'}{limit}")
    elif promising:
        parts.append(f"{promising} at τ = {config.tau}, not certified")
    if config.unpromising:
        parts.append(f"{', '.join(config.unpromising)} without any guarantee")
    if config.honest is not None and config.mu is not None:
        alone = config.mu * math.sqrt(config.honest)
        parts.append(f"in secure sums μ holds with {config.honest} honest parties, and {alone:.4g} whatever others do")
    epsilon = config.label_epsilon
    shown = "labels are shown" if epsilon is None else f"each label is {epsilon:g}-DP a job"
    covering = [rules.name for rules in config.rules if rules.covers_labels]
    parts.append(f"{shown}, but for {' and '.join(covering)}, where μ covers them" if covering else shown)
    asked = " You are asked before each job." if config.approve else ""
    return f"{'; '.join(parts)}.{asked} Ctrl-C ends it"
