"""What a card says of a release, as notes: how it was made, what it promises and cost, how it was checked, and what is
assumed.

Nothing here looks at anything but what a release says of itself, and figures that its party computed from the records
are left out, but for how many rows a screen dropped: cards of two data sets with the same settings and sizes say the
same.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from mixveil.core.types import ANY_ROWS, Guarantee
from mixveil.core.wording.notes import Note, note
from mixveil.encoders.calibration import DELTA, MEANINGLESS_MU, meaningless
from mixveil.encoders.gaussian import CalibratedGaussian
from mixveil.encoders.mixing import PRIVATE
from mixveil.encoders.singular import NOT_KEPT
from mixveil.releases import accounting, notes
from mixveil.releases.kinds.records import RecordSettings
from mixveil.releases.kinds.representations import RepresentationSettings
from mixveil.releases.kinds.sums import SumSettings
from mixveil.releases.kinds.updates import UpdateSettings
from mixveil.theory import gdp

if TYPE_CHECKING:
    from mixveil.releases.envelope import Envelope
    from mixveil.releases.spending import Total

FALSE_ALARMS = 0.01
BOUNDS = ("gdp", "gdp-alone")
"""Guarantees that are a μ."""

_PRIVATE_FIGURES = {"private-facts", "maybe-private-facts"}
_CONDITIONS = ("neighbours", "attacker", "noise", "signal", "fixed_points")  # the others are origins of facts
_SAID_ALREADY = {*_CONDITIONS, "calibration", "moments", "rows"}  # the last two are in the guarantee's own sentence


def state(stated: Envelope) -> Note:
    """What kind of promise a release makes."""
    if stated.certified:
        return note("card-certified")
    if stated.guarantees:
        return note("card-stated")
    return note("card-nothing" if stated.label_cost is None else "card-labels-alone")


def made(stated: Envelope) -> list[Note]:
    """The encoder and its settings, or how another kind of payload was made."""
    settings = stated.settings
    if isinstance(settings, RecordSettings):
        return [*_encoded(stated, settings), *notes.details(stated)]
    if isinstance(settings, SumSettings):
        figures = {"clip": settings.clip, "sigma": settings.sigma, "per": settings.per}
        shared = [note("made-shared")] if settings.masked else []
        return [note(f"made-{settings.what}", **figures), *shared]
    if isinstance(settings, UpdateSettings):
        return [note("made-updates", method=settings.method), *notes.details(stated)]
    return [note(f"made-{settings.defence}"), *notes.details(stated)]


def _encoded(stated: Envelope, settings: RecordSettings) -> list[Note]:
    encoder = settings.encoder
    projected = [note("made-projected")] if "projection" in stated.assets else []
    if _PRIVATE_FIGURES & {*stated.not_promised}:
        return [*projected, note("made-from-private-figures", encoder=encoder.name)]
    figures: dict[str, Any] = asdict(cast("Any", encoder))
    code = f"made-{encoder.name}"
    if encoder.covers:
        code, figures = f"{code}-covers", {**figures, "others": figures["k"] - PRIVATE}
    elif encoder.law == "sphere":
        code = f"{code}-sphere"
    own = [note("made-own-partner")] if figures.get("fixed_points") else []
    moved = [note("made-moved", pad=encoder.moved)] if encoder.moved else []
    return [*projected, *moved, note(code, **figures), *own]


def promise(stated: Guarantee, *, certified: bool, randomised: bool, paired: bool) -> dict[str, Any]:
    """A guarantee in words and figures; figures of members and ε only where it bounds those. randomised: whether labels
    were; paired: whether records were paired and weighed."""
    bounds = stated.name in BOUNDS
    mu = stated.claim if bounds else None
    return {
        "name": stated.name,
        "certified": certified,
        "nominal": stated.nominal,
        "mu": mu,
        "epsilon": None if mu is None else gdp.epsilon(mu, DELTA),
        "delta": None if mu is None else DELTA,
        "members_found": None if mu is None else gdp.member_tpr(mu, FALSE_ALARMS),
        "false_alarms": None if mu is None else FALSE_ALARMS,
        "assumes": dict(stated.assumes),
        "said": _said(stated).plain(),
        "conditions": [told.plain() for told in _conditions(stated, randomised=randomised, paired=paired)],
        "warnings": [told.plain() for told in ([] if mu is None else meaningless(mu))],
    }


def _said(stated: Guarantee) -> Note:
    """The sentence of a guarantee, for readers who do not know its terms; where it would say a figure that was computed
    from the records, without that."""
    if stated.name in BOUNDS:
        return _in_full(notes.guarantee_note(stated))
    if stated.name != "directional-snr" or "calibration" not in stated.assumes or stated.realised is None:
        return notes.guarantee_note(stated)
    how = stated.assumes["calibration"]
    return note("snr-asked-not-kept" if how in NOT_KEPT else "snr-asked", tau=stated.nominal, calibration=how)


def _in_full(told: Note) -> Note:
    if told.code == "on-condition":
        return note(told.code, **{**told.figures, "stated": _in_full(told.figures["stated"])})
    return note(f"card-{told.code}", **told.figures)


def paired(stated: Envelope) -> bool:
    """Whether rows were made of pairs of records with weights: sums, and records by themselves, have neither."""
    settings = stated.settings
    return isinstance(settings, RecordSettings) and not isinstance(settings.encoder, CalibratedGaussian)


def not_promised(stated: Envelope) -> list[Note]:
    """What the release itself says, and what no release of its kind ever promises, where it promises anything."""
    told = notes.not_promised(stated)
    if not stated.certified:
        return told
    public = "units" if stated.unit_rows == ANY_ROWS else "records"
    never = ("group", "at-several", "harm", "recalled", f"hidden-{public}", "law")
    return [*told, *(note(f"never-{code}") for code in never), note("never-large-mu", most=MEANINGLESS_MU)]


def _conditions(stated: Guarantee, *, randomised: bool, paired: bool) -> list[Note]:
    codes = [stated.assumes[name] for name in _CONDITIONS if name in stated.assumes]
    codes = ["knows-all-other-records" if code == "knows-all-else" and not paired else code for code in codes]
    told = [note(f"{code}-randomised" if randomised and code in notes.LABEL_KEPT else code) for code in codes]
    origins: dict[str, list[str]] = {}
    for name, origin in stated.assumes.items():
        if name not in _SAID_ALREADY:
            origins.setdefault(origin, []).append(name)
    told += [note(f"facts-{origin}", names=", ".join(names)) for origin, names in sorted(origins.items())]
    return [*told, note("tau-is-no-epsilon")] if stated.name == "directional-snr" else told


def labels(stated: Envelope) -> dict[str, Any]:
    """What is promised of labels: `covered` by μ, `randomised` with ε, or `unprotected`."""
    cost = stated.label_cost
    how = "unprotected" if cost is None else "randomised" if cost else "covered"
    if cost is None:  # what is said of labels comes first
        said = notes.not_promised(stated)[0]
    else:
        said = next(told for told in notes.promises(stated) if told.code.startswith(("labels-covered", "label-dp")))
    return {"protected": how, "epsilon": cost or None, "said": said.plain()}


def cost(stated: Envelope) -> list[Note]:
    """What this release costs whose records are in it, by its own statement."""
    one_row, each = stated.unit_rows == 1, stated.settings.cost()
    mu = next((of.claim for of in stated.guarantees if of.name == "gdp"), None)
    told = [*_cost_of_labels(stated.label_cost, one_row=one_row, bounded=mu is not None), note("cost-others")]
    if mu is None:
        return [note("cost-unbounded"), *told]
    spent = note("cost-mu", unit="record" if one_row else "unit", mu=mu, two=gdp.compose([mu, mu]))
    if not one_row or each is None:
        return [spent, *told]
    two, ten = (each.mu_if_paired * rows**each.group_exponent for rows in (2, 10))
    return [spent, note("cost-several", two=two, ten=ten), *told]


def _cost_of_labels(epsilon: float | None, *, one_row: bool, bounded: bool) -> list[Note]:
    """one_row: whether a unit is one record; bounded: whether a μ bounds what else is shown of it."""
    if not epsilon:
        return [note("cost-labels-unbounded" if epsilon is None else "cost-labels-covered")]
    told = [note("cost-labels-randomised", epsilon=epsilon)]
    if bounded:
        told.append(note("cost-with-label" if one_row else "cost-with-labels"))
    if one_row:
        told.append(note("cost-several-labels", two=2 * epsilon, ten=10 * epsilon))
    return told


def of_ledger(total: Total, *, known: bool) -> dict[str, Any]:
    """What all releases in a ledger cost together, as if every record were in each: it tells of no record. known:
    whether the release of the card is one of them."""
    if total.unbounded:
        said = note("cost-ledger-unbounded", releases=total.releases, unbounded=len(total.unbounded))
    else:
        code = "cost-ledger-with-refused" if total.refused else "cost-ledger"
        of_labels = accounting.total_note(total).figures["labels"]
        said = note(code, releases=total.releases, mu=total.mu, labels=of_labels)
    told = [said, note("cost-ledger-knows" if known else "cost-ledger-unknown")]
    mu = None if total.unbounded else total.mu
    return {"releases": total.releases, "mu": mu, "said": [item.plain() for item in told]}


def checked(stated: Envelope) -> list[Note]:
    """What `verify` looked at in this kind of release, and what no reader can look at."""
    settings, told = stated.settings, [note("checked-manifest"), note("checked-files")]
    if isinstance(settings, RecordSettings):
        told.append(note("checked-values"))
    elif isinstance(settings, SumSettings):
        told.append(note("checked-masked") if settings.masked else note("checked-sums", per=settings.per))
    elif isinstance(settings, UpdateSettings | RepresentationSettings):
        told.append(note("checked-finite"))
    nothing = not stated.guarantees and stated.label_cost is None
    code = "claims" if stated.certified else "nothing" if nothing else "statement"
    return [*told, note(f"checked-{code}"), note("not-checked")]


def assumed(stated: Envelope) -> list[Note]:
    """What all that is promised rests on, beside the conditions of each guarantee."""
    drawn = [note("assumed-secure-stream"), note("assumed-cipher")]
    by_people = [note("assumed-not-chosen"), note("assumed-not-watched")]
    settings, told = stated.settings, []
    if stated.certified:
        told = [*drawn, note("assumed-arithmetic"), note("assumed-public"), *by_people]
    elif stated.label_cost is not None:
        told = [note("assumed-statement"), *drawn, *by_people]
    elif stated.guarantees:
        told = [note("assumed-statement"), *drawn]
    if stated.unit_rows > 1 and (stated.certified or stated.label_cost is not None):
        told.append(note("assumed-units"))
    if isinstance(settings, SumSettings) and settings.honest > 1 and stated.certified:
        told += [note("assumed-honest", honest=settings.honest), note("assumed-roster")]
    return told or [note("assumed-nothing")]
