"""What stands before a link: who may ask what.

Flower serves three interfaces on one port: to nodes, to its own server app, and to whoever starts runs and registers
keys. Only the first is for other machines, and only it asks for a key. Of the last this machine gets what `mixveil run`
and `mixveil status` need, and no run is started but of the app that is installed here.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, ClassVar

from flwr.proto.control_pb2 import StartRunRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from google.protobuf.message import DecodeError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

NODES, APPS = "/v1/fleet/", "/v1/runtime/"
START = "/v1/control/start-run"
HERE = {START} | {f"/v1/control/{name}" for name in ("list-runs", "list-nodes", "stop-run", "stream-logs")}
LARGEST = 8 << 20
"""Bytes of a request: Flower sends arrays in pieces of 5 MB."""

IDLE, MOST = 15.0, 64
"""Seconds that a connection may take to ask something, and connections from one other machine."""


class Guard:
    """keys: of the parties; None where there are none. app_hash: of the app that may be run."""

    def __init__(self, app: App, keys: frozenset[bytes] | None, app_hash: str) -> None:
        self.app, self.keys, self.app_hash = app, keys, app_hash
        self._strangers: set[str] = set()

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
            if self.keys is not None and _key(scope) not in self.keys:
                self._knocked(scope)
                await _refuse(send, 401, b"this key is not known here")
            else:
                await self.app(scope, receive, send)
        elif not _from_here(scope):
            await _refuse(send, 403, b"only for this machine")
        elif path == START:
            await self._start(scope, receive, send)
        elif path.startswith(APPS) or path in HERE or path == "/health":
            await self.app(scope, receive, send)
        else:
            await _refuse(send, 403, b"not for anybody")

    def _knocked(self, scope: Scope) -> None:
        """Tell the coordinator, once, who was not let in."""
        client = scope.get("client")
        where = client[0] if client else "somewhere"
        if where not in self._strangers and len(self._strangers) < MOST:
            self._strangers.add(where)
            sys.stderr.write(
                f"{where} came with a key that is not known here: if it is a party's, put its .pub into parties/ and "
                f"start the server again\n"
            )

    async def _start(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a run begin, if it is of the app that is installed here: another could bring any code."""
        whole, more = b"", True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            whole, more = whole + message.get("body", b""), message.get("more_body", False)
        try:
            found = StartRunRequest.FromString(whole).fab.content
        except DecodeError:
            found = b""
        if hashlib.sha256(found).hexdigest() != self.app_hash:
            await _refuse(send, 403, b"no other app is run here")
            return
        told = iter([{"type": "http.request", "body": whole, "more_body": False}])

        async def again() -> MutableMapping[str, Any]:
            return next(told, None) or await receive()

        await self.app(scope, again, send)


class Impatient(HttpToolsProtocol):
    """Connections that ask nothing are closed, and one other machine does not have them all."""

    _open: ClassVar[Counter[str]] = Counter()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if peer else ""
        self._open[self._peer] += 1
        self._giving_up = asyncio.get_running_loop().call_later(IDLE, transport.close)
        if self._open[self._peer] > MOST and not _loopback(self._peer):
            transport.close()

    def on_headers_complete(self) -> None:
        self._giving_up.cancel()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._giving_up.cancel()
        self._open[self._peer] -= 1
        if not self._open[self._peer]:
            del self._open[self._peer]
        super().connection_lost(exc)


def _from_here(scope: Scope) -> bool:
    """Whether a request came from this machine: from its loopback, or from the address that it came to."""
    client, here = scope.get("client"), scope.get("server")
    return client is not None and (_loopback(client[0]) or (here is not None and client[0] == here[0]))


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
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
