"""Connections to a link: how many another machine may have, and for how long they may do nothing.

Uvicorn counts and times nothing before TLS is agreed on, so TLS is begun here: a connection counts from the moment that
it is accepted.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mixveil.federated.transport.link import loopback


@dataclass(frozen=True)
class Limits:
    """What one connection, and one address, may take.

    Attributes:
        handshake: seconds until TLS is agreed on
        idle: seconds until the headers of a request are there; they count from the end of the last answer
        whole: seconds for the rest of the request and its answer. Not for this machine, which follows logs
        most: connections of one address at a time. Not for this machine
        spare: whether this machine is exempt
    """

    handshake: float = 10.0
    idle: float = 15.0
    whole: float = 600.0
    most: int = 64
    spare: bool = True


class LimitedConnection(HttpToolsProtocol):
    """Connections that ask nothing are closed, and no other machine has them all. context: of TLS; None where there is
    none."""

    _open: ClassVar[Counter[str]] = Counter()

    def __init__(
        self, *given: Any, context: ssl.SSLContext | None = None, limits: Limits | None = None, **named: Any
    ) -> None:
        super().__init__(*given, **named)
        self._context, self._limits = context, limits or Limits()
        self._from, self._spared = "", False
        self._counted = False
        self._timer: asyncio.TimerHandle | None = None
        self._agreeing: asyncio.Task[None] | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if peer else ""
        self._spared = self._limits.spare and loopback(address)
        self._from, self._counted = _counted_as(address), True
        self._open[self._from] += 1
        if self._open[self._from] > self._limits.most and not self._spared:
            self._leave()
            transport.abort()
        elif self._context is None:
            self._ready(transport)
        else:
            transport.pause_reading()  # what comes belongs to TLS
            self._agreeing = self.loop.create_task(self._agree(transport, self._context))

    async def _agree(self, transport: Any, context: ssl.SSLContext) -> None:
        try:
            secured = await self.loop.start_tls(
                transport,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=self._limits.handshake,
                ssl_shutdown_timeout=self._limits.handshake,
            )
        except (Exception, asyncio.CancelledError):  # it speaks no TLS, does not want this certificate, is too late
            secured = None
        if secured is None:
            self._leave()
            transport.abort()
        else:
            self._ready(secured)

    def _ready(self, transport: Any) -> None:
        super().connection_made(transport)
        self._within(self._limits.idle)
        for data in self._early:
            self.data_received(data)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self.transport is None:  # a request may come with the end of the handshake, before that is known here
            self._early.append(data)
        else:
            super().data_received(data)

    def _within(self, seconds: float | None) -> None:
        """Close the connection after so many seconds, unless this is called again."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    def on_headers_complete(self) -> None:
        self._within(None if self._spared else self._limits.whole)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.pipeline:
            self._within(self._limits.idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._within(None)
        self._leave()
        if self.transport is not None:
            super().connection_lost(exc)

    def _leave(self) -> None:
        if self._counted:
            self._counted = False
            self._open[self._from] -= 1
            if not self._open[self._from]:
                del self._open[self._from]


def _counted_as(address: str) -> str:
    """The address that a connection counts for: in IPv6 a network of one owner, who has all its addresses."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.IPv6Network((found, 64), strict=False))
    return str(found)
