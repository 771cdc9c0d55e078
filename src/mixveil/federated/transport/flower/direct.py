"""A node's HTTP client: it connects to the address that it was given, and to no other.

Flower's own client follows redirects, off TLS as well, takes the proxies that the environment names, and reads answers
of any size into memory. A malicious server could send a party's machine, with its signature and a piece of its release,
to any host that the machine reaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
from flwr.supercore.protobuf import client as flower_client

from mixveil.core.errors import RefusedError, ServiceError
from mixveil.federated.transport.flower.environment import replace_in

PIECE = 8 << 20
"""Bytes of an answer that brings a piece of a message: Flower cuts arrays into pieces of 5 MB."""

OTHER = 1 << 20
"""Bytes of any other answer. It is parsed at once, and may take many times as much memory."""

_PIECES = "/pull-object"


class Direct(httpx.Client):
    """An HTTP client without redirects, without proxies, and with an end to every answer."""

    def __init__(self, *, verify: Any = True, timeout: Any = 30.0, **_: Any) -> None:
        transport = _Bounded(httpx.HTTPTransport(verify=verify, trust_env=False))
        super().__init__(transport=transport, timeout=timeout, follow_redirects=False, trust_env=False)
        self.headers["accept-encoding"] = "identity"  # what is packed could unfold to any size


def replace_client() -> None:
    """Make every HTTP client of Flower in this process a direct one. Fails where Flower makes its clients elsewhere."""

    class Http:
        Client = Direct

        def __getattr__(self, name: str) -> Any:
            return getattr(httpx, name)

    replace_in(flower_client, "httpx", Http())
    with flower_client.ProtobufClient("http://127.0.0.1:9") as made:
        if not isinstance(made._client, Direct):
            raise ServiceError("this version of Flower makes its HTTP clients elsewhere: install flwr 1.41")


class _Bounded(httpx.BaseTransport):
    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._inner.handle_request(request)
        try:
            _check(request, response)
        except RefusedError:
            response.close()
            raise
        if not isinstance(response.stream, httpx.SyncByteStream):
            raise ServiceError("an answer has no bytes to read")
        stream = _Limited(response.stream, PIECE if request.url.path.endswith(_PIECES) else OTHER)
        return httpx.Response(
            response.status_code, headers=response.headers, stream=stream, extensions=response.extensions
        )

    def close(self) -> None:
        self._inner.close()


def _check(request: httpx.Request, response: httpx.Response) -> None:
    if 300 <= response.status_code < 400:
        raise RefusedError(
            f"{request.url.host} answered with a redirect ({response.status_code}): no other address is asked"
        )
    if response.headers.get("content-encoding", "identity") != "identity":
        raise RefusedError(f"{request.url.host} answered with packed bytes, which were not asked for")


class _Limited(httpx.SyncByteStream):
    def __init__(self, inner: httpx.SyncByteStream, most: int) -> None:
        self._inner, self._most = inner, most

    def __iter__(self) -> Iterator[bytes]:
        taken = 0
        for chunk in self._inner:
            taken += len(chunk)
            if taken > self._most:
                raise RefusedError(f"the server's answer has more than the {self._most:,} bytes that it may have")
            yield chunk

    def close(self) -> None:
        self._inner.close()
