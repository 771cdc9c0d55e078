"""An audit in plain words, with reasons: what to be warned of, and what the best attack of each kind got."""

from __future__ import annotations

from collections.abc import Mapping

from mixveil.attacks.records.unit_membership import UnitMembership
from mixveil.audit.figures import Promised, Ran, Row, Whose, named
from mixveil.audit.guarantees_found import Promise
from mixveil.audit.judge import FPR, NOT_FEATURES, NOT_IMAGES
from mixveil.audit.known_records import SHARES
from mixveil.audit.noise_check import noticed
from mixveil.core.types import Dataset, View
from mixveil.theory.moments import Moments

LABELS = (
    "The labels are not protected: whoever gets the release reads the classes of every row and how many records of "
    "each class there are. In a hospital the label is the diagnosis."
)
LABELS_SCREENED = (
    "The labels are not protected: whoever gets the release reads the classes of every row that is left. In a hospital "
    "the label is the diagnosis."
)
LABELS_RANDOMISED = (
    "The labels were randomised: of each record these releases say its class with ε = {:.3g}. The noise on the images "
    "does not protect them any further."
)
_LOOSELY = " The noise was tested more loosely, as the rows that are left were chosen: "
TRAINED = ("decoder", "unet", "unet-strong")
TRAINS = "it trains a network"
"""How the reason begins for which such an attack was not run."""

_KINDS = {
    "Pictures": {"lmmse", "lmmse-row", "lowpass", "lowpass-row", "known", "average", "linear", *TRAINED},
    "Recognition": {"linkage", "radius", "radius-labels", "grid"},
    "Membership": {"membership"},
}
_TPR = f"tpr at {FPR:.0%} fpr"


def warnings_of(
    view: View, rows: list[Row], ran: list[Ran], promises: tuple[Promise, ...], unit: str | None
) -> list[str]:
    """What to be warned of. unit: what a unit is called, where something is promised to units of several rows."""
    said = [_labels(view)]
    said += [
        f"{row.attack} beats its ceiling: {named(row.metric, row.of, unit)} {row.mean:.4g}, where {row.ceiling:.4g} "
        f"should be the best. The claim of this release is false, or this audit is."
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
                f"{_promise(promise, unit)}: {promise.nominal:.4g} was asked for, on these records it is "
                f"{promise.found:.4g}: the nominal figure does not hold."
            )
        elif promise.loose:
            said.append(
                f"{_promise(promise, unit)}: {promise.nominal:.4g} was asked for, on these records it is "
                f"{promise.found:.4g}: there is more noise than the nominal figure needs."
            )
    said += _successes(rows, view, unit)
    said += [f"{item.attack} is broken: {item.why}" for item in ran if item.status == "broken"]
    if any(release.reproducible for release in view.releases):
        said.append("The noise came from a seeded stream: whoever finds the seed removes it. Do not send this release.")
    if any(not release.guarantees for release in view.releases):
        said.append("A release states no guarantee at all: it is for experiments, do not send it.")
    return said


def _promise(promise: Promise, unit: str | None) -> str:
    return f"{promise.name} of a {unit or 'unit'}" if promise.of == "unit" else promise.name


def _label_epsilon(view: View) -> float | None:
    """Of all releases together; None where one shows labels as they are, or randomised them by a seed."""
    found = [None if release.reproducible else release.label_epsilon for release in view.releases]
    known = [epsilon for epsilon in found if epsilon is not None]
    return sum(known) if len(known) == len(found) else None


def _successes(rows: list[Row], view: View, unit: str | None) -> list[str]:
    """What came out, where it is much."""
    said = []
    best, gained = _best_pictures(rows)
    if best and gained >= 0.2:
        said.append(
            f"{_kind(view)[0]} come out: {best.attack} takes away {gained:.0%} of the error of knowing nothing. Look "
            f"at them before you decide."
        )
    decoded, gained = _best_pictures(rows, "picture mse")
    if decoded and gained >= 0.1:
        said.append(
            f"Pictures come out of the features: {decoded.attack} takes away {gained:.0%} of the error of knowing "
            f"nothing. Look at them before you decide."
        )
    members = "Members are recognised{whose}: {attack} finds {mean:.0%} of them at 1 % false alarms"
    kinds: list[tuple[str, Whose, str]] = [
        ("row identified", "record", "Records are recognised: {attack} finds the row of {mean:.0%} of them"),
        ("pair found", "record", "Pairs are recognised: {attack} names both sources of {mean:.0%} of the rows"),
        (_TPR, "unit", members.replace("{whose}", f" by all images of a {unit} together")),
        (_TPR, "record", members.replace("{whose}", " by single images" if unit else "")),
    ]
    for metric, of, words in kinds:
        top = _most(rows, metric, of)
        if top and top.interval and top.interval[0] > 3 * (top.know_nothing or 0):
            said.append(words.format(attack=top.attack, mean=top.mean) + f" (guessing: {top.know_nothing:.2%}).")
    return said


