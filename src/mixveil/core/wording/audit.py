"""Sentences about audits, attacks, metrics and verdicts."""

from __future__ import annotations

_THREATS = {
    "threat-average": "They hold several releases of the same records and nothing else of the data owner's. They "
    "average each record's rows, find the pairing, and solve all rows together.",
    "threat-average-known": "They know which rows of all releases hold a record, and nothing else of it. They average "
    "these rows, after a network trained on public images has guessed signs that are hidden.",
    "threat-average-similar": "They average each row with the rows that look most similar, after a network trained on "
    "public images has guessed signs that are hidden.",
    "threat-braverman": "They hold the public images that were mixed in, and compare the squares of a row with the "
    "squares of each.",
    "threat-braverman-whitened": "They hold the public images that were mixed in, learn from the rows how squares vary "
    "and hang together, and compare the squares of a row with the squares of each.",
    "threat-carlini": "They hold public images, also of the kind that is mixed in. They encode public images alike, "
    "train networks to say which rows share a record and which signs values had, and solve all rows together.",
    "threat-chen": "They hold rows of pairs of images, and the public images that were mixed in, if any. They find "
    "from the sizes of values which rows share an image, and solve all rows together. That works where the values of "
    "images are independent normal draws.",
    "threat-decoder": "They hold public images and the public network, and know the pairing and the weights. They "
    "solve all rows together and train a network from features back to pictures.",
    "threat-demask": "They hold public images, encode them alike and train a network to say which sign each value had.",
    "threat-demask-search": "They hold the public images that were mixed in. They rank them by how similar each looks "
    "to a row, after a network has guessed signs that are hidden.",
    "threat-grid": "They hold both source images of a row among others, and look at the low bits of the noise.",
    "threat-inner-product": "They hold rows and nothing else. They learn from the rows how rows vary, and take the "
    "inner product of any two of them.",
    "threat-inner-product-average": "They hold several releases of the same records and nothing else. They average "
    "each record's rows, find the records in other rows by inner products, and solve all rows together.",
    "threat-inner-product-squares": "They hold rows and nothing else. They learn from the rows how the squares of "
    "their values vary, and take the inner product of the squares of any two of them.",
    "threat-known": "They have some of the records already, and know the pairing, the weights and how such images "
    "vary. They take what they have out of the rows and solve for the others.",
    "threat-kolmogorov-smirnov": "They hold many releases of the same records. They compare the rows of a record with "
    "the rows of the others by a few statistics.",
    "threat-labels": "They read the labels of the release, as everyone who gets it can.",
    "threat-linear": "The paper's attack: they know the pairing and the weights, and that images are smooth.",
    "threat-linkage": "They hold the original image, and know weights and pairing. They ask which row it went into.",
    "threat-lmmse": "They know the pairing, the weights and how such images vary, and use all rows together.",
    "threat-lmmse-row": "They know the weights and how such images vary, and look at one row at a time.",
    "threat-luo": "They hold public images, also of the kind that is mixed in. They encode public images alike, "
    "train networks to say which rows share a record, undo how images were moved, and let networks fuse the rows of "
    "each.",
    "threat-lowpass": "They hold similar public images, and know the pairing and the weights. They blur all rows and "
    "unmix them.",
    "threat-lowpass-row": "They hold similar public images, and blur and scale each row.",
    "threat-membership": "They hold an image, and know weights and pairing. They ask whether it is in the release.",
    "threat-prior": "They know what such images look like on average, and do not look at the release.",
    "threat-public-search": "They hold the public images that were mixed in. They learn from the rows how rows vary, "
    "find the public images in each row by inner products, and take them out.",
    "threat-radius": "They hold both source images of a row among others, and ask which two they are.",
    "threat-radius-labels": "They hold both source images of a row among others and know their classes, and ask which "
    "two they are.",
    "threat-search-learned": "They hold the public images that were mixed in, encode public images alike, and train a "
    "network to say which of them a row holds.",
    "threat-unet": "The paper's attack: they hold public images, mix them alike and train a network to undo it, row by "
    "row.",
    "threat-unet-strong": "They hold public images, and know the pairing and the weights. They solve all rows together "
    "and train a network to mend what is left.",
    "threat-unit-membership": "They hold all images of a person, and know which rows would be theirs, weights and "
    "pairing. They ask whether the person is in the release.",
}

