"""A model on disk: a folder with `model.safetensors` and `card.json`.

The card says what the model was trained on, and what it shows of the records behind it.
"""

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
from mixveil.core.types import ANY_ROWS
from mixveil.core.wording.notes import Note, note
from mixveil.features.extractor import Extractor
from mixveil.learn.image_head import ImageHead
from mixveil.learn.layers import Layers, layers_of
from mixveil.learn.sequence_head import SequenceHead
from mixveil.learn.training import Trained, TrainedHead, TrainedOn

FORMAT = "mixveil-model"
VERSION = 2
TENSORS, CARD = "model.safetensors", "card.json"
RESNET, NETWORK = "resnet18", "network"
"""What the card says of a network on images, a ResNet-18 or a sequence of layers; other models have no such entry."""

_LIMIT, _HEADER = 2 << 30, 1 << 16


@dataclass(frozen=True)
class Model:
    """A model that was read or written.

    Attributes:
        head: Layers on features, or a network on images.
        classes: In the order of the scores.
        extractor: The features that the head takes.
        weights: The digest of the extractor's networks; None for pixels.
        card: The content of `card.json`.
    """

    head: TrainedHead
    classes: tuple[str, ...]
    extractor: Extractor
    weights: str | None
    card: Mapping[str, Any]

    @property
    def layers(self) -> Layers:
        return layers_of(self.head)


def promises(trained: Trained) -> list[Note]:
    """What an attacker who has the model can learn of the records behind it. A record that several parties have was
    sent by each of them, and each promised only its own part."""
    spent, labels = trained.spent.values(), trained.label_epsilon.values()
    if trained.together is None:
        return [note("model-promises-nothing")]
    per, one = "unit" if trained.units else "record", "-of-one-party" if len(spent) > 1 else ""
    told = [note("model-mu", of=note(f"model-{per}{one}"), mu=_largest(spent))]
    if trained.alone:
        told.append(note("model-mu-shared", honest=trained.honest, mu=max(trained.alone.values())))
    if not trained.units:
        some = any(source.unit_rows != 1 for source in trained.sources)
        told.append(note("model-units-of-some") if some else note("model-records-single", mu=_largest(spent)))
    if one:
        several = f"model-mu-{per}-at-several{'-shared' if trained.alone else ''}"
        told.append(note(several, parties=len(spent), mu=trained.together))
    if None in labels:
        return [*told, note("model-labels-shown")]
    if not any(labels):
        return [*told, note("model-labels-covered")]
    told.append(note("model-labels-randomised", of=note(f"model-record{one}"), epsilon=_largest(labels)))
    if one:
        told.append(note("model-labels-at-several", epsilon=sum(filter(None, labels))))
    return [*told, note("model-labels-partly-covered")] if trained.covered else told


def in_words(trained: Trained) -> str:
    return " ".join(str(told) for told in promises(trained))


def _largest(figures: Iterable[float | None]) -> float:
    return max((figure for figure in figures if figure is not None), default=0.0)


def write_model(out: Path, trained: Trained, tested: Mapping[str, Any] | None, about: Mapping[str, Any]) -> Model:
    """Write a model and its card. tested: the test data and the accuracy on them; about: how the model was made."""
    card = {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "classes": list(trained.classes),
        "extractor": trained.extractor.plain(),
        "weights": trained.weights,
        "projection": trained.projection,
        "trained_on": [_plain(source) for source in trained.sources],
        "mu": dict(trained.spent),
        "mu_with_several_parties": trained.together,
        "mu_alone": dict(trained.alone),
        "honest": trained.honest,
        "label_epsilon": dict(trained.label_epsilon),
        "per": "unit" if trained.units else "record",
        "guarantee": [told.plain() for told in promises(trained)],
        "accuracy": tested,
        "how": {**trained.how, **about},
    }
    if isinstance(trained.head, ImageHead):
        card[RESNET] = trained.head.plain()
    elif isinstance(trained.head, SequenceHead):
        card[NETWORK] = trained.head.plain()
    model = Model(trained.head, trained.classes, trained.extractor, trained.weights, card)
    with files.atomic_folder(out, "model") as folder:
        files.write_file(folder / TENSORS, save(_tensors(trained.head)))
        files.write_file(folder / CARD, (json.dumps(card, indent=2, allow_nan=False) + "\n").encode())
    return model


def _plain(source: TrainedOn) -> dict[str, Any]:
    """For the card. A unit that was clipped as a whole has any number of rows."""
    return {**asdict(source), **({"unit_rows": "any"} if source.unit_rows == ANY_ROWS else {})}


def _tensors(head: TrainedHead) -> dict[str, torch.Tensor]:
    if not isinstance(head, Layers):
        return head.tensors()
    named: dict[str, torch.Tensor] = {}
    for number, (weight, bias) in enumerate(head.layers):
        named |= {f"{number}.weight": weight.contiguous(), f"{number}.bias": bias.contiguous()}
    return named


def read_model(folder: Path) -> Model:
    """Read a model. Everything in it is checked."""
    files.check_there(folder, "the folder of a model")
    try:
        data = files.read_small(folder / CARD, strict_json.MANIFEST_LIMIT)
        card = strict_json.mapping("card", strict_json.parsed(data))
        if card.get("format") != FORMAT:
            raise ManifestError(f"format must be {FORMAT!r}, got {strict_json.shown(card.get('format'))}")
        if type(card.get("version")) is not int or card["version"] != VERSION:
            version = strict_json.shown(card.get("version"))
            raise VersionError(f"this mixveil reads models of version {VERSION}, and this one has version {version}")
        with files.opened(folder / TENSORS, _LIMIT) as file:
            tensor_files.check_header(file, folder / TENSORS, limit=_HEADER)
            data = file.read(_LIMIT)  # not mapped: another process may replace the file
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
    weights = None if card["weights"] is None else strict_json.text("weights", card["weights"], r"[0-9a-f]{64}")
    extractor = Extractor.read(card["extractor"])
    return Model(_head(card, found, len(classes), extractor), classes, extractor, weights, card)


def _head(card: dict[str, Any], found: dict[str, torch.Tensor], classes: int, extractor: Extractor) -> TrainedHead:
    if RESNET not in card and NETWORK not in card:
        return _layers(found, classes)
    if extractor.names:
        raise ManifestError("it takes images and features at once")
    if RESNET in card and NETWORK in card:
        raise ManifestError("it is two networks at once")
    if RESNET in card:
        return ImageHead.read(card[RESNET], found, classes)
    return SequenceHead.read(card[NETWORK], found, classes)


def _layers(found: dict[str, torch.Tensor], classes: int) -> Layers:
    layers = tuple((found[f"{i}.weight"], found[f"{i}.bias"]) for i in range(len(found) // 2))
    if not layers or len(found) != 2 * len(layers) or any(weight.dim() != 2 for weight, _ in layers):
        raise ManifestError("its tensors are not the weights and biases of layers")
    sizes = [*(len(weight) for weight, _ in layers), classes]
    for number, (weight, bias) in enumerate(layers):
        if weight.dtype != torch.float32 or bias.dtype != torch.float32:
            raise ManifestError("its tensors are not of float32")
        if weight.shape != (sizes[number], sizes[number + 1]) or bias.shape != (sizes[number + 1],):
            raise ManifestError("its tensors do not fit together, or do not fit its classes")
        absent = bias == -torch.inf if number + 1 == len(layers) else torch.zeros(len(bias), dtype=torch.bool)
        if not bool(weight.isfinite().all()) or not bool((bias.isfinite() | absent).all()):
            raise ManifestError("its tensors are not finite")
    return Layers(layers)
