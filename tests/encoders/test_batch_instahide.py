"""InstaHide in a loop: row by row from the same draws, its weights, its labels, and public patches."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.encoders.batch_transform import BatchTransform
from mixveil.encoders.instahide import CalibratedInstaHide, InstaHide
from mixveil.encoders.mixup import Mixup
from tests.encoders.test_batch_transform import CLASSES, NoWaiting, batch

SHAPE = (3, 4, 4)
PATCHES = SeededStream(9).uniform(11, *SHAPE).float()


def made(
    encoder: InstaHide | CalibratedInstaHide, covers: Tensor | None = None, classes: int = CLASSES
) -> BatchTransform:
    return BatchTransform(encoder, classes=classes, covers=covers, stream=SeededStream(3))


def calibrated(k: int = 4, covers: int = 0, centre: float = 0.5) -> CalibratedInstaHide:
    return CalibratedInstaHide(k=k, c1=0.65, c2=0.3, covers=covers, pad=0, values=48, centre=centre)


def twin(
    encoder: InstaHide | CalibratedInstaHide, x: Tensor, y: Tensor, covers: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Row by row in float64, from the same draws."""
    draws, n = DeviceStream(SeededStream(3)), len(x)
    private = encoder.k if covers is None else 2
    weight = draws.bounded_weights(n, encoder.k, encoder.c1, private, 0.0 if covers is None else encoder.c2).double()
    orders = [draws.permutation(n) for _ in range(private - 1)]
    patches = [] if covers is None else [draws.below(len(covers), n) for _ in range(encoder.k - private)]
    signs = draws.signs(torch.empty(n, x[0].numel())).double().view_as(x)
    centre = encoder.centre if isinstance(encoder, CalibratedInstaHide) else 0.0
    rows, labels = [], []
    for i in range(n):
        images = [x[i], *(x[int(order[i])] for order in orders)]
        images += [covers[int(patch[i])] for patch in patches] if covers is not None else []
        mixture = sum((weight[i, j] * (image.double() - centre) for j, image in enumerate(images)), x[0].double() * 0)
        rows.append(signs[i] * mixture + centre)
        label = torch.zeros(CLASSES, dtype=torch.float64)
        for j, source in enumerate([i, *(int(order[i]) for order in orders)]):
            label[y[source]] += weight[i, j]
        labels.append(label)
    return torch.stack(rows), torch.stack(labels)


CASES: list[tuple[InstaHide | CalibratedInstaHide, Tensor | None]] = [
    (InstaHide(k=1), None),
    (InstaHide(k=2), None),
    (InstaHide(k=4), None),
    (InstaHide(k=6, c1=0.5), None),
    (calibrated(), None),
    (InstaHide(k=4), PATCHES),
    (InstaHide(k=6), PATCHES),
    (calibrated(covers=11), PATCHES),
]
NAMES = [f"{type(encoder).__name__}-{encoder.k}-{'inside' if covers is None else 'cross'}" for encoder, covers in CASES]


@pytest.mark.parametrize(("encoder", "covers"), CASES, ids=NAMES)
def test_the_formula_row_by_row(encoder: InstaHide | CalibratedInstaHide, covers: Tensor | None) -> None:
    x, y = batch(12, SHAPE)
    kept = x.clone()
    mixed, labels = made(encoder, covers)(x, y)
    wanted_x, wanted_y = twin(encoder, x, y, covers)
    assert torch.allclose(mixed.double(), wanted_x, atol=1e-5) and torch.equal(x, kept)
    assert torch.allclose(labels.double(), wanted_y, atol=1e-6)
    assert mixed.dtype == torch.float32 and labels.dtype == torch.float32


@pytest.mark.parametrize(("encoder", "covers"), CASES, ids=NAMES)
def test_nothing_is_read_from_the_device(encoder: InstaHide | CalibratedInstaHide, covers: Tensor | None) -> None:
    x, y = batch(12, SHAPE)
    transform, shares = made(encoder, covers), torch.nn.functional.one_hot(y, CLASSES).float()
    with NoWaiting():  # type: ignore[no-untyped-call]
        transform(x, shares)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("encoder", "covers"), CASES, ids=NAMES)
def test_a_gpu_is_not_waited_for(
    encoder: InstaHide | CalibratedInstaHide, covers: Tensor | None, dtype: torch.dtype
) -> None:
    x, y = batch(64, SHAPE)
    x, y = x.to("cuda", dtype), y.to("cuda")
    transform = made(encoder, None if covers is None else covers.cuda())
    transform(x, y)
    torch.cuda.set_sync_debug_mode("error")
    try:
        mixed, labels = transform(x, y)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert mixed.is_cuda and mixed.dtype == dtype and bool(mixed.isfinite().all())
    assert float(labels.sum(1).max()) <= 1 + 1e-5 and float(labels.sum(1).min()) >= 0.3 - 1e-5