_NOT_RUN = {
    "attack-needs": "it needs {fields}, which the attacker does not have here",
    "attack-needs-images": "it needs images",
    "attack-needs-features": "it needs a release of features, and the images behind private and public features",
    "attack-needs-linear": "it needs rows that are weighed sums of records, and the encoder {encoder} makes others",
    "attack-needs-row-order": "every release has its rows in another order, which this attacker does not know",
    "attack-needs-equal-rows": "it needs releases with the same number of rows",
    "attack-needs-covers": "it looks for public images in rows, and the encoder {encoder} mixed in none here",
    "attack-needs-mask": "it looks for hidden signs, and the encoder {encoder} hides none",
    "attack-needs-pairs": "it needs rows of two records at most",
    "attack-needs-plain-rows": "it needs rows of finite values that are not huge, with a label each",
    "attack-oracle-of-other-rows": "the truth that it is given is not of these rows",
    "attack-needs-one-encoder": "it needs releases of one encoder, with the same settings",
    "attack-needs-independent-values": "it needs values that do not depend on one another, and neighbouring values of "
    "these rows are correlated ({correlation:.2f}): other attacks are for such images",
    "attack-needs-normal-values": "it needs values that are normally distributed around the centre of the encoder, and "
    "those of these rows are not (their kurtosis is {kurtosis:.2f}, a normal one is 3)",
    "attack-needs-more-values": "rows that share a record do not stand out from chance: a row has {values:n value}, "
    "and half of the rows would stand out with {needed:,}",
    "attack-drowned": "the noise (σ = {noise:.3g} a value) hides even how much images vary, and with that all that "
    "rows share",
    "attack-needs-fewer-rows": "it compares all rows with one another, at most {most:,} of this size, and got {rows:,}",
    "attack-needs-fewer-covers": "it finds the public images of a row among {most:,} at most, with so many values a "
    "row, and got {covers:,}",
    "attack-needs-floral": "it begins with six rows that hold all pairs of four records, and found none: it needs more "
    "rows or releases of these records",
    "attack-needs-connected": "the rows that it could place hold {told:,} of all {records:n record}: it needs more "
    "rows or releases of these records",
    "attack-rows-unexplained": "what it found explains {explained:.0%} of the rows only: these rows are not made as it "
    "takes them to be",
    "attack-needs-releases": "it needs {needed:n release} of the same records, got {releases}",
    "attack-needs-values": "rows of fewer than {least} values do not show it how their noise was drawn",
    "attack-needs-strangers": "it needs at least {least} images that are not in the release, got {strangers}: give "
    "more public data",
    "attack-needs-units": "it needs at least {least} units with all their rows among those attacked, got {units}",
    "attack-not-with-covers": "it cannot imitate public images in a row, which the encoder {encoder} mixes in here",
    "attack-not-for-sphere-noise": "it does not look for noise on a sphere; the attack radius does",
    "attack-refused": "it refused what it was given ({error})",
    "attack-trains": "it trains a network, which takes a while: --attacks {attack} or --profile full runs it",
    "full-profile-runs-them": "--profile full runs them",
    "known-records-do-not-vary": "the records that the attacker knows do not vary: there is nothing to guess from them",
    "no-rows-share-a-source": "no two rows share a record or a public image",
    "no-row-of-two-classes": "it needs rows that mix two classes, with their trace, and there are none",
    "no-units-promised": "the release promises nothing to units of several rows",
    "attack-not-asked-for": "the attack was not asked for",
    "no-figures": "it gave no figures",
    "pictures-of-other-size": "private images are {private} and public ones {public}: give --size or --grey",
    "strangers-look-different": "records and strangers look different: AUC {auc:.2f} on a release that holds neither",
    "too-few-public-rows": "it trains on at least {least} public rows, got {rows} (an audit keeps half as strangers)",
    "units-incomplete": "rows were dropped from the release: some units do not have all of their rows",
    "units-not-stated": "--unit does not say which rows belong together",
    "better-without-public-data": "it learned from the release what records are like: better than from public data",
}

