"""A server's side of a job: ask every party, keep what comes, train on it, and send the model back.

Each party is asked in a thread of its own, so that none waits for another; and one that lies, or says nothing, costs
the others no more than the time that the coordinator is willing to wait.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save

from mixveil import files, projection, saved, strict
from mixveil import train as training
from mixveil.errors import MixveilError, RefusedError, TrainingError
from mixveil.federated.algorithms import Weights, average, new_head, weights_of
from mixveil.federated.inbox import Inbox, Kind
from mixveil.federated.jobs import Fate, Job
from mixveil.federated.parcel import INLINE, MANIFEST, MANIFEST_LIMIT, SMALL, Ask, Parcel
from mixveil.federated.slots import Slots
from mixveil.model import write_model
from mixveil.release import read_release
from mixveil.statistics import directions, read_statistics
from mixveil.train import Source, Trained

POLL = 5.0
"""Seconds between two questions to a party whose owner has not approved yet."""

_LOOK = 0.1  # seconds between two looks at the threads
_REMIND = 60.0  # seconds after which it is said who is waited for
_GRACE, _FAREWELL = 10.0, 10.0  # seconds for those that are slow to say hello, and to hear goodbye
_SENDING = Slots(3, 60.0)  # parties that send large files at a time
Check = Callable[[], None]
"""Called before anything is changed: it raises once nobody waits for it any more."""

Work = Callable[[str, Ask, Fate, Check], None]
"""What is done with a party: its name, how it is asked, its fate."""


class Fleet(Protocol):
    """The parties that can be reached."""

    def parties(self) -> Mapping[str, Ask]:
        """Those that are there now, by the names that their keys are known under. An `Ask` may wait long; it raises
        RefusedError where the party is gone for good, or is not who it says."""
        ...

    def refused(self) -> Mapping[str, str]:
        """Those that are there and are not talked to, and why."""
        ...


def run(job: Job, fleet: Fleet, about: Mapping[str, Any], *, poll: float = POLL) -> dict[str, Any]:
    """Do a job; how it ended. about: for the model's card."""
    try:
        _gather(job, fleet)
        trained = _rounds(job, fleet, poll) if job.order.by_rounds else _releases(job, fleet, poll)
        out = job.new_model()
        write_model(out, trained, None, about)
        job.say(f"the model is there: {out}")
        _return(job, fleet, out)
        return job.conclude(model=str(out), ok=True)
    except MixveilError as error:
        job.say(f"it ended without a model: {error}")
        _farewell(job, fleet, str(error))
        return job.conclude(model=None, ok=False, reason=str(error))


def _gather(job: Job, fleet: Fleet) -> None:
    """Wait until enough parties are there and willing, before any of them makes anything: that would cost it something.
    Each is told by which name its key is known here."""
    willing = set(Inbox(job.folder).arrived("records"))

    def hello(name: str, ask: Ask, fate: Fate, check: Check) -> None:
        _ready(name, ask(Parcel({**job.task.plain(), "ask": "hello", "you": name}), SMALL))
        check()
        willing.add(name)

    _together(job, fleet, hello, enough=lambda: len(willing) >= job.order.least)
    if len(willing) < job.order.least:
        raise RefusedError(
            f"{len(willing)} part(ies) are there and willing, and {job.order.least} are needed: nothing was made"
        )


def _farewell(job: Job, fleet: Fleet, reason: str) -> None:
    """Tell the parties that are there that it ended, if they can hear it soon."""

    def tell(name: str, ask: Ask, fate: Fate, check: Check) -> None:
        with contextlib.suppress(MixveilError):
            ask(Parcel({**job.task.plain(), "ask": "ended", "reason": reason[:500]}), SMALL)

    _together(job, fleet, tell, among=list(fleet.parties()), seconds=min(job.order.wait, _FAREWELL), quiet=True)


# Releases


