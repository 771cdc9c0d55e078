"""What a trace file may hold: what was drawn for its rows, row by row, and nothing else."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mixveil.core.errors import StateError
from mixveil.core.types import Trace
from mixveil.releases.traces import load_trace, save_trace, trace_path

NAME = "0" * 32
TRACE = Trace(
    torch.tensor([[1], [0], [0]]),
    torch.full((3, 2), 0.5),
    torch.tensor([2, 0, 1]),
    torch.tensor([True, True, False]),
    {"signs": torch.ones(3, 4, dtype=torch.int8), "turn": torch.zeros(3)},
)


def test_a_trace_comes_back_as_it_was() -> None:
    save_trace(NAME, TRACE, "")
    found = load_trace(NAME, 2)
    assert found is not None and found.order is not None and found.kept is not None
    assert torch.equal(found.order, torch.tensor([2, 0, 1])) and found.kept.tolist() == [True, True, False]
    assert found.extra.keys() == {"signs", "turn"} and found.extra["signs"].dtype == torch.int8


@pytest.mark.parametrize(
    "more", [{"extra.signs": torch.ones(2, 4)}, {"extra.signs": torch.tensor(1.0)}, {"noise": torch.zeros(3, 4)}]
)
def test_what_is_not_of_its_rows_is_refused(more: dict[str, Tensor]) -> None:
    path = save_trace(NAME, TRACE, "")
    save_file({**load_file(path), **more}, trace_path(NAME))
    with pytest.raises(StateError, match=next(iter(more)).removeprefix("extra.")):
        load_trace(NAME, 2)
