"""The formats of challenges, scores and simulations."""

from __future__ import annotations

from docs.generate.formats_fields import FileFormat

from mixveil.audit import challenge, challenge_truth
from mixveil.federated.simulation import results as simulations
from mixveil.report import challenge_pages

CHALLENGE = FileFormat(
    "Challenge",
    f"CHALLENGE/{challenge.CARD}",
    f"What is published, beside `{challenge.ENCODINGS}` and `{challenge.PAGE}`.",
    challenge.FORMAT,
    challenge.VERSION,
    challenge.ChallengeCard.plain,
    {
        "id": "32 hexadecimal digits.",
        "payload": "The encoder with all its settings, and the shape of a row.",
        "classes": "In the order of the labels.",
        "range": "Of a value of a private image.",
        "images": "How many private images there are.",
        "encodings": "How many rows each image is the own image of.",
        "rows": "images × encodings.",
        "private_per_row": "How many private images a row is made of at most.",
        "order": "How rows are ordered: in one random order.",
        "target": "What the noise was asked to keep; null where nothing was asked.",
        "public": "The public data that the encoder used.",
        "reproducible": "Whether everything was drawn from a seed.",
        "rules": "Codes of the rules.",
        "scored": "Codes of what is scored.",
        "recovered_ssim": "An image counts as recovered above this SSIM.",
        "file": "Name, bytes, SHA-256 and rows of the encodings.",
        "truth_sha256": "The SHA-256 of the hidden truth.",
    },
)

TRUTH = FileFormat(
    "Truth of a challenge",
    f"CHALLENGE.truth/{challenge_truth.TRUTH}",
    f"It stays with its owner until the challenge is over. The images lie in `{challenge_truth.TENSORS}`.",
    challenge_truth.FORMAT,
    challenge_truth.VERSION,
    challenge_truth.truth_json,
    {
        "id": "Of the challenge.",
        "published": "The SHA-256 of the published files that this is the truth of.",
        "file": "Name, bytes, SHA-256 and rows of the tensors.",
    },
)

SCORE = FileFormat(
    "Score of a guess",
    "SCORE/score.json",
    "What a guess at a challenge is worth.",
    challenge_pages.FORMAT,
    challenge_pages.VERSION,
    challenge_pages.score_json,
    {
        "challenge": "Its id.",
        "encoder": "Its name.",
        "sizes": "Images, encodings and rows.",
        "recovered_ssim": "An image counts as recovered above this SSIM.",
        "images": "How near the guessed images come, beside two baselines; null where none were guessed.",
        "linkage": "How many sources of rows were named, beside chance; null where none were guessed.",
        "notes": "The result as codes and figures.",
    },
)

SIMULATION = FileFormat(
    "Simulation",
    "SIMULATION.json",
    "What `mixveil simulate --out` keeps. Figures of private rows without protection: keep it as you keep the data.",
    simulations.FORMAT,
    simulations.VERSION,
    simulations.Kept.whole,
    {
        "provenance": "Time, commit, versions and machine.",
        "settings": "What it is a simulation of.",
        "counts": "How many rows of each class each party has.",
        "rows": "A row a method: accuracy, bytes, messages, seconds, and what it promises.",
    },
)

MEASURED = (CHALLENGE, TRUTH, SCORE, SIMULATION)
