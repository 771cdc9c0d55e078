"""What a party keeps of one job, in a folder: which job it is, projections and models that came, files to send.

Whether a job may go on is decided by the party's settings, by what its owner said, and by the total of its ledger. No
record enters any of these, so a server may hear the answer.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mixveil.core import files
from mixveil.core.errors import DataFormatError
from mixveil.core.wording.notes import Note, note
from mixveil.features import projection_file
from mixveil.federated.jobs import approval
from mixveil.federated.jobs.approval import ENDED, ENTERED, FREE, REFUSED, Question
from mixveil.federated.jobs.messages import MODELS_LIMIT, PROJECTION_LIMIT, JobId, Message, Refusal, now
from mixveil.federated.jobs.party_config import PartyConfig
from mixveil.federated.jobs.sums_folder import SumsFolder
from mixveil.federated.methods.base import COVERED, Kind
from mixveil.learn.model import CARD, TENSORS, read_model
from mixveil.releases.ledger import Ledger
from mixveil.releases.spending import within

UPDATES = "updates.json"
"""The file that says which records the rounds of a job were entered with."""

_MODEL = (TENSORS, CARD)
_MOST_MODELS = 20


class JobFolder:
    """What a party keeps of one job."""

    def __init__(self, folder: Path, config: PartyConfig, job: JobId, log: Callable[[Note], None]) -> None:
        self.config, self.job, self.log = config, job, log
        self.folder = folder / f"{job.name}-{job.id}"
        self.sums = SumsFolder(self.folder)

    # Which job it is

    def check_same(self) -> None:
        """An id is one job's of one server for ever: what was allowed for it is not allowed for another."""
        if not (stored := self._stored):
            return
        if JobId.read(stored) != self.job:
            raise Refusal("other-job")
        if stored["settings"].get("server") != self.config.server:
            raise Refusal("other-server")

    def begin(self) -> None:
        """Write down which job this is, and with which settings. Once something is entered they stay what they were,
        and nothing is made with others: neither its owner nor its first step knew of them."""
        stored, plain = self._stored, self.config.plain()
        if stored and self.begun:
            before = stored["settings"]
            others = {name for name in before.keys() | plain.keys() if before.get(name) != plain.get(name)}
            if others - {*FREE} and self._missing:
                raise Refusal("settings-changed")
            return
        if stored and stored["settings"] == plain:
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write_json(self.folder / "job.json", {**self.job.plain(), "begun": now(), "settings": plain})

    @property
    def _stored(self) -> dict[str, Any]:
        path = self.folder / "job.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}

    @property
    def begun(self) -> bool:
        """Whether anything of it was entered in the ledger."""
        return (self.folder / ENTERED).exists()

    def resume(self) -> None:
        """The server goes on with a job that it had ended."""
        (self.folder / ENDED).unlink(missing_ok=True)

    def end(self) -> bool:
        """The server gave it up: what is not made is not held back from other jobs. Whether there was such a job."""
        if not self.folder.exists() or (self.folder / ENDED).exists():
            return False
        (self.folder / ENDED).touch(0o600)
        self.free()
        return True

    def free(self) -> None:
        """Nothing is held for it in the ledger any more."""
        if self.reserved:
            Ledger().free(self.reserved_as)

    @property
    def reserved_as(self) -> str:
        return approval.reserved_as(self.config.party, self.job)

    @property
    def reserved(self) -> bool:
        """Whether the ledger holds the μ of all its messages: then that counts as spent."""
        return self.reserved_as in Ledger().reservations()

    def forget(self) -> None:
        """Keep nothing of a job that failed before anything was entered, but what its owner said of it."""
        if self.begun or not self.folder.exists():
            return
        self.free()
        self.sums.unpin()
        for path in self.folder.glob("projection-*"):
            path.unlink()
        if not any(self.folder.glob("approved-*")) and not (self.folder / REFUSED).exists():
            shutil.rmtree(self.folder, ignore_errors=True)

    # Whether it may go on

    def check_affordable(self) -> None:
        """Refuse a job that the budgets do not allow, with all that is still to be made for it. All releases of the
        ledger count together, whichever records they hold: no record enters the decision."""
        missing, config = self._missing, self.config
        limit, label_limit = config.limit, config.label_limit
        if not missing or self.reserved or (limit is None and label_limit is None):
            return
        total, share = config.total, len(missing) / len(self.job.rules.sends)
        held, held_labels = self._held()
        per_job = math.inf if not self.job.rules.targets or config.mu is None else self.sums.left(config.mu)
        mu = math.sqrt(total.mu**2 + held + per_job**2 * share)
        shows = {*missing} - COVERED
        labels = total.label_epsilon + held_labels + (config.label_epsilon or math.inf) if shows else 0.0
        name = self.job.name
        if limit is not None and total.unbounded:
            self.log(note("beyond-budget-unbounded", job=name, budget=limit))
        elif limit is not None and not within(mu, limit):
            self.log(note("beyond-budget", job=name, mu=mu, budget=limit, spent=total.mu))
        elif label_limit is not None and not within(labels, label_limit):
            self.log(note("beyond-label-budget", job=name, epsilon=labels, budget=label_limit))
        else:
            return
        raise Refusal("over-budget")

    def _held(self) -> tuple[float, float]:
        """Σμ² and Σε of the steps of other jobs that are still to come, where earlier ones are paid."""
        mu = labels = 0.0
        for path in self.folder.parent.parent.glob("*/*/job.json"):
            folder, stored = path.parent, json.loads(path.read_text(encoding="utf-8"))
            job = JobId.read(stored)
            steps = job.rules.sends
            open_steps = sum(not (folder / kind).exists() for kind in steps)
            paid = 0 < open_steps < len(steps)
            if folder == self.folder or not paid or (folder / ENDED).exists() or approval.is_over(folder, job):
                continue
            settings = stored["settings"]
            mu += settings["mu"] ** 2 * open_steps / len(steps)
            labels += settings.get("label-epsilon", 0.0)  # of the last step, the only one that shows labels
        return mu, labels

    @property
    def _missing(self) -> list[Kind]:
        """The steps for which nothing is made yet."""
        return [kind for kind in self.job.rules.sends if not self.made(kind)]

    def made(self, kind: Kind) -> bool:
        return (self.folder / (UPDATES if kind == "updates" else kind)).exists()

    def agreed(self, question: Question) -> bool:
        """Whether its owner need not be asked, or said yes."""
        if (self.folder / REFUSED).exists():
            raise Refusal("owner-refused")
        must_ask = self.config.approve or not self.job.rules.targets
        asked = must_ask if question == "job" else not self.config.certified
        return not asked or approval.is_approved(self.folder, question)

    # What a server sends

    def lacks(self, digest: str | None, message: Message) -> bool:
        """Whether a projection is named that neither came nor is here."""
        return digest is not None and "projection" not in message.files and not self.projection_path(digest).exists()

    def projection_path(self, digest: str) -> Path:
        return self.folder / f"projection-{digest[:16]}.safetensors"

    def keep_projection(self, digest: str, message: Message) -> None:
        """Keep the projection that came with a message."""
        path = self.projection_path(digest)
        if path.exists():
            return
        if len(list(self.folder.glob("projection-*"))) >= len(self.job.rules.sends):
            raise Refusal("projections-exhausted")
        data = message.files["projection"]
        if len(data) > PROJECTION_LIMIT:
            raise Refusal("projection-too-large", bytes=len(data), most=PROJECTION_LIMIT)
        files.check_space(path, len(data))
        if hashlib.sha256(data).hexdigest() != digest:
            raise Refusal("projection-other")
        files.write_whole(path, data, 0o600)
        try:
            projection_file.read(path)
        except DataFormatError:
            path.unlink()
            raise Refusal("projection-unreadable") from None

    def keep_model(self, message: Message) -> None:
        """Keep the model that came back, beside those that came before."""
        if set(message.files) != set(_MODEL):
            raise Refusal("model-incomplete")
        if not self.begun:
            raise Refusal("took-no-part")
        kept = sum(path.stat().st_size for path in self.folder.glob("model*/*"))
        if kept + message.bytes > MODELS_LIMIT:
            raise Refusal("models-too-large", most=MODELS_LIMIT, bytes=kept)
        files.check_space(self.folder, message.bytes)
        for out in self._models():
            if out.exists():
                if all((out / name).read_bytes() == message.files[name] for name in _MODEL):
                    return
                continue
            with files.atomic_folder(out, "model", 0o700) as folder:
                for name in _MODEL:
                    files.write_file(folder / name, message.files[name], 0o600)
                try:
                    read_model(folder)
                except DataFormatError:
                    raise Refusal("model-unreadable") from None
            self.log(note("model-here", job=self.job.name, path=str(out)))
            self.free()
            return

    def _models(self) -> Iterator[Path]:
        yield self.folder / "model"
        for number in range(2, _MOST_MODELS + 1):
            yield self.folder / f"model-{number}"
        raise Refusal("too-many-models", most=_MOST_MODELS)
