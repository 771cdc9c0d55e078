"""The server's half of the Flower app: its settings are the run's configuration, its folder is MIXVEIL_SERVER."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from flwr.app import Context
from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from mixveil.core import files, strict_json
from mixveil.core.errors import ServiceError
from mixveil.core.wording.jobs import REFUSED
from mixveil.core.wording.notes import Note, note
from mixveil.federated.jobs.job import Job, begin
from mixveil.federated.jobs.job_config import JobConfig
from mixveil.federated.jobs.messages import SMALL, Ask, Message, Refusal, check_name, reason, told
from mixveil.federated.jobs.serving import run
from mixveil.federated.transport import link
from mixveil.federated.transport.flower.environment import SERVER
from mixveil.federated.transport.flower.serialization import GoneError, packed, pulled, unpacked

app = ServerApp()
_PAUSE, _LONGEST = 0.3, 2.0  # seconds between two looks for an answer, at first and later on
_LOOK = 1.0  # seconds between two looks who is there
_TRIES = 5  # a party that could not answer is asked so often
_AWAY = 2 * _LOOK  # seconds after which it is known whether a node that did not answer is still there


@app.main()
def main(grid: Grid, context: Context) -> None:
    folder = os.environ.get(SERVER)
    if not folder:
        raise ServiceError(f"{SERVER} must name the server's folder: `mixveil serve` sets it")
    names = link.expected(Path(folder)) if (Path(folder) / link.PARTIES).exists() else []
    job = begin(Path(folder), JobConfig.read(context.run_config), names)
    with files.alone(job.folder):
        _run(job, grid)


def _run(job: Job, grid: Grid) -> None:
    job.log("job-begun", method=job.identity.method, job=job.identity.name, parties=job.config.parties)
    nodes = Nodes(grid, job)
    try:
        run(job, nodes, {"mixveil": version("mixveil"), "torch": version("torch"), "flwr": version("flwr")})
    except Exception as error:
        why = reason(error, "server-failed")
        job.log("job-ended", why=why)
        job.conclude(model=None, why=why)
        raise
    finally:
        nodes.close()


@dataclass
class _Node:
    """A node that is there. name: under which its key was registered; empty where there are no keys. since: when it
    came, so that a node that came back is asked again."""

    id: int
    name: str
    since: str


class Nodes:
    """Flower's nodes as parties, by the names that their keys were registered under. Where there are no keys
    a node says who it is, and is believed."""

    def __init__(self, grid: Grid, job: Job) -> None:
        self._grid, self._job = grid, job
        self._lock, self._over = threading.Lock(), threading.Event()
        self._there: dict[int, _Node] = {}
        self._parties: dict[str, int] = {}
        self._unknown: dict[str, Note] = {}
        self._greeted: set[int] = set()
        threading.Thread(target=self._watch, daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def present(self) -> Mapping[str, Ask]:
        with self._lock:
            return {name: self._ask(node) for name, node in self._parties.items()}

    def unknown(self) -> Mapping[str, Note]:
        with self._lock:
            return dict(self._unknown)

    def _watch(self) -> None:
        """See who is there. Those without a name are asked for it: they have no keys."""
        while not self._over.wait(_LOOK):
            try:
                nodes = [_Node(n.node_id, n.name, n.last_activated_at) for n in self._grid.get_nodes()]
            except Exception as error:
                self._job.log("link-silent", error=type(error).__name__)
                continue
            with self._lock:
                self._there = {node.id: node for node in nodes}
                self._parties |= {node.name: node.id for node in nodes if node.name}
                new = [node.id for node in nodes if not node.name and node.id not in self._greeted]
                self._greeted |= set(new)
            for node in new:
                threading.Thread(target=self._greet, args=(node,), daemon=True).start()

    def _greet(self, node: int) -> None:
        try:
            answer = self._ask(node)(Message({**self._job.identity.plain(), "ask": "hello"}), SMALL)
            claimed = check_name("party", strict_json.text("party", answer.about.get("party")))
            with self._lock:
                other = self._parties.get(claimed, node)
                if other != node and other in self._there:
                    raise Refusal("same-name-twice", named=claimed)
                self._parties[claimed] = node
        except Exception as error:
            with self._lock:
                self._unknown[f"node {node}"] = reason(error, "check-failed")

    def _ask(self, node: int) -> Ask:
        def ask(message: Message, most: int) -> Message:
            why = note("no-reason-given")
            for _ in range(_TRIES):
                try:
                    return self._asked(node, message, most)
                except GoneError as error:  # it was killed, or its message was lost: it is asked again
                    why = error.note
                    self._over.wait(_AWAY)
            raise Refusal("no-answer", why=why)

        return ask

    def _asked(self, node: int, message: Message, most: int) -> Message:
        """Send a message, and wait for the answer to it, however long that takes; but not for the answer of a node that
        started again since."""
        since = self._since(node)
        try:
            (number,) = self._grid.push_messages([FlowerMessage(packed(message), node, "query")])
        except ObjectPushError:
            raise GoneError(note("message-lost")) from None
        if not number:
            raise GoneError(note("message-lost"))
        for pause in _pauses():
            coming = self._pull(number, most)
            while not wait([coming], _PAUSE).done:
                self._still_there(node, since)
            if (reply := coming.result()) is not None:
                if reply.has_error():
                    raise GoneError(_error(reply))
                return unpacked(reply.content)
            self._still_there(node, since)
            time.sleep(pause)
        raise Refusal("no-answer", why=note("no-reason-given"))

    def _pull(self, number: str, most: int) -> Future[FlowerMessage | None]:
        """Look for an answer, in a thread that need not be waited for: Flower waits minutes for the rest of one whose
        sender was killed."""
        coming: Future[FlowerMessage | None] = Future()

        def pull() -> None:
            try:
                coming.set_result(pulled(self._grid, number, most))
            except BaseException as error:
                coming.set_exception(error)

        threading.Thread(target=pull, daemon=True).start()
        return coming

    def _since(self, node: int) -> str:
        """When a node came; waits for one that is gone."""
        while True:
            with self._lock:
                if node in self._there:
                    return self._there[node].since
            if self._over.wait(_PAUSE):
                raise Refusal("job-over")

    def _still_there(self, node: int, since: str) -> None:
        if self._over.is_set():
            raise Refusal("job-over")
        with self._lock:
            now = self._there.get(node)
        if now is not None and now.since != since:
            raise GoneError(note("restarted"))


def _error(reply: FlowerMessage) -> Note:
    """Why a node did not answer: a code of ours, or the number of one of Flower's errors."""
    why = told({"code": reply.error.reason}, REFUSED)
    return note("transport-failed", number=int(reply.error.code)) if why.code == "no-reason-given" else why


def _pauses() -> Iterator[float]:
    """Seconds between looks for an answer: many parties that take long must not keep the link busy."""
    pause = _PAUSE
    while True:
        yield pause
        pause = min(1.1 * pause, _LONGEST)
