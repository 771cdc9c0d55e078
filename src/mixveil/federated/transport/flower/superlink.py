"""A server's link: Flower's SuperLink with a guard before it, and beside it what starts the server's app."""

from __future__ import annotations

import os
import resource
import ssl
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import uvicorn
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.http_logging import get_uvicorn_log_config
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink import main as superlink_main
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan, _parse_superlink_lifespan_config

from mixveil.core import files
from mixveil.core.errors import ServiceError
from mixveil.federated.transport import certificates, link
from mixveil.federated.transport.flower.connections import LimitedConnection
from mixveil.federated.transport.flower.environment import SERVER, own_app, replace_in
from mixveil.federated.transport.flower.file_object_store import Files
from mixveil.federated.transport.flower.guard import Guard


def serve(here: link.Link, *, quiet: bool = True) -> None:
    """Run a SuperLink until it is told to end."""
    secret = link.home(here.server) / "secret"  # others on this machine must not get the work of the server's app
    files.write_whole(secret, certificates.local_secret(), 0o600)
    guarded = ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
    sys.argv = ["flower-superlink", *here.options, *guarded]
    os.environ[SERVER] = str(here.server)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    config = _parse_superlink_lifespan_config()
    store = ObjectStoreFactory(config.database)
    store.store_instance = Files(link.home(here.server) / "objects")
    made = lambda base, manager: (store, LinkStateFactory(base, manager, store))  # noqa: E731
    replace_in(superlink_main, "get_objectstore_linkstate_factories", made)
    app = superlink_main.create_app(config, SuperLinkLifespan)
    nodes = _registered(app.state.linkstate_factory.state(), here.parties)
    link.write_nodes(here.server, {str(nodes[key]): name for name, key in here.parties.items()})
    trust = ["--insecure"] if config.ssl_ca_certfile is None else ["--root-certificates", config.ssl_ca_certfile]
    command = ["flower-superexec", *trust, "--runtime-api-address", here.address, "--parent-pid", str(os.getpid())]
    executor = subprocess.Popen([*command, "--superexec-auth-secret-file", str(secret)])  # noqa: S603
    try:
        uvicorn.run(
            app=Guard(app, nodes if config.enable_supernode_auth else None, own_app()),
            http=cast(
                type[LimitedConnection],
                partial(LimitedConnection, context=_context(config.ssl_certfile, config.ssl_keyfile)),
            ),
            ws="none",
            loop="asyncio",  # uvloop reads before TLS can begin
            host=config.host,
            port=config.port,
            access_log=not quiet,
            log_config=get_uvicorn_log_config(30 if quiet else 20),
            workers=1,
            proxy_headers=False,  # what a request says of where it came from is not believed
        )
    finally:
        executor.terminate()


def _context(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """TLS by a server's certificate; None where nothing is encrypted."""
    if certificate is None:
        return None
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(certificate, key)
    return found


def _registered(state: Any, parties: Mapping[str, bytes]) -> dict[bytes, int]:
    """Make the nodes that are known those of this list: new keys are taken up, keys that are gone are let go. What the
    link calls the node of each key."""
    known = {bytes(info.public_key): info for info in state.get_node_info(owner_aids=[NOOP_FLWR_AID])}
    wanted = {key: name for name, key in parties.items()}
    for key, info in known.items():
        if info.status != "unregistered" and key not in wanted:
            state.delete_node(NOOP_FLWR_AID, info.node_id)
    for key, name in wanted.items():
        info = known.get(key)
        if info is not None and (info.status == "unregistered" or info.name != name):
            raise ServiceError(f"The key of {name} was removed before, or belonged to {info.name}. Make a new key")
        if info is None:
            state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, HEARTBEAT_DEFAULT_INTERVAL, name=name)
    nodes = state.get_node_info(owner_aids=[NOOP_FLWR_AID])
    return {bytes(info.public_key): int(info.node_id) for info in nodes if bytes(info.public_key) in wanted}
