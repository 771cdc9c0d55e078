"""Files that cannot be read are named in one message, whatever is wrong with each; and threads may read together."""

from __future__ import annotations

import logging
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mixveil.core import errors
from mixveil.data.header import quiet
from mixveil.data.opening import open_data


def folder(root: Path, count: int = 12) -> Path:
    for number in range(count):
        place = root / "f" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((40, 40), number, np.uint8) + np.eye(40, dtype=np.uint8)).save(place / f"{number}.png")
    return root / "f"


def test_bad_headers_and_bad_pixels_are_named_together(tmp_path: Path) -> None:
    data = folder(tmp_path)
    (data / "a" / "0.png").write_bytes(b"not a picture")
    whole = (data / "b" / "7.png").read_bytes()
    (data / "b" / "7.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(errors.UnreadableImageError) as told:
        open_data(str(data))
    assert len(told.value.files) == 2 and "0.png" in str(told.value) and "7.png" in str(told.value)


def test_a_table_with_missing_files_names_them_all(tmp_path: Path) -> None:
    data = folder(tmp_path)
    lines = ["path,label", "f/a/0.png,x", "f/a/gone.png,x", "f/b/1.png,y", "elsewhere/gone-too.png,y"]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    with pytest.raises(errors.UnreadableImageError) as told:
        open_data(str(tmp_path / "t.csv"))
    assert len(told.value.files) == 2 and all("does not exist" in line for line in told.value.files)
    assert data.exists()


def test_threads_that_read_leave_warnings_as_they_were(tmp_path: Path) -> None:
    images = open_data(str(folder(tmp_path)))
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda _: images.take(torch.arange(12)).x, range(40)))
    assert all(torch.equal(part, parts[0]) for part in parts) and warnings.filters == before


def test_decoders_are_quiet_until_the_last_has_left() -> None:
    log, before = logging.getLogger("pydicom"), list(warnings.filters)
    with quiet:
        with quiet:
            pass
        assert not log.propagate and warnings.filters != before
    assert log.propagate and warnings.filters == before
