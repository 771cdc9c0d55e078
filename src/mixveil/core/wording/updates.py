"""Sentences about updates of federated averaging, attacks on them, and Fed-AugMix."""

from __future__ import annotations

WORDS: dict[str, str] = {
    "update-kept": "{job}: what was sent last is kept in {path}. What it shows of your images: mixveil audit {path} "
    "--truth {data} --out REPORT",
    "attack-needs-updates": "it attacks updates, and this release holds {kind}",
    "attack-needs-training": "it needs to know how the party trained, and the update does not say it",
    "attack-needs-layers": "it needs a network that is a plain sequence of layers without batch normalisation",
    "update-of-many-rows": "it inverts updates of up to {most:n row}, and this one is of {rows:n row}",
    "update-of-several-steps": "it inverts one step on all rows at once, and this update is of {steps:n step}, in "
    "batches of {batch} of {rows:n row}: invgrad inverts such updates",
    "update-needs-sgd": "it needs an update by SGD, and this one is by {optimiser}",
    "update-needs-dense-scores": "it needs a network that ends with a dense layer of scores, with a bias or behind "
    "ReLU",
    "update-needs-dense-first": "it needs a network that begins with a dense layer with a bias, or is one dense layer",
    "threat-update-labels": "They are the server: they know the weights before and after, the network and how the "
    "party trained. They count records of each class by the last layer's update alone.",
    "threat-dlg": "They are the server: they know the weights before and after, the network and how the party trained. "
    "They look for images and labels with the same gradient (Zhu et al., 2019).",
    "threat-idlg": "The same, with labels read off the last layer first (Zhao et al., 2020).",
    "threat-gradient-rows": "They are the server: they know the weights before and after, the network and how the "
    "party trained. They read records off the update of the dense layer that takes them, and search for nothing.",
    "attack-needs-views": "it is for updates of Fed-AugMix, and this one was trained without",
    "threat-invgrad": "They are the server: they know the weights before and after, the network and how the party "
    "trained. They look for the smooth images whose update points the same way (Geiping et al., 2020).",
    "threat-invgrad-adaptive": "The same, by attackers who know that Fed-AugMix is used: they play the "
    "party with draws of their own, see which layers its views make noisy, and look again with those counting less.",
    "updates-warning": "updates promise nothing: the server, and everyone who sees what you send, can look for the "
    "rows that you trained on. Attack it before you send any (`mixveil audit`)",
    "update-steps-of-one-class": "most steps train on rows of one class alone: rows are taken in the order of DATA, "
    "and what an update shows depends on which rows share a step. If you would shuffle them, give a table (.csv) "
    "whose rows are in that order",
    "update-trained": "a network with {layers:n layer} of {values:,} weights, trained on {rows:n row} in {steps:n "
    "step} of up to {batch:n row}",
    "verdict-update": "Attacked: an update by {method}: {how}.",
    "update-noise-unaccounted": "what this noise would promise is not accounted: NO guarantee is claimed for it",
    "metric-labels-found": "labels found",
    "bare-update-unlike": "out of one plain step on {rows:n row}, without any defence, it gets pictures with a mean "
    "SSIM of {ssim:.2f}, and {least:.2f} is asked for",
    "bare-update-left": "out of one plain step on {rows:n row}, without any defence, it leaves a mean "
    "squared error of {error:.3g}, one picture for all rows {nothing:.3g}, and at most {most:.0%} of that is asked for",
    "update-not-recomputed": "Release {release} ({method}) could not be computed again from these data, as its steps "
    "or the order of its rows were drawn, its steps were changed, its weights hardly moved, or its training is not "
    "stated: only the number of rows, their shape and their classes were compared, and your ledger, if it has an entry "
    "of it.",
    "update-record-read": "Of one record {attack} leaves {left:.0%} of the error of knowing nothing: that one is read, "
    "however little the mean over all is. Look at the pictures before you decide.",
    "update-pictures-alike": "The pictures of {attack} are like the records by SSIM: {mean:.2f} (knowing nothing: "
    "{nothing:.2f}), though not by their squared error. Look at them before you decide.",
    "labels-read-off": "{attack} reads the classes of {mean:.0%} of the rows off the update (guessing: {chance:.0%})",
    "updates-not-promised": "Updates promise nothing: the server computes what rows like yours would change in the "
    "weights, and compares. Each further round shows more, and a server that sends weights made for it can get more "
    "than any attack here: they take the weights as they are.",
    "verdict-fails-undefended": "These fail even on an update without any defence: {attacks}. That they find nothing "
    "here proves nothing.",
    "verdict-updates-grey": "Knowing nothing is a grey picture here, as no public images were given. The mean of "
    "images like yours is nearer to them, and attackers have that: give some (--public).",
    "verdict-nothing-said": "Pictures: NOTHING can be said. No attack ran that gets pictures out of an update "
    "without a defence, so that no figure here shows that this update hides any. An update of fewer rows may show more "
    "(`mixveil update --rows 1`).",
    "verdict-updates-little": "That these attacks ({attacks}), which get pictures out of an update without a defence, "
    "got little here is what was measured. It does not show that the update hides images: others may get more.",
    "verdict-attacks-not-run": "NOT run: {attacks}: {why}. What such attackers get is not measured.",
    "verdict-labels-found": "Labels: {attack} is not told them, and finds the classes of {mean:.0%} of the rows "
    "(guessing: {chance:.0%}).",
    "verdict-update-labels": "Labels: not protected. Attackers who look for pictures were told them, as the paper of "
    "Fed-AugMix has it.",
    "page-leaves-updates": "the weights after the party's part of a round, and the manifest, which says how it "
    "trained.",
    "page-stays-updates": "the records, and this page. The weights before it are no secret: the server sent them.",
    "page-released-updates": "Updates have no rows to show. Guesses come in no order: each is below the record that it "
    "is assigned to, so that the squared error of all is least.",
    "page-figures-updates": "Worst: the record for which an attack got most. Knowing nothing: the same figure for the "
    "mean public image, or for the middle of the range, whichever is nearer; of labels, for as many rows of each "
    "class. Attackers who look for pictures know the labels, as the paper of Fed-AugMix has it; those who look for "
    "labels do not. "
    "Guesses come in no order, and are assigned to the records with the least squared error. There is no "
    "ceiling: nothing bounds what attackers get of updates.",
    "page-unprotected-updates": "Updates are not protected: that an attack fails shows nothing of others, and no "
    "theorem says that these cannot be inverted.",
    "page-labels-updates": "Labels are not protected: updates show which classes they were trained on.",
}
