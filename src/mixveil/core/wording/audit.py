"""Sentences about audits, attacks, metrics and verdicts."""

from __future__ import annotations

WORDS: dict[str, str] = {
    "for-knowing": "For knowing, not for choosing: what is certified of private records holds only if nothing that was "
    "found on them decides what leaves. To send, to keep back or to choose a μ by this audit would void the "
    "certificate. Choose on public data, or by `mixveil calibrate --mu`; keep back for reasons that follow from no "
    "record, or if the noise is not what the manifest says.",
    "in-all": "In all: {spent}",
    "lpips-not-measured": "LPIPS: not measured by {nets}: no weights (put {files} into DIR/weights and give --data-dir "
    "DIR, or set MIXVEIL_DATA=DIR).",
    "release-left-out": "Release {release} is left out: its trace is not here. Together with the others it shows more "
    "than this audit says.",
    "sweep-cost": "sweep: {audits:n audit} of {rows:n row}, beside that of the release itself",
    "sweep-cost-with-encodings": "sweep: {audits:n audit} and {encodings:n encoding} of {rows:n row}, beside that of "
    "the release itself",
}
