"""Parties and a server in one process: what a job does, without a network."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mixveil.core.wording.notes import Note
from mixveil.data.images import Images
from mixveil.features import projection_file, projection_fit
from mixveil.features.cache import Loaded
from mixveil.features.round_settings import RoundSettings
from mixveil.federated.jobs.approval import waiting
from mixveil.federated.jobs.job import Job, begin
from mixveil.federated.jobs.job_config import JobConfig
from mixveil.federated.jobs.messages import Ask, Message, Refusal
from mixveil.federated.jobs.party import Party
from mixveil.federated.jobs.party_config import PartyConfig
from mixveil.federated.jobs.serving import run
from tests.made import blobs, features_of

Answer = Callable[[Message], Message]


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
    return Party(PartyConfig(party=name, data=str(data), folder=str(folder / f"jobs-{name}"), **settings))


def a_projection(folder: Path) -> Path:
    path = folder / "public.safetensors"
    features = features_of(blobs(300, 77))
    weights = Loaded(features.extractor, (), torch.device("cpu")).digest
    projection_file.write(path, projection_fit.fit(features, weights))
    return path


ROUNDS = RoundSettings(
    directions=4, rounds=4, share=0.2, clip=0.5, noise=0.01, rate=2.0, momentum=0.0, temperature=0.25, accuracy=0.9
)


def rounds_projection(folder: Path) -> Path:
    """A public projection with settings for rounds of sums."""
    path = folder / "rounds.safetensors"
    if not path.exists():
        found, _ = projection_file.read(a_projection(folder))
        projection_file.write(path, replace(found, rounds=(ROUNDS,)))
    return path


class Here:
    """Parties in this process."""

    def __init__(self, parties: Mapping[str, Answer], strangers: Mapping[str, Note] | None = None) -> None:
        self.answers, self.strangers = dict(parties), dict(strangers or {})
        self.asked: list[tuple[str, str]] = []

    def present(self) -> Mapping[str, Ask]:
        return {name: self._ask(name) for name in self.answers}

    def unknown(self) -> Mapping[str, Note]:
        return self.strangers

    def _ask(self, name: str) -> Ask:
        def ask(message: Message, most: int) -> Message:
            self.asked.append((name, str(message.about["ask"])))
            answer = self.answers[name](message)
            if answer.bytes > most:
                raise Refusal("too-much-sent", most=most)
            return answer

        return ask


def job_of(folder: Path, **order: Any) -> Job:
    whole = {"job": "first", "method": "one-shot", "parties": 3, "wait": 20.0, **order}
    return begin(folder / "server", JobConfig(**whole))


def done(job: Job, parties: Here) -> dict[str, Any]:
    job.poll = 0.05
    return run(job, parties, {"made": "here"})


def why(whole: dict[str, Any], name: str | None = None) -> Any:
    """The code of why a job ended, or of why a party is out."""
    item = (whole if name is None else whole["parties"][name])["why"]
    return None if item is None else item["code"]


def figures(whole: dict[str, Any], name: str | None = None) -> Any:
    return (whole if name is None else whole["parties"][name])["why"].get("figures", {})


def events(folder: Path, code: str) -> list[dict[str, Any]]:
    """What a job's events of one code say."""
    lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["code"] == code]


def refused(answer: Message) -> Any:
    """The code with which a party refused something."""
    item = answer.about["why"]
    return None if item is None else item["code"]


def approving(party: Party) -> Answer:
    """A party whose owner says yes to everything as soon as it waits."""

    def answer(message: Message) -> Message:
        found = party.answer(message)
        if found.about["state"] == "waiting":
            for item in waiting(Path(party.config.folder)):
                item.approve("figures")
            found = party.answer(message)
        return found

    return answer


class Clock:
    """Stands in for `time` and `threading` where a server waits for its parties. It runs, fast, while all that it still
    asks are silent, and stands still while one of them works: however slow the machine, no honest party is late."""

    Event = threading.Event

    def __init__(self) -> None:
        self.now, self.working, self.silent, self.over = 0.0, 0, 0, threading.Event()
        self._lock = threading.Lock()
        clock = self

        class Thread(threading.Thread):
            def start(self) -> None:
                with clock._lock:
                    clock.working += 1
                super().start()

            def run(self) -> None:
                try:
                    super().run()
                finally:
                    with clock._lock:
                        clock.working -= 1

        self.Thread = Thread

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.001))
        with self._lock:
            self.now += seconds if self.working == self.silent else 0.0

    @contextmanager
    def silence(self) -> Iterator[None]:
        """This thread says nothing for a while."""
        with self._lock:
            self.silent += 1
        try:
            yield
        finally:
            with self._lock:
                self.silent -= 1

    def settle(self) -> None:
        """Wait until no party works any more."""
        until(lambda: self.working == self.silent)


CLOCK = Clock()
"""Of the test that runs: the fixture `clock` sets it."""


def until(what: Callable[[], Any], seconds: float = 300.0) -> Any:
    """Wait for a condition; the limit is for what never comes."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)
    return found


def never(message: Message) -> Message:
    """A party that says nothing until the test is over."""
    with CLOCK.silence():
        CLOCK.over.wait()
    return message
