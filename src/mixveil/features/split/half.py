"""One half of a split network: the client's, which parties run on their images, or the server's, which takes what they
send. Each half is a folder by itself, read without the other and without running anything that it holds.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from mixveil.core import files, strict_json, tensor_files
from mixveil.core.errors import ArgumentError, DataFormatError, ManifestError, MismatchError, MixveilError, VersionError
from mixveil.features.split import layers
from mixveil.features.split.shapes import MOST_VALUES, shapes

FORMAT = "mixveil-half"
VERSION = 1
CARD, TENSORS = "half.json", "weights.safetensors"
Role = Literal["client", "server"]
Plain = str | float | int | bool | None

_LIMIT, _HEADER = 1 << 30, 1 << 20
_AT_ONCE = 1 << 26  # values behind a layer, of all rows that go through it together
_FIELDS = {"format", "version", "role", "shape", "low", "high", "output", "classes", "layers", "how", "partner"}


@dataclass(frozen=True)
class Half:
    """A half of a split network, in eval mode and in memory. A client half is a `core.types.ClientPart`.

    Attributes:
        shape: Of one input: an image for the client, a representation for the server.
        output: Of one output: a representation for the client, scores for the server.
        low, high: The range of an image's pixels.
        classes: In the order of the scores.
        how: How it was trained, for people.
        partner: Of a server half, the digest of the client half that it belongs to; None of a client half.
    """

    role: Role
    net: nn.Sequential = field(repr=False)
    shape: tuple[int, ...]
    output: tuple[int, ...]
    classes: tuple[str, ...]
    low: float = 0.0
    high: float = 1.0
    how: Mapping[str, Plain] = field(default_factory=dict)
    partner: str | None = None

    @property
    def values(self) -> int:
        """Of one output."""
        return math.prod(self.output)

    @cached_property
    def all_values(self) -> int:
        """Of one input and of what every layer makes of it: all that gradients need in memory."""
        return sum(math.prod(shape) for shape in shapes(self.net, self.shape))

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of its layers, weights and range: two halves that compute the same have the same."""
        said = {"layers": layers.plain(self.net), "shape": self.shape, "low": self.low, "high": self.high}
        found = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
        for name, tensor in sorted(self.net.state_dict().items()):
            found.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
        return found.hexdigest()

    def on(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """The network on a device, from (m, …) inputs to (m, values) outputs; its weights are fixed."""
        net = copy.deepcopy(self.net).to(device).eval().requires_grad_(False)
        return lambda x: net(x.float().reshape(len(x), *self.shape)).flatten(1)

    def in_batches(self, x: Tensor, rows: int = 1024) -> Tensor:
        """(n, values) float32, in memory, of (n, …) inputs; fewer rows at a time where a layer makes much of each."""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        run = self.on(device)
        rows = max(1, min(rows, _AT_ONCE // max(math.prod(shape) for shape in shapes(self.net, self.shape))))
        with torch.inference_mode():
            return torch.cat([run(part.to(device)).cpu() for part in torch.split(x, rows)])


def halves(
    client: nn.Sequential,
    server: nn.Sequential,
    shape: tuple[int, ...],
    classes: tuple[str, ...],
    *,
    low: float = 0.0,
    high: float = 1.0,
    how: Mapping[str, Plain] | None = None,
) -> tuple[Half, Half]:
    """Both halves of a network that was cut, in eval mode and in memory: copies, so that training on does not change
    them. One that does not fit its shape, its classes or the other, or that could not be written, is refused."""
    client, server = (layers.without_counters(copy.deepcopy(part)).cpu().eval() for part in (client, server))
    for part in (client, server):
        layers.plain(part)
    between = shapes(client, shape)[-1]
    scores = shapes(server, between)[-1]
    low, high = float(low), float(high)
    if scores != (len(classes),):
        raise MismatchError(f"the server part gives {scores} scores for {len(classes)} classes")
    given = dict(how or {})
    first = Half("client", client, shape, between, classes, low, high, given)
    return first, Half("server", server, between, scores, classes, low, high, given, first.digest)


def write_half(out: Path, half: Half) -> None:
    """Write a half as a new folder: `half.json` and its weights."""
    files.check_new(out)
    card = {
        "format": FORMAT,
        "version": VERSION,
        "role": half.role,
        "shape": list(half.shape),
        "low": half.low,
        "high": half.high,
        "output": list(half.output),
        "classes": list(half.classes),
        "layers": layers.plain(half.net),
        "how": dict(half.how),
        "partner": half.partner,
    }
    whole = torch.contiguous_format  # copies: the library refuses a layer's weights that are there twice
    tensors = save({name: tensor.cpu().clone(memory_format=whole) for name, tensor in half.net.state_dict().items()})
    try:
        text = json.dumps(card, indent=2, allow_nan=False) + "\n"
        _half(strict_json.loads(text), load(tensors))  # what would be refused when read is not written
    except (ValueError, TypeError, MixveilError) as error:
        raise ArgumentError(f"this {half.role} half could not be read again: {error}") from None
    with files.atomic_folder(out, half.role) as folder:
        files.write_file(folder / TENSORS, tensors)
        files.write_file(folder / CARD, text.encode())


def read_half(folder: Path | str, role: Role | None = None) -> Half:
    """Read a half that others may have written. Everything in it is checked. role: the half that is needed; the other
    is refused."""
    folder = Path(folder)
    files.check_there(folder, "the folder of a half")
    try:
        data = files.read_small(folder / CARD, strict_json.MANIFEST_LIMIT)
        card = strict_json.mapping("half", strict_json.parsed(data))
        if card.get("format") != FORMAT:
            raise ManifestError(f"format must be {FORMAT!r}, got {strict_json.shown(card.get('format'))}")
        if type(card.get("version")) is not int or card["version"] != VERSION:
            version = strict_json.shown(card.get("version"))
            raise VersionError(f"this mixveil reads halves of version {VERSION}, and this one has version {version}")
        strict_json.only("half", card, _FIELDS)
        with files.opened(folder / TENSORS, _LIMIT) as file:
            tensor_files.check_header(file, folder / TENSORS, limit=_HEADER)
            tensors = load(file.read(_LIMIT))
        found = _half(card, tensors)
    except VersionError:
        raise
    except (ValueError, KeyError, SafetensorError, MixveilError) as error:
        raise DataFormatError(f"{folder} is not half of a split network: {error}") from None
    if role is not None and found.role != role:
        raise MismatchError(f"{folder} is the {found.role} half, and the {role} half is needed here")
    return found


def _half(card: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Half:
    role = card["role"]
    if role not in ("client", "server"):
        raise ManifestError(f"role must be client or server, got {strict_json.shown(role)}")
    shape, output = (_shape(name, card[name]) for name in ("shape", "output"))
    low, high = (strict_json.number(name, card[name]) for name in ("low", "high"))
    if not low < high:
        raise ManifestError(f"the range of a pixel cannot be {low:g} to {high:g}")
    classes = tuple(strict_json.text("classes", name) for name in strict_json.items("classes", card["classes"]))
    if not classes or len(set(classes)) != len(classes):
        raise ManifestError("classes must be different names, one at least")
    with torch.device("meta"):  # takes no memory, however large a network is asked for
        net = layers.built(card["layers"])
    made = shapes(net, shape)[-1]
    layers.check_tensors(tensors, net.state_dict())
    net.load_state_dict(dict(tensors), assign=True)
    if made != output or (role == "server" and made != (len(classes),)):
        raise ManifestError(f"its layers make {made}, and it says {output}, of {len(classes)} classes")
    partner = None if role == "client" else strict_json.text("partner", card["partner"], r"[0-9a-f]{64}")
    if role == "client" and card["partner"] is not None:
        raise ManifestError("a client half has no partner")
    return Half(role, net.eval(), shape, output, classes, low, high, _how(card["how"]), partner)


def _shape(name: str, item: Any) -> tuple[int, ...]:
    sizes = tuple(strict_json.count(name, size) for size in strict_json.items(name, item))
    if not 0 < len(sizes) <= 4 or not 0 < math.prod(sizes) <= MOST_VALUES:
        raise ManifestError(f"{name} cannot be {strict_json.shown(item)}")
    return sizes


def _how(item: Any) -> dict[str, Plain]:
    said = strict_json.mapping("how", item)
    for name, value in said.items():
        if not isinstance(value, str | int | float | bool | None) or len(said) > 100:
            raise ManifestError(f"how: {strict_json.shown(name)} must be a plain value")
    return dict(said)
