"""The server's half of the Flower app: its settings are the run's configuration, its folder is MIXVEIL_SERVER."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from mixveil.core import files, strict_json
from mixveil.core.errors import RefusedError, ServiceError
from mixveil.federated.jobs.messages import SMALL, Ask, Parcel, check_name
from mixveil.federated.jobs.orders import Job, Order, begin
from mixveil.federated.jobs.serving import run
from mixveil.federated.transport import link
from mixveil.federated.transport.flower.environment import SERVER
from mixveil.federated.transport.flower.serialization import packed, unpacked
from mixveil.federated.transport.flower.size_limited_pull import GoneError, pulled

app = ServerApp()
_PAUSE, _LONGEST = 0.3, 2.0  # seconds between two looks for an answer, at first and later on
_LOOK = 1.0  # seconds between two looks who is there
_TRIES = 3  # a party that could not answer is asked so often


@app.main()
def main(grid: Grid, context: Context) -> None:
    folder = os.environ.get(SERVER)
    if not folder:
        raise ServiceError(f"{SERVER} must name the server's folder: `mixveil serve` sets it")
    job = begin(Path(folder), Order.read(context.run_config), link.known_names(Path(folder)))
    with files.alone(job.folder):
        _run(job, grid)


def _run(job: Job, grid: Grid) -> None:
    job.say(f"{job.task.method} {job.task.name} has begun; {job.order.parties} part(ies) are expected")
    fleet = Nodes(grid, job)
    try:
        run(job, fleet, {"mixveil": version("mixveil"), "torch": version("torch"), "flwr": version("flwr")})
    except Exception as error:
        job.say(f"it ended without a model: {error} ({type(error).__name__})")
        job.conclude(model=None, ok=False, reason=f"{error} ({type(error).__name__})")
        raise
    finally:
        fleet.close()


@dataclass
class _Node:
    """A node that is there. name: under which the coordinator registered its key; empty where there are no keys; since:
    when it came, so that one that came back is asked anew."""

    id: int
    name: str
    since: str


class Nodes:
    """Flower's nodes as a fleet of parties, by the names that their keys were registered under. Where there are no keys
    a node says who it is, and is believed."""

    def __init__(self, grid: Grid, job: Job) -> None:
        self._grid, self._job = grid, job
        self._lock, self._over = threading.Lock(), threading.Event()
        self._there: dict[int, _Node] = {}
        self._parties: dict[str, int] = {}
        self._refused: dict[str, str] = {}
        self._greeted: set[int] = set()
        threading.Thread(target=self._watch, daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def parties(self) -> Mapping[str, Ask]:
        with self._lock:
            return {name: self._ask(node) for name, node in self._parties.items()}

    def refused(self) -> Mapping[str, str]:
        with self._lock:
            return dict(self._refused)

    def _watch(self) -> None:
        """See who is there. Those without a name are asked for it: they have no keys."""
        while not self._over.wait(_LOOK):
            try:
                nodes = [_Node(n.node_id, n.name, n.last_activated_at) for n in self._grid.get_nodes()]
            except Exception as error:
                self._job.say(f"the link does not say who is there: {error}")
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
            answer = self._ask(node)(Parcel({**self._job.task.plain(), "ask": "hello"}), SMALL)
            claimed = check_name("party", strict_json.text("party", answer.about.get("party")))
            with self._lock:
                other = self._parties.get(claimed, node)
                if other != node and other in self._there:
                    raise RefusedError(f"it says it is {claimed}, and so does another")
                self._parties[claimed] = node
        except Exception as error:
            with self._lock:
                self._refused[f"node {node}"] = f"{error} ({type(error).__name__})"

    def _ask(self, node: int) -> Ask:
        def ask(parcel: Parcel, most: int) -> Parcel:
            wrong = ""
            for _ in range(_TRIES):
                try:
                    return self._asked(node, parcel, most)
                except GoneError as error:  # it was killed, or its message was lost: it is asked again
                    wrong = str(error)
            raise RefusedError(f"it did not answer: {wrong}")

        return ask

    def _asked(self, node: int, parcel: Parcel, most: int) -> Parcel:
        """Send a parcel, and wait for the answer to it, however long that takes; but not for the answer of a node that
        began anew since."""
        since = self._since(node)
        try:
            (number,) = self._grid.push_messages([Message(packed(parcel), node, "query")])
        except ObjectPushError as error:
            raise GoneError(f"the link lost a piece of a message: {error}") from None
        if not number:
            raise GoneError("the link took no message for it")
        for pause in _pauses():
            coming = self._pull(number, most)
            while not coming.done():
                self._still_there(node, since)
                time.sleep(_PAUSE)
            if (reply := coming.result()) is not None:
                if reply.has_error():
                    raise GoneError((reply.error.reason or "no reason given")[:300])
                return unpacked(reply.content)
            self._still_there(node, since)
            time.sleep(pause)
        raise RefusedError("it did not answer")

    def _pull(self, number: str, most: int) -> Future[Message | None]:
        """Look for an answer, in a thread that nobody needs to wait for: Flower waits minutes for the rest of one whose
        sender was killed."""
        coming: Future[Message | None] = Future()

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
                raise RefusedError("the job is over")

    def _still_there(self, node: int, since: str) -> None:
        if self._over.is_set():
            raise RefusedError("the job is over")
        with self._lock:
            now = self._there.get(node)
        if now is not None and now.since != since:
            raise GoneError("it began anew")


def _pauses() -> Iterator[float]:
    """Seconds between looks for an answer: many parties that take long must not keep the link busy."""
    pause = _PAUSE
    while True:
        yield pause
        pause = min(1.1 * pause, _LONGEST)
