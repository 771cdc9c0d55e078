"""Notes about a release for people: what it is, what is promised, what is not."""

from __future__ import annotations

import math

from mixveil.core.types import ANY_ROWS, Guarantee
from mixveil.core.wording.notes import Note, note
from mixveil.core.wording.sentences import times
from mixveil.encoders.singular import NOT_KEPT
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.records import RecordSettings
from mixveil.releases.kinds.sums import SumSettings
from mixveil.releases.kinds.updates import AFTER, UpdateSettings
from mixveil.theory import gdp

LABEL_KEPT = frozenset({"replace-record", "replace-unit"})
"""Neighbours that have the same labels: what labels tell of a record is in no figure of such a guarantee."""

COUNTS_SHOWN = 0.5
"""Counts of classes whose noise has a smaller standard deviation, in records, can be read off by rounding."""

_PROMISED = {
    "replace-record": "gdp-record-of-label",
    "replace-unit": "gdp-unit-of-labels",
    "replace-record-and-label": "gdp-record",
}


def guarantee_note(stated: Guarantee) -> Note:
    """A guarantee as its reader should understand it: the realised figure is the claim."""
    if stated.name == "gdp":
        found = gdp.member_tpr(stated.claim, 0.01)
        code = _PROMISED.get(stated.assumes.get("neighbours", ""), "gdp-unit")
        told = note(code, mu=stated.claim, epsilon=gdp.epsilon(stated.claim), found=found)
        shared = stated.assumes.get("attacker") == "sees-sum-with-honest"
        return note("on-condition", stated=told, condition=note("sees-sum-with-honest")) if shared else told
    if stated.name == "gdp-alone":
        return note("gdp-alone", mu=stated.claim, epsilon=gdp.epsilon(stated.claim))
    how, tau, realised = stated.assumes.get("calibration"), stated.nominal, stated.realised
    conditions = [stated.assumes[name] for name in ("moments", "rows") if name in stated.assumes]
    if how in NOT_KEPT and realised is None:
        told, conditions = note("snr-not-stated", calibration=how, tau=tau), conditions[1:]
    elif how in NOT_KEPT and realised is not None and realised > tau:
        told = note("snr-not-kept", calibration=how, tau=tau, snr=realised, times=times(realised / tau))
    elif math.isclose(stated.claim, tau):
        told = note("snr-kept", snr=stated.claim)
    else:
        told = note("snr-kept-nominal", snr=stated.claim, tau=tau)
    for condition in conditions:
        told = note("on-condition", stated=told, condition=note(condition))
    return told


def promises(envelope: Envelope) -> list[Note]:
    """What a release promises, or states where it is not certified; and what is promised of labels."""
    told = [guarantee_note(stated) for stated in envelope.guarantees]
    if envelope.certified and envelope.settings.labels_covered:
        told.append(_labels_covered(envelope))
    if envelope.label_epsilon is not None and not envelope.reproducible:
        told.append(note("label-dp", epsilon=envelope.label_epsilon))
    return told


def _labels_covered(envelope: Envelope) -> Note:
    """What covered labels show all the same: counts of classes are in sums, under noise of a known size."""
    settings = envelope.settings
    if not isinstance(settings, SumSettings):
        return note("labels-covered")
    if (off := settings.counts_off) is None:
        return note("labels-covered-residuals")
    return note("labels-covered-counts-shown" if off < COUNTS_SHOWN else "labels-covered-counts", off=off)


def _counts_shown(envelope: Envelope) -> list[Note]:
    settings = envelope.settings
    off = settings.counts_off if envelope.certified and isinstance(settings, SumSettings) else None
    return [] if off is None or off >= COUNTS_SHOWN else [note("counts-shown", off=off)]


def not_promised(envelope: Envelope) -> list[Note]:
    """What a reader might think is promised and is not: what the manifest says, and what follows from its settings."""
    epsilon, rows = envelope.label_epsilon, None if envelope.unit_rows == ANY_ROWS else envelope.unit_rows
    together = None if epsilon is None or rows is None else rows * epsilon
    figures = {"label_epsilon": epsilon, "unit_rows": rows, "together": together}
    return [*_counts_shown(envelope), *(note(code, **figures) for code in envelope.not_promised)]


def details(envelope: Envelope) -> list[Note]:
    """What else there is to say: of records which features they are, and what was dropped; of updates how they were
    trained."""
    settings, told = envelope.settings, []
    if isinstance(settings, UpdateSettings):
        return trained(settings)
    if not isinstance(settings, RecordSettings):
        return []
    if (extractor := settings.extractor) is not None:
        digest = envelope.assets["features"][:8]
        told.append(note("features-of", extractor=str(extractor), size=extractor.side, digest=digest))
    if (screened := settings.screened) is not None:
        dropped = screened.records - envelope.rows
        figures = {"dropped": dropped, "made": screened.records, "share": dropped / screened.records}
        told.append(note("screened-by", screen=str(screened.screen), **figures))
    return told


def trained(settings: UpdateSettings) -> list[Note]:
    """The network of an update, and how the party trained it, where that is stated."""
    training, sizes = settings.training, {n: math.prod(s) for n, s in settings.shapes.items() if n.startswith(AFTER)}
    if training is None:
        return []
    layers = sum(name.endswith("weight") for name in sizes)
    how = {"rows": training.rows, "steps": len(training.rates), "batch": min(training.batch, training.rows)}
    return [note("update-trained", layers=layers, values=sum(sizes.values()), **how)]