def test_weights_keep_to_their_bounds_and_are_read_off_the_labels() -> None:
    n = 60
    x, own = torch.eye(n).view(n, 1, 1, n), torch.arange(n)
    for _ in range(5):
        _, shares = made(InstaHide(k=4), classes=n)(x, own)
        assert float(shares.amax()) <= 1 and torch.allclose(shares.sum(1), torch.ones(n), atol=1e-6)
        assert int((shares > 0).sum(1).max()) <= 4
    _, shares = made(InstaHide(k=4), torch.rand(5, 1, 1, n, generator=torch.Generator().manual_seed(0)), n)(x, own)
    assert int((shares > 0).sum(1).max()) <= 2
    assert float(shares.sum(1).min()) >= 0.3 - 1e-6 and float(shares.sum(1).max()) < 1


def test_signs_are_fresh_and_hide_nothing_of_sizes() -> None:
    """All images alike: every mixture is that image, behind signs."""
    x = torch.full((200, *SHAPE), 2.0)
    transform = made(InstaHide(k=4))
    one, two = transform(x, torch.arange(200) % CLASSES)[0], transform(x, torch.arange(200) % CLASSES)[0]
    assert torch.equal(one.abs(), x) and torch.equal(two.abs(), x)
    for first, second in ((one, torch.ones_like(one)), (one, two), (one[1:], one[:-1])):
        assert abs(float((first * second).sign().mean())) < 6 / first.numel() ** 0.5


def test_layouts_and_precisions() -> None:
    x, y = batch(12, SHAPE)
    last = x.to(memory_format=torch.channels_last)
    for covers in (None, PATCHES):
        plain, labels = made(InstaHide(k=4), covers)(x, y)
        mixed, same = made(InstaHide(k=4), covers)(last, y)
        assert mixed.is_contiguous(memory_format=torch.channels_last) and torch.equal(labels, same)
        assert torch.allclose(mixed.abs(), plain.abs(), atol=1e-6)  # signs lie as the values do
        half, _ = made(InstaHide(k=4), covers)(x.bfloat16(), y)
        assert half.dtype == torch.bfloat16 and torch.allclose(half.float(), plain, atol=0.03)


def test_draws_repeat_by_seed_and_number_alone() -> None:
    x, y = batch(12, SHAPE)
    one, two = made(InstaHide()), made(InstaHide())
    two(x, y)
    one.restart(4)
    two.restart(4)
    assert torch.equal(one(x, y)[0], two(x, y)[0])
    one.restart(5)
    two.restart(4)
    assert not torch.equal(one(x, y)[0], two(x, y)[0])


def test_draws_ahead_are_used_once_each() -> None:
    """Weights of many batches, read off labels: none comes twice, also with batches of another size between them."""
    transform, seen = made(InstaHide(k=2), classes=12), []
    x, own = batch(12, SHAPE)[0], torch.arange(12)
    for number in range(150):
        seen.append(tuple(transform(x, own)[1].flatten().tolist()))
        if number % 40 == 39:
            seen.append(tuple(transform(x[:5], own[:5])[1].flatten().tolist()))
    assert len(set(seen)) == len(seen) == 153


def test_bad_covers_are_refused() -> None:
    x, y = batch(12, SHAPE)
    for encoder, covers in ((calibrated(), PATCHES), (calibrated(covers=11), None), (Mixup(k=4, covers=3), None)):
        with pytest.raises(ArgumentError, match="exactly where the encoder mixes them in"):
            BatchTransform(encoder, classes=5, covers=covers)
    with pytest.raises(ArgumentError, match="k must be more than 2"):
        made(InstaHide(k=2), PATCHES)
    with pytest.raises(ArgumentError, match="are for an InstaHide"):
        BatchTransform(Mixup(k=4, covers=3), classes=5, covers=PATCHES)
    with pytest.raises(ArgumentError, match="covers must be"):
        made(InstaHide(), (PATCHES * 255).byte())
    with pytest.raises(ArgumentError, match="augment it before"):
        made(InstaHide(augmented=True))
    with pytest.raises(ArgumentError, match="cannot be mixed"):
        made(InstaHide(), PATCHES[:, :1])(x, y)
    with pytest.raises(ArgumentError, match="on the device of x"):
        made(InstaHide(), PATCHES.to("meta"))(x, y)
