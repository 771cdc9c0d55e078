"""Images and a small network for commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.made import tiny_weights


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Forty smooth images of 8 × 8 in `private.npz`, others in `public.npz`, and the weights of a small network."""
    monkeypatch.setenv("MIXVEIL_DATA", str(tiny_weights(tmp_path / "data", monkeypatch)))
    monkeypatch.setenv("MIXVEIL_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for name in ("private", "public", "mnist"):
        x = np.kron(rng.random((40, 1, 2, 2)), np.ones((4, 4))) * 0.7 + 0.3 * rng.random((40, 1, 8, 8))
        np.savez(tmp_path / f"{name}.npz", x=x.astype(np.float32), y=np.arange(40) % 3)
    return tmp_path
