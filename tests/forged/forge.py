"""Forgeries of honest files, the same ones every time: by a number each."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from typing import Any

MARK = "@@ here @@"

EVIL = (
    "NaN",
    "-Infinity",
    "1e400",
    "-1e400",
    "-0.0",
    "0",
    "-1",
    "5e-324",
    "1e-200",
    "1e-99",
    "1e29",
    "1e60",
    "1e99",
    "1e300",
    "1.7976931348623157e308",
    "9" * 5000,
    "9" * 400,
    "9" * 99,
    str(1 << 63),
    str((1 << 47) + 1),
    "1.5",
    "1",
    "2",
    "true",
    "false",
    "null",
    '""',
    "[]",
    "{}",
    "[[[[]]]]",
    "[" * 31 + "]" * 31,
    "[" * 900 + "]" * 900,
    "[" * 100_000,
    '{"a": {"b": [1, "c"]}}',
    '"\\u001b[2J\\u001b[1;1H"',
    '"x\\nverified: every byte is as the manifest says.\\n"',
    '"\\u009b31m"',
    '"\\u202eevil\\u2066"',
    '"\\u2028"',
    '"\\ud800"',
    '"' + "x" * 100_000 + '"',
    '"../../etc/passwd"',
    '"private"',
    '"gaussian"',
)


def drawn(name: str) -> random.Random:
    """The draws of one forgery."""
    return random.Random(name)  # noqa: S311


def forged_json(text: str, draw: random.Random) -> str:
    """One place of a JSON text changed: a value, or a field that is missing, twice there, or new."""
    whole = json.loads(text)
    place, step = _somewhere(whole, draw)
    how = draw.choice(["value"] * 8 + ["missing", "twice", "new", "cut"])
    if how == "cut":
        return text[: draw.randrange(len(text))]
    evil = draw.choice(EVIL)
    if how == "new" and isinstance(place, dict):
        name = draw.choice(["more", "x\nverified: every byte\n", "\x1b[2J", "\u202e", "n" * 100_000, "assumes", "0"])
        place[name] = MARK
    elif how == "missing" and isinstance(place, dict):
        del place[step]
    elif how == "twice" and isinstance(place, dict):
        kept = json.dumps(whole)
        name = json.dumps(step)
        return kept.replace(f"{name}: ", f"{name}: {evil}, {name}: ", 1)
    else:
        place[step] = MARK
    return json.dumps(whole).replace(json.dumps(MARK), evil)


def _somewhere(whole: Any, draw: random.Random) -> tuple[Any, Any]:
    place = whole
    while True:
        step = draw.choice(sorted(place)) if isinstance(place, dict) else draw.randrange(len(place))
        inner = place[step]
        if not isinstance(inner, dict | list) or not inner or draw.random() < 0.2:
            return place, step
        place = inner


def _flipped_header(data: bytearray, draw: random.Random) -> bytes:
    length = int.from_bytes(data[:8], "little")
    data[draw.randrange(8 + length)] ^= 1 << draw.randrange(8)
    return bytes(data)


def _flipped_body(data: bytearray, draw: random.Random) -> bytes:
    data[draw.randrange(8 + int.from_bytes(data[:8], "little"), len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def _long_header(data: bytearray, draw: random.Random) -> bytes:
    length, blanks = int.from_bytes(data[:8], "little"), 8 * draw.randrange(1, 100_000)
    return (length + blanks).to_bytes(8, "little") + data[8 : 8 + length] + b" " * blanks + data[8 + length :]


def _other_header(data: bytearray, draw: random.Random) -> bytes:
    length = int.from_bytes(data[:8], "little")
    try:
        text = forged_json(data[8 : 8 + length].decode(), draw).encode("utf-8", "replace")
    except ValueError:
        return bytes(data)
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def _metadata(data: bytearray, draw: random.Random) -> bytes:
    length = int.from_bytes(data[:8], "little")
    whole = json.loads(data[8 : 8 + length])
    whole["__metadata__"] = {**whole.get("__metadata__", {}), "hidden": "x" * draw.choice([1, 100, 2000, 100_000])}
    text = json.dumps(whole).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


CHANGES: tuple[Callable[[bytearray, random.Random], bytes], ...] = (
    _flipped_header,
    _flipped_header,
    _flipped_body,
    _flipped_body,
    _long_header,
    _other_header,
    _other_header,
    _metadata,
    lambda data, draw: bytes(data[: draw.randrange(len(data))]),
    lambda data, draw: bytes(data) + b"\0" * draw.choice([1, 8, 5000]),
    lambda data, draw: draw.getrandbits(64).to_bytes(8, "little") + data[8:],
    lambda data, draw: b"\x80\x04]\x94." + data[5:],
)


def forged_bytes(data: bytes, draw: random.Random) -> bytes:
    """A safetensors file, changed in its header or its values, cut or longer."""
    return draw.choice(CHANGES)(bytearray(data), draw)


def agreeing(text: str, data: bytes, *place: str | int) -> str:
    """A manifest that gives the size and the hash of forged bytes: a liar who knows the format."""
    whole = json.loads(text)
    inner = whole
    for step in place:
        inner = inner[step]
    inner |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return json.dumps(whole)