def _most(rows: list[Row], metric: str, of: Whose = "record") -> Row | None:
    """The figure that is surest to be more than a guess."""
    found = [row for row in rows if row.metric == metric and row.of == of and row.interval]
    return max(found, key=lambda row: (row.interval or (0, 0))[0] - (row.know_nothing or 0), default=None)


def _kind(view: View) -> tuple[str, str]:
    """What is reconstructed: features are no pictures."""
    return ("Pictures", "images") if len(view.releases[0].shape) == 3 else ("Values", "records' values")


def _best_pictures(rows: list[Row], metric: str = "mse") -> tuple[Row | None, float]:
    """The attack that leaves the least error, and the share that it takes away of knowing nothing's. Who knows some of
    the records is told of by himself."""
    errors = [row for row in rows if row.metric == metric and row.attack not in ("prior", *SHARES)]
    least = min((row.mean for row in errors), default=0.0)
    near = [row for row in errors if row.mean <= 1.001 * least]  # a network that adds nothing is not the better attack
    best = min(near, key=lambda row: row.attack in TRAINED, default=None)
    return best, 1 - best.mean / best.know_nothing if best and best.know_nothing else 0.0


def spread_of(truth: Dataset, found: Moments) -> float:
    """The records' variance a value, in the units of the figures: of the range."""
    return found.energy / len(found.mean) / (truth.high - truth.low) ** 2


def _possible(rows: list[Row], spread: float) -> float:
    """The share of the records' variance that the best linear attacker would explain, if that is known. He knows their
    mean: what the mean itself is worth is not the release's doing. spread: the variance of a value, on average."""
    errors = [row for row in rows if row.metric == "mse" and row.attack not in SHARES]
    known = [1 - row.ceiling / spread for row in errors if row.ceiling and spread]
    return max(known, default=0.0)


def _labels(view: View) -> str:
    if (epsilon := _label_epsilon(view)) is not None:
        return LABELS_RANDOMISED.format(epsilon)
    return LABELS if all(release.screened is None for release in view.releases) else LABELS_SCREENED


def _dropped(view: View, rows: int, attacked: int, moved: float | None) -> list[str]:
    """What an audit of a screened release leaves open. rows: how many the release has; attacked: those whose noise was
    tested value by value; moved: what choosing the rows can have done to such a test (`chosen`), none where there was
    none."""
    release = view.releases[0]
    if release.screened is None:
        return []
    made = release.screened.records
    return [
        f"Screened: {made - rows:,} of {made:,} rows were dropped ({release.screened.screen}). Their records were not "
        f"attacked by rows of their own: what is left of them in the rows of others is not measured here."
        + ("" if moved is None else f"{_LOOSELY}{noticed(attacked, moved)}.")
    ]


def _untrained(ran: list[Ran]) -> list[str]:
    """Which of the attacks that train networks, and could be meant for such releases, did not run, and why."""
    missing: dict[str, list[str]] = {}
    for item in ran:
        if item.attack in TRAINED and item.status != "ran" and item.why not in (NOT_IMAGES, NOT_FEATURES):
            why = "--profile full runs them" if item.why.startswith(TRAINS) else item.why
            missing.setdefault(why, []).append(item.attack)
    return [f"Networks: attacks that train them gave NO figures ({', '.join(n)}): {why}." for why, n in missing.items()]


def _pictures(rows: list[Row], view: View, spread: float) -> list[str]:
    """What the best attack on values got, and what a decoder makes of features."""
    said = []
    kind, what = _kind(view)
    best, gained = _best_pictures(rows)
    if best:
        amount = "next to nothing" if gained < 0.02 else "something" if gained < 0.2 else "a great deal"
        possible = _possible(rows, spread)
        if gained < -0.005 or gained <= 0 < possible - 0.02:
            might = (
                f" The best linear attacker, who knows the mean, would explain up to {possible:.1%} of how records "
                f"differ from it."
            )
            said.append(
                f"{kind}: these attacks were too weak to tell (they do worse than knowing nothing)."
                f"{might if possible > 0 else ''} Give public data."
            )
        else:
            said.append(
                f"{kind}: the best of these attacks ({best.attack}) takes away {max(gained, 0):.1%} of the error of "
                f"knowing nothing: on average it gets {amount} of the {what}."
            )
    decoded = next((row for row in rows if row.metric == "picture ssim"), None)
    if decoded:
        said.append(
            f"Pictures from features: {decoded.attack} reaches an SSIM of {decoded.mean:.2f} on average and "
            f"{decoded.worst:.2f} at most (knowing nothing: {decoded.know_nothing:.2f})."
        )
    return said


