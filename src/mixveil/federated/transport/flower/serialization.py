"""Parcels as Flower carries them: settings in a ConfigRecord, files in an ArrayRecord, byte for byte."""

from __future__ import annotations

import json

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from mixveil.core import strict_json
from mixveil.core.errors import RefusedError
from mixveil.federated.jobs.messages import Parcel

_ABOUT, _FILES, _BYTES = "about", "files", "mixveil.bytes"
_LIMIT = 1 << 20  # characters of settings


def packed(parcel: Parcel) -> RecordDict:
    files = {name: Array("uint8", (len(data),), _BYTES, data) for name, data in parcel.files.items()}
    return RecordDict(
        {_ABOUT: ConfigRecord({"json": json.dumps(dict(parcel.about), allow_nan=False)}), _FILES: ArrayRecord(files)}
    )


def unpacked(content: RecordDict) -> Parcel:
    """What another machine sent; it is read, never believed."""
    about, files = content.get(_ABOUT), content.get(_FILES)
    if not isinstance(about, ConfigRecord) or not isinstance(files, ArrayRecord) or len(content) != 2:
        raise RefusedError("it is not a parcel")
    text = about.get("json")
    if not isinstance(text, str) or len(text) > _LIMIT:
        raise RefusedError("a parcel's settings are at most a megabyte of text")
    for name, array in files.items():
        if array.stype != _BYTES or len(array.data) != (array.shape[0] if len(array.shape) == 1 else -1):
            raise RefusedError(f"{name!r:.60} is not a file")
    return Parcel(
        strict_json.mapping("about", strict_json.loads(text)), {name: array.data for name, array in files.items()}
    )
