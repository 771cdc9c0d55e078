"""FedAvg and FedProx between machines, with Fed-AugMix or without: as `algorithms.federated` does them in memory, with
the parties that answer in time. A party's rows stay in its process; weights that were trained on them leave."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save

from mixveil.core import files, strict_json
from mixveil.core.errors import ManifestError, TrainingError
from mixveil.core.local_training import AugMix
from mixveil.core.wording.notes import note
from mixveil.features.extractor import Extractor
from mixveil.federated.algorithms import Weights, average, new_head, weights_of
from mixveil.federated.jobs.asking import Check, Parties, agreeing, check_enough, offered, only_file, ready, together
from mixveil.federated.jobs.job import Job, PartyStatus
from mixveil.federated.jobs.making import Making, modest
from mixveil.federated.jobs.messages import SMALL, Ask, Message, Refusal
from mixveil.federated.jobs.party_config import computed
from mixveil.learn.batches import BatchSource, RemixedEveryBatch
from mixveil.learn.fit import Head, steps_per_epoch
from mixveil.learn.sequence_head import ImageSequence
from mixveil.learn.training import Trained, TrainedHead, TrainedOn

_FAR, _TIMES = 1e6, 100.0
"""How far a party may move the weights in one round, as a Euclidean distance, and how many times as far as the median
party: the others have to go on from the average."""


class _Rows(NamedTuple):
    """What a party says of the rows that it trains on."""

    rows: int
    inputs: int
    classes: tuple[str, ...]
    weights: str | None
    shape: tuple[int, ...]  # of an image, where the job needs images


def learn_in_rounds(job: Job, parties: Parties, proximal: float | None, augmix: AugMix | None = None) -> Trained:
    """FedAvg, or FedProx with its μ. augmix: of Fed-AugMix; None: parties' loss is the cross-entropy alone."""
    config, recipe = job.config, job.config.recipe
    base = {**job.identity.plain(), "kind": "updates", "extractor": config.extractor.plain()}
    rows = _ask_for_rows(job, parties, base)
    agreed = agreeing(job, {name: own[1:] for name, own in rows.items()}, "updates")
    first = rows[min(agreed)]
    head = config.chosen_head
    model = new_head(head, first.inputs, len(first.classes), recipe, shape=first.shape or None)
    start, names, weights = _load_state(job, sorted(agreed), weights_of(model))
    going = [name for name in names if name in agreed]
    for name in names:
        job.status(name).has_sent(job.status(name).rounds, config.rounds)
    base |= {"ask": "round", "head": head, "recipe": asdict(recipe), "proximal": proximal}
    base["augmix"] = None if augmix is None else asdict(augmix)
    for number in range(start, config.rounds):
        epochs = [number * config.schedule.epochs, (number + 1) * config.schedule.epochs]
        sent = _one_round(job, parties, {**base, "epochs": epochs}, weights, names, going)
        _leave_out_the_farthest(job, sent, weights, {n: steps_per_epoch(rows[n].rows, recipe) for n in sent})
        check_enough(job, len(sent), "too-few-in-round", number=number + 1)
        going = [name for name in going if name in sent]  # a party that was late once is not waited for again
        weights = average((sent[name], rows[name].rows) for name in going)
        _save_state(job, names, number + 1, weights)
        job.log("round-done", number=number + 1, rounds=config.rounds, answered=len(going), parties=len(names))
    model.load_state_dict(dict(weights))
    how = {"head": head, "method": config.method, "rounds": config.rounds, **asdict(recipe), "proximal": proximal}
    how |= {} if augmix is None else {"augmix": asdict(augmix)}
    took = sorted(name for name in rows if name in names and (start or job.status(name).rounds))
    sources = tuple(TrainedOn(job.identity.id, name, "updates", rows[name].rows, None) for name in took)
    nothing = dict.fromkeys(took)
    return Trained(
        _head(model), how, first.classes, config.extractor, first.weights, None, sources, nothing, nothing, False
    )


def _head(model: Head) -> TrainedHead:
    """What was trained."""
    if isinstance(model, ImageSequence):
        return model.head()
    layers = model.eval().layers()
    if not all(bool(tensor.isfinite().all()) for layer in layers.layers for tensor in layer):
        raise TrainingError("the trained layers are not finite: try a smaller learning rate")
    return layers


def _ask_for_rows(job: Job, parties: Parties, base: Mapping[str, Any]) -> dict[str, _Rows]:
    rows: dict[str, _Rows] = {}

    def offer(name: str, ask: Ask, status: PartyStatus, check: Check) -> None:
        about = offered(job, name, ask, {**base, "ask": "offer", "projection": None}, None, check).about
        classes = strict_json.items("classes", about.get("classes"))
        weights = about.get("weights")
        rows[name] = _Rows(
            strict_json.count("rows", about.get("rows")),
            strict_json.count("inputs", about.get("inputs")),
            tuple(strict_json.text("class", item) for item in classes),
            None if weights is None else strict_json.text("weights", weights, "[0-9a-f]{64}"),
            _shape(about) if job.config.needs_images else (),
        )
        status.state, status.why = "willing", None
        status.has_sent(status.rounds, status.messages)

    together(job, parties, offer)
    check_enough(job, len(rows), "too-few-sent", kind="updates")
    return dict(rows)


