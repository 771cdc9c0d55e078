"""FedAvg and FedProx between machines: as `algorithms.federated` does them in memory, with whoever answers in time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save

from mixveil.core import files, strict_json
from mixveil.core.errors import RefusedError, TrainingError
from mixveil.federated.algorithms import Weights, average, new_head, weights_of
from mixveil.federated.jobs.asking import Check, Fleet, agreeing, check_enough, fate_of, file, offered, ready, together
from mixveil.federated.jobs.messages import SMALL, Ask, Parcel
from mixveil.federated.jobs.orders import Fate, Job
from mixveil.learn.fit import steps_per_epoch
from mixveil.learn.training import Trained, TrainedOn

_FAR, _TIMES = 1e6, 100.0
"""How far a party may move the weights in one round, as a Euclidean distance, and how many times as far as the median
party: the others have to go on from the average."""


def by_rounds(job: Job, fleet: Fleet, poll: float) -> Trained:
    """FedAvg, or FedProx: as `algorithms.federated` does it, with whoever answers in time."""
    order, recipe = job.order, job.order.recipe
    base = {**job.task.plain(), "kind": "updates", "extractor": order.extractor.plain()}
    there: dict[str, dict[str, Any]] = {}

    def offer(name: str, ask: Ask, fate: Fate, check: Check) -> None:
        answer = offered(job, name, ask, {**base, "ask": "offer", "projection": None}, None, fate, check, poll)
        weights = answer.about.get("weights")
        there[name] = {
            "rows": strict_json.count("rows", answer.about.get("rows")),
            "inputs": strict_json.count("inputs", answer.about.get("inputs")),
            "classes": tuple(
                strict_json.text("class", c) for c in strict_json.items("classes", answer.about.get("classes"))
            ),
            "weights": None if weights is None else strict_json.text("weights", weights, "[0-9a-f]{64}"),
        }
        fate.state, fate.why = "arrived", ""

    together(job, fleet, offer)
    check_enough(job, len(there), "answers")
    agreed = agreeing(job, {n: (r["classes"], r["inputs"], r["weights"]) for n, r in dict(there).items()}, "answers")
    first = there[min(agreed)]
    head = "mlp" if order.head == "mlp" else "linear"
    model = new_head("mlp" if head == "mlp" else "linear", first["inputs"], len(first["classes"]), recipe)
    start, names, weights = _kept(job, sorted(agreed), weights_of(model))
    going = [name for name in names if name in agreed]
    proximal = order.proximal if order.method == "fedprox" else None
    for number in range(start, order.rounds):
        epochs = [number * order.schedule.epochs, (number + 1) * order.schedule.epochs]
        about = {**base, "ask": "round", "head": head, "epochs": epochs, "recipe": asdict(recipe), "proximal": proximal}
        sent: dict[str, Weights] = {}

        def step(
            name: str,
            ask: Ask,
            fate: Fate,
            check: Check,
            about: Mapping[str, Any] = about,
            weights: Weights = weights,
            sent: dict[str, Weights] = sent,
        ) -> None:
            parcel = Parcel({**about, "number": names.index(name)}, {"weights": save(dict(weights))})
            data = file(ready(name, ask(parcel, parcel.bytes + SMALL)), "weights")
            check()
            sent[name] = _weights(data, weights)
            fate.bytes, fate.rounds, fate.state = fate.bytes + len(data), fate.rounds + 1, "arrived"

        together(job, fleet, step, among=going)
        steps = {name: steps_per_epoch(there[name]["rows"], recipe) for name in sent}
        _leave_out_the_farthest(job, sent, weights, steps)
        check_enough(job, len(sent), f"answers in round {number + 1}")
        going = [name for name in going if name in sent]  # who was late once is not waited for again
        weights = average((sent[name], there[name]["rows"]) for name in going)
        _keep(job, names, number + 1, weights)
        job.say(f"round {number + 1} of {order.rounds}: {len(going)} of {len(names)} part(ies)")
    model.load_state_dict(dict(weights))
    layers = model.eval().layers()
    if not all(bool(tensor.isfinite().all()) for layer in layers.layers for tensor in layer):
        raise TrainingError("the trained layers are not finite: try a smaller learning rate")
    how = {"head": head, "method": order.method, "rounds": order.rounds, **asdict(recipe), "proximal": proximal}
    took = sorted(name for name in there if name in names and (start or fate_of(job, name).rounds))
    sources = tuple(TrainedOn(job.task.id, name, "updates", there[name]["rows"], None) for name in took)
    nothing = dict.fromkeys(took)
    return Trained(
        layers, how, first["classes"], order.extractor, first["weights"], None, sources, nothing, nothing, False
    )


def _leave_out_the_farthest(job: Job, sent: dict[str, Weights], weights: Weights, steps: Mapping[str, int]) -> None:
    """Where most agree on about how far a round leads, those that went many times as far are not averaged with. Who has
    more rows takes more steps, and may go as many times as far again."""
    often = max(1.0, statistics.median(steps.values())) if steps else 1.0
    moved = {name: _moved(found, weights) / max(1.0, steps[name] / often) for name, found in sent.items()}
    usual = statistics.median(moved.values()) if moved else 0.0
    if len(moved) < 3 or not usual:
        return
    for name, distance in moved.items():
        if not distance <= _TIMES * usual:
            del sent[name]
            fate = fate_of(job, name)
            fate.rounds -= 1
            fate.state, fate.why = "rejected", f"it moved the weights {distance / usual:.3g} times as far as most"
            job.say(f"{name}: rejected: {fate.why}")


def _moved(found: Weights, sent: Weights) -> float:
    return math.sqrt(sum(float((found[name].double() - sent[name].double()).square().sum()) for name in found))


def _weights(data: bytes, wanted: Weights) -> Weights:
    """The weights that a party sent, if they are such as it was sent."""
    try:
        found = load(data)
    except (SafetensorError, ValueError) as error:
        raise RefusedError(f"its weights are not tensors: {error}") from None
    kinds = {name: (tensor.shape, tensor.dtype) for name, tensor in found.items()}
    if kinds != {name: (tensor.shape, tensor.dtype) for name, tensor in wanted.items()}:
        raise RefusedError("its weights are not those of this model")
    if not all(bool(tensor.isfinite().all()) for tensor in found.values()):
        raise RefusedError("its weights are not finite")
    if any(name.endswith("running_var") and bool((tensor < 0).any()) for name, tensor in found.items()):
        raise RefusedError("it says that something varies by less than nothing")
    if not _moved(found, wanted) <= _FAR:
        raise RefusedError(
            f"its weights are {_moved(found, wanted):.3g} from those that it was sent, and may be {_FAR:g}"
        )
    return found


def _keep(job: Job, names: list[str], number: int, weights: Weights) -> None:
    """After each round, so that a server that was killed goes on."""
    header = {"rounds": str(number), "parties": ",".join(names)}
    files.write_whole(job.folder / "rounds.safetensors", save(dict(weights), header), 0o600)


def _kept(job: Job, agreed: list[str], first: Weights) -> tuple[int, list[str], Weights]:
    """How many rounds were done before, with whom, and the weights after them. The names number the parties' draws."""
    path = job.folder / "rounds.safetensors"
    if not path.exists():
        return 0, agreed, first
    with safe_open(path, framework="pt") as kept:
        header = kept.metadata() or {}
    number, names = int(header.get("rounds", "0")), header.get("parties", "").split(",")
    if not set(agreed) <= set(names):
        return 0, agreed, first
    job.say(f"{number} round(s) were done before: going on from there")
    return number, names, _weights(path.read_bytes(), first)
