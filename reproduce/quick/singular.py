"""Singularized mixup: Tables 1 to 6 and Figures 1 and 2, on the digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

import mixveil
from mixveil.attacks.records.linear import recovered
from mixveil.attacks.records.unet import Unet
from mixveil.attacks.shared.model import MixingMatrix
from mixveil.attacks.shared.pixels import Pixels
from mixveil.attacks.shared.training import Schedule
from mixveil.core.device_random import DeviceStream
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Batch, Release, Tau, Trace, View
from mixveil.data import similarity
from mixveil.encoders import calibration
from mixveil.encoders.batch_transform import BatchTransform
from mixveil.encoders.singular import CalibratedSingular, Singular
from mixveil.features import cache
from mixveil.features.extractor import Extractor
from mixveil.learn.batches import BatchSource, Released, RemixedEveryBatch
from mixveil.learn.fit import TrainingRecipe, fit
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.records import Records, RecordSettings
from mixveil.releases.records import in_memory
from mixveil.theory.snr import amplification
from reproduce.enlarged import digits
from reproduce.singular.figures import Column, picture
from reproduce.singular.shared import ALPHA, WIDE, Row, as_images, given
from reproduce.singular.tables import TAUS, mixed, normalised, pixels

SIZE, FEW, NEAR = 32, (1.0, 1e-2, 1e-6), 0.5
PARTIES, ROUNDS, EPOCHS = 3, 50, 20


def _digits(split: str, rows: int) -> tuple[Tensor, Tensor, float]:
    """Normalised images, labels, and the variance of all values around one mean."""
    data = digits(split, SIZE, 3, rows)
    x = normalised(data.take(torch.arange(len(data))).x)
    return x, data.labels, float(x.double().var())


def _compared(truth: Tensor, guess: Tensor) -> Row:
    snr, alike = similarity.snr_db(truth, guess), similarity.ssim(pixels(truth), pixels(guess))
    return {"SNR dB": float(snr.mean()), "best SNR dB": float(snr.max()), "SSIM": float(alike.mean())}


def screened(seed: int, out: Path) -> Iterator[Row]:
    """Table 1, by SSIM."""
    x, _, spread = _digits("test", 256)
    for tau in TAUS:
        rows, _ = mixed(x, tau, spread, DeviceStream(SeededStream(seed).fork(f"{tau}")))
        alike = similarity.ssim(pixels(x), pixels(rows))
        figures = {f"SSIM > {NEAR} %": 100 * float((alike > NEAR).double().mean()), "SSIM": float(alike.mean())}
        yield {"settings": {"tau": tau, "rows": len(x), "seed": seed}, "figures": figures}


def _by_lines(x: Tensor, tau: float, spread: float, seed: int) -> tuple[Tensor, Tensor]:
    """Rows, and what the linear attack makes of them."""
    rows, trace = mixed(x, tau, spread, DeviceStream(SeededStream(seed).fork(f"{tau}")))
    return rows, recovered(MixingMatrix.of((trace,)), [rows], Pixels(3, 0.0, 1.0, normalised=True))


def linear(seed: int, out: Path) -> Iterator[Row]:
    """Table 2."""
    x, _, spread = _digits("test", 64)
    for tau in TAUS:
        figures = _compared(x, _by_lines(x, tau, spread, seed)[1])
        yield {"settings": {"tau": tau, "rows": len(x), "seed": seed}, "figures": figures}


def _by_network(tau: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Records, rows, and what a small U-Net makes of them."""
    (x, labels, spread), (shown, marks, _) = _digits("test", 64), _digits("train", 1000)
    rows, trace = mixed(x, tau, spread, DeviceStream(SeededStream(seed).fork(f"rows {tau}")))
    sigma = (spread * (amplification(ALPHA) / tau - 1)) ** 0.5
    encoder = CalibratedSingular(alpha=ALPHA, centre=0.0, clip=WIDE * 1e3, amplitude=WIDE, sigma=sigma)
    view = View((_release(rows, labels, trace, encoder),), (trace,), as_images(shown, marks))
    attack = Unet(normalised=True, base=8, schedule=Schedule(epochs=5, batch=32))
    return x, rows, given(attack(view, stream=SeededStream(seed).fork("unet")).images).float()