def _releases(job: Job, fleet: Fleet, poll: float) -> Trained:
    inbox = Inbox(job.folder, job.order.limit << 20)
    known = job.known
    if job.task.method == "two-step" and known is not None:
        if not job.directions_path.exists():
            found = _collected(job, fleet, inbox, "statistics", known, poll)
            parts = [read_statistics(folder) for folder in found.values()]
            agreed = _agreeing(job, {part.party: (part.classes,) for part in parts}, "statistics")
            _set_aside(inbox, found, agreed, "statistics")
            narrow = directions([part for part in parts if part.party in agreed], *known)
            projection.write(job.directions_path, narrow)
            job.say(f"{narrow.dimension} directions were found from the statistics of {len(agreed)} part(ies)")
        known = projection.read(job.directions_path)
    found = _collected(job, fleet, inbox, "records", known, poll)
    releases = {name: read_release(folder) for name, folder in found.items()}
    stated = {name: (r.classes, r.shape, tuple(sorted(r.assets.items()))) for name, r in releases.items()}
    agreed = _agreeing(job, stated, "records")
    _set_aside(inbox, found, agreed, "records")
    opened = training.opened([found[name] for name in sorted(agreed)], known)
    job.say(f"training on {opened.rows:,} records of {len(agreed)} part(ies)")
    if job.order.head != "mlp":
        return training.train(opened)
    state = job.folder / ".training"
    trained = training.train_mlp(opened, recipe=job.order.recipe, state=state, note=job.say)
    saved.discard(state)
    return trained


def _collected(job: Job, fleet: Fleet, inbox: Inbox, kind: Kind, known: training.Known, poll: float) -> dict[str, Path]:
    """What all parties sent, in time: those that said nothing are left out, and that is said."""
    digest = None if known is None else known[1]
    about = {**job.task.plain(), "kind": kind}

    def take(name: str, fate: Fate, file: str, data: bytes) -> None:
        fate.bytes += len(data)
        inbox.take(name, kind, file, data)

    def deliver(name: str, ask: Ask, fate: Fate, check: Check) -> None:
        if name in inbox.arrived(kind):
            fate.state = "arrived"
            return
        answer = _offered(job, name, ask, {**about, "ask": "offer", "projection": digest}, known, fate, check, poll)
        fate.state, fate.why = "sending", ""
        with _dropping(inbox, name, kind):
            if MANIFEST not in answer.files:
                raise RefusedError(f"{MANIFEST} was asked for, and did not come")
            needed = inbox.offer(name, kind, answer.files[MANIFEST], known)
            for file, data in answer.files.items():  # small ones came with it
                if file != MANIFEST:
                    take(name, fate, file, data)
        for file, size in needed.items():
            if file not in answer.files:
                parcel = Parcel({**about, "ask": "file", "file": file})
                with _SENDING.held():
                    check()
                    got = _ready(name, ask(parcel, size + SMALL))
                check()
                with _dropping(inbox, name, kind):
                    take(name, fate, file, _file(got, file))
                del got  # before the next one comes
        check()
        with _dropping(inbox, name, kind):
            inbox.finish(name, kind)
        fate.state = "arrived"
        job.say(f"{name}: its {kind} are here ({fate.bytes / 1e3:,.0f} kB), checked")

    if before := inbox.arrived(kind):
        job.say(f"the {kind} of {', '.join(before)} came before, and are still here")
    _together(job, fleet, deliver)
    found = inbox.arrived(kind)
    _check_enough(job, len(found), kind)
    return found


@contextlib.contextmanager
def _dropping(inbox: Inbox, name: str, kind: Kind) -> Iterator[None]:
    """Of what is wrong nothing is kept. What did not come yet is not wrong."""
    try:
        yield
    except MixveilError:
        inbox.drop(name, kind)
        raise


def _offered(
    job: Job,
    name: str,
    ask: Ask,
    about: Mapping[str, Any],
    known: training.Known,
    fate: Fate,
    check: Check,
    poll: float,
) -> Parcel:
    """The answer of a party that has something to send; waits as long as its owner does."""
    projection = {} if known is None else {"projection": known[0].to_bytes()}
    parcel = Parcel(about, projection)
    while True:
        answer = _willing(name, ask(parcel, INLINE + MANIFEST_LIMIT + SMALL))
        check()
        said = answer.about.get("state")
        if said == "ready":
            return answer
        if said == "send projection" and projection and not parcel.files:
            parcel = Parcel(about, projection)
        elif said == "waiting":
            if fate.state != "waiting":
                fate.state, fate.why = "waiting", "its owner has not approved it yet"
                job.say(f"{name}: waits for its owner")
            parcel = Parcel(about)  # it has the projection
            time.sleep(poll)
        else:
            raise RefusedError(f"its answer is {strict.shown(said)}")


# Rounds


