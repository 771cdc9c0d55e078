"""Messages as Flower carries them: settings in a ConfigRecord, files in an ArrayRecord, byte for byte."""

from __future__ import annotations

import json

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from mixveil.core import strict_json
from mixveil.federated.jobs.messages import Message, Refusal

_ABOUT, _FILES, _BYTES = "about", "files", "mixveil.bytes"
_LIMIT = 1 << 20  # characters of settings


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
