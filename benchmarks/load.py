"""Twenty parties with fifty megabytes each, and how much a server holds of it at a time."""

from __future__ import annotations

import hashlib
import json
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.net import Server, anonymous, free_port, node, tree
from benchmarks.record import Found, Plain
from mixveil.core.randomness import SecureStream, SeededStream, release_id
from mixveil.core.types import Mu
from mixveil.data.images import from_tensors
from mixveil.encoders.calibration import settled_facts
from mixveil.encoders.singular import Singular
from mixveil.federated.jobs.messages import MANIFEST, Message
from mixveil.federated.transport.certificates import make_trial
from mixveil.releases.records import write_release

_VALUES, _CLASSES = 64, 2
_PAUSE = 1.0  # Flower's own nodes look every three seconds


@dataclass(frozen=True)
class Load:
    """bytes: of all releases; seconds: from the first file that was asked for to the last that arrived; copying: the
    same bytes over loopback; most: bytes of memory of its own that the server held; arrived: whose releases are there,
    byte for byte."""

    bytes: int
    seconds: float
    copying: float
    most: int
    arrived: int
    outcome: dict[str, object]


def network(parties: int = 20, size: int = 50_000_000) -> Found:
    """Releases of many parties over TLS into a server's files, checked, against copying the same bytes over loopback.
    All of it on this machine: the parties' work is in the figure."""
    with tempfile.TemporaryDirectory() as folder:
        load = under_load(Path(folder) / "load", parties, size)
    row: dict[str, Plain] = {
        "parties": parties,
        "megabytes": load.bytes / 1e6,
        "seconds": load.seconds,
        "megabytes_per_second": load.bytes / 1e6 / load.seconds,
        "copying_seconds": load.copying,
        "times_copying": load.seconds / load.copying,
        "server_peak_rss_anon_gb": load.most / 1e9,
        "releases_lost": parties - load.arrived,
    }
    return Found([row], {"warm_up": 0, "repetitions": 1, "statistic": "single"}, packages=("flwr",))


def under_load(folder: Path, parties: int, size: int) -> Load:
    folder.mkdir(exist_ok=True)
    names = [f"p{number:02d}" for number in range(parties)]
    make_trial(folder / "keys", names)
    release = _release(folder / "release", size)
    (shard,) = release.glob("shard-*")
    base = shard.read_bytes()
    manifests = {name: _renamed(release, name, _varied(base, number)) for number, name in enumerate(names)}
    asked: list[float] = []

    def answers(name: str) -> Callable[[Message], Message]:
        def answer(message: Message) -> Message:
            about = {"state": "ready", "party": name, "why": None}
            if message.about["ask"] == "offer":
                return Message(about, {MANIFEST: manifests[name]})
            if message.about["ask"] == "file":
                asked.append(time.time())
                return Message(about, {shard.name: _varied(base, names.index(name))})
            return Message(about)

        return answer

    server = Server(folder, free_port(), folder / "keys" / "server")
    try:
        with ExitStack() as nodes:
            for name in names:
                key, ca = folder / "keys" / name / f"{name}.key", folder / "keys" / name / "ca.crt"
                nodes.enter_context(node(server.port, key, ca, answers(name), _PAUSE))
            over = threading.Event()
            held: list[int] = []

            def watch() -> None:
                while not over.wait(0.2):
                    held.append(anonymous(tree(server.pid)))

            watching = threading.Thread(target=watch)
            watching.start()
            outcome = server.run("one-shot", "load", "--wait", "600")
            over.set()
            watching.join()
        arrived = [server.job("load") / "records" / name for name in names]
        ended = max(path.stat().st_ctime for path in arrived if path.exists())
        whole = [
            path
            for number, path in enumerate(arrived)
            if path.exists()
            and (path / MANIFEST).read_bytes() == manifests[path.name]
            and (path / shard.name).read_bytes() == _varied(base, number)
        ]
        sent = len(base) * parties
        return Load(sent, ended - min(asked), copied(sent), max(held), len(whole), outcome)
    finally:
        server.stop()


def copied(size: int) -> float:
    """Seconds that so many bytes take over loopback, and nothing else."""
    listener = socket.create_server(("127.0.0.1", 0))
    block = bytes(1 << 20)

    def send() -> None:
        with socket.create_connection(listener.getsockname()) as out:
            for _ in range(size // len(block)):
                out.sendall(block)

    begun = time.perf_counter()
    sending = threading.Thread(target=send)
    sending.start()
    near, _ = listener.accept()
    with near, listener:
        while near.recv(1 << 20):
            pass
    sending.join()
    return time.perf_counter() - begun


def _release(out: Path, size: int) -> Path:
    rows = size // (2 * _VALUES + 4 * _CLASSES)
    x = SeededStream(1).uniform(rows, _VALUES).float().view(rows, 1, 8, 8)
    data = from_tensors(x, torch.arange(rows) % _CLASSES, classes=_CLASSES)
    facts = settled_facts(data, certified=True, public=None, clip=None)
    encoder, guarantees = Singular().calibrate(Mu(1.0), facts)
    write_release(out, data, encoder, guarantees, party="p", stream=SecureStream())
    return out


def _varied(base: bytes, number: int) -> bytes:
    """The same rows, but for one value: nothing is taken twice."""
    header = int.from_bytes(base[:8], "little")
    place = 8 + header + int(json.loads(base[8 : 8 + header])["x"]["data_offsets"][0])
    return base[:place] + bytes([base[place] ^ number]) + base[place + 1 :]


def _renamed(release: Path, party: str, data: bytes) -> bytes:
    """The manifest of another party's release: it is not bound to its rows but by their hash."""
    whole = json.loads((release / MANIFEST).read_text())
    whole["files"][0]["sha256"] = hashlib.sha256(data).hexdigest()
    return json.dumps({**whole, "party": party, "id": release_id()}).encode()
