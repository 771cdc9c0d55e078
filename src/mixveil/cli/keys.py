"""`mixveil keys`: certificates and keys for jobs between organisations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mixveil.cli._common import AsJson, escape, out, print_json, warn

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Make certificates and keys for jobs between organisations."
)

Out = Annotated[Path, typer.Option("--out", help="The folder to make. It must not exist.")]


@app.command()
def server(
    folder: Out,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="A name or address by which parties reach the server; give all there are."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The coordinator's: an authority of the job's own, and the server's certificate.

    Every party gets [bold]ca.crt[/], by a way that you trust. Keep [bold]ca.key[/] away from the network. The public
    keys of parties go into [bold]parties/[/], as NAME.pub.
    """
    from mixveil.federated.transport import certificates

    certificates.make_server(folder, host or [])
    names = dict.fromkeys([*(host or []), *certificates.HERE])
    if as_json:
        print_json(
            {"keys": str(folder), "hosts": sorted(names), "fingerprint": certificates.fingerprint(folder / "ca.crt")}
        )
        return
    out.print(f"[bold]{escape(str(folder))}[/]: give [bold]{certificates.CA}[/] to every party", soft_wrap=True)
    out.print(f"  {certificates.fingerprint(folder / certificates.CA)}: read this to them")
    until = certificates.check_certificate(folder / certificates.CERTIFICATE).not_valid_after_utc
    out.print(f"  the server is known as {escape(', '.join(names))}, until {until:%Y-%m-%d}", soft_wrap=True)
    if not host:
        warn("no --host: parties on other machines cannot use this certificate")
    out.print(f"  put the parties' public keys into {escape(str(folder / certificates.PARTIES))}", soft_wrap=True)


@app.command()
def party(
    name: Annotated[str, typer.Argument(metavar="PARTY", help="The party's name in all jobs.", show_default=False)],
    folder: Out,
    as_json: AsJson = False,
) -> None:
    """A party's own key, for one server. It is made where it is used: the private half never leaves.

    Make another key for another server: a server could speak in your name to any other that knows the same key.
    """
    from mixveil.federated.transport import certificates

    public = certificates.make_party(folder, name)
    if as_json:
        print_json({"keys": str(folder), "public": str(public), "fingerprint": certificates.fingerprint(public)})
        return
    out.print(f"[bold]{escape(str(public))}[/]: give this to the coordinator", soft_wrap=True)
    out.print(f"  {certificates.fingerprint(public)}: read this to them")
    out.print(f"  and put the coordinator's ca.crt into {escape(str(folder))}", soft_wrap=True)


@app.command("roster-key")
def roster_key(
    name: Annotated[str, typer.Argument(metavar="PARTY", help="The party's name in all jobs.", show_default=False)],
    folder: Annotated[Path, typer.Option("--out", help="The party's folder of keys. It is made if it is not there.")],
    as_json: AsJson = False,
) -> None:
    """A party's roster key, for secure sums. It is made where it is used: the private half never leaves.

    Give the public file, PARTY.roster, to the party that puts the roster together (mixveil keys roster), and read its
    fingerprint to every other party.
    """
    from mixveil.federated import roster as rosters

    public = rosters.make_key(folder, name)
    private, fingerprint = folder / f"{name}{rosters.PRIVATE}", rosters.fingerprint(rosters.read_public(public)[1])
    if as_json:
        print_json({"private": str(private), "public": str(public), "fingerprint": fingerprint})
        return
    out.print(f"[bold]{escape(str(public))}[/]: give this to all parties", soft_wrap=True)
    out.print(f"  {fingerprint}: read this to them")
    out.print(f"  {escape(str(private))} stays here", soft_wrap=True)


@app.command()
def roster(
    public: Annotated[
        list[Path],
        typer.Argument(metavar="FILE.roster…", help="The public file of each party.", show_default=False),
    ],
    path: Annotated[Path, typer.Option("--out", help="The roster to write. It must not exist.")] = Path("roster.json"),
    as_json: AsJson = False,
) -> None:
    """A roster of three or more parties: the keys by which they know each other in secure sums.

    Every party gets the roster beforehand, by a way that it trusts, and never from the server within a job: a server
    that hands out keys reads everything. Each party compares its own key's fingerprint, and all of them compare that of
    the roster.
    """
    from mixveil.federated import roster as rosters

    made = rosters.together(public)
    rosters.write(path, made)
    prints = {name: rosters.fingerprint(key) for name, key in sorted(made.keys.items())}
    if as_json:
        print_json({"roster": str(path), "fingerprint": made.fingerprint(), "parties": prints})
        return
    for name, fingerprint in prints.items():
        out.print(f"{escape(name)}: {fingerprint}", soft_wrap=True)
    out.print(f"[bold]{escape(str(path))}[/]: {made.fingerprint()}", soft_wrap=True)
    out.print("  give it to every party by a way that it trusts, never through the server of a job", soft_wrap=True)
    out.print("  each party compares by telephone: its own fingerprint above, and the roster's", soft_wrap=True)


@app.command()
def trial(
    parties: Annotated[
        str,
        typer.Argument(metavar="PARTIES", help="Their names, with commas between: north,south.", show_default=False),
    ],
    folder: Out,
    as_json: AsJson = False,
) -> None:
    """All keys of a job at once, to try it on one machine, and the roster of three or more parties. Given again for the
    same parties, it shows the keys that are there."""
    from mixveil.federated.transport import certificates

    names = [name.strip() for name in parties.split(",") if name.strip()]
    certificates.make_trial(folder, names)
    places = {"server": folder / "server", **{name: folder / name for name in names}}
    if as_json:
        print_json({"keys": str(folder), "parties": names, "folders": {n: str(path) for n, path in places.items()}})
        return
    for name, path in places.items():
        out.print(f"{escape(name)}: --keys [bold]{escape(str(path))}[/]", soft_wrap=True)
