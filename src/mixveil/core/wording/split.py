"""Sentences about split networks: representations, their inversion, and sweeps."""

from __future__ import annotations

WORDS: dict[str, str] = {
    "hardness-not-promised": "An attacker who has the network computes images that give what was sent. That no fast "
    "method inverts every network says nothing of this network and these images.",
    "representations-warning": "no noise is added to representations, and nothing is promised: the server and "
    "every party have the client half, and can look for your images with it. Audit public data first to see what they "
    "get",
    "rows-in-data-order": "Rows are in the order of the data. Where data are sorted by class, the order shows labels.",
    "labels-sorted": "the data are sorted by class: the labels of {rows:n row} come in {runs:n run}. Rows are "
    "sent in this order, which shows labels that are not sent. Shuffle the data first, as an .npz file or a "
    "table of image files, and keep that order for the answers",
    "halves-warning": "halves are trained without noise: their weights may show training images, and the client half "
    "goes to all parties. Train on public data, or on data that may be shown",
    "halves-promise-nothing": "representations promise nothing: see what attackers get (`mixveil audit --client`)",
    "sweep-warning": "Settings are compared on these test images, and a low SSIM shows only that these attacks failed: "
    "nothing is promised of representations, so measure the setting that you take on other images, with stronger "
    "attacks (`mixveil audit --profile full`).",
    "sweep-untrained": "Only attacks that train no network ran ({attacks}): attackers who train on images were NOT "
    "tried (`--attacks inversion,inversion-gan,inversion-adaptive`).",
    "too-few-public-images": "it trains on at least {least} public images, got {rows:,}",
    "threat-inversion": "The paper's attack: they hold what was sent and the client half. They look for the smooth "
    "image of which the half makes the same, by gradient descent on its pixels.",
    "threat-inversion-gan": "The paper's attack: they hold what was sent, the client half and public images. They "
    "train a network, against another, to make images of what the half makes of them.",
    "threat-inversion-adaptive": "They hold what was sent, the client half and public images. They rescale what was "
    "sent by how representations of public images vary, train a network to undo the half, and from its images go on by "
    "gradient descent, with settings that were best on public images.",
    "attack-needs-representations": "it inverts what a client half sends, and the release holds {kind}",
    "attack-needs-its-client": "the release has rows of {values:n value}, and this client half makes {made:,}: it is "
    "another",
    "attack-needs-public-shape": "the public images have the shape {shape}, and the client half takes {taken}",
    "bare-images-missing": "it guesses no images",
    "bare-representations-left": "where a client half hides nothing and sends the pixels, all times one factor so that "
    "they are as large as what this half sends, it leaves a mean squared error of {error:.3g}, knowing nothing "
    "{nothing:.3g}: it may leave {most:.0%} of that at most",
    "representations-alike": "The client half makes nearly the same of all these images: release {release} does not "
    "show that it was made of them.",
    "verdict-part-inverted": "A part: {attacked:n representation was|representations were} attacked of {rows:,}, "
    "chosen by chance. An attacker who has them all inverts each of them in the same way.",
    "verdict-inversion-only": "Only attacks that learn nothing from public images gave figures ({attacks}): what "
    "attackers who train on such images get is NOT measured. That these got little would not show that representations "
    "hide images.",
    "verdict-inversion-little": "That these attacks got little does not show that representations hide images: others "
    "may get more.",
    "verdict-inversion-public": "Attacks that train on images like yours did NOT run: give public data.",
    "verdict-rows-recomputed": "Recognition and membership: an attacker who holds an image and the client half "
    "computes its representation, and sees whether it was sent, and as which row. No noise hides that.",
    "verdict-labels-not-sent": "Labels: not sent. The representations may still show them: the server half tells "
    "classes by them. So may the order of rows, which is that of the data.",
    "verdict-warnings-all": "{count:n warning: read it|warnings: read them}.",
    "beside-best": "Releases of different kinds are attacked in different ways: these are the attacks that leave the "
    "least error. Mean over records, the most revealing record in brackets, and what knowing nothing gets after the "
    "stroke.",
    "page-released-records": "Released rows are stretched to the whole range.",
    "page-released-representations": "Released: representations as pictures, their maps side by side, each stretched "
    "to the whole range.",
    "page-leaves-representations": "one representation for each record, as the client half computes it, and the "
    "manifest; labels where the verdict says so.",
    "page-stays-representations": "the records, and this page. The client half is no secret: attackers have it.",
    "page-figures-representations": "Worst: the record for which an attack got most. Knowing nothing: the same figure "
    "for the mean public image, or for the middle of the range, whichever is nearer. There is no ceiling: nothing "
    "bounds what attackers get of representations.",
    "page-unprotected-representations": "Representations are not protected: no noise is added, and no theorem says "
    "that these cannot be inverted.",
    "page-labels-representations": "Labels are not protected. Where they are not sent, representations may show them.",
}
