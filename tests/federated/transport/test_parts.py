"""The pieces between Flower and a job, one by one: what they let through, and what not."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import zipfile
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Metadata, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.app.message import make_message
from flwr.cli.build import build_fab_from_disk
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.fab_pb2 import Fab as FabProto
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.message_pb2 import Metadata as MetadataProto
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.supercore.date import now
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES

from mixveil.core import files
from mixveil.core.errors import (
    ArgumentError,
    DataFormatError,
    ManifestError,
    OutputError,
    OutputExistsError,
    RefusedError,
    ServiceError,
)
from mixveil.federated import roster
from mixveil.federated.jobs.messages import Message
from mixveil.federated.jobs.party_config import PartyConfig
from mixveil.federated.transport import certificates, link
from mixveil.federated.transport.flower import file_object_store, supernode
from mixveil.federated.transport.flower.environment import APP, environment, own_app
from mixveil.federated.transport.flower.file_object_store import Files
from mixveil.federated.transport.flower.guard import HERE, LARGEST, START, Guard
from mixveil.federated.transport.flower.serialization import packed, unfolded, unpacked


def _message(message: Message) -> FlowerMessage:
    about = Metadata(1, "m", 1, 7, "", "", 0.0, 60.0, "query")
    return make_message(about, packed(message))


# Parcels


def test_a_parcel_comes_out_as_it_went_in() -> None:
    message = Message({"ask": "offer", "μ": [1, None, True]}, {"a.bin": b"\0\1\2" * 1000, "empty": b""})
    found = unpacked(packed(message))
    assert found.about == message.about and dict(found.files) == dict(message.files)


def _content(text: Any = "{}", **arrays: Array) -> RecordDict:
    return RecordDict({"about": ConfigRecord({"json": text}), "files": ArrayRecord(arrays)})


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"about": ConfigRecord({"json": "{}"})}),
        RecordDict({"about": ConfigRecord({"json": "{}"}), "files": ConfigRecord()}),
        _content(5),
        _content("[]"),
        _content("{"),
        _content('{"a": NaN}'),
        _content(" " * (2 << 20)),
        _content(x=Array("uint8", (3,), "numpy.ndarray", b"abc")),
        _content(x=Array("uint8", (4,), "mixveil.bytes", b"abc")),
        _content(x=Array("uint8", (), "mixveil.bytes", b"abc")),
    ],
)
def test_what_is_no_parcel_is_refused(content: RecordDict) -> None:
    with pytest.raises((RefusedError, ManifestError)):
        unpacked(content)


def test_equal_pieces_count_as_often_as_they_are_named() -> None:
    """Flower sends them once, and puts them together again as often as it is told."""
    message = _message(Message({}, {"x": b" " * (30 << 20)}))
    contents = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
    assert sum(map(len, contents.values())) < 6 << 20
    assert unfolded(contents) >= 30 << 20


# The link


class Inner:
    """What lies behind the guard."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope.get("path", scope["type"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})


PRIVATE, PUBLIC = generate_key_pairs()
KEY, NODE = public_key_to_bytes(PUBLIC), 7
KNOWN = {KEY: NODE}


def signed(key: bytes = KEY, private: Any = PRIVATE, ago: float = 0.0) -> dict[str, str]:
    """The headers of a node's request."""
    at = (now() - timedelta(seconds=ago)).isoformat()
    signature = sign_message(private, at.encode())
    return {
        "flwr_public_key": base64.b64encode(key).decode(),
        "flwr_timestamp": at,
        "flwr_signature": base64.b64encode(signature).decode(),
    }


def status(
    path: str,
    client: str = "10.0.0.9",
    *,
    nodes: dict[bytes, int] | None = None,
    body: bytes | None = b"",
    twice: str = "",
    **headers: str,
) -> int:
    """What the guard says to a request. body: None where it must not be asked for; twice: a header to repeat."""
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    async def receive() -> Any:
        assert body is not None, "its body was read"
        return {"type": "http.request", "body": body, "more_body": False}

    inner = Inner()
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "path": path,
        "client": (client, 4000),
        "server": ("10.0.0.5", 8000),
        "headers": [*named, *((twice.encode(), b"x") for _ in range(bool(twice)))],
    }
    asyncio.run(Guard(inner, nodes, "")(scope, receive, send))
    assert bool(inner.asked) == (said[0]["status"] == 200)
    if said[0]["status"] != 200:
        assert (b"connection", b"close") in said[0]["headers"]
    return int(said[0]["status"])


