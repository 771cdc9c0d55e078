"""The records of every row, from some rows of every record: rows are compared with the weighed mean of a record's rows.

That mean, the record's prototype, holds what its rows share and little else. Rows are assigned to prototypes
(`assignment`), prototypes are made again of the rows that were assigned to them, and so on. Where images were moved
before they were mixed, every row is compared with a prototype in every place, and enters it moved back.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.attacks.shared.breaks.assignment import assigned
from mixveil.attacks.shared.breaks.clusters import Clusters
from mixveil.data.moves import all_moves, moved, moved_back

_ROUNDS = 3
_BLOCK = 1000
_NONE = 1e-6  # of weights: that is no row
_WAVES = 1 << 25  # of pairs of rows that are held at a time


class Placed(NamedTuple):
    """sources: (m, s) the records of each row, −1 for none; moves: (m, s, 3) how each was moved, up to one mirroring of
    each record, which no attacker can tell."""

    sources: Tensor
    moves: Tensor


def label_weights(sources: Tensor, y: Tensor, classes: Tensor) -> Tensor:
    """(m, s) the weights of the records in each row, (m, s): the share that its label (m, classes) shows of their
    class, in equal parts where several are of one class. classes: (n,) of the records."""
    there = sources >= 0
    kind = torch.where(there, classes[sources.clamp(min=0)], -1)
    alike = (kind[:, :, None] == kind[:, None, :]).sum(2)
    return torch.where(there, y.gather(1, kind.clamp(min=0)) / alike, 0)


def placed(
    maps: Tensor,
    y: Tensor,
    found: Clusters,
    private: int,
    *,
    own: Tensor | None,
    reach: int,
    sources: Tensor | None = None,
) -> Placed:
    """From the maps of rows (m, c, h, w), their labels, and some rows of every record. own: (m,) the record of each
    row, where it is known; reach: by how many pixels images were moved at most; sources: (m, s) where these are known,
    and moves alone are not."""
    records, classes = len(found.rows), found.classes
    here = _of_clusters(found, len(maps))
    places = _Places(maps, reach)
    here = places.begun(here, records, found.rows[:, 0])
    for _ in range(_ROUNDS):
        fit, moves = places.fit(here, label_weights(here.sources, y, classes), records)
        fit = (fit - fit.mean(0)) / fit.std(0).clamp(min=1e-30)
        held = assigned(fit, y, classes, private, own) if sources is None else sources
        here = places.centred(Placed(held, moves[torch.arange(len(moves))[:, None], held.clamp(min=0)]), records)
    return here


def _of_clusters(found: Clusters, rows: int) -> Placed:
    """Rows of clusters, each with the clusters that it is in."""
    records = len(found.rows)
    inside = torch.zeros(rows, records, dtype=torch.bool)
    inside[found.rows, torch.arange(records)[:, None]] = True
    most = max(1, int(inside.sum(1).max()))
    held, sources = inside.int().topk(most, dim=1)
    return Placed(sources.masked_fill(held == 0, -1), torch.zeros(rows, most, 3, dtype=torch.int64))


class _Places:
    """Rows in every place. reach: by how many pixels images were moved at most."""

    def __init__(self, maps: Tensor, reach: int) -> None:
        self.maps, self.reach = maps, reach
        self.flat = maps.flatten(1)
        self.energy = self.flat.square().sum(1)

    def begun(self, here: Placed, records: int, first: Tensor) -> Placed:
        """Clusters in one place each: that of their first row, (n,)."""
        if not self.reach:
            return here
        moves = here.moves.clone()
        every = all_moves(2 * self.reach)
        for column in range(here.sources.shape[1]):
            rows = (here.sources[:, column] >= 0).nonzero()[:, 0]
            start = self.maps[first[here.sources[rows, column]].to(self.maps.device)]
            moves[rows, column] = every[self._best(self.flat[rows.to(self.maps.device)], start, every)]
        return self.centred(Placed(here.sources, moves), records)

    def sums(self, here: Placed, weights: Tensor, records: int) -> Tensor:
        """(n, c, h, w) the weighed sums of the maps of every record's rows, moved back."""
        total = torch.zeros(records, *self.maps.shape[1:], device=self.maps.device)
        for sources, weight, moves in zip(here.sources.T, weights.T, here.moves.unbind(1), strict=True):
            for rows in torch.split((sources >= 0).nonzero()[:, 0], _BLOCK):
                there = rows.to(self.maps.device)
                back = moved_back(self.maps[there], moves[rows], 0.0) if self.reach else self.maps[there]
                total.index_add_(0, sources[rows].to(total.device), back * weight[rows].view(-1, 1, 1, 1).to(back))
        return total

    def fit(self, here: Placed, weights: Tensor, records: int) -> tuple[Tensor, Tensor]:
        """(m, n) how well each row fits the prototype of each record, made of all other rows, and (m, n, 3) in which
        place."""
        device, rows = self.maps.device, len(self.maps)
        held = torch.zeros(rows, records, device=device)
        every = all_moves(2 * self.reach)
        number = torch.arange(rows)[:, None].expand_as(here.sources)
        there = here.sources >= 0
        index = (number[there].to(device), here.sources[there].to(device))
        weight = weights[there].float().to(device)
        held.index_put_(index, weight, accumulate=True)
        own = self._own(here)[there.to(device)] * weight[:, None]
        sums = self.sums(here, weights, records)
        best = torch.full((rows, records), -torch.inf, device=device)
        chosen = torch.zeros(rows, records, dtype=torch.int64, device=device)
        for number_of, move in enumerate(every):
            turned = moved(sums, move.expand(records, 3), 0.0) if self.reach else sums
            score = self.flat @ turned.flatten(1).T
            score.index_put_(index, -own[:, number_of], accumulate=True)
            better = score > best
            best, chosen = torch.where(better, score, best), torch.where(better, number_of, chosen)
        rest = held.sum(0) - held
        mean = torch.where(rest > _NONE, best / rest.clamp(min=_NONE), 0)  # the only row of a record says nothing of it
        return mean.cpu(), every[chosen.cpu()]

    def _own(self, here: Placed) -> Tensor:
        """(m, s, moves) inner products of each row and itself, moved back from its place and then to every place."""
        if not self.reach:
            return self.energy[:, None, None].expand(-1, here.sources.shape[1], 1)
        steps = torch.arange(-2 * self.reach, 2 * self.reach + 1, device=self.maps.device)
        height, width = (side + 2 * self.reach for side in self.maps.shape[2:])
        waves = torch.fft.rfft2(self.maps, s=(height, width))
        columns = []
        for moves in here.moves.unbind(1):
            back = moved_back(self.maps, moves, 0.0)
            spectra = [(waves * torch.fft.rfft2(x, s=(height, width)).conj()).sum(1) for x in (back, back.flip(3))]
            agree = torch.fft.irfft2(torch.stack(spectra, dim=1), s=(height, width))
            columns.append(agree[:, :, steps % height][:, :, :, steps % width].flatten(1))
        return torch.stack(columns, dim=1)

    def centred(self, here: Placed, records: int) -> Placed:
        """The same with every record in the place that its moves are around: most moves are then within the reach."""
        if not self.reach:
            return here
        moves = here.moves.clone()
        for record in range(records):
            mine = here.sources == record
            if not bool(mine.any()):
                continue
            mirror, down, right = moves[mine].T
            turn = 1 - 2 * mirror
            moves[mine] = torch.stack(
                [mirror, down + self._shift(down), right + turn * self._shift(turn * right)], dim=1
            )
        return Placed(here.sources, moves)

    def _shift(self, steps: Tensor) -> int:
        """What to add to steps, so that most of them are within the reach, and their mean is nearest to nothing."""
        tries = range(-2 * self.reach, 2 * self.reach + 1)
        inside = {shift: int(((steps + shift).abs() <= self.reach).sum()) for shift in tries}
        most = max(inside.values())
        mean = float(steps.double().mean())
        return min((shift for shift in tries if inside[shift] == most), key=lambda shift: abs(mean + shift))

    def _best(self, flat: Tensor, start: Tensor, every: Tensor) -> Tensor:
        """(k,) the number of the move that brings each map of `start` (k, c, h, w) nearest to rows (k, d)."""
        scores = [(flat * moved(start, move.expand(len(start), 3), 0.0).flatten(1)).sum(1) for move in every]
        return torch.stack(scores).argmax(0).cpu()


def alike_in_places(maps: Tensor, reach: int) -> Tensor:
    """(m, m) how alike rows are by the inner products of their maps (m, c, h, w); where images were moved, in the place
    in which they are most alike: all places at once, by Fourier transforms of maps with room for every move."""
    if not reach:
        flat = maps.flatten(1)
        return flat @ flat.T
    height, width = (side + 2 * reach for side in maps.shape[2:])
    steps = torch.cat([torch.arange(2 * reach + 1), torch.arange(-2 * reach, 0)]).to(maps.device)
    waves = torch.fft.rfft2(maps, s=(height, width))
    best = maps.new_full((len(maps), len(maps)), -torch.inf)
    for turned in (maps, maps.flip(3)):
        others = torch.fft.rfft2(turned, s=(height, width)).conj()
        for rows in torch.split(torch.arange(len(maps), device=maps.device), max(1, _WAVES // others[:, 0].numel())):
            spectra = torch.einsum("bcij,mcij->bmij", waves[rows], others)
            agree = torch.fft.irfft2(spectra, s=(height, width))
            most = agree[:, :, steps % height][:, :, :, steps % width].flatten(2).amax(2)
            best[rows] = torch.maximum(best[rows], most)
    return torch.maximum(best, best.T)
