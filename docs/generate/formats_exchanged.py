"""The formats of files that parties and servers exchange."""

from __future__ import annotations

from docs.generate.formats_fields import FileFormat

from mixveil.features import projection
from mixveil.features.split import half
from mixveil.federated import roster
from mixveil.learn import model, round_state
from mixveil.releases import envelope, round_plan

MANIFEST = FileFormat(
    "Manifest of a release",
    "RELEASE/manifest.json",
    "What a release says of itself. A reader checks every field, and computes every claim again from `payload`. "
    "Unknown or missing fields are refused. The files beside it are safetensors; each is named in `files`.",
    envelope.FORMAT,
    envelope.VERSION,
    envelope.Envelope.plain,
    {
        "kind": "What the payload is: see the kinds of payload below.",
        "id": "32 hexadecimal digits. The ledger names the release by it.",
        "party": "The name that the sender gives itself: up to 64 printable characters.",
        "created": "The time in UTC, ISO 8601, by the sender's clock.",
        "classes": "The names of the classes, in the order of the labels.",
        "guarantees": "What is promised or stated: name, nominal and realised figure, conditions as codes.",
        "certified": "Whether a guarantee `gdp` is among them.",
        "reproducible": "Whether the noise came from a seed. Then nothing is certified.",
        "label_epsilon": "ε of randomised labels; null where labels were not randomised.",
        "assets": "The SHA-256 of public files that made the payload, such as the projection.",
        "not_promised": "Codes of what a reader might think is promised and is not.",
        "files": "Name, bytes, SHA-256 and rows of each file.",
        "payload": "The settings of the payload, by its kind.",
    },
)

PROJECTION = FileFormat(
    "Projection",
    "PROJECTION.safetensors",
    "A safetensors file. Its header carries this JSON under the key `mixveil`.",
    projection.FORMAT,
    projection.VERSION,
    projection.Projection.to_bytes,
    {
        "clip": "The norm to which records are clipped.",
        "extractor": "The features that it takes: networks, stage, size, mirroring.",
        "weights": "The digest of these networks.",
        "origin": "`public`, or `private` where it was fitted on private data.",
        "about": "How it was fitted.",
        "spent": "The statistics that found its directions, with what they promised.",
        "classes": "The classes of those statistics.",
        "rounds": "Settings of rounds of sums, by the noise of a job.",
    },
)

MODEL = FileFormat(
    "Model",
    f"MODEL/{model.CARD}",
    f"The weights lie beside it in `{model.TENSORS}`. A network on images has one field more, `{model.RESNET}` or "
    f"`{model.NETWORK}`.",
    model.FORMAT,
    model.VERSION,
    model.write_model,
    {
        "created": "The time in UTC, ISO 8601.",
        "classes": "In the order of the scores.",
        "extractor": "The features that the model takes.",
        "weights": "The digest of the networks behind these features; null for pixels.",
        "projection": "The digest of the projection that records went through.",
        "trained_on": "The releases: id, party, kind, rows, and what each promised.",
        "mu": "The total μ of each party's releases for this model; null where one promises nothing.",
        "mu_with_several_parties": "The μ of a record that all these parties have, whatever other parties do.",
        "mu_alone": "With secure sums: μ of each party whatever the others do.",
        "honest": "With secure sums: how many honest parties share the noise.",
        "label_epsilon": "ε of labels by party; 0 where μ covers them, null where they are shown.",
        "per": "`record`, or `unit` where all rows of a person count together.",
        "guarantee": "What the model promises of the records behind it, as codes and figures.",
        "accuracy": "The test data and the accuracy on them; null without `--test`.",
        "how": "How it was trained.",
    },
)

HALF = FileFormat(
    "Half of a split network",
    f"NET/client/{half.CARD}, NET/server/{half.CARD}",
    f"The weights lie beside it in `{half.TENSORS}`.",
    half.FORMAT,
    half.VERSION,
    half.write_half,
    {
        "role": "`client` or `server`.",
        "shape": "Of one input.",
        "low": "The smallest value of a pixel.",
        "high": "The largest value of a pixel.",
        "output": "The shape of one output.",
        "classes": "In the order of the scores.",
        "layers": "The layers, each with its settings. No code is stored.",
        "how": "How it was trained.",
        "partner": "Of a server half: the digest of its client half.",
    },
)

PLAN = FileFormat(
    "Plan for rounds of sums",
    "plan.json",
    "What the coordinator gives to every party. A head is a safetensors file; its header names the plan and the "
    "message.",
    round_plan.FORMAT,
    round_plan.VERSION,
    round_plan.JointPlan.plain,
    {
        "id": "32 hexadecimal digits.",
        "projection": "The digest of the projection that all parties use.",
        "settings": "Directions, rounds, the share of μ² for class sums, clip norm, and how the coordinator learns.",
    },
)

STATE = FileFormat(
    "State of rounds of sums",
    "STATE/state.safetensors",
    "The coordinator's. The header carries this JSON. Only `head.safetensors`, beside it, goes to parties.",
    round_state.FORMAT,
    round_state.VERSION,
    round_state.SavedRounds.to_bytes,
    {
        "plan": "The plan's id.",
        "head": "The digest of the head that parties get next.",
        "noise": "How much noise is in the weights.",
        "classes": "Of all parties.",
        "sources": "The releases of each message, with what they cost.",
    },
)

ROSTER = FileFormat(
    "Roster",
    roster.ROSTER,
    "The parties of secure sums and their public keys. Parties compare its fingerprint by telephone.",
    roster.FORMAT,
    roster.VERSION,
    roster.Roster.data,
    {"parties": "The Ed25519 public key of each party, in hexadecimal digits."},
)

ROSTER_KEY = FileFormat(
    "Public key for a roster",
    f"PARTY{roster.PUBLIC}",
    f"The private key lies in `PARTY{roster.PRIVATE}` and never leaves the party.",
    roster.KEY_FORMAT,
    roster.VERSION,
    roster.make_key,
    {"party": "Its name.", "key": "Its Ed25519 public key, in hexadecimal digits."},
)

PAYLOADS = {
    "records": "files `shard-00000.safetensors` …, each with the tensors `x` (rows, …) and `y` (rows, classes). "
    "`payload` also has `encoder` (its name and settings) and `grid`. Where that is given, `x` holds whole numbers; "
    "the values are these times `step`.",
    "representations": "files `shard-00000.safetensors` …, each with the tensors `x` and `y`.",
    "sums": "the file `sums.safetensors` with the tensor `sums` of whole numbers; the values are these times `step`.",
    "updates": "the file `updates.safetensors`.",
}
"""The files of each kind of payload."""

EXCHANGED = (MANIFEST, PROJECTION, MODEL, HALF, PLAN, STATE, ROSTER, ROSTER_KEY)
