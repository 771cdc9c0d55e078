"""`mixveil serve`: a coordinator's server, which parties join."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mixveil.cli._common import err, escape, warn

Server = Annotated[
    Path, typer.Argument(metavar="SERVER", help="The server's folder: what arrives is kept there.", show_default=False)
]


def serve(
    server: Server,
    keys: Annotated[
        Path | None, typer.Option("--keys", help="The folder that `mixveil keys server` made.", show_default=False)
    ] = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on; 0.0.0.0: all of them.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 8000,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No encryption and no keys: for trials, on 127.0.0.1 alone.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show all that Flower says.")] = False,
) -> None:
    """Run the server that parties join (a Flower SuperLink), until it is stopped.

    Parties reach it encrypted, and only those whose keys lie in [bold]parties/[/] of --keys. Jobs are started from this
    machine alone, with [bold]mixveil run[/].
    """
    from mixveil.core import files
    from mixveil.federated.transport import certificates
    from mixveil.federated.transport.flower import commands, environment
    from mixveil.federated.transport.link import home, prepared

    environment.check_installed()
    server.mkdir(mode=0o700, parents=True, exist_ok=True)
    with files.alone(server):
        link = prepared(server, keys, host=host, port=port, insecure=insecure)
        environment.settle(home(link.server), verbose=verbose)
        from mixveil.federated.transport.flower import superlink

        if insecure:
            warn("not encrypted: every process that reaches this port is taken for a party. For trials only")
        where = f"[bold]{escape(str(link.server))}[/] on {host}:{port}"
        err.print(f"{where}, for {', '.join(link.parties) or 'every party that comes'}; Ctrl-C ends it", soft_wrap=True)
        if keys is not None:
            err.print(f"  ca.crt: {certificates.fingerprint(keys / certificates.CA)}")
            for name in link.parties:
                err.print(f"  {name}: {certificates.fingerprint(keys / certificates.PARTIES / f'{name}.pub')}")
        commands.when_it_listens(link.server, lambda: err.print("The server is ready: parties can join."))
        superlink.serve(link, quiet=not verbose)
