"""Runs the attacks of an audit, each as it declares itself, and has their guesses measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from mixveil.attacks.shared.base import CannotAttackError
from mixveil.attacks.shared.training import TrainingCache, with_cache
from mixveil.audit import known_records, self_test
from mixveil.audit.asking import BrokenAttackError, guess_of, own_code
from mixveil.audit.figures import AttackRun, Figure, Status, Subject
from mixveil.audit.ground_truth import GroundTruth
from mixveil.audit.groups import GROUPS, LEAST_STRANGERS, UnitView, groups
from mixveil.audit.measuring import Measure, counted
from mixveil.audit.metrics import detection, sources
from mixveil.audit.ties import pairs_right
from mixveil.audit.write_guard import WriteGuard, WrittenError
from mixveil.core.errors import ArgumentError, TrainingError
from mixveil.core.randomness import Stream
from mixveil.core.types import Attack, Guess, KnownRecords, Units, View
from mixveil.core.wording.notes import Note, note
from mixveil.data.row_views import Subset

_CONTROLS = 3  # releases without the records, on which they must not be told from strangers
_TRIED = 150  # steps of a training that only shows whether there is one

Outcome = tuple[Status, Note | None]
Stage = Literal["tried", "control", "attack", "alone", "measured"]
Did = Callable[[Attack, Stage], None]


class Judge:
    """Runs attacks; `measure` keeps what came of them."""

    def __init__(
        self,
        truth: GroundTruth,
        measure: Measure,
        *,
        units: UnitView | Note,
        pairs: tuple[int, int],
        cache: TrainingCache,
        stream: Stream,
        did: Did = lambda attack, stage: None,
    ) -> None:
        """units: what attacks on whole units see, or why there is nothing to see; pairs: how many rows the attacks on
        pairs are asked about, and among how many candidates; cache: where attacks train; did: is told which stage of
        an attack (`work.Stages`) is over."""
        self.truth, self.measure, self.units, self.cache, self.stream = truth, measure, units, cache, stream
        self.pair_rows, self.pair_candidates = pairs
        self.did = did
        none = torch.empty(0, dtype=torch.int64)
        known = KnownRecords(none, truth.pixels[:0])
        self._offered = replace(truth.view, known=known, units=Units(none, none, none))  # the judge deals these out
        views = [truth.view] if isinstance(units, Note) else [truth.view, units.view]
        asked = [truth.asked, None if isinstance(units, Note) else units.asked]
        self._guard = WriteGuard(views, [candidates for candidates in asked if candidates is not None])

    def run(self, attack: Attack) -> AttackRun:
        before, best = len(self.measure.figures), len(self.measure.best.found)
        try:
            status, why = self._run(attack)
        except CannotAttackError as error:
            status, why = "skipped", error.why
        except ArgumentError as error:
            status, why = "skipped", note("attack-refused", error=type(error).__name__)
        except TrainingError as error:
            status, why = "broken", note("training-failed", error=type(error).__name__)
        except BrokenAttackError as error:
            status, why = "broken", error.why
        except WrittenError:
            status, why = "broken", note("attack-wrote")
            self._forget()
        if status != "ran":  # what was measured before it failed does not count
            del self.measure.figures[before:]
            del self.measure.best.found[best:]
            for guesses in (self.measure.images, self.measure.errors, self.measure.pictures, self.measure.curves):
                guesses.pop(attack.name, None)
        return told(attack, status, why)

    def _forget(self) -> None:
        """What attacks remember of a view that was written to."""
        self.truth = replace(self.truth, view=replace(self.truth.view))
        if isinstance(self.units, UnitView):
            self.units = replace(self.units, view=replace(self.units.view))

    def _guess(self, attack: Attack, view: View, name: str) -> Guess:
        """What the attack makes of a view, with draws of this name."""
        with self._guard:
            return guess_of(attack, view, stream=self.stream.fork(name))

    def _draws(self, attack: Attack, what: str) -> Stream:
        """For a release without a defence, or a control: those of this attack alone, whichever others there are."""
        return self.stream.fork(f"{what} {attack.name}")

    def _unable(self, attack: Attack) -> Note | None:
        """Why the attack says that it cannot be run."""
        with own_code():
            return attack.cannot(self._offered)

    def can(self, attack: Attack) -> bool:
        """Whether there is nothing that keeps the attack from being run."""
        try:
            return self.cannot(attack) is None
        except (BrokenAttackError, ArgumentError, TrainingError):
            return False

    def cannot(self, attack: Attack) -> Note | None:
        """Why the attack cannot be run, or not be measured, on these releases; None if it can."""
        truth = self.truth
        if "units" in attack.needs:
            return self.units if isinstance(self.units, Note) else self._unable(attack) or self.units.cannot()
        if "pictures" in attack.needs and truth.pictures is None:
            return note("attack-needs-features")
        if (why := self._unable(attack)) is not None:
            return why
        if attack.kind == "membership" and truth.strangers < LEAST_STRANGERS:
            return note("attack-needs-strangers", least=LEAST_STRANGERS, strangers=truth.strangers)
        if attack.kind == "signs" and truth.signs is None:
            return note("attack-needs", fields="traces")
        if attack.kind == "covers" and truth.covered is None:
            return note("attack-needs", fields="covers")
        if attack.kind == "grouping" and truth.view.traces is None:
            return note("attack-needs", fields="traces")
        if attack.kind == "grouping" and not sources.some_share(truth.view.traces or ()):
            return note("no-rows-share-a-source")
        if attack.kind == "pairs" and not len(self._askable()):
            return note("no-row-of-two-classes")
        if "pictures" in attack.needs and truth.pictures is not None and truth.view.pictures is not None:
            own, public = truth.pictures.shape[1:], truth.view.pictures.take(torch.arange(1)).x.shape[1:]
            if own != public:
                sizes = ("×".join(map(str, size)) for size in (own, public))
                return note("pictures-of-other-size", private=next(sizes), public=next(sizes))
        return None

    def _run(self, attack: Attack) -> Outcome:
        if (why := self.cannot(attack)) is not None:
            return "skipped", why
        if "units" in attack.needs and isinstance(self.units, UnitView):
            return self._on_units(attack, self.units)
        if (why := self._broken(attack)) is not None:
            return "broken", why
        self.did(attack, "tried")
        if attack.kind == "pairs":
            self.measure.figures.append(self._pairs(attack))
            return "ran", None
        if attack.kind == "membership" and (why := self._told_by_looks(attack)) is not None:
            return "skipped", why
        self.did(attack, "control")
        if "known" in attack.needs:
            self._with_known_records(attack)
            return "ran", None
        return self._plainly(attack)

    def _plainly(self, attack: Attack) -> Outcome:
        """On the view as it is; and without public data too, where an attack can learn from released records instead
        what records are like: an owner should see the better guess. Attackers who look for labels are not told them."""
        view = self.truth.view if attack.kind != "labels" else replace(self.truth.view, labels=None)
        guess, why = self._guess(attack, view, attack.name), None
        self.did(attack, "attack")
        learns = attack.learns and attack.payload == "records" and attack.kind in ("reconstruction", "linkage")
        if learns and view.public is not None and "public" not in attack.needs:
            alone = self._guess(attack, replace(view, public=None), attack.name)
            if self.measure.better(attack, alone, guess):
                guess, why = alone, note("better-without-public-data")
            del alone  # guesses of large images fill the memory
        self.did(attack, "alone")
        self.measure(attack, guess)
        self.did(attack, "measured")
        return "ran", why

    def _on_units(self, attack: Attack, seen: UnitView) -> Outcome:
        """Are whole units told from strangers in their places?"""
        if (why := self_test.fails_on_bare_units(attack, seen, self._draws(attack, "bare"))) is not None:
            return "broken", why
        if (why := self._units_told_by_looks(attack, seen)) is not None:
            return "skipped", why
        units, members = groups(seen.whose, len(seen.whose), seen.strangers, self._draws(attack, "groups"), GROUPS)
        scores = torch.as_tensor(self._guess(attack, replace(seen.view, units=units), attack.name).scores)
        self.measure.membership(attack, scores[:members], scores[members:], "unit")
        return "ran", None

    def _with_known_records(self, attack: Attack) -> None:
        """With a tenth, half and nine tenths of the records known, each guessed while it is not; by the best of up to
        three priors: from public data, from the release, and from the known records themselves."""
        view, pixels = self.truth.view, self.truth.pixels
        unaided = [(replace(view, public=None), False)] if view.public is not None else []
        taught = [(replace(view, public=None), True)] if pixels[0].numel() <= known_records.TAUGHT_VALUES else []
        order = self.stream.fork(attack.name).permutation(len(pixels))
        stages: tuple[Stage, ...] = ("attack", "alone", "measured")
        for share, stage in zip(known_records.SHARES, stages, strict=True):  # guesses of large images fill the memory
            parts, best = known_records.folds(order, share), None
            for seen, by_known in [(view, False), *unaided, *taught]:
                stream = self.stream.fork(attack.name)
                with self._guard:
                    guess = known_records.guessed(attack, seen, pixels, parts, stream, taught=by_known)
                if best is None or self.measure.better(attack, Guess(guess), Guess(best)):
                    best = guess
            if best is not None:
                self.measure.reconstruction(attack, best, known=share)
            self.did(attack, stage)

    def _broken(self, attack: Attack) -> Note | None:
        """Why it shows nothing here: it fails even where there is no defence."""
        truth, stream = self.truth, self._draws(attack, "bare")
        if attack.kind in ("prior", "labels"):
            return None
        if attack.kind == "pairs":
            return self_test.fails_on_bare_pairs(attack, truth.view, truth.own, stream)
        others = truth.pixels[:0] if truth.view.candidates is None else truth.view.candidates[truth.n :]
        brief = TrainingCache(max_steps=_TRIED, watch=lambda text: self.cache.watch(f"trying {text}"))
        briefly = with_cache(attack, brief)
        if attack.payload in self_test.OF_PAYLOAD:
            return self_test.OF_PAYLOAD[attack.payload](briefly, truth.view, truth.own, stream)
        if attack.kind == "signs":
            return self_test.fails_on_bare_signs(briefly, truth.view, truth.own, stream)
        return self_test.fails_on_bare_records(briefly, truth.view, truth.own, others, stream, truth.pictures)

    def _told_by_looks(self, attack: Attack) -> Note | None:
        """Whether the attack tells the records from the strangers on releases that hold neither: then what it finds on
        the real one says nothing of membership. Records that look alike score alike, and by chance on a single release
        as strangers do: several are tried."""
        view, n = self.truth.view, self.truth.n
        if view.public is None or view.traces is None:
            return None
        for _ in range(_CONTROLS):
            control = self._control(attack, view, min(n, len(view.public)))
            scores = self._guess(attack, control, f"control {attack.name}").scores
            why = None if scores is None else _look_different(scores[:n], scores[n:], self.truth.strangers)
            if why is not None:
                return why
        return None

    def _units_told_by_looks(self, attack: Attack, seen: UnitView) -> Note | None:
        """The same of units and of strangers in their places."""
        if seen.view.public is None:
            return None
        rows = min(len(seen.whose), len(seen.view.public))
        units, members = groups(seen.whose[:rows], len(seen.whose), seen.strangers, self._draws(attack, "groups"))
        control = replace(self._control(attack, seen.view, rows), units=units)
        scores = self._guess(attack, control, f"control {attack.name}").scores
        return None if scores is None else _look_different(scores[:members], scores[members:], members)

    def _control(self, attack: Attack, view: View, rows: int) -> View:
        """The same view of a release that holds public rows alone."""
        first = view.releases[0]
        part = Subset(view.public or self.truth.own, torch.arange(rows))
        release, plan = self_test.released(first, first.encoder, part, self._draws(attack, "released"), view.covers)
        return replace(view, releases=(release,), traces=(plan,))

    def _askable(self) -> Tensor:
        """Rows of two records of different classes: their labels show the weights, which the attacks on pairs need.
        Both records must be among those that can be candidates."""
        traces, labels, n = self.truth.view.traces, self.truth.labels, self.truth.n
        if traces is None or traces[0].partner.shape[1] != 1:
            return torch.empty(0, dtype=torch.int64)
        partner = traces[0].partner[:, 0]
        apart = labels != labels[partner.clamp(max=n - 1)]
        return ((partner < n) & apart).nonzero()[: self.pair_rows, 0]

    def _pairs(self, attack: Attack) -> Figure:
        """All pairs of candidates are too many to try for every row: ask about a few rows, with their sources hidden
        among a few dozen candidates."""
        view, labels, n = self.truth.view, self.truth.labels, self.truth.n
        rows = self._askable()
        partner = view.traces[0].partner[:, 0] if view.traces else torch.arange(n)
        sources = torch.cat([rows, partner[rows], torch.arange(n)]).tolist()
        chosen = list(dict.fromkeys(sources))[: max(self.pair_candidates, 2 * len(rows))]
        place = {source: number for number, source in enumerate(chosen)}
        release = view.releases[0].with_(payload=Subset(view.releases[0].payload, rows))
        asked = View((release,), candidates=self.truth.pixels[chosen], candidate_labels=labels[chosen])
        guess = self._guess(attack, asked, attack.name)
        truth = torch.tensor([[place[row], place[int(partner[row])]] for row in rows.tolist()])
        shown = labels[chosen] if "candidate_labels" in attack.needs else torch.zeros_like(labels[chosen])
        pixels = self.truth.pixels[chosen]
        hits = 0.0 if guess.pairs is None else pairs_right(guess.pairs, truth, pixels, shown)
        chance = 2 / (len(chosen) * (len(chosen) - 1))
        if "candidate_labels" in attack.needs:  # only pairs of the right classes are left to guess from
            counts = labels[chosen].bincount(minlength=len(self.truth.records.classes)).double()
            chance = float((1 / counts[labels[rows]] / counts[labels[partner[rows]]]).mean())
        return counted(attack, "pair-found", hits, len(rows), chance)


def told(attack: Attack, status: Status, why: Note | None) -> AttackRun:
    of: Subject = "unit" if "units" in attack.needs else "record"
    return AttackRun(attack.name, attack.kind, of, attack.trains, attack.threat, status, why)


def _look_different(members: Tensor, others: Tensor, trials: int) -> Note | None:
    """Whether scores of both differ where neither is in the release. trials: how many independent ones `others` are
    worth."""
    auc = detection.auc(members, others)
    chance = math.sqrt((1 / len(members) + 1 / trials) / 12)
    return None if abs(auc - 0.5) < max(0.05, 5 * chance) else note("strangers-look-different", auc=auc)