_BROKEN = {
    "no-number": "its guess is not a number",
    "attack-failed": "it raised {error}",
    "guess-no-guess": "it must return a Guess, and returned {came}",
    "guess-empty": "its guess says nothing, and the kind {kind} is judged by {wanted}",
    "guess-lacks": "the kind {kind} is judged by {wanted}, and its guess has {came}",
    "guess-no-tensor": "{field} must be a tensor in its guess, and is {came}",
    "guess-no-figures": "{field} must be of a floating type in its guess, and is {came}",
    "guess-no-integers": "{field} must be of an integer type in its guess, and is {came}",
    "guess-of-other-shape": "{field} must have the shape {wanted} in its guess, and has {came}",
    "guess-not-finite": "{field} must be finite in its guess, and some are not ({wrong:,} of {values:n value})",
    "guess-out-of-range": "{field} must be from {least:g} to {most:g} in its guess, and goes from {low:g} to {high:g}",
    "guess-no-signs": "signs must be -1 or 1 in its guess, and some are not ({came:g})",
    "training-failed": "its training failed ({error})",
    "attack-wrote": "it wrote to the records or traces that it was given, which were read again for the others",
    "bare-records-left": "without any noise it leaves a mean squared error of {error:.3g}, knowing nothing "
    "{nothing:.3g}: it may leave {most:.0%} of that at most",
    "bare-rows-missed": "without any noise it finds {found:.0%} of the rows, and must find {least:.0%}",
    "bare-members-missed": "without any noise it tells members from others with an AUC of {auc:.2f}, and must "
    "reach {least:.2f}",
    "bare-units-missed": "without any noise it tells units from others with an AUC of {auc:.2f}, and must "
    "reach {least:.2f}",
    "bare-pairs-missed": "without any defence it names {found:.0%} of the pairs, and must name {least:.0%}",
    "bare-signs-missed": "of images that are masked and not mixed it finds {found:.0%} of the signs, one sign for all "
    "{nothing:.0%}: it must leave {most:.0%} of its wrong ones at most",
    "bare-groups-missed": "without any noise it finds a row that shares a source for {found:.0%} of the rows, and must "
    "for {least:.0%}",
    "bare-covers-missed": "without any noise it places half of the public images in rows behind {rank:.0%} of all, and "
    "may behind {most:.0%} at most",
    "bare-records-not-told-apart": "without any defence it tells {found:.0%} of the records from the others, and must "
    "tell {least:.0%}",
    "after-brief-training": "{why} after a brief training; more public data may help it",
}

_METRICS = {
    "metric-mse": "mse",
    "metric-snr-db": "SNR in dB",
    "metric-psnr-db": "PSNR in dB",
    "metric-ssim": "ssim",
    "metric-cosine": "cosine",
    "metric-lpips-alex": "lpips-alex",
    "metric-lpips-vgg": "lpips-vgg",
    "metric-picture-mse": "picture mse",
    "metric-picture-snr-db": "picture SNR in dB",
    "metric-picture-ssim": "picture ssim",
    "metric-row-identified": "row identified",
    "metric-pair-found": "pair found",
    "metric-signs-found": "hidden signs found",
    "metric-sources-found": "all records of a row found",
    "metric-cover-found": "public image found",
    "metric-cover-rank": "rank of public images",
    "metric-nearest-shares-source": "nearest row shares source",
    "metric-shared-source-auc": "auc of shared sources",
    "metric-told-apart": "told from others",
    "metric-auc": "auc",
    "metric-tpr-at-1-fpr": "tpr at 1% fpr",
    "metric-tpr-above-bound": "tpr at {at:.1%} fpr or less",
    "metric-own-class-shown": "own class among those shown",
    "metric-class-counts-shown": "class counts shown exactly",
    "figure-of-unit": "{figure}, of a {unit}",
    "figure-of-single-image": "{figure}, of a single image",
    "chart-mse": "Mean squared error of reconstructions",
    "chart-snr-db": "SNR of reconstructions in dB",
    "chart-ssim": "SSIM of reconstructions",
    "chart-lpips-alex": "LPIPS of reconstructions (lpips-alex)",
    "chart-lpips-vgg": "LPIPS of reconstructions (lpips-vgg)",
    "chart-row-identified": "Records whose row is found",
    "chart-pair-found": "Rows of which both sources are found",
    "chart-signs-found": "Hidden signs that are found",
    "chart-sources-found": "Rows of which all records are found",
    "chart-cover-found": "Rows of which a public image is found",
    "chart-nearest-shares-source": "Rows whose most alike row shares a source",
    "chart-told-apart": "Records told from others by their rows",
    "chart-tpr-at-1-fpr": "Members found at 1% false alarms",
    "ceiling-linear": "best linear attacker",
    "ceiling-gdp": "the most that μ permits",
    "ceiling-gdp-unit": "most by μ: units",
    "ceiling-gdp-record": "most by μ: single images",
    "attack-known-10": "known 10 %",
    "attack-known-50": "known 50 %",
    "attack-known-90": "known 90 %",
    "roc-rows": "rows found",
    "roc-members": "members found",
    "roc-members-unit": "members found, each a {unit}",
    "roc-members-single": "members found, each a single image",
}