def _rounds(job: Job, fleet: Fleet, poll: float) -> Trained:
    """FedAvg, or FedProx: as `algorithms.federated` does it, with whoever answers in time."""
    order, recipe = job.order, job.order.recipe
    base = {**job.task.plain(), "kind": "updates", "extractor": order.extractor.plain()}
    ready: dict[str, dict[str, Any]] = {}

    def offer(name: str, ask: Ask, fate: Fate, check: Check) -> None:
        answer = _offered(job, name, ask, {**base, "ask": "offer", "projection": None}, None, fate, check, poll)
        weights = answer.about.get("weights")
        ready[name] = {
            "rows": strict.count("rows", answer.about.get("rows")),
            "inputs": strict.count("inputs", answer.about.get("inputs")),
            "classes": tuple(strict.text("class", c) for c in strict.items("classes", answer.about.get("classes"))),
            "weights": None if weights is None else strict.text("weights", weights, "[0-9a-f]{64}"),
        }
        fate.state, fate.why = "arrived", ""

    _together(job, fleet, offer)
    _check_enough(job, len(ready), "answers")
    agreed = _agreeing(job, {n: (r["classes"], r["inputs"], r["weights"]) for n, r in dict(ready).items()}, "answers")
    first = ready[min(agreed)]
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
            data = _file(_ready(name, ask(parcel, parcel.bytes + SMALL)), "weights")
            check()
            sent[name] = _weights(data, weights)
            fate.bytes, fate.rounds, fate.state = fate.bytes + len(data), fate.rounds + 1, "arrived"

        _together(job, fleet, step, among=going)
        _check_enough(job, len(sent), f"answers in round {number + 1}")
        going = [name for name in going if name in sent]  # who was late once is not waited for again
        weights = average((sent[name], ready[name]["rows"]) for name in going)
        _keep(job, names, number + 1, weights)
        job.say(f"round {number + 1} of {order.rounds}: {len(going)} of {len(names)} part(ies)")
    model.load_state_dict(dict(weights))
    layers = model.eval().layers()
    if not all(bool(tensor.isfinite().all()) for layer in layers.layers for tensor in layer):
        raise TrainingError("the trained layers are not finite: try a smaller learning rate")
    how = {"head": head, "method": order.method, "rounds": order.rounds, **asdict(recipe), "proximal": proximal}
    took = sorted(name for name in ready if name in names and (start or _fate(job, name).rounds))
    sources = tuple(Source(job.task.id, name, "updates", ready[name]["rows"], None) for name in took)
    nothing = dict.fromkeys(took)
    return Trained(
        layers, how, first["classes"], order.extractor, first["weights"], None, sources, nothing, nothing, False
    )


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
    with safe_open(path, framework="pt") as file:
        header = file.metadata() or {}
    number, names = int(header.get("rounds", "0")), header.get("parties", "").split(",")
    if not set(agreed) <= set(names):
        return 0, agreed, first
    job.say(f"{number} round(s) were done before: going on from there")
    return number, names, _weights(path.read_bytes(), first)


# All parties at once


def _together(
    job: Job,
    fleet: Fleet,
    work: Work,
    *,
    among: Iterable[str] | None = None,
    enough: Callable[[], bool] | None = None,
    seconds: float | None = None,
    quiet: bool = False,
) -> None:
    """Do the same with every party, each in a thread of its own, until all are done or the time is over. enough: that
    many are, so that it may end before all came; quiet: nothing is said of those that did not."""
    wanted = None if among is None else set(among)
    expected = job.order.parties if wanted is None else len(wanted)
    limit = job.order.wait if seconds is None else seconds
    threads: dict[str, threading.Thread] = {}
    over = threading.Event()

    def check() -> None:
        if over.is_set():
            raise _Late

    begun = told = time.monotonic()
    while True:
        job.turn_away(fleet.refused())
        for name, ask in fleet.parties().items():
            if name not in threads and (wanted is None or name in wanted) and _fate(job, name).state not in _OUT:
                threads[name] = threading.Thread(target=_one, args=(job, name, ask, work, check), daemon=True)
                threads[name].start()
        out = {name for name, fate in job.fates.items() if fate.state in _OUT and (wanted is None or name in wanted)}
        settled = out | {name for name, thread in threads.items() if not thread.is_alive()}
        busy = threads.keys() - settled
        now, missing = time.monotonic(), expected - len(settled | busy)
        if not busy and missing <= 0:
            break
        if enough is not None and enough() and (not busy or now >= begun + min(_GRACE, limit)):
            over.set()
            return
        absent = (job.names if wanted is None else wanted) - (settled | busy)
        if now >= begun + limit:
            if not quiet:
                job.say(f"{limit:g} s are over: going on without {_names(busy, absent, missing)}")
            break
        if now >= told + _REMIND and not quiet:
            told = now
            job.say(f"waiting for {_names(busy, absent, missing)}; {begun + limit - now:.0f} s left")
        time.sleep(_LOOK)
    over.set()
    for name in busy:
        fate = _fate(job, name)
        fate.why = fate.why or f"it did not finish within {limit:g} s"


