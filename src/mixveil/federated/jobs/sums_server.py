"""A server's side of rounds of sums: a plan for all parties, class sums, then a head that every round improves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mixveil.core import strict_json
from mixveil.features.projection import Projection
from mixveil.features.round_settings import nearest, noise_of
from mixveil.federated.jobs.asking import Check, Parties, agreeing, answered, check_enough, offered, ready, together
from mixveil.federated.jobs.inbox import Inbox
from mixveil.federated.jobs.job import Job, PartyStatus
from mixveil.federated.jobs.learning import with_most
from mixveil.federated.jobs.messages import INLINE, MANIFEST_LIMIT, SMALL, Ask, Message, Refusal
from mixveil.federated.jobs.serving import Delivery
from mixveil.federated.jobs.sums_plan import name_of
from mixveil.federated.jobs.sums_state import Stated, SumsState, load
from mixveil.learn import rounds
from mixveil.learn.layers import Layers
from mixveil.learn.rounds import State
from mixveil.learn.training import ProjectionWithDigest, Trained, TrainedOn
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.sums import SumSettings
from mixveil.releases.reading import read_envelope, read_release
from mixveil.theory import gdp

MOST = INLINE + MANIFEST_LIMIT + SMALL
"""Bytes of an answer with a manifest and small files."""


def learn_from_sums(job: Job, parties: Parties) -> Trained:
    """Class sums and rounds of residual sums, to which each party adds all of the noise."""
    state = begun(job, parties)
    while not state.done:
        inbox, kind = Inbox(job.folder, job.config.limit << 20), name_of(state.number)
        _one_message(job, parties, inbox, state)
        sent = {n: read_release(path) for n, path in inbox.arrived(kind).items() if n in state.stated}
        check_enough(job, len(sent), "too-few-in-round", number=state.number)

        def learn(names: list[str], trying: bool, state: SumsState = state, sent: Any = sent) -> State:
            parts = [sent[name] for name in names]
            if state.learnt is None:
                return rounds.from_class_sums(parts, state.settings)
            return rounds.from_residuals(state.learnt, parts, state.settings)

        learnt, names = with_most(job, inbox, kind, sorted(sent), learn)
        state = advanced(job, state, learnt, names)
    return trained(job, state)


def begun(job: Job, parties: Parties) -> SumsState:
    """The state of a job: as it was kept, with the parties that are still there, or of a new one."""
    kept = load(job.folder)
    if kept is not None:
        _count_sent(job, kept)
    stated = _ask(job, parties, None if kept is None else kept.names)
    if kept is not None:
        job.log("rounds-kept", rounds=kept.number)
        return replace(kept, stated={n: said for n, said in kept.stated.items() if stated.get(n) == said})
    agreed = agreeing(job, {name: said.classes for name, said in stated.items()}, "sums")
    stated = {name: stated[name] for name in sorted(agreed)}
    secure = job.identity.rules.secure
    mu = min(said.mu for said in stated.values())
    honest = min(said.honest or 1 for said in stated.values()) if secure else 1
    units = sum(said.units for said in stated.values())
    classes = len(next(iter(stated.values())).classes)
    noise = noise_of(units=units, classes=classes, mu=mu, parties=len(stated), honest=honest)
    state = SumsState(nearest(public(job)[0].rounds, noise), mu if secure else None, honest, stated)
    state.save(job.folder)
    _count_sent(job, state)
    job.log("plan-made", rounds=state.settings.rounds, directions=state.settings.directions, parties=len(stated))
    return state


def _count_sent(job: Job, state: SumsState) -> None:
    """How much of the plan each party has sent."""
    arrived = [path.name for number in range(state.number) for path in (job.folder / name_of(number)).glob("*")]
    for name in {*state.names, *arrived}:
        job.status(name).has_sent(arrived.count(name), state.settings.rounds + 1)


def _ask(job: Job, parties: Parties, among: list[str] | None) -> dict[str, Stated]:
    """What the parties say of themselves; each gets the projection."""
    found: dict[str, Stated] = {}
    projection = public(job)
    base = {**job.identity.plain(), "kind": "sums", "ask": "offer", "projection": projection[1]}

    def offer(name: str, ask: Ask, status: PartyStatus, check: Check) -> None:
        about = offered(job, name, ask, base, projection, check).about
        classes = strict_json.items("classes", about.get("classes"))
        found[name] = Stated(
            strict_json.count("units", about.get("units")),
            tuple(strict_json.text("class", item) for item in classes),
            strict_json.figure("mu", about.get("mu")),
            *(None if about.get(n) is None else strict_json.count(n, about.get(n)) for n in ("honest", "smallest")),
        )
        status.state, status.why = "willing", None
        status.has_sent(status.rounds, status.messages)

    together(job, parties, offer, among=among)
    check_enough(job, len(found), "too-few-sent", kind="sums")
    return dict(found)


def public(job: Job) -> ProjectionWithDigest:
    if job.projection is None:
        raise Refusal("projection-missing")
    return job.projection


def directions(job: Job, state: SumsState) -> Projection:
    """The job's projection in the directions that are used."""
    return public(job)[0].first(state.settings.directions)