_PROMISES = {
    "promise-gdp": "μ of a {whom}",
    "promise-directional-snr": "directional SNR of a row",
    "promise-noise": "noise of a value σ",
    "promise-variance-left-unknown": "share of the records' variance that no linear attacker explains",
    "promise-variance-left-unknown-single": "share of single images’ variance that no linear attacker explains, each "
    "image taken by itself",
}

_GAINED = "their error is {gained:.1%} smaller than that of guessing without the release. Look at them in the report."
_AT_1 = "it finds {mean:.0%} of them at 1 % false alarms (guessing: {chance:.2%})."

_WARNINGS = {
    "audit-labels-shown": "The labels are not protected: everyone who gets the release reads the classes of every row "
    "and how many records of each class there are. In a hospital the label is the diagnosis.",
    "audit-labels-screened": "The labels are not protected: everyone who gets the release reads the classes of every "
    "row that is left. In a hospital the label is the diagnosis.",
    "audit-labels-randomised": "The labels were randomised: of each record these releases say its class with ε = "
    "{epsilon:.3g}. The noise on the images does not protect them any further.",
    "ceiling-beaten": "{attack} beats its ceiling: {figure} {mean:.4g}, where {ceiling:.4g} should be the best. The "
    "claim of this release is false, or this audit is.",
    "sweep-ceiling-beaten": "At {symbol} = {value:g}, {attack} beats its ceiling: {figure} {mean:.4g}, where "
    "{ceiling:.4g} should be the best. A claim of this encoder is false, or this audit is.",
    "noise-false": "The noise is not what the release says: σ = {found:.4g} was found, {nominal:.4g} is stated. Every "
    "figure that rests on it is false. Do not send this release.",
    "promise-broken": "{promise}: {nominal:.4g} was asked for and does not hold: on these records it is {found:.4g}.",
    "promise-loose": "{promise}: {nominal:.4g} was asked for, {found:.4g} is kept: there is more noise than needed.",
    "images-reconstructed": f"{{attack}} reconstructs pictures: {_GAINED}",
    "values-reconstructed": f"{{attack}} reconstructs values: {_GAINED}",
    "pictures-decoded": f"{{attack}} makes pictures of the features: {_GAINED}",
    "rows-recognised": "{attack} recognises records: it finds the row of {mean:.0%} of them (guessing: {chance:.2%}).",
    "pairs-recognised": "{attack} recognises pairs: both sources of {mean:.0%} of the rows (guessing: {chance:.2%}).",
    "sources-recognised": "{attack} finds who is in which row: of the records that were looked at, exactly those in "
    "it, for {mean:.0%} of the rows (guessing: {chance:.2%}).",
    "covers-recognised": "{attack} finds a public image that was mixed in for {mean:.0%} of the rows (guessing: "
    "{chance:.2%}).",
    "rows-grouped": "{attack} finds rows that share an image: the row most alike shares one for {mean:.0%} of the rows "
    "(guessing: {chance:.2%}).",
    "records-told-apart": "{attack} tells the rows of {mean:.0%} of the records from those of others (by chance: "
    "{chance:.0%}).",
    "members-recognised": f"{{attack}} recognises members: {_AT_1}",
    "members-recognised-single": f"{{attack}} recognises members by single images: {_AT_1}",
    "units-recognised": f"{{attack}} recognises members by all images of a {{unit}} together: {_AT_1}",
    "attack-broken": "{attack} is broken, so that what it found here shows nothing: {why}.",
    "noise-reproducible": "The noise came from a seeded stream: an attacker who finds the seed removes it. Do not send "
    "this release.",
    "no-guarantee-stated": "A release states no guarantee at all: it is for experiments, do not send it.",
    "records-copied": "{copies:n record is a copy of another|records are copies of others}: what is promised of one "
    "record is not promised of all its copies together.",
    "public-among-private": "{images:n public image is|public images are} among the private ones, and the attacker has "
    "all public images.",
    "strangers-among-private": "{images:n image that should be in no release is|images that should be in no release "
    "are} among the private ones: left out of the membership test.",
    "release-left-out": "Release {release} is left out: its trace is not here. Together with the others it shows more "
    "than this audit says.",
}