def _names(busy: Iterable[str], absent: Collection[str], missing: int) -> str:
    """Who is waited for: those that are at work, and those that did not come, by their names where it is these."""
    others = sorted(absent) if len(absent) == missing else [f"{missing} that never came"] if missing > 0 else []
    return ", ".join([*sorted(busy), *others])


def _one(job: Job, name: str, ask: Ask, work: Work, check: Check) -> None:
    """Work with one party; what goes wrong with it concerns it alone."""
    fate = _fate(job, name)
    try:
        work(name, ask, fate, check)
        return
    except _Late:
        return
    except _UnwillingError as error:
        found = error.state, str(error)
    except MixveilError as error:
        found = "rejected", f"{error} ({type(error).__name__})"
    except Exception as error:
        found = "failed", f"on the server: {error} ({type(error).__name__})"
    with contextlib.suppress(_Late):
        check()
        fate.state, fate.why = found
        job.say(f"{name}: {fate.state}: {fate.why}")


_OUT = ("rejected", "refused", "failed")
"""States of parties that are not asked again in this run."""


class _Late(Exception):  # noqa: N818
    """The time is over: what is done now is done for nobody."""


class _UnwillingError(RefusedError):
    """A party said no."""

    def __init__(self, why: str, state: str) -> None:
        super().__init__(why)
        self.state = state


def _willing(name: str, answer: Parcel) -> Parcel:
    """An answer, unless it is no, or another's."""
    said, party = answer.about.get("state"), answer.about.get("party")
    if said in ("refused", "failed"):
        reason = answer.about.get("reason")
        text = reason if isinstance(reason, str) and reason.isprintable() else "it does not say why"
        raise _UnwillingError(text[:500], str(said))
    if party != name:
        raise RefusedError(f"it says it is {strict.shown(party)}, and its key is {name}'s")
    return answer


def _ready(name: str, answer: Parcel) -> Parcel:
    if _willing(name, answer).about.get("state") != "ready":
        raise RefusedError(f"its answer is {strict.shown(answer.about.get('state'))}")
    return answer


def _file(answer: Parcel, name: str) -> bytes:
    if set(answer.files) != {name}:
        raise RefusedError(f"{name} was asked for, and {sorted(answer.files)!r:.80} came")
    return answer.files[name]


def _fate(job: Job, name: str) -> Fate:
    return job.fates.setdefault(name, Fate())


def _agreeing(job: Job, stated: Mapping[str, Hashable], what: str) -> set[str]:
    """The parties that say the same of their rows: the most there are. The others do not belong to this job."""
    if not stated:
        return set()
    (most, count), *others = Counter(stated.values()).most_common(2)
    if others and others[0][1] == count:
        sides = [[name for name, said in sorted(stated.items()) if said == side] for side in (most, others[0][0])]
        raise RefusedError(
            f"{', '.join(sides[0])} and {', '.join(sides[1])} do not have the same classes, shapes and features, and "
            f"neither are more: take the {what} of some out of {job.folder}, and start it again"
        )
    agreed = {name for name, said in stated.items() if said == most}
    for name in sorted(stated.keys() - agreed):
        fate = _fate(job, name)
        fate.state, fate.why = "rejected", "it has other classes, shapes or features than most parties"
        job.say(f"{name}: rejected: {fate.why}")
    _check_enough(job, len(agreed), f"{what} that agree")
    return agreed


def _set_aside(inbox: Inbox, found: Mapping[str, Path], agreed: set[str], kind: Kind) -> None:
    for name in found.keys() - agreed:
        inbox.set_aside(name, kind)


def _check_enough(job: Job, count: int, what: str) -> None:
    if count < job.order.least:
        raise RefusedError(f"{count} part(ies) sent {what}, and {job.order.least} are needed at least")


def _return(job: Job, fleet: Fleet, out: Path) -> None:
    """Send the model to every party that is there and was not rejected."""
    parcel = Parcel(
        {**job.task.plain(), "ask": "model"},
        {name: (out / name).read_bytes() for name in ("model.safetensors", "card.json")},
    )

    def give(name: str, ask: Ask, fate: Fate, check: Check) -> None:
        try:
            _ready(name, ask(parcel, SMALL))
            fate.returned = True
        except MixveilError as error:
            job.say(f"{name} did not take the model: {error}")

    names = [name for name in fleet.parties() if _fate(job, name).state not in _OUT]
    _together(job, fleet, give, among=names)
    got = [name for name in names if _fate(job, name).returned]
    job.say(f"the model went back to {', '.join(sorted(got)) or 'nobody'}")
