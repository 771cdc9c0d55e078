"""A server's link: Flower's SuperLink, with a guard before it.

Flower serves three interfaces on one port: to nodes, to its own server app, and to whoever starts runs and registers
keys. Only the first is for other machines, and only it asks for a key. The guard answers nobody else but this machine,
and takes no request that is larger than a node's need be.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import uvicorn
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from flwr.supercore.http_logging import get_uvicorn_log_config
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink import main as superlink_main
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan, _parse_superlink_lifespan_config

from mixveil.errors import ServiceError
from mixveil.federated import link
from mixveil.federated.flower import SERVER
from mixveil.federated.flower.objects import Files

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

NODES = "/v1/fleet/"
LARGEST = 16 << 20
"""Bytes of a request: Flower sends arrays in pieces of 5 MB."""


def serve(server: Path, options: Iterable[str], parties: Mapping[str, bytes], *, quiet: bool = True) -> None:
    """Run a SuperLink until it is told to end. options: Flower's own; parties: the public keys of nodes, in PEM, by the
    names that they are believed under; none: whoever comes is a node (on this machine alone)."""
    sys.argv = ["flower-superlink", *options]
    os.environ[SERVER] = str(server)
    config = _parse_superlink_lifespan_config()
    store = ObjectStoreFactory(config.database)
    store.store_instance = Files(link.home(server) / "objects")
    factories = "get_objectstore_linkstate_factories"
    getattr(superlink_main, factories)  # it must be there to be replaced
    setattr(superlink_main, factories, lambda base, manager: (store, LinkStateFactory(base, manager, store)))
    app = superlink_main.create_app(config, SuperLinkLifespan)
    link.write_nodes(server, _registered(app.state.linkstate_factory.state(), parties))
    uvicorn.run(
        app=Guard(app, frozenset(parties.values()) if config.enable_supernode_auth else None),
        host=config.host,
        port=config.port,
        access_log=not quiet,
        log_config=get_uvicorn_log_config(30 if quiet else 20),
        ssl_keyfile=config.ssl_keyfile,
        ssl_certfile=config.ssl_certfile,
        workers=1,
        proxy_headers=False,  # what a request says of where it came from is not believed
    )


class Guard:
    """What comes from other machines goes to the nodes' interface, or nowhere; and there only with a key that is known.
    Whether it is the sender's own, Flower finds out from his signature. keys: None where there are none."""

    def __init__(self, app: App, keys: frozenset[bytes] | None) -> None:
        self.app, self.keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif not _from_here(scope) and not scope["path"].startswith(NODES):
            await _refuse(send, 403, b"only for this machine")
        elif self.keys is not None and scope["path"].startswith(NODES) and _key(scope) not in self.keys:
            await _refuse(send, 401, b"this key is not known here")
        elif not 0 <= _length(scope) <= LARGEST:
            await _refuse(send, 413, b"a request must say its length, and be at most 16 MiB")
        else:
            await self.app(scope, receive, send)


def _from_here(scope: Scope) -> bool:
    """Whether a request came from this machine: from its loopback, or from the address that it came to."""
    client, here = scope.get("client"), scope.get("server")
    try:
        if client is None:
            return False
        return ipaddress.ip_address(client[0]).is_loopback or (here is not None and client[0] == here[0])
    except ValueError:
        return False


def _key(scope: Scope) -> bytes:
    """The public key that a request names."""
    try:
        return base64.b64decode(dict(scope["headers"]).get(FLEET_HTTP_PUBLIC_KEY_HEADER.encode(), b""), validate=True)
    except ValueError:
        return b""


def _length(scope: Scope) -> int:
    """What a request says of its own length; −1 where it does not. The server reads no more than that."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return -1
    try:
        return int(headers.get(b"content-length", b"0"))
    except ValueError:
        return -1


async def _refuse(send: Send, status: int, text: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def _registered(state: Any, parties: Mapping[str, bytes]) -> dict[str, str]:
    """Make the nodes that are known those of this list: new keys are taken up, keys that are gone are let go. What the
    link calls each party's node."""
    known = {bytes(info.public_key): info for info in state.get_node_info(owner_aids=[NOOP_FLWR_AID])}
    wanted = {key: name for name, key in parties.items()}
    for key, info in known.items():
        if info.status != "unregistered" and key not in wanted:
            state.delete_node(NOOP_FLWR_AID, info.node_id)
    for key, name in wanted.items():
        info = known.get(key)
        if info is not None and (info.status == "unregistered" or info.name != name):
            raise ServiceError(
                f"the key of {name} was let go before, or was {info.name}'s: a new name, or one that comes back, needs "
                f"a new key"
            )
        if info is None:
            state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, HEARTBEAT_DEFAULT_INTERVAL, name=name)
    nodes = state.get_node_info(owner_aids=[NOOP_FLWR_AID])
    return {str(info.node_id): info.name for info in nodes if bytes(info.public_key) in wanted}
