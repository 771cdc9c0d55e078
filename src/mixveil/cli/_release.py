"""A release in words: what it is, what is promised, what is not. The words are ours, whatever its manifest says."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from mixveil.cli._common import escape, out

if TYPE_CHECKING:
    from mixveil.core.types import Guarantee
    from mixveil.releases.manifest import Manifest


def summary(written: Manifest) -> dict[str, object]:
    """A manifest's figures for `--json`."""
    return {
        "id": written.id,
        "party": written.party,
        "rows": written.rows,
        "shape": list(written.shape),
        "bytes": sum(shard.bytes for shard in written.shards),
        "encoder": written.encoder.name,
        "extractor": None if written.extractor is None else written.extractor.plain(),
        "certified": written.certified,
        "reproducible": written.reproducible,
        "guarantees": [asdict(guarantee) for guarantee in written.guarantees],
        "label_epsilon": written.label_epsilon,
        "screened": None if written.screened is None else written.screened.plain(),
        "not_promised": list(written.not_promised),
    }


def show(folder: Path, written: Manifest) -> None:
    size = sum(shard.bytes for shard in written.shards)
    shape = "×".join(str(s) for s in written.shape)
    out.print(
        f"[bold]{escape(str(folder))}[/]: {written.rows:,} rows of {shape} from {escape(written.party)}, "
        f"{len(written.shards)} shard(s), {size / 1e6:.1f} MB",
        soft_wrap=True,
    )
    if written.extractor is not None:
        out.print(
            f"  features of images by {escape(str(written.extractor))}, {written.extractor.size} pixels wide (settings "
            f"and weights {written.assets['features'][:8]})",
            soft_wrap=True,
        )
    if written.screened is not None:
        made = written.screened.records
        out.print(
            f"  screened by {written.screened.screen}: {made - written.rows:,} of {made:,} rows that were made were "
            f"dropped ({1 - written.rows / made:.1%})",
            soft_wrap=True,
        )
    for guarantee in written.guarantees:
        kind = "promised" if written.certified else "stated"
        out.print(f"  {kind}: {in_words(guarantee)}", soft_wrap=True)
    if written.label_epsilon is not None and not written.reproducible:
        out.print(f"  promised: the label of every record is {written.label_epsilon:g}-DP (randomised response)")
    kind = "[green]certified[/]" if written.certified else "[yellow]not certified[/]"
    out.print(f"  {kind}, id {written.id}")
    for text in written.not_promised:
        out.print(f"  [dim]not promised:[/] {escape(text)}", soft_wrap=True)


def _unit(guarantee: Guarantee) -> str:
    return "every record" if guarantee.assumes.get("unit", "").startswith("one record") else "every unit (all its rows)"


def in_words(guarantee: Guarantee) -> str:
    """A guarantee as its reader should understand it: the realised figure is the claim."""
    from mixveil.encoders.calibration import times
    from mixveil.encoders.singular import NOT_KEPT
    from mixveil.theory import gdp

    claim = guarantee.claim
    if guarantee.name == "gdp":
        return (
            f"{_unit(guarantee)} is {claim:.4g}-GDP: ε = {gdp.epsilon(claim):.3g} at δ = 1e-5; on average no "
            f"membership test finds more than {gdp.member_tpr(claim, 0.01):.1%} of the members at 1 % false alarms"
        )
    how = guarantee.assumes.get("calibration", "").partition(":")[0]
    if how in NOT_KEPT and (guarantee.realised is None or guarantee.realised > guarantee.nominal):
        realised = "is not stated"
        if guarantee.realised is not None:
            realised = f"is up to {guarantee.realised:.4g}, {times(guarantee.realised / guarantee.nominal)} that"
        rows = guarantee.assumes.get("rows")
        return (
            f"noise by the calibration {how} for τ = {guarantee.nominal:.4g}, which is NOT kept; the directional SNR "
            f"of a row {realised}" + (f"; {escape(rows)}" if rows else "")
        )
    asked = "" if math.isclose(claim, guarantee.nominal) else f" (nominal τ = {guarantee.nominal:.4g})"
    given = [guarantee.assumes[name] for name in ("moments", "rows") if name in guarantee.assumes]
    return f"directional SNR of a row at most {claim:.4g}{asked}" + "".join(f"; {escape(text)}" for text in given)
