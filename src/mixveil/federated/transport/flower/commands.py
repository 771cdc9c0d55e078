"""Flower's own commands, for a coordinator: start a run, see what became of it, list the nodes. No torch, no flwr."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mixveil.core import files
from mixveil.core.errors import ServiceError
from mixveil.federated.transport import link
from mixveil.federated.transport.flower import environment

_LOOK = 0.5  # seconds between two looks for a server


def is_running(server: Path) -> bool:
    """Whether a `mixveil serve` has this folder."""
    return files.held_by(server) is not None


def wait_for_server(server: Path, seconds: float, waiting: Callable[[], None]) -> None:
    """Wait until the server of a folder runs and listens. waiting: called once, if it does not yet."""
    end, told = time.monotonic() + seconds, False
    while not (is_running(server) and _listens(*link.address(server))):
        if time.monotonic() >= end:
            raise ServiceError(f"no server runs in {server} after {seconds:g} s: start `mixveil serve {server}` first")
        if not told:
            waiting()
            told = True
        time.sleep(_LOOK)


def when_it_listens(server: Path, tell: Callable[[], None]) -> threading.Thread:
    """Tell once that the server that begins in this process listens; loading Flower takes it many seconds."""

    def wait() -> None:
        while not _listens(*link.address(server)):
            time.sleep(_LOOK)
        tell()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def start(server: Path, config: Mapping[str, object]) -> str:
    """Start a run of the installed app with a job's configuration; Flower's number of it."""
    path = link.home(server) / "run.toml"
    link.write_toml(path, config)
    started = _flwr(server, "run", str(environment.APP), link.NAME, "--run-config", str(path), "--format", "json")
    return str(started.get("run-id"))


def has_ended(server: Path, run: str) -> bool:
    """Whether Flower calls a run finished."""
    whole = _flwr(server, "list", link.NAME, "--run-id", run, "--format", "json")
    return any(str(item.get("status", "")).startswith("finished") for item in whole.get("runs", []))


def nodes(server: Path) -> list[dict[str, str]]:
    """The parties' nodes that the server knows: party and status."""
    known = link.read_nodes(server)
    listed = _flwr(server, "supernode", "list", link.NAME, "--format", "json").get("nodes", [])
    numbers = [(str(item.get("node-id")), str(item.get("status", "unknown"))) for item in listed]
    return [{"party": known.get(number, f"node {number}"), "status": status} for number, status in numbers]


def _listens(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), 5):
        return True
    return False


def _flwr(server: Path, *arguments: str) -> dict[str, Any]:
    """One of Flower's commands, and what it says in JSON."""
    home = link.home(server)
    done = subprocess.run(  # noqa: S603
        ["flwr", *arguments],  # noqa: S607, the one beside this Python: `environment` puts it first
        env=environment.environment(home),
        cwd=home,
        capture_output=True,
        text=True,
    )
    try:
        whole = json.loads(done.stdout)
    except ValueError:
        whole = {}
    if done.returncode or not isinstance(whole, dict) or whole.get("success") is False:
        said = whole.get("error-message") if isinstance(whole, dict) else None
        lines = [line.strip() for line in (said or done.stderr or done.stdout).splitlines() if line.strip()]
        raise ServiceError(f"the server of {server} does not answer. Flower says: {' '.join(lines)[-200:]}")
    return whole
