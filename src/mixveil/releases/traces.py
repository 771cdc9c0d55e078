"""The owner's state folder: what stays with the party. Readable by its owner only."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from mixveil.core import files
from mixveil.core.errors import ArgumentError, StateError
from mixveil.core.types import Trace

_EXTRA = "extra."


def state_folder() -> Path:
    """MIXVEIL_STATE, else mixveil/ in XDG_STATE_HOME, else ~/.local/state/mixveil."""
    return files.own_folder("MIXVEIL_STATE", "XDG_STATE_HOME", ".local/state")


def trace_path(release_id: str, folder: Path | None = None) -> Path:
    """Where a release's trace is kept. folder: of the ledger that the release is entered in; else the state folder."""
    if not re.fullmatch(r"[0-9a-f]{32}", release_id):
        raise ArgumentError(f"a release id is 32 hexadecimal digits, got {release_id!r}")
    return (folder or state_folder()) / "traces" / f"{release_id}.safetensors"


def save_trace(release_id: str, trace: Trace, manifest_sha256: str, folder: Path | None = None) -> Path:
    """Keep the trace of a release, and the hash of its manifest, with mode 0600."""
    from safetensors.torch import save

    path = trace_path(release_id, folder)
    drawn = {"partner": trace.partner, "weight": trace.weight, "order": trace.order, "kept": trace.kept}
    drawn["covers"] = trace.covers
    drawn |= {_EXTRA + name: values for name, values in trace.extra.items()}
    tensors = {name: values.contiguous() for name, values in drawn.items() if values is not None}
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write_file(path, save(tensors, {"manifest": manifest_sha256}), 0o600)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            discard_trace(release_id, folder)
        raise StateError(f"the trace cannot be written: {error}; MIXVEIL_STATE names another state folder") from None
    return path


def discard_trace(release_id: str, folder: Path | None = None) -> None:
    """Forget the trace of a release that was never finished."""
    with contextlib.suppress(OSError):
        trace_path(release_id, folder).unlink()


def load_trace(release_id: str, rows: int, folder: Path | None = None) -> Trace | None:
    """The trace of a release of so many rows that was encoded here; None if it was not."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = trace_path(release_id, folder)
    if not path.exists():
        return None
    try:
        tensors = load_file(path)
        extra = {name.removeprefix(_EXTRA): tensors.pop(name) for name in list(tensors) if name.startswith(_EXTRA)}
        order, kept, covers = (tensors.pop(name, None) for name in ("order", "kept", "covers"))
        trace = Trace(tensors.pop("partner"), tensors.pop("weight"), order, kept, extra, covers)
    except (OSError, KeyError, SafetensorError) as error:
        raise StateError(f"{path} is not a trace: {error}") from None
    made = len(trace.weight)
    if tensors or any(not values.dim() or len(values) != made for values in extra.values()):
        raise StateError(f"{path} holds more than a trace of {made} rows: {', '.join([*tensors, *extra])}")
    sizes = len(trace.partner) == made and trace.partner.dim() == trace.weight.dim() == 2
    left = made if kept is None else int(kept.sum()) if kept.dtype == torch.bool and kept.shape == (made,) else -1
    if not sizes or left != rows or trace.weight.shape[1] != trace.partner.shape[1] + 1:
        raise StateError(f"{path} is not the trace of a release of {rows} rows")
    if covers is not None and (covers.dim() != 2 or covers.shape[1] != 4):
        raise StateError(f"{path} does not say where its public patches were cut")
    known = made + (0 if covers is None else len(covers))
    if trace.partner.numel() and not 0 <= int(trace.partner.min()) <= int(trace.partner.max()) < known:
        raise StateError(f"{path} names rows that were not made")
    if trace.order is not None and not torch.equal(trace.order.sort().values, torch.arange(made)):
        raise StateError(f"{path} does not say in which order the rows are")
    return trace


def recorded_manifest(release_id: str, folder: Path | None = None) -> str | None:
    """The SHA-256 of the manifest that was written here for a release; None if none was."""
    from safetensors import SafetensorError, safe_open

    path = trace_path(release_id, folder)
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            return str((file.metadata() or {}).get("manifest"))
    except (OSError, SafetensorError) as error:
        raise StateError(f"{path} is not a trace: {error}") from None
