"""What a server sends to a node, before Flower handles it: is it of the app that is installed here, is it too large?

Flower fetches the server's bundle, unzips it and parses what is in it; and it takes a message of any size. Here the
bundle is not fetched at all: a run names the hash of its app, and where that is the installed app's hash the installed
bundle is used. What is refused is answered with the reason, so that a server does not wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from flwr.app import Error
from flwr.app import Message as FlowerMessage
from flwr.common.constant import ErrorCode
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    inflate_object_from_contents,
    push_object_contents_from_iterable,
)
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supernode import start_client_internal
from flwr.supernode.fleet_http_connection import http_request_response

from mixveil.core.errors import RefusedError
from mixveil.core.wording.jobs import REFUSED
from mixveil.core.wording.notes import Note, note
from mixveil.federated.jobs.messages import MESSAGE_LIMIT, Refusal, reason
from mixveil.federated.transport.flower.client import log
from mixveil.federated.transport.flower.environment import own_app, own_bundle, replace_in
from mixveil.federated.transport.flower.serialization import gathered


def check_incoming() -> None:
    """Put these checks between Flower's node and its connection, in this process."""
    replace_in(start_client_internal, "http_request_response", _checked)


@contextmanager
def _checked(*given: Any, **named: Any) -> Iterator[tuple[Any, ...]]:
    with http_request_response(*given, **named) as connection:
        yield Incoming(connection).functions


def _check_whole(identity: str, pieces: dict[str, bytes]) -> None:
    """Refuse what cannot be put together: Flower would end with it."""
    try:
        whole = inflate_object_from_contents(identity, dict(pieces))
    except Exception as error:
        raise Refusal("not-a-message") from error
    if not isinstance(whole, FlowerMessage):
        raise Refusal("not-a-message")


_RUNS = 100  # that are remembered


class Incoming:
    """A connection of Flower's, as the eight things that its node uses. most: bytes of a message, folded or not."""

    def __init__(self, connection: tuple[Any, ...], most: int = MESSAGE_LIMIT) -> None:
        node_id, self._receive, self._send, self._get_run, _, self._pull, self._push, self._confirm = connection
        self.functions = (
            *(node_id, self.receive, self._send, self.get_run),
            *(self.get_fab, self.pull_object, self._push, self.confirm),
        )
        self._most = most
        self._runs: dict[int, Run] = {}
        self._pieces: dict[str, bytes] = {}

    def receive(self) -> tuple[FlowerMessage, ObjectTree] | None:
        """The next message, if there is one, with all its pieces."""
        self._pieces = {}
        found: tuple[FlowerMessage, ObjectTree] | None = self._receive()
        if found is None:
            return None
        message, tree = found
        try:
            self._check_app(message.metadata.run_id)
            self._pieces = self._gathered(message.metadata.run_id, tree)
            _check_whole(tree.object_id, self._pieces)
        except RefusedError as refused:
            why = reason(refused, "check-failed")
            log(note("message-not-taken", why=why))
            self._refuse(message, why)
            return None
        return found

    def get_run(self, run_id: int) -> Run:
        """The run that was checked: a server that is asked again could say something else."""
        if run_id not in self._runs:
            raise Refusal("unknown-run")
        return replace(self._runs[run_id], override_config={}, primary_task_type=TaskType.SERVER_APP)  # its app is ours

    def get_fab(self, fab_hash: str, run_id: int) -> Fab:
        """The bundle that is installed here. The server's is not asked for."""
        return Fab(own_app(), own_bundle(), {})

    def pull_object(self, run_id: int, object_id: str) -> bytes:
        return self._pieces[object_id]

    def confirm(self, run_id: int, message_id: str) -> None:
        """All of a message is taken."""
        self._pieces = {}
        self._confirm(run_id, message_id)

    def _check_app(self, run_id: int) -> None:
        if run_id in self._runs:
            return
        run: Run = self._get_run(run_id)
        if run.fab_hash != own_app() or run.run_id != run_id:
            log(note("app-refused", theirs=run.fab_hash[:16], ours=own_app()[:16]))
            raise Refusal("other-app")
        self._runs = {**dict(list(self._runs.items())[-_RUNS:]), run_id: run}

    def _gathered(self, run_id: int, tree: ObjectTree) -> dict[str, bytes]:
        try:
            return gathered(tree, partial(self._pull, run_id), self._most)
        except (RefusedError, RunNotRunningException):
            raise
        except ObjectPullError:
            raise Refusal("message-lost") from None
        except (ValueError, LookupError, TypeError, RecursionError):
            raise Refusal("not-a-message") from None

    def _refuse(self, message: FlowerMessage, why: Note) -> None:
        """Tell the server, by a code. What it is told says nothing of the party."""
        said = why.code if why.code in REFUSED else "message-refused"
        number = ErrorCode.INVALID_FAB if said == "other-app" else ErrorCode.UNKNOWN
        run_id = message.metadata.run_id
        try:
            reply = FlowerMessage(Error(number, said), reply_to=message)
            reply.metadata.__dict__["_message_id"] = reply.object_id
            with no_object_id_recompute():
                parts = get_all_nested_objects(reply)
                wanted, session = self._send(reply, get_object_tree(reply), 0.0)
                push_object_contents_from_iterable(
                    ((name, part.deflate()) for name, part in parts.items() if name in wanted),
                    partial(self._push, run_id, session),
                )
            self._confirm(run_id, message.metadata.message_id)
        except Exception as error:  # it is refused all the same
            log(note("server-not-told", error=type(error).__name__))
