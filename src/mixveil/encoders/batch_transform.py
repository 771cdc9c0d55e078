"""Mixing in a training loop: augmentation that happens to use the encoders' formulas, and promises nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError, LabelError, NotCalibratedError
from mixveil.core.randomness import SecureStream, Stream
from mixveil.encoders.batch_draws import MixingDraws
from mixveil.encoders.instahide import CalibratedInstaHide, InstaHide
from mixveil.encoders.mixing import PRIVATE
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import PAPER_ALPHA, CalibratedSingular, Singular

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
BatchEncoder = Mixup | Singular | CalibratedSingular | InstaHide | CalibratedInstaHide
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class BatchTransform:
    """`transform(x, y)` gives the batch mixed with itself: x̃ of x's shape, type, device and scale, and (n, classes)
    float32 soft labels. x is (n, …); y is (n,) class numbers or (n, classes) shares.

    NOTHING is promised. This is augmentation for a loop that holds the raw data and mixes each batch: the same
    image comes out again and again, under noise that is fast and not secret. What leaves needs `write_release`.

    encoder: `Mixup`; or `InstaHide`, whose centre is 0 until it is calibrated; or a calibrated `Singular`, which clips
    records about its centre; or `Singular` with a sigma, the noise of one value, which clips nothing.
    covers: public patches that `InstaHide` mixes in, of a row's shape and on its device. A row is then of two images of
    the batch and k − 2 patches, and its label sums to the share of those two.
    stream: a `SeededStream` to repeat the draws (in a data loader's worker processes they also follow from torch's own
    seed; the processes of a distributed run each need a seed, or a fork of the stream, of their own).

    It never waits for a GPU. So there, class numbers are not looked at: torch stops at one that is out of range.
    """

    def __init__(
        self,
        encoder: BatchEncoder,
        *,
        classes: int,
        sigma: float | None = None,
        covers: Tensor | None = None,
        stream: Stream | None = None,
    ) -> None:
        if not isinstance(encoder, BatchEncoder):
            raise ArgumentError(f"encoder must be a Mixup, an InstaHide or a Singular, got {encoder!r}")
        _check_covers(encoder, covers)
        self._covers = covers
        self._encoder, self._sigma = encoder, _noise_of(encoder, sigma)
        self._classes = checks.at_least("classes", classes, 2)
        self._draws = DeviceStream(SecureStream() if stream is None else stream)
        self._mixing = _mixing(encoder, covers, self._draws)

    def restart(self, number: int) -> None:
        """From here on draws follow from the stream and this number alone: for a loop that may go on after a kill."""
        self._draws.restart(number)
        self._mixing.restart()

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        _check_batch(x, y, self._classes)
        last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
        laid = x.movedim(1, -1) if last else x  # as it lies in memory: the fastest, and the loop's layout is kept
        rows, labels = laid.flatten(1), _soft(y, self._classes)
        if isinstance(self._encoder, Mixup):
            mixed, labels = self._mixup(self._encoder, rows, labels)
        elif isinstance(self._encoder, InstaHide | CalibratedInstaHide):
            mixed, labels = self._instahide(self._encoder, rows, labels, laid.shape[1:], last)
        else:
            mixed, labels = self._singular(self._encoder, rows, labels)
        mixed = mixed.view(laid.shape)
        return mixed.movedim(-1, 1) if last else mixed, labels

    def _mixup(self, encoder: Mixup, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Σ_j w_j x_πj: k − 1 random permutations, and the row itself last."""
        n, device = len(rows), rows.device
        orders = [_to(self._draws.permutation(n), device) for _ in range(encoder.k - 1)]
        weight = self._draws.mixing_weights(n, encoder.k)
        shares = _to((weight / weight.cumsum(1))[:, 1:].T[:, :, None].contiguous(), device)

        def mixed(source: Tensor) -> Tensor:
            others = (source.index_select(0, order) for order in orders)  # one at a time in memory
            return _blend(next(others), chain(others, (source,)), shares)

        return mixed(rows), mixed(labels)

    def _instahide(
        self, encoder: InstaHide | CalibratedInstaHide, rows: Tensor, labels: Tensor, shape: torch.Size, last: bool
    ) -> tuple[Tensor, Tensor]:
        """s ∘ Σ_j λ_j (x_j − centre) + centre: the row itself, rows of the batch by permutations, then covers."""
        private = self._mixing.private
        index, weight, share = self._mixing.batch(len(rows), rows.device)
        sources: list[Callable[[], Tensor]] = [lambda: rows]
        sources += [partial(rows.index_select, 0, order) for order in index[1:private]]
        sources += [partial(self._drawn_covers, rows, drawn, shape, last) for drawn in index[private:]]
        others = (source() for source in reversed(sources))  # the row itself last, as in `_mixup`
        first = next(others)
        mixed = _blend(first.clone() if encoder.k == 1 else first, others, share)
        centre = encoder.centre if isinstance(encoder, CalibratedInstaHide) else 0.0
        signs = self._draws.signs(mixed)
        mixed = mixed.mul_(signs) if centre == 0 else mixed.sub_(centre).mul_(signs).add_(centre)
        return mixed, labels[index[:private]].mul_(weight[:private]).sum(0)

    def _drawn_covers(self, rows: Tensor, drawn: Tensor, shape: torch.Size, last: bool) -> Tensor:
        """(n, d) the cover of each row, as rows lie in memory."""
        covers = self._covers
        if covers is None or covers.device != rows.device:
            raise ArgumentError(f"covers must be on the device of x, {rows.device}")
        found = covers.index_select(0, drawn).to(rows.dtype)
        laid = found.movedim(1, -1) if last else found
        if laid.shape[1:] != shape:
            raise ArgumentError(f"covers of shape {tuple(covers.shape[1:])} cannot be mixed with x of {tuple(shape)}")
        return laid.flatten(1)

    def _singular(self, encoder: Singular | CalibratedSingular, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """w₁z + w₂(z' + σe) + centre, which is w₁(z + centre) + w₂(z' + centre + σe): weights sum to one."""
        n, device = len(rows), rows.device
        draw = self._draws.permutation if encoder.fixed_points else self._draws.cycle
        partner = _to(draw(n), device)
        alpha = PAPER_ALPHA if encoder.alpha is None else encoder.alpha
        share = _to(self._draws.capped_weights(n, alpha)[:, :1].contiguous(), device)
        if isinstance(encoder, CalibratedSingular):
            rows = _clipped(rows, encoder.centre, encoder.clip)
        cover = self._covered(rows.index_select(0, partner), encoder.noise)
        return cover.lerp_(rows, share.to(cover.dtype)), labels.index_select(0, partner).lerp_(labels, share)

    def _covered(self, rows: Tensor, law: str) -> Tensor:
        """The rows plus noise, in their own memory."""
        noise = self._draws.normal(rows)
        if law == "gaussian":
            return rows.add_(noise, alpha=self._sigma)
        radius = self._sigma * math.sqrt(rows.shape[1])
        return rows.addcmul_(noise, (radius / _lengths(noise)).to(rows.dtype))


def _mixing(encoder: BatchEncoder, covers: Tensor | None, draws: DeviceStream) -> MixingDraws:
    """What InstaHide draws for a batch; the other encoders draw by themselves."""
    if not isinstance(encoder, InstaHide | CalibratedInstaHide):
        return MixingDraws(draws, 1, 1.0, 1, 0.0, 0)
    if covers is None:
        return MixingDraws(draws, encoder.k, encoder.c1, encoder.k, 0.0, 0)
    return MixingDraws(draws, encoder.k, encoder.c1, PRIVATE, encoder.c2, len(covers))


def _check_covers(encoder: BatchEncoder, covers: Tensor | None) -> None:
    """Covers go with an InstaHide of k > 2, and with one that was calibrated for covers. Only a release moves images:
    in a loop, they are moved before they come here."""
    if (isinstance(encoder, InstaHide) and encoder.augmented) or (
        isinstance(encoder, CalibratedInstaHide) and encoder.pad
    ):
        raise ArgumentError(
            f"a batch is mixed as it is: augment it before, and give an encoder that does not, got {encoder!r}"
        )
    if isinstance(encoder, CalibratedInstaHide | Mixup) and (encoder.covers > 0) != (covers is not None):
        raise ArgumentError(f"covers must be given exactly where the encoder mixes them in, got {encoder!r}")
    if covers is None:
        return
    if not isinstance(encoder, InstaHide | CalibratedInstaHide):
        raise ArgumentError(f"covers are for an InstaHide, got {encoder!r}")
    if encoder.k <= PRIVATE:
        raise ArgumentError(f"k must be more than {PRIVATE}, with public images, got {encoder.k}")
    if not covers.is_floating_point() or len(covers) == 0:
        raise ArgumentError(f"covers must be (p, …) floating values, got {covers.dtype} of {tuple(covers.shape)}")


def _noise_of(encoder: BatchEncoder, sigma: float | None) -> float:
    """The noise of one value: the encoder's own, or the given one where it has none yet."""
    if isinstance(encoder, Singular):
        if sigma is None:
            raise NotCalibratedError("singular has no noise yet: calibrate it, or give sigma")
        return checks.size("sigma", checks.finite_positive("sigma", sigma))
    if sigma is not None:
        raise ArgumentError(f"sigma = {sigma:g} is for a Singular that is not calibrated, got {encoder!r}")
    return encoder.sigma if isinstance(encoder, CalibratedSingular) else 0.0


def _blend(mixed: Tensor, parts: Iterable[Tensor], shares: Tensor) -> Tensor:
    """Each part in turn takes its share of all there is so far, in the memory of the first. Unlike a sum of products,
    the weights of such a mixture sum to one in half precision too."""
    for part, share in zip(parts, shares.to(mixed.dtype), strict=True):
        mixed.lerp_(part, share)
    return mixed


def _to(small: Tensor, device: torch.device) -> Tensor:
    """A few numbers sent to the device, without waiting for it."""
    return small.to(device, non_blocking=True)


def _clipped(rows: Tensor, centre: float, clip: float) -> Tensor:
    """`Singular.restore(Singular.prepare(rows))`, in the rows' own precision."""
    z = rows - centre
    return z.mul_((clip / _lengths(z)).clamp_(max=1).to(z.dtype)).add_(centre)


def _lengths(rows: Tensor) -> Tensor:
    """(n, 1) norms, in float32 at least: squares of half precision would overflow."""
    wide = torch.promote_types(rows.dtype, torch.float32)
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=wide)
    return norms