@pytest.mark.parametrize(
    "path",
    ["/v1/control/list-runs", "/v1/control/list-nodes", "/v1/control/stop-run", "/v1/runtime/acquire-task", "/health"],
)  # fmt: skip
def test_other_machines_reach_the_nodes_interface_alone(path: str) -> None:
    assert status(path) == 403
    assert status(path, "127.0.0.1") == 200 and status(path, "::1") == 200
    assert status(path, "10.0.0.5") == 200  # this machine, by its own address
    assert status(path, "not an address") == 403
    assert status(path, x_forwarded_for="127.0.0.1") == 403


@pytest.mark.parametrize(
    "path",
    ["/v1/control/register-node", "/v1/control/start-automation", "/v1/control/add-app", "/docs", "/openapi.json", "/",
     "/v1/fleet", "/v1/fleetx/pull-messages", "//v1/fleet/pull-messages", "/v1/control/start-run/", "/V1/fleet/x"],
)  # fmt: skip
def test_what_nobody_needs_is_for_nobody(path: str) -> None:
    assert status(path) == 403 and status(path, "127.0.0.1") == 403
    assert path not in HERE


def test_no_run_is_started_but_of_the_app_that_is_installed() -> None:
    def started(content: bytes, client: str = "127.0.0.1", parts: int = 1) -> tuple[int, bytes]:
        body = StartRunRequest(fab=FabProto(hash_str=own_app(), content=content)).SerializeToString()
        cut = len(body) // parts
        chunks = [body[i * cut : (i + 1) * cut if i + 1 < parts else None] for i in range(parts)]
        told = iter([{"type": "http.request", "body": c, "more_body": n + 1 < parts} for n, c in enumerate(chunks)])
        said, inside = [], b""

        async def send(message: Any) -> None:
            said.append(message)

        async def receive() -> Any:
            return next(told)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            nonlocal inside
            inside = (await receive())["body"]
            await send({"type": "http.response.start", "status": 200, "headers": []})

        scope = {"type": "http", "path": START, "client": (client, 1), "server": ("10.0.0.5", 1), "headers": []}
        asyncio.run(Guard(app, None, own_app())(scope, receive, send))
        return said[0]["status"], inside

    ours = build_fab_from_disk(APP)
    for parts in (1, 3):
        code, inside = started(ours, parts=parts)
        assert code == 200 and StartRunRequest.FromString(inside).fab.content == ours
    assert started(ours + b"x")[0] == 403 and started(b"")[0] == 403 and started(ours, "10.0.0.9")[0] == 403


PULL, PUSH = "/v1/fleet/pull-messages", "/v1/fleet/push-messages"
HELLO = PullMessagesRequest(node=Node(node_id=NODE)).SerializeToString()


def test_only_known_keys_reach_it() -> None:
    """Who brings no fresh signature of a known key is answered before the body is read."""
    assert status(PULL, nodes=KNOWN, body=HELLO, **signed()) == 200
    assert status(PULL, nodes=KNOWN, body=None) == 401
    other, public = generate_key_pairs()
    assert status(PULL, nodes=KNOWN, body=None, **signed(public_key_to_bytes(public), other)) == 401
    path = "/v1/fleet/activate-node"
    assert status(path, "127.0.0.1", nodes=KNOWN, body=None, **{**signed(), "flwr_public_key": "AAAA"}) == 401
    assert status(path, nodes=KNOWN, body=None, **{**signed(), "flwr_public_key": "no base64"}) == 401
    assert status(PULL) == 200  # a trial without keys


