"""A guard before a link: which machine may ask what.

Flower serves three interfaces on one port: to nodes, to its own server app, and to those who start runs and register
keys. Only the first is for other machines, and only it asks for a key. Of the last this machine gets what `mixveil run`
and `mixveil status` need, and no run is started but of the app that is installed here.

A node's request is looked at twice: here and by Flower. Here its key must be known and have signed the time, before a
byte of the body is read; and every node that the body names must be the one of that key. Flower does not look at who a
reply is said to be from.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from datetime import datetime
from typing import Any

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.proto.control_pb2 import StartRunRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
from google.protobuf.message import DecodeError

from mixveil.federated.transport.link import loopback

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

NODES, APPS = "/v1/fleet/", "/v1/runtime/"
START = "/v1/control/start-run"
HERE = {START} | {f"/v1/control/{name}" for name in ("list-runs", "list-nodes", "stop-run", "stream-logs")}
LARGEST = 8 << 20
"""Bytes of a request: Flower sends arrays in pieces of 5 MB."""

_OURS = b"flwr-"
_NAMED = 64  # unknown addresses that the coordinator is told of


class Guard:
    """nodes: of the parties, by their public keys; None where there are no keys. app_hash: of the app that may be
    run."""

    def __init__(self, app: App, nodes: Mapping[bytes, int] | None, app_hash: str) -> None:
        self.app, self.nodes, self.app_hash = app, nodes, app_hash
        self._unknown: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        path: str = scope["path"]
        if not 0 <= _length(scope) <= LARGEST:
            await _refuse(send, 413, b"a request must say its length, and be at most 8 MiB")
        elif path.startswith(NODES):
            await self._node(scope, receive, send)
        elif not _from_here(scope):
            await _refuse(send, 403, b"only for this machine")
        elif path == START:
            await self._start(scope, receive, send)
        elif path.startswith(APPS) or path in HERE or path == "/health":
            await self.app(scope, receive, send)
        else:
            await _refuse(send, 403, b"not served")

    async def _node(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a node ask something, if it is a party's and speaks for itself alone."""
        if self.nodes is None:
            await self.app(scope, receive, send)
            return
        ours = [name for name, _ in scope["headers"] if name.startswith(_OURS)]
        if len(set(ours)) != len(ours):  # Flower takes the first of two, others the last
            await _refuse(send, 400, b"a header is there twice")
            return
        key = _key(scope)
        if key not in self.nodes:
            self._tell_unknown(scope)
            await _refuse(send, 401, b"this key is not known here")
        elif not _signed(scope, key):
            await _refuse(send, 401, b"this is not signed by its key, or not now")
        elif (whole := await _body(receive)) is None:
            return
        elif not _for_itself(scope["path"], whole, key, self.nodes[key]):
            await _refuse(send, 403, b"a node speaks for itself alone")
        else:
            await self.app(scope, _again(whole, receive), send)

    def _tell_unknown(self, scope: Scope) -> None:
        """Tell the coordinator, once, which address was not let in."""
        client = scope.get("client")
        where = client[0] if client else "somewhere"
        if where not in self._unknown and len(self._unknown) < _NAMED:
            self._unknown.add(where)
            sys.stderr.write(
                f"{where} came with a key that is not known here: if it is a party's, put its .pub into parties/ and "
                f"start the server again\n"
            )

    async def _start(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a run begin, if it is of the app that is installed here: another could bring any code."""
        whole = await _body(receive)
        if whole is None:
            return
        try:
            found = StartRunRequest.FromString(whole).fab.content
        except DecodeError:
            found = b""
        if hashlib.sha256(found).hexdigest() != self.app_hash:
            await _refuse(send, 403, b"no other app is run here")
            return
        await self.app(scope, _again(whole, receive), send)


def _from_here(scope: Scope) -> bool:
    """Whether a request came from this machine: from its loopback, or from the address that it came to."""
    client, here = scope.get("client"), scope.get("server")
    return client is not None and (loopback(client[0]) or (here is not None and client[0] == here[0]))


def _key(scope: Scope) -> bytes:
    """The public key that a request names."""
    try:
        return base64.b64decode(dict(scope["headers"]).get(FLEET_HTTP_PUBLIC_KEY_HEADER.encode(), b""), validate=True)
    except ValueError:
        return b""


def _signed(scope: Scope, key: bytes) -> bool:
    """Whether a key signed the time, and not long ago."""
    headers = dict(scope["headers"])
    try:
        signature = base64.b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER.encode()], validate=True)
        said = headers[TIMESTAMP_HEADER.encode()].decode("ascii")
        age = (now() - datetime.fromisoformat(said)).total_seconds()
        fresh = -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
        return fresh and bool(verify_signature(bytes_to_public_key(key), said.encode("ascii"), signature))
    except (KeyError, ValueError, TypeError):
        return False


def _for_itself(path: str, body: bytes, key: bytes, node: int) -> bool:
    """Whether every node that a request names is the one of its key."""
    kind = PROTOBUF_REQUEST_TYPES.get(("POST", path))
    if kind is None:
        return False
    try:
        request: Any = kind.FromString(body)
    except DecodeError:
        return False
    fields = kind.DESCRIPTOR.fields_by_name
    if "public_key" in fields:
        return bool(request.public_key == key)
    named = {request.node.node_id if "node" in fields else request.node_id}
    if "messages_list" in fields:
        named |= {message.metadata.src_node_id for message in request.messages_list}
    return named == {node}


async def _body(receive: Receive) -> bytes | None:
    """All that a request brings; None if it did not come."""
    parts, more = [], True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def _again(whole: bytes, receive: Receive) -> Receive:
    """The same body, for the app behind the guard."""
    told = iter([{"type": "http.request", "body": whole, "more_body": False}])

    async def again() -> MutableMapping[str, Any]:
        return next(told, None) or await receive()

    return again


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
    headers.append((b"connection", b"close"))  # what is still to come of it is not waited for
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
