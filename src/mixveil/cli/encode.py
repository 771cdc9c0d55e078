"""`mixveil encode`: from labelled images to a release on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mixveil.cli import _common
from mixveil.cli._common import Alpha, AsJson, Clip, Data, DataDir, Public, Seed, Size, escape, out, print_json
from mixveil.errors import ArgumentError

if TYPE_CHECKING:
    from mixveil.data import Images
    from mixveil.keys import Stream
    from mixveil.manifest import Manifest
    from mixveil.theory.moments import Moments
    from mixveil.types import Dataset, Encoder, Facts, Guarantee, Target

Calibration = Literal["spectral", "theorem", "energy"]


def encode(
    data: Data,
    out_dir: Annotated[Path, typer.Option("--out", help="The folder to make. It must not exist.")],
    mu: Annotated[float | None, typer.Option("--mu", help="Certified: every record μ-GDP, labels excluded.")] = None,
    tau: Annotated[float | None, typer.Option("--tau", help="Theorem 2's directional SNR, in (0, 1].")] = None,
    calibration: Annotated[Calibration, typer.Option("--calibration", help="How --tau is met.")] = "spectral",
    encoder: Annotated[str, typer.Option("--encoder", help="singular, or mixup or identity: no promise.")] = "singular",
    alpha: Alpha = None,
    noise: Annotated[
        Literal["gaussian", "sphere"], typer.Option("--noise", help="sphere: to reproduce the paper only.")
    ] = "gaussian",
    clip: Clip = None,
    public: Public = None,
    party: Annotated[str, typer.Option("--party", help="The party's name, as the manifest shows it.")] = "party",
    seed: Seed = None,
    data_dir: DataDir = None,
    size: Size = None,
    as_json: AsJson = False,
) -> None:
    """Encode DATA once, as a release that may leave. Pairing and weights stay in your state folder.

    [bold]--mu[/] asks for a certified release: noise from public facts only. [bold]--tau[/] asks for Theorem 2's
    directional SNR: noise from the private data's own moments, not certified.
    """
    from mixveil.data import open_data
    from mixveil.release import write_release
    from mixveil.state import trace_path

    target = _target(encoder, mu, tau, calibration)
    rows = open_data(data, data_dir=data_dir, size=size)
    stream = _common.stream_for(seed)
    known = None if public is None else open_data(public, data_dir=data_dir, size=size)
    ready, guarantees = _calibrated(encoder, target, rows, known, clip, alpha, noise, stream)
    with _common.progress("encoding", len(rows)) as step:
        written = write_release(
            out_dir, rows, ready, guarantees, party=party, stream=stream.fork("release"), progress=step
        )
    trace = trace_path(written.id)
    if as_json:
        print_json({"release": str(out_dir), **summary(written), "trace": str(trace), "warnings": rows.warnings()})
        return
    show(out_dir, written)
    out.print(f"Pairing and weights stay with you: {escape(str(trace))}", soft_wrap=True)
    for text in rows.warnings():
        _common.warn(text)


def _target(encoder: str, mu: float | None, tau: float | None, calibration: Calibration) -> Target | None:
    from mixveil.encoders import encoder as find
    from mixveil.types import Mu, Tau

    find(encoder)
    if encoder != "singular":
        if mu is not None or tau is not None:
            raise ArgumentError(f"the encoder {encoder} adds no noise: neither --mu nor --tau can be asked of it")
        return None
    if (mu is None) == (tau is None):
        raise ArgumentError("say what to ask for: --mu (certified) or --tau (Theorem 2), one of the two")
    return Mu(mu) if mu is not None else Tau(tau or 0.0, calibration)


def _calibrated(
    name: str,
    target: Target | None,
    rows: Images,
    public: Images | None,
    clip: float | None,
    alpha: float | None,
    noise: Literal["gaussian", "sphere"],
    stream: Stream,
) -> tuple[Encoder, tuple[Guarantee, ...]]:
    from mixveil import calibration, checks
    from mixveil.encoders import encoder as find
    from mixveil.encoders.singular import Singular
    from mixveil.theory.moments import passes
    from mixveil.types import Mu

    checks.enough_rows(len(rows))
    if target is None:
        return find(name)(), ()
    (checks.positive if isinstance(target, Mu) else checks.fraction)(type(target).__name__.lower(), target.value)
    encoder = Singular(alpha=alpha, noise=noise)

    def moments_of(source: Dataset, facts: Facts) -> Moments:
        with _common.progress("moments", passes(int(facts["dimension"])) * len(source)) as step:
            return calibration.prepared_moments(source, facts, stream=stream.fork("moments"), progress=step)

    facts = calibration.facts_for(target, rows, public=public, clip=clip, moments_of=moments_of)
    return encoder.calibrate(target, facts)


def summary(written: Manifest) -> dict[str, object]:
    """A manifest's figures for `--json`."""
    from dataclasses import asdict

    return {
        "id": written.id,
        "party": written.party,
        "rows": written.rows,
        "shape": list(written.shape),
        "bytes": sum(shard.bytes for shard in written.shards),
        "encoder": written.encoder.name,
        "certified": written.certified,
        "reproducible": written.reproducible,
        "guarantees": [asdict(guarantee) for guarantee in written.guarantees],
        "not_promised": list(written.not_promised),
    }


def show(folder: Path, written: Manifest) -> None:
    """A release in a few lines: what it is, what is promised, what is not."""
    size = sum(shard.bytes for shard in written.shards)
    shape = "×".join(str(s) for s in written.shape)
    out.print(
        f"[bold]{escape(str(folder))}[/]: {written.rows:,} rows of {shape} from {escape(written.party)}, "
        f"{len(written.shards)} shard(s), {size / 1e6:.1f} MB",
        soft_wrap=True,
    )
    for guarantee in written.guarantees:
        out.print(f"  promised: {in_words(guarantee)}", soft_wrap=True)
    kind = "[green]certified[/]" if written.certified else "[yellow]not certified[/]"
    out.print(f"  {kind}, id {written.id}")
    for text in written.not_promised:
        out.print(f"  [dim]not promised:[/] {escape(text)}", soft_wrap=True)


def in_words(guarantee: Guarantee) -> str:
    """A guarantee as its reader should understand it."""
    from mixveil.theory import gdp

    claim = guarantee.nominal if guarantee.realised is None else max(guarantee.nominal, guarantee.realised)
    if guarantee.name == "gdp":
        return (
            f"every record is {claim:.4g}-GDP: ε = {gdp.epsilon(claim):.3g} at δ = 1e-5; no membership test finds more "
            f"than {gdp.member_tpr(claim, 0.01):.1%} of the members at 1 % false alarms"
        )
    if guarantee.name == "directional_snr":
        asked = "" if claim == guarantee.nominal else f" (nominal τ = {guarantee.nominal:.4g})"
        return f"directional SNR of a row at most {claim:.4g}{asked}"
    return f"{escape(guarantee.name)} {claim:.4g}"
