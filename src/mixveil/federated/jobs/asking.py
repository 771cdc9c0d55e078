"""All parties at once: each is asked in a thread of its own, so that none waits for another. One that lies, or does not
answer, costs the others no more than the time that the coordinator is willing to wait."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from mixveil.core import strict_json
from mixveil.core.errors import MixveilError
from mixveil.core.wording.jobs import REFUSED
from mixveil.core.wording.notes import Note, note
from mixveil.federated.jobs.job import OUT, Job, PartyStatus, State
from mixveil.federated.jobs.messages import INLINE, MANIFEST_LIMIT, SMALL, Ask, Message, Refusal, reason, told

if TYPE_CHECKING:
    from mixveil.learn.training import ProjectionWithDigest

_LOOK = 0.1  # seconds between two looks at the threads
_REMIND = 60.0  # seconds after which it is said which parties are waited for
_GRACE = 10.0  # seconds for those that are slow, where enough others are done
Check = Callable[[], None]
"""Called before anything is changed: it raises once the time is over."""

Work = Callable[[str, Ask, PartyStatus, Check], None]
"""What is done with a party: its name, how it is asked, its status."""


class Parties(Protocol):
    """The parties that can be reached."""

    def present(self) -> Mapping[str, Ask]:
        """Those that are there now, by the names that their keys are known under. An `Ask` may wait long; it raises
        Refusal where the party is gone for good, or is another than it says."""
        ...

    def unknown(self) -> Mapping[str, Note]:
        """Nodes that are there and are not talked to, and why."""
        ...


def together(
    job: Job,
    parties: Parties,
    work: Work,
    *,
    among: Iterable[str] | None = None,
    enough: Callable[[], bool] | None = None,
    seconds: float | None = None,
    quiet: bool = False,
    all_of_them: bool = False,
) -> None:
    """Do the same with every party, each in a thread of its own, until all are done or the time is over. enough:
    whether it may end before all came; quiet: those that did not come are not logged; all_of_them: those that are out
    too."""
    wanted = None if among is None else set(among)
    expected = job.config.parties if wanted is None else len(wanted)
    limit = job.config.wait if seconds is None else seconds
    threads: dict[str, threading.Thread] = {}
    over = threading.Event()

    def check() -> None:
        if over.is_set():
            raise _Late

    begun = reminded = time.monotonic()
    while True:
        job.reject_unknown(parties.unknown())
        out = {n for n, status in list(job.statuses.items()) if status.state in OUT and not all_of_them}
        for name, ask in parties.present().items():
            if name not in threads and (wanted is None or name in wanted) and name not in out:
                threads[name] = threading.Thread(target=_one, args=(job, name, ask, work, check), daemon=True)
                threads[name].start()
        out = {n for n, status in list(job.statuses.items()) if status.state in OUT and not all_of_them}
        settled = (out if wanted is None else out & wanted) | {n for n, t in threads.items() if not t.is_alive()}
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
                job.log("time-over", seconds=limit, parties=_listed(busy, absent, missing))
            break
        if now >= reminded + _REMIND and not quiet:
            reminded = now
            job.log("waiting-for", parties=_listed(busy, absent, missing), seconds=begun + limit - now)
        time.sleep(_LOOK)
    over.set()
    for name in busy:
        status = job.status(name)
        status.why = status.why or note("not-in-time", seconds=limit)


def _listed(busy: Iterable[str], absent: Collection[str], missing: int) -> Note:
    """The parties at work, and those that did not come: by their names, where these are known."""
    names, unnamed = sorted(busy), max(0, missing)
    if len(absent) == missing:
        names, unnamed = [*names, *sorted(absent)], 0
    if names and unnamed:
        return note("parties-named-and-absent", names=names, absent=unnamed)
    return note("parties-absent", absent=unnamed) if unnamed else note("parties-named", names=names)


def _one(job: Job, name: str, ask: Ask, work: Work, check: Check) -> None:
    """Work with one party; what goes wrong with it concerns it alone."""
    state: State
    try:
        work(name, ask, job.status(name), check)
        return
    except _Late:
        return
    except _UnwillingError as error:
        state, why = error.state, error.note
    except MixveilError as error:
        state, why = "rejected", reason(error, "check-failed")
    except Exception as error:
        state, why = "failed", reason(error, "server-failed")
    with contextlib.suppress(_Late):
        check()
        job.exclude(name, state, why)


class _Late(Exception):  # noqa: N818
    """The time is over: nothing is changed any more."""


class _UnwillingError(Refusal):
    """A party said no."""

    def __init__(self, state: State, why: Note) -> None:
        super().__init__(why.code, **why.figures)
        self.state = state


def willing(name: str, answer: Message) -> Message:
    """An answer, unless it is no, or another party's."""
    state, party = answer.about.get("state"), answer.about.get("party")
    if state == "refused" or state == "failed":
        raise _UnwillingError("refused" if state == "refused" else "failed", told(answer.about.get("why"), REFUSED))
    if party != name:
        raise Refusal("says-another-name", named=strict_json.shown(party), party=name)
    return answer


def ready(name: str, answer: Message) -> Message:
    if willing(name, answer).about.get("state") != "ready":
        raise Refusal("unexpected-answer", answer=strict_json.shown(answer.about.get("state")))
    return answer


def only_file(answer: Message, name: str) -> bytes:
    if set(answer.files) != {name}:
        raise Refusal("other-files", file=name, sent=strict_json.shown(sorted(answer.files)))
    return answer.files[name]


def answered(job: Job, name: str, ask: Ask, message: Message, most: int, check: Check) -> Message:
    """A party's answer; waits as long as its owner does. most: bytes that it may have."""
    status = job.status(name)
    while True:
        answer = willing(name, ask(message, most))
        check()
        if answer.about.get("state") != "waiting":
            return answer
        if status.state != "waiting":
            status.state, status.why = "waiting", None
            job.log("party-waits", name)
        time.sleep(job.poll)


def offered(
    job: Job, name: str, ask: Ask, about: Mapping[str, Any], projection: ProjectionWithDigest | None, check: Check
) -> Message:
    """The answer of a party that has something to send. A party that lacks the projection gets it."""
    most = INLINE + MANIFEST_LIMIT + SMALL
    answer = answered(job, name, ask, Message(about), most, check)
    if answer.about.get("state") == "send projection" and projection is not None:
        message = Message(about, {"projection": projection[0].to_bytes()})
        answer = answered(job, name, ask, message, most, check)
    return ready(name, answer)


def agreeing(job: Job, stated: Mapping[str, Hashable], kind: str) -> set[str]:
    """The largest group of parties that say the same of their rows. The others do not belong to this job."""
    if not stated:
        return set()
    (most, count), *others = Counter(stated.values()).most_common(2)
    if others and others[0][1] == count:
        first, second = ([n for n, said in sorted(stated.items()) if said == s] for s in (most, others[0][0]))
        raise Refusal("no-majority", first=", ".join(first)[:80], second=", ".join(second)[:80], kind=kind)
    agreed = {name for name, said in stated.items() if said == most}
    for name in sorted(stated.keys() - agreed):
        job.exclude(name, "rejected", note("differs-from-most"))
    check_enough(job, len(agreed), "too-few-agree-on-data", kind=kind)
    return agreed


def check_enough(job: Job, count: int, code: str, **figures: Any) -> None:
    if count < job.config.min_parties:
        raise Refusal(code, count=count, needed=job.config.min_parties, **figures)
