"""Parties and a server in one process: what a job does, without a network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mixveil.core.errors import RefusedError
from mixveil.data.opening import Images
from mixveil.features import projection_file, projection_fit
from mixveil.features.cache import Loaded
from mixveil.federated.jobs.approval import waiting
from mixveil.federated.jobs.messages import Ask, Parcel
from mixveil.federated.jobs.orders import Job, Order, begin
from mixveil.federated.jobs.party import Party
from mixveil.federated.jobs.serving import run
from mixveil.federated.jobs.settings import Settings
from tests.made import blobs, features_of

Answer = Callable[[Parcel], Parcel]


def saved(images: Images, path: Path, each: int | None = None) -> Path:
    """Images as a file that a party reads. each: so many in a row are a patient's."""
    x, y = images.take(torch.arange(len(images)))
    more: dict[str, Any] = (
        {} if each is None else {"patient": np.array([f"patient {row // each}" for row in range(len(images))])}
    )
    np.savez(path, x=x.numpy(), y=y.argmax(1).numpy(), classes=np.array(images.classes), **more)
    return path


def a_party(folder: Path, name: str, seed: int, **more: Any) -> Party:
    """A party with a hundred and twenty made images of its own."""
    images = more.pop("images", None) or blobs(120, seed)
    data = saved(images, folder / f"{name}.npz", 3 if "unit" in more else None)
    settings = {"mu": 4.0, "budget": 100.0, **more}
    return Party(Settings(party=name, data=str(data), folder=str(folder / f"jobs-{name}"), **settings))


def a_projection(folder: Path) -> Path:
    path = folder / "public.safetensors"
    features = features_of(blobs(300, 77))
    weights = Loaded(features.extractor, (), torch.device("cpu")).digest
    projection_file.write(path, projection_fit.fit(features, weights))
    return path


class Here:
    """A fleet of parties in this process."""

    def __init__(self, parties: Mapping[str, Answer], strangers: Mapping[str, str] | None = None) -> None:
        self.answers, self.strangers = dict(parties), dict(strangers or {})
        self.asked: list[tuple[str, str]] = []

    def parties(self) -> Mapping[str, Ask]:
        return {name: self._ask(name) for name in self.answers}

    def refused(self) -> Mapping[str, str]:
        return self.strangers

    def _ask(self, name: str) -> Ask:
        def ask(parcel: Parcel, most: int) -> Parcel:
            self.asked.append((name, str(parcel.about["ask"])))
            answer = self.answers[name](parcel)
            if answer.bytes > most:
                raise RefusedError(f"it sent more than the {most:,} bytes that its answer may have")
            return answer

        return ask


def job_of(folder: Path, **order: Any) -> Job:
    whole = {"job": "first", "method": "one-shot", "parties": 3, "wait": 20.0, **order}
    return begin(folder / "server", Order(**whole))


def done(job: Job, fleet: Here) -> dict[str, Any]:
    return run(job, fleet, {"made": "here"}, poll=0.05)


def approving(party: Party) -> Answer:
    """A party whose owner says yes to everything as soon as it waits."""

    def answer(parcel: Parcel) -> Parcel:
        found = party.answer(parcel)
        if found.about["state"] == "waiting":
            for item in waiting(Path(party.settings.folder)):
                item.approve("figures")
            found = party.answer(parcel)
        return found

    return answer


def never(parcel: Parcel) -> Parcel:
    """A party that says nothing."""
    threading.Event().wait(60)
    return parcel
