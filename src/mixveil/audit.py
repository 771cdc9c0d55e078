"""The audit: every attack that the view allows, measured against the truth and set beside what theory permits.

The attacks see a View; only the judge sees the truth. The result shows private data and stays with the owner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from mixveil.attacks import attacks as known_attacks
from mixveil.errors import ArgumentError
from mixveil.judge import FPR, Judge, Promise, Ran, Row
from mixveil.keys import Stream
from mixveil.metrics import detection
from mixveil.truth import check_truth
from mixveil.types import Attack, Dataset, View

LABELS = (
    "The labels are not protected: whoever gets the release reads the classes of every row and how many records of "
    "each class there are. In a hospital the label is the diagnosis."
)
MOST_VALUES = 1 << 25
"""Rows times values that an audit holds in memory."""

Watch = Callable[[str], None]


@dataclass(frozen=True)
class Audit:
    releases: tuple[str, ...]
    certified: bool
    rows: tuple[Row, ...]
    attacks: tuple[Ran, ...]
    promises: tuple[Promise, ...]
    warnings: tuple[str, ...]
    verdict: tuple[str, ...]
    images: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    curves: Mapping[str, detection.Roc] = field(default_factory=dict, repr=False)


def audit(
    view: View,
    truth: Dataset,
    *,
    others: Tensor | None = None,
    names: Sequence[str] | None = None,
    profile: str = "quick",
    stream: Stream,
    watch: Watch = lambda _: None,
) -> Audit:
    """Attack the releases of `truth` in every way that the view allows.

    others: (m, …) images that are not in the releases, for membership. names: the attacks to run (all).
    profile: `quick` or `full`: how many pairs are tried."""
    size = len(truth) * torch.Size(truth.shape).numel()
    if size > MOST_VALUES:
        raise ArgumentError(f"the audit holds all rows in memory: {size:,} values are more than {MOST_VALUES:,}")
    unsure = check_truth(view, truth)
    everything = truth.take(torch.arange(len(truth))).x
    candidates = everything if others is None else torch.cat([everything, others])
    view = replace(view, candidates=candidates)
    judge = Judge(view, truth, everything, 0 if others is None else len(others), stream, profile)
    chosen = _chosen(names)
    rows: list[Row] = []
    ran: list[Ran] = []
    for name, attack in chosen.items():
        watch(name)
        ran.append(judge.run(name, attack, rows))
    promises = tuple(judge.promises())
    warnings = (*_warnings(view, rows, ran, promises), *judge.noise_faults(), *unsure)
    return Audit(
        releases=tuple(release.id for release in view.releases),
        certified=all(release.certified for release in view.releases),
        rows=tuple(rows),
        attacks=tuple(ran),
        promises=promises,
        warnings=warnings,
        verdict=tuple(_verdict(rows, warnings, view)),
        images=judge.images,
        curves=judge.curves,
    )


def _chosen(names: Sequence[str] | None) -> dict[str, Attack]:
    known = known_attacks()
    for name in names or ():
        if name not in known:
            raise ArgumentError(f"attack must be one of {', '.join(known)}, got {name!r}")
    return {name: kind() for name, kind in known.items() if names is None or name in names}


def _warnings(view: View, rows: list[Row], ran: list[Ran], promises: tuple[Promise, ...]) -> list[str]:
    said = [LABELS]
    said += [
        f"{row.attack} beats its ceiling: {row.metric} {row.mean:.4g}, where {row.ceiling:.4g} should be the best. The "
        f"claim of this release is false, or this audit is."
        for row in rows
        if row.beaten
    ]
    for promise in promises:
        if promise.broken and promise.name == "noise":
            said.append(
                f"The noise is not what the release says: σ = {promise.found:.4g} was found, {promise.nominal:.4g} is "
                f"stated. Every figure that rests on it is false. Do not send this release."
            )
        elif promise.broken:
            said.append(
                f"{promise.name}: {promise.nominal:.4g} was asked for, on these records it is {promise.found:.4g}: the "
                f"nominal figure does not hold."
            )
    said += [f"{item.attack} is broken: {item.why}" for item in ran if item.status == "broken"]
    if any(release.reproducible for release in view.releases):
        said.append("The noise came from a seeded stream: whoever finds the seed removes it. Do not send this release.")
    if any(not release.guarantees for release in view.releases):
        said.append("A release states no guarantee at all: it is for experiments, do not send it.")
    return said


def _verdict(rows: list[Row], warnings: tuple[str, ...], view: View) -> list[str]:
    """In plain words, with reasons: what the best attack of each kind got."""
    said = []
    errors = [row for row in rows if row.metric == "mse" and row.attack != "prior"]
    if errors:
        best = min(errors, key=lambda row: row.mean)
        gained = 1 - best.mean / best.know_nothing if best.know_nothing else 0.0
        amount = "next to nothing" if gained < 0.02 else "something" if gained < 0.2 else "a great deal"
        said.append(
            f"Pictures: the best of these attacks ({best.attack}) takes away {max(gained, 0):.1%} of the error of "
            f"knowing nothing: on average it gets {amount} of the images."
        )
    for metric, words in (
        (
            "row identified",
            "Recognition: with the original at hand this attack finds its row for {mean:.1%} of the records",
        ),
        (
            "pair found",
            "Recognition: with both sources among others these attacks name them for {mean:.1%} of the rows",
        ),
        (f"tpr at {FPR:.0%} fpr", "Membership: this attack finds {mean:.1%} of the members at 1 % false alarms"),
    ):
        found = [row for row in rows if row.metric == metric]
        if found:
            top = max(found, key=lambda row: row.mean)
            chance = "" if top.know_nothing is None else f" (guessing: {top.know_nothing:.2%})"
            bound = "" if top.ceiling is None else f"; as μ is stated no attack finds more than {top.ceiling:.1%}"
            said.append(words.format(mean=top.mean) + chance + bound + ".")
    for kind, metrics in (
        ("Pictures", {"mse"}),
        ("Recognition", {"row identified", "pair found"}),
        ("Membership", {f"tpr at {FPR:.0%} fpr"}),
    ):
        if not any(row.metric in metrics and row.attack != "prior" for row in rows):
            said.append(f"{kind}: NOT tested, no attack of this kind could run; see why below.")
    if view.traces is None:
        said.append("Noise: NOT measured, for want of the trace: whether it is what the release says is not known.")
    said.append("Labels: shown to everyone who gets the release.")
    if len(warnings) > 1:
        said.append(f"{len(warnings) - 1} warning(s) beside that of the labels: read them before anything leaves.")
    return said
