"""On which device records are encoded: where they are asked to be, or where they lie."""

from __future__ import annotations

from typing import Literal, get_args

import torch

from mixveil.core.errors import ArgumentError
from mixveil.core.types import Encoder, Rows
from mixveil.core.wording.notes import Note, note
from mixveil.encoders.fused.encoding import available
from mixveil.encoders.noisy import Noisy

Device = Literal["cpu", "cuda"]


def check_device(device: Device | None) -> None:
    """Refuse a GPU where there is none."""
    if device is not None and device not in get_args(Device):
        raise ArgumentError(f"device must be cpu or cuda, got {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ArgumentError("device = cuda: torch finds no GPU here; leave device out, and the CPU encodes")


def chosen(device: Device | None, rows: Rows, encoder: Encoder) -> tuple[torch.device | None, list[Note]]:
    """Where to bring rows before they are encoded, and what is to be told of it; None: they are in memory and stay
    there.

    Only Gaussian noise on its grid is drawn on a GPU. The manifest does not say where it was drawn: the release is
    exact either way.
    """
    check_device(device)
    gaussian = isinstance(encoder, Noisy) and encoder.law == "gaussian"
    if device == "cuda" and not gaussian:
        raise ArgumentError(
            f"device = cuda is for Gaussian noise, and the encoder {encoder.name} adds none: leave device out"
        )
    if not torch.cuda.is_available():
        return None, []
    lie = rows.take(torch.zeros(1, dtype=torch.int64)).x.device
    wanted = lie if device is None else torch.device(device)
    if wanted.type == "cuda" and gaussian:
        if available(wanted):
            return wanted, []
        return torch.device("cpu"), [note("encoded-without-triton")]
    return (None if lie.type == "cpu" else torch.device("cpu")), []
