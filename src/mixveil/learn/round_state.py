"""Where a coordinator of rounds by files is: the file that a step writes, and the next one goes on from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from mixveil.core import files, strict_json
from mixveil.core.errors import DataFormatError, ManifestError, MismatchError, ReleaseError, UnreadableFileError
from mixveil.learn.rounds import State
from mixveil.learn.training import TrainedOn
from mixveil.releases.contributions import Head
from mixveil.releases.kinds.sums import SumSettings
from mixveil.releases.round_plan import JointPlan, settings_of

FORMAT, VERSION = "mixveil-rounds-state", 1
_LIMIT = 2 << 30


@dataclass(frozen=True)
class SavedRounds:
    """A coordinator's state.

    Attributes:
        plan: The plan's id.
        head: The digest of the file that parties get for their next message.
        classes: Of all parties.
        sources: The releases of each message, with what they cost: class sums first.
    """

    plan: str
    state: State = field(repr=False)
    head: str
    classes: tuple[str, ...]
    sources: tuple[tuple[TrainedOn, ...], ...]

    @property
    def message(self) -> int:
        """The number of the last message."""
        return self.state.done

    def to_bytes(self) -> bytes:
        about = {
            "format": FORMAT,
            "version": VERSION,
            "plan": self.plan,
            "head": self.head,
            "noise": list(self.state.noise),
            "classes": list(self.classes),
            "sources": [[asdict(source) for source in sources] for sources in self.sources],
        }
        tensors = {**self.state.learnt.tensors(), "velocity": self.state.velocity}
        header = {"mixveil": json.dumps(about, sort_keys=True, allow_nan=False)}
        return save({name: tensor.contiguous() for name, tensor in tensors.items()}, header)


def read_state(path: Path, plan: JointPlan) -> SavedRounds:
    """The state of a step. Everything in it is checked; that of another plan is refused."""
    files.check_there(path, "the folder of a step")
    try:
        data = files.read_small(path, _LIMIT)
        saved = _parsed(settings_of(data, path, strict_json.MANIFEST_LIMIT), load(data), plan)
    except (ReleaseError, UnreadableFileError, SafetensorError, ValueError) as error:
        raise DataFormatError(f"{path} is not the state of rounds: {error}") from None
    if saved.plan != plan.id:
        raise MismatchError(f"{path} is of the plan {saved.plan[:8]}, and not of {plan.id[:8]}")
    return saved


def _parsed(item: Any, tensors: dict[str, torch.Tensor], plan: JointPlan) -> SavedRounds:
    whole = strict_json.mapping("state", item)
    if whole.get("format") != FORMAT or whole.get("version") != VERSION:
        raise ManifestError(f"it is not of version {VERSION}")
    strict_json.only("state", whole, {"format", "version", "plan", "head", "noise", "classes", "sources"})
    classes = tuple(strict_json.text("classes", name) for name in strict_json.items("classes", whole["classes"]))
    sources = tuple(
        tuple(_source(source) for source in strict_json.items("sources", message))
        for message in strict_json.items("sources", whole["sources"])
    )
    noise = [strict_json.number("noise", value) for value in strict_json.items("noise", whole["noise"])]
    if len(noise) != 3 or not 1 <= len(sources) <= plan.settings.rounds + 1 or not all(sources):
        raise ManifestError("it does not say what it was learnt from")
    k, n = plan.settings.directions, len(classes)
    shapes = {"weight": (k, n), "bias": (n,), "centre": (k,), "velocity": (n, k + 1)}
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != shapes:
        raise ManifestError("its tensors are not those of a head")
    if not all(t.dtype == torch.float64 and bool(t.isfinite().all()) for t in tensors.values()):
        raise ManifestError("its tensors are not finite numbers of float64")
    velocity = tensors.pop("velocity")
    state = State(Head(**tensors), velocity, (noise[0], noise[1], noise[2]), len(sources) - 1)
    plan_id = strict_json.text("plan", whole["plan"], "[0-9a-f]{32}")
    return SavedRounds(plan_id, state, strict_json.text("head", whole["head"], "[0-9a-f]{64}"), classes, sources)


def _source(item: Any) -> TrainedOn:
    whole = strict_json.mapping("source", item)
    strict_json.only("source", whole, {"id", "party", "kind", "rows", "mu", "unit_rows", "label_epsilon"})
    if whole["label_epsilon"] not in (None, 0):
        raise ManifestError("label_epsilon must be 0, or null: the noise of sums covers labels, or nothing does")
    return TrainedOn(
        id=strict_json.text("id", whole["id"], r"[0-9a-f]{32}"),
        party=strict_json.name("party", whole["party"]),
        kind=strict_json.text("kind", whole["kind"], SumSettings.name),
        rows=strict_json.count("rows", whole["rows"]),
        mu=None if whole["mu"] is None else strict_json.figure("mu", whole["mu"]),
        unit_rows=strict_json.count("unit_rows", whole["unit_rows"]),
        label_epsilon=None if whole["label_epsilon"] is None else 0.0,
    )
