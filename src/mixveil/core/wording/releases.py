"""Sentences about guarantees, what is not promised, releases and their ledger."""

from __future__ import annotations

WORDS: dict[str, str] = {
    # What is promised or stated
    "gdp-record": "every record is {mu:.4g}-GDP: ε = {epsilon:.3g} at δ = 1e-5; on average no membership test finds "
    "more than {found:.1%} of the members at 1 % false alarms",
    "gdp-unit": "every unit (all its rows) is {mu:.4g}-GDP: ε = {epsilon:.3g} at δ = 1e-5; on average no membership "
    "test finds more than {found:.1%} of the members at 1 % false alarms",
    "gdp-record-of-label": "every record is {mu:.4g}-GDP: ε = {epsilon:.3g} at δ = 1e-5; on average no membership test "
    "finds more than {found:.1%} of the members at 1 % false alarms among outsiders of the same label",
    "gdp-unit-of-labels": "every unit (all its rows) is {mu:.4g}-GDP: ε = {epsilon:.3g} at δ = 1e-5; on average no "
    "membership test finds more than {found:.1%} of the members at 1 % false alarms among outsiders with the same "
    "labels",
    "gdp-alone": "whatever the other parties do it is {mu:.4g}-GDP: ε = {epsilon:.3g} at δ = 1e-5",
    "snr-kept": "directional SNR of a row at most {snr:.4g}",
    "snr-kept-nominal": "directional SNR of a row at most {snr:.4g} (nominal τ = {tau:.4g})",
    "snr-not-kept": "noise by the calibration {calibration} for τ = {tau:.4g}, which is NOT kept; the directional SNR "
    "of a row is up to {snr:.4g}, {times} that",
    "snr-not-stated": "noise by the calibration {calibration} for τ = {tau:.4g}, which is NOT kept; the directional "
    "SNR of a row is not stated",
    "on-condition": "{stated}; {condition}",
    "labels-covered": "the label of a record is covered with it",
    "labels-covered-counts": "the label of a record is covered with it: how many records of each class there are is "
    "not stated, and can be estimated from the sums to about ±{off:.2g} (one standard deviation)",
    "labels-covered-counts-shown": "the label of a record is covered with it by this μ, and how many records of each "
    "class there are is NOT: it can be read off the sums, whose noise is ±{off:.2g} records (one standard deviation)",
    "labels-covered-residuals": "the label of a record is covered with it: how many records of each class there are is "
    "not stated, and can be estimated from the sums, the better the larger μ is",
    "label-dp": "the label of every record is {epsilon:g}-DP (randomised response)",
    # Conditions of a guarantee
    "replace-record": "one record is replaced by another with the same label and shape; n and all labels are public",
    "replace-record-randomised": "one record is replaced by another with the same label and shape; n is public, and "
    "labels are shown only as they were randomised",
    "replace-unit": "all rows of a unit are replaced by others with the same labels and shape; n, all labels and "
    "which rows belong together are public",
    "replace-unit-randomised": "all rows of a unit are replaced by others with the same labels and shape; n and which "
    "rows belong together are public, and labels are shown only as they were randomised",
    "replace-record-and-label": "one record, its label with it, is replaced by any other; only the number of records "
    "is public",
    "replace-unit-and-labels": "all records of a unit, their labels with them, are replaced by any others, however "
    "many; only the number of units is public",
    "sees-sum-with-honest": "holds where the server sees the sum of the parties alone, and as many of them are honest "
    "as share the noise",
    "knows-all-else": "an attacker knows every other record, the weights, the pairing and all that is made of the "
    "release",
    "gaussian-exact": "the noise is exactly Gaussian, on a grid, drawn without looking at the records, and secret",
    "gaussian-shared": "the noise is a sum of exact Gaussians that honest parties rounded, each to the same grid, "
    "drawn without looking at the records, and secret",
    "gaussian-secure": "the noise is Gaussian up to float64 rounding, drawn without looking at the records, and secret",
    "worst-record": "the worst record there can be, once clipped; its partner counts as known",
    "average-deviation-from-mean": "the average record's deviation from the mean record, not the worst record's; the "
    "mean itself is not covered",
    "sees-one-row": "an attacker sees one row",
    "not-covered": "a row whose record is its own partner is not covered",
    "no-more-varied-than-public": "holds only if the records vary no more than the public data in any direction",
    "realised-not-stated": "moments are the public data's: what the records themselves realise is not stated",
    "averaged-before-dropping": "averaged over all rows that were made, before some were dropped: not over those that "
    "are left",
    # What is not promised
    "labels-shown": "Labels are not protected: they are released without noise, and show each row's class or classes, "
    "the weights of a mixture, and how many records of each class the party has. No μ bounds what they tell of who is "
    "in the data.",
    "labels-shown-screened": "Labels are not protected: they are released without noise, and show the class or "
    "classes of each row that is left and the weights of a mixture.",
    "labels-not-covered": "Labels are not protected: nothing is promised of this release.",
    "labels-in-updates": "Labels are not protected: updates show which classes they were trained on.",
    "labels-not-sent": "Labels are not sent, and not protected: what is sent may show them.",
    "labels-randomised": "Labels are protected only up to ε = {label_epsilon:g} each: they were randomised once for "
    "this release. The weights of a mixture are shown, and how many records are said to be of each class.",
    "labels-of-unit": "The labels of a unit's {unit_rows} rows together are {together:g}-DP.",
    "labels-randomised-by-seed": "Labels are not protected: a seeded stream randomised them, and an attacker who "
    "finds the seed undoes it.",
    "counts-shown": "How many records of each class there are is not hidden: the noise on it is ±{off:.2g} records "
    "(one standard deviation), so that it can be read off the sums.",
    "not-encryption": "This is not encryption: an attacker who holds the release can study it for as long as they "
    "like.",
    "unit-not-stated": "Nothing is stated of several records of one person together.",
    "unit-is-record": "The unit is one record. Several records of one person are not covered together.",
    "unit-is-named": "The unit is all records that the party named as one person's, {unit_rows} at most. Which belong "
    "together is not protected, and records that the party did not name as one person's are not covered together.",
    "unit-is-clipped": "The unit is all records that the party named as one person's, however many. Records that the "
    "party did not name as one person's are not covered together.",
    "noise-is-shared": "The noise is shared with other parties. If fewer of them are honest than stated, less is "
    "promised. A record that other parties have too is in the sum several times: m parties together promise it m·μ.",
    "rows-dropped": "Rows that showed too much of their records were dropped: which are missing depends on the "
    "records, and says something of them. Records whose own row is missing may be in the rows of others.",
    "no-noise": "No noise was added: nothing is promised at all.",
    "instahide-broken": "InstaHide is broken: from a few dozen encodings of an image, published attacks recover the "
    "image (Carlini et al. 2021, and others since). Use it to compare with, not to protect.",
    "noise-for-comparison": "The noise is about as large as the records themselves are, which is for comparison: "
    "nothing is promised at all.",
    "average-only": "The directional SNR is the party's own statement, which a reader cannot check. It speaks of one "
    "row, of the average record and of its deviation from the mean record: not of the worst record, the mean, or "
    "membership.",
    "private-facts": "The noise was chosen from figures of the private records themselves, such as their moments and "
    "norms, and this manifest shows such figures.",
    "maybe-private-facts": "Its settings may show figures that were computed from the private records.",
    "nothing-promised": "Nothing is promised: an attacker may compute records from what is sent.",
    "seeded": "The noise came from a seeded stream: an attacker who finds the seed removes it. For experiments only, "
    "no promise.",
    # Releases
    "held-records": "{rows:n row} of {shape} from {party!r}, {files:n file}, {megabytes:.1f} MB",
    "held-classes": "sums of {classes:n class|classes} with {values:n value} each, over {over}, from {party!r}",
    "held-residuals": "residual sums of {classes:n class|classes} with {values:n value} each, over {over}, from "
    "{party!r}",
    "over-record": "{number:n record}",
    "over-unit": "{number:n unit}",
    "held-updates": "updates of {tensors:n tensor} by {method} from {party!r}, {megabytes:.1f} MB",
    "held-representations": "{rows:n row} of {values:n value} from {party!r}, {megabytes:.1f} MB",
    "held": "a release of {kind} from {party!r}, {files:n file}, {megabytes:.1f} MB",
    "features-of": "features of images by {extractor}, {size} pixels wide (settings and weights {digest})",
    "encoded-without-triton": "Triton is not installed, so the CPU draws the noise and not the GPU: the release is as "
    "exact, and takes longer. To use the GPU: pip install triton",
    "screened-by": "screened by {screen}: {dropped:n row was|rows were} dropped of {made:,} made ({share:.1%})",
}