def test_to_name_a_known_key_is_not_enough() -> None:
    stranger, _ = generate_key_pairs()
    assert status(PULL, nodes=KNOWN, body=None, **signed(private=stranger)) == 401
    assert status(PULL, nodes=KNOWN, body=None, **signed(ago=600)) == 401
    assert status(PULL, nodes=KNOWN, body=None, **signed(ago=-600)) == 401
    for name in ("flwr_signature", "flwr_timestamp"):
        for wrong in ("", "x", "2026-01-01T00:00:00", "é"):
            assert status(PULL, nodes=KNOWN, body=None, **{**signed(), name: wrong}) == 401
        assert status(PULL, nodes=KNOWN, body=None, **{k: v for k, v in signed().items() if k != name}) == 401


@pytest.mark.parametrize("name", ["flwr-public-key", "flwr-signature", "flwr-timestamp"])
def test_no_header_of_a_node_is_there_twice(name: str) -> None:
    """Flower takes the first, a dictionary the last."""
    assert status(PULL, nodes=KNOWN, body=None, twice=name, **signed()) == 400


def _from(source: int, node: int = NODE) -> bytes:
    message = MessageProto(metadata=MetadataProto(src_node_id=source))
    return bytes(PushMessagesRequest(node=Node(node_id=node), messages_list=[message]).SerializeToString())


def test_a_node_speaks_for_itself_alone() -> None:
    assert status(PUSH, nodes=KNOWN, body=_from(NODE), **signed()) == 200
    assert status(PUSH, nodes=KNOWN, body=_from(8), **signed()) == 403  # Flower would take this reply as 8's
    assert status(PUSH, nodes=KNOWN, body=_from(8, 8), **signed()) == 403
    assert status(PUSH, nodes=KNOWN, body=_from(NODE, 8), **signed()) == 403
    assert status(PUSH, nodes=KNOWN, body=b"\xff", **signed()) == 403
    assert status("/v1/fleet/unheard-of", nodes=KNOWN, body=HELLO, **signed()) == 403


def test_every_request_of_a_node_names_it() -> None:
    kinds = {path: kind for (_, path), kind in PROTOBUF_REQUEST_TYPES.items() if path.startswith("/v1/fleet/")}
    assert len(kinds) == 12
    for path, kind in kinds.items():
        for node, key, expected in ((NODE, KEY, 200), (8, b"other", 403)):
            fields = kind.DESCRIPTOR.fields_by_name
            named: dict[str, Any] = {"public_key": key} if "public_key" in fields else {"node_id": node}
            if "node" in fields:
                named = {"node": Node(node_id=node)}
            body = kind(**named).SerializeToString()
            assert status(path, nodes=KNOWN, body=body, **signed()) == expected, path


def test_requests_are_no_larger_than_they_need_be() -> None:
    path = "/v1/fleet/push-object"
    assert status(path, content_length=str(LARGEST)) == 200
    assert status(path, content_length=str(LARGEST + 1)) == 413
    assert status(path, content_length="-5") == 413
    assert status(path, content_length="many") == 413
    assert status(path, transfer_encoding="chunked") == 413


def test_nothing_but_http_is_let_through() -> None:
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    inner = Inner()
    asyncio.run(Guard(inner, None, "")({"type": "websocket", "path": "/v1/fleet/x"}, None, send))  # type: ignore[arg-type]
    assert said == [{"type": "websocket.close", "code": 1008}] and not inner.asked


def _sent(data: bytes) -> tuple[ObjectTree, dict[str, bytes]]:
    message = _message(Message({}, {"x": data}))
    return get_object_tree(message), {name: part.deflate() for name, part in get_all_nested_objects(message).items()}


def test_what_is_under_way_lies_in_files_until_it_is_taken(tmp_path: Path) -> None:
    store = Files(tmp_path / "objects")
    outline, contents = _sent(b"abc" * 100)
    assert set(store.preregister(5, outline)) == set(contents)
    name = next(iter(contents))
    assert store.get(name) == b"" and store.get("0" * 64) is None
    for key, content in contents.items():
        store.put(key, content)
    assert {path.name for path in store.folder.iterdir()} == set(contents)
    assert all(store.get(key) == content for key, content in contents.items())
    assert all(entry.content == b"" for entry in store.store.values())  # not in memory
    store.delete(outline.object_id)
    assert not list(store.folder.iterdir()) and len(store) == 0