_STRONG, _STRONG_OR_FEW = "The noise is so strong", "The noise is so strong, or so few rows are left,"
_MADE_OF = "that the values do not show whether release {release} was made of these data"

_FOUND_WRONG = {
    "no-trace": "There is no trace of release {release}: that it was made of these data is not checked.",
    "truth-not-shown": f"{_STRONG} {_MADE_OF}; the labels agree.",
    "truth-not-shown-screened": f"{_STRONG_OR_FEW} {_MADE_OF}; the labels agree.",
    "truth-not-shown-randomised": f"{_STRONG} {_MADE_OF}; nor do the labels, which were randomised.",
    "truth-not-shown-screened-randomised": f"{_STRONG_OR_FEW} {_MADE_OF}; nor do the labels, which were randomised.",
    "noise-wrong": "Release {release}: {fault}.",
    "noise-shared-by-releases": "Release {release} shares its noise with another: together they show the records.",
    "noise-off-sphere": "some rows' noise is not of the stated length",
    "noise-odd-rows": "{rows:n row} with noise of another strength than stated",
    "noise-odd-values": "{values:n value} of the rows with noise of another strength than stated",
    "noise-not-centred": "the noise does not average to nothing over the rows",
    "noise-shared-by-rows": "rows share their noise",
    "noise-shared-by-values": "values of a row share their noise",
    "noise-not-gaussian": "the noise is not Gaussian: its fourth moment is {fourth:.3g}, not 3",
    "noise-not-laplace": "the noise is not Laplace: its mean size is {size:.3g} of what it should be",
    "units-unchecked": "Release {release} promises something to units. That no two rows of a unit are paired is not "
    "checked: say with --unit which rows belong together.",
    "units-paired": "Release {release}: {rows:n row is paired with a row of its|rows are paired with rows of their} "
    "own unit, and a unit has up to {largest:n row} where the release states {stated}: its μ is false. Do not send it.",
    "labels-unchecked": "Release {release} says that its labels were randomised with ε = {epsilon:g}. That is not "
    "checked: rows of this encoder do not show which label a record was given.",
    "labels-not-randomised": "Release {release}: {found:.1%} of the labels are said as they are, where randomising "
    "them with ε = {epsilon:g} keeps {keep:.1%}. Do not send this release.",
}

_TOO_WEAK = "these attacks were too weak to tell (they do worse than guessing without the release)."
_BEST = (
    "the mean error of the best of these attacks ({attack}) is {gained:.1%} smaller than that of guessing without the "
    "release: it gets {amount}"
)
_OTHERS = (
    "and the pairing, guesses the others with an error that is {gained_10:.1%}, {gained_50:.1%} or {gained_90:.1%} "
    "smaller than without the release."
)
_ROWS = "Recognition: with the original at hand {attack} finds its row for {mean:.1%}"
_MEMBERS = "{what}: {attack} finds {mean:.1%} of the members at 1 % false alarms (guessing: {chance:.2%})"
_AT_MOST = (
    "as μ is stated, on average no attack on these releases finds more than {tpr:.1%} among outsiders with the same "
    "labels."
)

_OTHERS_MORE = "Other attacks may get more."
_NOT_ALL = "Not everything was tested, and other attacks may get more."
_SOME = (
    "At least one attack did better here than guessing without the release ({attack}: {figure} {mean:.4g}, guessing "
    "{nothing:.4g}); {single}."
)
_LITTLE = "Labels aside, no attack here was shown to get more than next to nothing on average; {single}."

