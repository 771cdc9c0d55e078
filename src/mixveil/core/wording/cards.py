"""Sentences about release cards: what leaves, how it was made, what it cost, how it was checked, what is assumed."""

from __future__ import annotations

WORDS: dict[str, str] = {
    # The state of a release in one sentence
    "card-certified": "Certified: every μ follows from the settings of the release, and mixveil computed it again from "
    "them. It holds if what is assumed below holds.",
    "card-stated": "Not certified: what is stated below is the party's own word, which no reader can check.",
    "card-labels-alone": "Not certified: nothing is promised but the ε of labels, which no reader can check.",
    "card-nothing": "Not certified: nothing is promised of any record.",
    # How it was made
    "made-singular": "Singularized mixup: each record is paired with another, both are weighed (no weight is larger "
    "than {alpha:g}) and added, and noise covers the sum. Each record is centred at {centre:.4g} and clipped to the "
    "norm {clip:.4g} first. The noise of one value is normal with the deviation {sigma:.4g}, times the weight of the "
    "partner.",
    "made-singular-sphere": "Singularized mixup as in its paper: each record is paired with another, both are weighed "
    "(no weight is larger than {alpha:g}) and added, and noise of a fixed length covers the sum: {sigma:.4g} for each "
    "value in the mean square, times the weight of the partner.",
    "made-own-partner": "A record may be its own partner.",
    "made-gaussian": "Each record by itself: centred at {centre:.4g}, clipped to the norm {clip:.4g}, and covered by "
    "normal noise with the deviation {sigma:.4g} on every value.",
    "made-mixup": "Mixup: each row is the weighed sum of {k:n record}. No noise is added.",
    "made-mixup-covers": "Mixup: each row is the weighed sum of two records and {others:n public patch|public "
    "patches}, chosen from {covers:,}. No noise is added.",
    "made-instahide": "InstaHide: each row is the weighed sum of {k:n record}, and every value gets a random sign. No "
    "noise is added.",
    "made-instahide-covers": "InstaHide: each row is the weighed sum of two records and {others:n public patch|public "
    "patches}, chosen from {covers:,}, and every value gets a random sign. No noise is added.",
    "made-moved": "Each image is mirrored or not, and moved by up to {pad:n pixel}, before it is mixed.",
    "made-identity": "The records as they are. There is no defence.",
    "made-from-private-figures": "Made by the encoder {encoder}. Its settings may show figures that were computed from "
    "the records: they are in the manifest, and are left out of this card.",
    "made-projected": "The rows are a few numbers of each image: its features after a public projection.",
    "made-classes": "The records of each class are added up, after a public projection and clipped to the norm "
    "{clip:.4g}. Normal noise with the deviation {sigma:.4g} is added to every value of each sum.",
    "made-residuals": "One round: the gradients of a head that the server sent are added up, and normal noise with the "
    "deviation {sigma:.4g} is added to every value of the sum. What one {per} adds has the norm {clip:.4g} at most.",
    "made-shared": "The parties share the noise: this is the part of one party. Masks hide the values until the sums "
    "of all parties are added.",
    "made-updates": "The weights of a network before and after the party's part of a round, by {method}.",
    "made-split": "What the party's half of a split network makes of each image. No noise is added.",
    # What is promised
    "card-gdp-record": "for every record μ = {mu:.4g} (Gaussian differential privacy), which is ε = {epsilon:.3g} at "
    "δ = 1e-5; on average no membership test finds more than {found:.1%} of the members at 1 % false alarms",
    "card-gdp-unit": "for every unit (all its rows) μ = {mu:.4g} (Gaussian differential privacy), which is ε = "
    "{epsilon:.3g} at δ = 1e-5; on average no membership test finds more than {found:.1%} of the members at 1 % false "
    "alarms",
    "card-gdp-record-of-label": "for every record μ = {mu:.4g} (Gaussian differential privacy), which is ε = "
    "{epsilon:.3g} at δ = 1e-5; on average no membership test finds more than {found:.1%} of the members at 1 % false "
    "alarms among outsiders of the same label",
    "card-gdp-unit-of-labels": "for every unit (all its rows) μ = {mu:.4g} (Gaussian differential privacy), which is "
    "ε = {epsilon:.3g} at δ = 1e-5; on average no membership test finds more than {found:.1%} of the members at 1 % "
    "false alarms among outsiders with the same labels",
    "card-gdp-alone": "whatever the other parties do μ = {mu:.4g} (Gaussian differential privacy), which is ε = "
    "{epsilon:.3g} at δ = 1e-5",
    "epsilon-meaning": "μ says how hard it is to tell from the release whether a record is in it, or another in its "
    "place. ε and δ say it in other words: nothing that is seen of the release is more than e^ε times as likely with "
    "the one as with the other, but for what has a probability of at most δ. The smaller, the better.",
    "knows-all-other-records": "an attacker knows every other record and all that is made of the release",
    "never-group": "What is true of many records together, such as what a hospital treats, is not hidden; nor is a "
    "group, such as a family, whose members' μ add up.",
    "never-at-several": "A person whose records other parties release too is covered by each release alone, and not by "
    "this μ in all.",
    "never-harm": "What a model learns from the release may harm people, those who are not in the data among them.",
    "never-recalled": "A release cannot be called back.",
    "never-hidden-records": "How many records there are, how many values each has and the names of all classes are "
    "public.",
    "never-hidden-units": "How many units there are, how many values a record has and the names of all classes are "
    "public.",
    "never-law": "Nothing is said of any law: whether it permits sending this is for a lawyer.",
    "never-large-mu": "A large μ promises little, and from μ = {most:g} on nothing that is meaningful.",
    "members-meaning": "Members found: of 100 that are in the release, an attacker at 1 % false alarms finds at most "
    "this many on average. Guessing finds 1.",
    "members-meaning-of-label": "Members found: of 100 that are in the release, an attacker finds at most this many on "
    "average, at 1 % false alarms among outsiders of the same label. Guessing finds 1. What labels and the numbers of "
    "records of each class tell of who is in the release is not in this figure.",
    "facts-public": "given, or from public data: {names}",
    "facts-range": "from the range of a pixel: {names}",
    "facts-private": "computed from the records: {names}",
    "snr-asked": "asked for was a directional SNR of a row of τ = {tau:.4g}, by the calibration {calibration}. What "
    "the records realise was computed from them: it is in the manifest, and is left out of this card",
    "snr-asked-not-kept": "asked for was a directional SNR of a row of τ = {tau:.4g}, by the calibration "
    "{calibration}, which does not keep it. What the records realise was computed from them: it is in the manifest, "
    "and is left out of this card",
    "tau-is-no-epsilon": "τ bounds neither membership nor what an attacker learns of a record: it gives no ε.",
    # What it cost
    "cost-mu": "This release costs each {unit} in it μ = {mu:.4g}. Releases of the same {unit} add up as √Σμ²: with "
    "another such release it is μ = {two:.4g}.",
    "cost-several": "Two records of one person cost the person up to μ = {two:.4g} together, ten up to μ = {ten:.4g}.",
    "cost-unbounded": "No μ bounds what this release shows. In its owner's ledger no total of these records has a "
    "bound from now on.",
    "cost-labels-covered": "The same μ covers labels.",
    "cost-labels-randomised": "It also costs each label ε = {epsilon:g}. The ε of several releases add up.",
    "cost-with-label": "Where a record and its label are both replaced, μ and ε count together.",
    "cost-with-labels": "Where a unit's records and their labels are both replaced, μ and the ε of all its labels "
    "count together.",
    "cost-several-labels": "The labels of two records of one person cost the person up to ε = {two:g} together, of ten "
    "up to ε = {ten:g}.",
    "cost-labels-unbounded": "No ε bounds what it shows of labels.",
    "cost-others": "What other releases cost is not counted here.",
    "cost-ledger": "The ledger of this machine has {releases:n release}. For a record in each of them μ = {mu:.4g} in "
    "all; {labels}.",
    "cost-ledger-with-refused": "The ledger of this machine has {releases:n release}. A record in each of them, and in "
    "those that were refused for its budget, has μ = {mu:.4g} in all; {labels}.",
    "cost-ledger-unbounded": "The ledger of this machine has {releases:n release}, and {unbounded:n promises|promise} "
    "nothing: no μ bounds what all of them show together.",
    "cost-ledger-knows": "It has an entry of this release.",
    "cost-ledger-unknown": "It has no entry of this release: the release was made on another machine, or with another "
    "state folder.",
    # How it was checked
    "checked-manifest": "The manifest has every field that it must have and no other, and what it says does not "
    "contradict itself.",
    "checked-files": "Every file that it names is there, has the stated size and SHA-256, and holds what this kind of "
    "payload may hold.",
    "checked-values": "Every value is finite, within bounds where the encoder releases on a grid, and every label is "
    "one that it can make.",
    "checked-sums": "No sum is larger than sums of so many {per}s can be with their noise.",
    "checked-masked": "Masks hide the values, so that their size could not be checked.",
    "checked-finite": "Every value is finite.",
    "checked-claims": "Each μ and each directional SNR was computed again from the settings, which keep it.",
    "checked-statement": "What is stated is complete and does not contradict itself. Whether it is true could not be "
    "checked.",
    "checked-nothing": "The manifest promises nothing, and says so.",
    "not-checked": "Only the party can tell of which records the release was made, and whether it was made as stated: "
    "no reader can see how noise was drawn or labels were randomised.",
    # What is assumed
    "assumed-secure-stream": "The party ran mixveil as it is published, on a machine that was not copied meanwhile. "
    "Its secure stream then draws all that is secret: AES-128 in counter mode, or ChaCha20 on a GPU, under a key from "
    "the operating system.",
    "assumed-cipher": "These ciphers cannot be told from chance, and the operating system's randomness is uniform and "
    "stays secret.",
    "assumed-arithmetic": "The machine computes as IEEE 754 says, and its logarithms and sines are as near as "
    "docs/exactness.md of mixveil says.",
    "assumed-public": "What is called public was fixed without a look at the records, but for what earlier releases "
    "show of them.",
    "assumed-not-chosen": "Nothing that was found on the private records, such as an audit of them, decided whether a "
    "release is sent, or which one.",
    "assumed-not-watched": "Nobody measures the time, power or memory of the machine: what these tell is not covered.",
    "assumed-units": "The party named truly which records belong to one person.",
    "assumed-honest": "At least {honest:n party is|parties are} honest, and the server sees only the sum of all "
    "parties.",
    "assumed-roster": "The roster of the parties is genuine, and each name on it is another organisation.",
    "assumed-statement": "What the party states is true.",
    "assumed-nothing": "Nothing is promised, so nothing is assumed.",
}