def test_what_was_not_announced_or_is_not_what_it_says_is_not_kept(tmp_path: Path) -> None:
    store = Files(tmp_path / "objects")
    outline, contents = _sent(b"abc")
    name, content = next(iter(contents.items()))
    with pytest.raises(Exception, match="was not pre-registered"):
        store.put(name, content)
    store.preregister(5, outline)
    with pytest.raises(ValueError, match="does not match"):
        store.put(name, content + b"x")
    assert not list(store.folder.iterdir())


def test_no_party_fills_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Files(tmp_path / "objects")
    outline, contents = _sent(b"abc")
    store.preregister(5, outline)
    monkeypatch.setattr(file_object_store, "SPARED", 1 << 60)
    with pytest.raises(OSError, match="nearly full"):
        store.put(*next(iter(contents.items())))
    assert not list(store.folder.iterdir())


def test_what_comes_twice_is_not_written_again_while_others_read_it(tmp_path: Path) -> None:
    store = Files(tmp_path / "objects")
    outline, contents = _sent(b"abc" * 100)
    store.preregister(5, outline)
    name, content = max(contents.items(), key=lambda item: len(item[1]))
    store.put(name, content)
    before = (store.folder / name).stat()
    store.put(name, content)
    assert (store.folder / name).stat().st_ino == before.st_ino and store.get(name) == content
    assert len(list(store.folder.iterdir())) == 1