def asked_for(job: Job, state: SumsState, ask: str, **more: Any) -> Message:
    """A question about the message that is next, with the head that its sums are of."""
    about = {**job.identity.plain(), "kind": "sums", "ask": ask, "number": state.number, "plan": state.asked()}
    files = {} if state.learnt is None else {"head": rounds.head_bytes(state.learnt.head)}
    return Message({**about, "projection": public(job)[1], **more}, files)


def delivery(job: Job, inbox: Inbox, state: SumsState) -> Delivery:
    """How the next message is taken from a party, and what it must be."""
    wide, digest = directions(job, state), public(job)[1]
    clip = state.plan.clip(wide.clip, residuals=state.learnt is not None)
    known = replace(wide, clip=clip), digest  # sums are clipped to their own norm
    return Delivery(job, inbox, name_of(state.number), known, _fits(state, clip))


def _fits(state: SumsState, clip: float) -> Callable[[Envelope], None]:
    """Refuses a manifest that is not of the sums that were asked for. Whose it is was checked before."""
    what = "classes" if state.learnt is None else "residuals"
    head = None if state.learnt is None else rounds.head_digest(state.learnt.head)

    def check(stated: Envelope) -> None:
        settings, said = stated.settings, state.stated[stated.party]
        right = isinstance(settings, SumSettings) and (settings.what, settings.units) == (what, said.units)
        right = right and stated.classes == said.classes and stated.assets.get("head") == head
        right = right and isinstance(settings, SumSettings) and settings.honest == state.honest
        if right and state.honest > 1 and isinstance(settings, SumSettings):
            wanted = state.plan.sigma(state.number, clip), state.plan.step(state.number, clip)
            right = (settings.sigma, settings.step) == wanted
        if not right:
            raise Refusal("not-these-sums", number=state.number)

    return check


def _one_message(job: Job, parties: Parties, inbox: Inbox, state: SumsState) -> None:
    """One message of every party that is still in it; those that are late are left out from then on."""
    message, there = asked_for(job, state, "sums"), inbox.arrived(name_of(state.number))
    expected = delivery(job, inbox, state)

    def step(name: str, ask: Ask, status: PartyStatus, check: Check) -> None:
        if name not in there:
            answer = ready(name, answered(job, name, ask, message, MOST, check))
            expected.take(answer, name, ask, status, check)
        status.has_sent(status.rounds + 1, status.messages)

    together(job, parties, step, among=state.names)


def advanced(job: Job, state: SumsState, learnt: State | None, names: list[str]) -> SumsState:
    """The state after a message that these parties sent, kept."""
    stated = {name: state.stated[name] for name in names}
    new = replace(state, learnt=learnt, stated=stated, number=state.number + 1)
    new.save(job.folder)
    of, parties = state.settings.rounds, len(state.stated)
    job.log("round-done", number=state.number, rounds=of, answered=len(names), parties=parties)
    return new


def trained(job: Job, state: SumsState) -> Trained:
    """The head, with the messages that it was made of and what they cost."""
    if state.learnt is None:
        raise Refusal("nothing-learnt", error="SecureSumError")
    wide, digest = directions(job, state), public(job)[1]
    sent = _sent(job)
    sources = tuple(
        TrainedOn(own.id, own.party, own.kind, own.rows, own.mu, own.unit_rows, 0.0 if own.certified else None)
        for own in sent
    )
    by_party: dict[str, list[Envelope]] = {}
    for own in sent:
        by_party.setdefault(own.party, []).append(own)
    spent, labels, alone = ({n: of(own) for n, own in by_party.items()} for of in (_spent, _labels, _alone))
    how = {"head": "linear", "method": job.identity.method, **state.settings.plain(), "messages": state.number}
    layers = Layers.of(rounds.discriminant_of(state.learnt.head), wide)
    made = layers, {**how, "honest": state.honest}, sent[0].classes, wide.extractor, wide.weights, digest, sources
    units = all(own.unit_rows > 1 for own in sent)
    known = {name: mu for name, mu in alone.items() if mu is not None} if state.honest > 1 else {}
    return Trained(*made, spent=spent, label_epsilon=labels, units=units, alone=known, honest=state.honest)


def _sent(job: Job) -> list[Envelope]:
    """All messages that arrived, also those that no head was learnt from."""
    folders: list[Path] = sorted(path for place in job.folder.glob("sums-*") for path in place.iterdir())
    return [read_envelope(path) for path in folders]


def _spent(own: list[Envelope]) -> float | None:
    return _composed([stated.mu for stated in own])


def _labels(own: list[Envelope]) -> float | None:
    return 0.0 if all(stated.certified for stated in own) else None


def _alone(own: list[Envelope]) -> float | None:
    """What the messages cost whatever other parties do."""
    figures: list[float | None] = []
    for stated in own:
        promised: Mapping[str, float] = {claim.name: claim.nominal for claim in stated.guarantees}
        figures.append(promised.get("gdp-alone", promised.get("gdp")))
    return _composed(figures)


def _composed(figures: list[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return gdp.compose(known) if len(known) == len(figures) else None
