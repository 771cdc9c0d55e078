"""Updates: the weights of a model before and after a party's part of a round. They promise nothing.

The server sent the former and gets the latter: both are known to it, and an update is their difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from mixveil.core import strict_json
from mixveil.core.errors import DtypeError, ManifestError, MismatchError, NotFiniteError, ShapeError
from mixveil.core.local_training import LocalTraining
from mixveil.core.wording.notes import Note, note
from mixveil.features.split import layers
from mixveil.features.split.shapes import shapes
from mixveil.releases.kinds.settings import PayloadSettings

if TYPE_CHECKING:
    from mixveil.releases.envelope import Envelope, File

_MOST_TENSORS, _MOST_SIZES = 10_000, 8
_HEADER_EACH = 300  # bytes of a header that one tensor takes: names are short


BEFORE, AFTER = "before.", "after."
"""What the names of weights that the server sent, and of those that it gets back, begin with."""


@dataclass(frozen=True)
class UpdateSettings(PayloadSettings):
    """The settings of updates; the payload is float32 tensors by name, `before.…` and `after.…`.

    Attributes:
        method: What trained them, such as fedavg.
        shapes: Of the tensors.
        shape: Of one row that was trained on; low, high: the range of its values.
        training: How the party trained; None where it is not said.
        layers: The network, as `features.split.layers` has it; None where it is not a plain sequence of layers.
    """

    name: ClassVar[str] = "updates"
    largest_file: ClassVar[int] = 1 << 30
    method: str
    shapes: Mapping[str, tuple[int, ...]]
    shape: tuple[int, ...] = ()
    low: float = 0.0
    high: float = 1.0
    training: LocalTraining | None = None
    layers: Sequence[Mapping[str, Any]] | None = None

    @classmethod
    def parse(cls, item: Mapping[str, Any]) -> Self:
        strict_json.only("payload", item, {"method", "shapes", "shape", "low", "high", "training", "layers"})
        shapes = strict_json.mapping("shapes", item["shapes"])
        if not 0 < len(shapes) <= _MOST_TENSORS:
            raise ManifestError(f"shapes must name 1 to {_MOST_TENSORS:,} tensors, got {len(shapes):,}")
        low, high = (strict_json.number(name, item[name]) for name in ("low", "high"))
        if not low < high:
            raise ManifestError(f"the range of a value cannot be {low:g} to {high:g}")
        named = {strict_json.text("a tensor's name", name, r"[\w.]{1,120}"): _shape(s) for name, s in shapes.items()}
        training = None if item["training"] is None else LocalTraining.read(item["training"])
        layers = None if item["layers"] is None else strict_json.items("layers", item["layers"])
        method = strict_json.text("method", item["method"], r"[a-z][a-z0-9-]{0,39}")
        found = cls(method, named, _shape(item["shape"]), low, high, training, layers)
        try:
            found.check_network()
        except MismatchError as error:  # here it is the manifest that is wrong, not what a user gave
            raise ManifestError(f"payload: {error}") from None
        return found

    def plain(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "shape": list(self.shape),
            "low": self.low,
            "high": self.high,
            "training": None if self.training is None else self.training.plain(),
            "layers": self.layers,
        }

    def network(self) -> nn.Sequential | None:
        """A new network as was trained, without its weights."""
        if self.layers is None:
            return None
        with torch.device("meta"):  # takes no memory, however large a network is asked for
            return layers.built(self.layers)

    def check_network(self) -> None:
        """Refuse layers that do not have these weights, or do not take rows of this shape."""
        net = self.network()
        if net is None:
            return
        shapes(net, self.shape)
        wanted = {name: tuple(value.shape) for name, value in net.state_dict().items()}
        for part in (BEFORE, AFTER):
            if wanted != {n.removeprefix(part): shape for n, shape in self.shapes.items() if n.startswith(part)}:
                raise ManifestError(f"the tensors {part}… are not those of its layers")

    def labels(self, *, randomised: bool) -> str:
        return "labels-in-updates"

    def check(self, envelope: Envelope) -> None:
        if envelope.label_epsilon is not None:
            raise ManifestError("label_epsilon must be null: nothing bounds what updates show of labels")
        if any(file.rows is not None for file in envelope.files):
            raise ManifestError("file.rows must be null: updates have no rows")

    @property
    def defence(self) -> str:
        return self.method

    @property
    def header(self) -> int:
        return super().header + _HEADER_EACH * len(self.shapes)

    def note(self, envelope: Envelope) -> Note:
        sizes = {"tensors": len(self.shapes), "megabytes": envelope.bytes / 1e6}
        return note("held-updates", method=self.method, party=envelope.party, **sizes)

    def file_bytes(self, file: File, envelope: Envelope) -> int:
        return sum(4 * math.prod(shape) for shape in self.shapes.values())

    def checked(
        self, where: str, tensors: Mapping[str, Tensor], file: File, envelope: Envelope
    ) -> Mapping[str, Tensor]:
        if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != dict(self.shapes):
            raise ShapeError(f"{where}: its tensors do not have the names and shapes that the manifest says")
        for name, tensor in tensors.items():
            if tensor.dtype != torch.float32:
                raise DtypeError(f"{where}: {name} is {tensor.dtype}, not torch.float32")
            if not bool(tensor.isfinite().all()):
                raise NotFiniteError(f"{where}: a value of {name} is not finite")
        return tensors


def _shape(item: Any) -> tuple[int, ...]:
    sizes = tuple(strict_json.count("shape", size) for size in strict_json.items("shape", item))
    if len(sizes) > _MOST_SIZES or math.prod(sizes) > 1 << 48:
        raise ManifestError(f"a tensor cannot have the shape {strict_json.shown(item)}")
    return sizes
