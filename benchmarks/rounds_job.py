"""A job of sixteen rounds of sums, three parties and a server as processes of this machine, over Flower and TLS. One
party is killed and starts again, and then the server.

    python -m benchmarks.rounds_job [--secure] [--no-kills]

Shows the seconds of the job, of each message, and what became of it.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

from benchmarks.net import SLOW, Process, Server, free_port, tree, until
from mixveil.data.opening import open_data
from mixveil.features import projection_file, projection_fit
from mixveil.features.cache import Loaded, extract
from mixveil.features.extractor import Extractor
from mixveil.features.round_settings import RoundSettings
from mixveil.federated.transport.certificates import make_trial
from mixveil.releases.ledger import Ledger

NAMES, ROUNDS = ("a", "b", "c"), 16
_ROWS = 350
_SETTINGS = RoundSettings(
    directions=32,
    rounds=ROUNDS,
    share=0.2,
    clip=0.5,
    noise=0.01,
    rate=8.0,
    momentum=0.0,
    temperature=0.25,
    accuracy=0.9,
)


def made(folder: Path) -> tuple[dict[str, Path], Path]:
    """A file of digits for each party, one to test on, and a public projection with settings for rounds."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    x, y = (found.images / 16).astype(np.float32)[order, None], found.target[order]
    paths = {}
    for place, name in enumerate([*NAMES, "public", "test"]):
        rows = slice(place * _ROWS, (place + 1) * _ROWS)
        paths[name] = folder / f"{name}.npz"
        np.savez(paths[name], x=x[rows], y=y[rows], classes=np.array([str(i) for i in range(10)]))
    loaded = Loaded(Extractor(), (), torch.device("cpu"))
    fitted = projection_fit.fit(extract(open_data(str(paths["public"])), loaded, None), loaded.digest)
    projection_file.write(folder / "public.safetensors", replace(fitted, rounds=(_SETTINGS,)))
    return paths, folder / "public.safetensors"


class Net:
    """A server and its parties."""

    def __init__(self, folder: Path, *, secure: bool) -> None:
        self.folder, self.secure = folder, secure
        self.data, self.projection = made(folder)
        make_trial(folder / "keys", NAMES)
        self.port = free_port()
        self.server = Server(folder, self.port, folder / "keys" / "server")
        self.parties = {name: self.join(name) for name in NAMES}

    def join(self, name: str) -> Process:
        keys = self.folder / "keys" / name
        how = ["--roster", str(keys / "roster.json"), "--honest", "2"] if self.secure else []
        words = ["join", f"127.0.0.1:{self.port}", "--party", name, "--data", str(self.data[name]), "--mu", "4"]
        words += ["--budget", "4", "--keys", str(keys), *how]
        return Process(words, self.folder / f"join-{name}.log", self.folder / f"state-{name}")

    def begin(self) -> Any:
        method = "rounds-secure" if self.secure else "rounds"
        return self.server.begin(method, "job", "--projection", str(self.projection), "--wait", str(SLOW))

    def done(self) -> int:
        """The number of the last message that is done; −1 before the first."""
        return max((event["figures"]["number"] for event in self.server.events("job", "round-done")), default=-1)

    def over(self) -> bool:
        return (self.server.job("job") / "outcome.json").exists()

    def kill_party(self, name: str) -> None:
        self.parties[name].stop(signal.SIGKILL)
        self.parties[name] = self.join(name)

    def kill_server(self) -> None:
        family = tree(self.server.pid)
        self.server.stop(signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{pid}/fd").exists() for pid in family))
        self.server = Server(self.folder, self.port, self.folder / "keys" / "server")

    def stop(self) -> None:
        for process in (*self.parties.values(), self.server):
            process.stop()


def measured(folder: Path, *, secure: bool, kill: bool) -> dict[str, Any]:
    """Run the job; how long it took, and what it left."""
    net = Net(folder, secure=secure)
    try:
        until(lambda: all("Connected" in process.said() for process in net.parties.values()))
        started = time.monotonic()
        running = net.begin()
        if kill:
            until(lambda: net.done() >= 4 or net.over())
            net.kill_party("b")
            until(lambda: net.done() >= 9 or net.over())
            net.kill_server()
            running.communicate(timeout=SLOW)
            running = net.begin()
        said, wrong = running.communicate(timeout=SLOW)
        seconds = time.monotonic() - started
        whole = json.loads(said) if said else {"ok": False, "why": wrong}
        times = [datetime.fromisoformat(event["time"]) for event in net.server.events("job", "round-done")]
        gaps = [(after - before).total_seconds() for before, after in pairwise(times)]
        entries = {name: len(Ledger(net.folder / f"state-{name}").entries()) for name in NAMES}
        failed = [event["figures"] for event in net.server.events("job", "sum-failed")]
        return {
            "ok": whole.get("ok"),
            "why": whole.get("why", whole),
            "seconds": seconds,
            "each": gaps,
            "entries": entries,
            "failed": failed,
        }
    finally:
        net.stop()


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--secure", action="store_true", help="rounds-secure")
    words.add_argument("--no-kills", action="store_true", help="nothing is killed")
    chosen = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder), secure=chosen.secure, kill=not chosen.no_kills)
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
