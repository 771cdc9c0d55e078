"""A model on disk: a folder with `model.safetensors` and `card.json`, which says what it was trained on and what its
use tells of the records behind it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from mixveil.core import files, strict_json, tensor_files
from mixveil.core.errors import DataFormatError, ManifestError, MixveilError, VersionError
from mixveil.features.extractor import Extractor
from mixveil.learn.layers import Layers
from mixveil.learn.training import Trained

FORMAT = "mixveil-model"
VERSION = 2
TENSORS, CARD = "model.safetensors", "card.json"
_LIMIT, _HEADER = 2 << 30, 1 << 16


@dataclass(frozen=True)
class Model:
    """weights: the digest of the networks whose features it takes; None: of pixels."""

    layers: Layers
    classes: tuple[str, ...]
    extractor: Extractor
    weights: str | None
    card: Mapping[str, Any]


def in_words(trained: Trained) -> str:
    """What the model's users can learn of the records behind it. A party knows its own records alone: what is with
    several of them was sent by each, and every one of them promised its part only."""
    spent, labels = trained.spent.values(), trained.label_epsilon.values()
    if trained.together is None:
        return "Nothing is promised: it was trained on a release that promises nothing."
    what, several = "record", "A record that is with several"
    if trained.units:
        what, several = "unit (all rows of a person)", "A person whose records are with several"
    one = " of one party" if len(spent) > 1 else ""
    said = (
        f"Whoever has the model, and all that was sent for it, learns of no {what}{one} more than "
        f"{_most(spent):.4g}-GDP permits."
    )
    if one:
        said += f" {several} of these {len(spent)} parties: up to {trained.together:.4g}-GDP."
    if None in labels:
        return f"{said} Labels are not protected."
    said += f" Labels were randomised: that of a record{one} with ε = {_most(labels):.4g} in all"
    return said + (f", up to {sum(e for e in labels if e is not None):.4g} if it is with several." if one else ".")


def _most(figures: Iterable[float | None]) -> float:
    return max((figure for figure in figures if figure is not None), default=0.0)


def write_model(out: Path, trained: Trained, tested: Mapping[str, Any] | None, about: Mapping[str, Any]) -> Model:
    """Write a model and its card. tested: on what, and the accuracy there; about: how it was made."""
    card = {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "classes": list(trained.classes),
        "extractor": trained.extractor.plain(),
        "weights": trained.weights,
        "projection": trained.projection,
        "trained_on": [asdict(source) for source in trained.sources],
        "mu": dict(trained.spent),
        "mu_with_several_parties": trained.together,
        "label_epsilon": dict(trained.label_epsilon),
        "per": "unit" if trained.units else "record",
        "guarantee": in_words(trained),
        "accuracy": tested,
        "how": {**trained.how, **about},
    }
    model = Model(trained.layers, trained.classes, trained.extractor, trained.weights, card)
    with files.atomic_folder(out, "model") as folder:
        named: dict[str, torch.Tensor] = {}
        for number, (weight, bias) in enumerate(trained.layers.layers):
            named |= {f"{number}.weight": weight.contiguous(), f"{number}.bias": bias.contiguous()}
        files.write_file(folder / TENSORS, save(named))
        files.write_file(folder / CARD, (json.dumps(card, indent=2, allow_nan=False) + "\n").encode())
    return model


def read_model(folder: Path) -> Model:
    """Open a model; everything in it is checked."""
    try:
        card = strict_json.mapping(
            "card", strict_json.parsed(files.read_small(folder / CARD, strict_json.MANIFEST_LIMIT))
        )
        if card.get("format") != FORMAT:
            raise ManifestError(f"format must be {FORMAT!r}, got {strict_json.shown(card.get('format'))}")
        if type(card.get("version")) is not int or card["version"] != VERSION:
            raise VersionError(
                f"this mixveil reads version {VERSION}, the model has {strict_json.shown(card.get('version'))}"
            )
        with files.opened(folder / TENSORS, _LIMIT) as file:
            tensor_files.check_header(file, folder / TENSORS, limit=_HEADER)
            data = file.read(_LIMIT)  # not mapped: the file may be replaced
        return _model(card, load(data))
    except VersionError:
        raise
    except (ValueError, KeyError, SafetensorError, MixveilError) as error:
        kind = "is a release, not" if (folder / "manifest.json").exists() else "is not"
        raise DataFormatError(f"{folder} {kind} a model: {error}") from None


def _model(card: dict[str, Any], found: dict[str, torch.Tensor]) -> Model:
    classes = tuple(strict_json.text("classes", name) for name in strict_json.items("classes", card["classes"]))
    if len(set(classes)) != len(classes):
        raise ManifestError("two classes have the same name")
    layers = tuple((found[f"{i}.weight"], found[f"{i}.bias"]) for i in range(len(found) // 2))
    if not layers or len(found) != 2 * len(layers) or any(weight.dim() != 2 for weight, _ in layers):
        raise ManifestError("its tensors are not those of layers")
    sizes = [*(len(weight) for weight, _ in layers), len(classes)]
    for number, (weight, bias) in enumerate(layers):
        if weight.dtype != torch.float32 or bias.dtype != torch.float32:
            raise ManifestError("its tensors are not of float32")
        if weight.shape != (sizes[number], sizes[number + 1]) or bias.shape != (sizes[number + 1],):
            raise ManifestError("its tensors do not fit one another, or its classes")
        nobody = bias == -torch.inf if number + 1 == len(layers) else torch.zeros(len(bias), dtype=torch.bool)
        if not bool(weight.isfinite().all()) or not bool((bias.isfinite() | nobody).all()):
            raise ManifestError("its tensors are not finite")
    weights = None if card["weights"] is None else strict_json.text("weights", card["weights"], r"[0-9a-f]{64}")
    return Model(Layers(layers), classes, Extractor.read(card["extractor"]), weights, card)
