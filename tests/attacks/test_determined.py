"""Which images follow from rows: against the rank of all changes, written down."""

from __future__ import annotations

import torch
from torch import Tensor

from mixveil.attacks.shared.gaussian.determined import crossed, determined
from mixveil.attacks.shared.gaussian.sparse_solve import Selection
from mixveil.core.randomness import SeededStream

K4 = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def rows(pairs: list[tuple[int, int]], seed: int = 1) -> Selection:
    weight = SeededStream(seed).mixing_weights(len(pairs), 2).double()
    none = torch.empty(len(pairs), 0)
    return Selection(torch.tensor(pairs), weight, none.long(), none.double())


def by_rank(selection: Selection, fixed: Tensor, images: int) -> list[bool]:
    """An image is open if the changes of all other images and weights do not span less without it."""
    weight = selection.dense(images)
    columns = []
    for row in (~fixed).nonzero()[:, 0].tolist():
        step = torch.zeros_like(weight)
        step[row, selection.source[row, 0]] += 1
        step[row, selection.source[row, 1]] -= 1
        columns.append(step.flatten())
    free = []
    for image in range(images):
        for place in range(images):  # what of each image it may change by
            step = torch.zeros(images, images, dtype=weight.dtype)
            step[image, place] = 1
            columns.append((weight @ step).flatten())
            free.append(image)
    null = torch.linalg.svd(torch.stack(columns, dim=1)).Vh
    rank = int(torch.linalg.matrix_rank(torch.stack(columns, dim=1)))
    size = null[rank:, len(columns) - len(free) :].abs().amax(0) if rank < len(columns) else torch.zeros(len(free))
    return [float(size.view(images, images)[image].max()) < 1e-6 for image in range(images)]


def test_it_is_what_the_rank_of_all_changes_says() -> None:
    graphs = {
        "four images": (K4, 4),
        "one more by two rows": ([*K4, (0, 4), (1, 4)], 5),
        "one more by one row": ([*K4, (0, 4)], 5),
        "one more by two rows of one pair": ([*K4, (0, 4), (0, 4)], 5),
        "a triangle at one image": ([*K4, (0, 4), (4, 5), (5, 0)], 6),
        "a way between two images": ([*K4, (0, 4), (4, 5), (5, 1)], 6),
        "a triangle": ([(0, 1), (1, 2), (2, 0)], 3),
    }
    said = {}
    for name, (pairs, images) in graphs.items():
        for labelled in (False, True):
            selection, fixed = rows(pairs), torch.arange(len(pairs)) >= (6 if labelled else len(pairs))
            found = determined(selection, fixed, images, masked=False).tolist()
            assert found == by_rank(selection, fixed, images), (name, labelled)
            said[name, labelled] = all(found)
    assert (
        said["four images", False] and said["one more by two rows", False] and said["a way between two images", False]
    )
    assert not said["one more by one row", False] and said["one more by one row", True]
    assert not said["one more by two rows of one pair", False] and not said["a triangle at one image", False]


def test_random_graphs_agree_too() -> None:
    for seed in range(8):
        stream = SeededStream(seed)
        pairs = [(int(a), int(b)) for a, b in (stream.permutation(6)[:2] for _ in range(9))]
        selection, fixed = rows(pairs, seed), stream.uniform(9) < 0.3
        assert determined(selection, fixed, 6, masked=False).tolist() == by_rank(selection, fixed, 6)


def test_images_in_no_row_are_open() -> None:
    selection = rows(K4)
    assert determined(selection, torch.zeros(6, dtype=torch.bool), 5, masked=False).tolist() == [*[True] * 4, False]


def test_hidden_signs_need_two_rows_that_say_different_things() -> None:
    pairs = [*K4, (0, 4), (4, 5), (0, 6), (0, 6), (0, 7), (1, 7), (8, 0), (0, 8)]
    selection = rows(pairs)
    selection.weight[8:10] = torch.tensor([0.4, 0.6])
    told = crossed(selection, 9)
    assert told.tolist() == [*[True] * 4, False, False, False, True, True]
    known = torch.ones(len(pairs), dtype=torch.bool)
    assert determined(selection, known, 9, masked=False).all()
    assert torch.equal(determined(selection, known, 9, masked=True), told)
