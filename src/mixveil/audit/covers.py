"""Releases that mix in public patches: the patches of all of them in one list, numbered after the records."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError, WrongTruthError
from mixveil.core.types import Dataset, Trace, View
from mixveil.data.covers import Covered, Patches


def with_covers(view: View, truth: Dataset, images: Dataset | None) -> tuple[View, Dataset]:
    """The view of an attacker who holds the patches themselves, and the records followed by the patches. images: those
    that patches were cut from. What the traces do not tell is left out. Releases with covers come first."""
    mixing = [release.encoder for release in view.releases if release.encoder.covers]
    if not mixing or view.traces is None:
        if images is not None and not mixing:
            raise ArgumentError("covers: these releases were made without public images in their rows")
        return view, truth
    if images is None:
        raise ArgumentError(f"the encoder {mixing[0].name} mixed public images in: name them (--covers)")
    view = _covered_first(view)
    tables: list[Tensor] = []
    traces: list[Trace] = []
    for trace in view.traces or ():
        if trace.covers is None:
            traces.append(trace)
            continue
        known = next((i for i, table in enumerate(tables) if torch.equal(table, trace.covers)), len(tables))
        if known == len(tables):
            tables.append(trace.covers)
        before = sum(len(table) for table in tables[:known])
        partner = torch.where(trace.partner >= len(truth), trace.partner + before, trace.partner)
        traces.append(replace(trace, partner=partner, covers=None))
    table = torch.cat(tables)
    if int(table[:, 0].max()) >= len(images):
        raise WrongTruthError(f"covers: these are {len(images):,} images, and the release holds patches of others")
    patches = Patches(images, table, truth)
    return replace(view, traces=tuple(traces), covers=patches), Covered(truth, patches)


def _covered_first(view: View) -> View:
    """The same releases, those with covers first: attacks look for covers in the first one."""
    order = sorted(range(len(view.releases)), key=lambda t: view.releases[t].encoder.covers == 0)
    traces = None if view.traces is None else tuple(view.traces[t] for t in order)
    return replace(view, releases=tuple(view.releases[t] for t in order), traces=traces)


def covered(view: View, records: int) -> Tensor | None:
    """(n, q) the numbers of the patches in each row of the first release; None where it has none."""
    if view.traces is None or not view.releases[0].encoder.covers:
        return None
    numbers = view.traces[0].partner - records
    return numbers[:, (numbers >= 0).all(0)]
