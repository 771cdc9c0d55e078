"""What tests of the network need besides a server and its parties: data, a relay, and who listens where."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from benchmarks.net import SLOW
from sklearn.datasets import load_digits

HONEST = ("a", "b")
ROWS = 200


def digits(folder: Path) -> dict[str, Path]:
    """A file of digits for each party, and one to test on: no image is in two of them."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    x, y = (found.images / 16).astype(np.float32)[order, None], found.target[order]
    paths = {}
    for place, name in enumerate([*HONEST, "killed", "replay", "test"]):
        rows = slice(place * ROWS, (place + 1) * ROWS)
        paths[name] = folder / f"{name}.npz"
        np.savez(paths[name], x=x[rows], y=y[rows], classes=np.array([str(i) for i in range(10)]))
    return paths


def encodings(images: torch.Tensor) -> Iterator[bytes]:
    """An image as bytes, in every way in which one is likely to be sent."""
    for image in images.flatten(1).numpy():
        for scale, kind in ((1, "<f4"), (1, "<f8"), (1, "<f2"), (16, "u1"), (255, "u1"), (16, "<i2"), (255, "<i2")):
            yield np.rint(image * scale).astype(kind).tobytes() if scale > 1 else image.astype(kind).tobytes()


def listening(pids: set[int]) -> dict[str, int]:
    """The addresses, in hexadecimal, on which processes listen, and how often."""
    sockets = set()
    for pid in pids:
        for path in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                sockets.add(str(path.readlink()))
    found: dict[str, int] = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                address = fields[1].partition(":")[0]
                found[address] = found.get(address, 0) + 1
    return found


class Relay:
    """Carries bytes to a server and back, and keeps them. stall: once this is true, carry no
    more than a few thousand bytes from a party."""

    def __init__(self, port: int, *, stall: Callable[[], bool] = lambda: False) -> None:
        self.to, self.stall = port, stall
        self.sent, self.got = bytearray(), bytearray()
        self.stalled, self._over = threading.Event(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
                self._sockets += [near, far]
                threading.Thread(target=self._carry, args=(near, far, self.sent, True), daemon=True).start()
                threading.Thread(target=self._carry, args=(far, near, self.got, False), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, record: bytearray, up: bool) -> None:
        passed = 0
        with suppress(OSError):
            while data := source.recv(1 << 16):
                record += data
                passed += len(data) if up and self.stall() else 0
                if passed > 10_000:
                    self.stalled.set()
                    self._over.wait(SLOW)
                    return
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._over.set()
        for item in (self.listener, *self._sockets):
            with suppress(OSError):
                item.close()
