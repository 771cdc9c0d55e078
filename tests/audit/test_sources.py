"""What is measured of attacks on the making of rows: covers, shared sources, distributions; and what an audit says."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import ClassVar

import pytest
import torch

from mixveil.attacks.catalogue import ATTACKS
from mixveil.attacks.records.inner_product import InnerProduct
from mixveil.attacks.records.public_search import PublicSearch
from mixveil.attacks.shared.base import BaseAttack
from mixveil.audit.auditing import audit
from mixveil.audit.found import Audit
from mixveil.audit.metrics import detection, sources
from mixveil.audit.verdict import warnings
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import AttackKind, Encoder, Guess, Mu, Trace, View
from mixveil.data.covers import patches
from mixveil.encoders.identity import Identity
from mixveil.encoders.instahide import CalibratedInstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from mixveil.releases.records import traced_in_memory
from tests.audited import digits, figure
from tests.made import range_facts

DATA, OTHERS = digits(0, 100), digits(300, 900)
PATCHES = patches(OTHERS, DATA, count=200, keypoints=0, stream=SeededStream(1))
INSTAHIDE = CalibratedInstaHide(k=4, c1=0.65, c2=0.3, covers=200, pad=0, values=64, centre=0.5)
CERTIFIED = Singular().calibrate(Mu(1.0), range_facts(DATA))[0]
NAMES = ["braverman", "braverman-whitened", "inner-product", "inner-product-squares", "public-search"]


def audited(encoder: Encoder, names: list[str], releases: int = 1) -> Audit:
    pairs = [
        traced_in_memory(
            DATA, encoder, (), party="p", stream=SeededStream(seed), covers=PATCHES if encoder.covers else None
        )
        for seed in range(releases)
    ]
    view = View(tuple(release for release, _ in pairs), tuple(trace for _, trace in pairs))
    return audit(view, DATA, names=names, stream=SeededStream(1), covers=OTHERS if encoder.covers else None)


def test_covers_are_counted_among_the_first() -> None:
    scores = torch.arange(16.0).flip(0).repeat(3, 1)  # cover 0 first
    scores[2] = 0.0
    found = sources.covers(scores, torch.tensor([[3, 9], [4, 5], [1, 1]]))
    assert found.hits == 1  # of the first four; where all are equal, each is in the middle
    several = sum(not {0, 1, 2, 3}.isdisjoint(pair) for pair in combinations(range(16), 2)) / math.comb(16, 2)
    assert abs(found.chance - (2 * several + 4 / 16) / 3) < 1e-12
    assert found.rank == sorted([3, 9, 4, 5, 7.5, 7.5])[2] / 16 / 2 + sorted([3, 9, 4, 5, 7.5, 7.5])[3] / 16 / 2


def test_rows_share_a_source_if_a_slow_loop_says_so() -> None:
    n, stream = 12, SeededStream(2)
    traces = tuple(Mixup(3).plan(n, stream=stream.fork("plan")) for _ in range(2))
    held = [{row % n, *traces[row // n].partner[row % n].tolist()} for row in range(2 * n)]
    alike = stream.normal(2 * n, 2 * n)
    pairs = [(i, j) for i in range(2 * n) for j in range(2 * n) if i != j]
    yes = torch.stack([alike[i, j] for i, j in pairs if held[i] & held[j]])
    no = torch.stack([alike[i, j] for i, j in pairs if not held[i] & held[j]])
    best = [max((j for j in range(2 * n) if j != i), key=lambda j: float(alike[i, j])) for i in range(2 * n)]
    found = sources.shared(alike, traces)
    assert found is not None and abs(found.auc - detection.auc(yes, no)) < 1e-12
    assert found.nearest == sum(bool(held[i] & held[j]) for i, j in enumerate(best)) and found.rows == 2 * n
    assert abs(found.chance - len(yes) / len(pairs)) < 1e-12


def test_of_many_rows_some_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Mixup().plan(30, stream=SeededStream(1))
    alike = SeededStream(2).normal(30, 30)
    monkeypatch.setattr(sources, "_PAIRS", 150)
    found = sources.shared(alike, (trace,))
    assert found is not None and found.rows == 5


def test_records_are_named_under_their_own_numbers() -> None:
    """Against a slow loop over rows of two releases: eight records with rows, others and covers without."""
    n, stream = 8, SeededStream(4)
    drawn = [(stream.uniform(n, k - 1) * 14).long() for k in (2, 4)]
    traces = tuple(Trace(partner, torch.ones(n, partner.shape[1] + 1)) for partner in drawn)
    held = [{row % n, *drawn[row // n][row % n].tolist()} & {*range(n)} for row in range(2 * n)]
    right = torch.tensor([[*own, *[-1] * (4 - len(own))] for own in held])
    guess = torch.where(stream.uniform(2 * n, 1) < 0.5, right, (stream.uniform(2 * n, 4) * n).long())
    hits = sum({*mine} - {-1} == own for mine, own in zip(guess.tolist(), held, strict=True))
    found = sources.named(guess.flip(1), traces, n)
    assert found is not None and (found.hits, found.rows) == (hits, 2 * n) and 0 < hits < 2 * n
    alone = sum(len(own) == 1 for own in held) / (2 * n)
    assert 1 / n < alone <= found.chance < 0.5  # naming the row's own record and nobody else
    other = ((right + 1) % n).masked_fill(right < 0, -1)  # other names, which a challenge would allow
    assert sources.linked(other, right, n, renamed=True)[0] == (1, 1)
    renamed = sources.named(other, traces, n)
    assert renamed is not None and renamed.hits < hits
    wild = sources.named(torch.full((2 * n, 1), 99), traces, n)
    assert wild is not None and wild.hits == 0


def test_rows_of_one_record_each_have_nothing_to_name() -> None:
    alone = Trace(torch.empty(4, 0, dtype=torch.int64), torch.ones(4, 1))
    covered = Trace(torch.full((4, 2), 9), torch.ones(4, 3))
    guess = torch.arange(4)[:, None]
    assert sources.named(guess, (alone,), 4) is None and sources.named(guess, (covered,), 4) is None
    paired = Trace(torch.tensor([[1], [0], [3], [2]]), torch.full((4, 2), 0.5))
    found = sources.named(torch.tensor([[1, 0], [1, 0], [2, 3], [2, -1]]), (paired,), 4)
    assert found is not None and found.hits == 3 and found.chance >= 0.25


def test_where_nothing_is_shared_there_is_nothing_to_measure() -> None:
    alone = Trace(torch.empty(4, 0, dtype=torch.int64), torch.ones(4, 1))
    assert sources.shared(torch.zeros(4, 4), (alone,)) is None and not sources.some_share((alone,))
    paired = Trace(torch.tensor([[1], [0], [3], [2]]), torch.full((4, 2), 0.5))
    assert sources.some_share((alone, alone)) and sources.some_share((paired,))


def test_p_values_are_corrected_for_their_number() -> None:
    assert sources.told_apart(torch.tensor([[0.004, 0.5], [0.006, 0.5], [0.5, 1e-9]])) == 2


def test_an_audit_says_what_mixup_with_covers_gives_away() -> None:
    found = audited(Mixup(4, 200), NAMES)
    assert figure(found, "public-search", "cover-found") > 0.8 > figure(found, "braverman-whitened", "cover-found")
    assert figure(found, "public-search", "cover-rank") < 0.05 and figure(found, "public-search", "snr-db") > 0.5
    assert figure(found, "inner-product", "shared-source-auc") > 0.7
    codes = [told.code for told in (*found.verdict, *found.warnings)]
    assert {"verdict-covers", "verdict-grouped", "covers-recognised", "rows-grouped"} <= set(codes)
    best = next(told for told in found.verdict if told.code == "verdict-covers")
    assert best.figures["attack"] == "public-search" and codes.count("verdict-covers") == 1


def test_an_audit_says_what_instahide_hides_and_what_not() -> None:
    found = audited(INSTAHIDE, NAMES)
    chance = next(row.know_nothing or 0 for row in found.figures if row.metric == "cover-found")
    assert figure(found, "public-search", "cover-found") < chance + 0.1
    assert figure(found, "braverman-whitened", "cover-found") > 3 * chance
    assert abs(figure(found, "inner-product", "shared-source-auc") - 0.5) < 0.1
    assert "covers-recognised" in {told.code for told in found.warnings}


def test_an_audit_of_a_certified_release_finds_nothing_shared() -> None:
    found = audited(CERTIFIED, ["inner-product", "inner-product-squares"])
    assert abs(figure(found, "inner-product", "shared-source-auc") - 0.5) < 0.1
    assert not {"rows-grouped", "covers-recognised"} & {told.code for told in found.warnings}


def test_many_releases_are_told_apart_and_few_are_not_tried() -> None:
    found = audited(Identity(), ["kolmogorov-smirnov", "inner-product"], releases=20)
    assert figure(found, "kolmogorov-smirnov", "told-apart") == 1
    assert figure(found, "inner-product", "nearest-shares-source") == 1
    assert {"verdict-told-apart", "records-told-apart"} <= {told.code for told in (*found.verdict, *found.warnings)}
    found = audited(Identity(), ["kolmogorov-smirnov", "inner-product", "public-search"])
    why = {run.attack: run.why.code for run in found.attacks if run.why is not None}
    assert why == {
        "kolmogorov-smirnov": "attack-needs-releases",
        "inner-product": "no-rows-share-a-source",
        "public-search": "attack-needs-covers",
    }


def test_without_traces_nothing_can_be_measured_of_groups() -> None:
    release, _ = traced_in_memory(DATA, Mixup(), (), party="p", stream=SeededStream(0))
    found = audit(View((release,)), DATA, names=["inner-product"], stream=SeededStream(1))
    assert [run.why.code for run in found.attacks if run.why is not None] == ["attack-needs"]


@dataclass(frozen=True)
class Naming(BaseAttack):
    """Gives records away: a reconstruction that also says who is in which row, and which rows share a record."""

    name: ClassVar[str] = "naming"
    kind: ClassVar[AttackKind] = "reconstruction"
    threat: ClassVar[str] = "threat-prior"
    needs: ClassVar[frozenset[str]] = frozenset({"traces", "candidates"})
    linear: ClassVar[bool] = False

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        traces, n = view.traces or (), len(view.releases[0].payload)
        held = torch.cat([torch.cat([torch.arange(n)[:, None], trace.partner], dim=1) for trace in traces])
        alike = (held[:, None, :, None] == held[None, :, None, :]).any(-1).any(-1).double()
        images = torch.as_tensor(view.candidates)[:n]
        return Guess(images=images, sources=held.masked_fill(held >= n, -1), alike=alike)


def test_a_reconstruction_may_name_records_and_rows_that_share_one() -> None:
    with ATTACKS.including(Naming):
        found, bare = audited(INSTAHIDE, ["naming"], 2), audited(Identity(), ["naming"])
    assert [(run.status, run.kind) for run in found.attacks] == [("ran", "reconstruction")]
    share = next(row for row in found.figures if row.metric == "sources-found")
    assert share.mean == 1 and share.interval is not None and (share.know_nothing or 0) < 0.05
    assert figure(found, "naming", "nearest-shares-source") == figure(found, "naming", "shared-source-auc") == 1
    codes = {told.code for told in (*found.verdict, *found.warnings)}
    assert {"verdict-sources", "sources-recognised", "verdict-grouped"} <= codes
    assert "sources-found" not in {row.metric for row in bare.figures}  # the order of rows says it


@dataclass(frozen=True)
class Groping(InnerProduct):
    """Says nothing of any two rows."""

    name: ClassVar[str] = "groping"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        rows = sum(len(release.payload) for release in view.releases)
        return Guess(alike=stream.normal(rows, rows))


@dataclass(frozen=True)
class Searching(PublicSearch):
    """Says nothing of any cover."""

    name: ClassVar[str] = "searching"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        return Guess(covers=stream.normal(len(view.releases[0].payload), len(view.covers or ())))


def test_attacks_that_fail_without_a_defence_are_broken() -> None:
    with ATTACKS.including(Groping, Searching):
        found = audited(Mixup(4, 200), ["groping", "searching"])
    assert {run.attack: (run.status, run.why and run.why.code) for run in found.attacks} == {
        "groping": ("broken", "bare-groups-missed"),
        "searching": ("broken", "bare-covers-missed"),
    }
    assert not found.figures


def test_a_warning_needs_more_than_chance() -> None:
    found = audited(INSTAHIDE, ["public-search", "inner-product"])
    assert not {"rows-grouped", "covers-recognised"} & {told.code for told in found.warnings}
    share = next(row for row in found.figures if row.metric == "cover-found")
    much = replace(share, mean=0.9, interval=(0.8, 0.95))
    assert "covers-recognised" in {told.code for told in warnings(replace(found, figures=(much,)))}
