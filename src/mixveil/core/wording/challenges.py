"""Sentences about challenges: what their makers should know, their rules, and what is scored."""

from __future__ import annotations

_LINKED = "all private images of {whole:.1%} of the rows, and one at least of {some:.1%}"

WORDS: dict[str, str] = {
    # What the owner should know before a challenge is made
    "challenge-images-shown": "A challenge is for images that may be shown: others will try to recover these "
    "{images:n image}, and their truth is published in the end. Your ledger counts it as a release of them that "
    "promises nothing.",
    "challenge-seeded": "Everything in this challenge follows from its seed, and a seed can be found by trying: for "
    "experiments only. Leave --seed out for a challenge that is published.",
    # Rules
    "challenge-rule-recover": "Recover as many of the private images as you can, as well as you can. Which private "
    "images are in which row may be handed in too, or alone.",
    "challenge-rule-public": "Use the files of this folder and anything public. The owner's machines and accounts are "
    "not part of the challenge.",
    "challenge-rule-guess": "A guess is one safetensors file, which the owner scores. Nothing in it is ever run.",
    # What is scored
    "challenge-scored-images": "Images: every private image is given one of your images, so that the sum of SSIM is "
    "as large as it can be (the sum of SNR, where rows are no images); their order is free. Values outside the range "
    "are brought to its ends. Figures: SSIM, SNR and PSNR (mean, median and best), and the share of images that are "
    "recovered, which means an SSIM above {recovered:g}. Beside them: the mean of all private images in the place of "
    "each, and another private image in the place of each.",
    "challenge-scored-sources": "Sources: the share of rows of which exactly the right private images are named, and "
    "of which one at least is. Your numbers are taken for those private images with which most of them are right, "
    "one-to-one. Beside them: the same for your guess with its rows shuffled.",
    # What is known of the encodings
    "challenge-order": "The rows are in one random order: a row's place says nothing of its images or its encoding.",
    "challenge-covers": "Each row also holds patches of public images ({name}): there are {patches:n patch|patches} to "
    "choose from, each with more than {keypoints} keypoints. Which patches these are is not published.",
    "challenge-facts": "The noise was set by figures of public data ({name}).",
    "challenge-mu": "What is promised for every image, labels excluded: one encoding of it is {mu:g}-GDP, and with "
    "{encodings:n encoding} it is {together:.4g}-GDP.",
    "challenge-tau": "The noise was asked to keep a directional SNR of {tau:g} in every row (calibration "
    "{calibration}); that is no guarantee for several encodings of an image.",
    "challenge-randomness": "Pairing, weights, masks, noise and order come from a cryptographically secure stream. The "
    "original InstaHide challenge was also broken through its ordinary random generator, whose state could be "
    "computed from what was published.",
    "challenge-randomness-seeded": "Everything was drawn from a seed. An attacker who finds the seed has the truth: "
    "this challenge is an experiment.",
    "challenge-mirrored": "Images were mirrored or not, at random, before they were mixed: no attacker can tell an "
    "image from its mirror image. So both count: of every guess, and of the guesses beside it, the nearer of the two "
    "is compared.",
    # What an attack made of a challenge
    "guess-of-images": "{attack} guesses {images:n image}.",
    "guess-of-sources": "{attack} names up to {per_row:n private image} in each of {rows:n row}.",
    "guess-images-left-out": "The images of {attack} are left out: finite values of {due} are scored, and it gave "
    "{given}.",
    "guess-sources-left-out": "What {attack} says of who is in which row is left out: of each of {rows:n row} it may "
    "name up to {per_row:n image}, by numbers from 0 to {last}, or −1.",
    "guess-given-truth": "The truth was given for {stages}: this guess shows where the defence holds, not what an "
    "attacker gets.",
    # What a guess is worth
    "challenge-recovered": "Recovered: {recovered:.1%} of the images have a guess with an SSIM above {ssim:g} (the "
    "mean image: {nothing:.1%}; another private image: {others:.1%}).",
    "challenge-linked": f"Linked: the guess names {_LINKED} (shuffled: {{chance_whole:.1%}} and {{chance_some:.1%}}).",
}