def _shape(about: Mapping[str, Any]) -> tuple[int, ...]:
    """Of the images that a party says it has."""
    shape = tuple(strict_json.count("shape", size) for size in strict_json.items("shape", about.get("shape")))
    if len(shape) != 3 or math.prod(shape) != about.get("inputs") or not math.prod(shape):
        raise ManifestError(f"the job needs images, and it has rows of {strict_json.shown(about.get('shape'))}")
    return shape


def _one_round(
    job: Job, parties: Parties, about: Mapping[str, Any], weights: Weights, names: list[str], going: list[str]
) -> dict[str, Weights]:
    """The weights that the parties sent in time. names: all parties, whose places number their draws."""
    sent: dict[str, Weights] = {}

    def step(name: str, ask: Ask, status: PartyStatus, check: Check) -> None:
        message = Message({**about, "number": names.index(name)}, {"weights": save(dict(weights))})
        data = only_file(ready(name, ask(message, message.bytes + SMALL)), "weights")
        check()
        sent[name] = _weights(data, weights)
        status.bytes += len(data)
        status.has_sent(status.rounds + 1, status.messages)

    together(job, parties, step, among=going)
    return sent


def _leave_out_the_farthest(job: Job, sent: dict[str, Weights], weights: Weights, steps: Mapping[str, int]) -> None:
    """Where most agree on about how far a round leads, those that went many times as far are not averaged with. A party
    with more rows takes more steps, and may go as many times as far again."""
    often = max(1.0, statistics.median(steps.values())) if steps else 1.0
    moved = {name: _moved(own, weights) / max(1.0, steps[name] / often) for name, own in sent.items()}
    usual = statistics.median(moved.values()) if moved else 0.0
    if len(moved) < 3 or not usual:
        return
    for name, distance in moved.items():
        if not distance <= _TIMES * usual:
            del sent[name]
            job.status(name).rounds -= 1
            job.exclude(name, "rejected", note("moved-too-far", times=distance / usual))


def _moved(own: Weights, sent: Weights) -> float:
    return math.sqrt(sum(float((own[name].double() - sent[name].double()).square().sum()) for name in own))


def _weights(data: bytes, wanted: Weights) -> Weights:
    """The weights that a party sent, if they are such as it was sent."""
    try:
        own = load(data)
    except (SafetensorError, ValueError):
        raise Refusal("weights-unreadable") from None
    kinds = {name: (tensor.shape, tensor.dtype) for name, tensor in own.items()}
    if kinds != {name: (tensor.shape, tensor.dtype) for name, tensor in wanted.items()}:
        raise Refusal("weights-of-another-model")
    if not all(bool(tensor.isfinite().all()) for tensor in own.values()):
        raise Refusal("weights-not-finite")
    if any(name.endswith("running_var") and bool((tensor < 0).any()) for name, tensor in own.items()):
        raise Refusal("negative-variance")
    if not (distance := _moved(own, wanted)) <= _FAR:
        raise Refusal("weights-too-far", distance=distance, most=_FAR)
    return own


def _save_state(job: Job, names: list[str], number: int, weights: Weights) -> None:
    """After each round, so that a server that was killed goes on."""
    sent = ",".join(str(job.status(name).rounds) for name in names)
    header = {"rounds": str(number), "parties": ",".join(names), "sent": sent}
    files.write_whole(job.folder / "rounds.safetensors", save(dict(weights), header), 0o600)


def _load_state(job: Job, agreed: list[str], first: Weights) -> tuple[int, list[str], Weights]:
    """How many rounds were done before, with which parties, and the weights after them."""
    path = job.folder / "rounds.safetensors"
    if not path.exists():
        return 0, agreed, first
    with safe_open(path, framework="pt") as kept:
        header = kept.metadata() or {}
    number, names = int(header.get("rounds", "0")), header.get("parties", "").split(",")
    if not set(agreed) <= set(names):
        return 0, agreed, first
    sent = header.get("sent")  # earlier versions did not keep it
    for name, rounds in zip(names, [number] * len(names) if sent is None else map(int, sent.split(",")), strict=True):
        job.status(name).rounds = rounds
    job.log("rounds-kept", rounds=number)
    return number, names, _weights(path.read_bytes(), first)


class RowsInClear(NamedTuple):
    """What a party trains the rounds of a job on.

    Attributes:
        weights: The digest of the networks before them; None: pixels.
        shape: Of a row: of an image, or (features,); low, high: the range of its values.
    """

    job: str
    extractor: Extractor
    source: BatchSource
    classes: tuple[str, ...]
    weights: str | None
    shape: tuple[int, ...]
    low: float
    high: float


def entered_rows(making: Making, wanted: Extractor) -> RowsInClear:
    """Enter the rounds in the ledger, as something that promises nothing, and load the rows."""
    config, extractor = making.config, modest(wanted)
    images = config.images()
    loaded = config.networks(images, extractor)  # before anything is entered: it may refuse
    making.enter_updates(images)
    features = computed(images, loaded)
    x = features.take(torch.arange(len(images))).x
    source = RemixedEveryBatch(x, features.labels, len(images.classes), None)
    known = (making.kept.job.id, extractor, source, images.classes)
    if not extractor.names:
        return RowsInClear(*known, None, images.shape, images.low, images.high)
    return RowsInClear(*known, loaded.digest, features.shape, float(x.min()), float(x.max()))
