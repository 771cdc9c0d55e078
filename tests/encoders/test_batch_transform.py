"""Batches mixed in a loop: the encoders' formulas with a row loop beside them, and draws that never repeat."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset, default_collate

from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError, LabelError, NotCalibratedError, TooFewRowsError
from mixveil.core.randomness import SeededStream
from mixveil.encoders.batch_transform import BatchTransform
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.identity import Identity
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import CalibratedSingular, Singular

CPU = torch.device("cpu")
CLASSES = 5
CLIPPED = CalibratedSingular(alpha=0.7, centre=0.5, clip=2.0, amplitude=2.0, sigma=0.5)
GAUSSIAN = replace(CLIPPED, centre=0.0, clip=1e9)  # a clip norm that no row reaches
SPHERE = replace(GAUSSIAN, noise="sphere")
ENCODERS = [GAUSSIAN, SPHERE, CLIPPED, replace(SPHERE, clip=1.5), Mixup(k=2), Mixup(k=4)]


def batch(n: int = 6, shape: tuple[int, ...] = (3, 4, 4), seed: int = 0) -> tuple[Tensor, Tensor]:
    stream = SeededStream(seed)
    return stream.uniform(n, *shape).float(), torch.arange(n) % CLASSES


def made(encoder: Mixup | CalibratedSingular, seed: int = 3, classes: int = CLASSES) -> BatchTransform:
    return BatchTransform(encoder, classes=classes, stream=SeededStream(seed))


def twin(encoder: Mixup | CalibratedSingular, x: Tensor, y: Tensor, seed: int = 3) -> tuple[Tensor, Tensor]:
    """Row by row in float64, from the same draws."""
    draws = DeviceStream(SeededStream(seed))
    n, mixed_x, mixed_y = len(x), [], []
    shares = torch.eye(CLASSES, dtype=torch.float64)[y]
    if isinstance(encoder, Mixup):
        orders = [draws.permutation(n) for _ in range(encoder.k - 1)]
        weight = draws.mixing_weights(n, encoder.k).double()
        for i in range(n):
            sources = [int(order[i]) for order in orders] + [i]
            mixed_x.append(sum((weight[i, j] * x[source].double() for j, source in enumerate(sources)), x[0] * 0.0))
            mixed_y.append(sum((weight[i, j] * shares[source] for j, source in enumerate(sources)), shares[0] * 0))
        return torch.stack(mixed_x), torch.stack(mixed_y)
    partner = draws.cycle(n)
    weight = draws.capped_weights(n, encoder.alpha).double()
    normals = draws.normal(x.flatten(1)).double()
    z = encoder.prepare(x)
    for i in range(n):
        noise = normals[i] * encoder.sigma
        if encoder.noise == "sphere":
            noise *= math.sqrt(len(noise)) / float(normals[i].norm())
        other = int(partner[i])
        row = weight[i, 0] * z[i] + weight[i, 1] * (z[other] + noise)
        mixed_x.append(encoder.restore(row).view(x.shape[1:]))
        mixed_y.append(weight[i, 0] * shares[i] + weight[i, 1] * shares[other])
    return torch.stack(mixed_x), torch.stack(mixed_y)


@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
@pytest.mark.parametrize("shape", [(3, 4, 4), (7,)], ids=str)
def test_the_formula_row_by_row(encoder: Mixup | CalibratedSingular, shape: tuple[int, ...]) -> None:
    x, y = batch(9, shape)
    kept = x.clone(), y.clone()
    mixed, labels = made(encoder)(x, y)
    expected_x, expected_y = twin(encoder, x, y)
    assert mixed.shape == x.shape and mixed.dtype == torch.float32 and labels.dtype == torch.float32
    assert torch.allclose(mixed.double(), expected_x, atol=1e-5)
    assert torch.allclose(labels.double(), expected_y, atol=1e-6)
    assert torch.equal(x, kept[0]) and torch.equal(y, kept[1])


@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
def test_class_numbers_and_shares_say_the_same(encoder: Mixup | CalibratedSingular) -> None:
    x, y = batch(20)
    shares = torch.nn.functional.one_hot(y, CLASSES).double()
    kept = shares.clone()
    of_numbers, of_shares = made(encoder)(x, y), made(encoder)(x, shares)
    assert torch.equal(of_numbers[0], of_shares[0]) and torch.equal(of_numbers[1], of_shares[1])
    assert torch.equal(of_numbers[1], made(encoder)(x, y.int())[1])
    assert torch.allclose(of_numbers[1].sum(1), torch.ones(20))
    assert torch.equal(shares, kept)


def test_partners_are_others_and_weights_keep_to_the_cap() -> None:
    n = 40
    transform = made(replace(GAUSSIAN, alpha=0.6, sigma=1e-3), classes=n)
    for _ in range(50):
        _, shares = transform(torch.eye(n), torch.arange(n))  # every row a class of its own
        assert bool(((shares > 0).sum(1) == 2).all())  # itself and one other
        assert bool(((shares > 0).sum(0) == 2).all())
        assert float(shares.max()) <= 0.6 + 1e-6
        assert float(shares.diagonal().min()) >= 0.4 - 1e-6


def test_fixed_points_come_only_where_the_encoder_allows_them() -> None:
    transform, found = made(replace(GAUSSIAN, fixed_points=True), classes=3), 0
    for _ in range(30):
        _, shares = transform(torch.eye(3), torch.arange(3))
        found += int((shares.diagonal() > 0.99).sum())
    assert found > 0


def test_noise_has_the_stated_size() -> None:
    """Of black images: what comes out is w₂σe, and w₂ is read off the labels."""
    n, d = 64, 400
    x, y = torch.zeros(n, d), torch.arange(n)
    for encoder in (GAUSSIAN, SPHERE):
        mixed, shares = made(encoder, classes=n)(x, y)
        other = (1 - shares.diagonal())[:, None]
        noise = mixed / other
        if encoder.noise == "sphere":
            assert torch.allclose(noise.norm(dim=1), torch.full((n,), 0.5 * math.sqrt(d)), rtol=1e-5)
        assert abs(float(noise.mean())) < 6 * 0.5 / math.sqrt(n * d)
        assert float(noise.std()) == pytest.approx(0.5, rel=0.05)
        assert float(((noise / 0.5) ** 4).mean()) == pytest.approx(3, rel=0.15)
        assert abs(float((noise[:-1] * noise[1:]).mean())) < 6 * 0.25 / math.sqrt(n * d)


def test_a_clip_shortens_long_records_and_leaves_the_others() -> None:
    """With next to no noise: mixtures of `restore(prepare(x))`."""
    encoder = replace(CLIPPED, sigma=1e-6)
    x = torch.cat([0.5 + 10 * batch(3)[0], batch(3)[0]])
    own = encoder.restore(encoder.prepare(x))
    mixed, shares = made(encoder, classes=6)(x, torch.arange(6))
    assert torch.allclose(mixed.flatten(1).double(), shares.double() @ own, atol=1e-4)
    assert torch.equal(made(encoder)(x, torch.arange(6) % 2)[0], mixed)


def test_where_nothing_is_clipped_the_centre_changes_nothing() -> None:
    x, y = batch()
    assert torch.allclose(made(GAUSSIAN)(x, y)[0], made(replace(GAUSSIAN, centre=0.5))(x, y)[0], atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("encoder", [SPHERE, CLIPPED, Mixup(k=3)], ids=str)
def test_other_precisions(encoder: Mixup | CalibratedSingular, dtype: torch.dtype) -> None:
    x, y = batch(32)
    mixed, labels = made(encoder)(x.to(dtype), y)
    assert mixed.dtype == dtype and labels.dtype == torch.float32
    assert bool(mixed.isfinite().all())
    assert torch.equal(labels, made(encoder)(x, y)[1])
    if isinstance(encoder, Mixup):  # no noise: the same values, but for rounding
        tolerance = 4 * max(torch.finfo(dtype).eps, 1e-6)
        assert torch.allclose(mixed.double(), made(encoder)(x, y)[0].double(), atol=tolerance)


def test_weights_sum_to_one_in_half_precision() -> None:
    ones = torch.ones(50, 8, dtype=torch.bfloat16)
    mixed, _ = made(Mixup(k=3))(ones, torch.arange(50) % CLASSES)
    assert torch.equal(mixed, ones)


def test_long_records_of_half_precision_do_not_overflow() -> None:
    x = torch.full((4, 3, 64, 64), 200.0, dtype=torch.float16)  # its squares sum to 5·10⁸
    encoder = replace(GAUSSIAN, alpha=0.5, sigma=1e-3, clip=100.0)
    mixed, _ = made(encoder)(x, torch.arange(4))
    assert torch.allclose(mixed.flatten(1).double().norm(dim=1), torch.full((4,), 100.0).double(), rtol=2e-2)


def test_channels_last_stays_so() -> None:
    x, y = batch(8)
    last = x.to(memory_format=torch.channels_last)
    mixed, labels = made(Mixup())(last, y)
    assert mixed.is_contiguous(memory_format=torch.channels_last)
    plain, same = made(Mixup())(x, y)
    assert plain.is_contiguous() and torch.equal(mixed, plain) and torch.equal(labels, same)
    assert made(GAUSSIAN)(last, y)[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(made(Mixup())(x.transpose(2, 3), y)[0], plain.transpose(2, 3))


def test_autocast_changes_nothing() -> None:
    x, y = batch()
    plain = made(CLIPPED)(x, y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = made(CLIPPED)(x, y)
    assert cast[0].dtype == torch.float32 and cast[1].dtype == torch.float32
    assert torch.equal(plain[0], cast[0]) and torch.equal(plain[1], cast[1])


def test_the_same_seed_repeats_and_nothing_else_does() -> None:
    x, y = batch()
    one, two, other, fresh = made(GAUSSIAN), made(GAUSSIAN), made(GAUSSIAN, 4), BatchTransform(GAUSSIAN, classes=5)
    for _ in range(3):
        first, second = one(x, y), two(x, y)
        assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
    again = BatchTransform(GAUSSIAN, classes=5)
    found = [transform(x, y)[0] for transform in (one, one, other, fresh, fresh, again)]
    for i in range(len(found)):
        assert not any(torch.equal(found[i], later) for later in found[i + 1 :])


def test_gradients_reach_the_batch() -> None:
    x = batch()[0].requires_grad_()
    transform = BatchTransform(Singular(), sigma=0.5, classes=6, stream=SeededStream(3))
    mixed, shares = transform(x, torch.arange(6))
    mixed.sum().backward()
    assert x.grad is not None
    assert torch.allclose(x.grad, shares.sum(0)[:, None, None, None].expand_as(x), atol=1e-5)


class NoWaiting(TorchDispatchMode):
    """Refuses what makes a GPU's owner wait for it: a number read from a tensor, a size that depends on one."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        assert not any(name in str(func) for name in ("_local_scalar", "nonzero", "aten.equal", "masked_select")), func
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
def test_nothing_is_read_from_the_device(encoder: Mixup | CalibratedSingular) -> None:
    x, y = batch()
    shares = torch.nn.functional.one_hot(y, CLASSES).float()
    transform = made(encoder)
    with NoWaiting():
        transform(x, shares)
    with NoWaiting(), pytest.raises(AssertionError, match="_local_scalar"):
        transform(x, y)  # the class numbers are looked at, on the CPU


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
def test_a_gpu_is_not_waited_for(encoder: Mixup | CalibratedSingular, dtype: torch.dtype) -> None:
    x, y = batch(64)
    x, y = x.to("cuda", dtype), y.to("cuda")
    transform = made(encoder)
    transform(x, y)
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.autocast("cuda", torch.bfloat16):
            mixed, labels = transform(x, y)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert mixed.is_cuda and mixed.dtype == dtype and labels.dtype == torch.float32
    assert bool(mixed.isfinite().all()) and torch.allclose(labels.sum(1), torch.ones(64, device="cuda"))


