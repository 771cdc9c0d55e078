"""Parties that change what they made before it is sent."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
from safetensors.torch import load, save

from mixveil.federated.jobs.messages import MANIFEST, Message
from tests.federated.here import Answer


def changed(answer: Answer, change: Any) -> Answer:
    """A party whose files are changed on the way, after it made them honestly; its manifest fits them."""

    def lying(message: Message) -> Message:
        found = answer(message)
        if MANIFEST not in found.files:
            return found
        whole, files = json.loads(found.files[MANIFEST]), dict(found.files)
        change(whole, files)
        files[MANIFEST] = json.dumps(whole).encode()
        return Message(found.about, files)

    return lying


def tensors(whole: dict[str, Any], files: dict[str, bytes], change: Any) -> None:
    """Change the first shard's tensors, and the manifest with them."""
    name = whole["files"][0]["name"]
    found = load(files[name])
    files[name] = save(change(found))
    whole["files"][0] |= {"bytes": len(files[name]), "sha256": hashlib.sha256(files[name]).hexdigest()}


def nan_labels(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    def change(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        found["y"][3, 1] = torch.nan
        return found

    tensors(whole, files, change)


def off_the_grid(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    def change(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        found["x"].view(-1)[5] = torch.iinfo(found["x"].dtype).max
        return found

    tensors(whole, files, change)


def floats(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    tensors(whole, files, lambda found: {"x": found["x"].float() + 0.5, "y": found["y"]})


def fewer(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    tensors(whole, files, lambda found: {"x": found["x"][:-1].clone(), "y": found["y"][:-1].clone()})


def lying_mu(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    whole["guarantees"][0]["nominal"] = whole["guarantees"][0]["realised"] = 0.1


def seeded(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    whole |= {"reproducible": True, "certified": False, "guarantees": []}


def other_name(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    whole["party"] = "a"


def too_large(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    files[whole["files"][0]["name"]] *= 10


def one_bit(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    name = whole["files"][0]["name"]
    files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])