_ANSWERS = {
    "answer-do-not-send": "Do not send: what is stated of this release is false, or its noise can be removed. The "
    "warnings say which.",
    "answer-seeded": "A seeded trial, for experiments only: whoever finds the seed makes its noise again and removes "
    "it, so that nothing is promised. Do not send it. {said}",
    "answer-ceiling-beaten": "An attack beat its ceiling: a claim of this release is false, or this audit is. The "
    "warnings say where.",
    "answer-no-guarantee": "Do not send: a release states no guarantee. {attacked}",
    "answer-not-kept": "What was asked for does not hold: {promise} is {found:.4g}, not {nominal:.4g}. {attacked}",
    "answer-both": "Attackers reconstruct records of this release, and recognise some.",
    "answer-reconstructed": "Attackers reconstruct records of this release.",
    "answer-recognised": "Attackers recognise records of this release, or what else its rows are made of: the warnings "
    "say which.",
    "answer-untested": "Nothing can be said: no attack on records, on their rows or on membership gave figures.",
    "answer-too-weak": "Little can be said: the attacks that guess records were too weak here.",
    "answer-known": "Attackers who have some of the records already get a great deal of the others.",
    "answer-some": f"{_SOME} {_OTHERS_MORE}",
    "answer-some-in-part": f"{_SOME} {_NOT_ALL}",
    "answer-little": f"{_LITTLE} {_OTHERS_MORE}",
    "answer-little-in-part": f"{_LITTLE} {_NOT_ALL}",
    "single-guessed": "of the record that {attack} guesses best, {gained:.0%} of the error of guessing is gone (by "
    "chance: {chance:.0%})",
    "single-no-better": "no record is guessed better than without the release",
    "single-not-guessed": "no attack here guessed the values of records",
}
"""The first sentence of an audit."""

