"""A server's side of secure sums in a job: it relays what the parties sign, and sees the sum of their messages alone.

An attempt that fails before any party has masked costs nothing, and is begun again. One that fails later has used up
its message: the next attempt is the next message, at that message's share of μ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from mixveil.core import randomness
from mixveil.federated.jobs.asking import Check, Parties, answered, check_enough, ready, together
from mixveil.federated.jobs.inbox import Inbox
from mixveil.federated.jobs.job import Job, PartyStatus
from mixveil.federated.jobs.messages import Ask, Message, Refusal
from mixveil.federated.jobs.sums_plan import name_of
from mixveil.federated.jobs.sums_server import MOST, advanced, asked_for, begun, delivery, directions, trained
from mixveil.federated.jobs.sums_state import SumsState
from mixveil.federated.roster import LEAST
from mixveil.federated.secure_sums import summed
from mixveil.learn import rounds
from mixveil.learn.class_means import Totals, of_sum
from mixveil.learn.rounds import State
from mixveil.learn.training import Trained
from mixveil.releases.reading import read_release
from mixveil.theory import shared_noise

_TRIES = 5
"""Attempts at one message that may fail before any party has masked."""


@dataclass(frozen=True)
class _Failed:
    """An attempt without a sum. names: the parties that are still there; used: whether a party has masked."""

    names: list[str]
    used: bool


def learn_from_secure_sums(job: Job, parties: Parties) -> Trained:
    """Class sums and rounds of residual sums over all parties, of which the server sees the sums alone."""
    state, tries = begun(job, parties), 0
    _check_total(job, state)
    while not state.done:
        _check_set(job, state)
        state = replace(state, attempt=state.attempt + 1)
        state.save(job.folder)
        found = _attempt(job, parties, state)
        if isinstance(found, Totals):
            state, tries = advanced(job, state, _learnt(job, state, found), state.names), 0
            continue
        job.log("sum-failed", number=state.number, parties=len(found.names), used=found.used)
        tries = 0 if found.used else tries + 1
        if tries == _TRIES:
            raise Refusal("no-sum", number=state.number)
        state = advanced(job, state, state.learnt, found.names) if found.used else _without(state, found.names)
    return trained(job, state)


def _learnt(job: Job, state: SumsState, found: Totals) -> State:
    clip = state.plan.clip(directions(job, state).clip, residuals=state.learnt is not None)
    if state.learnt is None:
        return rounds.first(found, clip, state.settings)
    return rounds.improved(state.learnt, found, clip, state.settings)


def _without(state: SumsState, names: list[str]) -> SumsState:
    return replace(state, stated={name: state.stated[name] for name in names})


def _check_set(job: Job, state: SumsState) -> None:
    """Refuse to go on with fewer parties than any of them accepts, or than share the noise."""
    smallest = [said.smallest or LEAST for said in state.stated.values()]
    needed = max([LEAST, state.honest, *smallest])
    if len(state.stated) < needed:
        raise Refusal("set-too-small", count=len(state.stated), needed=needed)
    check_enough(job, len(state.stated), "too-few-in-round", number=state.number)


def _check_total(job: Job, state: SumsState) -> None:
    """Refuse sums that could leave the numbers that masks have."""
    plan, record = state.plan, directions(job, state).clip
    units = max((said.units for said in state.stated.values()), default=1)
    for number, residuals in ((0, False), (1, False), (1, True)):
        clip = plan.clip(record, residuals=residuals)
        largest = 2 * units * clip + (randomness.NORMAL_BOUND + 1) * plan.sigma(number, clip)
        shared_noise.check_total(max(1, len(state.stated)), largest, plan.step(number, clip))


def _attempt(job: Job, parties: Parties, state: SumsState) -> Totals | _Failed:
    """One attempt at the next message: announce, agree, and collect what was masked."""
    names: dict[str, Any] = {"parties": state.names, "attempt": state.attempt}
    announced = _asked(job, parties, state, asked_for(job, state, "announce", **names))
    made = {name: answer.about["made"] for name, answer in announced.items() if "made" in answer.about}
    if made.keys() == state.stated.keys() and _one_context(made, state):
        return _collected(job, parties, state, {"attempt": -1})  # a server was killed while it collected them
    if made or announced.keys() != state.stated.keys():
        return _Failed(sorted(announced), bool(made))
    signed = _signed(announced, "announcement")
    agreed = _asked(job, parties, state, _short(asked_for(job, state, "agree", signed=signed, **names)))
    if agreed.keys() != state.stated.keys() or _gone(agreed):
        return _Failed(sorted(agreed), False)
    return _collected(job, parties, state, {"signed": _signed(agreed, "agreement"), **names})


def _collected(job: Job, parties: Parties, state: SumsState, more: Mapping[str, Any]) -> Totals | _Failed:
    """The masked messages of all parties, and their sum."""
    inbox, kind = Inbox(job.folder, job.config.limit << 20), name_of(state.number)
    message, answers = _short(asked_for(job, state, "sums", **more)), dict[str, Message]()
    there, expected = inbox.arrived(kind), delivery(job, inbox, state)

    def step(name: str, ask: Ask, status: PartyStatus, check: Check) -> None:
        answers[name] = answer = ready(name, answered(job, name, ask, message, MOST, check))
        if "gone" in answer.about:
            return
        if name not in there:
            expected.take(answer, name, ask, status, check)
        status.has_sent(status.rounds + 1, status.messages)

    together(job, parties, step, among=state.names)
    sent = {n: path for n, path in inbox.arrived(kind).items() if n in answers and "gone" not in answers[n].about}
    contexts = {name: answers[name].about.get("context") for name in sent}
    if sent.keys() != state.stated.keys() or not _one_context(contexts, state):
        return _Failed(sorted(n for n in answers if n in sent or "gone" in answers[n].about), True)
    parts = {name: read_release(path) for name, path in sent.items()}
    first = parts[min(parts)].payload
    total = summed({n: part.payload.numpy().tobytes() for n, part in parts.items()}, state.names, first.numel())
    return of_sum(torch.from_numpy(total).view(first.shape), [parts[name] for name in state.names])


def _asked(job: Job, parties: Parties, state: SumsState, message: Message) -> dict[str, Message]:
    """What the parties that are in it answer."""
    found: dict[str, Message] = {}

    def step(name: str, ask: Ask, status: PartyStatus, check: Check) -> None:
        found[name] = ready(name, answered(job, name, ask, message, MOST, check))

    together(job, parties, step, among=state.names)
    return dict(found)


def _one_context(contexts: Mapping[str, Any], state: SumsState) -> bool:
    """Whether all masked for the same attempt, and for the set of parties that is still there: else masks stay."""
    first = contexts[min(contexts)]
    return all(found == first for found in contexts.values()) and isinstance(first, list) and first[1:] == state.names


def _signed(answers: Mapping[str, Message], name: str) -> list[Any]:
    return [answers[party].about.get(name) for party in sorted(answers)]


def _gone(answers: Mapping[str, Message]) -> bool:
    """Whether a party has lost the keys of this attempt: it started again."""
    return any("gone" in answer.about for answer in answers.values())


def _short(message: Message) -> Message:
    """Without the head, which parties have from the first question of the attempt."""
    return Message(message.about)
