"""Sentences about calibrations and what they would give away."""

from __future__ import annotations

_DROWNED = (
    "{much} can be learnt from {what} with σ = {sigma:.4g}: the noise on {values:n value}, averaged over the "
    "rows of a class ({rows:,.0f}), is {factor:times} as long as two classes can be apart (2C = {apart:.4g}){usual}. "
    "Release fewer numbers of each image: `mixveil prepare` makes a projection from public data"
)
_CHOICE = (
    "μ = {mu:g}: of 100 {members} an attacker on average finds at most {found:.3g} at {alarms:g} % false alarms "
    "among outsiders {alike} (guessing: {alarms:g}). That is ε = {epsilon:.3g} at δ = {delta:g}{weak}. Noise: "
    "σ = {sigma:.4g} on every value, beside records of norm {clip:.4g} at most. Releases of the same records "
    "add up: 2 are μ = {two:.3g}, 4 are μ = {four:.3g}, 10 are μ = {ten:.3g}. What a release of these rows as they "
    "are can teach: {learnt}. The noise between two classes is {noise:.2g} times as long as they can be apart at all."
)

WORDS: dict[str, str] = {
    # What InstaHide's authors advise
    "instahide-k": "{k:n image} in a row: InstaHide's authors advise {least} to {most}.",
    "instahide-heavy": "Weights up to c1 = {c1:g}: InstaHide's authors advise at most {most:g}, so that no image "
    "shows through.",
    "instahide-few-images": "Images are mixed among themselves, and this set has {images:,}. InstaHide's authors "
    "advise that for very large and varied sets only: mix in public images (--public).",
    "instahide-few-covers": "The set of public patches has {covers:,}: InstaHide's authors advise a very large one, "
    "and try their attacks on one of 10,000 (--patches).",
    "instahide-flat-covers": "Public patches may be flat, with {keypoints} keypoints or fewer, and hide nothing: "
    "InstaHide's authors keep those with more than {least} (--keypoints).",
    "choice-of-mu": _CHOICE,
    "members": "members",
    "members-with-units": "members (persons, each with all of up to {rows} rows)",
    "of-same-label": "of the same label",
    "with-same-labels": "with the same labels",
    "meaningful": "",
    "no-meaningful-guarantee": ": no meaningful guarantee",
    "next-to-nothing": "next to nothing",
    "little": "little",
    "something": "something",
    "classes-drowned": _DROWNED,
    "pixels": "pixels",
    "rows": "rows",
    "classes-of-pictures": ", and classes of digits are a quarter of that apart, those of photographs a tenth",
    "classes-of-rows": "",
    "at-mu": "at μ = {mu:g} {what}",
    "by-calibration": "{calibration}: {what}",
    "meaningless-mu": "μ = {mu:.3g} is ε = {epsilon:.3g} at δ = {delta:g}: no meaningful guarantee",
    "varies-more-than-public": "your records vary up to {ratio:.3g} times as much as the public data: the directional "
    "SNR that the manifest states does not hold for them",
    "snr-exceeded": "the realised directional SNR {realised:.3g} is {factor:times} the nominal τ = {nominal:g}: the "
    "guarantee does not hold in every direction",
    "snr-exceeded-by-displacement": "the realised directional SNR {realised:.3g} is {factor:times} the nominal "
    "τ = {nominal:g}: τ is not kept, and without any noise it would be {without_noise:.3g}",
    "labels-not-protected": "labels of records are not protected: a release of records shows both classes of each pair "
    "and how many of each there are, unless they are randomised first (--label-epsilon); class sums (mixveil "
    "statistics) cover labels",
    "sphere-has-no-mu": "sphere noise has no μ: an attacker who holds both sources of a row recognises it",
    "noise-from-private-moments": "μ = {mu:.3g} is what this noise would give, but the noise was chosen from private "
    "moments: ask with --mu for a certified one",
    "certified-left-out": "the certified calibration is left out: these rows have no range that would bound them, and "
    "neither a clip norm (--clip) nor public data (--public) are given",
    "image-noise-saturates": "Here image noise that is {stronger:times} as strong makes the features' radius "
    "{larger:.3g} times as large: beyond the clamp a pixel is black or white whatever the noise, so the displacement "
    "saturates and the radius hardly depends on τ.",
    "image-noise-grows": "Here image noise that is {stronger:times} as strong makes the features' radius {larger:.3g} "
    "times as large.",
    "displaced-snr": "The features' realised SNR is A λ/(λ + σ²) = {realised:.4g}; without any noise it would be "
    "A = (α/(1 − α))² = {without_noise:.4g}.",
    "displacement-measured": "For your eyes only: image noise of radius {image_radius:.4g} moved features by "
    "{radius:.4g} on average ({images:n image}, {clamped:.1%} of pixel values clamped); their mean norm is "
    "{feature_norm:.4g}.",
}