def _soft(y: Tensor, classes: int) -> Tensor:
    """(n, classes) float32 shares of the classes."""
    if y.dim() == 2:
        return y.float()
    return torch.zeros(len(y), classes, device=y.device).scatter_(1, y.long()[:, None], 1.0)


def _check_batch(x: Tensor, y: Tensor, classes: int) -> None:
    """By shapes and types alone; only on the CPU, where looking costs nothing, also by the class numbers."""
    if x.dtype not in _FLOATS or x.dim() < 2:
        raise ArgumentError(f"x must be a batch (n, …) of floating values, got {x.dtype} of shape {tuple(x.shape)}")
    checks.enough_rows(len(x))
    numbers = y.dtype in _WHOLE and y.shape == (len(x),)
    if not numbers and not (y.is_floating_point() and y.shape == (len(x), classes)):
        raise LabelError(
            f"y must be ({len(x)},) class numbers or ({len(x)}, {classes}) shares, got {y.dtype} of {tuple(y.shape)}"
        )
    if y.device != x.device:
        raise ArgumentError(f"x and y must be on one device, got {x.device} and {y.device}")
    if numbers and y.device.type == "cpu" and not (int(y.min()) >= 0 and int(y.max()) < classes):
        raise LabelError(f"class numbers must be in 0…{classes - 1}, got {int(y.min())}…{int(y.max())}")