def test_a_link_that_begins_anew_keeps_nothing_of_the_old(tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    folder.mkdir()
    (folder / "old").write_bytes(b"x")
    assert not list(Files(folder).folder.iterdir())


# The node


def test_an_app_that_is_another_one_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's app could bring code. The node fetches none; and if it had one, nothing of it would be unpacked."""
    monkeypatch.setattr(supernode, "answer", lambda *_: pytest.fail("it was run"))
    message = _message(Message({}))
    context = Context(1, 7, {}, RecordDict(), {})
    evil = BytesIO()
    with zipfile.ZipFile(evil, "w") as archive:
        archive.writestr("mixveil/federated/flower/client.py", "raise SystemExit")
    data = evil.getvalue()
    fab = Fab(hashlib.sha256(data).hexdigest(), data, {})
    reply = supernode._answered(message, context, fab, own_app())
    assert reply.has_error() and reply.error.reason == "other-app"
    lying = Fab(own_app(), data, {})  # its stated hash is not believed
    assert supernode._answered(message, context, lying, own_app()).has_error()


def test_the_app_is_the_same_wherever_it_is_built_and_holds_no_code() -> None:
    one, other = build_fab_from_disk(APP), build_fab_from_disk(APP)
    assert one == other and hashlib.sha256(one).hexdigest() == own_app()
    assert sorted(zipfile.ZipFile(BytesIO(one)).namelist()) == [".info/CONTENT", "pyproject.toml"]


def test_errors_of_a_party_say_nothing_to_the_server(tmp_path: Path) -> None:
    """Flower would tell the server the text of what is raised."""
    from mixveil.federated.transport.flower.client import answer

    message = _message(Message({"version": 1}))
    configs: list[dict[str, Any]] = [{}, {"party": "a", "data": str(tmp_path / "secret"), "folder": "no"}]
    for config in configs:
        reply = answer(message, Context(1, 7, config, RecordDict(), {}))
        about = unpacked(reply.content).about
        assert about["state"] == "failed" and "secret" not in str(about)


def test_flower_reports_to_nobody_and_installs_nothing(tmp_path: Path) -> None:
    found = environment(tmp_path)
    assert found["FLWR_TELEMETRY_ENABLED"] == "0" and found["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert found["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1" and found["FLWR_HOME"] == str(tmp_path)


# Keys


def test_keys_of_a_trial_are_their_owners_alone(tmp_path: Path) -> None:
    certificates.make_trial(tmp_path / "keys", ["a", "b"])
    for path in (tmp_path / "keys").rglob("*.key"):
        assert path.stat().st_mode & 0o777 == 0o600, path
    assert (tmp_path / "keys" / "a").stat().st_mode & 0o777 == 0o700
    known = certificates.known_parties(tmp_path / "keys" / "server")
    assert sorted(known) == ["a", "b"] and known["a"] != known["b"]
    found = x509.load_pem_x509_certificate((tmp_path / "keys" / "server" / "server.crt").read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    authority = x509.load_pem_x509_certificate((tmp_path / "keys" / "a" / "ca.crt").read_bytes())
    found.verify_directly_issued_by(authority)
    with pytest.raises(OutputExistsError):
        certificates.make_party(tmp_path / "keys" / "a", "a")


def test_parties_of_a_trial_have_one_roster(tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    certificates.make_trial(tmp_path / "keys", names)
    found = [roster.read(tmp_path / "keys" / name / roster.ROSTER) for name in names]
    assert found[0] == found[1] == found[2] and sorted(found[0].keys) == names
    for name in names:
        key = roster.read_key(tmp_path / "keys" / name / f"{name}{roster.PRIVATE}")
        assert key.public_key().public_bytes_raw() == found[0].keys[name]
    certificates.make_trial(tmp_path / "two", names[:2])  # too few for a roster
    assert not (tmp_path / "two" / "a" / roster.ROSTER).exists()


def test_a_certificate_is_for_the_hosts_that_were_named(tmp_path: Path) -> None:
    certificates.make_server(tmp_path / "keys", ["learn.example.org", "10.0.0.5"])
    found = x509.load_pem_x509_certificate((tmp_path / "keys" / "server.crt").read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "learn.example.org" in names.get_values_for_type(x509.DNSName)
    assert "10.0.0.5" in {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    with pytest.raises(ArgumentError, match="a host is"):
        certificates.make_server(tmp_path / "others", ["a b"])
    assert not (tmp_path / "others").exists()


@pytest.mark.parametrize("parties", [[], ["a", "a"], ["../a"], ["server"]])
def test_parties_of_a_trial_have_names_of_their_own(tmp_path: Path, parties: list[str]) -> None:
    with pytest.raises(ArgumentError):
        certificates.make_trial(tmp_path / "keys", parties)
    assert not (tmp_path / "keys").exists()


def test_a_key_belongs_to_one_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node signs the time alone: each server that a key is used with could speak as that party to the others."""
    monkeypatch.setenv("MIXVEIL_STATE", str(tmp_path / "state"))
    certificates.make_trial(tmp_path / "one", ["a"])
    certificates.make_trial(tmp_path / "other", ["a"])
    folder = tmp_path / "one" / "a"
    key, ca, other = folder / "a.key", folder / "ca.crt", tmp_path / "other" / "a" / "ca.crt"
    link.joining("127.0.0.1:8000", "a", folder, insecure=False)
    assert not (folder / "a.server").exists()  # nothing was sent yet
    certificates.bind(key, ca)
    certificates.bind(key, ca)
    assert (folder / "a.server").read_text().strip() == certificates.fingerprint(ca)
    for path in (folder / "a.server", *(tmp_path / "state" / "servers").iterdir()):
        assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ServiceError, match="`mixveil keys party` makes one for this server"):
        certificates.bind(key, other)
    ca.write_bytes(other.read_bytes())
    with pytest.raises(ServiceError, match=f"belongs to the server whose .*; {ca} is {certificates.fingerprint(ca)}"):
        link.joining("127.0.0.1:8000", "a", folder, insecure=False)


def test_copies_of_a_key_belong_to_the_same_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXVEIL_STATE", str(tmp_path / "state"))
    certificates.make_trial(tmp_path / "one", ["a"])
    certificates.make_trial(tmp_path / "other", ["a"])
    folder, copy = tmp_path / "one" / "a", tmp_path / "copy"
    copy.mkdir()
    (copy / "b.key").touch(0o600)
    (copy / "b.key").write_bytes((folder / "a.key").read_bytes())
    (copy / "ca.crt").write_bytes((tmp_path / "other" / "a" / "ca.crt").read_bytes())
    certificates.bind(folder / "a.key", folder / "ca.crt")
    with pytest.raises(ServiceError, match="belongs to the server"):  # the same machine, another folder and name
        link.joining("127.0.0.1:8000", "b", copy, insecure=False)
    (folder / "ca.crt").write_bytes((copy / "ca.crt").read_bytes())
    monkeypatch.setenv("MIXVEIL_STATE", str(tmp_path / "another machine"))
    with pytest.raises(ServiceError, match="belongs to the server"):  # the same folder on another machine
        link.joining("127.0.0.1:8000", "a", folder, insecure=False)


def test_keys_that_cannot_be_written_beside_are_bound_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIXVEIL_STATE", str(tmp_path / "state"))
    certificates.make_trial(tmp_path / "one", ["a"])
    certificates.make_trial(tmp_path / "other", ["a"])
    folder = tmp_path / "one" / "a"
    whole = files.write_whole

    def write(path: Path, data: bytes, mode: int = 0o644) -> None:
        if path.parent == folder:
            raise OutputError("read-only")
        whole(path, data, mode)

    monkeypatch.setattr(files, "write_whole", write)
    certificates.bind(folder / "a.key", folder / "ca.crt")
    with pytest.raises(ServiceError, match="belongs to the server"):
        certificates.bind(folder / "a.key", tmp_path / "other" / "a" / "ca.crt")


def test_a_key_whose_server_cannot_be_remembered_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates.make_trial(tmp_path / "one", ["a"])
    (tmp_path / "file").touch()
    monkeypatch.setenv("MIXVEIL_STATE", str(tmp_path / "file" / "state"))
    with pytest.raises(OutputError, match="could not be written"):
        certificates.bind(tmp_path / "one" / "a" / "a.key", tmp_path / "one" / "a" / "ca.crt")


def test_a_file_of_several_certificates_is_none(tmp_path: Path) -> None:
    """A fingerprint would be of the first, and whoever the others are of would be believed."""
    certificates.make_trial(tmp_path / "one", ["a"])
    certificates.make_trial(tmp_path / "other", ["a"])
    ca = tmp_path / "one" / "a" / "ca.crt"
    ca.write_bytes(ca.read_bytes() + (tmp_path / "other" / "a" / "ca.crt").read_bytes())
    with pytest.raises(DataFormatError, match="must hold one certificate alone"):
        link.joining("127.0.0.1:8000", "a", tmp_path / "one" / "a", insecure=False)


def test_what_is_no_public_key_is_said(tmp_path: Path) -> None:
    certificates.make_trial(tmp_path / "keys", ["a", "b"])
    folder = tmp_path / "keys" / "server"
    (folder / "parties" / "c.pub").write_text("ssh-rsa AAAA")
    with pytest.raises(DataFormatError, match=r"c\.pub is not a public key"):
        certificates.known_parties(folder)
    (folder / "parties" / "c.pub").write_bytes((folder / "parties" / "a.pub").read_bytes())
    with pytest.raises(DataFormatError, match="two parties have the same key"):
        certificates.known_parties(folder)


# Where a server is


def test_nothing_in_the_clear_leaves_this_machine(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "10.0.0.5", "example.org"):  # noqa: S104
        with pytest.raises(ArgumentError, match="--insecure is for"):
            link.prepared(tmp_path / "server", None, host=host, port=8000, insecure=True)
        with pytest.raises(ArgumentError, match="--insecure is for"):
            link.joining(f"{host}:8000", "a", None, insecure=True)
    assert not (tmp_path / "server").exists()


@pytest.mark.parametrize("insecure", [True, False])
def test_keys_or_none_are_one_decision(tmp_path: Path, insecure: bool) -> None:
    certificates.make_trial(tmp_path / "keys", ["a"])
    keys = tmp_path / "keys" / "server" if insecure else None
    with pytest.raises(ArgumentError, match="--insecure"):
        link.prepared(tmp_path / "server", keys, host="127.0.0.1", port=supernode.free_port(), insecure=insecure)
    with pytest.raises(ArgumentError, match="--insecure"):
        link.joining("127.0.0.1:8000", "a", keys, insecure=insecure)


def test_a_server_needs_its_keys_and_somebodys(tmp_path: Path) -> None:
    port = supernode.free_port()
    with pytest.raises(ServiceError, match=r"has no ca\.crt"):
        link.prepared(tmp_path / "server", tmp_path, host="127.0.0.1", port=port, insecure=False)
    certificates.make_server(tmp_path / "keys", [])
    with pytest.raises(ServiceError, match="has no public key"):
        link.prepared(tmp_path / "server", tmp_path / "keys", host="127.0.0.1", port=port, insecure=False)


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ServiceError, match="cannot be listened on"):
        link.prepared(tmp_path / "s", None, host="127.0.0.1", port=taken.getsockname()[1], insecure=True)


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    certificates.make_trial(tmp_path / "keys", ["a"])
    assert link.joining("127.0.0.1:8000", "a", tmp_path / "keys" / "a", insecure=False).options
    (tmp_path / "keys" / "a" / "a.key").chmod(0o640)
    with pytest.raises(ServiceError, match="can be read by others"):
        link.joining("127.0.0.1:8000", "a", tmp_path / "keys" / "a", insecure=False)
    with pytest.raises(ServiceError, match=r"b\.key is not there"):
        link.joining("127.0.0.1:8000", "b", tmp_path / "keys" / "a", insecure=False)


@pytest.mark.parametrize("name", ["server.key", "ca.key"])
def test_nor_is_a_servers(tmp_path: Path, name: str) -> None:
    certificates.make_trial(tmp_path / "keys", ["a"])
    keys, port = tmp_path / "keys" / "server", supernode.free_port()
    for mode in (0o640, 0o604, 0o660):
        (keys / name).chmod(mode)
        with pytest.raises(ServiceError, match=f"{name} can be read by others"):
            link.prepared(tmp_path / "server", keys, host="127.0.0.1", port=port, insecure=False)
    assert not (tmp_path / "server").exists()
    (keys / name).chmod(0o600)
    (keys / "ca.key").unlink()  # it is better kept elsewhere
    assert link.prepared(tmp_path / "server", keys, host="127.0.0.1", port=port, insecure=False).parties


@pytest.mark.parametrize("address", ["", "host", "host:", ":80", "host:x", "host:0", "host:70000"])
def test_an_address_has_a_host_and_a_port(address: str) -> None:
    with pytest.raises(ArgumentError, match="HOST:PORT"):
        link.joining(address, "a", None, insecure=True)


def test_settings_go_through_flowers_own_parser(tmp_path: Path) -> None:
    from flwr.common.config import parse_config_args

    settings = PartyConfig(
        party="a", data='/data/x "y" = z/päth/😀.csv', folder=str(tmp_path), mu=1.5, budget=3.0, grey=True, size=8
    )
    path = link.write_settings(tmp_path, "a", settings.plain())
    assert PartyConfig.read(parse_config_args([str(path)])) == settings
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_server_may_lie_in_a_folder_of_any_name(tmp_path: Path) -> None:
    """TOML has no surrogates: a path beyond the basic plane must be written as it is."""
    certificates.make_trial(tmp_path / "😀", ["a"])
    keys, port = tmp_path / "😀" / "server", supernode.free_port()
    link.prepared(tmp_path / "server", keys, host="127.0.0.1", port=port, insecure=False)
    assert link.address(tmp_path / "server") == ("127.0.0.1", port)


def test_a_trial_is_made_once_and_found_again(tmp_path: Path) -> None:
    certificates.make_trial(tmp_path / "keys", ["a", "b"])
    before = (tmp_path / "keys" / "a" / "a.key").read_bytes()
    certificates.make_trial(tmp_path / "keys", ["b", "a"])
    assert (tmp_path / "keys" / "a" / "a.key").read_bytes() == before
    with pytest.raises(OutputExistsError, match="a, b"):
        certificates.make_trial(tmp_path / "keys", ["a", "c"])
    (tmp_path / "other").mkdir()
    with pytest.raises(OutputExistsError):
        certificates.make_trial(tmp_path / "other", ["a"])
