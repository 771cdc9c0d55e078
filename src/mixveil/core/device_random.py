"""Fast random draws for training and for batches that never leave a party.

The noise is float32 and would betray itself: everything that leaves a party draws from `randomness.Stream`.
"""

from __future__ import annotations

import hmac

import numpy as np
import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream, this_process

_MEMORY = torch.device("cpu")
_TRIES = 10_000
_ONE_BIT = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)


class DeviceStream:
    """Fast draws by the generators of torch: large ones on the device that needs them, small ones in memory by numpy,
    which costs less than asking a GPU. In a worker process of a data loader the draws follow from the seed that torch
    gives that worker."""

    def __init__(self, stream: Stream) -> None:
        self._seed = int(stream.words(1)).to_bytes(8, "big", signed=True)
        self._place = ""
        self._process = this_process()
        self._generators: dict[torch.device, torch.Generator] = {}

    def restart(self, number: int) -> None:
        """From here on the draws follow from the stream and this number alone, not from earlier draws."""
        self._settle()
        self._begin(f"number {number}")

    def uniform(self, *shape: int, device: torch.device) -> Tensor:
        """Uniform in [0, 1), float32."""
        return torch.rand(shape, generator=self._on(device), device=device)

    def normal(self, like: Tensor) -> Tensor:
        """Standard normals of the same shape, type and device."""
        return torch.randn(like.shape, generator=self._on(like.device), device=like.device, dtype=like.dtype)

    def signs(self, like: Tensor) -> Tensor:
        """Fair ±1 of the same shape, type and device."""
        if like.device.type != "cpu":  # there a draw is cheap, and a further pass over the values is not
            drawn = torch.empty(like.shape, dtype=like.dtype, device=like.device)
            return drawn.random_(0, 2, generator=self._on(like.device)).mul_(2).sub_(1)
        n = like.numel()
        words = torch.empty(-(-n // 64), dtype=torch.int64).random_(-(1 << 63), None, generator=self._on(_MEMORY))
        bits = words.view(torch.uint8)[:, None].bitwise_and(_ONE_BIT).ne(0)  # 64 signs from a word
        return bits.view(-1)[:n].to(like.dtype).mul_(-2).add_(1).view(like.shape)

    def laplace(self, like: Tensor) -> Tensor:
        """Laplace noise of mean size 1, of the same shape, type and device."""
        size = torch.empty_like(like, memory_format=torch.contiguous_format).exponential_(
            generator=self._on(like.device)
        )
        return size.mul_(self.signs(like))

    def below(self, most: int, n: int) -> Tensor:
        """(n,) whole numbers, each uniform in 0…most − 1."""
        return torch.randint(most, (n,), generator=self._on(_MEMORY))

    def permutation(self, n: int) -> Tensor:
        return torch.randperm(n, generator=self._on(_MEMORY))

    def cycle(self, n: int) -> Tensor:
        """(n,) a partner for each row, never itself (n ≥ 2): the rows in random order, each with the next."""
        order = self.permutation(checks.enough_rows(n)).numpy()
        partner = np.empty_like(order)
        partner[order] = np.roll(order, -1)
        return torch.from_numpy(partner)

    def capped_weights(self, n: int, alpha: float) -> Tensor:
        """(n, 2) by the law of `Stream.capped_weights`, in float32."""
        checks.cap("alpha", alpha)
        draws = self.uniform(2, n, device=_MEMORY).numpy()
        larger = np.minimum(1 / (2 - draws[0] * (2 - 1 / alpha)), alpha)
        own = np.where(draws[1] < 0.5, larger, 1 - larger)
        return torch.from_numpy(np.stack([own, 1 - own], axis=1).astype(np.float32))

    def mixing_weights(self, n: int, k: int) -> Tensor:
        """(n, k) by the law of `Stream.mixing_weights`, in float32."""
        draws = 1 - self.uniform(n, k, device=_MEMORY).numpy()
        return torch.from_numpy(draws / draws.sum(1, keepdims=True))

    def bounded_weights(self, n: int, k: int, most: float, first: int, least: float) -> Tensor:
        """(n, k) by the law of `Stream.bounded_weights`, in float32: those that do not fit are drawn again."""
        if k == 1:
            return torch.ones(n, 1)
        found, left = [], n
        for _ in range(_TRIES):
            drawn = self.mixing_weights(2 * left + 64, k).numpy()  # most batches need one draw
            fits = drawn[(drawn.max(1) <= most) & (drawn[:, :first].sum(1) >= least)][:left]
            found.append(torch.from_numpy(fits))
            left -= len(fits)
            if left == 0:
                return torch.cat(found)
        raise ArgumentError(f"weights of {k} images, at most {most:g} and {least:g} of the first {first}, hardly occur")

    def dirichlet(self, n: int, k: int, alpha: float) -> Tensor:
        """(n, k) float32 weights by Dirichlet(α, …, α); the first of two is Beta(α, α).

        Gamma draws of α + 1 are taken down to α by U^(1/α), in logarithms: those of a small α would all be 0.
        """
        checks.finite_positive("alpha", alpha)
        shape = torch.full((n, k), alpha + 1, dtype=torch.float64)
        gammas = torch._standard_gamma(shape, generator=self._on(_MEMORY))
        uniform = torch.rand((n, k), generator=self._on(_MEMORY), dtype=torch.float64)
        return (gammas.log() + torch.log1p(-uniform) / alpha).softmax(1).float()

    def _settle(self) -> None:
        """Draw differently in every process."""
        if this_process() != self._process:
            self._process, self._generators = this_process(), {}
            self._begin(f"{self._place}, worker {torch.initial_seed()}")

    def _on(self, device: torch.device) -> torch.Generator:
        self._settle()
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._derived(device))
        return self._generators[device]

    def _begin(self, place: str) -> None:
        self._place = place
        for device, generator in self._generators.items():
            generator.manual_seed(self._derived(device))

    def _derived(self, device: torch.device) -> int:
        name = f"{device.type}, {self._place}".encode()  # the same on each of several GPUs
        return int.from_bytes(hmac.digest(self._seed, name, "sha256")[:8], "big") >> 1
