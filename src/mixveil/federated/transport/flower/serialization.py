"""Messages as Flower carries them: settings in a ConfigRecord, files in an ArrayRecord, byte for byte. Of a message no
more bytes are taken from the link than were agreed: Flower itself takes all there are."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_head_values_from_object_content,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, inflate_object_from_contents, pull_objects
from flwr.superlink.grid import HttpGrid

from mixveil.core import strict_json
from mixveil.core.errors import ServiceError
from mixveil.core.wording.notes import Note, note
from mixveil.federated.jobs.messages import Message, Refusal, Slots

_ABOUT, _FILES, _BYTES = "about", "files", "mixveil.bytes"
_LIMIT = 1 << 20  # characters of settings
_LARGE = 16 << 20
_FEW, _SMALL = 1024, 1 << 16  # pieces that any message may have, and bytes for each that it has beyond
_IN_MEMORY = Slots(2, 60.0)


def packed(message: Message) -> RecordDict:
    files = {name: Array("uint8", (len(data),), _BYTES, data) for name, data in message.files.items()}
    return RecordDict(
        {_ABOUT: ConfigRecord({"json": json.dumps(dict(message.about), allow_nan=False)}), _FILES: ArrayRecord(files)}
    )


def unpacked(content: RecordDict) -> Message:
    """What another machine sent. Nothing in it is trusted."""
    about, files = content.get(_ABOUT), content.get(_FILES)
    if not isinstance(about, ConfigRecord) or not isinstance(files, ArrayRecord) or len(content) != 2:
        raise Refusal("not-a-message")
    text = about.get("json")
    if not isinstance(text, str) or len(text) > _LIMIT:
        raise Refusal("not-a-message")
    for array in files.values():
        if array.stype != _BYTES or len(array.data) != (array.shape[0] if len(array.shape) == 1 else -1):
            raise Refusal("not-a-message")
    return Message(
        strict_json.mapping("about", strict_json.loads(text)), {name: array.data for name, array in files.items()}
    )


class GoneError(Exception):
    """A node will not answer what it was asked: it may be asked again."""

    def __init__(self, why: Note) -> None:
        super().__init__(str(why))
        self.note = why


def pulled(grid: Grid, number: str, most: int) -> FlowerMessage | None:
    """The answer to a message, if it is there. most: bytes that it may have."""
    if not isinstance(grid, HttpGrid):
        raise ServiceError("this app runs on Flower's deployment engine")
    client = grid._runtime_client
    found = client.PullMessages(PullAppMessagesRequest(message_ids=[number]))
    if not found.messages_list:
        return None
    identity, tree = found.messages_list[0].metadata.message_id, found.message_object_trees[0]
    pull = make_pull_object_fn_protobuf(client.PullObject, grid.node, grid.run.run_id)
    try:
        with _IN_MEMORY.held() if most > _LARGE else nullcontext():
            message = inflate_object_from_contents(identity, gathered(tree, pull, most))
    except ObjectPullError:
        raise GoneError(note("answer-lost")) from None
    finally:  # the link need not keep it
        request = ConfirmMessageReceivedRequest(node=grid.node, run_id=grid.run.run_id, message_object_id=identity)
        client.ConfirmMessageReceived(request)
    if not isinstance(message, FlowerMessage):
        raise Refusal("not-a-message")
    return message


def gathered(tree: ObjectTree, pull: Callable[[str], bytes], most: int) -> dict[str, bytes]:
    """The pieces of a message. most: bytes that it may have, folded or not."""
    names = list(dict.fromkeys(item.object_id for item in iterate_object_tree(tree)))
    if len(names) > _FEW + most // _SMALL:
        raise Refusal("too-many-pieces", count=len(names), most=most)
    lock, left = threading.Lock(), most

    def bounded(object_id: str) -> bytes:
        nonlocal left
        content = pull(object_id)
        with lock:
            left -= len(content)
            if left < 0:
                raise Refusal("too-much-sent", most=most)
        return content

    contents = pull_objects(names, bounded)
    if unfolded(contents) > most:
        raise Refusal("too-much-sent-folded", most=most)
    return contents


def unfolded(contents: Mapping[str, bytes]) -> int:
    """How many bytes the arrays of a message have: an array may name the same piece again and again."""
    total = 0
    for content in contents.values():
        kind, children, _ = get_object_head_values_from_object_content(content)
        if kind == Array.__qualname__:
            for place in json.loads(get_object_body(content, Array))["arraychunk_ids"]:
                total += len(contents[children[place]])
    return total
