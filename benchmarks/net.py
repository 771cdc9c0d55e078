"""Servers and parties as processes of this machine, and nodes that answer as they are told."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.timing import in_status
from mixveil.federated.jobs.messages import Message
from mixveil.federated.transport.flower.environment import environment

SLOW = 900.0  # seconds after which it is not waited any longer


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


def until(what: Callable[[], Any], seconds: float = SLOW) -> Any:
    end = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > end:
            raise TimeoutError("it took too long")
        time.sleep(0.1)
    return found


class Process:
    """A `mixveil` that runs on its own, and is stopped by its own number."""

    def __init__(self, words: list[str], log: Path, state: Path) -> None:
        self.log = log
        variables = {**environment(state / "flower"), "MIXVEIL_STATE": str(state), "OMP_NUM_THREADS": "1"}
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mixveil", *words], stdout=file, stderr=file, env=variables, cwd=log.parent
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)


class Server(Process):
    def __init__(self, folder: Path, port: int, keys: Path | None) -> None:
        self.folder, self.port = folder / "server", port
        how = ["--insecure"] if keys is None else ["--keys", str(keys)]
        words = ["serve", str(self.folder), "--port", str(port), *how]
        super().__init__(words, folder / "serve.log", folder / "server-state")
        until(self._listens)

    def _listens(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(self.said())
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def run(self, method: str, job: str, *words: str) -> dict[str, Any]:
        """`mixveil run`, to its end; how the job ended."""
        done = mixveil("run", method, str(self.folder), "--job", job, "--json", *words)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def begin(self, method: str, job: str, *words: str) -> subprocess.Popen[str]:
        """The same, without waiting."""
        command = [sys.executable, "-m", "mixveil", "run", method, str(self.folder), "--job", job, "--json", *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def job(self, name: str) -> Path:
        return self.folder / "jobs" / name

    def events(self, name: str, code: str) -> list[dict[str, Any]]:
        """What the events of one code in a job say."""
        path = self.job(name) / "events.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["code"] == code]


def mixveil(*words: str, state: Path | None = None, check: bool = False) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **({} if state is None else {"MIXVEIL_STATE": str(state)})}
    done = subprocess.run(
        [sys.executable, "-m", "mixveil", *words], capture_output=True, text=True, env=variables, timeout=SLOW
    )
    if check and done.returncode:
        raise RuntimeError(done.stderr)
    return done


def tree(pid: int) -> set[int]:
    """A process and all that it started."""
    found, parents = {pid}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def anonymous(pids: set[int]) -> int:
    """Bytes of memory of their own that processes hold."""
    return sum(in_status("RssAnon", pid) for pid in pids)


@contextmanager
def node(port: int, key: Path, ca: Path, answer: Callable[[Message], Message], pause: float = 0.2) -> Iterator[None]:
    """A node with a key that answers as it is told: Flower's own connection, and nothing of a party's code."""
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.app import Message as FlowerMessage
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        iterate_object_tree,
        no_object_id_recompute,
    )
    from flwr.supercore.inflatable.inflatable_utils import (
        inflate_object_from_contents,
        pull_objects,
        push_object_contents_from_iterable,
    )
    from flwr.supercore.run import RunNotRunningException
    from flwr.supernode.fleet_http_connection import http_request_response

    from mixveil.federated.transport.flower.serialization import packed, unpacked

    private: Any = load_ssh_private_key(key.read_bytes(), None)
    over, there = threading.Event(), threading.Event()

    def loop() -> None:
        keys = (private, private.public_key())
        with http_request_response(f"127.0.0.1:{port}", False, ca.read_bytes(), keys, 2, 10.0) as connection:
            _, receive, send, _, _, pull, push, confirm = connection
            there.set()
            while not over.wait(pause):
                found = receive()
                if found is None:
                    continue
                message, objects = found
                run = message.metadata.run_id
                names = [item.object_id for item in iterate_object_tree(objects)]
                contents = pull_objects(names, lambda name, run=run: pull(run, name))  # type: ignore[misc]
                confirm(run, message.metadata.message_id)
                asked: Any = inflate_object_from_contents(objects.object_id, contents)
                asked.metadata.__dict__["_message_id"] = objects.object_id
                reply = FlowerMessage(packed(answer(unpacked(asked.content))), reply_to=asked)
                reply.metadata.__dict__["_message_id"] = reply.object_id
                with no_object_id_recompute():
                    outline, parts = get_object_tree(reply), get_all_nested_objects(reply)
                    wanted, session = send(reply, outline, 0.0)
                    push_object_contents_from_iterable(
                        ((name, parts[name].deflate()) for name in parts if name in wanted),
                        lambda name, content, run=run, session=session: push(run, session, name, content),  # type: ignore[misc]
                    )

    def ended() -> None:
        with suppress(RunNotRunningException):  # it answers too late
            loop()

    thread = threading.Thread(target=ended, daemon=True)
    thread.start()
    if not there.wait(SLOW):
        raise TimeoutError("the node did not come in")
    try:
        yield
    finally:
        over.set()
        thread.join(10)
