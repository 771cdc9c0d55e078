"""Steps of SGD of a round's clients side by side, in fixed places: on a GPU they are recorded once and replayed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mixveil.core.device_random import DeviceStream
from mixveil.core.local_training import AugMix
from mixveil.data import augmix as augmentation
from mixveil.features.stacked.local_steps import Rows, gradients
from mixveil.features.stacked.network import Stacked, Weights
from mixveil.federated.cohort_rows import Schedule

_VALUES = 1 << 24  # of augmented images that are made at once
_AT_ONCE = 4096  # images that are named at once


class Clock:
    """Seconds by part. On a GPU it waits until a part is done."""

    def __init__(self, device: torch.device) -> None:
        self.seconds: dict[str, float] = {}
        self._device = device

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        began = self._now()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + self._now() - began

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


class Pixels:
    """Images and labels of all clients on one device. x: (n, c, h, w) uint8, or floats in [0, 1]. A network sees them
    less `centre`, divided by `spread`, one for all channels or one for each."""

    def __init__(
        self,
        x: Tensor,
        labels: Tensor,
        classes: int,
        centre: Sequence[float] = (0.0,),
        spread: Sequence[float] = (1.0,),
    ) -> None:
        self.x, self.labels, self.device = x, labels.to(x.device), x.device
        self._centre, self._spread = (torch.tensor(of, device=x.device).view(-1, 1, 1) for of in (centre, spread))
        self._one_hot = torch.eye(classes, device=x.device)

    def images(self, rows: Tensor) -> Tensor:
        """(…, c, h, w) float32 in [0, 1]."""
        found = self.x[rows]
        return found.float() / 255 if found.dtype == torch.uint8 else found

    def seen(self, images: Tensor) -> Tensor:
        """What a network sees of (…, c, h, w) images."""
        return (images - self._centre) / self._spread

    def soft(self, rows: Tensor) -> Tensor:
        """(…, classes)."""
        return self._one_hot[self.labels[rows]]

    @torch.no_grad()
    def right(self, net: nn.Sequential, weights: Weights, rows: Tensor) -> Tensor:
        """(m,) 1 where a network with these weights names a row right, 0 elsewhere, in memory."""
        found = []
        for part in torch.split(rows.to(self.device), _AT_ONCE):
            named = functional_call(net, dict(weights), (self.seen(self.images(part)),)).argmax(1)
            found.append(named.eq(self.labels[part]))
        return torch.cat(found).double().cpu()


@dataclass(frozen=True)
class Local:
    """How a cohort's clients train. augmix: with `compared`, views are compared with the images, else the first view
    takes the place of each image."""

    rate: float
    momentum: float = 0.0
    proximal: float | None = None
    augmix: AugMix | None = None
    compared: bool = True


class CohortSteps:
    """The weights of a cohort, and what it trains on, in places that do not change. longest: steps of the longest
    schedule that may come."""

    def __init__(
        self, net: Stacked, pixels: Pixels, local: Local, clients: int, batch: int, longest: int, *, recorded: bool
    ) -> None:
        self.net, self.pixels, self.local = net, pixels, local
        place = pixels.device
        self.start = {name: torch.zeros(shape, device=place) for name, shape in net.shapes.items()}
        self.now = {name: torch.zeros(clients, *shape, device=place) for name, shape in net.shapes.items()}
        self._speed = {name: torch.zeros_like(value) for name, value in self.now.items()} if local.momentum else {}
        self._rows = torch.zeros(longest, clients, batch, dtype=torch.int64, device=place)
        self._shares = torch.zeros(longest, clients, batch, device=place)
        self._step = torch.zeros(1, dtype=torch.int64, device=place)
        self._within = torch.zeros(1, dtype=torch.int64, device=place)
        self._views: Tensor | None = None
        self.chunk = longest
        if local.augmix is not None:
            shape = tuple(pixels.x.shape[1:])
            values = local.augmix.views * clients * batch * math.prod(shape)
            self.chunk = max(1, min(longest, _VALUES // values))
            self._views = torch.zeros(local.augmix.views, self.chunk, clients, batch, *shape, device=place)
        self._run: Callable[[int], None] = _Recorded(self.update, place) if recorded else self.update

    def train(self, weights: Weights, plan: Schedule, draws: DeviceStream, clock: Clock) -> dict[str, Tensor]:
        """(k, …) by name: the weights of each client of the schedule after all of its steps. They are overwritten with
        the next call."""
        for name, value in self.now.items():
            self.start[name].copy_(weights[name])
            value.copy_(weights[name].expand_as(value))
        for value in self._speed.values():
            value.zero_()
        steps, clients = plan.rows.shape[:2]
        self._rows[:steps, :clients].copy_(plan.rows)
        self._shares[:steps, :clients].copy_(plan.shares)
        self._step.zero_()
        for first in range(0, steps, self.chunk):
            until = min(first + self.chunk, steps)
            if self._views is not None:
                with clock("views"):
                    self._make_views(plan, first, until, draws)
            with clock("steps"):
                for active in plan.active[first:until]:
                    self._run(active)
        return {name: value[:clients] for name, value in self.now.items()}

    def update(self, clients: int) -> None:
        """One step of the first clients. Nothing waits for the device."""
        rows = self._rows.index_select(0, self._step)[0, :clients]
        shares = self._shares.index_select(0, self._step)[0, :clients]
        x, views, augmix = self.pixels.seen(self.pixels.images(rows)), None, None
        if self._views is not None:
            seen = self.pixels.seen(self._views.index_select(1, self._within)[:, 0, :clients])
            if self.local.compared:
                views, augmix = seen, self.local.augmix
            else:
                x = seen[0]
        own = {name: value[:clients].detach() for name, value in self.now.items()}
        slopes = gradients(self.net, own, Rows(x, self.pixels.soft(rows), views, shares), augmix)
        with torch.no_grad():
            for name, slope in slopes.items():
                now = self.now[name][:clients]
                if self.local.proximal is not None:
                    slope = slope + self.local.proximal * (now - self.start[name])
                if self._speed:
                    slope = self._speed[name][:clients].mul_(self.local.momentum).add_(slope)
                now.sub_(slope, alpha=self.local.rate)
            self._step += 1
            self._within += 1

    def _make_views(self, plan: Schedule, first: int, until: int, draws: DeviceStream) -> None:
        """Of all rows of these steps; rows that only fill up a batch have none."""
        if self._views is None or self.local.augmix is None:
            return
        clients, batch = self._rows.shape[1:]
        rows = torch.zeros(until - first, clients, batch, dtype=torch.int64)
        real = torch.zeros(until - first, clients, batch, dtype=torch.bool)
        rows[:, : plan.rows.shape[1]] = plan.rows[first:until]
        real[:, : plan.rows.shape[1]] = plan.shares[first:until] > 0
        x = self.pixels.images(rows[real].to(self.pixels.device))
        found = augmentation.views(x, self.local.augmix, draws)
        places = real.flatten().nonzero()[:, 0].to(self.pixels.device)
        self._views.flatten(1, 3).index_copy_(1, places, found)
        self._within.zero_()


class _Recorded:
    """Steps as CUDA graphs, one for each number of clients that still train. The rate and other settings are a part of
    them."""

    def __init__(self, step: Callable[[int], None], device: torch.device) -> None:
        self._step, self._device = step, device
        self._ran: set[int] = set()
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, clients: int) -> None:
        if clients not in self._ran:  # libraries choose and load their kernels
            self._ran.add(clients)
            self._step(clients)
            return
        if clients not in self._graphs:
            graph = torch.cuda.CUDAGraph()
            # One pool serves all: a graph leaves nothing in it that another one needs.
            with torch.cuda.graph(graph, pool=self._pool, stream=torch.cuda.current_stream(self._device)):
                self._step(clients)  # recorded, not run
            self._graphs[clients] = graph
        self._graphs[clients].replay()