_VERDICT = {
    "verdict-part": "A part: {attacked:n row was|rows were} attacked of {rows:,}, joined along their pairs. An "
    "attacker who has all rows gets at least these pictures; records are recognised among the rows of the part. The "
    "noise's strength was measured in all rows, its other properties in the part.",
    "verdict-few-numbers": "Few numbers: each row holds only {numbers:n number} of its record. There is little to tell "
    "records apart by, and many may be equal: of t equal ones that an attack names, one is counted as found.",
    "verdict-screened": "Screened: {dropped:n row was|rows were} dropped of {records:,} ({screen}). The records of "
    "dropped rows were not attacked by rows of their own: what is left of them in the rows of others is not measured "
    "here.",
    "verdict-noise-tested-loosely": "The noise was tested more loosely, as the rows that are left were chosen: a value "
    "of the rows is noticed where its noise is below {share:.0%} of what is stated.",
    "verdict-weak-noise-unnoticed": "The noise was tested more loosely, as the rows that are left were chosen: noise "
    "that is too weak in some values of the rows would NOT be noticed.",
    "verdict-mirrored": "Mirror images: images were mirrored or not, at random, before they were mixed. A mirror image "
    "shows as much as the image, so of every reconstruction the nearer of both is measured and shown.",
    "verdict-images-too-weak": f"Pictures: {_TOO_WEAK}",
    "verdict-values-too-weak": f"Values: {_TOO_WEAK}",
    "verdict-some-public": "Public data: attackers had {used:,} of {rows:,} public records, evenly spread; the profile "
    "full takes all.",
    "verdict-give-public-data": "Public data may make these attacks stronger: give some.",
    "verdict-linear-possible": "The best linear attacker, who knows the mean, would explain up to {possible:.1%} of "
    "how records differ from it.",
    "verdict-images": f"Pictures: {_BEST} of the images.",
    "verdict-values": f"Values: {_BEST} of the records' values.",
    "amount-next-to-nothing": "next to nothing",
    "amount-something": "something",
    "amount-a-great-deal": "a great deal",
    "verdict-pictures": "Pictures from features: {attack} reaches an SSIM of {mean:.2f} on average and {worst:.2f} at "
    "most (knowing nothing: {nothing:.2f}).",
    "verdict-known-too-weak": f"Known records: {_TOO_WEAK}",
    "verdict-known": f"Known records: an attacker who has 10, 50 or 90 % of the records, {_OTHERS}",
    "verdict-known-of-unit": "Known records: an attacker who has 10, 50 or 90 % of the single images, others of the "
    f"same {{unit}} among them, {_OTHERS}",
    "verdict-rows": f"{_ROWS} of the records (guessing: {{chance:.2%}}).",
    "verdict-rows-single": f"{_ROWS} of the single images (guessing: {{chance:.2%}}).",
    "verdict-pairs": "Recognition: with both sources among others {attack} names both for {mean:.1%} of the rows "
    "(guessing: {chance:.2%}).",
    "verdict-signs": "Signs: {attack} finds {mean:.1%} of those that a mask hides (the same sign everywhere: "
    "{chance:.1%}).",
    "verdict-sources": "Sources: of the records that were looked at, {attack} names exactly those in the row for "
    "{mean:.1%} of the rows (guessing: {chance:.2%}).",
    "verdict-covers": "Public images: {attack} has one that was mixed in among its first guesses for {mean:.1%} of the "
    "rows (guessing: {chance:.2%}).",
    "verdict-grouped": "Shared images: by {attack} the row most alike shares an image, private or public, with "
    "{mean:.1%} of the rows (guessing: {chance:.2%}).",
    "verdict-told-apart": "Distribution: {attack} tells the rows of {mean:.1%} of the records from those of others (by "
    "chance: {chance:.0%}).",
    "covers": "Public images",
    "membership": "Membership",
    "membership-of-unit": "Membership of a {unit}, all images together",
    "membership-of-single-image": "Membership of a single image",
    "recognition": "Recognition",
    "images": "Pictures",
    "verdict-members": f"{_MEMBERS}.",
    "verdict-members-bounded": f"{_MEMBERS}; {_AT_MOST}",
    "verdict-members-untested": "{what}: NOT tested: {why}.",
    "verdict-members-untested-bounded": f"{{what}}: NOT tested: {{why}}; {_AT_MOST}",
    "attack-not-run": "{attack} {status}, {why}",
    "verdict-untested": "{what}: NOT tested: {attacks} gave no figures: {why}.",
    "verdict-not-linear": "NOT run: {attacks}: {why}. What this release shows to such attackers is not measured.",
    "verdict-unasked": "{what}: NOT tested: no attack of this kind was asked for.",
    "verdict-untrained": "Networks: attacks that train them gave NO figures ({attacks}): {why}.",
    "verdict-noise-unmeasured": "Noise: NOT measured, as the trace is not here. It may not be what the release says.",
    "verdict-labels-shown": "Labels: shown to everyone who gets the release.",
    "verdict-labels-randomised": "Labels: randomised, ε = {epsilon:.3g} for each record in these releases.",
    "verdict-warnings": "{count:n warning beside that of the labels: read it|warnings beside that of the labels: read "
    "them}.",
    "for-knowing": "Do not decide by this audit whether to send the release or which μ to use: that would void its "
    "certificate. Choose on public data, or by `mixveil calibrate --mu`; keep back for reasons that follow from no "
    "record, or if the noise is not what the manifest says.",
    "for-choosing": "These are curves over μ on private records: do not choose a μ by them, or the certificate of a "
    "release at that μ would be void. Choose on public data, or by `mixveil calibrate --mu`.",
    "in-all": "In all: {spent}",
    "lpips-not-measured": "LPIPS: not measured by {nets}: no weights (put {files} into DIR/weights and give --data-dir "
    "DIR, or set MIXVEIL_DATA=DIR).",
    "sweep-gap": "{attack} at {symbol} = {value:g}: {status}: {why}",
    "sweep-cost": "sweep: {audits:n audit} of {rows:n row}, beside that of the release itself",
    "sweep-cost-with-encodings": "sweep: {audits:n audit} and {encodings:n encoding} of {rows:n row}, beside that of "
    "the release itself",
}

_ON_THE_WAY = {
    "audit-without-public": "Give public data (--public): without them attackers are weaker, membership is not tested, "
    "and this audit may be too weak to tell. Stop here if you have similar images.",
    "audit-takes": "This audit of {rows:n record} by {attacks:n attack} takes {time} and about {memory:.1f} GB of "
    "memory on this machine. Both are rough estimates.",
    "audit-takes-beside-networks": "This audit of {rows:n record} by {attacks:n attack} takes {time}, and longer where "
    "networks are trained, which is not counted. It takes about {memory:.1f} GB of memory. These are rough estimates.",
    "about-seconds": "about {about:n second}",
    "about-minutes": "about {about:n minute}",
    "attack-found": "{attack}: {figure} {mean:.4g} (knowing nothing: {nothing:.4g})",
}

_TABLES = (_ON_THE_WAY, _THREATS, _NOT_RUN, _BROKEN, _METRICS, _PROMISES, _WARNINGS, _FOUND_WRONG, _ANSWERS, _VERDICT)
WORDS: dict[str, str] = {code: words for table in _TABLES for code, words in table.items()}