def _known(rows: list[Row], unit: str | None) -> list[str]:
    """What attackers got who have some of the records."""
    known = {row.attack: row for row in rows if row.metric == "mse" and row.attack in SHARES and row.know_nothing}
    if known and all(row.mean > (row.know_nothing or 0) for row in known.values()):
        return ["Known records: too weak to tell (they do worse than knowing nothing). Give public data."]
    if not known:
        return []
    gains = [f"{max(0.0, 1 - row.mean / (row.know_nothing or 1)):.1%}" for row in known.values()]
    which = f"single images, others of the same {unit} among them" if unit else "records"
    return [
        f"Known records: an attacker who has 10, 50 or 90 % of the {which}, and the pairing, takes away {gains[0]}, "
        f"{gains[1]} or {gains[2]} of that error on the others."
    ]


def _shares(rows: list[Row], unit: str | None) -> list[str]:
    """How many records or pairs were recognised."""
    said = []
    for metric, words in (
        (
            "row identified",
            "Recognition: with the original at hand this attack finds its row for {mean:.1%} of the "
            + ("single images" if unit else "records"),
        ),
        (
            "pair found",
            "Recognition: with both sources among others these attacks name them for {mean:.1%} of the rows",
        ),
    ):
        top = _most(rows, metric)
        if top:
            said.append(words.format(mean=top.mean) + _chance(top) + ".")
    return said


def _chance(row: Row) -> str:
    return "" if row.know_nothing is None else f" (guessing: {row.know_nothing:.2%})"


def _members(rows: list[Row], ran: list[Ran], unit: str | None, promised: Mapping[Whose, Promised]) -> list[str]:
    """How many members were recognised, and how many any attack may recognise: of units first, where something is
    promised to units, and then of single records."""
    said = []
    kinds: list[tuple[Whose, str]] = [("record", "Membership")]
    if unit:
        whole = f"Membership of a {unit}, all images together"
        kinds = [("unit", whole), ("record", "Membership of a single image")]
    for of, kind in kinds:
        top, promise, most = _most(rows, _TPR, of), promised.get(of), ""
        if promise is not None:
            most = f"; as μ is stated, on average no attack on these releases finds more than {promise.tpr:.1%}"
        if top:
            found = f"this attack finds {top.mean:.1%} of the members at 1 % false alarms{_chance(top)}"
            said.append(f"{kind}: {found}{most}.")
        elif of == "unit":
            tried = [f"{item.attack} {item.status}, {item.why}" for item in ran if item.attack == UnitMembership.name]
            said.append(f"{kind}: NOT tested: {', '.join(tried) or 'the attack was not asked for'}{most}.")
    return said


def _untested(rows: list[Row], ran: list[Ran], unit: str | None) -> list[str]:
    """The kinds of attack on records of which none ran."""
    said = []
    for kind, metrics in (
        ("Pictures", {"mse", "picture mse"}),
        ("Recognition", {"row identified", "pair found"}),
        ("Membership", {_TPR}),
    ):
        if not any(row.metric in metrics and row.of == "record" and row.attack != "prior" for row in rows):
            tried = ", ".join(f"{item.attack} {item.status}" for item in ran if item.attack in _KINDS[kind])
            whose = " of a single image" if unit and kind == "Membership" else ""
            said.append(f"{kind}{whose}: NOT tested: {tried or 'no attack of this kind was asked for'}.")
    return said


def verdict_of(
    rows: list[Row],
    ran: list[Ran],
    warnings: tuple[str, ...],
    view: View,
    n: int,
    of: int,
    spread: float,
    moved: float | None,
    unit: str | None,
    promised: Mapping[Whose, Promised],
) -> list[str]:
    """In plain words, with reasons: what the best attack of each kind got. moved: as of `_dropped`; unit: what a unit
    is called, where something is promised to units of several rows."""
    said = []
    if n < of:
        said.append(
            f"A part: {n:,} of {of:,} rows were attacked, joined along their pairs. Who has all rows gets at least "
            f"these pictures; records are recognised among the rows of the part. The noise's strength was measured in "
            f"all rows, its other properties in the part."
        )
    said += _dropped(view, of, n, moved)
    said += _members(rows, ran, unit, promised) if unit else []
    said += [*_pictures(rows, view, spread), *_known(rows, unit), *_shares(rows, unit)]
    said += [] if unit else _members(rows, ran, unit, promised)
    said += [*_untested(rows, ran, unit), *_untrained(ran)]
    if view.traces is None:
        said.append("Noise: NOT measured, for want of the trace: whether it is what the release says is not known.")
    epsilon = _label_epsilon(view)
    how = (
        "shown to everyone who gets the release"
        if epsilon is None
        else f"randomised, ε = {epsilon:.3g} a record in these releases"
    )
    said.append(f"Labels: {how}.")
    if len(warnings) > 1:
        said.append(f"{len(warnings) - 1} warning(s) beside that of the labels: read them.")
    return said