def _release(rows: Tensor, labels: Tensor, trace: Trace, encoder: CalibratedSingular) -> Release:
    y = torch.nn.functional.one_hot(labels, 10).float()
    payload = Records((Batch(rows, ALPHA * y + (1 - ALPHA) * y[trace.partner[:, 0]]),), None)
    classes = tuple(str(i) for i in range(10))
    settings = RecordSettings(encoder, tuple(rows.shape[1:]))
    return Release(Envelope(settings, "quick", classes, reproducible=True), payload)


def networks(seed: int, out: Path) -> Iterator[Row]:
    """Table 3."""
    for tau in TAUS:
        x, _, guess = _by_network(tau, seed)
        yield {"settings": {"attack": "unet", "tau": tau, "rows": len(x), "seed": seed}, "figures": _compared(x, guess)}


def learnt(seed: int, out: Path) -> Iterator[Row]:
    """Table 4: the paper's classifier on pixels, with the noise of `energy` at a τ that hides something of them."""
    loaded = cache.load(Extractor(), None)
    train, test = (cache.extract(mixveil.open_data(f"digits:{split}"), loaded, None) for split in ("train", "test"))
    stream, tau = SeededStream(seed), 1.0
    encoder, _, _ = calibration.calibrate(Singular(), Tau(tau, "energy"), train, stream=stream.fork("facts"))
    x, truth = (part.read(torch.arange(len(part))) for part in (train, test))
    again = BatchTransform(encoder, classes=10, stream=stream.fork("again"))
    once = in_memory(train, encoder, (), party="quick", stream=stream.fork("once"))
    sources: dict[str, BatchSource] = {
        "in the clear": RemixedEveryBatch(x, train.labels, 10, None),
        "re-mixed every batch: no release": RemixedEveryBatch(x, train.labels, 10, again),
        "one release": Released([once], x.device),
    }
    for mode, source in sources.items():
        model = fit(source, TrainingRecipe(epochs=5, seed=seed)).eval()
        with torch.no_grad():
            right = model(truth.float()).argmax(1).eq(test.labels)
        settings = {"mode": mode, "tau": tau, "rows": len(train), "epochs": 5, "seed": seed}
        yield {"settings": settings, "figures": {"accuracy %": 100 * float(right.double().mean())}}


def _together(seed: int, beta: float, rho: float) -> Iterator[Row]:
    found = mixveil.simulate(
        "digits:train",
        parties=PARTIES,
        beta=beta,
        rho=rho,
        methods="fedprox,one-shot",
        rounds=ROUNDS,
        epochs=EPOCHS,
        learning_rate=5e-3,
        test="digits:test",
        seed=seed,
    )
    for row in found.rows:
        settings = {"parties": PARTIES, "beta": beta, "rho": rho, "method": row["method"], "seed": seed}
        yield {"settings": settings, "figures": {"accuracy %": 100 * row["accuracy"], "bytes up": row["bytes_up"]}}


def by_skew(seed: int, out: Path) -> Iterator[Row]:
    """Table 5."""
    for beta in (1.0, 0.1):
        yield from _together(seed, beta, 1.0)


def by_size(seed: int, out: Path) -> Iterator[Row]:
    """Table 6."""
    for rho in (1.0, 0.1):
        yield from _together(seed, 0.5, rho)


def linear_pictures(seed: int, out: Path) -> Iterator[Row]:
    """Figure 1."""
    x, _, spread = _digits("test", 16)
    columns = []
    for tau in TAUS:
        rows, found = _by_lines(x, tau, spread, seed)
        columns.append(Column(tau, x[0], rows[0], found[0]))
        yield {"settings": {"tau": tau, "seed": seed}, "figures": _compared(x[:1], found[:1])}
    picture(out.with_suffix(".png"), columns)


def network_pictures(seed: int, out: Path) -> Iterator[Row]:
    """Figure 2."""
    columns = []
    for tau in FEW:
        x, rows, found = _by_network(tau, seed)
        columns.append(Column(tau, x[0], rows[0], found[0]))
        yield {"settings": {"tau": tau, "seed": seed}, "figures": _compared(x[:1], found[:1])}
    picture(out.with_suffix(".png"), columns)


TABLES: dict[str, Callable[[int, Path], Iterator[Row]]] = {
    "1": screened,
    "2": linear,
    "3": networks,
    "4": learnt,
    "5": by_skew,
    "6": by_size,
    "figure1": linear_pictures,
    "figure2": network_pictures,
}
