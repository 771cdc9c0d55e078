"""A node connects to the server that it was told of, and to nothing else; and it takes no more than it can hold."""

from __future__ import annotations

import gzip
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse
from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse
from flwr.supercore.protobuf import client as flower_client
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.fleet_http_client import FleetHttpClient

from mixveil.core.errors import RefusedError, ServiceError
from mixveil.federated.transport import certificates
from mixveil.federated.transport.flower import environment
from mixveil.federated.transport.flower.direct import OTHER, PIECE, Direct, replace_client


class Answers(BaseHTTPRequestHandler):
    """What a server answers to everything; asked: what it was asked."""

    status: ClassVar[int] = 200
    extra: ClassVar[dict[str, str]] = {}
    body: ClassVar[bytes] = b""
    asked: ClassVar[list[str]]

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self.asked.append(f"{self.command} {self.path} {self.headers.get('flwr-signature', '')}")
        self.send_response(self.status)
        for name, value in {"content-length": str(len(self.body)), **self.extra}.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):  # who asked has had enough
            self.wfile.write(self.body)

    do_GET = do_POST = do_PUT = do_HEAD = do_CONNECT = _answer  # noqa: N815, as the standard library calls them

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def listening(keys: Path | None = None, **answer: Any) -> Iterator[tuple[str, list[str]]]:
    """A server of this machine: its address, and what it is asked."""
    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Made", (Answers,), {**answer, "asked": asked}))
    if keys is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keys / certificates.CERTIFICATE, keys / certificates.KEY)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture(autouse=True)
def replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_client, "httpx", httpx)  # it is put back after the test
    replace_client()


def fleet(address: str, ca: bytes | None = None) -> FleetHttpClient:
    return FleetHttpClient.from_server_address(address, ca is None, ca, interceptors=[])


def refused(match: str) -> Any:
    return pytest.raises(RefusedError, match=match)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 305, 307, 308])
def test_no_redirect_is_followed(status: int) -> None:
    with listening() as (elsewhere, heard):
        to = {"location": f"http://{elsewhere}/admin?x=1"}
        with listening(status=status, extra=to) as (address, asked):
            with fleet(address) as node, pytest.raises(RefusedError, match=rf"redirect \({status}\)"):
                node.PullMessages(PullMessagesRequest())
            runtime = RuntimeHttpClient.from_server_address(
                address, True, None, interceptors=[], retry_invoker=make_simple_http_retry_invoker()
            )
            with runtime, pytest.raises(RefusedError, match="redirect"):
                runtime.PullObject(PullObjectRequest())
            for verb in ("GET", "PUT", "HEAD", "POST"):
                with Direct() as client, pytest.raises(RefusedError, match="redirect"):
                    client.request(verb, f"http://{address}/health")
            assert len(asked) == 6
        assert not heard


def test_no_redirect_leads_off_tls(tmp_path: Path) -> None:
    certificates.make_trial(tmp_path / "keys", ["a"])
    ca = (tmp_path / "keys" / "a" / "ca.crt").read_bytes()
    with listening() as (elsewhere, heard):
        to = {"location": f"http://{elsewhere}/"}
        with listening(tmp_path / "keys" / "server", status=307, extra=to) as (address, asked):
            with fleet(address, ca) as node, pytest.raises(RefusedError, match="redirect"):
                node.PullMessages(PullMessagesRequest())
            assert len(asked) == 1
        assert not heard


def test_a_redirect_that_leads_nowhere_is_one_too() -> None:
    """httpx calls it a broken connection, which Flower tries again for ever."""
    for extra in ({}, {"location": "http://[broken"}):
        with listening(status=302, extra=extra) as (address, _), refused("redirect"), fleet(address) as node:
            node.PullMessages(PullMessagesRequest())


@pytest.mark.parametrize("name", ["HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"])
def test_no_proxy_is_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    with listening(status=502) as (proxy, heard), listening() as (address, asked):
        monkeypatch.setenv(name, f"http://{proxy}")
        assert name in environment.proxies()
        with fleet(address) as node:
            node.PullMessages(PullMessagesRequest())
        assert len(asked) == 1 and not heard


def test_what_flower_starts_knows_no_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "https_proxy", "ALL_PROXY", "SSL_CERT_FILE", "SSLKEYLOGFILE", "NETRC"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    found = environment.environment(tmp_path)
    assert not any("127.0.0.1:9" in value for value in found.values()) and found["NO_PROXY"] == "*"


def test_answers_have_an_end() -> None:
    small = PullObjectResponse(object_found=True, object_available=True, object_content=bytes(PIECE - 100))
    with listening(body=small.SerializeToString()) as (address, _), fleet(address) as node:
        assert len(node.PullObject(PullObjectRequest()).object_content) == PIECE - 100
        with pytest.raises(RefusedError, match=f"more than the {OTHER:,} bytes"):
            node.PullMessages(PullMessagesRequest())
    with listening(body=bytes(PIECE + 1)) as (address, _), refused(f"more than the {PIECE:,} bytes"):
        fleet(address).PullObject(PullObjectRequest())


def test_an_error_has_an_end_too() -> None:
    with listening(status=500, body=bytes(OTHER + 1)) as (address, _), refused("bytes that it may have"):
        fleet(address).PullMessages(PullMessagesRequest())


def test_nothing_packed_is_unpacked() -> None:
    body = gzip.compress(PullMessagesResponse().SerializeToString() + bytes(50 << 20))
    with listening(body=body, extra={"content-encoding": "gzip"}) as (address, _), refused("packed"):
        fleet(address).PullMessages(PullMessagesRequest())


def test_a_flower_that_makes_its_clients_elsewhere_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        def __init__(self, *_: Any) -> None:
            self._client = object()

        def __enter__(self) -> Other:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(flower_client, "ProtobufClient", Other)
    with pytest.raises(ServiceError, match="elsewhere"):
        replace_client()
    monkeypatch.delattr(flower_client, "httpx")
    with pytest.raises(AttributeError):
        replace_client()
