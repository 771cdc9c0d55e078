"""How long a connection to a link may do nothing, and how many there may be: with bare sockets."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn

from mixveil.federated.transport import certificates
from mixveil.federated.transport.flower.connections import LimitedConnection, Limits, _counted_as
from mixveil.federated.transport.flower.guard import Guard
from mixveil.federated.transport.flower.superlink import _context

SHORT = 0.4  # seconds
LONG = 600
ASK = b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return
    whole = await receive()
    while whole.get("more_body"):
        whole = await receive()
    if whole["type"] == "http.request":
        scheme = scope["scheme"].encode()
        headers = [(b"content-length", str(len(scheme)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": scheme})


@contextmanager
def serving(keys: Path | None = None, app: Any = echo, **limits: Any) -> Iterator[int]:
    """A link's door with nothing behind it: its port. All limits are long but those that are named."""
    found = Limits(**{"handshake": LONG, "idle": LONG, "whole": LONG, "most": 64, "spare": False, **limits})
    context = None if keys is None else _context(str(keys / "server.crt"), str(keys / "server.key"))
    http = cast(type[LimitedConnection], partial(LimitedConnection, context=context, limits=found))
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, http=http, loop="asyncio", ws="none", workers=1, log_level="critical", timeout_keep_alive=LONG
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(10)
        LimitedConnection._open.clear()  # those that were open when it ended


def ended(connection: socket.socket, seconds: float = 300.0) -> bool:
    """Whether the other side closes a connection."""
    connection.settimeout(seconds)
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def dribbling(connection: socket.socket, data: bytes) -> bool:
    """Send the same again and again, slowly: whether the other side ends it."""
    connection.settimeout(0.05)
    end = time.monotonic() + 300
    while time.monotonic() < end:
        try:
            connection.sendall(data)
            if not connection.recv(1 << 16):
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 300)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "keys"
    certificates.make_trial(folder, ["a"])
    return folder / "server"


def secured(connection: socket.socket, keys: Path) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
    return context.wrap_socket(connection, server_hostname="localhost")


def asked(connection: socket.socket) -> bytes:
    connection.settimeout(300)
    connection.sendall(ASK)
    got = b""
    while not got.endswith((b"http", b"https")):
        more = connection.recv(1 << 16)
        assert more, "it was closed"
        got += more
    return got


def answered(port: int, keys: Path | None = None) -> socket.socket:
    """A connection that was answered once. It is tried again: this machine may be slow, and the limits are short."""
    end = time.monotonic() + 300
    while True:
        connection = connected(port)
        try:
            if keys is not None:
                connection = secured(connection, keys)
            assert asked(connection)
            return connection
        except (OSError, AssertionError):
            connection.close()
            assert time.monotonic() < end, "it is not answered"


def test_what_is_asked_is_answered_with_tls_and_without(keys: Path) -> None:
    with serving(keys) as port, answered(port, keys) as connection:
        for _ in range(3):
            assert asked(connection).endswith(b"https")
        for _ in range(20):  # a request that comes with the end of the handshake is not lost
            with secured(connected(port), keys) as other:
                assert asked(other).endswith(b"https")
    with serving() as port, connected(port) as connection:
        assert asked(connection).endswith(b"http")


def test_a_handshake_has_an_end(keys: Path) -> None:
    with serving(keys, handshake=SHORT) as port:
        with connected(port) as silent, connected(port) as slow:
            slow.sendall(b"\x16\x03\x01")  # the beginning of a handshake
            assert ended(silent) and ended(slow)
        with connected(port) as plain:
            plain.sendall(ASK)
            assert ended(plain)
        with answered(port, keys) as honest:
            time.sleep(2 * SHORT)
            assert asked(honest).endswith(b"https")


def test_bare_connections_count(keys: Path) -> None:
    """Those that never begin TLS too: they were 1,500 of one address."""
    with serving(keys, most=3) as port, ExitStack() as stack:
        bare = [stack.enter_context(connected(port)) for _ in range(3)]
        assert not ended(bare[0], 0.2)
        for _ in range(5):
            with connected(port) as further:
                assert ended(further)
        bare.pop().close()
        with answered(port, keys):  # there is room again
            pass


def test_this_machine_has_as_many_as_it_needs(keys: Path) -> None:
    with serving(keys, most=1, spare=True) as port, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(connected(port))
        assert asked(stack.enter_context(answered(port, keys))).endswith(b"https")


@pytest.mark.parametrize("data", [b"", b"\r\n", b"P", b"x: y\r\n"])
def test_a_connection_must_ask_something(data: bytes) -> None:
    with serving(idle=SHORT) as port, connected(port) as connection:
        if data.startswith(b"x"):
            connection.sendall(b"POST /x HTTP/1.1\r\n")
        assert dribbling(connection, data) if data else ended(connection)


@pytest.mark.parametrize("data", [b"", b"\r\n", b"x: y\r\n"])
def test_and_again_after_each_answer(data: bytes) -> None:
    with serving(idle=SHORT) as port, answered(port) as connection:
        if data.startswith(b"x"):
            connection.sendall(b"POST /x HTTP/1.1\r\n")
        assert dribbling(connection, data) if data else ended(connection)


def test_a_request_has_an_end() -> None:
    with serving(whole=SHORT) as port, connected(port) as connection:
        connection.sendall(b"POST /x HTTP/1.1\r\ncontent-length: 1000000\r\n\r\n")
        assert dribbling(connection, b"x")
    with serving(whole=SHORT, spare=True) as port, connected(port) as connection:  # this machine may take longer
        connection.sendall(b"POST /x HTTP/1.1\r\ncontent-length: 3\r\n\r\n")
        time.sleep(2 * SHORT)
        connection.sendall(b"abc")
        assert connection.recv(100)


def test_who_is_refused_does_not_stay(keys: Path) -> None:
    """A stranger may not send a body for ten minutes."""
    guard = Guard(echo, {}, "")
    with serving(keys, guard) as port, secured(connected(port), keys) as connection:
        connection.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\ncontent-length: 1000000\r\n\r\n")
        assert b"401" in connection.recv(100)
        assert dribbling(connection, b"x")


@pytest.mark.parametrize(
    ("address", "counts"),
    [
        ("10.0.0.9", "10.0.0.9"),
        ("::ffff:10.0.0.9", "10.0.0.9"),
        ("2001:db8:1:2::3", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::4", "2001:db8:1:2::/64"),
        ("", ""),
    ],
)
def test_whose_a_connection_is(address: str, counts: str) -> None:
    assert _counted_as(address) == counts
