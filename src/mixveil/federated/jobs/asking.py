"""All parties at once: each is asked in a thread of its own, so that none waits for another; and one that lies, or says
nothing, costs the others no more than the time that the coordinator is willing to wait."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, Protocol

from mixveil.core import strict_json
from mixveil.core.errors import MixveilError, RefusedError
from mixveil.federated.jobs.messages import INLINE, MANIFEST_LIMIT, SMALL, Ask, Parcel
from mixveil.federated.jobs.orders import Fate, Job
from mixveil.learn.training import ProjectionWithDigest

_LOOK = 0.1  # seconds between two looks at the threads
_REMIND = 60.0  # seconds after which it is said who is waited for
_GRACE = 10.0  # seconds for those that are slow, where enough others are done
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


def together(
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
            if name not in threads and (wanted is None or name in wanted) and fate_of(job, name).state not in OUT:
                threads[name] = threading.Thread(target=_one, args=(job, name, ask, work, check), daemon=True)
                threads[name].start()
        out = {name for name, fate in job.fates.items() if fate.state in OUT and (wanted is None or name in wanted)}
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
        fate = fate_of(job, name)
        fate.why = fate.why or f"it did not finish within {limit:g} s"


def _names(busy: Iterable[str], absent: Collection[str], missing: int) -> str:
    """Who is waited for: those that are at work, and those that did not come, by their names where it is these."""
    others = sorted(absent) if len(absent) == missing else [f"{missing} that never came"] if missing > 0 else []
    return ", ".join([*sorted(busy), *others])


def _one(job: Job, name: str, ask: Ask, work: Work, check: Check) -> None:
    """Work with one party; what goes wrong with it concerns it alone."""
    fate = fate_of(job, name)
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


OUT = ("rejected", "refused", "failed")
"""States of parties that are not asked again in this run."""


class _Late(Exception):  # noqa: N818
    """The time is over: what is done now is done for nobody."""


class _UnwillingError(RefusedError):
    """A party said no."""

    def __init__(self, why: str, state: str) -> None:
        super().__init__(why)
        self.state = state


def willing(name: str, answer: Parcel) -> Parcel:
    """An answer, unless it is no, or another's."""
    said, party = answer.about.get("state"), answer.about.get("party")
    if said in ("refused", "failed"):
        reason = answer.about.get("reason")
        text = reason if isinstance(reason, str) and reason.isprintable() else "it does not say why"
        raise _UnwillingError(text[:500], str(said))
    if party != name:
        raise RefusedError(f"it says it is {strict_json.shown(party)}, and its key is {name}'s")
    return answer


def ready(name: str, answer: Parcel) -> Parcel:
    if willing(name, answer).about.get("state") != "ready":
        raise RefusedError(f"its answer is {strict_json.shown(answer.about.get('state'))}")
    return answer


def file(answer: Parcel, name: str) -> bytes:
    if set(answer.files) != {name}:
        raise RefusedError(f"{name} was asked for, and {sorted(answer.files)!r:.80} came")
    return answer.files[name]


def answered(job: Job, name: str, ask: Ask, parcel: Parcel, most: int, fate: Fate, check: Check, poll: float) -> Parcel:
    """A party's answer; waits as long as its owner does. most: bytes that it may have."""
    while True:
        answer = willing(name, ask(parcel, most))
        check()
        if answer.about.get("state") != "waiting":
            return answer
        if fate.state != "waiting":
            fate.state, fate.why = "waiting", "its owner has not approved it yet"
            job.say(f"{name}: waits for its owner")
        time.sleep(poll)


def offered(
    job: Job,
    name: str,
    ask: Ask,
    about: Mapping[str, Any],
    known: ProjectionWithDigest | None,
    fate: Fate,
    check: Check,
    poll: float,
) -> Parcel:
    """The answer of a party that has something to send. It gets the projection when it says that it has it not."""
    most = INLINE + MANIFEST_LIMIT + SMALL
    answer = answered(job, name, ask, Parcel(about), most, fate, check, poll)
    if answer.about.get("state") == "send projection" and known is not None:
        parcel = Parcel(about, {"projection": known[0].to_bytes()})
        answer = answered(job, name, ask, parcel, most, fate, check, poll)
    return ready(name, answer)


def fate_of(job: Job, name: str) -> Fate:
    return job.fates.setdefault(name, Fate())


def agreeing(job: Job, stated: Mapping[str, Hashable], what: str) -> set[str]:
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
        fate = fate_of(job, name)
        fate.state, fate.why = "rejected", "it has other classes, shapes or features than most parties"
        job.say(f"{name}: rejected: {fate.why}")
    check_enough(job, len(agreed), f"{what} that agree")
    return agreed


def check_enough(job: Job, count: int, what: str) -> None:
    if count < job.order.least:
        raise RefusedError(f"{count} part(ies) sent {what}, and {job.order.least} are needed at least")