class Collate:
    """As a user has it: the loader's own way to put a batch together, then the transform."""

    def __init__(self, transform: BatchTransform) -> None:
        self.transform = transform

    def __call__(self, rows: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        return self.transform(*default_collate(rows))


@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used before"])
def test_workers_and_epochs_draw_anew(used: bool) -> None:
    """Two worker processes, two epochs: no batch's weights come twice, nor those that the parent drew."""
    x, y = batch(32)[0], torch.arange(32) % 4
    transform = made(GAUSSIAN)
    seen = [transform(x[:4], y[:4])[1]] if used else []
    torch.manual_seed(0)
    loader = DataLoader(
        TensorDataset(x, y),
        batch_size=4,
        num_workers=2,
        collate_fn=Collate(transform),
        multiprocessing_context="fork",
    )
    for _ in range(2):
        for mixed, shares in loader:
            assert mixed.shape == (4, 3, 4, 4) and torch.allclose(shares.sum(1), torch.ones(4))
            seen.append(shares)
    assert len(seen) == 16 + used
    larger = [tuple(shares.amax(1).tolist()) for shares in seen]  # a batch has every class once: its weights show
    assert len(set(larger)) == len(larger)


def test_it_can_be_sent_to_a_process() -> None:
    x, y = batch()
    for transform in (made(GAUSSIAN), BatchTransform(GAUSSIAN, classes=5)):
        transform(x, y)
        sent = pickle.loads(pickle.dumps(transform))
        assert sent(x, y)[0].shape == x.shape


def test_a_sigma_alone_is_noise_without_a_clip_norm() -> None:
    x, y = batch()
    alone = BatchTransform(Singular(), sigma=2.0, classes=CLASSES, stream=SeededStream(3))(x, y)
    assert all(torch.equal(a, b) for a, b in zip(alone, made(replace(GAUSSIAN, sigma=2.0))(x, y), strict=True))


def test_bad_settings_are_refused() -> None:
    for encoder in (Identity(), Gaussian(), None):
        with pytest.raises(ArgumentError, match="encoder must be"):
            BatchTransform(encoder, classes=5)  # type: ignore[arg-type]
    with pytest.raises(NotCalibratedError, match="sigma"):
        BatchTransform(Singular(), classes=5)
    for ready in (GAUSSIAN, Mixup()):
        with pytest.raises(ArgumentError, match="sigma"):
            BatchTransform(ready, sigma=0.5, classes=5)
    with pytest.raises(ArgumentError, match="sigma must be positive"):
        BatchTransform(Singular(), sigma=-1.0, classes=5)
    with pytest.raises(ArgumentError, match="classes must be at least 2, got 1"):
        made(Mixup(), classes=1)


def test_bad_batches_are_refused() -> None:
    x, y = batch()
    transform = made(GAUSSIAN)
    for bad in ((x * 255).byte(), x.flatten(), x[:, 0, 0, 0], x.to(torch.complex64)):
        with pytest.raises(ArgumentError, match="x must be"):
            transform(bad, y)
    for few in (x[:1], x[:0]):
        with pytest.raises(TooFewRowsError, match="at least 2 rows"):
            transform(few, y[: len(few)])
    shares = torch.full((6, CLASSES), 0.2)
    for labels in (
        y[:5],
        y[:, None],
        y > 1,
        y.float(),
        shares[:5],
        shares[:, :4],
        shares.long(),
        y.to(torch.complex64),
    ):
        with pytest.raises(LabelError, match="y must be"):
            transform(x, labels)
    for numbers in (y - 1, y + 1):
        with pytest.raises(LabelError, match="class numbers must be in 0…4"):
            transform(x, numbers)
    with pytest.raises(ArgumentError, match="one device"):
        transform(x, y.to("meta"))
