"""Kernels run on a GPU where there is one, else in Triton's interpreter, chosen before they are loaded."""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture
def device() -> torch.device:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed: pip install triton, and its interpreter runs the kernels on the CPU")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
